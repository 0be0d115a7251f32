//! Frames of pages, and flags of frames: `/proc/PID/pagemap` and `/proc/kpageflags`
//! (`Documentation/admin-guide/mm/pagemap.rst`).

use super::PagesError;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// The page map entry of a page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct PageState(u64);

impl PageState {
    /// The frame number; `None` if the page is not present.
    pub(super) fn frame(self) -> Option<u64> {
        (self.0 & 1 << 63 != 0).then_some(self.0 & ((1 << 55) - 1))
    }

    pub(super) fn is_swapped(self) -> bool {
        self.0 & 1 << 62 != 0
    }

    /// Whether the page is in the page cache, or shared anonymous memory.
    pub(super) fn is_file(self) -> bool {
        self.0 & 1 << 61 != 0
    }

    /// Whether the frame is mapped at this place only.
    pub(super) fn is_exclusive(self) -> bool {
        self.0 & 1 << 56 != 0
    }
}

/// The page map of a process. It remains that of the opened process even if the number is reused.
#[derive(Debug)]
pub(super) struct PageMap {
    file: File,
    page_bytes: u64,
}

/// `PAGEMAP_SCAN` of `linux/fs.h`: `_IOWR('f', 16, struct pm_scan_arg)`, Linux 6.7.
const PAGEMAP_SCAN: u32 = 3 << 30 | (size_of::<ScanArgument>() as u32) << 16 | (b'f' as u32) << 8 | 16;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct ScanArgument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// Regions per request.
const REGIONS: usize = 128;

/// Smaller holes, in pages, are read like present pages, because skipping them takes longer.
const HOLE_PAGES: u64 = 128;

impl PageMap {
    pub(super) fn new(file: File, page_bytes: u64) -> Self {
        Self { file, page_bytes }
    }

    /// Reads the entries of the pages from `first` on. Pages of a process that has ended are
    /// absent.
    ///
    /// # Errors
    /// Those of `pread(2)`.
    pub(super) fn read(&self, first: u64, into: &mut [PageState]) -> io::Result<()> {
        // SAFETY: any eight bytes are a valid `PageState`, which is a `u64`, and the slice is
        // borrowed exclusively.
        let bytes =
            unsafe { std::slice::from_raw_parts_mut(into.as_mut_ptr().cast::<u8>(), size_of_val(into)) };
        let filled = read_until_end(&self.file, bytes, first * 8)?;
        bytes[filled..].fill(0);
        Ok(())
    }

    /// Whether the kernel can list holes: Linux 6.7 and later.
    pub(super) fn lists_holes(&self) -> bool {
        let mut argument = ScanArgument {
            size: size_of::<ScanArgument>() as u64,
            end: self.page_bytes,
            category_anyof_mask: PAGE_IS_PRESENT,
            return_mask: PAGE_IS_PRESENT,
            ..ScanArgument::default()
        };
        self.ask(&mut argument).is_some()
    }

    /// Returns the number of regions that the kernel wrote.
    fn ask(&self, argument: &mut ScanArgument) -> Option<usize> {
        // SAFETY: the argument is valid for reads and writes during the call, and so is the memory
        // it points to, with the stated size: none, or the regions of `occupied`. On a kernel
        // without the call it is an error.
        let count =
            unsafe { libc::ioctl(self.file.as_raw_fd(), PAGEMAP_SCAN as libc::Ioctl, &raw mut *argument) };
        usize::try_from(count).ok()
    }

    /// The parts of a range with pages that are present or swapped out, in order, including small
    /// holes; the whole range before Linux 6.7.
    pub(super) fn occupied(&self, pages: Range<u64>) -> Vec<Range<u64>> {
        let mut found: Vec<Range<u64>> = Vec::new();
        let mut regions = [Region::default(); REGIONS];
        let mut start = pages.start * self.page_bytes;
        let end = pages.end * self.page_bytes;
        while start < end {
            let mut argument = ScanArgument {
                size: size_of::<ScanArgument>() as u64,
                start,
                end,
                vec: regions.as_mut_ptr() as u64,
                vec_len: REGIONS as u64,
                category_anyof_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
                return_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
                ..ScanArgument::default()
            };
            let Some(count) = self.ask(&mut argument) else { return vec![pages] };
            for region in &regions[..count.min(REGIONS)] {
                let next = region.start / self.page_bytes..region.end / self.page_bytes;
                match found.last_mut() {
                    Some(last) if next.start < last.end + HOLE_PAGES => last.end = next.end,
                    _ => found.push(next),
                }
            }
            if argument.walk_end <= start {
                // No progress: the rest is read completely.
                found.push(start / self.page_bytes..pages.end);
                break;
            }
            start = argument.walk_end;
        }
        found
    }
}

