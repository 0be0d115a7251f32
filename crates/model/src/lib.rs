//! The data that flows through weighbridge, and nothing else: no input, no output, no clock.
//!
//! ```text
//! spec -> plan -> guests on platforms -> trials -> samples -> statistics -> report
//! ```
//!
//! Every crate may use this one; it uses none of them. What is written to a run directory is
//! defined here, so the types are also the documentation of the files.

pub mod duplicates;
mod effort;
mod environment;
mod event;
mod gate;
mod group;
mod harmless;
mod host;
mod key;
mod looks;
mod metric;
pub mod neighbours;
mod observed;
pub mod pages;
mod parity;
mod plan;
mod sample;
mod series;
mod size;
mod slices;
mod spelling;
mod staging;
mod start;
mod surface;
mod unit;

pub use effort::{Effort, Share};
pub use environment::{EnvironmentSpec, SpecError, parse_environment_list};
pub use event::{CellProgress, Event, FinishReason, NoiseSeen, Timestamped};
pub use gate::GateLimits;
pub use group::{distinct, grouped};
pub use harmless::{harmless, harmless_lines, is_harmful};
pub use host::{EMULATOR, HostFacts};
pub use key::WorkloadKey;
pub use looks::{Conclusion, ConclusionReason, Looks};
pub use metric::{Better, MetricSpec};
pub use neighbours::{Load, LoadKind, NeighbourKind, Neighbours, Shares};
pub use observed::{
    Charge, ClockCheck, ClockState, CpuTime, HOST_ENERGY, HOST_ENERGY_ABOVE_IDLE, HostSettings, LoaderUse,
    NoiseLimits, Observed, Pressure,
};
pub use parity::{
    PARITY_KEYS, PARITY_KEYS_OF_PLATFORMS, check_parity_word, is_parity_key_of_platforms, parity_key_matches,
};
pub use plan::{
    EnvironmentPlan, Extraction, GuestPlan, ImageSpec, MetricSource, Operations, Orders, PLAN_FORMAT, Plan,
    WorkloadPlan,
};
pub use sample::{
    ChosenIterations, Exclusion, FailureKind, Headroom, InstanceFacts, Iteration, LoaderMachine, NoisyHost,
    OpenLoopRate, Outcome, Record, SAMPLES_FORMAT, Trial, TrialFailure, VoidCause, VoidUnit,
};
pub use series::{Comparison, Observation, Series};
pub use size::{SizeError, format_bytes, parse_bytes, parse_cpu_list, parse_duration};
pub use slices::{
    MarkColumns, PieceStatistic, SLICE_BOUNDS_US, SliceChoice, SliceMark, SlicedWork, Slices, Slicing,
};
pub use spelling::{did_you_mean, hex, nearest, number_of};
pub use staging::{LoadLoop, Pace, RUN_WORDS, ServerPlan, Staging, Transport};
pub use start::{Caches, LARGEST_COPY, StartPlan, Started, stamps, weights};
pub use surface::{Caller, CallerCalls, Surface};
pub use unit::Unit;
