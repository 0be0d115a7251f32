//! The lines of a ledger file.

use super::{Change, EntryId, FORMAT};
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
        /// Start time of that process, clock ticks since boot (`proc_pid_stat(5)`): its number may
        /// have been reused.
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
            boot: boot(),
            since: crate::clock::utc_now(),
        }
    }
}

/// Id of this boot (`random(4)`).
pub(super) fn boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().into()).unwrap_or_default()
}

/// A ledger file, parsed.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// Changes that have not been undone, oldest first.
    pub(super) standing: Vec<(EntryId, Change)>,
    /// Whether they were recorded in this boot.
    pub(super) this_boot: bool,
    /// Numbers (from 1) of unreadable lines, except a truncated last one.
    pub(super) damaged: Vec<usize>,
    /// Whether the process that wrote it has certainly ended.
    pub(super) dead: bool,
    /// Format of the file if it is newer than this program supports.
    pub(super) newer: Option<u32>,
}

/// Parses a ledger. A last line without a line end was truncated by a crash before its change was
/// made, and is ignored.
pub(super) fn parse(text: &[u8]) -> Contents {
    let mut contents = Contents { this_boot: true, ..Contents::default() };
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    for (number, line) in text[..whole].split(|byte| *byte == b'\n').enumerate() {
        if line.is_empty() {
            continue;
        }
        match serde_json::from_slice(line) {
            Ok(Line::Header { ledger, boot: then, pid, start_ticks, .. }) => {
                contents.this_boot = then == boot();
                let lives = |start| crate::process::is_alive(pid, start);
                contents.dead = !contents.this_boot || start_ticks.is_some_and(|start| !lives(start));
                contents.newer = (ledger > FORMAT).then_some(ledger);
            }
            Ok(Line::Change { entry, change }) => contents.standing.push((EntryId(entry), change)),
            Ok(Line::Undone { undone }) => contents.standing.retain(|(id, _)| id.0 != undone),
            Err(_) => contents.damaged.push(number + 1),
        }
    }
    contents
}
