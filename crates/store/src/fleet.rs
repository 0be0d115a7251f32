//! The directory of a fleet: one plan, its machines and their progress, and a run directory for
//! each machine.
//!
//! ```text
//! weigh-runs/20261121T050000Z-stream-fleet/
//!   fleet-plan.json  what every machine measures; written once
//!   fleet.json       the machines and their states; replaced as a whole
//!   a/               the run directory of the machine `a`
//!   a.log            what was said on the way to it and there
//!   .received-a/     a run directory that is on its way; it gets its name when it is whole
//!   lock             while somebody works on it
//! ```
//!
//! A state on disk never claims more than is there: a run has its name before its machine is done,
//! and a directory on another machine is named here before it is made.

use crate::directory::{DirectoryLock, pretty, read_versioned};
use crate::durable::{sync_directory, sync_name, write_whole};
use crate::naming::safe_file_name;
use crate::{RunDirectory, StoreError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};
use weigh_model::{PLAN_FORMAT, Plan};

/// Version of `fleet.json`. Changes: 1, first version; 2, shares.
pub const FLEET_FORMAT: u32 = 2;
/// The plan of a fleet, in its directory.
pub const FLEET_PLAN: &str = "fleet-plan.json";
const STATE: &str = "fleet.json";
/// The prefix of a directory that receives a run. The name is hidden, so that `DIR/*/` are the
/// runs.
const RECEIVED: &str = ".received";
/// The prefix of an incomplete run that a longer one is about to replace.
const REPLACED: &str = ".replaced";

/// The machines of a fleet and their progress.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fleet {
    /// [`FLEET_FORMAT`].
    pub format: u32,
    /// Version of weigh that began the fleet.
    pub tool_version: String,
    /// An id that no other fleet has, on any machine.
    pub id: String,
    /// The machines, in the order in which they were named.
    pub machines: Vec<Machine>,
}

impl Fleet {
    /// Makes a fleet that this version of weigh begins, in the present format.
    pub fn new(id: impl Into<String>, machines: Vec<Machine>) -> Self {
        let tool_version = env!("CARGO_PKG_VERSION").into();
        Self { format: FLEET_FORMAT, tool_version, id: id.into(), machines }
    }

    /// How many shares the blocks are divided into; 0 if every machine measures the whole plan.
    pub fn shares(&self) -> u32 {
        self.machines.iter().filter_map(|machine| machine.share).max().map_or(0, |last| last + 1)
    }

    /// The machine whose share the machine called `name` measures in its place.
    pub fn replaces(&self, name: &str) -> Option<&Machine> {
        self.machines.iter().find(|machine| machine.replaced_by.as_deref() == Some(name))
    }
}

/// One machine of a fleet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The name of its run directory.
    pub name: String,
    /// How it is reached, as an environment string.
    pub via: String,
    /// Its progress.
    pub state: MachineState,
    /// Its directory on that machine, named here from before it is made until it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// The node that a scheduler assigned, once it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The share of the plan's blocks that it measures; absent if it measures the whole plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<u32>,
    /// What all machines that measure shares must have in common, by name, as this one reported it
    /// before it measured.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, String>,
    /// The machine that measures its share in its place. This one is not tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced_by: Option<String>,
}

impl Machine {
    /// A machine that has not been asked for anything.
    pub fn new(name: String, via: String) -> Self {
        Self {
            name,
            via,
            state: MachineState::Waiting { reason: None },
            directory: None,
            node: None,
            share: None,
            facts: BTreeMap::new(),
            replaced_by: None,
        }
    }
}

/// The progress of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum MachineState {
    /// Its run is to begin, or to be resumed.
    Waiting {
        /// Why the run ended early, if it began.
        reason: Option<String>,
    },
    /// It is measuring, as far as this fleet knows.
    Running,
    /// Its run is complete and has been received.
    Done,
    /// It cannot continue without the user.
    Failed {
        /// Why, and what to do.
        reason: String,
    },
}

/// Whether a file of the fleet itself can have this name. A cluster may call its nodes anything.
fn is_reserved(name: &str) -> bool {
    [STATE, FLEET_PLAN, "lock"].contains(&name) || name.ends_with(".log")
}

/// Returns a distinct name for each machine that is safe as a file name, and that no other file of
/// the fleet has.
pub fn machine_names<'a>(wanted: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for wanted in wanted {
        let mut safe = safe_file_name(wanted);
        safe.truncate(80);
        let safe = if safe.is_empty() { "machine".into() } else { safe };
        let numbered = (2..).map(|number| format!("{safe}-{number}"));
        let is_free = |name: &String| !is_reserved(name) && !names.contains(name);
        let free = std::iter::once(safe.clone()).chain(numbered).find(is_free);
        names.extend(free);
    }
    names
}

