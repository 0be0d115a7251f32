//! The statistics of weighbridge, and nothing else: samples go in, values and warnings come out.
//!
//! No input, no output, no clock, and no notion of what an environment is: a name with numbers. The
//! method is fixed in the project's method page; the formulas stand in the doc comments of the
//! functions that compute them.
//!
//! ```text
//! records of a run --collect--> comparisons --analyse--> cells with intervals and verdicts
//! samples of others ----------^              compare_runs, for two runs
//! ```
//!
//! The order of work in [`analyse()`]:
//! 1. every cell (workload, metric, environment) gets its summary and its interval on its own;
//! 2. the p values of all non-baseline cells of primary metrics are adjusted together (Holm);
//! 3. verdicts follow from the adjusted values alone.

mod among;
mod analyse;
mod analysis;
mod calibration;
mod circumstances;
mod collect;
mod compare;
mod course;
mod estimate;
mod grade;
mod holm;
mod limit;
mod pelt;
mod quantile;
mod rank;
mod samples;
mod smooth;
mod steady;
mod stop;
mod student;
mod warning;

pub use among::Known;
pub use among::degradation::{Degradation, DegradationStep, Knee, degradations};
pub use among::isolation::{Isolation, Reference, isolations};
pub use among::sum::{Evenness, Sum, SumStep, sums};
pub use analyse::analyse;
pub use analysis::{
    Analysis, Cell, CellFlag, EQUIVALENT_FEWEST_BLOCKS, Flag, Interval, OneRun, Options, Pairing, Summary,
    TwoRuns, Verdict,
};
pub use calibration::{Band, binomial_band, mean_within, poisson_binomial_band, power, rejection_by_chance};
pub use circumstances::loader::LOADER_BOUND_SHARE;
pub use circumstances::{
    ChargeSummary, Circumstances, ClockSummary, DisturbedTrial, DuplicateAmount, DuplicateSummary,
    LatencySummary, LoaderSummary, NoiseSummary,
};
pub use collect::{Collected, Failure, collect};
pub use compare::compare_runs;
pub use course::{Change, Course, Moment, courses};
pub use grade::{ALIKE, Aspect, Bound, FEWEST_FOR_SPREAD, Grade, Ratio};
pub use limit::{Amount, Limit, limits};
pub use stop::precise_enough;
pub use warning::{Warning, WarningKind};
