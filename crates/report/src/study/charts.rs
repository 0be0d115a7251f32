//! What the figures of a study are drawn from: bare numbers and words, and never a layout. The
//! script of the page knows how a figure looks.

use crate::document::Tone;
use crate::group::grouped;
use crate::study::words::{self, row_label};
use crate::study::{ArmReport, ExperimentReport, MeasuredNumber, RowReport, StudyCell, ViewForm, ViewReport};
use crate::text::shown_name;
use serde::Serialize;

/// Kinds of figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Lines,
    Cdf,
    Bars,
    Boxes,
    Costs,
}

/// One figure.
#[derive(Debug, Serialize)]
pub(crate) struct Chart {
    #[serde(skip)]
    pub kind: Kind,
    /// Of what it is, for its caption.
    #[serde(skip)]
    pub title: String,
    /// Title of the vertical axis.
    pub what: String,
    /// Title of the horizontal axis.
    pub across: String,
    /// Whether the places across are the points of a sweep.
    pub swept: bool,
    /// Places of an axis of words.
    pub ticks: Vec<(f64, String)>,
    pub series: Vec<Series>,
}

/// A platform.
#[derive(Debug, Serialize)]
pub(crate) struct Series {
    pub arm: usize,
    pub name: String,
    /// What was published.
    pub there: Vec<Mark>,
    /// What was measured.
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
    /// How many points are published and measured.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let count = |of: fn(&Series) -> &Vec<Mark>| self.series.iter().map(|series| of(series).len()).sum();
        (count(|series| &series.there), count(|series| &series.here))
    }
}

/// The figures of a view; none of a table.
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

/// A series for each arm that has a mark; `there` and `here` give those of a row's cell.
fn series(
    experiment: &ExperimentReport,
    rows: &[&RowReport],
    there: impl Fn(usize, &RowReport, &StudyCell) -> Option<Mark>,
    here: impl Fn(usize, &RowReport, &StudyCell) -> Option<Mark>,
) -> Vec<Series> {
    let one = |(arm, report): (usize, &ArmReport)| {
        let cells =
            || rows.iter().enumerate().filter_map(move |(at, row)| Some((at, *row, row.cells.get(arm)?)));
        let told = |mut mark: Mark, row: &RowReport, whose: &str| {
            let place = shown_name(&row_label(row));
            mark.text = format!("{}, {whose}\n{place}: {}", shown_name(&report.label), mark.text);
            mark
        };
        let series = Series {
            arm,
            name: shown_name(&report.label),
            there: cells()
                .filter_map(|(at, row, cell)| Some(told(there(at, row, cell)?, row, "paper")))
                .collect(),
            here: cells()
                .filter_map(|(at, row, cell)| Some(told(here(at, row, cell)?, row, "here")))
                .collect(),
        };
        (!series.there.is_empty() || !series.here.is_empty()).then_some(series)
    };
    experiment.arms.iter().enumerate().filter_map(one).collect()
}

/// What a published number reaches over; of a standard deviation one of them.
fn spread_there(cell: &StudyCell) -> Option<(f64, f64)> {
    let number = cell.published.as_ref()?;
    let (spread, _) = number.spread.as_ref()?;
    Some((number.value - spread, number.value + spread))
}

/// Where the middle nine tenths of the blocks are, for statistics that lie in the middle of them.
fn spread_here(number: &MeasuredNumber) -> Option<(f64, f64)> {
    let [_, low, _, high, _] = number.five;
    let central = ["mean", "median"].contains(&number.statistic.as_str());
    (central && low <= number.value && number.value <= high).then_some((low, high))
}

/// A published or measured number, not yet at its place.
struct Number {
    value: f64,
    /// How far its whiskers reach.
    reach: Option<(f64, f64)>,
    text: String,
}

impl Number {
    fn of(cell: &StudyCell, there: bool) -> Option<Self> {
        let (at_published, at_measured) = cell.x.unwrap_or_default();
        let (value, reach, amount, n, cost) = if there {
            let number = cell.published.as_ref()?;
            let amount = words::published(number, at_published);
            (number.value, spread_there(cell), amount, number.n, words::published_overhead(cell))
        } else {
            // On an axis are numbers of one unit.
            let number = cell.measured.as_ref().filter(|number| number.unit.is_none())?;
            let amount = words::measured(number, at_measured, false);
            (number.value, spread_here(number), amount, Some(number.n), cell.overhead.map(words::overhead))
        };
        let n = n.map(|n| format!(", n {n}")).unwrap_or_default();
        let cost = cost.map(|cost| format!("\noverhead {}", cost.words())).unwrap_or_default();
        value.is_finite().then(|| Self { value, reach, text: format!("{}{n}{cost}", amount.words()) })
    }

    fn at(self, x: f64, y: f64) -> Mark {
        let (low, high) = self.reach.unzip();
        Mark { low, high, ..Mark::at(x, y, self.text) }
    }
}

fn lines(experiment: &ExperimentReport, view: &ViewReport, rows: &[&RowReport]) -> Chart {
    let of_quantity = rows.iter().any(|row| row.cells.iter().any(|cell| cell.x.is_some()));
    let place = |at: usize, row: &RowReport, cell: &StudyCell, there: bool| match cell.x {
        Some((published, measured)) => {
            if there {
                published
            } else {
                measured
            }
        }
        None if of_quantity => None,
        None => row.x.or(Some(at as f64)),
    };
    let mark = |at: usize, row: &RowReport, cell: &StudyCell, there: bool| {
        let x = place(at, row, cell, there).filter(|x| x.is_finite())?;
        let number = Number::of(cell, there)?;
        let y = number.value;
        Some(number.at(x, y))
    };
    let label = rows.first().map_or("", |row| row.label.as_str());
    Chart {
        kind: Kind::Lines,
        title: shown_name(label),
        what: axis(view.y_label.as_deref().filter(|_| one_quantity(view)), label),
        across: axis(view.x_label.as_deref(), ""),
        swept: !of_quantity,
        ticks: Vec::new(),
        series: series(
            experiment,
            rows,
            |at, row, cell| mark(at, row, cell, true),
            |at, row, cell| mark(at, row, cell, false),
        ),
    }
}

