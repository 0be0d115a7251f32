//! `lzma`: parallel compression with liblzma, the job that Felter et al. ran with PXZ (IBM RC25482,
//! table 1).
//!
//! The encoder is the multithreaded one of `xz -T`: the text is cut into blocks, each compressed by
//! one thread. The text is made from a seed before the clock starts; the compressed bytes stay in
//! memory, where the check reads them.

use crate::clock::{median, now_ns, seconds_since};
use crate::kernel::{Kernel, KernelError};
use crate::kernels::text::english_like;
use crate::marks::Marks;
use crate::options::{OptionSpec, Options};
use crate::outcome::Outcome;
use crate::team::{THREADS, Team};
use liblzma::stream::{Action, Filters, LzmaOptions, Status, Stream};
use liblzma_sys::{LZMA_FINISH, LZMA_FULL_FLUSH, LZMA_OK, LZMA_STREAM_END};
use weigh_model::PieceStatistic;

/// The bound of liblzma for text that does not compress: a little for each 64 KiB, and the headers.
fn bound(bytes: usize) -> usize {
    bytes + bytes / 1024 + 65_536
}

pub(super) static KERNEL: Kernel = Kernel {
    name: "lzma",
    summary: "compression of text by liblzma on all CPUs",
    operation: "byte of text",
    check: "the compressed text, decompressed, has the length and the CRC-32 of the original",
    options: &[
        OptionSpec::bytes("bytes", "12MiB").help("bytes of text"),
        OptionSpec::count("level", "2").help("preset of liblzma, 0 to 9"),
        THREADS,
        OptionSpec::bytes("block-bytes", "0")
            .help("bytes of text in a block; 0: as xz, 3 x the dictionary, 6MiB at level 2"),
        OptionSpec::count("seed", "1").help("seed of the text"),
        OptionSpec::count("repetitions", "1").help("repetitions, of which the median is reported"),
    ],
    metrics: &[("rate", "B/s")],
    run,
    endless: Some((PieceStatistic::Mean, endless)),
};

fn run(options: &Options) -> Result<Outcome, KernelError> {
    measure(options, |_| ())
}

/// `spoil` is called on the compressed text before it is checked; only tests change anything there.
fn measure(options: &Options, spoil: impl Fn(&mut [u8])) -> Result<Outcome, KernelError> {
    let repetitions = options.at_least("repetitions", 1)?;
    let Job { team, level, block, text } = Job::new(options)?;
    let bytes = text.len();
    let digest = crc32fast::hash(&text);
    // Written once beforehand, so that page faults are not timed.
    let mut compressed = vec![0xffu8; bound(bytes)];
    let mut times = Vec::new();
    let mut length = 0;
    for _ in 0..repetitions {
        let start = now_ns();
        let mut encoder = Encoder::new(level, team.threads(), block)?;
        length = encoder.compress(&text, &mut compressed, LZMA_FINISH, |_| ())?;
        times.push(seconds_since(start));
    }
    let time = median(&times);

    let mut outcome = Outcome::new();
    outcome.metric("rate", bytes as f64 / time, "B/s");
    outcome.operations = bytes as u64 * repetitions;
    team.state(&mut outcome);
    state_sizes(&mut outcome, bytes, length, block);
    let blocks = (bytes as u64).div_ceil(block.max(1));
    if blocks < team.threads() as u64 {
        outcome.warn(format!(
            "{blocks} blocks of {block} bytes do not keep {} threads busy; give it more text",
            team.threads()
        ));
    }
    outcome.warn_when_short("a compression", times.iter().copied().fold(f64::INFINITY, f64::min));
    spoil(&mut compressed[..length]);
    check(&mut outcome, &compressed[..length], bytes, digest);
    Ok(outcome)
}

/// What the options ask for.
struct Job {
    team: Team,
    /// Preset of liblzma.
    level: u32,
    /// Bytes of text in a block.
    block: u64,
    text: Vec<u8>,
}

