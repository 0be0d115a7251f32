//! The steps of a scan.

use super::classify::{Owners, classify};
use super::entry::{Entry, Table, flag};
use super::frames::flag_and_exclude;
use super::look::content;
use super::mapped::Mapped;
use super::pagemap::{KernelPageFlags, PageMap, PageState};
use super::sources::{PageRange, Source, Sources, SplitOptions};
use super::worker::{Shared, Tally, Worker};
use super::{Options, PagesError, Subject};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use weigh_host::clock::thread_cpu_ns;
use weigh_model::pages::{PageScan, ScanCost, UnreadPages};

/// The most pages that a thread takes together, 64 MiB of 4 KiB pages, ...
const JOB_PAGES: u64 = 16 << 10;
/// ... and the most ranges.
const JOB_RANGES: usize = 64;
/// Entries that a thread takes together for the second look.
const AGAIN_ENTRIES: usize = 32 << 10;

/// Properties of the kernel.
#[derive(Debug)]
pub(super) struct Kernel {
    pub(super) page_bytes: u64,
    zero_frame: Option<u64>,
    lists_holes: bool,
    ksm: bool,
    flags: KernelPageFlags,
}

/// Scans, see [`super::scan`].
pub(super) fn scan(subjects: &[Subject], options: &Options<'_>) -> Result<PageScan, PagesError> {
    let (begin, begin_ns) = (Instant::now(), thread_cpu_ns());
    let kernel = Kernel::ask()?;
    let sources = Sources::find(subjects, kernel.split_options(options.stop))?;
    let mut scan = look_twice(&kernel, sources, options, || {})?;
    scan.cost.wall_ns = begin.elapsed().as_nanos() as u64;
    scan.cost.cpu_ns += thread_cpu_ns() - begin_ns;
    Ok(scan)
}

/// Scans sources. `between` is called between the looks, for tests. The cost does not include
/// finding the sources, and its CPU time is only that of other threads than the caller's.
pub(super) fn look_twice(
    kernel: &Kernel,
    mut sources: Sources,
    options: &Options<'_>,
    between: impl FnOnce(),
) -> Result<PageScan, PagesError> {
    let halt = AtomicBool::new(false);
    let threads = options.threads.max(1);
    let shared = Shared {
        sources: &sources,
        page_bytes: kernel.page_bytes,
        zero_frame: kernel.zero_frame,
        ksm: kernel.ksm,
        stop: options.stop,
        halt: &halt,
    };

    let (first_result, first_look_ns) = timed(|| first_look(shared, threads));
    let (mut table, first) = first_result?;
    between();
    mark_equals(&mut table);
    check(options)?;

    let (second, second_look_ns) = timed(|| {
        table.entries.sort_unstable_by_key(Entry::by_place);
        second_look(shared, threads, &mut table)
    });
    let second = second?;
    check(options)?;

    let out = flag_and_exclude(&mut table, &kernel.flags)?;
    table.entries.sort_unstable_by_key(Entry::by_content);
    check(options)?;
    let mut owners = owners(&mut sources);
    let zeros = content(&vec![0; kernel.page_bytes as usize]);
    let mut found = classify(&table.entries, zeros, &mut owners);
    found.zero.kernel_places = first.kernel_zero + out.kernel_zero;

    let mut unsettled = out.unsettled;
    unsettled.moved += first.moved;
    let cost = ScanCost {
        threads: threads as u32,
        wall_ns: first_look_ns + second_look_ns,
        first_look_ns,
        second_look_ns,
        cpu_ns: first.elsewhere_ns + second.elsewhere_ns,
        first_look_cpu_ns: first.cpu_ns,
        first_look_pages: first.hashed,
        second_look_pages: second.hashed,
        table_bytes: table.bytes(),
    };
    Ok(PageScan {
        page_bytes: kernel.page_bytes,
        subjects: owners.subjects,
        frames: found.frames,
        zero: found.zero,
        shared: found.shared,
        matrix: found.matrix,
        merging: found.merging,
        unsettled,
        unread: unread(&sources, first, second),
        cost,
    })
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let begin = Instant::now();
    let result = work();
    (result, begin.elapsed().as_nanos() as u64)
}

