//! A study as a LaTeX document that compiles by itself: the paper's tables, and the figures as
//! tables of their points.

use super::grid::{Grid, Heading, Line};
use super::tally::Tally;
use super::words::{Amount, CellWords, Cost};
use super::{ClaimReport, ExperimentReport, StudyReport, ViewReport, notes};
use crate::latex::{PREAMBLE, escape, interval, items, quantity};

/// More columns than these are set smaller.
const WIDE: usize = 4;

/// What the columns of numbers share, of the 267 mm between the margins: the first column and the
/// words of the lines take the rest.
const SHARED_MM: usize = 180;

/// Between two columns.
const GAP_MM: usize = 5;

/// No column is wider: a table of two is no wider than its numbers.
const WIDEST_MM: usize = 60;

/// The study as a document.
pub(super) fn render(report: &StudyReport) -> String {
    let mut out = PREAMBLE.replace(
        "\\usepackage{siunitx}\n",
        "\\usepackage{array}\n\\usepackage{longtable}\n\\usepackage{siunitx}\n",
    );
    out.push_str(&format!("\\section*{{{}}}\n", escape(&report.title)));
    let counts = Tally::of_study(report).sentence();
    out.push_str(&format!(
        "\\textbf{{{}}}, size {}: {}\\par\n",
        escape(&report.name),
        escape(&report.size),
        escape(&counts)
    ));
    out.push_str(&format!("{}\n", escape(notes::convention(report))));
    items(&mut out, "Experiments", report.experiments.iter().map(counted));
    items(&mut out, "Warnings", report.warnings.iter().map(|warning| escape(warning)));
    for one in &report.experiments {
        experiment(&mut out, report, one);
    }
    let legend =
        notes::LEGEND.iter().map(|(word, meaning)| format!("\\textbf{{{word}}}: {}", escape(meaning)));
    items(&mut out, "How to read this", notes::reading(report).iter().map(|note| escape(note)).chain(legend));
    let subject = notes::subject(report);
    items(
        &mut out,
        "What was measured where",
        subject.iter().map(|(what, text)| format!("{what}: {}", escape(text))),
    );
    out.push_str("\\end{document}\n");
    out
}

fn counted(experiment: &ExperimentReport) -> String {
    let not_run = experiment.not_run.as_ref().map(|reason| format!("NOT RUN: {}", escape(reason)));
    let counts = escape(&Tally::of_experiment(experiment).short_sentence());
    let told: Vec<String> =
        [Some(counts).filter(|counts| !counts.is_empty()), not_run].into_iter().flatten().collect();
    format!("\\textbf{{{}}}: {}", escape(&experiment.name), told.join(". "))
}

fn experiment(out: &mut String, report: &StudyReport, experiment: &ExperimentReport) {
    let not_run = experiment.not_run.as_ref().map(|reason| format!("NOT RUN: {}", escape(reason)));
    let setting = notes::setting(experiment)
        .into_iter()
        .map(|(what, text)| format!("{}: {}", escape(what), escape(&text)));
    let arms = notes::arms(experiment)
        .into_iter()
        .map(|(label, text)| format!("{}: {}", escape(&label), escape(&text)));
    let instead = notes::instead(experiment).into_iter().map(|text| escape(&text));
    let all = not_run.into_iter().chain(setting).chain(arms).chain(instead);
    items(out, &escape(&notes::heading(experiment)), all);
    for one in &experiment.views {
        view(out, report, experiment, one);
    }
    claims(out, experiment);
    items(out, "Remarks", experiment.remarks.iter().map(|remark| escape(remark)));
}

