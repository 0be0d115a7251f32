//! `weigh run` on native against hyperfine, same command: the time of one run more, the whole time per
//! measured run of a command without options, and the time beyond the command per iteration.

use crate::{Fallible, Line, Outcome, built, ratio};
use std::path::Path;
use std::time::Duration;
use weigh_host::command::{Invocation, find_program};
use weigh_model::{Record, Trial, VoidUnit};

const SLEEP_S: f64 = 0.1;
const BLOCKS: u32 = 20;
const ITERATIONS: u32 = 10;
/// The iterations of a run with which one of [`ITERATIONS`] is compared.
const MANY: u32 = 160;
const PAIRS: usize = 4;

/// A command that takes no time itself.
const QUICK: &str = "true";
/// The whole time of a measured run of a longer command may be this many times as long: every fourth
/// run is a warm-up, which hyperfine does without, and the rest is for launches.
const WITH_WARM_UPS: f64 = 1.4;
const DEADLINE: Duration = Duration::from_secs(120);

pub fn measure() -> Outcome {
    let hyperfine =
        find_program("hyperfine").ok_or("hyperfine is not installed (apt-get install hyperfine)")?;
    let weigh = built("weigh")?;
    let scratch = tempfile::tempdir()?;
    let longer = format!("sleep {SLEEP_S}");
    Ok(vec![
        further_run(&weigh, &hyperfine, scratch.path())?,
        own_command(&weigh, &hyperfine, QUICK, scratch.path(), (1.0, "<= 1"))?,
        own_command(&weigh, &hyperfine, &longer, scratch.path(), (WITH_WARM_UPS, "<= 1.4, with warm-ups"))?,
        beyond_the_sleep(&weigh, &hyperfine, scratch.path())?,
    ])
}

/// What one run more costs: the difference between many runs and few, without what a tool does once for
/// all of them.
fn further_run(weigh: &Path, hyperfine: &Path, scratch: &Path) -> Fallible<Line> {
    let of_weigh = |iterations: u32, pair: usize| -> Fallible<f64> {
        let out = scratch.join(format!("further{iterations}-{pair}"));
        let finished = fixed_run(weigh, iterations, &out).arg(QUICK).run_ok()?;
        Ok(finished.took.as_secs_f64())
    };
    let of_hyperfine = |iterations: u32| -> Fallible<f64> {
        let runs = BLOCKS * iterations;
        Ok(run_hyperfine(hyperfine, QUICK, runs)? * f64::from(runs))
    };
    let more = f64::from(BLOCKS * (MANY - ITERATIONS));
    let (ours, theirs) = alternately(
        |pair| Ok((of_weigh(MANY, pair)? - of_weigh(ITERATIONS, pair)?) / more),
        || Ok((of_hyperfine(MANY)? - of_hyperfine(ITERATIONS)?) / more),
    )?;
    let what = format!(
        "one run more of `{QUICK}`: weigh {:.3} ms, hyperfine {:.3} ms",
        mean_ms(&ours),
        mean_ms(&theirs)
    );
    line(what, &ours, &theirs, (1.0, "<= 1"))
}

/// Each tool is charged its whole wall-clock time less the sleeps that it ran. The syncs of weigh,
/// one per trial so that no sample is lost, are printed separately.
fn beyond_the_sleep(weigh: &Path, hyperfine: &Path, scratch: &Path) -> Fallible<Line> {
    let mut syncs = Vec::new();
    let sleep = format!("sleep {SLEEP_S}");
    let (ours, theirs) = alternately(
        |pair| {
            let (per_iteration, sync) = run_weigh(weigh, scratch, pair)?;
            syncs.push(sync);
            Ok(per_iteration)
        },
        || Ok(run_hyperfine(hyperfine, &sleep, BLOCKS * ITERATIONS)? - SLEEP_S),
    )?;
    let what = format!(
        "weigh {:.3} ms, hyperfine {:.3} ms beyond the sleep (syncs apart: {:.3} ms per iteration)",
        mean_ms(&ours),
        mean_ms(&theirs),
        mean_ms(&syncs)
    );
    line(what, &ours, &theirs, (1.0, "<= 1"))
}

