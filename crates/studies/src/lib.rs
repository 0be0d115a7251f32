//! Published studies as data.
//!
//! A study is what somebody measured and published: platforms, quantities, printed numbers, and
//! what the text claims. Each of its experiments also says what is measured here to see the same,
//! so that both can be shown side by side. The built-in ones are the files of `studies/`; users
//! bring their own in the same form, without compiling anything.
//!
//! ```text
//! files -> Library -> Experiment { what is measured, published numbers, claims } -> (grading and report, elsewhere)
//! ```
//!
//! Nothing is measured, graded or printed here. How a study is written is said at [`Library`], how
//! a claim is checked at [`Check`].

mod check;
mod error;
mod file;
mod library;
mod overhead;
mod study;
mod write;

pub use check::{Check, CheckError, Condition, Point, Relation, Term};
pub use error::StudyError;
pub use file::read_study;
pub use library::{Found, Library, UnknownExperiment, library};
pub use overhead::PublishedOverhead;
pub use study::{
    Arm, Claim, Command, Experiment, Form, Instead, Measurand, Measure, Origin, Place, Published,
    PublishedValue, Quantity, Reach, Reanalyse, Spread, Statistic, Study, View,
};
