//! A pool as a document: the results over machines, how groups differ, machine by machine.

use super::words::{self, direction, machines};
use super::{PooledMachine, PooledReport, costs};
use crate::differences::readable_fact;
use crate::document::{
    Align, Audience, Bar, BarScale, Block, Cell, Column, Document, Entry, Figure, Fit, Form, Item, ListKind,
    Piece, PlotKind, Row, Section, SectionKind, Table, Tone,
};
use crate::notes::RATES;
use crate::plots::Plots;
use crate::quantity::{Effect, Quantity, Scale, plain_percent, share_of, size};
use crate::results::reach;
use crate::run::warnings_of;
use crate::text::{harmless, join, shown_name};
use weigh_model::{Better, distinct, grouped, number_of};
use weigh_stats::{GroupDifference, Interval, MachineEffect, PooledCell, Scope, Verdict};

/// The most machines of a cell that have a row. If there are more, those with the smallest and the
/// largest effects have one: the others lie between them, and the formats for programs have them
/// all.
const MOST_MACHINES: usize = 100;

/// The most effects of machines that the figure of a page can hold.
const MOST_DRAWN: usize = 400;

/// The number of warnings that the brief form shows.
const WARNINGS: usize = 3;

/// The document of a pool; the brief form unless `whole`.
pub(super) fn document(report: &PooledReport, whole: bool) -> Document {
    let bars = scale(report);
    let mut document = Document::new(&report.title);
    document.add(head(report));
    document.add(labels(report));
    results(report, bars, whole).into_iter().for_each(|section| document.add(section));
    document.add(differences(report, whole));
    let mut plots = Plots::of_machines(report);
    document.add(costs::section(report, &mut plots));
    if !whole {
        document.add(lines(report));
        return document;
    }
    document.add(figure(&plots));
    machine_by_machine(report, bars).into_iter().for_each(|section| document.add(section));
    document.add(all_machines(report));
    document.add(reading(report));
    document.add(warnings_of(report.warnings.iter().cloned()));
    document.plots = plots;
    document
}

/// What was pooled, in one line.
fn head(report: &PooledReport) -> Section {
    let runs: usize = report.machines.iter().map(|machine| machine.runs.len()).sum();
    let groups =
        report.by.as_ref().map(|by| format!("{} by {by}", number_of(report.pooled.groups.len(), "group")));
    let parts = [format!("{} on {}", number_of(runs, "run"), machines(report.machines.len()))];
    let baseline = format!("baseline {}", harmless(&report.pooled.baseline));
    let parts = parts.into_iter().chain(groups).chain([baseline]).collect::<Vec<_>>().join(" · ");
    Section::untitled(SectionKind::Head).with(Audience::ALL, Block::faint(parts))
}

/// What a reader has to know before any number.
fn labels(report: &PooledReport) -> Section {
    let mut items = Vec::new();
    let mut add = |word: &str, meaning: String| items.push(Item::new(word, vec![meaning]));
    if report.pooled.exploratory {
        add("EXPLORATORY", "from quick runs: differences can be found, equivalence cannot".into());
    }
    let of_size = |size: usize| {
        let groups = report.pooled.groups.iter().filter(move |group| group.machines.len() == size);
        groups.map(|group| shown_name(&group.name)).collect::<Vec<_>>()
    };
    let which = |groups: &[String]| match report.by {
        Some(_) => format!("{}: ", groups.join(", ")),
        None => String::new(),
    };
    let like_these = report.pooled.scope == Scope::LikeThese;
    if !like_these {
        let what = "blocks of one plan were shared out: the intervals are about these machines together, and say nothing of others";
        add("THESE MACHINES", what.into());
    }
    let alone = of_size(1);
    if like_these && !alone.is_empty() {
        let what = "the intervals are about this machine, nothing is known of others, and there is no verdict; `weigh run --plan \
                    FILE` repeats its plan on others";
        add("ONE MACHINE", format!("{}{what}", which(&alone)));
    }
    let two = of_size(2);
    if like_these && !two.is_empty() {
        let what = "the average has an interval, and a wide one; none is given for another machine, because two \
                    hardly show how much machines differ";
        add("TWO MACHINES", format!("{}{what}", which(&two)));
    }
    if !report.unequal.is_empty() {
        add("UNEQUAL BY REQUEST", format!("the runs differ: {}", report.unequal.join("; ")));
    }
    Section::untitled(SectionKind::Labels).with(Audience::ALL, Block::list(ListKind::Labels, items))
}

