//! Group-sequential runs: looks at 10, 15, ... 60 blocks, at which arms that are decided drop out
//! (method specification, "Group-sequential runs").

use super::coverage::FAMILIES;
use super::*;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use weigh_model::{Comparison, Looks};
use weigh_stats::{
    ComparedRun, ConcludedCell, DueWorkload, Flag, Options, analyse, compare_runs, conclusions,
};

const LOOKS: Looks = Looks::STANDARD;
/// A spread of the log ratios at which runs to the standard precision end at every look.
const SD: f64 = 0.035;
const TARGET: f64 = 0.01;

/// Workloads of arms, each with the log ratios of all blocks that it could have.
pub(super) type Runs<'a> = &'a [Vec<Vec<f64>>];

fn name(of: usize) -> String {
    format!("w{of}")
}

/// The comparisons of a run in which the arms have these numbers of blocks.
pub(super) fn comparisons(runs: Runs<'_>, blocks: &[Vec<u32>]) -> Vec<Comparison> {
    let one = |(of, (arms, blocks)): (usize, (&Vec<Vec<f64>>, &Vec<u32>))| {
        let cut: Vec<Vec<f64>> =
            arms.iter().zip(blocks).map(|(arm, n)| arm[..*n as usize].to_vec()).collect();
        let longest = *blocks.iter().max().expect("an arm") as usize;
        let mut comparison = with_logs(&cut);
        comparison.series[0] = series("native", in_blocks(&vec![1.0; longest]));
        comparison.workload = name(of);
        comparison
    };
    runs.iter().zip(blocks).enumerate().map(one).collect()
}

/// A run to its end: the analysis, and the blocks of every arm.
fn run(runs: Runs<'_>, target: f64) -> (Analysis, Vec<Vec<u32>>) {
    let (comparisons, options, blocks) = ended(runs, target);
    (analyse(&comparisons, &options), blocks)
}

/// A run to its end: what was measured, the options with the conclusions, and the blocks of arms.
fn ended(runs: Runs<'_>, target: f64) -> (Vec<Comparison>, Options, Vec<Vec<u32>>) {
    ended_by(Options { looks: Some(LOOKS), ..Options::new("native") }, runs, target)
}

/// Like [`ended`], with the looks and the gate of these options.
pub(super) fn ended_by(
    mut options: Options,
    runs: Runs<'_>,
    target: f64,
) -> (Vec<Comparison>, Options, Vec<Vec<u32>>) {
    let looks = options.looks.expect("a design with looks");
    let mut blocks: Vec<Vec<u32>> = runs.iter().map(|arms| vec![0; arms.len()]).collect();
    for look in looks.before(looks.last() + 1) {
        let is_open = |options: &Options, of: usize, arm: usize| {
            let is = |one: &ConcludedCell| one.workload == name(of) && one.environment == format!("e{arm}");
            !options.concluded.iter().any(is)
        };
        for (of, arms) in blocks.iter_mut().enumerate() {
            let open = arms.iter_mut().enumerate().filter(|(arm, _)| is_open(&options, of, *arm));
            open.for_each(|(_, n)| *n = look);
        }
        let names: Vec<String> = (0..runs.len())
            .filter(|of| (0..runs[*of].len()).any(|arm| is_open(&options, *of, arm)))
            .map(name)
            .collect();
        let due: Vec<DueWorkload<'_>> =
            names.iter().map(|workload| DueWorkload { workload, blocks: look }).collect();
        if due.is_empty() {
            break;
        }
        let now = comparisons(runs, &blocks);
        let found = conclusions(&now, &options, target, &due, &|_, _| true);
        options.concluded.extend(found.into_iter().map(|((workload, environment), _)| ConcludedCell {
            workload: workload.into(),
            environment: environment.into(),
            from_block: look,
            blocks: look,
            baseline_failed: Default::default(),
        }));
    }
    (comparisons(runs, &blocks), options, blocks)
}

/// Number of trials of a run, those of the baseline included.
pub(super) fn trials(blocks: &[Vec<u32>]) -> u32 {
    blocks.iter().map(|arms| arms.iter().sum::<u32>() + arms.iter().max().expect("an arm")).sum()
}

fn finds(analysis: &Analysis) -> bool {
    analysis.cells.iter().any(is_different)
}

fn fixed(values: &[Vec<f64>], blocks: usize) -> bool {
    finds(&family(&values.iter().map(|arm| arm[..blocks].to_vec()).collect::<Vec<_>>()))
}

/// An autoregressive series whose values have a standard deviation of 1.
fn autoregressive(random: &mut Random, coefficient: f64) -> Vec<f64> {
    let mut value = random.normal();
    let innovation = (1.0 - coefficient * coefficient).sqrt();
    std::iter::repeat_with(|| {
        value = coefficient * value + innovation * random.normal();
        value
    })
    .take(60)
    .collect()
}

