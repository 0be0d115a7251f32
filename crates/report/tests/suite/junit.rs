//! JUnit XML is well-formed, its counts match its cases, and only cases that cross the gate fail.

use crate::common::page::{Element, Node};
use crate::common::{self, Shown, hostile_samples, samples};
use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};
use std::collections::BTreeMap;
use weigh_report::{Format, Gate, Options, Report};
use weigh_stats::{Flag, GateOutcome, gate};

fn element(start: &BytesStart<'_>) -> Element {
    let attributes = start.attributes().map(|attribute| {
        let attribute = attribute.expect("well-formed");
        let value = attribute.normalized_value(XmlVersion::Explicit1_0).expect("entities are known");
        (attribute.key.as_ref().to_string(), value.into_owned())
    });
    let tag = start.name().as_ref().to_string();
    Element { tag, attributes: attributes.collect(), children: Vec::new() }
}

fn number(element: &Element, attribute: &str) -> usize {
    element.attribute(attribute).parse().expect("a number")
}

fn parse(text: &str) -> Element {
    let mut reader = Reader::from_str(text);
    reader.config_mut().check_end_names = true;
    let mut open = vec![Element::default()];
    loop {
        let inner = match reader.read_event().expect("well-formed") {
            Event::Start(start) => {
                open.push(element(&start));
                continue;
            }
            Event::Empty(start) => element(&start),
            Event::End(_) => open.pop().expect("an element"),
            Event::Eof => break,
            _ => continue,
        };
        open.last_mut().expect("a parent").children.push(Node::Element(inner));
    }
    assert_eq!(open.len(), 1, "every element is closed");
    let Node::Element(root) = open.remove(0).children.remove(0) else { panic!("a text is no root") };
    root
}

fn at(percent: f64) -> Option<Gate> {
    Some(Gate { percent, undecided_fails: false })
}

fn written(report: &Report, gate: Option<Gate>) -> String {
    report.render(Format::Junit, &Options { gate, ..Options::default() })
}

/// The outcome and message of each test case, by class and name.
fn cases(report: &Report, gate: Option<Gate>) -> BTreeMap<(String, String), (String, String)> {
    let root = parse(&written(report, gate));
    let case = |case: &Element| {
        let told = case.inner().find(|element| element.tag != "system-out");
        let outcome = told.map_or("passed", |element| element.tag.as_str());
        let message = told.map(|element| element.attributes["message"].clone()).unwrap_or_default();
        let of = |name: &str| case.attributes[name].clone();
        ((of("classname"), of("name")), (outcome.to_string(), message))
    };
    root.all(&["testcase"]).into_iter().map(case).collect()
}

#[test]
fn junit_is_well_formed_and_its_counts_are_right() {
    for (name, sample) in samples().into_iter().chain(hostile_samples()) {
        for gate in [None, at(1.0), at(5.0)] {
            let options = Options { gate, ..Options::default() };
            let root = parse(&sample.render(Format::Junit, &options));
            assert_eq!(root.tag, "testsuites", "{name}");
            let suites: Vec<&Element> = root.inner().filter(|e| e.tag == "testsuite").collect();
            for element in suites.iter().copied().chain([&root]) {
                let counted =
                    ["testcase", "failure", "error", "skipped"].map(|tag| element.all(&[tag]).len());
                let claimed = ["tests", "failures", "errors", "skipped"].map(|name| number(element, name));
                assert_eq!(counted, claimed, "{name}: {}", element.attributes["name"]);
            }
            assert_eq!(suites.len(), root.inner().count(), "{name}: only suites in the root");
            for element in suites.iter().flat_map(|suite| suite.inner()) {
                let known = ["properties", "testcase"].contains(&element.tag.as_str());
                assert!(known, "{name}: {}", element.tag);
            }
        }
    }
}

/// Every compared cell with a verdict is a case, and no other.
#[test]
fn every_judged_comparison_is_a_case() {
    // If nothing was measured, there are failures and no cells to judge.
    for (name, report) in common::all().into_iter().filter(|(name, _)| *name != "nothing") {
        let cases = cases(&report, None);
        for cell in &report.analysis.cells {
            let key = (format!("{}.{}", cell.workload, cell.metric.name), cell.environment.clone());
            let compared = cell.primary && cell.environment != report.analysis.baseline;
            assert_eq!(cases.contains_key(&key), compared, "{name}: {key:?}");
        }
    }
}

