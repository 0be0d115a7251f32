//! Reading pages: the frame of each, its content, and whether it still has that frame afterwards.

use super::entry::Content;
use super::pagemap::{PageMap, PageState};
use super::reading::{ProcessMemory, ReadMethod};
use std::io;
use twox_hash::XxHash3_128;

/// Pages that are read together: a megabyte, which caches hold between reading and hashing.
/// Half as many made the scan of huge pages a sixth slower on an EPYC, and twice as many no faster
/// (`examples/pages.rs`).
pub(super) const CHUNK_PAGES: usize = 256;

/// An address space that is open for reading.
#[derive(Debug)]
pub(super) struct Space {
    pub(super) map: PageMap,
    pub(super) memory: ProcessMemory,
}

/// What to do with a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Read and hash it.
    Hash(ReadMethod),
    /// Do not read it.
    Skip,
}

/// The outcome for a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It was skipped.
    Skipped(PageState),
    /// It has this content, and had this frame before and after it was read.
    Hashed(PageState, Content),
    /// It has another frame than before it was read.
    Moved,
    /// It was unmapped or swapped out meanwhile.
    Vanished,
    /// It is present, but could not be read.
    Refused,
}

/// The content of a page.
pub(super) fn content(page: &[u8]) -> Content {
    let hash = XxHash3_128::oneshot(page);
    [(hash >> 64) as u64, hash as u64]
}

/// Reads pages, with reusable buffers.
#[derive(Debug)]
pub(super) struct PageReader {
    page_bytes: usize,
    before: Vec<PageState>,
    after: Vec<PageState>,
    buffer: Vec<u8>,
    /// Offset in the buffer at which pages begin.
    aligned: usize,
    addresses: Vec<u64>,
    /// Index in the chunk of each page that is read, in the order of `addresses`.
    order: Vec<usize>,
    got: Vec<bool>,
    outcomes: Vec<Outcome>,
}

impl PageReader {
    pub(super) fn new(page_bytes: u64) -> Self {
        let page_bytes = page_bytes as usize;
        let buffer = vec![0; (CHUNK_PAGES + 1) * page_bytes];
        Self {
            page_bytes,
            // The kernel's copies take twice as long if source and target differ slightly in their
            // offset within a page, as they do for large buffers of an allocator.
            aligned: buffer.as_ptr().align_offset(page_bytes),
            buffer,
            before: vec![PageState::default(); CHUNK_PAGES],
            after: vec![PageState::default(); CHUNK_PAGES],
            addresses: Vec::with_capacity(CHUNK_PAGES),
            order: Vec::with_capacity(CHUNK_PAGES),
            got: vec![false; CHUNK_PAGES],
            outcomes: Vec::with_capacity(CHUNK_PAGES),
        }
    }

    /// Reads `count` pages of an address space from page `first` on, at most [`CHUNK_PAGES`].
    /// `action` decides what to do with each, by its index and state. Returns the outcomes in
    /// order.
    ///
    /// # Errors
    /// The page map cannot be read.
    pub(super) fn at(
        &mut self,
        space: &mut Space,
        first: u64,
        count: usize,
        action: impl Fn(usize, PageState) -> Action,
    ) -> io::Result<&[Outcome]> {
        space.map.read(first, &mut self.before[..count])?;
        self.outcomes.clear();
        self.outcomes.extend(self.before[..count].iter().map(|seen| Outcome::Skipped(*seen)));
        self.order.clear();
        let (before, action) = (&self.before, &action);
        let chosen =
            |way| (0..count).filter(move |index| action(*index, before[*index]) == Action::Hash(way));
        let pinned = extend_counted(&mut self.order, chosen(ReadMethod::VmReadv));
        self.order.extend(chosen(ReadMethod::ProcMem));
        if self.order.is_empty() {
            return Ok(&self.outcomes);
        }
        self.addresses.clear();
        let address = |index: &usize| (first + *index as u64) * self.page_bytes as u64;
        self.addresses.extend(self.order.iter().map(address));
        let (one, other) = self.buffer[self.aligned..][..self.order.len() * self.page_bytes]
            .split_at_mut(pinned * self.page_bytes);
        let (got_one, got_other) = self.got[..self.order.len()].split_at_mut(pinned);
        space.memory.read(&self.addresses[..pinned], ReadMethod::VmReadv, one, got_one);
        space.memory.read(&self.addresses[pinned..], ReadMethod::ProcMem, other, got_other);
        space.map.read(first, &mut self.after[..count])?;
        let pages = self.buffer[self.aligned..].chunks_exact(self.page_bytes);
        for ((index, got), page) in self.order.iter().zip(&self.got).zip(pages) {
            let (before, after) = (self.before[*index], self.after[*index]);
            self.outcomes[*index] = match *got {
                _ if after.frame().is_none() => Outcome::Vanished,
                _ if before.frame() != after.frame() => Outcome::Moved,
                true => Outcome::Hashed(before, content(page)),
                false => Outcome::Refused,
            };
        }
        Ok(&self.outcomes)
    }
}

/// Extends a list; returns the number of added items.
fn extend_counted(list: &mut Vec<usize>, more: impl Iterator<Item = usize>) -> usize {
    let before = list.len();
    list.extend(more);
    list.len() - before
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hash of empty input is the one in the tests of the reference implementation.
    #[test]
    fn equal_pages_and_no_others_have_equal_contents() {
        assert_eq!(content(b""), [0x99aa_06d3_0147_98d8, 0x6001_c324_468d_497f]);
        let zeros = vec![0; 4096];
        let mut page: Vec<u8> = (0..4096).map(|byte| byte as u8).collect();
        let counted = content(&page);
        assert_eq!(content(&page.clone()), counted);
        assert_ne!(content(&zeros), counted);
        for bit in [0, 1, 4095 * 8 + 7, 2048 * 8] {
            page[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(content(&page), counted, "bit {bit}");
            page[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
