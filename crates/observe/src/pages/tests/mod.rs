//! The scanner against guests whose memory is known to the page.

mod guest;
mod ksm;
mod naive;
mod synthetic;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// For tests with mergeable memory: one of them lets the kernel merge.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
