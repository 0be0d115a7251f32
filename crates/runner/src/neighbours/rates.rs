//! Rates of the neighbours during the measurement of their guest.

use super::work::TaskResult;
use weigh_model::{Iteration, WorkloadPlan};

/// From the start of the first measured run to the end of the last, host's monotonic clock,
/// nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    from_ns: u64,
    to_ns: u64,
}

impl Window {
    /// Returns none without a run.
    pub(super) fn of(iterations: &[Iteration]) -> Option<Self> {
        let (first, last) = (iterations.first()?, iterations.last()?);
        let window = Self { from_ns: first.host_started_ns, to_ns: last.host_ended_ns };
        (window.to_ns > window.from_ns).then_some(window)
    }

    pub(super) fn ns(self) -> u64 {
        self.to_ns - self.from_ns
    }

    /// Time of a run within the window, nanoseconds.
    fn overlap_ns(self, run: &Iteration) -> u64 {
        run.host_ended_ns.min(self.to_ns).saturating_sub(run.host_started_ns.max(self.from_ns))
    }

    /// Whether the middle of a run lies within the window.
    fn has_middle(self, run: &Iteration) -> bool {
        let middle_ns = run.host_started_ns.midpoint(run.host_ended_ns);
        (self.from_ns..=self.to_ns).contains(&middle_ns)
    }
}

/// Rate per second of all neighbours together: operations if their command counts them, runs
/// otherwise. A run counts in proportion to its part within the window. None if no run lies within.
pub(super) fn together(all: &[TaskResult], window: Window) -> Option<f64> {
    let done: f64 = all
        .iter()
        .flat_map(|done| &done.runs)
        .map(|run| {
            let took_ns = run.host_ended_ns.saturating_sub(run.host_started_ns).max(1);
            run.operations.unwrap_or(1.0) * window.overlap_ns(run) as f64 / took_ns as f64
        })
        .sum();
    (done > 0.0).then(|| done / (window.ns() as f64 * 1e-9))
}

/// Rate per second of one guest in a workload: operations, or else runs.
pub(super) fn reached(plan: &WorkloadPlan, runs: &[Iteration]) -> Option<f64> {
    if let Some((_, rate_per_s)) = plan.reached(runs) {
        return Some(rate_per_s);
    }
    let ns: u64 = runs.iter().map(|run| run.guest_duration_ns).sum();
    (ns > 0).then(|| runs.len() as f64 / (ns as f64 * 1e-9))
}

/// The runs of a neighbour that count: those with their middle in the window or, if there are none,
/// the one with the largest part in it.
pub(super) fn counted(done: &TaskResult, window: Window) -> Vec<Iteration> {
    let within: Vec<Iteration> = done.runs.iter().filter(|run| window.has_middle(run)).cloned().collect();
    if !within.is_empty() {
        return within;
    }
    let most = done.runs.iter().max_by_key(|run| window.overlap_ns(run));
    most.filter(|run| window.overlap_ns(run) > 0).cloned().into_iter().collect()
}

/// Jain's index of the guests' rates (DEC-TR-301, 1984).
pub(super) fn jain(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    sum * sum / (rates.len() as f64 * squares)
}

/// The slowest rate divided by the fastest.
pub(super) fn least_to_most(rates: &[f64]) -> f64 {
    let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let most = rates.iter().copied().fold(0.0, f64::max);
    least / most
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(from_ns: u64, to_ns: u64, operations: Option<f64>) -> Iteration {
        Iteration {
            host_started_ns: from_ns,
            host_ended_ns: to_ns,
            guest_duration_ns: to_ns - from_ns,
            operations,
            ..Iteration::default()
        }
    }

    fn did(runs: &[(u64, u64)]) -> TaskResult {
        TaskResult { runs: runs.iter().map(|(from, to)| run(*from, *to, None)).collect(), failure: None }
    }

    const S: u64 = 1_000_000_000;

    #[test]
    fn fairness_is_as_its_papers_have_it() {
        assert_eq!((jain(&[3.0, 3.0, 3.0]), least_to_most(&[3.0, 3.0])), (1.0, 1.0));
        // One of four does everything: 1/n.
        assert!((jain(&[8.0, 0.0, 0.0, 0.0]) - 0.25).abs() < 1e-12);
        assert!((jain(&[1.0, 2.0]) - 0.9).abs() < 1e-12);
        assert_eq!(least_to_most(&[4.0, 1.0, 2.0]), 0.25);
    }

    #[test]
    fn parts_of_runs_count_as_parts() {
        let window = Window::of(&[run(10 * S, 11 * S, None), run(11 * S, 12 * S, None)]).unwrap();
        // One run is wholly within, half of another is, and a third is not.
        let all = [did(&[(10 * S, 11 * S), (11 * S, 13 * S)]), did(&[(2 * S, 9 * S)])];
        assert!((together(&all, window).unwrap() - 0.75).abs() < 1e-12);
        assert_eq!(together(&all[1..], window), None);
        let counted = TaskResult { runs: vec![run(9 * S, 11 * S, Some(100.0))], failure: None };
        assert!((together(&[counted], window).unwrap() - 25.0).abs() < 1e-12, "50 operations in 2 s");
        assert!(Window::of(&[]).is_none());
    }

    #[test]
    fn runs_count_in_the_window_that_holds_their_middle() {
        let window = Window::of(&[run(10 * S, 12 * S, None)]).unwrap();
        let runs = counted(&did(&[(8 * S, 11 * S), (9 * S, 12 * S), (12 * S, 13 * S)]), window);
        assert_eq!(runs.iter().map(|run| run.host_started_ns).collect::<Vec<_>>(), [9 * S]);
        let long = counted(&did(&[(0, 9 * S), (9 * S, 40 * S)]), window);
        assert_eq!(long.len(), 1, "the one that was under way");
        assert!(counted(&did(&[(0, 9 * S)]), window).is_empty());
    }
}
