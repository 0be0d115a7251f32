//! The source cites the specification of the method: every cited heading exists. So does every file
//! that a page of the book names, as the place of a test or otherwise.

use super::{files, no_faults, root};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

const PAGE: &str = "docs/method/specification.md";
/// How source and book cite a heading; further headings follow, each in quotes after a comma.
const CITATION: &str = "method specification, \"";

/// A text on one line, without comment markers.
fn unwrapped(text: &str) -> String {
    let bare =
        |line: &str| line.trim().trim_start_matches("//").trim_start_matches(['/', '!']).trim().to_owned();
    text.lines().map(bare).collect::<Vec<String>>().join(" ")
}

/// The headings that a text cites.
fn cited(text: &str) -> Vec<String> {
    let text = unwrapped(text).replace("Method specification", "method specification");
    let mut headings = Vec::new();
    for after in text.split(CITATION).skip(1) {
        let list = after.split("\", \"").scan(false, |ended, part| {
            let heading = part.split('"').next().filter(|_| !*ended)?;
            *ended = heading.len() < part.len();
            Some(heading.to_owned())
        });
        headings.extend(list);
    }
    headings
}

#[test]
fn citations_of_the_specification_lead_somewhere() {
    assert_eq!(
        cited("/// of a rule (method\n/// specification, \"A\", \"B c\") and \"d\", \"e\""),
        ["A", "B c"]
    );
    let page = fs::read_to_string(root().join(PAGE)).unwrap();
    let headings: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#')))
        .collect();
    let sources = [files("crates", ".rs"), files("docs", ".md")].concat();
    let mut found = 0;
    let mut faults = Vec::new();
    for path in sources {
        for heading in cited(&fs::read_to_string(root().join(&path)).unwrap()) {
            found += 1;
            if !headings.contains(heading.as_str()) {
                faults.push(format!("{}: \"{heading}\"", path.display()));
            }
        }
    }
    no_faults("these cite headings that the specification does not have", &faults);
    assert!(found > 30, "citations are not found any more: {found}");
}

#[test]
fn the_book_names_files_that_exist() {
    let beside = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"].map(PathBuf::from);
    let mut found = 0;
    let mut gone = Vec::new();
    for page in files("docs", ".md").into_iter().chain(beside) {
        let text = fs::read_to_string(root().join(&page)).unwrap();
        let is_path = |word: &&str| {
            ["crates/", "tests/"].iter().any(|start| word.starts_with(start))
                && !word.contains(['<', '*', ' '])
        };
        for path in text.split('`').filter(is_path) {
            found += 1;
            if !root().join(path).exists() {
                gone.push(format!("{}: {path}", page.display()));
            }
        }
    }
    no_faults("these files and directories do not exist", &gone);
    assert!(found > 40, "paths are not found any more: {found}");
}
