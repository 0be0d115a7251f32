//! The tables: one layout for all of them, so that the eye can run down the page.

use super::screen::{Screen, Style};
use crate::bar;
use crate::charges::{CpuRow, CpuTable};
use crate::document::{Document, Group, Row, Table};
use crate::text::{columns, join, left, right, wrap};

const INDENT: usize = 2;
const GAP: usize = 2;
const BAR_WIDEST: usize = 41;
const REMARKS_NARROWEST: usize = 24;
const VERDICT_NARROWEST: usize = "BELOW MARGIN".len();

/// The columns that fit, the same for every table.
pub(super) struct Layout {
    environment: usize,
    value: usize,
    /// Columns for CPU time per operation beside the value; without, it stands below the rows.
    cpu: Option<usize>,
    estimate: usize,
    interval: usize,
    verdict: usize,
    n: usize,
    smallest: Option<usize>,
    bar: Option<usize>,
    /// Columns for remarks beside the row; without, they stand below it.
    remarks: Option<usize>,
    stacked: bool,
}

const ENVIRONMENT: &str = "environment";
const VALUE: &str = "median";
const EFFECT: &str = "overhead [95 % interval]";
const CHANGE: &str = "change [95 % interval]";
const VERDICT: &str = "verdict";
const SMALLEST: &str = "could see";

/// Beside the name of an environment that differs from the baseline.
pub(super) const UNEQUAL: char = '≠';

impl Layout {
    pub(super) fn new(document: &Document, screen: &Screen) -> Self {
        let tables =
            || document.groups.iter().flat_map(|group| group.judged.iter().chain(&group.descriptive));
        let rows = || tables().flat_map(|table| &table.rows);
        let widest = |least: usize, text: &dyn Fn(&Row) -> String| {
            rows().map(|row| columns(&screen.clean(&text(row)))).max().unwrap_or(0).max(least)
        };
        let estimate = widest(0, &|row| row.effect.as_ref().map(|e| e.estimate.clone()).unwrap_or_default());
        let interval = widest(0, &|row| row.effect.as_ref().map(|e| e.interval.clone()).unwrap_or_default());
        let header = if tables().any(|table| table.sequential) { CHANGE } else { EFFECT };
        let mut layout = Self {
            environment: widest(ENVIRONMENT.len(), &name),
            value: widest(VALUE.len(), &|row| row.value.clone().unwrap_or_default()),
            cpu: None,
            estimate,
            interval: interval.max(header.len().saturating_sub(estimate + 1)),
            verdict: widest(VERDICT.len(), &|row| row.verdict.clone()),
            n: widest(1, &|row| row.n.to_string()),
            smallest: None,
            bar: None,
            remarks: None,
            stacked: false,
        };
        layout.cpu = tables()
            .filter_map(|table| table.cpu.as_ref())
            .map(|heading| columns(&screen.clean(heading)))
            .max()
            .map(|heading| widest(heading, &|row| row.cpu.clone().unwrap_or_default()));
        if layout.used() > screen.width {
            // A verdict of several words may take several lines.
            let words = |row: &Row| row.verdict.split(' ').map(columns).max().unwrap_or(0);
            let longest = rows().map(words).max().unwrap_or(0);
            layout.verdict = longest.max(VERDICT_NARROWEST).min(layout.verdict);
        }
        if layout.used() > screen.width {
            layout.cpu = None;
        }
        if layout.used() > screen.width {
            layout.stacked = true;
            return layout;
        }
        let mut room = screen.width - layout.used();
        let smallest = widest(SMALLEST.len(), &|row| row.smallest.clone().unwrap_or_default());
        if room >= smallest + GAP {
            layout.smallest = Some(smallest);
            room -= smallest + GAP;
        }
        if room >= bar::narrowest(document.bar_reach) + GAP {
            let width = (room - GAP).min(BAR_WIDEST.max(bar::narrowest(document.bar_reach)));
            let width = width - usize::from(width.is_multiple_of(2)); // odd, so that zero has a middle
            layout.bar = Some(width);
            room -= width + GAP;
        }
        layout.remarks = room.checked_sub(GAP).filter(|room| *room >= REMARKS_NARROWEST);
        layout
    }

    /// Columns that every row takes.
    fn used(&self) -> usize {
        INDENT
            + self.environment
            + self.value
            + self.beside_value()
            + self.effect()
            + self.verdict
            + self.n
            + 4 * GAP
    }

    /// Columns before the verdict.
    fn before_verdict(&self) -> usize {
        INDENT
            + self.environment
            + self.value
            + self.beside_value()
            + self.effect()
            + 3 * GAP
            + self.bar.map_or(0, |width| width + GAP)
    }

    /// Columns that CPU time per operation takes.
    fn beside_value(&self) -> usize {
        self.cpu.map_or(0, |width| width + GAP)
    }

