//! A LaTeX document that compiles by itself; its tables can be copied out.

use crate::Report;
use crate::differences::{Difference, sentences};
use crate::document::{self, Document, EnvironmentLine, Row, Table};
use crate::limits::LimitTable;
use crate::notes::COULD_SEE;

pub(crate) const PREAMBLE: &str = r"\documentclass{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\usepackage[a4paper,landscape,margin=15mm]{geometry}
\usepackage{booktabs}
\usepackage{siunitx}
% Signs say which is worse; an effect that rounds to zero keeps its own.
\sisetup{retain-explicit-plus = true, retain-negative-zero = true}
\setlength{\parindent}{0pt}
\begin{document}
";

/// Text in which nothing is a command. What the standard encodings cannot set is spelled out.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in crate::text::harmless(text).chars() {
        match c {
            '\\' => out.push_str(r"\textbackslash{}"),
            '{' | '}' | '$' | '&' | '#' | '%' | '_' => {
                out.push('\\');
                out.push(c);
            }
            '~' => out.push_str(r"\textasciitilde{}"),
            '^' => out.push_str(r"\textasciicircum{}"),
            '<' => out.push_str(r"\textless{}"),
            '>' => out.push_str(r"\textgreater{}"),
            '|' => out.push_str(r"\textbar{}"),
            '"' => out.push_str(r"\textquotedbl{}"),
            '\'' => out.push_str(r"\textquotesingle{}"),
            '`' => out.push_str(r"\textasciigrave{}"),
            // No ligatures: two hyphens of an option stay two hyphens.
            '-' => out.push_str("{-}"),
            '±' => out.push_str(r"$\pm$"),
            'µ' => out.push_str(r"\textmu{}"),
            '→' => out.push_str(r"$\rightarrow$"),
            '≠' => out.push_str(r"$\neq$"),
            '·' => out.push_str(r"$\cdot$"),
            crate::text::JOINER => out.push('~'),
            _ if c.is_ascii() => out.push(c),
            _ => out.push_str(&format!("[U+{:04X}]", u32::from(c))),
        }
    }
    out
}

/// A value with its unit for siunitx; two values of two runs with an arrow.
pub(crate) fn quantity(text: &str) -> String {
    if let Some((before, after)) = text.split_once(" → ") {
        return format!(r"{} $\rightarrow$ {}", quantity(before), quantity(after));
    }
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    if !number.parse::<f64>().is_ok_and(f64::is_finite) {
        return escape(text);
    }
    match unit {
        "" => format!(r"\num{{{number}}}"),
        "%" => format!(r"\qty{{{number}}}{{\percent}}"),
        "ns" => format!(r"\qty{{{number}}}{{\nano\second}}"),
        "µs" => format!(r"\qty{{{number}}}{{\micro\second}}"),
        "ms" => format!(r"\qty{{{number}}}{{\milli\second}}"),
        "s" => format!(r"\qty{{{number}}}{{\second}}"),
        other => format!(r"\num{{{number}}}\,{}", escape(other)),
    }
}

/// `[+0.4, +2.0]` with the signs kept.
pub(crate) fn interval(text: &str) -> String {
    let bounds: Vec<String> = text
        .trim_matches(['[', ']'])
        .split(", ")
        .map(|bound| {
            if bound.parse::<f64>().is_ok_and(f64::is_finite) {
                format!(r"\num{{{bound}}}")
            } else {
                escape(bound)
            }
        })
        .collect();
    format!("[{}]", bounds.join(", "))
}

