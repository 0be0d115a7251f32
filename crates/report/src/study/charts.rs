//! The data of the figures of a study: plain numbers and words, without layout. The script of the
//! page knows how a figure looks.

use crate::document::{PlotKind, Tone};
use crate::study::words::{self, row_label};
use crate::study::{ArmReport, ExperimentReport, MeasuredNumber, RowReport, StudyCell, ViewForm, ViewReport};
use crate::text::shown_name;
use serde::Serialize;
use weigh_model::grouped;

/// One figure.
#[derive(Debug, Serialize)]
pub(crate) struct Chart {
    #[serde(skip)]
    pub kind: PlotKind,
    /// A description of the drawing, for readers who do not see it.
    #[serde(skip)]
    pub form: &'static str,
    /// The subject of the figure, for its caption.
    #[serde(skip)]
    pub title: String,
    /// Title of the vertical axis.
    pub what: String,
    /// Title of the horizontal axis.
    pub across: String,
    /// Whether the places on the horizontal axis are the points of a sweep.
    pub swept: bool,
    /// Whether the values are effects, of which 0 is one: their axis is never logarithmic.
    pub effects: bool,
    /// Places and labels of an axis of words.
    pub ticks: Vec<(f64, String)>,
    pub series: Vec<Series>,
}

/// The marks of a platform.
#[derive(Debug, Serialize)]
pub(crate) struct Series {
    pub arm: usize,
    pub name: String,
    /// The published numbers.
    pub there: Vec<Mark>,
    /// The measured numbers.
    pub here: Vec<Mark>,
}

/// A point with its interval.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Mark {
    pub x: f64,
    pub y: f64,
    pub low: Option<f64>,
    pub high: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub five: Option<[f64; 5]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tone: Option<Tone>,
    pub text: String,
}

impl Mark {
    pub(crate) fn at(x: f64, y: f64, text: String) -> Self {
        Self { x, y, low: None, high: None, five: None, tone: None, text }
    }
}

impl Chart {
    /// A figure without titles.
    pub(crate) fn of(kind: PlotKind, form: &'static str, series: Vec<Series>) -> Self {
        let (title, what, across) = Default::default();
        Self { kind, form, title, what, across, swept: false, effects: false, ticks: Vec::new(), series }
    }

    /// The number of published and of measured points.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let count = |of: fn(&Series) -> &Vec<Mark>| self.series.iter().map(|series| of(series).len()).sum();
        (count(|series| &series.there), count(|series| &series.here))
    }
}

/// The figures of a view; empty for a table.
pub(crate) fn of_view(experiment: &ExperimentReport, view: &ViewReport) -> Vec<Chart> {
    let charts: Vec<Chart> = match view.form {
        ViewForm::Table => Vec::new(),
        ViewForm::Lines => {
            let rows = grouped(&view.rows, |row| &row.quantity).into_iter();
            rows.map(|(_, rows)| lines(experiment, view, &rows)).collect()
        }
        ViewForm::Cdf => vec![distribution(experiment, view)],
        ViewForm::Bars => {
            let rows = grouped(&view.rows, |row| &row.unit).into_iter();
            rows.map(|(_, rows)| bars(experiment, view, &rows)).collect()
        }
        ViewForm::Boxes => view.rows.iter().map(|row| boxes(experiment, view, row)).collect(),
    };
    charts.into_iter().filter(|chart| chart.counts() != (0, 0)).collect()
}

/// The position of a number in a view.
struct Place<'a> {
    /// The index of the row.
    at: usize,
    arm: usize,
    row: &'a RowReport,
    cell: &'a StudyCell,
    /// Whether it is the published number.
    there: bool,
}