impl Job {
    fn new(options: &Options) -> Result<Self, KernelError> {
        let bytes = options.at_least("bytes", 1)? as usize;
        let level = options.number("level") as u32;
        if level > 9 {
            return Err(KernelError::usage(format!("`--level {level}` is too high; the highest is 9")));
        }
        let team = Team::of(options)?;
        let block = match options.number("block-bytes") {
            0 => default_block_bytes(level)?,
            block => block,
        };
        Ok(Self { team, level, block, text: english_like(options.number("seed"), bytes) })
    }
}

fn state_sizes(outcome: &mut Outcome, bytes: usize, compressed: usize, block: u64) {
    outcome.fact("compressed_bytes", compressed);
    outcome.fact("ratio", (bytes as f64 / compressed as f64 * 1e3).round() / 1e3);
    outcome.fact("block_bytes", block);
}

/// Bytes at the beginning of a stream, before its first block (The .xz File Format, 2.1.1).
const STREAM_HEADER: usize = 12;

fn endless(options: &Options, marks: &mut Marks) -> Result<Outcome, KernelError> {
    compress_endlessly(options, marks, |_| ())
}

/// Compresses one endless stream. A piece is a block for each thread, or the whole text if that is
/// less, and the pieces of the text are repeated. `spoil` is as in [`measure`].
fn compress_endlessly(
    options: &Options,
    marks: &mut Marks,
    spoil: impl Fn(&mut [u8]),
) -> Result<Outcome, KernelError> {
    let Job { team, level, block, text } = Job::new(options)?;
    let blocks = usize::try_from(block.saturating_mul(team.threads() as u64)).unwrap_or(usize::MAX);
    let length = blocks.min(text.len());
    let mut pieces = text.chunks_exact(length).cycle();
    let mut next = || pieces.next().expect("the text is not empty, and not shorter than a piece");
    let mut encoder = Encoder::new(level, team.threads(), block)?;
    let mut target = vec![0xffu8; bound(length)];
    // The first piece also includes the start of the threads, their memory, and the stream's
    // header.
    encoder.compress(next(), &mut target, LZMA_FULL_FLUSH, |_| ())?;
    let header = target[..STREAM_HEADER].to_vec();
    marks.ready();
    let mut done = 1;
    let (piece, written) = loop {
        let piece = next();
        let written = encoder.compress(piece, &mut target, LZMA_FULL_FLUSH, |bytes| {
            marks.done(&[("rate", bytes as f64)]);
        })?;
        done += 1;
        if marks.stopped() {
            break (piece, written);
        }
    };
    let mut outcome = Outcome::new();
    outcome.operations = done * length as u64;
    team.state(&mut outcome);
    state_sizes(&mut outcome, length, written, block);
    // The last piece, after the header, is the beginning of a stream.
    let mut compressed = [&header, &target[..written]].concat();
    spoil(&mut compressed);
    check(&mut outcome, &compressed, length, crc32fast::hash(piece));
    Ok(outcome)
}

/// liblzma's encoder for several threads. The Rust wrapper lacks the call that reports the progress
/// of the threads within their blocks (`lzma_get_progress`).
struct Encoder {
    raw: Box<liblzma_sys::lzma_stream>,
    /// Bytes of text that have been reported.
    reported: u64,
}

impl Encoder {
    /// How often a call returns to report, milliseconds.
    const LOOK_MS: u32 = 5;

    fn new(level: u32, threads: usize, block_bytes: u64) -> Result<Self, KernelError> {
        // SAFETY: liblzma's header requires all bits to be zero (LZMA_STREAM_INIT, and
        // "zero-initialise" of lzma_mt).
        let (mut raw, mut mt) = unsafe {
            (
                Box::new(std::mem::zeroed::<liblzma_sys::lzma_stream>()),
                std::mem::zeroed::<liblzma_sys::lzma_mt>(),
            )
        };
        mt.threads = threads as u32;
        mt.block_size = block_bytes;
        mt.timeout = Self::LOOK_MS;
        mt.preset = level;
        mt.check = liblzma_sys::LZMA_CHECK_CRC64;
        // SAFETY: both structures are initialised, and the stream keeps its place in the box.
        let code = unsafe { liblzma_sys::lzma_stream_encoder_mt(&raw mut *raw, &raw const mt) };
        let encoder = Self { raw, reported: 0 };
        match code {
            LZMA_OK => Ok(encoder),
            code => Err(failed_with(code)),
        }
    }

