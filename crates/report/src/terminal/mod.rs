//! The report on a terminal: the answer first, then the tables, then how to read them.

pub(crate) mod screen;
mod table;

use crate::differences::{Difference, sentences};
use crate::document::{self, Document, EnvironmentLine, Tone};
use crate::notes::COULD_SEE;
use crate::text::columns;
use crate::{Options, Report};
use screen::{Screen, Style};

/// Warnings of one kind that the terminal shows in words.
const WARNINGS_SHOWN: usize = 4;

/// Void units of one cause that the terminal names.
const VOIDS_SHOWN: usize = 4;

/// The report as lines of at most `options.width` columns.
pub(crate) fn render(report: &Report, options: &Options) -> String {
    let document = document::build(report);
    let mut screen = Screen::new(options);
    top(&mut screen, &document);
    let layout = table::Layout::new(&document, &screen);
    for group in &document.groups {
        table::group(&mut screen, &layout, &document, group);
    }
    limits(&mut screen, &document);
    reading(&mut screen, &document);
    environments(&mut screen, &document);
    noise(&mut screen, &document);
    voids(&mut screen, &document);
    troubles(&mut screen, &document);
    setting(&mut screen, &document);
    screen.into_text()
}

/// Columns for the longest name, so that the texts beside them line up, up to a third of the page.
pub(crate) fn gap<'a>(screen: &Screen, names: impl Iterator<Item = &'a str>) -> usize {
    let longest = names.map(|name| columns(&screen.clean(name)) + 2).max().unwrap_or(0);
    longest.min(screen.width / 3)
}

/// What of the question stands above the answer; the rest stands at the end.
const ABOVE: &[&str] = &["run", "before", "after", "effort", "baseline"];

fn top(screen: &mut Screen, document: &Document) {
    screen.heading(&document.title);
    let asked: Vec<String> = document
        .subject
        .iter()
        .filter(|(what, _)| ABOVE.contains(&what.as_str()))
        .map(|(what, value)| if what == "effort" { value.clone() } else { format!("{what} {value}") })
        .collect();
    screen.paragraph(0, &asked.join(" · "), Style::Faint);
    screen.blank();
    for label in &document.labels {
        screen.item(
            0,
            &format!("{}:", label.word),
            Style::Strong,
            columns(&label.word) + 2,
            &[&label.meaning],
        );
    }
    if document.answers.is_empty() {
        return;
    }
    screen.blank();
    screen.paragraph(0, &document.convention, Style::Plain);
    let width = gap(screen, document.answers.iter().map(|answer| answer.environment.as_str()));
    for answer in &document.answers {
        // The colour goes to the name; the first word of the sentence says the same.
        let style = if answer.tone == Tone::Open { Style::Plain } else { Style::Tone(answer.tone) };
        let clauses: Vec<&str> = answer.clauses.iter().map(String::as_str).collect();
        screen.item(2, &answer.environment, style, width, &clauses);
    }
}

/// What one more guest takes.
fn limits(screen: &mut Screen, document: &Document) {
    for table in &document.limits {
        screen.blank();
        screen.heading(&table.title);
        let width = gap(screen, table.rows.iter().map(|row| row.environment.as_str()));
        for row in &table.rows {
            screen.item(2, &row.environment, Style::Plain, width, &[&row.sentence(&table.columns)]);
        }
        screen.paragraph(2, &table.note, Style::Faint);
    }
}

fn setting(screen: &mut Screen, document: &Document) {
    screen.blank();
    screen.heading("What was measured where");
    let rest = || document.subject.iter().filter(|(what, _)| !ABOVE.contains(&what.as_str()));
    let width = gap(screen, rest().map(|(what, _)| what.as_str()));
    for (what, value) in rest() {
        screen.item(2, what, Style::Faint, width, &[value]);
    }
}

fn reading(screen: &mut Screen, document: &Document) {
    if document.notes.is_empty() {
        return;
    }
    screen.blank();
    screen.heading("How to read this");
    for note in &document.notes {
        screen.paragraph(2, note, Style::Plain);
    }
    let seen =
        document.groups.iter().flat_map(|g| g.judged.iter().chain(&g.descriptive)).flat_map(|t| &t.rows);
    if seen.into_iter().any(|row| row.smallest.is_some()) {
        screen.paragraph(2, COULD_SEE, Style::Plain);
    }
    if document.environments.iter().any(|environment| !environment.differences.is_empty()) {
        let meaning = format!(
            "{}: not equal to the baseline; what follows is meant, and the reasons stand below under Environments.",
            table::UNEQUAL
        );
        screen.paragraph(2, &meaning, Style::Plain);
    }
    let width = gap(screen, document.legend.iter().map(|(word, _)| word.as_str()));
    for (word, meaning) in &document.legend {
        screen.item(2, word, Style::Strong, width, &[meaning]);
    }
}

