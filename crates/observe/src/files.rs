//! Small files of the kernel that are read repeatedly.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Initial size of the buffer, bytes; most files are shorter.
const FIRST: usize = 16 << 10;

/// A file that stays open: reading it anew takes one system call.
#[derive(Debug)]
pub(crate) struct PolledFile(File);

impl PolledFile {
    /// Opens the file; `None` if it cannot be opened.
    pub(crate) fn open(path: impl AsRef<Path>) -> Option<Self> {
        File::open(path).ok().map(Self)
    }

    /// The current content; `None` if it cannot be read. `scratch` saves allocations.
    pub(crate) fn text<'a>(&self, scratch: &'a mut Vec<u8>) -> Option<&'a str> {
        self.read(scratch, true)
    }

    /// The same for a file that the kernel writes line by line, as it does lists of processes and of
    /// interfaces: one read returns the lines that fit a page.
    pub(crate) fn whole_text<'a>(&self, scratch: &'a mut Vec<u8>) -> Option<&'a str> {
        self.read(scratch, false)
    }

    /// `short_ends`: a short read means the end, which saves a second read.
    fn read<'a>(&self, scratch: &'a mut Vec<u8>, short_ends: bool) -> Option<&'a str> {
        if scratch.len() < FIRST {
            scratch.resize(FIRST, 0);
        }
        loop {
            let mut filled = 0;
            // The kernel makes the text on the read at offset 0; later reads return the rest of it.
            while filled < scratch.len() {
                match self.0.read_at(&mut scratch[filled..], filled as u64) {
                    Ok(0) => return std::str::from_utf8(&scratch[..filled]).ok(),
                    Ok(read) if short_ends && read < scratch.len() - filled && read % 1024 != 0 => {
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

    /// The content as a number.
    pub(crate) fn number(&self, scratch: &mut Vec<u8>) -> Option<u64> {
        self.text(scratch)?.trim().parse().ok()
    }
}

/// The number on the line that begins with this name.
pub(crate) fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_polled_file_is_read_anew() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("file");
        std::fs::write(&path, "1\n").unwrap();
        let file = PolledFile::open(&path).unwrap();
        let mut scratch = Vec::new();
        assert_eq!(file.number(&mut scratch), Some(1));
        std::fs::write(&path, "23\n").unwrap();
        assert_eq!(file.number(&mut scratch), Some(23));
        for length in [1024, FIRST - 1, FIRST, FIRST + 1, 5 * FIRST] {
            let long = "x".repeat(length);
            std::fs::write(&path, &long).unwrap();
            assert_eq!(file.text(&mut scratch), Some(long.as_str()), "{length}");
            assert_eq!(file.whole_text(&mut scratch), Some(long.as_str()), "{length}");
        }
        assert!(PolledFile::open(base.path().join("none")).is_none());
    }

    /// The list of this process's mappings is longer than a page, and the stack is near its end.
    #[test]
    fn lists_are_read_beyond_a_page() {
        let file = PolledFile::open("/proc/self/smaps").unwrap();
        let mut scratch = Vec::new();
        let text = file.whole_text(&mut scratch).unwrap();
        assert!(text.len() > 4096 && text.contains("[stack]"), "{text}");
    }

    #[test]
    fn fields_are_whole_words() {
        let text = "nr_throttled_x 1\nnr_throttled 7\n";
        assert_eq!(field(text, "nr_throttled"), Some(7));
        assert_eq!(field(text, "nr"), None);
    }
}
