//! What was measured of the quantities of an experiment.

use std::collections::BTreeMap;
use weigh_model::{Better, Observation, Unit};
use weigh_report::Report;
use weigh_stats::{Aspect, Cell, Interval, Ratio};
use weigh_studies::{Experiment, Measurand, Origin, Quantity, Statistic};

/// The run of an experiment, asked by the words of the study.
pub struct Measured<'a> {
    pub experiment: &'a Experiment,
    /// The report of its run; none where there is none.
    pub report: Option<&'a Report>,
    /// The environment of each arm that was run.
    pub environments: &'a BTreeMap<String, String>,
    /// Why an arm was not run.
    pub without: &'a BTreeMap<String, String>,
    /// Why nothing was run.
    pub not_run: Option<&'a str>,
}

/// Why a ratio cannot be looked at.
#[derive(Debug)]
pub enum Lack {
    /// A value that is not there.
    Value(String),
    /// Too few values for an interval.
    Interval(String),
}

impl Lack {
    /// In words.
    pub fn reason(self) -> String {
        match self {
            Self::Value(reason) | Self::Interval(reason) => reason,
        }
    }
}

impl From<String> for Lack {
    fn from(reason: String) -> Self {
        Self::Value(reason)
    }
}

/// The values of a quantity on an arm, in the direction of the paper's number.
pub enum Values<'a> {
    /// Of a cell.
    Cell(&'a Cell, Vec<Observation>),
    /// What one more guest takes, and blocks.
    Limit(Interval, u32, Unit),
    /// Amounts of equal pages, bytes.
    Pages(Vec<Observation>),
}

impl Values<'_> {
    /// Unit of the values.
    pub fn unit(&self) -> Unit {
        match self {
            Self::Cell(cell, _) => cell.metric.unit.clone(),
            Self::Limit(_, _, unit) => unit.clone(),
            Self::Pages(_) => Unit::normalise("B").0,
        }
    }
}

impl<'a> Measured<'a> {
    /// The values of a quantity on an arm, at a point where it is swept, or why there are none.
    pub fn values(&self, quantity: &Quantity, arm: &str, point: Option<&str>) -> Result<Values<'a>, String> {
        if let Origin::Text { why } = &quantity.from {
            return Err(format!("published only: {why}"));
        }
        let environment = self.environment(arm)?;
        let report = self.report.ok_or("nothing was measured")?;
        let nothing = || format!("nothing was measured of {} at this size", quantity.id);
        match &quantity.from {
            Origin::Cells(measurand) => {
                if let Some(over) = &measurand.best_over {
                    let best = self.best(quantity, measurand, environment, over);
                    return best.ok_or_else(|| self.lost(quantity, arm));
                }
                let cell = self
                    .cell(quantity, measurand, environment, point)
                    .ok_or_else(|| self.lost(quantity, arm))?;
                if cell.failed > 0 && cell.values.is_empty() {
                    return Err(self.failure(cell));
                }
                match &cell.absent {
                    Some(reason) if cell.values.is_empty() => Err(reason.clone()),
                    _ if cell.values.is_empty() => Err(self.failure(cell)),
                    _ => Ok(Values::Cell(cell, directed(cell, quantity))),
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
                let summary = report
                    .circumstances
                    .duplicates
                    .iter()
                    .filter(|summary| summary.environment == environment)
                    .max_by_key(|summary| summary.guests)
                    .ok_or_else(nothing)?;
                if let (0, Some(absent)) = (summary.n, &summary.absent) {
                    return Err(absent.clone());
                }
                pages(measurand, &summary.scans).map(Values::Pages).ok_or_else(nothing)
            }
            Origin::Text { .. } => unreachable!("said above"),
        }
    }

    /// The environment that stands for an arm, or why there is none.
    fn environment(&self, arm: &str) -> Result<&'a str, String> {
        if let Some(reason) = self.not_run {
            return Err(reason.into());
        }
        if self.without.contains_key(arm) {
            // Why stands with the arm, once.
            return Err(format!("{arm} was not run here"));
        }
        self.environments.get(arm).map(String::as_str).ok_or_else(|| format!("{arm} was not measured yet"))
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

