//! The host as one run uses it: lock, ledger, scratch directory, guest programs.

use crate::embedded;
use crate::error::{Failure, Kind, file_failure};
use std::fs;
use std::path::PathBuf;
use weigh_host::cgroup::Hierarchy;
use weigh_host::ledger::{self, Change, Ledger};
use weigh_host::lock::{HostLock, LockError};
use weigh_host::state::StateDirectory;
use weigh_host::{clock, facts};
use weigh_platforms::{Host, Undoers};

/// The right to change this host, until dropped or closed.
pub struct Occupied {
    /// What platforms work with.
    pub host: Host,
    /// Runs that ended without undoing their changes, with the number of changes left.
    pub leftovers: Vec<(String, usize)>,
    lock: HostLock,
}

impl Occupied {
    /// Takes the lock, opens a ledger, makes the scratch directory. `run` is a path or a word for
    /// the lock's holder line.
    ///
    /// # Errors
    /// Another run holds the lock; the state directory cannot be written.
    pub fn new(run: &str, logs: Option<PathBuf>) -> Result<Self, Failure> {
        let state = state_directory()?;
        let lock = HostLock::acquire(&state, run).map_err(|error| match error {
            LockError::Held { pid, run, since } => Failure::new(
                Kind::Failed,
                format!("another run is going on: process {pid}, {run}, since {since}"),
            )
            .hint("one run at a time per host; wait for it to end or stop it with Ctrl-C"),
            other => {
                Failure::new(Kind::Failed, "cannot take the lock of this host").because(other).hint(PLACE)
            }
        })?;
        // Nobody else holds the lock: whatever ledgers there are belong to runs that died, or to an
        // image that is being built.
        let pending = ledger::pending(&state).map_err(ledger_failure)?.into_iter();
        let dead = pending.filter(|(run, _)| !ledger::is_live(&state, run));
        let leftovers = dead.map(|(run, changes)| (run, changes.len())).collect();
        let id = format!("{}-{}", clock::utc_now().replace([':', '-'], ""), std::process::id());
        let ledger = Ledger::create(&state, &id).map_err(ledger_failure)?;
        let work = state.path().join(format!("work-{id}"));
        ledger.record(Change::Directory { path: work.clone() }).map_err(ledger_failure)?;
        // Some tools change their directory before they open their log.
        let logs = logs.and_then(|logs| std::path::absolute(logs).ok()).unwrap_or_else(|| work.join("logs"));
        for directory in [&work, &logs] {
            fs::create_dir_all(directory)
                .map_err(|error| file_failure("make the directory", directory, error))?;
        }
        let programs = embedded::write_out(&work)?;
        let hierarchy = Hierarchy::detect();
        let host = Host { ledger, hierarchy, work, logs, run: id, programs, is_root: facts::is_root() };
        Ok(Self { host, leftovers, lock })
    }

    /// Undoes every change that is left, newest first.
    ///
    /// # Errors
    /// A change that cannot be undone; it stays in the ledger for `weigh clean`.
    pub fn close(self) -> Result<(), Failure> {
        let closed = self.host.ledger.close(&Undoers).map_err(ledger_failure);
        drop(self.lock);
        closed
    }
}

/// The state directory of this user.
///
/// # Errors
/// No place is known for it.
pub fn state_directory() -> Result<StateDirectory, Failure> {
    StateDirectory::open().map_err(|error| Failure::input(error.to_string()))
}

/// What to do where the state directory cannot be used.
const PLACE: &str =
    "see who owns it and whether its disk is full, or set WEIGH_STATE to a directory that you may write";

/// A failure of the ledger.
pub fn ledger_failure(error: ledger::LedgerError) -> Failure {
    let hint = match error {
        ledger::LedgerError::Io { .. } => PLACE,
        _ => "`weigh clean` undoes what is recorded; nothing is changed without a record",
    };
    Failure::new(Kind::Failed, "the record of host changes failed").because(error).hint(hint)
}
