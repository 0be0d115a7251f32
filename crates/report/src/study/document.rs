//! The document of a study: the counts first, then each experiment with its tables and its claims,
//! then how to read them.

use super::charts::{self, Chart};
use super::tally::Tally;
use super::words::{self, GradeWords, direction, row_label};
use super::{
    ArmReport, ClaimReport, ExperimentReport, RowReport, StudyCell, StudyReport, ViewForm, ViewReport,
};
use super::{costs, notes};
use crate::document::{
    Audience, Block, Cell, Column, Document, Entry, Figure, Fit, Item, ListKind, Piece, Row, Section,
    SectionKind, Table, Tone,
};
use weigh_model::grouped;

/// The width of the longest word of a grade.
const GRADE: usize = "UNDECIDED".len();

pub(super) fn document(report: &StudyReport) -> Document {
    let mut document = Document::new(&report.title);
    let mut charts = Vec::new();
    document.add(head(report));
    document.add(answer(report));
    document
        .add(Section::new("Warnings").with(Audience::ALL, Block::bullets(report.warnings.iter().cloned())));
    for (at, one) in report.experiments.iter().enumerate() {
        document.add(experiment(report, one, at, &mut charts));
    }
    document.add(reading(report));
    document.add(
        Section::new("What was measured where").with(Audience::ALL, Block::facts(notes::subject(report))),
    );
    document.plots.charts = charts;
    document
}

fn head(report: &StudyReport) -> Section {
    let by = format!("{} · {}", report.authors, report.published);
    let size = format!("size {}", report.size);
    let counts = Tally::of_study(report).sentence();
    let name = Item::new(report.name.clone(), vec![format!("{size}; {counts}")]);
    Section::untitled(SectionKind::Head)
        .with(Audience::TERMINAL, Block::faint(by))
        .with(Audience::ALL, Block::list(ListKind::Labels, vec![name]))
}

/// The number of results of each grade.
fn counts(what: &str, words: [&str; 4], counts: [usize; 4]) -> Block {
    const TONES: [Tone; 4] = [Tone::Same, Tone::Worse, Tone::Open, Tone::Plain];
    let head = Item::new(what, Vec::new());
    let of = |((word, count), tone)| Item::new(word, vec![usize::to_string(&count)]).tone(tone);
    let items = words.into_iter().zip(counts).zip(TONES).map(of);
    Block::list(ListKind::Counts, [head].into_iter().chain(items))
}

/// The counts, and the results of each experiment.
fn answer(report: &StudyReport) -> Section {
    const OVERHEADS: [&str; 4] = ["AGREES", "DIFFERS", "UNDECIDED", "not measured"];
    let Tally { claims, overheads } = Tally::of_study(report);
    let told = |one: &ExperimentReport| {
        let not_run = one.not_run.as_ref().map(|reason| format!("NOT RUN: {reason}"));
        let counts = Some(Tally::of_experiment(one).short_sentence()).filter(|counts| !counts.is_empty());
        Item::new(one.name.clone(), counts.into_iter().chain(not_run).collect())
    };
    let experiments = Block::list(ListKind::Named, report.experiments.iter().map(told));
    let terminal = if report.experiments.len() > 1 { Audience::TEXT } else { Audience::PAPER };
    let without = "The figures need this page's script; every number that they show is in the tables.";
    Section::new("Answer")
        .id("answer")
        .titled(Audience::FULL, "")
        .with(Audience::PAGE, counts("Claims", ["HOLDS", "DIFFERS", "UNDECIDED", "NOT RUN"], claims.all()))
        .with(Audience::PAGE, counts("Published overheads", OVERHEADS, overheads.all()))
        .with(Audience::ALL, Block::prose(notes::convention(report)))
        .with(terminal, experiments)
        .with(Audience::PAGE, Block::table(overview(report)))
        .with(Audience::PAGE, Block::WithoutScript(without.into()))
}

/// The results of every experiment, as numbers.
fn overview(report: &StudyReport) -> Table {
    const COLUMNS: [&str; 8] = [
        "claims HOLD",
        "claims DIFFER",
        "UNDECIDED",
        "NOT RUN",
        "overheads AGREE",
        "overheads DIFFER",
        "cannot be told apart",
        "not measured",
    ];
    let row = |one: &ExperimentReport| {
        let Tally { claims, overheads } = Tally::of_experiment(one);
        let counts = claims.all().into_iter().chain(overheads.all()).map(|count| Entry::count(count as u64));
        Row::new([Entry::text(notes::heading(one))].into_iter().chain(counts))
    };
    Table {
        caption: "Experiments".into(),
        note: format!("size {}", report.size),
        columns: [Column::text("experiment")].into_iter().chain(COLUMNS.map(Column::number)).collect(),
        rows: report.experiments.iter().map(row).collect(),
        ..Table::default()
    }
}

