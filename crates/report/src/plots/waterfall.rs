//! Plots of start-up, stamp by stamp.

use super::{Names, rounded};
use crate::document::Entry;
use crate::quantity::{Scale, duration};
use crate::results::{Group, Table};
use crate::text::shown_name;
use serde::Serialize;
use weigh_model::{Unit, distinct, stamps};

/// The stamps of a start in order, and what has happened when each is taken.
const STAMPS: [(&str, &str); 4] = [
    (stamps::CODE, "guest code runs"),
    (stamps::INIT, "guest is initialised"),
    (stamps::SERVICE, "service listens"),
    (stamps::RESPONSE, "first response"),
];

/// The parts of a machine's boot, each a duration.
const PARTS: [(&str, &str); 4] = [
    (stamps::BOOT_VMM, "monitor lets the machine go"),
    (stamps::BOOT_FIRMWARE, "kernel's clock starts"),
    (stamps::BOOT_KERNEL, "first program starts"),
    (stamps::BOOT_USER, "guest is initialised"),
];

/// The start-up of all environments for one workload.
#[derive(Debug, Serialize)]
pub(crate) struct Waterfall {
    pub workload: String,
    /// Whether it shows the parts of a machine's boot.
    pub boot: bool,
    pub unit: String,
    pub steps: Vec<&'static str>,
    /// The environment, then the time at which each step was reached, median over blocks; null if a
    /// step does not apply.
    pub rows: Vec<(usize, Vec<Option<f64>>)>,
    #[serde(skip)]
    pub entries: Vec<(String, Vec<Entry>)>,
}

/// Every waterfall of the report.
pub(crate) fn find(groups: &[Group], names: &Names) -> Vec<Waterfall> {
    let of = |group| [waterfall(group, &STAMPS, false, names), waterfall(group, &PARTS, true, names)];
    groups.iter().flat_map(of).flatten().collect()
}

fn waterfall(group: &Group, steps: &[(&str, &'static str)], boot: bool, names: &Names) -> Option<Waterfall> {
    let table = |metric: &str| group.tables().find(|table| table.metric == metric);
    let tables: Vec<(&Table, &'static str)> =
        steps.iter().filter_map(|(metric, word)| Some((table(metric)?, *word))).collect();
    if tables.len() < 2 {
        return None;
    }
    let times = |environment: &str| {
        let mut reached = 0.0;
        tables
            .iter()
            .map(|(table, _)| {
                let median = table.row(environment)?.cell.summary?.median;
                reached += median;
                Some(if boot { reached } else { median })
            })
            .collect::<Vec<Option<f64>>>()
    };
    let measured = tables.iter().flat_map(|(table, _)| &table.rows);
    let environments = distinct(measured.map(|row| row.environment.as_str()));
    let rows: Vec<(&str, Vec<Option<f64>>)> = environments
        .into_iter()
        .map(|name| (name, times(name)))
        .filter(|(_, times)| times.iter().any(Option::is_some))
        .collect();
    let longest = rows.iter().flat_map(|(_, times)| times.iter().flatten()).copied().fold(0.0, f64::max);
    let scale = Scale::new(&Unit::normalise("s").0, [longest], None);
    let entry = |time: &Option<f64>| time.map_or(Entry::text("–"), |time| Entry::quantity(duration(time)));
    Some(Waterfall {
        workload: shown_name(&group.workload),
        boot,
        unit: scale.symbol().into(),
        steps: tables.iter().map(|(_, word)| *word).collect(),
        entries: rows
            .iter()
            .map(|(name, times)| ((*name).to_string(), times.iter().map(entry).collect()))
            .collect(),
        rows: rows
            .into_iter()
            .filter_map(|(name, times)| {
                let shown = times.iter().map(|time| time.map(|time| rounded(scale.shown(time)))).collect();
                Some((names.number(name)?, shown))
            })
            .collect(),
    })
}
