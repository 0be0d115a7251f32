//! What every format says about a study, and what none says.

use crate::common::texts::{effect, from_html, from_latex, from_markdown, ratios};
use crate::common::{Shown, study};
use weigh_report::study::{ClaimGrade, StudyCell, StudyReport};
use weigh_report::{Format, quantity};
use weigh_stats::{Grade, Interval};

/// The formats for people, without markup.
fn readable(report: &StudyReport) -> [(&'static str, String); 4] {
    [
        ("table", report.table(1000)),
        ("markdown", from_markdown(&report.text(Format::Markdown))),
        ("latex", from_latex(&report.text(Format::Latex))),
        ("html", from_html(&report.text(Format::Html))),
    ]
}

/// The text before the explanations.
fn results(text: &str) -> &str {
    text.split_once("How to read").expect("the explanations").0
}

fn word(grade: &ClaimGrade) -> &'static str {
    match grade {
        ClaimGrade::Checked(Grade::Holds) => "HOLDS",
        ClaimGrade::Checked(Grade::Differs) => "DIFFERS",
        ClaimGrade::Checked(Grade::Undecided { .. }) => "UNDECIDED",
        ClaimGrade::NotRun { .. } => "NOT RUN",
    }
}

fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn every_claim_has_its_grade_and_its_reason_in_every_format() {
    for (name, report) in study::all() {
        let texts = readable(&report);
        let csv = report.text(Format::Csv);
        let xml = report.text(Format::Junit);
        for claim in report.experiments.iter().flat_map(|experiment| &experiment.claims) {
            let grade = word(&claim.grade);
            for (format, text) in &texts {
                let told = text.lines().any(|line| line.contains(grade) && line.contains(&claim.says));
                assert!(told, "{name} {format}: {} without {grade}", claim.says);
                let whole = text.contains(&claim.source) && text.contains(&claim.check);
                assert!(whole, "{name} {format}: {}", claim.id);
            }
            let told = csv.lines().any(|line| line.contains(&claim.id) && line.contains(grade));
            assert!(told, "{name}: {}", claim.id);
            let reason = match &claim.grade {
                ClaimGrade::NotRun { not_run } => Some(not_run.clone()),
                ClaimGrade::Checked(Grade::Undecided { blocks: Some(blocks) }) => {
                    Some(format!("{blocks} blocks in all would likely decide it"))
                }
                ClaimGrade::Checked(Grade::Undecided { blocks: None }) => {
                    Some("no known number of blocks would decide it".into())
                }
                ClaimGrade::Checked(_) => None,
            };
            for (format, text) in
                texts.iter().map(|(f, t)| (*f, t.as_str())).chain([("csv", csv.as_str()), ("junit", &xml)])
            {
                let text = text.replace("&apos;", "'");
                let told = reason.iter().all(|reason| text.contains(reason));
                assert!(told, "{name} {format}: {} without a reason", claim.id);
            }
            for seen in &claim.seen {
                for (format, text) in &texts {
                    let text = squeezed(text);
                    let whole = [format!("{} ", seen.what), format!(", n {}", seen.n)];
                    assert!(whole.iter().all(|part| text.contains(part)), "{name} {format}: {}", seen.what);
                }
            }
        }
    }
}

/// The same study with nothing but absolute values.
fn values_alone() -> StudyReport {
    let mut report = study::everything();
    for experiment in &mut report.experiments {
        experiment.claims.clear();
        for cell in experiment.views.iter_mut().flat_map(|v| &mut v.rows).flat_map(|r| &mut r.cells) {
            (cell.published_overhead, cell.overhead, cell.agreement) = (None, None, None);
        }
    }
    report
}

#[test]
fn no_absolute_value_is_graded() {
    let report = values_alone();
    for (format, text) in readable(&report) {
        // The page has columns of counts, whose headings name the grades.
        let text = results(&text);
        let text = if format == "html" { text.split_once("Warnings").expect("the counts").1 } else { text };
        for grade in ["HOLDS", "AGREES", "DIFFERS", "UNDECIDED"] {
            assert!(!text.contains(grade), "{format} says {grade} of a value");
        }
        assert!(ratios(text).is_empty(), "{format} has ratios: {:?}", ratios(text));
    }
    for (name, report) in study::all() {
        for (format, text) in readable(&report) {
            let said = "they stand beside each other for reference and are no comparison";
            assert!(squeezed(&text).contains(said), "{name} {format}");
        }
    }
}

fn cells(report: &StudyReport) -> impl Iterator<Item = &StudyCell> {
    report.experiments.iter().flat_map(|e| &e.views).flat_map(|v| &v.rows).flat_map(|r| &r.cells)
}