fn experiment(report: &StudyReport, one: &ExperimentReport, at: usize, charts: &mut Vec<Chart>) -> Section {
    let not_run = one.not_run.iter().map(|reason| Item::new("NOT RUN", vec![reason.clone()]));
    let arms = notes::arms(one).into_iter().map(|(label, text)| Item::new(label, vec![text]));
    let mut section = Section::new(&notes::heading(one))
        .kind(SectionKind::Experiment)
        .id(&format!("experiment-{at}"))
        .with(Audience::PAGE, Block::prose(Tally::of_experiment(one).short_sentence()))
        .with(Audience::ALL, Block::list(ListKind::Labels, not_run))
        .with(Audience::ALL, Block::facts(notes::setting(one)));
    section.push_titled(Audience::ALL, "Platforms", Block::list(ListKind::Named, arms));
    let instead = Block::bullets(notes::instead(one));
    section.push_titled(Audience::ALL, "What differs from the paper", instead);
    if let Some(chart) = costs::chart(one) {
        let caption = format!("{}: overheads of the paper and those measured here", one.name);
        section.push(Audience::PAGE, Block::Figures(vec![place(charts, chart, caption)]));
    }
    for view in &one.views {
        write_view(report, one, view, charts, &mut section);
    }
    section.push_titled(Audience::ALL, "Claims", claims(&one.claims));
    section.push_titled(Audience::ALL, "Remarks", Block::bullets(one.remarks.iter().cloned()));
    section
}

/// A table. On a page it is folded under its figures if the paper has figures.
fn write_view(
    report: &StudyReport,
    experiment: &ExperimentReport,
    view: &ViewReport,
    charts: &mut Vec<Chart>,
    section: &mut Section,
) {
    let table = Block::table(table(report, experiment, view));
    if view.form == ViewForm::Table {
        return section.push(Audience::ALL, table);
    }
    let figures = charts::of_view(experiment, view).into_iter().map(|chart| {
        let title = [view.id.as_str(), &view.title, &chart.title];
        let title: Vec<&str> = title.into_iter().filter(|part| !part.is_empty()).collect();
        let caption = title.join(": ");
        place(charts, chart, caption)
    });
    let figures = figures.collect();
    section.push(Audience::PAGE, Block::Heading(notes::title(view)));
    section.push(Audience::PAGE, Block::faint(notes::beside(report, experiment)));
    section.push(Audience::PAGE, Block::Figures(figures));
    section.push(Audience::TEXT, table.clone());
    let summary = format!("Numbers of {}", notes::title(view));
    section.push(Audience::PAGE, Block::Fold { summary, open: false, blocks: vec![table] });
}

/// Stores a chart, and returns the figure that refers to it.
fn place(charts: &mut Vec<Chart>, chart: Chart, caption: String) -> Figure {
    let (published, measured) = chart.counts();
    let (kind, form) = (chart.kind, chart.form);
    let alt = format!(
        "{caption}: {form}; {published} published numbers are open, {measured} measured ones are filled; all are in the table"
    );
    charts.push(chart);
    Figure::new(kind, charts.len() - 1, caption, alt)
}

/// A table or figure as rows and columns, oriented as in the paper. An arm with nothing to show is
/// left out.
fn table(report: &StudyReport, experiment: &ExperimentReport, view: &ViewReport) -> Table {
    let places: Vec<usize> =
        (0..experiment.arms.len()).filter(|arm| has_place(&experiment.arms[*arm], view, *arm)).collect();
    let arms: Vec<Entry> = places.iter().map(|arm| arm_heading(&experiment.arms[*arm])).collect();
    let quantities: Vec<Entry> = view.rows.iter().map(quantity_heading).collect();
    let cell = |row: usize, arm: usize| cell(experiment, view, &view.rows[row], arm);
    let (corner, down, across, rows) = if view.arms_down {
        let row = |arm: &usize| (0..view.rows.len()).map(|row| cell(row, *arm)).collect();
        ("platform", arms, quantities, places.iter().map(row).collect::<Vec<Vec<Cell>>>())
    } else {
        let row = |row: usize| places.iter().map(|arm| cell(row, *arm)).collect();
        ("quantity", quantities, arms, (0..view.rows.len()).map(row).collect())
    };
    let row = |(name, cells): (Entry, Vec<Cell>)| Row {
        cells: [Cell::from(name)].into_iter().chain(cells).collect(),
        fault: false,
    };
    let head = across.into_iter().map(|heading| Column { heading, ..Column::text("") });
    Table {
        caption: notes::title(view),
        note: notes::beside(report, experiment),
        columns: [Column::text(corner)].into_iter().chain(head).collect(),
        stack: stack(),
        rows: down.into_iter().zip(rows).map(row).collect(),
        below: below(view),
        ..Table::default()
    }
}

