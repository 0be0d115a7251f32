//! The output of `stress-ng --metrics-brief` (0.13 to 0.15) for one stressor, or for several that
//! ran one after the other.
//!
//! Its operations are "bogus" by its own description: an iteration of a stressor's loop. They can
//! compare environments, but neither stressors nor versions of stress-ng.

use super::Parser;

pub(super) const PARSER: Parser = Parser {
    name: "stress-ng",
    fields: &[
        ("cpu", "op/s", |text| rate(text, "cpu")),
        ("switch", "op/s", |text| rate(text, "switch")),
        ("fork", "op/s", |text| rate(text, "fork")),
        ("vm", "op/s", |text| rate(text, "vm")),
        ("operations", "1", operations),
    ],
    checks: &[("verified", verified)],
    ..Parser::PLAIN
};

/// One line of the table.
struct Stressor<'a> {
    name: &'a str,
    operations: f64,
    /// Operations per second of real time.
    rate: f64,
}

fn stressors(text: &str) -> impl Iterator<Item = Stressor<'_>> {
    text.lines().filter_map(|line| {
        let (_, table) = line.split_once("metrc: [")?;
        let (_, row) = table.split_once("] ")?;
        // The columns are operations; seconds of real time, of user time, of system time;
        // operations per second of real time and of CPU time. Lines with other metrics of a
        // stressor begin alike and contain words.
        let mut words = row.split_whitespace();
        let name = words.next()?;
        let numbers: Vec<f64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
        match numbers[..] {
            [operations, _, _, _, rate, _] => Some(Stressor { name, operations, rate }),
            _ => None,
        }
    })
}

fn rate(text: &str, name: &str) -> Option<f64> {
    stressors(text).find(|stressor| stressor.name == name).map(|stressor| stressor.rate)
}

/// The operations of all stressors: their costs differ, but their number is always the same.
fn operations(text: &str) -> Option<f64> {
    let all: f64 = stressors(text).map(|stressor| stressor.operations).sum();
    (all > 0.0).then_some(all)
}

/// Whether every run was completed, every stressor did something, and none found a wrong result.
fn verified(text: &str) -> Option<bool> {
    let started = text.lines().filter(|line| line.contains("dispatching hogs:")).count();
    if started == 0 {
        return None;
    }
    let completed = text.lines().filter(|line| line.contains(" successful run completed in ")).count();
    let failed = ["stress-ng: fail:", "stress-ng: error:"].iter().any(|word| text.contains(word));
    let idle = stressors(text).any(|stressor| stressor.operations == 0.0);
    Some(completed == started && stressors(text).count() == started && !failed && !idle)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = include_str!("../../testdata/stress-ng.txt");

    #[test]
    fn every_stressor_has_its_rate() {
        let rates = ["cpu", "switch", "fork", "vm"].map(|name| PARSER.value(OUTPUT, name));
        assert_eq!(rates, [393.63, 95_666.93, 671.59, 13_934.53].map(Some));
        assert_eq!(PARSER.value(OUTPUT, "operations"), Some(202.0 + 50_000.0 + 500.0 + 20_000.0));
        assert_eq!(PARSER.value(OUTPUT, "pipe"), None);
        assert_eq!(PARSER.passes(OUTPUT, "verified"), Some(true));
        assert_eq!(PARSER.passes(OUTPUT, "other"), None);
    }

    #[test]
    fn wrong_results_and_idle_stressors_fail() {
        let wrong =
            format!("{OUTPUT}stress-ng: fail:  [7] vm: detected 3 bit errors while stressing memory\n");
        assert_eq!(PARSER.passes(&wrong, "verified"), Some(false));
        // This imitates a stressor that could not get its memory, which stress-ng calls a success.
        let idle = OUTPUT.replace(
            "vm                20000      1.44      0.26",
            "vm                    0      1.44      0.00",
        );
        assert_eq!(PARSER.passes(&idle, "verified"), Some(false));
    }

    #[test]
    fn truncated_output_is_not_a_pass() {
        let cut = OUTPUT.rsplit_once("stress-ng: info").unwrap().0;
        assert_eq!(PARSER.passes(cut, "verified"), Some(false));
        let earlier = OUTPUT.split("metrc").next().unwrap();
        assert_eq!((PARSER.passes(earlier, "verified"), PARSER.value(earlier, "cpu")), (Some(false), None));
        assert_eq!((PARSER.passes("", "verified"), PARSER.value("", "operations")), (None, None));
    }
}
