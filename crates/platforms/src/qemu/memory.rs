//! The machine's memory: its backing on the host, whether equal pages are merged, and what a
//! balloon takes of it.
//!
//! A guest with a balloon starts with more memory than it should have and is shrunk to that size
//! before it is handed out. It is then as large as its neighbours and differs only in how it got
//! there.

use super::part::{Line, Part};
use super::qmp::{Qmp, QmpError};
use super::{PLATFORM, Qemu, size};
use crate::vm::readback;
use crate::vm::setting::{LargePages, Merging, merging};
use crate::vm::tune::Requirement;
use crate::{Host, PlatformError, Result, setting};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use weigh_model::{EnvironmentSpec, SpecError};

/// Name of the balloon's device.
const BALLOON: &str = "balloon";
/// Pause between two checks of a balloon that inflates.
const LOOK: Duration = Duration::from_millis(20);
/// Time limit for a balloon to inflate without acceleration, on a busy host.
const BALLOON_DEADLINE: Duration = Duration::from_secs(60);

/// The settings of a machine's memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct MemoryOptions {
    /// The guest's final size, bytes.
    pub(super) guest_bytes: u64,
    /// What the guest has beyond that when it starts, bytes.
    pub(super) balloon_bytes: u64,
    /// Whether another process of the host reads and writes it.
    pub(super) is_shared: bool,
    pub(super) hugepages: Requirement,
    /// Whether equal pages are merged with those of other processes.
    pub(super) is_merged: bool,
}

/// The memory of one machine.
#[derive(Debug)]
pub(super) struct Memory {
    options: MemoryOptions,
    large: Option<LargePages>,
    merging: Option<Merging>,
    /// What could not be set up as asked for.
    pub(super) notes: Vec<String>,
}

impl Memory {
    /// Prepares the host for it.
    ///
    /// # Errors
    /// Something required is not available; the error has the remedy, and nothing is changed.
    pub(super) fn make(host: &Host, options: MemoryOptions) -> Result<Self> {
        let mut notes = Vec::new();
        let obstacle = match options {
            MemoryOptions { balloon_bytes: 1.., .. } => Some("a balloon gives back small pages"),
            MemoryOptions { is_merged: true, .. } => Some("the kernel merges small pages only"),
            _ => None,
        };
        let large = match (options.hugepages, obstacle) {
            (Requirement::Preferred, Some(why)) => {
                notes.push(format!("no large pages: {why}"));
                None
            }
            // `check` has refused conflicts that were asked for by name.
            (requirement, _) => {
                LargePages::as_required(&host.ledger, PLATFORM, options.bytes(), requirement, &mut notes)?
            }
        };
        if options.is_merged && options.is_shared {
            return Err(PlatformError::unavailable(
                "the kernel cannot merge pages of this guest's memory, which is a file because virtiofsd shares it",
                "use --image probe, or name a kernel with 9p by kernel=PATH",
            ));
        }
        let merging = options.is_merged.then(|| Merging::start(&host.ledger, PLATFORM)).transpose()?;
        Ok(Self { options, large, merging, notes })
    }

