//! The data of the plots: plain numbers, each stored once, without layout. The script of the page
//! knows how a plot looks.

mod machines;
pub(crate) mod numbers;
pub(crate) mod sweeps;
pub(crate) mod waterfall;

use crate::document::Tone;
use crate::quantity::Scale;
use crate::results::{Group, Row, Table};
use crate::study::charts::Chart;
use crate::text::shown_name;
use crate::{Report, rows, spread, voids};
use serde::Serialize;
use std::collections::BTreeMap;
use sweeps::Sweep;
use waterfall::Waterfall;
use weigh_model::{Unit, distinct, grouped};
use weigh_stats::{ChargeSummary, Course, Interval, LatencySummary};

/// Significant digits of a number in a plot: finer than the pixels of a screen.
const DIGITS: i32 = 6;

/// Everything that the plots need.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Plots {
    /// Margin of equivalence, as a fraction.
    margin: f64,
    /// Whether the effects are changes between two runs.
    sequential: bool,
    /// The environments, which rows refer to by index.
    environments: Vec<String>,
    pub tables: Vec<TablePlot>,
    /// Void units and disturbed trials, by workload.
    marks: BTreeMap<String, Marks>,
    pub latencies: Vec<LatencyPlot>,
    pub charges: Vec<ChargePlot>,
    pub sweeps: Vec<Sweep>,
    pub starts: Vec<Waterfall>,
    #[serde(rename = "among", skip_serializing_if = "Vec::is_empty")]
    pub neighbours: Vec<NeighbourPlot>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub isolations: Vec<IsolationPlot>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub courses: Vec<CoursePlot>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<SlicePlot>,
    /// Figures of studies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub charts: Vec<Chart>,
}

/// One metric of one workload.
#[derive(Debug, Serialize)]
pub(crate) struct TablePlot {
    pub workload: String,
    pub metric: String,
    pub unit: String,
    direction: String,
    primary: bool,
    pub rows: Vec<RowPlot>,
}

/// One environment of a [`TablePlot`].
#[derive(Debug, Serialize)]
pub(crate) struct RowPlot {
    /// The index of the environment.
    #[serde(rename = "e")]
    environment: usize,
    n: u32,
    /// Estimate, low, high.
    #[serde(skip_serializing_if = "Option::is_none")]
    effect: Option<[Option<f64>; 3]>,
    tone: Tone,
    verdict: String,
    /// One number per block, in the unit of the table; empty if two runs are compared.
    pub values: Vec<f64>,
    /// The blocks of the values, if they are not 0, 1, 2...
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<u32>,
}

#[derive(Debug, Default, Serialize)]
struct Marks {
    /// Void units, as block and cause.
    voids: Vec<(u32, &'static str)>,
    /// Blocks with noise, by environment.
    noise: BTreeMap<usize, Vec<u32>>,
}

/// The latencies of a workload.
#[derive(Debug, Serialize)]
pub(crate) struct LatencyPlot {
    #[serde(skip)]
    pub workload: String,
    #[serde(rename = "workload")]
    pub shown: String,
    pub name: String,
    pub closed: bool,
    pub rows: Vec<LatencyRow>,
}

/// The latencies of a workload in one environment.
#[derive(Debug, Serialize)]
pub(crate) struct LatencyRow {
    #[serde(rename = "e")]
    environment: usize,
    pub n: u64,
    /// The curve, as pairs of the share of requests that are slower, and seconds.
    curve: Vec<(f64, f64)>,
    #[serde(skip)]
    pub summary: LatencySummary,
}

/// CPU time per operation of a workload.
#[derive(Debug, Serialize)]
pub(crate) struct ChargePlot {
    #[serde(skip)]
    pub workload: String,
    #[serde(rename = "workload")]
    pub shown: String,
    operation: String,
    unit: String,
    parts: Vec<String>,
    /// The environment, then the time of each part.
    rows: Vec<(usize, Vec<f64>)>,
    /// The index of the table that it belongs to.
    table: Option<usize>,
}

/// The number of guests; then estimate, low, high.
pub(crate) type Step = (u32, [f64; 3]);

/// A quantity against the number of guests.
#[derive(Debug, Serialize)]
pub(crate) struct NeighbourPlot {
    /// The label of the vertical axis.
    what: &'static str,
    /// The meaning of the dashed line, if there is one.
    dashed: Option<&'static str>,
    /// The steps, by environment.
    rows: Vec<(usize, Vec<Step>)>,
    line: Vec<(u32, f64)>,
}

impl NeighbourPlot {
    pub(crate) fn new(what: &'static str, rows: Vec<(usize, Vec<Step>)>) -> Self {
        Self { what, dashed: None, rows, line: Vec::new() }
    }

