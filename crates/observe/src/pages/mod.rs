//! Pages of memory that are equal: the analysis of table 1 of Agarwal, Jain and Porter, "Containing
//! the Hype" (APSys 2015), for guests of every kind.
//!
//! The scan reads and hashes every present page of the subjects' address spaces, and every page of
//! the given files in the host's page cache, while the guests run. A frame of physical memory
//! counts once, for the first subject that has it: guests in the given order, then helpers, then
//! cached files. Of k frames with equal content k - 1 could be saved. `classify` assigns each of
//! them to a cell of the matrix; `docs/design/0034-duplicate-memory-pages.md` gives the reasons.
//!
//! # Two looks
//!
//! Guests write during the scan, so two pages may have the same hash although they were never equal
//! at the same time. Therefore every page that has an equal is read twice. The first look reads
//! every page. After it has ended, the second look rereads every page whose hash another page has.
//! A page counts only if both looks found the same frame and content, and if each look found the
//! same frame before and after reading. If every write changes the content, such a page had the
//! same content from its first look to its second. The end of the first look lies between the two
//! for all pages, so at that time all pages of a class were equal (the double collect of Afek and
//! others, "Atomic Snapshots of Shared Memory", J. ACM 40, 1993). Other pages count as unsettled
//! and are in no cell.
//!
//! A page that was changed and changed back between the looks counts. A page that becomes equal to
//! another one later, or that was written during its first look, is missed. So the matrix contains
//! only pages that were certainly equal, apart from pages that were changed back.
//!
//! # Hash
//!
//! XXH3 with 128 bits. For 24 GiB of different pages of 4 KiB the probability of any collision is
//! 6e-26 (n²/2^129 for n = 6.3 million). The hash does not resist an adversary: a guest could make
//! pages that collide and falsify this statistic. No page is ever merged because of its hash.
//!
//! # Effects on the scanned memory
//!
//! - The scan reads no page that is not present: it causes no page fault and no read from swap,
//!   unless a page is taken away between being found and being read.
//! - It never splits shared anonymous pages, see `reading`.
//! - It marks pages as used, so the kernel considers them younger than they are.
//!
//! # Memory that is not scanned
//!
//! Memory of the kernel for a guest (page tables, buffers of sockets), and memory that the host
//! cannot read, such as that of confidential machines (`guest_memfd`).

mod classify;
mod entry;
mod frames;
mod guest_files;
mod look;
mod mapped;
mod mappings;
mod pagemap;
mod reading;
mod scan;
mod sources;
#[cfg(test)]
mod tests;
mod worker;

pub use guest_files::{FileFacts, FileIdentity};

use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use weigh_model::pages::{PageScan, SubjectRole};

/// A subject of a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// Its name, for people.
    pub name: String,
    /// Its kind and the location of its memory.
    pub memory: Memory,
}

/// The kind of a subject and the location of its memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Memory {
    /// A guest, by its processes: all of a container's, or the monitor of a machine with the
    /// machine's memory in it.
    Guest(Vec<u32>),
    /// Processes that serve a guest and are outside of it.
    Helper {
        /// Name of the guest.
        guest: String,
        /// Its processes.
        pids: Vec<u32>,
    },
    /// Files, and trees of files without other file systems mounted in them. Only their pages in
    /// the page cache at the time of the scan count.
    CachedFiles(Vec<PathBuf>),
}

impl Subject {
    /// A guest.
    pub fn guest(name: impl Into<String>, pids: Vec<u32>) -> Self {
        Self { name: name.into(), memory: Memory::Guest(pids) }
    }

    /// A helper of a guest.
    pub fn helper(name: impl Into<String>, guest: impl Into<String>, pids: Vec<u32>) -> Self {
        Self { name: name.into(), memory: Memory::Helper { guest: guest.into(), pids } }
    }

    /// Cached files of the host.
    pub fn cached_files(name: impl Into<String>, paths: Vec<PathBuf>) -> Self {
        Self { name: name.into(), memory: Memory::CachedFiles(paths) }
    }

    fn role(&self) -> SubjectRole {
        match &self.memory {
            Memory::Guest(_) => SubjectRole::Guest,
            Memory::Helper { guest, .. } => SubjectRole::Helper { guest: guest.clone() },
            Memory::CachedFiles(_) => SubjectRole::CachedFiles,
        }
    }
}

/// Options of a scan.
#[derive(Debug, Clone, Copy)]
pub struct Options<'a> {
    /// Threads that read and hash, and so the CPUs that the scan takes at most; 0 is taken as 1.
    pub threads: usize,
    /// Set by another thread to stop the scan without a result.
    pub stop: &'a AtomicBool,
}

impl<'a> Options<'a> {
    /// Options with one thread.
    pub fn new(stop: &'a AtomicBool) -> Self {
        Self { threads: 1, stop }
    }
}

/// Why a scan has no result.
#[derive(Debug, thiserror::Error)]
pub enum PagesError {
    /// The kernel shows no frame numbers.
    #[error(
        "the kernel hides the frame numbers of pages from this user; run weigh as root, or give it CAP_SYS_ADMIN"
    )]
    Hidden,
    /// A process or the kernel's list of frames may not be read.
    #[error("may not read {}: {source}; run weigh as root, or give it CAP_SYS_PTRACE and CAP_SYS_ADMIN", path.display())]
    Denied {
        /// The file of the kernel.
        path: PathBuf,
        /// What was refused.
        source: io::Error,
    },
    /// The kernel was built without a file that the scan needs.
    #[error("the kernel has no {path}; use one that was built with CONFIG_PROC_PAGE_MONITOR")]
    NotBuilt {
        /// The missing file.
        path: &'static str,
    },
    /// A path of cached files cannot be read.
    #[error("cannot look at the cached file {}: {source}", path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// What failed.
        source: io::Error,
    },
    /// More processes and files than the table can distinguish.
    #[error("more than {} processes and files; name fewer trees of files", entry::MOST_SOURCES)]
    TooMany,
    /// There is no memory left for the table of pages.
    #[error(
        "no memory left for the table of pages after {pages} of them; free 40 bytes for each page, or name fewer guests"
    )]
    Memory {
        /// Pages in the table.
        pages: u64,
    },
    /// The caller stopped the scan.
    #[error("the scan of pages was stopped")]
    Stopped,
    /// An operation that needs no rights failed.
    #[error("cannot {doing}: {source}")]
    Io {
        /// The operation, a verb.
        doing: &'static str,
        /// What failed.
        source: io::Error,
    },
}

/// Scans the memory of the subjects as the module describes. Takes at most 40 bytes of memory for
/// each page.
///
/// A subject's processes are the given ones, without their children. Processes that end during the
/// scan are counted.
///
/// # Errors
/// [`PagesError`] without the right to read, on a kernel without page maps, for a missing path that
/// is not in `/proc`, without memory for the table, and if the caller stops the scan.
pub fn scan(subjects: &[Subject], options: &Options<'_>) -> Result<PageScan, PagesError> {
    scan::scan(subjects, options)
}