/// The lines of a cell.
fn stack() -> Vec<Column> {
    let overhead = |whose: &str| {
        let heading = Entry::text("overhead").then(Piece::Beside(whose.into(), false));
        Column { heading, ..Column::text("") }
    };
    vec![
        Column::text("published").line(1),
        overhead("published").line(1),
        Column::text("measured").line(2),
        overhead("measured").line(2),
        Column::number("n").fit(Fit::Joined).line(2),
        Column::text("agreement").fit(Fit::Wrapped(GRADE)).line(3),
        Column::text("remarks").fit(Fit::Remarks).line(4),
    ]
}

fn has_place(arm: &ArmReport, view: &ViewReport, at: usize) -> bool {
    let mut cells = view.rows.iter().filter_map(|row| row.cells.get(at));
    arm.not_run.is_none() && !arm.today
        || cells.any(|cell| cell.published.is_some() || cell.measured.is_some() || cell.missing.is_some())
}

fn arm_heading(arm: &ArmReport) -> Entry {
    let heading = Entry::text(&arm.label);
    match arm.today {
        true => heading.then(Piece::Beside("of today, not in the paper".into(), false)),
        false => heading,
    }
}

/// The heading of a quantity. Wherever it appears, it names the workload if another program
/// measures the quantity here.
fn quantity_heading(row: &RowReport) -> Entry {
    let heading = Entry::text(row_label(row)).then(Piece::Beside(direction(row.better).into(), false));
    match &row.stands_in {
        Some(workload) => heading.then(Piece::Beside(format!("stand-in: {workload}"), true)),
        None => heading,
    }
}

/// A cell with its lines in the order of [`stack`].
fn cell(experiment: &ExperimentReport, view: &ViewReport, row: &RowReport, arm: usize) -> Cell {
    let Some(cell) = row.cells.get(arm) else { return Cell::default() };
    let not_run = experiment.not_run.is_some() || experiment.arms[arm].not_run.is_some();
    let five = view.form == ViewForm::Boxes
        || row.cells.iter().flat_map(|cell| &cell.published).any(|number| number.five.is_some());
    let StudyCell { published, measured, overhead, agreement, missing, flags, .. } = cell;
    let (there, here) = cell.x.unwrap_or_default();
    let here = match measured {
        Some(number) => words::measured(number, here, five),
        None => words::instead(row, cell, not_run).map(Entry::text).unwrap_or_default(),
    };
    let missing = missing.iter().map(|reason| format!("not measured: {reason}"));
    let remarks = missing.chain(flags.iter().map(|flag| flag.replace('_', " ")));
    let remarks = remarks.map(|text| Piece::Remark { text, aside: false });
    Cell(vec![
        published.as_ref().map(|number| words::published(number, there)).unwrap_or_default(),
        words::published_overhead(cell).unwrap_or_default(),
        here,
        overhead.map(words::overhead).unwrap_or_default(),
        measured.as_ref().map(|number| Entry::count(number.n)).unwrap_or_default(),
        agreement.map(|grade| GradeWords::of_agreement(grade).entry()).unwrap_or_default(),
        Entry::of(remarks.collect()),
    ])
}

/// The reasons why quantities are not measured, each once.
fn below(view: &ViewReport) -> Vec<String> {
    let reasons = view.rows.iter().filter_map(|row| Some((row.not_measured.clone()?, row_label(row))));
    let sentence = |(reason, rows): (String, Vec<(String, String)>)| {
        let labels: Vec<String> = rows.into_iter().map(|(_, label)| label).collect();
        format!("{}: not measured: {reason}", labels.join("; "))
    };
    grouped(reasons, |(reason, _)| reason.clone()).into_iter().map(sentence).collect()
}

/// The claims of an experiment, each with its grade.
pub(super) fn claims(claims: &[ClaimReport]) -> Block {
    let item = |claim: &ClaimReport| {
        let words = notes::claim(claim);
        let check = format!("check: {}", words.check);
        let takeaway = Some(claim.takeaway.clone()).filter(|takeaway| !takeaway.is_empty());
        let lines = [words.says].into_iter().chain(takeaway).chain([check]);
        let lines = lines.chain(words.seen).chain(words.grade.sentence());
        Item::new(words.grade.word, lines.collect()).tone(words.grade.tone)
    };
    Block::list(ListKind::Claims, claims.iter().map(item))
}

fn reading(report: &StudyReport) -> Section {
    let figures = "In the figures what was published is open and what was measured here is filled. A whisker of a published point is \
                   what the paper prints beside it; of a measured value it is the middle nine tenths of the blocks, of an overhead its \
                   95 % interval.";
    let legend = notes::LEGEND.iter().map(|(word, meaning)| Item::new(*word, vec![(*meaning).to_string()]));
    Section::new("How to read this")
        .with(Audience::ALL, Block::bullets(notes::reading(report).iter().map(|note| (*note).to_string())))
        .with(Audience::PAGE, Block::bullets([figures.to_string()]))
        .with(Audience::ALL, Block::list(ListKind::Legend, legend))
}
