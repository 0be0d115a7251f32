//! Guests beside neighbours, in words: who disturbs whom, what neighbours cost, how many a guest
//! tolerates, how they share, how well a guest is isolated.

mod clauses;

use crate::Report;
use crate::document::{Audience, Block, Entry, Figure, Piece, PlotKind, Section};
use crate::matrix::{Matrix, MatrixCell, MatrixRow};
use crate::own::{self, OwnRow};
use crate::plots::{IsolationPlot, Names, NeighbourPlot, Plots, Step, three};
use crate::quantity::{Effect, Quantity, Scale, plain_percent, share_of};
use crate::text::shown_name;
use weigh_model::{MetricSpec, NeighbourKind, Shares, WorkloadKey, distinct, grouped, number_of};
use weigh_stats::{
    Degradation, DegradationStep, Evenness, Interval, Isolation, Knee, Reference, Sum, SumStep,
};

pub(crate) use clauses::clauses;

/// Losses from this one on are shown as factors, because +290 % is hard to read.
const FACTOR_FROM: f64 = 1.0;

/// All tables with their figures, in the order in which they are read.
pub(crate) fn sections(report: &Report, names: &Names, plots: &mut Plots) -> Vec<Section> {
    let mut sections = interference(report);
    sections.extend(knees(report));
    sections.extend(losses(report, names, plots));
    sections.extend(sums(report, names, plots));
    sections.extend(isolations(report, names, plots));
    sections
}

/// What neighbours do and how CPU time is shared with them, whatever their environment.
fn doing(kind: &NeighbourKind) -> String {
    NeighbourKind { environment: None, ..kind.clone() }.to_string()
}

/// A workload with its own parameters and a metric.
fn subject(workload: &WorkloadKey, metric: &MetricSpec) -> String {
    format!("{workload} {}", metric.name)
}

/// A loss as per cent or as a factor, with its interval.
fn more(loss: Interval) -> Entry {
    if loss.estimate < FACTOR_FROM {
        return Entry::effect(Effect::from(loss));
    }
    factor(loss.map(|loss| 1.0 + loss))
}

/// A factor with its interval and a multiplication sign.
fn factor(times: Interval) -> Entry {
    let [estimate, low, high] = digits(times);
    let mut entry = Entry::estimate(estimate, low, high);
    entry.pieces.insert(0, Piece::Text("×".into()));
    entry
}

/// A factor with its interval. The number of decimals follows from the interval's width.
fn digits(times: Interval) -> [Quantity; 3] {
    let half = (times.high - times.low) / 2.0;
    let decimals = if half > 0.0 && half.is_finite() {
        (-(half / 3.0).log10().floor()).clamp(0.0, 4.0) as usize
    } else {
        2
    };
    [times.estimate, times.low, times.high].map(|x| Quantity::new(x, format!("{x:.decimals$}"), ""))
}

/// A value with the unit of a metric.
pub(crate) fn value(metric: &MetricSpec, value: f64) -> Quantity {
    Scale::new(&metric.unit, [value], None).quantity(value)
}

fn median(metric: &MetricSpec, median: Option<f64>) -> Entry {
    median.map_or(Entry::text("not measured"), |median| Entry::quantity(value(metric, median)))
}

