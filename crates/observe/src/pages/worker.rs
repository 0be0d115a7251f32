//! A thread of the scan: it reads ranges of pages, and later rereads the pages that have an equal.

use super::PagesError;
use super::entry::{Entry, flag};
use super::look::{Action, CHUNK_PAGES, Outcome, PageReader, Space};
use super::mapped::Mapped;
use super::pagemap::PageState;
use super::reading::ReadMethod;
use super::sources::{Opened, PageRange, Sources, open_space};
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};

/// Data shared by all threads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shared<'a> {
    pub(super) sources: &'a Sources,
    pub(super) page_bytes: u64,
    /// The frame of the kernel's zero page.
    pub(super) zero_frame: Option<u64>,
    /// Whether KSM merges or has merged anything.
    pub(super) ksm: bool,
    /// Set when the caller stops the scan.
    pub(super) stop: &'a AtomicBool,
    /// Set when another thread has failed.
    pub(super) halt: &'a AtomicBool,
}

/// The counts of a thread.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Pages hashed.
    pub(super) hashed: u64,
    /// Places with the kernel's zero page.
    pub(super) kernel_zero: u64,
    pub(super) vanished: u64,
    pub(super) swapped: u64,
    pub(super) refused: u64,
    /// Pages that moved during the first look.
    pub(super) moved: u64,
    /// Sources that could not be opened any more, perhaps several times each.
    pub(super) gone: Vec<u32>,
    pub(super) cpu_ns: u64,
    /// The part of the CPU time that was used by other threads than the caller's.
    pub(super) elsewhere_ns: u64,
}

impl Tally {
    pub(super) fn add(&mut self, mut other: Self) {
        self.hashed += other.hashed;
        self.kernel_zero += other.kernel_zero;
        self.vanished += other.vanished;
        self.swapped += other.swapped;
        self.refused += other.refused;
        self.moved += other.moved;
        self.gone.append(&mut other.gone);
        self.cpu_ns += other.cpu_ns;
        self.elsewhere_ns += other.elsewhere_ns;
    }

    /// Turns the outcomes of a first look into entries and counts. `first` is the number of the
    /// first page within the source.
    fn take(&mut self, outcomes: &[Outcome], first: u64, source: u32, flags: u64, into: &mut Vec<Entry>) {
        for (outcome, page) in outcomes.iter().zip(first..) {
            match *outcome {
                Outcome::Hashed(seen, content) => {
                    self.hashed += 1;
                    let kind = if seen.is_file() { flag::FILE } else { 0 };
                    let frame = seen.frame().unwrap_or(u64::MAX);
                    match Entry::new(content, frame, source, page, flags | kind) {
                        Some(entry) => into.push(entry),
                        None => self.refused += 1,
                    }
                }
                // Present and skipped: the kernel's zero page.
                Outcome::Skipped(seen) if seen.frame().is_some() => self.kernel_zero += 1,
                Outcome::Skipped(seen) => self.swapped += u64::from(seen.is_swapped()),
                Outcome::Moved => self.moved += 1,
                Outcome::Vanished => self.vanished += 1,
                Outcome::Refused => self.refused += 1,
            }
        }
    }
}

/// Entries that are passed on together: few enough to leave the cache to the pages, and enough to
/// take the lock rarely.
const BATCH: usize = 1024;

/// A thread of the scan.
#[derive(Debug)]
pub(super) struct Worker<'a> {
    shared: Shared<'a>,
    reader: PageReader,
    /// The address space of this process, in which files are mapped.
    own: Space,
    open: Option<(u32, Opened)>,
    resident: Vec<u8>,
    batch: Vec<Entry>,
    pub(super) tally: Tally,
}

impl<'a> Worker<'a> {
    pub(super) fn new(shared: Shared<'a>) -> Result<Self, PagesError> {
        let own = open_space(std::process::id(), None, shared.page_bytes)?;
        Ok(Self {
            shared,
            reader: PageReader::new(shared.page_bytes),
            own: own.expect("this process has not ended"),
            open: None,
            resident: Vec::new(),
            batch: Vec::with_capacity(BATCH + CHUNK_PAGES),
            tally: Tally::default(),
        })
    }

