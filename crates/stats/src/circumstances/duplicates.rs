//! Equal pages of guests: the scans of all trials that count, amount by amount.
//!
//! Amounts are means and not medians, because the means of the parts add up to the mean of the
//! whole, as the rows of the matrix must. An amount may be 0, because none is compared by ratios.

use super::{DuplicateAmount, DuplicateSummary};
use crate::estimate::count;
use std::collections::BTreeMap;
use weigh_model::duplicates::{DUPLICATES, amounts};
use weigh_model::{Iteration, Observation, Outcome, Started, Trial, WorkloadPlan};

/// The scans of the trials of a cell; `None` if no scan was asked for.
pub(crate) fn summary<'t>(
    workload: &WorkloadPlan,
    environment: &str,
    trials: impl Iterator<Item = &'t Trial>,
) -> Option<DuplicateSummary> {
    let Some(Started::Footprint { guests, duplicates: true }) = workload.start.map(|start| start.what) else {
        return None;
    };
    let mut summary = DuplicateSummary {
        workload: workload.id.clone(),
        environment: environment.into(),
        guests,
        n: 0,
        absent: None,
        amounts: BTreeMap::new(),
        scans: BTreeMap::new(),
    };
    let mut all: BTreeMap<&str, Vec<Observation>> = BTreeMap::new();
    for trial in trials {
        let Outcome::Measured { iterations } = &trial.outcome else { continue };
        match trial.observed.as_ref().and_then(|observed| observed.pages.as_ref()) {
            Some(scan) => {
                for (name, bytes) in amounts(scan) {
                    let scanned = Observation { block: Some(trial.block), value: bytes as f64 };
                    all.entry(name).or_default().push(scanned);
                }
            }
            None => summary.absent = summary.absent.or_else(|| reason(iterations)),
        }
    }
    summary.n = all.values().next().map_or(0, |values| count(values.len()));
    summary.scans = all.into_iter().map(|(name, values)| (name.to_string(), values)).collect();
    let amounts = summary.scans.iter().map(|(name, values)| (name.clone(), DuplicateAmount::of(values)));
    summary.amounts = amounts.collect();
    (summary.n > 0 || summary.absent.is_some()).then_some(summary)
}

fn reason(iterations: &[Iteration]) -> Option<String> {
    iterations.iter().find_map(|iteration| iteration.absent.get(DUPLICATES).cloned())
}

impl DuplicateAmount {
    /// The mean and the extremes of at least one scan.
    fn of(scans: &[Observation]) -> Self {
        let bytes: Vec<f64> = scans.iter().map(|scan| scan.value).collect();
        Self {
            mean: bytes.iter().sum::<f64>() / bytes.len() as f64,
            least: bytes.iter().copied().fold(f64::INFINITY, f64::min),
            most: bytes.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weigh_model::duplicates::{CHANGED, GUEST_GUEST, GUESTS_MEMORY};
    use weigh_model::pages::{DuplicateMatrix, KindPairs, PageScan, UnsettledPages};
    use weigh_model::{Caches, Observed, StartPlan};

    fn trial(pages: Option<PageScan>, reason: Option<&str>) -> Trial {
        let absent = reason.map(|reason| (DUPLICATES.to_string(), reason.to_string())).into_iter().collect();
        Trial {
            outcome: Outcome::Measured { iterations: vec![Iteration { absent, ..Iteration::default() }] },
            observed: Some(Box::new(Observed { pages: pages.map(Box::new), ..Observed::default() })),
            ..Trial::default()
        }
    }

    fn workload(duplicates: bool) -> WorkloadPlan {
        let what = Started::Footprint { guests: 2, duplicates };
        let start = Some(StartPlan { what, caches: Caches::Warm });
        WorkloadPlan { start, ..WorkloadPlan::of("footprint", Vec::new(), Vec::new()) }
    }

    fn scan(file_pages: u64, rewritten: u64) -> PageScan {
        let guest_guest = KindPairs { file_pages, ..KindPairs::default() };
        PageScan {
            page_bytes: 4096,
            matrix: DuplicateMatrix { guest_guest, ..DuplicateMatrix::default() },
            unsettled: UnsettledPages { rewritten, moved: 0 },
            ..PageScan::default()
        }
    }

    #[test]
    fn amounts_are_means_over_the_trials_that_have_them() {
        let trials = [trial(Some(scan(2, 0)), None), trial(Some(scan(4, 1)), None)];
        let summary = summary(&workload(true), "runc", trials.iter()).unwrap();
        assert_eq!((summary.n, summary.guests, summary.absent), (2, 2, None));
        let files = summary.amounts[GUEST_GUEST[2]];
        assert_eq!((files.mean, files.least, files.most), (3.0 * 4096.0, 8192.0, 16384.0));
        assert_eq!(summary.amounts[CHANGED].mean, 2048.0);
        assert_eq!(summary.amounts[GUESTS_MEMORY].mean, 0.0, "what is nothing is nothing, and is said");
    }

    #[test]
    fn memory_that_was_not_scanned_has_a_reason() {
        let without = summary(&workload(true), "ssh", [trial(None, Some("elsewhere"))].iter()).unwrap();
        assert_eq!((without.n, without.absent.as_deref()), (0, Some("elsewhere")));
        assert!(summary(&workload(false), "runc", [trial(Some(scan(1, 0)), None)].iter()).is_none());
        assert!(summary(&workload(true), "runc", std::iter::empty()).is_none());
    }
}
