//! The price of the same work on each kind of machine: price-performance.

use super::PooledReport;
use super::document::bar;
use crate::costs::{self, operations};
use crate::document::{
    Align, Audience, BarScale, Block, Column, Entry, Figure, Fit, Piece, PlotKind, Row, Section, Table, Tone,
};
use crate::json::estimate;
use crate::plots::Plots;
use crate::quantity::{Quantity, Scale};
use crate::results::reach;
use crate::study::charts::{Chart, Mark, Series};
use crate::text::shown_name;
use serde_json::{Value, json};
use weigh_model::{Unit, distinct, grouped};
use weigh_stats::{WorkCost, work_costs};

/// The costs of a report; empty if it has no prices.
pub(super) fn of(report: &PooledReport) -> Vec<WorkCost> {
    work_costs(&report.pooled, &report.prices)
}

/// A table for each metric of each workload, with a figure if there are several kinds to compare.
pub(super) fn section(report: &PooledReport, plots: &mut Plots) -> Section {
    let costs = of(report);
    let mut section = Section::new("Price and performance").id("prices");
    let (Some(first), false) = (report.pooled.groups.first(), costs.is_empty()) else { return section };
    let bars = BarScale {
        reach: reach(costs.iter().filter_map(|cost| cost.against_first)),
        margin: report.pooled.margin,
    };
    let tables =
        grouped(&costs, |cost| (cost.workload.clone(), cost.key.params.clone(), cost.metric.name.clone()));
    for (_, costs) in tables {
        if report.pooled.groups.len() > 1 {
            let (caption, index) = (caption(costs[0]), plots.charts.len());
            let seen = "the work for one unit of the price against the price of an hour, one line for each environment";
            let figure = Figure::beside_table(PlotKind::Lines, index, caption, seen);
            plots.charts.push(chart(report, &costs));
            section.push(Audience::PAGE, Block::Figures(vec![figure]));
        }
        section.push(Audience::ALL, Block::table(table(report, &shown_name(&first.name), &costs, bars)));
    }
    section
}

fn caption(cost: &WorkCost) -> String {
    costs::caption(&cost.workload, &cost.metric)
}

/// The number format for amounts of work, whatever they count, with their common prefix.
fn scale(work: impl Iterator<Item = f64>) -> (Scale, String) {
    let scale = Scale::new(&Unit::normalise("op/s").0, work, None);
    let prefix = scale.symbol().trim_end_matches("op/s").to_string();
    (scale, if prefix.is_empty() { prefix } else { prefix + " " })
}

/// What one unit of the price buys on each kind, against the price of an hour: a line is level if
/// more expensive machines do the same amount of work for the money.
fn chart(report: &PooledReport, costs: &[&WorkCost]) -> Chart {
    let price = |cost: &WorkCost| report.prices[cost.group];
    let (scale, prefix) = scale(costs.iter().map(|cost| cost.work));
    let mark = |cost: &&&WorkCost| {
        let ends = cost.interval.map(|(low, high)| (scale.shown(low), scale.shown(high)));
        let (low, high) = ends.unzip();
        let text = format!(
            "{}, {}, {} an hour\n{} per unit of price",
            shown_name(&report.pooled.groups[cost.group].name),
            shown_name(&cost.environment),
            price(cost),
            Quantity { unit: format!("{prefix}{}", operations(&cost.metric)), ..scale.quantity(cost.work) },
        );
        Mark { low, high, ..Mark::at(price(cost), scale.shown(cost.work), text) }
    };
    let series = |(arm, environment): (usize, &str)| {
        let mut of: Vec<&&WorkCost> = costs.iter().filter(|cost| cost.environment == environment).collect();
        of.sort_by(|a, b| price(a).total_cmp(&price(b)));
        let here = of.iter().map(mark).collect();
        Series { arm, name: shown_name(environment), there: Vec::new(), here }
    };
    let environments = distinct(costs.iter().map(|cost| cost.environment.as_str()));
    Chart {
        title: caption(costs[0]),
        what: format!("{prefix}{} per unit of price", operations(&costs[0].metric)),
        across: "price of an hour".into(),
        ..Chart::of(
            PlotKind::Lines,
            "lines, one for each environment",
            environments.into_iter().enumerate().map(series).collect(),
        )
    }
}

fn table(report: &PooledReport, first: &str, costs: &[&WorkCost], bars: BarScale) -> Table {
    let (scale, prefix) = scale(costs.iter().map(|cost| cost.work));
    let row = |cost: &&WorkCost| {
        let number = |value: f64| Quantity { unit: String::new(), ..scale.quantity(value) };
        let ends = cost.interval.map(|(low, high)| Piece::Brackets(vec![number(low), number(high)]));
        let work = [Piece::Quantity(number(cost.work))];
        let space = ends.is_some().then(|| Piece::Text(" ".into()));
        let work = work.into_iter().chain(space).chain(ends).collect();
        let group = &report.pooled.groups[cost.group].name;
        let name = format!("{}, {}", shown_name(group), shown_name(&cost.environment));
        let price = report.prices[cost.group];
        let tone = match cost.against_first {
            Some(of) if of.low > 0.0 => Tone::Worse,
            Some(of) if of.high < 0.0 => Tone::Better,
            _ => Tone::Plain,
        };
        Row::new([
            Entry::name(&cost.environment),
            Entry::name(group),
            costs::price(price),
            Entry { sort: Some(cost.work), ..Entry::of(work) },
            cost.against_first.map(|of| Entry::effect(of.into())).unwrap_or_default(),
            Entry::bar(bar(&name, cost.against_first, tone, bars)),
            Entry::count(cost.machines),
        ])
    };
    let mut rows: Vec<&&WorkCost> = costs.iter().collect();
    // Group the rows by environment, so that its kinds follow each other.
    let environments = distinct(costs.iter().map(|cost| cost.environment.as_str()));
    let place = |cost: &WorkCost| environments.iter().position(|one| *one == cost.environment);
    rows.sort_by_key(|cost| (place(cost), cost.group));
    let cost = costs[0];
    Table {
        caption: caption(cost),
        note: format!(
            "work per unit of price: {}{}, with the 95 % interval of the average machine. cost: of the same \
             work in the same environment, against {first}; + costs more (Welch, by machine). A kind with one machine has \
             no interval. Not adjusted for their number, no verdicts",
            prefix,
            operations(&cost.metric),
        )
        .replace(" %", "\u{a0}%"),
        columns: vec![
            Column::text("environment"),
            Column::text("kind"),
            Column::number("price/h"),
            Column::number("work per unit of price [95 % interval]"),
            Column::number(format!("cost against {first} [95 % interval]")).aligned(Align::Effect),
            Column::text("").fit(Fit::Bar).on(Audience { paper: false, ..Audience::ALL }),
            Column::number("machines"),
        ],
        rows: rows.into_iter().map(row).collect(),
        bars: Some(bars),
        ..Table::default()
    }
}

/// The costs for programs.
pub(super) fn json(report: &PooledReport) -> Vec<Value> {
    let one = |cost: WorkCost| {
        json!({
            "group": report.pooled.groups[cost.group].name,
            "price_per_hour": report.prices[cost.group],
            "workload": cost.workload,
            "params": cost.key.params,
            "metric": cost.metric.name,
            "environment": cost.environment,
            "machines": cost.machines,
            "counts": operations(&cost.metric),
            "work": cost.work,
            "work_ci_low": cost.interval.map(|(low, _)| low),
            "work_ci_high": cost.interval.map(|(_, high)| high),
            "cost_against_first": estimate(cost.against_first, "mean"),
        })
    };
    of(report).into_iter().map(one).collect()
}
