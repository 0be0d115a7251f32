//! The outcome of a group-sequential run: at which looks its cells ended, and what that saved.

use crate::Report;
use crate::quantity::magnitude;
use std::collections::BTreeMap;
use weigh_model::{Effort, Looks};
use weigh_stats::Cell;

/// The looks of the run, if it is group-sequential.
pub(crate) fn looks(report: &Report) -> Option<Looks> {
    match report.plan.as_ref()?.effort {
        Effort::Sequential { looks, .. } if report.compared.is_none() => Some(looks),
        _ => None,
    }
}

/// Primary cells that no look has ended.
pub(crate) fn open_cells(report: &Report) -> usize {
    judged(report).filter(|cell| cell.look.is_none() && cell.summary.is_some()).count()
}

fn judged(report: &Report) -> impl Iterator<Item = &Cell> {
    report.analysis.cells.iter().filter(|cell| cell.is_in_family())
}

/// The design in a sentence, with the blocks at which cells ended and the share of trials saved.
pub(crate) fn sentence(report: &Report) -> Option<String> {
    let looks = looks(report)?;
    let mut ended: BTreeMap<u32, usize> = BTreeMap::new();
    for look in judged(report).filter_map(|cell| cell.look) {
        *ended.entry(look.blocks).or_default() += 1;
    }
    let mut text = format!(
        "Group-sequential design: looks at {}, {}, ... {} blocks share an error of 5 %, which the intervals allow \
         for, and what is decided at one is not measured further.",
        looks.first(),
        looks.first() + looks.step(),
        looks.last()
    );
    if !ended.is_empty() {
        let at: Vec<String> = ended.iter().map(|(blocks, cells)| format!("{cells} at {blocks}")).collect();
        text.push_str(&format!(" Comparisons ended by blocks: {}.", at.join(", ")));
    }
    if let Some(saved) = saved(report, looks).filter(|_| open_cells(report) == 0 && !ended.is_empty()) {
        text.push_str(&format!(
            " That saved {} of the trials of {} full blocks.",
            magnitude(saved),
            looks.last()
        ));
    }
    Some(text)
}

/// The share of trials that the run saved, of those that it would have made by the last look.
fn saved(report: &Report, looks: Looks) -> Option<f64> {
    let mut tried: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    for cell in &report.analysis.cells {
        tried.insert((&cell.workload, &cell.environment), cell.tried);
    }
    let all = f64::from(looks.last()) * tried.len() as f64;
    let used: f64 = tried.into_values().map(f64::from).sum();
    (all > 0.0).then(|| (1.0 - used / all).max(0.0))
}
