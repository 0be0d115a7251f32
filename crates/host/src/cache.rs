//! The cache: guest kernels, root file systems, proofs of acceleration and the last selftest, which
//! are expensive to make again.
//!
//! ```text
//! WEIGH_CACHE, else /var/cache/weighbridge as root, else $XDG_CACHE_HOME/weighbridge, which is ~/.cache/weighbridge by default
//! ```
//!
//! The directory may be removed while no run is active; later runs make it again. An entry is made
//! in a staging directory, which is in the ledger, and is renamed when it is complete, so that an
//! entry that exists is complete.
//!
//! What is in the cache is executed and booted, so no other user may own or write it
//! ([`crate::private`]). Images hold programs with set-user-ID bits and owners of any number, so
//! every entry is closed to others.

use crate::ledger::{Change, Ledger, LedgerError, remove_tree};
use crate::private::{self, UnsafePath};
use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a run waits for another that makes the same entry.
const LOCK_DEADLINE: Duration = Duration::from_secs(600);

/// Extension of staging directories.
pub const STAGING: &str = ".new";
/// Separates the name of the entry from that of the run which makes it.
const MADE_BY: &str = ".by-";

/// Why an entry of the cache is not available. `E` is the error of making it.
#[derive(Debug, thiserror::Error)]
pub enum CacheError<E: std::error::Error> {
    /// No directory is known for the cache.
    #[error(
        "there is no place for weighbridge's cache: neither WEIGH_CACHE nor XDG_CACHE_HOME nor HOME is set to an absolute path; set WEIGH_CACHE to a directory"
    )]
    NoPlace,
    /// Another user could change the cache.
    #[error(transparent)]
    Unsafe(#[from] UnsafePath),
    /// Another run has been making the same entry for too long.
    #[error("another weigh has held the lock {path} for {after:?}; wait for it or stop it")]
    Held {
        /// The lock file.
        path: PathBuf,
        /// How long this run waited.
        after: Duration,
    },
    /// An operation on a file or directory of the cache failed.
    #[error("cannot {doing} {path}: {source}")]
    Io {
        /// The operation, a verb.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The change could not be recorded, so it was not made.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The entry could not be made.
    #[error(transparent)]
    Make(E),
}

/// The directory of the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheDirectory {
    path: PathBuf,
}

impl CacheDirectory {
    /// The directory shared by all runs of this user on this host; `None` if none is known.
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

    /// A directory chosen by the caller.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The directory itself. It may not exist.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Checks that nobody else can change what is in the directory, if it exists.
    ///
    /// # Errors
    /// [`UnsafePath`].
    pub fn check(&self) -> Result<(), UnsafePath> {
        private::check(&self.path)
    }

    /// Closes a directory of entries to others, if it exists. Earlier versions left theirs open.
    ///
    /// # Errors
    /// [`UnsafePath`].
    pub fn close(&self, name: &str) -> Result<(), UnsafePath> {
        let path = self.path.join(name);
        if path.exists() { private::close(&path) } else { Ok(()) }
    }

    /// Makes a directory for entries, or closes it to others. The cache directory itself keeps its
    /// mode if it exists, because it may be a directory of the user's.
    fn prepare(&self, directory: &Path) -> Result<(), UnsafePath> {
        private::prepare(&self.path)?;
        if directory == self.path { Ok(()) } else { private::close(directory) }
    }

    /// The path of an entry, if it exists. `name` is a path below the directory.
    pub fn get(&self, name: &str) -> Option<PathBuf> {
        Some(self.path.join(name)).filter(|path| path.exists())
    }

