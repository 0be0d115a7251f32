//! Sorts rows into comparisons, for every file format.

use super::Imported;
use std::collections::HashMap;
use weigh_model::{Better, Comparison, MetricSpec, Observation, Series, Unit, WorkloadKey};

/// The columns that are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    Environment,
    Workload,
    Metric,
    Unit,
    Better,
    Value,
    Block,
}

impl Column {
    pub(super) const ALL: [Self; 7] =
        [Self::Environment, Self::Workload, Self::Metric, Self::Unit, Self::Better, Self::Value, Self::Block];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Environment => "environment",
            Self::Workload => "workload",
            Self::Metric => "metric",
            Self::Unit => "unit",
            Self::Better => "better",
            Self::Value => "value",
            Self::Block => "block",
        }
    }

    pub(super) fn is_required(self) -> bool {
        self != Self::Block
    }
}

/// One row as it is written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row<'a> {
    pub(super) environment: &'a str,
    pub(super) workload: &'a str,
    pub(super) metric: &'a str,
    pub(super) unit: &'a str,
    pub(super) better: &'a str,
    pub(super) value: f64,
    pub(super) block: Option<u32>,
    /// Where the row begins in the file, bytes, so that an error found later can name its line.
    pub(super) offset: u64,
}

/// A row that cannot be used. The file format knows the place of its column.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) offset: u64,
    pub(super) column: Column,
    pub(super) message: String,
    pub(super) help: Option<String>,
    /// A row that this one contradicts.
    pub(super) earlier: Option<u64>,
}

/// The rows read so far. Each text is kept once. A row costs a few look-ups and no allocation of
/// its own.
#[derive(Debug, Default)]
pub(super) struct Table {
    environments: Names,
    workloads: Names,
    metrics: Names,
    comparisons: Vec<Draft>,
    by_workload_and_metric: HashMap<(u32, u32), usize>,
    /// Whether rows have a block, and the first row, which decides it.
    paired: Option<(bool, u64)>,
}

#[derive(Debug)]
struct Draft {
    workload: u32,
    metric: u32,
    better: Better,
    base: Unit,
    first_row: u64,
    /// Units seen so far, as written, with their factors.
    units: Vec<(String, f64)>,
    series: Vec<DraftSeries>,
    /// Position in `series` by environment, or `NONE` if the environment has no series.
    by_environment: Vec<u32>,
}

const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct DraftSeries {
    environment: u32,
    observations: Vec<(Observation, u64)>,
}

/// Texts and their numbers.
#[derive(Debug, Default)]
struct Names {
    texts: Vec<String>,
    by_text: HashMap<String, u32>,
    last: u32,
}

impl Names {
    fn text(&self, number: u32) -> &str {
        &self.texts[number as usize]
    }

    fn number_of(&mut self, text: &str) -> u32 {
        // Rows of one cell usually follow each other.
        if self.texts.get(self.last as usize).is_some_and(|last| last == text) {
            return self.last;
        }
        self.last = match self.by_text.get(text) {
            Some(number) => *number,
            None => {
                let number = self.texts.len() as u32;
                self.texts.push(text.into());
                self.by_text.insert(text.into(), number);
                number
            }
        };
        self.last
    }
}

impl Table {
    pub(super) fn add(&mut self, row: &Row<'_>) -> Result<(), Problem> {
        self.check_block(row)?;
        for (column, text) in [
            (Column::Environment, row.environment),
            (Column::Workload, row.workload),
            (Column::Metric, row.metric),
            (Column::Unit, row.unit),
        ] {
            if text.is_empty() {
                let help = (column == Column::Unit).then_some("write `1` for a number without a unit");
                return Err(row.problem(column, format!("the {} is empty", column.name()), help));
            }
        }
        let better = match row.better {
            "lower" => Better::Lower,
            "higher" => Better::Higher,
            other => {
                return Err(row.problem(
                    Column::Better,
                    format!("`{other}` is not a direction"),
                    Some("write `lower` where less is better (times) and `higher` where more is better (rates)"),
                ));
            }
        };
        let key = (self.workloads.number_of(row.workload), self.metrics.number_of(row.metric));
        let environment = self.environments.number_of(row.environment);
        let index = *self.by_workload_and_metric.entry(key).or_insert_with(|| {
            self.comparisons.push(Draft::new(key, row, better));
            self.comparisons.len() - 1
        });
        let draft = &mut self.comparisons[index];
        if draft.better != better {
            let message = format!(
                "`{}` of `{}` is better `{}` here and was the opposite before",
                row.metric, row.workload, row.better
            );
            let problem = row.problem(Column::Better, message, Some("one metric has one direction"));
            return Err(Problem { earlier: Some(draft.first_row), ..problem });
        }
        let value = row.value * draft.factor(row)?;
        if !(value.is_finite() && value > 0.0) {
            return Err(row.problem(
                Column::Value,
                format!("{} is not a positive number", row.value),
                Some("overheads are ratios, so every value must be above 0; leave out the rows of failed trials"),
            ));
        }
        let observation = Observation { block: row.block, value };
        draft.observations_of(environment).push((observation, row.offset));
        Ok(())
    }

