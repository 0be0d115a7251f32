//! JUnit XML, as CI servers read it: a suite per workload, a test case per comparison that gets a
//! verdict.
//!
//! With a gate, a case fails if the effect is shown to lie above it, passes if it is shown to lie
//! below, and is an error, with the reason, if it cannot be judged. If neither is shown, it is
//! skipped, or fails where the gate demands proof. Without a gate nothing fails for being slow; a
//! case is skipped if it is inconclusive. Either way, what could not be measured is an error, and
//! what an environment cannot have at all is skipped. There is no standard: the elements are those
//! that Jenkins, GitLab and GitHub's reporters have in common.

use crate::gate::{GatedCell, of_builds};
use crate::results::{self, Row, Table};
use crate::rows::why_no_verdict;
use crate::text::{JOINER, shown};
use crate::troubles::{self, FailureLine};
use crate::{Gate, Report, ReportError};
use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesText, Event};
use std::io;
use weigh_stats::{Cell, Flag, GateOutcome, Verdict};

/// The outcome of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    Failed(String),
    Skipped(String),
    Error(String),
}

impl Outcome {
    /// The element for the outcome, with its message; `None` for a case that passed.
    fn told(&self) -> Option<(&'static str, &str)> {
        match self {
            Self::Passed => None,
            Self::Failed(why) => Some(("failure", why)),
            Self::Skipped(why) => Some(("skipped", why)),
            Self::Error(why) => Some(("error", why)),
        }
    }
}

/// A comparison, a workload that could not be measured in an environment, or a claim.
#[derive(Debug)]
pub(crate) struct Case {
    pub class: String,
    pub name: String,
    pub outcome: Outcome,
    /// What was measured, in words.
    pub said: Vec<String>,
    /// Whether trials failed without being an error, because they cannot change the conclusion.
    pub tolerates_failures: bool,
}

/// The cases of a workload or of an experiment.
#[derive(Debug)]
pub(crate) struct Suite {
    pub name: String,
    pub properties: Vec<(&'static str, String)>,
    pub cases: Vec<Case>,
}

/// The outcomes of all comparisons by a gate.
struct Gated<'a>(Vec<GatedCell<'a>>);

impl Gated<'_> {
    fn of(&self, cell: &Cell) -> Option<&GatedCell<'_>> {
        let same = |other: &Cell| {
            (&other.workload, &other.metric.name, &other.environment)
                == (&cell.workload, &cell.metric.name, &cell.environment)
        };
        self.0.iter().find(|other| same(other.cell))
    }
}

pub(crate) fn render(report: &Report, gate: Option<Gate>) -> Result<String, ReportError> {
    let mut properties = vec![("baseline", name(&report.analysis.baseline))];
    properties.extend(report.run.as_ref().map(|run| ("run", name(run))));
    properties.extend(gate.map(|gate| ("gate", format!("{} %", gate.percent))));
    let outcomes = gate.map_or_else(|| of_builds(report), |gate| Some(gate.outcomes(report)));
    let gated = outcomes.map(Gated);
    let mut suites = suites(report, gated.as_ref());
    suites.iter_mut().for_each(|suite| suite.properties.clone_from(&properties));
    write(&legal(&shown(&report.title)), &suites)
}

fn suites(report: &Report, gate: Option<&Gated<'_>>) -> Vec<Suite> {
    let (groups, failures, baseline) =
        (results::groups(report), troubles::failures(report), &report.analysis.baseline);
    let mut suites: Vec<Suite> = groups
        .iter()
        .map(|group| {
            let judged = group.judged.iter().flat_map(|table| {
                let baseline = table.rows.iter().find(|row| row.baseline);
                let compared = table.rows.iter().filter(|row| !row.baseline);
                compared.map(move |row| case(table, row, baseline, gate))
            });
            Suite { name: group.name(), properties: Vec::new(), cases: judged.collect() }
        })
        .collect();
    // A failure in a baseline, or without any row, does not belong to a case yet.
    for failure in failures {
        let known = suites.iter().flat_map(|suite| &suite.cases).any(|case| {
            let own = case.name == name(&failure.environment);
            let told = own && matches!(case.outcome, Outcome::Error(_));
            let withstood = case.tolerates_failures && (own || failure.environment == *baseline);
            is_of(&case.class, &name(&failure.workload)) && (told || withstood)
        });
        if !known {
            add(&mut suites, &failure);
        }
    }
    suites.retain(|suite| !suite.cases.is_empty());
    suites
}

