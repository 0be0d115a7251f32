//! The document of a run or of a comparison of two: what was asked and the answer, the results by
//! workload, and what a reader has to know about them.

mod facts;

use crate::charges::{CpuRow, CpuTable};
use crate::document::{
    Align, Audience, Bar, BarScale, Block, Column, Document, Entry, Figure, Fit, Form, Item, ListKind, Piece,
    PlotKind, Row, Section, SectionKind, Table, Tone,
};
use crate::html::LivePage;
use crate::matrix::matrix;
use crate::notes::COULD_SEE;
use crate::plots::{Names, Plots, numbers};
use crate::quantity::{Quantity, plain_percent};
use crate::results::{self, Group, Median};
use crate::text::shown_name;
use crate::troubles::{self, Advice, FailureLine};
use crate::{
    LogEnd, Report, answer, circumstances, commands, differences, legend, notes, own, spread, successes,
    voids,
};
use facts::{environments, host_facts, plan_facts};
use weigh_model::{distinct, format_bytes, grouped};
use weigh_stats::Notice;

/// The sign beside the name of an environment that differs from the baseline.
pub(crate) const UNEQUAL: char = '≠';

/// The terms of the question that a terminal shows above the answer. It shows the rest at the end.
const ABOVE: &[&str] = &["run", "before", "after", "effort", "samples", "baseline"];
/// The same for the brief form, which names the run below the answer.
pub(crate) const ABOVE_BRIEF: &[&str] = &["before", "after", "effort", "samples", "baseline"];

/// The number of warnings of one kind, and of void units of one cause, that a terminal spells out.
/// On a noisy host every row has its warning, and a screen of them would bury the tables.
const SHOWN: usize = 4;

/// The numbers of a failure's logs that are named in words, listed on a page, and shown there.
const LOGS_NAMED: usize = 3;
const LOGS_LISTED: usize = 20;
const LOGS_SHOWN: usize = 2;

/// The document of a report. For an unfinished run it says what is true so far.
pub(crate) fn document(report: &Report, live: Option<&LivePage>) -> Document {
    let groups = results::groups(report);
    let names = Names::new(report);
    let mut plots = Plots::of_results(report, &groups, &names);
    let reach = results::bar_reach(&groups);
    let bars = BarScale { reach, margin: report.analysis.margin };
    let own = own::sections(report, &groups, &names, &mut plots, true);

    let mut document = Document::new(&report.title);
    document.live = live.map(|live| live.view(report));
    document.add(asked_line(report, ABOVE));
    document.add(labels(report, live));
    document.add(picture(report, &groups));
    document.add(commands::section(report));
    document.add(asked(report));
    if live.is_none_or(|live| live.ended) || !notes::nothing_measured(report) {
        document.add(answers(report, &groups));
    }
    document.add(undecided(&groups));
    document.add(effects(&plots));
    document.add(starts(&plots));
    // A page begins with what the run was for; a terminal ends with it.
    own.iter().for_each(|section| document.add(section.clone().on(Audience::PAGE)));
    sweeps(&plots).into_iter().for_each(|section| document.add(section));
    let mut first = 0;
    for (at, group) in groups.iter().enumerate() {
        document.add(workload(report, group, &plots, (at, first), bars));
        first += group.tables().count();
    }
    own.into_iter().for_each(|section| document.add(section.on(Audience::TEXT)));
    let troubles = [successes::section(report), failures(report), voids(report), warnings(report)];
    troubles.iter().for_each(|section| document.add(section.clone().on(Audience::PAGE)));
    document.add(reading(report, &groups));
    document.add(environments(report));
    document.add(spread::section(report));
    document.add(
        Section::new("Noise on the host").with(Audience::ALL, Block::facts(circumstances::noise(report))),
    );
    let [successes, failures, voids, warnings] = troubles.map(|section| section.on(Audience::TEXT));
    [successes, voids, failures, warnings].into_iter().for_each(|section| document.add(section));
    document.add(Section::new("What was measured where").on(Audience::TERMINAL).with(
        Audience::ALL,
        Block::facts(notes::subject(report).into_iter().filter(|(what, _)| !ABOVE.contains(&what.as_str()))),
    ));
    document.add(Section::new("Host").with(Audience::PAGE, Block::facts(host_facts(report))));
    document.add(Section::new("Plan").with(Audience::PAGE, Block::facts(plan_facts(report))));
    document.plots = plots;
    document
}

