//! The table of pages: 32 bytes for each place that was read.

use super::PagesError;

/// Bits of a frame number. At 4 KiB they reach 2^52 bytes, the most that x86-64 and arm64 can
/// address.
const FRAME_BITS: u32 = 40;
/// Bits of the number of a process or file.
const SOURCE_BITS: u32 = 64 - FRAME_BITS;
/// Bits of a page number within a process or file. At 4 KiB they reach 2^57 bytes, an address space
/// with five levels of tables.
const PAGE_BITS: u32 = 45;

/// The most processes and files that one scan can distinguish.
pub(super) const MOST_SOURCES: usize = 1 << SOURCE_BITS;

/// Flags of a page.
pub(super) mod flag {
    /// The page is in the page cache: of a file, a memory file or shared anonymous memory.
    pub(in crate::pages) const FILE: u64 = 1;
    /// The page is in a mapping that KSM may merge (`MADV_MERGEABLE`).
    pub(in crate::pages) const MERGEABLE: u64 = 1 << 1;
    /// The page was merged by KSM.
    pub(in crate::pages) const KSM: u64 = 1 << 2;
    /// The page is part of a huge page.
    pub(in crate::pages) const HUGE: u64 = 1 << 3;
    /// The page belongs to a memory file or shared anonymous memory.
    pub(in crate::pages) const MEMORY_FILE: u64 = 1 << 4;
    /// Another place has the same content, so the second look rereads this one.
    pub(in crate::pages) const AGAIN: u64 = 1 << 5;
    /// The second look found another content.
    pub(in crate::pages) const REWRITTEN: u64 = 1 << 6;
    /// The second look found another frame, or none.
    pub(in crate::pages) const MOVED: u64 = 1 << 7;
    /// The page is the kernel's zero page.
    pub(in crate::pages) const KERNEL_ZERO: u64 = 1 << 8;
}

/// The content of a page, as its hash.
pub(super) type Content = [u64; 2];

/// One place, its frame, and the content of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    content: Content,
    /// Frame number in the upper bits, number of the source in the lower ones. In this order the
    /// places of a frame are adjacent, with those of the first subject first.
    frame_and_source: u64,
    /// Page number in the upper bits, flags in the lower ones.
    page_and_flags: u64,
}

impl Entry {
    /// `None` if a number does not fit, which does not happen on real machines.
    pub(super) fn new(content: Content, frame: u64, source: u32, page: u64, flags: u64) -> Option<Self> {
        let fits = frame < 1 << FRAME_BITS && (source as usize) < MOST_SOURCES && page < 1 << PAGE_BITS;
        fits.then_some(Self {
            content,
            frame_and_source: frame << SOURCE_BITS | u64::from(source),
            page_and_flags: page << (64 - PAGE_BITS) | flags,
        })
    }

    pub(super) fn content(&self) -> Content {
        self.content
    }

    pub(super) fn frame(&self) -> u64 {
        self.frame_and_source >> SOURCE_BITS
    }

    pub(super) fn source(&self) -> u32 {
        (self.frame_and_source & ((1 << SOURCE_BITS) - 1)) as u32
    }

    /// Page number within the process's address space or within the file.
    pub(super) fn page(&self) -> u64 {
        self.page_and_flags >> (64 - PAGE_BITS)
    }

    /// Whether the entry has any of the flags.
    pub(super) fn has(&self, flags: u64) -> bool {
        self.page_and_flags & flags != 0
    }

    pub(super) fn set(&mut self, flags: u64) {
        self.page_and_flags |= flags;
    }

    /// Order by content, then frame, then source.
    pub(super) fn by_content(&self) -> (Content, u64) {
        (self.content, self.frame_and_source)
    }

    /// Order by frame, then source.
    pub(super) fn by_frame(&self) -> u64 {
        self.frame_and_source
    }

    /// Order by source, then page: the order in which memory is read.
    pub(super) fn by_place(&self) -> (u32, u64) {
        (self.source(), self.page())
    }
}

/// The entries of a scan. The table grows by an eighth, so at 32 bytes an entry it never takes more
/// than 40 bytes for a page.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) entries: Vec<Entry>,
}

/// The fewest entries by which the table grows.
const ROOM: usize = 16 << 10;

impl Table {
    /// Adds entries.
    ///
    /// # Errors
    /// [`PagesError::Memory`] if no memory is left.
    pub(super) fn append(&mut self, batch: &[Entry]) -> Result<(), PagesError> {
        let length = self.entries.len();
        if self.entries.capacity() - length < batch.len() {
            let room = batch.len().max(length / 8).max(ROOM);
            self.entries.try_reserve_exact(room).map_err(|_| PagesError::Memory { pages: length as u64 })?;
        }
        self.entries.extend_from_slice(batch);
        Ok(())
    }

    /// Memory of the table, bytes. It never shrinks before it is dropped.
    pub(super) fn bytes(&self) -> u64 {
        (self.entries.capacity() * size_of::<Entry>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_size_come_back() {
        let most = ((1 << FRAME_BITS) - 1, MOST_SOURCES as u32 - 1, (1 << PAGE_BITS) - 1);
        for (frame, source, page) in [(0, 0, 0), (1, 2, 3), most] {
            let mut entry = Entry::new([7, u64::MAX], frame, source, page, flag::FILE).unwrap();
            entry.set(flag::KERNEL_ZERO);
            assert_eq!((entry.frame(), entry.source(), entry.page()), (frame, source, page));
            assert_eq!(entry.content(), [7, u64::MAX]);
            assert!(
                entry.has(flag::FILE) && entry.has(flag::KERNEL_ZERO) && !entry.has(flag::KSM | flag::MOVED)
            );
        }
        assert_eq!(Entry::new([0; 2], most.0 + 1, 0, 0, 0), None);
        assert_eq!(Entry::new([0; 2], 0, most.1 + 1, 0, 0), None);
        assert_eq!(Entry::new([0; 2], 0, 0, most.2 + 1, 0), None);
    }

    #[test]
    fn places_of_a_frame_stand_together_the_first_source_first() {
        let entry = |frame, source| Entry::new([1, 1], frame, source, 9, 0).unwrap();
        let mut entries = [entry(2, 0), entry(1, 5), entry(2, 7), entry(1, 3)];
        entries.sort_unstable_by_key(Entry::by_frame);
        assert_eq!(entries, [entry(1, 3), entry(1, 5), entry(2, 0), entry(2, 7)]);
    }

    /// The method specification sets no limit; 40 bytes a page are 1 % of the scanned memory.
    #[test]
    fn the_table_takes_at_most_forty_bytes_a_page() {
        let entry = Entry::new([1, 1], 1, 1, 1, 0).unwrap();
        let mut table = Table::default();
        let batch = vec![entry; 4096];
        for _ in 0..500 {
            table.append(&batch).unwrap();
            let pages = table.entries.len().max(8 * ROOM) as u64;
            assert!(table.bytes() <= 40 * pages, "{} bytes for {pages} pages", table.bytes());
        }
        assert_eq!(table.entries.len(), 500 * 4096);
        assert!(table.bytes() >= 32 * 500 * 4096);
    }
}
