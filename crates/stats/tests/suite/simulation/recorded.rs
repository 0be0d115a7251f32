//! Trials that three rules need for the same twelve cells: `recorded.csv` has the log ratios of 60
//! blocks of four workloads in three environments, as a run with `--blocks 60` measured them on a
//! virtual machine of two CPUs (docs/method/simulations.md has the command).

use super::sequential::{comparisons, ended_by, trials};
use super::*;
use std::sync::atomic::{AtomicU32, Ordering};
use weigh_model::Looks;
use weigh_stats::{Options, analyse, precise_enough};

const BLOCKS: usize = 60;
const TARGET: f64 = 0.01;

/// Per workload and environment, the log ratios of all blocks.
type Recorded = Vec<Vec<Vec<f64>>>;

fn recorded() -> Recorded {
    let mut workloads: Vec<(&str, Vec<Vec<f64>>)> = Vec::new();
    for line in include_str!("recorded.csv").lines().skip(1) {
        let mut fields = line.split(',');
        let [workload, _] = [(); 2].map(|()| fields.next().expect("a name"));
        let logs: Vec<f64> = fields.map(|field| field.parse().expect("a log ratio")).collect();
        assert_eq!(logs.len(), BLOCKS, "{workload}");
        match workloads.last_mut() {
            Some((name, arms)) if *name == workload => arms.push(logs),
            _ => workloads.push((workload, vec![logs])),
        }
    }
    workloads.into_iter().map(|(_, arms)| arms).collect()
}

/// Blocks of the same workloads, drawn with replacement: the environments of a workload keep their
/// common blocks.
fn resampled(of: &Recorded, random: &mut Random) -> Recorded {
    let draw = |arms: &Vec<Vec<f64>>| {
        let blocks: Vec<usize> = (0..BLOCKS).map(|_| (random.uniform() * BLOCKS as f64) as usize).collect();
        arms.iter().map(|arm| blocks.iter().map(|block| arm[*block]).collect()).collect()
    };
    of.iter().map(draw).collect()
}

/// The blocks at which intervals of these workloads are narrow enough, looked at from block 30.
fn narrow_enough(workloads: &[Vec<Vec<f64>>]) -> u32 {
    let is_enough = |blocks: &u32| {
        let all: Vec<Vec<u32>> = workloads.iter().map(|arms| vec![*blocks; arms.len()]).collect();
        let analysis = analyse(&comparisons(workloads, &all), &Options::new("native"));
        precise_enough(&analysis.cells, TARGET)
    };
    (30..BLOCKS as u32).step_by(5).find(is_enough).unwrap_or(BLOCKS as u32)
}

/// What a rule made of the run: its trials, and whether each cell differs or is within the margin.
struct Outcome {
    trials: u32,
    verdicts: Vec<(bool, bool)>,
}

fn outcome(of: &Recorded, options: &Options, blocks: &[Vec<u32>]) -> Outcome {
    let analysis = analyse(&comparisons(of, blocks), options);
    let cells = analysis.cells.iter().filter(|cell| cell.environment != "native");
    let verdicts = cells.map(|cell| (is_different(cell), is_within_margin(cell)));
    Outcome { trials: trials(blocks), verdicts: verdicts.collect() }
}

/// What each rule makes of the same run: all blocks; one end for all workloads; an end for each
/// workload; looks at which environments drop out.
fn outcomes(of: &Recorded) -> [Outcome; 4] {
    let fixed = Options::new("native");
    let all = |blocks: &[u32]| -> Vec<Vec<u32>> {
        of.iter().zip(blocks).map(|(arms, blocks)| vec![*blocks; arms.len()]).collect()
    };
    let together = vec![narrow_enough(of); of.len()];
    let each: Vec<u32> = of.iter().map(|arms| narrow_enough(std::slice::from_ref(arms))).collect();
    let looks = Options { looks: Some(Looks::STANDARD), ..fixed.clone() };
    let (_, concluded, by_looks) = ended_by(looks, of, TARGET);
    [
        outcome(of, &fixed, &all(&vec![BLOCKS as u32; of.len()])),
        outcome(of, &fixed, &all(&together)),
        outcome(of, &fixed, &all(&each)),
        outcome(of, &concluded, &by_looks),
    ]
}

const RULES: [&str; 4] = ["60 blocks", "one end for all", "an end per workload", "looks"];

#[test]
fn looks_decide_recorded_cells_with_the_fewest_trials() {
    let recorded = recorded();
    let of_run = outcomes(&recorded);
    for (rule, outcome) in RULES.iter().zip(&of_run) {
        let same = outcome.verdicts.iter().zip(&of_run[0].verdicts).filter(|(a, b)| a == b).count();
        let decided = outcome.verdicts.iter().filter(|verdict| **verdict != (false, false)).count();
        tell(&format!(
            "the run, {rule}: {} trials decide {decided} of 12 cells, {same} verdicts are those of 60 blocks",
            outcome.trials
        ));
    }
    let [all, together, each, looks] = of_run.map(|outcome| outcome.trials);
    assert!(looks < each && each <= together && together <= all, "{looks}, {each}, {together}, {all}");

    // Each is a sum over all repetitions.
    let [trials, same]: [[AtomicU32; 4]; 2] = Default::default();
    let (repetitions, cells) = (AtomicU32::new(0), AtomicU32::new(0));
    let [_] = rates_of([200, 2_000], 990, |random| {
        let outcomes = outcomes(&resampled(&recorded, random));
        for (rule, outcome) in outcomes.iter().enumerate() {
            let alike = outcome.verdicts.iter().zip(&outcomes[0].verdicts).filter(|(a, b)| a == b);
            same[rule].fetch_add(alike.count() as u32, Ordering::Relaxed);
            trials[rule].fetch_add(outcome.trials, Ordering::Relaxed);
        }
        repetitions.fetch_add(1, Ordering::Relaxed);
        cells.fetch_add(outcomes[0].verdicts.len() as u32, Ordering::Relaxed);
        [true]
    });
    let mean = |sum: &AtomicU32, of: &AtomicU32| {
        f64::from(sum.load(Ordering::Relaxed)) / f64::from(of.load(Ordering::Relaxed))
    };
    let needed = trials.each_ref().map(|sum| mean(sum, &repetitions));
    for ((rule, needed), same) in RULES.iter().zip(needed).zip(&same) {
        let agree = mean(same, &cells);
        tell(&format!("resampled, {rule}: {needed:.0} trials, {agree:.3} of the verdicts as with 60 blocks"));
    }
    at_most("trials by looks, of those with an end per workload", needed[3] / needed[2], 0.92);
    at_least("verdicts of looks that are those of 60 blocks", mean(&same[3], &cells), 0.85);
}
