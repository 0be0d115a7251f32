//! Freezing and thawing a control group, quickly enough to do it hundreds of times a second.

use crate::clock::monotonic_ns;
use crate::deadlines::scaled;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The time after which freezing or thawing a group fails.
const DEADLINE: Duration = Duration::from_secs(2);
/// A group usually freezes within tens of microseconds; the caller sleeps between checks only after
/// this long. It must be short: a process of the group that waits for the caller's own CPU does not
/// stop until the caller leaves that CPU.
const IMPATIENT: Duration = Duration::from_micros(60);
const PAUSE: Duration = Duration::from_micros(20);
/// A request is repeated only after this long. The kernel then signals every process again, which
/// takes as long as the first request: a tenth of a millisecond on a virtual machine.
const REPEAT_AFTER: Duration = Duration::from_micros(300);

/// The files by which the kernel freezes a group and all groups below it: `freezer.state` of
/// version 1 (kernel documentation, `cgroup-v1/freezer-subsystem`), `cgroup.freeze` of version 2
/// (`cgroup-v2`, "Core Interface Files").
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Freezer {
    directory: PathBuf,
    version_2: bool,
}

impl Freezer {
    /// The freezer of the group in a directory of a mounted hierarchy.
    pub fn of(directory: PathBuf, version_2: bool) -> Self {
        Self { directory, version_2 }
    }

    /// The freezer of another group of the same hierarchy.
    pub(super) fn in_group(&self, directory: PathBuf) -> Self {
        Self { directory, version_2: self.version_2 }
    }

    /// The group's directory in the hierarchy that freezes.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The file that is written to freeze or thaw the group.
    pub fn control(&self) -> PathBuf {
        self.directory.join(if self.version_2 { "cgroup.freeze" } else { "freezer.state" })
    }

    /// Opens the files of the group. On a virtual machine, opening them takes as long as freezing a
    /// group does.
    ///
    /// # Errors
    /// The group is gone, or may not be written to.
    pub fn open(&self) -> io::Result<OpenFreezer> {
        // Tests use ordinary files, which a control group never needs to have created.
        let control = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.control())?;
        let events =
            self.version_2.then(|| fs::File::open(self.directory.join("cgroup.events"))).transpose()?;
        Ok(OpenFreezer { group: self.clone(), control, events })
    }

    /// Freezes the group and returns when it is frozen.
    ///
    /// # Errors
    /// The group is gone, or some of it still ran after 2 s ([`io::ErrorKind::TimedOut`]); then it
    /// is thawed.
    pub fn freeze(&self) -> io::Result<()> {
        self.open()?.freeze().map(|_| ())
    }

    /// Thaws the group and returns when the kernel counts it as thawed. Its processes may already
    /// run before this returns.
    ///
    /// # Errors
    /// The same as [`Freezer::freeze`].
    pub fn thaw(&self) -> io::Result<()> {
        self.open()?.thaw()
    }

    /// Asks for a state without waiting for it.
    ///
    /// # Errors
    /// The group is gone, or may not be written to.
    pub fn request(&self, frozen: bool) -> io::Result<()> {
        self.open()?.request(frozen)
    }

    /// Explains why the group does not reach a state.
    fn why_not(&self, frozen: bool, deadline: Duration) -> String {
        if frozen {
            return format!(
                "some of its processes did not stop within {deadline:?}, as one that waits for a disk or a \
                 file system may not"
            );
        }
        let above = if self.is_frozen_above() { ": a group above it is frozen" } else { "" };
        format!("the control group did not become thawed within {deadline:?}{above}")
    }

    /// Whether a group above this one is frozen, which freezes this one whatever its own state.
    fn is_frozen_above(&self) -> bool {
        let says = |file: PathBuf| fs::read_to_string(file).is_ok_and(|text| text.trim() == "1");
        if self.version_2 {
            return self.directory.ancestors().skip(1).any(|group| says(group.join("cgroup.freeze")));
        }
        says(self.directory.join("freezer.parent_freezing"))
    }

    /// Measures how long freezing and thawing take now, nanoseconds. Freezes and thaws the group
    /// once.
    ///
    /// # Errors
    /// The same as [`Freezer::freeze`].
    pub fn latency_ns(&self) -> io::Result<(u64, u64)> {
        let files = self.open()?;
        let began = monotonic_ns();
        files.freeze()?;
        let frozen = monotonic_ns();
        files.thaw()?;
        Ok((frozen - began, monotonic_ns() - frozen))
    }
}

/// The open files of a group's freezer, for many changes of its state.
#[derive(Debug)]
pub struct OpenFreezer {
    group: Freezer,
    control: fs::File,
    /// Version 2 only: the file that shows whether the group is frozen.
    events: Option<fs::File>,
}

impl OpenFreezer {
    /// Like [`Freezer::freeze`]. Returns when the kernel had told all processes to stop, nanoseconds
    /// of the monotonic clock: one that runs stops then, while others, which sleep, may have to be
    /// woken to be counted as frozen.
    ///
    /// # Errors
    /// The same as [`Freezer::freeze`].
    pub fn freeze(&self) -> io::Result<u64> {
        let frozen = self.reach(true, scaled(DEADLINE));
        if frozen.is_err() {
            let _ = self.request(false);
        }
        frozen
    }

    /// Like [`Freezer::thaw`].
    ///
    /// # Errors
    /// The same as [`Freezer::freeze`].
    pub fn thaw(&self) -> io::Result<()> {
        self.reach(false, scaled(DEADLINE)).map(|_| ())
    }

    fn request(&self, frozen: bool) -> io::Result<()> {
        let state: &[u8] = match (self.group.version_2, frozen) {
            (true, true) => b"1",
            (true, false) => b"0",
            (false, true) => b"FROZEN",
            (false, false) => b"THAWED",
        };
        self.control.write_all_at(state, 0)
    }

    /// Asks for a state and waits until it is reached. Returns when all processes had been told.
    pub(super) fn reach(&self, frozen: bool, deadline: Duration) -> io::Result<u64> {
        self.request(frozen)?;
        let told_ns = monotonic_ns();
        let began = Instant::now();
        loop {
            // Read the time before checking: this process may itself be frozen in between, for any
            // time.
            let waited = began.elapsed();
            if self.is(frozen)? {
                return Ok(told_ns);
            }
            if waited > deadline {
                return Err(io::Error::new(io::ErrorKind::TimedOut, self.group.why_not(frozen, deadline)));
            }
            if waited > IMPATIENT {
                std::thread::sleep(PAUSE);
            }
            // Version 1 does not count a process in vfork(2) as frozen, and the group stays
            // FREEZING until the state is written again.
            if waited > REPEAT_AFTER {
                self.request(frozen)?;
            }
        }
    }

    fn is(&self, frozen: bool) -> io::Result<bool> {
        let mut buffer = [0; 256];
        let length = self.events.as_ref().unwrap_or(&self.control).read_at(&mut buffer, 0)?;
        let text = buffer[..length].trim_ascii();
        if self.events.is_none() {
            return Ok(text == if frozen { b"FROZEN" } else { b"THAWED" });
        }
        let wanted: &[u8] = if frozen { b"frozen 1" } else { b"frozen 0" };
        Ok(text.split(|byte| *byte == b'\n').any(|line| line == wanted))
    }
}

#[cfg(test)]
mod tests;
