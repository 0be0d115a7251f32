//! What is kept between runs because it is dear to make again: guest kernels, root file systems,
//! proofs of acceleration.
//!
//! ```text
//! WEIGH_CACHE, else /var/cache/weighbridge as root, else $XDG_CACHE_HOME/weighbridge, which is ~/.cache/weighbridge by default
//! ```
//!
//! Nothing in it is needed: whoever removes the directory while no run goes on only has it made
//! again. An entry is made in a directory beside its place, which is in the ledger, and gets its
//! name when it is whole; what has its name is whole.

use crate::ledger::{Change, Ledger, LedgerError};
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long one run waits for another that makes the same entry.
const LOCK_DEADLINE: Duration = Duration::from_secs(600);

/// Ending of the names of what is not whole.
pub const STAGING: &str = ".new";
/// Between the entry's name and that of the run which makes it.
const MADE_BY: &str = ".by-";

/// Why an entry of the cache cannot be had; `E` is why it could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CacheError<E: std::error::Error> {
    /// No place is known for it.
    #[error(
        "there is no place for weighbridge's cache: neither WEIGH_CACHE nor XDG_CACHE_HOME nor HOME is set to an absolute path; set WEIGH_CACHE to a directory"
    )]
    NoPlace,
    /// Another run has been making the same entry for too long.
    #[error("another run has held {path} for {after:?}; end it, or remove the file if there is none")]
    Held {
        /// The lock's file.
        path: PathBuf,
        /// How long.
        after: Duration,
    },
    /// The directory cannot be used.
    #[error("cannot {doing} {path}: {source}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The change could not be recorded, so it was not made.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The entry could not be made.
    #[error(transparent)]
    Make(E),
}

/// The directory of what is kept between runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheDirectory {
    path: PathBuf,
}

impl CacheDirectory {
    /// The directory that this user's runs on this host share; `None` when no place is known for
    /// it.
    pub fn open() -> Option<Self> {
        let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        if let Some(path) = variable("WEIGH_CACHE") {
            return Some(Self::at(path));
        }
        if crate::facts::is_root() {
            return Some(Self::at("/var/cache/weighbridge"));
        }
        let base = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")))?;
        Some(Self::at(base.join("weighbridge")))
    }

    /// A directory of the caller's choice.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The directory itself. It may not exist.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The entry of this name if it is there, a path below the directory.
    pub fn get(&self, name: &str) -> Option<PathBuf> {
        Some(self.path.join(name)).filter(|path| path.exists())
    }

    /// The directory of this name, made by `make` when it is not there. `make` gets an empty
    /// directory that nobody else sees. Two runs at once make it once.
    ///
    /// # Errors
    /// [`CacheError`]; then nothing has the entry's name.
    pub fn directory<E: std::error::Error>(
        &self,
        name: &str,
        ledger: &Ledger,
        make: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<PathBuf, CacheError<E>> {
        self.directory_with(&mut |waited| waited < LOCK_DEADLINE, name, ledger, make)
    }

    /// As [`CacheDirectory::directory`], for what takes long to make: while another run makes the
    /// same entry, `patience` is asked again and again, with how long that has been, whether to go
    /// on waiting.
    ///
    /// # Errors
    /// As [`CacheDirectory::directory`].
    pub fn directory_with<E: std::error::Error>(
        &self,
        patience: &mut dyn FnMut(Duration) -> bool,
        name: &str,
        ledger: &Ledger,
        make: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<PathBuf, CacheError<E>> {
        let place = self.path.join(name);
        if place.exists() {
            return Ok(place);
        }
        let parent = place.parent().unwrap_or(&self.path).to_path_buf();
        fs::create_dir_all(&parent).map_err(io("make the directory", &parent))?;
        let _lock = lock(&with_ending(&place, ".lock"), patience)?;
        if place.exists() {
            return Ok(place);
        }
        let staging = staging(&place, ledger)?;
        let entry = ledger.record(Change::Directory { path: staging.clone() })?;
        let made = fs::create_dir(&staging).map_err(io("make the directory", &staging)).and_then(|()| {
            make(&staging).map_err(CacheError::Make)?;
            sync_tree(&staging).map_err(io("sync", &staging))?;
            fs::rename(&staging, &place).map_err(io("make", &place))
        });
        if made.is_err() {
            fs::remove_dir_all(&staging).map_err(io("remove", &staging))?;
        }
        ledger.forget(entry)?;
        made.map(|()| place)
    }

    /// Removes the directory of this name. It loses its name first, so that what has a name is
    /// always whole. Whether there was one.
    ///
    /// # Errors
    /// [`CacheError`]; what could not be removed has no name any more, and is in the ledger.
    pub fn remove(&self, name: &str, ledger: &Ledger) -> Result<bool, CacheError<io::Error>> {
        let place = self.path.join(name);
        if !place.exists() {
            return Ok(false);
        }
        let _lock = lock(&with_ending(&place, ".lock"), &mut |waited| waited < LOCK_DEADLINE)?;
        let staging = staging(&place, ledger)?;
        let entry = ledger.record(Change::Directory { path: staging.clone() })?;
        let there = match fs::rename(&place, &staging) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            renamed => renamed.map(|()| true).map_err(io("rename", &place))?,
        };
        remove_tree(&staging)?;
        ledger.forget(entry)?;
        Ok(there)
    }
}

fn io<E: std::error::Error>(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CacheError<E> {
    let path = path.to_path_buf();
    move |source| CacheError::Io { doing, path, source }
}

/// Removes a directory with everything in it, if it is there.
fn remove_tree<E: std::error::Error>(path: &Path) -> Result<(), CacheError<E>> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Where an entry is made, or removed. The name is this run's own, so that undoing what a dead run
/// has recorded never meets a living one. Under the entry's lock nobody else works on it, so what
/// is there of runs that died is removed first.
fn staging<E: std::error::Error>(place: &Path, ledger: &Ledger) -> Result<PathBuf, CacheError<E>> {
    let (Some(parent), Some(name)) = (place.parent(), place.file_name()) else {
        return Ok(with_ending(place, STAGING));
    };
    let prefix = format!("{}{MADE_BY}", name.to_string_lossy());
    for entry in fs::read_dir(parent).map_err(io("read the directory", parent))?.flatten() {
        let name = entry.file_name();
        if name.to_string_lossy().strip_prefix(&prefix).is_some_and(|rest| rest.ends_with(STAGING)) {
            remove_tree(&entry.path())?;
        }
    }
    Ok(with_ending(place, &format!("{MADE_BY}{}{STAGING}", ledger.run())))
}

/// Holds the lock of an entry until it is dropped. The empty file stays: removing it could leave
/// two runs with a lock each.
fn lock<E: std::error::Error>(
    path: &Path,
    patience: &mut dyn FnMut(Duration) -> bool,
) -> Result<File, CacheError<E>> {
    let failed = |source| CacheError::Io { doing: "lock", path: path.into(), source };
    let file = File::options().create(true).append(true).open(path).map_err(failed)?;
    let since = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
            Err(TryLockError::WouldBlock) if patience(since.elapsed()) => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(TryLockError::WouldBlock) => {
                return Err(CacheError::Held { path: path.into(), after: since.elapsed() });
            }
        }
    }
}

