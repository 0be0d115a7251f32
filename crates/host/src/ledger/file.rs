//! The lines of a ledger file.

use super::{Change, EntryId, FORMAT};
use crate::facts::boot_id;
use serde::{Deserialize, Serialize};

/// One line.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Line {
    /// First line.
    Header {
        ledger: u32,
        run: String,
        /// Process that holds the ledger.
        pid: u32,
        /// Start time of that process, clock ticks since boot (`proc_pid_stat(5)`), because the
        /// number may have been reused.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        start_ticks: Option<u64>,
        /// Boot id: processes do not survive a reboot.
        boot: String,
        since: String,
    },
    /// A change that is about to be made.
    Change { entry: u64, change: Change },
    /// An entry whose change was undone.
    Undone { undone: u64 },
}

impl Line {
    pub(super) fn header(run: &str) -> Self {
        Self::Header {
            ledger: FORMAT,
            run: run.into(),
            pid: std::process::id(),
            start_ticks: crate::process::start_ticks(std::process::id()),
            boot: boot_id(),
            since: crate::clock::utc_now(),
        }
    }
}

/// A ledger file, parsed.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// Changes that have not been undone, oldest first.
    pub(super) standing: Vec<(EntryId, Change)>,
    /// Its first line, without which the time of the changes is unknown.
    pub(super) header: Option<Line>,
    /// Whether they were certainly recorded in this boot.
    pub(super) this_boot: bool,
    /// Numbers (from 1) of unreadable lines, except a truncated last one.
    pub(super) damaged: Vec<usize>,
    /// Whether the process that wrote it has certainly ended.
    pub(super) dead: bool,
    /// Format of the file if it is newer than this program supports.
    pub(super) newer: Option<u32>,
}

impl Contents {
    fn begin(&mut self, header: Line) {
        if let Line::Header { ledger, boot, pid, start_ticks, .. } = &header {
            self.this_boot = *boot == boot_id();
            let has_ended = |start| !crate::process::is_alive(*pid, start);
            self.dead = !self.this_boot || start_ticks.is_some_and(has_ended);
            self.newer = (*ledger > FORMAT).then_some(*ledger);
        }
        self.header = Some(header);
    }

    /// The lines of a ledger with only the changes that have not been undone.
    pub(super) fn lines_of(&self, standing: &[(EntryId, Change)]) -> serde_json::Result<Vec<u8>> {
        let changes =
            standing.iter().map(|(id, change)| Line::Change { entry: id.0, change: change.clone() });
        let mut text = Vec::new();
        for line in self.header.iter().cloned().chain(changes) {
            serde_json::to_writer(&mut text, &line)?;
            text.push(b'\n');
        }
        Ok(text)
    }
}

/// Parses a ledger. A last line without a line end was truncated by a crash before its change was
/// made, and is ignored. So is a last line with a hole, which a power failure leaves.
pub(super) fn parse(text: &[u8]) -> Contents {
    let mut contents = Contents::default();
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let lines = text[..whole].iter().filter(|byte| **byte == b'\n').count();
    for (number, line) in text[..whole].split(|byte| *byte == b'\n').enumerate() {
        if line.is_empty() {
            continue;
        }
        match serde_json::from_slice(line) {
            Ok(header @ Line::Header { .. }) => contents.begin(header),
            Ok(Line::Change { entry, change }) => contents.standing.push((EntryId(entry), change)),
            Ok(Line::Undone { undone }) => contents.standing.retain(|(id, _)| id.0 != undone),
            Err(_) if number + 1 == lines && line.contains(&0) => {}
            Err(_) => contents.damaged.push(number + 1),
        }
    }
    contents
}
