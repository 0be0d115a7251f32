//! The statistics of weighbridge: samples go in, values and warnings come out.
//!
//! This crate does no input or output, reads no clock, and knows an environment only by its name.
//! The method is fixed in the project's method page; the formulas stand in the doc comments of the
//! functions that compute them.
//!
//! ```text
//! records of a run --collect--> comparisons --analyse--> cells with intervals and verdicts
//! samples of others ----------^              compare_runs, for runs with runs
//!                                            pool, for runs on several machines
//! ```
//!
//! The order of work in [`analyse()`]:
//! 1. every cell (workload, metric, environment) gets its summary and its interval on its own;
//! 2. the p values of all non-baseline cells of primary metrics are adjusted together (Holm);
//! 3. verdicts follow from the adjusted values alone.
//!
//! # Example
//! Six blocks of two environments, compared block by block:
//!
//! ```
//! use weigh_model::{Comparison, MetricSpec, Observation, Series, WorkloadKey};
//! use weigh_stats::{Options, Verdict, analyse};
//!
//! let series = |environment: &str, seconds: [f64; 6]| Series {
//!     environment: environment.into(),
//!     observations: (0..)
//!         .zip(seconds)
//!         .map(|(block, value)| Observation { block: Some(block), value })
//!         .collect(),
//!     failed: 0,
//!     tried: 6,
//! };
//! let comparison = Comparison {
//!     workload: "sort".into(),
//!     key: WorkloadKey::named("sort"),
//!     metric: MetricSpec::time("time"),
//!     series: vec![
//!         series("native", [1.00, 1.02, 0.99, 1.01, 1.00, 0.98]),
//!         series("container", [1.10, 1.12, 1.10, 1.11, 1.09, 1.08]),
//!     ],
//! };
//! let analysis = analyse(&[comparison], &Options::new("native"));
//! let container = &analysis.cells[1];
//! assert_eq!(container.verdict, Some(Verdict::Slower));
//! let overhead = container.overhead.expect("there are six pairs");
//! assert!(0.09 < overhead.low && overhead.high < 0.11);
//! ```

mod analyse;
mod analysis;
mod calibration;
mod circumstances;
mod collect;
mod compare;
mod control;
mod course;
mod estimate;
mod gate;
mod grade;
mod history;
mod holm;
mod interval;
mod limit;
mod look;
mod neighbours;
#[cfg(test)]
mod noise;
mod pelt;
mod pilot;
mod pool;
mod price;
mod proportion;
mod quantile;
mod quantum;
mod random_effects;
mod rank;
mod resample;
mod samples;
mod sequential;
mod serial;
pub mod slices;
mod smooth;
mod spread;
mod steady;
mod stop;
mod student;
mod warning;
mod worst;

pub use analyse::analyse;
pub use analysis::{
    Analysis, Cell, CellFlag, ComparedSides, EQUIVALENT_FEWEST_BLOCKS, Flag, LEVEL_DIFFERENCE, Options,
    Pairing, RunSide, Summary, Verdict,
};
pub use calibration::{Band, binomial_band, mean_within, poisson_binomial_band, power, rejection_by_chance};
pub use circumstances::loader::LOADER_BOUND_SHARE;
pub use circumstances::{
    ChargeSummary, Circumstances, ClockSummary, DisturbedTrial, DuplicateAmount, DuplicateSummary,
    LatencySummary, LoaderSummary, NoiseSummary, SliceSummary, SlicedCell, SlicedCourse, SlicedUnit,
    SpreadParts, SpreadSummary,
};
pub use collect::{ConcludedCell, Failure, RunData, collect};
pub use compare::{ComparedRun, compare_runs};
pub use course::{Change, Course, Moment, courses};
pub use gate::{GATE_FEWEST_BLOCKS, GateOutcome, gate, gate_of_builds};
pub use grade::{ALIKE, Aspect, Bound, FEWEST_FOR_SPREAD, FamilySize, Grade, Ratio};
pub use history::{Rise, Shift, level_since, rise, shifts};
pub use interval::Interval;
pub use limit::{Limit, limits};
pub use look::{DueWorkload, conclusions};
pub use neighbours::RunFacts;
pub use neighbours::degradation::{Degradation, DegradationStep, Knee, degradations};
pub use neighbours::isolation::{Isolation, Reference, isolations};
pub use neighbours::sum::{Evenness, Sum, SumStep, sums};
pub use pilot::{
    Iterated, PILOT_BLOCKS, PilotSpread, PlannedCell, PlannedParts, PlannedRun, RunCost, planned_run,
};
pub use pool::{
    GroupDifference, MachineEffect, MachineSpread, PoolRun, Pooled, PooledCell, PooledGroup, RunEstimates,
    Scope, WorkCost, gate_pooled, join_shares, pool, work_costs,
};
pub use price::{OperationCost, not_priced, operation_costs};
pub use sequential::SequentialLook;
pub use spread::{BetterInvestment, FEWEST_UNITS, MOST_TIMES, Spread, UnitTime};
pub use stop::{precise_enough, precise_workloads};
pub use warning::{Notice, Warning, WarningKind};
pub use worst::WorstCases;
