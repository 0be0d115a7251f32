//! `weigh plan`: a blind pilot, and from it the run that finds a difference (method specification,
//! "Planning a run").

use super::dry_run;
use super::run::{Execution, ExecutionResult, catch_signals, execute, request};
use crate::cli::{EffortArgs, MeasureArgs, PlanArgs, RunArgs};
use crate::error::{ExitKind, Failure};
use crate::host::{LocalHost, NoHost, close_ledger, ledger_failure, run_id, state_directory};
use crate::ui;
use std::path::PathBuf;
use weigh_host::ledger::{Change, Ledger};
use weigh_model::FinishReason;
use weigh_platforms::Undoers;
use weigh_stats::{PILOT_BLOCKS, PlannedRun, planned_run};
use weigh_store::RunDirectory;
use weigh_studies::shell_quoted;

/// Measures a pilot of the run that `command` asks for, deletes it, and prints what the run needs.
///
/// # Errors
/// Bad input, a host that cannot be used; a pilot that is interrupted, or measures nothing.
pub fn run(args: PlanArgs, command: Option<Vec<String>>) -> Result<(), Failure> {
    let PlanArgs { detect, json, run } = args;
    let effort = EffortArgs { blocks: Some(PILOT_BLOCKS), ..run.common.effort };
    // The run that is planned counts system calls, if that is wanted, and not its pilot.
    let common = MeasureArgs { effort, ..run.common };
    let request = request(RunArgs { common, surface: false, ..run });
    if request.common.dry_run {
        let plan = request.plan(&mut NoHost::DryRun)?;
        ui::print(&dry_run::describe(&plan, &request.facts));
        return Ok(());
    }
    let interrupt = catch_signals()?;
    let plan = LocalHost::ask(|host| request.plan(host))?;
    if plan.environments.len() < 2 {
        return Err(Failure::input("there is nothing to compare the baseline with")
            .hint("name another environment, as in --on native,docker"));
    }
    let pilot = Pilot::new()?;
    let plan = request.choosing(plan);
    let mut directory = RunDirectory::create_at(&pilot.path, &plan, &request.facts)?;
    let execution = Execution { blind: true, live: None, interrupt: &interrupt };
    let ExecutionResult { finish, closed, .. } = execute(&plan, &request.facts, &mut directory, execution)?;
    drop(directory);
    let records = RunDirectory::open(&pilot.path)?.records()?.records;
    let planned = planned_run(&plan, &records, detect / 100.0);
    close_ledger(&pilot.ledger)?;
    match finish.reason {
        FinishReason::Interrupted => {
            return Err(Failure::new(
                ExitKind::NothingMeasured,
                "the pilot was interrupted, and nothing of it is kept",
            )
            .hint("repeat the command"));
        }
        FinishReason::NothingRuns => {
            return Err(Failure::new(ExitKind::NothingMeasured, "nothing could be measured")
                .hint("the reasons are above; `weigh doctor` looks at every platform"));
        }
        _ => {}
    }
    let command = command.unwrap_or_default();
    if json {
        ui::print(&ui::json(&planned));
    } else {
        let command = proposed(&command, &planned).map(|words| shell_quoted(&words));
        ui::print(&ui::shown(&weigh_report::planned(&planned, command.as_deref())));
    }
    closed
}

/// The directory of a pilot. It is always deleted, so that nobody comes upon its effects. It is not
/// in the directory of runs, where `last` would find it.
struct Pilot {
    path: PathBuf,
    ledger: Ledger,
}

impl Pilot {
    fn new() -> Result<Self, Failure> {
        let state = state_directory()?;
        let name = format!("plan-{}", run_id());
        let path = state.path().join(&name);
        let pilot = Self { ledger: Ledger::create(&state, &name).map_err(ledger_failure)?, path };
        let change = Change::Directory { path: pilot.path.clone() };
        pilot.ledger.record(change).map_err(ledger_failure)?;
        Ok(pilot)
    }
}

impl Drop for Pilot {
    fn drop(&mut self) {
        // What cannot be deleted stays in the ledger for `weigh clean`.
        let _closed_or_left = self.ledger.close(&Undoers);
    }
}

/// The words of the run that finds the difference; none if no number of blocks does.
fn proposed(command: &[String], planned: &PlannedRun) -> Option<Vec<String>> {
    let (iterations, expense) = match planned.better {
        Some(better) => (Some(better.iterations), better.expense),
        None => (None, planned.present),
    };
    let blocks = expense.blocks.filter(|blocks| *blocks <= MOST_BLOCKS)?;
    let own = command.iter().position(|word| word == "--").unwrap_or(command.len());
    let (options, rest) = command.split_at(own);
    let mut words = vec!["weigh".to_string()];
    let mut options = options.iter();
    while let Some(word) = options.next() {
        if iterations.is_some() && word == "--iterations" {
            options.next();
        } else {
            words.push(word.clone());
        }
    }
    words.extend(["--blocks".into(), blocks.to_string()]);
    words.extend(iterations.into_iter().flat_map(|number| ["--iterations".into(), number.to_string()]));
    words.extend(rest.iter().cloned());
    Some(words)
}

/// The greatest number that `weigh run --blocks` takes.
const MOST_BLOCKS: u32 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;
    use weigh_stats::{Iterated, RunCost};

    fn planned(blocks: u32, better: Option<(u32, u32)>) -> PlannedRun {
        let expense = |blocks| RunCost { blocks: Some(blocks), seconds: None };
        let better = better.map(|(iterations, blocks)| Iterated { iterations, expense: expense(blocks) });
        PlannedRun {
            detect: 0.01,
            comparisons: 1,
            pilot_blocks: PILOT_BLOCKS,
            block_s: None,
            cells: Vec::new(),
            present: expense(blocks),
            better,
        }
    }

    #[test]
    fn the_command_has_the_blocks_and_the_iterations() {
        let words = |line: &str, planned: &PlannedRun| {
            let words: Vec<String> = line.split(' ').map(String::from).collect();
            proposed(&words, planned).map(|words| words.join(" "))
        };
        let line = "run --on native,runc --iterations 3 -- tool --iterations 9";
        assert_eq!(
            words(line, &planned(40, None)).unwrap(),
            "weigh run --on native,runc --iterations 3 --blocks 40 -- tool --iterations 9"
        );
        assert_eq!(
            words(line, &planned(40, Some((7, 20)))).unwrap(),
            "weigh run --on native,runc --blocks 20 --iterations 7 -- tool --iterations 9"
        );
        assert_eq!(words("run spin", &planned(100_001, None)), None);
    }
}