    /// Hashes every present page of a range, and passes the entries to `give` in batches.
    ///
    /// # Errors
    /// [`PagesError::Denied`], [`PagesError::Stopped`], errors of reading page maps and of `give`.
    pub(super) fn first_look(
        &mut self,
        range: &PageRange,
        give: impl Fn(&[Entry]) -> Result<(), PagesError>,
    ) -> Result<(), PagesError> {
        self.open(range.source)?;
        let shared = self.shared;
        let Self { reader, own, open, resident, tally, batch, .. } = self;
        batch.clear();
        let full = |batch: &mut Vec<Entry>, least| match batch.len() {
            length if length < least => Ok(()),
            _ => give(batch).map(|()| batch.clear()),
        };
        let pages = range.first..range.first + range.pages;
        let flags = if range.is_mergeable { flag::MERGEABLE } else { 0 };
        match open {
            Some((_, Opened::Process(space))) => {
                let may_pin = !(range.is_mergeable && shared.ksm);
                for present in space.map.occupied(pages) {
                    for (first, count) in chunks(present.start, present.end) {
                        shared.check()?;
                        let outcomes = reader.at(space, first, count, |_, seen| match seen.frame() {
                            Some(frame) if Some(frame) != shared.zero_frame => {
                                Action::Hash(way(seen, may_pin))
                            }
                            _ => Action::Skip,
                        });
                        tally.take(outcomes.map_err(map_failed)?, first, range.source, flags, batch);
                        full(batch, BATCH)?;
                    }
                }
            }
            Some((_, Opened::File(file))) => {
                let Some(window) = Window::open(file, pages.start, range.pages, shared.page_bytes, resident)
                else {
                    return Ok(());
                };
                let mut end = 0;
                for run in resident.chunk_by(|one, other| one & 1 == other & 1) {
                    let start = end;
                    end += run.len() as u64;
                    if run[0] & 1 == 0 {
                        continue;
                    }
                    for (first, count) in chunks(start, end) {
                        shared.check()?;
                        window.enter(first, count, own, reader);
                        let outcomes =
                            reader.at(own, window.page + first, count, |_, seen| match seen.frame() {
                                Some(_) => Action::Hash(ReadMethod::VmReadv),
                                None => Action::Skip,
                            });
                        let outcomes = outcomes.map_err(map_failed)?;
                        tally.take(outcomes, range.first + first, range.source, flags, batch);
                        full(batch, BATCH)?;
                    }
                }
            }
            _ => {}
        }
        full(batch, 1)
    }

    /// Rereads the marked entries, and flags those that have changed. The entries are in the order
    /// of [`Entry::by_place`].
    ///
    /// # Errors
    /// Those of [`Worker::first_look`].
    pub(super) fn second_look(&mut self, entries: &mut [Entry]) -> Result<(), PagesError> {
        let mut rest = entries;
        loop {
            let skipped = rest.iter().take_while(|entry| !entry.has(flag::AGAIN)).count();
            rest = &mut rest[skipped..];
            let Some(first) = rest.first() else { return Ok(()) };
            let (source, start) = first.by_place();
            let together =
                |entry: &&Entry| entry.source() == source && entry.page() < start + CHUNK_PAGES as u64;
            let count = rest.iter().take_while(together).count();
            let (chunk, behind) = rest.split_at_mut(count);
            self.shared.check()?;
            self.again(chunk)?;
            rest = behind;
        }
    }

