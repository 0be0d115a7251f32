//! What `stress-ng --metrics-brief` prints (0.13 to 0.15), of one stressor or of several one after
//! the other.
//!
//! Its operations are bogus by name: a turn of a stressor's loop, whatever that does. They compare
//! environments, not stressors, and not versions of stress-ng.

use super::{Parser, no_histogram};

pub(super) const PARSER: Parser = Parser {
    name: "stress-ng",
    fields: &[("cpu", "op/s"), ("switch", "op/s"), ("fork", "op/s"), ("vm", "op/s"), ("operations", "1")],
    checks: &["verified"],
    value,
    passes,
    histograms: &[],
    histogram: no_histogram,
    refused: super::nothing_refused,
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
        // Operations, seconds in reality, of the user, of the system, operations per second in
        // reality and of CPU time. Lines of other measures of a stressor begin alike and have words
        // in them.
        let mut words = row.split_whitespace();
        let name = words.next()?;
        let numbers: Vec<f64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
        match numbers[..] {
            [operations, _, _, _, rate, _] => Some(Stressor { name, operations, rate }),
            _ => None,
        }
    })
}

fn value(text: &str, field: &str) -> Option<f64> {
    let mut stressors = stressors(text);
    match field {
        // All of them; what one is differs, their number does not.
        "operations" => {
            let all: f64 = stressors.map(|stressor| stressor.operations).sum();
            (all > 0.0).then_some(all)
        }
        name => stressors.find(|stressor| stressor.name == name).map(|stressor| stressor.rate),
    }
}

/// Whether every run completed, every stressor did something, and none found a wrong result.
fn passes(text: &str, field: &str) -> Option<bool> {
    let started = text.lines().filter(|line| line.contains("dispatching hogs:")).count();
    if field != "verified" || started == 0 {
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
        let rates = ["cpu", "switch", "fork", "vm"].map(|name| value(OUTPUT, name));
        assert_eq!(rates, [393.63, 95_666.93, 671.59, 13_934.53].map(Some));
        assert_eq!(value(OUTPUT, "operations"), Some(202.0 + 50_000.0 + 500.0 + 20_000.0));
        assert_eq!(value(OUTPUT, "pipe"), None);
        assert_eq!(passes(OUTPUT, "verified"), Some(true));
        assert_eq!(passes(OUTPUT, "other"), None);
    }

    #[test]
    fn wrong_results_and_idle_stressors_fail() {
        let wrong =
            format!("{OUTPUT}stress-ng: fail:  [7] vm: detected 3 bit errors while stressing memory\n");
        assert_eq!(passes(&wrong, "verified"), Some(false));
        // As it prints for a stressor that could not get its memory, and calls that a success.
        let idle = OUTPUT.replace(
            "vm                20000      1.44      0.26",
            "vm                    0      1.44      0.00",
        );
        assert_eq!(passes(&idle, "verified"), Some(false));
    }

    #[test]
    fn what_was_cut_off_is_not_a_pass() {
        let cut = OUTPUT.rsplit_once("stress-ng: info").unwrap().0;
        assert_eq!(passes(cut, "verified"), Some(false));
        let earlier = OUTPUT.split("metrc").next().unwrap();
        assert_eq!((passes(earlier, "verified"), value(earlier, "cpu")), (Some(false), None));
        assert_eq!((passes("", "verified"), value("", "operations")), (None, None));
    }
}
