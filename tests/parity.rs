//! Equal guests are compared, unequal ones refused, end to end.

use crate::support::{Stage, copy, listed, named, ready, shown};
use serde_json::Value;
use std::fs;
use std::path::Path;

fn facts<'a>(report: &'a Value, environment: &str) -> &'a Value {
    &named(report, "environments", environment)["facts"]
}

/// The platforms that share the host's kernel have no unintended differences, with every image and
/// limit.
#[test]
fn environments_that_are_alike_are_not_refused() {
    let stage = Stage::new();
    let mut environments = vec!["native"];
    for (platform, all) in [
        ("namespaces", &["namespaces", "namespaces:net=host", "namespaces:user=mapped"][..]),
        ("runc", &["runc", "runc:net=host"]),
        ("docker", &["docker", "docker:net=host", "docker:net=none"]),
    ] {
        if ready(&stage, platform, "environments_that_are_alike_are_not_refused") {
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
    for (out, extra) in [
        ("host", "--cpus 0".to_string()),
        ("probe", "--image probe".into()),
        ("directory", format!("--image {image} --memory 512MiB")),
        ("tar", format!("--image {archive} --cpus 0 --memory 512MiB")),
    ] {
        stage.stdout(&format!("run noploop --size quick --on {on} --blocks 1 --no-void --out {out} {extra}"));
        let report = shown(&stage, out);
        assert_eq!(listed(&report, "failures").len(), 0, "{out}: {}", report["failures"]);
        for environment in &environments {
            let (facts, native) = (facts(&report, environment), facts(&report, "native"));
            for key in
                ["kernel", "cpus", "memory_bytes", "libc", "binary:weigh-kernels", "mitigations", "aslr"]
            {
                assert_eq!(facts[key], native[key], "{out}: {key} of {environment}");
            }
            assert!(facts["binary:weigh-kernels"].is_string(), "{out}: {facts}");
            assert_eq!(facts["libc"], "static", "{out}: {environment}");
            if extra.contains("--cpus") {
                assert_eq!(facts["cpus"], 1, "{out}: {environment}");
            }
            if extra.contains("--memory") {
                assert_eq!(facts["memory_bytes"], 512 << 20, "{out}: {environment}");
            }
            if matches!(out, "directory" | "tar") {
                assert_eq!(facts["operating-system"], "An image", "{out}: {environment}");
            }
        }
    }
    stage.host_is_as_before();
}

const UNEQUAL: &str = "run --on null:fact=cpus=2+binary:true=sha256:1;null:fact=cpus=1+binary:true=sha256:2,label=b \
                       --baseline null:fact=cpus=2+binary:true=sha256:1 --blocks 2 --no-void --out r";

/// A real guest with one CPU less: a user-mode kernel always has one.
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
    let run = "run noploop --size quick --image probe --on native,uml --blocks 1 --no-void";
    let two = "--cpus 0,1 --memory 256MiB";
    // Nothing else differs.
    let expected = ["cpus is 1 (native: 2)", "--allow-unequal cpus`"];
    stage.refuses(&format!("{run} {two} --out refused"), &expected);
    let allowed = stage.run(&format!("{run} {two} --allow-unequal cpus --out allowed"));
    allowed.ends_with(0).says(&["unequal by request: cpus"]);

    // If weigh chooses, all get one CPU, not the first, and the same memory.
    let default = stage.run(&format!("{run} --out default"));
    default.ends_with(0).says(&["uml can have 1 CPU, so every environment gets 1"]);
    let plan = stage.read_json("default/plan.json");
    assert_ne!(plan["guest"]["cpus"][0], 0);
    assert_eq!(listed(&plan["guest"], "cpus").len(), 1);
    let report = shown(&stage, "default");
    let (uml, native) = (facts(&report, "uml"), facts(&report, "native"));
    assert_eq!((&uml["cpus"], &native["cpus"]), (&1.into(), &1.into()));
    assert_eq!(native["memory_bytes"], plan["guest"]["memory_bytes"]);
    assert_eq!(uml["binary:weigh-kernels"], native["binary:weigh-kernels"]);
    stage.host_is_as_before();
}

/// Runs of fakes change nothing on the host: these tests run beside others.
mod fakes {
    use super::*;

    /// The list shows every key with both values and what to do. The run is kept, and resuming it
    /// says the same.
    #[test]
    fn unequal_guests_are_refused_with_the_list() {
        let stage = Stage::with_fakes();
        let expected = [
            "guests differ from the baseline null:fact=cpus=2+binary:true=sha256:1",
            "null:fact=cpus=1+binary:true=sha256:2,label=b: binary:true is sha256:2 (null:fact=cpus=2+binary:true=sha256:1: sha256:1)",
            "null:fact=cpus=1+binary:true=sha256:2,label=b: cpus is 1 (null:fact=cpus=2+binary:true=sha256:1: 2)",
            "--allow-unequal binary:true,cpus",
            "weigh resume r",
        ];
        stage.refuses(&format!("{UNEQUAL} -- true"), &expected);
        let samples = stage.read("r/samples.jsonl");
        assert_eq!(samples.matches("\"record\":\"facts\"").count(), 2, "{samples}");
        assert_eq!(samples.matches("\"record\":\"trial\"").count(), 0);
        stage.refuses("resume r", &["--allow-unequal binary:true,cpus"]);
        stage.host_is_as_before();
    }

    /// A run whose environments nobody named leaves out what is unequal, also when it is resumed
    /// before its pilot is done.
    #[test]
    fn a_resumed_run_knows_that_nobody_named_its_environments() {
        let stage = Stage::with_fakes();
        stage.refuses(&format!("{UNEQUAL} -- true"), &["weigh resume r"]);
        let mut plan = stage.read_json("r/plan.json");
        assert!(plan.get("leave_out_unequal").is_none(), "{plan}");
        plan["leave_out_unequal"] = true.into();
        stage.write("r/plan.json", plan.to_string());
        let said = stage.run("resume r");
        let samples = stage.read("r/samples.jsonl");
        assert_ne!(said.code, Some(2), "{}", said.all());
        assert!(samples.contains("--allow-unequal"), "the other one is left out: {samples}");
        assert!(samples.contains("\"record\":\"trial\""), "the baseline is measured: {samples}");
        stage.host_is_as_before();
    }

    /// A difference that is allowed by name is measured, and reported beside every ratio; the plan
    /// keeps it.
    #[test]
    fn an_allowed_difference_is_beside_every_ratio() {
        let stage = Stage::with_fakes();
        let run = stage.run(&format!("{UNEQUAL} --allow-unequal cpus,binary -- true"));
        run.ends_with(0).says(&["unequal by request: cpus, binary:true"]);
        let report = shown(&stage, "r");
        let cells = listed(&report, "cells");
        let unequal = |cell: &Value| cell["flags"].as_array().unwrap().contains(&"UNEQUAL".into());
        let other = |cell: &Value| cell["environment"].as_str().unwrap().contains("label=b");
        assert!(cells.iter().any(other));
        for cell in cells {
            assert_eq!(unequal(cell), other(cell), "{cell}");
        }
        assert_eq!(stage.read_json("r/plan.json")["allow_unequal"], serde_json::json!(["cpus", "binary"]));
        stage.stdout("run --plan r/plan.json --out again");
        stage.host_is_as_before();
    }

    #[test]
    fn unknown_keys_get_the_nearest() {
        let stage = Stage::with_fakes();
        let run = |key: &str| format!("run noploop --on null --allow-unequal {key} --dry-run");
        for (key, expected) in [
            ("cpu", ["`cpu`", "`cpus`"]),
            ("cpus,mitigation", ["`mitigation`", "`mitigations`"]),
            ("weather", ["`weather`", "transparent-huge-pages"]),
        ] {
            stage.refuses(&run(key), &expected);
        }
        stage.stdout(&run("cpus,binary:fio,mounts:/tmp"));
    }

    /// A run of the first format has no facts from inside, so the plan's values count.
    #[test]
    fn a_run_of_the_first_format_is_shown() {
        let stage = Stage::with_fakes();
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/run-format-1");
        copy(Path::new(source), &stage.here().join("old"));
        let report = shown(&stage, "old");
        assert_eq!(report["blocks"]["done"], 2);
        let cells = listed(&report, "cells");
        assert!(
            cells.iter().any(|cell| cell["environment"] == "docker" && cell["overhead"].is_object()),
            "{report}"
        );
        assert!(cells.iter().all(|cell| !cell["flags"].as_array().unwrap().contains(&"UNEQUAL".into())));
        assert_eq!(facts(&report, "docker")["network"], "nat");
        assert_eq!(facts(&report, "native")["network"], "host");
        assert!(!stage.stdout("show old").contains("NEITHER IMPLIED NOR ALLOWED"));
    }
}
