//! The report as one page: nothing fetched, everything escaped by the template engine, and every
//! number there without its script.
//!
//! The script adds plots (drawn from one block of data), sorting, filtering and copying.

mod beside;
pub(crate) mod embed;
mod figures;
mod live;
mod numbers;
mod plots;
mod sweeps;
mod waterfall;

use crate::differences::{Difference, readable_fact};
use crate::document::{self, Document, EnvironmentLine, Row};
use crate::limits::{LimitRow, LimitTable};
use crate::quantity::plain_percent;
use crate::{LogEnd, Report, ReportError};
pub use live::LivePage;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value, context};
use plots::Plots;
use serde::Serialize;
use std::collections::BTreeMap;
use weigh_model::format_bytes;

/// The parts, which are macros, then the page.
const TEMPLATE: &str =
    concat!(include_str!("../templates/parts.html"), include_str!("../templates/report.html"));
pub(crate) const STYLE: &str = include_str!("../templates/report.css");

/// Width of the drawing of an interval, in the units of its view box.
const WIDTH: f64 = 240.0;

/// Where the parts of a row's drawing are.
#[derive(Debug, Serialize)]
struct Drawing {
    estimate: f64,
    low: f64,
    high: f64,
    /// Whether the interval goes on beyond the scale.
    beyond_low: bool,
    beyond_high: bool,
    /// One point per block, as a path of dots.
    blocks: String,
    count: usize,
}

/// More blocks than these fall on each other.
const MANY_BLOCKS: usize = 200;

/// A dot per block; of very many, where some would fall on each other, there is one.
fn dots(row: &Row, reach: f64) -> String {
    let ratios = &row.cell.log_ratios;
    let mut places: Vec<f64> = ratios.iter().map(|(_, d)| place(d.exp_m1(), reach)).collect();
    if places.len() > MANY_BLOCKS {
        places.sort_by(f64::total_cmp);
        places.iter_mut().for_each(|place| *place = (*place * 2.0).round() / 2.0);
        places.dedup();
    }
    places.iter().map(|place| format!("M{place} 19h0")).collect()
}

/// The place of a fraction on the drawing; beyond the scale, its edge.
fn place(fraction: f64, reach: f64) -> f64 {
    let x = WIDTH / 2.0 * (1.0 + (fraction / reach).clamp(-1.0, 1.0));
    (x * 10.0).round() / 10.0
}

fn drawing(row: &Row, reach: f64) -> Option<Drawing> {
    let bar = row.bar?;
    Some(Drawing {
        estimate: place(bar.estimate, reach),
        low: place(bar.low, reach),
        high: place(bar.high, reach),
        beyond_low: bar.low < -reach,
        beyond_high: bar.high > reach,
        // Of two runs the interval is a change, and the ratios of the second run's blocks would not
        // be on its scale.
        blocks: if row.cell.runs.is_some() { String::new() } else { dots(row, reach) },
        count: row.cell.log_ratios.len(),
    })
}

/// Drawings by group, table (judged first) and row.
fn drawings(document: &Document) -> Vec<Vec<Vec<Option<Drawing>>>> {
    let of_table =
        |table: &document::Table| table.rows.iter().map(|row| drawing(row, document.bar_reach)).collect();
    document.groups.iter().map(|group| group.judged.iter().map(of_table).collect()).collect()
}

/// Facts of the environments as a table: one row per fact, one column per environment.
#[derive(Debug, Serialize)]
struct FactTable {
    environments: Vec<String>,
    rows: Vec<(String, Vec<String>)>,
}

fn facts(report: &Report, document: &Document) -> FactTable {
    let clock = |environment: &EnvironmentLine| environment.clock_detail.clone();
    let known = document.environments.iter().any(|environment| environment.clock.is_some());
    let clocks = known.then(|| {
        let words = document.environments.iter().map(|e| clock(e).unwrap_or_else(|| "not checked".into()));
        ("clock".to_string(), words.collect())
    });
    let keys: std::collections::BTreeSet<&String> =
        report.environments.iter().flat_map(|e| e.facts.keys()).collect();
    FactTable {
        environments: report.environments.iter().map(|e| e.name.clone()).collect(),
        rows: keys
            .into_iter()
            .map(|key| {
                let values = report
                    .environments
                    .iter()
                    .map(|e| crate::differences::readable_fact(key, e.facts.get(key)))
                    .collect();
                (key.clone(), values)
            })
            .chain(clocks)
            .collect(),
    }
}

/// Where environments differ, with why.
fn differing(document: &Document) -> Vec<(Difference, String)> {
    let all = document.environments.iter().flat_map(|environment| &environment.differences);
    all.map(|difference| (difference.clone(), difference.why())).collect()
}

