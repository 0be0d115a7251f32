//! CSV for spreadsheets and data frames: one row per cell (RFC 4180), a header that does not
//! change, unrounded numbers.

use crate::charges::charge;
use crate::differences::{Difference, Standing, differences, readable_fact};
use crate::results::assignments;
use crate::rows::closed_loop;
use crate::{Report, ReportError, circumstances, duplicates};
use std::collections::BTreeMap;
use weigh_model::{LoadKind, MetricSpec, NeighbourKind, Shares, WorkloadKey, neighbours};
use weigh_stats::{Cell, Failure, Interval, Reference, Summary};

/// The columns, in order. New ones are added at the end.
const HEADER: &str = "\
    workload params metric unit better environment baseline n median mean sd min p05 p95 max \
    overhead_mean overhead_ci_low overhead_ci_high typical_median typical_ci_low typical_ci_high \
    primary verdict p_diff_holm p_eq_holm smallest_detectable unseen_mode_bound blocks_to_decide tried \
    failed flags pairing exploratory comparisons margin void_units unequal failure_reasons \
    unequal_intended unequal_allowed acceleration clock operation cpu_ns_per_op cpu_n \
    cpu_difference_mean cpu_difference_ci_low cpu_difference_ci_high cycles_per_op cpu_parts_ns_per_op \
    cpu_daemons_ns_per_op counters_per_op void_causes noisy_host closed_loop absent bound look \
    instructions_per_op";

/// The values of a row by column. A column without a value stays empty.
pub(crate) type Record = BTreeMap<&'static str, String>;

/// Writes records under their header. Spaces separate the names of columns in `header`.
pub(crate) fn write(
    header: &'static str,
    records: impl IntoIterator<Item = Record>,
) -> Result<String, ReportError> {
    let fault = |error: &dyn std::fmt::Display| ReportError::Csv(error.to_string());
    let columns = || header.split(' ');
    let mut writer = csv::WriterBuilder::new().terminator(csv::Terminator::CRLF).from_writer(Vec::new());
    writer.write_record(columns()).map_err(|error| fault(&error))?;
    for record in records {
        let values = columns().map(|column| record.get(column).map_or("", String::as_str));
        writer.write_record(values).map_err(|error| fault(&error))?;
    }
    let bytes = writer.into_inner().map_err(|error| fault(&error))?;
    String::from_utf8(bytes).map_err(|error| fault(&error))
}

pub(crate) fn number(value: Option<f64>) -> String {
    value.filter(|value| value.is_finite()).map(|value| value.to_string()).unwrap_or_default()
}