/// The directory of a fleet.
#[derive(Debug)]
pub struct FleetDirectory {
    path: PathBuf,
    plan: Plan,
    fleet: Fleet,
    /// Held while this value may change the fleet.
    lock: Option<DirectoryLock>,
}

impl FleetDirectory {
    /// Whether a directory is a fleet's.
    pub fn is_one(path: &Path) -> bool {
        path.join(STATE).is_file()
    }

    /// Makes a fleet in a directory that is empty or does not exist yet.
    ///
    /// # Errors
    /// [`StoreError::Exists`] when the directory is not empty, [`StoreError::Busy`], and errors of
    /// the file system.
    pub fn create(path: &Path, plan: &Plan, fleet: Fleet) -> Result<Self, StoreError> {
        crate::durable::make_directories(path)?;
        let lock = DirectoryLock::take(path)?;
        let is_lock = |entry: io::Result<std::fs::DirEntry>| entry.is_ok_and(|it| it.file_name() == "lock");
        let mut entries = std::fs::read_dir(path).map_err(|error| StoreError::io("list", path, error))?;
        if !entries.all(is_lock) {
            return Err(StoreError::Exists(path.into()));
        }
        write_whole(path, FLEET_PLAN, &pretty(plan))?;
        // Read it back, as others will: environments are written in canonical form.
        let (plan, _) = read_versioned(path, FLEET_PLAN, Some(PLAN_FORMAT))?;
        let made = Self { path: path.into(), plan, fleet, lock: Some(lock) };
        made.save()?;
        sync_name(path)?;
        Ok(made)
    }

