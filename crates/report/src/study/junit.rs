//! A study as JUnit's XML: a suite for each experiment, a test case for each claim. A claim that is
//! contradicted fails; one that is open or was not run is skipped, with the reason. The overheads
//! of tables are no cases: a platform may well cost something else on another machine.

use super::tally::Claims;
use super::words::GradeWords;
use super::{ClaimReport, ExperimentReport, StudyReport, notes, tally::Tally};
use crate::ReportError;
use crate::document::Tone;
use crate::junit::{legal, name};
use crate::text::{JOINER, shown};
use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesText, Event};
use std::io;

/// The study as JUnit's XML.
pub(super) fn render(report: &StudyReport) -> Result<String, ReportError> {
    let mut writer = Writer::new_with_indent(Vec::new(), b' ', 2);
    write(&mut writer, report).map_err(|error| ReportError::Junit(error.to_string()))?;
    let mut text =
        String::from_utf8(writer.into_inner()).map_err(|error| ReportError::Junit(error.to_string()))?;
    text.push('\n');
    Ok(text.replace(JOINER, " "))
}

/// Cases, failures, errors, skipped ones. Nothing of a study is an error: what could not be run was
/// not checked.
fn attributes(what: &str, claims: Claims) -> [(&'static str, String); 5] {
    let skipped = claims.undecided + claims.not_run;
    let all = claims.hold + claims.differ + skipped;
    [
        ("name", name(what)),
        ("tests", all.to_string()),
        ("failures", claims.differ.to_string()),
        ("errors", "0".into()),
        ("skipped", skipped.to_string()),
    ]
}

fn borrowed<'a, const N: usize>(attributes: &'a [(&'static str, String); N]) -> [(&'static str, &'a str); N] {
    std::array::from_fn(|at| (attributes[at].0, attributes[at].1.as_str()))
}

fn write(writer: &mut Writer<Vec<u8>>, report: &StudyReport) -> io::Result<()> {
    writer.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
    let counts = attributes(&format!("weigh study {}", report.name), Tally::of_study(report).claims);
    let suites = report.experiments.iter().filter(|experiment| !experiment.claims.is_empty());
    writer
        .create_element("testsuites")
        .with_attributes(borrowed(&counts))
        .write_inner_content(|writer| suites.into_iter().try_for_each(|one| suite(writer, report, one)))?;
    Ok(())
}

fn suite(
    writer: &mut Writer<Vec<u8>>,
    report: &StudyReport,
    experiment: &ExperimentReport,
) -> io::Result<()> {
    let counts =
        attributes(&format!("{}/{}", report.name, experiment.name), Tally::of_experiment(experiment).claims);
    let mut properties = vec![("size", name(&report.size))];
    properties.extend(experiment.run.as_ref().map(|run| ("run", name(run))));
    properties.extend(
        experiment
            .instead
            .iter()
            .map(|one| ("stand-in", legal(&shown(&format!("{} for {}", one.here, one.original))))),
    );
    writer.create_element("testsuite").with_attributes(borrowed(&counts)).write_inner_content(|writer| {
        writer.create_element("properties").write_inner_content(|writer| {
            properties.iter().try_for_each(|(name, value)| {
                let attributes = [("name", *name), ("value", value.as_str())];
                writer.create_element("property").with_attributes(attributes).write_empty().map(|_| ())
            })
        })?;
        experiment.claims.iter().try_for_each(|claim| case(writer, report, experiment, claim))
    })?;
    Ok(())
}

fn case(
    writer: &mut Writer<Vec<u8>>,
    report: &StudyReport,
    experiment: &ExperimentReport,
    claim: &ClaimReport,
) -> io::Result<()> {
    let words = notes::claim(claim);
    let class = name(&format!("{}.{}", report.name, experiment.name));
    let id = name(&claim.id);
    let said: Vec<String> = [words.says.clone(), format!("check: {}", words.check)]
        .into_iter()
        .chain(words.seen.clone())
        .chain([format!("grade: {}", words.grade.word)])
        .map(|line| legal(&shown(&line)))
        .collect();
    let attributes = [("classname", class.as_str()), ("name", id.as_str())];
    writer.create_element("testcase").with_attributes(attributes).write_inner_content(|writer| {
        if let Some((element, why)) = told(&words.grade, &words.seen) {
            let why = legal(&shown(&why));
            writer.create_element(element).with_attribute(("message", why.as_str())).write_empty()?;
        }
        writer.create_element("system-out").write_text_content(BytesText::new(&said.join("\n")))?;
        Ok(())
    })?;
    Ok(())
}

/// The element that a case has, with its message; none for a claim that holds.
fn told(grade: &GradeWords, seen: &[String]) -> Option<(&'static str, String)> {
    let why = || grade.sentence().map_or(String::new(), |reason| format!(": {reason}"));
    match grade.tone {
        Tone::Same => None,
        Tone::Worse => Some(("failure", format!("{}: {}", grade.word, seen.join("; ")))),
        _ => Some(("skipped", format!("{}{}", grade.word, why()))),
    }
}
