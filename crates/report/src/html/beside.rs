//! What is drawn of guests among others, and of values over time.

use super::plots::{Names, rounded};
use crate::quantity::Scale;
use crate::{Report, among};
use serde::Serialize;
use weigh_stats::{Course, Interval};

/// Guests; estimate, low, high.
type Step = (u32, [f64; 3]);

/// Something against the number of guests.
#[derive(Debug, Serialize)]
pub(crate) struct AmongPlot {
    /// Title of the table that it is beside.
    #[serde(skip)]
    pub title: String,
    /// What is on the vertical axis.
    what: String,
    /// What the dashed line is, where there is one.
    dashed: Option<String>,
    /// By environment.
    rows: Vec<(usize, Vec<Step>)>,
    line: Vec<(u32, f64)>,
}

/// What kinds of neighbours cost beyond idle ones.
#[derive(Debug, Serialize)]
pub(crate) struct IsolationPlot {
    #[serde(skip)]
    pub title: String,
    kinds: Vec<String>,
    /// Environment, then for each kind the loss with its interval, as fractions.
    rows: Vec<(usize, Vec<Option<[f64; 3]>>)>,
}

/// A course over time.
#[derive(Debug, Serialize)]
pub(crate) struct CoursePlot {
    #[serde(skip)]
    pub title: String,
    pub what: String,
    unit: String,
    rows: Vec<CourseRow>,
}

#[derive(Debug, Serialize)]
struct CourseRow {
    #[serde(rename = "e")]
    environment: usize,
    /// Least, 5 %, median, 95 %, most.
    five: [f64; 5],
    hours: Vec<f64>,
    values: Vec<f64>,
    /// Hours of the changes.
    changes: Vec<f64>,
}

fn three(estimate: f64, low: f64, high: f64) -> [f64; 3] {
    [estimate, low, high].map(rounded)
}

/// What is left of the speed alone: the inverse of the cost.
fn left(loss: Interval) -> [f64; 3] {
    let of = |cost: f64| 1.0 / (1.0 + cost);
    three(of(loss.estimate), of(loss.high), of(loss.low))
}

/// Losses, then sums.
pub(super) fn among(report: &Report, names: &Names) -> Vec<AmongPlot> {
    let mut plots: Vec<AmongPlot> = Vec::new();
    for one in &report.degradations {
        let title = among::loss_title(one);
        let Some(environment) = names.number(&one.environment) else { continue };
        let points = one.steps.iter().filter_map(|step| Some((step.guests, left(step.loss?)))).collect();
        let line: Vec<(u32, f64)> =
            one.steps.iter().filter_map(|step| Some((step.guests, rounded(step.fair?)))).collect();
        let at = plots.iter().position(|plot| plot.title == title).unwrap_or_else(|| {
            plots.push(AmongPlot {
                title,
                what: "left of the speed alone".into(),
                dashed: None,
                rows: Vec::new(),
                line: Vec::new(),
            });
            plots.len() - 1
        });
        plots[at].rows.push((environment, points));
        if line.len() > plots[at].line.len() {
            plots[at].line = line;
            plots[at].dashed = Some("an equal share of the CPUs".into());
        }
    }
    for one in &report.sums {
        let title = among::sum_title(one);
        let Some(environment) = names.number(&one.environment) else { continue };
        let shown = |scale: Interval| three(scale.estimate, scale.low, scale.high);
        let points = one.steps.iter().filter_map(|step| Some((step.guests, shown(step.scale?)))).collect();
        match plots.iter_mut().find(|plot| plot.title == title) {
            Some(plot) => plot.rows.push((environment, points)),
            None => plots.push(AmongPlot {
                title,
                what: "sum over one guest alone".into(),
                dashed: None,
                rows: vec![(environment, points)],
                line: Vec::new(),
            }),
        }
    }
    plots.retain(|plot| plot.rows.iter().any(|(_, points)| !points.is_empty()));
    plots
}

pub(super) fn isolations(report: &Report, names: &Names) -> Vec<IsolationPlot> {
    let mut plots: Vec<IsolationPlot> = Vec::new();
    for one in &report.isolations {
        let (Some(environment), Some(loss)) = (names.number(&one.environment), one.loss) else { continue };
        let title = among::isolation_title(one);
        let at = plots.iter().position(|plot| plot.title == title).unwrap_or_else(|| {
            plots.push(IsolationPlot { title, kinds: Vec::new(), rows: Vec::new() });
            plots.len() - 1
        });
        let plot = &mut plots[at];
        let kind = one.neighbours.to_string();
        if !plot.kinds.contains(&kind) {
            plot.kinds.push(kind.clone());
        }
        let column = plot.kinds.iter().position(|known| *known == kind).unwrap_or_default();
        let row = plot.rows.iter().position(|(e, _)| *e == environment).unwrap_or_else(|| {
            plot.rows.push((environment, Vec::new()));
            plot.rows.len() - 1
        });
        let cells = &mut plot.rows[row].1;
        cells.resize(cells.len().max(column + 1), None);
        cells[column] = Some(three(loss.estimate, loss.low, loss.high));
    }
    plots
}

pub(super) fn courses(report: &Report, names: &Names) -> Vec<CoursePlot> {
    let mut plots: Vec<(CoursePlot, Scale)> = Vec::new();
    for course in &report.courses {
        let title = crate::course::title(course);
        let Some(environment) = names.number(&course.environment) else { continue };
        let at = plots.iter().position(|(plot, _)| plot.title == title).unwrap_or_else(|| {
            let scale = Scale::new(&course.metric.unit, [course.median], None);
            let what = format!("{} {}", course.workload, course.metric.name);
            let unit = scale.symbol().to_string();
            plots.push((CoursePlot { title, what, unit, rows: Vec::new() }, scale));
            plots.len() - 1
        });
        let (plot, scale) = &mut plots[at];
        plot.rows.push(row(course, environment, scale));
    }
    plots.into_iter().map(|(plot, _)| plot).collect()
}

fn row(course: &Course, environment: usize, scale: &Scale) -> CourseRow {
    let shown = |x: f64| rounded(scale.shown(x));
    CourseRow {
        environment,
        five: [course.min, course.p05, course.median, course.p95, course.max].map(shown),
        hours: course.values.iter().map(|moment| rounded(moment.hours)).collect(),
        values: course.values.iter().map(|moment| shown(moment.value)).collect(),
        changes: course.changes.iter().flatten().map(|change| rounded(change.hours)).collect(),
    }
}
