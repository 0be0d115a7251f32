//! The cost of measuring in slices: an operation in slices of 5 ms against one in whole trials, and
//! the time between the slices, in which nobody works.

use crate::{Fallible, Line, Outcome, built, median, ratio};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use weigh_host::command::Invocation;

const PAIRS: usize = 5;
const BLOCKS: &str = "5";
/// The budget: a hundredth of the time spent in slices.
const GOAL: f64 = 0.01;

/// The results of one run.
struct Found {
    /// Median time of the loop, seconds.
    duration_s: f64,
    /// Total time of the units, of the slices in them, and until the kernel had frozen every guest
    /// after each slice, seconds.
    units_s: f64,
    thawed_s: f64,
    freezing_s: f64,
}

/// Measures both forms alternately. The time between slices is the difference in the duration of
/// units of two sizes, less the difference in their slices: beginning and ending a unit takes as
/// long at every size.
pub fn measure() -> Outcome {
    let weigh = built("weigh")?;
    let scratch = tempfile::tempdir()?;
    let (mut sliced, mut whole) = (Vec::new(), Vec::new());
    let (mut between, mut freezing) = (Vec::new(), Vec::new());
    for pair in 0..PAIRS {
        let run = |form: &str, size: &str| {
            let out = scratch.path().join(format!("{form}-{size}-{pair}"));
            run(&weigh, &out, form, size)
        };
        if pair % 2 == 0 {
            whole.push(run("off", "quick")?.duration_s);
        }
        let (short, long) = (run("5ms", "quick")?, run("5ms", "standard")?);
        if pair % 2 == 1 {
            whole.push(run("off", "quick")?.duration_s);
        }
        let thawed_s = long.thawed_s - short.thawed_s;
        between.push((long.units_s - short.units_s - thawed_s) / thawed_s);
        freezing.push((long.freezing_s - short.freezing_s) / thawed_s);
        sliced.push(short.duration_s);
    }
    let (value, text) = ratio(&sliced, &whole)?;
    let [share, of_kernel] = [&mut between, &mut freezing].map(|shares| median(shares));
    Ok(vec![
        Line {
            what: "a loop of NOPs in slices of 5 ms, against whole trials".into(),
            value: text,
            goal: "<= 1.01",
            met: value <= 1.0 + GOAL,
        },
        Line {
            what: "time between slices of 5 ms".into(),
            value: format!(
                "{:.2} % of the time in them, {:.2} % in which the kernel freezes (medians of {PAIRS})",
                share * 100.0,
                of_kernel * 100.0
            ),
            goal: "<= 1 %",
            met: share <= GOAL,
        },
    ])
}

fn run(weigh: &Path, out: &Path, form: &str, size: &str) -> Fallible<Found> {
    Invocation::new(weigh)
        .args(["run", "noploop", "--on", "native;native:label=again", "--no-void", "--blocks", BLOCKS])
        .args(["--slices", form, "--size", size, "--out", &out.display().to_string()])
        .deadline(Duration::from_secs(300))
        .run_ok()?;
    let samples = std::fs::read_to_string(out.join("samples.jsonl"))?;
    let (mut durations, mut units) = (Vec::new(), BTreeMap::new());
    let (mut thawed_us, mut freezing_us) = (0, 0.0);
    for line in samples.lines() {
        let record: Value = serde_json::from_str(line)?;
        if record["record"] != "trial" {
            continue;
        }
        let iterations = record["outcome"]["iterations"].as_array();
        durations.extend(iterations.into_iter().flatten().filter_map(|it| it["values"]["duration"].as_f64()));
        let ns = |key: &str| record[key].as_u64().ok_or_else(|| format!("a trial without {key}"));
        // All trials of a unit in slices have the unit's begin and end.
        units.insert(record["block"].as_u64(), ns("host_ended_ns")? - ns("host_started_ns")?);
        let slices = record["slices"]["thawed_us"].as_array().map(Vec::as_slice).unwrap_or_default();
        thawed_us += slices.iter().filter_map(Value::as_u64).sum::<u64>();
        let usual_us = record["slices"]["freeze_us"][0].as_f64().unwrap_or_default();
        freezing_us += usual_us * slices.len() as f64;
    }
    if durations.is_empty() {
        return Err(format!("no trial in {} was measured", out.display()).into());
    }
    Ok(Found {
        duration_s: median(&mut durations),
        units_s: units.values().sum::<u64>() as f64 / 1e9,
        thawed_s: thawed_us as f64 / 1e6,
        freezing_s: freezing_us / 1e6,
    })
}
