//! The main path, end to end: real guests, real work, the host as it was.

use crate::support::{Stage, ready, shown};
use serde_json::Value;

fn cells(report: &Value) -> &Vec<Value> {
    report["cells"].as_array().unwrap()
}

fn cell<'a>(report: &'a Value, environment: &str, metric: &str) -> &'a Value {
    let wanted = |cell: &&Value| cell["environment"] == environment && cell["metric"] == metric;
    cells(report).iter().find(wanted).unwrap_or_else(|| panic!("no cell {environment} {metric}"))
}

/// Every platform that is ready, on a kernel and on a command of the user's.
#[test]
fn native_and_containers_are_compared() {
    let stage = Stage::new();
    let mut environments = vec!["native"];
    for platform in ["namespaces", "runc", "docker"] {
        if ready(&stage, platform, "native_and_containers_are_compared") {
            environments.push(platform);
        }
    }
    let on = environments.join(",");
    let run = stage
        .weigh()
        .args([
            "run", "noploop", "--on", &on, "--blocks", "3", "--size", "quick", "--seed", "7", "--out",
            "first",
        ])
        .args(["--iterations", "2", "--", "sh", "-c", "echo hello; cat /etc/hostname >/dev/null || true"])
        .output()
        .unwrap();
    let (table, notes) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{table}\n{notes}");
    for environment in &environments {
        assert!(table.contains(environment), "{environment} is not in the table:\n{table}");
    }
    let report = shown(&stage, "first");
    assert_eq!(report["format"], 1);
    assert_eq!(report["seed"], 7);
    assert_eq!(report["blocks"]["done"], 3);
    assert_eq!(report["failures"].as_array().unwrap().len(), 0, "{}", report["failures"]);
    for environment in &environments {
        let time = cell(&report, environment, "time");
        assert_eq!(time["n"], 3);
        assert!(time["median"].as_f64().unwrap() > 0.0);
        assert_eq!(time["overhead"].is_null(), *environment == "native");
        assert!(cell(&report, environment, "duration")["median"].as_f64().unwrap() > 0.0);
    }
    let page = std::fs::read_to_string(stage.here().join("first/report.html")).unwrap();
    assert!(page.contains("</html>") && !page.contains("http://") && !page.contains("src=\"http"));
    stage.host_is_as_before();
}

/// The order of trials follows from the seed.
#[test]
fn the_same_seed_gives_the_same_order() {
    let stage = Stage::with_fakes();
    for name in ["first", "second"] {
        let manifest = format!(
            "name = \"{name}\"\nsummary = \"x\"\ndescription = \"x\"\ncommand = [\"work\"]\n[check]\nstatement = \"it ends\"\n\
             [[metric]]\nname = \"time\"\nunit = \"s\"\nbetter = \"lower\"\nprimary = true\nduration = true\n"
        );
        std::fs::write(stage.here().join(format!("{name}.toml")), manifest).unwrap();
    }
    let order = |seed: &str, out: &str| {
        stage
            .weigh()
            .args(["run", "--on", "null;null:label=b;null:label=c", "--baseline", "null", "--blocks", "4"])
            .args(["--seed", seed, "--out", out, "--no-void", "first", "second"])
            .args(["--workload", "first.toml", "--workload", "second.toml"])
            .assert()
            .success();
        let samples = std::fs::read_to_string(stage.here().join(out).join("samples.jsonl")).unwrap();
        let trials = samples.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        trials
            .filter(|record| record["record"] == "trial")
            .map(|trial| format!("{} {} {}", trial["block"], trial["workload"], trial["environment"]))
            .collect::<Vec<_>>()
    };
    let (first, again, other) = (order("7", "a"), order("7", "b"), order("8", "c"));
    assert_eq!(first.len(), 4 * 2 * 3);
    assert_eq!(first, again);
    assert_ne!(first, other);
    stage.host_is_as_before();
}

/// Native against itself must not come out as different on work that takes milliseconds, and must
/// be able to.
#[test]
fn an_injected_slowdown_is_found_and_its_absence_is_not() {
    let stage = Stage::with_fakes();
    stage
        .weigh()
        .args([
            "run",
            "--on",
            "null:sd=0.01,seed=1;null:sd=0.01,seed=2,label=same;null:sd=0.01,seed=3,effect=0.05,label=slow",
        ])
        .args([
            "--baseline",
            "null:sd=0.01,seed=1",
            "--blocks",
            "30",
            "--seed",
            "1",
            "--out",
            "r",
            "--",
            "work",
        ])
        .assert()
        .success();
    let report = shown(&stage, "r");
    let slow = cell(&report, "null:effect=0.05,label=slow,sd=0.01,seed=3", "time");
    assert_eq!(slow["verdict"], "SLOWER");
    let mean = slow["overhead"]["mean"].as_f64().unwrap();
    assert!((0.03..0.07).contains(&mean), "{mean}");
    let same = cell(&report, "null:label=same,sd=0.01,seed=2", "time");
    assert_ne!(same["verdict"], "SLOWER");
    assert_ne!(same["verdict"], "FASTER");
    stage.host_is_as_before();
}