    /// The path of an entry, which `make` fills in an empty staging directory if it does not exist.
    /// Two runs at the same time make it only once.
    ///
    /// # Errors
    /// [`CacheError`]; then the entry does not exist.
    pub fn directory<E: std::error::Error>(
        &self,
        name: &str,
        ledger: &Ledger,
        make: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<PathBuf, CacheError<E>> {
        self.directory_with(&mut |waited| waited < LOCK_DEADLINE, name, ledger, make)
    }

    /// Like [`CacheDirectory::directory`], for entries that take long to make: while another run
    /// makes the same entry, `keep_waiting` is called repeatedly with the time waited so far, and
    /// ends the waiting by returning `false`.
    ///
    /// # Errors
    /// The same as [`CacheDirectory::directory`].
    pub fn directory_with<E: std::error::Error>(
        &self,
        keep_waiting: &mut dyn FnMut(Duration) -> bool,
        name: &str,
        ledger: &Ledger,
        make: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<PathBuf, CacheError<E>> {
        let path = self.path.join(name);
        if path.exists() {
            return Ok(path);
        }
        let parent = path.parent().unwrap_or(&self.path).to_path_buf();
        self.prepare(&parent)?;
        let _lock = lock(&with_suffix(&path, ".lock"), keep_waiting)?;
        if path.exists() {
            return Ok(path);
        }
        let staging = staging(&path, ledger)?;
        let entry = ledger.record(Change::Directory { path: staging.clone() })?;
        let made = private::close(&staging).map_err(CacheError::Unsafe).and_then(|()| {
            make(&staging).map_err(CacheError::Make)?;
            sync_tree(&staging).map_err(io("sync", &staging))?;
            fs::rename(&staging, &path).map_err(io("make", &path))?;
            weigh_disk::sync_directory(&parent).map_err(io("sync", &parent))
        });
        if made.is_err() {
            remove(&staging)?;
        }
        ledger.forget(entry)?;
        made.map(|()| path)
    }

    /// Removes an entry, and returns whether it existed. It is renamed first, so that an entry that
    /// exists is always complete.
    ///
    /// # Errors
    /// [`CacheError`]; then the renamed remains are in the ledger.
    pub fn remove(&self, name: &str, ledger: &Ledger) -> Result<bool, CacheError<io::Error>> {
        let path = self.path.join(name);
        if !path.exists() {
            return Ok(false);
        }
        let _lock = lock(&with_suffix(&path, ".lock"), &mut |waited| waited < LOCK_DEADLINE)?;
        let staging = staging(&path, ledger)?;
        let entry = ledger.record(Change::Directory { path: staging.clone() })?;
        let existed = match fs::rename(&path, &staging) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            renamed => renamed.map(|()| true).map_err(io("rename", &path))?,
        };
        remove(&staging)?;
        ledger.forget(entry)?;
        Ok(existed)
    }
}

fn io<E: std::error::Error>(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CacheError<E> {
    let path = path.to_path_buf();
    move |source| CacheError::Io { doing, path, source }
}

/// Removes a directory with everything in it, if it exists.
fn remove<E: std::error::Error>(path: &Path) -> Result<(), CacheError<E>> {
    remove_tree(path).map_err(|error| io("remove", path)(io::Error::other(error)))
}

/// The staging directory of an entry. Its name contains that of the run, so that undoing the
/// changes of a dead run cannot disturb a live one. The caller holds the lock of the entry, so
/// staging directories that exist belong to dead runs and are removed.
fn staging<E: std::error::Error>(path: &Path, ledger: &Ledger) -> Result<PathBuf, CacheError<E>> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(with_suffix(path, STAGING));
    };
    let prefix = format!("{}{MADE_BY}", name.to_string_lossy());
    for entry in fs::read_dir(parent).map_err(io("read the directory", parent))?.flatten() {
        let name = entry.file_name();
        if name.to_string_lossy().strip_prefix(&prefix).is_some_and(|rest| rest.ends_with(STAGING)) {
            remove(&entry.path())?;
        }
    }
    Ok(with_suffix(path, &format!("{MADE_BY}{}{STAGING}", ledger.run())))
}

/// Whether this is the name of a staging directory.
pub(crate) fn is_staging(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.contains(MADE_BY) && name.ends_with(STAGING)
}

/// Takes the lock of an entry, held until the file is dropped. The empty file is not removed:
/// otherwise two runs could hold the locks of two files of the same name.
fn lock<E: std::error::Error>(
    path: &Path,
    keep_waiting: &mut dyn FnMut(Duration) -> bool,
) -> Result<File, CacheError<E>> {
    let failed = |source| CacheError::Io { doing: "lock", path: path.into(), source };
    let file = private::open_regular(path, File::options().create(true).append(true)).map_err(failed)?;
    let since = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
            Err(TryLockError::WouldBlock) if keep_waiting(since.elapsed()) => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(TryLockError::WouldBlock) => {
                return Err(CacheError::Held { path: path.into(), after: since.elapsed() });
            }
        }
    }
}

