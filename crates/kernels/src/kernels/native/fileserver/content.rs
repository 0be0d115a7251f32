//! The content of the files. Every page holds the file that it belongs to, the generation of that
//! file among those of its name, and its place.

/// Bytes between two stamps, so that every page has one at its beginning.
pub(super) const PAGE: u64 = 4096;

/// File and generation, place: two words.
const STAMP: u64 = 16;

/// Identifies a file: names are reused after a deletion, with the next generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) number: u32,
    pub(super) generation: u32,
}

impl Identity {
    /// A stamp's first word. It is never 0, which is what a hole holds.
    fn word(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.number) | 1 << 63
    }
}

/// A file repeats the same random bytes between its stamps. The period is longer than what file
/// systems compress at once.
const PERIOD: u64 = 256 << 10;

/// Memory to write from, as long as the longest request so far.
#[derive(Clone)]
pub(super) struct Content {
    bytes: Vec<u8>,
}

impl Content {
    pub(super) fn new(random: &mut impl rand_core::Rng) -> Self {
        let mut bytes = vec![0; PERIOD as usize];
        random.fill_bytes(&mut bytes);
        Self { bytes }
    }

    /// The bytes of a file from `place` on.
    pub(super) fn of(&mut self, file: Identity, place: u64, length: u64) -> &[u8] {
        let period_start = place - place % PERIOD;
        let (start, end) = ((place - period_start) as usize, (place - period_start + length) as usize);
        while self.bytes.len() < end {
            self.bytes.extend_from_within(..PERIOD as usize);
        }
        let first_page = start - start % PAGE as usize;
        for at in (first_page..end).step_by(PAGE as usize) {
            self.bytes[at..at + 8].copy_from_slice(&file.word().to_le_bytes());
            self.bytes[at + 8..at + 16].copy_from_slice(&(period_start + at as u64).to_le_bytes());
        }
        &self.bytes[start..end]
    }
}

/// Whether every stamp in `bytes`, read from `place` on (a multiple of [`PAGE`]), is that of this
/// file and place.
pub(super) fn belongs(bytes: &[u8], file: Identity, place: u64) -> bool {
    let word = |at: u64| {
        let at = at as usize;
        u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes of a page"))
    };
    let length = bytes.len() as u64;
    (0..length)
        .step_by(PAGE as usize)
        .take_while(|at| at + STAMP <= length)
        .all(|at| word(at) == file.word() && word(at + 8) == place + at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_pcg::Pcg64Mcg;

    const FILE: Identity = Identity { number: 7, generation: 3 };

    #[test]
    fn a_file_is_the_same_however_it_is_cut() {
        let mut content = Content::new(&mut Pcg64Mcg::new(1));
        let whole = content.of(FILE, 0, 3 * PERIOD).to_vec();
        let mut other = Content::new(&mut Pcg64Mcg::new(1));
        other.of(Identity { number: 9, generation: 9 }, 5000, PERIOD);
        for (place, length) in [
            (0, 100),
            (8, 4096),
            (4090, 20),
            (8000, 5000),
            (5, 3),
            (PERIOD - 8, 4999),
            (PERIOD + 12_280, 10),
            (1, 2 * PERIOD),
        ] {
            for content in [&mut content, &mut other] {
                let piece = content.of(FILE, place, length).to_vec();
                assert_eq!(piece, whole[place as usize..(place + length) as usize], "{place} {length}");
            }
        }
        assert!(belongs(&whole[..8192], FILE, 0) && belongs(&whole[4096..], FILE, 4096));
        assert!(belongs(&whole[..4096 + 15], FILE, 0), "a stamp that is cut off says nothing");
    }

    #[test]
    fn misplaced_and_older_content_is_noticed() {
        let mut content = Content::new(&mut Pcg64Mcg::new(1));
        let bytes = content.of(FILE, 0, 8192).to_vec();
        assert!(!belongs(&bytes, Identity { number: 8, ..FILE }, 0));
        assert!(!belongs(&bytes, Identity { generation: 2, ..FILE }, 0));
        assert!(!belongs(&bytes, FILE, 8192));
        assert!(!belongs(&[0; 4096], Identity { number: 0, generation: 0 }, 0), "a hole is no file");
    }
}