/// CPU set and memory limit reach every platform alike, native included.
#[test]
fn limits_are_the_same_everywhere() {
    let stage = Stage::new();
    let mut environments = vec!["native"];
    for platform in ["namespaces", "runc", "docker"] {
        if ready(&stage, platform, "limits_are_the_same_everywhere") {
            environments.push(platform);
        }
    }
    let on = environments.join(",");
    stage
        .weigh()
        .args([
            "run", "--on", &on, "--blocks", "1", "--cpus", "1", "--memory", "256MiB", "--out", "r",
            "--warmup", "0",
        ])
        .args(["--iterations", "1", "--", "sh", "-c", "nproc; grep Cpus_allowed_list /proc/self/status"])
        .assert()
        .success();
    let logs: Vec<_> = std::fs::read_dir(stage.here().join("r/logs")).unwrap().flatten().collect();
    let mut seen = 0;
    for log in logs {
        let text = String::from_utf8_lossy(&std::fs::read(log.path()).unwrap()).into_owned();
        if text.contains("Cpus_allowed_list") {
            seen += 1;
            assert!(text.contains("Cpus_allowed_list:\t1\n"), "{:?}: {text}", log.path());
        }
    }
    assert!(seen >= environments.len(), "only {seen} logs show the limit");
    // Memory: a program that needs more than the limit cannot have it, on any platform.
    let run = stage
        .weigh()
        .args(["run", "--on", &on, "--blocks", "1", "--memory", "64MiB", "--out", "m", "--warmup", "0"])
        .args(["--", "sh", "-c", "x=$(head -c 300000000 /dev/zero | tr '\\0' x); test -n \"$x\""])
        .output()
        .unwrap();
    let report = shown(&stage, "m");
    let failed = report["failures"].as_array().unwrap();
    for environment in &environments {
        let this = |failure: &&Value| failure["environment"] == *environment;
        let measured =
            cells(&report).iter().any(|cell| cell["environment"] == *environment && cell["n"] != 0);
        assert!(failed.iter().any(|failure| this(&failure)) || !measured, "{environment}: {report}");
    }
    drop(run);
    stage.host_is_as_before();
}

/// A plan that was written is run again exactly.
#[test]
fn a_plan_can_be_repeated() {
    let stage = Stage::new();
    let run = |extra: &[&str], out: &str| {
        stage.weigh().args(["run", "--out", out]).args(extra).assert().success();
    };
    run(&["--on", "null,native", "--baseline", "null", "--blocks", "2", "--seed", "5", "--", "true"], "a");
    run(&["--plan", "a/plan.json"], "b");
    let plan = |out: &str| std::fs::read_to_string(stage.here().join(out).join("plan.json")).unwrap();
    assert_eq!(plan("a"), plan("b"));
    stage.host_is_as_before();
}

/// `--gate` turns a comparison into an exit code.
#[test]
fn a_crossed_gate_is_exit_code_3() {
    let stage = Stage::with_fakes();
    let on = "null;null:effect=0.2";
    for (gate, code) in [("5", 3), ("50", 0)] {
        let arguments =
            ["run", "--on", on, "--baseline", "null", "--blocks", "6", "--gate", gate, "--", "true"];
        stage.weigh().args(arguments).assert().code(code);
    }
    stage.weigh().args(["show", "last", "--gate", "5"]).assert().code(3);
    // The same as test cases: written before the exit code is decided, so that a server of
    // continuous integration has them.
    let file = stage.here().join("junit.xml");
    let arguments = ["show", "last", "--gate", "5", "--format", "junit", "--output", "junit.xml"];
    stage.weigh().args(arguments).assert().code(3).stdout("");
    let cases = std::fs::read_to_string(&file).unwrap();
    assert!(cases.contains("failures=\"1\"") && cases.contains("above the gate of 5 %"), "{cases}");
    let arguments = ["show", "last", "--gate", "50", "--format", "junit"];
    let output = stage.weigh().args(arguments).assert().success();
    let cases = String::from_utf8_lossy(&output.get_output().stdout).into_owned();
    assert!(cases.contains("failures=\"0\"") && cases.contains("tests=\"1\""), "{cases}");
    stage.host_is_as_before();
}