/// The estimate of a published overhead that has no interval.
fn bare(cell: &StudyCell) -> Option<String> {
    let cost = cell.published_overhead.filter(|_| !cell.published_overhead_has_interval)?;
    Some(quantity::Effect::from(cost).estimate.to_string())
}

#[test]
fn every_ratio_has_its_interval_and_its_number_of_blocks() {
    let report = study::everything();
    let bare: Vec<String> = cells(&report).filter_map(bare).collect();
    for (format, text) in readable(&report) {
        let text = squeezed(results(&text));
        for ratio in ratios(&text) {
            let alone = text.matches(&ratio).count() > text.matches(&format!("{ratio} [")).count();
            assert!(!alone || bare.contains(&ratio), "{format}: {ratio} stands alone");
        }
        for cell in cells(&report) {
            let Some((overhead, measured)) = cell.overhead.zip(cell.measured.as_ref()) else { continue };
            let n = measured.n;
            // Formats differ in order: the page and the terminal have the number of blocks before
            // or after the overhead.
            let beside = |overhead: Interval| {
                let effect = effect(overhead);
                let text = &text;
                let shown = format!("{} {}", effect.estimate, effect.interval);
                text.match_indices(&shown).any(|(at, _)| {
                    let from = text[..at].char_indices().rev().nth(60).map_or(0, |(at, _)| at);
                    let near: String = text[from..].chars().take(60 + shown.len() + 12).collect();
                    near.contains(&format!("n {n}"))
                        || near.contains(&format!("{shown} {n}"))
                        || near.contains(&format!("n$ {n}"))
                })
            };
            assert!(beside(overhead), "{format}: {overhead:?} without n {n}");
        }
    }
}

#[test]
fn the_check_of_ratios_finds_every_ratio_of_a_line() {
    assert_eq!(ratios("Docker +3 % [+2, +4] and +7 %"), ["+3 %", "+7 %"]);
}

#[test]
fn every_table_has_its_size_and_every_experiment_its_stand_ins() {
    let report = study::everything();
    for (format, text) in readable(&report) {
        let text = squeezed(&text);
        let views: usize = report.experiments.iter().map(|experiment| experiment.views.len()).sum();
        assert!(text.matches("Size quick.").count() >= views, "{format}: the size");
        for experiment in &report.experiments {
            for instead in &experiment.instead {
                let said = squeezed(&format!("instead of {}: {}", instead.original, instead.here));
                assert_eq!(text.matches(&said).count(), 1, "{format}: {said}");
            }
            let told =
                squeezed(&format!("What differs from the paper is listed above, under {}", experiment.name));
            let tables = if experiment.instead.is_empty() { 0 } else { experiment.views.len() };
            assert!(text.matches(&told).count() >= tables, "{format}: {told}");
        }
        for workload in ["xz", "block"] {
            let said = squeezed(&format!("stand-in: {workload}"));
            assert!(text.contains(&said), "{format}: rows that {workload} measures");
        }
    }
}

#[test]
fn an_arm_that_was_not_run_has_its_reason_once() {
    let mut report = study::everything();
    report.experiments.truncate(1);
    report.experiments[0].claims.clear();
    report.experiments[0].arms[2].not_run = Some("zebras graze on it".into());
    for (format, text) in readable(&report) {
        assert_eq!(text.matches("zebras graze").count(), 1, "{format}");
        assert!(text.contains("NOT RUN"), "{format}");
    }
}

#[test]
fn an_experiment_that_was_not_run_has_its_reason() {
    for (format, text) in readable(&study::nothing()) {
        let told = text
            .lines()
            .any(|line| line.contains("NOT RUN") && line.contains("libquantum of SPEC CPU 2006 is not free"));
        assert!(told, "{format}");
    }
}

#[test]
fn counts_are_those_of_the_data() {
    let report = study::everything();
    let grades = |wanted: &str| {
        report.experiments.iter().flat_map(|e| &e.claims).filter(|claim| word(&claim.grade) == wanted).count()
    };
    let words = ["HOLDS", "DIFFERS", "UNDECIDED", "NOT RUN"];
    let claims = format!("8 claims: {}", words.map(|word| format!("{} {word}", grades(word))).join(", "));
    for (format, text) in readable(&report) {
        let text = squeezed(&text);
        assert!(text.contains(&claims), "{format}: {claims}");
        let line = report.summary().replace("example-2016: ", "");
        assert!(text.contains(&line), "{format}: the line of a list of studies");
        assert!(text.contains("26 published overheads: 3 AGREES, 1 DIFFERS, 3 UNDECIDED (cannot be told apart), 19 not measured"), "{format}");
    }
    // A number that is in two figures is counted once.
    let mut twice = study::everything();
    let again = twice.experiments[1].views[0].clone();
    twice.experiments[1].views.push(again);
    assert!(twice.table(200).contains("26 published overheads"));
}
