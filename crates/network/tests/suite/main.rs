//! Networks of guests on a separate host: guests and clients communicate; nothing is left behind.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "helpers of tests")]

mod common;
mod crash;
mod talk;
mod taps;
