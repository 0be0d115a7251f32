//! The state that an engine works on: the machines of a fleet, and who is told of their updates.

use crate::error::Failure;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, MutexGuard, PoisonError};
use weigh_model::{Event, FinishReason, harmless};
use weigh_platforms::with_causes;
use weigh_store::fleet::{FleetDirectory, Machine, MachineState};
use weigh_store::{RunDirectory, StoreError};

/// The longest reason that quotes the output of `weigh`, characters.
const LONGEST_REASON: usize = 600;
/// The longest reason in the record, characters: a machine may say anything.
const LONGEST_STATE: usize = 4000;
/// The greatest number of updates that wait to be shown. Machines may print faster than that.
pub const MOST_UPDATES: usize = 1024;
/// The exit code of `weigh` when nothing could be measured.
const NOTHING_MEASURED: i32 = 4;
/// The exit code that a shell gives to a program which SIGKILL ended.
const KILLED: i32 = 128 + 9;

/// A change of a machine.
#[derive(Debug)]
pub enum Update {
    /// It has a new state.
    State(MachineState),
    /// It printed this text.
    Said(String),
}

/// The machines of a fleet, shared by several threads.
pub struct Work<'a> {
    directory: Mutex<&'a mut FleetDirectory>,
    interrupt: &'a AtomicBool,
    tell: SyncSender<(usize, Update)>,
}

impl<'a> Work<'a> {
    /// Starts work on a directory, until `interrupt` turns true.
    pub fn new(
        directory: &'a mut FleetDirectory,
        interrupt: &'a AtomicBool,
        tell: SyncSender<(usize, Update)>,
    ) -> Self {
        Self { directory: Mutex::new(directory), interrupt, tell }
    }

    /// Runs `act` on the directory while no other thread uses it.
    pub fn with<T>(&self, act: impl FnOnce(&mut FleetDirectory) -> T) -> T {
        act(&mut self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, &'a mut FleetDirectory> {
        // A thread that panicked left the directory as it is on disk.
        self.directory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The directory's path.
    pub fn path(&self) -> PathBuf {
        self.with(|directory| directory.path().to_path_buf())
    }

    /// The indices of the machines that are neither done nor replaced.
    pub fn unfinished(&self) -> Vec<usize> {
        self.with(|directory| {
            let machines = directory.fleet().machines.iter().enumerate();
            let is_open =
                |machine: &Machine| machine.state != MachineState::Done && machine.replaced_by.is_none();
            machines.filter(|(_, machine)| is_open(machine)).map(|(at, _)| at).collect()
        })
    }

    /// Returns the record of a machine.
    pub fn machine(&self, at: usize) -> Machine {
        self.with(|directory| directory.fleet().machines[at].clone())
    }

    /// The path of a machine's log.
    pub fn log(&self, at: usize) -> PathBuf {
        self.with(|directory| directory.log_path(at))
    }

    /// Whether the runs are to end after their current trials.
    pub fn is_interrupted(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed)
    }

    /// Changes the record of a machine, and returns when it is on disk.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn update(&self, at: usize, change: impl FnOnce(&mut Machine)) -> Result<(), StoreError> {
        self.with(|directory| directory.update(at, change))
    }

    /// Records the state of a machine, and announces it.
    ///
    /// # Errors
    /// It cannot be recorded.
    pub fn set(&self, at: usize, state: MachineState) -> Result<(), StoreError> {
        let cut = |reason| shortened(reason, LONGEST_STATE);
        let state = match state {
            MachineState::Failed { reason } => MachineState::Failed { reason: cut(reason) },
            MachineState::Waiting { reason } => MachineState::Waiting { reason: reason.map(cut) },
            other => other,
        };
        self.update(at, |machine| machine.state = state.clone())?;
        let _nobody_listens = self.tell.send((at, Update::State(state)));
        Ok(())
    }

    /// Announces a text from a machine, unless [`MOST_UPDATES`] wait already.
    pub fn said(&self, at: usize, text: &str) {
        let _not_shown = self.tell.try_send((at, Update::Said(harmless(text))));
    }

