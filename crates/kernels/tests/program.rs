//! The program as its users start it: the JSON line, the exit codes, the messages.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use assert_cmd::Command;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use predicates::str::contains;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

/// An address at which nobody listens yet.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weigh-kernels"));
    command.timeout(Duration::from_secs(60));
    command
}

/// Runs a command line in which DISK means a new file and FOLDER its directory.
fn run(line: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let line = line.replace("DISK", &format!("{path}/disk")).replace("FOLDER", path);
    let output =
        program().args(line.split_whitespace()).assert().success().stderr("").get_output().stdout.clone();
    let text = String::from_utf8(output).unwrap();
    assert!(text.ends_with('\n') && text.lines().count() == 1, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// Kernels, each with the smallest amount of work for which it still reports every metric.
const TINY: &[(&str, &str)] = &[
    ("spin", "--work 1e6"),
    ("block", "--path DISK --file-bytes 64KiB --direct off --operations 4000"),
    (
        "fileserver",
        "--directory FOLDER --files 20 --threads 2 --file-bytes 4KiB --append-bytes 1KiB --operations 5000",
    ),
    ("noploop", "--nops 1e6"),
    ("stream", "--array-bytes 1MiB --repetitions 2"),
    ("gups", "--table-bytes 1MiB"),
    ("lu", "--n 100 --repetitions 2"),
    ("inference", "--layers 1 --width 32 --heads 2 --vocabulary 100 --prompt 8 --tokens 8"),
    ("pi", "--digits 10000"),
    ("lzma", "--bytes 100000 --level 0"),
    ("syscall", "--getpid 1000 --read 1000 --mmap 100 --fork 5 --switch 100 --batches 5"),
    ("memory-latency", "--loads 1000"),
    ("spawn", "--processes 8 --batches 2"),
    ("echo", "--requests 4000"),
    ("bulk", "--seconds 0.05"),
    ("load", "--requests 4000 --warmup-seconds 0"),
];

/// Kernels that only serve: they measure nothing, and end when their stdin is closed.
const SERVERS: &[&str] = &["null-server"];

#[test]
fn every_kernel_prints_its_metrics_its_check_and_its_facts() {
    for (kernel, line) in TINY {
        let result = run(&format!("{kernel} {line}"));
        assert_eq!(result["kernel"], *kernel);
        assert_eq!(result["check"]["passed"], true, "{result}");
        assert!(result["check"]["statement"].as_str().unwrap().len() > 10);
        let metrics = weigh_kernels::find(kernel).unwrap().metrics;
        let printed: Vec<&String> = result["metrics"].as_object().unwrap().keys().collect();
        assert_eq!(printed, metrics.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        let duration = &result["duration"];
        assert_eq!(duration["unit"], "s");
        for (name, unit) in metrics {
            let metric = &result["metrics"][name];
            assert_eq!(metric["unit"], *unit, "{kernel} {name}");
            assert!(metric["value"].as_f64().unwrap() > 0.0, "{kernel} {name}");
            // The program's total time includes every piece of work that it timed.
            let in_seconds = duration["value"].as_f64() > metric["value"].as_f64();
            assert!(*unit != "s" || in_seconds, "{result}");
        }
        assert!(result["operations"].as_u64().unwrap() > 0, "{result}");
        assert!(result["facts"]["clock_tick_s"].as_f64().unwrap() > 0.0);
        assert!(result["warnings"].is_array());
        assert!(!result["params"].as_object().unwrap().is_empty());
    }
    assert_eq!(TINY.len() + SERVERS.len(), weigh_kernels::all().len());
}

#[test]
fn operations_are_the_work_that_was_done_warm_up_included() {
    let operations = |line: &str| run(line)["operations"].as_u64().unwrap();
    assert_eq!(operations("noploop --nops 1e6 --repetitions 3"), 10_000 + 3_000_000);
    // Copy and scale move two arrays, add and triad three.
    assert_eq!(operations("stream --array-bytes 1MiB --repetitions 2"), 2 * 10 * (1 << 20));
    assert_eq!(operations("gups --table-bytes 64KiB --updates 12345"), 12_345);
    // The warm-up system of order 100, and two that count: 2/3 n^3 + 2 n^2 each, rounded
    // together.
    assert_eq!(operations("lu --n 100 --repetitions 2"), 2_060_000);
    // One token as a warm-up, and all of them a second time for the check.
    assert_eq!(operations("inference --width 32 --vocabulary 100 --prompt 8 --tokens 4"), 25);
    assert_eq!(operations("pi --digits 1000"), 1000);
    assert_eq!(operations("lzma --bytes 50000 --level 0 --repetitions 2"), 100_000);
    assert_eq!(operations("syscall --operations getpid --getpid 1000 --batches 5"), 20 + 1000);
    assert_eq!(operations("memory-latency --sizes 4KiB --loads 8 --batches 2"), 20 * 8 * 2 + 128);
    assert_eq!(operations("echo --protocols tcp --requests 30 --warmup 7"), 37);
    assert_eq!(operations("load --protocol redis --requests 30 --pipeline 4 --warmup-seconds 0"), 30);
    assert_eq!(operations("spin --work 1e6"), 1_000_000);
    assert_eq!(
        operations("block --path DISK --file-bytes 64KiB --direct off --operations 30 --warmup 7"),
        37
    );
}

#[test]
fn latencies_are_printed_as_histograms_that_agree_with_the_quantiles() {
    let cases = [
        ("echo --requests 400", vec![("tcp_latency", 400), ("udp_latency", 400)]),
        ("block --path DISK --file-bytes 64KiB --direct off --operations 400", vec![("latency", 400)]),
        ("load --protocol http --requests 400 --warmup-seconds 0", vec![("latency", 400)]),
    ];
    for (line, histograms) in cases {
        let result = run(line);
        for (name, samples) in histograms {
            let text = result["histograms"][name].as_str().unwrap();
            let bytes = BASE64_STANDARD.decode(text).unwrap();
            let histogram: Histogram<u64> = Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
            assert_eq!(histogram.len(), samples);
            let median = histogram.value_at_quantile(0.5) as f64 * 1e-9;
            let printed = result["metrics"][format!("{name}_p50")]["value"].as_f64().unwrap();
            assert!((median - printed).abs() < 1e-12, "{median} {printed}");
        }
    }
    assert!(run("noploop --nops 1e6").get("histograms").is_none());
}

#[test]
fn the_environment_adds_a_known_fraction_to_a_spin() {
    let spin = |extra: &str| {
        let assert = program().env("WEIGH_SPIN", extra).args(["spin", "--work", "1e6"]).assert();
        (assert.get_output().status.code(), assert.get_output().stdout.clone())
    };
    let (code, line) = spin("0.050");
    let result: Value = serde_json::from_slice(&line).unwrap();
    assert_eq!(
        (code, &result["facts"]["steps"], &result["operations"]),
        (Some(0), &1_050_000.into(), &1_000_000.into())
    );
    assert_eq!(spin("five").0, Some(2));
}

#[test]
fn random_reads_report_the_bytes_they_read() {
    let result =
        run("block --path DISK --file-bytes 64KiB --direct off --operations 30 --warmup 7 --bytes 8KiB");
    assert_eq!(result["random_read_bytes"], 37 * 8192);
    assert!(run("spin --work 1e6").get("random_read_bytes").is_none());
}

#[test]
fn params_are_the_options_in_force() {
    let result = run("gups --table-bytes=64KiB --threads 1 --updates 1e4");
    assert_eq!(result["params"]["table-bytes"], 65536);
    assert_eq!(result["params"]["updates"], 10_000);
    assert_eq!(result["params"]["threads"], 1);
    assert_eq!(result["params"]["huge-pages"], "advise");
    assert_eq!(result["facts"]["threads"], 1);
}

/// The content is before the line, or comes from the input, and replaces what was there.
#[test]
fn the_copy_tool_keeps_every_byte() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("copied");
    let content: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
    std::fs::write(&path, vec![1; 400_000]).unwrap();
    let to = program().args(["copy", "--to"]).arg(&path).write_stdin(content.clone()).assert().success();
    let line: Value = serde_json::from_slice(&to.get_output().stdout).unwrap();
    assert_eq!((&line["operations"], std::fs::read(&path).unwrap() == content), (&300_000.into(), true));
    let from = program().args(["copy", "--from"]).arg(&path).assert().success();
    let output = &from.get_output().stdout;
    assert!(output.starts_with(&content));
    let line: Value = serde_json::from_slice(&output[content.len()..]).unwrap();
    assert_eq!(line["operations"], 300_000);
}

#[test]
fn wrong_command_lines_exit_with_2_and_a_suggestion() {
    let wrong = |line: &str, message: &str| {
        program()
            .args(line.split_whitespace())
            .assert()
            .code(2)
            .stdout("")
            .stderr(contains(message.to_owned()));
    };
    wrong("", "Usage: weigh-kernels");
    wrong("steam", "did you mean `stream`?");
    wrong("xyzzy", "the kernels are: noploop, stream");
    wrong("stream --array-byte 1MiB", "did you mean `--array-bytes`?");
    wrong("stream --array-bytes", "needs a value");
    wrong("stream --array-bytes 1XiB", "`XiB` is not a unit");
    wrong("stream --array-bytes 8", "is too small");
    wrong("stream --repetitions 1", "the least is 2");
    wrong("lzma --level 12", "the highest is 9");
    wrong("lu --n 0", "the least is 1");
    wrong("lu --m 100", "did you mean `--n`?");
    wrong("pi --digits 10", "the least is 100");
    wrong("pi --digit 1000", "did you mean `--digits`?");
    wrong("syscall --operations getpid,forkexec", "did you mean `fork_exec`?");
    wrong("echo --serve 127.0.0.1:0", "needs a port");
    wrong("null-server --protocol redis", "--listen 127.0.0.1:7007");
    wrong("load --protocol reddis", "did you mean `redis`?");
}

#[test]
fn a_failure_exits_with_1() {
    program()
        .args(["stream", "--array-bytes", "100000TiB"])
        .assert()
        .code(1)
        .stdout("")
        .stderr(contains("stream: cannot map"));
    program().args(["lu", "--n", "8e6"]).assert().code(1).stdout("").stderr(contains("lu: cannot map"));
    program()
        .args(["echo", "--connect", "127.0.0.1:1", "--timeout-ms", "50"])
        .assert()
        .code(1)
        .stderr(contains("connect"));
}

#[test]
fn a_loopback_interface_that_is_down_is_reported() {
    let mut alone = Command::new("unshare");
    if !alone.args(["--map-root-user", "--net", "true"]).output().is_ok_and(|output| output.status.success())
    {
        eprintln!(
            "SKIPPED a_loopback_interface_that_is_down_is_reported: no new network namespace can be made here"
        );
        return;
    }
    for protocol in ["tcp", "udp"] {
        Command::new("unshare")
            .args(["--map-root-user", "--net", env!("CARGO_BIN_EXE_weigh-kernels")])
            .args(["echo", "--protocols", protocol, "--timeout-ms", "300"])
            .timeout(Duration::from_secs(10))
            .assert()
            .code(1)
            .stdout("")
            .stderr(contains("the loopback interface is down"));
    }
}

#[test]
fn a_failed_check_exits_with_3_and_prints_the_line() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    // The server greets correctly, and then answers every request with the same bytes.
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut greeting = [0; 16];
        stream.read_exact(&mut greeting).unwrap();
        stream.write_all(&greeting).unwrap();
        let mut request = [0; 100];
        while stream.read_exact(&mut request).is_ok() {
            stream.write_all(&[0xff; 200]).unwrap();
        }
    });
    let assert = program()
        .args(["echo", "--protocols", "tcp", "--requests", "10", "--warmup", "0", "--connect", &address])
        .assert()
        .code(3);
    let result: Value = serde_json::from_slice(&assert.get_output().stdout).unwrap();
    assert_eq!(result["check"]["passed"], false);
    assert_eq!(result["check"]["statement"], "10 wrong tcp responses");
    server.join().unwrap();
}

