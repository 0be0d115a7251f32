//! `weigh history`: runs of many versions, and where their results changed.

use crate::support::{Stage, listed};
use serde_json::Value;
use std::fs;

/// Runs of fakes change nothing on the host: these tests run beside others.
mod fakes {
    use super::*;

    const RUN: &str = "run --on null:sd=0.01,seed=1 --on null:effect=0.1,sd=0.01,seed=2 \
                       --baseline null:sd=0.01,seed=1 --blocks 6 --no-void --seed 1";

    /// The words of a text, joined by single spaces, because tables have no fixed width.
    fn words(text: &str) -> String {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Makes a history of one run, and returns the file's content.
    fn added(stage: &Stage) -> Value {
        stage.stdout(&format!("{RUN} --out r -- work"));
        stage.stdout("history r --version v0");
        let files: Vec<_> = fs::read_dir(stage.here().join(".weigh/history")).unwrap().collect();
        assert_eq!(files.len(), 1);
        let name = files[0].as_ref().unwrap().file_name().into_string().unwrap();
        stage.read_json(&format!(".weigh/history/{name}"))
    }

    /// Makes a history of `runs` runs: copies of the first, each a day later. `change` gets the
    /// number of a run and its content.
    fn repeated(stage: &Stage, first: &Value, runs: u32, change: impl Fn(u32, &mut Value)) {
        let history = stage.here().join(".weigh/history");
        fs::remove_dir_all(&history).unwrap();
        fs::create_dir(&history).unwrap();
        for at in 0..runs {
            let mut run = first.clone();
            run["version"] = format!("v{at}").into();
            run["began"] = format!("2026-{:02}-{:02}T05:00:00Z", 1 + at / 28, 1 + at % 28).into();
            change(at, &mut run);
            fs::write(history.join(format!("{at:03}.json")), run.to_string()).unwrap();
        }
    }

    /// Sets an effect with noise of about .3 %, without a random generator.
    fn set_effect(run: &mut Value, at: u32, effect: f64) {
        let effect = effect + (f64::from(at * 7919 % 101) / 101.0 - 0.5) * 0.01;
        let cell = &mut run["cells"][0];
        (cell["effect"], cell["low"], cell["high"]) =
            (effect.into(), (effect - 0.01).into(), (effect + 0.01).into());
    }

    #[test]
    fn runs_are_kept_with_their_effects() {
        let stage = Stage::with_fakes();
        let first = added(&stage);
        assert_eq!((&first["version"], &first["run"]), (&"v0".into(), &"r".into()));
        let cells = listed(&first, "cells");
        assert_eq!(cells.len(), 1, "{first}");
        let effect = cells[0]["effect"].as_f64().unwrap();
        assert!((0.05..0.15).contains(&effect), "{first}");
        let again = stage.run("history r --version v1").ends_with(0);
        assert!(again.stderr.contains("in the history already"), "{}", again.stderr);
        let shown = stage.stdout("history");
        for words in ["History of one run", "too few", "No change was found"] {
            assert!(shown.contains(words), "`{words}` is not in {shown}");
        }
        stage.host_is_as_before();
    }

    #[test]
    fn a_change_is_found_between_its_versions() {
        let stage = Stage::with_fakes();
        let first = added(&stage);
        repeated(&stage, &first, 24, |at, run| set_effect(run, at, if at < 16 { 0.1 } else { 0.18 }));
        let history = stage.json("history --format json");
        let series = listed(&history, "series");
        let changes = listed(&series[0], "changes");
        assert_eq!(changes.len(), 1, "{history}");
        assert_eq!(changes[0]["first_after"], 16);
        let change = changes[0]["change"]["mean"].as_f64().unwrap();
        assert!((change - (1.18 / 1.1 - 1.0)).abs() < 0.01, "{change}");
        stage.run("history --gate 5").ends_with(3).says(&["above the gate", "v15", "v16"]);
        stage.run("history --gate 10").ends_with(0);
        for format in ["table", "md", "latex", "html"] {
            let shown = words(&stage.stdout(&format!("history --format {format}")));
            assert!(shown.contains("between v15 and v16"), "{format}: {shown}");
        }
        stage.stdout("history --format html --output site.html");
        let page = stage.read("site.html");
        assert!(
            !page.contains("src=\"http") && page.contains("\"lines\""),
            "it fetches nothing, and has a plot"
        );
        // Once the effect has returned to its old value, the gate passes.
        let back = |at| if (16..24).contains(&at) { 0.18 } else { 0.1 };
        repeated(&stage, &first, 36, |at, run| set_effect(run, at, back(at)));
        stage.run("history --gate 5").ends_with(0);
    }

    /// Three changes, each of which is below the gate, and one that is only half undone.
    #[test]
    fn a_gate_asks_how_much_worse_it_is_than_at_its_best() {
        let stage = Stage::with_fakes();
        let first = added(&stage);
        let cases = [
            ([0.0, 0.04, 0.0816, 0.1249], ["+12.", "between v11 and v36"]),
            ([0.0, 0.0, 0.1, 0.067], ["+6.", "between v23 and v36"]),
        ];
        for (levels, above) in cases {
            repeated(&stage, &first, 48, |at, run| set_effect(run, at, levels[at as usize / 12]));
            stage.run("history --gate 5").ends_saying(3, &above);
            stage.run("history --gate 14").ends_with(0);
        }
    }

    /// Runs under other conditions, of other machines, without a workload, and out of order.
    #[test]
    fn gaps_and_other_machines_in_a_history_are_reported() {
        let stage = Stage::with_fakes();
        let first = added(&stage);
        repeated(&stage, &first, 20, |at, run| {
            set_effect(run, at, if at < 10 { 0.1 } else { 0.2 });
            if at < 3 {
                run["cells"][0]["conditions"] = "others".into();
            }
            if at == 5 {
                run["cells"] = Value::Array(Vec::new());
            }
            if at >= 10 {
                run["machine"] = "another".into();
            }
        });
        let shown = words(&stage.stdout("history"));
        for words in ["2 machines", "between v9 and v10; the machine changed there, too", "3 earlier runs"] {
            assert!(shown.contains(words), "`{words}` is not in {shown}");
        }
        let history = stage.json("history --format json");
        let points = listed(&listed(&history, "series")[0], "points").len();
        assert_eq!(points, 16, "{history}");
    }

    #[test]
    fn a_run_that_began_before_a_known_one_is_placed_with_a_note() {
        let stage = Stage::with_fakes();
        let first = added(&stage);
        stage.stdout(&format!("{RUN} --out s -- work"));
        for (machine, is_noted) in [("another".into(), false), (first["machine"].clone(), true)] {
            repeated(&stage, &first, 1, |_, run| {
                (run["machine"], run["began"]) = (machine.clone(), "2999-01-01T05:00:00Z".into());
            });
            let said = stage.run("history s --version v1").ends_with(0);
            let note = "before the run r of the same machine";
            assert_eq!(said.stderr.contains(note), is_noted, "{}", said.stderr);
        }
    }

    #[test]
    fn a_file_that_is_no_history_is_refused() {
        let stage = Stage::with_fakes();
        stage.refuses("history", &["there is no history in .weigh/history", "weigh history RUN --version"]);
        stage.refuses("history r", &["--version"]);
        stage.refuses("history --version v1", &["RUN"]);
        stage.refuses("history r --version ''", &["a value is required", "--version"]);
        stage.refuses("history nowhere --version v1", &["nowhere"]);
        stage.stdout("run --on null:sd=0.01 --baseline null:sd=0.01 --blocks 2 --out alone -- work");
        stage.refuses("history alone --version v1", &["no effect to keep", "--on"]);
        let first = added(&stage);
        repeated(&stage, &first, 2, |_, _| {});
        stage.refuses("history --format csv", &["histories have no csv output", "json"]);
        stage.refuses("history --format go", &["go"]);
        stage.write(".weigh/history/x.json", "{\"format\": 1,\n\"version\": 3}");
        stage.run("history").says(&["x.json", "can be added again"]);
        stage.write(".weigh/history/x.json", "{\"format\": 99}");
        stage.run("history").says(&["x.json", "99"]);
    }
}
