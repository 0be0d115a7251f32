//! Runs of several machines, pooled.

use crate::build::*;
use weigh_model::Comparison;
use weigh_stats::{
    Flag, GateOutcome, Options, PoolRun, Pooled, PooledCell, RunEstimates, Scope, Verdict, gate_pooled,
    join_shares, pool, work_costs,
};

/// Trials of BCG vaccine against tuberculosis. With the vaccine: tuberculous, others; without it:
/// tuberculous, others (Colditz et al., JAMA 271, 1994, table; the data set `dat.bcg` of R's
/// package metafor).
const BCG: [[f64; 4]; 13] = [
    [4.0, 119.0, 11.0, 128.0],
    [6.0, 300.0, 29.0, 274.0],
    [3.0, 228.0, 11.0, 209.0],
    [62.0, 13536.0, 248.0, 12619.0],
    [33.0, 5036.0, 47.0, 5761.0],
    [180.0, 1361.0, 372.0, 1079.0],
    [8.0, 2537.0, 10.0, 619.0],
    [505.0, 87886.0, 499.0, 87892.0],
    [29.0, 7470.0, 45.0, 7232.0],
    [17.0, 1699.0, 65.0, 1600.0],
    [186.0, 50448.0, 141.0, 27197.0],
    [5.0, 2493.0, 3.0, 2338.0],
    [27.0, 16886.0, 29.0, 17825.0],
];

/// A run of 30 blocks whose log ratios have exactly this mean and this standard error.
fn run(mean: f64, standard_error: f64) -> Vec<Comparison> {
    blocks(30, mean, standard_error)
}

fn blocks(k: usize, mean: f64, standard_error: f64) -> Vec<Comparison> {
    vec![with_log_ratios(&spread(k, mean, standard_error * (k as f64).sqrt()))]
}

fn of(machine: &str, run: &[Comparison]) -> PoolRun {
    in_group(machine, "", run, &Options::new("native"))
}

fn in_group(machine: &str, group: &str, run: &[Comparison], options: &Options) -> PoolRun {
    PoolRun { machine: machine.into(), group: group.into(), estimates: RunEstimates::of(run, options) }
}

/// Machines with one run each.
fn machines(effects: &[(f64, f64)]) -> Pooled {
    let run = |(at, (mean, error)): (usize, &(f64, f64))| of(&format!("m{at}"), &run(*mean, *error));
    pool(&effects.iter().enumerate().map(run).collect::<Vec<_>>())
}

fn cell(pooled: &Pooled) -> &PooledCell {
    assert_eq!(pooled.cells.len(), 1);
    &pooled.cells[0]
}

/// metafor publishes for these trials: Q = 152.2330 and tau^2 = .3181 by the empirical Bayes
/// estimator, which is that of Paule and Mandel (Viechtbauer, J. Stat. Softw. 36, 2010), and
/// [.1197, 1.1115] by the Q profile. The mean and its interval are those of Student for the 13
/// values. The interval of another machine was computed with scipy, from 4,000 quantiles of the
/// chi-squared distribution with a tau^2 for each.
#[test]
fn published_trials_give_the_published_numbers() {
    let trial = |[a, b, c, d]: &[f64; 4]| {
        let mean = (a / (a + b)).ln() - (c / (c + d)).ln();
        (mean, (1.0 / a - 1.0 / (a + b) + 1.0 / c - 1.0 / (c + d)).sqrt())
    };
    let pooled = machines(&BCG.iter().map(trial).collect::<Vec<_>>());
    let cell = cell(&pooled);
    let found = cell.spread.expect("there are 13 machines");
    assert!((found.q - 152.2330).abs() < 1e-4, "{found:?}");
    assert!((found.tau.estimate.powi(2) - 0.3181).abs() < 5e-5, "{found:?}");
    assert!((found.tau.low.powi(2) - 0.1197).abs() < 5e-5, "{found:?}");
    assert!((found.tau.high.powi(2) - 1.1115).abs() < 5e-5, "{found:?}");
    let overhead = cell.overhead.expect("there are 13 machines");
    close(overhead.estimate.ln_1p(), BCG_MEAN);
    close(overhead.low.ln_1p(), BCG_INTERVAL[0]);
    close(overhead.high.ln_1p(), BCG_INTERVAL[1]);
    let prediction = cell.prediction.expect("there are 13 machines");
    let half = (prediction.high.ln_1p() - prediction.low.ln_1p()) / 2.0;
    assert!((half / BCG_PREDICTION_HALF - 1.0).abs() < 1e-4, "{half}");
    close(prediction.estimate.ln_1p(), BCG_MEAN);
    close(found.i_squared, 1.0 - 12.0 / found.q);
    assert!((cell.machines.iter().map(|machine| machine.weight).sum::<f64>() - 1.0).abs() < 1e-12);
    assert_eq!(cell.degrees_of_freedom, Some(12.0));
}

