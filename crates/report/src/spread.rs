//! Where the spread of effects comes from, in words, and one unit of slices from beginning to end.

use crate::Report;
use crate::document::{
    Audience, Block, Column, Entry, Figure, Item, ListKind, PlotKind, Row, Section, Table,
};
use crate::own::{self, OwnRow};
use crate::plots::{Names, Plots, SlicePlot, SliceRow, rounded};
use crate::quantity::{Quantity, duration, size};
use crate::text::shown_name;
use weigh_model::grouped;
use weigh_stats::{
    BetterInvestment, Cell, Interval, MOST_TIMES, SlicedCourse, SlicedUnit, SpreadParts, SpreadSummary,
    Verdict,
};

/// The meaning of the columns of the table.
const NOTE: &str = "standard deviations of the ratio to the baseline from block to block: what the windows of slices or the iterations of a unit \
                    contribute to it, and what is drawn once per block beyond that, with its 95 % interval; best length: the unit length, \
                    relative to now, that gives the narrowest interval in the same time";

/// One table over all workloads, and a sentence for each; a terminal has only the sentences. Empty
/// if nothing is known.
pub(crate) fn section(report: &Report) -> Section {
    let all = &report.circumstances.spreads;
    let section = Section::new("Where the spread comes from").id("spread");
    if all.is_empty() {
        return section;
    }
    let workloads = grouped(all, |summary| &summary.workload);
    let sentence = |(_, of): &(_, Vec<&SpreadSummary>), short: bool| {
        let words = match short {
            true => [ranges(of), pays(of), helps(report, of), gained(report, of)],
            false => [Some(effort(of)), helps(report, of), gained(report, of), None],
        };
        let words: Vec<String> = words.into_iter().flatten().collect();
        Item::new(shown_name(&of[0].workload), vec![words.join("; ")])
    };
    let list = |short| Block::list(ListKind::Named, workloads.iter().map(|of| sentence(of, short)));
    let columns = ["within a unit", "between units", "best length"];
    let rows = all.iter().map(row).collect();
    let caption = "Spread within units and between them".into();
    let table = own::table(caption, NOTE.into(), "workload, environment", &columns, rows);
    section
        .with(Audience::TERMINAL, list(true))
        .with(Audience::FULL, Block::table(table))
        .with(Audience::FULL, list(false))
}

fn row(summary: &SpreadSummary) -> OwnRow {
    let SpreadSummary { workload, environment, spread, best_length, pays, .. } = summary;
    let bare = |fraction: f64| Quantity { unit: String::new(), ..size(fraction) };
    let Interval { estimate, low, high } = spread.between;
    let Interval { estimate: best, low: least, high: most } = *best_length;
    let pays = match pays {
        BetterInvestment::LongerUnits => "longer units pay more than more blocks",
        BetterInvestment::MoreBlocks => "more blocks pay more than longer units",
        BetterInvestment::Either => "whether longer units or more blocks pay more is not decided",
    };
    OwnRow {
        name: Entry::name(format!("{workload}, {environment}")),
        entries: vec![
            Entry::quantity(size(spread.within)),
            Entry::estimate(size(estimate), bare(low), bare(high)),
            Entry::estimate(times(best, "times"), times(least, ""), times(most, "")),
        ],
        remark: Some(pays.into()),
    }
}

/// A factor with two significant digits.
pub(crate) fn times(factor: f64, unit: &str) -> Quantity {
    let digits = (1 - factor.abs().max(1e-3).log10().floor() as i32).max(0) as usize;
    let number =
        if factor >= MOST_TIMES { format!("{MOST_TIMES} or more") } else { format!("{factor:.digits$}") };
    Quantity::new(factor, number, unit)
}

/// The ranges of both standard deviations over the environments of a workload.
fn ranges(of: &[&SpreadSummary]) -> Option<String> {
    let range = |pick: &dyn Fn(&SpreadSummary) -> f64| {
        let values = of.iter().map(|summary| pick(summary));
        let (low, high) = (values.clone().fold(f64::INFINITY, f64::min), values.fold(0.0, f64::max));
        let (low, high) = (size(low), size(high));
        if low == high { high.to_string() } else { format!("{} to {high}", low.number) }
    };
    let (within, between) = (range(&|of| of.spread.within), range(&|of| of.spread.between.estimate));
    Some(format!("within a unit {within}, between units {between}"))
}

/// The number of environments in which longer units, or more blocks, pay off more.
fn pays(of: &[&SpreadSummary]) -> Option<String> {
    let all = of.len();
    let count = |pays| of.iter().filter(|summary| summary.pays == pays).count();
    let told =
        [(BetterInvestment::LongerUnits, "longer units"), (BetterInvestment::MoreBlocks, "more blocks")]
            .map(|(pays, words)| (count(pays), words))
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, words)| match count {
                _ if all == 1 => format!("{words} pay more"),
                _ => format!("{words} pay more in {count} of {all} environments"),
            });
    let told: Vec<String> = told.collect();
    (!told.is_empty()).then(|| told.join(", "))
}

