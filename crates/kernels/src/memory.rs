//! Large zeroed memory that requests huge pages and reports whether it got them.

use crate::kernel::KernelError;
use crate::options::{OptionSpec, Options};
use crate::outcome::Outcome;
#[cfg(not(target_family = "wasm"))]
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::ptr::NonNull;

/// Size of a huge page on x86-64, and on aarch64 with 4 KiB pages.
const HUGE_PAGE: usize = 2 << 20;

/// An anonymous private mapping, aligned to a huge page where it is at least that long. No page is
/// touched yet.
pub(crate) struct Region {
    mapping: *mut c_void,
    mapped_bytes: usize,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the region is plain memory that this value owns. Those who take its pointer are
// responsible for accesses.
unsafe impl Send for Region {}
// SAFETY: as above; the methods that take `&self` only read the fields.
unsafe impl Sync for Region {}

/// `--huge-pages`.
pub(crate) const HUGE_PAGES: OptionSpec =
    OptionSpec::choice("huge-pages", &["advise", "never"]).help("whether to ask for huge pages");

/// Whether the options ask for huge pages.
pub(crate) fn wants_huge_pages(options: &Options) -> bool {
    options.text("huge-pages") == "advise"
}

impl Region {
    /// Maps `bytes` zeroed bytes; `huge` asks for huge pages, else they are declined.
    pub(crate) fn map(bytes: usize, huge: bool) -> Result<Self, KernelError> {
        let doing = || format!("map {} of memory", weigh_model::format_bytes(bytes as u64));
        let too_long =
            || KernelError::Unable(format!("cannot {}: it is longer than the address space", doing()));
        let mapped_bytes = bytes.checked_add(HUGE_PAGE).ok_or_else(too_long)?;
        let mapping = map(mapped_bytes, huge).map_err(KernelError::system(doing()))?;
        let padding = mapping.cast::<u8>().align_offset(HUGE_PAGE);
        // SAFETY: padding is below HUGE_PAGE, so start and the `bytes` after it lie inside the
        // mapping.
        let start = unsafe { mapping.cast::<u8>().add(padding) };
        let start = NonNull::new(start).expect("no mapping begins at null");
        Ok(Self { mapping, mapped_bytes, start, bytes })
    }

    /// The first byte, aligned to 2 MiB. Valid for [`Self::bytes`] bytes as long as the region
    /// lives.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// The whole region.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the region is mapped, zeroed memory of that length, and the borrow keeps every
        // other use of this value away.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }

    /// Usable length.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of the region that lie on huge pages now, from `/proc/self/smaps`. `None` if that file
    /// does not exist.
    pub(crate) fn huge_bytes(&self) -> Option<u64> {
        let smaps = std::fs::read_to_string("/proc/self/smaps").ok()?;
        let first = self.mapping as usize;
        Some(huge_bytes_between(&smaps, first, first + self.mapped_bytes))
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and whoever borrowed its pointer has finished by the time
        // its owner drops it.
        unsafe { unmap(self.mapping, self.mapped_bytes) };
    }
}

/// Maps zeroed memory of which no page is touched yet.
#[cfg(not(target_family = "wasm"))]
fn map(bytes: usize, huge: bool) -> std::io::Result<*mut c_void> {
    let (readable, private) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new mapping at an address of the kernel's choice; nobody else knows it.
    let mapping = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, readable, private) }?;
    let advice = if huge { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
    // SAFETY: the range is the mapping just made. A kernel without huge pages refuses the
    // advice, which the facts show, so the result does not matter here.
    let _ = unsafe { madvise(mapping, bytes, advice) };
    Ok(mapping)
}

/// Unmaps what [`map`] mapped.
///
/// # Safety
/// Nobody may use the memory any more.
#[cfg(not(target_family = "wasm"))]
unsafe fn unmap(mapping: *mut c_void, bytes: usize) {
    // SAFETY: the caller's promise. The call cannot fail for a range that was mapped as a whole.
    let _ = unsafe { munmap(mapping, bytes) };
}

/// The layout of a region in WebAssembly, whose memory only the allocator extends. A program has no
/// say in the pages behind it.
#[cfg(target_family = "wasm")]
fn layout(bytes: usize) -> std::io::Result<std::alloc::Layout> {
    std::alloc::Layout::array::<u8>(bytes).map_err(|_| std::io::ErrorKind::OutOfMemory.into())
}

