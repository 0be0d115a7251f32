//! Networks of guests on a host of their own: they talk, and nothing is left of them.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "helpers of tests")]

mod common;
mod crash;
mod talk;
mod taps;
