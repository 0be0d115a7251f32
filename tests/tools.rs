//! Workloads that run other people's real tools at their quick size, at least one test for each:
//! natively, and with `WEIGH_LONG=1` in guests too. Each is measured, with its check and every
//! metric.

use crate::support::{Said, Stage, is_long, listed, ready, shown, skip, words};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The deadline of a run in all guests; an emulated machine is slow.
const DEADLINE: Duration = Duration::from_secs(1800);

/// Where a tool is measured besides natively, and when.
#[derive(Clone, Copy)]
enum Kind {
    /// Only natively, by default.
    Short,
    /// Only natively, with `WEIGH_LONG=1`.
    Long,
    /// In every guest that can serve.
    Server,
    /// In every guest with a disk.
    Disk,
    /// In guests that can serve and have a disk.
    Database,
}

impl Kind {
    fn guests(self) -> &'static [&'static str] {
        match self {
            Self::Short | Self::Long => &[],
            Self::Server => &[
                "namespaces:net=bridge",
                "docker:net=nat",
                "podman:net=nat",
                "uml:net=bridge",
                "qemu:net=bridge",
            ],
            Self::Disk => &[
                "namespaces:storage=volume",
                "namespaces:storage=overlay",
                "docker:storage=volume",
                "podman:storage=volume",
                "qemu:disk=raw,storage=disk",
                "qemu:disk=qcow2,storage=disk",
            ],
            Self::Database => &[
                "namespaces:net=bridge,storage=overlay",
                "docker:net=host,storage=volume",
                "docker:net=nat,storage=volume",
                "docker:net=nat,storage=overlay",
                "podman:net=nat,storage=volume",
                "qemu:net=bridge,disk=qcow2,storage=disk",
            ],
        }
    }
}

/// Defines a test for each tool; without its programs it is skipped.
macro_rules! tools {
    ($($test:ident: $workload:literal, $programs:expr, $kind:expr;)*) => {
        /// The workloads that have a test.
        const TESTED: &[&str] = &[$($workload),*];

        $(
            #[test]
            fn $test() {
                tool($workload, &$programs, $kind);
            }
        )*
    };
}

