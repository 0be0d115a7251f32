//! What a report must never do: one rule per prohibition of the method page that concerns reports,
//! under the same number as in its list ("Never").
//!
//! A rule compares the truth (a report) with the text of six formats, and names every breach. It
//! holds for all fixed runs. It is also shown to find the breach in every format, by rendering a
//! report that breaks it.

mod conclusions;
mod conditions;
mod hidden;
mod numbers;

use crate::common::texts::{FORMATS, Texts, effect, explains, field, is_rate, ratios, rows};
use crate::common::{self, Shown, machines, void};
use regex::Regex;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use weigh_model::{
    Better, ClockState, Comparison, Effort, Extraction, Observation, Series, VoidCause, neighbours,
};
use weigh_report::{EnvironmentFacts, Format, Report};
use weigh_stats::{Cell, ChargeSummary, Flag, Interval, Pairing, Verdict};

/// A format, and how it breaks a rule.
type Breach = (&'static str, String);
type Rule = fn(&Report, &Texts, &mut Breaches);

/// The breaches of a rule.
#[derive(Default)]
struct Breaches(Vec<Breach>);

impl Breaches {
    fn of(rule: Rule, report: &Report, texts: &Texts) -> Vec<Breach> {
        let mut breaches = Self::default();
        rule(report, texts, &mut breaches);
        breaches.0
    }

    fn expect(&mut self, holds: bool, format: &'static str, what: impl Into<String>) {
        if !holds {
            self.0.push((format, what.into()));
        }
    }

    fn json(&mut self, holds: bool, what: &str) {
        self.expect(holds, "json", what);
    }

    fn csv(&mut self, holds: bool, what: &str) {
        self.expect(holds, "csv", what);
    }

    /// Expects `holds` of every format for people.
    fn readable(&mut self, texts: &Texts, what: &str, holds: impl Fn(&str) -> bool) {
        texts.readable.iter().for_each(|(format, text)| self.expect(holds(text), format, what));
    }

    /// Expects `line` to hold for some row of a cell in every format for people.
    fn rows(&mut self, texts: &Texts, cell: &Cell, what: &str, line: impl Fn(&str) -> bool) {
        if cell.metric.name == neighbours::UP && texts.all_up.contains(&cell.workload) {
            return;
        }
        let what = format!("{} {}: {what}", cell.metric.name, place(cell));
        self.readable(texts, &what, |text| rows(text, cell).into_iter().any(&line));
    }
}

/// A cell in words.
fn place(cell: &Cell) -> String {
    format!("{} in {}", cell.workload, cell.environment)
}

/// Asserts that the rule holds for every fixed run.
fn holds(rule: Rule) {
    for (name, report) in common::all() {
        let breaches = Breaches::of(rule, &report, &Texts::of(&report));
        assert!(breaches.is_empty(), "{name}: {breaches:#?}");
    }
}

/// Asserts that the formats of `shown` break the rule, each of them, if `truth` is the correct
/// report.
fn finds(rule: Rule, truth: &Report, shown: &Report) {
    finds_in(rule, truth, shown, &FORMATS);
}

fn finds_in(rule: Rule, truth: &Report, shown: &Report, formats: &[&str]) {
    assert_eq!(Breaches::of(rule, truth, &Texts::of(truth)), [], "the truth itself breaks nothing");
    let found = Breaches::of(rule, truth, &Texts::of(shown));
    let found: BTreeSet<&str> = found.into_iter().map(|(format, _)| format).collect();
    let missing: Vec<&&str> = formats.iter().filter(|format| !found.contains(**format)).collect();
    assert!(missing.is_empty(), "the rule finds nothing in {missing:?}");
}

/// A report with a change.
fn but(report: &Report, change: impl FnOnce(&mut Report)) -> Report {
    let mut report = report.clone();
    change(&mut report);
    report
}

/// Whether a line contains a number as a separate token.
fn has_number(line: &str, number: u32) -> bool {
    let number = number.to_string();
    line.split(|c: char| !c.is_ascii_digit() && c != '.').any(|token| token == number)
}

fn compared(report: &Report) -> impl Iterator<Item = &Cell> {
    report.analysis.cells.iter().filter(|c| c.environment != report.analysis.baseline)
}

fn cell_mut(report: &mut Report, wanted: impl Fn(&Cell) -> bool) -> &mut Cell {
    report.analysis.cells.iter_mut().find(|cell| wanted(cell)).expect("such a cell")
}

fn series(environment: &str, values: impl Iterator<Item = f64>) -> Series {
    let observations: Vec<Observation> =
        (0..).zip(values).map(|(block, value)| Observation { block: Some(block), value }).collect();
    let tried = u32::try_from(observations.len()).expect("few");
    Series { environment: environment.into(), observations, failed: 0, tried }
}

fn two(better: Better, unit: &str, other: impl Fn(u32) -> f64) -> Report {
    let comparisons = vec![Comparison {
        workload: "work".into(),
        key: Default::default(),
        metric: common::metric("rate", unit, better, true),
        series: vec![
            series("native", (0..30).map(|_| 100.0)),
            series("other", (0..30).map(|block| other(block) * (1.0 + 1e-6 * f64::from(block % 3)))),
        ],
    }];
    let plan = common::plan("two", &["native", "other"], &comparisons, Effort::Fixed { blocks: 30 });
    let report = Report::new("two", common::analysed(&comparisons, &plan));
    Report { plan: Some(plan), ..report }
}
