//! How values went over hours or days, in words.

use crate::Report;
use crate::among::value;
use crate::limits::{LimitRow, LimitTable};
use crate::quantity::{Effect, magnitude};
use crate::text::join;
use weigh_stats::{Change, Course};

/// Changes that are told one by one.
const NAMED: usize = 5;

/// One table per workload and metric.
pub(crate) fn tables(report: &Report) -> Vec<LimitTable> {
    let mut tables: Vec<(LimitTable, &Course)> = Vec::new();
    for course in &report.courses {
        let same = |(_, first): &&mut (LimitTable, &Course)| {
            first.workload == course.workload && first.metric == course.metric
        };
        match tables.iter_mut().find(same) {
            Some((table, _)) => table.rows.push(row(course)),
            None => tables.push((table(course), course)),
        }
    }
    tables.into_iter().map(|(table, _)| table).collect()
}

/// Title of the table of a workload and metric: the same for all environments.
pub(crate) fn title(course: &Course) -> String {
    format!("{} {} over time", course.workload, course.metric.name)
}

fn table(course: &Course) -> LimitTable {
    LimitTable {
        title: title(course),
        note: "one value per block, each environment by itself; CV: standard deviation over mean; drift: change of the cost per hour, + is \
               worse; both with 95 % intervals that do not take blocks next to each other for independent; changes of mean or variance by PELT, \
               penalty 15 ln n, which may take what only wanders for steps"
            .into(),
        first: "environment",
        columns: ["least", "5 %", "median", "95 %", "most", "CV", "drift per hour", "changes", "n"]
            .map(String::from)
            .to_vec(),
        rows: vec![row(course)],
    }
}

fn row(course: &Course) -> LimitRow {
    let five = [course.min, course.p05, course.median, course.p95, course.max];
    let mut cells: Vec<String> = five.iter().map(|x| value(&course.metric, *x)).collect();
    cells.push(variation(course).unwrap_or_default());
    cells.push(drift(course).unwrap_or_else(|| "too few blocks".into()));
    cells.push(
        course.changes.as_ref().map_or_else(|| "too few blocks".into(), |found| found.len().to_string()),
    );
    cells.push(course.n.to_string());
    LimitRow { environment: course.environment.clone(), cells, remark: remark(course) }
}

/// The coefficient of variation with its interval.
fn variation(course: &Course) -> Option<String> {
    let cv = course.cv?;
    Some(join(&match course.cv_interval {
        Some(interval) => {
            let number = |x: f64| magnitude(x).trim_end_matches(" %").to_string();
            format!("{} [{}, {}]", magnitude(cv), number(interval.low), number(interval.high))
        }
        None => magnitude(cv),
    }))
}

fn drift(course: &Course) -> Option<String> {
    let drift = course.drift_per_hour?;
    let effect = Effect::new(drift.estimate, drift.low, drift.high);
    Some(join(&format!("{} {}", effect.estimate, effect.interval)))
}

fn remark(course: &Course) -> Option<String> {
    let mut remarks = Vec::new();
    match &course.changes {
        Some(changes) => remarks.extend(told(course, changes)),
        None => remarks.push(format!(
            "changes are looked for from {} blocks on, and there are {}",
            Course::FEWEST_FOR_CHANGES,
            course.n
        )),
    }
    if course.failed > 0 {
        remarks.push(format!("{} trials failed", course.failed));
    }
    (!remarks.is_empty()).then(|| remarks.join("; "))
}

fn told(course: &Course, changes: &[Change]) -> Vec<String> {
    let one = |change: &Change| {
        let [before, after] = [change.before, change.after].map(|x| join(&value(&course.metric, x)));
        format!("changed after {}, from {before} to {after}", hours(change.hours))
    };
    let mut told: Vec<String> = changes.iter().take(NAMED).map(one).collect();
    if changes.len() > NAMED {
        told.push(format!("and {} changes more", changes.len() - NAMED));
    }
    told
}

/// A time as people say it.
fn hours(hours: f64) -> String {
    join(&match hours {
        h if h >= 48.0 => format!("{:.1} days", h / 24.0),
        h if h >= 1.0 => format!("{h:.1} h"),
        h => format!("{:.0} min", h * 60.0),
    })
}

/// What is answered first for an environment.
pub(crate) fn clauses(report: &Report, environment: &str) -> Vec<String> {
    let of = report.courses.iter().filter(|course| course.environment == environment);
    of.map(clause).collect()
}

fn clause(course: &Course) -> String {
    let [least, middle, most] =
        [course.min, course.median, course.max].map(|x| join(&value(&course.metric, x)));
    let mut text = format!(
        "over {} {} {} was {middle}, between {least} and {most} ({})",
        hours(course.span_hours()),
        course.workload,
        course.metric.name,
        join(&format!("n {}", course.n))
    );
    if let Some(variation) = variation(course) {
        text.push_str(&format!(", CV {variation}"));
    }
    if let Some(drift) = drift(course) {
        text.push_str(&format!(", drift {drift} an hour"));
    }
    match course.changes.as_deref() {
        Some([]) => text.push_str(", no change found"),
        Some([one]) => text.push_str(&format!(", a change after {}", hours(one.hours))),
        Some([first, ..]) => text.push_str(&format!(
            ", {} changes, the first after {}",
            course.changes.as_ref().map_or(0, Vec::len),
            hours(first.hours)
        )),
        None => {}
    }
    text
}