#[test]
fn servers_end_when_their_stdin_is_closed() {
    for server in ["echo --serve", "bulk --serve", "null-server --protocol redis --listen"] {
        let address = free_address().to_string();
        // assert_cmd closes stdin at once.
        let arguments = server.split(' ').chain([address.as_str()]);
        let output = program().args(arguments).assert().success().get_output().stdout.clone();
        let text = String::from_utf8(output).unwrap();
        let (first, result) = text.split_once('\n').unwrap();
        assert_eq!(first, "listening", "{server}: clients may come");
        let result: Value = serde_json::from_str(result).unwrap();
        assert_eq!(result["facts"]["served"], 0, "{server}");
    }
}

/// Keeps a null server alive until it is dropped.
struct Serving {
    server: std::process::Child,
    port: u16,
}

impl Serving {
    #[expect(clippy::disallowed_methods, reason = "it runs beside its client, which assert_cmd cannot do")]
    fn start(protocol: &str) -> Self {
        let address = free_address();
        let mut server = std::process::Command::new(env!("CARGO_BIN_EXE_weigh-kernels"))
            .args(["null-server", "--protocol", protocol, "--listen", &address.to_string()])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 10];
        server.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        assert_eq!(&said, b"listening\n");
        Self { server, port: address.port() }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.server.stdin.take());
        self.server.wait().unwrap();
    }
}

