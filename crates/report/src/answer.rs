//! One sentence per environment: what a person wants to know first.
//!
//! A sentence counts and names; it never sums up ratios of several workloads, and it never makes
//! "no difference found" into "no difference".

use crate::document::Tone;
use crate::quantity::{LARGEST_DETECTABLE, magnitude, plain_percent};
use crate::results::{Group, Row, Table};
use crate::text::join;
use crate::{Report, charges, course, neighbours, rows};
use weigh_model::{Better, distinct, grouped};
use weigh_stats::{Flag, Verdict};

/// The number of comparisons that a sentence names before it counts the rest.
const NAMED: usize = 3;

/// The answer for one environment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    pub environment: String,
    /// The clauses of the sentence, the most important first.
    pub clauses: Vec<String>,
    pub tone: Tone,
}

/// A compared cell, with its table and the row of the baseline.
struct Found<'a> {
    table: &'a Table,
    row: &'a Row,
    baseline: Option<&'a Row>,
}

/// How much a sentence says about a comparison that is slower or faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    /// The effect, with its interval, absolute values and n.
    Whole,
    /// The name alone: the table is below.
    Names,
}

pub(crate) fn answers(report: &Report, groups: &[Group], length: Length) -> Vec<Answer> {
    let compared = environments(report).into_iter().map(|environment| {
        let found: Vec<Found<'_>> = groups
            .iter()
            .flat_map(|group| &group.judged)
            .flat_map(|table| {
                let baseline = table.rows.iter().find(|row| row.baseline);
                table.rows.iter().map(move |row| Found { table, row, baseline })
            })
            .filter(|found| found.row.environment == environment)
            .collect();
        let mut answer = answer(report, environment, &found, length);
        answer.clauses.splice(..0, self_clauses(report, &answer.environment));
        answer
    });
    alone(report).into_iter().chain(compared).collect()
}

/// What was found when an environment is compared with itself: among neighbours, and over time.
fn self_clauses(report: &Report, environment: &str) -> Vec<String> {
    let (mut clauses, lack) = neighbours::clauses(report, environment);
    clauses.extend(course::clauses(report, environment));
    let more = clauses.len().saturating_sub(NAMED);
    clauses.truncate(NAMED);
    if more > 0 {
        clauses.push(format!("and {more} more in the tables"));
    }
    clauses.extend(lack);
    clauses
}

/// The answer for the baseline, if comparing it with itself found anything.
fn alone(report: &Report) -> Option<Answer> {
    let environment = report.analysis.baseline.clone();
    let clauses = self_clauses(report, &environment);
    (!clauses.is_empty()).then_some(Answer { environment, clauses, tone: Tone::Plain })
}

/// Every environment but the baseline, from the plan, the cells and the failures.
fn environments(report: &Report) -> Vec<String> {
    let planned = report.plan.iter().flat_map(|plan| plan.environments.iter().map(|e| e.name.clone()));
    let measured = report.analysis.cells.iter().map(|cell| cell.environment.clone());
    let failed = report.failures.iter().map(|failure| failure.environment.clone());
    let all = planned.chain(measured).chain(failed);
    distinct(all.filter(|name| *name != report.analysis.baseline))
}

