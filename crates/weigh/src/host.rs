//! Access to the host: a session that may change it, and the questions that planning asks.

use crate::embedded;
use crate::error::{ExitKind, Failure, file_failure};
use crate::request::random_seed;
use crate::ui;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use weigh_host::cgroup::Hierarchy;
use weigh_host::ledger::{self, Change, Ledger};
use weigh_host::lock::{HostLock, LockError};
use weigh_host::private::{self, UnsafePath};
use weigh_host::state::StateDirectory;
use weigh_host::{clock, facts};
use weigh_images::store::Store;
use weigh_images::{ImageError, Programs};
use weigh_model::{EnvironmentSpec, ImageSpec, number_of};
use weigh_platforms::loader::RemoteMachine;
use weigh_platforms::{self as platforms, Availability, Host, Platform, PlatformError, Undoers, remedy};

/// The right to change this host, until dropped or closed.
pub struct HostSession {
    /// The host as platforms use it.
    pub host: Host,
    /// Runs that ended without undoing their changes, with the number of changes left.
    pub leftovers: Vec<(String, usize)>,
    lock: HostLock,
}

impl HostSession {
    /// Takes the lock, opens a ledger and creates the scratch directory. `purpose` is a run's path
    /// or a few words, shown to others who find the lock taken.
    ///
    /// # Errors
    /// Another run holds the lock ([`ExitKind::HostBusy`]); the state directory cannot be written.
    pub fn open(purpose: &str, logs: Option<PathBuf>) -> Result<Self, Failure> {
        let state = state_directory()?;
        let lock = HostLock::acquire(&state, purpose).map_err(|error| match error {
            LockError::Held { pid, run, since } => Failure::new(
                ExitKind::HostBusy,
                format!("another run is going on: process {pid}, {run}, since {since}"),
            )
            .hint("one run at a time per host; wait for it to end or stop it with Ctrl-C"),
            LockError::Starting => Failure::of_error(ExitKind::HostBusy, &LockError::Starting),
            LockError::Unsafe(error) => unsafe_state(error),
            other => Failure::new(ExitKind::Failed, "cannot take the lock of this host")
                .because(other)
                .hint(STATE_DIRECTORY_HINT),
        })?;
        check_cache()?;
        // Nobody else holds the lock, so every other ledger belongs to a run that died or to an
        // image that is being built.
        let pending = ledger::pending(&state).map_err(ledger_failure)?;
        let dead = pending.runs.into_iter().filter(|(run, _)| !ledger::is_live(&state, run));
        let leftovers = dead.map(|(run, changes)| (run, changes.len())).collect();
        for (path, error) in pending.unreadable {
            ui::note(&format!("warning: the ledger {} cannot be read: {error}", path.display()));
        }
        let ledger = Ledger::create(&state, &run_id()).map_err(ledger_failure)?;
        match scratch(&state, &ledger, logs) {
            Ok((work, logs, programs)) => {
                let (run, hierarchy) = (ledger.run().to_string(), Hierarchy::detect());
                let (is_root, fetch_until) = (facts::is_root(), None);
                let host = Host { ledger, hierarchy, work, logs, run, programs, is_root, fetch_until };
                Ok(Self { host, leftovers, lock })
            }
            Err(failure) => {
                // Changes that cannot be undone stay in the ledger. The first failure is the one to
                // report.
                let _ = ledger.close(&Undoers);
                Err(failure)
            }
        }
    }

    /// Undoes the remaining changes, newest first.
    ///
    /// # Errors
    /// A change cannot be undone; it stays in the ledger for `weigh clean`.
    pub fn close(self) -> Result<(), Failure> {
        let closed = close_ledger(&self.host.ledger);
        drop(self.lock);
        closed
    }
}

/// Undoes the remaining changes of a ledger, newest first, and tells the user which ones stay.
///
/// # Errors
/// As [`HostSession::close`].
pub fn close_ledger(ledger: &Ledger) -> Result<(), Failure> {
    let closed = ledger.close(&Undoers).map_err(ledger_failure);
    for (change, reason) in ledger.left_in_place() {
        ui::note(&format!("note: kept {change}: {reason}"));
    }
    closed
}

/// Returns a name for a run that no other run has: the time and a random number. Engines and
/// clusters are shared by hosts and containers whose process IDs may be equal; a study has several
/// runs in a second, and what one of them could not undo keeps its name.
pub fn run_id() -> String {
    format!("{}-{:08x}", clock::utc_now().replace([':', '-'], ""), random_seed())
}

