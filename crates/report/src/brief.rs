//! The brief document of a run: what a terminal shows unless it is asked for details.
//!
//! It has the matrix, the answer, one compact table of all metrics with a verdict, and a line for
//! everything that went wrong. It keeps the promises of every report: each ratio of the table has
//! its absolute value, its interval and the number of blocks, and everything that failed, was void
//! or is unequal is reported.

use crate::document::{
    Align, Audience, Block, Column, Document, Entry, Fit, Form, Item, ListKind, Piece, Row, Section, Table,
};
use crate::results::{self, Group};
use crate::rows::{ONE_BLOCK, is_one_block, two_digits, units};
use crate::run::{ABOVE_BRIEF, UNEQUAL, answer_section, asked_line, labels, median, picture};
use crate::troubles::{self, Advice, FailureLine};
use crate::{Report, answer, commands, differences, notes, own, plots, voids};
use weigh_model::{distinct, grouped, number_of};
use weigh_stats::{Cell, LEVEL_DIFFERENCE, Verdict};

/// The number of warnings that have a line before the rest is counted.
const WARNINGS: usize = 3;

pub(crate) fn document(report: &Report) -> Document {
    let groups = results::groups(report);
    let names = plots::Names::new(report);
    let mut plots = plots::Plots::of_results(report, &groups, &names);
    let mut document = Document::new(&report.title);
    document.add(asked_line(report, ABOVE_BRIEF));
    document.add(labels(report, None));
    document.add(picture(report, &groups));
    document.add(commands::section(report));
    let answers = answer::answers(report, &groups, answer::Length::Names);
    document.add(answer_section(answers, notes::brief_convention(report)));
    document.add(table(&groups));
    let own = own::sections(report, &groups, &names, &mut plots, false);
    own.into_iter().for_each(|section| document.add(section));
    document.add(lines(report, &groups));
    document
}

/// What the rows of the compact table share, so that they need not repeat it.
struct Shared {
    /// Remarks that every row has.
    remarks: Vec<String>,
    /// Environments that have rows. The others are missing altogether.
    environments: Vec<String>,
}

/// All metrics with a verdict, in one table.
fn table(groups: &[Group]) -> Section {
    let mut section = Section::plain();
    let shared =
        Shared { remarks: shared_remarks(groups), environments: results::measured_environments(groups) };
    // The captions name the operation.
    let head = if measured(groups).any(|(_, table)| table.cpu.is_some()) { "CPU" } else { "" };
    for (at, (group, table)) in measured(groups).enumerate() {
        let cpu = table.cpu.as_ref().map(|cpu| format!("; {cpu}")).unwrap_or_default();
        let caption = format!("{} {}{cpu}", group.name(), table.what());
        section.push(Audience::TERMINAL, Block::table(compact(table, caption, (at == 0, head), &shared)));
    }
    section
}

/// The metrics with a verdict that were measured in some environment.
fn measured(groups: &[Group]) -> impl Iterator<Item = (&Group, &results::Table)> {
    let tables = groups.iter().flat_map(|group| group.judged.iter().map(move |table| (group, table)));
    tables.filter(|(_, table)| table.is_measured())
}

/// Remarks that every measured row has: they are printed once, below the table.
fn shared_remarks(groups: &[Group]) -> Vec<String> {
    let mut rows = measured(groups).flat_map(|(_, table)| &table.rows).filter(|row| row.n > 0);
    let Some(first) = rows.next() else { return Vec::new() };
    let mut shared = first.brief.clone();
    let mut others = 0;
    for row in rows {
        shared.retain(|remark| row.brief.contains(remark));
        others += 1;
    }
    if others > 0 { shared } else { Vec::new() }
}

/// The rows of one metric. Only the first table has a head.
fn compact(table: &results::Table, caption: String, (first, cpu): (bool, &str), shared: &Shared) -> Table {
    let effect = if table.sequential { "change [95 % interval]" } else { "overhead [95 % interval]" };
    let columns = vec![
        Column::text("environment"),
        Column::number("median"),
        Column::number(cpu).fit(Fit::Soon),
        Column::number(effect).aligned(Align::Effect),
        Column::text("verdict").fit(Fit::Wrapped("no difference".len())),
        Column::number("n"),
        Column::text("remarks").fit(Fit::Remarks),
    ];
    let form = if first { Form::Results } else { Form::Next };
    let rows = table.rows.iter().filter(|row| shared.environments.contains(&row.environment));
    Table { caption, form, columns, rows: rows.map(|of| row(of, shared)).collect(), ..Table::default() }
}

fn row(row: &results::Row, shared: &Shared) -> Row {
    let name = Entry::name(&row.environment);
    let remark = |text: &String| Piece::Remark { text: text.clone(), aside: false };
    Row::new([
        if row.differs { name.then(Piece::Mark(UNEQUAL)) } else { name },
        median(row.value.as_ref()),
        row.cpu.clone().map(Entry::quantity).unwrap_or_default(),
        row.effect.clone().map(Entry::effect).unwrap_or_default(),
        Entry::flag(row.tone, row.verdict.clone()),
        Entry::count(row.n),
        Entry::of(row.brief.iter().filter(|text| !shared.remarks.contains(text)).map(remark).collect()),
    ])
}

