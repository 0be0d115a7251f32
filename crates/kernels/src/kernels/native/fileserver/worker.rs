//! One thread of the file server: the loop of Filebench's personality.

use super::content::{self, Content, Identity, PAGE};
use super::record::{FileOperation, Record, Recorder};
use super::tree::{ExistingFile, Sizes, Tree};
use crate::clock::now_ns;
use crate::kernel::KernelError;
use crate::kernels::below;
use crate::kernels::native::window::Window;
use rand_pcg::Pcg64Mcg;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};

/// What all threads share.
pub(super) struct Load<'a> {
    pub(super) tree: &'a Tree,
    pub(super) record: &'a Record,
    pub(super) window: &'a Window,
    pub(super) sizes: Sizes,
    pub(super) append_bytes: u64,
    pub(super) io_bytes: u64,
    pub(super) seed: u64,
    pub(super) found: &'a CheckCounts,
}

/// What the checks found.
#[derive(Default)]
pub(super) struct CheckCounts {
    /// Files that were read whole.
    pub(super) read: AtomicU64,
    /// Files that ended too early.
    pub(super) short: AtomicU64,
    /// Files with the content of another file or place.
    pub(super) foreign: AtomicU64,
    /// Files whose length was read with `stat`.
    pub(super) sizes: AtomicU64,
    /// Files whose length was not what was written.
    pub(super) wrong_sizes: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// A thread's own memory.
struct Thread<'a> {
    load: &'a Load<'a>,
    recorder: Recorder<'a>,
    random: Pcg64Mcg,
    content: Content,
    buffer: Vec<u8>,
}

/// One of the groups of operations that share an open file.
type Step<'t> = fn(&mut Thread<'t>) -> Result<(), KernelError>;

