//! The page about the claims of studies, as a Markdown reader sees it.

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use std::collections::BTreeMap;
use weigh_studies::Claim;

/// The words of grades.
const GRADES: [&str; 4] = ["HOLDS", "DIFFERS", "UNDECIDED", "NOT RUN"];

/// The columns of a row that the checks use.
const SENTENCE: usize = 1;
const SOURCE: usize = 2;
const CHECK: usize = 3;
const GRADE: usize = 6;
const ENVIRONMENTS: usize = 7;

/// The rows of the tables of claims: the name of the study, and the text of each cell.
pub fn claim_rows(page: &str) -> Vec<(String, Vec<String>)> {
    let mut rows = Vec::new();
    let (mut study, mut text, mut row) = (String::new(), String::new(), Vec::new());
    let mut is_of_claims = false;
    for event in Parser::new_ext(page, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Heading { .. } | Tag::TableCell) => text.clear(),
            Event::Start(Tag::TableHead | Tag::TableRow) => row.clear(),
            Event::Text(piece) | Event::Code(piece) => text.push_str(&piece),
            Event::End(TagEnd::Heading(HeadingLevel::H2)) => {
                study = text.split(',').next().unwrap_or_default().to_string();
            }
            Event::End(TagEnd::TableCell) => row.push(std::mem::take(&mut text)),
            Event::End(TagEnd::TableHead) => is_of_claims = row.first().is_some_and(|first| first == "claim"),
            Event::End(TagEnd::TableRow) if is_of_claims => {
                rows.push((study.clone(), std::mem::take(&mut row)));
            }
            _ => {}
        }
    }
    rows
}

/// What is wrong with a page: claims of the built-in studies that are not there exactly once and in
/// their words, grades that do not exist, and grades without a reason or an environment.
pub fn faults_of_claims(page: &str) -> Vec<String> {
    let mut rows: BTreeMap<(String, String), Vec<Vec<String>>> = BTreeMap::new();
    for (study, row) in claim_rows(page) {
        rows.entry((study, row[0].clone())).or_default().push(row);
    }
    let mut faults = Vec::new();
    let library = weigh_studies::library().unwrap();
    for study in library.studies() {
        for experiment in &study.experiments {
            for claim in &experiment.claims {
                let name = format!("{}: {}", experiment.name, claim.id);
                let of_claim = rows.remove(&(study.name.clone(), name.clone())).unwrap_or_default();
                let fault = match of_claim.as_slice() {
                    [row] => fault_of_row(claim, row),
                    rows => Some(format!("it is there {} times", rows.len())),
                };
                faults.extend(fault.map(|fault| format!("{}/{name}: {fault}", study.name)));
            }
        }
    }
    // Rows that are left are of other studies, or of claims that are gone.
    let is_built_in = |name: &str| library.studies().iter().any(|study| study.name == name);
    let gone = rows.keys().filter(|(study, _)| is_built_in(study));
    faults.extend(gone.map(|(study, name)| format!("{study}/{name}: there is no such claim")));
    faults
}

fn fault_of_row(claim: &Claim, row: &[String]) -> Option<String> {
    let sentence = row[SENTENCE].strip_prefix(&format!("{}: ", claim.says));
    if row[SOURCE] != claim.source || row[CHECK] != claim.check.to_string() {
        return Some(format!("its source or its check is another: {row:?}"));
    }
    let Some(outcome) = sentence else { return Some(format!("its words are others: {row:?}")) };
    let word = row[GRADE].split(" (").next().unwrap_or_default();
    // What a reader takes away follows a full stop, with a reason before it or without.
    let reason = outcome.strip_prefix("was not checked here; ").unwrap_or_default();
    let has_reason = !reason.is_empty() && !reason.starts_with(". ");
    let has_environment = !row[ENVIRONMENTS].is_empty();
    // What a reader takes away stands behind the outcome. A decided claim has at least one ratio.
    let has_takeaway = |decided: &str| {
        let behind = outcome.strip_prefix(decided).and_then(|rest| rest.strip_prefix(". "));
        behind.is_some_and(|takeaway| !takeaway.is_empty())
    };
    let is_whole = match word {
        "NOT RUN" => has_reason && !has_environment,
        "HOLDS" => has_takeaway("holds here") && has_environment,
        "DIFFERS" => has_takeaway("does not hold here") && has_environment,
        "UNDECIDED" => outcome.starts_with("cannot be decided here; ") && has_environment,
        _ => return Some(format!("`{word}` is none of {GRADES:?}")),
    };
    (!is_whole).then(|| {
        format!("it lacks its outcome, what a reader takes away, its reason or its environments: {row:?}")
    })
}