/// What a measured run costs those who wait for it: the whole time of each tool, with its start, its
/// warm-ups and its syncs. weigh decides how many runs it measures, and hyperfine makes as many.
fn own_command(
    weigh: &Path,
    hyperfine: &Path,
    command: &str,
    scratch: &Path,
    goal: (f64, &'static str),
) -> Fallible<Line> {
    let directory = tempfile::tempdir_in(scratch)?;
    let out = |name: &str| directory.path().join(name);
    let (_, runs) = run_own(weigh, command, &out("first"))?;
    let (ours, theirs) = alternately(
        |pair| Ok(run_own(weigh, command, &out(&format!("pair{pair}")))?.0),
        || run_hyperfine(hyperfine, command, runs),
    )?;
    let what = format!(
        "`weigh run -- {command}` {:.3} ms, `hyperfine '{command}'` {:.3} ms per measured run, of about {runs}",
        mean_ms(&ours),
        mean_ms(&theirs)
    );
    line(what, &ours, &theirs, goal)
}

/// Runs both tools alternately; hyperfine begins every second pair.
fn alternately(
    mut ours: impl FnMut(usize) -> Fallible<f64>,
    mut theirs: impl FnMut() -> Fallible<f64>,
) -> Fallible<(Vec<f64>, Vec<f64>)> {
    let (mut of_ours, mut of_theirs) = (Vec::new(), Vec::new());
    for pair in 0..PAIRS {
        if pair % 2 == 0 {
            of_theirs.push(theirs()?);
        }
        of_ours.push(ours(pair)?);
        if pair % 2 == 1 {
            of_theirs.push(theirs()?);
        }
    }
    Ok((of_ours, of_theirs))
}

fn line(what: String, ours: &[f64], theirs: &[f64], (most, goal): (f64, &'static str)) -> Fallible<Line> {
    let (value, text) = ratio(ours, theirs)?;
    Ok(Line { what, value: text, goal, met: value <= most })
}

fn mean_ms(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64 * 1e3
}

/// Returns the seconds per run of a command.
fn run_hyperfine(program: &Path, command: &str, runs: u32) -> Fallible<f64> {
    let finished = Invocation::new(program)
        .args(["--style", "none", "--runs", &runs.to_string(), command])
        .deadline(DEADLINE)
        .run_ok()?;
    Ok(finished.took.as_secs_f64() / f64::from(runs))
}

/// Returns the seconds per measured run of the command, and the number of these runs.
fn run_own(program: &Path, command: &str, out: &Path) -> Fallible<(f64, u32)> {
    let finished = Invocation::new(program)
        .args(["run", "--out", &out.display().to_string(), "--"])
        .args(command.split(' '))
        .deadline(DEADLINE)
        .run_ok()?;
    let runs = measured_runs(&std::fs::read_to_string(out.join("samples.jsonl"))?)?;
    if runs == 0 {
        return Err("weigh measured nothing".into());
    }
    Ok((finished.took.as_secs_f64() / f64::from(runs), runs))
}

/// The number of measured runs among the samples of a run. Those of void units took time and count
/// for nothing.
fn measured_runs(samples: &str) -> Fallible<u32> {
    let records: Vec<Record> = samples.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let is_void = |trial: &Trial| {
        let of = |void: &VoidUnit| {
            (void.block, void.attempt, &void.workload) == (trial.block, trial.attempt, &trial.workload)
        };
        records.iter().any(|record| matches!(record, Record::Void(void) if of(void)))
    };
    let of_trial = |record: &Record| match record {
        Record::Trial(trial) if !is_void(trial) => match &trial.outcome {
            weigh_model::Outcome::Measured { iterations } => iterations.len() as u32,
            weigh_model::Outcome::Failed(_) => 0,
        },
        _ => 0,
    };
    Ok(records.iter().map(of_trial).sum())
}

/// A run of [`BLOCKS`] with so many iterations each, whose command is to follow.
fn fixed_run(program: &Path, iterations: u32, out: &Path) -> Invocation {
    Invocation::new(program)
        .args(["run", "--on", "native", "--blocks", &BLOCKS.to_string()])
        .args(["--iterations", &iterations.to_string()])
        // Hyperfine repeats nothing for the noise of the host.
        .args(["--no-void", "--out", &out.display().to_string(), "--"])
        .deadline(DEADLINE)
}

/// Returns the seconds in excess of the sleep per run of the command, and the syncs' seconds per
/// measured iteration.
fn run_weigh(program: &Path, scratch: &Path, pair: usize) -> Fallible<(f64, f64)> {
    let out = scratch.join(format!("run{pair}"));
    let finished = fixed_run(program, ITERATIONS, &out).args(["sleep", &SLEEP_S.to_string()]).run_ok()?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use weigh_model::{Iteration, VoidCause};

    #[test]
    fn runs_of_void_units_are_not_measured_runs() {
        let trial = |block, attempt, runs| {
            let outcome = weigh_model::Outcome::Measured { iterations: vec![Iteration::default(); runs] };
            Record::Trial(Trial { block, attempt, workload: QUICK.into(), outcome, ..Trial::default() })
        };
        let void = VoidUnit::of(0, 0, QUICK, VoidCause::Interrupted);
        let records = [trial(0, 0, 3), Record::Void(void), trial(0, 1, 3), trial(1, 0, 4)];
        let lines = records.map(|record| serde_json::to_string(&record).unwrap());
        assert_eq!(measured_runs(&lines.join("\n")).unwrap(), 7);
    }
}
