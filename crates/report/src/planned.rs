//! The output of `weigh plan`: the run that finds a difference, and where its spread comes from.

use crate::Document;
use crate::document::{Audience, Block, Entry, Item, ListKind, Section};
use crate::own::{self, OwnRow};
use crate::quantity::{Quantity, plain_percent, size};
use crate::spread::times;
use crate::text::{join, shown_name};
use weigh_model::grouped;
use weigh_stats::{PlannedCell, PlannedParts, PlannedRun, RunCost, SpreadParts};

/// The meaning of the columns of the first table.
const SPREAD_NOTE: &str = "spread: standard deviation of the log ratio from block to block; a pilot this short estimates it badly, so the \
                           number of blocks allows for a spread up to `at most`, its 80 % upper confidence bound (chi-square); the pilot may \
                           have missed rare slow blocks";

/// The meaning of the columns of the second table.
const PARTS_NOTE: &str = "standard deviations of the log ratio: what the iterations or slices of a unit contribute to it, and what is drawn once per \
                          block, with its launches, with the 95 % interval; best length: the unit length, relative to now, that takes the \
                          least time for a spread up to `at most`, and then what the cell takes";

/// The document of a planned run. `command` starts the run that finds the difference, if there is
/// one.
pub fn planned(planned: &PlannedRun, command: Option<&str>) -> Document {
    let detect = join(&plain_percent(planned.detect));
    let mut document = Document::new(&format!("A run that finds {detect}"));
    let each = match planned.comparisons {
        1 => "the comparison".into(),
        many => format!("each of {many} comparisons, by Holm's method as if no other were found"),
    };
    let facts = [
        (
            "pilot",
            format!("{} blocks; its effects were not looked at and are not kept", planned.pilot_blocks),
        ),
        ("power", format!("80 % to find {detect} in {each}")),
    ];
    document.add(Section::plain().with(Audience::ALL, Block::facts(facts)));
    document.add(own::section(blocks(planned, &detect), Vec::new()));
    if planned.cells.iter().any(|cell| cell.parts.is_some()) {
        document.add(own::section(parts(planned), Vec::new()));
        let workloads = grouped(&planned.cells, |cell| cell.workload.clone());
        let helps = workloads
            .into_iter()
            .filter_map(|(workload, cells)| Some(Item::new(shown_name(&workload), vec![helps(&cells)?])));
        document.add(Section::new("What helps").with(Audience::ALL, Block::list(ListKind::Named, helps)));
    } else {
        let why = "with one iteration in a block nothing is known of what more of them would save: `--iterations 3` shows it";
        document.add(Section::new("What helps").with(Audience::ALL, Block::prose(why)));
    }
    document.add(run(planned, command));
    document
}

fn blocks(planned: &PlannedRun, detect: &str) -> crate::document::Table {
    let columns = ["spread", "at most", "blocks", "time"];
    let row = |cell: &PlannedCell| {
        let obstacles: Vec<String> = cell.obstacles.iter().map(ToString::to_string).collect();
        let spread = cell.spread.map(|spread| [spread.sd, spread.bound].map(|sd| Entry::quantity(size(sd))));
        let [sd, bound] = spread.unwrap_or_else(|| [Entry::nothing(), Entry::nothing()]);
        let [blocks, time] = expense(cell.expense);
        let remark = (!obstacles.is_empty()).then(|| format!("no verdict: {}", obstacles.join(", ")));
        OwnRow { name: name(cell), entries: vec![sd, bound, blocks, time], remark }
    };
    let rows = planned.cells.iter().map(row).collect();
    own::table(format!("Blocks to find {detect}"), SPREAD_NOTE.into(), "comparison", &columns, rows)
}

