//! Settings of the host that a machine may need and that are put back: its pool of large pages, and
//! the kernel's merging of equal pages.
//!
//! Both belong to all machines of a process together: what was there before the first is there
//! again after the last. The ledger's entries say that as well, so that a sweep comes to the same,
//! in whatever order and however often it undoes them.

use super::tune::Requirement;
use crate::guest::platform_change;
use crate::{PlatformError, Result};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use weigh_host::ledger::{EntryId, Ledger};

/// In the ledger: pages that were added to the pool.
pub(crate) const PAGES: &str = "hugepages";
/// In the ledger: merging that was switched on.
pub(crate) const MERGING: &str = "ksm";
/// Large pages that any processor of x86 and most kernels of ARM have, bytes.
const USUAL_PAGE_BYTES: u64 = 2 << 20;
/// Where the kernel has its pools of large pages (Documentation/admin-guide/mm/hugetlbpage.rst).
const POOLS: &str = "/sys/kernel/mm/hugepages";
/// Where it has its merging (Documentation/admin-guide/mm/ksm.rst).
const KSM: &str = "/sys/kernel/mm/ksm";

/// What the machines of this process have of the host now.
#[derive(Debug, Default)]
struct SettingUse {
    /// Machines that have it.
    machines: u64,
    /// The setting before the first of them.
    before: u64,
}

static HELD_PAGES: Mutex<SettingUse> = Mutex::new(SettingUse { machines: 0, before: 0 });
static HELD_MERGING: Mutex<SettingUse> = Mutex::new(SettingUse { machines: 0, before: 0 });