    /// Compresses `text` as the next part of the stream, to the end of its block or, with
    /// [`LZMA_FINISH`], of the stream. Returns the compressed length. `report` is called from time
    /// to time with the bytes of text that were finished since its last call.
    fn compress(
        &mut self,
        text: &[u8],
        target: &mut [u8],
        action: liblzma_sys::lzma_action,
        mut report: impl FnMut(u64),
    ) -> Result<usize, KernelError> {
        (self.raw.next_in, self.raw.avail_in) = (text.as_ptr(), text.len());
        (self.raw.next_out, self.raw.avail_out) = (target.as_mut_ptr(), target.len());
        let room = target.len();
        loop {
            // SAFETY: input and output are slices that outlive the loop, and liblzma advances both
            // within their lengths.
            let code = unsafe { liblzma_sys::lzma_code(&raw mut *self.raw, action) };
            let (mut read, mut written) = (0, 0);
            // SAFETY: the stream is initialised.
            unsafe { liblzma_sys::lzma_get_progress(&raw mut *self.raw, &raw mut read, &raw mut written) };
            if read > self.reported {
                report(read - self.reported);
                self.reported = read;
            }
            match code {
                LZMA_OK => {}
                LZMA_STREAM_END => return Ok(room - self.raw.avail_out),
                code => return Err(failed_with(code)),
            }
        }
    }
}

impl Drop for Encoder {
    fn drop(&mut self) {
        // SAFETY: the stream is initialised, and nobody uses it any more.
        unsafe { liblzma_sys::lzma_end(&raw mut *self.raw) };
    }
}

fn failed_with(code: liblzma_sys::lzma_ret) -> KernelError {
    KernelError::Unable(format!("liblzma cannot compress: it returned {code}"))
}

/// Decompresses the text and compares it with the original by length and digest.
fn check(outcome: &mut Outcome, compressed: &[u8], bytes: usize, digest: u32) {
    match decompress(compressed, bytes) {
        Ok(back) => {
            let same = back.len() == bytes && crc32fast::hash(&back) == digest;
            let verdict = if same { "is" } else { "is not" };
            outcome.checked(
                same,
                format!(
                    "the decompressed text {verdict} the original of {bytes} bytes (CRC-32 {digest:08x})"
                ),
            );
        }
        Err(error) => outcome.checked(false, format!("the compressed text cannot be decompressed: {error}")),
    }
}

/// Bytes of text in a block of liblzma's default size.
fn default_block_bytes(level: u32) -> Result<u64, KernelError> {
    let failed = |error| KernelError::Unable(format!("liblzma has no preset {level}: {error}"));
    Ok(Filters::new().lzma2(&LzmaOptions::new_preset(level).map_err(failed)?).mt_block_size())
}

