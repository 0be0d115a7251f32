//! Histories: how often a change is found that does not exist, and how soon one that does (method
//! specification, "Histories").

use super::*;
use weigh_stats::{Shift, rise, shifts};

/// Standard deviation of the effects from run to run.
const SD: f64 = 0.01;

/// Runs without a change, of a different kind in each family.
fn steady(family: usize, n: usize, random: &mut Random) -> Vec<f64> {
    match family {
        0 => random.normals(n, 0.0, SD),
        // A few runs are far off.
        1 => (0..n).map(|_| SD * random.exponential() * random.exponential()).collect(),
        // Rounded to a whole per cent.
        _ => random.normals(n, 0.0, SD).into_iter().map(|log| (log * 100.0).round() / 100.0).collect(),
    }
}

/// One look at 30 runs, in a history of one series and in one of ten.
#[test]
fn a_history_without_a_change_shows_one_in_a_hundred_looks() {
    for family in 0..3 {
        let [one, any] = rates_of([1_000, 20_000], 1_100 + family as u64, |random| {
            let one = !shifts(&steady(family, 30, random), 1).is_empty();
            let any = (0..10).any(|_| !shifts(&steady(family, 30, random), 10).is_empty());
            [one, any]
        });
        tell(&format!("family {family}: one series {one:.4}, any of ten {any:.4}"));
        at_most("one series", one, 0.01);
        at_most("any of ten", any, 0.01);
    }
}

/// Looks after every run, from 5 runs to 100.
#[test]
fn looking_after_every_run_is_looking_often() {
    let [ever] = rates_of([300, 20_000], 1_110, |random| {
        let logs = steady(0, 100, random);
        [(5..=100).any(|n| !shifts(&logs[..n], 1).is_empty())]
    });
    tell(&format!("a change is shown at some look in {ever:.4}"));
    at_most("at some look", ever, 0.17);
}

/// A step and no other change: how often a second change is shown, more than two runs away, and how
/// often that is the newest one.
#[test]
fn a_step_brings_hardly_any_further_change() {
    for (seed, (runs, step)) in (1_130..).zip([(30, 2.0), (60, 2.0), (60, 3.0)]) {
        let at = runs * 2 / 3;
        let [found, further, newest] = rates_of([300, 20_000], seed, |random| {
            let mut logs = random.normals(runs, 0.0, SD);
            logs[at..].iter_mut().for_each(|log| *log += step * SD);
            let shifts = shifts(&logs, 1);
            let is_it = |shift: &Shift| shift.at.abs_diff(at) <= 2;
            let found = shifts.iter().any(is_it);
            let is_false = |shift: &Shift| found && !is_it(shift);
            [found, shifts.iter().any(is_false), shifts.last().is_some_and(is_false)]
        });
        tell(&format!("{runs} runs, {step} sd: found {found:.4}"));
        at_most("and a further change", further, 0.07);
        at_most("which is the newest", newest, 0.05);
    }
}

/// Four parts of fifteen runs, with levels in standard deviations of the runs: how often the newest
/// one is shown to be worse than some earlier one by more than `gate` of them.
#[test]
fn a_rise_is_found_over_many_changes_and_not_where_there_is_none() {
    let cases = [
        ([0.0, 4.0, 8.0, 12.0], 5.0, [0.98, 1.0]),
        ([0.0, 10.0, 7.0, 7.0], 5.0, [0.98, 1.0]),
        ([0.0, 4.0, 0.0, 0.0], 0.0, [0.0, 0.035]),
        ([0.0, 2.0, 4.0, 4.0], 4.0, [0.0, 0.035]),
    ];
    for (seed, (levels, gate, [least, most])) in (1_140..).zip(cases) {
        let [worse] = rates_of([300, 20_000], seed, |random| {
            let logs: Vec<f64> = levels.iter().flat_map(|level| random.normals(15, level * SD, SD)).collect();
            let rise = rise(&logs, &shifts(&logs, 1));
            [rise.is_some_and(|rise| rise.change.low.ln_1p() > gate * SD)]
        });
        at_least(&format!("{levels:?} worse by {gate}"), worse, least);
        at_most(&format!("{levels:?} worse by {gate}"), worse, most);
    }
}

/// A step after twenty runs, in a history of six series: found 5 and 10 runs later.
#[test]
fn a_step_is_found_a_few_runs_later() {
    for (seed, (step, fewest)) in
        (1_120..).zip([(1.0, [0.0, 0.025]), (2.0, [0.11, 0.5]), (3.0, [0.58, 0.96])])
    {
        let [soon, later] = rates_of([300, 20_000], seed, |random| {
            let mut logs = random.normals(30, 0.0, SD);
            logs[20..].iter_mut().for_each(|log| *log += step * SD);
            [25, 30].map(|n| shifts(&logs[..n], 6).iter().any(|shift| shift.at.abs_diff(20) <= 2))
        });
        tell(&format!("{step} sd: found after 5 runs {soon:.4}, after 10 {later:.4}"));
        at_least("after 5 runs", soon, fewest[0]);
        at_least("after 10 runs", later, fewest[1]);
    }
}
