//! The first experience of a new user: what a quick run selects, and what a terminal shows of it.

use crate::support::Stage;

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