fn list(counts: &[u32]) -> String {
    counts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The loss at one number of guests, with what it is a loss of.
type Crossed<'a> = (&'a Degradation, &'a DegradationStep);

/// Who disturbs whom, where the plan names the environments of the neighbours: one matrix per
/// workload, metric and number of guests. Rows are measured environments with a kind of neighbours,
/// columns the environments of the neighbours.
fn interference(report: &Report) -> Vec<Section> {
    let steps = report.degradations.iter().flat_map(|one| one.steps.iter().map(move |step| (one, step)));
    let crossed = steps.filter(|(one, _)| one.neighbours.environment.is_some());
    let same = |(one, step): &Crossed<'_>| (subject(&one.key, &one.metric), step.guests);
    let section = |((subject, guests), all): ((String, u32), Vec<Crossed<'_>>)| {
        let columns = distinct(all.iter().filter_map(|(one, _)| one.neighbours.environment.clone()));
        let row = |(name, own): (String, Vec<&Crossed<'_>>)| {
            let cell = |column: &String| {
                let found = own.iter().find(|(one, _)| one.neighbours.environment.as_ref() == Some(column));
                found.map_or(MatrixCell::NOTHING, |(_, step)| MatrixCell::of_loss(step))
            };
            MatrixRow { cells: columns.iter().map(cell).collect(), name }
        };
        let name = |(one, _): &&Crossed<'_>| format!("{}, {}", one.environment, doing(&one.neighbours));
        let rows = grouped(&all, name).into_iter().map(row).collect();
        let caption =
            "Loss of the guest of each row beside neighbours in each column's environment, against alone, %";
        let matrix = Matrix::of_losses(caption.into(), columns, rows);
        let title = format!("{subject} among {guests} guests: who disturbs whom");
        Section::new(&title).with(Audience::ALL, Block::Matrix(Box::new(matrix)))
    };
    grouped(crossed, same).into_iter().map(section).collect()
}

/// How many guests each environment tolerates, one table per workload and metric.
fn knees(report: &Report) -> Vec<Section> {
    let subject_of = |one: &&Degradation| subject(&one.key, &one.metric);
    let row = |one: &Degradation| {
        let knee = one.knee.as_ref()?;
        let beyond = knee.beyond.map_or(Entry::text("not seen"), Entry::count);
        let undecided = Entry::text(list(&knee.undecided));
        let neighbours = Entry::text(one.neighbours.to_string());
        let entries = vec![neighbours, Entry::count(knee.within), beyond, undecided];
        Some(OwnRow { name: Entry::name(&one.environment), entries, remark: None })
    };
    let margin = plain_percent(Knee::MARGIN);
    let section = |(subject, all): (String, Vec<&Degradation>)| {
        let rows: Vec<OwnRow> = all.into_iter().filter_map(row).collect();
        let note = format!(
            "guests in all, against the same environment alone in the same block; within: largest number of guests whose loss is certainly \
             <= {margin} (whole 95 % interval); beyond: smallest number whose loss is certainly > {margin}; undecided: in between, or not \
             measured; no verdicts, and nothing is fitted"
        );
        let columns = ["neighbours", "within up to", "beyond from", "undecided"];
        let caption = format!("{subject}: how many guests it tolerates");
        (!rows.is_empty())
            .then(|| own::section(own::table(caption, note, "environment", &columns, rows), Vec::new()))
    };
    grouped(&report.degradations, subject_of).into_iter().filter_map(section).collect()
}

/// A figure of a plot against the number of guests; empty if nothing was measured.
fn against_guests(plots: &mut Plots, plot: NeighbourPlot, caption: &str) -> Vec<Figure> {
    if plot.is_empty() {
        return Vec::new();
    }
    plots.neighbours.push(plot);
    let seen = "lines against the number of guests, one per environment, with 95 % intervals";
    let index = plots.neighbours.len() - 1;
    vec![Figure::beside_table(PlotKind::Neighbours, index, shown_name(caption), seen)]
}

/// The loss at each number of guests, one table per kind of neighbours.
fn losses(report: &Report, names: &Names, plots: &mut Plots) -> Vec<Section> {
    let same = |one: &&Degradation| (subject(&one.key, &one.metric), one.neighbours.to_string());
    let mut sections = Vec::new();
    for ((subject, kind), all) in grouped(&report.degradations, same) {
        let caption = format!("{subject} among neighbours: {kind}");
        let fair = all.iter().flat_map(|one| &one.steps).any(|step| step.fair.is_some());
        let rows = all.iter().flat_map(|one| loss_rows(one, fair)).collect();
        let (columns, note) = loss_heads(all[0], fair);
        let figures = against_guests(plots, loss_plot(&all, names), &caption);
        sections.push(own::section(own::table(caption, note, "environment", &columns, rows), figures));
    }
    sections
}

/// The share of the speed alone that is left: the inverse of the cost.
fn loss_plot(all: &[&Degradation], names: &Names) -> NeighbourPlot {
    let left = |loss: Interval| three(loss.map_reversed(|cost| 1.0 / (1.0 + cost)));
    let row = |one: &&Degradation| {
        let steps = one.steps.iter().filter_map(|step| Some((step.guests, left(step.loss?)))).collect();
        Some((names.number(&one.environment)?, steps))
    };
    let line = |one: &&Degradation| -> Vec<(u32, f64)> {
        one.steps.iter().filter_map(|step| Some((step.guests, step.fair?))).collect()
    };
    let longest = all.iter().map(line).rev().max_by_key(Vec::len).unwrap_or_default();
    NeighbourPlot::new("speed relative to running alone", all.iter().filter_map(row).collect())
        .beside("an equal share of the CPUs", longest)
}

fn loss_heads(one: &Degradation, fair: bool) -> (Vec<&'static str>, String) {
    let mut columns = vec!["guests", "median", "against alone"];
    if one.cpus.is_some() {
        columns.insert(1, "guests per CPU");
    }
    if fair {
        columns.push("an equal share leaves");
    }
    columns.push("n");
    let weights = match one.neighbours.shares {
        Shares::Weights => {
            format!("; the measured guest has {} times the weight of a neighbour", Shares::WEIGHT)
        }
        _ => String::new(),
    };
    let fair = match one.cpus.filter(|_| fair) {
        Some(cpus) => format!(
            "; what an equal share of the {cpus} CPUs leaves is context: it is shown where neighbours use up theirs, and never graded"
        ),
        None => String::new(),
    };
    let note = format!(
        "cost over that of the same environment alone in the same block, mean with its 95 % interval over blocks; + and × above 1 are \
         worse{fair}{weights}"
    );
    (columns, note)
}

fn loss_rows(one: &Degradation, has_fair: bool) -> Vec<OwnRow> {
    let row =
        |guests: Entry, per_cpu: Option<f64>, median: Entry, loss: Entry, fair: Option<f64>, n: Entry| {
            let per_cpu =
                one.cpus.map(|_| per_cpu.map_or(Entry::nothing(), |ratio| Entry::quantity(per(ratio))));
            let fair =
                has_fair.then(|| fair.map_or(Entry::nothing(), |fair| Entry::quantity(share_of(fair))));
            [guests].into_iter().chain(per_cpu).chain([median, loss]).chain(fair).chain([n]).collect()
        };
    let alone = OwnRow {
        name: Entry::name(&one.environment),
        entries: row(
            Entry { sort: Some(1.0), ..Entry::text("alone") },
            one.cpus.map(|cpus| 1.0 / f64::from(cpus)),
            median(&one.metric, one.alone),
            Entry::nothing(),
            None,
            Entry::nothing(),
        ),
        remark: None,
    };
    let step = |step: &DegradationStep| OwnRow {
        name: Entry::name(&one.environment),
        entries: row(
            guests(step.guests, step.up),
            step.guests_per_cpu,
            median(&one.metric, step.median),
            step.loss.map(more).unwrap_or_default(),
            step.fair,
            Entry::count(step.n),
        ),
        remark: remark(step),
    };
    std::iter::once(alone).chain(one.steps.iter().map(step)).collect()
}

/// Guests over CPUs.
fn per(ratio: f64) -> Quantity {
    let text = format!("{ratio:.2}");
    Quantity::new(ratio, text.trim_end_matches('0').trim_end_matches('.'), "")
}

/// The number of guests asked for, and the number that were up if fewer.
fn guests(asked: u32, up: Option<u32>) -> Entry {
    match up.filter(|up| *up < asked) {
        Some(up) => Entry::count(asked).then(Piece::Text(format!(" ({up} up)"))),
        None => Entry::count(asked),
    }
}

/// What a reader has to know about a step.
fn remark(step: &DegradationStep) -> Option<String> {
    reached(step.guests, step.up, step.missing_reason.as_deref()).or_else(|| {
        (!step.sound && step.loss.is_some()).then(|| {
            format!(
                "{} guests: trials failed, or values were absent or unusable, here or alone, so nothing is \
                 certain",
                step.guests
            )
        })
    })
}

/// The number of guests reached, with the reason.
fn reached(asked: u32, up: Option<u32>, lack: Option<&str>) -> Option<String> {
    let fewer = up.filter(|up| *up < asked).map(|up| format!("{up} of {asked} guests were up"));
    match (fewer, lack) {
        (Some(fewer), Some(lack)) if lack.starts_with(&fewer) => Some(lack.into()),
        (Some(fewer), Some(lack)) => Some(format!("{fewer}: {lack}")),
        (Some(fewer), None) => Some(fewer),
        (None, Some(lack)) => Some(format!("{asked} guests: {lack}")),
        (None, None) => None,
    }
}

/// The sum over all guests, one table per workload.
fn sums(report: &Report, names: &Names, plots: &mut Plots) -> Vec<Section> {
    let same = |one: &&Sum| (one.key.to_string(), one.shares, one.beside.clone());
    let mut sections = Vec::new();
    for ((workload, shares, beside), all) in grouped(&report.sums, same) {
        let shares = if shares == Shares::Equal { String::new() } else { format!(" ({shares})") };
        let beside = beside.map(|name| format!(", the neighbours in {name}")).unwrap_or_default();
        let caption = format!("{workload} sum over all guests, all of which run it{beside}{shares}");
        let rows = all.iter().flat_map(|one| one.steps.iter().map(|step| sum_row(one, step))).collect();
        let columns =
            ["guests", "sum", "over one alone", "over fewer guests", "Jain's index", "least/most", "n"];
        let note = format!(
            "the sum over what one guest does alone, and over the sum of the next smaller number of guests, block by block with 95 % \
             intervals; it grew where the whole interval lies above {}; Jain's index is 1 when all guests do the same and 1/n when one does \
             everything, least/most the slowest guest over the fastest: medians over blocks, and the interval of the mean",
            1.0 + all[0].margin
        );
        let drawn = |one: &&Sum| {
            let step = |step: &SumStep| Some((step.guests, three(step.scale?)));
            Some((names.number(&one.environment)?, one.steps.iter().filter_map(step).collect::<Vec<Step>>()))
        };
        let plot = NeighbourPlot::new("sum over one guest alone", all.iter().filter_map(drawn).collect());
        let figures = against_guests(plots, plot, &caption);
        sections.push(own::section(own::table(caption, note, "environment", &columns, rows), figures));
    }
    sections
}

fn sum_row(one: &Sum, step: &SumStep) -> OwnRow {
    let even = |even: Option<Evenness>| {
        let number = |x: f64| Quantity::new(x, format!("{x:.3}"), "");
        match even {
            Some(Evenness { median, mean: Some(mean), .. }) => {
                Entry::estimate(number(median), number(mean.low), number(mean.high))
            }
            Some(Evenness { median, .. }) => Entry::quantity(number(median)),
            None => Entry::nothing(),
        }
    };
    OwnRow {
        name: Entry::name(&one.environment),
        entries: vec![
            guests(step.guests, step.up),
            median(&one.metric, step.median),
            step.scale.map(factor).unwrap_or_default(),
            step.growth.map(factor).unwrap_or_default(),
            even(step.jain),
            even(step.least_to_most),
            Entry::count(step.n),
        ],
        remark: reached(step.guests, step.up, step.missing_reason.as_deref()),
    }
}

/// The cost of busy neighbours beyond idle ones: rows are environments, columns kinds of
/// neighbours, one table per number of guests and environment of the neighbours.
fn isolations(report: &Report, names: &Names, plots: &mut Plots) -> Vec<Section> {
    let same =
        |one: &&Isolation| (subject(&one.key, &one.metric), one.guests, one.neighbours.environment.clone());
    let mut sections = Vec::new();
    for ((subject, guests, beside), all) in grouped(&report.isolations, same) {
        let beside = beside.map(|name| format!(" in {name}")).unwrap_or_default();
        let neighbours = number_of(guests.saturating_sub(1), "neighbour");
        let caption = format!("{subject}: isolation from {neighbours}{beside}");
        let columns = distinct(all.iter().map(|one| column(one)));
        let row = |(environment, own): (&String, Vec<&&Isolation>)| {
            let entry = |heading: &String| {
                let found = own.iter().find(|one| &column(one) == heading);
                found.map(|one| isolation(one)).unwrap_or_default()
            };
            let unsound: Vec<String> =
                own.iter().filter(|one| !one.sound).map(|one| doing(&one.neighbours)).collect();
            OwnRow {
                name: Entry::name(environment),
                entries: columns.iter().map(entry).collect(),
                remark: (!unsound.is_empty()).then(|| {
                    format!("failed trials, or values that are absent or unusable: {}", unsound.join("; "))
                }),
            }
        };
        let rows = grouped(&all, |one| &one.environment).into_iter().map(row).collect();
        let note = "cost over that beside as many idle neighbours of the same environment and shares in the same block, mean with its 95 % interval \
                    over blocks, and the median; over idle, equal: idle neighbours with these shares were not measured; over alone: none \
                    were";
        let figures = isolation_figure(&all, names, plots, &caption);
        let table = own::table(caption, note.into(), "environment", &columns, rows);
        sections.push(own::section(table, figures));
    }
    sections
}

fn isolation_figure(all: &[&Isolation], names: &Names, plots: &mut Plots, caption: &str) -> Vec<Figure> {
    let measured: Vec<(usize, String, Interval)> = all
        .iter()
        .filter_map(|one| Some((names.number(&one.environment)?, shown_name(&column(one)), one.loss?)))
        .collect();
    if measured.is_empty() {
        return Vec::new();
    }
    let kinds = distinct(measured.iter().map(|(_, kind, _)| kind.clone()));
    let row = |(environment, own): (usize, Vec<&(usize, String, Interval)>)| {
        let loss = |kind: &String| {
            let found = own.iter().find(|(_, known, _)| known == kind);
            found.map(|(_, _, loss)| three(*loss))
        };
        (environment, kinds.iter().map(loss).collect())
    };
    let rows = grouped(&measured, |(environment, ..)| *environment).into_iter().map(row).collect();
    let what = match all.iter().filter(|one| one.reference == Reference::Alone).count() {
        0 => "cost beyond idle neighbours",
        alone if alone == all.len() => "cost beyond running alone",
        _ => "cost beyond idle neighbours or alone",
    };
    plots.isolations.push(IsolationPlot { what, kinds, rows });
    let seen = "bars by kind of neighbours, one per environment, with 95 % intervals";
    let index = plots.isolations.len() - 1;
    vec![Figure::beside_table(PlotKind::Isolation, index, shown_name(caption), seen)]
}

fn column(one: &Isolation) -> String {
    let over = match one.reference {
        Reference::Idle => "",
        Reference::IdleEqual => " over idle, equal",
        Reference::Alone => " over alone",
    };
    format!("{}{over}", doing(&one.neighbours))
}

fn isolation(one: &Isolation) -> Entry {
    let Some(loss) = one.loss else { return Entry::text("not measured") };
    let shown = |median: Option<f64>| match median {
        Some(median) => Piece::Quantity(value(&one.metric, median)),
        None => Piece::Text("-".into()),
    };
    [
        Piece::Text(" (".into()),
        shown(one.median),
        Piece::Text(" to ".into()),
        shown(one.reference_median),
        Piece::Text(format!(", n {})", one.n)),
    ]
    .into_iter()
    .fold(more(loss), Entry::then)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_loss_is_a_factor() {
        let more = |estimate, low, high| more(Interval { estimate, low, high }).words();
        assert_eq!(more(0.031, 0.019, 0.043), "+3.1 % [+1.9, +4.3]");
        assert_eq!(more(2.9, 2.75, 3.05), "×3.90 [3.75, 4.05]");
    }

    #[test]
    fn the_number_reached_is_reported_once() {
        assert_eq!(reached(16, Some(16), None), None);
        let reason = "11 of 16 guests were up: no memory";
        assert_eq!(reached(16, Some(11), Some(reason)).as_deref(), Some(reason));
        assert_eq!(reached(16, Some(11), None).as_deref(), Some("11 of 16 guests were up"));
        assert_eq!(reached(16, None, Some("no image")).as_deref(), Some("16 guests: no image"));
    }
}
