//! Words that name values: the value of a word, the nearest valid word for an error message, a
//! number of things, and bytes as digits.

use serde::Deserialize;
use serde::de::value::{Error, StrDeserializer};
use std::fmt::Display;

/// Returns the candidate nearest to `word`, if it is near enough to be what the user meant.
///
/// At most a third of the letters may be changed (Damerau-Levenshtein), but one change is always
/// allowed.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = (word.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .filter(|(distance, candidate)| {
            *distance <= allowed || (word.len() >= 3 && candidate.starts_with(word))
        })
        .min_by_key(|(distance, candidate)| (*distance, candidate.len()))
        .map(|(_, candidate)| candidate)
}

/// Returns the hint about a wrong word: the nearest valid one, or else what `otherwise` says.
pub fn did_you_mean(nearest: Option<&str>, otherwise: impl FnOnce() -> String) -> String {
    nearest.map_or_else(otherwise, |near| format!("did you mean `{near}`?"))
}

/// Returns a number of things, as in `1 block` and `3 blocks`.
pub fn number_of<N: Copy + Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let s = if count == N::from(1u8) { "" } else { "s" };
    format!("{count} {noun}{s}")
}

/// Returns bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the variant of an enumeration whose name in files is `word`.
pub(crate) fn variant<'a, T: Deserialize<'a>>(word: &'a str) -> Option<T> {
    T::deserialize(StrDeserializer::<Error>::new(word)).ok()
}

#[cfg(test)]
mod tests {
    use super::{hex, nearest, number_of};

    #[test]
    fn a_misspelt_word_gets_the_nearest_known_one_or_none() {
        let words = ["docker", "runc", "native", "namespaces"];
        assert_eq!(nearest("dokcer", words), Some("docker"));
        assert_eq!(nearest("name", words), Some("namespaces"));
        assert_eq!(nearest("qemu", words), None);
    }

    #[test]
    fn one_thing_is_singular() {
        assert_eq!([0, 1, 2].map(|count| number_of(count, "run")), ["0 runs", "1 run", "2 runs"]);
    }

    #[test]
    fn every_byte_has_two_digits() {
        assert_eq!(hex(&[0, 0xab, 9]), "00ab09");
    }
}
