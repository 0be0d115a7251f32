//! Making an image that is kept, whatever it is made from.

use crate::store::{Kept, Store};
use std::cell::RefCell;
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weigh_host::cache::CacheError;
use weigh_host::ledger::Ledger;

/// Why an image is not kept that could be made.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// Who waited for it does so no longer.
    #[error("it was interrupted; nothing of it is kept")]
    Interrupted,
    /// The cache cannot be used.
    #[error("the cache cannot be used: {0}; set WEIGH_CACHE to a directory that you may write")]
    Cache(String),
    /// The system refused something.
    #[error("could not {doing} {}: {source}", path.display())]
    Io {
        /// What was tried, a verb.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// What a refusal of the system is for who makes an image.
pub(crate) fn refused<'a, E: From<KeepError>>(
    doing: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> E + 'a {
    move |source| KeepError::Io { doing, path: path.into(), source }.into()
}

/// Who is told how the making of an image goes on, and can end it early.
pub struct Watch<'a> {
    say: RefCell<&'a mut dyn FnMut(&str)>,
    interrupt: &'a AtomicBool,
}

impl<'a> Watch<'a> {
    /// `say` is told in lines; `interrupt` turns true when the making shall end early.
    pub fn new(say: &'a mut dyn FnMut(&str), interrupt: &'a AtomicBool) -> Self {
        Self { say: RefCell::new(say), interrupt }
    }

    pub(crate) fn say(&self, line: &str) {
        (self.say.borrow_mut())(line);
    }

    pub(crate) fn interrupted(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed)
    }

    /// Waits for another run that makes the same image, up to `deadline`.
    pub(crate) fn patience(&self, deadline: Duration) -> impl FnMut(Duration) -> bool {
        let mut told = false;
        move |waited| {
            if !told {
                self.say("another weigh is making it; waiting");
                told = true;
            }
            waited < deadline && !self.interrupted()
        }
    }
}

impl Store {
    /// The image of this entry, made by `make` in an empty directory unless it is there. Two at
    /// once make it once: the second waits, up to `deadline`.
    pub(crate) fn make<E: Error + From<KeepError>>(
        &self,
        entry: &str,
        ledger: &Ledger,
        watch: &Watch<'_>,
        deadline: Duration,
        make: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<Kept, E> {
        let mut patience = watch.patience(deadline);
        let made = self.cache().directory_with(&mut patience, entry, ledger, make);
        let cause = match made {
            Ok(place) => match self.get(entry) {
                Some(kept) => return Ok(kept),
                None => {
                    KeepError::Cache(format!("{} has no record that this version reads", place.display()))
                }
            },
            Err(CacheError::Make(error)) => return Err(error),
            Err(CacheError::Held { .. }) if watch.interrupted() => KeepError::Interrupted,
            Err(other) => KeepError::Cache(other.to_string()),
        };
        Err(cause.into())
    }
}
