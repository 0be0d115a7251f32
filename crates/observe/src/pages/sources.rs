//! The processes and files to scan, split into ranges for the threads.

use super::entry::MOST_SOURCES;
use super::guest_files::{FileFacts, FileIdentity, FoundFile, may_be_of_fuse, open_below, place};
use super::look::Space;
use super::mappings::{Mapping, each_mapping};
use super::pagemap::PageMap;
use super::reading::ProcessMemory;
use super::{Memory, PagesError, Subject};
use procfs::ProcError;
use procfs::process::Process;
use rustix::fs::{AtFlags, Dir, FileType, OFlags};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weigh_model::pages::{SubjectPages, SubjectRole, UnreadPages};

/// The most pages in a range where pages are likely to be present: 64 MiB of 4 KiB pages.
const RANGE_PAGES: u64 = 16 << 10;

/// Larger mappings without resident memory, bytes, are skipped on kernels that do not list holes:
/// reading the page map of the 16 TiB that a sanitizer reserves takes minutes.
const RESERVED: u64 = 1 << 30;

/// A mapping has at most this many ranges for each 64 MiB of it that are resident.
const MOST_PARTS: u64 = 16;

/// The most ranges of files that have more than one: 16 TiB. A guest may make files that pretend to
/// have more data than any disk.
const MOST_FILE_RANGES: usize = 1 << 18;

/// A process or a file.
#[derive(Debug)]
pub(super) enum Source {
    /// A process by its PID and its start in clock ticks, which together identify one process of a
    /// boot.
    Process { pid: u32, start: u64 },
    /// A file in the page cache.
    File(FoundFile),
}

/// An open source.
#[derive(Debug)]
pub(super) enum Opened {
    Process(Space),
    File(File),
    /// The process ended, or the file is gone.
    Gone,
}

/// Consecutive pages of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageRange {
    pub(super) source: u32,
    pub(super) first: u64,
    pub(super) pages: u64,
    pub(super) is_mergeable: bool,
}

/// Everything to be scanned.
#[derive(Debug, Default)]
pub(super) struct Sources {
    /// The sources, in the order of `subjects`.
    pub(super) list: Vec<Source>,
    /// For each source the index of its subject.
    pub(super) subject_of: Vec<u32>,
    /// The subjects: guests, then helpers, then files.
    pub(super) subjects: Vec<SubjectPages>,
    pub(super) ranges: Vec<PageRange>,
    /// Number of the ranges that count towards [`MOST_FILE_RANGES`].
    file_ranges: usize,
    /// Memory that is already known not to be read.
    pub(super) unread: UnreadPages,
}

/// Options for splitting memory into ranges.
#[derive(Debug, Clone, Copy)]
pub(super) struct SplitOptions<'a> {
    pub(super) page_bytes: u64,
    /// Whether the kernel can list the holes of an address space.
    pub(super) lists_holes: bool,
    /// Set when the caller stops the scan.
    pub(super) stop: &'a AtomicBool,
}

impl SplitOptions<'_> {
    /// # Errors
    /// [`PagesError::Stopped`] if the caller stops the scan.
    fn check(self) -> Result<(), PagesError> {
        if self.stop.load(Ordering::Relaxed) { Err(PagesError::Stopped) } else { Ok(()) }
    }
}

