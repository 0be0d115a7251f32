//! The cost of operations and of guests, given the price of an hour of the host.

use crate::Report;
use crate::document::{Audience, Block, Entry, Section};
use crate::json::estimate;
use crate::own::{self, OwnRow};
use crate::quantity::Scale;
use crate::text::shown_name;
use serde_json::{Value, json};
use weigh_model::{Better, MetricSpec, Unit, distinct, grouped};
use weigh_stats::{Cell, Interval, Limit, OperationCost, not_priced, operation_costs};

/// One table per workload and metric, and a list of the metrics that have no cost.
pub(crate) fn sections(report: &Report) -> Vec<Section> {
    if report.prices.is_empty() {
        return Vec::new();
    }
    let costs = operation_costs(&report.analysis, &report.prices);
    let tables = grouped(&costs, |cost| (cost.workload.clone(), cost.metric.name.clone()));
    let mut sections: Vec<Section> = tables.into_iter().map(|(_, costs)| section(report, &costs)).collect();
    let reasons = distinct(reasons(report));
    if !reasons.is_empty() {
        let list = Block::bullets(reasons);
        sections.push(Section::new("Without a cost").with(Audience::ALL, list));
    }
    sections
}

fn section(report: &Report, costs: &[&OperationCost]) -> Section {
    let cost = costs[0];
    let operations = operations(&cost.metric);
    let baseline = shown_name(&report.analysis.baseline);
    let columns = [
        format!("cost per million {operations} [95 % interval]"),
        format!("against {baseline} [95 % interval]"),
        "price/h".into(),
        "n".into(),
    ];
    let what = match cost.metric.better {
        Better::Lower => format!("; here an operation is what {} times", shown_name(&cost.metric.name)),
        Better::Higher => String::new(),
    };
    let note = format!(
        "price of the host for as long as a million {operations} take (geometric mean over blocks){what}; against {baseline}: + costs more; no verdicts"
    );
    let caption = caption(&cost.workload, &cost.metric);
    let rows = costs.iter().map(|cost| row(cost)).collect();
    own::section(own::table(caption, note, "environment", &columns, rows), Vec::new())
}

fn row(cost: &OperationCost) -> OwnRow {
    let mean = cost.per_million;
    let scale = |relative: Option<f64>| Scale::new(&Unit::normalise("1").0, [mean], relative);
    let amount = match cost.interval {
        Some((low, high)) => {
            let half = (high - low) / 2.0 / mean;
            let [mean, low, high] = scale(Some(half)).interval(Interval { estimate: mean, low, high });
            Entry::estimate(mean, low, high)
        }
        None => Entry::quantity(scale(None).quantity(mean)),
    };
    let entries = vec![
        amount,
        cost.against_baseline.map(|against| Entry::effect(against.into())).unwrap_or_default(),
        price(cost.per_hour),
        Entry::count(cost.n),
    ];
    OwnRow { name: Entry::name(&cost.environment), entries, remark: None }
}

/// The caption of a table of costs.
pub(crate) fn caption(workload: &str, metric: &MetricSpec) -> String {
    format!("{} {}, what it costs", shown_name(workload), shown_name(&metric.name))
}

/// The price of an hour in a table.
pub(crate) fn price(per_hour: f64) -> Entry {
    Entry { sort: Some(per_hour), ..Entry::text(per_hour.to_string()) }
}

/// What the operations of a metric are called: an operation of a time is what it times, an iteration
/// or a single call, and a rate has the name of its operations in its unit.
pub(crate) fn operations(metric: &MetricSpec) -> String {
    match metric.better {
        Better::Lower => "operations".into(),
        Better::Higher => shown_name(metric.unit.symbol().trim_end_matches("/s")),
    }
}

/// Why metrics have no cost. What one more guest takes has a price of its own.
fn reasons(report: &Report) -> Vec<String> {
    let has_limit = |cell: &Cell| {
        let key = cell.key.without_guests();
        report.limits.iter().any(|limit| limit.key == key && limit.metric == cell.metric)
    };
    let reason = |cell: &Cell| {
        let why = not_priced(cell).filter(|_| cell.metric.primary && !has_limit(cell))?;
        Some(format!("{} {}: {why}", shown_name(&cell.key.name), shown_name(&cell.metric.name)))
    };
    report.analysis.cells.iter().filter_map(reason).collect()
}

/// How many guests one unit of the price buys for an hour, if memory is what runs out first.
pub(crate) fn bought(report: &Report, limit: &Limit) -> Option<Interval> {
    let memory_bytes = report.host.as_ref()?.memory_bytes as f64;
    let per_hour = report.prices.get(&limit.environment)?;
    if limit.metric.unit.symbol() == "B" { limit.bought(memory_bytes, *per_hour) } else { None }
}

/// The costs of operations for programs.
pub(crate) fn json(report: &Report) -> Vec<Value> {
    let one = |cost: OperationCost| {
        json!({
            "workload": cost.workload,
            "params": cost.key.params,
            "metric": cost.metric.name,
            "environment": cost.environment,
            "price_per_hour": cost.per_hour,
            "n": cost.n,
            "counts": operations(&cost.metric),
            "per_million": cost.per_million,
            "per_million_ci_low": cost.interval.map(|(low, _)| low),
            "per_million_ci_high": cost.interval.map(|(_, high)| high),
            "against_baseline": estimate(cost.against_baseline, "mean"),
        })
    };
    operation_costs(&report.analysis, &report.prices).into_iter().map(one).collect()
}

/// The guests that a unit of the price buys, for programs.
pub(crate) fn guests_json(report: &Report) -> Vec<Value> {
    let one = |limit: &Limit| {
        let guests = bought(report, limit)?;
        Some(json!({
            "workload": limit.key.name,
            "params": limit.key.params,
            "metric": limit.metric.name,
            "environment": limit.environment,
            "price_per_hour": report.prices.get(&limit.environment),
            "guests": guests,
        }))
    };
    report.limits.iter().filter_map(one).collect()
}