pub(crate) fn render(report: &Report) -> String {
    let document = document::build(report);
    let mut out = String::from(PREAMBLE);
    out.push_str(&format!("\\section*{{{}}}\n", escape(&document.title)));
    items(
        &mut out,
        "",
        document.subject.iter().map(|(what, value)| format!("{}: {}", escape(what), escape(value))),
    );
    for label in &document.labels {
        out.push_str(&format!("\\textbf{{{}}}: {}\\par\n", escape(&label.word), escape(&label.meaning)));
    }
    if !document.answers.is_empty() {
        out.push_str(&format!("\\subsection*{{Answer}}\n{}\n", escape(&document.convention)));
        items(
            &mut out,
            "",
            document
                .answers
                .iter()
                .map(|a| format!("\\textbf{{{}}}: {}", escape(&a.environment), escape(&a.sentence()))),
        );
    }
    let mut demand = Vec::new();
    for group in &document.groups {
        for table in group.judged.iter().chain(&group.descriptive) {
            write_table(&mut out, table, &group.params);
        }
        if !group.nowhere.is_empty() {
            let title = format!("{}: in no environment", group.workload);
            demand.push((escape(&title), group.nowhere.iter().map(|metric| escape(metric)).collect()));
        }
        if let Some(cpu) = &group.cpu {
            let sentences = cpu
                .rows
                .iter()
                .map(|row| format!("\\textbf{{{}}}: {}", escape(&row.environment), escape(&row.sentence)));
            let why = cpu.why.iter().map(|why| format!("counters of {}", escape(why)));
            let title = format!("{}: CPU time charged per {} (descriptive)", group.workload, cpu.operation);
            demand.push((escape(&title), sentences.chain(why).collect::<Vec<_>>()));
        }
    }
    for table in &document.limits {
        write_limits(&mut out, table);
    }
    // Tables float; what explains them must not be carried off by them.
    out.push_str("\\clearpage\n");
    for (title, lines) in demand {
        items(&mut out, &title, lines.into_iter());
    }
    write_notes(&mut out, &document);
    out.push_str("\\end{document}\n");
    out
}

pub(crate) fn items(out: &mut String, title: &str, items: impl Iterator<Item = String>) {
    let items: Vec<String> = items.collect();
    if items.is_empty() {
        return;
    }
    if !title.is_empty() {
        out.push_str(&format!("\\subsection*{{{title}}}\n"));
    }
    out.push_str("\\begin{itemize}\n");
    for item in items {
        // Braces keep a leading bracket from being read as an option.
        out.push_str(&format!("\\item {{}}{item}\n"));
    }
    out.push_str("\\end{itemize}\n");
}

fn write_table(out: &mut String, table: &Table, params: &str) {
    let params = if params.is_empty() { String::new() } else { format!(" ({params})") };
    let no_verdict = if table.primary { "" } else { ", descriptive, no verdict" };
    let caption = format!("{} {}{params}, {}{no_verdict}", table.workload, table.metric, table.direction);
    let effect = if table.sequential { "change" } else { "overhead" };
    let verdict = if table.primary { "verdict & " } else { "" };
    let (head, spec) = match &table.cpu {
        Some(cpu) => (format!(" & {}", escape(cpu)), "r"),
        None => (String::new(), ""),
    };
    let columns =
        if table.primary { format!("lr{spec}rllrrp{{60mm}}") } else { format!("lr{spec}rlrrp{{60mm}}") };
    out.push_str(&format!(
        "\\begin{{table}}[htbp]\n\\centering\n\\caption{{{}}}\n\\begin{{tabular}}{{{columns}}}\n\\toprule\n",
        escape(&caption)
    ));
    out.push_str(&format!(
        "environment & median{head} & {effect} & 95\\,\\% interval & {verdict}$n$ & could see & remarks \\\\\n\\midrule\n"
    ));
    for row in &table.rows {
        out.push_str(&write_row(row, table));
    }
    out.push_str("\\bottomrule\n\\end{tabular}\n\\end{table}\n");
}

/// What one more guest takes.
fn write_limits(out: &mut String, table: &LimitTable) {
    let columns = "r".repeat(table.columns.len());
    out.push_str(&format!(
        "\\begin{{table}}[htbp]\n\\centering\n\\caption{{{}}}\n\\begin{{tabular}}{{l{columns}}}\n\\toprule\n{}",
        escape(&table.title),
        escape(table.first)
    ));
    for column in &table.columns {
        out.push_str(&format!(" & {}", escape(column)));
    }
    out.push_str(" \\\\\n\\midrule\n");
    for row in &table.rows {
        let cells = [&row.environment].into_iter().chain(&row.cells).map(|cell| escape(cell));
        out.push_str(&format!("{} \\\\\n", cells.collect::<Vec<_>>().join(" & ")));
    }
    out.push_str("\\bottomrule\n\\end{tabular}\n\\end{table}\n");
    for (row, remark) in table.rows.iter().filter_map(|row| Some((row, row.remark.as_ref()?))) {
        out.push_str(&format!("{}: {}\\par\n", escape(&row.environment), escape(remark)));
    }
}