#[cfg(target_family = "wasm")]
fn map(bytes: usize, _: bool) -> std::io::Result<*mut c_void> {
    // SAFETY: a region is never empty.
    let start = unsafe { std::alloc::alloc_zeroed(layout(bytes)?) };
    if start.is_null() { Err(std::io::ErrorKind::OutOfMemory.into()) } else { Ok(start.cast()) }
}

/// Frees what [`map`] allocated.
///
/// # Safety
/// Nobody may use the memory any more.
#[cfg(target_family = "wasm")]
unsafe fn unmap(start: *mut c_void, bytes: usize) {
    if let Ok(layout) = layout(bytes) {
        // SAFETY: it was allocated with this layout, and the caller promises the rest.
        unsafe { std::alloc::dealloc(start.cast(), layout) };
    }
}

/// Sums `AnonHugePages` over the mappings of `smaps` that overlap the addresses. The kernel may
/// have merged neighbouring mappings, so the sum is bounded by the length of the overlap.
fn huge_bytes_between(smaps: &str, first: usize, end: usize) -> u64 {
    let mut overlap = 0u64;
    let mut total = 0;
    for line in smaps.lines() {
        if let Some(kilobytes) = line.strip_prefix("AnonHugePages:") {
            let kilobytes = kilobytes.trim().trim_end_matches("kB").trim().parse().unwrap_or(0u64);
            total += (kilobytes * 1024).min(overlap);
        } else if let Some((low, high)) = line.split(' ').next().and_then(|range| range.split_once('-'))
            && let (Ok(low), Ok(high)) = (usize::from_str_radix(low, 16), usize::from_str_radix(high, 16))
        {
            overlap = end.min(high).saturating_sub(first.max(low)) as u64;
        }
    }
    total
}

/// Records in the facts how much of `regions` lies on huge pages.
pub(crate) fn state_huge_pages<'a>(
    outcome: &mut Outcome,
    regions: impl IntoIterator<Item = &'a Region>,
    asked: bool,
) {
    let regions: Vec<_> = regions.into_iter().collect();
    let all: u64 = regions.iter().map(|region| region.bytes() as u64).sum();
    match regions.iter().map(|region| region.huge_bytes()).sum::<Option<u64>>() {
        None => outcome.fact("huge_page_share", serde_json::Value::Null),
        Some(huge) => {
            let share = huge as f64 / all.max(1) as f64;
            outcome.fact("huge_page_share", (share.min(1.0) * 1e3).round() / 1e3);
            if asked && share < 0.9 && all >= 2 * HUGE_PAGE as u64 {
                outcome.warn(format!(
                    "only {:.0} % of the memory is on huge pages; the kernel of this machine has them off or is short of them",
                    share * 100.0
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_aligned_zeroed_and_writable() {
        let region = Region::map(3 << 20, true).unwrap();
        assert_eq!(region.start() as usize % HUGE_PAGE, 0);
        // SAFETY: within the region, which nobody else uses.
        unsafe {
            assert_eq!(region.start().add(region.bytes() - 1).read(), 0);
            region.start().add(region.bytes() - 1).write(7);
            assert_eq!(region.start().add(region.bytes() - 1).read(), 7);
        }
    }

    #[test]
    fn impossible_sizes_are_refused_in_words() {
        let message = Region::map(usize::MAX, false).err().unwrap().to_string();
        assert!(message.contains("address space"), "{message}");
        let message = Region::map(usize::MAX / 4, false).err().unwrap().to_string();
        assert!(message.starts_with("cannot map"), "{message}");
    }

    #[test]
    fn huge_pages_are_counted_within_the_range_only() {
        let smaps = "1000-3000 rw-p 00000000 00:00 0\nSize: 8 kB\nAnonHugePages:        4 kB\n\
                     3000-9000 rw-p 00000000 00:00 0 \nAnonHugePages:      2048 kB\n\
                     9000-a000 rw-p 00000000 00:00 0\nAnonHugePages:      12 kB\nVmFlags: rd wr\n";
        assert_eq!(huge_bytes_between(smaps, 0x3000, 0x9000), 0x6000);
        assert_eq!(huge_bytes_between(smaps, 0x1000, 0x3000), 4096);
        assert_eq!(huge_bytes_between(smaps, 0xb000, 0xc000), 0);
    }
}