fn one_quantity(view: &ViewReport) -> bool {
    view.rows.windows(2).all(|pair| pair[0].quantity == pair[1].quantity)
}

fn axis(label: Option<&str>, otherwise: &str) -> String {
    shown_name(label.unwrap_or(otherwise))
}

fn bars(experiment: &ExperimentReport, view: &ViewReport, rows: &[&RowReport]) -> Chart {
    let mark = |at: usize, cell: &StudyCell, there| {
        let number = Number::of(cell, there)?;
        let y = number.value;
        Some(number.at(at as f64, y))
    };
    let unit = rows.first().map_or("", |row| row.unit.as_str());
    Chart {
        kind: Kind::Bars,
        title: shown_name(unit),
        what: axis(view.y_label.as_deref(), unit),
        across: String::new(),
        swept: false,
        ticks: rows.iter().enumerate().map(|(at, row)| (at as f64, shown_name(&row_label(row)))).collect(),
        series: series(
            experiment,
            rows,
            |at, _, cell| mark(at, cell, true),
            |at, _, cell| mark(at, cell, false),
        ),
    }
}

/// The share of a distribution that a row is the quantile of, where its words say it.
fn share(row: &RowReport) -> Option<f64> {
    let words = [row.point.as_deref(), Some(row.label.as_str())];
    let named = |text: &str| {
        let text = text.to_lowercase();
        let percent = text.split_once('%').map(|(before, _)| before.trim_end());
        let number = percent.and_then(|before| before.rsplit([' ', '=', '(']).next()?.parse::<f64>().ok());
        let word = [("median", 50.0), ("minimum", 0.0), ("maximum", 100.0)];
        number.or_else(|| word.iter().find(|(word, _)| text.contains(word)).map(|(_, share)| *share))
    };
    row.x.or_else(|| words.into_iter().flatten().find_map(named))
}

fn distribution(experiment: &ExperimentReport, view: &ViewReport) -> Chart {
    let rows: Vec<&RowReport> = view.rows.iter().collect();
    // Where a row does not say its share, the rows stand at equal distances.
    let shares: Option<Vec<f64>> = rows.iter().map(|row| share(row)).collect();
    let place = |at: usize| shares.as_ref().map_or(at as f64, |shares| shares[at]);
    let mark = |at: usize, cell: &StudyCell, there: bool| {
        let number = Number::of(cell, there)?;
        let x = number.value;
        Some(number.at(x, place(at)))
    };
    let unit = rows.first().map_or("", |row| row.unit.as_str());
    Chart {
        kind: Kind::Cdf,
        title: String::new(),
        what: axis(view.y_label.as_deref(), "share that is no larger"),
        across: axis(view.x_label.as_deref(), unit),
        swept: false,
        ticks: rows.iter().enumerate().map(|(at, row)| (place(at), shown_name(&row_label(row)))).collect(),
        series: series(
            experiment,
            &rows,
            |at, _, cell| mark(at, cell, true),
            |at, _, cell| mark(at, cell, false),
        ),
    }
}

fn boxes(experiment: &ExperimentReport, view: &ViewReport, row: &RowReport) -> Chart {
    let mark = |five: Option<[f64; 5]>, text: String| {
        let five = five.filter(|five| five.iter().all(|value| value.is_finite()))?;
        Some(Mark { five: Some(five), ..Mark::at(five[2], 0.0, text) })
    };
    let of_axis = |cell: &StudyCell| cell.measured.clone().filter(|number| number.unit.is_none());
    let text =
        |cell: &StudyCell, there| Number::of(cell, there).map(|number| number.text).unwrap_or_default();
    let mut series = series(
        experiment,
        &[row],
        |_, _, cell| mark(cell.published.as_ref().and_then(|number| number.five), text(cell, true)),
        |_, _, cell| mark(of_axis(cell).map(|number| number.five), text(cell, false)),
    );
    for one in &mut series {
        one.there.iter_mut().chain(&mut one.here).for_each(|mark| mark.y = one.arm as f64);
    }
    Chart {
        kind: Kind::Boxes,
        title: shown_name(&row_label(row)),
        what: String::new(),
        across: axis(view.y_label.as_deref(), &row.label),
        swept: false,
        ticks: Vec::new(),
        series,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weigh_model::Better;

    #[test]
    fn quantiles_are_known_by_their_words() {
        let row = |label: &str, x| RowReport {
            quantity: String::new(),
            label: label.into(),
            unit: String::new(),
            better: Better::Lower,
            stands_in: None,
            point: None,
            x,
            not_measured: None,
            cells: Vec::new(),
        };
        assert_eq!(share(&row("95 % (µs)", None)), Some(95.0));
        assert_eq!(share(&row("Latency (99.9%)", None)), Some(99.9));
        assert_eq!(share(&row("median (µs)", None)), Some(50.0));
        assert_eq!(share(&row("Latency", None)), None);
        assert_eq!(share(&row("Latency", Some(7.0))), Some(7.0));
    }
}
