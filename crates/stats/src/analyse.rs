//! Analyses one set of samples: the intervals of every cell and the verdicts of the family.

mod cell;
mod family;

pub(crate) use cell::{SHORT_S, describe, warning};
pub(crate) use family::{conclude, p_diff, p_eq, shown_verdict};

use crate::analysis::{Analysis, Cell, EQUIVALENT_FEWEST_BLOCKS, Options, Verdict};
use crate::estimate::{Estimate, TAIL};
use crate::sequential::SequentialLook;
use crate::warning::{Warning, WarningKind};
use cell::{measure, typical};
use std::collections::BTreeMap;
use weigh_model::{Comparison, Looks};

/// A cell and the estimate that its verdict will rest on.
#[derive(Debug)]
pub(crate) struct Measured {
    pub cell: Cell,
    pub estimate: Option<Estimate>,
    /// The estimate with as many values on either side; it says how many would decide the cell.
    pub balanced: Option<Estimate>,
    pub look: Look,
}

/// Computes the intervals of every cell and the verdicts of the family.
///
/// With d the log ratio of the costs of environment and baseline in a block (rates inverted, so
/// that more is worse), m and s mean and standard deviation of d over k blocks:
///
/// ```text
/// overhead = e^m - 1, interval e^(m -+ t(.975, k-1) s / sqrt(k)) - 1                  k >= 2
/// typical  = e^median(d) - 1, interval from the order statistics of d                  k >= 6
/// ```
///
/// Samples without blocks are compared by Welch on the logarithms and flagged as unpaired. They
/// have no typical effect: a median of ratios needs pairs, and a ratio of medians has no interval
/// that shares its assumptions; the medians themselves are in the summaries.
///
/// Log ratios without any spread, and samples that cannot be compared, are no error: the cell says
/// what is known, and a warning says what is missing.
pub fn analyse(comparisons: &[Comparison], options: &Options) -> Analysis {
    let (mut measured, mut warnings) = measure(comparisons, options);
    let units = units(comparisons);
    let done = |cell: &Cell| units.get(cell.workload.as_str()).copied().unwrap_or(0);
    // A run to a precision may take its most blocks until a rule ends it.
    let wanted = options.most_blocks.filter(|_| !options.ended_by_rule).or(options.planned_blocks);
    let lacks = |cell: &Cell| {
        !options.finished.contains(&cell.workload) && wanted.is_some_and(|wanted| done(cell) < wanted)
    };
    for one in &mut measured {
        let lacks = lacks(&one.cell);
        look(one, options, lacks);
    }
    let is_open = |m: &&Measured| lacks(&m.cell) || options.looks.is_some() && m.look == Look::AnyTime;
    let done = measured.iter().filter(is_open).map(|m| done(&m.cell)).min();
    if let Some((done, planned)) = done.zip(options.planned_blocks) {
        let most = options.looks.map(Looks::last).or(options.most_blocks);
        let planned = most.filter(|_| done >= planned).unwrap_or(planned);
        warnings.insert(0, Warning::of(None, None, WarningKind::RunIncomplete { done, planned }));
    }
    conclude(measured, options, EQUIVALENT_FEWEST_BLOCKS, warnings)
}

/// The number of units of each workload, those with failed trials included.
pub(crate) fn units(comparisons: &[Comparison]) -> BTreeMap<&str, u32> {
    let mut units: BTreeMap<&str, u32> = BTreeMap::new();
    for comparison in comparisons {
        let tried = comparison.series.iter().map(|series| series.tried).max().unwrap_or(0);
        let most = units.entry(&comparison.workload).or_default();
        *most = tried.max(*most);
    }
    units
}

impl Measured {
    /// A cell that is judged once all planned blocks are done.
    fn of(cell: Cell, estimate: Option<Estimate>) -> Self {
        Self { cell, estimate, balanced: estimate, look: Look::Planned }
    }
}

/// When somebody looks at a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// When the run has its planned blocks.
    Planned,
    /// At any time they like, so every interval must hold at every moment.
    AnyTime,
    /// At one of the looks of a group-sequential run.
    At(SequentialLook),
}

impl Look {
    pub(crate) fn estimate(self, estimate: Option<Estimate>) -> Option<Estimate> {
        match self {
            Self::Planned => estimate,
            Self::AnyTime => estimate.and_then(|estimate| estimate.at_any_moment()),
            Self::At(look) => estimate.map(|estimate| Estimate { look: Some(look), ..estimate }),
        }
    }

    /// Returns when a cell is looked at. `lacks` says that its workload has fewer units than
    /// planned.
    fn of(cell: &Cell, options: &Options, lacks: bool) -> Self {
        let ended = options.ended_by_rule || options.finished.contains(&cell.workload);
        let Some(looks) = options.looks else {
            return if lacks && !ended { Self::AnyTime } else { Self::Planned };
        };
        let at = |blocks, ends| Self::At(SequentialLook { looks, blocks, ends });
        match options.concluded(&cell.workload, &cell.environment) {
            _ if cell.verdict == Some(Verdict::Baseline) => Self::Planned,
            Some(concluded) => at(concluded.blocks.max(looks.first()), false),
            None if !ended => Self::AnyTime,
            // The cell never came to its first look.
            None if cell.tried < looks.first() => Self::Planned,
            None => at(cell.tried, true),
        }
    }
}

/// Gives a cell the intervals of its look. A median has no interval that holds at any moment.
fn look(measured: &mut Measured, options: &Options, lacks: bool) {
    let look = Look::of(&measured.cell, options, lacks);
    let Measured { cell, estimate, .. } = measured;
    match look {
        Look::Planned => {}
        Look::AnyTime => {
            cell.typical = None;
            cell.worst_cases = cell.worst_cases.and_then(|cases| cases.at_any_moment(cell.n));
        }
        Look::At(at) => {
            let logs: Vec<f64> = cell.log_ratios.iter().map(|(_, d)| *d).collect();
            let rounding = estimate.map_or(0.0, |estimate| estimate.rounding);
            cell.look = Some(at);
            cell.typical = typical(&logs, at.nominal(TAIL)).map(|typical| typical.widened(rounding));
            cell.worst_cases = cell.worst_cases.map(|cases| cases.at_look(cell.n, at));
        }
    }
    if look != Look::Planned {
        describe(cell, look.estimate(*estimate));
    }
    measured.look = look;
}

/// Measures every cell of a run that has ended, before any verdict. The interval of each is that of
/// its look, if the run had looks.
pub(crate) fn measure_ended(comparisons: &[Comparison], options: &Options) -> (Vec<Measured>, Vec<Warning>) {
    let (mut measured, warnings) = measure(comparisons, options);
    let ended = Options { ended_by_rule: true, ..options.clone() };
    measured.iter_mut().for_each(|one| look(one, &ended, false));
    (measured, warnings)
}