    /// Opens a fleet for reading. Nothing in it is changed.
    ///
    /// # Errors
    /// [`StoreError::NewerFormat`], [`StoreError::Damaged`], and errors of the file system.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let (fleet, _): (Fleet, _) = read_versioned(path, STATE, Some(FLEET_FORMAT))?;
        let (plan, _) = read_versioned(path, FLEET_PLAN, Some(PLAN_FORMAT))?;
        for machine in &fleet.machines {
            let mut parts = Path::new(&machine.name).components();
            let is_plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
            if !is_plain || safe_file_name(&machine.name) != machine.name {
                let remedy = "restore the file from a copy of the fleet, or begin the fleet again";
                let problem = format!("`{}` is not the name of a machine", machine.name);
                return Err(StoreError::Damaged { path: path.join(STATE), line: 1, problem, remedy });
            }
        }
        Ok(Self { path: path.into(), plan, fleet, lock: None })
    }

    /// Opens a fleet to resume it, and repairs what a crash left half done.
    ///
    /// # Errors
    /// As [`Self::open`], and [`StoreError::Busy`] when another process works on it.
    pub fn open_for_work(path: &Path) -> Result<Self, StoreError> {
        let lock = DirectoryLock::take(path)?;
        let mut opened = Self::open(path)?;
        opened.lock = Some(lock);
        for at in 0..opened.fleet.machines.len() {
            opened.repair_after_crash(at)?;
        }
        Ok(opened)
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The plan that every machine measures, either all of it or a share.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The plan of one machine.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when the plan has no such share.
    pub fn plan_of(&self, at: usize) -> Result<Plan, StoreError> {
        let Some(number) = self.fleet.machines[at].share else { return Ok(self.plan.clone()) };
        let shares = self.fleet.shares();
        self.plan.of_share(number, shares).ok_or_else(|| StoreError::Damaged {
            path: self.path.join(STATE),
            line: 1,
            problem: format!("the plan has no share {number} of {shares}"),
            remedy: "restore the file from a copy of the fleet, or begin the fleet again",
        })
    }

    /// The plan of a machine, as the text that is sent to it.
    ///
    /// # Errors
    /// As [`Self::plan_of`].
    pub fn plan_text(&self, at: usize) -> Result<Vec<u8>, StoreError> {
        Ok(pretty(&self.plan_of(at)?))
    }

    /// Adds a machine that measures the share of the failed machine at index `at`. Returns when
    /// both are on disk.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn replace(&mut self, at: usize, by: Machine) -> Result<(), StoreError> {
        let failed = &mut self.fleet.machines[at];
        failed.replaced_by = Some(by.name.clone());
        let share = failed.share;
        self.fleet.machines.push(Machine { share, ..by });
        self.save()
    }

    /// The machines and their progress.
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// The path of a machine's run directory, which need not exist yet.
    pub fn run_path(&self, at: usize) -> PathBuf {
        self.path.join(&self.fleet.machines[at].name)
    }

    /// The path of a machine's log.
    pub fn log_path(&self, at: usize) -> PathBuf {
        self.path.join(format!("{}.log", self.fleet.machines[at].name))
    }

    /// The run of a machine, if it is here.
    ///
    /// # Errors
    /// Its directory is damaged, or has another plan.
    pub fn run(&self, at: usize) -> Result<Option<RunDirectory>, StoreError> {
        let path = self.run_path(at);
        match path.symlink_metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StoreError::io("look at", &path, error)),
            Ok(_) => self.check(at, &path).map(Some),
        }
    }

    /// Changes the record of a machine, and returns when it is on disk.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn update(&mut self, at: usize, change: impl FnOnce(&mut Machine)) -> Result<(), StoreError> {
        let before = self.fleet.machines[at].clone();
        change(&mut self.fleet.machines[at]);
        if self.fleet.machines[at] == before { Ok(()) } else { self.save() }
    }

    /// Makes a new, empty directory that receives the run directory of a machine.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn make_room(&self, at: usize) -> Result<PathBuf, StoreError> {
        let path = self.hidden(RECEIVED, at);
        remove(&path)?;
        weigh_disk::create_directory(&path).map_err(|error| StoreError::io("make", &path, error))?;
        Ok(path)
    }

    /// Moves the complete run directory at [`Self::make_room`] to its final name, in place of an
    /// incomplete one, unless that has more records: then the one that was received is removed. Its
    /// files have to be on disk.
    ///
    /// # Errors
    /// It is not a run of the fleet's plan; errors of the file system.
    pub fn accept(&self, at: usize) -> Result<RunDirectory, StoreError> {
        let (received, run) = (self.hidden(RECEIVED, at), self.run_path(at));
        let found = self.check(at, &received)?;
        // What cannot be read counts for nothing.
        let records = |run: &RunDirectory| run.records().map_or(0, |read| read.records.len());
        if let Ok(Some(here)) = self.run(at)
            && records(&here) > records(&found)
        {
            remove(&received)?;
            return Ok(here);
        }
        let (replaced, io) = (self.hidden(REPLACED, at), StoreError::io);
        if run.symlink_metadata().is_ok() {
            remove(&replaced)?;
            weigh_disk::rename(&run, &replaced).map_err(|error| io("rename", &run, error))?;
            sync_directory(&self.path)?;
        }
        weigh_disk::rename(&received, &run).map_err(|error| io("rename", &received, error))?;
        sync_directory(&self.path)?;
        remove(&replaced)?;
        RunDirectory::open(&run)
    }

    fn hidden(&self, what: &str, at: usize) -> PathBuf {
        self.path.join(format!("{what}-{}", self.fleet.machines[at].name))
    }

    /// Undoes or completes an [`Self::accept`] whose process ended in the middle.
    fn repair_after_crash(&self, at: usize) -> Result<(), StoreError> {
        let (run, replaced) = (self.run_path(at), self.hidden(REPLACED, at));
        if run.symlink_metadata().is_err() && replaced.symlink_metadata().is_ok() {
            weigh_disk::rename(&replaced, &run)
                .map_err(|error| StoreError::io("rename", &replaced, error))?;
            sync_directory(&self.path)?;
        }
        remove(&replaced)?;
        remove(&self.hidden(RECEIVED, at))
    }

    /// Opens the run directory at a path, and checks that it has the plan of a machine.
    fn check(&self, at: usize, path: &Path) -> Result<RunDirectory, StoreError> {
        let is_own = path.symlink_metadata().is_ok_and(|found| found.is_dir());
        let run = RunDirectory::open(path)?;
        if !is_own || run.plan() != &self.plan_of(at)? {
            return Err(StoreError::OtherPlan(path.into()));
        }
        Ok(run)
    }

    fn save(&self) -> Result<(), StoreError> {
        if self.lock.is_none() {
            return Err(StoreError::ReadOnly(self.path.clone()));
        }
        write_whole(&self.path, STATE, &pretty(&self.fleet))
    }
}

/// Removes a tree of files, if it exists.
fn remove(path: &Path) -> Result<(), StoreError> {
    let failed = |error| StoreError::io("remove", path, error);
    let found = match path.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        found => found.map_err(failed)?,
    };
    if !found.is_dir() {
        return weigh_disk::remove_file(path).map_err(failed);
    }
    for entry in std::fs::read_dir(path).map_err(failed)? {
        remove(&entry.map_err(failed)?.path())?;
    }
    weigh_disk::remove_directory(path).map_err(failed)
}

#[cfg(test)]
mod tests;