/// What was asked.
fn asked(report: &Report) -> Section {
    Section::untitled(SectionKind::Head).with(Audience::FULL, Block::facts(notes::subject(report)))
}

/// The part of the question that a terminal shows above the answer.
pub(crate) fn asked_line(report: &Report, told: &[&str]) -> Section {
    let subject = notes::subject(report);
    let above = subject.iter().filter(|(what, _)| told.contains(&what.as_str()));
    let line = above.map(|(what, value)| match what.as_str() {
        "effort" | "samples" => value.clone(),
        _ => format!("{what} {value}"),
    });
    let line = line.collect::<Vec<_>>().join(" · ");
    Section::untitled(SectionKind::Head).with(Audience::TERMINAL, Block::faint(line))
}

/// What a reader has to know before any number.
pub(crate) fn labels(report: &Report, live: Option<&LivePage>) -> Section {
    let going_on = live.and_then(|live| live.label(report));
    let labels = notes::labels(report, going_on.is_some());
    let items = going_on.into_iter().chain(labels).map(|label| Item::new(label.word, vec![label.meaning]));
    Section::untitled(SectionKind::Labels).with(Audience::ALL, Block::list(ListKind::Labels, items))
}

/// The cost of every workload in every environment.
pub(crate) fn picture(report: &Report, groups: &[Group]) -> Section {
    let matrix = matrix(report, groups).map(|matrix| Block::Matrix(Box::new(matrix)));
    let section = Section::untitled(SectionKind::Picture);
    matrix.into_iter().fold(section, |section, matrix| section.with(Audience::ALL, matrix))
}

/// One sentence per environment.
fn answers(report: &Report, groups: &[Group]) -> Section {
    let answers = answer::answers(report, groups, answer::Length::Whole);
    answer_section(answers, notes::convention(report))
}

/// The sentences of the answer, under the sign convention.
pub(crate) fn answer_section(answers: Vec<answer::Answer>, convention: String) -> Section {
    let section = Section::new("Answer").titled(Audience::FULL, "");
    if answers.is_empty() {
        return section;
    }
    let items = answers.into_iter().map(|a| Item::new(a.environment, a.clauses).tone(a.tone));
    section
        .with(Audience::ALL, Block::prose(convention))
        .with(Audience::ALL, Block::list(ListKind::Answers, items))
}

/// What could not be decided, by environment.
fn undecided(groups: &[Group]) -> Section {
    let item = |undecided: answer::Undecided| {
        let count = format!("{} of {}:", undecided.open.len(), undecided.total);
        Item::new(undecided.environment, vec![count]).below(undecided.open, SHOWN)
    };
    let items = answer::undecided(groups).into_iter().map(item);
    Section::new("Not decided, and what would")
        .id("undecided")
        .with(Audience::PAGE, Block::list(ListKind::Bullets, items))
}

/// Every effect at once.
fn effects(plots: &Plots) -> Section {
    let effects = plots.effects();
    let section = Section::new("Effects").id("effects").listed();
    if effects == 0 {
        return section;
    }
    let alt = format!(
        "Forest plot of {effects} effects with their intervals; the same numbers are in the tables of the workloads"
    );
    let forest = Figure::new(PlotKind::Forest, 0, "Every effect with its 95 % interval".into(), alt);
    let without = "The plots need this page's script; every number that they show is in the tables.";
    section
        .with(Audience::PAGE, Block::Figures(vec![forest]))
        .with(Audience::PAGE, Block::WithoutScript(without.into()))
}

