//! The main path, end to end: real guests, real work, and a host that is as before.

use crate::support::{Stage, cell_of, listed, shown, trials, with_native};
use serde_json::Value;

/// Every ready platform, with a kernel and with a user's command.
#[test]
fn native_and_containers_are_compared() {
    let stage = Stage::new();
    const TEST: &str = "native_and_containers_are_compared";
    let on = with_native(&stage, &["namespaces", "runc", "docker"], TEST);
    let table = stage.stdout(&format!(
        "run noploop --on {on} --blocks 3 --size quick --seed 7 --out first --iterations 2 --no-void \
         -- sh -c 'echo hello; cat /etc/hostname >/dev/null || true'"
    ));
    for environment in on.split(',') {
        assert!(table.contains(environment), "{environment} is not in the table:\n{table}");
    }
    let report = shown(&stage, "first");
    assert_eq!(report["format"], 1);
    assert_eq!(report["seed"], 7);
    assert_eq!(report["blocks"]["done"], 3);
    assert_eq!(listed(&report, "failures").len(), 0, "{}", report["failures"]);
    for environment in on.split(',') {
        let time = cell_of(&report, environment, "time");
        assert_eq!(time["n"], 3);
        assert!(time["median"].as_f64().unwrap() > 0.0);
        assert_eq!(time["overhead"].is_null(), environment == "native");
        assert!(cell_of(&report, environment, "duration")["median"].as_f64().unwrap() > 0.0);
    }
    let page = stage.read("first/report.html");
    assert!(page.contains("</html>") && !page.contains("http://") && !page.contains("src=\"http"));
    stage.host_is_as_before();
}

/// CPU set and memory limit reach every platform alike, native included.
#[test]
fn limits_are_the_same_everywhere() {
    let stage = Stage::new();
    const TEST: &str = "limits_are_the_same_everywhere";
    let on = with_native(&stage, &["namespaces", "runc", "docker"], TEST);
    stage.measured(&format!(
        "run --on {on} --blocks 1 --cpus 1 --memory 256MiB --warmup 0 --iterations 1 \
         -- sh -c 'nproc; grep Cpus_allowed_list /proc/self/status'"
    ));
    let logs: Vec<_> = std::fs::read_dir(stage.here().join("r/logs")).unwrap().flatten().collect();
    let mut seen = 0;
    for log in logs {
        let text = String::from_utf8_lossy(&std::fs::read(log.path()).unwrap()).into_owned();
        if text.contains("Cpus_allowed_list") {
            seen += 1;
            assert!(text.contains("Cpus_allowed_list:\t1\n"), "{:?}: {text}", log.path());
        }
    }
    assert!(seen >= on.split(',').count(), "only {seen} logs show the limit");
    // Memory: on no platform can a program have more than the limit.
    stage.run(&format!(
        "run --on {on} --blocks 1 --memory 64MiB --out m --warmup 0 \
         -- sh -c 'x=$(head -c 300000000 /dev/zero | tr \"\\0\" x); test -n \"$x\"'"
    ));
    let report = shown(&stage, "m");
    for environment in on.split(',') {
        let this = |one: &Value| one["environment"] == environment;
        let measured = listed(&report, "cells").iter().any(|cell| this(cell) && cell["n"] != 0);
        assert!(listed(&report, "failures").iter().any(this) || !measured, "{environment}: {report}");
    }
    stage.host_is_as_before();
}

/// A written plan can be run again exactly.
#[test]
fn a_plan_can_be_repeated() {
    let stage = Stage::new();
    stage.stdout("run --out a --on null,native --baseline null --blocks 2 --seed 5 -- true");
    stage.stdout("run --out b --plan a/plan.json");
    assert_eq!(stage.read("a/plan.json"), stage.read("b/plan.json"));
    stage.host_is_as_before();
}

/// Runs of fakes change nothing on the host: these tests run beside others.
mod fakes {
    use super::*;

