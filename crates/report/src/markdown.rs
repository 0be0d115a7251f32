//! Tables of GitHub's Markdown that can be pasted into an issue as they are.

use crate::Report;
use crate::differences::{Difference, sentences};
use crate::document::{self, Document, Group, Row, Table};
use crate::limits::LimitTable;
use crate::notes::COULD_SEE;

/// Text in which nothing is markup: names and reasons come from outside.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in crate::text::harmless(text).chars() {
        match c {
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '#' => {
                out.push('\\');
                out.push(c);
            }
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            // A mention or a link of an address would reach out to somebody.
            '@' => out.push_str("&#64;"),
            _ => out.push(c),
        }
    }
    out.replace("://", "&#58;//")
}

/// The same at the start of a paragraph or an item, where a sign or a number would begin a list.
pub(crate) fn opening(text: &str) -> String {
    let text = escape(text);
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    match text.as_bytes().get(digits) {
        Some(b'.' | b')') if digits > 0 => format!("{}\\{}", &text[..digits], &text[digits..]),
        Some(b'+' | b'-') if digits == 0 => format!("\\{text}"),
        _ => text,
    }
}

pub(crate) fn render(report: &Report) -> String {
    let document = document::build(report);
    let mut out = format!("# {}\n\n", opening(&document.title));
    for (what, value) in &document.subject {
        out.push_str(&format!("- {what}: {}\n", escape(value)));
    }
    for label in &document.labels {
        out.push_str(&format!("\n**{}**: {}\n", escape(&label.word), escape(&label.meaning)));
    }
    if !document.answers.is_empty() {
        out.push_str("\n## Answer\n\n");
        if !document.convention.is_empty() {
            out.push_str(&format!("{}\n\n", opening(&document.convention)));
        }
        for answer in &document.answers {
            out.push_str(&format!("- **{}**: {}\n", escape(&answer.environment), escape(&answer.sentence())));
        }
    }
    for group in &document.groups {
        write_group(&mut out, group);
    }
    for table in &document.limits {
        write_limits(&mut out, table);
    }
    write_notes(&mut out, &document);
    out.replace(crate::text::JOINER, " ")
}

fn write_group(out: &mut String, group: &Group) {
    let params = if group.params.is_empty() { String::new() } else { format!(" ({})", group.params) };
    out.push_str(&format!("\n## {}\n", escape(&format!("{}{params}", group.workload))));
    for table in &group.judged {
        heading(out, table, "");
        write_rows(out, table);
    }
    for table in &group.descriptive {
        heading(out, table, " (descriptive, no verdict)");
        write_rows(out, table);
    }
    if !group.nowhere.is_empty() {
        out.push_str(&format!("\n### {} in no environment\n\n", escape(&group.workload)));
        for metric in &group.nowhere {
            out.push_str(&format!("- {}\n", opening(metric)));
        }
    }
    if let Some(cpu) = &group.cpu {
        let title =
            format!("{} CPU time charged per {} (descriptive, no verdict)", group.workload, cpu.operation);
        out.push_str(&format!("\n### {}\n\n", escape(&title)));
        for row in &cpu.rows {
            out.push_str(&format!("- **{}**: {}\n", escape(&row.environment), escape(&row.sentence)));
        }
        for why in &cpu.why {
            out.push_str(&format!("- counters of {}\n", escape(why)));
        }
    }
}

/// A column: heading, whether it holds numbers, and what stands in a row.
type Column<'a> = (String, bool, Box<dyn Fn(&Row) -> String + 'a>);

fn write_rows(out: &mut String, table: &Table) {
    let mut columns: Vec<Column<'_>> = vec![
        ("environment".into(), false, Box::new(|row| escape(&row.environment))),
        ("median".into(), true, Box::new(value)),
    ];
    if let Some(heading) = &table.cpu {
        columns.push((escape(heading), true, Box::new(|row| escape(row.cpu.as_deref().unwrap_or("")))));
    }
    columns.push((effect_name(table).into(), true, Box::new(|row| effect(row)[0].clone())));
    columns.push(("95 % interval".into(), true, Box::new(|row| effect(row)[1].clone())));
    if table.primary {
        columns.push(("verdict".into(), false, Box::new(verdict)));
    }
    columns.push(("n".into(), true, Box::new(|row| row.n.to_string())));
    columns.push(("could see".into(), true, Box::new(|row| row.smallest.clone().unwrap_or_default())));
    columns.push(("remarks".into(), false, Box::new(remarks)));
    let head: Vec<&str> = columns.iter().map(|(heading, _, _)| heading.as_str()).collect();
    let numeric: Vec<usize> = (0..columns.len()).filter(|i| columns[*i].1).collect();
    let rows = table.rows.iter().map(|row| columns.iter().map(|(_, _, text)| text(row)).collect());
    write_table(out, &head, &numeric, rows);
}

/// What one more guest takes.
fn write_limits(out: &mut String, table: &LimitTable) {
    out.push_str(&format!("\n## {}\n\n{}\n\n", escape(&table.title), opening(&table.note)));
    let head: Vec<&str> = [table.first].into_iter().chain(table.columns.iter().map(String::as_str)).collect();
    let numeric: Vec<usize> = (1..head.len()).collect();
    let rows = table
        .rows
        .iter()
        .map(|row| [&row.environment].into_iter().chain(&row.cells).map(|cell| escape(cell)).collect());
    write_table(out, &head, &numeric, rows);
    for (row, remark) in table.rows.iter().filter_map(|row| Some((row, row.remark.as_ref()?))) {
        out.push_str(&format!("\n{}: {}\n", opening(&row.environment), escape(remark)));
    }
}