fn decompress(compressed: &[u8], expected: usize) -> Result<Vec<u8>, liblzma::stream::Error> {
    let mut stream = Stream::new_stream_decoder(u64::MAX, 0)?;
    let mut text = Vec::with_capacity(expected + 1);
    loop {
        let read = stream.total_in() as usize;
        let before = (read, text.len());
        let status = stream.process_vec(&compressed[read..], &mut text, Action::Finish)?;
        if matches!(status, Status::StreamEnd) || before == (stream.total_in() as usize, text.len()) {
            return Ok(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::marks::tests::marks_of;
    use std::time::Duration;

    fn options(line: &str) -> Options {
        KERNEL.options_of(&format!("--bytes 300000 --block-bytes 100000 --level 0 {line}"))
    }

    #[test]
    fn text_survives_and_shrinks() {
        let outcome = run(&options("--threads 2 --repetitions 2")).unwrap();
        assert!(outcome.check.passed, "{:?}", outcome.check);
        assert!(outcome.facts["ratio"].as_f64().unwrap() > 2.0, "{:?}", outcome.facts);
        assert!(outcome.value("rate").unwrap() > 0.0);
        assert!(outcome.warnings.iter().all(|warning| !warning.contains("busy")), "{:?}", outcome.warnings);
    }

    #[test]
    fn one_flipped_bit_fails_the_check() {
        for place in [40usize, 20_000] {
            let outcome = measure(&options("--threads 1"), |compressed| compressed[place] ^= 4).unwrap();
            assert!(!outcome.check.passed, "{:?}", outcome.check);
        }
    }

    #[test]
    fn every_piece_of_an_endless_stream_can_be_decompressed() {
        // Three blocks: two threads with one piece, then one thread with three pieces, then less
        // than a block.
        for (line, piece, pieces) in
            [("--threads 2", 200_000, 2), ("--threads 1", 100_000, 4), ("--threads 1 --bytes 5000", 5000, 3)]
        {
            for end in 1..=pieces {
                let line = KERNEL.options_of(&format!("--block-bytes 100000 --level 0 {line}"));
                let (mut marks, printed) = marks_of(Duration::ZERO, end);
                let outcome = compress_endlessly(&line, &mut marks, |_| ()).unwrap();
                assert!(outcome.check.passed, "{:?}", outcome.check);
                assert_eq!(outcome.operations, piece * (1 + u64::from(end)));
                let printed = printed.text();
                let amounts = printed.lines().filter_map(|line| line.strip_prefix("mark rate="));
                let amounts: Vec<u64> = amounts.map(|amount| amount.parse().unwrap()).collect();
                assert_eq!(amounts.iter().sum::<u64>(), piece * u64::from(end), "{printed}");
                assert!(amounts.len() >= end as usize && amounts.iter().all(|amount| *amount > 0));
            }
        }
        for place in [40usize, 20_000] {
            let (mut marks, _) = marks_of(Duration::ZERO, 2);
            let outcome =
                compress_endlessly(&options("--threads 1"), &mut marks, |compressed| compressed[place] ^= 4);
            assert!(!outcome.unwrap().check.passed);
        }
    }

    #[test]
    fn progress_within_a_block_is_reported() {
        let text = english_like(1, 2 << 20);
        let mut encoder = Encoder::new(2, 1, 2 << 20).unwrap();
        let (mut reports, mut target) = (Vec::new(), vec![0; bound(text.len())]);
        let length =
            encoder.compress(&text, &mut target, LZMA_FULL_FLUSH, |bytes| reports.push(bytes)).unwrap();
        assert_eq!(reports.iter().sum::<u64>(), text.len() as u64);
        assert!(reports.len() > 3 && length < text.len(), "{reports:?}");
        assert!(Encoder::new(99, 1, 0).is_err());
    }

    #[test]
    fn wrong_levels_and_idle_threads_are_reported() {
        let line = ["--level", "10"].map(str::to_owned);
        assert!(run(&Options::parse("lzma", KERNEL.options, line).unwrap()).is_err());
        let outcome = run(&options("--threads 7")).unwrap();
        assert!(outcome.warnings.iter().any(|warning| warning.contains("busy")), "{:?}", outcome.warnings);
    }

    #[test]
    fn english_like_text_compresses_as_english_does() {
        let mut encoder = Encoder::new(2, 1, 0).unwrap();
        let text = english_like(1, 6 << 20);
        let mut target = vec![0; bound(text.len())];
        let length = encoder.compress(&text, &mut target, LZMA_FINISH, |_| ()).unwrap();
        let ratio = text.len() as f64 / length as f64;
        assert!((2.8..3.4).contains(&ratio), "ratio {ratio}");
    }
}