const BCG_MEAN: f64 = -0.7406503812;
const BCG_INTERVAL: [f64; 2] = [-1.1599125622, -0.3213882003];
const BCG_PREDICTION_HALF: f64 = 1.3548845;

/// Machines that are more alike than their blocks explain have the smallest error that an average of
/// them can have, but still the t distribution.
#[test]
fn the_interval_is_never_narrower_than_without_differences() {
    let pooled = machines(&[(0.050, 0.010), (0.051, 0.010), (0.049, 0.005), (0.050, 0.020)]);
    let cell = cell(&pooled);
    let found = cell.spread.unwrap();
    assert_eq!((found.tau.estimate, found.i_squared), (0.0, 0.0));
    let total: f64 = [0.010_f64, 0.010, 0.005, 0.020].iter().map(|e| e.powi(-2)).sum();
    let overhead = cell.overhead.unwrap();
    // t(.975, 3) = 3.182446.
    close((overhead.high.ln_1p() - overhead.low.ln_1p()) / 2.0, 3.182446 / total.sqrt());
    // Another machine is known no better than the average.
    assert_eq!(cell.prediction.map(|of| of.log_half_width()), Some(overhead.log_half_width()));
}

/// A quiet machine counts as much as the others. Weights would give it 96 % and an interval of its
/// own error. By hand: the mean of .05, .058, .046, .062, .041 is .0514, s / sqrt(5) = .00384187,
/// and t(.975, 4) = 2.776445. The interval of another machine was computed as for the published
/// trials.
#[test]
fn a_quiet_machine_counts_as_much_as_others() {
    let pooled = machines(&[(0.050, 0.001), (0.058, 0.010), (0.046, 0.010), (0.062, 0.010), (0.041, 0.010)]);
    let cell = cell(&pooled);
    assert_eq!(cell.spread.map(|spread| spread.tau.estimate), Some(0.0), "the quiet one hides what differs");
    let overhead = cell.overhead.unwrap();
    close(overhead.estimate.ln_1p(), 0.0514);
    close(overhead.log_half_width(), 0.0106667538);
    let half = cell.prediction.unwrap().log_half_width();
    assert!((half / 0.0199131 - 1.0).abs() < 1e-3, "{half}");
    assert!(cell.machines.iter().all(|machine| machine.weight == 0.2), "{cell:?}");
}

/// If errors are negligible beside the differences, the interval is that of Student for the means.
#[test]
fn exact_machines_give_a_t_interval_of_their_means() {
    let cell = cell(&machines(&[(0.04, 1e-7), (0.05, 2e-7), (0.06, 1e-7)])).clone();
    let overhead = cell.overhead.unwrap();
    close(overhead.estimate.ln_1p(), 0.05);
    // s = .01, t(.975, 2) = 4.302653.
    close((overhead.high.ln_1p() - overhead.low.ln_1p()) / 2.0, 4.302653 * 0.01 / 3.0_f64.sqrt());
    let another = cell.prediction.unwrap().log_half_width();
    assert!((another / (4.302653 * 0.01 * (4.0_f64 / 3.0).sqrt()) - 1.0).abs() < 1e-3, "{another}");
    assert!((cell.spread.unwrap().tau.estimate - 0.01).abs() < 1e-6);
}

#[test]
fn without_any_spread_the_limit_is_taken() {
    let constant = |mean: f64| vec![with_log_ratios(&[mean; 30])];
    let runs: Vec<PoolRun> = ["a", "b", "c"].map(|name| of(name, &constant(0.05))).into();
    let pooled = pool(&runs);
    let overhead = cell(&pooled).overhead.unwrap();
    close(overhead.estimate, 0.05_f64.exp_m1());
    assert!((overhead.high - overhead.low).abs() < 1e-9);
    assert_eq!(cell(&pooled).verdict, Some(Verdict::Slower));
    assert_eq!(cell(&pooled).flags[&Flag::NoSpread], 3);
}