fn plan_facts(report: &Report) -> Vec<(String, String)> {
    let Some(plan) = &report.plan else { return Vec::new() };
    let mut facts = vec![
        ("weighbridge".to_string(), plan.tool_version.clone()),
        ("seed".into(), plan.seed.to_string()),
        ("margin of equivalence".into(), plain_percent(plan.margin)),
    ];
    if let Some(budget) = plan.budget_s {
        facts.push(("budget".into(), format!("{budget} s")));
    }
    for workload in &plan.workloads {
        facts.push((format!("command of {}", workload.id), workload.command.join(" ")));
        facts.push((
            format!("runs of {}", workload.id),
            format!(
                "{} unmeasured, then {} measured per block, summarised to one number; size {}",
                workload.warmup, workload.iterations, workload.size
            ),
        ));
    }
    facts.extend(plan.digests.iter().map(|(what, digest)| (format!("SHA-256 of {what}"), digest.clone())));
    facts
}

fn host_facts(report: &Report) -> Vec<(String, String)> {
    let Some(host) = &report.host else { return Vec::new() };
    let cpus: Vec<String> = host.cpus.iter().map(ToString::to_string).collect();
    vec![
        ("CPU".to_string(), host.cpu_model.clone()),
        ("architecture".into(), host.architecture.clone()),
        ("CPUs that may be used".into(), cpus.join(", ")),
        ("memory".into(), readable_fact("memory_bytes", Some(&host.memory_bytes.into()))),
        ("last-level cache".into(), host.last_level_cache_bytes.map_or("unknown".into(), format_bytes)),
        ("operating system".into(), host.operating_system.clone()),
        ("kernel".into(), host.kernel.clone()),
        ("control groups".into(), host.cgroups.clone()),
        ("run as root".into(), if host.root { "yes" } else { "no" }.into()),
        ("identity".into(), host.identity.clone()),
    ]
}

/// Minus signs as they are set, and no-break spaces as such.
pub(crate) fn typeset(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut before = ' ';
    for c in text.chars() {
        // A hyphen before a digit is a minus only at the start of a number.
        out.push(if c == '-' && matches!(before, ' ' | '[' | crate::text::JOINER) { '\u{2212}' } else { c });
        before = c;
    }
    out
}

/// The number of the first table of each group.
fn first_tables(document: &Document) -> Vec<usize> {
    let counts = document.groups.iter().map(|group| group.tables().count());
    counts.scan(0, |next, count| Some(std::mem::replace(next, *next + count))).collect()
}

/// Tables of latencies, by group.
fn latencies(document: &Document, plots: &Plots) -> Vec<Vec<numbers::Latencies>> {
    let of = |workload: String| {
        plots.latencies.iter().filter(|plot| plot.workload == workload).map(numbers::latencies).collect()
    };
    document.groups.iter().map(|group| of(crate::text::shown_name(&group.workload))).collect()
}

/// The end of a log, and how much of it that is.
#[derive(Debug, Serialize)]
struct Log {
    text: String,
    what: String,
}

/// The ends of the logs by name.
fn logs(report: &Report) -> BTreeMap<&str, Log> {
    let log = |end: &LogEnd| Log {
        text: crate::text::shown_lines(&end.text),
        what: match end.size_bytes {
            size if size > LogEnd::LONGEST_BYTES => {
                format!("the last {} of {}", format_bytes(LogEnd::LONGEST_BYTES), format_bytes(size))
            }
            _ => "the whole log".into(),
        },
    };
    report.logs.iter().map(|(name, end)| (name.as_str(), log(end))).collect()
}

/// A table of words: environments down, steps across.
#[derive(Debug, Serialize)]
struct WordTable {
    caption: String,
    note: String,
    /// Heading of the rows.
    first: &'static str,
    columns: Vec<String>,
    rows: Vec<(String, Vec<String>)>,
}

/// Tables of the sweeps, one per metric, by sweep.
fn sweep_tables(plots: &Plots) -> Vec<(String, Vec<WordTable>)> {
    let table = |sweep: &sweeps::Sweep, metric: &sweeps::SweptMetric| WordTable {
        caption: format!("{} {}", sweep.workload, metric.name),
        note: format!("{}; median over blocks", metric.direction),
        first: "environment",
        columns: sweep.at.iter().map(|at| format!("{} {at}", sweep.parameter)).collect(),
        rows: metric.words.clone(),
    };
    let of = |sweep: &sweeps::Sweep| {
        let title = format!("{} against {}", sweep.workload, sweep.parameter);
        (title, sweep.metrics.iter().map(|metric| table(sweep, metric)).collect())
    };
    plots.sweeps.iter().map(of).collect()
}

/// Tables of what one more guest takes.
fn limit_tables(document: &Document) -> Vec<(String, WordTable)> {
    let table = |table: &LimitTable| {
        let row = |row: &LimitRow| (row.environment.clone(), row.cells.clone());
        let remarks = table.rows.iter().filter_map(|row| Some((&row.environment, row.remark.as_ref()?)));
        let remarks: String =
            remarks.map(|(environment, remark)| format!("; {environment}: {remark}")).collect();
        let words = WordTable {
            caption: table.title.clone(),
            note: format!("{}{remarks}", table.note),
            first: table.first,
            columns: table.columns.clone(),
            rows: table.rows.iter().map(row).collect(),
        };
        (table.title.clone(), words)
    };
    document.limits.iter().map(table).collect()
}

