//! How values developed over hours or days, in words.

use crate::Report;
use crate::document::{Entry, Figure, PlotKind, Section};
use crate::neighbours::value;
use crate::own::{self, OwnRow};
use crate::plots::{CoursePlot, CourseRow, Names, Plots};
use crate::quantity::{Effect, Quantity, Scale, size};
use crate::text::{join, shown_name};
use weigh_model::grouped;
use weigh_stats::{Change, Course};

/// The number of changes that are described one by one.
const NAMED: usize = 5;

/// One table per workload and metric, with its figures.
pub(crate) fn sections(report: &Report, names: &Names, plots: &mut Plots) -> Vec<Section> {
    let subject = |course: &&Course| format!("{} {}", course.workload, course.metric.name);
    let mut sections = Vec::new();
    for (subject, courses) in grouped(&report.courses, subject) {
        let note = "one value per block, each environment by itself; CV: standard deviation over mean; drift: change of the cost per hour, + is \
             worse; both with 95 % intervals that do not assume that successive blocks are independent; changes of mean or variance by PELT, \
             penalty 15 ln n and more where successive blocks are alike; a slow drift may be reported as steps";
        let columns = ["least", "5 %", "median", "95 %", "most", "CV", "drift per hour", "changes", "n"];
        let rows = courses.iter().map(|course| row(course)).collect();
        let caption = format!("{subject} over time");
        let figures = figures(&subject, &courses, names, plots);
        let table = own::table(caption, note.into(), "environment", &columns, rows);
        sections.push(own::section(table, figures));
    }
    sections
}

/// Figures of the distribution of the values, and of their course.
fn figures(subject: &str, courses: &[&Course], names: &Names, plots: &mut Plots) -> Vec<Figure> {
    let scale = Scale::new(&courses[0].metric.unit, [courses[0].median], None);
    let row = |course: &&Course| Some(CourseRow::new(course, names.number(&course.environment)?, &scale));
    let rows: Vec<CourseRow> = courses.iter().filter_map(row).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let subject = shown_name(subject);
    plots.courses.push(CoursePlot { what: subject.clone(), unit: scale.symbol().into(), rows });
    let index = plots.courses.len() - 1;
    let five = "a box per environment from the 5 % to the 95 % quantile, its whiskers reaching to the least and the most";
    let course = "values over hours, one line per environment, changes marked";
    let title = format!("{subject}: least, 5 %, median, 95 %, most");
    vec![
        Figure::beside_table(PlotKind::Five, index, title, five),
        Figure::beside_table(PlotKind::Course, index, format!("{subject} over time"), course),
    ]
}

fn row(course: &Course) -> OwnRow {
    let five = [course.min, course.p05, course.median, course.p95, course.max];
    let mut entries: Vec<Entry> = five.iter().map(|x| Entry::quantity(value(&course.metric, *x))).collect();
    entries.push(variation(course).unwrap_or_default());
    let few = || Entry::text("too few blocks");
    entries.push(course.drift_per_hour.map_or_else(few, |drift| Entry::effect(Effect::from(drift))));
    entries.push(course.changes.as_ref().map_or_else(few, |found| Entry::count(found.len() as u64)));
    entries.push(Entry::count(course.n));
    OwnRow { name: Entry::name(&course.environment), entries, remark: remark(course) }
}

/// The coefficient of variation with its interval.
fn variation(course: &Course) -> Option<Entry> {
    let cv = size(course.cv?);
    let end = |x: f64| Quantity { unit: String::new(), ..size(x) };
    Some(match course.cv_interval {
        Some(interval) => Entry::estimate(cv, end(interval.low), end(interval.high)),
        None => Entry::quantity(cv),
    })
}

fn remark(course: &Course) -> Option<String> {
    let mut remarks = Vec::new();
    match &course.changes {
        Some(changes) => remarks.extend(describe(course, changes)),
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

fn describe(course: &Course, changes: &[Change]) -> Vec<String> {
    let one = |change: &Change| {
        let [before, after] =
            [change.before, change.after].map(|x| join(&value(&course.metric, x).to_string()));
        format!("changed after {}, from {before} to {after}", hours(change.hours))
    };
    let mut told: Vec<String> = changes.iter().take(NAMED).map(one).collect();
    if changes.len() > NAMED {
        told.push(format!("and {} more changes", changes.len() - NAMED));
    }
    told
}

/// A time span in the unit that people would use.
fn hours(hours: f64) -> String {
    join(&match hours {
        h if h >= 48.0 => format!("{:.1} days", h / 24.0),
        h if h >= 1.0 => format!("{h:.1} h"),
        h => format!("{:.0} min", h * 60.0),
    })
}

/// The clauses on an environment's course for its answer.
pub(crate) fn clauses(report: &Report, environment: &str) -> Vec<String> {
    let of = report.courses.iter().filter(|course| course.environment == environment);
    of.map(clause).collect()
}

fn clause(course: &Course) -> String {
    let [least, middle, most] =
        [course.min, course.median, course.max].map(|x| join(&value(&course.metric, x).to_string()));
    let mut text = format!(
        "over {} {} {} was {middle}, between {least} and {most} ({})",
        hours(course.span_hours()),
        course.workload,
        course.metric.name,
        join(&format!("n {}", course.n))
    );
    if let Some(variation) = variation(course) {
        text.push_str(&format!(", CV {}", join(&variation.words())));
    }
    if let Some(drift) = course.drift_per_hour {
        text.push_str(&format!(", drift {} an hour", join(&Effect::from(drift).to_string())));
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
