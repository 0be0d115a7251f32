//! Cells of a pool in words.

use super::PooledReport;
use crate::document::Tone;
use crate::quantity::magnitude;
use crate::rows::{flag_word, tone_of, two_digits, verdict_words};
use crate::text::{harmless, join};
use weigh_model::{Better, number_of};
use weigh_stats::{Flag, PooledCell, Scope, Verdict};

/// The number of machines named if several lack a value.
const NAMED: usize = 3;

/// The name of the group of a cell, if there are groups.
pub(super) fn group_of<'a>(report: &'a PooledReport, cell: &PooledCell) -> Option<&'a str> {
    report.by.as_ref().and_then(|_| report.pooled.groups.get(cell.group)).map(|group| group.name.as_str())
}

/// A number of machines, in words.
pub(super) fn machines(count: usize) -> String {
    number_of(count, "machine")
}

/// Which direction is better.
pub(super) fn direction(better: Better) -> &'static str {
    match better {
        Better::Higher => "higher is better",
        Better::Lower => "lower is better",
    }
}

/// The conclusion about machines of this kind on average, or why there is none; empty for
/// descriptive metrics.
pub(super) fn verdict(cell: &PooledCell) -> String {
    if let Some(bound) = cell.bound {
        return format!("{} {}", join("no difference found;"), join(&format!("within {}", magnitude(bound))));
    }
    match (cell.verdict, cell.machines.len()) {
        (Some(verdict), _) => verdict_words(verdict),
        _ if cell.is_absent() => "ABSENT".into(),
        (None, 0) => "NOT MEASURED".into(),
        (None, _) if cell.flags.contains_key(&Flag::Control) => "control".into(),
        (None, 1) if cell.is_in_family() && cell.scope() == Scope::LikeThese => "ONE MACHINE".into(),
        (None, _) if cell.is_in_family() => "NO VERDICT".into(),
        (None, _) => String::new(),
    }
}

pub(super) fn tone(cell: &PooledCell) -> Tone {
    tone_of(cell.verdict)
}

/// Why a cell of the family has no verdict.
pub(super) fn why_no_verdict(cell: &PooledCell) -> String {
    match cell.machines.len() {
        _ if !cell.lacking.is_empty() => lacking(cell),
        0 => "nothing was measured".into(),
        1 if cell.scope() == Scope::LikeThese => "one machine says nothing of others".into(),
        _ if cell.failed > 0 => format!("{} trials failed", cell.failed),
        _ => cell.flags.keys().map(|flag| flag_word(*flag)).collect::<Vec<_>>().join(", "),
    }
}

/// The total number of units that would decide an open cell, and the name of the unit.
pub(super) fn to_decide(cell: &PooledCell) -> (Option<u32>, &'static str) {
    match cell.scope() {
        Scope::LikeThese => (cell.machines_to_decide, units(Scope::LikeThese)),
        Scope::TheseAlone => (cell.blocks_to_decide, units(Scope::TheseAlone)),
    }
}

/// What the intervals are about, for programs.
pub(super) fn scope(scope: Scope) -> &'static str {
    match scope {
        Scope::LikeThese => "machines-like-these",
        Scope::TheseAlone => "these-machines",
    }
}

/// The unit that more are needed of to narrow an interval.
pub(super) fn units(scope: Scope) -> &'static str {
    match scope {
        Scope::LikeThese => "machines",
        Scope::TheseAlone => "blocks",
    }
}

/// Which machines have no value, and why.
fn lacking(cell: &PooledCell) -> String {
    let all = cell.machines.len() + cell.lacking.len();
    if let Some((_, reason)) = cell.lacking.first()
        && cell.machines.is_empty()
        && cell.lacking.iter().all(|(_, other)| other == reason)
    {
        return format!("on no machine: {}", harmless(reason));
    }
    let named: Vec<String> = cell
        .lacking
        .iter()
        .take(NAMED)
        .map(|(machine, reason)| format!("{} ({})", harmless(machine), harmless(reason)))
        .collect();
    let more = cell.lacking.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{} of {} without a value: {}{more}", cell.lacking.len(), machines(all), named.join(", "))
}

/// What a reader has to know besides the numbers of a cell.
pub(super) fn remarks(cell: &PooledCell) -> Vec<String> {
    let all = cell.machines.len() + cell.lacking.len();
    // Flags that are reported elsewhere, or that apply to all cells alike.
    const SAID: [Flag; 5] = [Flag::Failed, Flag::NotMeasured, Flag::Absent, Flag::Exploratory, Flag::Control];
    let flags = cell.flags.iter().filter(|(flag, _)| !SAID.contains(flag));
    let mut remarks: Vec<String> = flags
        .map(|(flag, on)| match *on as usize {
            on if on == all => flag_word(*flag),
            on => format!("{} on {on} of {}", flag_word(*flag), machines(all)),
        })
        .collect();
    if !cell.lacking.is_empty() {
        remarks.push(lacking(cell));
    }
    if cell.failed > 0 {
        let holds = if cell.verdict.is_some() { ", the verdict holds with them at their worst" } else { "" };
        remarks.push(format!("{} failed{holds}", number_of(cell.failed, "trial")));
    }
    if cell.verdict == Some(Verdict::Inconclusive) {
        let (number, units) = to_decide(cell);
        remarks.push(match number {
            Some(number) => format!("about {} {units} would decide", two_digits(number)),
            None => format!("no practical number of {units} would decide"),
        });
    }
    if cell.scope() == Scope::TheseAlone && cell.machines_differ() {
        remarks.push("the machines differ, another one may lie elsewhere".into());
    }
    remarks
}
