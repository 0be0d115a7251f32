//! `block`: reads and writes of a file or block device, one or many in flight.
//!
//! They bypass the page cache (`O_DIRECT`). If the file system does not support that, there is no
//! result, because the cache, which is memory, would be measured. `--direct off` uses the cache on
//! purpose, to test that this is noticed.
//!
//! Requests are issued in a closed loop: each slot issues its next request when the last one is
//! complete. A latency begins before the call that submits the request and ends when its completion
//! is seen.

mod blocking;
mod content;
mod disk;
mod job;
mod report;
mod sample;
mod uring;

use super::window::{End, Window};
use crate::kernel::{Kernel, KernelError};
use crate::options::{OptionSpec, Options};
use crate::outcome::Outcome;
use content::SECTOR;
use disk::{Access, Disk};
use job::{Job, Mix, Tally};
use std::path::PathBuf;
use uring::UringError;

/// The most requests in flight: each may need a thread, and no study has more.
const DEEPEST: u64 = 1024;

/// The longest request: `O_DIRECT` itself moves less than 2 GiB at once (read(2)).
const LONGEST: u64 = 1 << 30;

pub(super) static KERNEL: Kernel = Kernel {
    name: "block",
    summary: "latency and rate of requests to a disk: random or sequential, reads or writes, one or many in flight",
    operation: "request",
    check: "every request moved as many bytes as it should; where the kernel wrote the file itself, reads returned the sectors of that \
            place; a sample of the writes was read back and matched what was written",
    options: &[
        OptionSpec::text("path", "/var/tmp/weigh-block").help("file or block device"),
        OptionSpec::bytes("file-bytes", "0")
            .help("bytes of a file to write there first, unless it exists; 0: it must exist"),
        OptionSpec::choice("task", &["measure", "prepare", "remove"])
            .help("prepare: only write the file of `--file-bytes`; remove: remove it"),
        OptionSpec::bytes("bytes", "4KiB").help("bytes of a request"),
        OptionSpec::choice("pattern", &["random", "sequential"])
            .help("random places, or consecutive ones that restart at the end"),
        OptionSpec::choice("mix", &["read", "write", "mixed"]).help("mixed: 70 % reads, 30 % writes"),
        OptionSpec::count("depth", "1").help("requests in flight"),
        OptionSpec::choice("engine", &["auto", "by-depth", "io_uring", "threads", "pread"]).help(
            "by-depth: pread for depth 1, else io_uring; auto: the same, with threads if io_uring is missing",
        ),
        OptionSpec::count("operations", "5000").help("measured requests"),
        OptionSpec::count("seconds", "0")
            .help("duration of the measurement, instead of `--operations`; 0: by operations"),
        OptionSpec::count("warmup", "50")
            .help("requests before the clock starts; at least `--depth` minus 1"),
        OptionSpec::count("seed", "0").help("seed of the places; 0: a new one for each run"),
        OptionSpec::choice("direct", &["on", "off"]).help("whether to bypass the page cache"),
        OptionSpec::choice("destroy", &["off", "on"]).help("on: a block device may be overwritten"),
    ],
    metrics: &[
        ("latency_p50", "s"),
        ("latency_p99", "s"),
        ("latency_p999", "s"),
        ("rate", "op/s"),
        ("throughput", "B/s"),
    ],
    run,
    endless: None,
};

/// How requests are issued.
enum Engine {
    Pread,
    Threads,
    IoUring(Box<io_uring::IoUring>),
}

impl Engine {
    /// The engine for `--engine`, and why `auto` could not use io_uring.
    fn choose(name: &str, depth: usize) -> Result<(Self, Option<UringError>), KernelError> {
        let ring = || uring::open(depth).map(|ring| Self::IoUring(Box::new(ring)));
        match (name, depth) {
            ("pread", 2..) => Err(KernelError::usage(format!(
                "`--engine pread` has one request in flight; for `--depth {depth}` leave `--engine` out, or use `--engine threads`"
            ))),
            ("pread", _) | ("auto" | "by-depth", 1) => Ok((Self::Pread, None)),
            ("threads", _) => Ok((Self::Threads, None)),
            ("io_uring" | "by-depth", _) => ring().map(|engine| (engine, None)).map_err(|why| {
                KernelError::Unable(format!(
                    "{why}: allow it, or use `--engine threads`, in all environments that are compared"
                ))
            }),
            _ => Ok(match ring() {
                Ok(engine) => (engine, None),
                Err(why) => (Self::Threads, Some(why)),
            }),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Pread => "pread",
            Self::Threads => "threads",
            Self::IoUring(_) => "io_uring",
        }
    }