tools! {
    xz: "xz", ["xz", "cmp"], Kind::Short;
    sjeng: "sjeng", ["sjeng"], Kind::Short;
    open_close: "open-close", ["python3"], Kind::Short;
    allocation: "allocation", ["python3"], Kind::Short;
    mapping: "mapping", ["python3"], Kind::Short;
    python_import: "python-import", ["python3"], Kind::Short;
    sqlite: "sqlite", ["python3"], Kind::Short;
    node_start: "node-start", ["node"], Kind::Short;
    build: "build", ["g++", "make"], Kind::Short;
    fio_cached: "fio-cached", ["fio"], Kind::Short;
    download_natively: "download", ["python3", "curl"], Kind::Short;
    nginx_tls_natively: "nginx-tls", ["nginx", "openssl", "wrk"], Kind::Short;
    postgres_natively: "postgres", ["initdb", "psql"], Kind::Short;
    openssl_speed: "openssl-speed", ["openssl"], Kind::Long;
    stress_ng: "stress-ng", ["stress-ng"], Kind::Long;
    linpack: "linpack", ["hpcc"], Kind::Long;
    hpcc_stream: "hpcc-stream", ["hpcc"], Kind::Long;
    hpcc_gups: "hpcc-gups", ["hpcc"], Kind::Long;
    libquantum: "libquantum", ["gcc"], Kind::Long;
    dgesv: "dgesv", ["python3"], Kind::Long;
    fio_sequential: "fio-sequential", ["fio"], Kind::Disk;
    fio_random: "fio-random", ["fio"], Kind::Disk;
    fio_latency: "fio-latency", ["fio"], Kind::Disk;
    fio_cloudspectator: "fio-cloudspectator", ["fio"], Kind::Disk;
    bonnie: "bonnie", ["bonnie++"], Kind::Disk;
    dd: "dd", ["dd"], Kind::Disk;
    nuttcp_transmit: "nuttcp-transmit", ["nuttcp"], Kind::Server;
    nuttcp_receive: "nuttcp-receive", ["nuttcp"], Kind::Server;
    sockperf_tcp: "sockperf-tcp", ["sockperf"], Kind::Server;
    sockperf_udp: "sockperf-udp", ["sockperf"], Kind::Server;
    sockperf_load: "sockperf-load", ["sockperf"], Kind::Server;
    qperf_tcp_lat: "qperf-tcp-lat", ["qperf"], Kind::Server;
    qperf_udp_lat: "qperf-udp-lat", ["qperf"], Kind::Server;
    qperf_tcp_bw: "qperf-tcp-bw", ["qperf"], Kind::Server;
    qperf_udp_bw: "qperf-udp-bw", ["qperf"], Kind::Server;
    netperf_tcp_rr: "netperf-tcp-rr", ["netperf", "netserver"], Kind::Server;
    netperf_udp_rr: "netperf-udp-rr", ["netperf", "netserver"], Kind::Server;
    netperf_tcp_stream: "netperf-tcp-stream", ["netperf", "netserver"], Kind::Server;
    netperf_udp_stream: "netperf-udp-stream", ["netperf", "netserver"], Kind::Server;
    download: "download", ["python3", "curl"], Kind::Server;
    redis: "redis", ["redis-server", "redis-cli"], Kind::Server;
    redis_open: "redis-open", ["redis-server", "redis-cli"], Kind::Server;
    redis_benchmark: "redis-benchmark", ["redis-server", "redis-benchmark"], Kind::Server;
    mariadb: "mariadb", ["mariadbd", "sysbench"], Kind::Database;
    postgres: "postgres", ["initdb", "psql"], Kind::Database;
    nginx: "nginx", ["nginx"], Kind::Server;
    nginx_open: "nginx-open", ["nginx"], Kind::Server;
    nginx_wrk: "nginx-wrk", ["nginx", "wrk"], Kind::Server;
    nginx_tls: "nginx-tls", ["nginx", "openssl", "wrk"], Kind::Server;
}

/// Every workload that names packages runs other people's tools.
#[test]
fn every_real_tool_has_a_test() {
    let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../workloads/manifests");
    for entry in std::fs::read_dir(manifests).unwrap() {
        let path = entry.unwrap().path();
        let manifest = std::fs::read_to_string(&path).unwrap();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let is_tool = manifest.lines().any(|line| line.starts_with("packages = "));
        assert!(!is_tool || TESTED.contains(&name), "{name} has no test here");
    }
}

/// Whether a program is installed. Games are in a directory that root's PATH lacks, and so are the
/// programs of a PostgreSQL server, in one for each version.
fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let of_versions = versions.map(|version| version.path().join("bin"));
    let directories = std::env::split_paths(&path).chain([PathBuf::from("/usr/games")]).chain(of_versions);
    directories.map(|directory| directory.join(program)).any(|file| file.is_file())
}

/// Measures a tool where its kind says.
fn tool(workload: &str, programs: &[&str], kind: Kind) {
    if let Some(program) = programs.iter().find(|program| !installed(program)) {
        return skip(workload, program, &format!("there is no program `{program}`"));
    }
    if workload == "postgres" && !rustix::process::geteuid().is_root() {
        return skip(workload, "root", "only root can give PostgreSQL a user of its own");
    }
    if !matches!(kind, Kind::Short) && !is_long() {
        eprintln!("SKIPPED {workload}: it takes seconds; WEIGH_LONG=1 runs it");
        return;
    }
    let stage = Stage::on_disk();
    let guests = kind.guests().iter().copied().filter(|guest| {
        let platform = guest.split(':').next().unwrap_or_default();
        ready(&stage, platform, &format!("{workload} in {guest}"))
    });
    let environments: Vec<&str> = ["native"].into_iter().chain(guests).collect();
    let report = measure(&stage, workload, &environments, "");
    if matches!(kind, Kind::Disk | Kind::Database) && environments.len() > 1 {
        files_lie_where_the_keys_say(&report);
    }
    if matches!(kind, Kind::Database) {
        let loaders = listed(&report, "loaders");
        assert_eq!(loaders.len(), environments.len(), "{loaders:?}");
        for loader in loaders {
            assert!(loader["headroom_per_s"].as_f64().unwrap() > 1.0, "{loader}");
        }
    }
    stage.host_is_as_before();
}

