//! What the plots are drawn from: bare numbers, each once, and never a layout. The script of the
//! page knows how a plot looks.

use super::beside::{self, AmongPlot, CoursePlot, IsolationPlot};
use super::sweeps::{self, Sweep};
use super::waterfall::{self, Waterfall};
use crate::document::{Document, Group, Row, Table, Tone};
use crate::quantity::Scale;
use crate::text::shown_name;
use crate::{Report, notes, rows};
use serde::Serialize;
use std::collections::BTreeMap;
use weigh_model::Unit;
use weigh_stats::{Cell, ChargeSummary, LatencySummary};

/// Digits of a number in a plot: more than a screen has pixels.
const DIGITS: i32 = 6;

/// Everything that the plots need.
#[derive(Debug, Serialize)]
pub(crate) struct Plots {
    /// Margin of equivalence, as a fraction.
    margin: f64,
    /// Whether the effects are changes between two runs.
    sequential: bool,
    /// What rows name by number.
    environments: Vec<String>,
    pub tables: Vec<TablePlot>,
    /// Void units and disturbed trials, by workload.
    marks: BTreeMap<String, Marks>,
    pub latencies: Vec<LatencyPlot>,
    pub charges: Vec<ChargePlot>,
    pub sweeps: Vec<Sweep>,
    pub starts: Vec<Waterfall>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub among: Vec<AmongPlot>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub isolations: Vec<IsolationPlot>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub courses: Vec<CoursePlot>,
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

/// One environment of it.
#[derive(Debug, Serialize)]
pub(crate) struct RowPlot {
    /// Which of the environments.
    #[serde(rename = "e")]
    environment: usize,
    n: u32,
    /// Estimate, low, high.
    #[serde(skip_serializing_if = "Option::is_none")]
    effect: Option<[Option<f64>; 3]>,
    tone: Tone,
    verdict: String,
    /// One number per block, in the unit of the table; none where two runs are compared.
    pub values: Vec<f64>,
    /// Their blocks, where they are not 0, 1, 2...
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<u32>,
}

#[derive(Debug, Default, Serialize)]
struct Marks {
    /// Block and cause.
    voids: Vec<(u32, &'static str)>,
    /// Blocks with noise, by environment.
    noise: BTreeMap<usize, Vec<u32>>,
}

/// The latencies of a workload.
#[derive(Debug, Serialize)]
pub(crate) struct LatencyPlot {
    pub workload: String,
    pub name: String,
    pub closed: bool,
    pub rows: Vec<LatencyRow>,
}

/// In one environment.
#[derive(Debug, Serialize)]
pub(crate) struct LatencyRow {
    #[serde(rename = "e")]
    environment: usize,
    pub n: u64,
    /// Share that is slower, and seconds.
    curve: Vec<(f64, f64)>,
    #[serde(skip)]
    pub summary: LatencySummary,
}

/// CPU time per operation of a workload.
#[derive(Debug, Serialize)]
pub(crate) struct ChargePlot {
    pub workload: String,
    operation: String,
    unit: String,
    parts: Vec<String>,
    /// Environment, then the time of each part.
    rows: Vec<(usize, Vec<f64>)>,
    /// The table that it is beside.
    table: Option<usize>,
}

impl Plots {
    /// How many effects there are.
    pub(crate) fn effects(&self) -> usize {
        self.tables.iter().flat_map(|table| &table.rows).filter(|row| row.effect.is_some()).count()
    }
}

/// A number with as many digits as a plot can show.
pub(crate) fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let places = DIGITS - 1 - value.abs().log10().floor() as i32;
    let factor = 10f64.powi(places.clamp(0, 22));
    (value * factor).round() / factor
}

/// Names to numbers.
pub(crate) struct Names(Vec<String>);

impl Names {
    fn new(report: &Report) -> Self {
        let mut names = vec![report.analysis.baseline.clone()];
        for cell in &report.analysis.cells {
            if !names.contains(&cell.environment) {
                names.push(cell.environment.clone());
            }
        }
        Self(names)
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

pub(crate) fn build(report: &Report, document: &Document) -> Plots {
    let names = Names::new(report);
    let tables: Vec<TablePlot> =
        document.groups.iter().flat_map(Group::tables).map(|table| of_table(table, &names)).collect();
    Plots {
        margin: report.analysis.margin,
        sequential: report.compared.is_some(),
        marks: marks(report, &names),
        latencies: latencies(report, &names),
        charges: charges(report, &names, document),
        sweeps: sweeps::find(document, &names),
        starts: waterfall::find(document, &names),
        among: beside::among(report, &names),
        isolations: beside::isolations(report, &names),
        courses: beside::courses(report, &names),
        environments: names.0.iter().map(|name| shown_name(name)).collect(),
        tables,
    }
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
    // Of two runs the cell has the values of one.
    let own: &[weigh_model::Observation] = if cell.runs.is_some() { &[] } else { &cell.values };
    let blocks: Vec<u32> = own.iter().filter_map(|value| value.block).collect();
    let plain = (0..).zip(&blocks).all(|(at, block)| at == *block);
    let finite = |x: f64| x.is_finite().then(|| rounded(x));
    Some(RowPlot {
        environment: names.number(&cell.environment)?,
        n: row.n,
        effect: row.bar.map(|bar| [bar.estimate, bar.low, bar.high].map(finite)),
        tone: row.tone,
        verdict: row.verdict.clone(),
        values: own.iter().map(|value| rounded(scale.shown(value.value))).collect(),
        blocks: if plain { Vec::new() } else { blocks },
    })
}

fn marks(report: &Report, names: &Names) -> BTreeMap<String, Marks> {
    let mut marks: BTreeMap<String, Marks> = BTreeMap::new();
    for void in &report.voids {
        let (cause, _) = notes::cause_words(void.cause);
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
    let mut plots: Vec<LatencyPlot> = Vec::new();
    for summary in &report.circumstances.latencies {
        let Some(environment) = names.number(&summary.environment) else { continue };
        let row = LatencyRow {
            environment,
            n: summary.samples,
            curve: summary.curve.iter().map(|(slower, s)| (rounded(*slower), rounded(*s))).collect(),
            summary: summary.clone(),
        };
        let (workload, name) =
            (shown_name(&summary.workload), shown_name(summary.histogram.trim_start_matches('/')));
        match plots.iter_mut().find(|plot| plot.workload == workload && plot.name == name) {
            Some(plot) => plot.rows.push(row),
            None => {
                let closed = rows::is_closed(report, &summary.workload);
                plots.push(LatencyPlot { workload, name, closed, rows: vec![row] });
            }
        }
    }
    plots
}

fn charges(report: &Report, names: &Names, document: &Document) -> Vec<ChargePlot> {
    let all = &report.circumstances.charges;
    let mut tables = 0;
    let mut plots = Vec::new();
    for group in &document.groups {
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
            workload: shown_name(&group.workload),
            operation: table.operation.clone(),
            unit: scale.symbol().into(),
            parts: table.parts.clone(),
            rows: of.iter().filter_map(row).collect(),
            table: first,
        });
    }
    plots
}

/// The median of a cell.
pub(crate) fn median(cell: &Cell) -> Option<f64> {
    cell.summary.map(|summary| summary.median)
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
