//! Run directories.
//!
//! ```text
//! weigh-runs/20261121T050000Z-stream/
//!   plan.json      what was asked; written once, whole or not at all
//!   host.json      the machine; likewise
//!   samples.jsonl  a header line, then one line per trial or void unit, each on disk before the next trial starts
//!   events.jsonl   what happened when; for people, not synced
//!   logs/          raw output of every tool
//!   collected.json what was made of many samples; may be missing, and is then made again
//! ```
//!
//! A sample is never rewritten. The only bytes that ever leave `samples.jsonl` are those of a last
//! line that a crash cut short; they are kept in `logs/`, and whoever opens the directory is told.
//!
//! [`import`] reads samples that were measured elsewhere, [`export`] writes them for use elsewhere.

mod directory;
mod durable;
mod error;
pub mod export;
#[cfg(test)]
mod fixtures;
pub mod import;
mod kept;
mod naming;
mod samples;

pub use directory::{Events, Made, Records, RunDirectory, make_directory};
pub use durable::write_whole;
pub use error::StoreError;
pub use naming::resolve;
