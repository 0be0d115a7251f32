//! The first experience of a new user: what a quick run selects, and what a terminal shows of it.

use crate::support::{Said, Stage, is_root, listed, shown, trials, words};
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// A run that chooses for the user says in a line how many platforms it does not have here. No
/// machine has every platform.
#[test]
fn missing_platforms_are_counted_in_a_line() {
    let stage = Stage::new();
    // The baseline is examined after the platforms, so that nothing is measured.
    let said = stage.run("run noploop --on all --blocks 1 --baseline nosuch");
    let said = said.ends_saying(2, &["there is no platform `nosuch`"]);
    let count = said.stderr.lines().find_map(|line| {
        let (count, rest) = line.split_once(" platform")?;
        rest.trim_start_matches('s')
            .eq(" not ready: `weigh doctor` says why")
            .then(|| count.parse::<usize>().unwrap())
    });
    assert!(count.is_some_and(|count| count > 0), "{}", said.stderr);
    stage.host_is_as_before();
}

/// On a network that drops packets apt-get waits for minutes, and a quick run has three: what waits
/// for a kernel is named with the command that fetches it. Other programs than apt's are not found.
#[test]
fn a_quick_run_does_not_wait_for_a_kernel() {
    let test = "a_quick_run_does_not_wait_for_a_kernel";
    if !is_root(test, "a user-mode kernel needs root") {
        return;
    }
    let stage = Stage::new();
    let programs = stage.here().join("bin");
    fs::create_dir(&programs).unwrap();
    for (name, script) in
        [("apt-cache", "echo Version: 1"), ("apt-get", "exec /bin/sleep 4321"), ("dpkg-deb", "exit 1")]
    {
        let path = programs.join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = stage.weigh();
    command.env("PATH", &programs).env("WEIGH_CACHE", stage.here().join("cache"));
    // The baseline is examined after the platforms, so that nothing is measured.
    let line = "run noploop --quick --budget 16s --baseline nosuch";
    let said = Said::of(line, command.args(words(line)).output().unwrap());
    let said = said.ends_saying(2, &["there is no platform `nosuch`", "`weigh doctor` waits for it"]);
    let note = said.stderr.lines().find(|line| line.starts_with("note: without "));
    assert!(note.is_some_and(|note| note.contains("uml")), "{}", said.stderr);
    stage.host_is_as_before();
}

/// Nothing is run and the host is not examined: these tests run beside others.
mod fakes {
    use super::*;

    fn environments(plan: &str) -> Vec<&str> {
        plan.lines().filter_map(|line| line.strip_prefix("environment: ")).collect()
    }

    /// In a dry run every platform counts as ready.
    #[test]
    fn a_quick_run_takes_one_platform_of_each_kind() {
        let stage = Stage::with_fakes();
        let said = stage.run("run --quick --dry-run").ends_with(0);
        let chosen = environments(&said.stdout);
        assert_eq!(chosen, ["native", "docker", "runsc", "qemu"], "{}", said.stdout);
        let note = said.stderr.lines().find(|line| line.contains("`--on all`"));
        assert!(note.is_some_and(|note| note.contains("podman") && note.contains("uml")), "{}", said.stderr);
        for line in ["run --quick --on all --dry-run", "run --dry-run", "run --on all --dry-run"] {
            let all = stage.stdout(line);
            let all = environments(&all);
            assert!(all.len() > 10 && chosen.iter().all(|name| all.contains(name)), "{line}: {all:?}");
        }
        let named = stage.stdout("run --quick --on native,podman --dry-run");
        assert_eq!(environments(&named), ["native", "podman"]);
    }

    /// Hints name options, which `weigh` alone does not take. Without a place for its state, it
    /// measures nothing.
    #[test]
    fn weigh_alone_says_which_command_takes_options() {
        let stage = Stage::with_fakes();
        let mut command = stage.weigh();
        let said = Said::of("weigh", command.env("WEIGH_STATE", "nowhere").output().unwrap());
        said.says(&["this is `weigh run --quick`", "must be an absolute path"]);
        stage.stdout("run --quick --on all --dry-run");
    }

    /// The result of one metric of one command in three environments fits a small screen.
    #[test]
    fn a_result_fits_a_small_screen_and_the_details_are_an_option() {
        let stage = Stage::with_fakes();
        let run = "run --on null:sd=0.01;null:sd=0.01,seed=2;null:sd=0.01,seed=3,effect=0.5 \
                   --baseline null:sd=0.01 --quick --seed 1";
        let brief = stage.stdout(&format!("{run} --out a -- true"));
        // Warnings about noise on the test's host differ from run to run.
        let of_noise = |line: &&str| ["warning", "NOISY", "DISTURBED"].iter().any(|word| line.contains(word));
        let lines = brief.lines().filter(|line| !of_noise(line)).count();
        assert!(lines <= 24, "{lines} lines:\n{brief}");
        assert!(brief.lines().filter(|line| line.starts_with("warning")).count() <= 3, "{brief}");
        assert!(brief.contains("▲ +") && brief.contains("EXPLORATORY"), "{brief}");
        let details = stage.stdout(&format!("{run} --out b --details -- true"));
        for (text, shown) in [(&brief, false), (&details, true)] {
            assert_eq!(text.contains("How to read this"), shown, "{text}");
            assert_eq!(text.contains("What was measured where"), shown, "{text}");
        }
        assert!(details.contains("▲ +"), "{details}");
        for command in ["show a", "compare a b"] {
            assert!(!stage.stdout(command).contains("How to read this"), "{command}");
            let details = stage.stdout(&format!("{command} --details"));
            assert!(details.contains("How to read this"), "{command}:\n{details}");
        }
    }

    /// A run that chooses for the user leaves out what six blocks of would exceed its budget, and
    /// says so. Nobody but the user chooses fakes, so that this is the run of a plan.
    #[test]
    fn a_quick_run_fits_its_budget() {
        let stage = Stage::with_fakes();
        let fast = "null:real=yes,time=2ms";
        let on = format!("{fast};{fast},label=b;null:real=yes,time=3ms,label=slow");
        stage.stdout(&format!("run --quick --on {on} --baseline {fast} --out named -- true"));
        let plan = stage.read("named/plan.json").replace("3ms", "2000ms");
        let mut plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
        assert!(plan["fit_budget"].is_null() && plan["budget_s"].is_null(), "{plan}");
        plan["fit_budget"] = true.into();
        plan["budget_s"] = serde_json::json!(8.0);
        stage.write("plan.json", plan.to_string());
        stage.run("run --plan plan.json --out r").ends_with(0).says(&["left out", "--quick --on all"]);
        let report = shown(&stage, "r");
        let is_slow = |name: &serde_json::Value| name.as_str().unwrap().contains("label=slow");
        let [left_out] = listed(&report, "failures") else { panic!("{}", report["failures"]) };
        assert!(is_slow(&left_out["environment"]), "{left_out}");
        assert!(left_out["reason"].as_str().unwrap().contains("left out of this quick run"), "{left_out}");
        let measured = trials(&stage.here().join("r"));
        assert!(!measured.is_empty() && !measured.iter().any(|trial| is_slow(&trial["environment"])));
        assert!(report["blocks"]["done"].as_u64().unwrap() >= 6, "{}", report["blocks"]);
    }

    /// A quick run has no time to wait for a quiet moment.
    #[test]
    fn a_quick_run_voids_nothing_for_noise() {
        let stage = Stage::with_fakes();
        let on = "--on null;null:label=b --baseline null --out";
        stage.stdout(&format!("run --quick {on} quick -- true"));
        stage.stdout(&format!("run --blocks 2 {on} fixed -- true"));
        let voiding = |run: &str| -> bool {
            let plan: serde_json::Value =
                serde_json::from_str(&stage.read(&format!("{run}/plan.json"))).unwrap();
            plan["noise"]["voiding"].as_bool().unwrap()
        };
        assert_eq!([voiding("quick"), voiding("fixed")], [false, true]);
        let text = stage.stdout("show quick --details");
        assert!(!text.contains("VOIDING OFF"), "nobody asked for it:\n{text}");
    }
}