    /// Judges the state of a machine whose `weigh` ended with this exit code, by the run that has
    /// been received. `said` holds the last lines that it printed.
    pub fn judge(&self, at: usize, code: Option<i32>, said: &[String]) -> MachineState {
        match self.with(|directory| directory.run(at)) {
            Ok(run) => judge(run.as_ref(), code, said, self.is_interrupted()),
            Err(error) => MachineState::Failed { reason: with_causes(&error) },
        }
    }
}

/// Returns the state of a machine whose run is over.
fn judge(run: Option<&RunDirectory>, code: Option<i32>, said: &[String], interrupted: bool) -> MachineState {
    let end = run.and_then(end_of);
    let failed = |what: &str| MachineState::Failed { reason: reason(what, said) };
    match (end, code) {
        (Some(FinishReason::Interrupted), _) => {
            let by = if interrupted { "interrupted" } else { "its run was interrupted there" };
            MachineState::Waiting { reason: Some(by.into()) }
        }
        (Some(FinishReason::NothingRuns), _) | (None, Some(NOTHING_MEASURED)) => {
            failed("nothing could be measured")
        }
        (Some(_), Some(0) | None) => MachineState::Done,
        (Some(_), Some(code)) => failed(&ended_with(code)),
        (None, _) if interrupted => MachineState::Waiting { reason: Some("interrupted".into()) },
        (None, Some(0)) if run.is_none() => failed("weigh ended there and left no run directory"),
        (None, Some(code)) => failed(&ended_with(code)),
        (None, None) => failed("the run ended early"),
    }
}

/// How `weigh` ended, in words.
fn ended_with(code: i32) -> String {
    match code {
        KILLED => "weigh was killed there (exit code 137), as the kernel does when no memory is left".into(),
        code => format!("weigh ended there with exit code {code}"),
    }
}

/// Why a run ended, if it did.
fn end_of(run: &RunDirectory) -> Option<FinishReason> {
    match run.events().ok()?.events.pop()?.event {
        Event::Finished { reason, .. } => Some(reason),
        _ => None,
    }
}

/// Returns what happened, with the output of `weigh` about it: its error from the first line on, or
/// its last lines.
fn reason(what: &str, said: &[String]) -> String {
    let is_error = |line: &String| line.trim_start().starts_with(['×', 'x']) && line.starts_with("  ");
    let from = said.iter().rposition(is_error).unwrap_or(said.len().saturating_sub(3));
    let frames = |c: char| "×│╰─▶·".contains(c) || c.is_whitespace();
    let text: Vec<&str> = said[from..].iter().map(|line| line.trim_matches(frames)).collect();
    let text = harmless(text.join(" ").trim_start_matches("x ").trim());
    shortened(if text.is_empty() { what.to_string() } else { format!("{what}: {text}") }, LONGEST_REASON)
}

/// A text, cut after this many characters.
pub fn shortened(mut text: String, most: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(most) {
        text.truncate(end);
        text.push_str("...");
    }
    text
}

/// The last lines of an output.
#[derive(Debug, Default)]
pub struct LastLines(Vec<String>);

impl LastLines {
    const MOST: usize = 30;

    /// Adds a line.
    pub fn add(&mut self, line: &str) {
        if self.0.len() == Self::MOST {
            self.0.remove(0);
        }
        self.0.push(line.into());
    }

    /// The lines, the oldest first.
    pub fn lines(&self) -> &[String] {
        &self.0
    }
}

