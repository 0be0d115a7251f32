//! The scanner against guests of which every page is known.

mod guest;
mod ksm;
mod naive;
mod synthetic;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Serialises tests with mergeable memory, because one of them lets the kernel merge.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
