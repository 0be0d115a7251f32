//! How long the commands take that people wait for: help, the table of a run of 10,000 samples, the page of one of 100,000.

use crate::{Line, Outcome, built, long_run, median};
use std::path::Path;
use std::time::Duration;
use weigh_host::command::Invocation;

/// Samples of the run whose table, and of that whose page is timed.
const OF_TABLE: usize = 10_000;
const OF_PAGE: usize = 100_000;
const LARGEST_PAGE_BYTES: u64 = 8_000_000;
const TIMES: usize = 20;

pub fn measure() -> Outcome {
    let weigh = built("weigh")?;
    let scratch = tempfile::tempdir().map_err(|error| error.to_string())?;
    let in_words = |error: std::io::Error| error.to_string();
    std::fs::write(scratch.path().join("long.toml"), long_run::MANIFEST).map_err(in_words)?;
    // As `last` finds it.
    let run = "weigh-runs/20260101T000000Z-long";
    let arguments = long_run::arguments("long.toml", run);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    once(&weigh, scratch.path(), &arguments)?;

    let run = scratch.path().join(run);
    let mut lines = vec![time("help", &weigh, scratch.path(), &["--help"], TIMES, 0.010, "<= 10 ms")?];
    long_run::lengthen(&run, (OF_TABLE / long_run::TRIALS) as u32).map_err(in_words)?;
    let show = ["show", "last"];
    lines.push(time("table of 10,000 samples", &weigh, scratch.path(), &show, TIMES, 0.050, "<= 50 ms")?);
    long_run::lengthen(&run, (OF_PAGE / long_run::TRIALS) as u32).map_err(in_words)?;
    let page = ["show", "last", "--format", "html", "--output", "page.html"];
    lines.push(time("page of 100,000 samples", &weigh, scratch.path(), &page, 5, 2.0, "<= 2 s")?);
    let bytes = scratch.path().join("page.html").metadata().map_err(in_words)?.len();
    lines.push(Line {
        what: "its size".into(),
        value: format!("{:.2} MB", bytes as f64 / 1e6),
        goal: "<= 8 MB",
        met: bytes <= LARGEST_PAGE_BYTES,
    });
    Ok(lines)
}

fn time(
    what: &str,
    weigh: &Path,
    directory: &Path,
    arguments: &[&str],
    times: usize,
    goal_s: f64,
    goal: &'static str,
) -> Result<Line, String> {
    // The first finds nothing in the page cache.
    once(weigh, directory, arguments)?;
    let mut taken = (0..times).map(|_| once(weigh, directory, arguments)).collect::<Result<Vec<_>, _>>()?;
    let middle = median(&mut taken);
    let value = format!("{:.1} ms (median of {times})", middle * 1e3);
    Ok(Line { what: what.into(), value, goal, met: middle <= goal_s })
}

fn once(weigh: &Path, directory: &Path, arguments: &[&str]) -> Result<f64, String> {
    let finished = Invocation::new(weigh)
        .args(arguments)
        .current_dir(directory)
        .deadline(Duration::from_secs(120))
        .run_ok()
        .map_err(|error| error.to_string())?;
    Ok(finished.took.as_secs_f64())
}
