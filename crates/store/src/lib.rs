//! Stores runs in run directories.
//!
//! ```text
//! weigh-runs/20261121T050000Z-stream/
//!   plan.json      what was asked; written once, whole or not at all
//!   host.json      the machine; likewise
//!   samples.jsonl  a header line, then one line per trial or void unit, each on disk before the next trial starts
//!   events.jsonl   what happened when; for people, not synced
//!   logs/          raw output of every tool
//!   lock           while somebody writes; only the user who does can open it
//!   collected.json cache of what was derived from many samples; may be missing
//! ```
//!
//! A sample is never rewritten. The only bytes that ever leave `samples.jsonl` are those of a last
//! line that a crash cut short; they are kept in `logs/`, and [`Records::recovered`] says so.
//!
//! [`fleet`] keeps the runs of one plan on several machines, and [`history`] keeps the results of
//! runs of many versions.
//!
//! [`import`] reads samples that were measured elsewhere.
//!
//! # Example
//! ```
//! use weigh_model::{HostFacts, NoisyHost, Plan, Record};
//! use weigh_store::RunDirectory;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let parent = tempfile::tempdir()?;
//! # let parent = parent.path();
//! let plan: Plan = serde_json::from_str(
//!     r#"{"format": 7, "name": "sort", "tool_version": "1.0", "seed": 1, "margin": 0.02,
//!         "environments": [], "baseline": "native", "workloads": [], "digests": {},
//!         "effort": {"kind": "fixed", "blocks": 6}, "budget_s": null, "allow_unequal": [],
//!         "guest": {"image": "host", "cpus": [], "memory_bytes": null, "reuse": false,
//!                   "working_directory": null}}"#,
//! )?;
//! let host: HostFacts = serde_json::from_str(
//!     r#"{"identity": "3f2a", "kernel": "6.12.0", "architecture": "x86_64",
//!         "operating_system": "Debian", "cpu_model": "a CPU", "cpus": [0, 1],
//!         "memory_bytes": 8589934592, "last_level_cache_bytes": null, "cgroups": "v2",
//!         "boot": "91cc", "root": true}"#,
//! )?;
//! let mut run = RunDirectory::create(parent, &plan, &host, "2026-11-21T05:00:00Z")?;
//! run.append(&Record::NoisyHost(NoisyHost { from_block: 3, void_units: 4, units: 6 }))?;
//! drop(run);
//!
//! let run = RunDirectory::open(&weigh_store::resolve(parent, "last")?)?;
//! assert_eq!(run.name(), "20261121T050000Z-sort");
//! assert_eq!(run.records()?.records.len(), 1);
//! # Ok(())
//! # }
//! ```

mod analysis_cache;
mod directory;
mod durable;
mod error;
pub mod files;
#[cfg(test)]
mod fixtures;
pub mod fleet;
pub mod history;
pub mod import;
mod naming;
mod samples;

pub use directory::{Derived, Events, Records, RunDirectory, longest_bytes, make_directory};
pub use durable::write_whole;
pub use error::StoreError;
pub use naming::{resolve, safe_file_name};