/// Makes the scratch directory of a run and the directory of its logs, and writes out the guest
/// programs.
///
/// # Errors
/// The directories cannot be made, or the programs cannot be written.
pub fn scratch(
    state: &StateDirectory,
    ledger: &Ledger,
    logs: Option<PathBuf>,
) -> Result<(PathBuf, PathBuf, Programs), Failure> {
    let work = state.path().join(format!("work-{}", ledger.run()));
    ledger.record(Change::Directory { path: work.clone() }).map_err(ledger_failure)?;
    private::close(&work).map_err(unsafe_state)?;
    // The path is absolute, because some tools change directory before they open their log.
    let logs = logs.and_then(|logs| std::path::absolute(logs).ok()).unwrap_or_else(|| work.join("logs"));
    fs::create_dir_all(&logs).map_err(|error| file_failure("make the directory", &logs, error))?;
    let programs = embedded::write_out(&work)?;
    Ok((work, logs, programs))
}

/// The state directory of this user.
///
/// # Errors
/// The environment does not say where it is.
pub fn state_directory() -> Result<StateDirectory, Failure> {
    StateDirectory::open().map_err(|error| Failure::input(error.to_string()))
}

const STATE_DIRECTORY_HINT: &str = "see who owns it and whether its disk is full, or set WEIGH_STATE to a directory of your own that nobody else may \
     write, such as /var/lib/weighbridge for root";

fn unsafe_state(error: UnsafePath) -> Failure {
    let message = match error {
        UnsafePath::Io { .. } => "the state directory cannot be used",
        _ => "the state directory is not used, because another user could write what weigh is to undo",
    };
    Failure::new(ExitKind::Failed, message).because(error).hint(STATE_DIRECTORY_HINT)
}

/// Refuses a cache that another user could change: what is in it is executed.
///
/// # Errors
/// [`UnsafePath`], as a failure.
pub fn check_cache() -> Result<(), Failure> {
    let checked = Store::open().map_or(Ok(()), |store| store.secure());
    checked.map_err(|error| {
        let message = match error {
            UnsafePath::Io { .. } => "the cache cannot be used",
            _ => "the cache is not used, because another user could change what weigh starts from it",
        };
        let hint = "set WEIGH_CACHE to a directory of your own that nobody else may write, such as /var/cache/weighbridge for root";
        Failure::new(ExitKind::Failed, message).because(error).hint(hint)
    })
}

/// Makes a failure of an error of the ledger.
pub fn ledger_failure(error: ledger::LedgerError) -> Failure {
    let error = match error {
        ledger::LedgerError::Unsafe(error) => return unsafe_state(error),
        other => other,
    };
    let hint = match error {
        ledger::LedgerError::Io { .. } => STATE_DIRECTORY_HINT,
        _ => "`weigh clean` undoes what is recorded; nothing is changed without a record",
    };
    Failure::new(ExitKind::Failed, "the record of host changes failed").because(error).hint(hint)
}

/// The questions that planning asks about the host. Bad input is refused before the first question,
/// so that a mistyped command never touches the host.
pub trait HostView {
    /// Returns the platforms to compare when the user names none. `fetching` is the time in which
    /// kernels of guests may be fetched, if it is bounded.
    ///
    /// # Errors
    /// The host cannot be used.
    fn ready_platforms(&mut self, fetching: Option<Duration>) -> Result<Vec<String>, Failure>;

    /// Makes an environment explicit, as [`Platform::make_explicit`] does.
    ///
    /// # Errors
    /// The host cannot be used; the inner error is the platform's own.
    fn make_explicit(
        &mut self,
        platform: &dyn Platform,
        environment: &EnvironmentSpec,
    ) -> Result<Result<EnvironmentSpec, PlatformError>, Failure>;

    /// Makes a load generator's environment explicit, as [`RemoteMachine::make_explicit`] does.
    ///
    /// # Errors
    /// The host cannot be used; the inner error says why the other machine cannot be used.
    fn make_loader_explicit(
        &mut self,
        machine: &RemoteMachine,
    ) -> Result<Result<EnvironmentSpec, PlatformError>, Failure>;

    /// Refuses an image that guests cannot use here.
    ///
    /// # Errors
    /// The image does not exist or was not built.
    fn check_image(&mut self, image: &ImageSpec) -> Result<(), ImageError> {
        Store::check(image)
    }

    /// Tells the user about a decision that was made for them.
    fn note(&mut self, text: &str);
}

/// Plans without touching the host: every platform counts as ready, and environments stay as the
/// user wrote them.
pub enum NoHost {
    /// Plans for the user to read: notes are shown, and images have to exist.
    DryRun,
    /// Plans for any host: every image counts as built, and nothing is shown.
    Anywhere,
}

