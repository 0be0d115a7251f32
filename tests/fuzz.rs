//! Runs everything that reads foreign bytes on the inputs that fuzzers found: it returns, and soon.
//! `WEIGH_BLESS=1` writes the seeds of the fuzzers, which are made here.

#[path = "../fuzz/targets.rs"]
#[allow(dead_code, reason = "the fuzzers use all of it")]
mod targets;

use crate::support::Stage;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weigh_host::ledger::{Change, Ledger};
use weigh_host::state::StateDirectory;
use weigh_protocol::{
    ClockReading, Command, EndOfCommand, GuestFacts, Questions, Reply, Request, ResourceUse, Status, Stream,
    VERSION, encode,
};

/// The longest time that a target may take for one input, in a debug build on a busy machine.
const LONGEST: Duration = Duration::from_secs(20);
/// The most bytes of all corpora together.
const MOST_BYTES: u64 = 1 << 20;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn corpus() -> PathBuf {
    root().join("fuzz/corpus")
}

#[test]
fn every_fuzz_target_returns_for_its_whole_corpus() {
    let seeds = seeds();
    for (name, target) in targets::ALL {
        let found = std::fs::read_dir(corpus().join(name)).into_iter().flatten().flatten();
        let mut inputs: Vec<(String, Vec<u8>)> = found
            .map(|entry| (entry.path().display().to_string(), std::fs::read(entry.path()).unwrap()))
            .collect();
        assert!(!inputs.is_empty(), "{name} has no corpus: make it with WEIGH_BLESS=1");
        inputs
            .extend(seeds.iter().filter(|seed| seed.0 == *name).map(|seed| (seed.1.clone(), seed.2.clone())));
        inputs.push(("nothing".into(), Vec::new()));
        for (path, input) in inputs {
            let started = Instant::now();
            eprintln!("{name}: {path}");
            target(&input);
            assert!(started.elapsed() < LONGEST, "{name}: {path} took {:?}", started.elapsed());
        }
    }
}

/// Every target has a fuzzer program and a corpus, and the corpora are small.
#[test]
fn targets_programs_and_corpora_belong_together() {
    if std::env::var_os("WEIGH_BLESS").is_some() {
        for (target, name, bytes) in seeds() {
            let directory = corpus().join(target);
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join(format!("seed-{name}")), bytes).unwrap();
        }
    }
    let names = |directory: &Path, ending: &str| -> BTreeSet<String> {
        let entries = std::fs::read_dir(directory).unwrap().flatten();
        let names = entries.map(|entry| entry.file_name().into_string().unwrap());
        names.filter_map(|name| Some(name.strip_suffix(ending)?.to_string())).collect()
    };
    let targets: BTreeSet<String> = targets::ALL.iter().map(|(name, _)| name.to_string()).collect();
    assert_eq!(names(&root().join("fuzz/fuzz_targets"), ".rs"), targets);
    assert_eq!(names(&corpus(), ""), targets);
    let manifest = std::fs::read_to_string(root().join("fuzz/Cargo.toml")).unwrap();
    assert!(targets.iter().all(|name| manifest.contains(&format!("name = \"{name}\"\n"))), "{manifest}");
    let files = targets.iter().flat_map(|name| std::fs::read_dir(corpus().join(name)).unwrap().flatten());
    let bytes: u64 = files.map(|file| file.metadata().unwrap().len()).sum();
    assert!(bytes < MOST_BYTES, "{bytes} bytes of corpora");
}

