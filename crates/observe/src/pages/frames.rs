//! Evaluates the table after both looks: the kind of each frame, and the pages that changed between
//! the looks.

use super::PagesError;
use super::entry::{Entry, Table, flag};
use super::pagemap::{FrameFlags, KernelPageFlags};
use weigh_model::pages::UnsettledPages;

/// The largest gap between two needed frames that is read along rather than skipped.
const GAP: u64 = 16;
/// The largest number of frames that is read at once.
const SPAN: u64 = 4096;

/// The places that were taken out of the table.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ExcludedPages {
    pub(super) unsettled: UnsettledPages,
    /// Number of places with the kernel's zero page.
    pub(super) kernel_zero: u64,
}

/// Sets the flags of the frames and takes out the places that do not count. Leaves the table in the
/// order of [`Entry::by_frame`].
///
/// # Errors
/// The kernel's flags cannot be read.
pub(super) fn flag_and_exclude(
    table: &mut Table,
    kernel: &KernelPageFlags,
) -> Result<ExcludedPages, PagesError> {
    table.entries.sort_unstable_by_key(Entry::by_frame);
    mark_contradictions(&mut table.entries);
    learn(&mut table.entries, kernel)?;
    let mut out = ExcludedPages::default();
    table.entries.retain(|entry| {
        if entry.has(flag::KERNEL_ZERO) {
            out.kernel_zero += 1;
        } else if entry.has(flag::MOVED) {
            out.unsettled.moved += 1;
        } else if entry.has(flag::REWRITTEN) {
            out.unsettled.rewritten += 1;
        } else {
            return true;
        }
        false
    });
    Ok(out)
}

/// A frame has one content. If two places disagree, it was written or reused between the two reads,
/// and neither is trusted.
fn mark_contradictions(entries: &mut [Entry]) {
    for places in entries.chunk_by_mut(|one, other| one.frame() == other.frame()) {
        let mut unchanged = places.iter().filter(|place| !place.has(flag::MOVED | flag::REWRITTEN));
        let content = unchanged.next().map(Entry::content);
        if unchanged.any(|place| Some(place.content()) != content) {
            places.iter_mut().for_each(|place| place.set(flag::REWRITTEN));
        }
    }
}

/// Sets the flags that the kernel reports for every frame.
fn learn(entries: &mut [Entry], kernel: &KernelPageFlags) -> Result<(), PagesError> {
    let failed = |source| PagesError::Io { doing: "read /proc/kpageflags", source };
    let mut known: Vec<FrameFlags> = Vec::new();
    let mut rest = entries;
    while let Some(first) = rest.first().map(Entry::frame) {
        let near =
            |pair: &&[Entry]| pair[1].frame() - pair[0].frame() <= GAP && pair[1].frame() - first < SPAN;
        let count = rest.windows(2).take_while(near).count() + 1;
        let (span, behind) = rest.split_at_mut(count);
        let frames = span[count - 1].frame() - first + 1;
        kernel.read(first, &mut known, frames as usize).map_err(failed)?;
        for entry in &mut *span {
            entry.set(as_flags(known[(entry.frame() - first) as usize]));
        }
        rest = behind;
    }
    Ok(())
}

fn as_flags(frame: FrameFlags) -> u64 {
    let flags = [
        (frame.is_ksm(), flag::KSM),
        (frame.is_huge(), flag::HUGE),
        (frame.is_memory_file(), flag::MEMORY_FILE),
        (frame.is_kernel_zero(), flag::KERNEL_ZERO),
    ];
    flags.into_iter().filter(|(is, _)| *is).fold(0, |all, (_, flag)| all | flag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_with_two_contents_is_not_believed() {
        let entry = |content: u64, frame, source| Entry::new([content, 0], frame, source, 1, 0).unwrap();
        let mut moved = entry(9, 4, 3);
        moved.set(flag::MOVED);
        let mut entries = [entry(1, 2, 0), entry(2, 2, 1), entry(5, 3, 0), entry(5, 4, 1), moved];
        mark_contradictions(&mut entries);
        let marked = entries.map(|entry| entry.has(flag::REWRITTEN));
        assert_eq!(marked, [true, true, false, false, false]);
    }

    /// Whatever the gaps between the frames, each frame gets its own flags.
    #[test]
    fn every_frame_gets_its_own_flags() {
        let Ok(kernel) = KernelPageFlags::open() else {
            eprintln!("SKIPPED every_frame_gets_its_own_flags: it needs root");
            return;
        };
        let frames = [1u64, 2, 3, 20, 5000, 5016, 5033, 9200, 70_000];
        let mut entries: Vec<Entry> =
            frames.iter().map(|frame| Entry::new([1, 1], *frame, 0, *frame, 0).unwrap()).collect();
        learn(&mut entries, &kernel).unwrap();
        for entry in &entries {
            let mut alone = Vec::new();
            kernel.read(entry.frame(), &mut alone, 1).unwrap();
            let mut expected = Entry::new([1, 1], entry.frame(), 0, entry.page(), 0).unwrap();
            expected.set(as_flags(alone[0]));
            assert_eq!(*entry, expected);
        }
    }
}