    /// In every block that all points have, the best value over the values of a parameter. The cell
    /// is the one of the best point.
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
        let is_better = |one: f64, other: f64| match quantity.better {
            Better::Higher => one > other,
            Better::Lower => one < other,
        };
        let mut blocks: BTreeMap<Option<u32>, (usize, f64)> = BTreeMap::new();
        for observation in points.iter().flat_map(|cell| directed(cell, quantity)) {
            let best = blocks.entry(observation.block).or_insert((0, observation.value));
            best.0 += 1;
            if is_better(observation.value, best.1) {
                best.1 = observation.value;
            }
        }
        let whole = blocks.into_iter().filter(|(_, (of, _))| *of == points.len());
        let values = whole.map(|(block, (_, value))| Observation { block, value }).collect::<Vec<_>>();
        let median = |cell: &&Cell| cell.summary.map_or(0.0, |summary| summary.median);
        let best = points.into_iter().max_by(|one, other| {
            let order = median(one).total_cmp(&median(other));
            if quantity.better == Better::Higher { order } else { order.reverse() }
        })?;
        (!values.is_empty()).then_some(Values::Cell(best, values))
    }

    /// The points at which a swept quantity was measured, ascending.
    pub fn points(&self, quantity: &Quantity) -> Vec<String> {
        let (Some(sweep), Some(measurand), Some(report)) =
            (&quantity.sweep, quantity.from.measurand(), self.report)
        else {
            return Vec::new();
        };
        let cells = report.analysis.cells.iter().filter(|cell| is_of(cell, measurand));
        let mut points: Vec<String> = Vec::new();
        for point in cells.filter_map(|cell| cell.key.params.get(sweep)) {
            if !points.contains(point) {
                points.push(point.clone());
            }
        }
        points.sort_by(|a, b| number(a).total_cmp(&number(b)));
        points
    }

    /// Why a cell has no values.
    fn failure(&self, cell: &Cell) -> String {
        let of_cell = |failure: &&weigh_stats::Failure| {
            failure.workload == cell.workload && failure.environment == cell.environment
        };
        let failures = self.report.map(|report| report.failures.iter().find(of_cell));
        failures.flatten().map_or_else(|| "not measured".into(), |failure| failure.reason.clone())
    }

    /// Why there is no such cell: its workload could not run, or this size has no such point.
    fn lost(&self, quantity: &Quantity, arm: &str) -> String {
        let workload = quantity.from.measurand().map_or("", |measurand| measurand.workload.as_str());
        let environment = self.environments.get(arm);
        let plan = self.report.and_then(|report| report.plan.as_ref());
        let cells = self.report.map_or(&[][..], |report| &report.analysis.cells);
        let of_workload =
            |id: &str| cells.iter().any(|cell| cell.workload == id && cell.key.name == workload);
        let same = |failure: &&weigh_stats::Failure| {
            Some(&failure.environment) == environment && of_workload(&failure.workload)
        };
        let failure = self.report.and_then(|report| report.failures.iter().find(same));
        let planned = plan.is_some_and(|plan| plan.workloads.iter().any(|one| one.name == workload));
        match failure {
            Some(failure) => failure.reason.clone(),
            None if planned => format!("this size has no such value of {}", quantity.id),
            None => format!("`{workload}` was not among the workloads: it needs a program of your own"),
        }
    }
}

/// A number at the beginning of a parameter's value, for its order.
pub fn number(text: &str) -> f64 {
    text.parse()
        .ok()
        .or_else(|| weigh_model::parse_bytes(text).ok().map(|bytes| bytes as f64))
        .unwrap_or(f64::MAX)
}

