//! The built-in studies against the list of what they must be able to repeat,
//! `../design/STUDIES.md` relative to the directory in `WEIGH_REFERENCE`. The list is not part of
//! this project.

use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use weigh_studies::{Library, Study, library};

/// The list. Without it the test is skipped, or fails if `WEIGH_REQUIRE` asks for it.
#[expect(clippy::print_stderr, reason = "a skipped test must be seen")]
fn list(test: &str) -> Option<String> {
    let path = std::env::var_os("WEIGH_REFERENCE").map(|d| PathBuf::from(d).join("../design/STUDIES.md"));
    let text = path.and_then(|path| std::fs::read_to_string(path).ok());
    if text.is_none() {
        let required = std::env::var("WEIGH_REQUIRE").unwrap_or_default();
        assert!(
            !required.split(',').any(|what| what == "reference"),
            "WEIGH_REFERENCE names no directory with ../design/STUDIES.md"
        );
        eprintln!("SKIPPED {test}: WEIGH_REFERENCE names no directory with ../design/STUDIES.md");
    }
    text
}

/// Numbers of the list that are in no study: study, number as it is written, reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("morabito-2015", "3", "`about 1/3` is said in words and checked as a range"),
    ("morabito-2015", "5", "`about 1/5` is said in words and checked as a range"),
];

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a regular expression of this file")
}

/// Parses digits that a pattern has matched.
fn digits<T: std::str::FromStr>(text: &str) -> T {
    text.parse().ok().expect("the pattern has found a number")
}

/// A number as it is written, and every value that it may mean.
#[derive(Debug)]
struct Number {
    written: String,
    values: Vec<f64>,
    percent: bool,
}

