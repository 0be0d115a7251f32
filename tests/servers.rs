//! Servers in real guests, driven from outside over each path.

use crate::support::{Stage, cell_of, listed, median, named, ready, shown};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The manifest of a request-response server, with `more` in its server table.
pub fn manifest(server: &str, more: &str) -> String {
    format!(
        r#"
name = "little"
summary = "requests and responses"
description = "One request in flight over TCP."
command = ["weigh-kernels", "echo", "--protocols", "tcp", "--connect", "{{address}}:{{port}}", "--requests", "300", "--warmup", "20"]
warmup = 1
deadline = "30s"
setup_deadline = "5s"

[server]
command = {server}
ports = 1
transport = ["tcp"]
loop = "closed"
{more}

[check]
statement = "every response begins as its request did"
json = "/check/passed"

[operations]
name = "request"
json = "/operations"

[[metric]]
name = "rate"
unit = "op/s"
better = "higher"
primary = true
json = "/metrics/tcp_rate/value"
"#
    )
}

pub const ECHO: &str = r#"["weigh-kernels", "echo", "--protocols", "tcp", "--serve", "{listen}:{port}"]"#;

/// Runs the manifest on these environments, and returns the report and the output.
fn measured(stage: &Stage, manifest: &str, on: &str, more: &str) -> (Value, String) {
    stage.write("little.toml", manifest);
    let run = stage.run(&format!(
        "run little --workload little.toml --on {on} --no-void --details --seed 7 --size quick --out r {more}"
    ));
    let said = format!("{}\n{}", run.stdout, run.stderr);
    assert!(stage.here().join("r/samples.jsonl").exists(), "{said}");
    (shown(stage, "r"), said)
}

fn rate<'a>(report: &'a Value, environment: &str) -> &'a Value {
    cell_of(report, environment, "rate")
}

/// Checks that the facts of a network are there, and that what `net` implies is reported and not
/// refused.
fn a_network_is_described(report: &Value, environment: &str) {
    let of = named(report, "environments", environment);
    let (facts, intended) = (&of["facts"], &of["intended"]);
    let (interface, mtu) = if environment == "native" { ("loopback", 65536) } else { ("veth", 1500) };
    assert!(facts["network-interface"] == interface && facts["network-mtu"] == mtu, "{facts}");
    assert!(facts["network-offloads"].as_str().unwrap().split(' ').any(|word| word == "tso"), "{facts}");
    let there = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
    assert_eq!(facts["sysctl:net.ipv4.tcp_congestion_control"], there.trim());
    assert_eq!(facts["sysctl:net.ipv4.tcp_rmem"].as_str().unwrap().split(' ').count(), 3, "{facts}");
    let path = ["guest", "bridge", "client", "loader"].map(|place| &facts[format!("network-path:{place}")]);
    if environment == "native" {
        assert!(path.iter().all(|hop| hop.is_null()), "both ends are the loopback interface: {facts}");
        return;
    }
    for (hop, driver) in path.iter().zip(["veth", "bridge", "veth", "veth"]) {
        assert!(hop.as_str().unwrap().starts_with(&format!("{driver}, mtu 1500")), "{facts}");
    }
    for key in ["network-interface", "network-mtu", "network-path:bridge"] {
        assert!(intended[key].as_str().unwrap().starts_with("another network: "), "{key}: {intended}");
    }
}