/// One machine says nothing about others; two leave no degrees of freedom for another.
#[test]
fn one_machine_gives_no_verdict_and_two_give_no_prediction() {
    let one = machines(&[(0.2, 0.001)]);
    let alone = cell(&one);
    assert_eq!((alone.verdict, alone.prediction, alone.spread), (None, None, None));
    assert_eq!(alone.degrees_of_freedom, Some(29.0), "the interval is that of its blocks");
    assert_eq!(one.comparisons, 1);
    let [(_, outcome)] = gate_pooled(&one, 0.03, false)[..] else { panic!("one comparison") };
    assert_eq!(outcome, GateOutcome::NotJudged);
    let two = machines(&[(0.2, 0.001), (0.201, 0.001)]);
    let pair = cell(&two);
    assert_eq!((pair.verdict, pair.prediction), (Some(Verdict::Slower), None));
    assert!(cell(&machines(&[(0.2, 0.001), (0.201, 0.001), (0.2, 0.001)])).prediction.is_some());
    assert_eq!(pool(&[]), Pooled::default());
}

/// Several runs of a machine are one observation, whatever their number.
#[test]
fn runs_of_one_machine_are_combined_first() {
    let mut runs = vec![of("a", &run(0.05, 0.001)), of("b", &run(0.07, 0.001))];
    runs.extend([0.088, 0.090, 0.092].map(|mean| of("c", &run(mean, 0.001))));
    let pooled = pool(&runs);
    let cell = cell(&pooled);
    assert_eq!(cell.machines.iter().map(|machine| machine.runs).collect::<Vec<_>>(), [1, 1, 3]);
    close(cell.machines[2].overhead.estimate, 0.09_f64.exp_m1());
    assert_eq!(cell.degrees_of_freedom, Some(2.0));
    assert!((cell.overhead.unwrap().estimate.ln_1p() - 0.07).abs() < 0.0005, "{cell:?}");
    let copy = RunEstimates::of(&run(0.05, 0.001), &Options::new("native"));
    assert!(runs[0].estimates.is_copy_of(&copy) && !runs[1].estimates.is_copy_of(&copy));
}

#[test]
fn equivalence_needs_thirty_blocks_on_every_machine_and_no_quick_run() {
    let quick = Options { exploratory: true, ..Options::new("native") };
    let verdict = |last: usize, options: &Options| {
        let run = |(at, k): (usize, &usize)| {
            let run = blocks(*k, 0.0002 + 0.0001 * at as f64, 0.001);
            in_group(&format!("m{at}"), "", &run, options)
        };
        let runs: Vec<PoolRun> = [30, 40, 30, last].iter().enumerate().map(run).collect();
        cell(&pool(&runs)).verdict
    };
    assert_eq!(verdict(30, &Options::new("native")), Some(Verdict::Equivalent));
    assert_eq!(verdict(29, &Options::new("native")), Some(Verdict::Inconclusive));
    assert_eq!(verdict(30, &quick), Some(Verdict::Inconclusive));
}

/// (t(.975) + t(.975)) s / sqrt(K) within the margin of 2 %, with s = .02 between machines.
#[test]
fn an_open_verdict_gives_the_number_of_machines_that_would_decide() {
    let pooled = machines(&[(-0.02, 0.0001), (0.0, 0.0001), (0.02, 0.0001)]);
    let cell = cell(&pooled);
    assert_eq!(cell.verdict, Some(Verdict::Inconclusive));
    let machines = cell.machines_to_decide.unwrap();
    assert!((16..=22).contains(&machines), "{machines}");
}

/// Holm's method counts the comparisons of all groups.
#[test]
fn groups_are_pooled_by_themselves_and_compared() {
    let options = Options::new("native");
    let runs: Vec<PoolRun> = [("a", "x", 0.05), ("b", "x", 0.051), ("c", "y", 0.08), ("d", "y", 0.081)]
        .map(|(machine, group, mean)| in_group(machine, group, &run(mean, 0.0005), &options))
        .into();
    let pooled = pool(&runs);
    assert_eq!((pooled.groups.len(), pooled.cells.len(), pooled.comparisons), (2, 2, 2));
    assert_eq!(pooled.groups[1].machines, ["c", "d"]);
    let [difference] = &pooled.differences[..] else { panic!("one difference") };
    assert_eq!((pooled.cells[difference.first].group, pooled.cells[difference.other].group), (0, 1));
    close(difference.difference.estimate, 0.03_f64.exp_m1());
    assert!(difference.difference.low > 0.0, "{difference:?}");
    // A single machine in a group is not enough for a difference between groups.
    let three = pool(&runs[..3]);
    assert_eq!((three.differences.len(), three.cells[1].verdict), (0, None));
}

