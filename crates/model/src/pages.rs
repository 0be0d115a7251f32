//! Pages of memory that are equal: what a scan of the host's page frames finds.
//!
//! After table 1 of Agarwal, Jain and Porter, "Containing the Hype" (APSys 2015). A page is what
//! the hardware maps, a frame is the physical memory that holds one, and a place is where a frame
//! is mapped: a page of a process's address space, or a page of a file in the host's page cache.
//! All counts are of pages of [`PageScan::page_bytes`]; a huge page counts by its pieces.
//!
//! `docs/design/0034-duplicate-memory-pages.md` decides how frames and savings are counted.

use serde::{Deserialize, Serialize};
use std::ops::{Add, AddAssign};

/// What a scan found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PageScan {
    /// Size of a page, bytes.
    pub page_bytes: u64,
    /// The subjects whose memory was scanned: guests in the order they were given, then helpers,
    /// then cached files. A frame belongs to the first subject of this list that has it.
    pub subjects: Vec<SubjectPages>,
    /// The frames, each once.
    pub frames: Frames,
    /// Pages full of zeros, which are not counted as duplicates.
    pub zero: ZeroPages,
    /// Frames that are shared already.
    pub shared: SharedFrames,
    /// Copies that merging of equal frames could save.
    pub matrix: DuplicateMatrix,
    /// What could save these copies.
    pub merging: Merging,
    /// Pages that changed during the scan. They are in no other count.
    pub unsettled: UnsettledPages,
    /// Pages whose contents are not known.
    pub unread: UnreadPages,
    /// What the scan itself took.
    pub cost: ScanCost,
}

impl PageScan {
    /// Converts a number of pages to bytes.
    pub fn bytes(&self, pages: u64) -> u64 {
        pages * self.page_bytes
    }

    /// The subject of this name.
    pub fn subject(&self, name: &str) -> Option<&SubjectPages> {
        self.subjects.iter().find(|subject| subject.name == name)
    }
}

/// Whose memory it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum SubjectRole {
    /// A guest: the processes of a container, or the VMM process of a virtual machine, which
    /// includes the machine's memory.
    Guest,
    /// A process outside of a guest that serves it: a shim, a file server, a proxy. It counts as
    /// the host.
    Helper {
        /// Name of the guest.
        guest: String,
    },
    /// Files in the host's page cache: root trees, disk images, kernels. They count as the host.
    CachedFiles,
}

impl SubjectRole {
    /// Whether it is a guest; all others are the host.
    pub fn is_guest(&self) -> bool {
        *self == Self::Guest
    }
}

/// The pages of one subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubjectPages {
    /// Its name.
    pub name: String,
    /// What it is.
    pub role: SubjectRole,
    /// Places at which it has a frame, without the kernel's zero page: for processes, the sum of
    /// the resident sets.
    pub places: u64,
    /// Frames that belong to it.
    pub frames: u64,
    /// Frames that it shares with another subject, whichever of them owns the frame.
    pub frames_with_others: u64,
    /// Its frames that are equal to another frame: all but one of the equal frames could be saved.
    /// Frames full of zeros are not included.
    pub duplicate_frames: u64,
    /// Its frames that are full of zeros.
    pub zero_frames: u64,
}

impl SubjectPages {
    /// A subject without any counts yet.
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

/// The frames of all subjects, each once, without those that changed during the scan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frames {
    /// All frames, including those full of zeros but not the kernel's zero page.
    pub total: u64,
    /// The part that is private anonymous memory. The memory of a virtual machine is of this kind,
    /// unless its VMM takes it from a memory file.
    pub anonymous: u64,
    /// The part in the page cache, including memory files and shared anonymous memory.
    pub file: u64,
    /// The part of `file` that is memory files (`memfd_create(2)`, tmpfs) or shared anonymous
    /// memory. KSM cannot merge it.
    pub memory_file: u64,
    /// The part of `total` in a huge page, or in one of the smaller groups of pages that the kernel
    /// keeps together (large folios).
    pub huge: u64,
    /// The part of `total` with contents that no other frame has.
    pub unique: u64,
}

