//! Where records and events go, and what is known from them.

use crate::RunnerError;
use crate::history::History;
use std::time::Duration;
use weigh_host::clock::utc_now;
use weigh_model::{Effort, Event, Plan, Record, Timestamped};
use weigh_store::RunDirectory;

/// The only writer of a run: whatever is recorded is on disk first, then known to the [`History`],
/// then told.
pub(crate) struct Journal<'a> {
    store: &'a mut RunDirectory,
    emit: &'a mut dyn FnMut(Event),
    records: Vec<Record>,
    /// Of the trials and void units only the last record is kept in memory: a run that lasts has no
    /// end to them, and what follows from them is in the history.
    forgets: bool,
    history: History<'a>,
    sync: Duration,
}

impl<'a> Journal<'a> {
    pub(crate) fn open(
        plan: &'a Plan,
        store: &'a mut RunDirectory,
        emit: &'a mut dyn FnMut(Event),
    ) -> Result<Self, RunnerError> {
        let read = store.records()?;
        let history = History::new(plan, &read.records);
        let forgets = matches!(plan.effort, Effort::Lasting { .. });
        let records = read.records;
        let mut journal = Self { store, emit, records, forgets, history, sync: Duration::ZERO };
        if let Some(message) = read.recovered {
            journal.warn(message)?;
        }
        Ok(journal)
    }

    /// Writes and syncs a record.
    pub(crate) fn append(&mut self, record: Record) -> Result<(), RunnerError> {
        self.sync += self.store.append(&record)?;
        self.history.add(&record);
        if self.forgets && is_of_a_trial(&record) {
            self.records.retain(|record| !is_of_a_trial(record));
        }
        self.records.push(record);
        Ok(())
    }

    /// Files a warning without telling it: for what the caller is told as an error.
    pub(crate) fn file_warning(&mut self, message: String) -> Result<(), RunnerError> {
        Ok(self.store.append_event(&Timestamped { at: utc_now(), event: Event::Warning { message } })?)
    }

    /// Tells an event, and files it without a sync.
    pub(crate) fn event(&mut self, event: Event) -> Result<(), RunnerError> {
        self.store.append_event(&Timestamped { at: utc_now(), event: event.clone() })?;
        (self.emit)(event);
        Ok(())
    }

    pub(crate) fn warn(&mut self, message: String) -> Result<(), RunnerError> {
        self.event(Event::Warning { message })
    }

    /// Hands buffered events to the system. For the time between blocks.
    pub(crate) fn flush(&mut self) -> Result<(), RunnerError> {
        Ok(self.store.flush_events()?)
    }

    pub(crate) fn history(&self) -> &History<'a> {
        &self.history
    }

    /// What is in memory: all records, in a run that lasts those before its first trial of this
    /// process, and the last.
    pub(crate) fn records(&self) -> &[Record] {
        &self.records
    }

    /// Time that the syncs of records took.
    pub(crate) fn sync(&self) -> Duration {
        self.sync
    }
}

fn is_of_a_trial(record: &Record) -> bool {
    matches!(record, Record::Trial(_) | Record::Void(_))
}
