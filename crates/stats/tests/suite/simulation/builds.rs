//! Gates of two builds: error, power and trials, compared with the rules of other tools on the same
//! draws (method specification, "Gates of two builds").

use super::sequential::{ended_by, trials};
use super::*;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use weigh_model::{GateLimits, Looks};
use weigh_stats::{GateOutcome, Options, analyse, gate, gate_of_builds};

const LIMIT: f64 = 0.03;
/// Number of blocks of the fixed design, and of the last look.
const BLOCKS: usize = 30;

/// The result of a gate: the outcomes of its cells, and its number of trials.
fn gated(cells: &[Vec<f64>]) -> (Vec<GateOutcome>, u32) {
    let runs: Vec<Vec<Vec<f64>>> = cells.iter().map(|logs| vec![logs.clone()]).collect();
    let limits = GateLimits::all(LIMIT);
    let options =
        Options { looks: Looks::new(10, 5, 30), gate: Some(limits.clone()), ..Options::new("native") };
    let (comparisons, options, blocks) = ended_by(options, &runs, 0.01);
    let analysis = analyse(&comparisons, &options);
    (gate_of_builds(&analysis, &limits).into_iter().map(|(_, outcome)| outcome).collect(), trials(&blocks))
}

fn has_regression(outcomes: &[GateOutcome]) -> bool {
    outcomes.contains(&GateOutcome::Above)
}

fn passes(outcomes: &[GateOutcome]) -> bool {
    outcomes.iter().all(|outcome| *outcome == GateOutcome::Below)
}

/// The share of the fixed design's trials that gates of ten cells without a change take, by the
/// spread of the log ratios.
#[test]
fn a_null_gate_of_ten_cells_takes_three_fifths_of_the_fixed_design_at_most() {
    const CELLS: usize = 10;
    for (seed, sd) in (1_000..).zip([0.01, 0.02, 0.03]) {
        let (used, runs) = (AtomicU32::new(0), AtomicU32::new(0));
        let [passed, fixed, alarms] = rates_of([200, 20_000], seed, |random| {
            let cells: [Vec<f64>; CELLS] = std::array::from_fn(|_| random.normals(BLOCKS, 0.0, sd));
            let (outcomes, trials) = gated(&cells);
            used.fetch_add(trials, Ordering::Relaxed);
            runs.fetch_add(1, Ordering::Relaxed);
            let fixed: Vec<GateOutcome> =
                gate(&family(&cells), LIMIT, true).into_iter().map(|(_, outcome)| outcome).collect();
            [passes(&outcomes), passes(&fixed), has_regression(&outcomes)]
        });
        let all = f64::from(runs.into_inner()) * (2 * CELLS * BLOCKS) as f64;
        let share = f64::from(used.into_inner()) / all;
        tell(&format!("spread {sd}: {share:.3} of the trials, passes {passed:.4}, fixed {fixed:.4}"));
        at_most("machine time", share, 0.60);
        at_most("false alarms", alarms, 0.001);
        at_least("passes", passed, fixed.share - 0.02);
    }
}

/// The error on both sides: a cell exactly at its limit among nine without a change.
#[test]
fn a_change_at_the_limit_passes_and_fails_as_rarely_as_the_level_says() {
    for (seed, sd) in (1_010..).zip([0.01, 0.03]) {
        let [passed, fixed, alarmed] = rates_of([1_000, 20_000], seed, |random| {
            let mut cells: [Vec<f64>; 10] = std::array::from_fn(|_| random.normals(BLOCKS, 0.0, sd));
            cells[4] = random.normals(BLOCKS, LIMIT.ln_1p(), sd);
            let (outcomes, _) = gated(&cells);
            let fixed: Vec<GateOutcome> =
                gate(&family(&cells), LIMIT, true).into_iter().map(|(_, outcome)| outcome).collect();
            [passes(&outcomes), passes(&fixed), has_regression(&outcomes)]
        });
        tell(&format!("spread {sd}: passes {passed:.4}, fixed {fixed:.4}, alarms {alarmed:.4}"));
        at_most("wrong passes", passed, 0.025);
        at_most("false alarms", alarmed, 0.003);
    }
}

/// Few blocks of a family with a rare slow mode look steady. This counts how often a gate passes a
/// mode of 15 % of blocks that are slower by a fifth, whose average lies at the limit.
#[test]
fn a_rare_slow_mode_deceives_a_gate_in_few_runs() {
    const SHARE: f64 = 0.15;
    let slow = 1.2_f64.ln();
    let at_limit = LIMIT.ln_1p() - SHARE * slow;
    let [passed, fixed] = rates_of([1_000, 20_000], 1_020, |random| {
        let mut one = || at_limit + if random.happens(SHARE) { slow } else { 0.0 } + 0.01 * random.normal();
        let cells = [(0..BLOCKS).map(|_| one()).collect::<Vec<f64>>()];
        let fixed: Vec<GateOutcome> =
            gate(&family(&cells), LIMIT, true).into_iter().map(|(_, outcome)| outcome).collect();
        [passes(&gated(&cells).0), passes(&fixed)]
    });
    tell(&format!("a mode at the limit passes {passed:.4}, fixed 30 blocks {fixed:.4}"));
    at_most("a mode at the limit passes", passed, 0.18);
}

/// Samples of the two builds: `launches` of each, with `VALUES` values in each, whose logarithms
/// spread by 1 % within a launch and by `between` from launch to launch.
struct Draws {
    old: Vec<Vec<f64>>,
    new: Vec<Vec<f64>>,
}

const VALUES: usize = 10;
const WITHIN: f64 = 0.01;