/// The seeds of the fuzzers: target, name, bytes.
fn seeds() -> Vec<(&'static str, String, Vec<u8>)> {
    let mut seeds = Vec::new();
    let mut add = |target, name: &str, bytes: &[u8]| seeds.push((target, name.to_string(), bytes.to_vec()));

    let payload = |message: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = Vec::new();
        message(&mut frame);
        frame.split_off(12)
    };
    let mut channel = b"\x10[ 0.0] booting\r\n".to_vec();
    let mut script = b"\x0e\x80[ 0.0] booting\r\n".to_vec();
    for (n, reply) in replies().into_iter().enumerate() {
        encode(&reply, &mut channel).unwrap();
        let bytes = payload(&|frame| encode(&reply, frame).unwrap());
        script.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
        script.extend_from_slice(&bytes);
        add("messages", &format!("reply-{n}"), &bytes);
    }
    for (n, request) in requests().into_iter().enumerate() {
        add("messages", &format!("request-{n}"), &payload(&|frame| encode(&request, frame).unwrap()));
    }
    add("frames", "script", &channel);
    add("session", "script", &script);

    let archive =
        archive_of(&[("usr/", ""), ("usr/bin/tool", "a tool"), ("etc/hosts", "127.0.0.1 localhost\n")]);
    add("archive", "plain", &archive);
    let run =
        archive_of(&[("plan.json", "{}"), ("logs/", ""), ("logs/a.log", "said"), ("other", "left out")]);
    add("transfer", "run", &run);
    let upper = archive_of(&[("usr/bin/.wh.tool", ""), ("etc/.wh..wh..opq", ""), ("etc/new", "new")]);
    add("layers", "two", &[&archive[..], b"\0L\0", &upper].concat());

    let digest = format!("sha256:{:064x}", 7);
    let descriptor = serde_json::json!({"mediaType": "m", "digest": digest, "size": 1, "platform": {"os": "linux", "architecture": "amd64"}});
    let list = serde_json::json!({"schemaVersion": 2, "manifests": [descriptor]});
    let image = serde_json::json!({"schemaVersion": 2, "config": descriptor, "layers": [descriptor]});
    add("image_manifest", "list", list.to_string().as_bytes());
    add("image_manifest", "image", image.to_string().as_bytes());
    add("image_manifest", "reference", format!("registry.example:5000/a/system:12@{digest}").as_bytes());

    for (n, text) in [
        "native",
        "docker:memory=512M,cpus=2,label=a b",
        "qemu:accel=auto,machine=q35,channel=vsock,net=nat",
        "ssh:host=me@[fe80::1%eth0],port=22,directory=/var/tmp",
        "null:time=40ms,effect=0.1,fault=exit,at=3",
    ]
    .into_iter()
    .enumerate()
    {
        add("environment", &n.to_string(), text.as_bytes());
    }
    let head = "GET /5f2ac1a0c64b1a3e9d07f1b0a9c3d8e4/state?x=1 HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nAccept: */*\r\n\r\n";
    add("http_head", "state", head.as_bytes());
    add("http_head", "icon", b"GET /favicon.ico HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let csv = "environment,workload,metric,unit,better,value,block\nnative,sort,time,ms,lower,250,0\ncontainer,sort,time,ms,lower,260,0\nnative,sort,time,ms,lower,251,1\ncontainer,sort,time,ms,lower,261,1\n";
    add("import", "csv", csv.as_bytes());
    let line = |environment: &str, value: f64, block: u32| {
        serde_json::json!({"environment": environment, "workload": "w", "metric": "m", "unit": "op/s", "better": "higher", "value": value, "block": block}).to_string()
    };
    let lines = [line("a", 1.5, 0), line("b", 2.5, 0), line("a", 1.25, 1), line("b", 2.0, 1)].join("\n");
    add("import", "lines", lines.as_bytes());
    for name in ["hyperfine-1.15.json", "fio-3.33.json"] {
        let file = root().join("crates/store/testdata").join(name);
        add("tool_files", name, &std::fs::read(file).unwrap());
    }
    let result = serde_json::json!({"command": "c", "measurements": [{"time_wall_clock": {"value": 1.5, "unit": "second"}, "exit_code": 0}]});
    add("tool_files", "hyperfine-2", serde_json::json!({"results": [result]}).to_string().as_bytes());
    add(
        "tool_files",
        "go",
        b"Unit x-B/s better=higher\npkg: p\nBenchmarkA-2 1 2.5 ns/op 3 x-B/s\n--- FAIL: BenchmarkB\n",
    );
    let repetition = serde_json::json!({"name": "f", "run_name": "f", "run_type": "iteration", "real_time": 2.0, "cpu_time": 1.0, "time_unit": "ns"});
    let google = serde_json::json!({"context": {}, "benchmarks": [repetition]});
    add("tool_files", "google-benchmark", google.to_string().as_bytes());
    let round = serde_json::json!({"fullname": "f", "stats": {"mean": 1.5, "data": [1.0, 2.0]}});
    let pytest = serde_json::json!({"machine_info": {}, "benchmarks": [round]});
    add("tool_files", "pytest-benchmark", pytest.to_string().as_bytes());
    let firecracker = serde_json::json!({"metrics": {"m": {"unit": "Milliseconds", "values": [1, 2]}}, "dimensions": {"performance_test": "t", "vcpus": "1"}});
    add("tool_files", "firecracker", firecracker.to_string().as_bytes());
    let cloud_hypervisor =
        serde_json::json!({"git_revision": "r", "results": [{"name": "boot_time_ms", "mean": 1.5}]});
    add("tool_files", "cloud-hypervisor", cloud_hypervisor.to_string().as_bytes());
    add("ledger", "changes", &ledger());
    let monitor = "{\"QMP\": {\"version\": {}, \"capabilities\": []}}\r\n{\"return\": {}}\r\n{\"event\": \"STOP\", \"data\": {\"a\": [1]}}\r\n\
                   {\"return\": {\"enabled\": true}}\r\n{\"event\": \"RESUME\", \"timestamp\": {}}\r\n{\"error\": {\"desc\": \"no\"}}\r\n";
    add("qmp", "talk", monitor.as_bytes());
    let console = "OSv v0.57.0\r\nBooted up in 100 ms\r\nCmdline: /weigh-kernels noploop\r\n\
                   {\"kernel\":\"noploop\",\"metrics\":{\"time\":{\"value\":0.1,\"unit\":\"s\"}},\"check\":{\"passed\":true}}\r\n";
    add("console", "run", console.as_bytes());
    add("study", "small", crate::hostile::STUDY.as_bytes());
    let kernel = "{\"kernel\":\"k\",\"metrics\":{\"time\":{\"value\":0.5,\"unit\":\"s\"},\"rate\":{\"value\":2,\"unit\":\"op/s\"}},\"check\":{\"passed\":true}}\n";
    for name in ["noploop", "stream", "fio-seq", "sysbench-cpu", "redis", "nginx", "iperf", "openssl"] {
        add("tool_output", name, format!("{name}\n{kernel}").as_bytes());
    }
    let stream = "stream\nArray size = 80000000 (elements)\nFunction    Best Rate MB/s  Avg time     Min time     Max time\n\
                  Copy:           11000.0     0.116     0.115     0.117\nScale:          11000.0     0.116     0.115     0.117\n\
                  Add:            12000.0     0.116     0.115     0.117\nTriad:          12000.0     0.116     0.115     0.117\n\
                  Solution Validates: avg error less than 1e-13\n";
    add("tool_log", "stream", stream.as_bytes());
    let fio = "fio\nRunning sequential\nfile: (groupid=0, jobs=1): err= 0: pid=1: Thu Jan  1 00:00:00 1970\n\
               read: IOPS=100, BW=400KiB/s (410kB/s)(4000KiB/10000msec)\n clat (usec): min=1, max=20, avg= 5.00, stdev= 1.00\n";
    add("tool_log", "fio", fio.as_bytes());
    let manifest = "name = \"mine\"\nsummary = \"s\"\ndescription = \"d\"\ncommand = [\"printf\", '{{\"x\": 1.5}}']\n\
                    [check]\nstatement = \"it passes\"\n[[metric]]\nname = \"x\"\nunit = \"s\"\nbetter = \"lower\"\nprimary = true\njson = \"/x\"\n";
    add("workload_manifest", "mine", manifest.as_bytes());

    let old = |file: &str| std::fs::read(root().join("tests/data/run-format-1").join(file)).unwrap();
    let run = |plan: &[u8], samples: &[u8]| {
        let header = samples.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        [plan, b"\0", &samples[header..]].concat()
    };
    add("plan", "format-1", &old("plan.json"));
    add("samples", "format-1", &run(&old("plan.json"), &old("samples.jsonl")));
    let stage = Stage::with_fakes();
    stage.stdout("run --on null;null:label=b,effect=0.1 --baseline null --blocks 3 --seed 7 --out r -- true");
    let new = |file: &str| stage.read(&format!("r/{file}")).into_bytes();
    add("plan", "fakes", &new("plan.json"));
    add("samples", "fakes", &run(&new("plan.json"), &new("samples.jsonl")));
    seeds
}