fn answer(report: &Report, environment: String, found: &[Found<'_>], length: Length) -> Answer {
    let described = if length == Length::Whole { shown } else { name };
    let total = found.len();
    let having = |verdict: Verdict| -> Vec<&Found<'_>> {
        let mut cells: Vec<&Found<'_>> =
            found.iter().filter(|f| f.row.cell.verdict == Some(verdict)).collect();
        let size = |f: &Found<'_>| f.row.cell.overhead.map_or(0.0, |o| o.estimate.ln_1p().abs());
        cells.sort_by(|a, b| size(b).total_cmp(&size(a)));
        cells
    };
    if let Some(clause) = control(found) {
        return Answer { environment, clauses: vec![clause], tone: Tone::Plain };
    }
    let than = if report.compared.is_some() { " than before" } else { "" };
    let margin = plain_percent(report.analysis.margin);
    let (slower, faster) = (having(Verdict::Slower), having(Verdict::Faster));
    let (below, open) = (having(Verdict::DetectableBelowMargin), having(Verdict::Inconclusive));
    let equivalent = having(Verdict::Equivalent);
    let silent: Vec<&Found<'_>> = found.iter().filter(|f| f.row.cell.verdict.is_none()).collect();

    let mut clauses = Vec::new();
    for (word, amount, cells) in
        [("slower", "takes more", slower.as_slice()), ("faster", "takes less", &faster)]
    {
        // A metric in bytes is not a speed, so it gets a clause of its own.
        let (memory, times): (Vec<&Found<'_>>, Vec<&Found<'_>>) = cells.iter().partition(|f| is_memory(f));
        for (word, cells) in [(word, times), (amount, memory)] {
            if !cells.is_empty() {
                clauses.push(format!(
                    "{word}{than} in {} of {total}: {}",
                    cells.len(),
                    list(&cells, described)
                ));
            }
        }
    }
    if !below.is_empty() {
        clauses.push(format!(
            "different by less than the {} margin in {} of {total}: {}",
            join(&margin),
            below.len(),
            list(&below, name)
        ));
    }
    if !equivalent.is_empty() {
        let all = if equivalent.len() == total { "all " } else { "" };
        clauses.push(format!("equivalent within {} in {all}{} of {total}", join(&margin), equivalent.len()));
    }
    if let Some(clause) = demand(report, &equivalent) {
        clauses.push(clause);
    }
    let differ = having(Verdict::RunsDiffer);
    if !differ.is_empty() {
        clauses.push(format!(
            "these two runs differ in {} of {total}, and others might not: {}",
            differ.len(),
            list(&differ, shown)
        ));
    }
    let (bounded, unbounded): (Vec<&Found<'_>>, Vec<&Found<'_>>) =
        open.iter().copied().partition(|f| f.row.cell.bound.is_some());
    if !bounded.is_empty() {
        clauses.push(format!(
            "no difference found in {} of {total}: {}",
            bounded.len(),
            list(&bounded, within)
        ));
    }
    if !unbounded.is_empty() {
        clauses.push(format!("no difference found in {} of {total}{}", unbounded.len(), blind(&unbounded)));
    }
    let (missing, unjudged): (Vec<&Found<'_>>, Vec<&Found<'_>>) =
        silent.into_iter().partition(|f| f.row.cell.flags.contains(&Flag::NotMeasured));
    if !unjudged.is_empty() {
        clauses.push(format!("no verdict in {} of {total}: {}", unjudged.len(), list(&unjudged, why)));
    }
    if !missing.is_empty() {
        clauses.push(format!("not measured in {} of {total}: {}", missing.len(), list(&missing, name)));
    }
    if clauses.is_empty() {
        let measured = |c: &weigh_stats::Cell| c.environment == environment && c.summary.is_some();
        clauses.push(if report.analysis.cells.iter().any(measured) {
            "only descriptive metrics were measured, which get no verdict".into()
        } else {
            "nothing was measured".into()
        });
    }
    let tone = if !slower.is_empty() {
        Tone::Worse
    } else if !faster.is_empty() {
        Tone::Better
    } else if !open.is_empty() || !differ.is_empty() || total == 0 {
        Tone::Open
    } else {
        Tone::Same
    };
    Answer { environment, clauses, tone }
}

