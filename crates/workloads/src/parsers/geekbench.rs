//! The summary at the end of Geekbench's output: versions 4 to 6 have a block for one core and one
//! for all cores, version 3 has two columns.

use super::Parser;

pub(super) const PARSER: Parser = Parser {
    name: "geekbench",
    fields: &[
        ("single_core", "1", |text| score(text, Cores::One, Part::Whole)),
        ("single_core_integer", "1", |text| score(text, Cores::One, Part::Integer)),
        ("single_core_floating_point", "1", |text| score(text, Cores::One, Part::FloatingPoint)),
        ("single_core_memory", "1", |text| score(text, Cores::One, Part::Memory)),
        ("multi_core", "1", |text| score(text, Cores::All, Part::Whole)),
        ("multi_core_integer", "1", |text| score(text, Cores::All, Part::Integer)),
        ("multi_core_floating_point", "1", |text| score(text, Cores::All, Part::FloatingPoint)),
        ("multi_core_memory", "1", |text| score(text, Cores::All, Part::Memory)),
    ],
    checks: &[("summary", summary)],
    ..Parser::PLAIN
};

/// The cores of a score.
#[derive(Clone, Copy, PartialEq)]
enum Cores {
    One,
    All,
}

/// The part of the benchmark that a score rates.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Whole,
    Integer,
    FloatingPoint,
    Memory,
}

/// Every score of the summary.
fn scores(text: &str) -> Vec<(Cores, Part, f64)> {
    let Some((_, summary)) = text.rsplit_once("Benchmark Summary") else { return Vec::new() };
    let mut found = Vec::new();
    // The block being read, in versions that have blocks.
    let mut block = None;
    for line in summary.lines() {
        let Some((label, numbers)) = line.trim().split_once(" Score") else { continue };
        let numbers: Vec<f64> =
            numbers.split_whitespace().map_while(|word| word.replace(',', "").parse().ok()).collect();
        let part = match label {
            "Single-Core" | "Multi-Core" | "Geekbench" => Part::Whole,
            "Integer" => Part::Integer,
            "Floating Point" => Part::FloatingPoint,
            "Memory" => Part::Memory,
            // Cryptography, in versions 4 and 5.
            _ => continue,
        };
        match label {
            "Single-Core" => block = Some(Cores::One),
            "Multi-Core" => block = Some(Cores::All),
            _ => {}
        }
        match (block, numbers.as_slice()) {
            (Some(cores), [score]) => found.push((cores, part, *score)),
            (None, [one, all]) => found.extend([(Cores::One, part, *one), (Cores::All, part, *all)]),
            _ => {}
        }
    }
    found
}

fn score(text: &str, cores: Cores, part: Part) -> Option<f64> {
    scores(text).into_iter().find(|score| (score.0, score.1) == (cores, part)).map(|(_, _, score)| score)
}

/// Whether the summary is complete. Geekbench prints no verdict: a failed workload has a score of
/// 0, and one that was not run has none.
fn summary(text: &str) -> Option<bool> {
    let scores = scores(text);
    if scores.is_empty() {
        return None;
    }
    let has = |cores| scores.iter().any(|score| (score.0, score.1) == (cores, Part::Whole));
    Some(has(Cores::One) && has(Cores::All) && scores.iter().all(|(_, _, score)| *score > 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION_6: &str = include_str!("../../testdata/geekbench-6.txt");
    const VERSION_3: &str = include_str!("../../testdata/geekbench-3.txt");

    #[test]
    fn blocks_and_columns_are_read() {
        let all = |text: &str| {
            PARSER.fields.iter().map(|(field, ..)| PARSER.value(text, field)).collect::<Vec<_>>()
        };
        assert_eq!(
            all(VERSION_6),
            [Some(1180.0), Some(1090.0), Some(1370.0), None, Some(3770.0), Some(3350.0), Some(4700.0), None]
        );
        assert_eq!(
            all(VERSION_3),
            [2900.0, 3000.0, 2800.0, 2700.0, 5400.0, 5800.0, 5600.0, 4200.0].map(Some)
        );
        for text in [VERSION_6, VERSION_3] {
            assert_eq!(PARSER.passes(text, "summary"), Some(true));
            assert_eq!((PARSER.value(text, "other"), PARSER.value(text, "multi_core_other")), (None, None));
            assert_eq!(PARSER.passes(text, "other"), None);
        }
    }

    #[test]
    fn versions_with_memory_in_blocks_are_read() {
        let version_4 = VERSION_6.replacen(
            "    Floating Point Score",
            "    Memory Score  900\n    Floating Point Score",
            1,
        );
        assert_eq!(PARSER.value(&version_4, "single_core_memory"), Some(900.0));
        assert_eq!(PARSER.value(&version_4, "multi_core_memory"), None);
    }

    #[test]
    fn a_part_without_a_score_fails_and_no_summary_gives_nothing() {
        assert_eq!(PARSER.passes(&VERSION_6.replace("3350", "0"), "summary"), Some(false));
        let one_core = VERSION_6.split("  Multi-Core Score").next().unwrap();
        assert_eq!(PARSER.passes(one_core, "summary"), Some(false));
        let cut = VERSION_6.split("Benchmark Summary").next().unwrap();
        assert_eq!((PARSER.passes(cut, "summary"), PARSER.value(cut, "single_core")), (None, None));
    }
}