#[test]
fn a_failure_is_not_in_the_case_of_a_longer_workload() {
    let mut report = common::nothing();
    let mut shorter = report.failures[0].clone();
    shorter.workload = "lz".into();
    report.failures.push(shorter);
    let cases = cases(&report, None);
    let of = |class: &str| cases.keys().any(|(known, name)| known == class && name == "native");
    assert!(of("lzma") && of("lz"), "{cases:?}");
}

#[test]
fn the_outcome_of_a_case_is_that_of_the_gate() {
    let mut seen = [0; 4];
    for (name, report) in common::all().into_iter().filter(|(name, _)| *name != "nothing") {
        for percent in [0.5, 2.0, 5.0, 10.0] {
            for undecided_fails in [false, true] {
                let cases = cases(&report, Some(Gate { percent, undecided_fails }));
                for (cell, outcome) in gate(&report.analysis, percent / 100.0, undecided_fails) {
                    let key = (format!("{}.{}", cell.workload, cell.metric.name), cell.environment.clone());
                    let (found, message) = &cases[&key];
                    let (at, expected) = match outcome {
                        GateOutcome::Above => (0, "failure"),
                        GateOutcome::Undecided if undecided_fails => (1, "failure"),
                        GateOutcome::Undecided => (1, "skipped"),
                        GateOutcome::Below => (2, "passed"),
                        GateOutcome::NotJudged => (3, "error"),
                    };
                    assert_eq!(found, expected, "{name} {key:?} at {percent}: {message}");
                    assert_eq!(expected == "passed", message.is_empty(), "{name} {key:?}");
                    seen[at] += 1;
                }
            }
        }
    }
    assert!(seen.iter().all(|count| *count > 0), "the runs have a case of every outcome: {seen:?}");
}

/// A load generator at its limit hides the cost of the environment, however small it looks.
#[test]
fn an_impaired_comparison_below_the_gate_does_not_pass() {
    let mut report = common::standard();
    let cell = report.analysis.cells.iter_mut().find(|cell| cell.is_in_family() && cell.failed == 0).unwrap();
    let key = (format!("{}.{}", cell.workload, cell.metric.name), cell.environment.clone());
    assert_eq!(cases(&report, at(50.0))[&key].0, "passed");
    let cell = report.analysis.cells.iter_mut().find(|cell| cell.is_in_family() && cell.failed == 0).unwrap();
    (cell.flags, cell.verdict) = (vec![Flag::LoaderBound], None);
    let (outcome, message) = &cases(&report, at(50.0))[&key];
    assert_eq!(outcome, "error");
    assert!(message.contains("the load generator was the limit"), "{message}");
}

#[test]
fn without_a_gate_nothing_fails_for_being_slow() {
    for (name, report) in common::all() {
        assert!(cases(&report, None).values().all(|(outcome, _)| outcome != "failure"), "{name}");
    }
    let standard = common::standard();
    let undecided = cases(&standard, None).into_values().filter(|(outcome, _)| outcome == "skipped").count();
    assert!(undecided > 0, "what is inconclusive is no success");
}

#[test]
fn a_failure_without_a_row_is_an_error() {
    let report = common::nothing();
    let cases = cases(&report, at(3.0));
    assert!(!cases.is_empty(), "a run that measured nothing is no success");
    for (key, (outcome, message)) in cases {
        assert_eq!(outcome, "error", "{key:?}");
        assert!(!message.is_empty(), "{key:?} says why");
    }
}

#[test]
fn characters_that_xml_cannot_hold_are_spelled_out() {
    let mut report = common::quick();
    report.title = "a\u{0}b\u{fffe}c\u{ffff}d\u{1b}[31m]]>\"'".into();
    let text = written(&report, None);
    let legal = |c: char| !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}') || c == '\n';
    assert!(text.chars().all(legal), "{text:?}");
    assert!(parse(&text).attributes["name"].ends_with("[31m]]>\"'"));
}