/// An estimate and the ends of its interval, in the columns with these names.
pub(crate) fn interval(
    names: [&'static str; 3],
    interval: Option<Interval>,
) -> impl Iterator<Item = (&'static str, String)> {
    let values = [interval.map(|i| i.estimate), interval.map(|i| i.low), interval.map(|i| i.high)];
    names.into_iter().zip(values.map(number))
}

fn overhead(found: Option<Interval>) -> impl Iterator<Item = (&'static str, String)> {
    interval(["overhead_mean", "overhead_ci_low", "overhead_ci_high"], found)
}

/// Text that a spreadsheet does not take for a formula, nor a terminal for a command: names and
/// reasons come from outside.
pub(crate) fn text(text: &str) -> String {
    let text = crate::text::harmless(text);
    if text.starts_with(['=', '+', '-', '@', '\t', '\r']) { format!("'{text}") } else { text }
}

/// `name=value` pairs in one cell.
fn pairs(values: &BTreeMap<String, f64>) -> String {
    let pairs: Vec<String> = values.iter().map(|(name, value)| format!("{name}={value}")).collect();
    text(&pairs.join(";"))
}

/// What is known about a cell besides its values.
fn circumstances(report: &Report, cell: &Cell) -> Record {
    let known = report.environments.iter().find(|e| e.name == cell.environment);
    let acceleration = known.and_then(|e| e.facts.get("acceleration")).filter(|value| !value.is_null());
    let clock = circumstances::clock(report, &cell.environment).map(circumstances::clock_words);
    let charge = charge(report, &cell.workload, &cell.environment);
    let mut causes: BTreeMap<String, u32> = BTreeMap::new();
    for void in report.voids.iter().filter(|void| void.workload == cell.workload) {
        *causes.entry(void.cause.to_string()).or_default() += 1;
    }
    let causes: Vec<String> = causes.iter().map(|(cause, units)| format!("{cause}={units}")).collect();
    let acceleration = acceleration.map(|value| text(&readable_fact("acceleration", Some(value))));
    let difference = ["cpu_difference_mean", "cpu_difference_ci_low", "cpu_difference_ci_high"];
    let closed = closed_loop(report, cell).map(|closed| closed.to_string());
    let mut record = Record::from([
        ("acceleration", acceleration.unwrap_or_default()),
        ("clock", text(&clock.unwrap_or_default().replace(crate::text::JOINER, " "))),
        ("operation", text(charge.map_or("", |c| &c.operation))),
        ("cpu_ns_per_op", number(charge.map(|c| c.cpu_ns_per_op))),
        ("cpu_n", charge.map(|c| c.n.to_string()).unwrap_or_default()),
        ("cycles_per_op", number(charge.and_then(|c| c.cycles_per_op))),
        ("instructions_per_op", number(charge.and_then(|c| c.instructions_per_op))),
        ("cpu_parts_ns_per_op", charge.map(|c| pairs(&c.parts_ns_per_op)).unwrap_or_default()),
        ("cpu_daemons_ns_per_op", charge.map(|c| pairs(&c.daemons_ns_per_op)).unwrap_or_default()),
        ("counters_per_op", charge.map(|c| pairs(&c.counters_per_op)).unwrap_or_default()),
        ("void_causes", causes.join(";")),
        ("noisy_host", report.circumstances.noisy_host.is_some().to_string()),
        ("closed_loop", closed.unwrap_or_default()),
        ("absent", text(cell.absent.as_deref().unwrap_or_default())),
        ("bound", number(cell.bound)),
        ("look", cell.look.map(|look| look.blocks.to_string()).unwrap_or_default()),
    ]);
    record.extend(interval(difference, charge.and_then(|c| c.difference)));
    record
}

/// Comparisons of an environment with itself, one row each. The metric is followed by a colon and
/// the name of the comparison.
fn beside(report: &Report) -> Vec<Record> {
    type Subject<'a> = (&'a str, String, &'a MetricSpec, &'a str);
    let of = |(workload, params, metric, environment): Subject<'_>, what: &str, against: &str, n: u32| {
        Record::from([
            ("workload", text(workload)),
            ("params", text(&params)),
            ("metric", text(&format!("{}:{what}", metric.name))),
            ("environment", text(environment)),
            ("baseline", text(against)),
            ("n", n.to_string()),
        ])
    };
    // A record with an absolute value and an effect.
    let with = |subject: Subject<'_>, what: &str, against: &str, n: u32, median, effect| {
        let unit = text(subject.2.unit.symbol());
        let mut record = of(subject, what, against, n);
        record.extend([("unit", unit), ("median", number(median))]);
        record.extend(overhead(effect));
        record
    };
    let mut rows = Vec::new();
    for one in &report.degradations {
        for step in &one.steps {
            let params = params(&one.key, step.guests, &one.neighbours);
            let subject = (one.key.name.as_str(), params, &one.metric, one.environment.as_str());
            let mut record = with(subject, "loss", "alone", step.n, step.median, step.loss);
            let reason = text(step.missing_reason.as_deref().unwrap_or_default());
            record.extend([("failed", step.failed.to_string()), ("absent", reason)]);
            rows.push(record);
        }
    }
    for one in &report.isolations {
        let against = match one.reference {
            Reference::Idle => "idle neighbours",
            Reference::IdleEqual => "idle neighbours with equal shares",
            Reference::Alone => "alone",
        };
        let params = params(&one.key, one.guests, &one.neighbours);
        let subject = (one.key.name.as_str(), params, &one.metric, one.environment.as_str());
        rows.push(with(subject, "isolation", against, one.n, one.median, one.loss));
    }
    for one in &report.sums {
        let (shares, environment) = (one.shares, one.beside.clone());
        let kind = NeighbourKind { load: LoadKind::Same, shares, environment };
        for step in &one.steps {
            let params = params(&one.key, step.guests, &kind);
            let subject = (one.key.name.as_str(), params, &one.metric, one.environment.as_str());
            let scale = step.scale.map(|scale| scale.map(|times| times - 1.0));
            rows.push(with(subject, "scale", "alone", step.n, step.median, scale));
        }
    }
    for one in &report.courses {
        let params = assignments(&one.params).join(";");
        let subject = || (one.workload.as_str(), params.clone(), &one.metric, one.environment.as_str());
        rows.push(with(subject(), "drift_per_hour", "", one.n, Some(one.median), one.drift_per_hour));
        let mut variation = of(subject(), "cv", "", one.n);
        let ends = one.cv_interval.map(|interval| (interval.low, interval.high)).unzip();
        variation.extend([("mean", number(one.cv)), ("min", number(ends.0)), ("max", number(ends.1))]);
        rows.push(variation);
        for change in one.changes.iter().flatten() {
            for (side, median) in [("before", change.before), ("after", change.after)] {
                let mut record = of(subject(), &format!("{side} {} h", change.hours), "", one.n);
                record.insert("median", number(Some(median)));
                rows.push(record);
            }
        }
    }
    rows
}

