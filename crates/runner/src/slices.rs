//! A unit in slices: all its environments are under way at once, each thawed for a few milliseconds
//! in turn (method specification, "Slices").
//!
//! ```text
//! begin, arm by arm      thaw, set-up, warm-up, start of endless work, freeze
//! round 0, 1, ...        a length and an order at random; each arm: thaw, work, freeze
//! end, arm by arm        thaw, end of the work, check of its result, tear-down
//! ```
//!
//! The measured quantity is the time for which an arm was thawed, on the host's clock: from the
//! request to thaw until the kernel has told all of its processes to stop. A guest's own clock is not
//! used, because it runs on while the guest is frozen.

mod arm;
mod length;
mod thawed;
mod unit;

pub(crate) use arm::{Arm, ArmResult, GuestArm};

use crate::order::SliceOrder;
use std::time::Duration;
use weigh_model::{SlicedWork, WorkloadPlan};

/// Factor by which slices at the end of a unit are longer, so that every run shows whether their
/// length changes the result.
pub(crate) const LONGER: u32 = 4;
/// The thawed time of the nominal slices, divided by that of the longer ones.
const LONGER_SHARE: u32 = 3;
/// Least number of longer slices of every arm. In a guest with a clock of its own a mark is made
/// every 25 ms, and what lies before the first and after the last of an arm does not count: two or
/// three slices of 80 ms showed nothing of a difference of 5 %.
const FEWEST_LONGER: u32 = 6;

/// The largest deviation of a slice from its nominal length, as a share of it: a disturbance with
/// the period of the slices would otherwise hit the same arm again and again.
const JITTER: f64 = 0.5;

/// How a unit is divided into slices.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Design {
    /// The rounds that are measured.
    pub(crate) nominal: Stretch,
    /// The rounds after them, with longer slices.
    pub(crate) longer: Option<Stretch>,
}

/// Rounds whose slices have the same nominal length.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stretch {
    /// Nominal length of a slice.
    pub(crate) length: Duration,
    /// Least thawed time of every arm.
    pub(crate) each: Duration,
    /// Least number of pieces of work that every arm begins and finishes.
    pub(crate) pieces: usize,
}

/// Least number of rounds of a unit, however short it should be: in fewer rounds, arms of different
/// speeds may have none in common.
const FEWEST_ROUNDS: u32 = 8;

/// Divides the unit of a block: half a second for each arm, or a whole one for the larger sizes,
/// unless the run asks for another time. A further run of a command in longer slices may take so
/// long that it is only added in every second block.
fn design(
    workload: &WorkloadPlan,
    work: SlicedWork,
    length_us: u32,
    (block, each): (u32, Option<Duration>),
) -> Design {
    let by_size = Duration::from_millis(if workload.size == "quick" { 500 } else { 1000 });
    let length = Duration::from_micros(length_us.into());
    let each = each.map_or(by_size, |each| each.max(FEWEST_ROUNDS * length));
    let (pieces, longer_pieces) = match work {
        // Metrics that are reported in turn are reported twice.
        SlicedWork::Marks => (2 * workload.metrics.len(), workload.metrics.len()),
        SlicedWork::Iterations => (workload.iterations as usize, 1),
    };
    let longer_length = length * LONGER;
    let longer_each = (each / LONGER_SHARE).max(FEWEST_LONGER * longer_length);
    let longer = Stretch { length: longer_length, each: longer_each, pieces: longer_pieces };
    let has_longer = work == SlicedWork::Marks || block % 2 == 1;
    Design { nominal: Stretch { length, each, pieces }, longer: has_longer.then_some(longer) }
}

/// Whether all planned rounds took place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounds {
    Done,
    Interrupted,
}

/// Gives every arm its slices until all of them have enough. An arm that fails drops out; the
/// others go on.
pub(crate) fn rounds(
    arms: &mut [&mut dyn Arm],
    design: Design,
    order: &mut SliceOrder,
    interrupted: &dyn Fn() -> bool,
) -> Rounds {
    let (mut stretch, mut next) = (design.nominal, design.longer);
    while arms.iter().any(|arm| arm.is_open()) {
        if interrupted() {
            return Rounds::Interrupted;
        }
        let mut enough = arms.iter().all(|arm| !arm.is_open() || arm.has(stretch));
        if enough && let Some(longer) = next.take() {
            (stretch, enough) = (longer, false);
            arms.iter_mut().for_each(|arm| arm.begin_longer());
        }
        let (places, share) = order.next_round(arms.len());
        let length = stretch.length.mul_f64(1.0 + JITTER * share);
        for place in places {
            let arm = &mut *arms[place];
            if arm.is_open() {
                arm.slice(length, enough);
            }
        }
    }
    Rounds::Done
}

/// How often a command reports its finished work, in its own CPU time.
pub(crate) const MARK_EVERY: &str = "25ms";
/// The same for a command that dates its work: it need not report at once, so that programs in
/// between, such as an engine, use less of the CPUs.
const MARK_EVERY_BATCHED: &str = "10ms,100ms";

/// The additional arguments of a command whose work is divided in this way. `dated`: it reads the
/// host's clock.
pub(crate) fn further_arguments(work: SlicedWork, dated: bool) -> Vec<String> {
    match work {
        SlicedWork::Marks => {
            vec!["--marks".into(), if dated { MARK_EVERY_BATCHED } else { MARK_EVERY }.into()]
        }
        SlicedWork::Iterations => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
