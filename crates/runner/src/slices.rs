//! A unit in slices: all its environments are under way at once, each thawed for a few milliseconds
//! in turn (method specification, "Slices").
//!
//! ```text
//! begin, arm by arm      thaw, set-up, warm-up, start of endless work, freeze
//! round 0, 1, ...        a length and an order at random; each arm: thaw, work, freeze
//! end, arm by arm        thaw, end of the work, check of its result, tear-down
//! ```
//!
//! What is measured is the time for which an arm was thawed, on the host's clock: from the order to
//! thaw until the kernel says that it is frozen. No clock of a guest is used, because those run on
//! while the guest is frozen.

mod arm;
mod unit;

pub(crate) use arm::{Arm, ArmResult, GuestArm};

use crate::order::SliceOrder;
use std::time::Duration;
use weigh_model::SlicedWork;

/// In every fourth block slices are this many times as long, so that every run shows whether their
/// length changes what is found.
const LONG: u32 = 4;
const LONG_BLOCKS: u32 = 4;

/// The length of the slices of a block, microseconds.
pub(crate) fn length_in_block_us(length_us: u32, block: u32) -> u32 {
    let is_long = block % LONG_BLOCKS == LONG_BLOCKS - 1;
    if is_long { length_us.saturating_mul(LONG) } else { length_us }
}

/// Share of the nominal length by which a slice is longer or shorter, at most: a disturbance whose
/// period is that of the slices would otherwise meet the same arm again and again.
const JITTER: f64 = 0.5;

/// How a unit is cut.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Design {
    /// Nominal length of a slice.
    pub(crate) length: Duration,
    /// Thawed time that every arm gets at least.
    pub(crate) each: Duration,
    /// Pieces of work that every arm finishes at least.
    pub(crate) pieces: usize,
}

/// Whether the rounds were all that was planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounds {
    Done,
    Interrupted,
}

/// Gives every arm its slices until all of them have enough. An arm that fails takes no further
/// part; the others go on.
pub(crate) fn rounds(
    arms: &mut [&mut dyn Arm],
    design: Design,
    order: &mut SliceOrder,
    interrupted: &dyn Fn() -> bool,
) -> Rounds {
    while arms.iter().any(|arm| arm.is_open()) {
        if interrupted() {
            return Rounds::Interrupted;
        }
        let enough = arms.iter().all(|arm| !arm.is_open() || arm.has(design));
        let (places, share) = order.next_round(arms.len());
        let length = design.length.mul_f64(1.0 + JITTER * share);
        for place in places {
            let arm = &mut *arms[place];
            if arm.is_open() {
                arm.slice(length, enough);
            }
        }
    }
    Rounds::Done
}

/// How often a command is asked to say what it has finished, in CPU time of its own.
pub(crate) const MARK_EVERY: &str = "25ms";

/// The arguments that a command has more when its work is told apart in this way.
pub(crate) fn further_arguments(work: SlicedWork) -> Vec<String> {
    match work {
        SlicedWork::Marks => vec!["--marks".into(), MARK_EVERY.into()],
        SlicedWork::Iterations => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