/// Syncs the file system, so that the files of an entry are not empty after a power failure.
fn sync_tree(directory: &Path) -> io::Result<()> {
    let file = File::open(directory)?;
    rustix::fs::syncfs(&file)?;
    Ok(())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::StateDirectory;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn ledger(base: &Path, run: &str) -> Ledger {
        Ledger::create(&StateDirectory::at(base.join("state")), run).unwrap()
    }

    #[test]
    fn an_entry_is_made_once_by_two_at_a_time() {
        let base = tempfile::tempdir().unwrap();
        let cache = CacheDirectory::at(base.path().join("cache"));
        let (made, waiting) = (AtomicU32::new(0), Barrier::new(3));
        std::thread::scope(|scope| {
            for run in ["a", "b", "c"] {
                let (cache, made, waiting, base) = (&cache, &made, &waiting, base.path());
                scope.spawn(move || {
                    let ledger = ledger(base, run);
                    // The run that makes the entry first goes on once the other two wait for it.
                    let mut first = true;
                    let mut keep_waiting = |_| {
                        if std::mem::take(&mut first) {
                            waiting.wait();
                        }
                        true
                    };
                    let make = |staging: &Path| {
                        made.fetch_add(1, Ordering::SeqCst);
                        waiting.wait();
                        fs::write(staging.join("file"), "whole")
                    };
                    let path = cache.directory_with(&mut keep_waiting, "kernels/k", &ledger, make).unwrap();
                    assert_eq!(fs::read_to_string(path.join("file")).unwrap(), "whole");
                    assert_eq!(ledger.standing(), []);
                });
            }
        });
        assert_eq!(made.load(Ordering::SeqCst), 1);
        assert!(cache.get("kernels/k").is_some());
    }

    #[test]
    fn failed_and_interrupted_entries_do_not_exist() {
        let base = tempfile::tempdir().unwrap();
        let cache = CacheDirectory::at(base.path().join("cache"));
        let ledger = ledger(base.path(), "run");
        // The staging directory as a run that died leaves it.
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
    fn waiting_can_be_ended_early() {
        let base = tempfile::tempdir().unwrap();
        let cache = CacheDirectory::at(base.path().join("cache"));
        let result = cache.directory("k", &ledger(base.path(), "a"), |_| {
            let mut asked = 0;
            let mut keep_waiting = |_| {
                asked += 1;
                asked < 3
            };
            let other = cache.directory_with(&mut keep_waiting, "k", &ledger(base.path(), "b"), |_| {
                Ok::<_, io::Error>(())
            });
            assert!(matches!(other, Err(CacheError::Held { .. })));
            assert_eq!(asked, 3);
            Ok::<_, io::Error>(())
        });
        result.unwrap();
    }

    #[test]
    fn entries_are_closed_and_caches_of_others_are_refused() {
        use std::os::unix::fs::PermissionsExt;
        let base = tempfile::tempdir().unwrap();
        let cache = CacheDirectory::at(base.path().join("cache"));
        let ledger = ledger(base.path(), "run");
        let set = |path: &Path, mode| fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        // The directories as an earlier version left them.
        fs::create_dir_all(cache.path().join("images")).unwrap();
        set(cache.path(), 0o755);
        set(&cache.path().join("images"), 0o755);
        let make = |staging: &Path| fs::write(staging.join("file"), "");
        let entry = cache.directory("images/k", &ledger, make).unwrap();
        assert_eq!((mode(&entry), mode(entry.parent().unwrap())), (0o700, 0o700));
        assert_eq!(mode(&entry.with_extension("lock")), 0o600);
        assert_eq!(mode(cache.path()), 0o755, "a directory of the user's keeps its mode");
        set(cache.path(), 0o777);
        assert!(matches!(cache.check(), Err(UnsafePath::Writable { .. })));
        assert!(matches!(cache.directory("l", &ledger, make), Err(CacheError::Unsafe(_))));
        assert!(!cache.path().join("l").exists());
    }

    #[test]
    fn a_removed_entry_can_be_made_again() {
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
