//! Logs whose length is bounded whatever is written to them.
//!
//! A guest may write without end to the standard error of the program that runs it, or to the
//! console of its machine. Such a program gets a pipe and not a file of the host's, and one thread
//! copies the data to the log. A log longer than [`LONGEST_BYTES`] keeps its beginning and its end.
//! A program that goes on writing is slowed down, and only its log lines are lost.

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// The greatest length of a log, bytes.
pub const LONGEST_BYTES: u64 = 16 << 20;

/// What a log that became too long keeps of its beginning and of its end, bytes.
const BEGINNING_BYTES: u64 = 4 << 20;
const END_BYTES: u64 = 4 << 20;
/// Separates the beginning and the end.
const LEFT_OUT: &[u8] = b"\n=== this log became too long, and its middle was left out here\n";
/// How much is copied at once, bytes.
const PIECE: usize = 64 << 10;
/// Pause after a piece for a log that became too long. It limits copying to 64 MiB/s, so that a
/// flood costs its writer more than it costs weighbridge.
const PAUSE: Duration = Duration::from_millis(1);
/// How much is copied for a caller that waits, bytes: more than a pipe holds.
const FLUSH_BYTES: usize = 2 << 20;

/// Only one writer at a time appends to a log or shortens one.
static FILES: Mutex<()> = Mutex::new(());

/// Appends to a log. Makes the file and its directory if they are missing.
///
/// # Errors
/// The errors of the file system; the log is a symbolic link or not a regular file.
pub fn append(log: &Path, bytes: &[u8]) -> io::Result<()> {
    append_bounded(log, bytes).map(|_| ())
}

/// Does what [`append`] does, and returns whether the log became too long and was shortened.
fn append_bounded(log: &Path, bytes: &[u8]) -> io::Result<bool> {
    let _alone = lock(&FILES);
    if let Some(parent) = log.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let mut file = open(log, OFlags::RDWR | OFlags::APPEND | OFlags::CREATE)?;
    file.write_all(bytes)?;
    let length = file.metadata()?.len();
    if length <= LONGEST_BYTES {
        return Ok(false);
    }
    let mut end = vec![0; END_BYTES as usize];
    file.read_exact_at(&mut end, length - END_BYTES)?;
    file.set_len(BEGINNING_BYTES)?;
    file.write_all(LEFT_OUT).and_then(|()| file.write_all(&end))?;
    Ok(true)
}

/// The last bytes of a log, once it holds all that its program has written; empty if there is none.
pub fn tail(log: &Path, most: u64) -> Vec<u8> {
    flush(log);
    let read = || {
        let mut file = open(log, OFlags::RDONLY)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(most)))?;
        let mut bytes = Vec::new();
        file.take(most).read_to_end(&mut bytes)?;
        Ok::<_, io::Error>(bytes)
    };
    read().unwrap_or_default()
}

/// Opens a log. Never follows a symbolic link, and opens nothing that could block.
fn open(log: &Path, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(log, flags, Mode::from_raw_mode(0o644))?);
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

/// A pipe whose write end goes to a program. What is written to it is appended to the log until all
/// copies of that end are closed.
///
/// # Errors
/// The errors of [`append`]; there are no more descriptors or threads.
pub fn pipe(log: &Path) -> io::Result<OwnedFd> {
    append(log, b"")?;
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&read, true)?;
    Pump::get()?.add(read, log)?;
    Ok(write)
}

/// A named pipe for a program that takes only a path. Dropping this removes it.
#[derive(Debug)]
pub struct NamedPipe {
    path: PathBuf,
    source: Arc<Source>,
}

impl NamedPipe {
    /// Makes the pipe at a path, which must not exist. What is written to it is appended to the
    /// log.
    ///
    /// # Errors
    /// The errors of the file system; there are no more descriptors or threads.
    pub fn make(path: &Path, log: &Path) -> io::Result<Self> {
        mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        // Also open for writing here, so that there is no end of file while programs come and go.
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let read = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Self { path: path.into(), source: Pump::get()?.add(read, log)? })
    }
}

