//! The sources of the spread of the effects of a run, and one unit of slices from begin to end
//! (method specification, "Where the spread comes from").

use super::slices::mark_name;
use super::{SlicedCourse, SlicedUnit, SpreadParts, SpreadSummary};
use crate::collect::{CountingUnit, Trials};
use crate::estimate::{Estimate, count};
use crate::rank;
use crate::slices::{boundaries, common_rounds, cut, work_in};
use crate::spread::{Spread, UnitTime};
use std::ops::Range;
use weigh_model::{MetricSource, Outcome, Plan, Record, Slices, Trial, WorkloadPlan};

/// The largest number of windows in a unit.
const MOST_WINDOWS: usize = 120;
/// Fewest windows that show a course.
const FEWEST_WINDOWS: usize = 6;

/// The spread of every environment's ratio to the baseline, by the first primary metric.
/// `launches_s` is the time between two blocks.
pub(crate) fn summaries(
    plan: &Plan,
    workload: &WorkloadPlan,
    units: &[CountingUnit<'_>],
    launches_s: f64,
) -> Vec<SpreadSummary> {
    let Some(metric) = first_primary(workload) else { return Vec::new() };
    let share_s = launches_s / plan.workloads.len().max(1) as f64;
    let Some(time) = unit_time(units, share_s) else { return Vec::new() };
    let summary = |environment: &str| {
        let pairs = units.iter().filter_map(|(_, trials)| {
            let (arm, baseline) = (trials.get(environment)?, trials.get(plan.baseline.as_str())?);
            // A whole trial beside slices has no parts in common with those.
            (arm.slices.is_some() == baseline.slices.is_some()).then_some((&**arm, &**baseline))
        });
        let pairs: Vec<(&Trial, &Trial)> = pairs.collect();
        let sliced = sliced_units(metric, &pairs);
        let (parts, number, spread) = match sliced.is_empty() {
            false => {
                (SpreadParts::Windows, sliced.iter().map(Vec::len).collect(), Spread::of_pairs(&sliced)?)
            }
            true => {
                let whole: Vec<(Vec<f64>, Vec<f64>)> = pairs
                    .iter()
                    .filter_map(|(arm, baseline)| Some((logs(metric, arm)?, logs(metric, baseline)?)))
                    .collect();
                let number: Vec<usize> = whole.iter().map(|(arm, _)| arm.len()).collect();
                (SpreadParts::Iterations, number, Spread::of_two(&whole)?)
            }
        };
        Some(SpreadSummary {
            workload: workload.id.clone(),
            environment: environment.into(),
            metric: metric.spec.name.clone(),
            parts,
            parts_per_unit: rank::median_of(number.into_iter().map(|number| number as f64))?,
            spread,
            time,
            best_length: spread.best_length(time),
            pays: spread.better_investment(time),
        })
    };
    let others = plan.environments.iter().filter(|environment| environment.name != plan.baseline);
    others.filter_map(|environment| summary(&environment.name)).collect()
}

fn first_primary(workload: &WorkloadPlan) -> Option<&MetricSource> {
    workload.metrics.iter().find(|metric| metric.spec.primary)
}

fn slices_of(trial: &Trial) -> Option<&Slices> {
    trial.slices.as_deref().filter(|_| matches!(trial.outcome, Outcome::Measured { .. }))
}

/// The log ratios of the windows of every unit that is measured in slices of the nominal length.
fn sliced_units(metric: &MetricSource, pairs: &[(&Trial, &Trial)]) -> Vec<Vec<f64>> {
    let sliced = pairs.iter().filter_map(|(arm, baseline)| slices_of(arm).zip(slices_of(baseline)));
    let sliced: Vec<(&Slices, &Slices)> = sliced.collect();
    let nominal_us = sliced.iter().map(|(arm, _)| arm.length_us).min();
    let nominal = sliced.into_iter().filter(|(arm, _)| Some(arm.length_us) == nominal_us);
    let ratios = nominal.filter_map(|(arm, baseline)| {
        let windows = windows(metric, &[arm, baseline])?;
        Some(ratios(metric, arm, baseline, &windows))
    });
    ratios.collect()
}

/// The log costs of the iterations of a trial.
fn logs(metric: &MetricSource, trial: &Trial) -> Option<Vec<f64>> {
    let Outcome::Measured { iterations } = &trial.outcome else { return None };
    let value = |values: &std::collections::BTreeMap<String, f64>| {
        let value = *values.get(&metric.spec.name)?;
        (value > 0.0 && value.is_finite()).then(|| metric.spec.better.log_cost(value))
    };
    iterations.iter().map(|iteration| value(&iteration.values)).collect()
}

/// The common rounds in windows of equally many rounds. There are as many windows as the arm with
/// the fewest marks has pieces of work. `None` if there is no common round.
fn windows(metric: &MetricSource, arms: &[&Slices]) -> Option<Vec<Range<usize>>> {
    let rounds = common_rounds(arms)?;
    let fewest = arms.iter().map(|arm| pieces(metric, arm, &rounds)).min()?;
    Some(cut(&rounds, fewest.min(rounds.len()).min(MOST_WINDOWS)))
}

/// Log ratios of two arms, window by window, without windows in which either did no work.
fn ratios(metric: &MetricSource, arm: &Slices, baseline: &Slices, windows: &[Range<usize>]) -> Vec<f64> {
    let cost = |slices, window: &Range<usize>| cost_in(metric, slices, window.clone());
    windows.iter().filter_map(|window| Some((cost(arm, window)? / cost(baseline, window)?).ln())).collect()
}

fn cost_in(metric: &MetricSource, slices: &Slices, rounds: Range<usize>) -> Option<f64> {
    work_in(slices, rounds, &mark_name(metric, slices)).cost()
}

/// The number of pieces of work that end in these rounds.
fn pieces(metric: &MetricSource, slices: &Slices, rounds: &Range<usize>) -> usize {
    let (name, at_us) = (mark_name(metric, slices), boundaries(slices));
    let within = at_us[rounds.start]..=at_us[rounds.end];
    let ends = slices.marks.iter().skip(1).filter(|mark| within.contains(&mark.at_us));
    ends.filter(|mark| mark.amounts.contains_key(&name)).count()
}

/// The time of a unit, as the median over the units.
fn unit_time(units: &[CountingUnit<'_>], share_s: f64) -> Option<UnitTime> {
    let times = units.iter().map(|(_, trials)| {
        let span = |trial: &Trial| trial.host_ended_ns.saturating_sub(trial.host_started_ns) as f64 / 1e9;
        let (mut measured, mut spans, mut sliced) = (0.0, 0.0, 0.0f64);
        for trial in trials.values() {
            match (&trial.slices, &trial.outcome) {
                // Every sliced trial has the begin and the end of its unit.
                (Some(_), _) => {
                    measured += trial.took_s();
                    sliced = sliced.max(span(trial));
                }
                (None, Outcome::Measured { iterations }) => {
                    let ns = iterations.iter().map(|i| i.host_ended_ns.saturating_sub(i.host_started_ns));
                    measured += ns.sum::<u64>() as f64 / 1e9;
                    spans += span(trial);
                }
                (None, Outcome::Failed(_)) => spans += span(trial),
            }
        }
        (measured, (spans + sliced - measured).max(0.0))
    });
    let (measured, other): (Vec<f64>, Vec<f64>) = times.unzip();
    Some(UnitTime {
        measured_s: rank::median_of(measured).filter(|seconds| *seconds > 0.0)?,
        other_s: rank::median_of(other)? + share_s,
    })
}

/// The time from the last trial of a block to the first of the next, which is that of the launches:
/// the median over the blocks of a run.
pub(crate) fn between_blocks_s(records: &[Record]) -> f64 {
    let mut last: Option<(u32, u64)> = None;
    let mut gaps = Vec::new();
    for record in records {
        let Record::Trial(trial) = record else { continue };
        if let Some((block, ended_ns)) = last
            && block != trial.block
            // The clock begins anew when the host restarts.
            && let Some(gap_ns) = trial.host_started_ns.checked_sub(ended_ns)
        {
            gaps.push(gap_ns as f64 / 1e9);
        }
        last = Some((trial.block, trial.host_ended_ns));
    }
    rank::median_of(gaps).unwrap_or(0.0)
}

/// One unit in slices from begin to end, chosen without regard to its values: the middle one of
/// those in which the most environments have slices, all of them of the nominal length.
pub(crate) fn unit(plan: &Plan, workload: &WorkloadPlan, units: &[CountingUnit<'_>]) -> Option<SlicedUnit> {
    let metric = first_primary(workload)?;
    let arms = |trials: &Trials<'_>| -> Vec<(String, Slices)> {
        let arm = |name: &String| Some((name.clone(), slices_of(trials.get(name.as_str())?)?.clone()));
        let names = plan.environments.iter().map(|environment| &environment.name);
        names.filter_map(arm).collect()
    };
    let sliced = units.iter().map(|(block, trials)| (*block, arms(trials)));
    let sliced: Vec<_> = sliced.filter(|(_, arms)| arms.iter().any(|arm| arm.0 == plan.baseline)).collect();
    let most = sliced.iter().map(|(_, arms)| arms.len()).max().filter(|most| *most > 1)?;
    let nominal_us = sliced.iter().filter_map(|(_, arms)| Some(arms.first()?.1.length_us)).min()?;
    let fit = |(_, arms): &&(u32, Vec<(String, Slices)>)| {
        arms.len() == most && arms.iter().all(|(_, slices)| slices.length_us == nominal_us)
    };
    let fitting: Vec<_> = sliced.iter().filter(fit).collect();
    let (block, arms) = fitting.get(fitting.len() / 2)?;
    let slices: Vec<&Slices> = arms.iter().map(|(_, slices)| slices).collect();
    let baseline = arms.iter().find(|(name, _)| *name == plan.baseline).map(|(_, slices)| slices)?;
    let windows = filled_windows(metric, &slices)?;
    let rounds = windows.first()?.start..windows.last()?.end;
    let mean = cost_in(metric, baseline, rounds.clone())?;
    let clock = UnitClock::new(&slices, rounds);
    let of_baseline = window_logs(metric, baseline, &windows)?;
    let course = |(name, slices): &(String, Slices)| {
        let own = window_logs(metric, slices, &windows)?;
        let ratios: Vec<f64> = own.iter().zip(&of_baseline).map(|(own, other)| own - other).collect();
        let is_baseline = *name == plan.baseline;
        Some(SlicedCourse {
            environment: name.clone(),
            costs: own.iter().map(|log| log.exp() / mean).collect(),
            moved: spread(&own)?,
            ratio_moved: if is_baseline { None } else { spread(&ratios) },
            together: if is_baseline { None } else { correlation(&own, &of_baseline) },
            ratios: if is_baseline { Vec::new() } else { ratios.into_iter().map(f64::exp).collect() },
        })
    };
    Some(SlicedUnit {
        workload: workload.id.clone(),
        metric: metric.spec.name.clone(),
        block: *block,
        units: count(fitting.len()),
        windows_s: windows.iter().map(|window| clock.at(window.start)).chain([clock.end()]).collect(),
        courses: arms.iter().map(course).collect::<Option<_>>()?,
    })
}

/// The common rounds in as many windows as possible with work of every arm in each.
fn filled_windows(metric: &MetricSource, arms: &[&Slices]) -> Option<Vec<Range<usize>>> {
    let rounds = common_rounds(arms)?;
    let most = windows(metric, arms)?.len();
    let numbers = std::iter::successors(Some(most), |number| Some(number / 2));
    let mut cuts = numbers.take_while(|number| *number >= FEWEST_WINDOWS).map(|number| cut(&rounds, number));
    cuts.find(|windows| arms.iter().all(|arm| window_logs(metric, arm, windows).is_some()))
}

/// The log costs of an arm in all windows.
fn window_logs(metric: &MetricSource, slices: &Slices, windows: &[Range<usize>]) -> Option<Vec<f64>> {
    windows.iter().map(|window| cost_in(metric, slices, window.clone()).map(f64::ln)).collect()
}

/// Standard deviation.
fn spread(values: &[f64]) -> Option<f64> {
    Estimate::of(values).map(|estimate| estimate.standard_error * f64::from(estimate.n).sqrt())
}

/// Correlation of two series of the same length; `None` if one of them does not vary.
fn correlation(a: &[f64], b: &[f64]) -> Option<f64> {
    let sum: Vec<f64> = a.iter().zip(b).map(|(a, b)| a + b).collect();
    let [of_a, of_b, of_sum] = [a, b, &sum].map(spread);
    let (of_a, of_b) = (of_a?, of_b?);
    let covariance = (of_sum?.powi(2) - of_a.powi(2) - of_b.powi(2)) / 2.0;
    (of_a > 0.0 && of_b > 0.0).then(|| (covariance / (of_a * of_b)).clamp(-1.0, 1.0))
}

/// The time of a unit: the thawed time of all its arms, one after the other.
struct UnitClock {
    rounds: Range<usize>,
    /// The time at the begin of every round, microseconds since the first.
    all_us: Vec<u64>,
}

impl UnitClock {
    fn new(arms: &[&Slices], rounds: Range<usize>) -> Self {
        let each: Vec<Vec<u64>> = arms.iter().map(|arm| boundaries(arm)).collect();
        let last = each.iter().map(Vec::len).min().unwrap_or(0);
        Self { rounds, all_us: (0..last).map(|round| each.iter().map(|at| at[round]).sum()).collect() }
    }

    /// The time from the first common round to this one, seconds.
    fn at(&self, round: usize) -> f64 {
        (self.all_us[round] - self.all_us[self.rounds.start]) as f64 * 1e-6
    }

    fn end(&self) -> f64 {
        self.at(self.rounds.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect;
    use crate::spread::BetterInvestment;
    use std::collections::BTreeMap;
    use weigh_model::{Effort, EnvironmentSpec, Extraction, Iteration, MetricSpec, SliceMark, Slicing};

    fn metric() -> MetricSource {
        MetricSource {
            spec: MetricSpec { primary: true, ..MetricSpec::time("time") },
            from: Extraction::Duration,
            factor: 1.0,
        }
    }

    fn plan() -> Plan {
        let environments = ["native", "e"].map(|name| EnvironmentSpec::new(name, BTreeMap::new()).into());
        let workload = WorkloadPlan::of("w", Vec::new(), vec![metric()]);
        Plan::of("p", environments.into(), vec![workload], Effort::Fixed { blocks: 8 })
    }

    /// A trial in rounds of 5 ms whose pieces of work take 10 ms of thawed time per unit of cost.
    fn sliced(block: u32, environment: &str, costs: &[f64]) -> Trial {
        let mut at_us = 0;
        let mut marks = vec![SliceMark { at_us, amounts: BTreeMap::new() }];
        for cost in costs {
            at_us += (cost * 10_000.0) as u64;
            marks.push(SliceMark { at_us, amounts: BTreeMap::from([("time".into(), 1.0)]) });
        }
        let thawed_us = vec![5_000; at_us.div_ceil(5_000) as usize + 1];
        let slices = Slices { length_us: 5_000, thawed_us, marks, ..Slices::default() };
        let mean = costs.iter().sum::<f64>() / costs.len() as f64;
        Trial { slices: Some(Box::new(slices)), ..whole(block, environment, &[mean]) }
    }

    fn whole(block: u32, environment: &str, values: &[f64]) -> Trial {
        let iteration = |value: &f64| Iteration {
            host_ended_ns: 1_000_000_000,
            values: BTreeMap::from([("time".to_string(), *value)]),
            ..Iteration::default()
        };
        let begin = u64::from(block) * 10_000_000_000;
        Trial {
            environment: environment.into(),
            block,
            workload: "w".into(),
            host_started_ns: begin,
            host_ended_ns: begin + 4_000_000_000,
            outcome: Outcome::Measured { iterations: values.iter().map(iteration).collect() },
            ..Trial::default()
        }
    }

    fn collected(trials: impl IntoIterator<Item = Trial>) -> crate::Circumstances {
        let slicing = Slicing { workload: "w".into(), length_us: Some(5_000), ..Slicing::default() };
        let records = [Record::Slicing(slicing)].into_iter().chain(trials.into_iter().map(Record::Trial));
        collect::collect(&plan(), &records.collect::<Vec<_>>()).circumstances
    }

    /// Iterations differ by 10 %, and blocks do not differ at all.
    #[test]
    fn whole_trials_have_their_iterations_as_parts() {
        let trials =
            (0..8).flat_map(|block| [whole(block, "native", &[1.0, 1.1]), whole(block, "e", &[1.1, 1.0])]);
        let found = collected(trials);
        let [SpreadSummary { parts, parts_per_unit, spread, time, pays, .. }] = found.spreads[..] else {
            panic!("{found:?}")
        };
        assert_eq!((parts, parts_per_unit, spread.between.estimate), (SpreadParts::Iterations, 2.0, 0.0));
        // The standard error of two parts is half their distance, and there are two environments.
        assert!((spread.within - 1.1f64.ln() / 2.0 * 2.0f64.sqrt()).abs() < 1e-9, "{spread:?}");
        // Each trial measures for two of four seconds; six seconds pass until the next block.
        assert_eq!((time.measured_s, time.other_s), (4.0, 4.0 + 6.0));
        assert_eq!(
            pays,
            BetterInvestment::Either,
            "blocks that are all alike are more so than their iterations explain"
        );
        assert_eq!(found.sliced_units, []);
    }

    /// Noise in the first half hits both environments; every other instance of `e` costs 2 % more.
    #[test]
    fn noise_of_all_is_neither_within_nor_between() {
        let costs: Vec<f64> = (0..20).map(|at| if at < 10 { 1.5 } else { 1.0 }).collect();
        let trials = (0..8).flat_map(|block| {
            let own: Vec<f64> = costs.iter().map(|cost| cost * (1.0 + 0.02 * f64::from(block % 2))).collect();
            [sliced(block, "native", &costs), sliced(block, "e", &own)]
        });
        let found = collected(trials);
        let [SpreadSummary { parts, spread, .. }] = found.spreads[..] else { panic!("{found:?}") };
        assert_eq!(parts, SpreadParts::Windows);
        assert!(spread.within < 0.004, "{spread:?}");
        assert!((0.007..0.015).contains(&spread.between.estimate), "{spread:?}");
        let [unit] = &found.sliced_units[..] else { panic!("{found:?}") };
        assert_eq!((unit.block, unit.units, unit.courses.len()), (4, 8, 2));
        let [native, e] = &unit.courses[..] else { panic!("{unit:?}") };
        assert_eq!(
            (native.environment.as_str(), native.ratio_moved, native.ratios.len()),
            ("native", None, 0)
        );
        assert!(native.moved > 0.15 && e.ratio_moved.unwrap() < 0.03, "{unit:?}");
        assert!(e.together.unwrap() > 0.98, "{unit:?}");
        // Relative to the mean of the baseline, 1.25.
        let (first, last) = (native.costs[1], native.costs[native.costs.len() - 2]);
        assert!((first - 1.2).abs() < 0.02 && (last - 0.8).abs() < 0.02, "{native:?}");
        let end = unit.windows_s.last().unwrap();
        assert!((0.4..0.51).contains(end), "both arms have a quarter of a second: {end}");
    }

    /// Two kinds of work in turn: a window of one mark has work of one kind only.
    #[test]
    fn windows_are_long_enough_for_work_of_every_arm() {
        let trials = (0..5).flat_map(|block| {
            ["native", "e"].map(|environment| {
                let mut trial = sliced(block, environment, &[1.0; 60]);
                let slices = trial.slices.as_mut().unwrap();
                for mark in slices.marks.iter_mut().skip(1).step_by(2) {
                    mark.amounts = BTreeMap::from([("other".into(), 1.0)]);
                }
                for mark in slices.marks[20..30].iter_mut().step_by(2) {
                    mark.amounts = BTreeMap::from([("time".into(), 0.0)]);
                }
                trial
            })
        });
        let found = collected(trials);
        let unit = &found.sliced_units[0];
        assert!((FEWEST_WINDOWS..30).contains(&(unit.windows_s.len() - 1)), "{unit:?}");
        assert!(unit.courses.iter().all(|course| course.moved.is_finite()), "{unit:?}");
    }

    /// Forty pieces in eighty rounds, of which the last forty have longer slices.
    #[test]
    fn longer_slices_have_no_part_in_the_windows() {
        let trials = (0..5).flat_map(|block| {
            ["native", "e"].map(|environment| {
                let mut trial = sliced(block, environment, &[1.0; 40]);
                trial.slices.as_mut().unwrap().longer_from = Some(40);
                trial
            })
        });
        let unit = &collected(trials).sliced_units[0];
        assert!((18..=20).contains(&(unit.windows_s.len() - 1)), "{unit:?}");
    }

    #[test]
    fn windows_are_not_too_many_to_see_nor_too_few() {
        let trials = (0..5).flat_map(|block| {
            ["native", "e"].map(|environment| sliced(block, environment, &vec![1.0; 1_000]))
        });
        let found = collected(trials);
        let course = &found.sliced_units[0].courses[1];
        assert_eq!((course.costs.len(), course.ratios.len()), (MOST_WINDOWS, MOST_WINDOWS));
        assert_eq!(collected([sliced(0, "native", &[1.0; 3]), sliced(0, "e", &[1.0; 3])]).sliced_units, []);
    }
}
