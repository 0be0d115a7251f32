//! A cache of what was derived from a run's samples, beside them, so that a report of a long run
//! need not read all of them again.
//!
//! The file has two lines, which together are one JSON value: the label, then the derived value. It
//! is used only if its label is, to the byte, the one that it would get now. Anything else (no
//! file, a file for other samples, a truncated or edited one, a directory) is treated as absent.

use crate::durable::write_whole;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::Path;
use twox_hash::XxHash3_128;

/// Name of the file.
pub(crate) const FILE: &str = "collected.json";

/// Samples shorter than this are read in less than 10 ms, and are not worth a cache.
const WORTH_CACHING_BYTES: usize = 1 << 20;

/// A note for people who open the file.
const ABOUT: &str = "made from samples.jsonl, which alone counts; without this file it is made again";

/// Returns a digest that tells one text from another. It guards against accidents, not against
/// forgery: whoever could forge the cache could forge the samples, too.
pub(crate) fn digest(bytes: &[u8]) -> u128 {
    XxHash3_128::oneshot(bytes)
}

/// What the cached value was derived from, and by which code.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CacheKey<'a> {
    /// [`digest`] of `samples.jsonl`.
    pub(crate) samples: u128,
    /// [`digest`] of `plan.json`.
    pub(crate) plan: u128,
    /// Digest of the code that derives the value.
    pub(crate) reader: &'a str,
}

/// The first line of the file. It holds [`digest`]s in hexadecimal.
#[derive(Serialize)]
struct Label<'a> {
    about: &'static str,
    samples: String,
    plan: String,
    reader: &'a str,
    made: String,
}

impl CacheKey<'_> {
    /// Returns the first line of the file.
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

/// The end of the file, after the derived value.
const END: &[u8] = b"}\n";

/// Reads the cached value of a run directory, if it has this key. A file longer than the samples is
/// not read.
pub(crate) fn load<T: DeserializeOwned>(
    directory: &Path,
    key: &CacheKey<'_>,
    samples_bytes: usize,
) -> Option<T> {
    if samples_bytes < WORTH_CACHING_BYTES {
        return None;
    }
    let text = crate::files::read(directory, FILE, samples_bytes as u64).ok()?;
    let made_at = text.iter().position(|byte| *byte == b'\n')? + 1 + "\"made\":".len();
    let (label, rest) = text.split_at_checked(made_at)?;
    let made = rest.strip_suffix(END)?;
    let is_ours = key.label(made).ok()?.as_bytes() == label;
    if is_ours { serde_json::from_slice(made).ok() } else { None }
}

/// Caches a value if that saves time and the value reads back exactly. Errors, such as a full disk
/// or a read-only directory, are ignored: the cache decides only how long the next report takes.
pub(crate) fn save<T>(directory: &Path, key: &CacheKey<'_>, samples_bytes: usize, value: &T)
where
    T: Serialize + DeserializeOwned + PartialEq,
{
    if samples_bytes < WORTH_CACHING_BYTES {
        return;
    }
    if let Some(text) = text_of(key, value).filter(|text| text.len() <= samples_bytes) {
        let _not_cached = write_whole(directory, FILE, &text);
    }
}

/// Returns the text of the file, or none where JSON cannot hold the value, such as a number that is
/// not finite.
fn text_of<T>(key: &CacheKey<'_>, value: &T) -> Option<Vec<u8>>
where
    T: Serialize + DeserializeOwned + PartialEq,
{
    let made = serde_json::to_vec(value).ok()?;
    let reads_back = serde_json::from_slice::<T>(&made).is_ok_and(|read| read == *value);
    let label = key.label(&made).ok().filter(|_| reads_back)?;
    Some([label.as_bytes(), &made, END].concat())
}

#[cfg(test)]
mod tests;
