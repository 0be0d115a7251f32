//! The output of `weigh plan`.

use crate::common;
use weigh_report::{Format, Options, planned, render, render_document};
use weigh_stats::{
    BetterInvestment, Flag, Interval, Iterated, PilotSpread, PlannedCell, PlannedParts, PlannedRun, RunCost,
    Spread, SpreadParts, SpreadSummary, UnitTime, Verdict,
};

fn expense(blocks: u32) -> RunCost {
    RunCost { blocks: Some(blocks), seconds: Some(f64::from(blocks) * 10.0) }
}

fn cell(environment: &str, parts: SpreadParts, (times, blocks): (f64, u32)) -> PlannedCell {
    let between = Interval { estimate: 0.004, low: 0.0, high: 0.01 };
    let summary = SpreadSummary {
        workload: "w".into(),
        environment: environment.into(),
        metric: "time".into(),
        parts,
        parts_per_unit: 3.0,
        spread: Spread { units: 6, within: 0.01, between },
        time: UnitTime { measured_s: 2.0, other_s: 8.0 },
        best_length: Interval { estimate: 5.0, low: 2.0, high: 100.0 },
        pays: BetterInvestment::LongerUnits,
    };
    PlannedCell {
        workload: "w".into(),
        metric: "time".into(),
        environment: environment.into(),
        spread: Some(PilotSpread { n: 6, sd: 0.0108, bound: 0.0157 }),
        expense: expense(200),
        obstacles: Vec::new(),
        parts: Some(PlannedParts { summary, times, expense: expense(blocks) }),
    }
}

fn run(cells: Vec<PlannedCell>, better: Option<Iterated>) -> PlannedRun {
    PlannedRun {
        detect: 0.01,
        comparisons: cells.len(),
        pilot_blocks: 6,
        block_s: Some(10.0),
        cells,
        present: expense(200),
        better,
    }
}

/// The document without line breaks.
fn text(run: &PlannedRun, command: Option<&str>) -> String {
    let text = render_document(&planned(run, command), Format::Markdown, &Options::default())
        .expect("a document renders");
    text.replace('\u{a0}', " ").split_whitespace().collect::<Vec<_>>().join(" ")
}

fn holds(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

#[test]
fn blocks_time_and_command_are_reported() {
    let better = Iterated { iterations: 12, expense: expense(100) };
    let cells = vec![cell("a", SpreadParts::Iterations, (4.0, 100))];
    let told = text(&run(cells, Some(better)), Some("weigh run w --blocks 100"));
    holds(
        &told,
        &[
            "1.1 %",
            "1.6 %",
            "200",
            "33 min",
            "weigh run w --blocks 100",
            "about 17 min",
            "present iterations",
        ],
    );
    holds(&told, &["more iterations help most", "save 50 % of the time"]);
}

#[test]
fn the_advice_comes_from_the_cell_that_takes_longest() {
    let told = |parts, times, blocks| text(&run(vec![cell("a", parts, (times, blocks))], None), Some("c"));
    holds(&told(SpreadParts::Windows, 4.0, 100), &["longer units", "--size", "as long save"]);
    holds(
        &told(SpreadParts::Iterations, 0.3, 100),
        &["more launches, that is, more blocks, help most", "as many iterations save"],
    );
    holds(&told(SpreadParts::Iterations, 4.0, 190), &["no other length of its units saves a tenth"]);
    let bare = PlannedCell { parts: None, ..cell("a", SpreadParts::Windows, (1.0, 1)) };
    holds(&text(&run(vec![bare], None), Some("c")), &["--iterations 3"]);
}

#[test]
fn an_effect_that_no_blocks_can_find_has_no_command() {
    let mut hard = cell("a", SpreadParts::Iterations, (1.0, 200));
    hard.expense = RunCost { blocks: None, seconds: None };
    hard.obstacles = vec![Flag::Rounded];
    let told = text(&run(vec![hard], None), None);
    holds(&told, &["too many", "no verdict: ROUNDED", "no practical number of blocks"]);
    assert!(!told.contains("weigh run"), "{told}");
}

/// A run says once what would help a workload with an open comparison, and nothing if all is
/// decided.
#[test]
fn advice_is_given_once_for_each_undecided_workload() {
    let told = |open: &[(&str, &str)]| {
        let mut report = common::sliced::report();
        for cell in &mut report.analysis.cells {
            if open.contains(&(cell.workload.as_str(), cell.environment.as_str())) && cell.primary {
                cell.verdict = Some(Verdict::Inconclusive);
            } else if cell.verdict == Some(Verdict::Inconclusive) {
                cell.verdict = Some(Verdict::Slower);
            }
        }
        let text = render(&report, Format::Markdown, &Options::default()).expect("a document renders");
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    const HELPED: &str = "what is not decided would gain most from";
    assert!(!told(&[]).contains(HELPED));
    let open = told(&[("noploop", "runc"), ("syscall", "runc")]);
    assert_eq!(open.matches(HELPED).count(), 2, "{open}");
    holds(&open, &["gain most from longer units", "gain most from more blocks"]);
}