/// A series for each arm that has a mark; `mark` makes a mark from a number.
fn series(
    experiment: &ExperimentReport,
    rows: &[&RowReport],
    mark: impl Fn(Place<'_>, Number) -> Option<Mark>,
) -> Vec<Series> {
    let one = |(arm, report): (usize, &ArmReport)| {
        let name = shown_name(&report.label);
        let marks = |there: bool| {
            let whose = if there { "paper" } else { "here" };
            let told = |(at, row): (usize, &&RowReport)| {
                let cell = row.cells.get(arm)?;
                let mut mark = mark(Place { at, arm, row, cell, there }, Number::of(cell, there)?)?;
                mark.text = format!("{name}, {whose}\n{}: {}", shown_name(&row_label(row)), mark.text);
                Some(mark)
            };
            rows.iter().enumerate().filter_map(told).collect::<Vec<_>>()
        };
        let (there, here) = (marks(true), marks(false));
        (!there.is_empty() || !here.is_empty()).then_some(Series { arm, name, there, here })
    };
    experiment.arms.iter().enumerate().filter_map(one).collect()
}

/// The interval around a published number; for a standard deviation, one on either side.
fn spread_there(cell: &StudyCell) -> Option<(f64, f64)> {
    let number = cell.published.as_ref()?;
    let (spread, _) = number.spread.as_ref()?;
    Some((number.value - spread, number.value + spread))
}

/// The middle nine tenths of the blocks, for statistics that lie in the middle of them.
fn spread_here(number: &MeasuredNumber) -> Option<(f64, f64)> {
    let [_, low, _, high, _] = number.five;
    let central = ["mean", "median"].contains(&number.statistic.as_str());
    (central && low <= number.value && number.value <= high).then_some((low, high))
}

/// A published or measured number without a position.
struct Number {
    value: f64,
    /// The ends of its whiskers.
    reach: Option<(f64, f64)>,
    five: Option<[f64; 5]>,
    text: String,
}

impl Number {
    fn of(cell: &StudyCell, there: bool) -> Option<Self> {
        let (at_published, at_measured) = cell.x.unwrap_or_default();
        let (value, reach, five, amount, n, cost) = if there {
            let number = cell.published.as_ref()?;
            let (amount, cost) = (words::published(number, at_published), words::published_overhead(cell));
            (number.value, spread_there(cell), number.five, amount, number.n, cost)
        } else {
            // An axis has numbers of one unit.
            let number = cell.measured.as_ref().filter(|number| number.unit.is_none())?;
            let (amount, cost) = (words::measured(number, at_measured, false), cell.overhead);
            let cost = cost.map(words::overhead);
            (number.value, spread_here(number), Some(number.five), amount, Some(number.n), cost)
        };
        let n = n.map(|n| format!(", n {n}")).unwrap_or_default();
        let cost = cost.map(|cost| format!("\noverhead {}", cost.words())).unwrap_or_default();
        let text = format!("{}{n}{cost}", amount.words());
        value.is_finite().then_some(Self { value, reach, five, text })
    }

    fn at(&self, x: f64, y: f64) -> Mark {
        let (low, high) = self.reach.unzip();
        Mark { low, high, ..Mark::at(x, y, self.text.clone()) }
    }
}

fn lines(experiment: &ExperimentReport, view: &ViewReport, rows: &[&RowReport]) -> Chart {
    let of_quantity = rows.iter().any(|row| row.cells.iter().any(|cell| cell.x.is_some()));
    let across = |place: &Place<'_>| match place.cell.x {
        Some((published, _)) if place.there => published,
        Some((_, measured)) => measured,
        None if of_quantity => None,
        None => place.row.x.or(Some(place.at as f64)),
    };
    let mark = |place: Place<'_>, number: Number| {
        let x = across(&place).filter(|x| x.is_finite())?;
        Some(number.at(x, number.value))
    };
    let label = rows.first().map_or("", |row| row.label.as_str());
    Chart {
        title: shown_name(label),
        what: axis(view.y_label.as_deref().filter(|_| one_quantity(view)), label),
        across: axis(view.x_label.as_deref(), ""),
        swept: !of_quantity,
        ..Chart::of(PlotKind::Lines, "lines, one for each platform", series(experiment, rows, mark))
    }
}

fn one_quantity(view: &ViewReport) -> bool {
    view.rows.windows(2).all(|pair| pair[0].quantity == pair[1].quantity)
}

fn axis(label: Option<&str>, otherwise: &str) -> String {
    shown_name(label.unwrap_or(otherwise))
}

fn bars(experiment: &ExperimentReport, view: &ViewReport, rows: &[&RowReport]) -> Chart {
    let mark = |place: Place<'_>, number: Number| Some(number.at(place.at as f64, number.value));
    let unit = rows.first().map_or("", |row| row.unit.as_str());
    Chart {
        title: shown_name(unit),
        what: axis(view.y_label.as_deref(), unit),
        ticks: rows.iter().enumerate().map(|(at, row)| (at as f64, shown_name(&row_label(row)))).collect(),
        ..Chart::of(PlotKind::Bars, "bars by platform", series(experiment, rows, mark))
    }
}

fn distribution(experiment: &ExperimentReport, view: &ViewReport) -> Chart {
    let rows: Vec<&RowReport> = view.rows.iter().collect();
    // If any row has no percentile, the rows are equally spaced.
    let percentiles: Option<Vec<f64>> = rows.iter().map(|row| row.x.or(row.percentile)).collect();
    let place = |at: usize| percentiles.as_ref().map_or(at as f64, |percentiles| percentiles[at]);
    let mark = |spot: Place<'_>, number: Number| Some(number.at(number.value, place(spot.at)));
    let unit = rows.first().map_or("", |row| row.unit.as_str());
    Chart {
        what: axis(view.y_label.as_deref(), "share at or below"),
        across: axis(view.x_label.as_deref(), unit),
        ticks: rows.iter().enumerate().map(|(at, row)| (place(at), shown_name(&row_label(row)))).collect(),
        ..Chart::of(PlotKind::Cdf, "a distribution for each platform", series(experiment, &rows, mark))
    }
}

fn boxes(experiment: &ExperimentReport, view: &ViewReport, row: &RowReport) -> Chart {
    const FORM: &str = "a box for each platform from the 5 % to the 95 % quantile, its whiskers reaching to the least and the most";
    let mark = |place: Place<'_>, number: Number| {
        let five = number.five.filter(|five| five.iter().all(|value| value.is_finite()))?;
        Some(Mark { five: Some(five), ..Mark::at(five[2], place.arm as f64, number.text) })
    };
    Chart {
        title: shown_name(&row_label(row)),
        across: axis(view.y_label.as_deref(), &row.label),
        ..Chart::of(PlotKind::Boxes, FORM, series(experiment, &[row], mark))
    }
}