fn owners(sources: &mut Sources) -> Owners {
    Owners {
        subjects: std::mem::take(&mut sources.subjects),
        subject_of: std::mem::take(&mut sources.subject_of),
        is_cached_file: sources.list.iter().map(|source| matches!(source, Source::File(_))).collect(),
    }
}

fn check(options: &Options<'_>) -> Result<(), PagesError> {
    if options.stop.load(Ordering::Relaxed) { Err(PagesError::Stopped) } else { Ok(()) }
}

/// Reads and hashes every page.
fn first_look(shared: Shared<'_>, threads: usize) -> Result<(Table, Tally), PagesError> {
    let jobs = jobs(&shared.sources.ranges);
    let next = AtomicUsize::new(0);
    let table = Mutex::new(Table::default());
    let tally = on_threads(shared, threads.min(jobs.len()), |worker| {
        let give = |batch: &[Entry]| table.lock().unwrap_or_else(PoisonError::into_inner).append(batch);
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            for range in &shared.sources.ranges[job.clone()] {
                worker.first_look(range, give)?;
            }
        }
        Ok(())
    })?;
    Ok((table.into_inner().unwrap_or_else(PoisonError::into_inner), tally))
}

/// Groups ranges of a source, so that threads open it rarely.
fn jobs(ranges: &[PageRange]) -> Vec<Range<usize>> {
    let mut jobs: Vec<Range<usize>> = Vec::new();
    let mut pages = 0;
    for (index, range) in ranges.iter().enumerate() {
        pages += range.pages;
        match jobs.last_mut() {
            Some(job) if pages <= JOB_PAGES && job.len() < JOB_RANGES => job.end = index + 1,
            _ => {
                jobs.push(index..index + 1);
                pages = range.pages;
            }
        }
    }
    jobs
}

/// Marks entries with the content of another place. Leaves the table in the order of
/// [`Entry::by_content`].
fn mark_equals(table: &mut Table) {
    table.entries.sort_unstable_by_key(Entry::by_content);
    for equal in table.entries.chunk_by_mut(|one, other| one.content() == other.content()) {
        if equal.len() > 1 {
            equal.iter_mut().for_each(|entry| entry.set(flag::AGAIN));
        }
    }
}

/// Rereads the marked entries.
fn second_look(shared: Shared<'_>, threads: usize, table: &mut Table) -> Result<Tally, PagesError> {
    let parts = Mutex::new(table.entries.chunks_mut(AGAIN_ENTRIES));
    on_threads(shared, threads, |worker| {
        loop {
            let part = parts.lock().unwrap_or_else(PoisonError::into_inner).next();
            match part {
                Some(part) => worker.second_look(part)?,
                None => return Ok(()),
            }
        }
    })
}

/// Does the same work on several threads, or on the caller's if one is enough, and sums the counts.
///
/// # Errors
/// The first error of a thread; the others then stop.
fn on_threads(
    shared: Shared<'_>,
    threads: usize,
    work: impl Fn(&mut Worker<'_>) -> Result<(), PagesError> + Sync,
) -> Result<Tally, PagesError> {
    let run = || -> Result<Tally, PagesError> {
        let begin_ns = thread_cpu_ns();
        let mut worker = Worker::new(shared)?;
        work(&mut worker).inspect_err(|_| shared.halt.store(true, Ordering::Relaxed))?;
        worker.tally.cpu_ns = thread_cpu_ns() - begin_ns;
        Ok(worker.tally)
    };
    if threads <= 1 {
        return run();
    }
    let results: Vec<_> = std::thread::scope(|scope| {
        let started: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        started.into_iter().map(|thread| thread.join().expect("no thread of the scan panics")).collect()
    });
    let mut sum = Tally::default();
    let mut stopped = None;
    for result in results {
        match result {
            Ok(tally) => sum.add(Tally { elsewhere_ns: tally.cpu_ns, ..tally }),
            // A halted thread returns this, too; the cause is the error of another one.
            Err(PagesError::Stopped) => stopped = Some(PagesError::Stopped),
            Err(error) => return Err(error),
        }
    }
    stopped.map_or(Ok(sum), Err)
}

fn unread(sources: &Sources, first: Tally, second: Tally) -> UnreadPages {
    let mut gone = [first.gone, second.gone].concat();
    gone.sort_unstable();
    gone.dedup();
    let processes = gone
        .iter()
        .filter(|source| matches!(sources.list[**source as usize], Source::Process { .. }))
        .count();
    UnreadPages {
        vanished: first.vanished,
        swapped: first.swapped,
        refused: first.refused,
        special: sources.unread.special,
        ended_processes: sources.unread.ended_processes + processes as u64,
        unopened_files: sources.unread.unopened_files + (gone.len() - processes) as u64,
    }
}

impl Kernel {
    /// # Errors
    /// [`PagesError::Hidden`], [`PagesError::NotBuilt`], [`PagesError::Denied`].
    pub(super) fn ask() -> Result<Self, PagesError> {
        let page_bytes = rustix::param::page_size() as u64;
        let path = "/proc/self/pagemap";
        let map = File::open(path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => PagesError::NotBuilt { path },
            // Linux 4.0 and 4.1 let only root open it.
            _ => PagesError::Hidden,
        })?;
        let map = PageMap::new(map, page_bytes);
        let here = 0u8;
        if frame_at(&map, &raw const here as u64, page_bytes)?.is_none_or(|frame| frame == 0) {
            return Err(PagesError::Hidden);
        }
        let flags = KernelPageFlags::open()?;
        Ok(Self {
            page_bytes,
            zero_frame: zero_frame(&map, &flags, page_bytes)?,
            lists_holes: map.lists_holes(),
            ksm: ksm_number("run") == Some(1) || ksm_number("pages_shared").is_some_and(|pages| pages > 0),
            flags,
        })
    }

    pub(super) fn split_options<'a>(&self, stop: &'a AtomicBool) -> SplitOptions<'a> {
        SplitOptions { page_bytes: self.page_bytes, lists_holes: self.lists_holes, stop }
    }
}