/// A failure that may hide the slowest machine prevents the verdict; one within the worst case of
/// its machine does not.
#[test]
fn failures_count_at_their_worst() {
    let with_failures = |failed: u32| {
        let mut runs: Vec<Vec<Comparison>> =
            (0..6).map(|at| run(0.2 + 0.001 * f64::from(at), 0.002)).collect();
        runs[2][0].series[1].failed = failed;
        runs[2][0].series[1].tried = 30 + failed;
        let runs: Vec<PoolRun> =
            runs.iter().enumerate().map(|(at, run)| of(&format!("m{at}"), run)).collect();
        cell(&pool(&runs)).clone()
    };
    let one = with_failures(1);
    assert_eq!((one.verdict, one.failed, one.flags[&Flag::Failed]), (Some(Verdict::Slower), 1, 1));
    let none = with_failures(0);
    assert!(one.p_diff_holm > none.p_diff_holm, "the worst case costs certainty");
    assert_eq!(with_failures(10).verdict, None);
}

/// A machine without a value is named. If it cannot have one, the others keep the verdict.
#[test]
fn machines_without_a_value_are_named() {
    let absent = Options {
        flags: vec![weigh_stats::CellFlag {
            workload: None,
            metric: None,
            environment: "e".into(),
            flag: Flag::Absent,
            reason: Some("no such thing here".into()),
        }],
        ..Options::new("native")
    };
    let full: Vec<PoolRun> = ["a", "b", "c"].map(|name| of(name, &run(0.2, 0.001))).into();
    let with = |options: &Options, failed: u32| {
        let mut lacking = run(0.2, 0.001);
        lacking[0].series[1].observations.clear();
        lacking[0].series[1].failed = failed;
        let mut runs = full.clone();
        runs.push(in_group("d", "", &lacking, options));
        cell(&pool(&runs)).clone()
    };
    let cannot = with(&absent, 0);
    assert_eq!(cannot.lacking, [("d".to_string(), "no such thing here".to_string())]);
    assert_eq!((cannot.verdict, cannot.machines.len()), (Some(Verdict::Slower), 3));
    let failing = with(&Options::new("native"), 30);
    assert_eq!(failing.lacking, [("d".to_string(), "trials failed".to_string())]);
    assert_eq!(failing.verdict, None, "it may be the slowest");
}

/// Shares as (machine, blocks, mean, error).
fn shares(parts: &[(&str, usize, f64, f64)]) -> Pooled {
    let run = |(machine, k, mean, error): &(&str, usize, f64, f64)| of(machine, &blocks(*k, *mean, *error));
    join_shares(&parts.iter().map(run).collect::<Vec<_>>())
}

/// Computed by hand: the mean is (10 * .02 + 20 * .05 + 10 * .03) / 40, e^2 = (.25 * .01)^2 + (.5 *
/// .02)^2 + (.25 * .01)^2 = 1.125e-4, and df = e^4 / ((6.25e-6)^2 / 9 * 2 + (1e-4)^2 / 19) = 23.64.
#[test]
fn shares_are_strata() {
    let pooled = shares(&[("a", 10, 0.02, 0.01), ("b", 20, 0.05, 0.02), ("c", 10, 0.03, 0.01)]);
    assert_eq!(pooled.scope, Scope::TheseAlone);
    let cell = cell(&pooled);
    assert_eq!((cell.n, cell.machines.len(), cell.prediction), (40, 3, None));
    let overhead = cell.overhead.expect("every share has an estimate");
    close(overhead.estimate.ln_1p(), 0.0375);
    let df = cell.degrees_of_freedom.expect("as above");
    let expected = 1.125e-4f64.powi(2) / (2.0 * 6.25e-6f64.powi(2) / 9.0 + 1e-8 / 19.0);
    close(df, expected);
    // t(.975, 23.64) is 2.0656 by interpolation in tables: between 2.0687 at 23 and 2.0639 at 24.
    let half = overhead.log_half_width() / 1.125e-4f64.sqrt();
    assert!((half - 2.0656).abs() < 5e-4, "{half}");
    let weights: Vec<f64> = cell.machines.iter().map(|machine| machine.weight).collect();
    assert_eq!(weights, [0.25, 0.5, 0.25]);
}

