//! The state directory, which survives crashes: ledgers and the lock of the host.

use crate::private::{self, UnsafePath};
use std::path::{Path, PathBuf};

/// Why there is no state directory.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Neither `WEIGH_STATE` nor a home directory is known.
    #[error(
        "there is no place for weighbridge's state: neither WEIGH_STATE nor XDG_STATE_HOME nor HOME is set; set WEIGH_STATE to a directory"
    )]
    NoPlace,
    /// An environment variable is set to a relative path.
    #[error("{variable} is `{path}`; it must be an absolute path")]
    Relative {
        /// Name of the environment variable.
        variable: &'static str,
        /// Its value.
        path: PathBuf,
    },
}

/// The directory of the ledgers and the lock, which nobody else may own or write
/// ([`crate::private`]).
///
/// Nothing is created before it is needed, what is created is closed to others, and empty
/// directories are removed again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateDirectory {
    path: PathBuf,
}

impl StateDirectory {
    /// The directory shared by all runs of this user on this host: `WEIGH_STATE`, else
    /// `/var/lib/weighbridge` as root, else `$XDG_STATE_HOME/weighbridge`, which is
    /// `~/.local/state/weighbridge` by default.
    ///
    /// # Errors
    /// [`StateError`]: no directory is known, or a variable is set to a relative path.
    pub fn open() -> Result<Self, StateError> {
        let variable = |name: &'static str| -> Result<Option<PathBuf>, StateError> {
            match std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from) {
                Some(path) if path.is_relative() => Err(StateError::Relative { variable: name, path }),
                other => Ok(other),
            }
        };
        if let Some(path) = variable("WEIGH_STATE")? {
            return Ok(Self::at(path));
        }
        if crate::facts::is_root() {
            return Ok(Self::at("/var/lib/weighbridge"));
        }
        if let Some(path) = variable("XDG_STATE_HOME")? {
            return Ok(Self::at(path.join("weighbridge")));
        }
        let home = variable("HOME")?.ok_or(StateError::NoPlace)?;
        Ok(Self::at(home.join(".local/state/weighbridge")))
    }

    /// A directory chosen by the caller.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The directory itself. It may not exist.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory of the ledgers. It may not exist.
    pub fn ledger_dir(&self) -> PathBuf {
        self.path.join("ledger")
    }

    /// The lock file of the host. It may not exist.
    pub fn lock_path(&self) -> PathBuf {
        self.path.join("lock")
    }

    /// Checks that nobody else can change what is in the directory, if it exists.
    ///
    /// # Errors
    /// [`UnsafePath`].
    pub fn check(&self) -> Result<(), UnsafePath> {
        private::check(&self.path)?;
        private::check(&self.ledger_dir())
    }

    /// Creates the directory, or checks it. Does not wait until its name is on disk.
    pub(crate) fn prepare(&self) -> Result<(), UnsafePath> {
        private::prepare_in_memory(&self.path).map(|_to_sync| ())
    }

    /// Creates the directory of the ledgers, or closes it to others. The caller must sync its name
    /// once it holds something: until then another process may remove the empty directory.
    pub(crate) fn prepare_ledgers(&self) -> Result<(), UnsafePath> {
        self.prepare()?;
        private::close_in_memory(&self.ledger_dir()).map(|_to_sync| ())
    }

    /// Removes the ledger directory and the directory itself if they are empty; `rmdir(2)` refuses
    /// otherwise.
    pub(crate) fn remove_if_empty(&self) {
        let _ = weigh_disk::remove_directory(&self.ledger_dir());
        let _ = weigh_disk::remove_directory(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_created_and_only_the_empty_is_removed() {
        let base = tempfile::tempdir().unwrap();
        let state = StateDirectory::at(base.path().join("a/b"));
        assert!(!state.path().exists());
        state.prepare().unwrap();
        std::fs::write(state.lock_path(), "x").unwrap();
        state.remove_if_empty();
        assert!(state.lock_path().exists());
        std::fs::remove_file(state.lock_path()).unwrap();
        state.remove_if_empty();
        assert!(!state.path().exists());
        assert!(base.path().join("a").exists());
    }
}
