//! Polling for conditions for which the kernel has no event.

use std::time::{Duration, Instant};

/// Polls `done`, at first every 50 µs, later every 2 ms, until it is true or `deadline` has passed.
/// Returns whether it became true.
pub(crate) fn until(deadline: Duration, mut done: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + deadline;
    let mut pause = Duration::from_micros(50);
    loop {
        if done() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(2));
    }
}