/// The load generator of the workload `mariadb`, with prepared statements and with statements as
/// text.
#[test]
fn sysbench_takes_the_null_server_for_a_database() {
    let installed = Command::new("sysbench").arg("--version").output();
    if installed.is_err() {
        eprintln!("SKIPPED sysbench_takes_the_null_server_for_a_database: there is no program `sysbench`");
        return;
    }
    let serving = Serving::start("mysql");
    for statements in ["auto", "disable"] {
        let line = format!(
            "oltp_read_write --db-driver=mysql --mysql-host=127.0.0.1 --mysql-port={} --mysql-user=a --mysql-password=b --mysql-db=c \
             --db-ps-mode={statements} --threads=2 --events=40 --table-size=1000 --time=30 run",
            serving.port
        );
        let output =
            Command::new("sysbench").args(line.split(' ')).timeout(Duration::from_secs(60)).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}");
        for line in
            ["transactions: 40 ", "queries: 800 ", "read: 560", "ignored errors: 0 ", "reconnects: 0 "]
        {
            let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.contains(line), "{statements}: {line}: {said}");
        }
    }
}

#[test]
fn the_load_generators_own_cost_is_in_its_line() {
    let result = run("load --protocol redis --requests 400 --threads 2 --warmup-seconds 0");
    let busy = result["loader"]["busiest_busy"].as_f64().unwrap();
    assert!((0.0..=1.0).contains(&busy), "{result}");
    assert_eq!(result["facts"]["busiest_busy"], result["loader"]["busiest_busy"]);
    assert!(run("spin --work 1e6").get("loader").is_none());
}

#[test]
fn help_and_version() {
    program().arg("--help").assert().success().stdout(contains("memory-latency"));
    program().arg("--version").assert().success().stdout(contains(env!("CARGO_PKG_VERSION")));
    for kernel in weigh_kernels::all() {
        let assert = program().args([kernel.name, "--help"]).assert().success();
        let help = String::from_utf8(assert.get_output().stdout.clone()).unwrap();
        for option in kernel.options {
            assert!(help.contains(&format!("--{}", option.name)), "{help}");
        }
        assert!(help.contains(kernel.check));
    }
    program().arg(weigh_kernels::QUICK_EXIT).assert().success().stdout("");
}