/// What would help most if something is not decided, according to the open ratio that spreads most.
fn helps(report: &Report, of: &[&SpreadSummary]) -> Option<String> {
    let is_open = |summary: &&&SpreadSummary| {
        let is_its = |cell: &&Cell| {
            (&cell.workload, &cell.environment, &cell.metric.name)
                == (&summary.workload, &summary.environment, &summary.metric)
        };
        let cell = report.analysis.cells.iter().find(is_its);
        cell.is_some_and(|cell| cell.verdict == Some(Verdict::Inconclusive))
    };
    let variance = |of: &SpreadSummary| of.spread.within.powi(2) + of.spread.between.estimate.powi(2);
    let hardest = of.iter().filter(is_open).max_by(|a, b| variance(a).total_cmp(&variance(b)))?;
    let longer = match hardest.parts {
        SpreadParts::Iterations => "more iterations (`--iterations`)",
        SpreadParts::Windows => "longer units (`--size`)",
    };
    let most = match hardest.pays {
        BetterInvestment::LongerUnits => longer.to_string(),
        BetterInvestment::MoreBlocks => "more blocks (`--blocks`), each with launches of its own".into(),
        BetterInvestment::Either => "more blocks (`--blocks`), as far as is known".into(),
    };
    Some(format!("what is not decided would gain most from {most}"))
}

/// The parts and the time of a unit.
fn effort(of: &[&SpreadSummary]) -> String {
    let SpreadSummary { parts, parts_per_unit, spread, time, .. } = of[0];
    let parts = match parts {
        SpreadParts::Windows => "windows of slices",
        SpreadParts::Iterations => "iterations",
    };
    format!(
        "{} units of {parts_per_unit} {parts}; a unit measures for {} and takes {} besides, with its share of the launches",
        spread.units,
        duration(time.measured_s),
        duration(time.other_s)
    )
}

/// The gain from slices.
fn gained(report: &Report, of: &[&SpreadSummary]) -> Option<String> {
    let slices = report.circumstances.slices.iter().find(|slices| slices.workload == of[0].workload)?;
    let gains = slices.cells.iter().filter_map(|cell| Some((shown_name(&cell.environment), cell.gain?)));
    let told: Vec<String> =
        gains.map(|(name, gain)| format!("{} times as much in {name}", times(gain, "").number)).collect();
    let told = match told.split_last()? {
        (last, []) => last.clone(),
        (last, others) => format!("{} and {last}", others.join(", ")),
    };
    Some(format!(
        "without slices, in whole trials half as long one after the other, its ratios would spread {told}"
    ))
}

/// The data for the plots of units in slices.
pub(crate) fn plots(report: &Report, names: &Names) -> Vec<SlicePlot> {
    let row = |course: &SlicedCourse| {
        Some(SliceRow {
            environment: names.number(&course.environment)?,
            costs: course.costs.iter().copied().map(rounded).collect(),
            ratios: course.ratios.iter().copied().map(rounded).collect(),
        })
    };
    let plot = |unit: &SlicedUnit| SlicePlot {
        windows: unit.windows_s.iter().copied().map(rounded).collect(),
        rows: unit.courses.iter().filter_map(row).collect(),
    };
    report.circumstances.sliced_units.iter().map(plot).collect()
}

/// One unit of a workload in slices: its plot, and the numbers behind it.
pub(crate) fn one_unit(report: &Report, workload: &str, plots: &Plots) -> Block {
    let units = &report.circumstances.sliced_units;
    let found = units.iter().enumerate().find(|(index, unit)| {
        unit.workload == workload && plots.slices.get(*index).is_some_and(|plot| !plot.rows.is_empty())
    });
    let nothing = Block::Fold { summary: String::new(), open: false, blocks: Vec::new() };
    let Some((index, unit)) = found else { return nothing };
    let SlicedUnit { block, units, .. } = unit;
    let name = shown_name(&format!("{} {}", unit.workload, unit.metric));
    let baseline = shown_name(&report.analysis.baseline);
    let costs = format!("{name}: cost, window by window");
    let seen =
        format!("steps over the time of the unit, one line per environment, against the mean of {baseline}");
    let ratios = format!("{name}: ratio to {baseline}, window by window");
    let steady =
        "steps over the same time, one line per environment, flat where noise hit it and the baseline alike";
    let figures = vec![
        Figure::beside_table(PlotKind::SliceCosts, index, costs, &seen),
        Figure::beside_table(PlotKind::SliceRatios, index, ratios, steady),
    ];
    let how = format!(
        "Block {block}, the middle one of {units} that could be shown; what it found played no part in the choice. Its environments were \
         thawed in turn for a few milliseconds each. What moves all lines of the first figure at once is noise that hit all environments \
         alike: it is not in the ratios of the second."
    );
    Block::Fold {
        summary: format!("One unit in slices, from beginning to end: block {block}"),
        open: false,
        blocks: vec![Block::prose(how), Block::Figures(figures), Block::table(moved(unit, &name, &baseline))],
    }
}

/// How much costs and ratios varied within the unit.
fn moved(unit: &SlicedUnit, name: &str, baseline: &str) -> Table {
    let row = |course: &SlicedCourse| {
        let ratio = course.ratio_moved.map(|moved| Entry::quantity(size(moved)));
        let together = course.together.map(|r| Entry { sort: Some(r), ..Entry::text(format!("{r:.2}")) });
        Row::new([
            Entry::name(&course.environment),
            Entry::quantity(size(course.moved)),
            ratio.unwrap_or_default(),
            together.unwrap_or_default(),
        ])
    };
    let columns = [
        "cost moved by".to_string(),
        format!("ratio to {baseline} moved by"),
        format!("correlation with {baseline}"),
    ];
    let windows = unit.windows_s.len().saturating_sub(1);
    Table {
        note: format!("standard deviations over {windows} windows of equally many rounds"),
        columns: [Column::text("environment")].into_iter().chain(columns.map(Column::number)).collect(),
        rows: unit.courses.iter().map(row).collect(),
        ..Table::new(format!("{name} within the unit of block {}", unit.block), Vec::new(), Vec::new())
    }
}
