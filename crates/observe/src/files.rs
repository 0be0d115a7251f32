//! Small files of the kernel's, read again and again.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// How much is tried at first, bytes; most files are shorter.
const FIRST: usize = 16 << 10;

/// A file that stays open: reading it anew takes one system call.
#[derive(Debug)]
pub(crate) struct Kept(File);

impl Kept {
    /// None when it cannot be opened.
    pub(crate) fn open(path: impl AsRef<Path>) -> Option<Self> {
        File::open(path).ok().map(Self)
    }

    /// What it holds now; none when it cannot be read (any more). `scratch` only saves the
    /// allocation.
    pub(crate) fn text<'a>(&self, scratch: &'a mut Vec<u8>) -> Option<&'a str> {
        if scratch.len() < FIRST {
            scratch.resize(FIRST, 0);
        }
        loop {
            let mut filled = 0;
            // The kernel makes the text at the read from 0; what is left of it comes with the reads
            // that follow.
            while filled < scratch.len() {
                match self.0.read_at(&mut scratch[filled..], filled as u64) {
                    Ok(0) => return std::str::from_utf8(&scratch[..filled]).ok(),
                    // A file of the kernel's that gives less than was asked for has no more: no
                    // second read to learn that.
                    Ok(read) if read < scratch.len() - filled && read % 1024 != 0 => {
                        return std::str::from_utf8(&scratch[..filled + read]).ok();
                    }
                    Ok(read) => filled += read,
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(_) => return None,
                }
            }
            let larger = scratch.len() * 4;
            scratch.resize(larger, 0);
        }
    }

    /// The number that is all it holds.
    pub(crate) fn number(&self, scratch: &mut Vec<u8>) -> Option<u64> {
        self.text(scratch)?.trim().parse().ok()
    }
}

/// The number on the line that begins with this word.
pub(crate) fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_file_gives_what_it_holds_now() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("file");
        std::fs::write(&path, "1\n").unwrap();
        let kept = Kept::open(&path).unwrap();
        let mut scratch = Vec::new();
        assert_eq!(kept.number(&mut scratch), Some(1));
        std::fs::write(&path, "23\n").unwrap();
        assert_eq!(kept.number(&mut scratch), Some(23));
        for length in [1024, FIRST - 1, FIRST, FIRST + 1, 5 * FIRST] {
            let long = "x".repeat(length);
            std::fs::write(&path, &long).unwrap();
            assert_eq!(kept.text(&mut scratch), Some(long.as_str()), "{length}");
        }
        assert!(Kept::open(base.path().join("none")).is_none());
    }

    #[test]
    fn fields_are_whole_words() {
        let text = "nr_throttled_x 1\nnr_throttled 7\n";
        assert_eq!(field(text, "nr_throttled"), Some(7));
        assert_eq!(field(text, "nr"), None);
    }
}