/// What each environment is, and in what it differs.
fn environments(screen: &mut Screen, document: &Document) {
    let told = |e: &EnvironmentLine| e.clock.is_some() || !e.facts.is_empty() || !e.differences.is_empty();
    if !document.environments.iter().any(told) {
        return;
    }
    screen.blank();
    screen.heading("Environments");
    let width = gap(screen, document.environments.iter().map(|environment| environment.name.as_str()));
    for environment in document.environments.iter().filter(|environment| told(environment)) {
        let mut lines = vec![environment.facts.clone()];
        lines.extend(environment.network.clone());
        lines.extend(environment.clock.iter().map(|clock| format!("clock: {clock}")));
        let differences = sentences(&environment.differences, Difference::short_sentence);
        lines.extend(differences.iter().map(|sentence| format!("{} {sentence}", table::UNEQUAL)));
        let lines: Vec<&str> = lines.iter().map(String::as_str).filter(|line| !line.is_empty()).collect();
        screen.item(2, &environment.name, Style::Plain, width, &lines);
    }
}

/// What disturbed the trials.
fn noise(screen: &mut Screen, document: &Document) {
    if document.noise.is_empty() {
        return;
    }
    screen.blank();
    screen.heading("Noise on the host");
    let width = gap(screen, document.noise.iter().map(|(what, _)| what.as_str()));
    for (what, seen) in &document.noise {
        screen.item(2, what, Style::Faint, width, &[seen]);
    }
}

fn voids(screen: &mut Screen, document: &Document) {
    if document.voids.is_empty() {
        return;
    }
    screen.blank();
    screen.heading("Void units (blocks are numbered from 0)");
    if let Some(sentence) = &document.replacements {
        screen.paragraph(2, sentence, Style::Plain);
    }
    for void in &document.voids {
        screen.paragraph(2, &void.summary, Style::Plain);
        let shown = if void.units.len() > VOIDS_SHOWN + 1 { VOIDS_SHOWN } else { void.units.len() };
        for unit in &void.units[..shown] {
            screen.paragraph(4, unit, Style::Faint);
        }
        if shown < void.units.len() {
            let more = format!("and {} more; the page and the JSON list all", void.units.len() - shown);
            screen.paragraph(4, &more, Style::Faint);
        }
    }
}

fn troubles(screen: &mut Screen, document: &Document) {
    if !document.failures.is_empty() {
        screen.blank();
        screen.heading("Failures");
        for failure in &document.failures {
            let text = format!(
                "{} in {}, {}: {}",
                failure.workload, failure.environment, failure.blocks, failure.reason
            );
            screen.paragraph(2, &text, Style::Plain);
            let logs = failure.shown_logs();
            if !logs.is_empty() {
                screen.paragraph(4, &format!("see {logs}"), Style::Faint);
            }
        }
    }
    if !document.warnings.is_empty() {
        screen.blank();
        screen.heading("Warnings");
        for advice in &document.warnings {
            match (advice.action.as_str(), advice.seen.as_slice()) {
                ("", seen) => {
                    for seen in seen {
                        screen.paragraph(2, seen, Style::Plain);
                    }
                }
                (action, [seen]) => screen.paragraph(2, &format!("{seen}; {action}"), Style::Plain),
                (action, several) => {
                    screen.paragraph(2, &format!("{action}:"), Style::Plain);
                    // On a noisy host every row has its warning, and a screen of them would bury
                    // the table. What is not shown here is counted, and flagged in its own row.
                    let shown =
                        if several.len() > WARNINGS_SHOWN + 1 { WARNINGS_SHOWN } else { several.len() };
                    for seen in &several[..shown] {
                        screen.paragraph(4, seen, Style::Plain);
                    }
                    if shown < several.len() {
                        let more = several.len() - shown;
                        screen.paragraph(
                            4,
                            &format!("and {more} more; the page and the JSON list all"),
                            Style::Faint,
                        );
                    }
                }
            }
        }
    }
}