/// The parameters of a workload beside neighbours.
fn params(key: &WorkloadKey, guests: u32, kind: &NeighbourKind) -> String {
    let NeighbourKind { load, shares, environment } = kind;
    let beside = environment.as_ref().map(|name| format!("{}={name}", neighbours::BESIDE));
    let guests = [format!("{}={guests}", neighbours::GUESTS), format!("{}={load}", neighbours::NEIGHBOURS)];
    let shares = (*shares != Shares::Equal).then(|| format!("{}={shares}", neighbours::SHARES));
    let own = assignments(&key.params).into_iter();
    own.chain(beside).chain(guests).chain(shares).collect::<Vec<_>>().join(";")
}

/// A cell with everything that is known about it.
fn record(report: &Report, differences: &[Difference], cell: &Cell) -> Record {
    let analysis = &report.analysis;
    let flags: Vec<String> = cell.flags.iter().map(ToString::to_string).collect();
    let own = |f: &&Failure| f.workload == cell.workload && f.environment == cell.environment;
    let reasons: Vec<&str> = report.failures.iter().filter(own).map(|f| f.reason.as_str()).collect();
    let voids = report.voids.iter().filter(|void| void.workload == cell.workload).count();
    let unequal = |wanted: &dyn Fn(Standing) -> bool| -> String {
        let here = differences.iter().filter(|d| d.environment == cell.environment && wanted(d.standing));
        text(&here.map(|d| d.key.as_str()).collect::<Vec<_>>().join(";"))
    };
    let of = |take: fn(&Summary) -> f64| number(cell.summary.as_ref().map(take));
    let mut record = Record::from([
        ("workload", text(&cell.workload)),
        ("params", text(&assignments(&cell.key.params).join(";"))),
        ("metric", text(&cell.metric.name)),
        ("unit", text(cell.metric.unit.symbol())),
        ("better", cell.metric.better.to_string()),
        ("environment", text(&cell.environment)),
        ("baseline", text(&analysis.baseline)),
        ("n", cell.n.to_string()),
        ("median", of(|s| s.median)),
        ("mean", of(|s| s.mean)),
        ("sd", number(cell.summary.and_then(|s| s.sd))),
        ("min", of(|s| s.min)),
        ("p05", of(|s| s.p05)),
        ("p95", of(|s| s.p95)),
        ("max", of(|s| s.max)),
        ("primary", cell.primary.to_string()),
        ("verdict", cell.verdict.map(|verdict| verdict.to_string()).unwrap_or_default()),
        ("p_diff_holm", number(cell.p_diff_holm)),
        ("p_eq_holm", number(cell.p_eq_holm)),
        ("smallest_detectable", number(cell.smallest_detectable)),
        ("unseen_mode_bound", number(cell.unseen_mode_bound)),
        ("blocks_to_decide", cell.blocks_to_decide.map(|blocks| blocks.to_string()).unwrap_or_default()),
        ("tried", cell.tried.to_string()),
        ("failed", cell.failed.to_string()),
        ("flags", flags.join(";")),
        ("pairing", cell.pairing.to_string()),
        ("exploratory", analysis.exploratory.to_string()),
        ("comparisons", analysis.comparisons.to_string()),
        ("margin", analysis.margin.to_string()),
        ("void_units", voids.to_string()),
        ("unequal", unequal(&|_| true)),
        ("failure_reasons", text(&reasons.join("; "))),
        ("unequal_intended", unequal(&|standing| standing == Standing::Intended)),
        ("unequal_allowed", unequal(&|standing| standing == Standing::Allowed)),
    ]);
    record.extend(overhead(cell.overhead));
    record.extend(interval(["typical_median", "typical_ci_low", "typical_ci_high"], cell.typical));
    record.extend(circumstances(report, cell));
    record
}

pub(crate) fn render(report: &Report) -> Result<String, ReportError> {
    let differences = differences(report);
    let cells = report.analysis.cells.iter().map(|cell| record(report, &differences, cell));
    let mut records: Vec<Record> = cells.collect();
    records.extend(beside(report));
    records.extend(duplicates::amounts(report).map(
        |(workload, environment, amount, unit, n, [mean, least, most])| {
            Record::from([
                ("workload", text(workload)),
                ("metric", text(amount)),
                ("unit", text(unit)),
                ("environment", text(environment)),
                ("baseline", text(&report.analysis.baseline)),
                ("n", n.to_string()),
                ("mean", number(Some(mean))),
                ("min", number(Some(least))),
                ("max", number(Some(most))),
            ])
        },
    ));
    write(HEADER, records)
}
