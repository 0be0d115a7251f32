//! `block`: reads at random places of a file or block device, one at a time.
//!
//! Reads go past the page cache (`O_DIRECT`); where the file system cannot do that there is no result, because reads from a cache
//! would measure memory. `--access cached` reads through the cache on purpose, to test that somebody notices.

mod content;

use crate::clock::{now_ns, seconds, seconds_since};
use crate::kernel::{Kernel, KernelError};
use crate::memory::Region;
use crate::options::{Kind, OptionSpec, Options};
use crate::outcome::Outcome;
use content::SECTOR;
use hdrhistogram::Histogram;
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// The longest latency that the histogram tells from longer ones.
const LONGEST_NS: u64 = 100_000_000_000;

/// Three digits: buckets are at most .1 % wide.
const DIGITS: u8 = 3;

pub(super) static KERNEL: Kernel = Kernel {
    name: "block",
    summary: "latency and rate of reads at random places of a disk, one in flight",
    operation: "read",
    check: "every read gave as many bytes as were asked for, and, where the kernel wrote the file itself, the sectors of that place",
    options: &[
        OptionSpec {
            name: "path",
            kind: Kind::Text,
            default: "/var/tmp/weigh-block",
            summary: "file or block device to read",
        },
        OptionSpec {
            name: "file-bytes",
            kind: Kind::Bytes,
            default: "0",
            summary: "write a file of so many bytes there first, unless it is there; 0: it must be there",
        },
        OptionSpec { name: "bytes", kind: Kind::Bytes, default: "4KiB", summary: "bytes of a read" },
        OptionSpec { name: "operations", kind: Kind::Count, default: "5000", summary: "reads" },
        OptionSpec {
            name: "warmup",
            kind: Kind::Count,
            default: "50",
            summary: "reads before the clock starts",
        },
        OptionSpec {
            name: "seed",
            kind: Kind::Count,
            default: "0",
            summary: "seed of the places; 0 is another one each time",
        },
        OptionSpec {
            name: "access",
            kind: Kind::Word(&["direct", "cached"]),
            default: "direct",
            summary: "past the page cache, or through it",
        },
    ],
    metrics: &[
        ("latency_p50", "s"),
        ("latency_p99", "s"),
        ("latency_p999", "s"),
        ("rate", "op/s"),
        ("throughput", "B/s"),
    ],
    run,
};

/// What is read, and how.
struct Disk {
    file: File,
    /// Its length, bytes.
    bytes: u64,
    /// Whether its sectors say where they belong.
    stamped: bool,
}

fn run(options: &Options) -> Result<Outcome, KernelError> {
    let path = Path::new(options.word("path"));
    let block = options.at_least("bytes", SECTOR as u64)?;
    if !block.is_multiple_of(SECTOR as u64) {
        return Err(crate::UsageError(format!(
            "`--bytes {block}` must be a multiple of the sector of {SECTOR}"
        ))
        .into());
    }
    let file_bytes = options.number("file-bytes");
    if file_bytes > 0 {
        content::provide(path, file_bytes)?;
    }
    let disk = open(path, options.word("access") == "direct")?;
    measure(options, &disk, block)
}

/// Opens the disk for reading. There is no way from direct access to the cached one but the user's own word.
fn open(path: &Path, direct: bool) -> Result<Disk, KernelError> {
    let doing = format!("open {} for reading", path.display());
    let flags = if direct { libc::O_DIRECT } else { 0 };
    let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(|error| {
        if direct && error.raw_os_error() == Some(libc::EINVAL) {
            return KernelError::Unable(format!(
                "cannot {doing} past the page cache: its file system has no O_DIRECT; name a file on a disk, or the disk"
            ));
        }
        if error.kind() == std::io::ErrorKind::NotFound {
            return KernelError::Unable(format!(
                "there is no {}; name a file or block device with `--path`, or have one written with `--file-bytes 1GiB`",
                path.display()
            ));
        }
        KernelError::System { doing: doing.clone(), source: error }
    })?;
    let kind = file.metadata().map_err(KernelError::system("read what kind of file it is"))?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(KernelError::Unable(format!("{} is neither a file nor a block device", path.display())));
    }
    let bytes = file.seek(SeekFrom::End(0)).map_err(KernelError::system("find the length of the disk"))?;
    let stamped = kind.is_file() && content::is_stamped(path)?;
    Ok(Disk { file, bytes, stamped })
}

