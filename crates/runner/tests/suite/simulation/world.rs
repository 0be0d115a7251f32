//! The processes on the simulated machine, and the invariants to check.

use crate::common;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use weigh_disk::simulation::{BrokenPromise, Faults, Machine, pause};
use weigh_host::ledger::{self, Change, EntryId, Ledger, PlatformUndo, UndoError, UndoOutcome};
use weigh_host::lock::HostLock;
use weigh_host::state::StateDirectory;
use weigh_host::{clock, private};
use weigh_model::{Effort, Event, FinishReason, Plan, Record, Trial};
use weigh_runner::RunOptions;
use weigh_store::{RunDirectory, StoreError};

/// The longest record, bytes: several sectors.
const LONGEST: usize = 2_500;

/// Something that must not happen, with the history that led to it.
#[derive(Debug)]
pub struct Violation {
    what: String,
    history: Vec<String>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.history.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        write!(f, "{}", self.what)
    }
}

/// A machine, its host, and what its processes were told.
pub struct World {
    pub machine: Machine,
    directory: tempfile::TempDir,
    root: PathBuf,
    /// The run of fake guests that the runner measures; without one, records are stored.
    measured: Option<Measured>,
    told: Mutex<Told>,
}

/// A run of the runner, and after how many blocks it is complete.
pub struct Measured {
    pub plan: Plan,
    pub blocks: u32,
}

#[derive(Default)]
struct Told {
    /// A platform's things on the host, which only the ledger can undo, not a loss of power.
    things: BTreeSet<String>,
    /// The records of each run that were reported as stored.
    stored: BTreeMap<PathBuf, Vec<Record>>,
    /// Records that were being stored since then: one of them may be on disk.
    storing: BTreeMap<PathBuf, Vec<Record>>,
    /// Numbers of the trials that the runner reported as finished.
    finished: BTreeSet<u64>,
    /// Processes that hold the lock of the host.
    holders: u32,
    /// Number of names given to ledgers.
    names: u64,
    /// Whether nothing fails, in which case nothing may be left over.
    is_calm: bool,
    violation: Option<String>,
}

/// The right to change the host, for as long as this lives.
struct Holding<'w>(&'w World);

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        self.0.told().holders -= 1;
    }
}

impl PlatformUndo for World {
    fn undo(&self, _: &str, _: &str, id: &str, _: &serde_json::Value) -> Result<UndoOutcome, UndoError> {
        pause(&format!("undoing of {id}"));
        if !self.told().is_calm && self.machine.below(8) == 0 {
            return Err(UndoError::Platform("it is stuck".into()));
        }
        self.told().things.remove(id);
        Ok(UndoOutcome::Restored)
    }
}

impl World {
    pub fn new(seed: u64, lie: Option<BrokenPromise>, told: bool, measured: Option<Measured>) -> Self {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
        let directory = tempfile::Builder::new().prefix("weigh-simulation-").tempdir_in(parent).unwrap();
        let root = directory.path().canonicalize().unwrap().join("disk");
        std::fs::create_dir(&root).unwrap();
        let machine = Machine::new(&root, seed, lie, told);
        Self { machine, directory, root, measured, told: Mutex::default() }
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> StateDirectory {
        StateDirectory::at(self.root.join("var/lib/weighbridge"))
    }

    fn runs(&self) -> PathBuf {
        self.root.join("home/weigh-runs")
    }

    fn host(&self) -> PathBuf {
        self.root.join("weighbridge-host")
    }

    fn require(&self, is_so: bool, otherwise: impl FnOnce() -> String) {
        if !is_so {
            self.told().violation.get_or_insert_with(otherwise);
        }
    }

    fn chance(&self, one_in: usize) -> bool {
        self.machine.below(one_in) == 0
    }

    /// Runs some processes at a time, until all have ended or the power has failed, then checks the
    /// invariants.
    pub fn session(&self, faults: Faults, processes: usize) -> Result<(), Violation> {
        self.machine.note(|| format!("{processes} processes, {faults:?}"));
        self.told().is_calm = faults == Faults::default();
        let is_alone = processes == 1;
        let program = |_| -> Box<dyn FnOnce() + Send + '_> {
            match self.machine.below(4) {
                0 => Box::new(move || self.clean(is_alone)),
                _ => Box::new(|| self.measure()),
            }
        };
        let programs = (0..processes).map(program).collect();
        self.run(faults, programs)?;
        self.check()
    }

