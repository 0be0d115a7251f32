//! The page about the claims of several studies.

use crate::common::study;
use crate::common::texts::{from_html, from_latex, from_markdown};
use weigh_report::study::{ClaimGrade, StudyReport};
use weigh_report::{Format, Options, ReportError, render_claims};
use weigh_stats::Grade;

/// A study that was measured, and one that was not.
fn studies() -> Vec<StudyReport> {
    let other = StudyReport { name: "other-2017".into(), size: String::new(), ..study::nothing() };
    vec![study::claimed(), other]
}

fn text(studies: &[StudyReport], format: Format) -> String {
    render_claims(studies, format, &Options { width: 1000, ..Options::default() }).expect("a page")
}

/// The formats for people, without markup.
fn readable(studies: &[StudyReport]) -> [(&'static str, String); 4] {
    [
        ("table", text(studies, Format::Table)),
        ("markdown", from_markdown(&text(studies, Format::Markdown))),
        ("latex", from_latex(&text(studies, Format::Latex))),
        ("html", from_html(&text(studies, Format::Html))),
    ]
}

/// The row of a claim in the Markdown of a page, by the experiment and the id.
fn row(page: &str, claim: &str) -> String {
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with(&format!("| {claim} "))).collect();
    assert_eq!(rows.len(), 1, "{claim} in {page}");
    rows[0].to_string()
}

#[test]
fn every_claim_has_one_row_with_what_became_of_it() {
    for report in studies() {
        let page = from_markdown(&text(std::slice::from_ref(&report), Format::Markdown));
        for experiment in &report.experiments {
            for claim in &experiment.claims {
                let row = row(&page, &format!("{}: {}", experiment.name, claim.id));
                let (word, outcome) = match &claim.grade {
                    ClaimGrade::Checked(Grade::Holds) => ("**HOLDS**", "holds here".to_string()),
                    ClaimGrade::Checked(Grade::Differs) => ("**DIFFERS**", "does not hold here".into()),
                    ClaimGrade::Checked(Grade::Undecided { blocks: Some(blocks) }) => {
                        ("**UNDECIDED**", format!("cannot be decided here; {blocks} blocks in all"))
                    }
                    ClaimGrade::Checked(Grade::Undecided { blocks: None }) => {
                        ("**UNDECIDED**", "cannot be decided here; no known number of blocks".into())
                    }
                    ClaimGrade::NotRun { not_run } => ("NOT RUN", format!("was not checked here; {not_run}")),
                };
                let sentence = format!("{}: {outcome}", claim.says);
                for part in [&word.to_string(), &sentence, &claim.source, &claim.check, &claim.takeaway] {
                    assert!(row.contains(part.as_str()), "no `{part}` in {row}");
                }
                for seen in &claim.seen {
                    assert!(row.contains(&format!("{} ", seen.what)), "no {} in {row}", seen.what);
                }
            }
        }
    }
}

#[test]
fn every_format_has_every_claim_and_the_counts() {
    let studies = studies();
    for (format, text) in readable(&studies) {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("9 claims: "), "{format}: {text}");
        for report in &studies {
            assert!(text.contains(&report.name), "{format}: {}", report.name);
            for claim in report.experiments.iter().flat_map(|experiment| &experiment.claims) {
                assert!(text.contains(&claim.says), "{format}: {}", claim.says);
                assert!(text.contains(&claim.takeaway), "{format}: {}", claim.takeaway);
            }
        }
        for part in [
            "machine here",
            "AMD EPYC, 2 CPUs",
            "SIZE QUICK",
            "other-2017, not measured",
            "Docker 26.1.4",
            format!("KVM (table-1/pxz): {}", study::NO_KVM).as_str(),
        ] {
            assert!(text.contains(part), "{format}: no `{part}` in {text}");
        }
    }
    let json: serde_json::Value = serde_json::from_str(&text(&studies, Format::Json)).expect("JSON");
    assert_eq!(json[0]["summary"]["claims"]["hold"], 2);
    assert_eq!(json[1]["name"], "other-2017");
}

#[test]
fn a_claim_has_what_was_printed_and_what_was_measured() {
    let page = from_markdown(&text(&studies(), Format::Markdown));
    let cells = |claim: &str| {
        let row = row(&page, claim);
        row.split(" | ").map(|cell| cell.trim_matches(['|', ' ']).to_string()).collect::<Vec<_>>()
    };
    let docker = cells("table-1/pxz: docker-pxz");
    assert!(
        docker[1].starts_with("Docker is 4 % slower than native: holds here. PXZ (MB/s): "),
        "{docker:?}"
    );
    assert_eq!(docker[4], "docker overhead of pxz +3.7 %");
    assert!(docker[5].starts_with("docker overhead of pxz +1.0 % [+0.2, +1.8], n 12"), "{docker:?}");
    assert_eq!(docker[7], "docker:net=host; native");
    let kvm = cells("table-1/pxz: kvm-pxz");
    assert_eq!((kvm[5].as_str(), kvm[7].as_str()), ("", ""), "nothing was measured");
}

#[test]
fn names_from_outside_are_no_markup() {
    let page = text(&[study::hostile()], Format::Markdown);
    assert!(!page.contains('<'), "raw HTML");
    let mut columns = None;
    for line in page.lines() {
        let bars = line.replace("\\\\", "").replace("\\|", "").matches('|').count();
        let expected = if line.starts_with('|') { *columns.get_or_insert(bars) } else { 0 };
        columns = columns.filter(|_| line.starts_with('|'));
        assert_eq!(bars, expected, "{line}");
    }
}

#[test]
fn formats_for_programs_are_refused() {
    for format in [Format::Csv, Format::Junit, Format::Bencher] {
        let refused = render_claims(&studies(), format, &Options::default());
        assert!(matches!(refused, Err(ReportError::NotForPrograms)), "{format:?}");
    }
}

/// The page as it was reviewed.
#[test]
fn the_page_of_claims() {
    insta::assert_snapshot!("claims.md", text(&studies(), Format::Markdown));
}
