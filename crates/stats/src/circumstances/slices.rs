//! Summaries of the slices of a workload (method specification, "Slices").

use super::{SliceSummary, SlicedCell};
use crate::collect::CountingUnit;
use crate::estimate::{Estimate, count};
use crate::rank;
use crate::slices::{back_to_back, common_rounds, costs, longer_rounds};
use crate::student;
use crate::warning::{Warning, WarningKind};
use std::collections::BTreeMap;
use std::ops::Range;
use weigh_model::{MetricSource, Outcome, Plan, Slices, Slicing, Trial, WorkloadPlan};

/// Fewest blocks for which a spread is reported.
const FEWEST: usize = 4;
/// A difference between lengths of slices matters beyond this share of the margin.
const BIAS_SHARE: f64 = 0.25;
/// The level of that test for all cells of a workload together.
const BIAS_LEVEL: f64 = 0.05;
/// A run tests for the difference after this many blocks, each time that their number has doubled,
/// and at its end: six looks in 60 blocks. Each look is one more chance of a false finding, which
/// costs time and makes no result wrong.
const FIRST_LOOK: u32 = 3;

/// The slices of a workload; `None` if nothing was decided about them.
pub(crate) fn summary(
    plan: &Plan,
    workload: &WorkloadPlan,
    decided: &[&Slicing],
    units: &[CountingUnit<'_>],
) -> Option<SliceSummary> {
    // A run that was resumed before its first trial has two pilots; the later one counts.
    let slicing = decided.iter().rev().find(|slicing| slicing.workload == workload.id)?;
    let others = plan.environments.len().saturating_sub(1);
    let cell = |name: &str| {
        let mut trials = units.iter().filter_map(|(_, trials)| slices_of(trials.get(name)?)).peekable();
        trials.peek()?;
        let (freeze, late): (Vec<f64>, Vec<f64>) =
            trials.map(|slices| (f64::from(slices.freeze_us[0]), f64::from(slices.freeze_us[1]))).unzip();
        let pairs = Pairs::of(plan, workload, name, units);
        let longer = pairs.as_ref().and_then(|pairs| Estimate::of(&pairs.longer));
        Some(SlicedCell {
            environment: name.into(),
            trials: count(freeze.len()),
            freeze_us: rank::median_of(freeze)?,
            freeze_p95_us: rank::median_of(late)?,
            gain: pairs.as_ref().and_then(Pairs::gain),
            longer: longer.map(|longer| longer.interval()),
            too_short: longer.is_some_and(|longer| matters(&longer, plan.margin, others)),
        })
    };
    Some(SliceSummary {
        workload: workload.id.clone(),
        length_us: slicing.length_us,
        whole: slicing.whole.clone(),
        reason: slicing.reason.clone(),
        cells: plan.environments.iter().filter_map(|environment| cell(&environment.name)).collect(),
    })
}

/// Whether the effect in longer slices, less that in the others, is shown to exceed a quarter of
/// the margin, in one of `cells` cells.
fn matters(longer: &Estimate, margin: f64, cells: usize) -> bool {
    let beyond = longer.mean.abs() - (BIAS_SHARE * margin).ln_1p();
    let level = BIAS_LEVEL / cells.max(1) as f64;
    beyond > 0.0 && beyond > longer.half_width(student::quantile(1.0 - level / 2.0, longer.df))
}

impl SlicedCell {
    /// Whether a run of so many blocks, if that is known, tests after those of this cell whether its
    /// slices are too short.
    pub fn is_due(&self, blocks: Option<u32>) -> bool {
        let has_doubled =
            self.trials.is_multiple_of(FIRST_LOOK) && (self.trials / FIRST_LOOK).is_power_of_two();
        has_doubled || (self.trials > FIRST_LOOK && Some(self.trials) == blocks)
    }
}

/// Warnings about cells whose effect depends on the length of the slices.
pub(crate) fn warnings(summary: &SliceSummary) -> Vec<Warning> {
    let beyond = summary.cells.iter().filter_map(|cell| {
        let longer = cell.longer.filter(|_| cell.too_short)?;
        let kind = WarningKind::SlicesDiffer { longer };
        Some(Warning::of(Some(&summary.workload), Some(&cell.environment), kind))
    });
    beyond.collect()
}

fn slices_of(trial: &Trial) -> Option<&Slices> {
    trial.slices.as_deref()
}

/// The log ratios of an environment to the baseline, block by block, by the first primary metric.
#[derive(Default)]
struct Pairs {
    nominal: Vec<f64>,
    /// The log ratio in the longer slices of a block, less that in its others.
    longer: Vec<f64>,
    /// The log ratio that whole trials would have found.
    whole: Vec<f64>,
}

impl Pairs {
    fn of(
        plan: &Plan,
        workload: &WorkloadPlan,
        environment: &str,
        units: &[CountingUnit<'_>],
    ) -> Option<Self> {
        let metric = workload.metrics.iter().find(|metric| metric.spec.primary)?;
        let trials = units.iter().filter_map(|(block, trials)| {
            let (arm, baseline) = (trials.get(environment)?, trials.get(plan.baseline.as_str())?);
            Some((*block, &**arm, &**baseline))
        });
        let trials: Vec<(u32, &Trial, &Trial)> = trials.collect();
        if environment == plan.baseline {
            return None;
        }
        let mut pairs = Self::default();
        for (block, arm, baseline) in &trials {
            let Some((of_arm, of_baseline)) = slices_of(arm).zip(slices_of(baseline)) else { continue };
            let Some((arm, baseline)) = cost(metric, arm).zip(cost(metric, baseline)) else { continue };
            pairs.nominal.push(arm - baseline);
            let name = mark_name(metric, of_arm);
            pairs.longer.extend(beyond(of_arm, of_baseline, &name));
            // Which of the two comes first alternates: any rule that looks at no value will do.
            pairs.whole.extend(back_to_back(of_arm, of_baseline, &name, block % 2 == 0));
        }
        Some(pairs)
    }

    /// How many times as wide the spread of whole trials would be.
    fn gain(&self) -> Option<f64> {
        let spread = |logs: &[f64]| Estimate::of(logs).filter(|_| logs.len() >= FEWEST);
        let (sliced, whole) = (spread(&self.nominal)?, spread(&self.whole)?);
        (!sliced.has_no_spread()).then(|| whole.standard_error / sliced.standard_error)
    }
}

/// The log ratio of an arm to the baseline in the longer slices of a unit, less that in the others.
fn beyond(arm: &Slices, baseline: &Slices, metric: &str) -> Option<f64> {
    let arms = [arm, baseline];
    let ratio = |rounds: Range<usize>| {
        let costs = costs(&arms, 1, rounds);
        Some((costs[0].get(metric)? / costs[1].get(metric)?).ln())
    };
    Some(ratio(longer_rounds(&arms)?)? - ratio(common_rounds(&arms)?)?)
}

/// The name of a metric's amounts in the marks: its own, or that of iterations.
pub(super) fn mark_name(metric: &MetricSource, slices: &Slices) -> String {
    let own = |amounts: &BTreeMap<String, f64>| amounts.contains_key(&metric.spec.name);
    let marked = slices.marks.iter().any(|mark| own(&mark.amounts));
    if marked { metric.spec.name.clone() } else { crate::slices::ITERATION.into() }
}

fn cost(metric: &MetricSource, trial: &Trial) -> Option<f64> {
    let Outcome::Measured { iterations } = &trial.outcome else { return None };
    let value = iterations.first()?.values.get(&metric.spec.name)?;
    (*value > 0.0).then(|| metric.spec.better.log_cost(*value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interval::Interval;
    use crate::noise::Noise;
    use std::borrow::Cow;
    use std::collections::HashMap;
    use weigh_model::{
        Effort, EnvironmentSpec, Extraction, Iteration, MetricSpec, PieceStatistic, SliceMark,
    };

    /// A trial with these costs in seconds, in slices of the nominal length and in longer ones.
    fn trial(environment: &str, block: u32, seconds: f64, longer_seconds: f64) -> Trial {
        let values = BTreeMap::from([("time".to_string(), seconds)]);
        let mark = |at_us: u64| SliceMark {
            at_us,
            amounts: if at_us == 0 { BTreeMap::new() } else { BTreeMap::from([("time".into(), 0.01)]) },
        };
        let [each, longer] = [seconds, longer_seconds].map(|seconds| (seconds * 1e4) as u64);
        let marks = (0..=20).map(|n| n * each).chain((1..=3).map(|n| 20 * each + n * longer));
        Trial {
            environment: environment.into(),
            block,
            workload: "w".into(),
            outcome: Outcome::Measured { iterations: vec![Iteration { values, ..Iteration::default() }] },
            slices: Some(Box::new(Slices {
                length_us: 5000,
                thawed_us: [vec![each as u32; 20], vec![longer as u32; 3]].concat(),
                longer_from: Some(20),
                marks: marks.map(mark).collect(),
                statistic: PieceStatistic::Mean,
                freeze_us: [40.0, 70.0],
                thaw_us: [6.0, 9.0],
            })),
            ..Trial::default()
        }
    }

    /// The summary of ten blocks with these extra costs of `e` in slices of the nominal length and
    /// in longer ones.
    fn found(short: f64, long: f64, margin: f64) -> SliceSummary {
        let environments = ["native", "e"].map(|name| EnvironmentSpec::new(name, BTreeMap::new()).into());
        let metric = MetricSource {
            spec: MetricSpec { primary: true, ..MetricSpec::time("time") },
            from: Extraction::Duration,
            factor: 1.0,
        };
        let workload = WorkloadPlan::of("w", Vec::new(), vec![metric]);
        let effort = Effort::Fixed { blocks: 10 };
        let plan = Plan { margin, ..Plan::of("p", environments.into(), vec![workload.clone()], effort) };
        let trials: Vec<Trial> = (0..10u32)
            .flat_map(|block| {
                let noise = 1.0 + (f64::from(block % 3) - 1.0) * 1e-3;
                [trial("native", block, 1.0, 1.0), trial("e", block, short, long * noise)]
            })
            .collect();
        let units: Vec<CountingUnit<'_>> = trials
            .chunks(2)
            .map(|pair| {
                let by_environment = pair.iter().map(|t| (t.environment.as_str(), Cow::Borrowed(t)));
                (pair[0].block, by_environment.collect::<HashMap<_, _>>())
            })
            .collect();
        let slicing = Slicing { workload: "w".into(), length_us: Some(5000), ..Slicing::default() };
        summary(&plan, &workload, &[&slicing], &units).unwrap()
    }

    /// The share of simulated workloads with so many cells, of which one differs by `shift` in longer
    /// slices, for which a run of 30 blocks finds its slices too short. `sd` is the spread of the
    /// difference from block to block, and the margin is 2 %.
    fn share_found_too_short(cells: usize, shift: f64, sd: f64) -> f64 {
        const WORKLOADS: u32 = 4000;
        let mut noise = Noise::new(44);
        let mut is_found = || {
            let mut seen = vec![Vec::new(); cells];
            (1..=30).any(|trials| {
                // All cells of a block have its baseline in common.
                let baseline = noise.normal();
                for (cell, seen) in seen.iter_mut().enumerate() {
                    let mean = if cell == 0 { shift } else { 0.0 };
                    seen.push(mean + sd * (noise.normal() - baseline) / 2.0_f64.sqrt());
                }
                let cell = SlicedCell { trials, ..SlicedCell::default() };
                let too_short =
                    |seen: &Vec<f64>| Estimate::of(seen).is_some_and(|found| matters(&found, 0.02, cells));
                cell.is_due(Some(30)) && seen.iter().any(too_short)
            })
        };
        (0..WORKLOADS).filter(|_| is_found()).count() as f64 / f64::from(WORKLOADS)
    }

    #[test]
    fn slices_are_seldom_found_too_short_without_a_cause() {
        for cells in [1, 3] {
            for sd in [0.002, 0.01, 0.05] {
                let found = share_found_too_short(cells, 0.0, sd);
                assert!(found < 0.1, "{cells} cells, sd {sd}: {found}");
            }
            let [half, whole] = [0.01, 0.02].map(|shift| share_found_too_short(cells, shift, 0.01));
            assert!(half > 0.6 && whole > 0.99, "{cells} cells: {half}, {whole}");
        }
    }

    #[test]
    fn results_that_depend_on_the_length_of_slices_are_warned_of() {
        let alike = found(1.03, 1.03, 0.02);
        assert_eq!(warnings(&alike), []);
        let cell = &alike.cells[1];
        assert_eq!((cell.trials, cell.freeze_us, cell.freeze_p95_us), (10, 40.0, 70.0));
        let Interval { low, high, .. } = cell.longer.unwrap();
        assert!(low < 0.0 && high > 0.0 && !cell.too_short, "{cell:?}");
        assert!(alike.cells[0].longer.is_none() && alike.cells[0].gain.is_none());
        let biased = found(1.03, 1.05, 0.02);
        assert!((biased.cells[1].longer.unwrap().estimate - 0.0194).abs() < 1e-3, "{biased:?}");
        let warned = warnings(&biased);
        assert!(matches!(warned[..], [Warning { kind: WarningKind::SlicesDiffer { .. }, .. }]), "{warned:?}");
        assert_eq!(warned[0].environment.as_deref(), Some("e"));
        assert_eq!(warnings(&found(1.03, 1.05, 0.5)), [], "within a quarter of a margin of 50 %");
    }
}