/// The common scale of the bars, which the effects over machines determine.
fn scale(report: &PooledReport) -> BarScale {
    let judged = report.pooled.cells.iter().filter(|cell| cell.is_in_family());
    let shown = judged.flat_map(|cell| cell.overhead.into_iter().chain(cell.prediction));
    BarScale { reach: reach(shown), margin: report.pooled.margin }
}

/// The cells of a table: one metric of one workload in one group.
fn tables(report: &PooledReport) -> Vec<Vec<&PooledCell>> {
    let table = |cell: &&PooledCell| {
        (cell.group, cell.workload.clone(), cell.key.params.clone(), cell.metric.name.clone())
    };
    grouped(&report.pooled.cells, table).into_iter().map(|(_, cells)| cells).collect()
}

/// The effects over machines.
fn results(report: &PooledReport, bars: BarScale, whole: bool) -> Vec<Section> {
    let convention = format!(
        "+ is worse: it costs more than {}; brackets hold the 95 % interval of the average over {}.",
        harmless(&report.pooled.baseline),
        match report.pooled.scope {
            Scope::LikeThese => "machines",
            Scope::TheseAlone => "all blocks of these machines",
        }
    );
    let mut first = Section::new("Over machines").titled(Audience::FULL, "");
    first.push(Audience::ALL, Block::prose(convention.replace(" %", "\u{a0}%")));
    for cells in tables(report) {
        if whole || cells.iter().any(|cell| cell.is_in_family()) {
            first.push(Audience::ALL, Block::table(result(report, &cells, bars)));
        }
    }
    vec![first]
}

/// Group, workload, metric, unit and direction.
fn caption(report: &PooledReport, cell: &PooledCell, scale: &Scale) -> String {
    let group = words::group_of(report, cell).map(|group| format!("{}: ", shown_name(group)));
    let unit = match scale.symbol() {
        "" => String::new(),
        unit => format!(", {unit}"),
    };
    let better = direction(cell.metric.better);
    let descriptive = if cell.metric.primary { "" } else { " (descriptive, no verdict)" };
    let name = shown_name(&cell.workload);
    format!(
        "{}{name} {}{unit}, {better}{descriptive}",
        group.unwrap_or_default(),
        shown_name(&cell.metric.name)
    )
}

/// The scale of the absolute values of some cells.
fn absolute(cells: &[&PooledCell]) -> Scale {
    let ends = cells.iter().flat_map(|cell| cell.medians).flat_map(|(low, high)| [low, high]);
    Scale::new(&cells[0].metric.unit, ends, None)
}

fn result(report: &PooledReport, cells: &[&PooledCell], bars: BarScale) -> Table {
    let scale = absolute(cells);
    let another = cells[0].scope() == Scope::LikeThese;
    let columns = [
        Column::text("environment"),
        Column::number("median"),
        Column::number("overhead [95 % interval]").aligned(Align::Effect),
        Column::text("").fit(Fit::Bar).on(Audience { paper: false, ..Audience::ALL }),
        Column::text("verdict").fit(Fit::Wrapped("no difference".len())),
    ];
    let after = [
        Column::number("spread").fit(Fit::Soon),
        Column::number("machines"),
        Column::number("n"),
        Column::text("remarks").fit(Fit::Remarks),
    ];
    let of_another = another.then(|| Column::number("another machine"));
    let columns = columns.into_iter().chain(of_another).chain(after).collect();
    Table {
        caption: caption(report, cells[0], &scale),
        form: Form::Results,
        columns,
        rows: cells.iter().map(|cell| result_row(cell, &scale, bars)).collect(),
        bars: Some(bars),
        ..Table::default()
    }
}