    fn check_block(&mut self, row: &Row<'_>) -> Result<(), Problem> {
        let (paired, first) = *self.paired.get_or_insert((row.block.is_some(), row.offset));
        if paired == row.block.is_some() {
            return Ok(());
        }
        let message = if paired {
            "this row has no block, earlier rows have one"
        } else {
            "this row has a block, earlier rows have none"
        };
        let help = "give a block to every row (trials are paired) or to none (they are not)";
        Err(Problem { earlier: Some(first), ..row.problem(Column::Block, message.into(), Some(help)) })
    }

    /// Ends the table: looks for repeated rows and arranges the rest.
    pub(super) fn finish(mut self, ignored: Vec<String>) -> Result<Imported, Problem> {
        for draft in &mut self.comparisons {
            for series in &mut draft.series {
                // Stable: rows of one block stay in the order of the file.
                series.observations.sort_by_key(|(observation, _)| observation.block);
            }
        }
        self.check_twice()?;
        let comparisons = self.comparisons.iter().map(|draft| self.comparison(draft)).collect();
        Ok(Imported { comparisons, ignored })
    }

    /// Reports the first line in the file that repeats an earlier one.
    fn check_twice(&self) -> Result<(), Problem> {
        let mut found: Option<Problem> = None;
        for draft in &self.comparisons {
            for series in &draft.series {
                for pair in series.observations.windows(2) {
                    let [(first, earlier), (second, offset)] = pair else { continue };
                    let Some(block) = second.block.filter(|_| first.block == second.block) else { continue };
                    if found.as_ref().is_some_and(|found| found.offset < *offset) {
                        continue;
                    }
                    found = Some(Problem {
                        offset: *offset,
                        column: Column::Block,
                        message: format!(
                            "block {block} of `{}` in `{}` has a second value of `{}`",
                            self.workloads.text(draft.workload),
                            self.environments.text(series.environment),
                            self.metrics.text(draft.metric),
                        ),
                        help: Some(
                            "a block holds one number per environment; give the median of its iterations"
                                .into(),
                        ),
                        earlier: Some(*earlier),
                    });
                }
            }
        }
        found.map_or(Ok(()), Err)
    }

    fn comparison(&self, draft: &Draft) -> Comparison {
        let series = draft.series.iter().map(|series| {
            let observations = series.observations.iter().map(|(observation, _)| *observation);
            Series::of(self.environments.text(series.environment), observations.collect())
        });
        let workload = self.workloads.text(draft.workload);
        Comparison {
            workload: workload.into(),
            key: WorkloadKey::named(workload),
            metric: MetricSpec {
                name: self.metrics.text(draft.metric).into(),
                unit: draft.base.clone(),
                better: draft.better,
                primary: true,
            },
            series: series.collect(),
        }
    }
}

impl Draft {
    fn new((workload, metric): (u32, u32), row: &Row<'_>, better: Better) -> Self {
        let (base, factor) = Unit::normalise(row.unit);
        Self {
            workload,
            metric,
            better,
            base,
            first_row: row.offset,
            units: vec![(row.unit.into(), factor)],
            series: Vec::new(),
            by_environment: Vec::new(),
        }
    }

    /// The factor from the row's unit to the base unit of the metric.
    fn factor(&mut self, row: &Row<'_>) -> Result<f64, Problem> {
        if let Some((_, factor)) = self.units.iter().find(|(unit, _)| unit == row.unit) {
            return Ok(*factor);
        }
        let (base, factor) = Unit::normalise(row.unit);
        if base != self.base {
            let message = format!(
                "`{}` of `{}` is in `{}` here and was in `{}` before, which does not convert",
                row.metric, row.workload, row.unit, self.units[0].0
            );
            let help = "give a metric of another kind another name";
            let problem = row.problem(Column::Unit, message, Some(help));
            return Err(Problem { earlier: Some(self.first_row), ..problem });
        }
        self.units.push((row.unit.into(), factor));
        Ok(factor)
    }

    fn observations_of(&mut self, environment: u32) -> &mut Vec<(Observation, u64)> {
        let at = environment as usize;
        if self.by_environment.len() <= at {
            self.by_environment.resize(at + 1, NONE);
        }
        if self.by_environment[at] == NONE {
            self.by_environment[at] = self.series.len() as u32;
            self.series.push(DraftSeries { environment, observations: Vec::new() });
        }
        &mut self.series[self.by_environment[at] as usize].observations
    }
}

impl Problem {
    /// Returns the message, with the line of the earlier row if there is one, as `line_of` finds
    /// it.
    pub(super) fn message(&self, line_of: impl FnOnce(u64) -> u64) -> String {
        match self.earlier {
            Some(earlier) => format!("{} (line {})", self.message, line_of(earlier)),
            None => self.message.clone(),
        }
    }
}

impl Row<'_> {
    fn problem(&self, column: Column, message: String, help: Option<&str>) -> Problem {
        Problem { offset: self.offset, column, message, help: help.map(Into::into), earlier: None }
    }
}