/// Pages full of zeros.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZeroPages {
    /// Places at which the kernel's own zero page is mapped (KPF_ZERO_PAGE): memory that was read
    /// and never written. They cost no memory.
    pub kernel_places: u64,
    /// Anonymous frames full of zeros. KSM saves all but one of them, or all if it may use the
    /// kernel's zero page (`/sys/kernel/mm/ksm/use_zero_pages`).
    pub anonymous: u64,
    /// The part of `anonymous` in mappings that KSM may merge.
    pub anonymous_mergeable: u64,
    /// Frames in the page cache full of zeros.
    pub file: u64,
}

/// Frames that several places share already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedFrames {
    /// Files and memory files that are mapped more than once.
    pub file: Shared,
    /// Anonymous memory that processes share since a fork.
    pub forked: Shared,
    /// Frames that KSM has merged (KPF_KSM), including merged frames with only one place left.
    pub ksm: Shared,
}

/// Frames that are mapped at several places of the scanned processes. Cached files do not count as
/// places: a page in the page cache spares nobody a copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared {
    /// Number of frames.
    pub frames: u64,
    /// Number of places.
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

/// Frames that could be saved, by the location of the equal frame: k equal frames save k - 1.
/// Frames full of zeros are not included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DuplicateMatrix {
    /// The equal frame is in the same guest.
    pub within_guest: KindPairs,
    /// The equal frame is in a cached file of the host or in a helper.
    pub guest_host: KindPairs,
    /// The equal frame is in another guest.
    pub guest_guest: KindPairs,
    /// Both are the host's; no guest is involved. The study has no such row.
    pub host_host: KindPairs,
}

impl DuplicateMatrix {
    /// The sum of the rows that involve a guest: the study's total.
    pub fn of_guests(&self) -> KindPairs {
        self.within_guest + self.guest_host + self.guest_guest
    }

    /// The sum of all rows.
    pub fn total(&self) -> KindPairs {
        self.of_guests() + self.host_host
    }
}

/// A row of the matrix, in pages, by the kinds of the frame and its equal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindPairs {
    /// Both anonymous: the most that KSM could save.
    pub anonymous_pages: u64,
    /// Both in the page cache.
    pub file_pages: u64,
    /// One anonymous and one in the page cache.
    pub mixed_pages: u64,
}

impl KindPairs {
    /// The sum of the row, pages.
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

/// The total of the matrix by what could save the copies, pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Merging {
    /// KSM could, as mappings are advised now (`MADV_MERGEABLE`): equal anonymous frames, all of
    /// them in such mappings.
    pub ksm_pages: u64,
    /// KSM could in addition, if all anonymous memory were advised.
    pub ksm_if_advised_pages: u64,
    /// Nothing can today: at least one of the equal frames is in the page cache. Merging files by
    /// content could.
    pub by_file_content_pages: u64,
}

/// Places that changed between the first and the second look, or that were two things at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnsettledPages {
    /// The same frame had another content.
    pub rewritten: u64,
    /// Another frame, or none: the page was copied on write, merged, migrated, evicted or freed.
    pub moved: u64,
}

impl UnsettledPages {
    /// The sum of both.
    pub fn total(&self) -> u64 {
        self.rewritten + self.moved
    }
}

/// Pages whose contents are not known, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadPages {
    /// Pages unmapped, or of a process that ended, between being found and being read.
    pub vanished: u64,
    /// Pages of address space in special mappings: device memory and pages that the kernel shows
    /// every process. The kernel does not tell which of them are present.
    pub special: u64,
    /// Pages in swap, or in migration between frames.
    pub swapped: u64,
    /// Pages that are present but that the kernel refused to read: broken memory, or secret memory.
    pub refused: u64,
    /// Processes, not pages, that ended before they were found or while they were scanned.
    pub ended_processes: u64,
    /// Number of files, not pages, that were gone, could not be opened, or have too much data to be
    /// scanned whole.
    pub unopened_files: u64,
}

/// What a scan cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanCost {
    /// Threads that read and hashed.
    pub threads: u32,
    /// Time from the call to the result, nanoseconds.
    pub wall_ns: u64,
    /// The part of `wall_ns` for the first look, in which every page is read and hashed.
    pub first_look_ns: u64,
    /// The part of `wall_ns` for the second look, which hashes pages with an equal again.
    pub second_look_ns: u64,
    /// CPU time of all threads of the scan, nanoseconds.
    pub cpu_ns: u64,
    /// The part of `cpu_ns` for the first look.
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

    /// Table 1 of the study, in units of half a megabyte.
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
    fn stored_values_are_read_back() {
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
