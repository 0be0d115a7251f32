//! Matrices of signed numbers: what every workload costs in every environment, which is the first
//! picture of a report, and what neighbours of every environment cost.
//!
//! A cell has a sign for the verdict, and the overhead in per cent; for neighbours, which have no
//! verdicts, a sign for what the interval says of the loss. The sign repeats what the
//! colour says, so that the matrix can be read without colour. Intervals, absolute values and the
//! number of blocks are in the tables below.

use crate::Report;
use crate::document::{Align, Column, Entry, Row, Table, Tone};
use crate::quantity::{Quantity, coarse_percent, plain_percent};
use crate::results::{self, Group};
use weigh_model::distinct;
use weigh_stats::{DegradationStep, Flag, Knee, Verdict};

/// A matrix with environments as columns.
#[derive(Debug, Clone)]
pub struct Matrix {
    pub(crate) caption: String,
    /// The heading of the first column: what the rows are.
    pub(crate) rows_are: &'static str,
    /// The signs that occur, and what they mean.
    pub(crate) legend: Vec<(Sign, String)>,
    /// The columns.
    pub(crate) environments: Vec<String>,
    pub(crate) rows: Vec<MatrixRow>,
}

/// A row, such as one metric of one workload.
#[derive(Debug, Clone)]
pub(crate) struct MatrixRow {
    pub name: String,
    /// The cells, one for each environment.
    pub cells: Vec<MatrixCell>,
}

/// The cost in one environment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MatrixCell {
    /// `None` if there is nothing for the environment.
    pub sign: Option<Sign>,
    pub content: Content,
}

/// The content after the sign of a cell.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Content {
    /// The overhead in per cent.
    Overhead(Quantity),
    /// Why there is no number.
    Word(&'static str),
}

/// The meaning of a cell, in order of the legend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sign {
    Worse,
    Better,
    Same,
    Open,
    Unjudged,
}

impl Sign {
    pub(crate) fn glyph(self) -> char {
        match self {
            Self::Worse => '▲',
            Self::Better => '▼',
            Self::Same => '=',
            Self::Open => '?',
            Self::Unjudged => '!',
        }
    }

    pub(crate) fn tone(self) -> Tone {
        match self {
            Self::Worse => Tone::Worse,
            Self::Better => Tone::Better,
            Self::Same => Tone::Same,
            Self::Open => Tone::Open,
            Self::Unjudged => Tone::Plain,
        }
    }
}

impl MatrixCell {
    /// The cell without a result.
    pub(crate) const NOTHING: Self = Self { sign: None, content: Content::Word("") };

    /// The loss of a guest beside neighbours. Its whole interval decides, as for the knee.
    pub(crate) fn of_loss(step: &DegradationStep) -> Self {
        let sign = match step.loss {
            Some(loss) if step.sound && loss.low > Knee::MARGIN => Sign::Worse,
            Some(loss) if step.sound && loss.high <= Knee::MARGIN => Sign::Same,
            Some(_) => Sign::Open,
            // A loss takes two blocks in which both sides have a value.
            None if step.median.is_some() => Sign::Open,
            None => Sign::Unjudged,
        };
        let content = match step.loss {
            Some(loss) => Content::Overhead(coarse_percent(loss.estimate)),
            None if step.up.is_some_and(|up| up < step.guests) => Content::Word("too few"),
            None if step.failed > 0 => Content::Word("failed"),
            None if step.missing_reason.is_some() => Content::Word("absent"),
            None if step.median.is_none() => Content::Word("none"),
            None if step.n == 0 => Content::Word("n 0"),
            None => Content::Word("n 1"),
        };
        Self { sign: Some(sign), content }
    }

    fn of(row: &results::Row) -> Self {
        let cell = &row.cell;
        let sign = match cell.verdict {
            Some(Verdict::Slower) => Sign::Worse,
            Some(Verdict::Faster) => Sign::Better,
            Some(Verdict::Equivalent | Verdict::DetectableBelowMargin) => Sign::Same,
            Some(Verdict::Inconclusive) => Sign::Open,
            Some(Verdict::Baseline | Verdict::RunsDiffer) | None => Sign::Unjudged,
        };
        let content = match cell.overhead {
            Some(overhead) => Content::Overhead(coarse_percent(overhead.estimate)),
            None if cell.summary.is_none() && cell.flags.contains(&Flag::Absent) => Content::Word("absent"),
            None if cell.flags.contains(&Flag::NotMeasured) => Content::Word("not run"),
            None if cell.failed > 0 => Content::Word("failed"),
            None => Content::Word("none"),
        };
        Self { sign: Some(sign), content }
    }

    /// The sign and the text after it.
    pub(crate) fn words(&self) -> String {
        let Some(sign) = self.sign else { return String::new() };
        format!("{} {}", sign.glyph(), self.behind())
    }

    /// The text after the sign.
    pub(crate) fn behind(&self) -> String {
        match &self.content {
            Content::Overhead(overhead) => overhead.to_string(),
            Content::Word(word) => (*word).into(),
        }
    }

