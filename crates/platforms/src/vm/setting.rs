//! Host settings that a machine may need and that are restored: the pool of large pages, and the
//! kernel's merging of equal pages.
//!
//! All machines of a process share both: after the last machine, a setting is as it was before the
//! first. The ledger has one entry for each, with the original value and the one that weighbridge
//! set. A setting is only restored if it still has weighbridge's value, and only in the same boot;
//! any other value is somebody else's choice.

use super::tune::Requirement;
use crate::guest::platform_change;
use crate::{PlatformError, Result};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use weigh_host::facts::boot_id;
use weigh_host::ledger::{Change, EntryId, Ledger, UndoOutcome};

/// The ledger's word for a pool to which pages were added.
pub(crate) const PAGES: &str = "hugepages";
/// The ledger's word for merging that was switched on.
pub(crate) const MERGING: &str = "ksm";
/// Size of large pages on every x86 processor and most Arm kernels, bytes.
const USUAL_PAGE_BYTES: u64 = 2 << 20;
/// The kernel's directory for pools of large pages (Documentation/admin-guide/mm/hugetlbpage.rst).
const POOLS: &str = "/sys/kernel/mm/hugepages";
/// The kernel's directory for merging (Documentation/admin-guide/mm/ksm.rst).
const KSM: &str = "/sys/kernel/mm/ksm";
/// Value of the setting while merging is on.
const ON: u64 = 1;

/// A setting that the machines of this process have changed.
#[derive(Debug, Default)]
struct SettingUse {
    /// How many machines use it.
    machines: u64,
    /// Its value before the first of them.
    before: u64,
    /// The value that weighbridge set.
    made: u64,
    /// Its ledger entry, and the ledger that has it.
    entry: Option<(Ledger, EntryId)>,
}

static PAGES_IN_USE: Mutex<SettingUse> = Mutex::new(SettingUse::NONE);
static MERGING_IN_USE: Mutex<SettingUse> = Mutex::new(SettingUse::NONE);

impl SettingUse {
    const NONE: Self = Self { machines: 0, before: 0, made: 0, entry: None };