fn is_of(cell: &Cell, measurand: &Measurand) -> bool {
    let same = |(key, value): (&String, &String)| {
        cell.key
            .params
            .get(key)
            .is_some_and(|has| has == value || number(has) == number(value) && number(value) < f64::MAX)
    };
    cell.key.name == measurand.workload
        && cell.metric.name == measurand.metric
        && measurand.params.iter().all(same)
}

/// Values in the direction of the paper's number: a time per piece where the paper has one.
fn directed(cell: &Cell, quantity: &Quantity) -> Vec<Observation> {
    let of_spread = matches!(statistic_of(quantity), Some(Statistic::Sd | Statistic::Cv));
    if cell.metric.better == quantity.better || of_spread || !is_inverse(cell) {
        return cell.values.clone();
    }
    cell.values.iter().map(|o| Observation { value: 1.0 / o.value, ..*o }).collect()
}

/// Whether turning a value round makes a value of the other direction: a rate and a time do.
fn is_inverse(cell: &Cell) -> bool {
    cell.metric.unit.symbol().ends_with("/s") || cell.metric.unit.symbol() == "s"
}

/// Scans of the cells of the matrix that the parameters name; what they leave open is summed.
fn pages(measurand: &Measurand, scans: &BTreeMap<String, Vec<Observation>>) -> Option<Vec<Observation>> {
    /// The metric that is the matrix; any other is the name of an amount.
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

/// The ratio of two values of quantities, or why there is none.
pub fn ratio(
    one: (&Values<'_>, Option<Statistic>),
    other: (&Values<'_>, Option<Statistic>),
) -> Result<Ratio, Lack> {
    let few = || Lack::Interval("too few blocks for an interval".into());
    sound(one.0)?;
    sound(other.0)?;
    match (one, other) {
        ((Values::Limit(one, n, _), _), (Values::Limit(other, m, _), _)) => {
            Ratio::of_amounts((*one, *n), (*other, *m)).ok_or_else(few)
        }
        ((one, statistic), (other, _)) => {
            let aspect = aspect(statistic)?;
            let (Some(one), Some(other)) = (observations(one), observations(other)) else {
                let reason = "what one more guest takes has no value in a block to compare with";
                return Err(Lack::Value(reason.into()));
            };
            Ratio::of(one, other, aspect, true).ok_or_else(few)
        }
    }
}

/// Refuses values of which a run concludes nothing: some are missing for a reason of their own, or
/// the clock or the load generator is in doubt.
fn sound(values: &Values<'_>) -> Result<(), Lack> {
    match values {
        Values::Cell(cell, _) if cell.is_impaired() => {
            let flags: Vec<String> =
                cell.flags.iter().map(|flag| flag.to_string().replace('_', " ")).collect();
            let why = flags.join(", ");
            Err(Lack::Value(format!(
                "nothing is concluded of {} in {}: {why}",
                cell.workload, cell.environment
            )))
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

/// A value by itself, or why it has no interval.
pub fn alone(values: &Values<'_>, statistic: Option<Statistic>) -> Result<Ratio, Lack> {
    let few = || Lack::Interval("too few blocks for an interval".into());
    sound(values)?;
    let values = observations(values).ok_or_else(|| "an amount is no share".to_string())?;
    Ratio::of_values(values, aspect(statistic)?).ok_or_else(few)
}

/// What of the values a statistic is.
fn aspect(statistic: Option<Statistic>) -> Result<Aspect, String> {
    match statistic.unwrap_or_default() {
        Statistic::Mean | Statistic::Median => Ok(Aspect::Location),
        Statistic::Sd => Ok(Aspect::Deviation),
        Statistic::Cv => Ok(Aspect::Variation),
        other => Err(format!("the {} of the blocks has no interval", statistic_in_words(other))),
    }
}

/// A statistic as people call it.
pub fn statistic_in_words(statistic: Statistic) -> &'static str {
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

/// What is taken of the values of a quantity.
pub fn statistic_of(quantity: &Quantity) -> Option<Statistic> {
    quantity.from.measurand().map(|measurand| measurand.statistic)
}