impl Draws {
    fn new(random: &mut Random, effect: f64, between: f64) -> Self {
        let mut side = |mean: f64| -> Vec<Vec<f64>> {
            let mut launch = || {
                let mean = mean + between * random.normal();
                random.normals(VALUES, mean, WITHIN)
            };
            (0..BLOCKS).map(|_| launch()).collect()
        };
        Self { old: side(0.0), new: side(effect.ln_1p()) }
    }

    /// The log ratio of every block, from the medians of its values.
    fn blocks(&self) -> Vec<f64> {
        let median = |values: &[f64]| {
            let mut sorted = values.to_vec();
            sorted.sort_by(f64::total_cmp);
            f64::midpoint(sorted[VALUES / 2 - 1], sorted[VALUES / 2])
        };
        self.old.iter().zip(&self.new).map(|(old, new)| median(new) - median(old)).collect()
    }

    /// All values of the first launches, pooled.
    fn pooled(&self, launches: usize) -> [Vec<f64>; 2] {
        [&self.old, &self.new].map(|side| side[..launches].iter().flatten().map(|log| log.exp()).collect())
    }
}

/// Two-sided p of a standard normal statistic.
fn two_sided(z: f64) -> f64 {
    statrs::function::erf::erfc(z.abs() / std::f64::consts::SQRT_2)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Firecracker's rule (tools/ab_test.py): a permutation test of the difference of the means of
/// pooled samples, p < .01, and a difference of more than `threshold` of the old mean. The
/// permutation distribution is close to a normal one with its variance, which is used instead.
fn firecracker([old, new]: &[Vec<f64>; 2], threshold: f64) -> bool {
    let all: Vec<f64> = old.iter().chain(new).copied().collect();
    let centre = mean(&all);
    let variance = all.iter().map(|x| (x - centre).powi(2)).sum::<f64>() / (all.len() - 1) as f64;
    let difference = mean(new) - mean(old);
    let sd = (variance * (1.0 / old.len() as f64 + 1.0 / new.len() as f64)).sqrt();
    two_sided(difference / sd) < 0.01 && difference > threshold * mean(old)
}

/// benchstat's rule: a U test of pooled samples (Mann and Whitney 1947), p < .05, and a larger
/// median. A normal distribution with the correction for continuity approximates that of U, as in
/// benchstat with large samples.
fn benchstat([old, new]: &[Vec<f64>; 2]) -> bool {
    let mut all: Vec<(f64, bool)> =
        old.iter().map(|x| (*x, false)).chain(new.iter().map(|x| (*x, true))).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (m, n) = (old.len() as f64, new.len() as f64);
    let ranks: f64 =
        (1..).zip(&all).filter(|(_, (_, is_new))| *is_new).map(|(rank, _)| f64::from(rank)).sum();
    let u = ranks - n * (n + 1.0) / 2.0;
    let sd = (m * n * (m + n + 1.0) / 12.0).sqrt();
    let distance = u - m * n / 2.0;
    distance > 0.0 && two_sided((distance.abs() - 0.5).max(0.0) / sd) < 0.05
}

/// The shares in the table of `docs/gate.md`, with a row for each noise and change.
fn table() -> Vec<[f64; 6]> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/gate.md");
    let page = std::fs::read_to_string(page).expect("the page about gates");
    let (_, section) = page.split_once("\n## Beside other rules\n").expect("its section");
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    let share = |cell: &str| {
        let percent = cell.trim().strip_suffix(" %").expect("a percentage");
        percent.parse::<f64>().expect("a number") / 100.0
    };
    let row = |line: &str| -> [f64; 6] {
        let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
        std::array::from_fn(|at| share(cells[at + 2]))
    };
    rows.map(row).collect()
}

/// Error and power by the effect, and by the spread between launches of one build. Long runs print
/// the table of `docs/gate.md`, from 1,000 changes of each size; a default run makes the first 100
/// of them.
#[test]
fn error_and_power_beside_the_rules_of_others() {
    const RULES: [&str; 6] = ["slower", "pass", "Firecracker", "one launch", "benchstat", "its one launch"];
    let mut rows = table().into_iter();
    for (noise, between) in (0..).zip([0.01, 0.03, 0.05]) {
        for (size, effect) in (0..).zip([0.0, 0.01, 0.03, 0.05, 0.10]) {
            let found = rates_of([100, 1_000], 1_100 + 10 * noise + size, |random| {
                let draws = Draws::new(random, effect, between);
                let (outcomes, _) = gated(&[draws.blocks()]);
                let (all, one) = (draws.pooled(BLOCKS), draws.pooled(1));
                [
                    has_regression(&outcomes),
                    passes(&outcomes),
                    firecracker(&all, 0.05),
                    firecracker(&one, 0.05),
                    benchstat(&all),
                    benchstat(&one),
                ]
            });
            let [red, green, ..] = found;
            let row = rows.next().expect("a row for each noise and change");
            for (rule, (found, told)) in RULES.iter().zip(found.into_iter().zip(row)) {
                let what = format!("{rule} in the table, noise {between}, change {effect}");
                if is_long() {
                    // The last digits of logarithms differ from machine to machine.
                    near(&what, found.share, told, 0.003);
                } else {
                    near(&what, found, told, 0.02);
                }
            }
            let cells: Vec<String> =
                found.iter().map(|rate| format!("{:.1} %", 100.0 * rate.share)).collect();
            tell(&format!("| {between} | {effect} | {} |", cells.join(" | ")));
            if effect <= LIMIT {
                at_most("false alarms of the gate", red, 0.025);
            }
            if effect >= LIMIT {
                at_most("wrong passes of the gate", green, 0.025);
            }
            if effect == 0.0 && between == 0.01 {
                at_least("passes without a change", green, 0.99);
            }
            if effect == 0.1 {
                at_least("finds a change of 10 %", red, 0.98);
            }
        }
    }
}
