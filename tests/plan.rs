//! `weigh plan`: a blind pilot, and the command of the run that finds a difference.

use crate::support::{Stage, cell_of, kill, shown, wait_for};
use serde_json::Value;

/// Runs of fakes change nothing on the host: these tests run beside others.
mod fakes {
    use super::*;

    /// Two environments with a standard deviation of 1 % each, so that that of their ratios is 1.4
    /// %.
    fn on(effect: f64) -> String {
        format!(
            "--on null:sd=0.01,seed=1;null:sd=0.01,seed=2,effect={effect},label=b --baseline null:sd=0.01,seed=1"
        )
    }

    fn spread(planned: &Value) -> f64 {
        planned["cells"][0]["spread"]["sd"].as_f64().unwrap_or_else(|| panic!("no spread in {planned}"))
    }

    /// An effect of 50 % shows in no number of the plan, and no file stays behind.
    #[test]
    fn a_pilot_is_blind() {
        let stage = Stage::with_fakes();
        let plan = |effect: f64, more: &str| {
            let line = format!("plan --detect 1% {} --seed 1 --no-void {more} -- work", on(effect));
            let said = stage.run(&line).ends_with(0);
            (said.stdout, said.stderr)
        };
        let (json, _) = plan(0.5, "--json");
        let planned: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(planned["pilot_blocks"], 6);
        assert!((0.004..0.03).contains(&spread(&planned)), "{planned}");
        let (out, err) = plan(0.5, "");
        for text in [&out, &err] {
            assert!(!text.contains("+50") && !text.contains("SLOWER") && !text.contains("slower"), "{text}");
        }
        assert!(!stage.state().exists() && !stage.here().join("weigh-runs").exists());
    }

    #[test]
    fn clean_deletes_a_pilot_that_was_killed() {
        let stage = Stage::with_fakes();
        let mut child =
            stage.spawn("plan --detect 1 --on null;null:fault=hang,label=b --baseline null -- work");
        let pilot = || {
            let made = std::fs::read_dir(stage.state()).into_iter().flatten().flatten();
            let mut pilots = made.map(|entry| entry.path().join("plan.json"));
            pilots.find(|plan| plan.exists())
        };
        wait_for("the pilot", pilot);
        kill(&mut child);
        assert!(pilot().is_some());
        stage.stdout("clean");
        assert!(!stage.state().exists());
    }

    /// The printed command runs, with the planned number of blocks, and finds the difference.
    #[test]
    fn the_command_that_it_prints_is_the_run() {
        let stage = Stage::with_fakes();
        let text = stage.stdout(&format!("plan --detect 3% {} --seed 1 --no-void -- work", on(0.03)));
        let text = text.replace('\u{a0}', " ").split_whitespace().collect::<Vec<_>>().join(" ");
        let command = text.split_once("weigh run ").and_then(|(_, rest)| rest.split_once(" -- work"));
        let command = command.map(|(options, _)| format!("{options} -- work"));
        let command = command.unwrap_or_else(|| panic!("no command in {text}"));
        assert!(command.contains("--no-void") && command.contains("--seed 1"), "{command}");
        let blocks = command.split(" --blocks ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
        let words = shlex::split(&command).unwrap();
        let mut weigh = stage.weigh();
        let output = weigh.args(["run", "--out", "r"]).args(words).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report = shown(&stage, "r");
        assert_eq!(report["blocks"]["done"].to_string(), blocks);
        let cell = cell_of(&report, "null:effect=0.03,label=b,sd=0.01,seed=2", "time");
        assert_eq!(cell["verdict"], "SLOWER");
    }

    /// Each is refused before anything is done, with what to give instead.
    #[test]
    fn an_impossible_plan_is_refused_with_a_remedy() {
        let stage = Stage::with_fakes();
        let on = "--on null;null:label=b --baseline null";
        for detect in ["0", "200%", "100", "-1", "one", ""] {
            let line = format!("plan --detect='{detect}' {on} -- work");
            stage.refuses(&line, &["--detect", "between 0 and 100"]);
        }
        stage.refuses(&format!("plan {on} -- work"), &["--detect <PCT>"]);
        for unfit in
            ["--blocks 5", "--quick", "--precision 1", "--gate 2", "--reuse", "--budget 1m", "--live"]
        {
            let option = unfit.split(' ').next().unwrap();
            stage.refuses(&format!("plan --detect 1 {on} {unfit} -- work"), &[option, "cannot be used with"]);
        }
        stage.refuses("plan --detect 1 --on null --baseline null -- work", &["nothing to compare", "--on"]);
        let dry = stage.stdout(&format!("plan --detect 1 {on} --dry-run -- work"));
        assert!(dry.contains("blocks: 6"), "{dry}");
    }
}