/// A table that goes on over pages; the size is in its caption.
fn view(out: &mut String, report: &StudyReport, experiment: &ExperimentReport, view: &ViewReport) {
    let grid = Grid::new(experiment, view);
    let caption = format!("{}. {}", notes::title(view), notes::beside(report, experiment));
    let small = if grid.columns.len() > WIDE { "\\footnotesize\\setlength{\\tabcolsep}{4pt}\n" } else { "" };
    // Reasons and five numbers are longer than a column may be: they are broken into lines.
    let width = (SHARED_MM / grid.columns.len().max(1)).saturating_sub(GAP_MM).min(WIDEST_MM);
    let columns = format!(">{{\\raggedleft\\arraybackslash}}p{{{width}mm}}").repeat(grid.columns.len());
    out.push_str(&format!(
        "{{{small}\\begin{{longtable}}{{>{{\\raggedright\\arraybackslash}}p{{45mm}}l{columns}}}\n\\caption{{{}}}\\\\\n",
        escape(&caption)
    ));
    let head: Vec<String> = grid.columns.iter().map(column).collect();
    let head =
        [grid.corner().to_string(), String::new()].into_iter().chain(head).collect::<Vec<_>>().join(" & ");
    out.push_str(&format!("\\toprule\n{head} \\\\\n\\midrule\n\\endhead\n"));
    for (at, (row, cells)) in grid.rows.iter().zip(&grid.cells).enumerate() {
        if at > 0 {
            out.push_str("\\addlinespace\n");
        }
        lines(out, row, cells);
    }
    out.push_str("\\bottomrule\n\\end{longtable}}\n");
    for line in &grid.below {
        out.push_str(&format!("{}\\par\n", escape(line)));
    }
}

fn heading(heading: &Heading) -> String {
    match heading.beside.as_slice() {
        [] => escape(&heading.text),
        beside => format!("{} ({})", escape(&heading.text), escape(&beside.join(", "))),
    }
}

/// The head of a column, what has to be known of it smaller.
fn column(heading: &Heading) -> String {
    match heading.beside.as_slice() {
        [] => escape(&heading.text),
        beside => {
            format!("{} {{\\scriptsize {}}}", escape(&heading.text), escape(&beside.join(", ")))
        }
    }
}

fn lines(out: &mut String, row: &Heading, cells: &[CellWords]) {
    let mut name = heading(row);
    for line in Line::ALL.into_iter().filter(|line| cells.iter().any(|cell| line.is_in(cell))) {
        let cells = cells.iter().map(|cell| text(line, cell)).collect::<Vec<_>>().join(" & ");
        // Braces keep a leading bracket from being read as the option of the line break before it.
        out.push_str(&format!("{{}}{} & {} & {cells} \\\\\n", std::mem::take(&mut name), line.word()));
    }
}

fn text(line: Line, cell: &CellWords) -> String {
    let text = match line {
        Line::Published => cell.published.as_ref().map(amount),
        Line::PublishedOverhead => cell.published_overhead.as_ref().map(cost),
        Line::Measured => cell.measured.as_ref().map(amount).or_else(|| cell.instead.map(escape)),
        Line::Overhead => cell.overhead.as_ref().map(|overhead| {
            let n = cell.measured.as_ref().and_then(|measured| measured.n);
            format!("{}{}", cost(overhead), n.map(|n| format!(", $n$ {n}")).unwrap_or_default())
        }),
        Line::Agreement => {
            cell.agreement.as_ref().map(|grade| format!("\\textbf{{{}}}", escape(&grade.text())))
        }
        Line::Remarks => (!cell.remarks.is_empty()).then(|| escape(&cell.remarks.join("; "))),
    };
    text.unwrap_or_default()
}

fn amount(amount: &Amount) -> String {
    let value = match &amount.five {
        Some(five) => five.iter().map(|number| quantity(number)).collect::<Vec<_>>().join(" / "),
        None => quantity(&amount.value),
    };
    let spread = amount.spread.as_ref().map(|spread| match spread.strip_prefix("± ") {
        Some(half) => format!("$\\pm$ {}", quantity(half)),
        None => interval(spread),
    });
    let at = amount.at.as_ref().map(|at| format!("at {}", quantity(at)));
    [Some(value), spread, at].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn cost(cost: &Cost) -> String {
    let range = cost.interval.as_ref().map(|range| format!(" {}", interval(range)));
    format!("{}{}", quantity(&cost.estimate), range.unwrap_or_default())
}

fn claims(out: &mut String, experiment: &ExperimentReport) {
    let claim = |claim: &ClaimReport| {
        let words = notes::claim(claim);
        let seen = words.seen.iter().cloned().chain(words.grade.sentence()).collect::<Vec<_>>().join("; ");
        format!(
            "\\textbf{{{}}}: {}; check: {}; {}",
            words.grade.word,
            escape(&words.says),
            escape(&words.check),
            escape(&seen)
        )
    };
    items(out, &escape(&format!("Claims of {}", experiment.name)), experiment.claims.iter().map(claim));
}
