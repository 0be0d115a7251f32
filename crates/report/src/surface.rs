//! The system calls that reach the host, beside the cost.

use crate::Report;
use crate::document::{Audience, Block, Entry, Form, Item, ListKind, Section, Table};
use crate::own::{self, OwnRow};
use crate::quantity::{self, Quantity};
use crate::results::Group;
use crate::run::median;
use crate::text::shown_name;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use weigh_model::{Caller, Surface};

/// Headings of the columns after the first.
const COLUMNS: [&str; 7] =
    ["distinct", "calls", "rate", "helpers", "median", "overhead [95 % interval]", "n"];
/// The meaning of the columns.
const NOTE: &str = "calls to the host's kernel in one run that was not measured, by the guest: its work, or the monitor that runs it; counting slows the \
                    run down; helpers are processes of the platform beside the guest; median, overhead and n are those of the first metric in the \
                    measured blocks; counts do not measure how safe a guest is";
/// The number of calls that are named for each row.
const NAMED: usize = 3;

/// One table over all workloads. With `details`, a list of the calls that only one side makes.
pub(crate) fn sections(report: &Report, groups: &[Group], details: bool) -> Vec<Section> {
    let all = &report.circumstances.surfaces;
    if all.is_empty() {
        return Vec::new();
    }
    let rows = all.iter().map(|surface| row(report, groups, surface)).collect();
    let caption = "System calls that reach the host".into();
    let table = own::table(caption, NOTE.into(), "workload, environment", &COLUMNS, rows);
    let section = own::section(Table { form: Form::Alone, ..table }, Vec::new()).id("surface");
    if !details {
        return vec![section];
    }
    let items = all.iter().filter_map(|surface| difference(report, surface));
    vec![section.with(Audience::ALL, Block::list(ListKind::Named, items))]
}

fn row(report: &Report, groups: &[Group], surface: &Surface) -> OwnRow {
    let name = Entry::name(format!("{}, {}", surface.workload, surface.environment));
    let cost = cost(groups, surface);
    if let Some(reason) = &surface.absent {
        let entries = std::iter::repeat_with(Entry::nothing).take(COLUMNS.len() - cost.len()).chain(cost);
        let remark = Some(format!("not counted: {}", shown_name(reason)));
        return OwnRow { name, entries: entries.collect(), remark };
    }
    let calls = surface.calls_of(|caller| caller == Caller::Guest);
    let is_helper = |caller| caller != Caller::Guest;
    let helpers = match surface.callers.iter().any(|of| is_helper(of.caller)) {
        true => Entry::quantity(per_operation(report, surface, surface.total_of(is_helper))),
        false => Entry::nothing(),
    };
    let total = surface.total_of(|caller| caller == Caller::Guest);
    let counted = [
        Entry::count(calls.len() as u64),
        Entry::quantity(per_operation(report, surface, total)),
        Entry::quantity(over(total, surface.duration_ns as f64 / 1e9, "/s".into())),
        helpers,
    ];
    let mut most: Vec<(&str, u64)> = calls.into_iter().collect();
    most.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let share = |(name, count): &(&str, u64)| {
        format!("{} {}", shown_name(name), quantity::share(*count as f64 / total as f64))
    };
    let most: Vec<String> = most.iter().take(NAMED).map(share).collect();
    let mut remark = most.join(", ");
    if surface.lost() > 0 {
        let lost = quantity::count("calls", surface.lost() as f64);
        remark.push_str(&format!("; the names of {lost} calls were lost"));
    }
    OwnRow { name, entries: counted.into_iter().chain(cost).collect(), remark: Some(remark) }
}

/// The first metric with a verdict: its median, its overhead, and the number of blocks.
fn cost(groups: &[Group], surface: &Surface) -> [Entry; 3] {
    let table = groups.iter().find(|group| group.workload == surface.workload);
    let row = table.and_then(|group| group.judged.first()?.row(&surface.environment));
    let Some(row) = row.filter(|row| row.value.is_some()) else { return Default::default() };
    let effect = match &row.effect {
        Some(effect) => Entry::effect(effect.clone()),
        None => Entry::text(if row.baseline { "baseline" } else { "" }),
    };
    [median(row.value.as_ref()), effect, Entry::count(row.n)]
}