/// Over the host's loopback interface, a bridge and address translation: throughput, CPU per
/// request of the guest alone, the load of the loader's CPU, its headroom.
#[test]
fn a_server_is_measured_over_each_path() {
    let stage = Stage::new();
    let mut on = vec!["native"];
    if rustix::process::geteuid().is_root()
        && ready(&stage, "namespaces", "a_server_is_measured_over_each_path")
    {
        on.extend(["namespaces:net=bridge", "namespaces:net=nat"]);
    }
    let null = format!("null = {ECHO}");
    let (report, said) = measured(&stage, &manifest(ECHO, &null), &on.join(";"), "--blocks 2");
    assert_eq!(listed(&report, "failures").len(), 0, "{}\n{said}", report["failures"]);
    let loaders = listed(&report, "loaders");
    for environment in &on {
        let cell = rate(&report, environment);
        assert!(cell["n"] == 2 && cell["median"].as_f64().unwrap() > 100.0, "{cell}");
        assert_eq!(cell["closed_loop"], true);
        let charge = cell["cpu_ns_per_op"].as_f64().unwrap();
        assert!(charge > 0.0 && cell["operation"] == "request", "{cell}");
        let of =
            |environment: &str| loaders.iter().find(|loader| loader["environment"] == environment).unwrap();
        let loader = of(environment);
        assert!(loader["busiest_share"].as_f64().unwrap() > 0.0, "{loader}");
        assert!(loader["headroom_per_s"].as_f64().unwrap() > 100.0, "{loader}\n{said}");
        let flagged = listed(cell, "flags").iter().any(|flag| flag == "LOADER_BOUND");
        let bound = |environment: &str| of(environment)["busiest_share"].as_f64().unwrap() > 0.7;
        assert_eq!(flagged, bound(environment) || bound("native"), "{report}");
    }
    for environment in &on {
        a_network_is_described(&report, environment);
    }
    assert!(said.contains("network: loopback, mtu 65536, offloads "), "{said}");
    assert!(said.contains("a server is measured: guests get CPU") || said.contains("has one CPU"), "{said}");
    assert!(said.contains("closed loop"), "{said}");
    stage.host_is_as_before();
}