fn replies() -> Vec<Reply> {
    let end = EndOfCommand {
        status: Status::Exited(0),
        duration_ns: 1,
        resources: ResourceUse::default(),
        output_bytes: 3,
        error_bytes: 0,
    };
    vec![
        Reply::Hello { version: VERSION, pid: 1, started_ns: 5 },
        Reply::Started { id: 1, pid: 8 },
        Reply::Output { id: 1, stream: Stream::Output, bytes: b"out".to_vec() },
        Reply::Output { id: 1, stream: Stream::Error, bytes: b"err".to_vec() },
        Reply::Ended { id: 1, end },
        Reply::File { id: 2, bytes: vec![1; 60] },
        Reply::Done { id: 2 },
        Reply::Done { id: 3 },
        Reply::Clock { id: 4, reading: ClockReading { monotonic_ns: 1, boottime_ns: 2, realtime_ns: 3 } },
        Reply::Facts { id: 5, facts: GuestFacts::default().into() },
        Reply::Refused { id: 5, reason: "no".into(), errno: 2 },
        Reply::InputTaken { id: 1, bytes: 5 },
        Reply::Taken { bytes: 1024 },
        Reply::Done { id: 6 },
    ]
}

fn requests() -> Vec<Request> {
    let command = Command {
        argv: vec!["sh".into()],
        environment: vec![("A".into(), "b".into())],
        working_directory: Some("/".into()),
        input: weigh_protocol::Input::Pipe,
        output_limit_bytes: 1000,
    };
    vec![
        Request::Hello { version: VERSION },
        Request::Run { id: 1, command },
        Request::Put { id: 2, path: "/x".into(), mode: 0o644, first: true, bytes: vec![1] },
        Request::Get { id: 3, path: "/x".into(), limit_bytes: 9 },
        Request::Facts { id: 4, about: Questions { paths: vec!["/".into()], ..Questions::default() } },
    ]
}

