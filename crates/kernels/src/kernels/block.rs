//! `block`: reads and writes of a file or block device, one or many in flight.
//!
//! They bypass the page cache (`O_DIRECT`). If the file system does not support that there is no
//! result, because the cache, which is memory, would be measured. `--direct off` uses the cache on
//! purpose, to test that this is noticed.
//!
//! Requests are issued in a closed loop: the next of a slot when its last one is completed. A
//! latency begins before the call that submits the request and ends when its completion is seen.

mod blocking;
mod content;
mod disk;
mod job;
mod report;
mod sample;
mod uring;

use super::window::{End, Window};
use crate::clock::now_ns;
use crate::kernel::{Kernel, KernelError};
use crate::options::{OptionSpec, Options};
use crate::outcome::Outcome;
use crate::{UsageError, clock};
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
    check: "every request moved as many bytes as it should; where the kernel wrote the file itself, reads gave the sectors of that \
            place; a sample of the writes was read back and is what was written",
    options: &[
        OptionSpec::text("path", "/var/tmp/weigh-block", "file or block device"),
        OptionSpec::bytes(
            "file-bytes",
            "0",
            "write a file of so many bytes there first, unless it is there; 0: it must be there",
        ),
        OptionSpec::choice(
            "task",
            &["measure", "prepare", "remove"],
            "measure",
            "prepare: only write the file that `--file-bytes` asks for; remove: remove it",
        ),
        OptionSpec::bytes("bytes", "4KiB", "bytes of a request"),
        OptionSpec::choice(
            "pattern",
            &["random", "sequential"],
            "random",
            "random places, or one after the other, again from the beginning at the end",
        ),
        OptionSpec::choice("mix", &["read", "write", "mixed"], "read", "mixed: 70 % reads, 30 % writes"),
        OptionSpec::count("depth", "1", "requests in flight"),
        OptionSpec::choice(
            "engine",
            &["auto", "by-depth", "io_uring", "threads", "pread"],
            "auto",
            "by-depth: pread for one in flight, io_uring for more; auto: a thread each where there is no io_uring",
        ),
        OptionSpec::count("operations", "5000", "measured requests"),
        OptionSpec::count(
            "seconds",
            "0",
            "measure for so long, whatever `--operations` says; 0: until they are done",
        ),
        OptionSpec::count(
            "warmup",
            "50",
            "requests before the clock starts, and as many as are in flight beside the first at least",
        ),
        OptionSpec::count("seed", "0", "seed of the places; 0 is another one each time"),
        OptionSpec::choice("direct", &["on", "off"], "on", "past the page cache, or through it"),
        OptionSpec::choice(
            "destroy",
            &["off", "on"],
            "off",
            "on: a block device may be written, and what is on it is lost",
        ),
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
            ("pread", 2..) => Err(UsageError(format!(
                "`--engine pread` has one request in flight; for `--depth {depth}` leave `--engine` out, or use `--engine threads`"
            ))
            .into()),
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

/// The numbers among the options.
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
            return Err(UsageError(format!(
                "`--bytes {block}` must be a multiple of the sector of {SECTOR}, and {} at most",
                weigh_model::format_bytes(LONGEST)
            ))
            .into());
        }
        let depth = options.at_least("depth", 1)?;
        if depth > DEEPEST {
            return Err(UsageError(format!("`--depth {depth}` is too deep; the most is {DEEPEST}")).into());
        }
        let end = match options.number("seconds") {
            0 => End::Operations(options.at_least("operations", 1)?),
            seconds => End::Time(seconds.saturating_mul(1_000_000_000)),
        };
        Ok(Self {
            path: PathBuf::from(options.text("path")),
            block: block as usize,
            depth: depth as usize,
            mix: Mix::of(options.text("mix")),
            sequential: options.text("pattern") == "sequential",
            warmup: options.number("warmup").max(depth - 1),
            end,
            seed: match options.number("seed") {
                0 => now_ns(),
                seed => seed,
            },
        })
    }
}

/// Writes the kernel's file for other programs that measure disks, if it does not exist. With `direct`
/// it must be on a disk.
pub(crate) fn provide_file(path: &std::path::Path, bytes: u64, direct: bool) -> Result<(), KernelError> {
    content::provide(path, bytes, Access { direct, writes: false, destroy: false })
}

/// Whether the kernel wrote a file, by its beginning.
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
