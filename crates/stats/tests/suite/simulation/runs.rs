//! Runs compared with runs (method specification, "Runs compared with runs, and
//! unpaired samples").

use super::*;
use weigh_stats::{Options, compare_runs};

/// Whether runs of the same thing are called different, with `runs` on each side, each of 30 blocks
/// whose log ratios spread by 2 %, while those of runs spread by `between`.
fn called_different(random: &mut Random, runs: usize, between: f64) -> bool {
    let options = Options::new("native");
    let mut run = || {
        let level = between * random.normal();
        vec![with_logs(&[random.normals(30, level, 0.02)])]
    };
    let all: Vec<Vec<Comparison>> = (0..2 * runs).map(|_| run()).collect();
    let all: Vec<_> = all.iter().map(|run| (&run[..], &options)).collect();
    let (before, after) = all.split_at(runs);
    let cell = compare_runs(before, after).cells.remove(1);
    is_different(&cell) || cell.verdict == Some(Verdict::RunsDiffer)
}

/// Two runs of the same thing often differ, so one run each gives no verdict but `RUNS_DIFFER`.
#[test]
fn two_runs_of_the_same_thing_often_differ() {
    let [little, more] =
        rates(2_000, 91, |random| [called_different(random, 1, 0.005), called_different(random, 1, 0.01)]);
    near("one run each, between runs .5 %", little, 0.24, 0.002);
    near("one run each, between runs 1 %", more, 0.492, 0.002);
}

#[test]
fn several_runs_of_the_same_thing_are_rarely_called_different() {
    for (runs, most) in [(2, 0.025), (3, 0.037), (5, 0.047)] {
        let [little, more] = rates(2_000, 92 + runs as u64, |random| {
            [called_different(random, runs, 0.005), called_different(random, runs, 0.01)]
        });
        at_most(&format!("{runs} runs each, between runs .5 %"), little, most);
        at_most(&format!("{runs} runs each, between runs 1 %"), more, most);
    }
}
