//! Reads `samples.jsonl` back, whatever a crash left of it.

use crate::{StoreError, files};
use rustix::fs::OFlags;
use serde_json::Value;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::panic::resume_unwind;
use std::path::Path;
use weigh_model::{Record, SAMPLES_FORMAT};

/// The remedy for a line that cannot be read. The lines after it cannot be trusted to belong to
/// those before it.
const REMEDY: &str = "restore the file from a copy, or keep only the lines before this one, and `weigh resume` measures the rest again";

/// What a samples file holds.
#[derive(Debug)]
pub(crate) struct Parsed {
    /// The records of every whole line but the header.
    pub(crate) records: Vec<Record>,
    /// Where the last whole line ends; bytes after it were cut short.
    pub(crate) whole_bytes: usize,
}

/// Reads the bytes of a samples file. Each CPU reads a part of a long one.
///
/// # Errors
/// Errors of the file system; the file is longer than a samples file may be, or is not a regular
/// file of the directory.
pub(crate) fn bytes_of(directory: &Path, name: &str) -> std::io::Result<Vec<u8>> {
    let file = files::open(directory, name, OFlags::RDONLY)?;
    let length = file.metadata()?.len();
    files::check_length(length, files::LONGEST_SAMPLES_BYTES)?;
    let length = length as usize;
    let workers = workers_for(length);
    if workers == 1 {
        let mut bytes = Vec::with_capacity(length);
        file.take(files::LONGEST_SAMPLES_BYTES).read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    let mut bytes = vec![0; length];
    let part_bytes = length.div_ceil(workers);
    std::thread::scope(|scope| {
        let parts = (0..).step_by(part_bytes).zip(bytes.chunks_mut(part_bytes));
        let read = |(at, part): (u64, &mut [u8])| file.read_exact_at(part, at);
        let threads: Vec<_> = parts.map(|part| scope.spawn(move || read(part))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })?;
    Ok(bytes)
}

/// How many threads are worth their start for `bytes` bytes.
fn workers_for(bytes: usize) -> usize {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    cpus.min(bytes / WORTH_A_THREAD_BYTES + 1)
}

/// Reads every whole line.
///
/// A line is whole when it ends in a newline: the newline is the last byte of its write, and
/// `append` does not return before all of the line is on disk. So a line without a newline was
/// never promised to anybody, nor was a last line with a hole. All CPUs read long files, each a
/// part.
pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Parsed, StoreError> {
    if bytes.is_empty() {
        return Err(StoreError::EmptySamples(path.into()));
    }
    let whole_bytes = end_of_whole_lines(bytes);
    let whole = &bytes[..whole_bytes];
    let header_bytes = whole.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let (header, rest) = whole.split_at(header_bytes);
    check_header(path, (!header.is_empty()).then_some(header))?;
    let parts = parts_of(rest, workers_for(rest.len()));
    let read: Vec<Result<Vec<Record>, Fault>> = std::thread::scope(|scope| {
        let (first, others) =
            parts.split_first().map_or((&rest[..0], &[][..]), |(first, others)| (*first, others));
        let others: Vec<_> = others.iter().map(|part| scope.spawn(|| records_of(part))).collect();
        let first = records_of(first);
        let joined =
            others.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        std::iter::once(first).chain(joined).collect()
    });
    let mut records = Vec::new();
    for (number, read) in read.into_iter().enumerate() {
        match read {
            Ok(some) if records.is_empty() => records = some,
            Ok(some) => records.extend(some),
            Err(fault) => {
                let before = parts[..number].iter().map(|part| lines_in(part)).sum::<usize>();
                return Err(fault.at(path, (1 + before + fault.index + 1) as u64));
            }
        }
    }
    Ok(Parsed { records, whole_bytes })
}

/// Where the last whole line ends. A loss of power may leave the end of a line but not its
/// beginning, which then reads as zeros: JSON has none.
fn end_of_whole_lines(bytes: &[u8]) -> usize {
    let end_of = |bytes: &[u8]| bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let end = end_of(bytes);
    let last = end_of(&bytes[..end.saturating_sub(1)]);
    if bytes[last..end].contains(&0) { last } else { end }
}

fn lines_in(text: &[u8]) -> usize {
    text.iter().filter(|byte| **byte == b'\n').count()
}

/// A part shorter than this is read before a thread has begun.
const WORTH_A_THREAD_BYTES: usize = 1 << 20;

/// Cuts whole lines into at most `count` parts of whole lines, of about the same length.
fn parts_of(lines: &[u8], count: usize) -> Vec<&[u8]> {
    let (mut parts, mut rest) = (Vec::new(), lines);
    for left in (1..=count).rev() {
        let about = rest.len() / left;
        let end =
            rest[about..].iter().position(|byte| *byte == b'\n').map_or(rest.len(), |at| about + at + 1);
        let (part, others) = rest.split_at(end);
        if !part.is_empty() {
            parts.push(part);
        }
        rest = others;
    }
    parts
}

/// A line that cannot be read, by its index within a part, from 0.
#[derive(Debug)]
struct Fault {
    index: usize,
    /// The reader's error; absent for a second header.
    error: Option<serde_json::Error>,
}

impl Fault {
    fn at(&self, path: &Path, line: u64) -> StoreError {
        match &self.error {
            Some(error) => StoreError::damaged(path, line, error, REMEDY),
            None => {
                let problem = "a second header".into();
                StoreError::Damaged { path: path.into(), line, problem, remedy: REMEDY }
            }
        }
    }
}

fn records_of(lines: &[u8]) -> Result<Vec<Record>, Fault> {
    let lines = lines.split_inclusive(|byte| *byte == b'\n').enumerate();
    lines
        .map(|(index, line)| match record_of(line) {
            Ok(Record::Header { .. }) => Err(Fault { index, error: None }),
            Ok(record) => Ok(record),
            Err(error) => Err(Fault { index, error: Some(error) }),
        })
        .collect()
}

/// Reads a line. Nearly all lines are trials, and begin as [`line_of`] writes them. Read as trials
/// directly, they need not be held in memory until their kind is known.
fn record_of(line: &[u8]) -> serde_json::Result<Record> {
    const TRIAL: &[u8] = br#"{"record":"trial","#;
    match line.starts_with(TRIAL) {
        true => serde_json::from_slice(line).map(Record::Trial),
        false => serde_json::from_slice(line),
    }
}

/// Checks the header. It is read loosely first, so that a newer format is reported as such and not
/// as damage.
fn check_header(path: &Path, line: Option<&[u8]>) -> Result<(), StoreError> {
    let missing = || StoreError::MissingHeader(path.into());
    let header: Value = serde_json::from_slice(line.ok_or_else(missing)?).map_err(|_| missing())?;
    if header.get("record").and_then(Value::as_str) != Some("header") {
        return Err(missing());
    }
    match header.get("format").and_then(Value::as_u64) {
        Some(found) if found > u64::from(SAMPLES_FORMAT) => {
            Err(StoreError::NewerFormat { path: path.into(), found, supported: SAMPLES_FORMAT })
        }
        Some(found) if found > 0 => Ok(()),
        _ => Err(missing()),
    }
}

/// Returns a record as its line, newline included.
pub(crate) fn line_of(record: &Record) -> Result<Vec<u8>, StoreError> {
    check_finite(record)?;
    let mut line =
        serde_json::to_vec(record).expect("records hold only strings, numbers and maps with string keys");
    line.push(b'\n');
    Ok(line)
}

/// Refuses values that are not finite. JSON has no NaN and no infinity: such a value would be
/// written as `null`, and the line could not be read again.
fn check_finite(record: &Record) -> Result<(), StoreError> {
    let (Record::Trial(trial) | Record::WholeBaseline(trial)) = record else { return Ok(()) };
    let weigh_model::Outcome::Measured { iterations } = &trial.outcome else { return Ok(()) };
    for (metric, value) in iterations.iter().flat_map(|iteration| &iteration.values) {
        if !value.is_finite() {
            return Err(StoreError::NotFinite {
                metric: metric.clone(),
                environment: trial.environment.clone(),
                value: *value,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_are_whole_lines_in_order(lines in prop::collection::vec("[a-z]{0,9}\n", 0..40), count in 1usize..9) {
            let text = lines.concat().into_bytes();
            let parts = parts_of(&text, count);
            prop_assert!(parts.len() <= count);
            prop_assert!(parts.iter().all(|part| part.ends_with(b"\n")));
            prop_assert_eq!(parts.concat(), text);
        }
    }

    #[test]
    fn all_bytes_of_a_file_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        for length in [0, 1, WORTH_A_THREAD_BYTES - 1, WORTH_A_THREAD_BYTES, 3 * WORTH_A_THREAD_BYTES + 17] {
            let bytes: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            std::fs::write(&path, &bytes).unwrap();
            assert!(bytes_of(directory.path(), "file").unwrap() == bytes, "{length}");
        }
        assert!(bytes_of(directory.path(), "none").is_err());
    }

    #[test]
    fn a_long_file_is_read_in_order_and_its_damage_found() {
        let mut text = line_of(&Record::Header { format: SAMPLES_FORMAT }).unwrap();
        let mut sequence = 0;
        while text.len() < 4 * WORTH_A_THREAD_BYTES {
            text.extend(line_of(&fixtures::measured(sequence, 1.5)).unwrap());
            sequence += 1;
        }
        let path = Path::new("samples.jsonl");
        let read = parse(path, &text).unwrap();
        assert_eq!(read.whole_bytes, text.len());
        let of = |record: &Record| match record {
            Record::Trial(trial) => trial.sequence,
            other => panic!("{other:?}"),
        };
        assert!(read.records.iter().map(of).eq(0..sequence));

        // The record of that sequence is two lines further down: lines count from 1, and the header
        // is the first.
        for damaged in [0, sequence / 2, sequence - 1] {
            let place = format!("\"sequence\":{damaged},");
            let mut text = String::from_utf8(text.clone()).unwrap();
            text = text.replacen(&place, &place.replace(':', ";"), 1);
            match parse(path, text.as_bytes()).unwrap_err() {
                StoreError::Damaged { line, .. } => assert_eq!(line, damaged + 2),
                other => panic!("{other}"),
            }
        }
    }
}
