//! Pages of memory that are equal: what a scan of the host's page frames finds.
//!
//! After table 1 of Agarwal, Jain and Porter, "Containing the Hype" (APSys 2015). A page is what
//! the hardware maps, a frame is the physical memory that holds one, and a place is where a frame
//! is mapped: a page of a process's address space, or a page of a file in the host's page cache.
//! All counts are of pages of [`PageScan::page_bytes`]; a huge page counts by its pieces.
//!
//! How a frame is counted, and how a saving, is decided in
//! `docs/design/0034-duplicate-memory-pages.md`.

use serde::{Deserialize, Serialize};
use std::ops::{Add, AddAssign};

/// What a scan found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PageScan {
    /// Size of a page, bytes.
    pub page_bytes: u64,
    /// Those whose memory was scanned: guests in the order they were given, then helpers, then
    /// cached files. A frame belongs to the first of this list that has it.
    pub subjects: Vec<SubjectPages>,
    /// The frames, each once.
    pub frames: Frames,
    /// Pages full of zeros, which are in no other count of duplicates.
    pub zero: ZeroPages,
    /// What is one frame already.
    pub shared: SharedFrames,
    /// What equal frames could save.
    pub matrix: DuplicateMatrix,
    /// Who could save it.
    pub merging: Merging,
    /// Pages that did not hold still. They are in no other count.
    pub unsettled: Unsettled,
    /// Pages whose contents are not known.
    pub unread: Unread,
    /// What the scan itself took.
    pub cost: ScanCost,
}

impl PageScan {
    /// Bytes of so many pages.
    pub fn bytes(&self, pages: u64) -> u64 {
        pages * self.page_bytes
    }

    /// The subject of that name.
    pub fn subject(&self, name: &str) -> Option<&SubjectPages> {
        self.subjects.iter().find(|subject| subject.name == name)
    }
}

/// Whose memory it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum SubjectRole {
    /// A guest: the processes of a container, or the process of a machine's monitor with the
    /// machine's memory in it.
    Guest,
    /// A process outside of a guest that serves it: a shim, a file server, a proxy. Counts as the
    /// host.
    Helper {
        /// Name of the guest.
        guest: String,
    },
    /// Files in the host's page cache: root trees, disk images, kernels. Counts as the host.
    CachedFiles,
}

impl SubjectRole {
    /// Whether it is a guest; all others are the host.
    pub fn is_guest(&self) -> bool {
        *self == Self::Guest
    }
}

/// What one subject has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubjectPages {
    /// Its name.
    pub name: String,
    /// What it is.
    pub role: SubjectRole,
    /// Places at which it has a frame, without the kernel's zero page: for processes the resident
    /// set summed up.
    pub places: u64,
    /// Frames that belong to it.
    pub frames: u64,
    /// Frames that it has and another subject too, whomever they belong to.
    pub frames_with_others: u64,
    /// Of its frames: equal to another frame, so that all but one of the equals could be saved.
    /// Without pages full of zeros.
    pub duplicate_frames: u64,
    /// Of its frames: full of zeros.
    pub zero_frames: u64,
}

impl SubjectPages {
    /// A subject of which nothing is counted yet.
    pub fn new(name: impl Into<String>, role: SubjectRole) -> Self {
        Self {
            name: name.into(),
            role,
            places: 0,
            frames: 0,
            frames_with_others: 0,
            duplicate_frames: 0,
            zero_frames: 0,
        }
    }
}

/// The frames of all subjects, each once, without those that did not hold still.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frames {
    /// All of them, those full of zeros too, the kernel's zero page not.
    pub total: u64,
    /// Of these: private anonymous memory. The memory of a machine is that, unless its monitor
    /// takes it from a memory file.
    pub anonymous: u64,
    /// Of these: in the page cache, which memory files and shared anonymous memory are too.
    pub file: u64,
    /// Of the frames in the page cache: of memory files (`memfd_create(2)`, tmpfs) or shared
    /// anonymous memory. KSM merges none of them.
    pub memory_file: u64,
    /// Of all: in a huge page, or in one of the smaller groups of pages that the kernel keeps
    /// together (large folios).
    pub huge: u64,
    /// Of all: contents that no other frame has.
    pub unique: u64,
}

/// Pages full of zeros.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZeroPages {
    /// Places at which the kernel's own zero page is mapped (KPF_ZERO_PAGE): memory that was read
    /// and never written. Costs nothing.
    pub kernel_places: u64,
    /// Anonymous frames full of zeros. KSM saves all but one of them, and all where it may use the
    /// kernel's zero page (`/sys/kernel/mm/ksm/use_zero_pages`).
    pub anonymous: u64,
    /// Of the anonymous: in mappings that KSM may merge.
    pub anonymous_mergeable: u64,
    /// Frames in the page cache full of zeros.
    pub file: u64,
}

/// Frames that several places have already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedFrames {
    /// Files and memory files that are mapped more than once.
    pub file: Shared,
    /// Anonymous memory that processes have in common since they were forked.
    pub forked: Shared,
    /// What KSM has merged (KPF_KSM); a merged frame of which one place is left counts too.
    pub ksm: Shared,
}

/// Frames that are mapped at several places of the scanned processes. Cached files are no such
/// places: a file's page in the page cache spares nobody a copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared {
    /// How many frames.
    pub frames: u64,
    /// At how many places.
    pub places: u64,
    /// Copies that are spared between subjects: for each frame, the subjects that map it less one.
    pub spared_between_subjects: u64,
}

impl Shared {
    /// Copies that are spared: places less frames.
    pub fn spared(&self) -> u64 {
        self.places - self.frames
    }
}

