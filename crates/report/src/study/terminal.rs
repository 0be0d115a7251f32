//! A study on a terminal: the counts first, then each experiment with its tables and its claims,
//! then how to read them.

mod table;

use super::tally::Tally;
use super::{ClaimReport, ExperimentReport, StudyReport, notes};
use crate::Options;
use crate::terminal::gap;
use crate::terminal::screen::{Screen, Style};

/// Columns for the word of a grade.
const GRADE: usize = "UNDECIDED".len() + 2;

/// The study as lines of at most `options.width` columns.
pub(super) fn render(report: &StudyReport, options: &Options) -> String {
    let mut screen = Screen::new(options);
    top(&mut screen, report);
    for one in &report.experiments {
        experiment(&mut screen, report, one);
    }
    reading(&mut screen, report);
    setting(&mut screen, report);
    screen.into_text()
}

fn top(screen: &mut Screen, report: &StudyReport) {
    screen.heading(&report.title);
    screen.paragraph(0, &format!("{} · {}", report.authors, report.published), Style::Faint);
    screen.paragraph(0, &format!("size {}", report.size), Style::Faint);
    screen.blank();
    screen.item(0, &report.name, Style::Strong, 0, &[&Tally::of_study(report).sentence()]);
    screen.blank();
    screen.paragraph(0, notes::convention(report), Style::Plain);
    if report.experiments.len() > 1 {
        screen.blank();
        let width = gap(screen, report.experiments.iter().map(|one| one.name.as_str()));
        for one in &report.experiments {
            let sentence = Tally::of_experiment(one).short_sentence();
            let not_run = one.not_run.as_ref().map(|reason| format!("NOT RUN: {reason}"));
            let lines: Vec<&str> = [Some(sentence.as_str()), not_run.as_deref()]
                .into_iter()
                .flatten()
                .filter(|line| !line.is_empty())
                .collect();
            screen.item(2, &one.name, Style::Plain, width, &lines);
        }
    }
    if !report.warnings.is_empty() {
        screen.blank();
        screen.heading("Warnings");
        for warning in &report.warnings {
            screen.paragraph(2, warning, Style::Plain);
        }
    }
}

fn experiment(screen: &mut Screen, report: &StudyReport, experiment: &ExperimentReport) {
    screen.blank();
    screen.heading(&notes::heading(experiment));
    if let Some(reason) = &experiment.not_run {
        screen.item(2, "NOT RUN", Style::Strong, "NOT RUN".len() + 2, &[reason]);
    }
    items(screen, &notes::setting(experiment));
    let arms = notes::arms(experiment);
    if !arms.is_empty() {
        screen.paragraph(2, "platforms:", Style::Faint);
        let width = gap(screen, arms.iter().map(|(label, _)| label.as_str()));
        for (label, text) in &arms {
            screen.item(4, label, Style::Plain, width, &[text]);
        }
    }
    let instead = notes::instead(experiment);
    if !instead.is_empty() {
        screen.paragraph(2, "otherwise than in the paper:", Style::Faint);
        for text in &instead {
            screen.paragraph(4, text, Style::Plain);
        }
    }
    for view in &experiment.views {
        table::view(screen, report, experiment, view);
    }
    claims(screen, &experiment.claims);
    if !experiment.remarks.is_empty() {
        screen.blank();
        screen.paragraph(2, "Remarks", Style::Strong);
        for remark in &experiment.remarks {
            screen.paragraph(4, remark, Style::Plain);
        }
    }
}

fn items(screen: &mut Screen, items: &[(&str, String)]) {
    let width = gap(screen, items.iter().map(|(what, _)| *what));
    for (what, text) in items {
        screen.item(2, what, Style::Faint, width, &[text]);
    }
}

fn claims(screen: &mut Screen, claims: &[ClaimReport]) {
    if claims.is_empty() {
        return;
    }
    screen.blank();
    screen.paragraph(2, "Claims", Style::Strong);
    for claim in claims {
        let words = notes::claim(claim);
        let check = format!("check: {}", words.check);
        let reason = words.grade.sentence();
        let lines: Vec<&str> = [words.says.as_str(), check.as_str()]
            .into_iter()
            .chain(words.seen.iter().map(String::as_str))
            .chain(reason.as_deref())
            .collect();
        screen.item(2, words.grade.word, Style::Tone(words.grade.tone), GRADE, &lines);
    }
}

fn reading(screen: &mut Screen, report: &StudyReport) {
    screen.blank();
    screen.heading("How to read this");
    for note in notes::reading(report) {
        screen.paragraph(2, note, Style::Plain);
    }
    for (word, meaning) in notes::LEGEND {
        screen.item(2, word, Style::Strong, GRADE, &[meaning]);
    }
}

fn setting(screen: &mut Screen, report: &StudyReport) {
    screen.blank();
    screen.heading("What was measured where");
    items(screen, &notes::subject(report));
}
