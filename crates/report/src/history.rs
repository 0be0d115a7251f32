//! The results of many runs, version by version: the course of each effect, and where it changed.

use crate::document::{
    Audience, Block, Document, Entry, Figure, Item, ListKind, PlotKind, Section, Table, Tone,
};
use crate::json::{estimate, to_json};
use crate::own::{self, OwnRow};
use crate::quantity::{Effect, Scale};
use crate::study::charts::{Chart, Mark, Series};
use crate::text::{join, shown_name};
use crate::{Format, Options, ReportError, render_document};
use serde::Serialize;
use serde_json::{Value, json};
use weigh_model::{MetricSpec, WorkloadKey, distinct, grouped, number_of};
use weigh_stats::{Interval, Notice, Shift, rise};

/// Version of the JSON. Changes: 1, first version.
const FORMAT: u32 = 1;

/// What a reader of the tables has to know.
const NOTE: &str = "now: mean effect over the runs since the last change, with the run as the unit; last run: the effect in the newest one, over its n \
                    blocks, and the median of the environment there; both with 95 % intervals; + is worse. Changes by a permutation test; a history without a change shows one with a chance of \
                    1 % at each look";

/// Everything that a history shows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HistoryReport {
    /// The runs, in the order in which they began.
    pub runs: Vec<HistoryPoint>,
    /// The effects.
    pub series: Vec<HistorySeries>,
    /// What the reader has to know.
    pub notices: Vec<Notice>,
}

/// A run of a history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HistoryPoint {
    /// The version of the measured software.
    pub version: String,
    /// When it began, UTC, RFC 3339.
    pub began: String,
    /// Its name.
    pub run: String,
    /// The identity of its machine.
    pub machine: String,
    /// The CPU model of its machine.
    pub cpu_model: String,
}

/// The effect of an environment on a metric, run by run.
#[derive(Debug, Clone, PartialEq)]
pub struct HistorySeries {
    /// Workload id.
    pub workload: String,
    /// The workload by name, parameters and neighbours.
    pub key: WorkloadKey,
    /// The metric.
    pub metric: MetricSpec,
    /// Environment name.
    pub environment: String,
    /// Name of the environment that it is compared with.
    pub baseline: String,
    /// What the runs found, in their order.
    pub points: Vec<HistoryEffect>,
    /// Where the effect changed, as indices into [`Self::points`].
    pub shifts: Vec<Shift>,
    /// The effect since the last change, over runs.
    pub now: Option<Interval>,
    /// Runs that are left out because they measured under other conditions.
    pub left_out: usize,
}

/// The effect that one run found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HistoryEffect {
    /// The index of the run in [`HistoryReport::runs`].
    pub run: usize,
    /// The effect, with the interval over the blocks of the run.
    pub overhead: Interval,
    /// Median of the environment, in the base unit of the metric.
    pub median: f64,
    /// The number of blocks.
    pub n: u32,
}

impl HistoryReport {
    /// The series whose effect since the last change is shown to be worse by more than this many
    /// per cent than before some change, in words.
    pub fn worse_by(&self, percent: f64) -> Vec<String> {
        let worse = self.series.iter().filter_map(|series| {
            let rise = rise(&series.logs(), &series.shifts)?;
            let place = (rise.last_before, rise.first_after);
            (rise.change.low > percent / 100.0)
                .then(|| format!("{}: {}", series.name(), self.describe(series, place, rise.change)))
        });
        worse.collect()
    }

    /// A change between two points of a series, with their versions. Where both have the same one,
    /// their days tell the runs apart.
    fn describe(&self, series: &HistorySeries, place: (usize, usize), change: Interval) -> String {
        let run = |at: usize| &self.runs[series.points[at].run];
        let is_same = run(place.0).version == run(place.1).version;
        let version = |at: usize| match (shown_name(&run(at).version), is_same) {
            (version, true) => format!("{version} of {}", day(&run(at).began)),
            (version, false) => version,
        };
        let change = join(&Effect::from(change).to_string());
        let other_machine =
            if self.changes_machine(series, place) { "; the machine changed there, too" } else { "" };
        format!("{change} between {} and {}{other_machine}", version(place.0), version(place.1))
    }

