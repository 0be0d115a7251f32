//! The control of a run: a second instance of the baseline in every block (method specification,
//! "Control").

use crate::analyse::{Measured, warning};
use crate::analysis::Flag;
use crate::holm;
use crate::warning::{Warning, WarningKind};

/// Level of the test, adjusted by Holm over the primary cells of the control.
const LEVEL: f64 = 0.05;

/// A warning for every primary cell of the control that is found different from the baseline, which
/// it equals.
pub(crate) fn warnings(measured: &[Measured]) -> Vec<Warning> {
    let is_control = |m: &&Measured| m.cell.primary && m.cell.flags.contains(&Flag::Control);
    let judged = measured.iter().filter(is_control).filter(|m| !m.cell.is_impaired());
    let found: Vec<_> = judged.filter_map(|m| Some((&m.cell, m.look.estimate(m.estimate)?))).collect();
    let adjusted = holm::adjust(&found.iter().map(|(_, estimate)| estimate.p_diff()).collect::<Vec<_>>());
    let differs = found.iter().zip(adjusted).filter(|(_, p)| *p < LEVEL);
    differs
        .map(|((cell, estimate), _)| {
            warning(cell, WarningKind::ControlDiffers { effect: estimate.interval() })
        })
        .collect()
}