/// Puts what was written on disk, so that after a power failure the name does not stand for empty
/// files.
fn sync_tree(directory: &Path) -> io::Result<()> {
    let file = File::open(directory)?;
    rustix::fs::syncfs(&file)?;
    Ok(())
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::StateDirectory;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn ledger(base: &Path, run: &str) -> Ledger {
        Ledger::create(&StateDirectory::at(base.join("state")), run).unwrap()
    }

    #[test]
    fn an_entry_is_made_once_by_two_at_a_time() {
        let base = tempfile::tempdir().unwrap();
        let cache = CacheDirectory::at(base.path().join("cache"));
        let made = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for run in ["a", "b", "c"] {
                let (cache, made, base) = (&cache, &made, base.path());
                scope.spawn(move || {
                    let ledger = ledger(base, run);
                    let place = cache
                        .directory("kernels/k", &ledger, |staging| {
                            made.fetch_add(1, Ordering::SeqCst);
                            std::thread::sleep(Duration::from_millis(100));
                            fs::write(staging.join("file"), "whole")
                        })
                        .unwrap();
                    assert_eq!(fs::read_to_string(place.join("file")).unwrap(), "whole");
                    assert_eq!(ledger.standing(), []);
                });
            }
        });
        assert_eq!(made.load(Ordering::SeqCst), 1);
        assert!(cache.get("kernels/k").is_some());
    }

    #[test]
    fn what_fails_and_what_a_crash_leaves_has_no_name() {
        let base = tempfile::tempdir().unwrap();
        let cache = CacheDirectory::at(base.path().join("cache"));
        let ledger = ledger(base.path(), "run");
        // As a run leaves it that died in the middle.
        let half = base.path().join("cache/k.by-dead.new");
        fs::create_dir_all(&half).unwrap();
        fs::write(half.join("half"), "").unwrap();
        let error = cache
            .directory("k", &ledger, |staging| {
                assert!(!half.exists() && staging.ends_with("k.by-run.new"));
                assert_eq!(ledger.standing(), [Change::Directory { path: staging.into() }]);
                fs::write(staging.join("file"), "half").unwrap();
                Err(io::Error::other("no network"))
            })
            .unwrap_err();
        assert_eq!(error.to_string(), "no network");
        assert!(cache.get("k").is_none() && !base.path().join("cache/k.by-run.new").exists());
        assert_eq!(ledger.standing(), []);
    }

    #[test]
    fn who_has_no_patience_does_not_wait() {
        let base = tempfile::tempdir().unwrap();
        let cache = CacheDirectory::at(base.path().join("cache"));
        let result = cache.directory("k", &ledger(base.path(), "a"), |_| {
            let mut asked = 0;
            let mut patience = |_| {
                asked += 1;
                asked < 3
            };
            let other = cache
                .directory_with(&mut patience, "k", &ledger(base.path(), "b"), |_| Ok::<_, io::Error>(()));
            assert!(matches!(other, Err(CacheError::Held { .. })));
            assert_eq!(asked, 3);
            Ok::<_, io::Error>(())
        });
        result.unwrap();
    }

    #[test]
    fn what_is_removed_can_be_made_again() {
        let base = tempfile::tempdir().unwrap();
        let cache = CacheDirectory::at(base.path().join("cache"));
        let ledger = ledger(base.path(), "run");
        assert!(!cache.remove("k", &ledger).unwrap());
        let make = |staging: &Path| fs::write(staging.join("file"), "");
        cache.directory("k", &ledger, make).unwrap();
        assert!(cache.remove("k", &ledger).unwrap());
        assert!(cache.get("k").is_none() && !base.path().join("cache/k.by-run.new").exists());
        assert!(cache.directory("k", &ledger, make).unwrap().join("file").exists());
        assert_eq!(ledger.standing(), []);
    }
}