    /// The changes of a series, in words.
    fn described(&self, series: &HistorySeries) -> Vec<String> {
        let shifts = series.shifts.iter();
        shifts.map(|shift| self.describe(series, (shift.at - 1, shift.at), shift.change)).collect()
    }

    /// Whether the runs up to one point of a series and those from another one on have no machine in
    /// common.
    fn changes_machine(&self, series: &HistorySeries, place: (usize, usize)) -> bool {
        let machines = |part: &[HistoryEffect]| {
            distinct(part.iter().map(|effect| self.runs[effect.run].machine.as_str()))
        };
        let (before, after) = (machines(&series.points[..=place.0]), machines(&series.points[place.1..]));
        before.iter().all(|machine| !after.contains(machine))
    }
}

impl HistorySeries {
    /// The logarithms of the ratios of costs that the runs found, in their order.
    pub fn logs(&self) -> Vec<f64> {
        self.points.iter().map(|point| point.overhead.estimate.ln_1p()).collect()
    }

    /// Workload, metric and environment.
    fn name(&self) -> String {
        format!("{} in {}", shown_name(&self.subject()), shown_name(&self.environment))
    }

    fn subject(&self) -> String {
        format!("{} {}", self.workload, self.metric.name)
    }
}

/// Writes a history in one format. The text ends with a line break.
///
/// # Errors
/// A format for the results of one run; faults of this crate.
pub fn render_history(
    report: &HistoryReport,
    format: Format,
    options: &Options,
) -> Result<String, ReportError> {
    match format {
        Format::Json => json(report),
        format => render_document(&document(report), format, options),
    }
}

fn document(report: &HistoryReport) -> Document {
    let runs = match report.runs.len() {
        1 => "one run".into(),
        many => format!("{many} runs"),
    };
    let mut document = Document::new(&format!("History of {runs}"));
    let machines = distinct(report.runs.iter().map(|run| run.machine.as_str())).len();
    if let (Some(first), Some(last)) = (report.runs.first(), report.runs.last()) {
        let of = |run: &HistoryPoint| format!("{} ({})", shown_name(&run.version), day(&run.began));
        let facts = [("from", of(first)), ("to", of(last)), ("machines", machines.to_string())];
        document.add(Section::plain().with(Audience::ALL, Block::facts(facts)));
    }
    document.add(changes(report));
    let notices = report.notices.iter().map(ToString::to_string);
    document.add(Section::plain().with(Audience::ALL, Block::bullets(notices)));
    if !report.series.is_empty() {
        document.add(Section::plain().with(Audience::ALL, Block::prose(NOTE)));
    }
    for (_, series) in grouped(&report.series, |series| (series.key.clone(), series.metric.name.clone())) {
        let chart = chart(report, &series);
        let subject = shown_name(&series[0].subject());
        let figure = Figure::beside_table(
            PlotKind::Lines,
            document.plots.charts.len(),
            subject.clone(),
            "the effect of every run with its interval, one line per environment",
        );
        document.plots.charts.push(chart);
        document.add(own::section(table(report, subject, &series), vec![figure]));
    }
    document
}

/// The changes, the newest last.
fn changes(report: &HistoryReport) -> Section {
    let items = report.series.iter().filter(|series| !series.shifts.is_empty()).map(|series| {
        let tone = match series.shifts.last() {
            Some(last) if last.change.estimate > 0.0 => Tone::Worse,
            _ => Tone::Better,
        };
        Item::new(series.name(), report.described(series)).tone(tone)
    });
    let items: Vec<Item> = items.collect();
    let section = Section::new("What changed");
    if items.is_empty() {
        return section.with(Audience::ALL, Block::prose("No change was found."));
    }
    section.with(Audience::ALL, Block::list(ListKind::Named, items))
}

