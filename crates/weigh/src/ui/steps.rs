//! Shows the progress of many equal steps.

use super::words::human;
use super::{moves_cursor, note};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Instant;

/// Shows how many of many equal steps are done: a bar on a terminal, a few lines elsewhere.
pub struct Steps {
    bar: Option<ProgressBar>,
    what: &'static str,
    started: Instant,
}

/// The number of lines without a terminal.
const LINES_OF_STEPS: u32 = 10;

impl Steps {
    /// Makes a display on standard error of steps that are each called `what`.
    pub fn new(what: &'static str) -> Self {
        let bar = moves_cursor().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(4));
            let style = ProgressStyle::with_template("{spinner} {prefix} {pos}/{len} [{bar:24}] {wide_msg}")
                .expect("the template is a constant")
                .progress_chars("=> ");
            bar.set_style(style);
            bar.set_prefix(what);
            bar
        });
        Self { bar, what, started: Instant::now() }
    }

    /// Shows that `done` of `of` steps are done.
    pub fn show(&mut self, done: u32, of: u32) {
        let left_s = self.started.elapsed().as_secs_f64() / f64::from(done.max(1)) * f64::from(of - done);
        let left = format!("about {} left", human(left_s));
        match &self.bar {
            Some(bar) => {
                bar.set_length(u64::from(of));
                bar.set_position(u64::from(done));
                bar.set_message(left);
            }
            None if done.is_multiple_of(of.div_ceil(LINES_OF_STEPS)) && done < of => {
                note(&format!("{} {done}/{of}, {left}", self.what));
            }
            None => {}
        }
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