/// How many of a control's intervals contain 0; 19 of 20 should. `None` for other environments.
fn control(found: &[Found<'_>]) -> Option<String> {
    let is_control = |f: &&Found<'_>| f.row.cell.flags.contains(&Flag::Control);
    let intervals: Vec<_> = found.iter().filter(is_control).filter_map(|f| f.row.cell.overhead).collect();
    let holding = intervals.iter().filter(|interval| interval.low <= 0.0 && interval.high >= 0.0).count();
    let contain = if intervals.len() == 1 { "interval contains" } else { "intervals contain" };
    (!intervals.is_empty()).then(|| {
        format!("control (the baseline again): {holding} of {} {contain} 0; 19 of 20 should", intervals.len())
    })
}

/// CPU time per operation where the result is equivalent and the whole interval of the CPU time
/// lies beyond the margin. It is not a verdict; it is reported because a reader would otherwise
/// miss that the same result has another price.
fn demand(report: &Report, equivalent: &[&Found<'_>]) -> Option<String> {
    let margin = report.analysis.margin;
    let mut workloads: Vec<&str> = Vec::new();
    let mut told = Vec::new();
    for found in equivalent {
        let workload = found.row.cell.workload.as_str();
        if workloads.contains(&workload) {
            continue;
        }
        workloads.push(workload);
        let Some(charge) = charges::charge(report, workload, &found.row.environment) else { continue };
        let beyond = charge.difference.is_some_and(|d| d.low > margin || d.high < -margin / (1.0 + margin));
        if let Some(compared) = charges::compared(report, charge).filter(|_| beyond) {
            told.push(format!("{workload} {compared}"));
        }
    }
    let more = told.len().saturating_sub(NAMED);
    told.truncate(NAMED);
    if more > 0 {
        told.push(format!("and {more} more"));
    }
    (!told.is_empty()).then(|| {
        format!("equivalent, but at a different CPU time per operation (descriptive): {}", told.join(", "))
    })
}

/// What could not be decided in one environment, and what it would take to decide it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Undecided {
    pub environment: String,
    /// The number of comparisons, decided or not.
    pub total: usize,
    /// The open comparisons, each with what would decide it, the nearest to a decision first.
    pub open: Vec<String>,
}

/// Undecided comparisons, by environment.
pub(crate) fn undecided(groups: &[Group]) -> Vec<Undecided> {
    let tables = groups.iter().flat_map(|group| &group.judged);
    let rows = tables.flat_map(|table| table.rows.iter().map(move |row| (table, row)));
    let compared = rows.filter(|(_, row)| !row.baseline);
    let undecided =
        grouped(compared, |(_, row)| row.environment.clone()).into_iter().map(|(environment, rows)| {
            let open = rows.iter().filter(|(_, row)| row.cell.verdict == Some(Verdict::Inconclusive));
            let mut open: Vec<(u32, String)> = open
                .map(|(table, row)| {
                    (row.cell.blocks_to_decide.unwrap_or(u32::MAX), open_sentence(table, row))
                })
                .collect();
            open.sort();
            Undecided {
                environment,
                total: rows.len(),
                open: open.into_iter().map(|(_, text)| text).collect(),
            }
        });
    undecided.filter(|undecided| !undecided.open.is_empty()).collect()
}

fn open_sentence(table: &Table, row: &Row) -> String {
    let things = rows::units(&row.cell);
    let more = match row.cell.blocks_to_decide {
        Some(blocks) => join(&format!("about {} {things}", rows::two_digits(blocks))),
        None if rows::is_one_block(&row.cell) => {
            return format!("{} {}: {}", table.workload, table.metric, rows::ONE_BLOCK);
        }
        None => format!("no practical number of {things}"),
    };
    let seen = row.smallest.as_ref().map_or(String::new(), |smallest| {
        format!("; the smallest effect it could see is {}", join(&smallest.to_string()))
    });
    let measured = match &row.cell.runs {
        Some(sides) => format!("{} and {}", sides.before.each.len(), sides.after.each.len()),
        None => row.n.to_string(),
    };
    format!("{} {}: {more} would decide it; {measured} were measured{seen}", table.workload, table.metric)
}

fn list(cells: &[&Found<'_>], describe: fn(&Found<'_>) -> String) -> String {
    let mut text: Vec<String> = cells.iter().take(NAMED).map(|found| describe(found)).collect();
    if cells.len() > NAMED {
        text.push(format!("and {} more", cells.len() - NAMED));
    }
    text.join(", ")
}

/// Whether the metric is an amount of memory.
fn is_memory(found: &Found<'_>) -> bool {
    found.row.cell.metric.unit.symbol() == "B" && found.row.cell.metric.better == Better::Lower
}

fn name(found: &Found<'_>) -> String {
    format!("{} {}", found.table.workload, found.table.metric)
}

/// An effect with its interval, absolute values and n.
fn shown(found: &Found<'_>) -> String {
    let row = found.row;
    let mut text = name(found);
    if let Some(effect) = &row.effect {
        text.push_str(&format!(" {}", join(&effect.to_string())));
    }
    let value = join(&row.value.as_ref().map_or("-".into(), ToString::to_string));
    let against = match found.baseline.and_then(|baseline| baseline.value.as_ref()) {
        Some(baseline) if !found.table.sequential => format!(" against {}", join(&baseline.to_string())),
        _ => String::new(),
    };
    text.push_str(&format!(" ({value}{against}, {})", join(&format!("n {}", row.n))));
    text
}

/// The effect that an open verdict excludes.
fn within(found: &Found<'_>) -> String {
    [Some(name(found)), rows::within(&found.row.cell)].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// Why there is no verdict.
fn why(found: &Found<'_>) -> String {
    format!("{} ({})", name(found), join(&rows::why_no_verdict(&found.row.cell)))
}

/// The size of effect that inconclusive comparisons without a bound could not have seen.
fn blind(open: &[&Found<'_>]) -> String {
    let sizes: Vec<f64> = open.iter().filter_map(|f| f.row.cell.smallest_detectable).collect();
    let (Some(least), Some(most)) =
        (sizes.iter().copied().min_by(f64::total_cmp), sizes.iter().copied().max_by(f64::total_cmp))
    else {
        return ", and too few blocks to see any".into();
    };
    unseen(least, most)
}

/// In words, that effects smaller than sizes between these two could not have been seen.
fn unseen(least: f64, most: f64) -> String {
    let (low, high) = (join(&magnitude(least)), join(&magnitude(most)));
    let which = match (low == high, least > LARGEST_DETECTABLE, most > LARGEST_DETECTABLE) {
        (_, true, _) => "almost any".into(),
        (_, _, true) => format!("one under {low}, in some comparisons almost any,"),
        (true, ..) => format!("one under {low}"),
        (false, ..) => format!("one under {low} to {high}, by comparison,"),
    };
    format!(" ({which} would likely go unseen)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enormous_effects_are_given_no_number() {
        let said = |least, most| unseen(least, most).replace('\u{a0}', " ");
        assert_eq!(said(0.05, 0.05), " (one under 5.0 % would likely go unseen)");
        assert_eq!(said(0.05, 0.2), " (one under 5.0 % to 20 %, by comparison, would likely go unseen)");
        assert_eq!(
            said(0.05, 1e12),
            " (one under 5.0 %, in some comparisons almost any, would likely go unseen)"
        );
        assert_eq!(said(1e10, 1e58), " (almost any would likely go unseen)");
    }
}