/// The flags of a frame (`linux/kernel-page-flags.h`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct FrameFlags(u64);

impl FrameFlags {
    pub(super) fn is_ksm(self) -> bool {
        self.0 & 1 << 21 != 0
    }

    pub(super) fn is_kernel_zero(self) -> bool {
        self.0 & 1 << 24 != 0
    }

    /// Whether the frame is part of a transparent huge page, or of one of hugetlbfs.
    pub(super) fn is_huge(self) -> bool {
        self.0 & (1 << 17 | 1 << 22) != 0
    }

    /// Whether it is backed by swap and not anonymous: a memory file or shared anonymous memory.
    pub(super) fn is_memory_file(self) -> bool {
        self.0 & (1 << 12 | 1 << 14) == 1 << 14
    }
}

/// The flags of all frames of the host.
#[derive(Debug)]
pub(super) struct KernelPageFlags(File);

impl KernelPageFlags {
    /// # Errors
    /// [`PagesError::Denied`] if not root, [`PagesError::NotBuilt`] if the kernel lacks the file.
    pub(super) fn open() -> Result<Self, PagesError> {
        let path = "/proc/kpageflags";
        File::open(path).map(Self).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => PagesError::NotBuilt { path },
            _ => PagesError::Denied { path: path.into(), source },
        })
    }

    /// Reads the flags of the frames from `first` on; 0 for frames that do not exist.
    ///
    /// # Errors
    /// Those of `pread(2)`.
    pub(super) fn read(&self, first: u64, into: &mut Vec<FrameFlags>, count: usize) -> io::Result<()> {
        let mut bytes = vec![0; count * 8];
        let filled = read_until_end(&self.0, &mut bytes, first * 8)?;
        bytes[filled..].fill(0);
        into.clear();
        let words = bytes.chunks_exact(8);
        into.extend(
            words.map(|word| FrameFlags(u64::from_ne_bytes(word.try_into().expect("chunks of eight bytes")))),
        );
        Ok(())
    }
}

/// Reads until the buffer is full or the file ends; returns the length.
fn read_until_end(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_are_those_of_the_kernels_documentation() {
        let seen = PageState(1 << 63 | 1 << 61 | 1 << 56 | 0x1234);
        assert_eq!((seen.frame(), seen.is_file(), seen.is_exclusive()), (Some(0x1234), true, true));
        let swapped = PageState(1 << 62 | 0x1234);
        assert!(swapped.is_swapped() && swapped.frame().is_none() && !PageState::default().is_swapped());
        assert!(FrameFlags(1 << 14).is_memory_file() && !FrameFlags(1 << 14 | 1 << 12).is_memory_file());
        assert!(
            FrameFlags(1 << 17).is_huge() && FrameFlags(1 << 22).is_huge() && FrameFlags(1 << 21).is_ksm()
        );
        assert_eq!(PAGEMAP_SCAN, 0xC060_6610);
    }

    /// A map that is mostly a hole: exactly the present pages are found.
    #[test]
    fn holes_are_passed_over() {
        let page_bytes = rustix::param::page_size() as u64;
        let mut memory = super::super::mapped::Mapped::anonymous(1 << 30).unwrap();
        memory.advise(libc::MADV_NOHUGEPAGE).unwrap();
        let first = memory.address() / page_bytes;
        let last = first + (1 << 30) / page_bytes - 1;
        memory.bytes_mut()[0] = 1;
        *memory.bytes_mut().last_mut().unwrap() = 1;
        let map = PageMap::new(File::open("/proc/self/pagemap").unwrap(), page_bytes);
        let found = map.occupied(first..last + 1);
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let mut numbers = release.split(['.', '-']).map_while(|word| word.parse::<u32>().ok());
        if (numbers.next(), numbers.next()) >= (Some(6), Some(7)) {
            assert_eq!(found, [first..first + 1, last..last + 1]);
        } else {
            assert_eq!((found.len(), &found[0]), (1, &(first..last + 1)));
        }
        let mut seen = [PageState::default(); 2];
        map.read(first, &mut seen).unwrap();
        assert!(seen[0].frame().is_some() && seen[1].frame().is_none(), "{seen:?}");
    }
}
