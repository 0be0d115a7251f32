//! A study as tables of GitHub's Markdown.

use super::grid::{Grid, Heading, Line};
use super::tally::Tally;
use super::words::CellWords;
use super::{ClaimReport, ExperimentReport, StudyReport, ViewReport, notes};
use crate::markdown::{escape, opening, write_table};

/// The study in Markdown.
pub(super) fn render(report: &StudyReport) -> String {
    let mut out = format!("# {}\n\n", opening(&report.title));
    out.push_str(&format!(
        "**{}**, size {}: {}\n\n",
        escape(&report.name),
        escape(&report.size),
        Tally::of_study(report).sentence()
    ));
    out.push_str(&format!("{}\n", opening(notes::convention(report))));
    list(&mut out, "Experiments", experiments(report));
    list(&mut out, "Warnings", report.warnings.iter().map(|warning| opening(warning)).collect());
    for one in &report.experiments {
        experiment(&mut out, report, one);
    }
    let legend = notes::LEGEND.iter().map(|(word, meaning)| format!("**{word}**: {}", escape(meaning)));
    list(
        &mut out,
        "How to read this",
        notes::reading(report).iter().map(|note| opening(note)).chain(legend).collect(),
    );
    let subject = notes::subject(report);
    let subject = subject.iter().map(|(what, text)| format!("{what}: {}", escape(text)));
    list(&mut out, "What was measured where", subject.collect());
    out.replace(crate::text::JOINER, " ")
}

fn list(out: &mut String, title: &str, items: Vec<String>) {
    if items.is_empty() {
        return;
    }
    out.push_str(&format!("\n## {title}\n\n"));
    for item in items {
        out.push_str(&format!("- {item}\n"));
    }
}

fn experiments(report: &StudyReport) -> Vec<String> {
    let one = |one: &ExperimentReport| {
        let not_run = one.not_run.as_ref().map(|reason| format!("NOT RUN: {}", escape(reason)));
        let counts = Tally::of_experiment(one).short_sentence();
        let told: Vec<String> =
            [Some(counts).filter(|counts| !counts.is_empty()), not_run].into_iter().flatten().collect();
        format!("**{}**: {}", escape(&one.name), told.join(". "))
    };
    report.experiments.iter().map(one).collect()
}

fn experiment(out: &mut String, report: &StudyReport, experiment: &ExperimentReport) {
    out.push_str(&format!("\n## {}\n\n", opening(&notes::heading(experiment))));
    if let Some(reason) = &experiment.not_run {
        out.push_str(&format!("**NOT RUN**: {}\n\n", escape(reason)));
    }
    for (what, text) in notes::setting(experiment) {
        out.push_str(&format!("- {what}: {}\n", escape(&text)));
    }
    for (label, text) in notes::arms(experiment) {
        out.push_str(&format!("- {}: {}\n", opening(&label), escape(&text)));
    }
    for text in notes::instead(experiment) {
        out.push_str(&format!("- {}\n", opening(&text)));
    }
    for one in &experiment.views {
        view(out, report, experiment, one);
    }
    claims(out, &experiment.claims);
    if !experiment.remarks.is_empty() {
        out.push_str("\nRemarks:\n\n");
        for remark in &experiment.remarks {
            out.push_str(&format!("- {}\n", opening(remark)));
        }
    }
}

fn view(out: &mut String, report: &StudyReport, experiment: &ExperimentReport, view: &ViewReport) {
    let grid = Grid::new(experiment, view);
    out.push_str(&format!(
        "\n### {}\n\n{}\n\n",
        opening(&notes::title(view)),
        opening(&notes::beside(report, experiment))
    ));
    let head: Vec<String> = [grid.corner().to_string(), String::new()]
        .into_iter()
        .chain(grid.columns.iter().map(heading))
        .collect();
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let rows = grid.rows.iter().zip(&grid.cells).flat_map(|(row, cells)| lines(row, cells));
    write_table(out, &head, &[], rows);
    for line in &grid.below {
        out.push_str(&format!("\n{}\n", opening(line)));
    }
}

fn heading(heading: &Heading) -> String {
    match heading.beside.as_slice() {
        [] => escape(&heading.text),
        beside => format!("{} ({})", escape(&heading.text), beside.join(", ")),
    }
}

/// A row of the paper as several, of which the first has its name.
fn lines(row: &Heading, cells: &[CellWords]) -> Vec<Vec<String>> {
    let mut name = Some(heading(row));
    let used = Line::ALL.into_iter().filter(|line| cells.iter().any(|cell| line.is_in(cell)));
    let line = |line: Line| {
        let first = [name.take().unwrap_or_default(), line.word().to_string()];
        first.into_iter().chain(cells.iter().map(|cell| text(line, cell))).collect()
    };
    used.map(line).collect()
}

fn text(line: Line, cell: &CellWords) -> String {
    let text = match line {
        Line::Published => cell.published.as_ref().map(|amount| amount.text()),
        Line::PublishedOverhead => cell.published_overhead.as_ref().map(|cost| cost.text()),
        Line::Measured => cell.measured.as_ref().map(|a| a.text()).or_else(|| cell.instead.map(String::from)),
        Line::Overhead => cell.overhead.as_ref().map(|cost| match cell.measured.as_ref().and_then(|m| m.n) {
            Some(n) => format!("{}, n {n}", cost.text()),
            None => cost.text(),
        }),
        Line::Agreement => {
            return cell
                .agreement
                .as_ref()
                .map(|grade| format!("**{}**", escape(&grade.text())))
                .unwrap_or_default();
        }
        Line::Remarks => (!cell.remarks.is_empty()).then(|| cell.remarks.join("; ")),
    };
    escape(&text.unwrap_or_default())
}

fn claims(out: &mut String, claims: &[ClaimReport]) {
    if claims.is_empty() {
        return;
    }
    out.push_str("\n### Claims\n\n");
    let rows = claims.iter().map(|claim| {
        let words = notes::claim(claim);
        let why = words.grade.sentence();
        let seen: Vec<String> = words.seen.into_iter().chain(why).collect();
        vec![
            format!("**{}**", words.grade.word),
            escape(&words.says),
            escape(&words.check),
            escape(&seen.join("; ")),
        ]
    });
    write_table(out, &["grade", "claim", "check", "seen"], &[], rows);
}
