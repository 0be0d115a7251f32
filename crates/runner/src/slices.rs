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
//! thaw until the kernel says that it is frozen. No clock of a guest's own is used, because those
//! run on while the guest is frozen.

mod arm;
mod length;
mod thawed;
mod unit;

pub(crate) use arm::{Arm, ArmResult, GuestArm};

use crate::order::SliceOrder;
use std::time::Duration;
use weigh_model::{SlicedWork, WorkloadPlan};

/// At the end of a unit slices are this many times as long, so that every run shows whether their
/// length changes what is found.
pub(crate) const LONGER: u32 = 4;
/// The longer slices have together this share of the time of the others.
const LONGER_SHARE: u32 = 3;

/// Share of the nominal length by which a slice is longer or shorter, at most: a disturbance whose
/// period is that of the slices would otherwise meet the same arm again and again.
const JITTER: f64 = 0.5;

/// How a unit is cut.
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
    /// Thawed time that every arm gets at least.
    pub(crate) each: Duration,
    /// Pieces of work that every arm begins and finishes at least.
    pub(crate) pieces: usize,
}

/// Rounds that a unit has at least, however short it is to be: in fewer, arms that work at
/// different speed may have none in common.
const FEWEST_ROUNDS: u32 = 8;

/// How the unit of a block is cut: half a second for each arm, of the larger sizes a whole one,
/// unless the run wants it otherwise. Runs of a command may be so long that one more of them, in
/// longer slices, is dear: they have those in every second block.
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
        // What is reported in turn is reported twice.
        SlicedWork::Marks => (2 * workload.metrics.len(), workload.metrics.len()),
        SlicedWork::Iterations => (workload.iterations as usize, 1),
    };
    let longer = Stretch { length: length * LONGER, each: each / LONGER_SHARE, pieces: longer_pieces };
    let has_longer = work == SlicedWork::Marks || block % 2 == 1;
    Design { nominal: Stretch { length, each, pieces }, longer: has_longer.then_some(longer) }
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

/// How often a command is asked to say what it has finished, in CPU time of its own.
pub(crate) const MARK_EVERY: &str = "25ms";
/// The same where the command says when, too: so it need not say it at once, and what passes it on,
/// such as an engine, takes the less of the CPUs.
const MARK_EVERY_BATCHED: &str = "10ms,100ms";

/// The arguments that a command has more when its work is told apart in this way. `dated`: it reads
/// the host's clock.
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
