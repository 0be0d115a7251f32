//! Published studies: their data, and how a measurement on this host compares.
//!
//! A study is what somebody measured and published: platforms, quantities, printed numbers, and
//! claims of the text. Each of its experiments also says how weigh measures the same, so that both
//! can be shown side by side. The built-in studies are the files of `studies/`; users can add their
//! own in the same form, without compiling anything.
//!
//! ```text
//! files -> Library -> Experiment --columns--> command -> a run of weigh, elsewhere -> Report
//!                         \--- published numbers, claims ---> grades, StudyReport <---/
//! ```
//!
//! Nothing is measured, printed or rendered here. [`Library`] describes the files, [`Check`] the
//! form of claims. If the study's own logs are available, [`reanalyse()`] takes their values
//! instead of a run's.

mod check;
mod claims;
mod columns;
mod command;
mod compared;
mod directory;
mod file;
mod from_runs;
mod grade;
mod library;
mod overhead;
mod reanalyse;
mod redraw;
mod study;
mod values;
mod write;

pub use check::{Check, CheckError, Condition, Point, Relation, Term};
pub use claims::every_claim;
pub use columns::{Column, ColumnChoice, ColumnError};
pub use command::{environment_names, experiment_command, shell_quoted};
pub use directory::{DirectoryError, ExperimentState, StudyDirectory, StudyState, run_name};
pub use file::read_study;
pub use from_runs::{FromRunsError, Header, RunSource, study_file};
pub use library::{FoundExperiment, Library, UnknownExperiment, library};
pub use overhead::PublishedOverhead;
pub use reanalyse::{LogError, ReanalysisResult, reanalyse};
pub use redraw::report_of_directory;
pub use study::{
    Arm, Claim, Command, Experiment, Measurand, Measure, Origin, Place, Published, PublishedValue, Quantity,
    RawLogSource, Spread, Statistic, Study, View,
};
