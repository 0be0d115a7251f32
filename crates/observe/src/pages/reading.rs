//! Reads the memory of other processes.
//!
//! There are two methods, with different effects on the memory that is read:
//!
//! - `process_vm_readv(2)` pins the pages and copies once, which is faster. But since Linux 5.19
//!   the kernel gives a process its own copy of a shared anonymous page before it pins it
//!   (`gup_must_unshare` of `mm/internal.h`). Reading in this way would undo what KSM has merged
//!   and what processes share since a fork: the scan would enlarge the memory that it measures.
//! - `/proc/PID/mem` leaves the page as it is, and copies twice.
//!
//! So the first method is used only where it changes nothing: for pages in the page cache, and for
//! anonymous pages mapped at one place, in mappings that KSM does not touch.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// How a page may be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadMethod {
    /// By `process_vm_readv(2)`.
    VmReadv,
    /// By `/proc/PID/mem`.
    ProcMem,
}

/// The memory of a process.
#[derive(Debug)]
pub(super) struct ProcessMemory {
    pid: libc::pid_t,
    /// This file stays that of the opened process. The other method uses the PID, so its caller has
    /// to check the page map of the same process afterwards.
    mem: File,
    page_bytes: usize,
    /// Whether the first method works here; seccomp filters may forbid it.
    pins: bool,
    runs: Vec<libc::iovec>,
}

impl ProcessMemory {
    pub(super) fn new(pid: u32, mem: File, page_bytes: u64) -> Option<Self> {
        let pid = libc::pid_t::try_from(pid).ok().filter(|pid| *pid > 0)?;
        Some(Self { pid, mem, page_bytes: page_bytes as usize, pins: true, runs: Vec::new() })
    }

    /// Reads the pages at these addresses one after another into the buffer. `got` says for each
    /// whether it could be read.
    pub(super) fn read(&mut self, pages: &[u64], way: ReadMethod, buffer: &mut [u8], got: &mut [bool]) {
        assert!(buffer.len() == pages.len() * self.page_bytes && got.len() == pages.len());
        let mut done = 0;
        while done < pages.len() {
            let (rest, room) = (&pages[done..], &mut buffer[done * self.page_bytes..]);
            let read = if way == ReadMethod::VmReadv && self.pins { self.pinned(rest, room) } else { Ok(0) };
            let read = match read {
                Ok(bytes) => bytes / self.page_bytes,
                Err(_) => 0,
            };
            got[done..done + read].fill(true);
            done += read;
            // A page that one method cannot read is read by the other. If that fails too, it is
            // skipped.
            if done < pages.len() {
                done += self.read_proc_mem(
                    &pages[done..],
                    way,
                    &mut buffer[done * self.page_bytes..],
                    &mut got[done..],
                );
            }
        }
    }

    /// Returns the number of bytes read, up to the first page that could not be read.
    fn pinned(&mut self, pages: &[u64], buffer: &mut [u8]) -> io::Result<usize> {
        self.runs.clear();
        let most = 1024; // IOV_MAX
        for address in pages {
            let is_full = self.runs.len() == most;
            match self.runs.last_mut() {
                Some(run) if run.iov_base as u64 + run.iov_len as u64 == *address => {
                    run.iov_len += self.page_bytes;
                }
                _ if is_full => break,
                _ => self
                    .runs
                    .push(libc::iovec { iov_base: *address as *mut libc::c_void, iov_len: self.page_bytes }),
            }
        }
        let here = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let (runs, count) = (self.runs.as_ptr(), self.runs.len() as libc::c_ulong);
        // SAFETY: `here` is valid for writes of its length, and the kernel checks the addresses of
        // the other process.
        let read = unsafe { libc::process_vm_readv(self.pid, &raw const here, 1, runs, count, 0) };
        usize::try_from(read).map_err(|_| {
            let error = io::Error::last_os_error();
            if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)) {
                self.pins = false;
            }
            error
        })
    }

    /// Reads consecutive pages by `/proc/PID/mem`, or just the first if the faster method can
    /// continue after it. Returns the number of pages that are done.
    fn read_proc_mem(&self, pages: &[u64], way: ReadMethod, buffer: &mut [u8], got: &mut [bool]) -> usize {
        let in_a_row =
            pages.windows(2).take_while(|pair| pair[0] + self.page_bytes as u64 == pair[1]).count() + 1;
        let count = if way == ReadMethod::VmReadv && self.pins { 1 } else { in_a_row };
        let room = &mut buffer[..count * self.page_bytes];
        let read = self.mem.read_at(room, pages[0]).unwrap_or(0) / self.page_bytes;
        got[..read].fill(true);
        if read == count {
            return count;
        }
        got[read] = false;
        read + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::mapped::Mapped;
    use std::os::fd::AsRawFd;

    /// Eight pages, each filled with its number, except for the third, which is protected, and the
    /// sixth, which does not exist.
    fn with_holes() -> (Mapped, usize) {
        let page_bytes = rustix::param::page_size();
        let mut memory = Mapped::anonymous(8 * page_bytes).unwrap();
        for (number, page) in memory.bytes_mut().chunks_mut(page_bytes).enumerate() {
            page.fill(number as u8 + 1);
        }
        let at = |page: usize| (memory.address() as usize + page * page_bytes) as *mut libc::c_void;
        let nothing = tempfile::tempfile().unwrap();
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        // SAFETY: the two pages are ours, and nobody has a reference to them. Pages beyond the end
        // of a file do not exist.
        unsafe {
            assert_eq!(libc::mprotect(at(2), page_bytes, libc::PROT_NONE), 0);
            let mapped = libc::mmap(at(5), page_bytes, libc::PROT_READ, flags, nothing.as_raw_fd(), 0);
            assert_eq!(mapped, at(5));
        }
        (memory, page_bytes)
    }

    #[test]
    fn pages_that_cannot_be_read_are_passed_over() {
        let (memory, page_bytes) = with_holes();
        let mem = || File::open("/proc/self/mem").unwrap();
        let order = [0, 1, 2, 3, 4, 5, 7, 6];
        let pages = order.map(|page: u64| memory.address() + page * page_bytes as u64);
        for (way, pins) in
            [(ReadMethod::VmReadv, true), (ReadMethod::VmReadv, false), (ReadMethod::ProcMem, true)]
        {
            let mut process = ProcessMemory::new(std::process::id(), mem(), page_bytes as u64).unwrap();
            process.pins = pins;
            let (mut buffer, mut got) = (vec![0; 8 * page_bytes], [false; 8]);
            process.read(&pages, way, &mut buffer, &mut got);
            // The kernel may be configured to let nobody read protected pages. A page that does not
            // exist is never read.
            let readable = [true, true, got[2], true, true, false, true, true];
            assert_eq!(got, readable, "{way:?}");
            for (index, number) in order.into_iter().enumerate().filter(|(index, _)| got[*index]) {
                let page = &buffer[index * page_bytes..][..page_bytes];
                assert!(page.iter().all(|byte| *byte == number as u8 + 1), "page {number} by {way:?}");
            }
        }
    }

    #[test]
    fn a_process_that_is_no_more_is_not_read() {
        assert!(ProcessMemory::new(0, File::open("/dev/null").unwrap(), 4096).is_none());
        let nobody = i32::MAX as u32;
        let mut process = ProcessMemory::new(nobody, File::open("/dev/null").unwrap(), 4096).unwrap();
        let mut got = [true; 3];
        process.read(&[4096, 8192, 65536], ReadMethod::VmReadv, &mut vec![0; 3 * 4096], &mut got);
        assert_eq!(got, [false; 3]);
    }
}