    /// Adds a dashed line, unless it is empty.
    pub(crate) fn beside(self, what: &'static str, line: Vec<(u32, f64)>) -> Self {
        let line: Vec<(u32, f64)> = line.into_iter().map(|(guests, y)| (guests, rounded(y))).collect();
        Self { dashed: (!line.is_empty()).then_some(what), line, ..self }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.iter().all(|(_, steps)| steps.is_empty())
    }
}

/// The cost of each kind of neighbours beyond idle ones, or over running alone where idle ones were
/// not measured.
#[derive(Debug, Serialize)]
pub(crate) struct IsolationPlot {
    /// The label of the vertical axis.
    pub what: &'static str,
    pub kinds: Vec<String>,
    /// The environment, then for each kind the loss with its interval, as fractions.
    pub rows: Vec<(usize, Vec<Option<[f64; 3]>>)>,
}

/// A course over time.
#[derive(Debug, Serialize)]
pub(crate) struct CoursePlot {
    pub what: String,
    pub unit: String,
    pub rows: Vec<CourseRow>,
}

#[derive(Debug, Serialize)]
pub(crate) struct CourseRow {
    #[serde(rename = "e")]
    environment: usize,
    /// Minimum, 5 %, median, 95 %, maximum.
    five: [f64; 5],
    hours: Vec<f64>,
    values: Vec<f64>,
    /// The times of the changes, hours.
    changes: Vec<f64>,
}

impl CourseRow {
    pub(crate) fn new(course: &Course, environment: usize, scale: &Scale) -> Self {
        let shown = |x: f64| rounded(scale.shown(x));
        Self {
            environment,
            five: [course.min, course.p05, course.median, course.p95, course.max].map(shown),
            hours: course.values.iter().map(|moment| rounded(moment.hours)).collect(),
            values: course.values.iter().map(|moment| shown(moment.value)).collect(),
            changes: course.changes.iter().flatten().map(|change| rounded(change.hours)).collect(),
        }
    }
}

/// One unit measured in slices.
#[derive(Debug, Serialize)]
pub(crate) struct SlicePlot {
    /// The beginning of each window, and the end of the last, seconds.
    pub windows: Vec<f64>,
    pub rows: Vec<SliceRow>,
}

#[derive(Debug, Serialize)]
pub(crate) struct SliceRow {
    #[serde(rename = "e")]
    pub environment: usize,
    /// Cost as a share of the baseline's mean, window by window.
    pub costs: Vec<f64>,
    /// The ratio to the baseline, window by window; empty for the baseline.
    pub ratios: Vec<f64>,
}

/// An interval as a plot draws it.
pub(crate) fn three(interval: Interval) -> [f64; 3] {
    [interval.estimate, interval.low, interval.high].map(rounded)
}

impl Plots {
    /// The plots of results. Other plots are added where their tables are made.
    pub(crate) fn of_results(report: &Report, groups: &[Group], names: &Names) -> Self {
        let tables: Vec<TablePlot> =
            groups.iter().flat_map(Group::tables).map(|table| of_table(table, names)).collect();
        Self {
            margin: report.analysis.margin,
            sequential: report.compared.is_some(),
            marks: marks(report, names),
            latencies: latencies(report, names),
            charges: charges(report, names, groups),
            sweeps: sweeps::find(groups, names),
            starts: waterfall::find(groups, names),
            slices: spread::plots(report, names),
            environments: names.0.iter().map(|name| shown_name(name)).collect(),
            tables,
            ..Self::default()
        }
    }

    /// How many effects there are.
    pub(crate) fn effects(&self) -> usize {
        self.tables.iter().flat_map(|table| &table.rows).filter(|row| row.effect.is_some()).count()
    }
}

/// A number rounded to as many digits as a plot can show.
pub(crate) fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let places = DIGITS - 1 - value.abs().log10().floor() as i32;
    let factor = 10f64.powi(places.clamp(0, 22));
    (value * factor).round() / factor
}

/// The environments, which rows refer to by index.
pub(crate) struct Names(Vec<String>);

impl Names {
    pub(crate) fn new(report: &Report) -> Self {
        let measured = report.analysis.cells.iter().map(|cell| &cell.environment);
        Self(distinct([&report.analysis.baseline].into_iter().chain(measured)).into_iter().cloned().collect())
    }

    pub(crate) fn number(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|known| known == name)
    }
}

/// The scale of the absolute values of a table.
pub(crate) fn scale(table: &Table) -> Scale {
    let medians = table.rows.iter().filter_map(|row| Some(row.cell.summary?.median));
    let unit = table.rows.first().map_or_else(|| Unit::normalise("1").0, |row| row.cell.metric.unit.clone());
    Scale::new(&unit, medians, None)
}

