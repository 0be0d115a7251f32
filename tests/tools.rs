//! Workloads that run the real tools of others, natively at their quick size: each is measured, with its check and every metric.
#![allow(clippy::print_stderr, reason = "a skipped test says so")]
#![allow(clippy::unwrap_used, reason = "a test ends where its expectation does")]

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use support::{Stage, shown};

/// A workload of this kind.
struct Tool {
    workload: &'static str,
    /// Programs without which it is skipped.
    programs: &'static [&'static str],
    /// Whether it takes more than about a second; then `WEIGH_LONG=1` runs it.
    long: bool,
}

const fn short(workload: &'static str, programs: &'static [&'static str]) -> Tool {
    Tool { workload, programs, long: false }
}

const fn long(workload: &'static str, programs: &'static [&'static str]) -> Tool {
    Tool { workload, programs, long: true }
}

/// A line each.
const TOOLS: &[Tool] = &[
    short("xz", &["xz", "cmp"]),
    short("sjeng", &["sjeng"]),
    long("openssl-speed", &["openssl"]),
    long("stress-ng", &["stress-ng"]),
    long("linpack", &["hpcc"]),
    long("hpcc-stream", &["hpcc"]),
    long("hpcc-gups", &["hpcc"]),
    long("libquantum", &["gcc"]),
    long("dgesv", &["python3"]),
    long("fio-sequential", &["fio"]),
    long("fio-random", &["fio"]),
    long("fio-latency", &["fio"]),
    long("fio-cloudspectator", &["fio"]),
    long("bonnie", &["bonnie++"]),
    long("dd", &["dd"]),
    long("nuttcp-transmit", &["nuttcp"]),
    long("nuttcp-receive", &["nuttcp"]),
    long("sockperf-tcp", &["sockperf"]),
    long("sockperf-udp", &["sockperf"]),
    long("qperf-tcp-lat", &["qperf"]),
    long("qperf-tcp-bw", &["qperf"]),
    long("redis", &["redis-server", "redis-cli"]),
    long("redis-open", &["redis-server", "redis-cli"]),
    long("redis-benchmark", &["redis-server", "redis-benchmark"]),
    long("mariadb", &["mariadbd", "sysbench"]),
    long("nginx", &["nginx"]),
    long("nginx-open", &["nginx"]),
    long("nginx-wrk", &["nginx", "wrk"]),
];

/// Whether a program is there. Games lie in a directory that root's PATH lacks.
fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain([PathBuf::from("/usr/games")]);
    directories.map(|directory| directory.join(program)).any(|file| file.is_file())
}

/// Measures a workload natively in two blocks and looks at every metric that it has.
fn measure(stage: &Stage, workload: &str, params: &[String]) {
    let mut command = stage.weigh();
    command.args(["run", workload, "--on", "native", "--size", "quick", "--blocks", "2", "--warmup", "0"]);
    let out = format!("run-{workload}");
    command.args(["--out", &out]);
    for param in params {
        command.args(["--param", param]);
    }
    let run = command.output().unwrap();
    let said = [run.stdout, run.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(run.status.success(), "{workload}: {said}");
    let report = shown(stage, &out);
    assert_eq!(report["failures"].as_array().unwrap().len(), 0, "{workload}: {}\n{said}", report["failures"]);
    let cells = report["cells"].as_array().unwrap();
    assert!(cells.iter().any(|cell| cell["primary"] == true), "{workload}: {cells:?}");
    for cell in cells {
        assert_eq!(cell["n"], 2, "{workload}: {cell}");
        assert!(cell["median"].as_f64().unwrap() >= 0.0, "{workload}: {cell}");
    }
}

#[test]
fn every_tool_that_is_installed_is_measured() {
    let stage = Stage::new();
    let long_too = std::env::var_os("WEIGH_LONG").is_some();
    for tool in TOOLS {
        let absent = tool.programs.iter().find(|program| !installed(program));
        if let Some(program) = absent {
            eprintln!("SKIPPED {}: there is no program `{program}`", tool.workload);
        } else if tool.long && !long_too {
            eprintln!("SKIPPED {}: it takes seconds; WEIGH_LONG=1 runs it", tool.workload);
        } else {
            measure(&stage, tool.workload, &[]);
        }
    }
    stage.host_is_as_before();
}

/// A program that prints a recorded output, as the user's copy of a licensed one would. It ends at once, so it says that it did: a
/// duration that does not fit is found out.
fn stand_in(stage: &Stage, name: &str, recorded: &str) -> PathBuf {
    let output = Path::new(env!("CARGO_MANIFEST_DIR")).join("../workloads/testdata").join(recorded);
    let program = stage.here().join(name);
    let shorter = r"s/^\(Start-to-End Wall Time: *\)[0-9.]*/\10.001/";
    std::fs::write(&program, format!("#!/bin/sh\nexec sed '{shorter}' {}\n", output.display())).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    program
}

/// Programs that may not be shipped: what to do without one, and a run with one.
#[test]
fn licensed_programs_are_run_from_where_the_user_has_them() {
    let stage = Stage::new();
    let without =
        stage.weigh().args(["run", "y-cruncher", "--on", "native", "--blocks", "2"]).output().unwrap();
    let said = String::from_utf8_lossy(&without.stderr);
    assert!(!without.status.success(), "{said}");
    // As it was before it was broken into lines.
    let said = said.split(|letter: char| letter.is_whitespace() || letter == '│');
    let said = said.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    assert!(said.contains("download it from its author") && said.contains("the workload"), "{said}");
    for (workload, recorded) in [("y-cruncher", "y-cruncher.txt"), ("intel-linpack", "intel-linpack.txt")] {
        let program = stand_in(&stage, workload, recorded);
        measure(&stage, workload, &[format!("program={}", program.display())]);
    }
    stage.host_is_as_before();
}