impl Sources {
    /// Finds the mappings of all processes and the sizes of all files. A process or file that is
    /// named twice is scanned once, for the first subject.
    ///
    /// # Errors
    /// [`PagesError::Denied`] for a process that may not be inspected, [`PagesError::File`] for a
    /// missing path that is not in `/proc`, [`PagesError::TooMany`].
    pub(super) fn find(subjects: &[Subject], options: SplitOptions<'_>) -> Result<Self, PagesError> {
        let mut all = Self::default();
        let (mut pids, mut files) = (HashSet::new(), HashSet::new());
        let mut ordered: Vec<&Subject> = subjects.iter().collect();
        ordered.sort_by_key(|subject| match subject.role() {
            SubjectRole::Guest => 0,
            SubjectRole::Helper { .. } => 1,
            SubjectRole::CachedFiles => 2,
        });
        for subject in ordered {
            all.subjects.push(SubjectPages::new(subject.name.as_str(), subject.role()));
            match &subject.memory {
                Memory::Guest(list) | Memory::Helper { pids: list, .. } => {
                    for pid in list.iter().filter(|pid| pids.insert(**pid)) {
                        options.check()?;
                        all.add_process(*pid, options)?;
                    }
                }
                Memory::CachedFiles(paths) => {
                    for path in paths {
                        all.add_path(path, &mut files, options)?;
                    }
                }
            }
        }
        Ok(all)
    }

    fn add_process(&mut self, pid: u32, options: SplitOptions<'_>) -> Result<(), PagesError> {
        let Some((start, smaps)) = open_process(pid, "smaps")? else {
            self.unread.ended_processes += 1;
            return Ok(());
        };
        let source = self.add(Source::Process { pid, start })?;
        let (ranges, unread) = (&mut self.ranges, &mut self.unread);
        let read = each_mapping(BufReader::with_capacity(64 << 10, smaps), |mapping| {
            if mapping.is_special {
                unread.special += (mapping.end - mapping.start) / options.page_bytes;
            } else {
                split_mapping(source, mapping, options, ranges);
            }
        });
        match read {
            Ok(()) => Ok(()),
            // The process is ending; what was found of it will be gone later.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            Err(source) => Err(PagesError::Denied { path: format!("/proc/{pid}/smaps").into(), source }),
        }
    }