    /// Whether everything that stands beside a row's numbers fits beside them.
    fn holds_remarks(&self, screen: &Screen, row: &Row) -> bool {
        !self.stacked && self.remarks.is_some_and(|width| columns(&screen.clean(&row.all_beside())) <= width)
    }

    fn effect(&self) -> usize {
        self.estimate + 1 + self.interval
    }
}

/// Writes a workload's tables.
pub(super) fn group(screen: &mut Screen, layout: &Layout, document: &Document, group: &Group) {
    let name = if group.params.is_empty() {
        group.workload.clone()
    } else {
        format!("{} ({})", group.workload, group.params)
    };
    for table in &group.judged {
        screen.blank();
        screen.heading(&title(&name, table));
        rows(screen, layout, document, table);
    }
    if !group.descriptive.is_empty() {
        screen.blank();
        screen.heading(&format!("{name}, also measured: descriptive, no verdicts"));
        for table in &group.descriptive {
            screen.paragraph(INDENT, &format!("{}, {}", table.metric, table.direction), Style::Faint);
            for row in &table.rows {
                match layout.stacked {
                    true => stacked(screen, layout, table, row),
                    false => aligned(screen, layout, document, row, false),
                }
            }
            below(screen, layout, table);
        }
    }
    if !group.nowhere.is_empty() {
        screen.blank();
        screen.heading(&format!("{name}, in no environment"));
        for metric in &group.nowhere {
            screen.paragraph(INDENT, metric, Style::Faint);
        }
    }
    if let Some(cpu) = &group.cpu {
        service_demand(screen, &name, cpu);
    }
}

/// Who used CPU time and what says why, where it is more than the column beside the values says.
fn service_demand(screen: &mut Screen, workload: &str, cpu: &CpuTable) {
    let notable: Vec<&CpuRow> = cpu.rows.iter().filter(|row| row.notable).collect();
    if notable.is_empty() && cpu.why.is_empty() {
        return;
    }
    screen.blank();
    screen.heading(&format!("{workload}, CPU time charged per {}: descriptive", cpu.operation));
    let width = notable.iter().map(|row| columns(&screen.clean(&row.environment)) + GAP).max().unwrap_or(0);
    for row in notable {
        screen.item(INDENT, &row.environment, Style::Plain, width.min(screen.width / 3), &[&row.sentence]);
    }
    for why in &cpu.why {
        screen.item(INDENT, "counters", Style::Faint, "counters".len() + GAP, &[why]);
    }
}

fn title(name: &str, table: &Table) -> String {
    let unit = if table.unit.is_empty() { String::new() } else { format!(", {}", table.unit) };
    format!("{name} {}{unit}, {}", table.metric, table.direction)
}

fn rows(screen: &mut Screen, layout: &Layout, document: &Document, table: &Table) {
    if layout.stacked {
        for row in &table.rows {
            stacked(screen, layout, table, row);
        }
    } else {
        header(screen, layout, document, table);
        for row in &table.rows {
            aligned(screen, layout, document, row, true);
        }
    }
    below(screen, layout, table);
}

/// What has no column stands below the rows: CPU time per operation, the smallest effect that could
/// have been seen, and the facts that are meant to differ.
fn below(screen: &mut Screen, layout: &Layout, table: &Table) {
    let list = |of: &dyn Fn(&Row) -> Option<String>| -> String {
        let parts =
            table.rows.iter().filter_map(|row| of(row).map(|text| format!("{} {text}", row.environment)));
        parts.map(|part| join(&part)).collect::<Vec<_>>().join(", ")
    };
    let mut lines = Vec::new();
    if let (None, Some(heading)) = (layout.cpu, &table.cpu) {
        lines.push((join(heading), list(&|row| row.cpu.clone())));
    }
    if layout.smallest.is_none() {
        lines.push((SMALLEST.to_string(), list(&|row| row.smallest.clone())));
    }
    for (heading, texts) in lines.into_iter().filter(|(_, texts)| !texts.is_empty()) {
        screen.paragraph(INDENT, &format!("{heading}: {texts}"), Style::Faint);
    }
    let intended: Vec<String> = table
        .rows
        .iter()
        .filter(|row| !layout.holds_remarks(screen, row))
        .filter_map(|row| row.intended.as_ref().map(|text| format!("{} {text}", row.environment)))
        .collect();
    if !intended.is_empty() {
        screen.paragraph(INDENT, &intended.join("; "), Style::Faint);
    }
}