fn result_row(cell: &PooledCell, scale: &Scale, bars: BarScale) -> Row {
    let name = shown_name(&cell.environment);
    let between = cell.spread.map(|spread| Entry::quantity(size(spread.tau.estimate.exp_m1())));
    let remark = |text: String| Piece::Remark { text, aside: false };
    let before = [
        Entry::name(&cell.environment),
        range(cell.medians, scale),
        cell.overhead.map(|of| Entry::effect(of.into())).unwrap_or_default(),
        Entry::bar(bar(&name, cell.overhead, words::tone(cell), bars)),
        Entry::flag(words::tone(cell), words::verdict(cell)),
    ];
    let another = (cell.scope() == Scope::LikeThese).then(|| cell.prediction.map(ends).unwrap_or_default());
    let after = [
        between.unwrap_or_default(),
        Entry::count(cell.machines.len() as u64),
        Entry::count(cell.n),
        Entry::of(words::remarks(cell).into_iter().map(remark).collect()),
    ];
    Row::new(before.into_iter().chain(another).chain(after))
}

/// The ends of an interval without an estimate.
fn ends(interval: Interval) -> Entry {
    let Effect { low, high, .. } = Effect::from(interval);
    Entry { sort: Some(low.value), ..Entry::of(vec![Piece::Brackets(vec![low, high])]) }
}

/// The medians of an environment, from the least to the largest of the machines.
fn range(medians: Option<(f64, f64)>, scale: &Scale) -> Entry {
    let Some((low, high)) = medians else { return Entry::text("-") };
    let [low, high] = [low, high].map(|end| scale.quantity(end));
    if low == high {
        return Entry::quantity(high);
    }
    let sort = Some(low.value);
    // A unit that both have stands once.
    let low = if low.unit == high.unit { Quantity { unit: String::new(), ..low } } else { low };
    Entry { sort, ..Entry::of(vec![Piece::Quantity(low), Piece::Text("–".into()), Piece::Quantity(high)]) }
}

pub(super) fn bar(name: &str, interval: Option<Interval>, tone: Tone, bars: BarScale) -> Bar {
    let reach = plain_percent(bars.reach);
    let alt = match interval.map(Effect::from) {
        Some(effect) => format!(
            "{name}: effect {}, interval {}, on a scale from -{reach} to +{reach}",
            effect.estimate,
            effect.interval()
        ),
        None => format!("{name}: no interval"),
    };
    Bar { interval, tone, alt, ..Bar::default() }
}

/// How groups differ from the first. The brief form has only primary metrics.
fn differences(report: &PooledReport, whole: bool) -> Section {
    let section = Section::new("Between groups");
    let pooled = &report.pooled;
    let Some(first) = pooled.groups.first().filter(|_| !pooled.differences.is_empty()) else {
        return section;
    };
    let shown = pooled.differences.iter().filter(|one| whole || pooled.cells[one.other].is_in_family());
    let row = |one: &GroupDifference| {
        let cell = &pooled.cells[one.other];
        let subject = format!("{} {}, {}", cell.workload, cell.metric.name, cell.environment);
        let group = words::group_of(report, cell).unwrap_or_default();
        Row::new([Entry::name(subject), Entry::name(group), Entry::effect(one.difference.into())])
    };
    let against = format!("against {} [95 % interval]", shown_name(&first.name));
    let table = Table {
        caption: "Groups compared".into(),
        note: "the ratio of costs to the baseline in the group over that in the first group, less 1 (Welch, by machine); \
               not adjusted for their number, no verdicts"
            .into(),
        titled: true,
        columns: vec![
            Column::text("comparison"),
            Column::text("group"),
            Column::number(against).aligned(Align::Effect),
        ],
        rows: shown.map(row).collect(),
        ..Table::default()
    };
    section.with(Audience::ALL, Block::table(table))
}

