//! Which plots stand where. The page has an empty place for each; the script draws it when it comes
//! into sight.

use super::plots::Plots;
use crate::document::Group;
use serde::Serialize;

/// The place of a plot.
#[derive(Debug, Serialize)]
pub(crate) struct Figure {
    kind: Kind,
    /// Which of the tables, latencies, charges... it shows.
    index: usize,
    caption: String,
    /// What is seen, for those who do not.
    alt: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Forest,
    Box,
    Trace,
    Latency,
    Charge,
    Sweep,
    Waterfall,
    Among,
    Isolation,
    Five,
    Course,
}

/// The figures of one workload.
#[derive(Debug, Serialize)]
pub(crate) struct GroupFigures {
    /// Of what is judged.
    main: Vec<Figure>,
    /// Of the rest.
    more: Vec<Figure>,
}

/// All effects at once; none where there are none.
pub(crate) fn forest(plots: &Plots) -> Option<Figure> {
    let effects = plots.effects();
    (effects > 0).then(|| Figure {
        kind: Kind::Forest,
        index: 0,
        caption: "Every effect with its 95 % interval".into(),
        alt: format!(
            "Forest plot of {effects} effects with their intervals; the same numbers are in the tables of the workloads"
        ),
    })
}

/// The figures of the group whose first table has the number `first`.
pub(crate) fn of_group(group: &Group, plots: &Plots, first: usize) -> GroupFigures {
    let tables = |range: std::ops::Range<usize>| {
        let range = range.filter(|index| plots.tables[*index].rows.iter().any(|row| !row.values.is_empty()));
        range.flat_map(|index| [of_values(plots, index), of_blocks(plots, index)]).collect::<Vec<Figure>>()
    };
    let judged = first + group.judged.len();
    let mut main = tables(first..judged);
    main.extend(latencies(group, plots));
    main.extend(charges(group, plots));
    GroupFigures { main, more: tables(judged..judged + group.descriptive.len()) }
}

fn of_values(plots: &Plots, index: usize) -> Figure {
    let table = &plots.tables[index];
    Figure {
        kind: Kind::Box,
        index,
        caption: format!("{} {}: every block", table.workload, table.metric),
        alt: format!(
            "Box plots of {} {} by environment, every block a point; the numbers are in the tables below",
            table.workload, table.metric
        ),
    }
}

fn of_blocks(plots: &Plots, index: usize) -> Figure {
    let table = &plots.tables[index];
    Figure {
        kind: Kind::Trace,
        index,
        caption: format!("{} {}: block by block", table.workload, table.metric),
        alt: format!(
            "Values of {} {} against the number of the block, one line per environment, void units and noise marked; the \
             numbers are in the tables below",
            table.workload, table.metric
        ),
    }
}

fn latencies<'a>(group: &Group, plots: &'a Plots) -> impl Iterator<Item = Figure> + 'a {
    let workload = crate::text::shown_name(&group.workload);
    plots.latencies.iter().enumerate().filter(move |(_, plot)| plot.workload == workload).map(|(index, plot)| {
        let kind = if plot.closed { ", closed loop" } else { "" };
        Figure {
            kind: Kind::Latency,
            index,
            caption: format!("{} {}: share of requests that are faster{kind}", plot.workload, plot.name),
            alt: format!(
                "Cumulative distribution of {} {} on logarithmic axes, one line per environment; the quantiles are in the \
                 tables below",
                plot.workload, plot.name
            ),
        }
    })
}

fn charges<'a>(group: &Group, plots: &'a Plots) -> impl Iterator<Item = Figure> + 'a {
    let workload = crate::text::shown_name(&group.workload);
    plots.charges.iter().enumerate().filter(move |(_, plot)| plot.workload == workload).map(|(index, plot)| Figure {
        kind: Kind::Charge,
        index,
        caption: format!("{}: result, and CPU time by who used it", plot.workload),
        alt: format!(
            "Bars of the first metric of {} beside bars of CPU time per operation by who used it, one per environment; the \
             numbers are in the tables above",
            plot.workload
        ),
    })
}

/// The figures of every sweep, by sweep; each draws one of its metrics, `index` counting over all
/// of them.
pub(crate) fn sweeps(plots: &Plots) -> Vec<Vec<Figure>> {
    let mut index = 0;
    let mut figures = Vec::new();
    for sweep in &plots.sweeps {
        let mut own = Vec::new();
        for metric in &sweep.metrics {
            own.push(Figure {
                kind: Kind::Sweep,
                index,
                caption: format!("{} {} against {}", sweep.workload, metric.name, sweep.parameter),
                alt: format!(
                    "{} {} against {}, one line per environment; the numbers are in the table below",
                    sweep.workload, metric.name, sweep.parameter
                ),
            });
            index += 1;
        }
        figures.push(own);
    }
    figures
}

/// The figures beside the table of that title.
pub(crate) fn of_limit(title: &str, plots: &Plots) -> Vec<Figure> {
    let at = |titles: Vec<&str>| titles.iter().position(|known| *known == title);
    let mut figures = Vec::new();
    let mut push = |kind: Kind, index: usize, caption: String, alt: &str| {
        let alt = format!("{caption}: {alt}; the numbers are in the table below");
        figures.push(Figure { kind, index, caption, alt });
    };
    let shown = crate::text::shown_name(title);
    if let Some(index) = at(plots.among.iter().map(|plot| plot.title.as_str()).collect()) {
        push(
            Kind::Among,
            index,
            shown.clone(),
            "lines against the number of guests, one per environment, with 95 % intervals",
        );
    }
    if let Some(index) = at(plots.isolations.iter().map(|plot| plot.title.as_str()).collect()) {
        push(
            Kind::Isolation,
            index,
            shown.clone(),
            "bars by kind of neighbours, one per environment, with 95 % intervals",
        );
    }
    if let Some(index) = at(plots.courses.iter().map(|plot| plot.title.as_str()).collect()) {
        let what = crate::text::shown_name(&plots.courses[index].what);
        let five = format!("{what}: least, 5 %, median, 95 %, most");
        push(
            Kind::Five,
            index,
            five,
            "a box per environment from the 5 % to the 95 % quantile, its whiskers reaching to the least and the most",
        );
        push(
            Kind::Course,
            index,
            format!("{what} over time"),
            "values over hours, one line per environment, changes marked",
        );
    }
    figures
}

/// The figures of starts.
pub(crate) fn waterfalls(plots: &Plots) -> Vec<Figure> {
    let figure = |(index, plot): (usize, &super::waterfall::Waterfall)| {
        Figure {
        kind: Kind::Waterfall,
        index,
        caption: if plot.boot {
            format!("{}: what a machine's coming up is made of", plot.workload)
        } else {
            format!("{}: from the platform's first program to each stamp", plot.workload)
        },
        alt: "Bars of the time from stamp to stamp, one bar per environment; the numbers are in the table below".into(),
    }
    };
    plots.starts.iter().enumerate().map(figure).collect()
}