    /// The second look at pages of one chunk.
    fn again(&mut self, entries: &mut [Entry]) -> Result<(), PagesError> {
        let (source, start) = entries[0].by_place();
        let span = (entries[entries.len() - 1].page() - start + 1) as usize;
        let mut expected = [None; CHUNK_PAGES];
        let mut is_mergeable = false;
        for entry in entries.iter().filter(|entry| entry.has(flag::AGAIN)) {
            expected[(entry.page() - start) as usize] = Some(entry.frame());
            is_mergeable |= entry.has(flag::MERGEABLE);
        }
        self.open(source)?;
        let shared = self.shared;
        let Self { reader, own, open, resident, tally, .. } = self;
        let may_pin = !(is_mergeable && shared.ksm);
        // A page with another frame need not be read.
        let action = |index: usize, seen: PageState| match seen.frame() {
            frame if frame.is_some() && frame == expected[index] => Action::Hash(way(seen, may_pin)),
            _ => Action::Skip,
        };
        let outcomes = match open {
            Some((_, Opened::Process(space))) => reader.at(space, start, span, action).map_err(map_failed)?,
            Some((_, Opened::File(file))) => {
                match Window::open(file, start, span as u64, shared.page_bytes, resident) {
                    Some(window) => {
                        for (page, _) in expected.iter().enumerate().filter(|(_, frame)| frame.is_some()) {
                            if resident.get(page).is_some_and(|byte| byte & 1 == 1) {
                                window.enter(page as u64, 1, own, reader);
                            }
                        }
                        reader.at(own, window.page, span, action).map_err(map_failed)?
                    }
                    None => &[],
                }
            }
            _ => &[],
        };
        for entry in entries.iter_mut().filter(|entry| entry.has(flag::AGAIN)) {
            match outcomes.get((entry.page() - start) as usize) {
                Some(Outcome::Hashed(_, content)) => {
                    tally.hashed += 1;
                    if *content != entry.content() {
                        entry.set(flag::REWRITTEN);
                    }
                }
                _ => entry.set(flag::MOVED),
            }
        }
        Ok(())
    }

    /// Opens a source.
    fn open(&mut self, source: u32) -> Result<(), PagesError> {
        if self.open.as_ref().is_some_and(|(open, _)| *open == source) {
            return Ok(());
        }
        // Only one is open at a time, because there may be many.
        self.open = None;
        let opened = self.shared.sources.open(source, self.shared.page_bytes)?;
        if let Opened::Gone = opened {
            self.tally.gone.push(source);
        }
        self.open = Some((source, opened));
        Ok(())
    }
}

impl Shared<'_> {
    /// # Errors
    /// [`PagesError::Stopped`] if the caller stops the scan or another thread has failed.
    fn check(&self) -> Result<(), PagesError> {
        let ends = self.stop.load(Ordering::Relaxed) || self.halt.load(Ordering::Relaxed);
        if ends { Err(PagesError::Stopped) } else { Ok(()) }
    }
}

/// A part of a file, mapped into this process.
struct Window {
    mapped: Mapped,
    /// Its first page in this process's address space.
    page: u64,
    page_bytes: u64,
}

impl Window {
    /// Maps a part of a file and reads which of its pages are in the page cache; `None` if it
    /// cannot be mapped.
    fn open(file: &File, first: u64, pages: u64, page_bytes: u64, resident: &mut Vec<u8>) -> Option<Self> {
        let mapped = Mapped::file(file, first * page_bytes, (pages * page_bytes) as usize).ok()?;
        mapped.resident(page_bytes, resident).ok()?;
        Some(Self { page: mapped.address() / page_bytes, mapped, page_bytes })
    }

    /// Enters cached pages into the page table. A page that is evicted at this moment is read from
    /// the disk again.
    fn enter(&self, first: u64, count: usize, own: &mut Space, reader: &mut PageReader) {
        let (offset, bytes) = (first * self.page_bytes, count as u64 * self.page_bytes);
        let entered = self.mapped.populate(offset as usize, bytes as usize);
        if entered.is_err_and(|error| error.raw_os_error() == Some(libc::EINVAL)) {
            // Linux before 5.14: reading has the same effect.
            let _ = reader.at(own, self.page + first, count, |_, _| Action::Hash(ReadMethod::VmReadv));
        }
    }
}

/// How to read a page without changing it, see [`super::reading`].
fn way(seen: PageState, may_pin: bool) -> ReadMethod {
    if seen.is_file() || (seen.is_exclusive() && may_pin) { ReadMethod::VmReadv } else { ReadMethod::ProcMem }
}

/// Splits a range of pages into chunks: the first page and number of pages of each.
fn chunks(first: u64, end: u64) -> impl Iterator<Item = (u64, usize)> {
    (first..end)
        .step_by(CHUNK_PAGES)
        .map(move |start| (start, (end - start).min(CHUNK_PAGES as u64) as usize))
}

fn map_failed(source: std::io::Error) -> PagesError {
    PagesError::Io { doing: "read a page map", source }
}