/// The other lines of the brief form.
fn lines(report: &PooledReport) -> Section {
    let judged: Vec<&PooledCell> = report.pooled.cells.iter().filter(|cell| cell.is_in_family()).collect();
    let rates = judged.iter().any(|cell| cell.metric.better == Better::Higher);
    let open: Vec<&&PooledCell> =
        judged.iter().filter(|cell| cell.verdict == Some(Verdict::Inconclusive)).collect();
    let nearest = open.iter().filter_map(|cell| words::to_decide(cell).0).min();
    let units = words::units(report.pooled.scope);
    let decides = match nearest {
        Some(number) => format!("about {} {units} would decide the nearest", crate::rows::two_digits(number)),
        None => format!("no practical number of {units} would decide any"),
    };
    let open = (!open.is_empty())
        .then(|| ("open", format!("{} of {} not decided; {decides}", open.len(), judged.len())));
    let several: Vec<&PooledMachine> =
        report.machines.iter().filter(|machine| machine.runs.len() > 1).collect();
    let like_these = report.pooled.scope == Scope::LikeThese;
    let several = (like_these && !several.is_empty()).then(|| ("combined", combined(&several)));
    let further = report.warnings.len().saturating_sub(WARNINGS);
    let further = match further {
        0 => String::new(),
        more => format!("{}, and ", number_of(more, "further warning")),
    };
    let warnings = report.warnings.iter().take(WARNINGS).map(|notice| ("warning", notice.to_string()));
    let more = ("more", format!("{further}every metric, and every machine by itself: `--details`"));
    let items = rates
        .then(|| ("rates", RATES.to_string()))
        .into_iter()
        .chain(open)
        .chain(several)
        .chain(warnings)
        .chain([more])
        .map(|(word, text)| Item::new(word, vec![text]));
    Section::plain().with(Audience::ALL, Block::list(ListKind::Facts, items))
}

/// Which machines have several runs.
fn combined(several: &[&PooledMachine]) -> String {
    let of =
        |machine: &&PooledMachine| format!("{} ({} runs)", shown_name(&machine.name), machine.runs.len());
    let named: Vec<String> = several.iter().take(WARNINGS).map(of).collect();
    let more = several.len().saturating_sub(WARNINGS);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("the runs of one machine are one observation: {}{more}", named.join(", "))
}

/// The interactive forest plot of a page.
fn figure(plots: &Plots) -> Section {
    let effects = plots.effects();
    let section = Section::new("Effects").id("effects");
    if effects == 0 || effects > MOST_DRAWN {
        return section;
    }
    let alt = format!(
        "Forest plot of {effects} effects with their intervals, by machine and over machines; the same numbers are in the \
         tables"
    );
    let forest = Figure::new(PlotKind::Forest, 0, "Every machine with its 95 % interval".into(), alt);
    let without = "The plot needs this page's script; the tables have every number and a drawing of it.";
    section
        .with(Audience::PAGE, Block::Figures(vec![forest]))
        .with(Audience::PAGE, Block::WithoutScript(without.into()))
}

/// Every machine by itself: a forest plot in rows.
fn machine_by_machine(report: &PooledReport, bars: BarScale) -> Vec<Section> {
    let mut section = Section::new("Machine by machine");
    for cell in report.pooled.cells.iter().filter(|cell| !cell.machines.is_empty()) {
        let block = Block::table(forest(report, cell, bars));
        section.push(if cell.metric.primary { Audience::ALL } else { Audience::FULL }, block);
    }
    vec![section]
}