fn table(report: &HistoryReport, subject: String, series: &[&HistorySeries]) -> Table {
    let columns = ["now", "last run", "median", "n", "changes", "runs"];
    let row = |series: &&HistorySeries| {
        let effect = |of: Option<Interval>| of.map(|of| Entry::effect(of.into())).unwrap_or_default();
        let last = series.points.last();
        let scale = Scale::new(&series.metric.unit, last.map(|last| last.median), None);
        let entries = vec![
            effect(series.now),
            effect(last.map(|last| last.overhead)),
            last.map(|last| Entry::quantity(scale.quantity(last.median))).unwrap_or_default(),
            last.map(|last| Entry::count(last.n)).unwrap_or_default(),
            Entry::count(series.shifts.len() as u64),
            Entry::count(series.points.len() as u64),
        ];
        let mut remarks = report.described(series);
        if series.left_out > 0 {
            let runs = number_of(series.left_out, "earlier run");
            remarks.push(format!("{runs} under other conditions left out"));
        }
        let remark = (!remarks.is_empty()).then(|| remarks.join("; "));
        OwnRow { name: Entry::name(&series.environment), entries, remark }
    };
    let rows = series.iter().map(row).collect();
    own::table(subject, String::new(), "environment", &columns, rows)
}

fn chart(report: &HistoryReport, series: &[&HistorySeries]) -> Chart {
    let marks = |series: &HistorySeries| {
        let mark = |effect: &HistoryEffect| {
            let point = &report.runs[effect.run];
            let said = format!(
                "{}\n{}, {}: {}",
                shown_name(&series.environment),
                shown_name(&point.version),
                day(&point.began),
                Effect::from(effect.overhead)
            );
            let percent = effect.overhead.map(|fraction| fraction * 100.0);
            let (low, high) = (Some(percent.low), Some(percent.high));
            Mark { low, high, ..Mark::at(effect.run as f64, percent.estimate, said) }
        };
        series.points.iter().map(mark).collect()
    };
    let lines = series.iter().enumerate().map(|(arm, series)| Series {
        arm,
        name: shown_name(&series.environment),
        there: Vec::new(),
        here: marks(series),
    });
    let baseline = shown_name(&series[0].baseline);
    let ticks = report.runs.iter().enumerate().map(|(at, run)| (at as f64, shown_name(&run.version)));
    Chart {
        title: shown_name(&series[0].subject()),
        what: format!("overhead against {baseline}, %"),
        across: "version".into(),
        effects: true,
        ticks: ticks.collect(),
        ..Chart::of(PlotKind::Lines, "lines, one for each environment", lines.collect())
    }
}

/// The date part of a timestamp.
fn day(began: &str) -> &str {
    began.split('T').next().unwrap_or(began)
}