/// Tables of the starts.
fn start_tables(plots: &Plots) -> Vec<WordTable> {
    let table = |start: &waterfall::Waterfall| WordTable {
        caption: format!(
            "{} {}",
            start.workload,
            if start.boot { "of machines, part by part" } else { "stamp by stamp" }
        ),
        note: "time since the platform's first program began; medians over blocks".into(),
        first: "environment",
        columns: start.steps.iter().map(|step| (*step).to_string()).collect(),
        rows: start.words.clone(),
    };
    plots.starts.iter().map(table).collect()
}

pub(crate) fn render(report: &Report) -> Result<String, ReportError> {
    page(report, None)
}

/// The page of a run that goes on, or has just ended, for a browser that a server of the run's own
/// gives it to.
///
/// # Errors
/// Only faults of this crate; no content of a report makes it fail.
pub fn render_live(report: &Report, live: &LivePage) -> Result<String, ReportError> {
    match live.ended {
        true => page(report, Some(live)),
        false => page(&live::without_advice(report), Some(live)),
    }
}

fn page(report: &Report, live: Option<&LivePage>) -> Result<String, ReportError> {
    let mut document = document::build(report);
    if let Some(live) = live {
        live.amend(report, &mut document);
    }
    let document = document;
    let drawings = drawings(&document);
    let plots = plots::build(report, &document);
    let first = first_tables(&document);
    let of_groups = || document.groups.iter().zip(first.iter().copied());
    let figures: Vec<_> = of_groups().map(|(group, first)| figures::of_group(group, &plots, first)).collect();
    let distributions: Vec<_> =
        of_groups().map(|(group, first)| numbers::distributions(group, &plots, first)).collect();
    let limit_figures: Vec<_> =
        document.limits.iter().map(|table| figures::of_limit(&table.title, &plots)).collect();
    // The margin is symmetric on the log scale.
    let margin = report.analysis.margin;
    let (from, to) = (place(-margin / (1.0 + margin), document.bar_reach), place(margin, document.bar_reach));
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.add_filter("minus", |text: String| typeset(&text));
    environment.add_filter("loose", |text: String| text.replace(crate::text::JOINER, " "));
    environment.add_filter("plain", |text: String| crate::text::shown(&text));
    environment.add_template("report.html", TEMPLATE)?;
    let template = environment.get_template("report.html")?;
    let page = template.render(context! {
        style => Value::from_safe_string(STYLE.to_string()),
        script => Value::from_safe_string(embed::SCRIPT.to_string()),
        library => Value::from_safe_string(embed::LIBRARY.to_string()),
        policy => Value::from_safe_string(live.map_or_else(|| embed::POLICY.to_string(), |_| live::policy())),
        live => Value::from(Serde(live.map(|live| live.view(report)))),
        live_script => Value::from_safe_string(live.map(|_| live::script()).unwrap_or_default().to_string()),
        data => Value::from_safe_string(embed::data(&plots)?),
        logs => Value::from(Serde(logs(report))),
        forest => Value::from(Serde(figures::forest(&plots))),
        figures => Value::from(Serde(&figures)),
        distributions => Value::from(Serde(&distributions)),
        latencies => Value::from(Serde(latencies(&document, &plots))),
        quantiles => numbers::quantiles(),
        sweeps => Value::from(Serde(sweep_tables(&plots))),
        sweep_figures => Value::from(Serde(figures::sweeps(&plots))),
        limits => Value::from(Serde(limit_tables(&document))),
        limit_figures => Value::from(Serde(limit_figures)),
        starts => Value::from(Serde(start_tables(&plots))),
        start_figures => Value::from(Serde(figures::waterfalls(&plots))),
        document => Value::from(Serde(&document)),
        drawings => Value::from(Serde(&drawings)),
        width => WIDTH,
        reach => plain_percent(document.bar_reach),
        margin => plain_percent(report.analysis.margin),
        margin_from => from,
        margin_width => ((to - from) * 10.0).round() / 10.0,
        dots => report.analysis.cells.iter().any(|cell| cell.runs.is_none() && !cell.log_ratios.is_empty()),
        method => crate::notes::method(report),
        baseline => report.analysis.baseline.clone(),
        facts => Value::from(Serde(facts(report, &document))),
        differences => Value::from(Serde(differing(&document))),
        plan => Value::from(Serde(plan_facts(report))),
        host => Value::from(Serde(host_facts(report))),
        reading => crate::notes::COULD_SEE,
    })?;
    Ok(page.trim_end().to_string() + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_signs_become_minus() {
        assert_eq!(typeset("-1.2 % [-2, +3] a-b"), "\u{2212}1.2 % [\u{2212}2, +3] a-b");
    }

    #[test]
    fn places_stay_on_the_drawing() {
        assert_eq!(place(0.0, 0.05), 120.0);
        assert_eq!(place(0.05, 0.05), 240.0);
        assert_eq!(place(-9.0, 0.05), 0.0);
    }
}