    /// Adds a file, a block device or all files of a tree, without file systems mounted in it.
    fn add_path(
        &mut self,
        path: &Path,
        known: &mut HashSet<FileIdentity>,
        options: SplitOptions<'_>,
    ) -> Result<(), PagesError> {
        let failed = |source| PagesError::File { path: path.into(), source };
        let top = match FileFacts::of(path) {
            Ok(top) if !may_be_of_fuse(path, &top) => top,
            Ok(_) => {
                self.unread.unopened_files += 1;
                return Ok(());
            }
            // What a process has open may be closed at any time.
            Err(_) if path.starts_with("/proc") => {
                self.unread.unopened_files += 1;
                return Ok(());
            }
            Err(error) => return Err(failed(error)),
        };
        let named: Arc<Path> = path.into();
        let found = |below, facts| FoundFile { top: Arc::clone(&named), below, facts };
        match top.kind {
            FileType::BlockDevice => {
                let device = found(PathBuf::new(), top);
                let bytes = device.open().and_then(|mut file| file.seek(SeekFrom::End(0))).map_err(failed)?;
                return self.add_file(device, bytes, options);
            }
            FileType::RegularFile => return self.add_if_new(found(PathBuf::new(), top), known, options),
            _ => {}
        }
        let Ok(tree) = place(path) else {
            self.unread.unopened_files += 1;
            return Ok(());
        };
        let mut waiting = vec![PathBuf::new()];
        while let Some(directory) = waiting.pop() {
            options.check()?;
            // A directory that vanishes meanwhile has no pages in the cache.
            let Ok(handle) = open_below(&tree, &directory, OFlags::RDONLY | OFlags::DIRECTORY) else {
                self.unread.unopened_files += 1;
                continue;
            };
            for entry in Dir::read_from(&handle).into_iter().flatten().flatten() {
                let name = entry.file_name();
                if name == c"." || name == c".." {
                    continue;
                }
                let Ok(facts) = FileFacts::at(&handle, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
                if facts.is_mount || facts.identity.device != top.identity.device {
                    continue;
                }
                let below = directory.join(OsStr::from_bytes(name.to_bytes()));
                match facts.kind {
                    FileType::Directory => waiting.push(below),
                    FileType::RegularFile => self.add_if_new(found(below, facts), known, options)?,
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn add_if_new(
        &mut self,
        file: FoundFile,
        known: &mut HashSet<FileIdentity>,
        options: SplitOptions<'_>,
    ) -> Result<(), PagesError> {
        let FileFacts { bytes, identity, .. } = file.facts;
        if bytes == 0 || !known.insert(identity) {
            return Ok(());
        }
        self.add_file(file, bytes, options)
    }

    /// Adds the parts of a file that have data. A large file may consist of holes, so each of its
    /// parts begins with data. Cached pages of a hole, which are zeros, are scanned only within such
    /// a part. A file of which not everything can be scanned counts as unopened.
    fn add_file(&mut self, file: FoundFile, bytes: u64, options: SplitOptions<'_>) -> Result<(), PagesError> {
        let end = bytes.div_ceil(options.page_bytes);
        let large = match (end > RANGE_PAGES).then(|| file.open()).transpose() {
            Ok(large) => large,
            Err(_) => {
                self.unread.unopened_files += 1;
                return Ok(());
            }
        };
        let source = self.add(Source::File(file))?;
        let mut first = 0;
        while first < end {
            options.check()?;
            if let Some(file) = &large {
                let data = next_data(file, first * options.page_bytes).map(|data| data / options.page_bytes);
                let Some(data) = data.filter(|data| *data < end) else { break };
                if self.file_ranges == MOST_FILE_RANGES {
                    self.unread.unopened_files += 1;
                    break;
                }
                self.file_ranges += 1;
                first = data;
            }
            let pages = RANGE_PAGES.min(end - first);
            self.ranges.push(PageRange { source, first, pages, is_mergeable: false });
            first += pages;
        }
        Ok(())
    }

    fn add(&mut self, source: Source) -> Result<u32, PagesError> {
        if self.list.len() == MOST_SOURCES {
            return Err(PagesError::TooMany);
        }
        self.list.push(source);
        self.subject_of.push(self.subjects.len() as u32 - 1);
        Ok(self.list.len() as u32 - 1)
    }

    /// Opens a source for a thread.
    ///
    /// # Errors
    /// [`PagesError::Denied`].
    pub(super) fn open(&self, source: u32, page_bytes: u64) -> Result<Opened, PagesError> {
        match &self.list[source as usize] {
            Source::Process { pid, start } => {
                Ok(open_space(*pid, Some(*start), page_bytes)?.map_or(Opened::Gone, Opened::Process))
            }
            Source::File(file) => Ok(file.open().map_or(Opened::Gone, Opened::File)),
        }
    }
}

/// Opens the memory of the process with the given start; `None` if it has ended.
///
/// # Errors
/// [`PagesError::Denied`].
pub(super) fn open_space(pid: u32, start: Option<u64>, page_bytes: u64) -> Result<Option<Space>, PagesError> {
    let Some((found, map)) = open_process(pid, "pagemap")? else { return Ok(None) };
    let Some((again, mem)) = open_process(pid, "mem")? else { return Ok(None) };
    // If the starts differ, the process has ended and its number was reused.
    if found != again || start.is_some_and(|start| start != found) {
        return Ok(None);
    }
    let memory = ProcessMemory::new(pid, mem, page_bytes);
    Ok(memory.map(|memory| Space { map: PageMap::new(map, page_bytes), memory }))
}

/// Opens a file of a process in `/proc`, and reads its start; `None` if there is no such process.
fn open_process(pid: u32, file: &'static str) -> Result<Option<(u64, File)>, PagesError> {
    let denied = |kind| PagesError::Denied {
        path: format!("/proc/{pid}/{file}").into(),
        source: io::Error::from(kind),
    };
    let Ok(number) = i32::try_from(pid) else { return Ok(None) };
    // Both are read through one open directory, which cannot become that of another process.
    let opened = Process::new(number)
        .and_then(|process| Ok((process.stat()?.starttime, process.open_relative(file)?)));
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(ProcError::PermissionDenied(_)) => Err(denied(io::ErrorKind::PermissionDenied)),
        Err(_) if !Path::new("/proc/self").join(file).exists() => {
            Err(PagesError::NotBuilt { path: "/proc/self/pagemap" })
        }
        Err(_) => Ok(None),
    }
}

fn split_mapping(source: u32, mapping: Mapping, options: SplitOptions<'_>, into: &mut Vec<PageRange>) {
    let bytes = mapping.end - mapping.start;
    if mapping.resident == 0 && bytes > RESERVED && !options.lists_holes {
        return;
    }
    let (first, pages) = (mapping.start / options.page_bytes, bytes / options.page_bytes);
    let whole = PageRange { source, first, pages, is_mergeable: mapping.is_mergeable };
    // A mapping that is mostly a hole is not worth splitting among threads, or into many parts.
    let resident = mapping.resident / options.page_bytes;
    let most = if resident <= RANGE_PAGES {
        pages.max(1)
    } else {
        RANGE_PAGES.max(pages.div_ceil(resident / RANGE_PAGES * MOST_PARTS))
    };
    split(whole, most, into);
}

/// The first offset from `from` on at which a file has data; `None` if a hole is all that follows.
/// Where the file system knows no holes, everything is data.
fn next_data(file: &File, from: u64) -> Option<u64> {
    match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(from)) {
        Ok(data) => Some(data),
        Err(Errno::NXIO) => None,
        Err(_) => Some(from),
    }
}

fn split(whole: PageRange, most: u64, into: &mut Vec<PageRange>) {
    let end = whole.first + whole.pages;
    let mut first = whole.first;
    while first < end {
        let pages = most.min(end - first);
        into.push(PageRange { first, pages, ..whole });
        first += pages;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;

    fn options() -> SplitOptions<'static> {
        static GO_ON: AtomicBool = AtomicBool::new(false);
        SplitOptions { page_bytes: 4096, lists_holes: true, stop: &GO_ON }
    }

    #[test]
    fn a_large_mapping_is_cut_and_a_hole_is_not() {
        let mapping =
            Mapping { start: 4096, end: 4096 + (65 << 20), resident: 65 << 20, ..Mapping::default() };
        let mut ranges = Vec::new();
        split_mapping(3, mapping, options(), &mut ranges);
        let cuts: Vec<_> = ranges.iter().map(|range| (range.first, range.pages)).collect();
        assert_eq!(cuts, [(1, RANGE_PAGES), (1 + RANGE_PAGES, 256)]);
        assert!(ranges.iter().all(|range| range.source == 3 && !range.is_mergeable));
        let hole = Mapping { start: 0, end: 16 << 40, resident: 4096, is_mergeable: true, ..mapping };
        ranges.clear();
        split_mapping(3, hole, options(), &mut ranges);
        assert_eq!(ranges.len(), 1);
        assert!(ranges[0].pages == 4 << 30 && ranges[0].is_mergeable);
        ranges.clear();
        // Many processes may map the same 65 MiB in such a hole.
        split_mapping(3, Mapping { resident: 65 << 20, ..hole }, options(), &mut ranges);
        assert_eq!(ranges.len() as u64, MOST_PARTS);
        assert_eq!(ranges.iter().map(|range| range.pages).sum::<u64>(), 4 << 30);
        ranges.clear();
        let reserved = Mapping { resident: 0, ..hole };
        split_mapping(3, reserved, SplitOptions { lists_holes: false, ..options() }, &mut ranges);
        assert_eq!(ranges, []);
    }

    #[test]
    fn a_tree_is_walked_without_links_and_each_file_once() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        fs::create_dir_all(at("tree/deep")).unwrap();
        fs::write(at("tree/one"), vec![1; 4097]).unwrap();
        fs::write(at("tree/deep/two"), "2").unwrap();
        fs::write(at("tree/empty"), "").unwrap();
        fs::hard_link(at("tree/one"), at("tree/deep/again")).unwrap();
        std::os::unix::fs::symlink("/", at("tree/deep/root")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("tree/pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        let subject = Subject::cached_files("files", vec![at("tree"), at("tree/one")]);
        let sources = Sources::find(&[subject], options()).unwrap();
        let mut pages: Vec<u64> = sources.ranges.iter().map(|range| range.pages).collect();
        pages.sort_unstable();
        assert_eq!((sources.list.len(), pages), (2, vec![1, 2]), "{sources:?}");
        let nowhere = Subject::cached_files("files", vec![at("nowhere")]);
        let error = Sources::find(&[nowhere], options()).unwrap_err().to_string();
        assert!(error.contains("nowhere"), "{error}");
        let closed = Subject::cached_files("files", vec!["/proc/self/fd/2147483647".into()]);
        let sources = Sources::find(&[closed], options()).unwrap();
        assert_eq!((sources.list.len(), sources.unread.unopened_files), (0, 1));
    }

    /// A guest may make such a file without any disk.
    #[test]
    fn only_the_data_of_a_sparse_file_is_scanned() {
        let file = rustix::fs::memfd_create("sparse", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let file = File::from(file);
        file.write_all_at(b"1", 0).unwrap();
        file.write_all_at(b"2", 1 << 40).unwrap();
        file.set_len(i64::MAX as u64).unwrap();
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let subjects = [Subject::cached_files("file", vec![path])];
        let sources = Sources::find(&subjects, options()).unwrap();
        let [one, other] = &sources.ranges[..] else { panic!("{} ranges", sources.ranges.len()) };
        assert_eq!((one.first, one.pages), (0, RANGE_PAGES));
        // The kernel may keep a huge page there.
        assert!((other.first..other.first + other.pages).contains(&((1 << 40) / 4096)), "{other:?}");
        assert_eq!(sources.unread.unopened_files, 0);
        static STOPPED: AtomicBool = AtomicBool::new(true);
        let stopped = Sources::find(&subjects, SplitOptions { stop: &STOPPED, ..options() });
        assert!(matches!(stopped, Err(PagesError::Stopped)), "{stopped:?}");
    }

    #[test]
    fn files_without_end_are_not_scanned_whole() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().write_all_at(&[1], 0).unwrap();
        file.as_file().set_len(1 << 30).unwrap();
        let mut sources = Sources { file_ranges: MOST_FILE_RANGES, ..Sources::default() };
        sources.subjects.push(SubjectPages::new("files", SubjectRole::CachedFiles));
        sources.add_path(file.path(), &mut HashSet::new(), options()).unwrap();
        assert_eq!((sources.ranges.len(), sources.unread.unopened_files), (0, 1));
    }

    #[test]
    fn guests_come_before_helpers_before_files_and_a_process_is_one_subjects() {
        let own = std::process::id();
        let subjects = [
            Subject::cached_files("files", vec!["/proc/self/exe".into()]),
            Subject::helper("helper", "guest", vec![own]),
            Subject::guest("guest", vec![own, own, u32::MAX, i32::MAX as u32]),
        ];
        let sources = Sources::find(&subjects, options()).unwrap();
        let names: Vec<&str> = sources.subjects.iter().map(|subject| subject.name.as_str()).collect();
        assert_eq!(names, ["guest", "helper", "files"]);
        assert_eq!(sources.subject_of, [0, 2]);
        assert!(matches!(sources.list[0], Source::Process { pid, .. } if pid == own));
        assert_eq!(sources.unread.ended_processes, 2);
        assert!(sources.unread.special > 0);
        // The PID now belongs to another process.
        let page_bytes = rustix::param::page_size() as u64;
        assert!(open_space(own, Some(1), page_bytes).unwrap().is_none());
        assert!(open_space(own, None, page_bytes).unwrap().is_some());
    }
}
