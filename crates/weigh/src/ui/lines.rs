//! Shows progress where nothing can be redrawn, including files and pipes: plain lines without
//! control characters.

use std::time::{Duration, Instant};

/// A block that took longer than this gets a line of its own.
const LONG_BLOCK: Duration = Duration::from_secs(2);
/// The shortest time between the lines of shorter blocks.
const BETWEEN_LINES: Duration = Duration::from_secs(5);

/// Writes lines.
pub(super) struct Lines {
    write: Box<dyn FnMut(&str)>,
    /// When the last block ended.
    last_block: Option<Instant>,
    /// When the last line of a block was written.
    last_line: Option<Instant>,
    /// The line of the last block, if it has not been written yet.
    held: Option<String>,
}

impl Lines {
    pub(super) fn new(write: Box<dyn FnMut(&str)>) -> Self {
        Self { write, last_block: None, last_line: None, held: None }
    }

    pub(super) fn line(&mut self, text: &str) {
        (self.write)(text);
    }

    /// Takes the line of a block that is done.
    pub(super) fn block(&mut self, text: String, now: Instant) {
        let long = self.last_block.is_some_and(|last| now.duration_since(last) >= LONG_BLOCK);
        let due = self.last_line.is_none_or(|last| now.duration_since(last) >= BETWEEN_LINES);
        self.last_block = Some(now);
        if long || due {
            self.last_line = Some(now);
            self.held = None;
            (self.write)(&text);
        } else {
            self.held = Some(text);
        }
    }

    /// Writes the line of the last block, because the run is over.
    pub(super) fn finish(&mut self) {
        if let Some(text) = self.held.take() {
            (self.write)(&text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    /// Returns the lines for blocks that end at these times, in milliseconds.
    fn written(ends_ms: &[u64]) -> Vec<String> {
        let kept = Rc::new(RefCell::new(Vec::new()));
        let sink = Rc::clone(&kept);
        let mut lines = Lines::new(Box::new(move |text| sink.borrow_mut().push(text.to_string())));
        let begun = Instant::now();
        for (block, end_ms) in ends_ms.iter().enumerate() {
            lines.block(block.to_string(), begun + Duration::from_millis(*end_ms));
        }
        lines.finish();
        kept.take()
    }

    #[test]
    fn long_blocks_have_a_line_each() {
        assert_eq!(written(&[2500, 5000, 7000, 9500]), ["0", "1", "2", "3"]);
    }

    #[test]
    fn short_blocks_share_a_line_and_the_last_one_has_it() {
        let ends: Vec<u64> = (0..=120).map(|block| block * 100).collect();
        assert_eq!(written(&ends), ["0", "50", "100", "120"]);
        assert_eq!(written(&[10, 20, 30]), ["0", "2"]);
        assert_eq!(written(&[10]), ["0"]);
    }
}