fn json(report: &HistoryReport) -> Result<String, ReportError> {
    let series = |series: &HistorySeries| {
        let point = |effect: &HistoryEffect| {
            json!({
                "run": effect.run,
                "overhead": estimate(Some(effect.overhead), "mean"),
                "median": effect.median,
                "n": effect.n,
            })
        };
        let shift = |shift: &Shift| {
            json!({
                "last_before": series.points[shift.at - 1].run,
                "first_after": series.points[shift.at].run,
                "change": estimate(Some(shift.change), "mean"),
                "p": shift.p,
                "machine_changed": report.changes_machine(series, (shift.at - 1, shift.at)),
            })
        };
        json!({
            "workload": series.workload,
            "params": series.key.params,
            "metric": series.metric.name,
            "unit": series.metric.unit.symbol(),
            "environment": series.environment,
            "baseline": series.baseline,
            "points": series.points.iter().map(point).collect::<Vec<Value>>(),
            "changes": series.shifts.iter().map(shift).collect::<Vec<Value>>(),
            "now": estimate(series.now, "mean"),
            "left_out": series.left_out,
        })
    };
    let root = json!({
        "format": FORMAT,
        "runs": report.runs,
        "series": report.series.iter().map(series).collect::<Vec<Value>>(),
        "warnings": report.notices.iter().map(ToString::to_string).collect::<Vec<_>>(),
    });
    Ok(to_json(&root)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(estimate: f64) -> Interval {
        Interval { estimate, low: estimate - 0.01, high: estimate + 0.01 }
    }

    /// Six runs on machines with these names. The last three cost more.
    fn report(machines: [&str; 6]) -> HistoryReport {
        let run = |(at, machine): (usize, &str)| HistoryPoint {
            version: format!("v{at}"),
            began: format!("2026-11-0{}T05:00:00Z", at + 1),
            run: format!("r{at}"),
            machine: machine.into(),
            cpu_model: "a CPU".into(),
        };
        let effects = [0.0, 0.01, 0.0, 0.2, 0.21, 0.2];
        let point = |(run, effect)| HistoryEffect { run, overhead: interval(effect), median: 0.0012, n: 30 };
        let change = Interval { estimate: 0.19, low: 0.17, high: 0.21 };
        HistoryReport {
            runs: machines.into_iter().enumerate().map(run).collect(),
            series: vec![HistorySeries {
                workload: "syscall{call=getpid}".into(),
                key: WorkloadKey::named("syscall"),
                metric: MetricSpec::time("duration"),
                environment: "runc:binary=./runc".into(),
                baseline: "native".into(),
                points: (0..).zip(effects).map(point).collect(),
                shifts: vec![Shift { at: 3, change, p: 0.002 }],
                now: Some(interval(0.203)),
                left_out: 2,
            }],
            notices: vec![Notice::new("seen", "done")],
        }
    }

    fn rendered(report: &HistoryReport, format: Format) -> String {
        let text = render_history(report, format, &Options::default()).unwrap();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_change_is_reported_with_the_versions_between_which_it_is() {
        let report = report(["m"; 6]);
        for format in [Format::Table, Format::Markdown, Format::Latex, Format::Html] {
            let text = rendered(&report, format);
            for words in ["v2 and v3", "What changed", "History of 6 runs", "2 earlier runs", "1.2"] {
                assert!(text.contains(words), "{format:?} lacks `{words}`: {text}");
            }
            assert!(!text.contains("machine changed"), "{text}");
        }
        assert_eq!(report.worse_by(16.0).len(), 1);
        assert!(report.worse_by(19.0).is_empty(), "it is not shown to be so much");
        let said = &report.worse_by(16.0)[0];
        assert!(said.starts_with("syscall{call=getpid} duration in runc:binary=./runc: +"), "{said}");
        assert!(said.ends_with("between v2 and v3"), "{said}");
    }

    #[test]
    fn the_axis_of_overheads_is_that_of_effects() {
        let page = rendered(&report(["m"; 6]), Format::Html);
        assert_eq!(page.matches("\"effects\":true").count(), 1);
    }

    #[test]
    fn a_new_machine_at_a_change_is_reported() {
        let text = rendered(&report(["a", "a", "a", "b", "b", "b"]), Format::Table);
        assert!(text.contains("the machine changed there, too"), "{text}");
        let text = rendered(&report(["a", "b", "a", "b", "b", "b"]), Format::Table);
        assert!(!text.contains("the machine changed there"), "{text}");
    }

    #[test]
    fn runs_of_the_same_version_are_told_apart_by_their_days() {
        let mut report = report(["m"; 6]);
        report.runs.iter_mut().for_each(|run| run.version = "main".into());
        let text = rendered(&report, Format::Table);
        assert!(text.contains("between main of 2026-11-03 and main of 2026-11-04"), "{text}");
    }

    #[test]
    fn a_history_without_a_change_is_reported_as_such() {
        let mut report = report(["m"; 6]);
        report.series[0].shifts.clear();
        assert!(rendered(&report, Format::Table).contains("No change was found."));
        assert!(report.worse_by(0.0).is_empty());
    }

    #[test]
    fn what_all_tables_share_is_said_once() {
        let mut report = report(["m"; 6]);
        let other = HistorySeries { metric: MetricSpec::time("other"), ..report.series[0].clone() };
        report.series.push(other);
        for format in [Format::Table, Format::Html, Format::Markdown] {
            let text = rendered(&report, format);
            assert_eq!(text.matches("now: mean effect").count(), 1, "{text}");
            assert!(text.contains("other"), "{text}");
        }
    }

    #[test]
    fn programs_get_every_number() {
        let text = rendered(&report(["m"; 6]), Format::Json);
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["runs"][3]["version"], "v3");
        let change = &value["series"][0]["changes"][0];
        assert_eq!((&change["last_before"], &change["first_after"]), (&json!(2), &json!(3)));
        assert_eq!(change["change"]["ci_low"], json!(0.17));
        assert_eq!(value["series"][0]["points"].as_array().unwrap().len(), 6);
        assert!(render_history(&report(["m"; 6]), Format::Csv, &Options::default()).is_err());
    }
}
