//! `lzma`: parallel compression with liblzma, the job that Felter et al. ran with PXZ (IBM RC25482,
//! table 1).
//!
//! The encoder is the multithreaded one of `xz -T`: the text is cut into blocks, each compressed by
//! one thread. The text is made from a seed before the clock starts; the compressed bytes stay in
//! memory, where the check reads them.

use crate::clock::{median, now_ns, seconds_since};
use crate::kernel::{Kernel, KernelError};
use crate::kernels::text::english_like;
use crate::options::{OptionSpec, Options};
use crate::outcome::Outcome;
use crate::team::Team;
use liblzma::stream::{Action, Check, Filters, LzmaOptions, MtStreamBuilder, Status, Stream};

/// Room for text that does not compress, as liblzma bounds it: a little for each 64 KiB, and the
/// headers.
fn bound(bytes: usize) -> usize {
    bytes + bytes / 1024 + 65_536
}

pub(super) static KERNEL: Kernel = Kernel {
    name: "lzma",
    summary: "compression of text by liblzma on all CPUs",
    operation: "byte of text",
    check: "the compressed text, decompressed, has the length and the CRC-32 of the original",
    options: &[
        OptionSpec::bytes("bytes", "12MiB", "bytes of text"),
        OptionSpec::count("level", "2", "preset of liblzma, 0 to 9"),
        OptionSpec::count("threads", "0", "threads; 0 is one per usable CPU"),
        OptionSpec::bytes(
            "block-bytes",
            "0",
            "bytes of text in a block; 0 is what xz takes: 3 x the dictionary, 6MiB at level 2",
        ),
        OptionSpec::count("seed", "1", "seed of the text"),
        OptionSpec::count("repetitions", "1", "repetitions, of which the median is reported"),
    ],
    metrics: &[("rate", "B/s")],
    run,
};

fn run(options: &Options) -> Result<Outcome, KernelError> {
    measure(options, |_| ())
}

/// `spoil` is called on the compressed text before it is checked; only tests do something there.
fn measure(options: &Options, spoil: impl Fn(&mut [u8])) -> Result<Outcome, KernelError> {
    let bytes = options.at_least("bytes", 1)? as usize;
    let repetitions = options.at_least("repetitions", 1)?;
    let level = options.number("level");
    if level > 9 {
        return Err(crate::UsageError(format!("`--level {level}` is too high; the highest is 9")).into());
    }
    let team = Team::new(options.number("threads"))?;
    let mut encoder = MtStreamBuilder::new();
    encoder
        .preset(level as u32)
        .threads(team.threads() as u32)
        .block_size(options.number("block-bytes"))
        .check(Check::Crc64);

    let text = english_like(options.number("seed"), bytes);
    let digest = crc32fast::hash(&text);
    // Written once beforehand, so that the clock does not see the kernel hand out its pages.
    let mut compressed = vec![0xffu8; bound(bytes)];
    let mut times = Vec::new();
    let mut length = 0;
    for _ in 0..repetitions {
        let start = now_ns();
        length = compress(&encoder, &text, &mut compressed)?;
        times.push(seconds_since(start));
    }
    let time = median(&times);

    let mut outcome = Outcome::new();
    outcome.metric("rate", bytes as f64 / time, "B/s");
    outcome.operations = bytes as u64 * repetitions;
    team.state(&mut outcome);
    outcome.fact("compressed_bytes", length);
    outcome.fact("ratio", (bytes as f64 / length as f64 * 1e3).round() / 1e3);
    let block = match options.number("block-bytes") {
        0 => default_block_bytes(level as u32)?,
        block => block,
    };
    outcome.fact("block_bytes", block);
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

/// Bytes of text that liblzma puts into a block of its own accord.
fn default_block_bytes(level: u32) -> Result<u64, KernelError> {
    let failed = |error| KernelError::Unable(format!("liblzma has no preset {level}: {error}"));
    Ok(Filters::new().lzma2(&LzmaOptions::new_preset(level).map_err(failed)?).mt_block_size())
}

/// Compresses `text` into `target` and returns the compressed length.
fn compress(encoder: &MtStreamBuilder, text: &[u8], target: &mut [u8]) -> Result<usize, KernelError> {
    let failed = |error| KernelError::Unable(format!("liblzma cannot compress: {error}"));
    let mut stream = encoder.encoder().map_err(failed)?;
    loop {
        let (read, written) = (stream.total_in() as usize, stream.total_out() as usize);
        let status = stream.process(&text[read..], &mut target[written..], Action::Finish).map_err(failed)?;
        if matches!(status, Status::StreamEnd) {
            return Ok(stream.total_out() as usize);
        }
    }
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
    fn wrong_levels_and_idle_threads_are_told() {
        let line = ["--level", "10"].map(str::to_owned);
        assert!(run(&Options::parse("lzma", KERNEL.options, line).unwrap()).is_err());
        let outcome = run(&options("--threads 7")).unwrap();
        assert!(outcome.warnings.iter().any(|warning| warning.contains("busy")), "{:?}", outcome.warnings);
    }

    #[test]
    fn english_like_text_compresses_as_english_does() {
        let mut encoder = MtStreamBuilder::new();
        encoder.preset(2).threads(1).check(Check::Crc64);
        let text = english_like(1, 6 << 20);
        let mut target = vec![0; bound(text.len())];
        let ratio = text.len() as f64 / compress(&encoder, &text, &mut target).unwrap() as f64;
        assert!((2.8..3.4).contains(&ratio), "ratio {ratio}");
    }
}