fn held(of: &'static Mutex<SettingUse>) -> MutexGuard<'static, SettingUse> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read(path: &Path) -> std::io::Result<u64> {
    let text = std::fs::read_to_string(path)?;
    text.trim().parse().map_err(|_| std::io::Error::other(format!("{} holds no number", path.display())))
}

fn write(path: &Path, value: u64) -> std::io::Result<()> {
    std::fs::write(path, value.to_string())
}

/// Large pages for one machine: added to the pool, or found free in it.
#[derive(Debug)]
pub(crate) struct LargePages {
    /// Of one page, bytes.
    pub(crate) page_bytes: u64,
    added: Option<(EntryId, u64)>,
    ledger: Ledger,
}

impl LargePages {
    /// Reserves them for a machine that requires them, or would rather have them: then what it lacks
    /// is a note.
    ///
    /// # Errors
    /// They are required and cannot be had; as [`LargePages::reserve`].
    pub(crate) fn as_required(
        ledger: &Ledger,
        platform: &str,
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

    /// Reserves as many as the memory of a machine takes.
    ///
    /// # Errors
    /// [`PlatformError::Missing`] with the reason and the remedy; nothing is changed then.
    fn reserve(ledger: &Ledger, platform: &str, memory_bytes: u64) -> Result<Self> {
        let page_bytes = page_bytes()?;
        if !memory_bytes.is_multiple_of(page_bytes) {
            let mib = page_bytes >> 20;
            return Err(missing(
                format!("memory that is whole pages of {mib} MiB ({memory_bytes} bytes are not)"),
                format!("give memory in steps of {mib} MiB, as in memory=512MiB, or use hugepages=off"),
            ));
        }
        let pages = memory_bytes / page_bytes;
        let pool = pool(page_bytes);
        let free = || {
            let number = |file: &str| read(&pool.join(file)).unwrap_or(0);
            number("free_hugepages").saturating_sub(number("resv_hugepages"))
        };
        let mut held = held(&HELD_PAGES);
        let before =
            read(&pool.join("nr_hugepages")).map_err(PlatformError::io("read the pool of large pages"))?;
        let floor = if held.machines == 0 { before } else { held.before };
        let entry = ledger.record(platform_change(
            platform,
            PAGES,
            &format!("{pages} pages of {} kB", page_bytes >> 10),
            json!({"page_bytes": page_bytes, "pages": pages, "floor": floor}),
        ))?;
        let grown = write(&pool.join("nr_hugepages"), before + pages);
        let after = read(&pool.join("nr_hugepages")).unwrap_or(before);
        if grown.is_ok() && after >= before + pages {
            (held.before, held.machines) = (floor, held.machines + 1);
            return Ok(Self { page_bytes, added: Some((entry, pages)), ledger: ledger.clone() });
        }
        if after != before {
            let _ = write(&pool.join("nr_hugepages"), before);
        }
        ledger.forget(entry)?;
        // A pool that somebody made at boot serves as well.
        if free() >= pages {
            return Ok(Self { page_bytes, added: None, ledger: ledger.clone() });
        }
        let why = match grown {
            Err(error) => format!("the pool cannot be made larger: {error}"),
            Ok(()) => format!("the kernel found {} of them", after.saturating_sub(before)),
        };
        let mib = page_bytes >> 20;
        Err(missing(
            format!("{pages} free large pages of {mib} MiB ({why})"),
            format!(
                "run weigh as root on a host with more free memory, or start the host with hugepages={pages} on its kernel's command \
                 line, or use hugepages=off"
            ),
        ))
    }

    /// Gives them back. Called again it does nothing.
    ///
    /// # Errors
    /// The pool stays as large as it is.
    pub(crate) fn give_back(&mut self) -> Result<()> {
        let Some((entry, pages)) = self.added else { return Ok(()) };
        let mut held = held(&HELD_PAGES);
        shrink(&pool(self.page_bytes), pages, held.before)
            .map_err(PlatformError::io("make the pool of large pages as small as it was"))?;
        held.machines = held.machines.saturating_sub(1);
        self.added = None;
        Ok(self.ledger.forget(entry)?)
    }
}

impl Drop for LargePages {
    fn drop(&mut self) {
        // What could not be undone stays in the ledger.
        let _ = self.give_back();
    }
}

fn missing(what: String, remedy: String) -> PlatformError {
    PlatformError::missing(what, remedy)
}

fn pool(page_bytes: u64) -> PathBuf {
    Path::new(POOLS).join(format!("hugepages-{}kB", page_bytes >> 10))
}

/// The size of large pages: the usual one, else the least that the kernel has.
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
        .ok_or_else(|| missing("a kernel with large pages".into(), "use hugepages=off on this host".into()))
}

/// Takes pages from the pool, but never more than were added since it had `floor`.
fn shrink(pool: &Path, pages: u64, floor: u64) -> std::io::Result<()> {
    let path = pool.join("nr_hugepages");
    let now = read(&path)?;
    let wanted = now.saturating_sub(pages).max(floor).min(now);
    if wanted == now { Ok(()) } else { write(&path, wanted) }
}

/// The kernel's merging of equal pages, switched on for a machine.
#[derive(Debug)]
pub(crate) struct Merging {
    entry: Option<EntryId>,
    ledger: Ledger,
}

impl Merging {
    /// Switches it on, unless it is.
    ///
    /// # Errors
    /// [`PlatformError::Missing`] where the kernel has none, or lets nobody but root switch it on.
    pub(crate) fn start(ledger: &Ledger, platform: &str) -> Result<Self> {
        let path = Path::new(KSM).join("run");
        let mut held = held(&HELD_MERGING);
        let now = read(&path).map_err(|error| {
            let what = format!("a kernel that merges equal pages ({}: {error})", path.display());
            missing(what, "use a host whose kernel has CONFIG_KSM".into())
        })?;
        let before = if held.machines == 0 { now } else { held.before };
        let entry = ledger.record(platform_change(platform, MERGING, "run", json!({"before": before})))?;
        if now != 1
            && let Err(error) = write(&path, 1)
        {
            ledger.forget(entry)?;
            let what = format!("the right to switch the merging of pages on ({}: {error})", path.display());
            return Err(missing(what, crate::remedy::AS_ROOT.into()));
        }
        (held.before, held.machines) = (before, held.machines + 1);
        Ok(Self { entry: Some(entry), ledger: ledger.clone() })
    }

    /// Puts the setting back when no machine needs it any more. Called again it does nothing.
    ///
    /// # Errors
    /// It stays on.
    pub(crate) fn give_back(&mut self) -> Result<()> {
        let Some(entry) = self.entry else { return Ok(()) };
        let mut held = held(&HELD_MERGING);
        if held.machines <= 1 && held.before != 1 {
            write(&Path::new(KSM).join("run"), held.before)
                .map_err(PlatformError::io("put the merging of pages back"))?;
        }
        held.machines = held.machines.saturating_sub(1);
        self.entry = None;
        Ok(self.ledger.forget(entry)?)
    }
}

impl Drop for Merging {
    fn drop(&mut self) {
        // What could not be undone stays in the ledger.
        let _ = self.give_back();
    }
}

/// How fast the kernel merges, as it is set now; `None` where it does not.
pub(crate) fn merging() -> Option<String> {
    let number = |file: &str| read(&Path::new(KSM).join(file)).ok();
    let rate = format!("{} pages every {} ms", number("pages_to_scan")?, number("sleep_millisecs")?);
    (number("run")? == 1).then_some(rate)
}

/// Undoes an entry of the ledger, [`PAGES`] or [`MERGING`].
///
/// # Errors
/// The setting stays, or the entry is another one.
pub(crate) fn undo(platform: &'static str, what: &str, detail: &Value) -> Result<()> {
    let number = |name: &str| {
        let number = detail.get(name).and_then(Value::as_u64);
        number.ok_or_else(|| PlatformError::StillThere(format!("the ledger does not say its {name}")))
    };
    let put_back = || PlatformError::io(format!("put the host's setting of {what} back"));
    match what {
        PAGES => {
            let pool = pool(number("page_bytes")?);
            shrink(&pool, number("pages")?, number("floor")?).map_err(put_back())
        }
        MERGING => write(&Path::new(KSM).join("run"), number("before")?).map_err(put_back()),
        _ => Err(PlatformError::never_made(platform, what)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_never_becomes_smaller_than_it_was() {
        let pool = tempfile::tempdir().unwrap();
        let path = pool.path().join("nr_hugepages");
        for (now, pages, floor, then) in [
            (300, 256, 44, 44),
            // Undone twice.
            (44, 256, 44, 44),
            // Another machine has as many.
            (556, 256, 44, 300),
            // Somebody took them away.
            (10, 256, 44, 10),
        ] {
            write(&path, now).unwrap();
            shrink(pool.path(), pages, floor).unwrap();
            assert_eq!(read(&path).unwrap(), then, "{now} - {pages}, at least {floor}");
        }
    }

    #[test]
    fn entries_without_numbers_change_nothing() {
        let undo = |what, detail| undo("qemu", what, &detail).unwrap_err().to_string();
        assert!(undo(PAGES, json!({"page_bytes": 1, "pages": 1})).contains("floor"));
        assert!(undo(MERGING, json!({})).contains("before"));
        assert!(undo("machine", json!({})).contains("never makes a machine"));
    }
}