/// A machine that measured two shares counts with the blocks of both, and as one machine.
#[test]
fn a_machine_may_have_several_shares() {
    let apart = shares(&[("a", 10, 0.02, 0.01), ("b", 10, 0.05, 0.02), ("c", 10, 0.03, 0.01)]);
    let together = shares(&[("a", 10, 0.02, 0.01), ("b", 10, 0.05, 0.02), ("a", 10, 0.03, 0.01)]);
    let [apart, together] = [cell(&apart), cell(&together)];
    assert_eq!((together.machines.len(), together.n, together.machines[0].n), (2, 30, 20));
    close(together.machines[0].weight, 2.0 / 3.0);
    let ends = |cell: &PooledCell| cell.overhead.map(|of| (of.estimate, of.low)).expect("an effect");
    close(ends(apart).0, ends(together).0);
    // The error of the first machine's mean is that of its blocks: sqrt((.5 * .01)^2 * 2).
    close(together.machines[0].overhead.estimate.ln_1p(), 0.025);
    assert!(together.verdict.is_some());
}

/// Differences between machines widen the interval of an average over machines like these, but not
/// over these alone. A single share has a verdict, too.
#[test]
fn shares_do_not_generalise_to_other_machines() {
    let parts = [("a", 30, 0.02, 0.001), ("b", 30, 0.06, 0.001)];
    let shared = shares(&parts);
    let kind = pool(&parts.map(|(machine, k, mean, error)| of(machine, &blocks(k, mean, error))));
    let width = |pooled: &Pooled| cell(pooled).overhead.expect("an effect").log_half_width();
    assert!(width(&shared) * 20.0 < width(&kind), "{} {}", width(&shared), width(&kind));
    assert_eq!(cell(&shared).verdict, Some(Verdict::Slower));
    assert!(cell(&shared).spread.expect("two machines").tau.low > 0.0);
    assert_eq!(cell(&shares(&parts[..1])).verdict, Some(Verdict::Slower));
    let open = shares(&[("a", 10, 0.01, 0.01), ("b", 10, 0.0, 0.01)]);
    assert_eq!(cell(&open).verdict, Some(Verdict::Inconclusive));
    assert!(cell(&open).blocks_to_decide.is_some_and(|blocks| blocks > 30), "{:?}", cell(&open));
    assert_eq!(cell(&open).machines_to_decide, None);
}

/// By hand: on kind x the baseline takes 1 s and 2 s at 0.36 an hour, .0001 a second, so that 1
/// buys 10,000 / sqrt(2) iterations; on kind y it takes half as long at twice the price: the same.
#[test]
fn the_cost_of_work_is_the_price_of_its_time() {
    let options = Options::new("native");
    let timed = |machine: &str, group: &str, factor: f64| {
        let mut run = blocks(30, 0.5f64.ln(), 0.001);
        for value in run[0].series.iter_mut().flat_map(|series| &mut series.observations) {
            value.value *= factor;
        }
        in_group(machine, group, &run, &options)
    };
    let base = median_of_baseline();
    let runs = [("a", "x", 1.0), ("b", "x", 2.0), ("c", "y", 0.5), ("d", "y", 1.0), ("e", "z", 1.0)];
    let runs = runs.map(|(machine, group, seconds)| timed(machine, group, seconds / base));
    let pooled = pool(&runs);
    let costs = work_costs(&pooled, &[0.36, 0.72, 0.36]);
    assert_eq!(costs.len(), 6, "three kinds in two environments");
    let find = |group: usize, environment: &str| {
        costs.iter().find(|cost| cost.group == group && cost.environment == environment).expect("a cost")
    };
    close(find(0, "native").work, 1e4 / 2f64.sqrt());
    let of_y = find(1, "native");
    close(of_y.work, 1e4 / 2f64.sqrt());
    let against = of_y.against_first.expect("two kinds of two machines");
    assert!(against.estimate.abs() < 1e-9 && against.low < -0.5 && against.high > 1.0, "{against:?}");
    // t(.975, 1) = 12.706, and the error of the mean of ln 1 and ln 2 is ln 2 / 2.
    let (low, high) = find(0, "native").interval.expect("two machines");
    assert!(((high / low).ln() / 2.0 / (12.7062 * 2f64.ln() / 2.0) - 1.0).abs() < 1e-4, "{low} {high}");
    assert_eq!((find(2, "native").interval, find(2, "native").against_first), (None, None));
    assert_eq!((find(0, "native").against_first, work_costs(&pooled, &[]).len()), (None, 0));
    // Half the time is half the cost in the other environment.
    let other = &pooled.cells[0].environment;
    assert!((find(0, other).work / find(0, "native").work - 2.0).abs() < 0.05);
}

fn median_of_baseline() -> f64 {
    let pooled = pool(&[of("m", &blocks(30, 0.5f64.ln(), 0.001))]);
    cell(&pooled).machines[0].medians.0.expect("a baseline")
}