/// Whether a class is that of a workload, alone or with a metric.
fn is_of(class: &str, workload: &str) -> bool {
    class.strip_prefix(workload).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn add(suites: &mut Vec<Suite>, failure: &FailureLine) {
    let case = Case {
        class: name(&failure.workload),
        name: name(&failure.environment),
        outcome: Outcome::Error(format!("{}: {}", failure.blocks, failure.reason)),
        said: Vec::new(),
        tolerates_failures: false,
    };
    match suites.iter_mut().find(|suite| suite.name == failure.workload) {
        Some(suite) => suite.cases.push(case),
        None => {
            suites.push(Suite { name: failure.workload.clone(), properties: Vec::new(), cases: vec![case] })
        }
    }
}

fn case(table: &Table, row: &Row, baseline: Option<&Row>, gate: Option<&Gated<'_>>) -> Case {
    let effect = row.effect.as_ref().map(ToString::to_string);
    let mut said = Vec::new();
    if let Some(effect) = &effect {
        said.push(format!("overhead {effect} (95 % interval; + is worse)"));
    }
    if let Some(value) = &row.value {
        let against = baseline.and_then(|row| row.value.as_ref()).filter(|_| !table.sequential);
        let against = against.map(|value| format!(" against {value}")).unwrap_or_default();
        said.push(format!("median {value}{against}, {}", table.direction));
    }
    if !row.verdict.is_empty() {
        said.push(row.verdict.clone());
    }
    said.push(format!("n {}", row.n));
    if let Some(smallest) = &row.smallest {
        said.push(format!("could see {smallest}"));
    }
    said.extend(row.beside.iter().cloned());
    let outcome = outcome(row, effect.as_deref(), gate);
    Case {
        class: format!("{}.{}", name(&table.workload), name(&table.metric)),
        name: name(&row.environment),
        tolerates_failures: row.cell.worst_cases.is_some() && !matches!(outcome, Outcome::Error(_)),
        outcome,
        said,
    }
}

fn outcome(row: &Row, effect: Option<&str>, gate: Option<&Gated<'_>>) -> Outcome {
    let cell = &row.cell;
    if let Some(reason) = cell.absent.as_ref().filter(|_| cell.is_absent()) {
        return Outcome::Skipped(reason.clone());
    }
    if let Some(&GatedCell { gate, outcome, .. }) = gate.and_then(|gated| gated.of(cell)) {
        return behind(gate, outcome, &why_no_verdict(cell), effect.unwrap_or_default(), "blocks");
    }
    if cell.failed > 0 && cell.verdict.is_none() {
        return Outcome::Error(format!("{} of {} trials failed", cell.failed, cell.tried));
    }
    let Some(effect) = effect else {
        let not_measured = cell.flags.contains(&Flag::NotMeasured);
        let reason = if row.verdict.is_empty() { "there is no interval" } else { &row.verdict };
        return if not_measured { Outcome::Error(reason.into()) } else { Outcome::Skipped(reason.into()) };
    };
    match cell.verdict {
        Some(Verdict::Inconclusive | Verdict::RunsDiffer) => {
            Outcome::Skipped(format!("{effect}: {}", row.verdict))
        }
        None => Outcome::Skipped(format!("{effect}: no verdict")),
        Some(_) => Outcome::Passed,
    }
}

/// The outcome of a case that a gate judges. `why`: the reason that it cannot be judged, if so;
/// `more`: the unit that more are needed of to decide it.
pub(crate) fn behind(gate: Gate, outcome: GateOutcome, why: &str, effect: &str, more: &str) -> Outcome {
    let Gate { percent, undecided_fails } = gate;
    match outcome {
        GateOutcome::Above => Outcome::Failed(format!("{effect}: above the gate of {percent} %")),
        GateOutcome::Below => Outcome::Passed,
        GateOutcome::Undecided => {
            let what = format!(
                "{effect}: undecided, shown to lie neither above the gate of {percent} % nor below it; more \
                 {more} decide"
            );
            if undecided_fails { Outcome::Failed(what) } else { Outcome::Skipped(what) }
        }
        GateOutcome::NotJudged => Outcome::Error(format!("the gate of {percent} % cannot judge it: {why}")),
    }
}

/// Writes suites as XML under a title.
pub(crate) fn write(title: &str, suites: &[Suite]) -> Result<String, ReportError> {
    let fault = |error: &dyn std::fmt::Display| ReportError::Junit(error.to_string());
    let mut writer = Writer::new_with_indent(Vec::new(), b' ', 2);
    write_suites(&mut writer, title, suites).map_err(|error| fault(&error))?;
    let mut text = String::from_utf8(writer.into_inner()).map_err(|error| fault(&error))?;
    text.push('\n');
    Ok(text.replace(JOINER, " "))
}

fn write_suites(writer: &mut Writer<Vec<u8>>, title: &str, suites: &[Suite]) -> io::Result<()> {
    writer.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
    let element = writer.create_element("testsuites").with_attribute(("name", title));
    let element = element.with_attributes(borrowed(&counts(suites)));
    element.write_inner_content(|writer| suites.iter().try_for_each(|suite| write_suite(writer, suite)))?;
    Ok(())
}

/// How many cases there are, and how many of each outcome.
fn counts(suites: &[Suite]) -> [(&'static str, String); 4] {
    let told = || suites.iter().flat_map(|suite| &suite.cases).map(|case| case.outcome.told());
    let count = |element: &str| told().flatten().filter(|(known, _)| *known == element).count().to_string();
    [
        ("tests", told().count().to_string()),
        ("failures", count("failure")),
        ("errors", count("error")),
        ("skipped", count("skipped")),
    ]
}

fn borrowed<'a>(attributes: &'a [(&'static str, String)]) -> impl Iterator<Item = (&'a str, &'a str)> {
    attributes.iter().map(|(name, value)| (*name, value.as_str()))
}

/// A name of any origin and length.
pub(crate) fn name(text: &str) -> String {
    legal(&crate::text::shown_name(text))
}

/// Text without control characters, made legal for XML: two characters remain that it does not
/// allow (XML 1.0, production 2).
pub(crate) fn legal(text: &str) -> String {
    text.replace('\u{fffe}', "\\u{fffe}").replace('\u{ffff}', "\\u{ffff}")
}

fn write_suite(writer: &mut Writer<Vec<u8>>, suite: &Suite) -> io::Result<()> {
    let name = name(&suite.name);
    let element = writer.create_element("testsuite").with_attribute(("name", name.as_str()));
    let counts = counts(std::slice::from_ref(suite));
    element.with_attributes(borrowed(&counts)).write_inner_content(|writer| {
        writer.create_element("properties").write_inner_content(|writer| {
            for (name, value) in borrowed(&suite.properties) {
                let attributes = [("name", name), ("value", value)];
                writer.create_element("property").with_attributes(attributes).write_empty()?;
            }
            Ok(())
        })?;
        suite.cases.iter().try_for_each(|case| write_case(writer, case))
    })?;
    Ok(())
}

fn write_case(writer: &mut Writer<Vec<u8>>, case: &Case) -> io::Result<()> {
    let attributes = [("classname", case.class.as_str()), ("name", case.name.as_str())];
    writer.create_element("testcase").with_attributes(attributes).write_inner_content(|writer| {
        if let Some((element, why)) = case.outcome.told() {
            let why = legal(&shown(why));
            writer.create_element(element).with_attribute(("message", why.as_str())).write_empty()?;
        }
        let said: Vec<String> = case.said.iter().map(|line| legal(&shown(line))).collect();
        if !said.is_empty() {
            writer.create_element("system-out").write_text_content(BytesText::new(&said.join("\n")))?;
        }
        Ok(())
    })?;
    Ok(())
}
