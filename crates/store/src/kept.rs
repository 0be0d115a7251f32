//! What was made of a run's samples, kept beside them, so that nobody has to read all of them
//! again.
//!
//! A file of two lines, one JSON value together: the label, then what was made. It is believed only
//! if its label is the one that it would get now, to the byte. Whatever else it is (absent, of
//! other samples, cut, edited, a directory), it is as if it were not there.

use crate::durable::write_whole;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::Read as _;
use std::path::Path;
use twox_hash::XxHash3_128;

/// Name of the file.
pub(crate) const COLLECTED: &str = "collected.json";

/// Fewer bytes of samples are read in less than 10 ms.
const WORTH_KEEPING_BYTES: usize = 1 << 20;

/// What people see who open the file.
const ABOUT: &str = "made from samples.jsonl, which alone counts; without this file it is made again";

/// Tells one text from another. Against accidents, not against forgery: who could forge this could
/// write other samples, too.
pub(crate) fn digest(bytes: &[u8]) -> u128 {
    XxHash3_128::oneshot(bytes)
}

/// What something was made from, and by what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin<'a> {
    /// [`digest`] of `samples.jsonl`.
    pub(crate) samples: u128,
    /// [`digest`] of `plan.json`.
    pub(crate) plan: u128,
    /// Of the code that makes it.
    pub(crate) reader: &'a str,
}

/// The first line. [`digest`]s in hexadecimal.
#[derive(Serialize)]
struct Label<'a> {
    about: &'static str,
    samples: String,
    plan: String,
    reader: &'a str,
    made: String,
}

impl Origin<'_> {
    /// The line before `made`.
    fn label(&self, made: &[u8]) -> serde_json::Result<String> {
        let hexadecimal = |digest: u128| format!("{digest:032x}");
        let label = Label {
            about: ABOUT,
            samples: hexadecimal(self.samples),
            plan: hexadecimal(self.plan),
            reader: self.reader,
            made: hexadecimal(digest(made)),
        };
        Ok(format!("{{\"label\":{},\n\"made\":", serde_json::to_string(&label)?))
    }
}

/// End of the file, behind what was made.
const END: &[u8] = b"}\n";

/// What was kept in a run directory, if it has this origin. No file longer than the samples is
/// read.
pub(crate) fn kept<T: DeserializeOwned>(
    directory: &Path,
    origin: &Origin<'_>,
    samples_bytes: usize,
) -> Option<T> {
    if samples_bytes < WORTH_KEEPING_BYTES {
        return None;
    }
    let path = directory.join(COLLECTED);
    let found = path.symlink_metadata().ok()?;
    // Opening something else, such as a pipe, could wait for ever.
    if !found.is_file() || found.len() > samples_bytes as u64 {
        return None;
    }
    let mut text = Vec::with_capacity(found.len() as usize);
    std::fs::File::open(path).ok()?.take(samples_bytes as u64).read_to_end(&mut text).ok()?;
    let made_at = text.iter().position(|byte| *byte == b'\n')? + 1 + "\"made\":".len();
    let (label, rest) = text.split_at_checked(made_at)?;
    let made = rest.strip_suffix(END)?;
    let is_ours = origin.label(made).ok()?.as_bytes() == label;
    if is_ours { serde_json::from_slice(made).ok() } else { None }
}

/// Keeps what was made, if that gains anything and it reads back exactly. Whether it is kept
/// decides nothing but how long the next reading takes, so that no error is worth a word: not a
/// full disk, not a directory that may not be written to.
pub(crate) fn keep<T>(directory: &Path, origin: &Origin<'_>, samples_bytes: usize, value: &T)
where
    T: Serialize + DeserializeOwned + PartialEq,
{
    if samples_bytes < WORTH_KEEPING_BYTES {
        return;
    }
    if let Some(text) = text_of(origin, value).filter(|text| text.len() <= samples_bytes) {
        let _next_time_it_is_made_again = write_whole(directory, COLLECTED, &text);
    }
}

/// None of what JSON cannot hold, such as a value that is not a number.
fn text_of<T>(origin: &Origin<'_>, value: &T) -> Option<Vec<u8>>
where
    T: Serialize + DeserializeOwned + PartialEq,
{
    let made = serde_json::to_vec(value).ok()?;
    let reads_back = serde_json::from_slice::<T>(&made).is_ok_and(|read| read == *value);
    let label = origin.label(&made).ok().filter(|_| reads_back)?;
    Some([label.as_bytes(), &made, END].concat())
}

#[cfg(test)]
mod tests;
