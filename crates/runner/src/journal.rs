//! Writes records and events, and keeps the state that follows from them.

use crate::RunnerError;
use crate::history::History;
use std::time::Duration;
use weigh_host::clock::utc_now;
use weigh_model::{Effort, Event, Exclusion, Plan, Record, Timestamped};
use weigh_store::RunDirectory;

/// The only writer of a run: every record is on disk first, then in the [`History`], then reported.
pub(crate) struct Journal<'a> {
    store: &'a mut RunDirectory,
    emit: &'a mut dyn FnMut(Event),
    records: Vec<Record>,
    /// Set in a run of fixed duration: only the last record of trials and void units is kept in
    /// memory, because there are too many of them. The history has what follows from them.
    drops_old_trials: bool,
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
        let drops_old_trials = matches!(plan.effort, Effort::Lasting { .. });
        let records = read.records;
        let mut journal = Self { store, emit, records, drops_old_trials, history, sync: Duration::ZERO };
        if let Some(message) = read.recovered {
            journal.warn(message)?;
        }
        Ok(journal)
    }

    /// Writes and syncs a record.
    pub(crate) fn append(&mut self, record: Record) -> Result<(), RunnerError> {
        self.sync += self.store.append(&record)?;
        self.history.add(&record);
        if self.drops_old_trials && is_of_a_trial(&record) {
            self.records.retain(|record| !is_of_a_trial(record));
        }
        self.records.push(record);
        Ok(())
    }

    /// Records that a cell is excluded, with the first reason alone.
    pub(crate) fn exclude(&mut self, exclusion: Exclusion) -> Result<(), RunnerError> {
        if self.history.is_excluded(&exclusion.environment, &exclusion.workload) {
            return Ok(());
        }
        self.append(Record::Excluded(exclusion))
    }

    /// Records a warning without reporting it, because the caller gets an error as well.
    pub(crate) fn file_warning(&mut self, message: String) -> Result<(), RunnerError> {
        Ok(self.store.append_event(&Timestamped { at: utc_now(), event: Event::Warning { message } })?)
    }

    /// Reports an event, and records it without a sync.
    pub(crate) fn event(&mut self, event: Event) -> Result<(), RunnerError> {
        self.store.append_event(&Timestamped { at: utc_now(), event: event.clone() })?;
        (self.emit)(event);
        Ok(())
    }

    pub(crate) fn warn(&mut self, message: String) -> Result<(), RunnerError> {
        self.event(Event::Warning { message })
    }

    /// Hands buffered events to the system. Meant for the time between blocks.
    pub(crate) fn flush(&mut self) -> Result<(), RunnerError> {
        Ok(self.store.flush_events()?)
    }

    pub(crate) fn history(&self) -> &History<'a> {
        &self.history
    }

    /// The records in memory: all of them. In a run of fixed duration, once this process has
    /// recorded a trial or a void unit, only the last record of this kind is left.
    pub(crate) fn records(&self) -> &[Record] {
        &self.records
    }

    /// Time that the syncs of records took.
    pub(crate) fn sync(&self) -> Duration {
        self.sync
    }
}

fn is_of_a_trial(record: &Record) -> bool {
    matches!(record, Record::Trial(_) | Record::WholeBaseline(_) | Record::Void(_))
}