/// Works until the window closes. The result is the bytes that measured operations moved.
pub(super) fn work(load: &Load, content: Content, index: usize) -> Result<u64, KernelError> {
    let mut thread = Thread {
        load,
        recorder: Recorder::new(load.record, load.window),
        random: Pcg64Mcg::new(u128::from(load.seed) << 64 | (index as u128 + 1) << 1),
        content,
        buffer: vec![0; load.io_bytes as usize],
    };
    let steps: [Step<'_>; 5] = [Thread::create, Thread::append, Thread::read, Thread::delete, Thread::stat];
    for step in steps.iter().cycle() {
        if thread.recorder.is_over() {
            break;
        }
        step(&mut thread)?;
    }
    Ok(thread.recorder.bytes)
}

impl Thread<'_> {
    /// Creates a file, writes it whole, closes it.
    fn create(&mut self) -> Result<(), KernelError> {
        let file = self.load.tree.take_name(&mut self.random);
        let bytes = self.load.sizes.draw(&mut self.random);
        let path = self.load.tree.path(file);
        let create = || Ok((OpenOptions::new().write(true).create_new(true).open(path)?, 0));
        let mut open =
            self.recorder.time(FileOperation::Create, create).map_err(self.failed("create", file))?;
        self.write(FileOperation::Write, &mut open, file, (0, bytes))?;
        self.close(open);
        self.load.tree.put_file(ExistingFile { file, bytes });
        Ok(())
    }

    /// Opens a file, appends between 1 and `append_bytes` bytes, closes it.
    fn append(&mut self) -> Result<(), KernelError> {
        let known = self.load.tree.take_file(&mut self.random);
        let bytes = below(&mut self.random, self.load.append_bytes as usize) as u64 + 1;
        let path = self.load.tree.path(known.file);
        let open = || Ok((OpenOptions::new().append(true).open(path)?, 0));
        let mut open =
            self.recorder.time(FileOperation::Open, open).map_err(self.failed("open", known.file))?;
        self.write(FileOperation::Append, &mut open, known.file, (known.bytes, bytes))?;
        self.close(open);
        self.load.tree.put_file(ExistingFile { bytes: known.bytes + bytes, ..known });
        Ok(())
    }

    /// Opens a file, reads it whole, closes it.
    fn read(&mut self) -> Result<(), KernelError> {
        let known = self.load.tree.take_file(&mut self.random);
        let path = self.load.tree.path(known.file);
        let open = || Ok((File::open(path)?, 0));
        let mut open =
            self.recorder.time(FileOperation::Open, open).map_err(self.failed("open", known.file))?;
        self.read_whole(&mut open, known)?;
        self.close(open);
        self.load.tree.put_file(known);
        Ok(())
    }

    fn delete(&mut self) -> Result<(), KernelError> {
        let known = self.load.tree.take_file(&mut self.random);
        let path = self.load.tree.path(known.file);
        let delete = || Ok((std::fs::remove_file(path)?, 0));
        self.recorder.time(FileOperation::Delete, delete).map_err(self.failed("delete", known.file))?;
        self.load.tree.put_name(known.file);
        Ok(())
    }

    fn stat(&mut self) -> Result<(), KernelError> {
        let known = self.load.tree.take_file(&mut self.random);
        let path = self.load.tree.path(known.file);
        let stat = || Ok((std::fs::metadata(path)?, 0));
        let there = self.recorder.time(FileOperation::Stat, stat).map_err(self.failed("stat", known.file))?;
        count(&self.load.found.sizes);
        if there.len() != known.bytes {
            count(&self.load.found.wrong_sizes);
        }
        self.load.tree.put_file(known);
        Ok(())
    }

    /// Appends bytes to `file`, in requests. The time to prepare the requests does not count as
    /// latency.
    fn write(
        &mut self,
        kind: FileOperation,
        open: &mut File,
        file: Identity,
        (mut place, mut left): (u64, u64),
    ) -> Result<(), KernelError> {
        let (mut spent_ns, moved) = (0, left);
        while left > 0 {
            let length = if kind == FileOperation::Append { left } else { left.min(self.load.io_bytes) };
            let bytes = self.content.of(file, place, length);
            let start_ns = now_ns();
            let written = open.write_all(bytes);
            spent_ns += now_ns() - start_ns;
            written.map_err(self.failed("write", file))?;
            place += length;
            left -= length;
        }
        let end_ns = now_ns();
        self.recorder.note(kind, end_ns.saturating_sub(spent_ns), end_ns, moved);
        Ok(())
    }

    /// Reads as many bytes as there should be, and checks them.
    fn read_whole(&mut self, open: &mut File, known: ExistingFile) -> Result<(), KernelError> {
        let (mut spent_ns, mut place) = (0, 0);
        let (mut short, mut foreign) = (false, false);
        while place < known.bytes && !short {
            let length = self.load.io_bytes.min(known.bytes - place) as usize;
            let buffer = &mut self.buffer[..length];
            let start_ns = now_ns();
            let read = open.read_exact(buffer);
            spent_ns += now_ns() - start_ns;
            match read {
                Ok(()) => foreign |= !content::belongs(buffer, known.file, place),
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => short = true,
                Err(error) => return Err(self.failed("read", known.file)(error)),
            }
            place += length as u64;
        }
        let end_ns = now_ns();
        self.recorder.note(FileOperation::Read, end_ns.saturating_sub(spent_ns), end_ns, known.bytes);
        count(&self.load.found.read);
        if short {
            count(&self.load.found.short);
        } else if foreign {
            count(&self.load.found.foreign);
        }
        Ok(())
    }

    fn close(&mut self, open: File) {
        let start_ns = now_ns();
        drop(open);
        self.recorder.note(FileOperation::Close, start_ns, now_ns(), 0);
    }

    fn failed(&self, verb: &str, file: Identity) -> impl FnOnce(std::io::Error) -> KernelError + use<> {
        KernelError::system(format!("{verb} {}", self.load.tree.path(file).display()))
    }
}

/// Reads `known` and compares it with what was written, byte for byte.
pub(super) fn is_whole(
    tree: &Tree,
    content: &mut Content,
    known: ExistingFile,
    io_bytes: u64,
) -> Result<bool, KernelError> {
    let path = tree.path(known.file);
    let found = std::fs::read(path).map_err(KernelError::system(format!("read {}", path.display())))?;
    if found.len() as u64 != known.bytes {
        return Ok(false);
    }
    debug_assert!(io_bytes.is_multiple_of(PAGE));
    Ok(found
        .chunks(io_bytes as usize)
        .enumerate()
        .all(|(index, piece)| content.of(known.file, index as u64 * io_bytes, piece.len() as u64) == piece))
}