fn parts(planned: &PlannedRun) -> crate::document::Table {
    let columns = ["within a unit", "between units", "best length", "blocks", "time"];
    let rows = planned.cells.iter().filter_map(|cell| {
        let PlannedParts { summary, times: best, expense: takes } = cell.parts.as_ref()?;
        let between = summary.spread.between;
        let bare = |fraction: f64| Quantity { unit: String::new(), ..size(fraction) };
        let [blocks, time] = expense(*takes);
        let entries = vec![
            Entry::quantity(size(summary.spread.within)),
            Entry::estimate(size(between.estimate), bare(between.low), bare(between.high)),
            Entry::quantity(times(*best, "times")),
            blocks,
            time,
        ];
        Some(OwnRow { name: name(cell), entries, remark: None })
    });
    own::table(
        "Where the spread comes from".into(),
        PARTS_NOTE.into(),
        "comparison",
        &columns,
        rows.collect(),
    )
}

fn name(cell: &PlannedCell) -> Entry {
    Entry::name(format!("{} {}, {}", cell.workload, cell.metric, cell.environment))
}

fn expense(expense: RunCost) -> [Entry; 2] {
    let blocks = expense.blocks.map_or_else(|| Entry::text("too many"), Entry::count);
    [blocks, expense.seconds.map_or_else(Entry::nothing, |seconds| Entry::quantity(span(seconds)))]
}

/// What makes a workload cheaper, according to the decomposed cell that takes longest.
fn helps(cells: &[&PlannedCell]) -> Option<String> {
    let decomposed = cells.iter().filter_map(|cell| Some((cell, cell.parts.as_ref()?)));
    let seconds = |cell: &PlannedCell| cell.expense.seconds.unwrap_or(0.0);
    let (cell, parts) = decomposed.max_by(|(a, _), (b, _)| seconds(a).total_cmp(&seconds(b)))?;
    let takes = parts.expense.seconds?;
    let saved = 1.0 - takes / cell.expense.seconds?;
    let length = join(&times(parts.times, "times").to_string());
    let (more, changed) = match parts.summary.parts {
        SpreadParts::Iterations => ("more iterations", format!("{length} as many iterations")),
        SpreadParts::Windows => ("longer units (a larger `--size`)", format!("units {length} as long")),
    };
    Some(match parts.times {
        _ if saved < 0.1 => {
            "no other length of its units saves a tenth of the time: what helps is more blocks, each with launches of its own"
                .into()
        }
        best if best > 1.0 => format!(
            "{more} help most: {changed} save {:.0} % of the time; more launches help only in more blocks",
            saved * 100.0
        ),
        _ => format!(
            "more launches, that is, more blocks, help most: {changed} save {:.0} % of the time",
            saved * 100.0
        ),
    })
}

fn run(planned: &PlannedRun, command: Option<&str>) -> Section {
    let section = Section::new("The run");
    let Some(command) = command else {
        let why = "no practical number of blocks finds it in every comparison: name a larger difference, compare less, or use a quieter host";
        return section.with(Audience::ALL, Block::prose(why));
    };
    let chosen = planned.better.map_or(planned.present, |better| better.expense);
    let about = |expense: RunCost| {
        expense.seconds.map(|seconds| format!("about {}", join(&span(seconds).to_string())))
    };
    let mut words: Vec<String> = about(chosen).into_iter().collect();
    words.extend(
        planned.better.and(about(planned.present)).map(|time| format!("{time} with the present iterations")),
    );
    let section =
        section.with(Audience::ALL, Block::list(ListKind::Bullets, [Item::command(command.into())]));
    if words.is_empty() { section } else { section.with(Audience::ALL, Block::prose(words.join("; "))) }
}

/// A time span in the unit that people plan with.
fn span(seconds: f64) -> Quantity {
    let (value, unit) = match seconds {
        s if s < 100.0 => (s, "s"),
        s if s < 6_000.0 => (s / 60.0, "min"),
        s => (s / 3_600.0, "h"),
    };
    let decimals = usize::from(value < 10.0);
    Quantity::new(seconds, format!("{value:.decimals$}"), unit)
}