fn forest(report: &PooledReport, cell: &PooledCell, bars: BarScale) -> Table {
    let baselines = cell.machines.iter().filter_map(|machine| machine.medians.0);
    let ends = cell.medians.into_iter().flat_map(|(low, high)| [low, high]);
    let scale = Scale::new(&cell.metric.unit, ends.chain(baselines), None);
    let (shown, hidden) = shown_machines(cell);
    let rows = shown.into_iter().map(|machine| forest_row(machine, &scale, bars));
    let summary = |name: &str, effect: Entry, interval: Option<Interval>, tone: Tone| {
        Row::new([
            Entry::text(name),
            Entry::nothing(),
            effect,
            Entry::bar(bar(name, interval, tone, bars)),
            Entry::nothing(),
            Entry::nothing(),
            Entry::nothing(),
        ])
    };
    let average = match cell.scope() {
        Scope::LikeThese => "on average",
        Scope::TheseAlone => "all blocks",
    };
    let mean = cell
        .overhead
        .filter(|_| cell.machines.len() > 1)
        .map(|of| summary(average, Entry::effect(of.into()), Some(of), words::tone(cell)));
    let another =
        cell.prediction.map(|of| summary("another machine", Entry::effect(of.into()), Some(of), Tone::Plain));
    Table {
        caption: format!("{}, {}", caption(report, cell, &scale), shown_name(&cell.environment)),
        columns: vec![
            Column::text("machine"),
            Column::number(format!("median: {} → here", shown_name(&report.pooled.baseline))),
            Column::number("overhead [95 % interval]").aligned(Align::Effect),
            Column::text("").fit(Fit::Bar).on(Audience { paper: false, ..Audience::ALL }),
            Column::number("weight"),
            Column::number("runs"),
            Column::number("n"),
        ],
        rows: rows.chain(mean).chain(another).collect(),
        below: spread_words(cell).into_iter().chain(hidden).collect(),
        bars: Some(bars),
        ..Table::default()
    }
}

/// The machines that have a row, and a sentence about the others.
fn shown_machines(cell: &PooledCell) -> (Vec<&MachineEffect>, Option<String>) {
    let mut machines: Vec<&MachineEffect> = cell.machines.iter().collect();
    let hidden = machines.len().saturating_sub(MOST_MACHINES);
    if hidden == 0 {
        return (machines, None);
    }
    machines.sort_by(|a, b| a.overhead.estimate.total_cmp(&b.overhead.estimate));
    machines.drain(MOST_MACHINES / 2..MOST_MACHINES / 2 + hidden);
    let what =
        format!("{hidden} machines whose effects lie between these have no row; JSON and CSV have all.");
    (machines, Some(what))
}

fn forest_row(machine: &MachineEffect, scale: &Scale, bars: BarScale) -> Row {
    let side = |median: Option<f64>| match median {
        Some(median) => Piece::Quantity(scale.quantity(median)),
        None => Piece::Text("-".into()),
    };
    let (baseline, here) = machine.medians;
    Row::new([
        Entry::name(&machine.machine),
        Entry { sort: here, ..Entry::of(vec![side(baseline), Piece::Text(" → ".into()), side(here)]) },
        Entry::effect(machine.overhead.into()),
        Entry::bar(bar(&shown_name(&machine.machine), Some(machine.overhead), Tone::Plain, bars)),
        Entry::quantity(share_of(machine.weight)),
        Entry::count(machine.runs),
        Entry::count(machine.n),
    ])
}

/// How the machines of a cell differ.
fn spread_words(cell: &PooledCell) -> Option<String> {
    let spread = cell.spread?;
    let [tau, low, high] = [spread.tau.estimate, spread.tau.low, spread.tau.high]
        .map(|end| join(&size(end.exp_m1()).to_string()));
    Some(format!(
        "between machines: standard deviation {tau} [{low}, {high}]; Q {:.1} on {} degrees of freedom, {} {}",
        spread.q,
        cell.machines.len() - 1,
        join("I^2"),
        join(&share_of(spread.i_squared).to_string())
    ))
}

