//! One look at some pages: which frame each has, what is in it, and whether it still had that frame
//! afterwards.

use super::entry::Content;
use super::pagemap::{PageMap, Seen};
use super::reading::{ProcessMemory, Way};
use std::io;
use twox_hash::XxHash3_128;

/// Pages that are looked at together: a megabyte, which caches hold between reading and hashing.
/// Half as many made the scan of huge pages a sixth slower on an EPYC, and twice as many no faster
/// (`examples/pages.rs`).
pub(super) const CHUNK_PAGES: usize = 256;

/// An address space that is open to be read.
#[derive(Debug)]
pub(super) struct Space {
    pub(super) map: PageMap,
    pub(super) memory: ProcessMemory,
}

/// What is to be done with a page, by what the page map says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// Read and hash it.
    Hash(Way),
    /// Leave it.
    Leave,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It was not to be hashed.
    Left(Seen),
    /// It has this content, and had this frame before and after it was read.
    Hashed(Seen, Content),
    /// It has another frame than before it was read.
    Moved,
    /// It has no frame any more.
    Vanished,
    /// It has its frame, and could not be read.
    Refused,
}

/// The content of a page.
pub(super) fn content(page: &[u8]) -> Content {
    let hash = XxHash3_128::oneshot(page);
    [(hash >> 64) as u64, hash as u64]
}

/// Buffers for looking, used again and again.
#[derive(Debug)]
pub(super) struct Look {
    page_bytes: usize,
    before: Vec<Seen>,
    after: Vec<Seen>,
    buffer: Vec<u8>,
    /// Where pages begin in it.
    aligned: usize,
    addresses: Vec<u64>,
    /// Which pages of the chunk are read, in the order of `addresses`.
    order: Vec<usize>,
    got: Vec<bool>,
    outcomes: Vec<Outcome>,
}

impl Look {
    pub(super) fn new(page_bytes: u64) -> Self {
        let page_bytes = page_bytes as usize;
        let buffer = vec![0; (CHUNK_PAGES + 1) * page_bytes];
        Self {
            page_bytes,
            // Copies of the kernel's to a place a few bytes further in its page than where they
            // come from take twice as long, and that is where an allocator puts large buffers.
            aligned: buffer.as_ptr().align_offset(page_bytes),
            buffer,
            before: vec![Seen::default(); CHUNK_PAGES],
            after: vec![Seen::default(); CHUNK_PAGES],
            addresses: Vec::with_capacity(CHUNK_PAGES),
            order: Vec::with_capacity(CHUNK_PAGES),
            got: vec![false; CHUNK_PAGES],
            outcomes: Vec::with_capacity(CHUNK_PAGES),
        }
    }

    /// Looks at `count` pages of an address space from page `first` on, at most [`CHUNK_PAGES`].
    /// `wish` says what to do with each, by its place among them and what it is. What came of it,
    /// in order.
    ///
    /// # Errors
    /// The page map cannot be read.
    pub(super) fn at(
        &mut self,
        space: &mut Space,
        first: u64,
        count: usize,
        wish: impl Fn(usize, Seen) -> Wish,
    ) -> io::Result<&[Outcome]> {
        space.map.read(first, &mut self.before[..count])?;
        self.outcomes.clear();
        self.outcomes.extend(self.before[..count].iter().map(|seen| Outcome::Left(*seen)));
        self.order.clear();
        let (before, wish) = (&self.before, &wish);
        let wished = |way| (0..count).filter(move |index| wish(*index, before[*index]) == Wish::Hash(way));
        let pinned = extend_counted(&mut self.order, wished(Way::Pinned));
        self.order.extend(wished(Way::AsItIs));
        if self.order.is_empty() {
            return Ok(&self.outcomes);
        }
        self.addresses.clear();
        let address = |index: &usize| (first + *index as u64) * self.page_bytes as u64;
        self.addresses.extend(self.order.iter().map(address));
        let (one, other) = self.buffer[self.aligned..][..self.order.len() * self.page_bytes]
            .split_at_mut(pinned * self.page_bytes);
        let (got_one, got_other) = self.got[..self.order.len()].split_at_mut(pinned);
        space.memory.read(&self.addresses[..pinned], Way::Pinned, one, got_one);
        space.memory.read(&self.addresses[pinned..], Way::AsItIs, other, got_other);
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

/// Adds to a list; how many.
fn extend_counted(list: &mut Vec<usize>, more: impl Iterator<Item = usize>) -> usize {
    let before = list.len();
    list.extend(more);
    list.len() - before
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hash is that of the reference implementation: of nothing, as its own tests have it.
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
