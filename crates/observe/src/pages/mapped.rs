//! A mapping of this process: a window into a file, or memory without a file.

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::fs::File;
use std::io;

/// A mapping that ends when it is dropped. A mapped file is never read through the pointer: if it
/// became shorter meanwhile, this process would end with SIGBUS.
#[derive(Debug)]
pub(super) struct Mapped {
    base: *mut c_void,
    bytes: usize,
}

impl Mapped {
    /// Private memory without a file.
    ///
    /// # Errors
    /// Those of `mmap(2)`.
    pub(super) fn anonymous(bytes: usize) -> io::Result<Self> {
        let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: the kernel chooses an address where nothing is mapped.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, rights, flags) }?;
        Ok(Self { base, bytes })
    }

    /// A part of a file, for inspection. `offset` is a multiple of the page size.
    ///
    /// # Errors
    /// Those of `mmap(2)`.
    pub(super) fn file(file: &File, offset: u64, bytes: usize) -> io::Result<Self> {
        // SAFETY: the kernel chooses an address where nothing is mapped.
        let base =
            unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, file, offset) }?;
        Ok(Self { base, bytes })
    }

    /// Its first address.
    pub(super) fn address(&self) -> u64 {
        self.base as u64
    }

    /// Reads which of its pages are in the page cache: bit 0 of a byte for each (`mincore(2)`).
    ///
    /// # Errors
    /// Those of `mincore(2)`.
    pub(super) fn resident(&self, page_bytes: u64, into: &mut Vec<u8>) -> io::Result<()> {
        into.clear();
        into.resize(self.bytes.div_ceil(page_bytes as usize), 0);
        // SAFETY: the range is ours, and there is a byte for each of its pages.
        match unsafe { libc::mincore(self.base, self.bytes, into.as_mut_ptr()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Enters a part that is in the page cache into the page table, as reading it would
    /// (MADV_POPULATE_READ, Linux 5.14).
    ///
    /// # Errors
    /// EINVAL on older kernels, EFAULT if the file has become shorter.
    pub(super) fn populate(&self, offset: usize, bytes: usize) -> io::Result<()> {
        assert!(offset + bytes <= self.bytes, "a part of the mapping");
        // SAFETY: the range is ours, and the advice changes no content.
        match unsafe { libc::madvise(self.base.byte_add(offset), bytes, libc::MADV_POPULATE_READ) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and its last use ends with `self`.
        let _ = unsafe { munmap(self.base, self.bytes) };
    }
}

/// Helpers for tests that map memory.
#[cfg(test)]
impl Mapped {
    pub(super) fn advise(&self, advice: libc::c_int) -> io::Result<()> {
        // SAFETY: the range is ours.
        match unsafe { libc::madvise(self.base, self.bytes, advice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The bytes of an anonymous mapping.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is readable, writable, zeroed and ours alone.
        unsafe { std::slice::from_raw_parts_mut(self.base.cast(), self.bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn the_cached_pages_of_a_file_are_reported() {
        let page_bytes = rustix::param::page_size() as u64;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; 3 * page_bytes as usize]).unwrap();
        file.set_len(8 * page_bytes).unwrap();
        let mapped = Mapped::file(&file, page_bytes, 7 * page_bytes as usize).unwrap();
        let mut resident = Vec::new();
        mapped.resident(page_bytes, &mut resident).unwrap();
        assert_eq!(resident.iter().map(|byte| byte & 1).collect::<Vec<_>>(), [1, 1, 0, 0, 0, 0, 0]);
        mapped.populate(0, page_bytes as usize).unwrap();
        // Pages beyond the end of the file do not exist: entering them fails and kills no process.
        file.set_len(0).unwrap();
        assert!(mapped.populate(0, page_bytes as usize).is_err());
    }
}
