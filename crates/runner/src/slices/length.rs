//! Lengthens the slices of a workload that are shown to be too short (method specification,
//! "Slices").

use super::LONGER;
use crate::RunnerError;
use crate::run::Runner;
use weigh_model::{Effort, Record, SliceChoice, Slicing};
use weigh_stats::{SliceSummary, collect};

/// The longest slices to try, microseconds; beyond this, whole trials replace them.
const LONGEST_US: u32 = 20_000;

/// The replacement for a workload's slices in a run of so many blocks, if that is known; none unless
/// they are known to be too short.
fn replacement(summary: &SliceSummary, blocks: Option<u32>) -> Option<Slicing> {
    let length_us = summary.length_us?;
    let cell = summary.cells.iter().find(|cell| cell.too_short && cell.is_due(blocks))?;
    let found = cell.longer?.estimate * 100.0;
    let reason = format!(
        "in {} slices four times as long as {} ms differ by {found:+.1} % from those",
        cell.environment,
        f64::from(length_us) / 1000.0,
    );
    let slicing = Slicing { workload: summary.workload.clone(), reason, ..Slicing::default() };
    let whole = summary.whole.iter().chain([&cell.environment]).cloned();
    Some(if length_us < LONGEST_US {
        let longer_us = length_us.saturating_mul(LONGER).min(LONGEST_US);
        Slicing { length_us: Some(longer_us), whole: summary.whole.clone(), ..slicing }
    } else if summary.cells.len() > 2 {
        Slicing { length_us: Some(length_us), whole: whole.collect(), ..slicing }
    } else {
        slicing
    })
}

impl Runner<'_> {
    /// Checks what the blocks so far show about the length of their slices, a few times in a run.
    /// If it is too short, the workload gets longer slices, or the environment whole trials, and the
    /// units so far are replaced. A length that the user asked for stays, and so does that of a quick
    /// run without the time for as many blocks as it needs; the report warns of it.
    pub(crate) fn lengthen_slices(&mut self) -> Result<(), RunnerError> {
        // Analysing all samples after each of ten thousand blocks would be most of the work of a
        // day's run.
        let lasts = matches!(self.plan.effort, Effort::Lasting { .. });
        let is_late = self.fits_budget && self.clock.fitting_blocks() < self.plan.effort.fewest_blocks();
        if self.plan.slices != SliceChoice::Auto || lasts || is_late || !self.journal.history().has_slices() {
            return Ok(());
        }
        let blocks = match self.plan.effort {
            Effort::Fixed { blocks } => Some(blocks),
            _ => None,
        };
        let found = collect(self.plan, self.journal.records()).circumstances.slices;
        for summary in &found {
            let Some(slicing) = replacement(summary, blocks) else { continue };
            let instead = match slicing.length_us {
                None => "whole trials".into(),
                // The length stays if an environment leaves.
                same if same == summary.length_us => {
                    format!("whole trials of {}", slicing.whole.last().map_or("", String::as_str))
                }
                Some(us) => format!("slices of {} ms", us / 1000),
            };
            self.journal.warn(format!(
                "{}: {}; {instead} replace its units so far",
                slicing.workload, slicing.reason
            ))?;
            let workload = self.plan.workloads.iter().position(|workload| workload.id == slicing.workload);
            workload.into_iter().for_each(|workload| self.finished.reopen(workload));
            self.journal.append(Record::Slicing(slicing))?;
        }
        self.void_superseded_units()
    }

    /// Voids units whose slices have another length than their workload has now.
    pub(crate) fn void_superseded_units(&mut self) -> Result<(), RunnerError> {
        for void in self.journal.history().superseded_units() {
            self.void(void)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weigh_stats::{Interval, SlicedCell};

    fn summary(length_us: Option<u32>, too_short: bool) -> SliceSummary {
        let cell = |environment: &str, too_short| SlicedCell {
            environment: environment.into(),
            trials: 6,
            freeze_us: 40.0,
            freeze_p95_us: 70.0,
            gain: None,
            longer: Some(Interval { estimate: -0.021, low: -0.023, high: -0.019 }),
            too_short,
        };
        SliceSummary {
            workload: "spin".into(),
            length_us,
            whole: Vec::new(),
            reason: "so".into(),
            cells: vec![cell("native", false), cell("uml", too_short)],
        }
    }

    #[test]
    fn an_environment_whose_slices_are_too_short_has_whole_trials_beside_others() {
        let mut three = summary(Some(5000), true);
        three.cells.push(SlicedCell { environment: "docker".into(), ..three.cells[0].clone() });
        three.whole.push("runsc".into());
        let longer = replacement(&three, None).unwrap();
        assert_eq!((longer.length_us, longer.whole.as_slice()), (Some(20_000), &["runsc".to_string()][..]));
        three.length_us = Some(20_000);
        let apart = replacement(&three, None).unwrap();
        assert_eq!((apart.length_us, apart.whole.join(" ")), (Some(20_000), "runsc uml".into()));
        assert_eq!(apart.reason, "in uml slices four times as long as 20 ms differ by -2.1 % from those");
    }

    #[test]
    fn slices_that_are_too_short_become_longer_and_then_whole() {
        let longer = replacement(&summary(Some(5000), true), None).unwrap();
        assert_eq!((longer.workload.as_str(), longer.length_us), ("spin", Some(20_000)));
        assert_eq!(longer.reason, "in uml slices four times as long as 5 ms differ by -2.1 % from those");
        assert_eq!(replacement(&summary(Some(9500), true), None).unwrap().length_us, Some(20_000));
        assert_eq!(replacement(&summary(Some(20_000), true), None).unwrap().length_us, None);
        assert_eq!(replacement(&summary(Some(5000), false), None), None);
        let looks = |planned: Option<u32>| -> Vec<u32> {
            let is_look = |blocks: &u32| {
                let mut found = summary(Some(5000), true);
                found.cells.iter_mut().for_each(|cell| cell.trials = *blocks);
                replacement(&found, planned).is_some()
            };
            (0..=50).filter(is_look).collect()
        };
        assert_eq!(looks(None), [3, 6, 12, 24, 48]);
        assert_eq!(looks(Some(20)), [3, 6, 12, 20, 24, 48]);
        assert_eq!(looks(Some(2)), [3, 6, 12, 24, 48]);
        assert_eq!(replacement(&summary(None, true), None), None);
    }
}
