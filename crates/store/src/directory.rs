//! One run directory.

mod checks;
mod lock;

use crate::StoreError;
use crate::analysis_cache::{self, CacheKey};
use crate::durable::{make_directories, parent_of, sync_directory, sync_name, write_whole};
use crate::error::no_room;
use crate::naming::{directory_name, safe_file_name};
use crate::{files, samples};
use checks::{is_empty_and_own, is_empty_but_for, require_run_directory};
pub(crate) use lock::DirectoryLock;
use lock::LOCK;
use rustix::fs::OFlags;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fs::TryLockError;
use std::io::{BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weigh_disk::{File, Step};
use weigh_model::{HostFacts, PLAN_FORMAT, Plan, Record, SAMPLES_FORMAT, Timestamped};

const PLAN: &str = "plan.json";
const HOST: &str = "host.json";
const SAMPLES: &str = "samples.jsonl";
const EVENTS: &str = "events.jsonl";
const LOGS: &str = "logs";

/// A run directory, open for reading or for reading and writing.
#[derive(Debug)]
pub struct RunDirectory {
    path: PathBuf,
    plan: Plan,
    /// Digest of the bytes of the plan's file.
    plan_digest: u128,
    host: HostFacts,
    recovered: Option<String>,
    writer: Option<Writer>,
    /// Held while this value may write to the directory.
    lock: Option<DirectoryLock>,
}

/// The records of a run.
#[derive(Debug)]
pub struct Records {
    /// The records in the order in which they were written, without the header.
    pub records: Vec<Record>,
    /// A sentence about a last line that a crash cut short and that is not among the records.
    pub recovered: Option<String>,
}

/// A value derived from the records of a run.
#[derive(Debug)]
pub struct Derived<T> {
    /// The same whether it was derived now or read from the cache.
    pub value: T,
    /// A cut last line, as in [`Records::recovered`].
    pub recovered: Option<String>,
}

/// The events of a run.
#[derive(Debug)]
pub struct Events {
    /// The events in the order in which they were written.
    pub events: Vec<Timestamped>,
    /// Lines that could not be read: cut short by a crash, or of a kind that this version does not
    /// know.
    pub unreadable_lines: u64,
}

#[derive(Debug)]
struct Writer {
    samples: File,
    /// Length of the samples file, all of it whole lines.
    whole_bytes: u64,
    /// Set when a failed write could not be taken back.
    broken: bool,
    events: BufWriter<File>,
}

impl RunDirectory {
    /// Makes `<parent>/<UTC time>-<name>/` and everything in it but samples. Adds a number to the
    /// name if it is taken.
    ///
    /// `started_utc` is RFC 3339 in UTC, as in `2026-11-21T05:00:00Z`.
    ///
    /// # Errors
    /// [`StoreError::Full`] and other errors of the file system.
    pub fn create(
        parent: &Path,
        plan: &Plan,
        host: &HostFacts,
        started_utc: &str,
    ) -> Result<Self, StoreError> {
        make_directories(parent)?;
        let path = make_unique(parent, &directory_name(started_utc, &plan.name))?;
        Self::fill_or_remove(&path, true, plan, host)
    }

    /// Makes the run directory at exactly `path`, which must not exist yet, or be an empty
    /// directory that belongs to this user or to the owner of its parent directory. In a directory
    /// such as `/tmp`, anybody could have put another one there.
    ///
    /// # Errors
    /// [`StoreError::Exists`], [`StoreError::Full`] and other errors of the file system.
    pub fn create_at(path: &Path, plan: &Plan, host: &HostFacts) -> Result<Self, StoreError> {
        let parent = parent_of(path);
        make_directories(parent)?;
        let is_new = match weigh_disk::create_directory(path) {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::AlreadyExists && is_empty_and_own(path) => false,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(StoreError::Exists(path.into()));
            }
            Err(error) => return Err(StoreError::io("make", path, error)),
        };
        Self::fill_or_remove(path, is_new, plan, host)
    }

    /// Fills an empty directory. On failure, as on a full disk, removes what was half made, and the
    /// directory itself if it is new.
    fn fill_or_remove(path: &Path, is_new: bool, plan: &Plan, host: &HostFacts) -> Result<Self, StoreError> {
        let filled = DirectoryLock::take(path).and_then(|lock| {
            // Another run may have been made here since the caller looked.
            if !is_empty_but_for(path, Some(LOCK)) {
                return Err(StoreError::Exists(path.into()));
            }
            let writer = Self::fill(path, plan, host).inspect_err(|_| {
                // The first error is the one to report.
                for file in [PLAN, HOST, SAMPLES, EVENTS] {
                    let _ = weigh_disk::remove_file(&path.join(file));
                }
                let _ = weigh_disk::remove_directory(&path.join(LOGS));
            })?;
            Ok((writer, lock))
        });
        let (writer, lock) = filled.inspect_err(|_| {
            let _ = is_new.then(|| weigh_disk::remove_directory(path));
        })?;
        Ok(Self {
            path: path.into(),
            plan: plan.clone(),
            plan_digest: analysis_cache::digest(&pretty(plan)),
            host: host.clone(),
            recovered: None,
            writer: Some(writer),
            lock: Some(lock),
        })
    }

    fn fill(path: &Path, plan: &Plan, host: &HostFacts) -> Result<Writer, StoreError> {
        let logs = path.join(LOGS);
        weigh_disk::create_directory(&logs).map_err(|error| StoreError::io("make", &logs, error))?;
        write_whole(path, PLAN, &pretty(plan))?;
        write_whole(path, HOST, &pretty(host))?;
        let header = samples::line_of(&Record::Header { format: SAMPLES_FORMAT })?;
        write_whole(path, SAMPLES, &header)?;
        let samples = open_file(path, SAMPLES, OFlags::WRONLY | OFlags::APPEND)?;
        let writer = Writer::new(samples, path, header.len() as u64)?;
        sync_name(path)?;
        Ok(writer)
    }

    /// Opens an existing run for reading. It changes nothing, so a live run may be read.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Foreign`], [`StoreError::Missing`],
    /// [`StoreError::NewerFormat`], and [`StoreError::Damaged`] for the plan or the host file.
    /// [`Self::records`] reads the samples.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        require_run_directory(path)?;
        let (plan, plan_digest) = read_versioned(path, PLAN, Some(PLAN_FORMAT))?;
        let (host, _) = read_versioned(path, HOST, None)?;
        Ok(Self { path: path.into(), plan, plan_digest, host, recovered: None, writer: None, lock: None })
    }

    /// Opens an existing run to resume it. A last line that a crash cut short is moved to
    /// `logs/`, see [`Records::recovered`].
    ///
    /// # Errors
    /// As [`Self::open`] and [`Self::records`], and [`StoreError::Busy`] when another process
    /// writes to it.
    pub fn open_for_append(path: &Path) -> Result<Self, StoreError> {
        let mut run = Self::open(path)?;
        require_own_logs(&run.logs())?;
        let file = path.join(SAMPLES);
        let samples = open_file(path, SAMPLES, OFlags::RDWR | OFlags::APPEND)?;
        let lock = DirectoryLock::take(path)?;
        let bytes = run.samples()?;
        let whole_bytes = samples::parse(&file, &bytes)?.whole_bytes;
        run.recovered = run.set_cut_line_aside(&samples, &bytes, whole_bytes)?;
        run.sync_again(&bytes[..whole_bytes])?;
        drop_cut_event(path)?;
        run.writer = Some(Writer::new(samples, path, whole_bytes as u64)?);
        run.lock = Some(lock);
        Ok(run)
    }

    /// Whether the run is still going on: another process of this user, or another value in this
    /// process, holds the lock to write to it.
    pub fn is_going_on(&self) -> bool {
        let lock = files::open(&self.path, LOCK, OFlags::RDONLY);
        self.lock.is_none()
            && lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    /// The plan of the run.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The machine that the run was measured on.
    pub fn host(&self) -> &HostFacts {
        &self.host
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name of the run: the last part of the path.
    pub fn name(&self) -> String {
        let whole = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        whole.file_name().unwrap_or(whole.as_os_str()).to_string_lossy().into_owned()
    }

    /// Opens a file that records name by its path relative to the run directory.
    ///
    /// # Errors
    /// As [`files::read`].
    pub fn open_file(&self, name: &str) -> std::io::Result<std::fs::File> {
        files::open(&self.path, name, OFlags::RDONLY)
    }

    /// The directory of raw output.
    pub fn logs(&self) -> PathBuf {
        self.path.join(LOGS)
    }

    /// The path of the log called `name`, both absolute and, as records carry it, relative to the
    /// run directory. Characters that are unsafe in a file name are replaced. Two calls with one
    /// name give one file.
    pub fn log_path(&self, name: &str) -> (PathBuf, String) {
        let relative = format!("{LOGS}/{}", safe_file_name(name));
        let directory = std::path::absolute(&self.path).unwrap_or_else(|_| self.path.clone());
        (directory.join(&relative), relative)
    }

    /// Appends a record and returns when it is on disk, with the time that the sync took.
    ///
    /// # Errors
    /// [`StoreError::Full`], [`StoreError::NotFinite`], [`StoreError::ReadOnly`]. After an error
    /// the file holds exactly the records whose append returned, and after [`StoreError::Full`] a
    /// later append may succeed.
    pub fn append(&mut self, record: &Record) -> Result<Duration, StoreError> {
        let path = self.path.join(SAMPLES);
        let line = samples::line_of(record)?;
        let writer = self.writer.as_mut().ok_or_else(|| StoreError::ReadOnly(self.path.clone()))?;
        if writer.broken {
            return Err(StoreError::Broken(path));
        }
        match writer.append(&line) {
            Ok(took) => Ok(took),
            Err(error) if no_room(&error) => {
                Err(StoreError::Full { kept: format!("{} bytes of samples", writer.whole_bytes), path })
            }
            Err(source) => Err(StoreError::Io { doing: "append to", path, source }),
        }
    }

    /// Appends an event to a buffer. [`Self::flush_events`] or the end of this value hands the
    /// buffer to the system; nothing syncs it.
    ///
    /// # Errors
    /// [`StoreError::Full`], [`StoreError::ReadOnly`].
    pub fn append_event(&mut self, event: &Timestamped) -> Result<(), StoreError> {
        let path = self.path.join(EVENTS);
        let writer = self.writer.as_mut().ok_or_else(|| StoreError::ReadOnly(self.path.clone()))?;
        let mut line = serde_json::to_vec(event).expect("events hold only strings, numbers and lists");
        line.push(b'\n');
        writer.events.write_all(&line).map_err(|error| StoreError::io("append to", &path, error))
    }

    /// Hands buffered events to the system.
    ///
    /// # Errors
    /// [`StoreError::Full`].
    pub fn flush_events(&mut self) -> Result<(), StoreError> {
        let path = self.path.join(EVENTS);
        self.writer
            .as_mut()
            .map_or(Ok(()), |writer| writer.events.flush())
            .map_err(|error| StoreError::io("append to", &path, error))
    }

    /// Reads every record on disk.
    ///
    /// # Errors
    /// [`StoreError::EmptySamples`], [`StoreError::MissingHeader`], [`StoreError::NewerFormat`],
    /// [`StoreError::Damaged`].
    pub fn records(&self) -> Result<Records, StoreError> {
        self.records_of(&self.samples()?)
    }

    /// Derives a value from every record on disk, or reads it from the analysis cache if it is
    /// there.
    ///
    /// The cache is `collected.json`. A directory that is open for writing writes it when there is
    /// at least 1 MiB of samples. It is valid while samples and plan have the same bytes and the
    /// `reader` is the same: a digest, in hexadecimal, of the code that derives the value. `derive`
    /// may use the plan and the records, and nothing else. A cache that cannot be written is no
    /// error.
    ///
    /// # Errors
    /// As [`Self::records`], if the cache has no value.
    pub fn derived<T>(
        &self,
        reader: &str,
        derive: impl FnOnce(Vec<Record>) -> T,
    ) -> Result<Derived<T>, StoreError>
    where
        T: Serialize + DeserializeOwned + PartialEq,
    {
        let bytes = self.samples()?;
        let key = CacheKey { samples: analysis_cache::digest(&bytes), plan: self.plan_digest, reader };
        if let Some(value) = analysis_cache::load(&self.path, &key, bytes.len()) {
            // Only whole lines are cached.
            return Ok(Derived { value, recovered: self.recovered.clone() });
        }
        let read = self.records_of(&bytes)?;
        let value = derive(read.records);
        if self.writer.is_some() && bytes.ends_with(b"\n") {
            analysis_cache::save(&self.path, &key, bytes.len(), &value);
        }
        Ok(Derived { value, recovered: read.recovered })
    }

    fn samples(&self) -> Result<Vec<u8>, StoreError> {
        let file = self.path.join(SAMPLES);
        let read = weigh_disk::step(Step::Look(&file), || samples::bytes_of(&self.path, SAMPLES));
        read.map_err(|error| StoreError::io("read", &file, error))
    }

    fn records_of(&self, bytes: &[u8]) -> Result<Records, StoreError> {
        let parsed = samples::parse(&self.path.join(SAMPLES), bytes)?;
        let recovered = match bytes.len() - parsed.whole_bytes {
            0 => self.recovered.clone(),
            cut => Some(format!(
                "the last line of {SAMPLES} was cut short by a crash ({cut} bytes) and is left out; `weigh resume` measures it again"
            )),
        };
        Ok(Records { records: parsed.records, recovered })
    }

    /// Reads every event handed to the system so far.
    ///
    /// # Errors
    /// Errors of the file system. A missing file counts as no events.
    pub fn events(&self) -> Result<Events, StoreError> {
        let file = self.path.join(EVENTS);
        let bytes = match files::read(&self.path, EVENTS, files::LONGEST_SAMPLES_BYTES) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(StoreError::io("read", &file, error)),
        };
        let mut read = Events { events: Vec::new(), unreadable_lines: 0 };
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            match serde_json::from_slice(line) {
                Ok(event) => read.events.push(event),
                Err(_) => read.unreadable_lines += 1,
            }
        }
        Ok(read)
    }

    /// Makes sure that what is reported from here on is on disk. An earlier writer may have been
    /// killed before its sync, or the sync may have failed. The last line may then be in memory but
    /// not on disk, and only a line that is written again is synced again (fsync(2)).
    fn sync_again(&self, samples: &[u8]) -> Result<(), StoreError> {
        let last = samples[..samples.len().saturating_sub(1)].iter().rposition(|byte| *byte == b'\n');
        let last = last.map_or(0, |at| at + 1);
        let write = |mut file: File| {
            file.seek(SeekFrom::Start(last as u64))?;
            file.write_all(&samples[last..])?;
            file.sync_all()
        };
        // With `O_APPEND`, the write would go to the end of the file.
        write(open_file(&self.path, SAMPLES, OFlags::WRONLY)?)
            .map_err(|error| StoreError::io("sync", &self.path.join(SAMPLES), error))?;
        sync_directory(&self.path)?;
        sync_name(&self.path)
    }

    fn set_cut_line_aside(
        &self,
        samples: &File,
        bytes: &[u8],
        whole_bytes: usize,
    ) -> Result<Option<String>, StoreError> {
        let cut = &bytes[whole_bytes..];
        if cut.is_empty() {
            return Ok(None);
        }
        let logs = self.logs();
        // The offset makes the name unique: two crashes cut a line at the same place only if no
        // record was written between them.
        let name = format!("cut-line-at-{whole_bytes}.txt");
        write_whole(&logs, &name, cut)?;
        let file = self.path.join(SAMPLES);
        samples
            .set_len(whole_bytes as u64)
            .and_then(|()| samples.sync_all())
            .map_err(|error| StoreError::io("truncate", &file, error))?;
        Ok(Some(format!(
            "the last line of {SAMPLES} was cut short by a crash; its {} bytes are kept in {LOGS}/{name}, and its trial is measured again",
            cut.len()
        )))
    }
}

