//! Time beyond the sleeps per iteration: `weigh run` on native against hyperfine, same command.

use crate::{Fallible, Line, Outcome, built, ratio};
use std::path::Path;
use std::time::Duration;
use weigh_host::command::{Invocation, find_program};

const SLEEP_S: f64 = 0.1;
const BLOCKS: u32 = 20;
const ITERATIONS: u32 = 10;
const PAIRS: usize = 4;

/// Runs both tools alternately. Each is charged its whole wall-clock time less the sleeps that it
/// ran. The syncs of weigh, one per trial so that no sample is lost, are printed separately.
pub fn measure() -> Outcome {
    let hyperfine =
        find_program("hyperfine").ok_or("hyperfine is not installed (apt-get install hyperfine)")?;
    let weigh = built("weigh")?;
    let scratch = tempfile::tempdir()?;
    let (mut ours, mut theirs, mut syncs) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 0..PAIRS {
        let first = pair % 2 == 0;
        if first {
            theirs.push(run_hyperfine(&hyperfine)?);
        }
        let (per_iteration, sync) = run_weigh(&weigh, scratch.path(), pair)?;
        ours.push(per_iteration);
        syncs.push(sync);
        if !first {
            theirs.push(run_hyperfine(&hyperfine)?);
        }
    }
    let (value, text) = ratio(&ours, &theirs)?;
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64 * 1e3;
    Ok(vec![Line {
        what: format!(
            "weigh {:.3} ms, hyperfine {:.3} ms beyond the sleep (syncs apart: {:.3} ms per iteration)",
            mean(&ours),
            mean(&theirs),
            mean(&syncs)
        ),
        value: text,
        goal: "<= 1",
        met: value <= 1.0,
    }])
}

fn run_hyperfine(program: &Path) -> Fallible<f64> {
    let runs = BLOCKS * ITERATIONS;
    let finished = Invocation::new(program)
        .args(["--style", "none", "--runs", &runs.to_string(), &format!("sleep {SLEEP_S}")])
        .deadline(Duration::from_secs(120))
        .run_ok()?;
    Ok(finished.took.as_secs_f64() / f64::from(runs) - SLEEP_S)
}

/// Returns the seconds in excess of the sleep per run of the command, and the syncs' seconds per
/// measured iteration.
fn run_weigh(program: &Path, scratch: &Path, pair: usize) -> Fallible<(f64, f64)> {
    let out = scratch.join(format!("run{pair}"));
    let finished = Invocation::new(program)
        .args([
            "run",
            "--on",
            "native",
            "--blocks",
            &BLOCKS.to_string(),
            "--iterations",
            &ITERATIONS.to_string(),
        ])
        .args(["--out", &out.display().to_string(), "--", "sleep", &SLEEP_S.to_string()])
        .deadline(Duration::from_secs(120))
        .run_ok()?;
    let samples = std::fs::read_to_string(out.join("samples.jsonl"))?;
    let trials = samples.lines().filter(|line| line.contains("\"record\":\"trial\"")).count() as u32;
    if trials != BLOCKS {
        return Err(format!("weigh made {trials} trials instead of {BLOCKS}").into());
    }
    let notes = String::from_utf8_lossy(&finished.error);
    let sync_s = number_before(&notes, " s in syncs").ok_or("weigh does not say how long its syncs took")?;
    // The pilot ran the command once, and every block once more as a warm-up.
    let runs = BLOCKS * (ITERATIONS + 1) + 1;
    let beyond = finished.took.as_secs_f64() - f64::from(runs) * SLEEP_S - sync_s;
    Ok((beyond / f64::from(BLOCKS * ITERATIONS), sync_s / f64::from(BLOCKS * ITERATIONS)))
}

fn number_before(text: &str, words: &str) -> Option<f64> {
    text[..text.find(words)?].split_whitespace().next_back()?.parse().ok()
}