/// An archive of files, and of directories, whose names end in a slash.
fn archive_of(entries: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o755);
        header.set_mtime(7);
        header.set_size(content.len() as u64);
        if name.ends_with('/') {
            header.set_entry_type(tar::EntryType::Directory);
        }
        builder.append_data(&mut header, name, content.as_bytes()).unwrap();
    }
    let mut link = tar::Header::new_gnu();
    link.set_size(0);
    for (kind, name, to) in
        [(tar::EntryType::Symlink, "lib", "usr/lib"), (tar::EntryType::Link, "etc/same", "etc/hosts")]
    {
        link.set_entry_type(kind);
        builder.append_link(&mut link, name, to).unwrap();
    }
    builder.into_inner().unwrap()
}

/// The ledger of a run that has changed something.
fn ledger() -> Vec<u8> {
    let base = tempfile::tempdir().unwrap();
    let ledger = Ledger::create(&StateDirectory::at(base.path()), "a-run").unwrap();
    let entry = ledger.record(Change::Directory { path: base.path().join("new") }).unwrap();
    let detail = serde_json::json!({"program": "/usr/bin/ssh"});
    let platform =
        Change::Platform { platform: "ssh".into(), what: "directory".into(), id: "/x".into(), detail };
    ledger.record(platform).unwrap();
    ledger.forget(entry).unwrap();
    std::fs::read(ledger.path()).unwrap()
}
