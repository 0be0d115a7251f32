//! Group-sequential runs through the command line: which runs have looks, and what these show.

use crate::support::{Stage, cell_of, shown};

/// Runs of fakes change nothing on the host: these tests run beside others.
mod fakes {
    use super::*;

    const ON: &str =
        "null:sd=0.01,seed=1;null:sd=0.01,seed=2,effect=0.3,label=slow;null:sd=0.01,seed=3,label=same";

    /// A run has looks unless it specifies its length or its gate.
    #[test]
    fn a_run_has_looks_unless_it_asks_for_another_design() {
        let stage = Stage::with_fakes();
        let blocks = |more: &str| {
            let text =
                stage.stdout(&format!("run --on null;null:label=b --baseline null --dry-run {more} -- true"));
            let line = text.lines().find(|line| line.starts_with("blocks")).unwrap_or(&text).to_string();
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert!(blocks("").contains("up to 60, looked at after 10 and every 5"), "{}", blocks(""));
        assert!(blocks("--budget 1h").contains("looked at after 10"), "{}", blocks("--budget 1h"));
        for other in ["--precision 2", "--gate 5", "--reuse"] {
            assert!(blocks(other).contains("30 to 60, looked at every 5"), "{other}: {}", blocks(other));
        }
        assert!(blocks("--blocks 12").ends_with("12"), "{}", blocks("--blocks 12"));
        let alone = stage.stdout("run --on null --baseline null --dry-run -- true");
        assert!(alone.contains("30 to 60"), "{alone}");
    }

    #[test]
    fn decided_cells_are_not_measured_further() {
        let stage = Stage::with_fakes();
        let words =
            |text: String| text.replace('\u{a0}', " ").split_whitespace().collect::<Vec<_>>().join(" ");
        let text = words(stage.stdout(&format!(
            "run --on {ON} --baseline null:sd=0.01,seed=1 --no-void --details --seed 1 --out r -- work"
        )));
        assert!(text.contains("Comparisons ended by blocks: 1 at 10, 1 at 30."), "{text}");
        assert!(text.contains("That saved 61 % of the trials of 60 full blocks."), "{text}");
        let report = shown(&stage, "r");
        assert_eq!(report["design"]["kind"], "sequential");
        let slow = cell_of(&report, "null:effect=0.3,label=slow,sd=0.01,seed=2", "time");
        assert_eq!((&slow["n"], &slow["look"], &slow["verdict"]), (&10.into(), &10.into(), &"SLOWER".into()));
        let same = cell_of(&report, "null:label=same,sd=0.01,seed=3", "time");
        assert_eq!((&same["n"], &same["verdict"]), (&30.into(), &"EQUIVALENT".into()));
        // Nothing is left to do.
        stage.stdout("resume r");
        let again = words(stage.stdout("show r --details"));
        assert!(again.contains("1 at 10, 1 at 30"), "{again}");
        assert_eq!(shown(&stage, "r")["cells"], report["cells"]);
    }
}
