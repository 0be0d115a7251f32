//! Equal guests are compared, unequal ones refused, end to end.

use crate::support::{Stage, ready, shown};
use serde_json::Value;
use std::fs;

fn refused(stage: &Stage, arguments: &[&str]) -> (i32, String) {
    let output = stage.weigh().args(arguments).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A message without the line breaks and margins of the terminal.
fn unwrapped(message: &str) -> String {
    message.replace('│', " ").split_whitespace().collect::<Vec<_>>().join(" ")
}

fn facts<'a>(report: &'a Value, environment: &str) -> &'a Value {
    let mut all = report["environments"].as_array().unwrap().iter();
    &all.find(|one| one["name"] == environment).unwrap()["facts"]
}

/// The platforms that share the host's kernel differ in nothing that nobody meant, with every image
/// and limit.
#[test]
fn what_is_alike_is_not_refused() {
    let stage = Stage::new();
    let mut environments = vec!["native"];
    for (platform, all) in [
        ("namespaces", &["namespaces", "namespaces:net=host", "namespaces:user=mapped"][..]),
        ("runc", &["runc", "runc:net=host"]),
        ("docker", &["docker", "docker:net=host", "docker:net=none"]),
    ] {
        if ready(&stage, platform, "what_is_alike_is_not_refused") {
            environments.extend(all);
        }
    }
    let on = environments.join(";");
    let directory = stage.here().join("image");
    fs::create_dir_all(directory.join("etc")).unwrap();
    fs::write(directory.join("etc/os-release"), "PRETTY_NAME=\"An image\"\n").unwrap();
    let tar = stage.here().join("image.tar");
    let mut archive = tar::Builder::new(fs::File::create(&tar).unwrap());
    archive.append_dir_all(".", &directory).unwrap();
    archive.into_inner().unwrap();
    let image = directory.display().to_string();
    let archive = tar.display().to_string();
    let limits = ["--cpus", "0", "--memory", "512MiB"];
    for (out, extra) in [
        ("host", &["--cpus", "0"][..]),
        ("probe", &["--image", "probe"]),
        ("directory", &["--image", &image, "--memory", "512MiB"]),
        ("tar", &["--image", &archive, limits[0], limits[1], limits[2], limits[3]]),
    ] {
        let run =
            ["run", "noploop", "--size", "quick", "--on", &on, "--blocks", "1", "--no-void", "--out", out];
        stage.weigh().args(run).args(extra).assert().success();
        let report = shown(&stage, out);
        assert_eq!(report["failures"].as_array().unwrap().len(), 0, "{out}: {}", report["failures"]);
        for environment in &environments {
            let (facts, native) = (facts(&report, environment), facts(&report, "native"));
            for key in
                ["kernel", "cpus", "memory_bytes", "libc", "binary:weigh-kernels", "mitigations", "aslr"]
            {
                assert_eq!(facts[key], native[key], "{out}: {key} of {environment}");
            }
            assert!(facts["binary:weigh-kernels"].is_string(), "{out}: {facts}");
            assert_eq!(facts["libc"], "static", "{out}: {environment}");
            if extra.contains(&"--cpus") {
                assert_eq!(facts["cpus"], 1, "{out}: {environment}");
            }
            if extra.contains(&"--memory") {
                assert_eq!(facts["memory_bytes"], 512 << 20, "{out}: {environment}");
            }
            if matches!(out, "directory" | "tar") {
                assert_eq!(facts["operating-system"], "An image", "{out}: {environment}");
            }
        }
    }
    stage.host_is_as_before();
}

const UNEQUAL: [&str; 8] = [
    "run",
    "--on",
    "null:fact=cpus=2+binary:true=sha256:1;null:fact=cpus=1+binary:true=sha256:2,label=b",
    "--baseline",
    "null:fact=cpus=2+binary:true=sha256:1",
    "--blocks",
    "2",
    "--no-void",
];

/// The list has every key with both values and what to do; the run is kept, and going on says the
/// same.
#[test]
fn unequal_guests_are_refused_with_the_list() {
    let stage = Stage::with_fakes();
    let mut run = UNEQUAL.to_vec();
    run.extend(["--out", "r", "--", "true"]);
    let (code, message) = refused(&stage, &run);
    assert_eq!(code, 2, "{message}");
    let said = unwrapped(&message);
    for part in [
        "binary:true of null:fact=cpus=1+binary:true=sha256:2,label=b is sha256:2",
        "of null:fact=cpus=2+binary:true=sha256:1 sha256:1",
        "cpus of null:fact=cpus=1+binary:true=sha256:2,label=b is 1, of null:fact=cpus=2+binary:true=sha256:1 2",
        "--allow-unequal binary:true,cpus",
        "weigh resume r",
    ] {
        assert!(said.contains(part), "no `{part}` in: {said}");
    }
    let samples = fs::read_to_string(stage.here().join("r/samples.jsonl")).unwrap();
    assert_eq!(samples.matches("\"record\":\"facts\"").count(), 2, "{samples}");
    assert_eq!(samples.matches("\"record\":\"trial\"").count(), 0);
    let (code, again) = refused(&stage, &["resume", "r"]);
    assert_eq!(code, 2, "{again}");
    assert!(unwrapped(&again).contains("--allow-unequal binary:true,cpus"), "{again}");
    stage.host_is_as_before();
}

