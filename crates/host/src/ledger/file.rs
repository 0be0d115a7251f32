//! The lines of a ledger.

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
        /// When that process started, clock ticks since boot (`proc_pid_stat(5)`): its number alone
        /// may be another's by now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        start_ticks: Option<u64>,
        /// Boot in which the changes were made: processes do not survive it.
        boot: String,
        since: String,
    },
    /// A change that is about to be made.
    Change { entry: u64, change: Change },
    /// An entry whose change is undone.
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

/// Identity of this boot (`random(4)`).
pub(super) fn boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().into()).unwrap_or_default()
}

/// A ledger as it was read back.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// Changes that stand, oldest first.
    pub(super) standing: Vec<(EntryId, Change)>,
    /// Whether they were made in this boot.
    pub(super) this_boot: bool,
    /// Numbers (from 1) of lines that cannot be read, a cut last one apart.
    pub(super) damaged: Vec<usize>,
    /// Whether the process that made it has ended for certain.
    pub(super) dead: bool,
    /// Format of the file where it is a newer one than this program knows.
    pub(super) newer: Option<u32>,
}

/// Reads a ledger. A last line without its end was cut by a crash before its change was made, and
/// does not count.
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