/// Frames that could be saved, by where the equal is: k equal frames save k - 1. Without pages full
/// of zeros.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DuplicateMatrix {
    /// The equal is in the same guest.
    pub within_guest: KindPairs,
    /// The equal is in a cached file of the host or in a helper.
    pub guest_host: KindPairs,
    /// The equal is in another guest.
    pub guest_guest: KindPairs,
    /// Both are the host's; no guest has part in it. The study has no such row.
    pub host_host: KindPairs,
}

impl DuplicateMatrix {
    /// The rows that a guest has part in: the study's total.
    pub fn of_guests(&self) -> KindPairs {
        self.within_guest + self.guest_host + self.guest_guest
    }

    /// All rows.
    pub fn total(&self) -> KindPairs {
        self.of_guests() + self.host_host
    }
}

/// A row of the matrix, pages, by what the frame and its equal are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindPairs {
    /// Both anonymous: what KSM could do at best.
    pub anonymous_pages: u64,
    /// Both in the page cache.
    pub file_pages: u64,
    /// One anonymous, one in the page cache.
    pub mixed_pages: u64,
}

impl KindPairs {
    /// All of the row, pages.
    pub fn total_pages(&self) -> u64 {
        self.anonymous_pages + self.file_pages + self.mixed_pages
    }
}

impl Add for KindPairs {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            anonymous_pages: self.anonymous_pages + other.anonymous_pages,
            file_pages: self.file_pages + other.file_pages,
            mixed_pages: self.mixed_pages + other.mixed_pages,
        }
    }
}

impl AddAssign for KindPairs {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// The total of the matrix by who could save it, pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Merging {
    /// KSM, as mappings are advised now (`MADV_MERGEABLE`): equal anonymous frames, all of them in
    /// such mappings.
    pub ksm_pages: u64,
    /// KSM, were all anonymous memory advised: this much more.
    pub ksm_if_advised_pages: u64,
    /// Nobody today: one of the equals or both are in the page cache. Merging files by content
    /// would.
    pub by_file_content_pages: u64,
}

/// Places that the second look did not find as the first had left them, or that were two things at
/// once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unsettled {
    /// Another content in the same frame.
    pub rewritten: u64,
    /// Another frame, or none: the page was written after a fork, merged, migrated, evicted, freed.
    pub moved: u64,
}

impl Unsettled {
    /// Both.
    pub fn total(&self) -> u64 {
        self.rewritten + self.moved
    }
}

/// Pages whose contents are not known, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unread {
    /// Unmapped, or their process ended, between being found and being read.
    pub vanished: u64,
    /// Of special mappings: devices' memory and pages that the kernel shows every process. Pages of
    /// address space; the kernel does not tell which of them there are.
    pub special: u64,
    /// In swap, or on the move between frames.
    pub swapped: u64,
    /// Present, and the kernel refused to read them: broken memory, or memory that is secret.
    pub refused: u64,
    /// Processes, not pages: ended before they were found, or while they were scanned.
    pub ended_processes: u64,
    /// Files, not pages: gone or not to be opened when their turn came.
    pub unopened_files: u64,
}

/// What a scan took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanCost {
    /// Threads that read and hashed.
    pub threads: u32,
    /// From the call to the result, nanoseconds.
    pub wall_ns: u64,
    /// Of that: the first look, in which every page is read and hashed.
    pub first_look_ns: u64,
    /// Of that: the second look, in which pages that have an equal are read and hashed again.
    pub second_look_ns: u64,
    /// CPU time of all threads of the scan, nanoseconds.
    pub cpu_ns: u64,
    /// Of that: the first look, nanoseconds.
    pub first_look_cpu_ns: u64,
    /// Pages hashed in the first look.
    pub first_look_pages: u64,
    /// Pages hashed in the second look.
    pub second_look_pages: u64,
    /// Largest size of the table of pages, bytes.
    pub table_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(anonymous_pages: u64, file_pages: u64, mixed_pages: u64) -> KindPairs {
        KindPairs { anonymous_pages, file_pages, mixed_pages }
    }

    /// Table 1 of the study, in half megabytes.
    #[test]
    fn the_rows_of_guests_add_up_as_in_the_study() {
        let matrix = DuplicateMatrix {
            within_guest: row(56, 1, 1),
            guest_host: row(36, 4, 24),
            guest_guest: row(96, 16, 6),
            host_host: row(1, 2, 3),
        };
        assert_eq!(matrix.within_guest.total_pages(), 58);
        assert_eq!(matrix.of_guests(), row(188, 21, 31));
        assert_eq!(matrix.of_guests().total_pages(), 240);
        assert_eq!(matrix.total(), row(189, 23, 34));
    }

    #[test]
    fn what_is_stored_is_read_back() {
        let scan = PageScan {
            page_bytes: 4096,
            subjects: vec![SubjectPages {
                name: "virtiofsd".into(),
                role: SubjectRole::Helper { guest: "machine".into() },
                places: 5,
                frames: 4,
                frames_with_others: 3,
                duplicate_frames: 2,
                zero_frames: 1,
            }],
            shared: SharedFrames {
                ksm: Shared { frames: 2, places: 7, spared_between_subjects: 1 },
                ..SharedFrames::default()
            },
            ..PageScan::default()
        };
        let text = serde_json::to_string(&scan).unwrap();
        assert!(text.contains(r#""role":{"kind":"helper","guest":"machine"}"#), "{text}");
        assert_eq!(serde_json::from_str::<PageScan>(&text).unwrap(), scan);
        // A later field is absent in an older file.
        assert_eq!(serde_json::from_str::<PageScan>("{}").unwrap(), PageScan::default());
        assert_eq!((scan.bytes(3), scan.shared.ksm.spared()), (12288, 5));
        assert!(!scan.subject("virtiofsd").unwrap().role.is_guest() && scan.subject("machine").is_none());
    }
}
