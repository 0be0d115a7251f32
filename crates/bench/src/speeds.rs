//! The time of the commands that people wait for: help, the table of a run of 10,000 samples, and
//! the page of a run of 100,000.

use crate::{Fallible, Line, Outcome, built, long_run, median};
use std::path::Path;
use std::time::Duration;
use weigh_host::command::Invocation;

/// Samples of the run whose table is timed, and of that whose page is timed.
const OF_TABLE: usize = 10_000;
const OF_PAGE: usize = 100_000;
const LARGEST_PAGE_BYTES: u64 = 8_000_000;
const TIMES: usize = 20;

pub fn measure() -> Outcome {
    let weigh = built("weigh")?;
    let scratch = tempfile::tempdir()?;
    std::fs::write(scratch.path().join("long.toml"), long_run::MANIFEST)?;
    // A name by which `last` finds the run.
    let run = "weigh-runs/20260101T000000Z-long";
    let arguments = long_run::arguments("long.toml", run);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    once(&weigh, scratch.path(), &arguments)?;

    let run = scratch.path().join(run);
    let mut lines = vec![time("help", &weigh, scratch.path(), &["--help"], TIMES, 0.010, "<= 10 ms")?];
    let long = |samples: usize| {
        long_run::lengthen(&run, (samples / long_run::TRIALS) as u32, 1)?;
        // Nothing is left to measure; this only makes the analysis cache, which would exist if all
        // samples had been measured.
        once(&weigh, scratch.path(), &["resume", "last"])
    };
    long(OF_TABLE)?;
    let show = ["show", "last"];
    let both = with_and_without_kept(&weigh, scratch.path(), &run, &show, TIMES)?;
    lines.extend(both.lines("table of 10,000 samples", 0.050, "<= 50 ms"));
    long(OF_PAGE)?;
    let page = ["show", "last", "--format", "html", "--output", "page.html"];
    let both = with_and_without_kept(&weigh, scratch.path(), &run, &page, 5)?;
    lines.extend(both.lines("page of 100,000 samples", 2.0, "<= 2 s"));
    let bytes = scratch.path().join("page.html").metadata()?.len();
    lines.push(Line {
        what: "its size".into(),
        value: format!("{:.2} MB", bytes as f64 / 1e6),
        goal: "<= 8 MB",
        met: bytes <= LARGEST_PAGE_BYTES,
    });
    Ok(lines)
}

/// Times of a command with a run's cache and without it, measured alternately.
struct Both {
    with: Vec<f64>,
    without: Vec<f64>,
}

impl Both {
    fn lines(mut self, what: &str, goal_s: f64, goal: &'static str) -> [Line; 2] {
        let (with, without) = (median(&mut self.with), median(&mut self.without));
        let times = self.with.len();
        let value = format!("{:.1} ms (median of {times})", with * 1e3);
        let ratio = format!("{:.1} ms, {:.2} times as long", without * 1e3, without / with);
        let first = Line { what: what.into(), value, goal, met: with <= goal_s };
        [first, Line { what: "  from its samples".into(), value: ratio, goal: "longer", met: without > with }]
    }
}

fn with_and_without_kept(
    weigh: &Path,
    directory: &Path,
    run: &Path,
    arguments: &[&str],
    times: usize,
) -> Fallible<Both> {
    let (kept, aside) = (run.join("collected.json"), run.join("aside"));
    let put = |from: &Path, to: &Path| {
        std::fs::rename(from, to).map_err(|error| format!("{}: {error}", from.display()))
    };
    let mut both = Both { with: Vec::new(), without: Vec::new() };
    // The first run, which finds nothing in the page cache, is not measured.
    once(weigh, directory, arguments)?;
    for _ in 0..times {
        both.with.push(once(weigh, directory, arguments)?);
        put(&kept, &aside)?;
        both.without.push(once(weigh, directory, arguments)?);
        put(&aside, &kept)?;
    }
    Ok(both)
}

fn time(
    what: &str,
    weigh: &Path,
    directory: &Path,
    arguments: &[&str],
    times: usize,
    goal_s: f64,
    goal: &'static str,
) -> Fallible<Line> {
    // The first run, which finds nothing in the page cache, is not measured.
    once(weigh, directory, arguments)?;
    let mut taken = (0..times).map(|_| once(weigh, directory, arguments)).collect::<Result<Vec<_>, _>>()?;
    let middle = median(&mut taken);
    let value = format!("{:.1} ms (median of {times})", middle * 1e3);
    Ok(Line { what: what.into(), value, goal, met: middle <= goal_s })
}

fn once(weigh: &Path, directory: &Path, arguments: &[&str]) -> Fallible<f64> {
    let finished = Invocation::new(weigh)
        .args(arguments)
        .current_dir(directory)
        .deadline(Duration::from_secs(120))
        .run_ok()?;
    Ok(finished.took.as_secs_f64())
}
