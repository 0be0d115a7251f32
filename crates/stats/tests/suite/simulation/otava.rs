//! Histories beside Apache Otava: what both find in the same simulated series. The table is on the
//! book's page about histories (`docs/history.md`).

use super::*;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use weigh_stats::shifts;

const RUNS: usize = 60;
/// Series of each case.
const SERIES: usize = 100;
/// How far from its place a change counts as found, in runs.
const NEAR: usize = 2;

/// Otava's function with its default options, for a list of series.
const OTAVA: &str = "
import json, sys
from otava.analysis import compute_change_points
found = [compute_change_points(series)[0] for series in json.load(sys.stdin)]
print(json.dumps([[int(point.index) for point in points] for points in found]))
";

/// How the effect goes on, apart from noise, and where it changes for good.
#[derive(Clone, Copy)]
enum Course {
    /// The places of steps up, each by this share.
    Steps(&'static [usize], f64),
    /// A step up, and one back.
    AndBack([usize; 2], f64),
    /// A steady rise by this share in all.
    Drift(f64),
    /// One run is off by this share.
    Outlier(usize, f64),
}

impl Course {
    fn log(self, run: usize) -> f64 {
        match self {
            Self::Steps(places, size) => {
                places.iter().filter(|place| run >= **place).count() as f64 * size.ln_1p()
            }
            Self::AndBack([up, down], size) if (up..down).contains(&run) => size.ln_1p(),
            Self::Drift(size) => size.ln_1p() * run as f64 / (RUNS - 1) as f64,
            Self::Outlier(place, size) if run == place => size.ln_1p(),
            Self::AndBack(..) | Self::Outlier(..) => 0.0,
        }
    }

    fn places(&self) -> &[usize] {
        match self {
            Self::Steps(places, _) => places,
            Self::AndBack(places, _) => places,
            Self::Drift(_) | Self::Outlier(..) => &[],
        }
    }
}

/// The cases with the standard deviation of the runs, per cent, in the order of the table.
const CASES: [(Course, f64); 17] = [
    (Course::Steps(&[], 0.0), 1.0),
    (Course::Steps(&[30], 0.02), 1.0),
    (Course::Steps(&[30], 0.05), 1.0),
    (Course::Steps(&[30], 0.1), 1.0),
    (Course::Steps(&[], 0.0), 3.0),
    (Course::Steps(&[30], 0.02), 3.0),
    (Course::Steps(&[30], 0.05), 3.0),
    (Course::Steps(&[30], 0.1), 3.0),
    (Course::Steps(&[50], 0.05), 1.0),
    (Course::Steps(&[55], 0.05), 1.0),
    (Course::Steps(&[20, 40], 0.05), 1.0),
    (Course::AndBack([20, 40], 0.05), 1.0),
    (Course::AndBack([20, 40], 0.05), 3.0),
    (Course::Drift(0.1), 1.0),
    (Course::Outlier(30, 0.3), 1.0),
    (Course::Outlier(59, 0.3), 1.0),
    (Course::Steps(&[30], 0.05), 0.0),
];

/// The series of a case, as log ratios.
fn simulated(case: usize) -> Vec<Vec<f64>> {
    let (course, sd) = CASES[case];
    let mut random = Random::new(1_150 + case as u64);
    let mut series = || -> Vec<f64> {
        let noise = random.normals(RUNS, 0.0, sd / 100.0);
        noise.into_iter().enumerate().map(|(run, noise)| course.log(run) + noise).collect()
    };
    (0..SERIES).map(|_| series()).collect()
}

/// How many changes were found near their places and exactly there, and in how many series a change
/// was found that is near none.
fn score(course: Course, found: &[Vec<usize>]) -> [usize; 3] {
    let of = |found: &Vec<usize>| {
        let is_near = |place: usize, most: usize| found.iter().any(|at| at.abs_diff(place) <= most);
        let counted = |most: usize| course.places().iter().filter(|place| is_near(**place, most)).count();
        let is_further = |at: &usize| course.places().iter().all(|place| at.abs_diff(*place) > NEAR);
        [counted(NEAR), counted(0), usize::from(found.iter().any(is_further))]
    };
    found.iter().map(of).fold([0; 3], |sum, one| [0, 1, 2].map(|part| sum[part] + one[part]))
}

/// The numbers in the rows of the table: those of Otava, and those of weigh.
fn table() -> Vec<[[usize; 3]; 2]> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/history.md");
    let page = std::fs::read_to_string(page).expect("the page about histories");
    let (_, section) = page.split_once("\n## Beside Apache Otava\n").expect("its section");
    let (section, _) = section.split_once("\n## ").expect("the next one");
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        // A column is empty where there is nothing to find.
        let number = |at: usize| cells[at].parse().unwrap_or(0);
        [[number(3), number(4), number(5)], [number(6), number(7), number(8)]]
    };
    rows.map(row).collect()
}

/// Fails unless the numbers are those of the table but for a few: the last digits of logarithms
/// differ from machine to machine.
fn holds(whose: &str, case: usize, found: [usize; 3], told: [usize; 3]) {
    tell(&format!("{whose}, case {case}: {found:?} found, exact and with further ones; table {told:?}"));
    for (found, told) in found.into_iter().zip(told) {
        assert!(found.abs_diff(told) <= 2, "{whose}, case {case}: {found} and not {told}");
    }
}

#[test]
fn histories_find_what_the_table_beside_otava_says() {
    let table = table();
    assert_eq!(table.len(), CASES.len());
    for (case, [_, told]) in table.into_iter().enumerate() {
        let places = |logs: &Vec<f64>| shifts(logs, 1).iter().map(|shift| shift.at).collect();
        let found: Vec<Vec<usize>> = simulated(case).iter().map(places).collect();
        holds("weigh", case, score(CASES[case].0, &found), told);
    }
}

/// Where Python has Otava, its numbers are checked, too: they are those of version 0.8.0.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test starts Python with ordinary means")]
fn otava_finds_what_the_table_says() {
    let python = std::env::var("WEIGH_PYTHON").unwrap_or_else(|_| "python3".into());
    let has_otava = Command::new(&python).args(["-c", "import otava.analysis"]).output();
    if !has_otava.is_ok_and(|done| done.status.success()) {
        return skip_without_otava();
    }
    let ratios = |logs: Vec<f64>| logs.into_iter().map(f64::exp).collect();
    let series: Vec<Vec<f64>> = (0..CASES.len()).flat_map(simulated).map(ratios).collect();
    let mut otava = Command::new("timeout")
        .args(["600", &python, "-c", OTAVA])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("timeout starts");
    let mut input = otava.stdin.take().expect("a pipe");
    input.write_all(&serde_json::to_vec(&series).expect("numbers")).expect("Python reads");
    drop(input);
    let output = otava.wait_with_output().expect("Python ends");
    let found: Vec<Vec<usize>> = serde_json::from_slice(&output.stdout).expect("lists of places");
    assert_eq!(found.len(), CASES.len() * SERIES);
    for (case, ([told, _], found)) in table().into_iter().zip(found.chunks(SERIES)).enumerate() {
        holds("Otava", case, score(CASES[case].0, found), told);
    }
}

#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn skip_without_otava() {
    let required = std::env::var("WEIGH_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|name| name == "otava"), "otava is required and missing");
    eprintln!("SKIPPED otava_finds_what_the_table_says: `python3` does not run `import otava.analysis`");
}