type Draw = Box<dyn Fn(&mut Random) -> Vec<f64> + Sync>;

/// Twelve equal environments: a run should find a difference in 5 %. Families that are not normal
/// deceive it more often, as they deceive the fixed designs.
#[test]
fn a_family_without_differences_is_left_alone() {
    let mut families: Vec<(&str, Draw)> = Vec::new();
    for family in FAMILIES {
        families.push((family.name, Box::new(move |r| (0..60).map(|_| (family.draw)(r)).collect())));
    }
    families.push(("autoregressive .2", Box::new(|random| autoregressive(random, 0.2))));
    for (seed, (name, draw)) in (900..).zip(&families) {
        let [wrong, at_ten, at_thirty, at_sixty] = rates_of([400, COSTLY], seed, |random| {
            let arms: Vec<Vec<f64>> =
                (0..12).map(|_| draw(random).iter().map(|value| SD * value).collect()).collect();
            let fixed = [10, 30, 60].map(|blocks| fixed(&arms, blocks));
            [finds(&run(&[arms], TARGET).0), fixed[0], fixed[1], fixed[2]]
        });
        tell(&format!("{name}: {wrong:.4}; fixed 10: {at_ten:.4}, 30: {at_thirty:.4}, 60: {at_sixty:.4}"));
        let bound = match *name {
            "normal" | "spikes" | "t3" => 0.05,
            // Not much worse than thirty fixed blocks.
            _ => at_thirty.share.max(0.05) + 0.03,
        };
        at_most(name, wrong, bound);
    }
}

/// The intervals of the looks that ended the cells hold together.
#[test]
fn intervals_cover_at_the_look_that_ended_the_cell() {
    // This is more than .95 if a run ends early, because later looks spend nothing.
    for (seed, (mean, least)) in (920..).zip([(0.0, 0.96), (1.02_f64.ln(), 0.973), (0.06, 0.995)]) {
        let [covered, alike] = rates(3_000, seed, |random| {
            let (analysis, _) = run(&[vec![random.normals(60, mean, SD)]], TARGET);
            let cell = &analysis.cells[1];
            [holds(cell.overhead, mean), is_within_margin(cell)]
        });
        at_least(&format!("effect {mean:.3}, covered"), covered, least);
        if mean == 1.02_f64.ln() {
            at_most("equivalent at the margin", alike, 0.027);
        }
    }
}

/// Four workloads whose log ratios have standard deviations of 1, 2, 3 and 4 %, each in four
/// environments: compares trials and verdicts with 60 blocks of everything.
#[test]
fn decided_arms_save_trials_at_the_same_verdicts() {
    const SPREADS: [f64; 4] = [0.01, 0.02, 0.03, 0.04];
    const EFFECTS: [[f64; 4]; 2] = [[0.0, 0.01, 0.05, 0.20], [0.0, 0.0, 0.03, 0.10]];
    // Trials saved of all and of those that the width alone takes, and the verdicts of 60 blocks.
    const FOUND: [[f64; 3]; 2] = [[0.49, 0.27, 0.92], [0.47, 0.24, 0.97]];
    for (seed, (effects, found)) in (940..).zip(EFFECTS.into_iter().zip(FOUND)) {
        let (used, same, cells) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
        let (by_width, count) = (AtomicU32::new(0), AtomicU32::new(0));
        let [_] = rates_of([200, COSTLY / 10], seed, |random| {
            let workloads: Vec<Vec<Vec<f64>>> = SPREADS
                .iter()
                .map(|sd| effects.iter().map(|effect| random.normals(60, f64::ln_1p(*effect), *sd)).collect())
                .collect();
            let (analysis, blocks) = run(&workloads, TARGET);
            used.fetch_add(trials(&blocks), Ordering::Relaxed);
            let all = vec![vec![60; 4]; 4];
            let fixed = analyse(&comparisons(&workloads, &all), &Options::new("native"));
            let found = |cell: &Cell| (is_different(cell), is_within_margin(cell));
            let alike = analysis.cells.iter().zip(&fixed.cells).filter(|(a, b)| found(a) == found(b));
            same.fetch_add(alike.count() as u32, Ordering::Relaxed);
            cells.fetch_add(20, Ordering::Relaxed);
            // The rule that stops on precision alone.
            for arms in &workloads {
                let precise = |blocks: usize| {
                    let cut: Vec<Vec<f64>> = arms.iter().map(|arm| arm[..blocks].to_vec()).collect();
                    weigh_stats::precise_enough(&family(&cut).cells, TARGET)
                };
                let ends = (30..60).step_by(5).find(|blocks| precise(*blocks)).unwrap_or(60);
                by_width.fetch_add(5 * ends as u32, Ordering::Relaxed);
            }
            count.fetch_add(1, Ordering::Relaxed);
            [true]
        });
        let runs = f64::from(count.into_inner());
        let [used, by_width] = [used, by_width].map(|n| f64::from(n.into_inner()) / runs);
        let same = f64::from(same.into_inner()) / f64::from(cells.into_inner());
        let (of_all, of_width) = (1.0 - used / 1200.0, 1.0 - used / by_width);
        let what = ["saved of all trials", "saved of those by width alone", "verdicts of 60 blocks"];
        for ((what, found), expected) in what.iter().zip([of_all, of_width, same]).zip(found) {
            near(&format!("effects {effects:?}: {what}"), found, expected, 0.03);
        }
    }
}