/// Measures a workload in two blocks and checks every metric that it has in every environment.
fn measure(stage: &Stage, workload: &str, environments: &[&str], more: &str) -> Value {
    let out = format!("run-{workload}");
    // A machine's device reads data that the machine has not read yet while the tool is measured.
    let warmup = if environments.len() == 1 { "--warmup 0" } else { "" };
    let line = format!(
        "run {workload} --on {} --no-void --size quick --blocks 2 --out {out} {warmup} {more}",
        environments.join(";")
    );
    let mut command = stage.weigh();
    command.args(words(&line)).timeout(DEADLINE);
    let said = Said::of(&line, command.output().unwrap()).ends_with(0).all();
    let report = shown(stage, &out);
    assert_eq!(listed(&report, "failures").len(), 0, "{workload}: {}\n{said}", report["failures"]);
    let cells = listed(&report, "cells");
    let of = |environment: &Value| {
        let mine = cells.iter().filter(|cell| cell["environment"] == *environment);
        mine.map(|cell| (cell["metric"].as_str().unwrap(), cell["primary"] == true)).collect::<Vec<_>>()
    };
    let names: Vec<&Value> = listed(&report, "environments").iter().map(|one| &one["name"]).collect();
    assert_eq!(names.len(), environments.len(), "{workload}: {names:?}");
    for name in &names {
        assert_eq!(of(name), of(names[0]), "{workload}: {name}");
        assert!(of(name).iter().any(|(_, primary)| *primary), "{workload}: {name}: {cells:?}");
    }
    for cell in cells {
        assert_eq!(cell["n"], 2, "{workload}: {cell}");
        // A percentile has no value if it has too few samples; everything else has a value.
        let too_few = listed(cell, "flags").iter().any(|flag| flag == "TOO_FEW_FOR_QUANTILE");
        match cell["median"].as_f64() {
            Some(median) => assert!(median >= 0.0 && !too_few, "{workload}: {cell}"),
            None => assert!(too_few && cell["median"].is_null(), "{workload}: {cell}"),
        }
    }
    report
}

/// Checks where files lie, by what guests report about the file system below them.
fn files_lie_where_the_keys_say(report: &Value) {
    let environments = listed(report, "environments");
    let below = |environment: &Value| {
        let fact = environment["facts"]["mounts:scratch"].as_str();
        fact.unwrap_or_else(|| panic!("{environment}")).split(' ').next().unwrap().to_string()
    };
    for environment in environments {
        let (name, kind) = (environment["name"].as_str().unwrap(), below(environment));
        let expected = match name {
            _ if name.contains("storage=disk") => "ext4".to_string(),
            _ if name.contains("storage=overlay") => "overlay".to_string(),
            _ => below(&environments[0]),
        };
        assert!(kind.contains(&expected), "{name}: {kind} and not {expected}");
    }
}

/// A program that prints a recorded output, as the user's copy of a licensed one would. It ends at
/// once, and says that it did: otherwise its duration would not fit and would be noticed.
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
    let stage = Stage::on_disk();
    let without = stage.run("run y-cruncher --on native --blocks 2");
    let without = without.says(&["download it from its author", "the workload"]);
    assert_ne!(without.code, Some(0));
    for (workload, recorded) in [("y-cruncher", "y-cruncher.txt"), ("intel-linpack", "intel-linpack.txt")] {
        let program = stand_in(&stage, workload, recorded);
        measure(&stage, workload, &["native"], &format!("--param program={}", program.display()));
    }
    stage.host_is_as_before();
}