    /// How far the ratio is from one: less than a tenth, less than a factor of two, or more.
    pub(crate) fn level(&self) -> u8 {
        match &self.content {
            Content::Overhead(overhead) => match overhead.value.ln_1p().abs() {
                size if size < 1.1f64.ln() => 1,
                size if size < 2f64.ln() => 2,
                _ => 3,
            },
            Content::Word(_) => 1,
        }
    }
}

/// The matrix of a report; `None` if there is nothing to compare.
pub(crate) fn matrix(report: &Report, groups: &[Group]) -> Option<Matrix> {
    // Metrics that were measured nowhere are listed with their reasons below.
    let tables = groups.iter().flat_map(|group| group.judged.iter().map(move |table| (group, table)));
    let tables: Vec<(&Group, &results::Table)> = tables.filter(|(_, table)| table.is_measured()).collect();
    let compared = tables.iter().flat_map(|(_, table)| &table.rows).filter(|row| !row.baseline);
    let measured = results::measured_environments(groups);
    let compared = compared.filter(|row| measured.contains(&row.environment));
    let environments = distinct(compared.map(|row| row.environment.clone()));
    let cell = |table: &results::Table, environment: &String| match table.row(environment) {
        Some(row) => MatrixCell::of(row),
        None => MatrixCell::NOTHING,
    };
    let row = |(group, table): &(&Group, &results::Table)| MatrixRow {
        name: format!("{} {}", group.name(), table.metric),
        cells: environments.iter().map(|environment| cell(table, environment)).collect(),
    };
    let rows: Vec<MatrixRow> = tables.iter().map(row).collect();
    if rows.is_empty() || environments.is_empty() {
        return None;
    }
    let baseline = &report.analysis.baseline;
    let sequential = report.compared.is_some();
    let caption = match sequential {
        true => format!("Change of the cost against {baseline} between the runs, %"),
        false => format!("Overhead against {baseline}, %"),
    };
    let meaning = |sign: Sign| match sign {
        Sign::Worse => "costs more".to_string(),
        Sign::Better => "costs less".into(),
        Sign::Same => format!("within {}", plain_percent(report.analysis.margin)),
        Sign::Open => "not decided".into(),
        Sign::Unjudged => "no verdict".into(),
    };
    let legend = legend_of(&rows, meaning);
    Some(Matrix { caption, rows_are: "workload", legend, environments, rows })
}

/// The signs that occur in these rows, and what they mean.
fn legend_of(rows: &[MatrixRow], meaning: impl Fn(Sign) -> String) -> Vec<(Sign, String)> {
    let mut signs: Vec<Sign> = rows.iter().flat_map(|row| &row.cells).filter_map(|cell| cell.sign).collect();
    signs.sort();
    signs.dedup();
    signs.into_iter().map(|sign| (sign, meaning(sign))).collect()
}

impl Matrix {
    /// The matrix of losses of [`MatrixCell::of_loss`]: each row is a guest beside a kind of
    /// neighbours, each column an environment of the neighbours.
    pub(crate) fn of_losses(caption: String, environments: Vec<String>, rows: Vec<MatrixRow>) -> Self {
        let margin = plain_percent(Knee::MARGIN);
        let legend = legend_of(&rows, |sign| match sign {
            Sign::Worse => format!("certainly above {margin}"),
            Sign::Better | Sign::Same => format!("certainly at most {margin}"),
            Sign::Open => "not decided".into(),
            Sign::Unjudged => "not measured".into(),
        });
        Self { caption, rows_are: "guest, neighbours", legend, environments, rows }
    }

    /// The legend in one line.
    pub(crate) fn legend(&self) -> String {
        let signs = self.legend.iter().map(|(sign, meaning)| format!("{} {meaning}", sign.glyph()));
        signs.collect::<Vec<_>>().join(", ")
    }

    /// What a sign means.
    pub(crate) fn meaning(&self, sign: Sign) -> &str {
        let found = self.legend.iter().find(|(other, _)| *other == sign);
        found.map_or("", |(_, meaning)| meaning.as_str())
    }

    /// The matrix as an ordinary table, for paper.
    pub(crate) fn table(&self) -> Table {
        let column = |name: &String| Column { heading: Entry::name(name), ..Column::number("") };
        let entry = |cell: &MatrixCell| {
            let strong = matches!(cell.sign, Some(Sign::Worse | Sign::Better));
            let tone = cell.sign.filter(|_| strong).map_or(Tone::Plain, Sign::tone);
            Entry::flag(tone, cell.words())
        };
        let row = |row: &MatrixRow| {
            Row::new([Entry::name(&row.name)].into_iter().chain(row.cells.iter().map(entry)))
        };
        let first = Column::text(self.rows_are).aligned(Align::Left);
        Table {
            note: self.legend(),
            ..Table::new(
                self.caption.clone(),
                [first].into_iter().chain(self.environments.iter().map(column)).collect(),
                self.rows.iter().map(row).collect(),
            )
        }
    }
}