/// The facts about every machine.
fn all_machines(report: &PooledReport) -> Section {
    let grouped = report.by.is_some();
    let heads = ["CPU model", "CPUs", "memory", "kernel", "operating system", "runs", "identity"];
    let row = |machine: &PooledMachine| {
        let host = &machine.host;
        let group = grouped.then(|| Entry::name(&machine.group));
        let memory = readable_fact("memory_bytes", Some(&host.memory_bytes.into()));
        let cells = [
            Entry::name(&host.cpu_model),
            Entry::count(host.cpus.len() as u64),
            Entry { sort: Some(host.memory_bytes as f64), ..Entry::text(memory) },
            Entry::name(&host.kernel),
            Entry::name(&host.operating_system),
            Entry::name(machine.runs.join(", ")),
            Entry::name(host.identity.chars().take(8).collect::<String>()),
        ];
        let cells = [Entry::name(&machine.name)].into_iter().chain(group).chain(cells).map(Cell::from);
        Row { cells: cells.collect(), fault: false }
    };
    let names = ["machine"].into_iter().chain(grouped.then_some("group")).chain(heads);
    let shown = report.machines.iter().take(MOST_MACHINES);
    let hidden = report.machines.len().saturating_sub(MOST_MACHINES);
    let table = Table {
        caption: "Every machine".into(),
        titled: true,
        form: Form::Sentences,
        columns: names.map(Column::text).collect(),
        rows: shown.map(row).collect(),
        below: (hidden > 0).then(|| format!("{hidden} further machines are in JSON.")).into_iter().collect(),
        ..Table::default()
    };
    Section::new("Machines").id("machines").with(Audience::ALL, Block::table(table))
}

/// How to read the tables.
fn reading(report: &PooledReport) -> Section {
    let pooled = &report.pooled;
    let margin = plain_percent(pooled.margin);
    let rates = pooled.cells.iter().any(|cell| cell.metric.better == Better::Higher);
    let hosts = distinct(report.machines.iter().map(|machine| &machine.host.cpu_model)).len();
    let of_scope = match pooled.scope {
        Scope::LikeThese => [
        "The machine is the unit: its mean log ratio to its own baseline is one observation, and the interval of the \
         average rests on how machines differ (Student's t, every machine counts the same). It is about \
         machines like these, not about these alone."
            .to_string(),
        "median: least and largest of the machines' medians. n: blocks of the machine that has the fewest.".into(),
        "another machine: the interval that holds the effect on one more machine of this kind in 95 % of cases; three \
         machines at least. spread: standard deviation between machines, and between their runs where each has one."
            .into(),
        ],
        Scope::TheseAlone => [
            "The block is the unit, and the machine is a stratum: log ratios are paired within a block, a block never spans \
             machines, and every machine counts by its blocks. The interval is about these machines together."
                .to_string(),
            "median: least and largest of the machines' medians. n: blocks of all machines.".into(),
            "spread: standard deviation between machines. It is no part of the interval; where it is not 0, another machine \
             may lie elsewhere. Runs of the whole plan on several machines say where (`weigh pool`)."
                .into(),
        ],
    };
    let verdicts = format!(
        "Verdicts are about the average and adjusted for {} (Holm). EQUIVALENT means within {margin} of the \
         baseline, and needs 30 blocks{}.",
        number_of(pooled.comparisons, "comparison"),
        match pooled.scope {
            Scope::LikeThese => " on every machine",
            Scope::TheseAlone => " in all",
        }
    );
    let kinds = (hosts > 1).then(|| {
        format!(
            "The machines have {hosts} CPU models; `--by cpu-model` pools each by itself and compares them."
        )
    });
    let kinds = kinds.filter(|_| report.by.is_none());
    let rates = rates.then(|| RATES.to_string());
    let measured = format!("Measured by weighbridge {}.", harmless(&report.tool_version));
    let notes = of_scope.into_iter().chain([verdicts]).chain(rates).chain(kinds).chain([measured]);
    let notes = notes.map(|note| note.replace(" %", "\u{a0}%"));
    Section::new("How to read this").with(Audience::ALL, Block::bullets(notes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weigh_model::Unit;

    #[test]
    fn both_ends_of_a_range_have_their_unit() {
        let scale = Scale::new(&Unit::normalise("s").0, [1.0], None);
        let words = |low, high| range(Some((low, high)), &scale).words();
        assert_eq!(words(2.0, 3.0), "2.00–3.00 s");
        assert_eq!(words(2e-6, 3.0), "2.00 µs–3.00 s");
    }
}
