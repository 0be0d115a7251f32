//! `fileserver`: the file operations of a file server, as in the loop of Filebench's personality
//! `fileserver`, in many threads.
//!
//! A loop has eleven operations, as the personality counts them: create, write whole, close; open,
//! append, close; open, read whole, close; delete; stat. A file is chosen at random for each group,
//! and no other thread uses it meanwhile. Like Filebench, the kernel uses the page cache, and does
//! not wait for what is not on the disk when the clock stops.

mod content;
mod record;
mod tree;
mod worker;

use super::crew::run_together;
use super::place;
use super::window::{End, Window};
use crate::UsageError;
use crate::clock::now_ns;
use crate::kernel::{Kernel, KernelError};
use crate::options::{OptionSpec, Options};
use crate::outcome::Outcome;
use content::{Content, PAGE};
use rand_pcg::Pcg64Mcg;
use record::{FileOperation, Record};
use std::path::Path;
use std::sync::atomic::Ordering;
use tree::{ExistingFile, Sizes, Tree};
use worker::{CheckCounts, Load};

/// The least number of files per thread: at first a fifth of the names has no file, and every
/// thread may take one of these.
const FILES_OF_THREAD: u64 = 5;

/// Files that are compared byte for byte at the end.
const COMPARED: usize = 64;

/// The most files and threads that this code supports.
const MOST_FILES: u64 = 10_000_000;
const MOST_THREADS: u64 = 4096;

/// The longest request, and the longest append, bytes.
const LONGEST: u64 = 64 << 20;

pub(super) static KERNEL: Kernel = Kernel {
    name: "fileserver",
    summary: "rate of file operations: create, write whole, append, read whole, delete, stat, in many threads",
    operation: "flowop",
    check: "every file that was read had its length and, in every page, its own stamp; every stat gave the length that was written; in \
            the end as many files and bytes are there as should be, and a sample is compared byte for byte",
    options: &[
        OptionSpec::text("directory", "/var/tmp")
            .help("directory in which the directory of files is made, and removed at the end"),
        OptionSpec::count("files", "500").help("names of files; four fifths of the files exist at first"),
        OptionSpec::bytes("file-bytes", "32KiB").help("mean bytes of a new file"),
        OptionSpec::choice("sizes", &["gamma", "fixed"])
            .help("gamma distribution of shape 1.5, as in Filebench, or all the same"),
        OptionSpec::bytes("append-bytes", "16KiB").help("most bytes to append; uniformly distributed"),
        OptionSpec::bytes("io-bytes", "1MiB").help("bytes of a request that writes or reads a whole file"),
        OptionSpec::count("threads", "50").help("threads"),
        OptionSpec::count("operations", "10000").help("measured operations, eleven in a loop"),
        OptionSpec::count("seconds", "0")
            .help("duration of the measurement, instead of `--operations`; 0: by operations"),
        OptionSpec::count("warmup", "550").help("operations before the clock starts"),
        OptionSpec::count("seed", "0").help("seed of files and sizes; 0: a new one for each run"),
    ],
    metrics: &[
        ("rate", "op/s"),
        ("throughput", "B/s"),
        ("create_latency_p50", "s"),
        ("create_latency_p99", "s"),
        ("open_latency_p50", "s"),
        ("open_latency_p99", "s"),
        ("write_latency_p50", "s"),
        ("write_latency_p99", "s"),
        ("append_latency_p50", "s"),
        ("append_latency_p99", "s"),
        ("read_latency_p50", "s"),
        ("read_latency_p99", "s"),
        ("close_latency_p50", "s"),
        ("close_latency_p99", "s"),
        ("stat_latency_p50", "s"),
        ("stat_latency_p99", "s"),
        ("delete_latency_p50", "s"),
        ("delete_latency_p99", "s"),
    ],
    run,
    endless: None,
};

/// The settings that the options give.
struct Settings {
    files: u32,
    sizes: Sizes,
    append_bytes: u64,
    io_bytes: u64,
    threads: usize,
    end: End,
    warmup: u64,
    seed: u64,
}

impl Settings {
    fn of(options: &Options) -> Result<Self, UsageError> {
        let threads = options.within("threads", 1, MOST_THREADS, "much")?;
        let files = options.within("files", 1, MOST_FILES, "much")?;
        if files < threads * FILES_OF_THREAD {
            return Err(UsageError(format!(
                "`--files {files}` are too few for {threads} threads: {} at least, so that none has to wait for a file",
                threads * FILES_OF_THREAD
            )));
        }
        let io_bytes = options.within("io-bytes", PAGE, LONGEST, "much")?;
        if !io_bytes.is_multiple_of(PAGE) {
            return Err(UsageError(format!("`--io-bytes {io_bytes}` must be a multiple of {PAGE}")));
        }
        let file_bytes = options.at_least("file-bytes", 1)?;
        Ok(Self {
            files: files as u32,
            sizes: match options.text("sizes") {
                "fixed" => Sizes::Fixed(file_bytes),
                _ => Sizes::Gamma(file_bytes),
            },
            append_bytes: options.within("append-bytes", 1, LONGEST, "much")?,
            io_bytes,
            threads: threads as usize,
            end: End::of(options)?,
            warmup: options.number("warmup"),
            seed: options.seed(),
        })
    }