/// Calls per operation or, if the workload counts none, per run of its command, as CPU time is
/// charged.
fn per_operation(report: &Report, surface: &Surface, calls: u64) -> Quantity {
    match operation(report, surface).zip(surface.operations) {
        Some((name, operations)) => over(calls, operations, format!("/{}", shown_name(name))),
        None => over(calls, 1.0, "/run".into()),
    }
}

fn over(calls: u64, amount: f64, unit: String) -> Quantity {
    let value = calls as f64 / amount;
    Quantity::new(value, quantity::count("calls", value), unit)
}

/// The name of the operation that the workload counts.
fn operation<'a>(report: &'a Report, surface: &Surface) -> Option<&'a str> {
    let workload = report.plan.as_ref()?.workloads.iter().find(|plan| plan.id == surface.workload)?;
    Some(workload.operations.as_ref()?.name.as_str())
}

/// The guest's calls that the baseline's guest does not make, and the reverse; `None` for the
/// baseline and if one of them was not counted.
fn compared<'a>(report: &'a Report, surface: &'a Surface) -> Option<[Vec<&'a str>; 2]> {
    let is_baseline = |other: &&Surface| {
        other.workload == surface.workload && other.environment == report.analysis.baseline
    };
    let baseline = report.circumstances.surfaces.iter().find(is_baseline)?;
    if baseline.environment == surface.environment || baseline.absent.is_some() || surface.absent.is_some() {
        return None;
    }
    let names = |of: &'a Surface| -> BTreeSet<&'a str> {
        of.calls_of(|caller| caller == Caller::Guest).into_keys().collect()
    };
    let (own, others) = (names(surface), names(baseline));
    let only =
        |these: &BTreeSet<&'a str>, those: &BTreeSet<&'a str>| these.difference(those).copied().collect();
    Some([only(&own, &others), only(&others, &own)])
}

fn difference(report: &Report, surface: &Surface) -> Option<Item> {
    let [own, others] = compared(report, surface)?;
    let baseline = shown_name(&report.analysis.baseline);
    let listed = |names: &[&str], what: String| {
        let names: Vec<String> = names.iter().map(|name| shown_name(name)).collect();
        (!names.is_empty()).then(|| format!("{what}: {}", names.join(", ")))
    };
    let told = [
        listed(&own, format!("{} calls that {baseline} does not make", own.len())),
        listed(&others, format!("{} that only {baseline} makes", others.len())),
    ];
    let told: Vec<String> = told.into_iter().flatten().collect();
    let name = format!("{} in {}", shown_name(&surface.workload), shown_name(&surface.environment));
    (!told.is_empty()).then(|| Item::new(name, vec![told.join("; ")]))
}

/// The same for programs.
pub(crate) fn json(report: &Report) -> Vec<Value> {
    let one = |surface: &Surface| {
        let compared = compared(report, surface);
        let caller = |of: &weigh_model::CallerCalls| {
            json!({
                "caller": of.caller,
                "program": of.program,
                "total": of.total,
                "lost": of.lost,
                "calls": of.calls,
            })
        };
        json!({
            "workload": surface.workload,
            "environment": surface.environment,
            "duration_ns": surface.duration_ns,
            "operation": operation(report, surface).filter(|_| surface.operations.is_some()),
            "operations": surface.operations,
            "absent": surface.absent,
            "distinct": surface.calls_of(|caller| caller == Caller::Guest).len(),
            "callers": surface.callers.iter().map(caller).collect::<Vec<_>>(),
            "beyond_baseline": compared.as_ref().map(|[own, _]| own),
            "baseline_only": compared.as_ref().map(|[_, others]| others),
        })
    };
    report.circumstances.surfaces.iter().map(one).collect()
}