fn verdict(row: &Row) -> String {
    let verdict = escape(&row.verdict);
    if row.baseline || verdict.is_empty() { verdict } else { format!("**{verdict}**") }
}

fn heading(out: &mut String, table: &Table, suffix: &str) {
    let unit = if table.unit.is_empty() { String::new() } else { format!(", {}", table.unit) };
    out.push_str(&format!(
        "\n### {}{suffix}\n\n",
        escape(&format!("{} {}{unit}, {}", table.workload, table.metric, table.direction))
    ));
}

fn effect_name(table: &Table) -> &'static str {
    if table.sequential { "change" } else { "overhead" }
}

fn value(row: &Row) -> String {
    escape(row.value.as_deref().unwrap_or("-"))
}

fn effect(row: &Row) -> [String; 2] {
    match &row.effect {
        Some(effect) => [effect.estimate.clone(), effect.interval.clone()],
        None => [String::new(), String::new()],
    }
}

fn remarks(row: &Row) -> String {
    escape(&row.all_beside())
}

/// Columns are padded, so that the text can be read without being rendered too.
pub(crate) fn write_table(
    out: &mut String,
    head: &[&str],
    numeric: &[usize],
    rows: impl Iterator<Item = Vec<String>>,
) {
    use crate::text::{columns, left, right};
    let rows: Vec<Vec<String>> = rows.collect();
    let widths: Vec<usize> = (0..head.len())
        .map(|i| rows.iter().map(|row| columns(&row[i])).chain([columns(head[i]), 3]).max().unwrap_or(3))
        .collect();
    let pad = |i: usize, text: &str| {
        if numeric.contains(&i) { right(text, widths[i]) } else { left(text, widths[i]) }
    };
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    out.push_str(&line(&head.iter().enumerate().map(|(i, text)| pad(i, text)).collect::<Vec<_>>()));
    let rule = |i: usize, width: &usize| {
        if numeric.contains(&i) { format!("{}:", "-".repeat(width - 1)) } else { "-".repeat(*width) }
    };
    out.push_str(&line(&widths.iter().enumerate().map(|(i, width)| rule(i, width)).collect::<Vec<_>>()));
    for row in &rows {
        out.push_str(&line(&row.iter().enumerate().map(|(i, text)| pad(i, text)).collect::<Vec<_>>()));
    }
}

fn write_notes(out: &mut String, document: &Document) {
    let mut section = |title: &str, items: Vec<String>| {
        if !items.is_empty() {
            out.push_str(&format!("\n## {title}\n\n"));
            for item in items {
                out.push_str(&format!("- {item}\n"));
            }
        }
    };
    let mut reading: Vec<String> = document.notes.iter().map(|note| opening(note)).collect();
    if !reading.is_empty() {
        reading.push(escape(COULD_SEE));
    }
    reading.extend(
        document.legend.iter().map(|(word, meaning)| format!("**{}**: {}", escape(word), escape(meaning))),
    );
    section("How to read this", reading);
    let environments = document.environments.iter().flat_map(|environment| {
        let name = escape(&environment.name);
        let facts =
            (!environment.facts.is_empty()).then(|| format!("**{name}**: {}", escape(&environment.facts)));
        let clock =
            environment.clock_detail.as_ref().map(|clock| format!("**{name}** clock: {}", escape(clock)));
        let network = environment.network.as_ref().map(|network| format!("**{name}** {}", escape(network)));
        let differences = sentences(&environment.differences, Difference::sentence);
        let differences =
            differences.iter().map(|sentence| format!("**{name}** differs: {}", escape(sentence)));
        facts.into_iter().chain(network).chain(clock).chain(differences).collect::<Vec<_>>()
    });
    section("Environments", environments.collect());
    section(
        "Noise on the host",
        document.noise.iter().map(|(what, seen)| format!("{what}: {}", escape(seen))).collect(),
    );
    let voids = document.voids.iter().map(|void| {
        let units: String = void.units.iter().map(|unit| format!("\n  - {}", opening(unit))).collect();
        opening(&void.summary) + &units
    });
    section("Void units", document.replacements.iter().map(|text| opening(text)).chain(voids).collect());
    section("Failures", document.failures.iter().map(|failure| opening(&failure.sentence())).collect());
    section(
        "Warnings",
        document.warnings.iter().flat_map(|advice| advice.sentences()).map(|s| opening(&s)).collect(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_or_number_in_front_is_no_list() {
        assert_eq!(opening("+ is worse"), "\\+ is worse");
        assert_eq!(opening("12. no"), "12\\. no");
        assert_eq!(opening("12 yes"), "12 yes");
    }

    #[test]
    fn names_are_not_markup() {
        let text = escape("a|b <script> *x* @someone https://example.org");
        assert_eq!(text, "a\\|b &lt;script&gt; \\*x\\* &#64;someone https&#58;//example.org");
    }
}