    fn run<'p>(&self, faults: Faults, programs: Vec<Box<dyn FnOnce() + Send + 'p>>) -> Result<(), Violation> {
        let ran = self.machine.run(faults, "logs", programs);
        self.violated(ran.map(|_ends| ()))
    }

    /// The violation that a process found, or else this one.
    fn violated(&self, found: Result<(), String>) -> Result<(), Violation> {
        let violation = self.told().violation.take();
        match violation.or(found.err()) {
            Some(what) => Err(Violation { what, history: self.machine.history() }),
            None => Ok(()),
        }
    }

    fn check(&self) -> Result<(), Violation> {
        self.violated(self.unrecorded().and_then(|()| self.lost()).and_then(|()| self.unfinished()))
    }

    /// The directories on the host that runs have made.
    fn directories(&self) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(self.host()) else { return Vec::new() };
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    /// Every change to the host has an entry in the ledger.
    fn unrecorded(&self) -> Result<(), String> {
        let pending = ledger::pending(&self.state()).map_err(|error| error.to_string())?;
        let pending: Vec<Change> = pending.runs.into_iter().flat_map(|(_, changes)| changes).collect();
        for thing in &self.told().things {
            if !pending.contains(&thing_of(thing)) {
                return Err(format!("{thing} exists and is in no ledger"));
            }
        }
        for path in self.directories() {
            let is_recorded = pending.contains(&Change::Directory { path: path.clone() })
                || pending.contains(&Change::File { path: path.clone() });
            if !is_recorded {
                return Err(format!("{} exists and is in no ledger", path.display()));
            }
        }
        Ok(())
    }

    /// What was reported as stored is stored exactly once, besides at most what was being stored.
    fn lost(&self) -> Result<(), String> {
        let told = self.told();
        for (path, stored) in &told.stored {
            let read = RunDirectory::open(path).and_then(|run| run.records());
            let records = match read {
                Ok(read) => read.records,
                Err(_) if stored.is_empty() => continue,
                Err(error) => {
                    return Err(format!("{} records of a run: {}", stored.len(), with_causes(&error)));
                }
            };
            let more = records.get(stored.len()..).unwrap_or_default();
            let is_storing = |record| told.storing.get(path).is_some_and(|all| all.contains(record));
            if !records.starts_with(stored) || more.len() > 1 || !more.iter().all(is_storing) {
                return Err(format!("{} of {} records are there", records.len(), stored.len()));
            }
        }
        Ok(())
    }

    /// Every trial that the runner reported is stored exactly once.
    fn unfinished(&self) -> Result<(), String> {
        let finished = self.told().finished.clone();
        if finished.is_empty() {
            return Ok(());
        }
        let read = RunDirectory::open(&self.named()).and_then(|run| run.records());
        let records = read.map_err(|error| with_causes(&error))?.records;
        let there = records.into_iter().filter_map(|record| match record {
            Record::Trial(trial) => Some(trial.sequence),
            _ => None,
        });
        let there: Vec<u64> = there.collect();
        let number = there.len() as u64;
        match there.iter().copied().eq(0..number) && finished.iter().all(|sequence| *sequence < number) {
            true => Ok(()),
            false => Err(format!("{finished:?} were finished, {there:?} are there")),
        }
    }

    /// Whether the runner has reported as many trials as its blocks have.
    pub fn is_complete(&self) -> bool {
        let Some(Measured { plan, blocks }) = &self.measured else { return false };
        let trials = plan.environments.len() * plan.workloads.len() * *blocks as usize;
        self.told().finished.len() >= trials
    }

    /// After the last failure: undoes everything and resumes every run to its end.
    pub fn end(&self) -> Result<(), Violation> {
        self.told().is_calm = true;
        let calm = Faults::default();
        self.run(calm, vec![Box::new(|| self.clean(true))])?;
        let runs: Vec<PathBuf> = self.told().stored.keys().cloned().collect();
        for path in runs {
            self.run(calm, vec![Box::new(|| self.resume_to_the_end(&path))])?;
        }
        if let Some(measured) = &self.measured {
            self.run(calm, vec![Box::new(|| self.run_to_the_end(measured))])?;
        }
        self.check()?;
        let left = { self.told().things.len() } + self.directories().len();
        self.require(left == 0, || format!("{left} changes are left after the last sweep"));
        let state = self.state();
        let left: Vec<PathBuf> = std::fs::read_dir(state.ledger_dir())
            .map_or(Vec::new(), |entries| entries.map(|entry| entry.unwrap().path()).collect());
        let is_said =
            left.iter().all(|path| path.extension() == Some("damaged".as_ref())) && !left.is_empty();
        self.require(is_said || !state.path().exists(), || format!("the state directory is left: {left:?}"));
        self.violated(Ok(()))
    }

    /// `weigh clean`.
    fn clean(&self, is_alone: bool) {
        let Ok(sweep) = ledger::sweep(&self.state(), self) else { return };
        if is_alone && sweep.damaged.is_empty() {
            let said: Vec<Change> = sweep.failed.into_iter().map(|(change, _)| change).collect();
            self.require(sweep.live.is_empty(), || format!("{:?} are dead", sweep.live));
            self.check_said(&said, |_| true);
        }
    }

    /// Everything that is left of some runs must have been reported.
    fn check_said(&self, said: &[Change], is_of: impl Fn(&str) -> bool) {
        let things = self.told().things.clone();
        for thing in things.iter().filter(|thing| is_of(thing)) {
            self.require(said.contains(&thing_of(thing)), || format!("{thing} is left and nobody said so"));
        }
        for path in self.directories() {
            let is_said = said.contains(&Change::Directory { path: path.clone() })
                || said.contains(&Change::File { path: path.clone() });
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            self.require(is_said || !is_of(&name), || format!("{name} is left and nobody said so"));
        }
    }

    /// `weigh run` or `weigh resume`.
    fn measure(&self) {
        // The name is formed as weigh does, except for the process id.
        let name = {
            let mut told = self.told();
            told.names += 1;
            format!("{}-{}", clock::utc_now().replace([':', '-'], ""), told.names)
        };
        let Ok(lock) = HostLock::acquire(&self.state(), &name) else { return };
        let holders = {
            let mut told = self.told();
            told.holders += 1;
            told.holders
        };
        let holding = Holding(self);
        self.require(holders == 1, || "two runs have the host".into());
        let Ok(ledger) = Ledger::create(&self.state(), &name) else { return };
        match &self.measured {
            Some(measured) => drop(self.run_plan(measured)),
            None => self.work(&ledger),
        }
        let said = match ledger.close(self) {
            Err(ledger::LedgerError::Undo(failed)) => failed.into_iter().map(|(change, _)| change).collect(),
            _ => Vec::new(),
        };
        self.check_said(&said, |left| left.starts_with(&name));
        drop((holding, lock));
    }

    pub fn named(&self) -> PathBuf {
        self.runs().join("named")
    }

    /// The runner starts or resumes its run.
    fn run_plan(&self, Measured { plan, blocks }: &Measured) -> Option<(RunDirectory, FinishReason)> {
        let store = RunDirectory::open_for_append(&self.named());
        let mut store =
            store.or_else(|_| RunDirectory::create_at(&self.named(), plan, &common::facts())).ok()?;
        let weather: common::Weather = Box::new(|_| common::quiet());
        let options = RunOptions { skip_pilot: true, ..RunOptions::default() };
        let has_no_end = matches!(plan.effort, Effort::Lasting { .. });
        let hear = |event: &Event, interrupt: &AtomicBool| {
            if let Event::TrialFinished { sequence, .. } = event {
                self.told().finished.insert(*sequence);
            }
            if has_no_end && common::has_done(event, *blocks) {
                interrupt.store(true, Ordering::Relaxed);
            }
        };
        let outing = common::go_on(self.directory.path(), plan, &mut store, options, &weather, hear).ok()?;
        Some((store, outing.finish.reason))
    }

    fn run_to_the_end(&self, measured: &Measured) {
        // If a directory was not completely made, the user makes a new one.
        let is_fresh = { self.told().finished.is_empty() };
        match self.run_plan(measured) {
            Some((store, FinishReason::Blocks)) => {
                common::assert_complete(store.plan(), &store, measured.blocks);
            }
            Some((_, reason)) => assert_eq!(reason, FinishReason::Interrupted),
            None => self.require(is_fresh, || "the run cannot be resumed".into()),
        }
    }

    /// Changes the host and measures, in some order.
    fn work(&self, ledger: &Ledger) {
        let Some((mut store, path)) = self.run_directory() else { return };
        let mut standing = Vec::new();
        for step in 0..self.machine.below(20) {
            let goes_on = match self.machine.below(4) {
                0 => self.change(ledger, step, &mut standing),
                1 => {
                    if let Some(entry) = standing.pop() {
                        let _ = ledger.undo(entry, self);
                    }
                    true
                }
                _ => self.store(&mut store, &path),
            };
            // Some continue after an error, as when the user frees space.
            if !goes_on && self.chance(2) {
                return;
            }
        }
    }

    /// Makes one change to the host, or several at once.
    fn change(&self, ledger: &Ledger, step: usize, standing: &mut Vec<EntryId>) -> bool {
        let name = format!("{}-{step}", ledger.run());
        let path = self.host().join(&name);
        let changes = match self.machine.below(4) {
            0 => vec![Change::Directory { path: path.clone() }],
            1 => vec![Change::File { path: path.clone() }],
            2 => vec![thing_of(&name)],
            _ => (0..8).map(|number| thing_of(&format!("{name}.{number}"))).collect(),
        };
        let Ok(entries) = ledger.record_all(changes.clone()) else { return false };
        self.require(self.machine.is_durable(ledger.path()), || {
            format!("the entry of {name} is not on disk")
        });
        standing.extend(entries);
        for change in changes {
            match change {
                Change::Directory { path } => {
                    let _ = private::close(&path);
                    let _ = weigh_disk::File::open(
                        &path.join("file"),
                        std::fs::File::options().write(true).create(true),
                    );
                }
                Change::File { path } => {
                    let _ =
                        weigh_disk::File::open(&path, std::fs::File::options().write(true).create_new(true));
                }
                Change::Platform { id, .. } => {
                    pause(&format!("making of {id}"));
                    self.told().things.insert(id);
                }
                other => unreachable!("{other}"),
            }
        }
        true
    }

    /// Makes a new run, or opens an existing one.
    fn run_directory(&self) -> Option<(RunDirectory, PathBuf)> {
        let known: Vec<PathBuf> = self.told().stored.keys().cloned().collect();
        if !known.is_empty() && !self.chance(3) {
            let path = &known[self.machine.below(known.len())];
            return Some((self.open(path)?, path.clone()));
        }
        let plan = common::plan(&["null"], &["u"], common::fixed(1));
        let facts = weigh_model::HostFacts::default();
        let store = match self.chance(2) {
            true => RunDirectory::create(&self.runs(), &plan, &facts, &clock::utc_now()),
            false => RunDirectory::create_at(&self.named(), &plan, &facts),
        };
        let store = store.ok()?;
        let path = store.path().to_path_buf();
        let before = self.told().stored.insert(path.clone(), Vec::new()).unwrap_or_default();
        self.require(before.is_empty(), || format!("{} was made twice", path.display()));
        Some((store, path))
    }

    /// Opens a run to resume it. Its present contents count as reported.
    fn open(&self, path: &Path) -> Option<RunDirectory> {
        let store = RunDirectory::open_for_append(path).ok()?;
        let records = store.records().ok()?.records;
        let has_all = records.starts_with(&self.told().stored[path]);
        self.require(has_all, || "a record is lost".into());
        self.require(self.machine.is_durable(&path.join("samples.jsonl")), || {
            "records are reported that are not on disk".into()
        });
        let mut told = self.told();
        told.storing.remove(path);
        told.stored.insert(path.into(), records);
        Some(store)
    }

    /// Measures a trial.
    fn store(&self, store: &mut RunDirectory, path: &Path) -> bool {
        let record = {
            let mut told = self.told();
            let sequence = told.stored[path].len() as u64;
            let environment = "x".repeat(self.machine.below(LONGEST));
            let record = Record::Trial(Trial { sequence, environment, ..Trial::default() });
            told.storing.entry(path.into()).or_default().push(record.clone());
            record
        };
        let stored = store.append(&record);
        if stored.is_ok() {
            self.require(self.machine.is_durable(&path.join("samples.jsonl")), || {
                "a trial is not on disk".into()
            });
            let mut told = self.told();
            told.storing.remove(path);
            told.stored.get_mut(path).unwrap().push(record);
        }
        stored.is_ok()
    }

    fn resume_to_the_end(&self, path: &Path) {
        let has_records = { !self.told().stored[path].is_empty() };
        let Some(mut store) = self.open(path) else {
            return self.require(!has_records, || format!("{} cannot be resumed", path.display()));
        };
        let stored = self.store(&mut store, path);
        self.require(stored, || "nothing can be stored".into());
        let sequences =
            store.records().map(|read| read.records.into_iter().map(sequence_of).collect::<Vec<_>>());
        let expected: Vec<u64> = (0..self.told().stored[path].len() as u64).collect();
        self.require(sequences.is_ok_and(|found| found == expected), || "a trial is counted twice".into());
    }
}

fn sequence_of(record: Record) -> u64 {
    match record {
        Record::Trial(trial) => trial.sequence,
        other => panic!("{other:?}"),
    }
}

fn thing_of(name: &str) -> Change {
    Change::Platform {
        platform: "p".into(),
        what: "thing".into(),
        id: name.into(),
        detail: serde_json::Value::Null,
    }
}

fn with_causes(error: &StoreError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