/// What went wrong and what is open, one line each, and where to find the rest.
fn lines(report: &Report, groups: &[Group]) -> Section {
    let failures = failures(report).into_iter();
    let warnings = troubles::advice(troubles::all_warnings(report)).into_iter();
    let warnings: Vec<String> = warnings.flat_map(warning).collect();
    let further = match warnings.len().saturating_sub(WARNINGS) {
        0 => String::new(),
        more => format!("{}, and ", number_of(more, "further warning")),
    };
    let warnings = warnings.into_iter().take(WARNINGS).map(|text| ("warning", text));
    let open = undecided(groups).map(|text| ("open", text));
    let chance = by_chance(report, groups).map(|text| ("chance", text));
    let shared = shared_remarks(groups).join("; ");
    let shared = (!shared.is_empty()).then(|| format!("every row is {shared}"));
    let unequal = differs(report).map(|text| ("unlike", text));
    let rates = (!groups.is_empty() && notes::has_rates(report)).then(|| ("rates", notes::RATES.to_string()));
    let told = rates
        .into_iter()
        .chain(open)
        .chain(chance)
        .chain(unequal)
        .chain(shared.map(|text| ("all", text)))
        .chain(voids::void_counts(report).map(|text| ("void", text)))
        .chain(failures)
        .chain(warnings);
    let more = ("more", format!("{further}every metric, CPU time and difference: `--details`"));
    // The reason for a failure is shown whole: a reader may have nothing else to go by.
    let item = |(word, text): (&str, String)| match word {
        "failed" | "missing" | "rates" | "chance" => Item::new(word, vec![text]),
        _ => Item::new(word, vec![text]).in_one_line(),
    };
    let items = told.chain([more]).map(item);
    Section::plain().with(Audience::TERMINAL, Block::list(ListKind::Facts, items))
}

/// What failed and what is missing, each with the reason. A failure that several environments or
/// workloads share is one line.
fn failures(report: &Report) -> Vec<(&'static str, String)> {
    let alike = |line: &FailureLine| (line.excluded, line.blocks.clone(), line.reason.clone());
    let mut told = Vec::new();
    for ((excluded, blocks, reason), lines) in grouped(troubles::failures(report), alike) {
        let word = if excluded { "missing" } else { "failed" };
        let workloads = distinct(lines.iter().map(|line| line.workload.clone()));
        let environments = distinct(lines.iter().map(|line| line.environment.clone()));
        // One line only if every one of these workloads failed in every one of these environments.
        if workloads.len() * environments.len() == lines.len() {
            let (workloads, environments) = (workloads.join(", "), environments.join(", "));
            told.push((word, format!("{workloads} in {environments}, {blocks}: {reason}")));
        } else {
            told.extend(lines.iter().map(|line| (word, line.sentence())));
        }
    }
    told
}

/// Shortens a warning: of several that ask for the same action, the first and the number of the
/// others.
fn warning(advice: Advice) -> Vec<String> {
    match advice.seen.as_slice() {
        seen if advice.action.is_empty() => seen.to_vec(),
        [seen] => vec![format!("{seen}; {}", advice.action)],
        [seen, rest @ ..] => vec![format!("{seen}, and {} more: {}", rest.len(), advice.action)],
        [] => Vec::new(),
    }
}

/// How many comparisons are open, and what would decide the nearest.
fn undecided(groups: &[Group]) -> Option<String> {
    let rows = groups.iter().flat_map(|group| &group.judged).flat_map(|table| &table.rows);
    let compared: Vec<&results::Row> = rows.filter(|row| !row.baseline).collect();
    let open: Vec<&&results::Row> =
        compared.iter().filter(|row| row.cell.verdict == Some(Verdict::Inconclusive)).collect();
    let things = units(&open.first()?.cell);
    let nearest = open.iter().filter_map(|row| row.cell.blocks_to_decide).min();
    let more = match nearest {
        Some(number) => format!("about {} {things} would decide the nearest", two_digits(number)),
        None if open.iter().all(|row| is_one_block(&row.cell)) => ONE_BLOCK.into(),
        None => format!("no practical number of {things} would decide any"),
    };
    Some(format!("{} of {} not decided; {more}", open.len(), compared.len()))
}

/// Why an interval that excludes zero is beside INCONCLUSIVE, where the number of comparisons is the
/// reason.
fn by_chance(report: &Report, groups: &[Group]) -> Option<String> {
    let mut rows = groups.iter().flat_map(|group| &group.judged).flat_map(|table| &table.rows);
    let excludes_zero =
        |cell: &Cell| cell.overhead.is_some_and(|interval| interval.low > 0.0 || interval.high < 0.0);
    let is_adjusted = |row: &results::Row| {
        let cell = &row.cell;
        cell.verdict == Some(Verdict::Inconclusive)
            && excludes_zero(cell)
            && cell.p_diff_holm.is_some_and(|p| p >= LEVEL_DIFFERENCE)
    };
    let comparisons = number_of(report.analysis.comparisons, "comparison");
    rows.any(is_adjusted).then(|| {
        format!("of {comparisons}, some intervals exclude 0 by chance: INCONCLUSIVE allows for that (Holm)")
    })
}

/// Says that environments differ from the baseline as they are meant to, if any do.
fn differs(report: &Report) -> Option<String> {
    let meant = differences::differences(report);
    let any = meant.iter().any(|difference| difference.standing != differences::Standing::Fault);
    any.then(|| format!("{UNEQUAL} differs from {} in what the platform implies", report.analysis.baseline))
}