impl Drop for NamedPipe {
    fn drop(&mut self) {
        self.source.copy(FLUSH_BYTES);
        if let Ok(pump) = Pump::get() {
            pump.remove(&self.source);
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Copies what has been written so far to the pipes of a log.
pub fn flush(log: &Path) {
    let Some(Ok(pump)) = PUMP.get() else { return };
    let log = absolute(log);
    let sources: Vec<Arc<Source>> =
        lock(&pump.sources).iter().filter(|source| source.log == log).cloned().collect();
    for source in sources {
        source.copy(FLUSH_BYTES);
    }
}

/// The pipes, and the thread that copies from them.
#[derive(Debug)]
struct Pump {
    sources: Mutex<Vec<Arc<Source>>>,
    /// Written to when a source is added.
    wake: OwnedFd,
}

static PUMP: OnceLock<Result<Pump, Errno>> = OnceLock::new();

impl Pump {
    fn get() -> io::Result<&'static Self> {
        let pump = PUMP.get_or_init(|| {
            let pump = Self {
                sources: Mutex::default(),
                wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            };
            // The thread may start before this value is set, and waits for it.
            let run = || {
                if let Ok(pump) = PUMP.wait() {
                    pump.run();
                }
            };
            let thread = std::thread::Builder::new().name("logs".into()).spawn(run);
            thread.map(|_| pump).map_err(|_| Errno::AGAIN)
        });
        pump.as_ref().map_err(|errno| (*errno).into())
    }

    fn add(&self, pipe: OwnedFd, log: &Path) -> io::Result<Arc<Source>> {
        let source = Arc::new(Source { pipe, log: absolute(log), copying: Mutex::default() });
        lock(&self.sources).push(Arc::clone(&source));
        rustix::io::write(&self.wake, &1u64.to_ne_bytes())?;
        Ok(source)
    }

    fn remove(&self, source: &Arc<Source>) {
        lock(&self.sources).retain(|other| !Arc::ptr_eq(other, source));
    }

    fn run(&self) {
        loop {
            let sources = lock(&self.sources).clone();
            let mut fds = vec![PollFd::new(&self.wake, PollFlags::IN)];
            fds.extend(sources.iter().map(|source| PollFd::new(&source.pipe, PollFlags::IN)));
            if !matches!(poll(&mut fds, None), Ok(_) | Err(Errno::INTR)) {
                return;
            }
            let ready: Vec<bool> = fds.iter().skip(1).map(|fd| !fd.revents().is_empty()).collect();
            let _ = rustix::io::read(&self.wake, &mut [0; 8]);
            let mut flooded = false;
            for (source, _) in sources.iter().zip(ready).filter(|(_, ready)| *ready) {
                match source.copy(PIECE) {
                    Copied::All | Copied::Some => {}
                    Copied::Flood => flooded = true,
                    Copied::Ended => self.remove(source),
                }
            }
            if flooded {
                std::thread::sleep(PAUSE);
            }
        }
    }
}

/// A pipe and the log to which it is copied.
#[derive(Debug)]
struct Source {
    pipe: OwnedFd,
    log: PathBuf,
    /// Held while something is copied. The value says whether the log ever became too long.
    copying: Mutex<bool>,
}

/// What copying found.
enum Copied {
    /// Everything was copied.
    All,
    /// There may be more.
    Some,
    /// There may be more, and the log is too long already.
    Flood,
    /// No writer is left.
    Ended,
}

impl Source {
    /// Copies about `most` bytes. What a log cannot take, because the disk is full, is lost.
    fn copy(&self, most: usize) -> Copied {
        let mut is_flood = lock(&self.copying);
        let (mut buffer, mut left) = (vec![0; PIECE.min(most)], most);
        while left > 0 {
            match rustix::io::read(&self.pipe, &mut buffer[..]) {
                Ok(0) => return Copied::Ended,
                Ok(n) => {
                    *is_flood |= append_bounded(&self.log, &buffer[..n]).unwrap_or(false);
                    left = left.saturating_sub(n);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Copied::All,
                Err(_) => return Copied::Ended,
            }
        }
        if *is_flood { Copied::Flood } else { Copied::Some }
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.into())
}

/// Locks a mutex; a panic never leaves its value inconsistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn ends_with(log: &Path, text: &str) -> bool {
        crate::wait::until(Duration::from_secs(20), || tail(log, 100).ends_with(text.as_bytes()))
    }

    #[test]
    fn a_flood_keeps_its_beginning_and_its_end() {
        let base = tempfile::tempdir().unwrap();
        let log = base.path().join("logs/x.log");
        let mut writer = File::from(pipe(&log).unwrap());
        writer.write_all(b"the beginning\n").unwrap();
        let line = [[b'x'; 1023].as_slice(), b"\n"].concat();
        for _ in 0..100 << 10 {
            writer.write_all(&line).unwrap();
            let length = log.metadata().map_or(0, |found| found.len());
            assert!(length <= LONGEST_BYTES + PIECE as u64, "{length}");
        }
        writer.write_all(b"the end\n").unwrap();
        assert!(ends_with(&log, "the end\n"));
        let text = std::fs::read(&log).unwrap();
        assert!(text.len() as u64 <= LONGEST_BYTES && text.starts_with(b"the beginning\n"));
        let mut notes = text.windows(LEFT_OUT.len()).filter(|window| *window == LEFT_OUT);
        assert!(notes.next().is_some() && notes.next().is_none(), "it says once that its middle is gone");
    }

    #[test]
    fn a_named_pipe_is_read_while_programs_come_and_go() {
        let base = tempfile::tempdir().unwrap();
        let (path, log) = (base.path().join("console"), base.path().join("x.log"));
        let pipe = NamedPipe::make(&path, &log).unwrap();
        for word in ["first\n", "second\n"] {
            File::options().append(true).open(&path).unwrap().write_all(word.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(tail(&log, 7)).unwrap().trim_start(), word);
        }
        File::options().write(true).open(&path).unwrap().write_all(b"last\n").unwrap();
        drop(pipe);
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "first\nsecond\nlast\n");
        assert!(!path.exists());
    }

    /// A log in a directory that somebody else prepared.
    #[test]
    fn a_log_is_no_link_and_no_pipe() {
        let base = tempfile::tempdir().unwrap();
        let [victim, link, fifo] = ["victim", "link", "fifo"].map(|name| base.path().join(name));
        std::fs::write(&victim, "secret").unwrap();
        symlink(&victim, &link).unwrap();
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        for log in [&link, &fifo] {
            assert!(append(log, b"more").is_err());
            assert!(tail(log, 100).is_empty());
        }
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "secret");
    }
}
