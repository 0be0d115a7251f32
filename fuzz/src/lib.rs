//! The targets, for the programs of `fuzz_targets/`.

#[path = "../targets.rs"]
mod targets;

pub use targets::*;