/// A table of numbers: names down, columns across.
fn plain_table(
    caption: String,
    note: String,
    columns: Vec<String>,
    rows: Vec<(String, Vec<Entry>)>,
) -> Block {
    let columns = columns.into_iter().map(Column::number);
    let row =
        |(name, entries): (String, Vec<Entry>)| Row::new([Entry::name(name)].into_iter().chain(entries));
    Block::table(Table {
        caption,
        note,
        columns: [Column::text("environment")].into_iter().chain(columns).collect(),
        rows: rows.into_iter().map(row).collect(),
        ..Table::default()
    })
}

/// The start-up of the environments, stamp by stamp.
fn starts(plots: &Plots) -> Section {
    let alt =
        "Bars of the time from stamp to stamp, one bar per environment; the numbers are in the table below";
    let figure = |(index, plot): (usize, &crate::plots::waterfall::Waterfall)| {
        let what = match plot.boot {
            true => "what a machine's start-up consists of",
            false => "from the platform's first program to each stamp",
        };
        Figure::new(PlotKind::Waterfall, index, format!("{}: {what}", plot.workload), alt.into())
    };
    let figures = plots.starts.iter().enumerate().map(figure).collect();
    let mut section = Section::new("Start-up").id("starts").with(Audience::PAGE, Block::Figures(figures));
    for start in &plots.starts {
        let what = if start.boot { "of machines, part by part" } else { "stamp by stamp" };
        let note = "time since the platform's first program began; medians over blocks";
        let steps = start.steps.iter().map(|step| (*step).to_string()).collect();
        let caption = format!("{} {what}", start.workload);
        section.push(Audience::PAGE, plain_table(caption, note.into(), steps, start.entries.clone()));
    }
    section
}

/// The measurements along one parameter.
fn sweeps(plots: &Plots) -> Vec<Section> {
    let mut index = 0;
    let mut sections = Vec::new();
    for sweep in &plots.sweeps {
        let title = format!("{} against {}", sweep.workload, sweep.parameter);
        let (mut figures, mut tables) = (Vec::new(), Vec::new());
        for metric in &sweep.metrics {
            let caption = format!("{} {} against {}", sweep.workload, metric.name, sweep.parameter);
            let alt = format!("{caption}, one line per environment; the numbers are in the table below");
            figures.push(Figure::new(PlotKind::Sweep, index, caption, alt));
            index += 1;
            let columns = sweep.at.iter().map(|at| format!("{} {at}", sweep.parameter)).collect();
            let caption = format!("{} {}", sweep.workload, metric.name);
            let note = format!("{}; median over blocks", metric.direction);
            tables.push(plain_table(caption, note, columns, metric.entries.clone()));
        }
        let section = Section::new(&title).with(Audience::PAGE, Block::Figures(figures));
        sections.push(tables.into_iter().fold(section, |section, table| section.with(Audience::PAGE, table)));
    }
    sections
}

/// A workload: its tables, its CPU time by process, its plots and the numbers behind them. `first`
/// is the index of its first table among the plots.
fn workload(
    report: &Report,
    group: &Group,
    plots: &Plots,
    (at, first): (usize, usize),
    bars: BarScale,
) -> Section {
    let mut section = Section::new(&group.workload)
        .kind(SectionKind::Workload)
        .id(&format!("workload-{at}"))
        .listed()
        .titled(Audience::FULL, &group.params);
    // Empty tables would say less than the reasons.
    let reasons = unmeasured(report, group);
    section.push(Audience::ALL, Block::bullets(reasons.iter().cloned()));
    for (at, table) in group.tables().enumerate().filter(|_| reasons.is_empty()) {
        if at == group.judged.len() {
            let heading = format!("{}, also measured: descriptive, no verdicts", group.name());
            section.push(Audience::TERMINAL, Block::Heading(heading));
        }
        section.push(Audience::ALL, Block::table(result(group, table, bars)));
    }
    let nowhere = Block::bullets(group.nowhere.iter().cloned());
    section.push_titled(Audience::ALL, &format!("{}, in no environment", group.name()), nowhere);
    if let Some(cpu) = &group.cpu {
        service_demand(report, group, cpu, &mut section);
    }
    let judged = first + group.judged.len();
    let mut main = of_tables(plots, first..judged);
    main.extend(latencies(group, plots));
    main.extend(charges(group, plots));
    section.push(Audience::PAGE, Block::Figures(main));
    section.push(Audience::PAGE, spread::one_unit(report, &group.workload, plots));
    section.push(Audience::PAGE, behind_plots(group, plots, first));
    section
}