/// How often equal environments with symmetric log ratios are flagged MIXED at the look that ended
/// them: at a spread at which runs end at 30 blocks, and at one at which they end at every look.
#[test]
fn equal_environments_are_no_mixture_at_the_look_that_ended_them() {
    for (seed, family) in (960..).zip(FAMILIES.iter().filter(|family| family.median == 0.0)) {
        for sd in [0.01, SD] {
            let [mixed] = rates(2_000, seed, |random| {
                let logs: Vec<f64> = (0..60).map(|_| sd * (family.draw)(random)).collect();
                [has(&run(&[vec![logs]], TARGET).0.cells[1], Flag::Mixed)]
            });
            at_most(&format!("{}, spread {sd}, MIXED", family.name), mixed, 0.0045);
        }
    }
}

/// The bias of the estimate of a stopped run, and how often the usual t interval about it, which
/// makes no allowance for looks, holds the truth: `weigh compare` takes these estimates.
#[test]
fn estimates_of_stopped_runs_lie_farther_out_by_a_fifth_of_a_per_cent_at_most() {
    for (sd, effect) in [(0.01, 0.03), (0.02, 0.0), (0.02, 0.03), (SD, 0.0), (SD, 0.03), (SD, 0.05)] {
        let mean = f64::ln_1p(effect);
        // Sums of whole numbers do not depend on the order of the threads.
        let (sum, count) = (AtomicI64::new(0), AtomicU32::new(0));
        let [covered] = rates(3_000, 970, |random| {
            let (comparisons, options, _) = ended(&[vec![random.normals(60, mean, sd)]], TARGET);
            let cell = analyse(&comparisons, &Options { looks: None, ..options }).cells.remove(1);
            let error = cell.overhead.expect("there are blocks").estimate.ln_1p() - mean;
            sum.fetch_add((error * 1e9) as i64, Ordering::Relaxed);
            count.fetch_add(1, Ordering::Relaxed);
            [holds(cell.overhead, mean)]
        });
        let runs = count.into_inner();
        let bias = sum.into_inner() as f64 / 1e9 / f64::from(runs);
        tell(&format!("spread {sd}, effect {effect}: bias {bias:.5}, covered {covered:.4}"));
        at_most("bias", bias.abs(), 0.002 + chance(0.01, runs));
        at_least("covered", covered, 0.934);
    }
}

/// The interval of the change between runs that stopped at their looks.
#[test]
fn comparisons_of_stopped_runs_hold_the_truth() {
    for (between, before, after) in [(0.0, 0.03, 0.05), (0.005, 0.0, 0.0), (0.005, 0.03, 0.05)] {
        for (runs, least) in [(1, 0.937), (3, 0.96)] {
            if runs == 1 && between > 0.0 {
                continue; // about these two runs alone
            }
            let [covered] = rates_of([600, COSTLY], 980, |random| {
                let mut side = |effect: f64| -> Vec<_> {
                    let mut run = || {
                        let mean = f64::ln_1p(effect) + between * random.normal();
                        ended(&[vec![random.normals(60, mean, SD)]], TARGET)
                    };
                    (0..runs).map(|_| run()).collect()
                };
                let sides = [side(before), side(after)];
                let [before_runs, after_runs] = sides.each_ref().map(|runs| -> Vec<ComparedRun<'_>> {
                    runs.iter().map(|(comparisons, options, _)| (&comparisons[..], options)).collect()
                });
                let cell = compare_runs(&before_runs, &after_runs).cells.remove(1);
                [holds(cell.overhead, f64::ln_1p(after) - f64::ln_1p(before))]
            });
            at_least(
                &format!("{runs} runs, between {between}, {before} to {after}, covered"),
                covered,
                least,
            );
        }
    }
}