/// The frame of this process's page at an address.
fn frame_at(map: &PageMap, address: u64, page_bytes: u64) -> Result<Option<u64>, PagesError> {
    let mut seen = [PageState::default()];
    let failed = |source| PagesError::Io { doing: "read /proc/self/pagemap", source };
    map.read(address / page_bytes, &mut seen).map_err(failed)?;
    Ok(seen[0].frame())
}

/// The frame of the kernel's zero page, which private memory has if it was only read.
fn zero_frame(map: &PageMap, flags: &KernelPageFlags, page_bytes: u64) -> Result<Option<u64>, PagesError> {
    let failed = |doing| move |source| PagesError::Io { doing, source };
    let memory = Mapped::anonymous(page_bytes as usize).map_err(failed("map a page"))?;
    // Enters the page as reading would. On older kernels the flags of each frame identify it later.
    let _ = memory.populate(0, page_bytes as usize);
    let Some(frame) = frame_at(map, memory.address(), page_bytes)? else { return Ok(None) };
    let mut known = Vec::new();
    flags.read(frame, &mut known, 1).map_err(failed("read /proc/kpageflags"))?;
    Ok(known[0].is_kernel_zero().then_some(frame))
}

/// A number among the files of kernel same-page merging (`Documentation/admin-guide/mm/ksm.rst`).
fn ksm_number(name: &str) -> Option<u64> {
    std::fs::read_to_string(format!("/sys/kernel/mm/ksm/{name}")).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_hold_every_stretch_once() {
        let range = |pages| PageRange { source: 0, first: 0, pages, is_mergeable: false };
        let sizes = [JOB_PAGES, 1, 2, JOB_PAGES, 5].into_iter().chain(std::iter::repeat_n(1, 200));
        let ranges: Vec<PageRange> = sizes.map(range).collect();
        let jobs = jobs(&ranges);
        let ends: Vec<_> = jobs.iter().map(|job| (job.start, job.end)).collect();
        assert_eq!(ends, [(0, 1), (1, 3), (3, 4), (4, 68), (68, 132), (132, 196), (196, 205)]);
    }

    #[test]
    fn only_equals_are_looked_at_again() {
        let entry = |content: u64, frame| Entry::new([content, 0], frame, 0, frame, 0).unwrap();
        let mut table = Table { entries: vec![entry(3, 1), entry(1, 2), entry(3, 3), entry(2, 4)] };
        mark_equals(&mut table);
        let marked: Vec<_> =
            table.entries.iter().map(|entry| (entry.frame(), entry.has(flag::AGAIN))).collect();
        assert_eq!(marked, [(2, false), (4, false), (1, true), (3, true)]);
    }
}