    fn run(self, job: &Job) -> Result<Tally, KernelError> {
        match self {
            Self::Pread => blocking::one(job),
            Self::Threads => blocking::threads(job),
            Self::IoUring(ring) => uring::run(job, *ring),
        }
    }
}

/// The settings that the options give.
struct Settings {
    path: PathBuf,
    block: usize,
    depth: usize,
    mix: Mix,
    sequential: bool,
    warmup: u64,
    end: End,
    seed: u64,
}

impl Settings {
    fn of(options: &Options) -> Result<Self, KernelError> {
        let block = options.at_least("bytes", SECTOR as u64)?;
        if !block.is_multiple_of(SECTOR as u64) || block > LONGEST {
            return Err(KernelError::usage(format!(
                "`--bytes {block}` must be a multiple of the sector of {SECTOR}, and {} at most",
                weigh_model::format_bytes(LONGEST)
            )));
        }
        let depth = options.within("depth", 1, DEEPEST, "deep")?;
        Ok(Self {
            path: PathBuf::from(options.text("path")),
            block: block as usize,
            depth: depth as usize,
            mix: Mix::of(options.text("mix")),
            sequential: options.text("pattern") == "sequential",
            warmup: options.number("warmup").max(depth - 1),
            end: End::of(options)?,
            seed: options.seed(),
        })
    }
}

/// Writes the kernel's file, if it does not exist, for other programs that measure disks. With
/// `direct` it must be on a disk.
pub(crate) fn provide_file(path: &std::path::Path, bytes: u64, direct: bool) -> Result<(), KernelError> {
    content::provide(path, bytes, Access { direct, writes: false, destroy: false })
}

/// Whether the kernel wrote a file, judging by its beginning.
pub(crate) fn is_ours(path: &std::path::Path) -> Result<bool, KernelError> {
    content::is_stamped(path)
}

fn run(options: &Options) -> Result<Outcome, KernelError> {
    let settings = Settings::of(options)?;
    let file_bytes = options.number("file-bytes");
    if options.text("task") == "remove" {
        let removed = file_bytes > 0 && content::remove(&settings.path)?;
        return Ok(report::removed(&settings.path, removed));
    }
    let chosen = Engine::choose(options.text("engine"), settings.depth)?;
    let access = Access {
        direct: options.text("direct") == "on",
        writes: settings.mix.writes(),
        destroy: options.text("destroy") == "on",
    };
    if file_bytes > 0 {
        content::provide(&settings.path, file_bytes, access)?;
    }
    let disk = disk::open(&settings.path, access)?;
    if options.text("task") == "prepare" {
        return Ok(report::prepared(&disk));
    }
    measure(&settings, &disk, chosen)
}

fn measure(
    settings: &Settings,
    disk: &Disk,
    (engine, missing): (Engine, Option<UringError>),
) -> Result<Outcome, KernelError> {
    let window = Window::new(settings.warmup, settings.end);
    let size = (settings.block, settings.depth);
    let job = Job::new(disk, size, (settings.mix, settings.sequential), window, settings.seed)?;
    let name = engine.name();
    let tally = engine.run(&job)?;
    let read_back = match job.sample.lock() {
        Ok(sample) if settings.mix.writes() => Some(sample.read_back(&job)?),
        _ => None,
    };
    let mut outcome = Outcome::new();
    outcome.fact("engine", name);
    if let Some(why) = missing {
        outcome.warn(format!("{why}: {} threads with one request each instead", settings.depth));
    }
    report::state(&mut outcome, settings, disk);
    report::report(&mut outcome, &job, &tally);
    report::check(&mut outcome, &job, &tally, read_back);
    Ok(outcome)
}

#[cfg(test)]
mod tests;