/// Why a workload has no value anywhere; empty if it has one, or if an environment lacks a reason.
fn unmeasured(report: &Report, group: &Group) -> Vec<String> {
    let failures =
        troubles::failures(report).into_iter().filter(|failure| failure.workload == group.workload);
    let failures: Vec<FailureLine> = failures.collect();
    let mut rows = group.tables().flat_map(|table| &table.rows);
    let failed = |row: &results::Row| {
        row.value.is_none() && failures.iter().any(|failure| failure.environment == row.environment)
    };
    if !rows.all(failed) {
        return Vec::new();
    }
    let line = |(reason, failures): (String, Vec<FailureLine>)| {
        let environments = distinct(failures.into_iter().map(|failure| failure.environment));
        format!("{}: NOT MEASURED in {}: {reason}", group.name(), environments.join(", "))
    };
    grouped(failures, |failure| failure.reason.clone()).into_iter().map(line).collect()
}

/// The table of one metric.
fn result(group: &Group, table: &results::Table, bars: BarScale) -> Table {
    let effect = if table.sequential { "change [95 % interval]" } else { "overhead [95 % interval]" };
    let verdict = if table.primary { Audience::ALL } else { Audience::TERMINAL };
    let drawn = if table.primary { Audience { paper: false, ..Audience::ALL } } else { Audience::TERMINAL };
    let cpu = if table.cpu.is_some() { Audience::ALL } else { Audience::NOBODY };
    let cpu = Audience { terminal: true, ..cpu };
    let columns = vec![
        Column::text("environment"),
        Column::number("median"),
        Column::number(table.cpu.as_deref().unwrap_or_default()).fit(Fit::Soon).on(cpu),
        Column::number(effect).aligned(Align::Effect),
        Column::text("").fit(Fit::Bar).on(drawn),
        Column::text("verdict").fit(Fit::Wrapped("BELOW MARGIN".len())).on(verdict),
        Column::number("n"),
        Column::number("could see").fit(Fit::Late),
        Column::text("remarks").fit(Fit::Remarks),
    ];
    let what = table.what();
    let form = match table.primary {
        true => Form::Results,
        false => Form::Further(format!("{}, {}", table.metric, table.direction)),
    };
    let descriptive = if table.primary { "" } else { " (descriptive, no verdict)" };
    Table {
        caption: format!("{} {what}{descriptive}", group.name()),
        form,
        columns,
        rows: table.rows.iter().map(|row| result_row(row, bars)).collect(),
        bars: Some(bars),
        ..Table::default()
    }
}

fn result_row(row: &results::Row, bars: BarScale) -> Row {
    let name = Entry::name(&row.environment);
    let quantity = |quantity: &Option<Quantity>| quantity.clone().map(Entry::quantity).unwrap_or_default();
    let remark = |text: &String, aside: bool| Piece::Remark { text: text.clone(), aside };
    let remarks = row.beside.iter().map(|text| remark(text, false));
    let intended = row.intended.iter().map(|text| remark(text, true));
    Row::new([
        if row.differs { name.then(Piece::Mark(UNEQUAL)) } else { name },
        median(row.value.as_ref()),
        quantity(&row.cpu),
        row.effect.clone().map(Entry::effect).unwrap_or_default(),
        Entry::bar(bar(row, bars)),
        Entry::flag(row.tone, row.verdict.clone()),
        Entry::count(row.n),
        quantity(&row.smallest),
        Entry::of(remarks.chain(intended).collect()),
    ])
}