    /// The most bytes that the files take, on average: every name has a file, and an append made it
    /// longer.
    fn bytes_needed(&self) -> u64 {
        let (Sizes::Fixed(bytes) | Sizes::Gamma(bytes)) = self.sizes;
        // A file occupies whole blocks, and its inode and name occupy some space.
        u64::from(self.files).saturating_mul(bytes.saturating_add(self.append_bytes + PAGE))
    }

    fn content(&self) -> Content {
        Content::new(&mut Pcg64Mcg::new(u128::from(self.seed) << 1 | 1))
    }
}

fn run(options: &Options) -> Result<Outcome, KernelError> {
    let settings = Settings::of(options)?;
    let directory = Path::new(options.text("directory"));
    place::require_space(
        directory,
        settings.bytes_needed(),
        "use fewer `--files`, less `--file-bytes`, or another `--directory`",
    )?;
    let mut random = Pcg64Mcg::new(u128::from(settings.seed) << 64 | 0x2545_f491);
    let mut content = settings.content();
    let tree =
        Tree::make(directory, settings.files, settings.sizes, &mut random, &mut content, settings.io_bytes)?;
    let outcome = serve(&settings, &tree, &mut content)?;
    tree.remove()?;
    Ok(outcome)
}

fn serve(settings: &Settings, tree: &Tree, content: &mut Content) -> Result<Outcome, KernelError> {
    let window = Window::new(settings.warmup, settings.end);
    let record = Record::new();
    let found = CheckCounts::default();
    let load = Load {
        tree,
        record: &record,
        window: &window,
        sizes: settings.sizes,
        append_bytes: settings.append_bytes,
        io_bytes: settings.io_bytes,
        seed: settings.seed,
        found: &found,
    };
    let template = content.clone();
    let bytes = run_together(
        settings.threads,
        || window.begin(),
        || window.close(now_ns()),
        |index| worker::work(&load, template.clone(), index),
    )?;
    let mut outcome = Outcome::new();
    outcome.fact("threads", settings.threads);
    outcome.fact("load", format!("closed loop, {} threads", settings.threads));
    outcome.fact("seed", settings.seed);
    report(&mut outcome, &window, record, bytes.iter().sum());
    check(&mut outcome, settings, tree, content, &found)?;
    Ok(outcome)
}

fn report(outcome: &mut Outcome, window: &Window, record: Record, bytes: u64) {
    let duration = window.seconds();
    let histograms = record.into_histograms();
    let operations: u64 = histograms.iter().map(hdrhistogram::Histogram::len).sum();
    outcome.metric("rate", operations as f64 / duration, "op/s");
    outcome.metric("throughput", bytes as f64 / duration, "B/s");
    for (kind, latency_ns) in FileOperation::NAMES.iter().zip(histograms) {
        let name = format!("{kind}_latency");
        crate::kernels::report_percentiles(outcome, &name, &latency_ns, (2, "operations"));
        outcome.histograms.push((name, latency_ns));
    }
    outcome.operations = window.operations();
    outcome.warn_when_short("all operations together", duration);
}

/// Compares what the threads found, and the files that are left, with what they wrote.
fn check(
    outcome: &mut Outcome,
    settings: &Settings,
    tree: &Tree,
    content: &mut Content,
    found: &CheckCounts,
) -> Result<(), KernelError> {
    let number = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let (short, foreign, wrong_sizes) =
        (number(&found.short), number(&found.foreign), number(&found.wrong_sizes));
    let known = tree.files();
    let should: (u64, u64) = (known.len() as u64, known.iter().map(|known| known.bytes).sum());
    let there = tree.count()?;
    // Files are in the order in which threads put them back: the last were used last.
    let compared: Vec<ExistingFile> = known.into_iter().rev().take(COMPARED).collect();
    let mut damaged = 0;
    for known in &compared {
        let whole = worker::is_whole(tree, content, *known, settings.io_bytes)?;
        damaged += u64::from(!whole);
    }
    let measured = outcome.value("rate").unwrap_or(0.0) > 0.0;
    outcome.checked(
        measured && short == 0 && foreign == 0 && wrong_sizes == 0 && damaged == 0 && there == should,
        format!(
            "{} files read, {short} of them too short and {foreign} with content of others; {} lengths asked for, {wrong_sizes} wrong; \
             {} of {} files and {} of {} bytes are there in the end; {damaged} of {} compared differ",
            number(&found.read),
            number(&found.sizes),
            there.0,
            should.0,
            there.1,
            should.1,
            compared.len()
        ),
    );
    Ok(())
}

#[cfg(test)]
mod tests;
