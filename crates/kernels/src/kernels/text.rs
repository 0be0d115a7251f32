//! English-like text from a seed: the input of the lzma kernel, which needs no file, and of
//! compressors, which do.
//!
//! Words are made of syllables. Their frequencies fall as in a natural language (Zipf). From time
//! to time an earlier phrase is repeated. `xz -2` compresses the text to about a third, as it does
//! with enwik9.

use super::below;
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use std::ops::Range;

const ONSETS: &[&str] = &[
    "", "b", "c", "d", "f", "g", "h", "l", "m", "n", "p", "r", "s", "t", "v", "w", "th", "st", "pr", "tr",
    "ch", "sh",
];
const NUCLEI: &[&str] = &["a", "e", "i", "o", "u", "e", "a", "i", "ea", "ou", "io"];
const CODAS: &[&str] = &["", "", "n", "r", "s", "t", "l", "d", "nd", "ng", "st", "ck"];

/// Size of the vocabulary.
const WORDS: usize = 24_000;

/// Entries of the table from which words are drawn: each word has entries in proportion to its
/// frequency.
const DRAWS: usize = 1 << 18;

/// One in this many words begins a repeated phrase.
const PHRASE_EVERY: u64 = 7;

/// Phrases are taken from at most this many words back.
const MEMORY: usize = 1 << 15;

fn pick<'a>(random: &mut Pcg64Mcg, from: &[&'a str]) -> &'a str {
    from[below(random, from.len())]
}

fn vocabulary(random: &mut Pcg64Mcg) -> Vec<String> {
    (0..WORDS)
        .map(|rank| {
            // Frequent words are short.
            let syllables = 1
                + (usize::BITS - (rank / 64).leading_zeros()) as usize / 4
                + below(random, 2) * usize::from(rank > 40);
            (0..syllables)
                .map(|_| pick(random, ONSETS).to_owned() + pick(random, NUCLEI) + pick(random, CODAS))
                .collect()
        })
        .collect()
}

/// Word numbers, each in proportion to `1 / (rank + 3)`. Computed in whole numbers, so that all
/// machines agree.
fn draws() -> Vec<u32> {
    let weight = |rank: usize| (1u64 << 40) / (rank as u64 + 3);
    let total: u64 = (0..WORDS).map(weight).sum();
    let mut table = Vec::with_capacity(DRAWS);
    let mut passed = 0;
    for rank in 0..WORDS {
        passed += weight(rank);
        let end = (u128::from(passed) * DRAWS as u128 / u128::from(total)) as usize;
        table.resize(end, rank as u32);
    }
    table
}

/// Generates `bytes` bytes of text. The same `seed` gives the same text on every machine, and a
/// longer text begins with the shorter one.
pub fn english_like(seed: u64, bytes: usize) -> Vec<u8> {
    let mut writer = Writer::new(seed);
    let mut text = Vec::with_capacity(bytes + 64);
    while text.len() < bytes {
        writer.word(&mut text);
    }
    text.truncate(bytes);
    text
}

/// Generates the text of a seed one word at a time, for texts that need not be in memory as a
/// whole.
pub(crate) struct Writer {
    random: Pcg64Mcg,
    words: Vec<String>,
    table: Vec<u32>,
    history: Vec<u32>,
    /// Earlier words that are being repeated.
    phrase: Range<usize>,
    /// Words of this sentence, and sentences so far.
    sentence: usize,
    sentences: usize,
}

impl Writer {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Pcg64Mcg::new(u128::from(seed) << 64 | 0x9e37_79b9_7f4a_7c15);
        let (words, table) = (vocabulary(&mut random), draws());
        let history = Vec::with_capacity(2 * MEMORY);
        Self { random, words, table, history, phrase: 0..0, sentence: 0, sentences: 0 }
    }

    /// Appends the next word and the separator after it.
    pub(crate) fn word(&mut self, text: &mut Vec<u8>) {
        let random = &mut self.random;
        let history = &mut self.history;
        let word = match self.phrase.next() {
            Some(index) => history[index],
            None => {
                if history.len() > 16 && random.next_u64().is_multiple_of(PHRASE_EVERY) {
                    let reach = history.len().min(MEMORY);
                    let length = 2 + below(random, 6);
                    let start = history.len() - 1 - below(random, reach - 10);
                    self.phrase = start..(start + length).min(history.len());
                }
                self.table[below(random, self.table.len())]
            }
        };
        history.push(word);
        if history.len() == 2 * MEMORY {
            // A phrase in progress would now refer to other words, so it is ended; the text
            // continues with a new draw.
            history.drain(..MEMORY);
            self.phrase = 0..0;
        }
        let word = self.words[word as usize].as_bytes();
        let start = text.len();
        text.extend_from_slice(word);
        if self.sentence == 0 {
            text[start].make_ascii_uppercase();
        }
        self.sentence += 1;
        if self.sentence > 5 && below(random, 14) == 0 {
            self.sentence = 0;
            self.sentences += 1;
            text.extend_from_slice(if self.sentences.is_multiple_of(6) { b".\n\n" } else { b". " });
        } else {
            text.extend_from_slice(if below(random, 16) == 0 { b", " } else { b" " });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_text_everywhere() {
        let text = english_like(1, 100_000);
        assert_eq!(text.len(), 100_000);
        assert_eq!(text, english_like(1, 100_000));
        assert_eq!(text[..5000], english_like(1, 5000)[..]);
        assert_ne!(text, english_like(2, 100_000));
        assert_eq!(
            crc32fast::hash(&text),
            GOLDEN,
            "the text has changed: results no longer compare with older ones"
        );
    }

    /// Digest of the first 100,000 bytes of seed 1.
    const GOLDEN: u32 = 1_656_802_269;

    #[test]
    fn it_is_text() {
        let text = String::from_utf8(english_like(7, 20_000)).unwrap();
        assert!(text.chars().all(|c| c.is_ascii_alphabetic() || " .,\n".contains(c)));
        let words = text.split_whitespace().count();
        assert!((2500..5000).contains(&words), "{words} words in 20,000 bytes");
    }
}