impl HostView for NoHost {
    fn ready_platforms(&mut self, _: Option<Duration>) -> Result<Vec<String>, Failure> {
        Ok(platforms::defaults().map(|platform| platform.name().to_string()).collect())
    }

    fn make_explicit(
        &mut self,
        _: &dyn Platform,
        environment: &EnvironmentSpec,
    ) -> Result<Result<EnvironmentSpec, PlatformError>, Failure> {
        Ok(Ok(environment.clone()))
    }

    fn make_loader_explicit(
        &mut self,
        machine: &RemoteMachine,
    ) -> Result<Result<EnvironmentSpec, PlatformError>, Failure> {
        Ok(Ok(machine.environment()))
    }

    fn check_image(&mut self, image: &ImageSpec) -> Result<(), ImageError> {
        match self {
            Self::DryRun => Store::check(image),
            Self::Anywhere => Ok(()),
        }
    }

    fn note(&mut self, text: &str) {
        if matches!(self, Self::DryRun) {
            ui::note(&format!("note: {text}"));
        }
    }
}

/// This host. Its session opens at the first question that needs it.
#[derive(Default)]
pub struct LocalHost {
    session: Option<HostSession>,
}

impl LocalHost {
    /// Returns the host, in a session that [`Self::close`] ends.
    ///
    /// # Errors
    /// As [`HostSession::open`].
    pub fn host(&mut self) -> Result<&Host, Failure> {
        Ok(&self.session()?.host)
    }

    fn session(&mut self) -> Result<&mut HostSession, Failure> {
        let session = match self.session.take() {
            Some(session) => session,
            None => HostSession::open("making a plan", None)?,
        };
        Ok(self.session.insert(session))
    }

    /// Undoes the changes that were made to answer questions.
    ///
    /// # Errors
    /// A change cannot be undone.
    pub fn close(self) -> Result<(), Failure> {
        self.session.map_or(Ok(()), HostSession::close)
    }

    /// Asks questions, then closes the session whatever the answers were.
    ///
    /// # Errors
    /// Errors of the questions, or else of closing.
    pub fn ask<T>(questions: impl FnOnce(&mut Self) -> Result<T, Failure>) -> Result<T, Failure> {
        let mut host = Self::default();
        let answer = questions(&mut host);
        let closed = host.close();
        let answer = answer?;
        closed?;
        Ok(answer)
    }
}

impl HostView for LocalHost {
    fn ready_platforms(&mut self, fetching: Option<Duration>) -> Result<Vec<String>, Failure> {
        let host = &mut self.session()?.host;
        host.fetch_until = fetching.and_then(|time| Instant::now().checked_add(time));
        let platforms: Vec<_> = platforms::defaults().collect();
        let found = platforms::availabilities(host, &platforms);
        let (mut ready, mut late, mut missing) = (Vec::new(), Vec::new(), 0);
        for (platform, found) in platforms.iter().zip(found) {
            match found {
                Availability::Ready { .. } => ready.push(platform.name().to_string()),
                Availability::Missing { remedy: Some(remedy), .. } if remedy == remedy::FETCH => {
                    late.push(platform.name());
                }
                Availability::Missing { .. } => missing += 1,
            }
        }
        if missing > 0 {
            ui::note(&format!("{} not ready: `weigh doctor` says why", number_of(missing, "platform")));
        }
        if !late.is_empty() {
            self.note(&format!(
                "without {}: a kernel for its guests was not fetched in time; `weigh doctor` waits for it \
                 and keeps it",
                late.join(", ")
            ));
        }
        Ok(ready)
    }

    fn make_explicit(
        &mut self,
        platform: &dyn Platform,
        environment: &EnvironmentSpec,
    ) -> Result<Result<EnvironmentSpec, PlatformError>, Failure> {
        Ok(platform.make_explicit(self.host()?, environment))
    }

    fn make_loader_explicit(
        &mut self,
        machine: &RemoteMachine,
    ) -> Result<Result<EnvironmentSpec, PlatformError>, Failure> {
        Ok(machine.make_explicit(self.host()?))
    }

    fn note(&mut self, text: &str) {
        ui::note(&format!("note: {text}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_of_runs_are_random() {
        let names: BTreeSet<String> = (0..20).map(|_| run_id()).collect();
        assert_eq!(names.len(), 20, "{names:?}");
        for name in &names {
            let (time, random) = name.split_once('-').unwrap();
            assert!(time.len() == 16 && time.ends_with('Z'), "{name}");
            assert!(random.len() == 8 && u32::from_str_radix(random, 16).is_ok(), "{name}");
        }
    }
}
