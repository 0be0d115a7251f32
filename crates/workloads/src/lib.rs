//! Workloads as data.
//!
//! A workload is a command, its parameters at three sizes, and where its numbers are in its output.
//! The built-in workloads are the files of `manifests/`; users add their own in the same form,
//! without compiling anything. No workload knows on which platform it runs.
//!
//! ```text
//! manifest -> Library -> Workload::plan -> WorkloadPlan -> (the runner) -> extract -> values in base units
//! ```
//!
//! [`Library`] documents the format of a manifest.

mod command;
mod extract;
mod library;
mod manifest;
mod neighbours;
mod packed;
pub mod parsers;
mod planning;
mod start;
mod template;
mod toml_file;
mod workload;

pub use command::{command_line, command_lines, command_workload, has_parameter, sweep};
pub use extract::{Ended, ExtractError, Extracted, RawResult, Resources, extract};
pub use library::{Library, UnknownWorkload};
#[doc(hidden)]
pub use manifest::fuzz as fuzz_manifest;
pub use neighbours::{LOADS, load, with_neighbours, without_neighbours};
pub use packed::unpack;
pub use planning::ParamError;
pub use start::{start_workload, with_boot_metrics, with_stages};
pub use toml_file::{Fault, FileError, parse_toml};
pub use workload::{ParamKind, ParamSpec, Size, Workload};