/// The numbers in a text of the list. A word that begins with a letter is a name (`fig-2`,
/// `E5-2665`), not a number.
fn numbers(text: &str) -> Vec<Number> {
    let thousands = pattern(r"\b\d{1,3}(,\d{3})+\b");
    let text = thousands.replace_all(text, |found: &regex::Captures<'_>| found[0].replace(',', ""));
    let between = |c: char| c.is_whitespace() || "/()[]{};,:|~=\"'`*".contains(c);
    let words: Vec<&str> = text.split(between).filter(|word| !word.is_empty()).collect();
    let number = pattern(r"(\d+)\^(\d+)|(\d+(\.\d+)?|\.\d+)(e\d+)?");
    let mut found = Vec::new();
    for (i, word) in words.iter().enumerate() {
        if word.starts_with(|c: char| c.is_ascii_alphabetic()) {
            continue;
        }
        for number in number.captures_iter(&word.replace("..", " ")) {
            let value = match (number.get(1), number.get(2)) {
                (Some(base), Some(exponent)) => digits::<f64>(base.as_str()).powi(digits(exponent.as_str())),
                _ => digits(&number[0]),
            };
            let factors: &[f64] = match words.get(i + 1).copied() {
                Some("k" | "kB") => &[1.0, 1e3, 1024.0],
                Some("M" | "MB") => &[1.0, 1e6, 1_048_576.0],
                Some("GB") => &[1.0, 1e9, 1_073_741_824.0],
                _ => &[1.0],
            };
            let values = factors.iter().map(|factor| value * factor).collect();
            let percent = words.get(i + 1).is_some_and(|next| next.starts_with('%'));
            found.push(Number { written: number[0].into(), values, percent });
        }
    }
    found
}

/// All values in the files of experiments, including those with thousands separators, in lists and
/// within words.
fn values(data: &str) -> Vec<f64> {
    let grouped = numbers(data).into_iter().flat_map(|number| number.values);
    let plain = pattern(r"\d+(\.\d+)?(e\d+)?");
    let plain = plain.find_iter(data).map(|found| digits(found.as_str()));
    grouped.chain(plain).collect()
}

fn has(values: &[f64], number: &Number) -> bool {
    let near = |wanted: f64| values.iter().any(|value| (value - wanted).abs() <= 1e-9 * wanted.abs());
    number.values.iter().copied().any(near)
}

/// The differences of published values from the baseline's, in whole per cent: papers print them
/// beside the values.
fn differences(study: &Study) -> Vec<f64> {
    let mut differences = Vec::new();
    for experiment in &study.experiments {
        for block in &experiment.published {
            let Some(base) = block.values.get(&experiment.baseline) else { continue };
            let ratios = block.values.values().map(|value| value.center() / base.center());
            differences.extend(ratios.map(|ratio| (100.0 * (ratio - 1.0)).abs().round()));
        }
    }
    differences
}

/// The study reduced to the experiments that a row of the list names; all of it if the row names
/// none.
fn named(library: &Library, study: &Study, names: &str) -> Study {
    let mut only = study.clone();
    let mut wanted: BTreeSet<String> = BTreeSet::new();
    let range = pattern(r"^(.*-)(\d+)\.\.(\d+)$");
    for name in names.split(',').filter_map(|name| name.split_whitespace().next()) {
        let name = name.trim_end_matches(':');
        let expanded = match range.captures(name) {
            Some(range) => {
                let (from, to): (u32, u32) = (digits(&range[2]), digits(&range[3]));
                (from..=to).map(|number| format!("{}{number}", &range[1])).collect()
            }
            None => vec![name.to_string()],
        };
        for name in expanded {
            let found = library.find(&format!("{}/{name}", study.name));
            let must_be = name.starts_with("fig-") || name.starts_with("table-") || name == "text";
            assert!(found.is_ok() || !must_be, "{}: there is no experiment {name}", study.name);
            wanted.extend(found.into_iter().flatten().map(|found| found.experiment.name.clone()));
        }
    }
    assert!(!wanted.is_empty(), "{}: no experiment for the row {names}", study.name);
    only.experiments.retain(|experiment| wanted.contains(&experiment.name));
    only
}

/// The sections of the list about each study, by its name.
fn sections(list: &str) -> BTreeMap<String, Vec<&str>> {
    let heading = pattern(r"^## \d+\. (\S+)");
    let mut sections: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let mut current = None;
    for line in list.lines() {
        if line.starts_with("## ") {
            current = heading.captures(line).map(|found| found[1].to_string());
        } else if let Some(study) = &current {
            sections.entry(study.clone()).or_default().push(line);
        }
    }
    sections
}

#[test]
fn every_number_of_the_list_is_in_the_data() {
    let Some(list) = list("every_number_of_the_list_is_in_the_data") else { return };
    let library = library().unwrap();
    let sections = sections(&list);
    let names: BTreeSet<&str> = library.studies().iter().map(|study| study.name.as_str()).collect();
    let unknown: Vec<&String> = sections.keys().filter(|name| !names.contains(name.as_str())).collect();
    assert!(unknown.is_empty(), "the list has studies that are not here: {unknown:?}");
    let (mut count, mut missing, mut excused) = (0, Vec::new(), BTreeSet::new());
    for (name, lines) in &sections {
        let study = library.get(name).unwrap();
        for line in
            lines.iter().filter(|line| !line.starts_with("|---") && !line.starts_with("| experiment |"))
        {
            let cells: Vec<&str> = line.split('|').collect();
            let data = match cells.as_slice() {
                ["", names, ..] => named(&library, study, names),
                _ => study.clone(),
            };
            let (values, differences) = (values(&data.to_toml()), differences(&data));
            for number in numbers(line) {
                count += 1;
                if has(&values, &number) || (number.percent && has(&differences, &number)) {
                    continue;
                }
                match EXCEPTIONS.iter().find(|(study, written, _)| {
                    (study, written) == (&name.as_str(), &number.written.as_str())
                }) {
                    Some(exception) => _ = excused.insert(exception),
                    None => missing.push(format!("{name}: {} of: {line}", number.written)),
                }
            }
        }
    }
    assert!(
        missing.is_empty(),
        "{} of {count} numbers are not in the data:\n{}",
        missing.len(),
        missing.join("\n")
    );
    let unused: Vec<_> = EXCEPTIONS.iter().filter(|exception| !excused.contains(exception)).collect();
    assert!(unused.is_empty(), "these exceptions are needed no more: {unused:?}");
    assert!(count > 400, "only {count} numbers were found in the list");
}

#[test]
fn the_search_for_numbers_finds_and_misses() {
    let written = |text: &str| numbers(text).into_iter().map(|number| number.written).collect::<Vec<_>>();
    assert_eq!(
        written("table-1, E5-2665: 1,650,163,200 doubles x 3 (-4 %), [.21], 2-3x, 2x8x2"),
        ["1650163200", "3", "4", ".21", "2", "3", "2", "8", "2"]
    );
    assert_eq!(
        written("2^33 words; clients 1..100+; 26,608/s 14,719/s; N=45000"),
        ["2^33", "1", "100", "26608", "14719", "45000"]
    );
    let data =
        values("values = { a = [0.0126, 0.21] }\narguments = [\"clients=90,100,110\"]\n\"84,044 of 2^33\"");
    for found in [".0126", ".21", "100", "84,044", "8589934592", "2^33"] {
        assert!(has(&data, &numbers(found)[0]), "{found}");
    }
    for missing in [".0127", "90101", "8404", "126"] {
        assert!(!has(&data, &numbers(missing)[0]), "{missing}");
    }
    assert!(has(&values("keys=150000000 110000"), &numbers("150 M keys")[0]));
}

#[test]
fn every_number_and_claim_has_its_place_in_the_source() {
    let place = pattern(r"(?i)\b(p\. ?\d+|pages?|tables?|figures?|fig\.|sections?|logs?|spreadsheets?)\b");
    let (mut count, mut without) = (0, Vec::new());
    for study in library().unwrap().studies() {
        for experiment in &study.experiments {
            let published = experiment.published.iter().map(|block| (block.quantity.as_str(), &block.source));
            let claims = experiment.claims.iter().map(|claim| (claim.id.as_str(), &claim.source));
            for (what, source) in published.chain(claims).chain([("itself", &experiment.source)]) {
                count += 1;
                if !place.is_match(source) {
                    without.push(format!("{}/{}: {what} is from `{source}`", study.name, experiment.name));
                }
            }
        }
    }
    assert!(
        without.is_empty(),
        "name a page, table, figure, section, log or spreadsheet:\n{}",
        without.join("\n")
    );
    assert!(count > 300, "only {count} sources were found");
}