/// An open loop at half of the server's saturated rate, and at a given rate.
#[test]
fn an_open_loop_runs_at_a_share_of_the_saturated_rate() {
    let stage = Stage::new();
    let load = r#"["weigh-kernels", "load", "--protocol", "echo", "--connect", "{address}:{port}", "--clients", "2", "--seconds", "0.2""#;
    let closed = manifest(
        r#"["weigh-kernels", "null-server", "--protocol", "echo", "--listen", "{listen}:{port}"]"#,
        "",
    );
    let command = closed.lines().find(|line| line.starts_with("command = ")).unwrap();
    let open = closed
        .replace(command, &format!(r#"command = {load}, "--rate", "{{rate}}"]"#))
        .replace(r#"loop = "closed""#, &format!("loop = \"open\"\nsaturate = {load}]"))
        .replace("/metrics/tcp_rate/value", "/metrics/rate/value")
        + "\n[params.rate]\nsummary = \"requests per second\"\nkind = \"rate\"\ndefault = \"50%\"\n";
    let (report, said) = measured(&stage, &open, "native", "--blocks 2 --param rate=20%,400");
    assert_eq!(listed(&report, "failures").len(), 0, "{}\n{said}", report["failures"]);
    let rate = |workload: &str| median(&report, workload, "native", "rate");
    let loaders = listed(&report, "loaders");
    let of = |workload: &str| loaders.iter().find(|loader| loader["workload"] == workload).unwrap();
    let paced = &of("little{rate=20%}")["paced"];
    let (offered, reached) =
        (paced["rate_per_s"].as_f64().unwrap(), paced["reached_per_s"]["native"].as_f64().unwrap());
    assert!((offered / (0.2 * reached) - 1.0).abs() < 0.01, "{paced}");
    // Arrivals are random, and the machine may be busy, but the rate never exceeds the requested
    // one by much.
    assert!(rate("little{rate=20%}") < 1.3 * offered, "{said}");
    assert!(rate("little{rate=400}") < 1.5 * 400.0, "{said}");
    assert!(of("little{rate=400}")["paced"].is_null(), "{said}");
    assert!(said.contains("20 % of the"), "{said}");
    stage.host_is_as_before();
}

/// Failures are reported with the server's words, nothing is left, and the others are measured.
#[test]
fn servers_that_fail_are_reported() {
    let stage = Stage::new();
    let early = r#"["sh", "-c", "echo the disk is full >&2; exit 7"]"#;
    let (report, said) = measured(&stage, &manifest(early, ""), "native", "--blocks 1");
    let reason = report["failures"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("ended") && reason.contains("status 7: the disk is full"), "{reason}\n{said}");
    let log = report["failures"][0]["log"].as_str().unwrap();
    assert!(stage.read(&format!("r/{log}")).contains("the disk is full"));

    std::fs::remove_dir_all(stage.here().join("r")).unwrap();
    let silent = r#"["sleep", "1000"]"#;
    let manifest = manifest(silent, "").replace("\"5s\"", "\"300ms\"");
    let (report, said) = measured(&stage, &manifest, "native", "--blocks 1");
    let reason = report["failures"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("not up within 0.3 s"), "{reason}\n{said}");
    stage.host_is_as_before();
}

/// Listens on the port that a run writes to a file, as an echo server that could be mistaken for
/// the run's, and then makes a second file. When `over` is set, returns how many bytes it received.
fn stranger(here: std::path::PathBuf, over: Arc<AtomicBool>) -> std::thread::JoinHandle<usize> {
    let wait = || std::thread::sleep(Duration::from_millis(5));
    std::thread::spawn(move || {
        let port = loop {
            match std::fs::read_to_string(here.join("port")) {
                Ok(text) => break text.trim().parse::<u16>().unwrap(),
                Err(_) if over.load(Ordering::Relaxed) => panic!("the server never began"),
                Err(_) => wait(),
            }
        };
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        listener.set_nonblocking(true).unwrap();
        std::fs::write(here.join("taken"), "").unwrap();
        let (mut clients, mut sent) = (Vec::new(), 0);
        while !over.load(Ordering::Relaxed) {
            if let Ok((client, _)) = listener.accept() {
                client.set_nonblocking(true).unwrap();
                clients.push(client);
            }
            let mut buffer = [0; 4096];
            for client in &mut clients {
                if let Ok(read) = client.read(&mut buffer) {
                    sent += read;
                    let _ = client.write_all(&buffer[..read]);
                }
            }
            wait();
        }
        sent
    })
}

/// Somebody takes the server's port before the server does. The server gets another one, whether it
/// ends because of that or not, and the other program never receives load in its place.
#[test]
fn a_server_port_taken_by_another_program_is_replaced() {
    for otherwise in ["exit 1", "exec sleep 1000"] {
        let stage = Stage::new();
        let here = stage.here().display().to_string();
        let script = format!(
            "cd {here}; if [ ! -e taken ]; then echo $2 > next; mv next port; until [ -e taken ]; do sleep 0.02; done; fi; \
             ./kernels echo --protocols tcp --serve $1:$2 || {otherwise}"
        );
        let server = format!(r#"["sh", "-c", "{script}", "sh", "{{listen}}", "{{port}}"]"#);
        let setup = format!(r#"setup = ["sh", "-c", "ln -sf $WEIGH_KERNELS {here}/kernels"]"#);
        let manifest = manifest(&server, "").replace("\"5s\"", "\"60s\"");
        let manifest = manifest.replace("warmup = 1\n", &format!("warmup = 1\n{setup}\n"));
        let over = Arc::new(AtomicBool::new(false));
        let stranger = stranger(stage.here().to_path_buf(), Arc::clone(&over));
        let (report, said) = measured(&stage, &manifest, "native", "--blocks 2");
        over.store(true, Ordering::Relaxed);
        assert_eq!(stranger.join().unwrap(), 0, "{otherwise}: the stranger was loaded\n{said}");
        assert_eq!(listed(&report, "failures").len(), 0, "{}\n{said}", report["failures"]);
        assert_eq!(rate(&report, "native")["n"], 2, "{otherwise}: {said}");
        stage.host_is_as_before();
    }
}

/// A client that hangs is killed at its deadline with everything that it started, and the other
/// workloads continue.
#[test]
fn a_client_that_hangs_is_ended() {
    const WORDS: &str = "7777.25";
    let stage = Stage::new();
    let hanging = manifest(ECHO, "").replace("\"little\"", "\"hanging\"").replace("\"30s\"", "\"1s\"");
    let command = hanging.lines().find(|line| line.starts_with("command = ")).unwrap().to_string();
    let hangs = format!(r#"command = ["sh", "-c", "sleep {WORDS} & sleep {WORDS}"]"#);
    stage.write("hanging.toml", hanging.replacen(&command, &hangs, 1));
    let more = "hanging --workload hanging.toml --blocks 2";
    let (report, said) = measured(&stage, &manifest(ECHO, ""), "native", more);
    let failures = listed(&report, "failures");
    assert!(!failures.is_empty(), "{said}");
    assert!(failures.iter().all(|failure| failure["workload"] == "hanging"), "{said}");
    let reason = failures[0]["reason"].as_str().unwrap();
    assert!(reason.contains("did not end within 1 s"), "{reason}\n{said}");
    assert_eq!(rate(&report, "native")["n"], 2, "{said}");
    let left = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let words = std::fs::read_to_string(entry.ok()?.path().join("cmdline")).ok()?;
        words.split('\0').any(|word| word == WORDS).then_some(words)
    });
    assert_eq!(left.count(), 0, "the client's processes are ended with it");
    stage.host_is_as_before();
}

/// A guest that cannot be reached is left out, and says why.
#[test]
fn a_guest_without_a_network_is_left_out() {
    let stage = Stage::new();
    if !ready(&stage, "namespaces", "a_guest_without_a_network_is_left_out") {
        return;
    }
    let on = "native;namespaces:net=none";
    let (report, said) = measured(&stage, &manifest(ECHO, ""), on, "--blocks 2");
    let failure = &report["failures"][0];
    assert!(failure["environment"] == "namespaces:net=none" && failure["excluded"] == true, "{failure}");
    assert!(failure["reason"].as_str().unwrap().contains("no network"), "{failure}\n{said}");
    assert_eq!(rate(&report, "native")["n"], 2);
    stage.host_is_as_before();
}

/// A dataset that does not fit is refused, with what it needs and what there is, before anything is
/// measured. No server is needed for that.
#[test]
fn a_dataset_that_does_not_fit_is_refused_with_its_needs() {
    let stage = Stage::on_disk();
    for (workload, param, words) in [
        // Each key takes 156 bytes.
        (
            "redis",
            "keys=1e12",
            ["148773210MiB of memory are needed and the guest", "fewer keys (`--param keys=`)"],
        ),
        // Each row takes 256 bytes, and the file system a 64th more.
        ("mariadb", "rows=1e12", ["247955502MiB are needed", "1000000000000 rows (--param rows=)"]),
        ("mariadb", "buffer-pool=1000TiB", ["of memory are needed and the guest", "--param buffer-pool="]),
        ("fio-random", "file-bytes=1000TiB", ["are needed: choose a smaller size", "free and"]),
    ] {
        let out = format!("{workload}-{param}");
        stage
            .run(&format!(
                "run {workload} --on native --blocks 1 --no-void --size quick --param {param} --out {out}"
            ))
            .ends_with(4);
        let report = shown(&stage, &out);
        let reason = report["failures"][0]["reason"].as_str().unwrap();
        for words in words {
            assert!(reason.contains(words), "{workload}: {words}: {reason}");
        }
    }
    stage.host_is_as_before();
}

/// A dry run says what will listen where before anything is done.
#[test]
fn a_dry_run_lists_the_server_and_the_load_generator() {
    let stage = Stage::new();
    stage.write("little.toml", manifest(ECHO, ""));
    stage.run("run little --workload little.toml --on native --dry-run").says(&[
        "serves in the guest",
        "1 unused port (tcp)",
        "closed loop",
        "load generator",
        "--serve {listen}:{port}",
    ]);
    stage.host_is_as_before();
}