    /// What cannot be undone is said after the result, which is there in every form.
    #[test]
    fn a_change_that_cannot_be_undone_holds_no_result_back() {
        let stage = Stage::with_fakes();
        let builds = "null:sd=0.01,seed=1 null:sd=0.01,seed=2,undo=fail";
        let line = format!("gate {builds} --out r --junit j.xml --no-void --seed 1 --limit 3 -- work");
        let said = stage.run(&line).ends_saying(1, &["could not undo", "`weigh clean`"]);
        assert!(said.stdout.contains("Gate: pass"), "{}", said.stdout);
        assert!(stage.read("j.xml").contains("failures=\"0\""));
        assert!(stage.read("r/report.html").contains("</html>"));
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
            stage.write(&format!("{name}.toml"), manifest);
        }
        let order = |seed: &str, out: &str| {
            stage.stdout(&format!(
            "run --on null;null:label=b;null:label=c --baseline null --blocks 4 --seed {seed} --out {out} --no-void \
             first second --workload first.toml --workload second.toml"
        ));
            trials(&stage.here().join(out))
                .iter()
                .map(|trial| format!("{} {} {}", trial["block"], trial["workload"], trial["environment"]))
                .collect::<Vec<_>>()
        };
        let (first, again, other) = (order("7", "a"), order("7", "b"), order("8", "c"));
        assert_eq!(first.len(), 4 * 2 * 3);
        assert_eq!(first, again);
        assert_ne!(first, other);
        stage.host_is_as_before();
    }

    /// A fake must not be found different from an equal one, and an injected slowdown must be
    /// found.
    #[test]
    fn an_injected_slowdown_is_found_and_its_absence_is_not() {
        let stage = Stage::with_fakes();
        let report = stage.measured(
        "run --on null:sd=0.01,seed=1;null:sd=0.01,seed=2,label=same;null:sd=0.01,seed=3,effect=0.05,label=slow \
         --baseline null:sd=0.01,seed=1 --blocks 30 --seed 1 -- work",
    );
        let slow = cell_of(&report, "null:effect=0.05,label=slow,sd=0.01,seed=3", "time");
        assert_eq!(slow["verdict"], "SLOWER");
        let mean = slow["overhead"]["mean"].as_f64().unwrap();
        assert!((0.03..0.07).contains(&mean), "{mean}");
        let same = cell_of(&report, "null:label=same,sd=0.01,seed=2", "time");
        assert_ne!(same["verdict"], "SLOWER");
        assert_ne!(same["verdict"], "FASTER");
        stage.host_is_as_before();
    }

    /// A build that does not start passes no gate, and a gate that demands proof asks for more
    /// blocks.
    #[test]
    fn a_gate_that_cannot_judge_exits_with_4() {
        let stage = Stage::with_fakes();
        let run = "run --baseline null:sd=0.001 --blocks 6 --gate 50 --on null:sd=0.001;";
        let failed = stage.run(&format!("{run}null:launch=fail -- true")).ends_with(4);
        assert!(failed.stderr.contains("the gate of 50 % cannot judge true"), "{}", failed.stderr);
        stage.run(&format!("{run}null:effect=0.1,sd=0.001,seed=2 -- true")).ends_with(0);
        stage.run("show last --gate 50 --gate-undecided fail").ends_with(3);
        stage.run("show last --gate-undecided fail").ends_with(2);
        stage.host_is_as_before();
    }

    /// `--gate` turns a comparison into an exit code.
    #[test]
    fn a_crossed_gate_is_exit_code_3() {
        let stage = Stage::with_fakes();
        let on = "null:sd=0.001,seed=1;null:sd=0.001,seed=2,effect=0.2";
        for (gate, code) in [("5", 3), ("50", 0)] {
            let run =
                format!("run --on {on} --baseline null:sd=0.001,seed=1 --blocks 6 --gate {gate} -- true");
            stage.run(&run).ends_with(code);
        }
        stage.run("show last --gate 5").ends_with(3);
        // The same as test cases. They are written before the exit code is decided, so that a
        // continuous integration server has them.
        let said = stage.run("show last --gate 5 --format junit --output junit.xml").ends_with(3);
        assert_eq!(said.stdout, "");
        let cases = stage.read("junit.xml");
        assert!(cases.contains("failures=\"1\"") && cases.contains("above the gate of 5 %"), "{cases}");
        let cases = stage.stdout("show last --gate 50 --format junit");
        assert!(cases.contains("failures=\"0\"") && cases.contains("tests=\"1\""), "{cases}");
        stage.host_is_as_before();
    }
}
