//! The disk counters of a running machine, read from QEMU over a separate monitor, so that reading
//! does not disturb the machine's control.

use super::disks::{DATA, ROOT, moved};
use super::guest::pair;
use super::qmp::Qmp;
use crate::{DiskMeter, DiskMoved, Result};
use serde_json::{Value, json};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time limit for QEMU to answer; a guest without acceleration may keep its main thread busy.
const DEADLINE: Duration = Duration::from_secs(3);

/// The monitor, shared by its clones.
#[derive(Clone)]
pub(super) struct Meter(Arc<Mutex<State>>);

enum State {
    /// Not used yet.
    Silent(UnixStream),
    Open(Qmp),
    Lost,
}

impl Meter {
    /// Makes a meter, and QEMU's end of it.
    ///
    /// # Errors
    /// No socket could be made.
    pub(super) fn new() -> Result<(Self, OwnedFd)> {
        let (ours, theirs) = pair()?;
        Ok((Self(Arc::new(Mutex::new(State::Silent(ours.into())))), theirs))
    }

    /// The answer to a command without arguments; `None` if QEMU is gone or refuses.
    pub(super) fn ask(&self, command: &str) -> Option<Value> {
        let until = Instant::now() + DEADLINE;
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut qmp = match std::mem::replace(&mut *state, State::Lost) {
            State::Silent(stream) => Qmp::new(stream, until).ok()?,
            State::Open(qmp) => qmp,
            State::Lost => return None,
        };
        let answer = qmp.execute(command, json!({}), until).ok()?;
        *state = State::Open(qmp);
        Some(answer)
    }
}

impl DiskMeter for Meter {
    fn read(&mut self) -> Option<DiskMoved> {
        let answer = self.ask("query-blockstats")?;
        let disks: Vec<(u64, u64)> = [DATA, ROOT].iter().filter_map(|node| moved(&answer, node)).collect();
        let read_bytes = disks.iter().map(|(read, _)| read).sum();
        let written_bytes = disks.iter().map(|(_, written)| written).sum();
        (!disks.is_empty()).then_some(DiskMoved { read_bytes, written_bytes })
    }
}