    /// Locks the setting against other threads.
    fn lock(of: &'static Mutex<Self>) -> MutexGuard<'static, Self> {
        of.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the current value. If weighbridge did not set it, it becomes the original value.
    fn observe(&mut self, now: u64) -> Result<()> {
        if self.machines == 0 || now != self.made {
            (self.before, self.made) = (now, now);
            self.forget()?;
        }
        Ok(())
    }

    /// Records that the setting is about to be changed, and replaces an earlier entry.
    fn record(&mut self, ledger: &Ledger, change: Change, made: u64) -> Result<()> {
        let entry = ledger.record(change)?;
        self.forget()?;
        self.entry = Some((ledger.clone(), entry));
        self.made = made;
        Ok(())
    }

    fn forget(&mut self) -> Result<()> {
        self.entry.take().map_or(Ok(()), |(ledger, entry)| Ok(ledger.forget(entry)?))
    }
}

fn read(path: &Path) -> std::io::Result<u64> {
    let text = std::fs::read_to_string(path)?;
    text.trim().parse().map_err(|_| std::io::Error::other(format!("{} is not a number", path.display())))
}

fn write(path: &Path, value: u64) -> std::io::Result<()> {
    std::fs::write(path, value.to_string())
}

/// Large pages for one machine: added to the pool, or found free in it.
#[derive(Debug)]
pub(crate) struct LargePages {
    /// Size of one page, bytes.
    pub(crate) page_bytes: u64,
    /// Pages that were added to the pool.
    added: Option<u64>,
    ledger: Ledger,
    platform: &'static str,
}

impl LargePages {
    /// Reserves pages for a machine that requires or prefers them. If they are only preferred, a
    /// failure is added to `notes`.
    ///
    /// # Errors
    /// They are required and not available; as [`LargePages::reserve`].
    pub(crate) fn as_required(
        ledger: &Ledger,
        platform: &'static str,
        memory_bytes: u64,
        requirement: Requirement,
        notes: &mut Vec<String>,
    ) -> Result<Option<Self>> {
        if requirement == Requirement::Off {
            return Ok(None);
        }
        match Self::reserve(ledger, platform, memory_bytes) {
            Err(error) if requirement == Requirement::Preferred => {
                notes.push(format!("no large pages: {error}"));
                Ok(None)
            }
            reserved => reserved.map(Some),
        }
    }

    /// Reserves enough pages for a machine's memory.
    ///
    /// # Errors
    /// [`PlatformError::Unavailable`] with the reason and the remedy; nothing is changed then.
    fn reserve(ledger: &Ledger, platform: &'static str, memory_bytes: u64) -> Result<Self> {
        let page_bytes = page_bytes()?;
        if !memory_bytes.is_multiple_of(page_bytes) {
            let mib = page_bytes >> 20;
            return Err(PlatformError::unavailable(
                format!("{memory_bytes} bytes of memory are not whole pages of {mib} MiB"),
                format!("give memory in steps of {mib} MiB, as in memory=512MiB, or use hugepages=off"),
            ));
        }
        let pages = memory_bytes / page_bytes;
        let pool = pool(page_bytes);
        let free = || {
            let number = |file: &str| read(&pool.join(file)).unwrap_or(0);
            number("free_hugepages").saturating_sub(number("resv_hugepages"))
        };
        let mut used = SettingUse::lock(&PAGES_IN_USE);
        let count = pool.join("nr_hugepages");
        let now = read(&count).map_err(PlatformError::io("read the pool of large pages"))?;
        used.observe(now)?;
        let wanted = now + pages;
        let change = pages_change(platform, page_bytes, used.before, [now, wanted]);
        used.record(ledger, change, wanted)?;
        let grown = write(&count, wanted);
        let after = read(&count).unwrap_or(now);
        if grown.is_ok() && after >= wanted {
            used.machines += 1;
            return Ok(Self { page_bytes, added: Some(pages), ledger: ledger.clone(), platform });
        }
        if after != now {
            let _ = write(&count, now);
        }
        used.made = now;
        match used.machines {
            0 => used.forget()?,
            _ => {
                let change = pages_change(platform, page_bytes, used.before, [now, now]);
                used.record(ledger, change, now)?;
            }
        }
        // Free pages in a pool that was reserved at boot serve as well.
        if free() >= pages {
            return Ok(Self { page_bytes, added: None, ledger: ledger.clone(), platform });
        }
        let why = match grown {
            Err(error) => format!("the pool cannot be made larger: {error}"),
            Ok(()) => format!("the kernel found {} of them", after.saturating_sub(now)),
        };
        let mib = page_bytes >> 20;
        Err(PlatformError::unavailable(
            format!("the host does not have {pages} free large pages of {mib} MiB: {why}"),
            format!(
                "run weigh as root on a host with more free memory, or start the host with hugepages={pages} on its kernel's command \
                 line, or use hugepages=off"
            ),
        ))
    }

    /// Gives the pages back, unless somebody else has changed the pool's size since. Further calls
    /// do nothing.
    ///
    /// # Errors
    /// The pool keeps its size.
    pub(crate) fn give_back(&mut self) -> Result<()> {
        let Some(pages) = self.added else { return Ok(()) };
        let mut used = SettingUse::lock(&PAGES_IN_USE);
        let failed = || PlatformError::io("make the pool of large pages as small as it was");
        let count = pool(self.page_bytes).join("nr_hugepages");
        let now = read(&count).map_err(failed())?;
        let is_last = used.machines <= 1;
        if now == used.made {
            let wanted = if is_last { used.before } else { now.saturating_sub(pages).max(used.before) };
            if !is_last {
                let change = pages_change(self.platform, self.page_bytes, used.before, [now, wanted]);
                used.record(&self.ledger, change, wanted)?;
            }
            write(&count, wanted).map_err(failed())?;
        }
        if is_last {
            used.forget()?;
        }
        used.machines = used.machines.saturating_sub(1);
        self.added = None;
        Ok(())
    }
}

impl Drop for LargePages {
    fn drop(&mut self) {
        // What could not be undone stays in the ledger.
        let _ = self.give_back();
    }
}

fn pool(page_bytes: u64) -> PathBuf {
    Path::new(POOLS).join(format!("hugepages-{}kB", page_bytes >> 10))
}

/// The size of large pages: the usual one, else the smallest that the kernel has.
fn page_bytes() -> Result<u64> {
    let names = std::fs::read_dir(POOLS).into_iter().flatten().flatten();
    let sizes = names.filter_map(|entry| {
        let name = entry.file_name();
        Some(name.to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<u64>().ok()? << 10)
    });
    let sizes: Vec<u64> = sizes.collect();
    let usual = sizes.iter().copied().find(|size| *size == USUAL_PAGE_BYTES);
    usual
        .or_else(|| sizes.into_iter().min())
        .ok_or_else(|| PlatformError::unavailable("the kernel has no large pages", "use hugepages=off"))
}

/// The ledger entry for a pool whose size is about to be changed from the first to the second value
/// of `made`. A crash may come before or after the change.
fn pages_change(platform: &str, page_bytes: u64, before: u64, made: [u64; 2]) -> Change {
    let detail = json!({"page_bytes": page_bytes, "before": before, "made": made, "boot": boot_id()});
    platform_change(platform, PAGES, &format!("pool of {} kB", page_bytes >> 10), detail)
}

/// The kernel's merging of equal pages, switched on for a machine.
#[derive(Debug)]
pub(crate) struct Merging {
    has_it: bool,
}

impl Merging {
    /// Switches merging on, unless it is on already.
    ///
    /// # Errors
    /// [`PlatformError::Unavailable`] if the kernel cannot merge, or only root may switch it on.
    pub(crate) fn start(ledger: &Ledger, platform: &str) -> Result<Self> {
        let path = Path::new(KSM).join("run");
        let mut used = SettingUse::lock(&MERGING_IN_USE);
        let now = read(&path).map_err(|error| {
            let reason = format!("the kernel cannot merge equal pages: {}: {error}", path.display());
            PlatformError::unavailable(reason, "use a host whose kernel has CONFIG_KSM")
        })?;
        used.observe(now)?;
        if now != ON {
            let detail = json!({"before": now, "made": [ON], "boot": boot_id()});
            used.record(ledger, platform_change(platform, MERGING, "run", detail), ON)?;
            if let Err(error) = write(&path, ON) {
                used.forget()?;
                let reason = format!("cannot switch the merging of pages on: {}: {error}", path.display());
                return Err(PlatformError::unavailable(reason, crate::remedy::AS_ROOT));
            }
        }
        used.machines += 1;
        Ok(Self { has_it: true })
    }

    /// Restores the setting once no machine needs it, unless somebody else has changed it since.
    /// Further calls do nothing.
    ///
    /// # Errors
    /// Merging stays on.
    pub(crate) fn give_back(&mut self) -> Result<()> {
        if !self.has_it {
            return Ok(());
        }
        let mut used = SettingUse::lock(&MERGING_IN_USE);
        if used.machines <= 1 {
            put_back(&Path::new(KSM).join("run"), used.before, &[used.made])
                .map_err(PlatformError::io("put the merging of pages back"))?;
            used.forget()?;
        }
        used.machines = used.machines.saturating_sub(1);
        self.has_it = false;
        Ok(())
    }
}

impl Drop for Merging {
    fn drop(&mut self) {
        // What could not be undone stays in the ledger.
        let _ = self.give_back();
    }
}

/// The rate at which the kernel merges now; `None` if it does not.
pub(crate) fn merging() -> Option<String> {
    merging_at(Path::new(KSM))
}

fn merging_at(directory: &Path) -> Option<String> {
    let number = |file: &str| read(&directory.join(file)).ok();
    let rate = format!("{} pages every {} ms", number("pages_to_scan")?, number("sleep_millisecs")?);
    // Since Linux 6.8.
    let mode = std::fs::read_to_string(directory.join("advisor_mode")).unwrap_or_default();
    let changes = if mode.contains("[scan-time]") { ", which the kernel's advisor changes" } else { "" };
    (number("run")? == ON).then(|| rate + changes)
}

/// Restores a setting if its value is one that weighbridge set.
fn put_back(path: &Path, before: u64, made: &[u64]) -> std::io::Result<UndoOutcome> {
    let now = read(path)?;
    if now == before {
        return Ok(UndoOutcome::Restored);
    }
    if !made.contains(&now) {
        let changed = format!("somebody else has set {} to {now} since", path.display());
        return Ok(UndoOutcome::Left(changed));
    }
    write(path, before).map(|()| UndoOutcome::Restored)
}

/// Undoes a ledger entry of [`PAGES`] or [`MERGING`].
///
/// # Errors
/// The setting cannot be restored, or the entry is of another kind.
pub(crate) fn undo(what: &str, detail: &Value) -> Result<UndoOutcome> {
    let unknown = |name: &str| PlatformError::StillThere(format!("the ledger does not say its {name}"));
    let number = |name: &str| detail.get(name).and_then(Value::as_u64).ok_or_else(|| unknown(name));
    let before = number("before")?;
    let made = detail.get("made").and_then(Value::as_array).ok_or_else(|| unknown("made"))?;
    let made: Vec<u64> = made.iter().filter_map(Value::as_u64).collect();
    let path = match what {
        PAGES => pool(number("page_bytes")?).join("nr_hugepages"),
        _ => Path::new(KSM).join("run"),
    };
    // After a reboot the setting is no longer weighbridge's.
    if detail["boot"] != boot_id() {
        return Ok(UndoOutcome::Restored);
    }
    put_back(&path, before, &made)
        .map_err(PlatformError::io(format!("put the host's setting of {what} back")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_values_that_weighbridge_set_are_restored() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("setting");
        for (now, before, made, then) in [
            (300, 44, &[300, 556][..], 44),
            (556, 44, &[300, 556], 44),
            // Undone a second time.
            (44, 44, &[300, 556], 44),
            // Somebody has changed the pool's size since.
            (1000, 44, &[300, 556], 1000),
            (200, 44, &[300, 556], 200),
            (10, 44, &[300, 556], 10),
            // Merging is switched off again; somebody has asked since to unmerge everything.
            (1, 0, &[1], 0),
            (2, 0, &[1], 2),
        ] {
            write(&path, now).unwrap();
            let undone = put_back(&path, before, made).unwrap();
            assert_eq!(read(&path).unwrap(), then, "{now}, {before}, {made:?}");
            assert_eq!(
                undone == UndoOutcome::Restored,
                then == before,
                "{now}, {before}, {made:?}: {undone:?}"
            );
        }
    }

    #[test]
    fn a_rate_that_the_kernel_changes_is_shown_as_such() {
        let base = tempfile::tempdir().unwrap();
        let set = |file: &str, text: &str| std::fs::write(base.path().join(file), text).unwrap();
        let shown = || merging_at(base.path());
        for (file, text) in [("run", "1\n"), ("pages_to_scan", "100\n"), ("sleep_millisecs", "20\n")] {
            set(file, text);
        }
        assert_eq!(shown().unwrap(), "100 pages every 20 ms", "before Linux 6.8");
        set("advisor_mode", "[none] scan-time\n");
        assert_eq!(shown().unwrap(), "100 pages every 20 ms");
        set("advisor_mode", "none [scan-time]\n");
        assert_eq!(shown().unwrap(), "100 pages every 20 ms, which the kernel's advisor changes");
        set("run", "0\n");
        assert_eq!(shown(), None);
    }

    #[test]
    fn settings_of_an_earlier_boot_are_not_put_back() {
        for what in [PAGES, MERGING] {
            // No such pool exists, so an attempt to write its file would fail.
            let earlier = json!({"page_bytes": 1, "before": 7, "made": [9], "boot": "a former one"});
            assert_eq!(undo(what, &earlier).unwrap(), UndoOutcome::Restored);
            let unknown = json!({"page_bytes": 1, "before": 7, "made": [9]});
            assert_eq!(undo(what, &unknown).unwrap(), UndoOutcome::Restored);
        }
    }

    #[test]
    fn the_pool_follows_its_machines_until_another_process_sets_it() {
        let base = tempfile::tempdir().unwrap();
        let state = weigh_host::state::StateDirectory::at(base.path().join("state"));
        let ledger = Ledger::create(&state, "run").unwrap();
        let change = |before, made| pages_change("qemu", 2 << 20, before, made);
        let mut used = SettingUse::NONE;
        // The first machine, and a second one.
        for (now, made) in [(44, 300), (300, 556)] {
            used.observe(now).unwrap();
            used.record(&ledger, change(used.before, [now, made]), made).unwrap();
            used.machines += 1;
        }
        assert_eq!(ledger.standing(), [change(44, [300, 556])], "one entry says all");
        // Somebody sets it while both run, so that becomes the original value.
        used.observe(1000).unwrap();
        assert_eq!((used.before, ledger.standing()), (1000, vec![]));
    }

    #[test]
    fn entries_without_numbers_change_nothing() {
        let undo = |what, detail| undo(what, &detail).unwrap_err().to_string();
        assert!(undo(PAGES, json!({"page_bytes": 1, "made": [1]})).contains("before"));
        assert!(undo(PAGES, json!({"before": 1, "made": [1]})).contains("page_bytes"));
        assert!(undo(MERGING, json!({"before": 1})).contains("made"));
        assert!(undo(MERGING, json!({})).contains("before"));
    }
}