/// The greatest length of a file of a run directory, in bytes, by its path relative to the
/// directory. None for files that do not belong to a run, and for those that only the writing
/// machine needs.
pub fn longest_bytes(file: &Path) -> Option<u64> {
    let mut parts = file.to_str()?.split('/');
    match (parts.next()?, parts.next(), parts.next()) {
        (SAMPLES | EVENTS, None, None) => Some(files::LONGEST_SAMPLES_BYTES),
        (PLAN | HOST | "report.html", None, None) => Some(files::LONGEST_BYTES),
        (LOGS, Some(_), None) => Some(files::LONGEST_BYTES),
        _ => None,
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        // Events are for people, and nobody is left to receive an error.
        let _ = self.flush_events();
    }
}

impl Writer {
    /// The caller holds the lock.
    fn new(samples: File, directory: &Path, whole_bytes: u64) -> Result<Self, StoreError> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
        let events = open_file(directory, EVENTS, flags)?;
        Ok(Self { samples, whole_bytes, broken: false, events: BufWriter::new(events) })
    }

    fn append(&mut self, line: &[u8]) -> std::io::Result<Duration> {
        let synced = self.write_once(line).and_then(|()| {
            let start = Instant::now();
            self.samples.sync_data().map(|()| start.elapsed())
        });
        match synced {
            Ok(took) => {
                self.whole_bytes += line.len() as u64;
                Ok(took)
            }
            Err(error) => {
                // Part of the line may be in the file, or all of it without being durable. Take it
                // back, so that the file holds what was promised.
                let taken_back =
                    self.samples.set_len(self.whole_bytes).and_then(|()| self.samples.sync_data());
                self.broken = taken_back.is_err();
                Err(error)
            }
        }
    }

    /// Writes a line at once, so that a reader never sees half of it. Writes again only if the
    /// system took less than the whole line.
    fn write_once(&mut self, line: &[u8]) -> std::io::Result<()> {
        loop {
            match self.samples.write(line) {
                Ok(written) if written == line.len() => return Ok(()),
                Ok(written) => return self.samples.write_all(&line[written..]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Makes an empty directory `<parent>/<UTC time>-<name>/`. Adds a number to the name if it is
/// taken.
///
/// # Errors
/// [`StoreError::Full`] and other errors of the file system.
pub fn make_directory(parent: &Path, started_utc: &str, name: &str) -> Result<PathBuf, StoreError> {
    make_directories(parent)?;
    let path = make_unique(parent, &directory_name(started_utc, name))?;
    sync_name(&path)?;
    Ok(path)
}

/// Makes a directory with a name that is free. `mkdir` refuses an existing name, so it both tests
/// for the name and claims it.
fn make_unique(parent: &Path, name: &str) -> Result<PathBuf, StoreError> {
    let mut path = parent.join(name);
    for number in 2.. {
        match weigh_disk::create_directory(&path) {
            Ok(()) => break,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                path = parent.join(format!("{name}-{number}"));
            }
            Err(error) => return Err(StoreError::io("make", &path, error)),
        }
    }
    Ok(path)
}

fn open_file(directory: &Path, name: &str, flags: OFlags) -> Result<File, StoreError> {
    let opened = files::open_durable(directory, name, flags, files::NEW);
    opened.map_err(|error| StoreError::io("open", &directory.join(name), error))
}

/// Makes sure that the directory of logs exists, and refuses one that is a link or a file.
fn require_own_logs(logs: &Path) -> Result<(), StoreError> {
    match logs.symlink_metadata() {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(StoreError::io("write to", logs, ErrorKind::NotADirectory.into())),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            weigh_disk::create_directory(logs).map_err(|error| StoreError::io("make", logs, error))
        }
        Err(error) => Err(StoreError::io("look at", logs, error)),
    }
}

pub(crate) fn pretty<T: serde::Serialize>(value: &T) -> Vec<u8> {
    let mut bytes =
        serde_json::to_vec_pretty(value).expect("plans and hosts hold only strings, numbers, lists and maps");
    bytes.push(b'\n');
    bytes
}

/// Reads a JSON file of at most the supported format. Returns its value and the digest of its
/// bytes.
pub(crate) fn read_versioned<T: DeserializeOwned>(
    directory: &Path,
    name: &str,
    supported: Option<u32>,
) -> Result<(T, u128), StoreError> {
    let path = &directory.join(name);
    let bytes = files::read(directory, name, files::LONGEST_BYTES);
    let bytes = bytes.map_err(|error| StoreError::io("read", path, error))?;
    const REMEDY: &str =
        "restore the file from a copy of the run; without it nobody knows what the samples mean";
    let damaged = |error: serde_json::Error| StoreError::damaged(path, error.line() as u64, &error, REMEDY);
    if let Some(supported) = supported {
        let loose: Value = serde_json::from_slice(&bytes).map_err(damaged)?;
        let found = loose.get("format").and_then(Value::as_u64).unwrap_or(0);
        if found > u64::from(supported) {
            return Err(StoreError::NewerFormat { path: path.into(), found, supported });
        }
    }
    Ok((serde_json::from_slice(&bytes).map_err(damaged)?, analysis_cache::digest(&bytes)))
}

/// Removes an event that was cut short, which the next event would be appended to.
fn drop_cut_event(directory: &Path) -> Result<(), StoreError> {
    let path = &directory.join(EVENTS);
    let flags = OFlags::RDWR | OFlags::APPEND;
    let mut file = match files::open_durable(directory, EVENTS, flags, files::NEW) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(StoreError::io("open", path, error)),
    };
    let mut last = [b'\n'];
    if file.seek(SeekFrom::End(-1)).is_ok() {
        file.read_exact(&mut last).map_err(|error| StoreError::io("read", path, error))?;
    }
    if last != *b"\n" {
        file.write_all(b"\n").map_err(|error| StoreError::io("append to", path, error))?;
    }
    Ok(())
}

#[cfg(test)]
mod crashes;
#[cfg(test)]
mod full_disk;
#[cfg(test)]
mod tests;