pub(crate) fn median(value: Option<&Median>) -> Entry {
    let side = |side: &Option<Quantity>| match side {
        Some(quantity) => Piece::Quantity(quantity.clone()),
        None => Piece::Text("-".into()),
    };
    match value {
        None => Entry::text("-"),
        Some(Median::One(quantity)) => Entry::quantity(quantity.clone()),
        Some(Median::Two(before, after)) => Entry {
            sort: after.as_ref().map(|after| after.value),
            ..Entry::of(vec![side(before), Piece::Text(" → ".into()), side(after)])
        },
    }
}

/// The drawing of an effect. For two runs the interval is a change, and the block ratios of the
/// second run would not be on its scale.
fn bar(row: &results::Row, bars: BarScale) -> Bar {
    let reach = plain_percent(bars.reach);
    let blocks: Vec<f64> = match row.cell.runs {
        Some(_) => Vec::new(),
        None => row.cell.log_ratios.iter().map(|(_, ratio)| ratio.exp_m1()).collect(),
    };
    let dots = if blocks.is_empty() { String::new() } else { format!(", {} blocks as dots", blocks.len()) };
    let alt = match &row.effect {
        Some(effect) => format!(
            "{}: effect {}, interval {}, on a scale from -{reach} to +{reach}{dots}",
            row.environment,
            effect.estimate,
            effect.interval()
        ),
        None => format!("{}: no interval", row.environment),
    };
    Bar { interval: row.cell.overhead, tone: row.tone, blocks, alt, baseline: row.baseline }
}

/// Who used CPU time, and the counters that explain it: in sentences, and on a page in tables. A
/// terminal shows only what goes beyond the column beside the values.
fn service_demand(report: &Report, group: &Group, cpu: &CpuTable, section: &mut Section) {
    let title = format!("{}, CPU time charged per {}: descriptive", group.name(), cpu.operation);
    let sentence = |row: &CpuRow| Item::new(row.environment.clone(), vec![row.sentence.clone()]);
    let why = || cpu.why.iter().map(|why| Item::new("counters", vec![why.clone()]));
    let notable = cpu.rows.iter().filter(|row| row.notable).map(sentence).chain(why());
    section.push_titled(Audience::TERMINAL, &title, Block::list(ListKind::Named, notable));
    let all = cpu.rows.iter().map(sentence).chain(why());
    section.push_titled(Audience::PAPER, &title, Block::list(ListKind::Named, all));
    section.push(Audience::PAGE, Block::table(cpu_table(report, group, cpu)));
    if !cpu.counters.is_empty() {
        let row = |row: &CpuRow| {
            let counter = |counter: &Option<(f64, String)>| match counter {
                Some((value, text)) => Entry { sort: Some(*value), ..Entry::text(text) },
                None => Entry::nothing(),
            };
            (row.environment.clone(), row.counters.iter().map(counter).collect())
        };
        let note = format!("per {}, median over blocks", cpu.operation);
        let rows = cpu.rows.iter().map(row).collect();
        let table = plain_table(format!("{} counters", group.workload), note, cpu.counters.clone(), rows);
        let summary = format!("Events per {}, which may say why", cpu.operation);
        let blocks = cpu.why.iter().map(Block::prose).chain([table]).collect();
        section.push(Audience::PAGE, Block::Fold { summary, open: !cpu.why.is_empty(), blocks });
    }
}

fn cpu_table(report: &Report, group: &Group, cpu: &CpuTable) -> Table {
    let daemons = cpu.daemons.iter().map(|daemon| format!("{daemon} (shared, not charged)"));
    let columns = [format!("CPU/{}", cpu.operation)]
        .into_iter()
        .chain(cpu.counts.iter().cloned())
        .chain([format!("against {} [95 % interval]", report.analysis.baseline), "n".into()])
        .chain(cpu.parts.iter().cloned())
        .chain(daemons);
    let row = |row: &CpuRow| {
        let some = |quantity: &Option<Quantity>| quantity.clone().map(Entry::quantity).unwrap_or_default();
        let effect = row.effect.clone().map(Entry::effect).unwrap_or_default();
        let entries = [Entry::name(&row.environment), Entry::quantity(row.cpu.clone())]
            .into_iter()
            .chain(row.counts.iter().map(some))
            .chain([effect, Entry::count(row.n)])
            .chain(row.parts.iter().chain(&row.daemons).map(some));
        Row::new(entries)
    };
    Table {
        caption: format!("{} CPU time charged", group.workload),
        note: format!("per {}, median over blocks; descriptive, no verdict", cpu.operation),
        columns: [Column::text("environment")].into_iter().chain(columns.map(Column::number)).collect(),
        rows: cpu.rows.iter().map(row).collect(),
        ..Table::default()
    }
}

