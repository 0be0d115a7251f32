//! What neighbours did in a trial, as values of the measured guest's iterations.

use super::rates::{Window, counted, jain, least_to_most, reached, together};
use super::work::TaskResult;
use crate::trial::Measured;
use std::collections::BTreeMap;
use weigh_host::clock::monotonic_ns;
use weigh_model::{Extraction, Iteration, WorkloadPlan, neighbours};
use weigh_workloads::without_neighbours;

/// Fewer guests were up than the workload asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TooFewGuests {
    /// Guests that were up, the measured one among them.
    pub(crate) up: u32,
    pub(crate) reason: String,
    /// Whether the user interrupted it.
    pub(crate) interrupted: bool,
}

/// What neighbours did in a trial.
pub(crate) struct NeighbourResults {
    pub(super) all: Vec<TaskResult>,
    /// CPU time of the guests and the length of the windows, nanoseconds.
    pub(super) used: Option<(u64, u64)>,
    /// Set when not all of them were there to the end.
    pub(super) fewer: Option<TooFewGuests>,
}

impl NeighbourResults {
    /// Set if the number of guests is the only result of the trial.
    pub(crate) fn too_few(&self) -> Option<&TooFewGuests> {
        self.fewer.as_ref()
    }

    /// Adds the values of the neighbours to every iteration of the measured guest.
    pub(super) fn add_to(&self, workload: &WorkloadPlan, guests: u32, measured: &mut Measured) {
        let (mut values, mut absent) = (BTreeMap::new(), BTreeMap::new());
        let mut put = |name: &str, value: Result<f64, &str>| match value {
            Ok(value) if value.is_finite() && value > 0.0 => drop(values.insert(name.to_string(), value)),
            Ok(_) => drop(absent.insert(name.to_string(), NOTHING.to_string())),
            Err(reason) => drop(absent.insert(name.to_string(), reason.to_string())),
        };
        put(neighbours::UP, Ok(f64::from(guests)));
        let cpu = self.used.map(|(used_ns, windows_ns)| used_ns as f64 / windows_ns.max(1) as f64);
        put(neighbours::NEIGHBOURS_CPU, cpu.ok_or("this host does not see the CPU time of these guests"));
        let window = Window::of(&measured.iterations).ok_or("the measured run took no time");
        let done = window.and_then(|window| together(&self.all, window).ok_or(UNFINISHED));
        put(neighbours::NEIGHBOURS_RATE, done);
        let rates = window.and_then(|window| self.rates(workload, &measured.iterations, window));
        put(neighbours::SUM, rates.as_ref().map(|rates| rates.iter().sum::<f64>()).map_err(|reason| *reason));
        put(neighbours::JAIN, rates.as_ref().map(|rates| jain(rates)).map_err(|reason| *reason));
        put(
            neighbours::LEAST_TO_MOST,
            rates.as_ref().map(|rates| least_to_most(rates)).map_err(|reason| *reason),
        );
        let stamps = workload.metrics.iter().filter(|metric| metric.from == Extraction::Stamp);
        let names: Vec<&String> = stamps.map(|metric| &metric.spec.name).collect();
        for iteration in &mut measured.iterations {
            let wanted = |name: &String| names.contains(&name);
            iteration.values.extend(values.clone().into_iter().filter(|(name, _)| wanted(name)));
            iteration.absent.extend(absent.clone().into_iter().filter(|(name, _)| wanted(name)));
        }
    }

    /// The rate of each guest, the measured one first.
    fn rates(
        &self,
        workload: &WorkloadPlan,
        iterations: &[Iteration],
        window: Window,
    ) -> Result<Vec<f64>, &'static str> {
        let own = without_neighbours(workload);
        let measured = reached(&own, iterations).ok_or("the measured guest counted nothing")?;
        let mut rates = vec![measured];
        for done in &self.all {
            rates.push(reached(&own, &counted(done, window)).ok_or(UNFINISHED)?);
        }
        Ok(rates)
    }
}

const NOTHING: &str = "it is zero, so there can be no ratio";
const UNFINISHED: &str = "a neighbour completed no run while the measured guest ran; use a larger size";

/// The result of a trial that has only the number of guests.
pub(crate) fn only_guests_up(workload: &WorkloadPlan, fewer: &TooFewGuests) -> Measured {
    let now_ns = monotonic_ns();
    let mut iteration = Iteration { host_started_ns: now_ns, host_ended_ns: now_ns, ..Iteration::default() };
    for metric in &workload.metrics {
        if metric.spec.name == neighbours::UP {
            iteration.values.insert(neighbours::UP.into(), f64::from(fewer.up));
        } else {
            iteration.absent.insert(metric.spec.name.clone(), fewer.reason.clone());
        }
    }
    Measured { iterations: vec![iteration], observed: None, clock: None }
}