fn write_row(row: &Row, table: &Table) -> String {
    let mut cells = vec![escape(&row.environment), quantity(row.value.as_deref().unwrap_or("-"))];
    if table.cpu.is_some() {
        cells.push(row.cpu.as_deref().map(quantity).unwrap_or_default());
    }
    cells.extend([
        row.effect.as_ref().map(|e| quantity(&e.estimate)).unwrap_or_default(),
        row.effect.as_ref().map(|e| interval(&e.interval)).unwrap_or_default(),
    ]);
    if table.primary {
        cells.push(escape(&row.verdict));
    }
    cells.push(row.n.to_string());
    cells.push(row.smallest.as_deref().map(quantity).unwrap_or_default());
    cells.push(escape(&row.all_beside()));
    format!("{} \\\\\n", cells.join(" & "))
}

fn write_notes(out: &mut String, document: &Document) {
    let mut reading: Vec<String> = document.notes.iter().map(|note| escape(note)).collect();
    if !reading.is_empty() {
        reading.push(escape(COULD_SEE));
    }
    reading.extend(
        document
            .legend
            .iter()
            .map(|(word, meaning)| format!("\\textbf{{{}}}: {}", escape(word), escape(meaning))),
    );
    items(out, "How to read this", reading.into_iter());
    items(out, "Environments", document.environments.iter().flat_map(environment));
    items(
        out,
        "Noise on the host",
        document.noise.iter().map(|(what, seen)| format!("{}: {}", escape(what), escape(seen))),
    );
    let voids = document.voids.iter().flat_map(|void| {
        let units = void.units.iter().map(|unit| escape(unit));
        std::iter::once(escape(&void.summary)).chain(units).collect::<Vec<_>>()
    });
    items(out, "Void units", document.replacements.iter().map(|text| escape(text)).chain(voids));
    items(out, "Failures", document.failures.iter().map(|failure| escape(&failure.sentence())));
    items(
        out,
        "Warnings",
        document.warnings.iter().flat_map(|advice| advice.sentences()).map(|s| escape(&s)),
    );
}

/// What an environment is, and in what it differs.
fn environment(environment: &EnvironmentLine) -> Vec<String> {
    let name = format!("\\textbf{{{}}}", escape(&environment.name));
    let facts = (!environment.facts.is_empty()).then(|| format!("{name}: {}", escape(&environment.facts)));
    let clock = environment.clock_detail.as_ref().map(|clock| format!("{name} clock: {}", escape(clock)));
    let network = environment.network.as_ref().map(|network| format!("{name} {}", escape(network)));
    let differences = sentences(&environment.differences, Difference::sentence);
    let differences = differences.iter().map(|sentence| format!("{name} differs: {}", escape(sentence)));
    facts.into_iter().chain(network).chain(clock).chain(differences).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_a_command() {
        assert_eq!(escape(r"\input{/etc} 5% _a_ --x"), r"\textbackslash{}input\{/etc\} 5\% \_a\_ {-}{-}x");
        assert_eq!(escape("é"), "[U+00E9]");
    }

    #[test]
    fn numbers_go_through_siunitx() {
        assert_eq!(quantity("191 µs"), r"\qty{191}{\micro\second}");
        assert_eq!(quantity("12.3 GB/s"), r"\num{12.3}\,GB/s");
        assert_eq!(quantity("1 s → 2 s"), r"\qty{1}{\second} $\rightarrow$ \qty{2}{\second}");
        assert_eq!(quantity("+12 %"), r"\qty{+12}{\percent}");
        assert_eq!(interval("[-1, +2]"), r"[\num{-1}, \num{+2}]");
    }
}