/// Reads the program that is running, even if its file was replaced.
///
/// # Errors
/// It cannot be read.
pub fn own_program() -> Result<Vec<u8>, Failure> {
    let path = Path::new("/proc/self/exe");
    std::fs::read(path).map_err(|error| crate::error::file_failure("read", path, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;
    use weigh_model::{Effort, HostFacts, Plan, Timestamped};
    use weigh_store::fleet::Fleet;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(String::from).collect()
    }

    /// Makes a run whose last event says that it ended for this reason.
    fn ended(parent: &Path, reason: Option<FinishReason>) -> RunDirectory {
        let plan = Plan::of("work", Vec::new(), Vec::new(), Effort::Quick { blocks: 6 });
        let host: HostFacts = weigh_host::facts::host_facts();
        let mut run = RunDirectory::create(parent, &plan, &host, "2026-11-21T05:00:00Z").unwrap();
        let event = match reason {
            Some(reason) => Event::Finished { reason, blocks_done: 6 },
            None => Event::PilotStarted,
        };
        run.append_event(&Timestamped { at: "2026-11-21T05:00:00Z".into(), event }).unwrap();
        run.flush_events().unwrap();
        run
    }

    #[test]
    fn a_machines_state_follows_from_how_its_run_ended() {
        let parent = tempfile::tempdir().unwrap();
        let judged =
            |reason, code, interrupted| judge(Some(&ended(parent.path(), reason)), code, &[], interrupted);
        let is_failed = |state| matches!(state, MachineState::Failed { .. });
        let is_waiting = |state| matches!(state, MachineState::Waiting { reason: Some(_) });
        assert_eq!(judged(Some(FinishReason::Blocks), Some(0), false), MachineState::Done);
        assert_eq!(judged(Some(FinishReason::Blocks), None, false), MachineState::Done);
        assert!(is_failed(judged(Some(FinishReason::Blocks), Some(1), false)));
        assert!(is_waiting(judged(Some(FinishReason::Interrupted), Some(0), true)));
        assert!(is_waiting(judged(Some(FinishReason::Interrupted), Some(4), false)));
        assert!(is_failed(judged(Some(FinishReason::NothingRuns), Some(4), false)));
        assert!(is_failed(judged(None, Some(0), false)), "a run without an end is no run");
        assert!(is_failed(judged(None, Some(137), false)) && is_waiting(judged(None, None, true)));
        let nothing = format!("{:?}", judge(None, Some(0), &[], false));
        assert!(nothing.contains("left no run directory"), "{nothing}");
        let killed = format!("{:?}", judge(None, Some(137), &[], false));
        assert!(killed.contains("when no memory is left"), "{killed}");
    }

    #[test]
    fn reasons_are_quoted_from_weigh() {
        let said =
            "block 3/6\n  × another run is going on: process 7, since noon\n  help: wait\n        for it\n";
        let whole = "failed: another run is going on: process 7, since noon help: wait for it";
        assert_eq!(reason("failed", &lines(said)), whole);
        let ascii = "block 3/6\n  x there is no `docker`\n  `-> because\n";
        assert_eq!(reason("failed", &lines(ascii)), "failed: there is no `docker` `-> because");
        assert_eq!(reason("failed", &lines("a\nb\nc\nd\u{1b}[2J")), "failed: b c d\\u{1b}[2J");
        assert_eq!(reason("failed", &[]), "failed");
        assert_eq!(reason("failed", &lines(&"y".repeat(5000))).chars().count(), LONGEST_REASON + 3);
    }

    /// A record that is longer than what is read again would end the whole fleet.
    #[test]
    fn no_machine_fills_the_record_of_its_fleet() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("f");
        let fleet = Fleet::new("fleet-1", vec![Machine::new("a".into(), "ssh:host=a".into())]);
        let plan = Plan::of("work", Vec::new(), Vec::new(), Effort::Quick { blocks: 6 });
        let mut directory = FleetDirectory::create(&path, &plan, fleet).unwrap();
        let interrupt = AtomicBool::new(false);
        let (tell, told) = sync_channel(MOST_UPDATES);
        let work = Work::new(&mut directory, &interrupt, tell);
        let long = "\u{1b}".repeat(1 << 20);
        let states =
            [MachineState::Failed { reason: long.clone() }, MachineState::Waiting { reason: Some(long) }];
        for state in states {
            work.set(0, state).unwrap();
            let record = std::fs::metadata(path.join("fleet.json")).unwrap().len();
            assert!(record < 100_000, "{record}");
        }
        // Nor the memory of this host, whatever it prints.
        (0..2 * MOST_UPDATES).for_each(|_| work.said(0, "y"));
        assert_eq!(told.try_iter().count(), MOST_UPDATES);
    }

    #[test]
    fn only_the_last_lines_are_kept() {
        let mut last = LastLines::default();
        (0..100).for_each(|number| last.add(&number.to_string()));
        assert_eq!((last.lines().len(), last.lines()[29].as_str()), (30, "99"));
    }
}
