//! Making an image in the cache, from any source.

use crate::store::{CachedImage, Store};
use std::cell::RefCell;
use std::error::Error;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weigh_host::cache::CacheError;
use weigh_host::ledger::Ledger;

/// Why an image could not be put into the cache.
#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    /// The user interrupted it.
    #[error("it was interrupted; no part of it is kept")]
    Interrupted,
    /// The cache cannot be used.
    #[error(
        "the cache cannot be used: {0}; set WEIGH_CACHE to a directory of yours that nobody else may write"
    )]
    Cache(String),
}

/// Receives reports while an image is made, and can interrupt it.
pub struct Progress<'a> {
    report: RefCell<&'a mut dyn FnMut(&str)>,
    interrupt: &'a AtomicBool,
}

impl<'a> Progress<'a> {
    /// `report` is called with single lines; setting `interrupt` aborts the work.
    pub fn new(report: &'a mut dyn FnMut(&str), interrupt: &'a AtomicBool) -> Self {
        Self { report: RefCell::new(report), interrupt }
    }

    pub(crate) fn report(&self, line: &str) {
        (self.report.borrow_mut())(line);
    }

    pub(crate) fn interrupted(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed)
    }

    /// Whether to wait longer for another run that makes the same image, up to `deadline`.
    fn keep_waiting(&self, deadline: Duration) -> impl FnMut(Duration) -> bool {
        let mut reported = false;
        move |waited| {
            if !std::mem::replace(&mut reported, true) {
                self.report("another weigh is making it; waiting");
            }
            waited < deadline && !self.interrupted()
        }
    }
}

impl Store {
    /// The image of an entry, made by `make` in an empty directory if it does not exist. If two
    /// runs make it at the same time, the second waits for the first, up to `deadline`.
    pub(crate) fn make<E: Error + From<MakeError>>(
        &self,
        entry: &str,
        ledger: &Ledger,
        progress: &Progress<'_>,
        deadline: Duration,
        make: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<CachedImage, E> {
        let mut keep_waiting = progress.keep_waiting(deadline);
        let made = self.cache().directory_with(&mut keep_waiting, entry, ledger, make);
        let cause = match made {
            Ok(place) => match self.get(entry) {
                Some(image) => return Ok(image),
                None => {
                    MakeError::Cache(format!("{} has no record that this version reads", place.display()))
                }
            },
            Err(CacheError::Make(error)) => return Err(error),
            Err(CacheError::Held { .. }) if progress.interrupted() => MakeError::Interrupted,
            Err(other) => MakeError::Cache(other.to_string()),
        };
        Err(cause.into())
    }
}