/// What is allowed by name is measured, and said beside every ratio; the plan keeps it.
#[test]
fn what_is_allowed_is_said_beside_every_ratio() {
    let stage = Stage::with_fakes();
    let mut run = UNEQUAL.to_vec();
    run.extend(["--allow-unequal", "cpus,binary", "--out", "r", "--", "true"]);
    let output = stage.weigh().args(&run).output().unwrap();
    let table = unwrapped(&String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(table.contains("unequal by request: cpus, binary:true"), "{table}");
    let report = shown(&stage, "r");
    let cells = report["cells"].as_array().unwrap();
    let unequal = |cell: &Value| cell["flags"].as_array().unwrap().contains(&"UNEQUAL".into());
    let other = |cell: &Value| cell["environment"].as_str().unwrap().contains("label=b");
    assert!(cells.iter().any(other));
    for cell in cells {
        assert_eq!(unequal(cell), other(cell), "{cell}");
    }
    let plan: Value =
        serde_json::from_str(&fs::read_to_string(stage.here().join("r/plan.json")).unwrap()).unwrap();
    assert_eq!(plan["allow_unequal"], serde_json::json!(["cpus", "binary"]));
    stage.weigh().args(["run", "--plan", "r/plan.json", "--out", "again"]).assert().success();
    stage.host_is_as_before();
}

#[test]
fn unknown_keys_get_the_nearest() {
    let stage = Stage::with_fakes();
    let run =
        |key: &str| refused(&stage, &["run", "noploop", "--on", "null", "--allow-unequal", key, "--dry-run"]);
    for (key, parts) in [
        ("cpu", ["`cpu`", "`cpus`"]),
        ("cpus,mitigation", ["`mitigation`", "`mitigations`"]),
        ("weather", ["`weather`", "transparent-huge-pages"]),
    ] {
        let (code, message) = run(key);
        let said = unwrapped(&message);
        assert_eq!(code, 2, "{said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
    }
    let (code, message) = run("cpus,binary:fio,mounts:/tmp");
    assert_eq!(code, 0, "{message}");
}

/// A real guest that has a CPU less: a user-mode kernel has one, whatever it is given.
#[test]
fn a_machine_with_a_cpu_less_is_refused_unless_allowed() {
    let stage = Stage::new();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if cpus < 2 {
        eprintln!("SKIPPED a_machine_with_a_cpu_less_is_refused_unless_allowed: this host has one CPU");
        return;
    }
    if !ready(&stage, "uml", "a_machine_with_a_cpu_less_is_refused_unless_allowed") {
        return;
    }
    let run = [
        "run",
        "noploop",
        "--size",
        "quick",
        "--image",
        "probe",
        "--on",
        "native,uml",
        "--blocks",
        "1",
        "--no-void",
    ];
    let two = ["--cpus", "0,1", "--memory", "256MiB"];
    let refuse: Vec<&str> = run.into_iter().chain(two).chain(["--out", "refused"]).collect();
    let (code, message) = refused(&stage, &refuse);
    assert_eq!(code, 2, "{message}");
    assert!(unwrapped(&message).contains("cpus of uml is 1, of native 2"), "{message}");
    assert!(unwrapped(&message).contains("--allow-unequal cpus`"), "nothing else differs: {message}");
    let allow = ["--allow-unequal", "cpus", "--out", "allowed"];
    let output = stage.weigh().args(run).args(two).args(allow).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let table = unwrapped(&String::from_utf8_lossy(&output.stdout));
    assert!(table.contains("unequal by request: cpus"), "{table}");

    // Left to weigh, all get one CPU, not the first, and one size of memory.
    let output = stage.weigh().args(run).args(["--out", "default"]).output().unwrap();
    let said = unwrapped(&String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}");
    assert!(said.contains("uml can have 1 CPU, so every environment gets 1"), "{said}");
    let plan: Value =
        serde_json::from_str(&fs::read_to_string(stage.here().join("default/plan.json")).unwrap()).unwrap();
    assert_ne!(plan["guest"]["cpus"][0], 0);
    assert_eq!(plan["guest"]["cpus"].as_array().unwrap().len(), 1);
    let report = shown(&stage, "default");
    let (uml, native) = (facts(&report, "uml"), facts(&report, "native"));
    assert_eq!((&uml["cpus"], &native["cpus"]), (&1.into(), &1.into()));
    assert_eq!(native["memory_bytes"], plan["guest"]["memory_bytes"]);
    assert_eq!(uml["binary:weigh-kernels"], native["binary:weigh-kernels"]);
    stage.host_is_as_before();
}

/// A run of the first format has no facts from inside: the plan speaks.
#[test]
fn a_run_of_the_first_format_is_shown() {
    let stage = Stage::with_fakes();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/run-format-1");
    let run = stage.here().join("old");
    fs::create_dir(&run).unwrap();
    for file in fs::read_dir(source).unwrap().flatten() {
        fs::copy(file.path(), run.join(file.file_name())).unwrap();
    }
    let report = shown(&stage, "old");
    assert_eq!(report["blocks"]["done"], 2);
    let cells = report["cells"].as_array().unwrap();
    assert!(
        cells.iter().any(|cell| cell["environment"] == "docker" && cell["overhead"].is_object()),
        "{report}"
    );
    assert!(cells.iter().all(|cell| !cell["flags"].as_array().unwrap().contains(&"UNEQUAL".into())));
    assert_eq!(facts(&report, "docker")["network"], "nat");
    assert_eq!(facts(&report, "native")["network"], "host");
    let table = stage.weigh().args(["show", "old"]).output().unwrap();
    assert!(!String::from_utf8_lossy(&table.stdout).contains("NEITHER IMPLIED NOR ALLOWED"));
}
