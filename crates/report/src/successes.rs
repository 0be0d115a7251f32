//! How often trials succeed, and how slow the slowest starts are: results of their own, which no
//! median shows.

use crate::Report;
use crate::document::{Audience, Block, Entry, Form, Section, Table};
use crate::own::{self, OwnRow};
use crate::quantity::{Scale, share_of};
use crate::text::shown_name;
use weigh_model::{distinct, grouped, stamps};
use weigh_stats::{Cell, Interval};

/// Fewest starts for which a 95 % quantile is shown. With fewer it would be close to the slowest.
const FEWEST_FOR_P95: u32 = 20;

/// A table for each workload that starts guests, and for each that had a failed trial.
pub(crate) fn section(report: &Report) -> Section {
    let mut section = Section::new("Trials that succeeded").id("successes").listed();
    for (workload, cells) in grouped(&report.analysis.cells, |cell| cell.workload.clone()) {
        let own: Vec<&Cell> = cells.into_iter().filter(|cell| cell.tried > 0).collect();
        let environments = distinct(own.iter().map(|cell| cell.environment.as_str()));
        let of = |environment: &&str| Successes::of(environment, &own);
        let all: Vec<Successes> = environments.iter().filter_map(of).collect();
        let starts = all.iter().any(|one| one.start.is_some());
        if starts || all.iter().any(|one| one.trials.failed > 0) {
            section.push(Audience::ALL, Block::table(table(&shown_name(&workload), &all, starts)));
        }
    }
    section
}

/// Whether the metric is the time until guests are up or, where programs run in them, until the
/// first program has answered. A workload has one such metric at most.
fn is_start(cell: &Cell) -> bool {
    let name = cell.metric.name.as_str();
    [stamps::RESTORE, stamps::EXEC, stamps::PROMPT].contains(&name)
        || (cell.primary && name.ends_with("_to_init"))
}

/// The trials of a workload in an environment.
struct Successes<'a> {
    /// A cell that has only failed where the whole trial has: a trial that ended well but lacks a
    /// metric has failed for that metric alone.
    trials: &'a Cell,
    share: Interval,
    start: Option<&'a Cell>,
}

impl<'a> Successes<'a> {
    /// None where the environment was not tried, or cannot do what is timed: such a trial ends well
    /// without having shown anything.
    fn of(environment: &str, cells: &[&'a Cell]) -> Option<Self> {
        let own = || cells.iter().copied().filter(|cell| cell.environment == environment);
        let trials = own().min_by_key(|cell| cell.failed)?;
        let start = own().find(|cell| is_start(cell));
        if start.is_some_and(Cell::is_absent) {
            return None;
        }
        Some(Self { trials, share: trials.success()?, start })
    }
}

fn table(workload: &str, all: &[Successes<'_>], starts: bool) -> Table {
    let summaries = all.iter().filter_map(|one| one.start?.summary);
    let unit = all.iter().find_map(|one| Some(&one.start?.metric.unit));
    let scale = unit.map(|unit| Scale::new(unit, summaries.map(|summary| summary.median), None));
    let row = |one: &Successes<'_>| {
        let Successes { trials, share, start } = one;
        let succeeded = trials.tried - trials.failed;
        let mut entries = vec![
            Entry { sort: Some(succeeded.into()), ..Entry::text(format!("{succeeded} of {}", trials.tried)) },
            Entry::estimate(share_of(share.estimate), share_of(share.low), share_of(share.high)),
        ];
        if let (true, Some(scale)) = (starts, &scale) {
            let summary = start.and_then(|cell| cell.summary);
            let shown = |value: Option<f64>| value.map(|x| Entry::quantity(scale.quantity(x)));
            let values = [
                summary.map(|of| of.median),
                summary.filter(|_| succeeded >= FEWEST_FOR_P95).map(|of| of.p95),
                summary.map(|of| of.max),
            ];
            entries.extend(values.map(|value| shown(value).unwrap_or_default()));
        }
        OwnRow { name: Entry::name(&trials.environment), entries, remark: None }
    };
    let columns = ["succeeded", "share [95 % interval]", "median", "p95", "slowest"];
    let columns = &columns[..if starts { 5 } else { 2 }];
    let mut note = "trials that succeeded, of those tried, with the exact interval of the share".to_string();
    if let Some(start) = all.iter().find_map(|one| one.start) {
        note += &format!(
            "; times are {} of every trial that succeeded and is not void, slow ones included; p95 from \
             {FEWEST_FOR_P95} on",
            shown_name(&start.metric.name)
        );
    }
    let rows = all.iter().map(row).collect();
    // The section's title is about all its tables.
    Table {
        titled: false,
        form: Form::Alone,
        ..own::table(workload.into(), note, "environment", columns, rows)
    }
}
