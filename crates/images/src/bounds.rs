//! Limits on what an archive may unpack to.
//!
//! An archive of a few kilobytes can claim any number of files of any size, names and headers that
//! fill the memory, and trees so deep that nothing removes them. Each of these is refused before it
//! takes space, with an error that states the claim and the limit.

use rustix::fs::statvfs;
use std::cell::Cell;
use std::io::{self, Read};
use std::path::Path;
use std::rc::Rc;

/// The most entries of all layers together. The largest systems of distributions have a third of
/// this.
const MOST_ENTRIES: u64 = 1_000_000;
/// The most bytes of all files together.
const MOST_BYTES: u64 = 256 << 30;
/// Bytes that stay free on the file system, or a twentieth of it, if that is less.
const KEPT_FREE: u64 = 1 << 30;
/// The longest path, bytes, and the most directories in it: the kernel's limit, and a depth that
/// every tool can remove.
const LONGEST_PATH: usize = 4095;
pub(crate) const DEEPEST: usize = 256;
/// The most bytes of headers from the content of one entry to that of the next: long names,
/// extensions, maps of sparse files. They are held in memory.
const HEADERS: u64 = 1 << 20;
/// The largest ratio of the content's length to the archive's, beyond the first gibibyte. gzip does
/// not reach it.
const MOST_RATIO: u64 = 1100;
const UNBOUNDED_BYTES: u64 = 1 << 30;
/// The part of a path that an error shows, bytes.
const NAMED: usize = 200;

/// The remaining limits while archives are unpacked into a directory.
#[derive(Debug)]
pub(crate) struct Bounds {
    entries: Cell<u64>,
    bytes: Cell<u64>,
}

impl Bounds {
    pub(crate) fn new() -> Self {
        Self { entries: Cell::new(0), bytes: Cell::new(0) }
    }

    /// Counts an entry with a content of this many bytes, which is about to be unpacked into a
    /// directory of this file system.
    pub(crate) fn entry(&self, name: &[u8], bytes: u64, into: &Path) -> io::Result<()> {
        if name.len() > LONGEST_PATH {
            return Err(refused(format!("its path has {} bytes, more than {LONGEST_PATH}", name.len())));
        }
        if name.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).count() > DEEPEST {
            return Err(refused(format!("it lies below more than {DEEPEST} directories")));
        }
        self.entries.set(self.entries.get() + 1);
        if self.entries.get() > MOST_ENTRIES {
            return Err(refused(format!("there are more than {MOST_ENTRIES} entries")));
        }
        self.bytes.set(self.bytes.get().saturating_add(bytes));
        if self.bytes.get() > MOST_BYTES {
            return Err(refused(format!("its files have more than {} GiB together", MOST_BYTES >> 30)));
        }
        has_room(bytes, into)
    }
}

/// Checks that a file system has room for this many more bytes besides those that stay free.
pub(crate) fn has_room(bytes: u64, into: &Path) -> io::Result<()> {
    let found = statvfs(into)?;
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    let kept = KEPT_FREE.min(found.f_blocks.saturating_mul(found.f_frsize) / 20);
    if bytes.saturating_add(kept) <= free {
        return Ok(());
    }
    let mebibytes = |bytes: u64| bytes.div_ceil(1 << 20);
    let text = format!(
        "{} MiB do not fit: {} MiB are free, of which {} MiB stay free",
        mebibytes(bytes),
        mebibytes(free),
        mebibytes(kept)
    );
    Err(io::Error::new(io::ErrorKind::StorageFull, text))
}

/// A path, shortened for an error.
pub(crate) fn named(path: &[u8]) -> String {
    let text = String::from_utf8_lossy(&path[..path.len().min(NAMED)]).into_owned();
    if path.len() > NAMED { format!("{text}...") } else { text }
}

pub(crate) fn refused(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// The unpacked bytes of an archive, which are read only as far as [`Allowance`] permits.
pub(crate) struct Metered<R> {
    inner: R,
    allowance: Allowance,
    packed: u64,
    unpacked: u64,
}

/// The number of bytes that may be read before the next entry.
#[derive(Debug, Clone)]
pub(crate) struct Allowance(Rc<Cell<u64>>);

impl<R: Read> Metered<R> {
    /// A reader for an archive of this length.
    pub(crate) fn new(inner: R, packed: u64) -> (Self, Allowance) {
        let allowance = Allowance(Rc::new(Cell::new(HEADERS)));
        (Self { inner, allowance: allowance.clone(), packed, unpacked: 0 }, allowance)
    }
}

impl Allowance {
    /// Permits reading the content of an entry, and the headers after it. Returns the bytes of the
    /// headers that were read since the content before.
    pub(crate) fn entry<S: Read>(&self, entry: &mut tar::Entry<'_, S>) -> io::Result<u64> {
        let headers = HEADERS.saturating_sub(self.0.get());
        // An extension may give another size than the header, which then counts. The size of a
        // sparse file is not that of its content in the archive.
        let content = if entry.header().entry_type().is_gnu_sparse() {
            let has_size = |extension: tar::PaxExtension<'_>| extension.key_bytes() == b"size";
            if entry.pax_extensions()?.into_iter().flatten().flatten().any(has_size) {
                return Err(refused("a sparse file has two sizes".into()));
            }
            entry.header().entry_size()?
        } else {
            entry.size()
        };
        self.0.set(content.saturating_add(HEADERS));
        Ok(headers)
    }
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.allowance.0.get();
        if left == 0 {
            return Err(refused(format!("an entry has headers of more than {} KiB", HEADERS >> 10)));
        }
        let room = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = self.inner.read(&mut buffer[..room])?;
        self.allowance.0.set(left - read as u64);
        self.unpacked += read as u64;
        if self.unpacked > UNBOUNDED_BYTES && self.unpacked / MOST_RATIO > self.packed {
            return Err(refused(format!("it unpacks to more than {MOST_RATIO} times its length")));
        }
        Ok(read)
    }
}
