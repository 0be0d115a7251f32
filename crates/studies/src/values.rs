//! The values that a run measured for the quantities of an experiment.

use crate::study::{Experiment, Measurand, Origin, Quantity, Statistic};
use std::collections::BTreeMap;
use weigh_model::{Better, Observation, Unit, distinct};
use weigh_report::Report;
use weigh_stats::{Aspect, Cell, Failure, Interval, Ratio};

/// The run of an experiment, accessible in the terms of the study.
pub(crate) struct Measured<'a> {
    pub(crate) experiment: &'a Experiment,
    /// The report of its run, if there is one.
    pub(crate) report: Option<&'a Report>,
    /// The environment of each arm that was run.
    pub(crate) environments: &'a BTreeMap<String, String>,
    /// Why an arm was not run.
    pub(crate) without: &'a BTreeMap<String, String>,
    /// Why nothing was run.
    pub(crate) not_run: Option<&'a str>,
    /// Whether the run ended by itself. Somebody may have ended any other run because of what it
    /// showed.
    pub(crate) ended: bool,
}

/// Why there is no value, or none that a claim can be checked with.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum Unavailable {
    /// Nothing measures the quantity.
    #[error("published only: {0}")]
    PublishedOnly(String),
    /// The reason that the run or the state gives.
    #[error("{0}")]
    Reported(String),
    /// The arm was not run, and has the reason.
    #[error("{0} was not run here")]
    ArmNotRun(String),
    /// The run has not got that far.
    #[error("{0} was not measured yet")]
    ArmNotYet(String),
    /// There is no run.
    #[error("nothing was measured")]
    NoRun,
    /// The run has no such guests.
    #[error("nothing was measured of {0} at this size")]
    NothingMeasured(String),
    /// The plan has the workload, but no such cell.
    #[error("this size has no such value of {0}")]
    NotAtThisSize(String),
    /// The plan does not have the workload.
    #[error("`{0}` was not among the workloads: it needs a program of your own")]
    NoProgram(String),
    /// The cell is empty, and no failure says why.
    #[error("not measured")]
    NotMeasured,
    /// The run concludes nothing about the cell.
    #[error("nothing is concluded about {workload} in {environment}: {flags}")]
    Impaired { workload: String, environment: String, flags: String },
    /// What one more guest takes is one value for the whole run.
    #[error("what one more guest takes has no value per block to compare with")]
    NotPerBlock,
    /// An amount was given where a share is needed.
    #[error("an amount is not a share")]
    NoShare,
    /// Extremes and quantiles have no interval.
    #[error("the {0} of the blocks has no interval")]
    NoInterval(&'static str),
    /// The claim compares values in two units.
    #[error("{left} is in {unit} here, and {right} in {other}")]
    OtherUnit { left: String, unit: Unit, right: String, other: Unit },
    /// The claim names a point that was not measured.
    #[error("{term} was not measured at this size, which has {points}")]
    NoPoint { term: String, points: String },
    /// The claim names a quantity that does not exist.
    #[error("there is no quantity {0}")]
    NoQuantity(String),
    /// There are values, but too few.
    #[error("too few blocks for an interval")]
    TooFewBlocks,
}

/// The values of a quantity on an arm, in the direction of the paper's number.
pub(crate) enum Values<'a> {
    /// The values of a cell.
    Cell(&'a Cell, Vec<Observation>),
    /// What one more guest takes, and the number of blocks.
    Limit(Interval, u32, Unit),
    /// The amounts of equal pages, bytes.
    Pages(Vec<Observation>),
}

impl Values<'_> {
    /// Unit of the values.
    pub(crate) fn unit(&self) -> Unit {
        match self {
            Self::Cell(cell, _) => cell.metric.unit.clone(),
            Self::Limit(_, _, unit) => unit.clone(),
            Self::Pages(_) => Unit::normalise("B").0,
        }
    }
}