fn measure(options: &Options, disk: &Disk, block: u64) -> Result<Outcome, KernelError> {
    let operations = options.at_least("operations", 1)?;
    let warmup = options.number("warmup");
    let places = disk.bytes / block;
    if places < 2 {
        let (there, block) = (weigh_model::format_bytes(disk.bytes), weigh_model::format_bytes(block));
        return Err(KernelError::Unable(format!(
            "{} holds {there}, too little for reads of {block} at random places",
            options.word("path")
        )));
    }
    let seed = match options.number("seed") {
        0 => now_ns(),
        seed => seed,
    };
    let mut random = Pcg64Mcg::new(u128::from(seed) << 64 | 0x5851_f42d_4c95_7f2d);
    // O_DIRECT wants memory that is aligned as the device's sectors are: a page is enough for all of them.
    let mut region = Region::map(block as usize, false)?;
    let buffer = region.as_mut_slice();
    let mut short = 0u64;
    let mut misplaced = 0u64;
    let mut read_one = |buffer: &mut [u8]| -> Result<u64, KernelError> {
        let place = ((u128::from(random.next_u64()) * u128::from(places)) >> 64) as u64 * block;
        let start = now_ns();
        let length =
            disk.file.read_at(buffer, place).map_err(KernelError::system("read at a random place"))?;
        let took = now_ns() - start;
        if length != buffer.len() {
            short += 1;
        } else if disk.stamped && !content::belongs(buffer, place) {
            misplaced += 1;
        }
        Ok(took)
    };
    for _ in 0..warmup {
        read_one(buffer)?;
    }
    let mut latency_ns =
        Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).expect("the bounds are constants that a test uses");
    let start = now_ns();
    for _ in 0..operations {
        latency_ns.saturating_record(read_one(buffer)?);
    }
    let duration = seconds_since(start);

    let mut outcome = Outcome::new();
    report(&mut outcome, latency_ns, duration, block);
    outcome.operations = warmup + operations;
    outcome.random_read_bytes = Some((warmup + operations) * block);
    outcome.fact("access", options.word("access"));
    outcome.fact("disk_bytes", disk.bytes);
    outcome.fact("load", "closed loop, one read in flight");
    outcome.fact("seed", seed);
    outcome.warn_when_short("all reads together", duration);
    let compared = if disk.stamped { " of the right sectors" } else { "" };
    outcome.checked(
        short == 0 && misplaced == 0,
        format!(
            "{} of {} reads gave {block} bytes{compared}; {short} gave fewer, {misplaced} gave other sectors",
            warmup + operations - short - misplaced,
            warmup + operations
        ),
    );
    Ok(outcome)
}

fn report(outcome: &mut Outcome, latency_ns: Histogram<u64>, duration: f64, block: u64) {
    let samples = latency_ns.len();
    for (name, quantile, least) in super::PERCENTILES {
        if samples >= least {
            let value_ns = latency_ns.value_at_quantile(quantile);
            outcome.metric(format!("latency_{name}"), seconds(value_ns), "s");
        } else {
            outcome.warn(format!("latency_{name} needs {least} reads and has {samples}; it is left out"));
        }
    }
    outcome.metric("rate", samples as f64 / duration, "op/s");
    outcome.metric("throughput", (samples * block) as f64 / duration, "B/s");
    outcome.histograms.push(("latency".into(), latency_ns));
}

#[cfg(test)]
mod tests;
