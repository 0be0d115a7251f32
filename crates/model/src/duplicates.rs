//! Named amounts of memory in a scan of pages, which are summarised over trials and shown.
//!
//! The scan counts pages ([`crate::pages`]); here they are bytes, so that hosts with pages of
//! several sizes can be compared.

use crate::pages::{KindPairs, PageScan};

/// The name under which a trial says why its pages were not scanned ([`crate::Iteration::absent`]).
pub const DUPLICATES: &str = "duplicates";

/// All frames of the guests, each once: the whole of which the shares of other amounts are parts.
pub const GUESTS_MEMORY: &str = "guests_memory";
/// All frames of helpers and cached files that are not a guest's.
pub const HOST_MEMORY: &str = "host_memory";
/// Frames of guests and host whose content no other frame has.
pub const UNIQUE: &str = "unique";
/// Duplicates whose equal is in the same guest: both anonymous, one anonymous and one in the page
/// cache, both in the page cache.
pub const WITHIN_GUEST: [&str; 3] = ["within_guest_anonymous", "within_guest_mixed", "within_guest_file"];
/// Duplicates whose equal is in a cached file of the host or in a helper, in the same order.
pub const GUEST_HOST: [&str; 3] = ["guest_host_anonymous", "guest_host_mixed", "guest_host_file"];
/// Duplicates whose equal is in another guest, in the same order.
pub const GUEST_GUEST: [&str; 3] = ["guest_guest_anonymous", "guest_guest_mixed", "guest_guest_file"];
/// Duplicates of the host alone, without a guest, in the same order.
pub const HOST_HOST: [&str; 3] = ["host_host_anonymous", "host_host_mixed", "host_host_file"];
/// Anonymous memory full of zeros; it is not counted as a duplicate.
pub const ZERO_ANONYMOUS: &str = "zero_anonymous";
/// Cached files full of zeros; they are not counted as duplicates.
pub const ZERO_FILE: &str = "zero_file";
/// Copies that KSM spares already.
pub const SPARED_BY_MERGING: &str = "spared_by_merging";
/// Copies that are spared already because processes map the same file.
pub const SPARED_BY_FILES: &str = "spared_by_files";
/// The part of [`SPARED_BY_FILES`] between guests, or between a guest and a helper.
pub const SPARED_BY_FILES_BETWEEN: &str = "spared_by_files_between";
/// Copies that are spared already because processes share memory since a fork.
pub const SPARED_BY_FORKS: &str = "spared_by_forks";
/// Duplicates that KSM could merge, as memory is advised now.
pub const MERGEABLE: &str = "mergeable";
/// Further duplicates that KSM could merge if all anonymous memory were advised.
pub const MERGEABLE_IF_ADVISED: &str = "mergeable_if_advised";
/// Duplicates that only a merging of files by content could save.
pub const MERGEABLE_BY_FILE: &str = "mergeable_by_file_content";
/// Pages that changed while they were scanned; they are in no other amount.
pub const CHANGED: &str = "changed";
/// Pages whose content is not known: in swap, gone, or refused.
pub const UNKNOWN: &str = "unknown";

/// Returns every amount of a scan, bytes. The rows of the matrix have the same sum as
/// [`MERGEABLE`], [`MERGEABLE_IF_ADVISED`] and [`MERGEABLE_BY_FILE`].
pub fn amounts(scan: &PageScan) -> Vec<(&'static str, u64)> {
    let frames = |guests: bool| {
        let of = scan.subjects.iter().filter(|subject| subject.role.is_guest() == guests);
        of.map(|subject| subject.frames).sum::<u64>()
    };
    let (matrix, shared, merging, unread) = (&scan.matrix, &scan.shared, &scan.merging, &scan.unread);
    let mut pages =
        vec![(GUESTS_MEMORY, frames(true)), (HOST_MEMORY, frames(false)), (UNIQUE, scan.frames.unique)];
    for (names, row) in [
        (WITHIN_GUEST, matrix.within_guest),
        (GUEST_HOST, matrix.guest_host),
        (GUEST_GUEST, matrix.guest_guest),
        (HOST_HOST, matrix.host_host),
    ] {
        pages.extend(names.into_iter().zip(kinds(row)));
    }
    pages.extend([
        (ZERO_ANONYMOUS, scan.zero.anonymous),
        (ZERO_FILE, scan.zero.file),
        (SPARED_BY_MERGING, shared.ksm.spared()),
        (SPARED_BY_FILES, shared.file.spared()),
        (SPARED_BY_FILES_BETWEEN, shared.file.spared_between_subjects),
        (SPARED_BY_FORKS, shared.forked.spared()),
        (MERGEABLE, merging.ksm_pages),
        (MERGEABLE_IF_ADVISED, merging.ksm_if_advised_pages),
        (MERGEABLE_BY_FILE, merging.by_file_content_pages),
        (CHANGED, scan.unsettled.total()),
        (UNKNOWN, unread.vanished + unread.swapped + unread.refused),
    ]);
    pages.into_iter().map(|(name, pages)| (name, scan.bytes(pages))).collect()
}

/// The pages of a row in the order of the names of its amounts.
fn kinds(row: KindPairs) -> [u64; 3] {
    [row.anonymous_pages, row.mixed_pages, row.file_pages]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::{DuplicateMatrix, Frames, SubjectPages, SubjectRole, ZeroPages};
    use std::collections::BTreeMap;

    fn subject(role: SubjectRole, frames: u64) -> SubjectPages {
        SubjectPages { places: frames, frames, ..SubjectPages::new("some", role) }
    }

    #[test]
    fn pages_become_bytes_under_names_of_their_own() {
        let scan = PageScan {
            page_bytes: 4096,
            subjects: vec![
                subject(SubjectRole::Guest, 10),
                subject(SubjectRole::Guest, 20),
                subject(SubjectRole::CachedFiles, 5),
            ],
            frames: Frames { total: 35, unique: 7, ..Frames::default() },
            zero: ZeroPages { anonymous: 3, kernel_places: 99, ..ZeroPages::default() },
            matrix: DuplicateMatrix {
                guest_host: KindPairs { anonymous_pages: 1, file_pages: 2, mixed_pages: 4 },
                ..DuplicateMatrix::default()
            },
            ..PageScan::default()
        };
        let list = amounts(&scan);
        let by_name: BTreeMap<&str, u64> = list.iter().copied().collect();
        assert_eq!(by_name.len(), list.len(), "no name is used twice");
        assert_eq!((by_name[GUESTS_MEMORY], by_name[HOST_MEMORY]), (30 * 4096, 5 * 4096));
        assert_eq!(GUEST_HOST.map(|name| by_name[name]), [4096, 4 * 4096, 2 * 4096]);
        assert_eq!((by_name[ZERO_ANONYMOUS], by_name[UNIQUE]), (3 * 4096, 7 * 4096));
    }
}