fn of_table(table: &Table, names: &Names) -> TablePlot {
    let scale = scale(table);
    TablePlot {
        workload: shown_name(&table.workload),
        metric: shown_name(&table.metric),
        unit: scale.symbol().into(),
        direction: table.direction.clone(),
        primary: table.primary,
        rows: table.rows.iter().filter_map(|row| of_row(row, names, &scale)).collect(),
    }
}

fn of_row(row: &Row, names: &Names, scale: &Scale) -> Option<RowPlot> {
    let cell = &row.cell;
    // For two runs the cell has the values of only one.
    let own: &[weigh_model::Observation] = if cell.runs.is_some() { &[] } else { &cell.values };
    let blocks: Vec<u32> = own.iter().filter_map(|value| value.block).collect();
    let plain = (0..).zip(&blocks).all(|(at, block)| at == *block);
    let finite = |x: f64| x.is_finite().then(|| rounded(x));
    Some(RowPlot {
        environment: names.number(&cell.environment)?,
        n: row.n,
        effect: row.cell.overhead.map(|bar| [bar.estimate, bar.low, bar.high].map(finite)),
        tone: row.tone,
        verdict: row.verdict.clone(),
        values: own.iter().map(|value| rounded(scale.shown(value.value))).collect(),
        blocks: if plain { Vec::new() } else { blocks },
    })
}

fn marks(report: &Report, names: &Names) -> BTreeMap<String, Marks> {
    let mut marks: BTreeMap<String, Marks> = BTreeMap::new();
    for void in &report.voids {
        let (cause, _) = voids::cause_words(void.cause);
        marks.entry(shown_name(&void.workload)).or_default().voids.push((void.block, cause));
    }
    for trial in &report.circumstances.disturbed {
        let Some(environment) = names.number(&trial.environment) else { continue };
        let of = marks.entry(shown_name(&trial.workload)).or_default();
        of.noise.entry(environment).or_default().push(trial.block);
    }
    marks
}

fn latencies(report: &Report, names: &Names) -> Vec<LatencyPlot> {
    let histogram = |summary: &&LatencySummary| (summary.workload.clone(), summary.histogram.clone());
    let row = |summary: &LatencySummary| {
        Some(LatencyRow {
            environment: names.number(&summary.environment)?,
            n: summary.samples,
            curve: summary.curve.iter().map(|(slower, s)| (rounded(*slower), rounded(*s))).collect(),
            summary: summary.clone(),
        })
    };
    let plot = |((workload, histogram), summaries): ((String, String), Vec<&LatencySummary>)| LatencyPlot {
        closed: rows::is_closed(report, &workload),
        rows: summaries.into_iter().filter_map(row).collect(),
        name: shown_name(histogram.trim_start_matches('/')),
        shown: shown_name(&workload),
        workload,
    };
    grouped(&report.circumstances.latencies, histogram).into_iter().map(plot).collect()
}

fn charges(report: &Report, names: &Names, groups: &[Group]) -> Vec<ChargePlot> {
    let all = &report.circumstances.charges;
    let mut tables = 0;
    let mut plots = Vec::new();
    for group in groups {
        let of: Vec<&ChargeSummary> = all.iter().filter(|charge| charge.workload == group.workload).collect();
        let first = (!group.judged.is_empty()).then_some(tables);
        tables += group.tables().count();
        let Some(table) = &group.cpu else { continue };
        let scale = Scale::new(&Unit::normalise("s").0, of.iter().map(|c| c.cpu_ns_per_op / 1e9), None);
        let part = |charge: &ChargeSummary, name: &String| {
            charge.parts_ns_per_op.get(name).map_or(0.0, |ns| rounded(scale.shown(ns / 1e9)))
        };
        let row = |charge: &&ChargeSummary| {
            let number = names.number(&charge.environment)?;
            Some((number, table.parts.iter().map(|name| part(charge, name)).collect()))
        };
        plots.push(ChargePlot {
            shown: shown_name(&group.workload),
            workload: group.workload.clone(),
            operation: shown_name(&table.operation),
            unit: scale.symbol().into(),
            parts: table.parts.iter().map(|name| shown_name(name)).collect(),
            rows: of.iter().filter_map(row).collect(),
            table: first,
        });
    }
    plots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_six_digits_and_their_size() {
        assert_eq!(rounded(191.234_567), 191.235);
        assert_eq!(rounded(0.000_123_456_78), 0.000_123_457);
        assert_eq!(rounded(-12_345_678.9), -12_345_679.0);
        assert_eq!(rounded(0.0), 0.0);
        assert_eq!(serde_json::to_string(&rounded(1.0 / 3.0)).unwrap(), "0.333333");
        assert!(rounded(f64::NAN).is_nan() && rounded(f64::MAX).is_finite());
    }
}
