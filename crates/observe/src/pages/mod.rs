//! Pages of memory that are equal: the analysis of table 1 of Agarwal, Jain and Porter, "Containing
//! the Hype" (APSys 2015), for guests of every kind.
//!
//! Every present page of the subjects' address spaces, and every page of the given files that the
//! host has in its page cache, is read and hashed where it lies, beside the guests and without
//! stopping them. A frame of physical memory counts once, for the first subject that has it: guests
//! in the order given, then helpers, then cached files. Of k frames of equal content k - 1 could be
//! saved; which cell of the matrix each belongs to is told in `classify`, and why in
//! `docs/design/0034-duplicate-memory-pages.md`.
//!
//! # Two looks
//!
//! Guests write while they are scanned, so that two pages may hash alike that were never equal at
//! one moment. Therefore there are two looks. The first reads every page. When it has ended, and
//! not before, the second reads again every page whose hash another page has. A page counts only if
//! both looks found the same frame and the same content, and within each look the frame was the
//! same before and after it was read. If a page is written only by those who leave something else
//! behind, it held that content from its first look to its second; the end of the first look lies
//! between the two for all pages; so at that moment all pages of a class were equal (the double
//! collect of Afek and others, "Atomic Snapshots of Shared Memory", J. ACM 40, 1993). What is not
//! proven so is counted as unsettled and is in no cell. A page that was changed and changed back
//! between the looks passes. A page that becomes equal to another later, or whose first look fell
//! into a write, is missed: the matrix is what was surely equal.
//!
//! # Hash
//!
//! XXH3 with 128 bits. For 24 GiB of different pages of 4 KiB the probability that any two of them
//! collide is 6e-26 (n²/2^129 for n = 6.3 million). It is not made against an adversary: a guest
//! that means to can make pages that collide, and spoil this statistic. Nothing is ever merged by
//! it.
//!
//! # What the scan does to what it scans
//!
//! - It never reads what is not present: nothing is faulted in, and nothing comes back from swap,
//!   but for a page that is taken away between being found and being read.
//! - It never takes shared anonymous pages apart, see `reading`.
//! - It counts as a use of the pages, so that the kernel thinks them younger than they are.
//!
//! # What is not seen
//!
//! Memory of the kernel for a guest (page tables, buffers of sockets), and memory that the host
//! cannot read at all, as that of confidential machines (`guest_memfd`).

mod classify;
mod entry;
mod frames;
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

use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use weigh_model::pages::{PageScan, SubjectRole};

/// Whose memory is scanned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// Its name, for people.
    pub name: String,
    /// What it is and where its memory is.
    pub memory: Memory,
}

/// What a subject is and where its memory is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Memory {
    /// A guest, by its processes: all of a container's, or the monitor of a machine with the
    /// machine's memory in it.
    Guest(Vec<u32>),
    /// What serves a guest and is not in it.
    Helper {
        /// Name of the guest.
        guest: String,
        /// Its processes.
        pids: Vec<u32>,
    },
    /// Files, and trees of files without what is mounted in them: what of them is in the page cache
    /// when their turn comes.
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

/// How to scan.
#[derive(Debug, Clone, Copy)]
pub struct Options<'a> {
    /// Threads that read and hash, and so the CPUs that the scan takes at most; 0 is taken as 1.
    pub threads: usize,
    /// Set by somebody else when the scan is to end without a result.
    pub stop: &'a AtomicBool,
}

impl<'a> Options<'a> {
    /// One thread.
    pub fn new(stop: &'a AtomicBool) -> Self {
        Self { threads: 1, stop }
    }
}

/// Why there is no result.
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
    /// The kernel was built without.
    #[error("the kernel has no {path}; use one that was built with CONFIG_PROC_PAGE_MONITOR")]
    NotBuilt {
        /// The file that is absent.
        path: &'static str,
    },
    /// A path whose cached pages are asked for is not there.
    #[error("cannot look at the cached file {}: {source}", path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// What failed.
        source: io::Error,
    },
    /// More processes and files than the table can tell apart.
    #[error("more than {} processes and files; name fewer trees of files", entry::MOST_SOURCES)]
    TooMany,
    /// No memory for the table of pages.
    #[error(
        "no memory left for the table of pages after {pages} of them; free 40 bytes for each page, or name fewer guests"
    )]
    Memory {
        /// Pages in the table.
        pages: u64,
    },
    /// The caller said so.
    #[error("the scan of pages was stopped")]
    Stopped,
    /// The kernel failed at what it does for everybody.
    #[error("cannot {doing}: {source}")]
    Io {
        /// What was to be done.
        doing: &'static str,
        /// What failed.
        source: io::Error,
    },
}

/// Scans the memory of the subjects, see the module. Takes at most 40 bytes of memory for each
/// page.
///
/// A subject's processes are those that are named, without their children. Processes that end
/// meanwhile are counted and do no harm.
///
/// # Errors
/// [`PagesError`]: no right to read, a kernel without page maps, a path that is not there, no memory, or told to stop.
pub fn scan(subjects: &[Subject], options: &Options<'_>) -> Result<PageScan, PagesError> {
    scan::scan(subjects, options)
}