/// Plots of the tables that have values.
fn of_tables(plots: &Plots, range: std::ops::Range<usize>) -> Vec<Figure> {
    let measured = range.filter(|at| plots.tables[*at].rows.iter().any(|row| !row.values.is_empty()));
    let figures = measured.flat_map(|index| {
        let name = format!("{} {}", plots.tables[index].workload, plots.tables[index].metric);
        let boxes = format!(
            "Box plots of {name} by environment, every block a point; the numbers are in the tables below"
        );
        let trace = format!(
            "Values of {name} against the number of the block, one line per environment, void units and noise marked; \
             the numbers are in the tables below"
        );
        [
            Figure::new(PlotKind::Box, index, format!("{name}: every block"), boxes),
            Figure::new(PlotKind::Trace, index, format!("{name}: block by block"), trace),
        ]
    });
    figures.collect()
}

fn latencies<'a>(group: &'a Group, plots: &'a Plots) -> impl Iterator<Item = Figure> + 'a {
    let own = plots.latencies.iter().enumerate().filter(|(_, plot)| plot.workload == group.workload);
    own.map(|(index, plot)| {
        let name = format!("{} {}", plot.shown, plot.name);
        let closed = if plot.closed { ", closed loop" } else { "" };
        let alt = format!(
            "Cumulative distribution of {name} on logarithmic axes, one line per environment; the quantiles are in the \
             tables below"
        );
        let caption = format!("{name}: share of requests that are faster{closed}");
        Figure::new(PlotKind::Latency, index, caption, alt)
    })
}

fn charges<'a>(group: &'a Group, plots: &'a Plots) -> impl Iterator<Item = Figure> + 'a {
    let own = plots.charges.iter().enumerate().filter(|(_, plot)| plot.workload == group.workload);
    own.map(|(index, plot)| {
        let caption = format!("{}: result, and CPU time by who used it", plot.shown);
        let alt = format!(
            "Bars of the first metric of {} beside bars of CPU time per operation by who used it, one per environment; the \
             numbers are in the tables above",
            plot.shown
        );
        Figure::new(PlotKind::Charge, index, caption, alt)
    })
}

/// The numbers behind the plots of a workload, and the plots of its descriptive metrics.
fn behind_plots(group: &Group, plots: &Plots, first: usize) -> Block {
    let judged = first + group.judged.len();
    let more = of_tables(plots, judged..judged + group.descriptive.len());
    let descriptive = if more.is_empty() { "" } else { ", and the descriptive metrics block by block" };
    let latencies = plots.latencies.iter().filter(|plot| plot.workload == group.workload);
    let latencies = latencies.map(|plot| Block::table(numbers::latencies(plot)));
    let tables = group.tables().zip(plots.tables.iter().skip(first));
    let distributions = tables.flat_map(|(table, plot)| numbers::distribution(table, plot));
    let numbers: Vec<Block> = latencies.chain(distributions).collect();
    let figures = (!more.is_empty() && !numbers.is_empty()).then_some(Block::Figures(more));
    Block::Fold {
        summary: format!("Numbers behind the plots{descriptive}"),
        open: false,
        blocks: figures.into_iter().chain(numbers).collect(),
    }
}