    /// Shrinks the guest to its final size.
    ///
    /// # Errors
    /// It does not reach that size in time.
    pub(super) fn shrink(&self, qmp: &mut Qmp) -> Result<(), QmpError> {
        let target = self.options.guest_bytes;
        if self.options.balloon_bytes == 0 {
            return Ok(());
        }
        let until = Instant::now() + BALLOON_DEADLINE;
        qmp.execute("balloon", json!({"value": target}), until)?;
        loop {
            let answer = qmp.execute("query-balloon", json!({}), until)?;
            let now = answer.get("actual").and_then(Value::as_u64).unwrap_or(0);
            if now == target {
                return Ok(());
            }
            if Instant::now() + LOOK >= until {
                return Err(QmpError::Lost(format!(
                    "left the guest {now} bytes instead of {target} with its balloon, after {} s",
                    BALLOON_DEADLINE.as_secs()
                )));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// The facts about the memory that the machine really has.
    pub(super) fn read_back(&self, process: u32, monitor: readback::Monitor<'_>) -> BTreeMap<String, String> {
        let mut facts = BTreeMap::new();
        let mut put = |key: &str, value: String| facts.insert(format!("machine:{key}"), value);
        put("pages", readback::pages(process, self.options.bytes()));
        if self.options.balloon_bytes > 0 {
            let actual = monitor("query-balloon", json!({}))
                .map(|answer| answer.get("actual").and_then(Value::as_u64));
            put(
                "balloon",
                match actual {
                    Ok(Some(actual)) => {
                        let (whole, taken) =
                            (self.options.bytes(), self.options.bytes().saturating_sub(actual));
                        format!("holds {taken} of {whole} bytes")
                    }
                    Ok(None) => "not known: QEMU reports no size".into(),
                    Err(why) => format!("not known: {why}"),
                },
            );
        }
        match (readback::is_mergeable(monitor), merging()) {
            (Ok(true), Some(rate)) => drop(put("ksm", format!("on, {rate}"))),
            (Ok(true), None) => drop(put("ksm", "allowed, but the host's kernel merges nothing".into())),
            (Ok(false), _) if self.options.is_merged => drop(put("ksm", "not allowed by QEMU".into())),
            (Ok(false), _) => {}
            (Err(why), _) => drop(put("ksm", format!("not known: {why}"))),
        }
        facts
    }

    /// Restores the host's settings. Further calls do nothing.
    ///
    /// # Errors
    /// A setting of the host could not be restored; its entry in the ledger stays.
    pub(super) fn remove(&mut self) -> Result<()> {
        let pages = self.large.as_mut().map_or(Ok(()), LargePages::give_back);
        self.merging.as_mut().map_or(Ok(()), Merging::give_back)?;
        pages
    }
}

/// Checks what [`crate::KeySpec`] cannot express about the keys of memory.
///
/// # Errors
/// An invalid size, or large pages together with something that needs small ones.
pub(super) fn check(environment: &EnvironmentSpec) -> Result<(), SpecError> {
    let balloon = setting(&Qemu, environment, "balloon");
    if balloon != "none" && size(balloon).is_none_or(|bytes| !bytes.is_multiple_of(1 << 20)) {
        let help = "write whole MiB, as in `balloon=256MiB`, or `none`";
        return Err(environment.value_error("balloon", format!("a balloon cannot be `{balloon}`"), help));
    }
    let is_merged = setting(&Qemu, environment, "ksm") == "on";
    if setting(&Qemu, environment, "hugepages") == "on" && (balloon != "none" || is_merged) {
        let other = if is_merged { "ksm=on merges" } else { "a balloon gives back" };
        let help = "leave one of the two out";
        return Err(environment.value_error("hugepages", format!("{other} small pages only"), help));
    }
    Ok(())
}

/// The changes that the memory's keys make on the host.
pub(super) fn host_changes(environment: &EnvironmentSpec) -> impl Iterator<Item = &'static str> {
    let word = |key| setting(&Qemu, environment, key);
    let large = match (word("hugepages"), word("tune")) {
        ("on", _) | ("auto", "on") => {
            Some("add the guest's memory to the host's pool of large pages while the guest is there")
        }
        _ => None,
    };
    let merging = (word("ksm") == "on")
        .then_some("switch the host's merging of equal pages on while the guest is there");
    large.into_iter().chain(merging)
}

impl MemoryOptions {
    /// The size that the machine starts with.
    pub(super) fn bytes(&self) -> u64 {
        self.guest_bytes.saturating_add(self.balloon_bytes)
    }
}

impl Part for Memory {
    fn arguments(&self, line: &mut Line) {
        let kib = self.options.bytes() >> 10;
        line.pair("-m", &format!("{kib}k"));
        line.machine(if self.options.is_merged { "mem-merge=on" } else { "mem-merge=off" });
        if self.options.is_shared || self.large.is_some() {
            let large = self.large.as_ref().map(|large| {
                // Allocated at once: a guest for which no page is left would be killed in the
                // middle of its work.
                format!(",hugetlb=on,hugetlbsize={}k,prealloc=on", large.page_bytes >> 10)
            });
            let share = if self.options.is_shared { "on" } else { "off" };
            line.machine("memory-backend=memory");
            line.pair(
                "-object",
                &format!(
                    "memory-backend-memfd,id=memory,size={kib}k,share={share}{}",
                    large.unwrap_or_default()
                ),
            );
        }
        if self.options.balloon_bytes > 0 {
            line.pair("-device", &format!("virtio-balloon-pci,id={BALLOON}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::part::line_of;
    use super::*;

    const PLAIN: MemoryOptions = MemoryOptions {
        guest_bytes: 512 << 20,
        balloon_bytes: 0,
        is_shared: false,
        hugepages: Requirement::Off,
        is_merged: false,
    };

    fn line(options: MemoryOptions) -> String {
        line_of(&Memory { options, large: None, merging: None, notes: Vec::new() })
    }

    #[test]
    fn memory_is_private_and_unmerged_by_default() {
        assert_eq!(line(PLAIN), "-m 524288k -machine type,mem-merge=off");
        let merged = line(MemoryOptions { is_merged: true, ..PLAIN });
        assert!(merged.ends_with("mem-merge=on"), "{merged}");
    }

    #[test]
    fn memory_that_a_daemon_shares_is_a_file() {
        let shared = line(MemoryOptions { is_shared: true, ..PLAIN });
        assert!(shared.contains("memory-backend-memfd,id=memory,size=524288k,share=on"), "{shared}");
        assert!(shared.contains("memory-backend=memory") && !shared.contains("hugetlb"), "{shared}");
    }

    #[test]
    fn a_balloon_has_memory_of_its_own() {
        let balloon = line(MemoryOptions { balloon_bytes: 256 << 20, ..PLAIN });
        assert!(
            balloon.contains("-m 786432k") && balloon.contains("virtio-balloon-pci,id=balloon"),
            "{balloon}"
        );
    }
}