impl<'a> Measured<'a> {
    /// The values of a quantity on an arm, at a point if it is swept.
    pub(crate) fn values(
        &self,
        quantity: &Quantity,
        arm: &str,
        point: Option<&str>,
    ) -> Result<Values<'a>, Unavailable> {
        if let Origin::Text { why } = &quantity.from {
            return Err(Unavailable::PublishedOnly(why.clone()));
        }
        let environment = self.environment(arm)?;
        let report = self.report.ok_or(Unavailable::NoRun)?;
        let nothing = || Unavailable::NothingMeasured(quantity.id.clone());
        match &quantity.from {
            Origin::Cells(measurand) => {
                if let Some(over) = &measurand.best_over {
                    let best = self.best(quantity, measurand, environment, over);
                    return best.ok_or_else(|| self.no_cell(quantity, arm));
                }
                let cell = self.cell(quantity, measurand, environment, point);
                let cell = cell.ok_or_else(|| self.no_cell(quantity, arm))?;
                match &cell.absent {
                    _ if !cell.values.is_empty() => Ok(Values::Cell(cell, directed(cell, quantity))),
                    Some(reason) if cell.failed == 0 => Err(Unavailable::Reported(reason.clone())),
                    _ => Err(self.failure(cell)),
                }
            }
            Origin::Limits(measurand) => {
                let limit = report.limits.iter().find(|limit| {
                    limit.key.name == measurand.workload
                        && limit.metric.name == measurand.metric
                        && limit.environment == environment
                });
                let limit = limit.ok_or_else(nothing)?;
                Ok(Values::Limit(limit.each, limit.n, limit.metric.unit.clone()))
            }
            Origin::Duplicates(measurand) => {
                let summaries = report.circumstances.duplicates.iter();
                let of_environment = summaries.filter(|summary| summary.environment == environment);
                let summary = of_environment.max_by_key(|summary| summary.guests).ok_or_else(nothing)?;
                if let (0, Some(absent)) = (summary.n, &summary.absent) {
                    return Err(Unavailable::Reported(absent.clone()));
                }
                pages(measurand, &summary.scans).map(Values::Pages).ok_or_else(nothing)
            }
            Origin::Text { .. } => unreachable!("handled above"),
        }
    }

    /// The environment that was measured for an arm.
    fn environment(&self, arm: &str) -> Result<&'a str, Unavailable> {
        if let Some(reason) = self.not_run {
            return Err(Unavailable::Reported(reason.into()));
        }
        if self.without.contains_key(arm) {
            return Err(Unavailable::ArmNotRun(arm.into()));
        }
        self.environments.get(arm).map(String::as_str).ok_or_else(|| Unavailable::ArmNotYet(arm.into()))
    }

    fn cell(
        &self,
        quantity: &Quantity,
        measurand: &Measurand,
        environment: &str,
        point: Option<&str>,
    ) -> Option<&'a Cell> {
        let cells = self.report?.analysis.cells.iter();
        let at = |cell: &&Cell| match (&quantity.sweep, point) {
            (Some(sweep), Some(point)) => cell.key.params.get(sweep).is_some_and(|value| value == point),
            _ => true,
        };
        let mut found =
            cells.filter(|cell| cell.environment == environment && is_of(cell, measurand)).filter(at);
        found.next()
    }

    /// The values at the best point over all values of a parameter, in the blocks that have all of
    /// them.
    fn best(
        &self,
        quantity: &Quantity,
        measurand: &Measurand,
        environment: &str,
        over: &str,
    ) -> Option<Values<'a>> {
        let cells = self.report?.analysis.cells.iter();
        let points: Vec<&Cell> = cells
            .filter(|cell| cell.environment == environment && is_of(cell, measurand))
            .filter(|cell| cell.key.params.contains_key(over) && !cell.values.is_empty())
            .collect();
        let values = points.iter().map(|cell| directed(cell, quantity)).collect();
        let (best, values) = best_point(values, quantity.better)?;
        Some(Values::Cell(points[best], values))
    }

    /// The points at which a swept quantity was measured, in ascending order.
    pub(crate) fn points(&self, quantity: &Quantity) -> Vec<String> {
        let (Some(sweep), Some(measurand), Some(report)) =
            (&quantity.sweep, quantity.from.measurand(), self.report)
        else {
            return Vec::new();
        };
        let cells = report.analysis.cells.iter().filter(|cell| is_of(cell, measurand));
        let mut points = distinct(cells.filter_map(|cell| cell.key.params.get(sweep).cloned()));
        points.sort_by(|a, b| number(a).total_cmp(&number(b)));
        points
    }

    /// The ratio of the values of two quantities.
    pub(crate) fn ratio(
        &self,
        one: (&Values<'_>, Option<Statistic>),
        other: (&Values<'_>, Option<Statistic>),
    ) -> Result<Ratio, Unavailable> {
        check_conclusive(one.0)?;
        check_conclusive(other.0)?;
        let found = match (one, other) {
            ((Values::Limit(one, n, _), _), (Values::Limit(other, m, _), _)) => {
                Ratio::of_amounts((*one, *n), (*other, *m))
            }
            ((one, statistic), (other, _)) => {
                let aspect = aspect(statistic)?;
                let (Some(one), Some(other)) = (observations(one), observations(other)) else {
                    return Err(Unavailable::NotPerBlock);
                };
                Ratio::of(one, other, aspect, true)
            }
        };
        self.judged(found)
    }

    /// The value of a share, with its interval.
    pub(crate) fn share(
        &self,
        values: &Values<'_>,
        statistic: Option<Statistic>,
    ) -> Result<Ratio, Unavailable> {
        check_conclusive(values)?;
        let values = observations(values).ok_or(Unavailable::NoShare)?;
        self.judged(Ratio::of_values(values, aspect(statistic)?))
    }

    /// The ratio with the interval that it is judged by: one that holds at any moment unless the
    /// run has ended by itself.
    fn judged(&self, found: Option<Ratio>) -> Result<Ratio, Unavailable> {
        let found = if self.ended { found } else { found.and_then(|ratio| ratio.at_any_moment()) };
        found.ok_or(Unavailable::TooFewBlocks)
    }

    /// Why a cell has no values.
    fn failure(&self, cell: &Cell) -> Unavailable {
        let of_cell =
            |failure: &&Failure| failure.workload == cell.workload && failure.environment == cell.environment;
        match self.report.and_then(|report| report.failures.iter().find(of_cell)) {
            Some(failure) => Unavailable::Reported(failure.reason.clone()),
            None => Unavailable::NotMeasured,
        }
    }

    /// Why there is no cell: its workload could not run, or this size has no such point.
    fn no_cell(&self, quantity: &Quantity, arm: &str) -> Unavailable {
        let workload = quantity.from.measurand().map_or("", |measurand| measurand.workload.as_str());
        let environment = self.environments.get(arm);
        let cells = self.report.map_or(&[][..], |report| &report.analysis.cells);
        let of_workload =
            |id: &str| cells.iter().any(|cell| cell.workload == id && cell.key.name == workload);
        let is_it =
            |failure: &&Failure| Some(&failure.environment) == environment && of_workload(&failure.workload);
        if let Some(failure) = self.report.and_then(|report| report.failures.iter().find(is_it)) {
            return Unavailable::Reported(failure.reason.clone());
        }
        // The best of several points has no cell of its own.
        if quantity.best_over().is_some() {
            let mut of_arm = cells.iter().filter(|cell| Some(&cell.environment) == environment);
            if let Some(reason) =
                of_arm.find_map(|cell| cell.absent.clone().filter(|_| cell.key.name == workload))
            {
                return Unavailable::Reported(reason);
            }
        }
        let plan = self.report.and_then(|report| report.plan.as_ref());
        if plan.is_some_and(|plan| plan.workloads.iter().any(|one| one.name == workload)) {
            Unavailable::NotAtThisSize(quantity.id.clone())
        } else {
            Unavailable::NoProgram(workload.into())
        }
    }
}

/// The value of a parameter as a number, for sorting; the largest number if it is not one.
pub(crate) fn number(text: &str) -> f64 {
    text.parse()
        .ok()
        .or_else(|| weigh_model::parse_bytes(text).ok().map(|bytes| bytes as f64))
        .unwrap_or(f64::MAX)
}

/// Whether two values of a parameter are the same number, however they are written, or the same
/// word.
pub(crate) fn is_same_point(one: &str, other: &str) -> bool {
    one == other || number(one) == number(other) && number(one) < f64::MAX
}

fn is_of(cell: &Cell, measurand: &Measurand) -> bool {
    let same = |(key, value): (&String, &String)| {
        cell.key.params.get(key).is_some_and(|has| is_same_point(has, value))
    };
    cell.key.name == measurand.workload
        && cell.metric.name == measurand.metric
        && measurand.params.iter().all(same)
}

/// Values in the direction of the paper's number: a rate becomes a time if the paper has a time.
fn directed(cell: &Cell, quantity: &Quantity) -> Vec<Observation> {
    if !is_turned(cell, quantity) {
        return cell.values.clone();
    }
    cell.values.iter().map(|o| Observation { value: 1.0 / o.value, ..*o }).collect()
}

/// Whether the values of a cell are the inverses of those that were measured: a rate where the
/// paper has a time, or a time where it has a rate.
pub(crate) fn is_turned(cell: &Cell, quantity: &Quantity) -> bool {
    let of_spread = matches!(statistic_of(quantity), Some(Statistic::Sd | Statistic::Cv));
    let symbol = cell.metric.unit.symbol();
    cell.metric.better != quantity.better && !of_spread && (symbol.ends_with("/s") || symbol == "s")
}

/// The scans of the matrix cells that the parameters select, summed over those left open.
fn pages(measurand: &Measurand, scans: &BTreeMap<String, Vec<Observation>>) -> Option<Vec<Observation>> {
    /// The name of the matrix as a metric; any other name is that of an amount.
    const MATRIX: &str = "duplicates";
    if measurand.metric != MATRIX {
        return scans.get(&measurand.metric).cloned();
    }
    let asked = |key: &str| measurand.params.get(key).map(String::as_str);
    let all = |key: &str, words: [&'static str; 3]| -> Vec<&'static str> {
        words
            .into_iter()
            .filter(|word| asked(key).is_none_or(|asked| asked.replace('-', "_") == *word))
            .collect()
    };
    let mut sums: BTreeMap<Option<u32>, f64> = BTreeMap::new();
    let mut any = false;
    for place in all("where", ["within_guest", "guest_host", "guest_guest"]) {
        for what in all("what", ["anonymous", "mixed", "file"]) {
            for scan in scans.get(&format!("{place}_{what}")).into_iter().flatten() {
                any = true;
                *sums.entry(scan.block).or_default() += scan.value;
            }
        }
    }
    any.then(|| sums.into_iter().map(|(block, value)| Observation { block, value }).collect())
}

/// Refuses values about which a run concludes nothing: trials failed, or the clock or the load
/// generator is in doubt.
fn check_conclusive(values: &Values<'_>) -> Result<(), Unavailable> {
    match values {
        Values::Cell(cell, _) if cell.is_impaired() => {
            let flags: Vec<String> =
                cell.flags.iter().map(|flag| flag.to_string().replace('_', " ")).collect();
            Err(Unavailable::Impaired {
                workload: cell.workload.clone(),
                environment: cell.environment.clone(),
                flags: flags.join(", "),
            })
        }
        _ => Ok(()),
    }
}

fn observations<'v>(values: &'v Values<'_>) -> Option<&'v [Observation]> {
    match values {
        Values::Cell(_, values) | Values::Pages(values) => Some(values),
        Values::Limit(..) => None,
    }
}

/// The aspect of a distribution that a statistic describes.
fn aspect(statistic: Option<Statistic>) -> Result<Aspect, Unavailable> {
    match statistic.unwrap_or_default() {
        Statistic::Mean | Statistic::Median => Ok(Aspect::Location),
        Statistic::Sd => Ok(Aspect::Deviation),
        Statistic::Cv => Ok(Aspect::Variation),
        other => Err(Unavailable::NoInterval(statistic_name(other))),
    }
}

/// A statistic in words for people.
pub(crate) fn statistic_name(statistic: Statistic) -> &'static str {
    match statistic {
        Statistic::Mean => "mean",
        Statistic::Median => "median",
        Statistic::Min => "smallest",
        Statistic::P05 => "5 % quantile",
        Statistic::P95 => "95 % quantile",
        Statistic::Max => "largest",
        Statistic::Sd => "standard deviation",
        Statistic::Cv => "coefficient of variation",
    }
}

/// The statistic that a quantity takes of the blocks' values.
pub(crate) fn statistic_of(quantity: &Quantity) -> Option<Statistic> {
    quantity.from.measurand().map(|measurand| measurand.statistic)
}

/// The point whose values are best on average over the blocks that all points have, and its values
/// in these blocks. Values without a block all count. Taking the best value of each block would
/// favour whatever varies most from block to block.
fn best_point(points: Vec<Vec<Observation>>, better: Better) -> Option<(usize, Vec<Observation>)> {
    let mut blocks: BTreeMap<Option<u32>, usize> = BTreeMap::new();
    points.iter().flatten().for_each(|observation| *blocks.entry(observation.block).or_default() += 1);
    let whole =
        |observation: &Observation| observation.block.is_none() || blocks[&observation.block] == points.len();
    let common: Vec<Vec<Observation>> =
        points.iter().map(|values| values.iter().copied().filter(whole).collect()).collect();
    // Means of logarithms sort like geometric means.
    let cost = |values: &[Observation]| {
        let sum = values.iter().map(|o| better.log_cost(o.value)).sum::<f64>();
        sum / values.len() as f64
    };
    let some = common.into_iter().enumerate().filter(|(_, values)| !values.is_empty());
    some.min_by(|(_, one), (_, other)| cost(one).total_cmp(&cost(other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_point_is_the_best_on_average_in_every_block() {
        let points = || {
            let values = [[10.0, 13.0, 10.0, 9.0], [11.0, 11.0, 11.0, 11.0], [9.0, 9.0, 12.0, 99.0]];
            let mut points = values.map(|values| Observation::in_blocks(&values)).to_vec();
            points[1].pop();
            points
        };
        let of = |better| {
            let (best, values) = best_point(points(), better).unwrap();
            (best, values.iter().map(|o| o.value).collect::<Vec<f64>>())
        };
        // The last block lacks a point, so it does not count.
        assert_eq!(of(Better::Higher), (1, vec![11.0; 3]));
        assert_eq!(of(Better::Lower), (2, vec![9.0, 9.0, 12.0]));
        assert!(best_point(Vec::new(), Better::Lower).is_none());
    }

    #[test]
    fn points_without_blocks_may_differ_in_their_number_of_values() {
        let point = |values: &[f64]| -> Vec<Observation> {
            values.iter().map(|value| Observation { block: None, value: *value }).collect()
        };
        let points = || vec![point(&[10.0, 14.0]), point(&[13.0]), point(&[9.0, 9.0, 9.0, 9.0])];
        let of = |better| best_point(points(), better).map(|(best, values)| (best, values.len()));
        assert_eq!((of(Better::Higher), of(Better::Lower)), (Some((1, 1)), Some((2, 4))));
    }

    /// Five equal points on two arms, one of which varies four times as much from block to block:
    /// taking the best of each block would make it 3.5 % better.
    #[test]
    fn a_spread_between_blocks_is_no_better_peak() {
        // A fixed sequence of normal scores, the same for every run.
        let normal = |seed: u64| {
            let mixed = |seed: u64| {
                let mut z = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
            };
            (0..12).map(|i| mixed(12 * seed + i + 1)).sum::<f64>() - 6.0
        };
        let arm = |sd: f64, study: u64| -> Vec<Vec<Observation>> {
            let point = |point: u64| {
                let value = |block: u64| {
                    (sd * normal(((study * 5 + point) * 30 + block) * 2 + u64::from(sd > 0.02))).exp()
                };
                Observation::in_blocks(&(0..30).map(value).collect::<Vec<f64>>())
            };
            (0..5).map(point).collect()
        };
        let mean = |values: &[Observation]| values.iter().map(|o| o.value.ln()).sum::<f64>() / 30.0;
        let each = |points: &[Vec<Observation>]| {
            let best = |block: usize| points.iter().map(|values| values[block].value).fold(0.0, f64::max);
            (0..30).map(|block| best(block).ln()).sum::<f64>() / 30.0
        };
        let (mut on_average, mut in_each_block) = (0.0, 0.0);
        for study in 0..40 {
            let (quiet, loud) = (arm(0.01, study), arm(0.04, study));
            in_each_block += (each(&loud) - each(&quiet)) / 40.0;
            let best = |points| mean(&best_point(points, Better::Higher).unwrap().1);
            on_average += (best(loud) - best(quiet)) / 40.0;
        }
        assert!((in_each_block - 0.035).abs() < 0.004, "{in_each_block}");
        assert!(on_average < 0.01, "{on_average}");
    }
}