/// How to read the tables.
fn reading(report: &Report, groups: &[Group]) -> Section {
    let notes = notes::reading(report);
    let section = Section::new("How to read this");
    if notes.is_empty() {
        return section;
    }
    let mut rows = groups.iter().flat_map(Group::tables).flat_map(|table| &table.rows);
    let could_see = rows.any(|row| row.smallest.is_some()).then(|| COULD_SEE.to_string());
    let unequal = format!(
        "{UNEQUAL}: not equal to the baseline; what follows is intended, and the reasons are given below under Environments."
    );
    let unequal = Some(unequal).filter(|_| !differences::differences(report).is_empty());
    let drawn = report.analysis.cells.iter().any(|cell| cell.runs.is_none() && !cell.log_ratios.is_empty());
    let drawings = format!(
        "In the drawings {}the line is the 95 % interval of the average effect, and the shaded band is the margin of \
         equivalence ({}). All share one scale; an arrow means that the interval goes on beyond it.",
        if drawn { "a dot is the ratio of one block, " } else { "" },
        plain_percent(report.analysis.margin)
    );
    let legend = legend::legend(report).into_iter().map(|(word, meaning)| Item::new(word, vec![meaning]));
    section
        .with(Audience::ALL, Block::bullets(notes.into_iter().chain(could_see)))
        .with(Audience::TERMINAL, Block::bullets(unequal))
        .with(Audience::PAGE, Block::bullets([drawings]))
        .with(Audience::ALL, Block::list(ListKind::Legend, legend))
        .with(Audience::PAGE, Block::prose(notes::method(report).unwrap_or_default()))
}

fn failures(report: &Report) -> Section {
    let failures = troubles::failures(report);
    let list = |most: usize| {
        let item = |failure: &troubles::FailureLine| {
            let item = Item::line(failure.sentence()).tone(Tone::Open);
            item.below(failure.shown_logs(most), usize::MAX - 1)
        };
        Block::list(ListKind::Bullets, failures.iter().map(item))
    };
    let mut section = Section::new("Failures")
        .id("failures")
        .listed()
        .with(Audience::TEXT, list(LOGS_NAMED))
        .with(Audience::PAGE, list(LOGS_LISTED));
    let named = failures.iter().flat_map(|failure| failure.logs.iter().take(LOGS_SHOWN));
    for (name, end) in named.filter_map(|name| Some((name, report.logs.get(name)?))) {
        let what = match end.size_bytes {
            size if size > LogEnd::LONGEST_BYTES => {
                format!("the last {} of {}", format_bytes(LogEnd::LONGEST_BYTES), format_bytes(size))
            }
            _ => "the whole log".into(),
        };
        let summary = format!("{}, {what}", shown_name(name));
        let blocks = vec![Block::Verbatim(crate::text::shown_lines(&end.text))];
        section.push(Audience::PAGE, Block::Fold { summary, open: false, blocks });
    }
    section
}

fn voids(report: &Report) -> Section {
    let item = |void: voids::VoidLine| Item::line(void.summary).tone(Tone::Open).below(void.units, SHOWN);
    let items = voids::voids(report).into_iter().map(item);
    Section::new("Void units")
        .with(Audience::ALL, Block::prose(voids::replacements(report).unwrap_or_default()))
        .with(Audience::ALL, Block::list(ListKind::Bullets, items))
}

fn warnings(report: &Report) -> Section {
    warnings_of(troubles::all_warnings(report))
}

/// Warnings, grouped by the action that they ask for.
pub(crate) fn warnings_of(warnings: impl Iterator<Item = Notice>) -> Section {
    let item = |advice: Advice| match (advice.action.as_str(), advice.seen.as_slice()) {
        ("", seen) => seen.iter().cloned().map(Item::line).collect(),
        (action, [seen]) => vec![Item::line(format!("{seen}; {action}"))],
        (action, _) => vec![Item::line(format!("{action}:")).below(advice.seen.clone(), SHOWN)],
    };
    let items = troubles::advice(warnings).into_iter().flat_map(item);
    Section::new("Warnings")
        .id("warnings")
        .listed()
        .with(Audience::ALL, Block::list(ListKind::Bullets, items))
}
