//! Studies: what of them can run here, their runs, and what they say beside what was published.
//!
//! ```text
//! study data --columns--> what can run here --measure--> a run directory for each experiment --redraw--> StudyReport
//! ```
//!
//! Where the study's own logs are at hand, their values take the place of a run's
//! ([`reanalyse()`]).
//!
//! An experiment is a command of weigh with the environments of its columns. Nothing is measured in
//! another way than by that command.

mod columns;
mod directory;
mod grade;
mod measure;
mod new;
mod reanalyse;
mod redraw;
mod values;

pub use columns::{Column, Prover, Wanted};
pub use directory::{ExperimentState, State, StudyDirectory};
pub use measure::{describe, measure};
pub use new::{Head, Source, as_file};
pub use reanalyse::{Reanalysed, reanalyse};
pub use redraw::{redraw, render};