fn header(screen: &mut Screen, layout: &Layout, document: &Document, table: &Table) {
    let effect = if table.sequential { CHANGE } else { EFFECT };
    let mut cells = vec![left(ENVIRONMENT, layout.environment), right(VALUE, layout.value)];
    if let Some(width) = layout.cpu {
        cells.push(right(&screen.clean(table.cpu.as_deref().unwrap_or("")), width));
    }
    // The heading starts where the estimates do.
    cells.push(left(effect, layout.effect()));
    if let Some(width) = layout.bar {
        cells.push(left(&bar::axis(width, document.bar_reach), width));
    }
    cells.push(left(VERDICT, layout.verdict));
    cells.push(right("n", layout.n));
    if let Some(width) = layout.smallest {
        cells.push(right(SMALLEST, width));
    }
    let line = screen.paint(&format!("{}{}", " ".repeat(INDENT), cells.join("  ")), Style::Faint);
    screen.line(&line);
}

fn effect(layout: &Layout, row: &Row) -> String {
    match &row.effect {
        Some(effect) => {
            format!(
                "{} {}",
                right(&effect.estimate, layout.estimate),
                left(&effect.interval, layout.interval)
            )
        }
        None => " ".repeat(layout.effect()),
    }
}

/// The name, with a mark where the environment is not equal to the baseline; which facts differ
/// stands below the tables.
fn name(row: &Row) -> String {
    if row.differs { join(&format!("{} {UNEQUAL}", row.environment)) } else { row.environment.clone() }
}

fn aligned(screen: &mut Screen, layout: &Layout, document: &Document, row: &Row, judged: bool) {
    let environment = screen.clean(&name(row));
    let value = screen.clean(row.value.as_deref().unwrap_or("-"));
    let mut cells = vec![left(&environment, layout.environment), right(&value, layout.value)];
    if let Some(width) = layout.cpu {
        cells.push(right(&screen.clean(row.cpu.as_deref().unwrap_or("")), width));
    }
    cells.push(effect(layout, row));
    if let Some(width) = layout.bar {
        cells.push(if judged || row.bar.is_some() {
            bar::bar(row.bar, width, document.bar_reach, screen.unicode)
        } else {
            " ".repeat(width)
        });
    }
    let verdict = wrap(&row.verdict, layout.verdict);
    let first = left(verdict.first().map_or("", |line| line), layout.verdict);
    cells.push(screen.paint(&first, Style::Tone(row.tone)));
    cells.push(right(&row.n.to_string(), layout.n));
    if let Some(width) = layout.smallest {
        cells.push(right(row.smallest.as_deref().unwrap_or(""), width));
    }
    let mut line = format!("{}{}", " ".repeat(INDENT), cells.join("  "));
    let mut below = wrap(&screen.clean(&row.beside.join("; ")), screen.width - INDENT - 2 * GAP);
    if layout.holds_remarks(screen, row) {
        line.push_str("  ");
        line.push_str(&screen.clean(&row.all_beside()));
        below.clear();
    }
    screen.line(&line);
    for line in verdict.iter().skip(1) {
        let line = screen.paint(line, Style::Tone(row.tone));
        screen.line(&format!("{}{line}", " ".repeat(layout.before_verdict())));
    }
    for remark in below {
        let remark = screen.paint(&remark, Style::Faint);
        screen.line(&format!("{}{remark}", " ".repeat(INDENT + 2 * GAP)));
    }
}

/// For narrow terminals: name and verdict on one line, numbers on the next.
fn stacked(screen: &mut Screen, layout: &Layout, table: &Table, row: &Row) {
    let environment = screen.clean(&name(row));
    let name = if row.verdict.is_empty() { environment } else { format!("{environment}: ") };
    if columns(&name) + columns(&row.verdict) + INDENT <= screen.width {
        let verdict = screen.paint(&row.verdict, Style::Tone(row.tone));
        screen.line(&format!("{}{name}{verdict}", " ".repeat(INDENT)));
    } else {
        screen.paragraph(INDENT, &name, Style::Plain);
        if !row.verdict.is_empty() {
            screen.paragraph(INDENT + GAP, &row.verdict, Style::Tone(row.tone));
        }
    }
    let text = |row: &Row| screen.clean(row.value.as_deref().unwrap_or("-"));
    let widest = table.rows.iter().map(|row| columns(&text(row))).max().unwrap_or(0);
    let indent = INDENT + GAP;
    let line = format!(
        "{}{}  {}  n {}",
        " ".repeat(indent),
        right(&text(row), widest),
        effect(layout, row),
        right(&row.n.to_string(), layout.n)
    );
    if columns(&line) <= screen.width {
        screen.line(&line);
    } else {
        let mut pieces = vec![join(&text(row))];
        if let Some(effect) = &row.effect {
            pieces.push(join(&effect.estimate));
            pieces.push(join(&effect.interval));
        }
        pieces.push(join(&format!("n {}", row.n)));
        screen.paragraph(indent, &pieces.join(" "), Style::Plain);
    }
    let beside = row.beside.join("; ");
    if !beside.is_empty() {
        screen.paragraph(indent, &beside, Style::Faint);
    }
}
