//! A sliced unit of a block, from its instances to its records.

use super::{Arm, ArmResult, GuestArm, Rounds, design, rounds};
use crate::RunnerError;
use crate::block::{Place, Ready};
use crate::order::SliceOrder;
use crate::pool::{EnvironmentPool, Instance, State};
use crate::run::{Ended, Runner};
use crate::trial::{Failure, Measured, WorkloadCommands};
use std::collections::BTreeMap;
use std::path::PathBuf;
use weigh_host::clock::{monotonic_ns, utc_now};
use weigh_model::{
    Better, Extraction, FailureKind, Iteration, Observed, Outcome, Record, SlicedWork, Slices, Trial,
    TrialFailure, WorkloadPlan,
};
use weigh_observe::{InstanceId, Sensors};
use weigh_stats::slices::{ITERATION, common_rounds, costs};

/// An environment of the unit whose guest takes part.
struct Part {
    environment: usize,
    sequence: u64,
    instance: u64,
    guest_log: Option<PathBuf>,
}

/// The result of a part.
struct PartResult {
    part: Part,
    result: ArmResult,
    observed: Option<Observed>,
}

impl Runner<'_> {
    /// Measures one workload in every environment at once, in slices.
    pub(crate) fn sliced_unit(
        &mut self,
        place: Place,
        environments: &[usize],
        sliced: (SlicedWork, u32),
    ) -> Result<Ended, RunnerError> {
        let (started, host_started_ns) = (utc_now(), monotonic_ns());
        let first = self.journal.history().trials();
        let mut failed: BTreeMap<usize, (u64, TrialFailure)> = BTreeMap::new();
        let mut parts = Vec::new();
        for (sequence, environment) in (first..).zip(environments.iter().copied()) {
            self.announce(Place { environment, ..place })?;
            match self.ready_instance(environment)? {
                Ready::Instance { number, log } => {
                    parts.push(Part { environment, sequence, instance: number, guest_log: log });
                }
                Ready::Not { number, failure } => {
                    failed.insert(environment, (number, failure));
                }
            }
        }
        let (rounds, results) = self.run_parts(place, parts, sliced);
        if rounds == Rounds::Interrupted {
            for PartResult { part, result, .. } in results.into_iter().filter(|part| part.result.end.lost) {
                self.retire(part.environment, result.end.complaint)?;
            }
            self.void_interrupted(place)?;
            return Ok(Ended::Interrupted);
        }
        let mut measured = self.values_of(place, results)?;
        let host_ended_ns = monotonic_ns();
        for (sequence, environment) in (first..).zip(environments.iter().copied()) {
            let (instance, outcome, slices) = match measured.remove(&environment) {
                Some((instance, outcome, slices)) => (instance, outcome, Some(Box::new(slices))),
                None => {
                    let Some((instance, failure)) = failed.remove(&environment) else { continue };
                    (instance, Err(failure), None)
                }
            };
            let (outcome, observed) = match outcome {
                Ok(Measured { iterations, observed, .. }) => (Outcome::Measured { iterations }, observed),
                Err(failure) => (Outcome::Failed(failure), None),
            };
            let (trial, started) = (self.trial_at(Place { environment, ..place }, sequence), started.clone());
            let trial = Trial {
                instance,
                started,
                host_started_ns,
                host_ended_ns,
                outcome,
                observed,
                slices,
                ..trial
            };
            self.record_trial(trial, Record::Trial)?;
        }
        Ok(Ended::Done)
    }

    /// Begins all parts, gives them their slices, and ends them.
    fn run_parts(
        &mut self,
        place: Place,
        parts: Vec<Part>,
        (work, length_us): (SlicedWork, u32),
    ) -> (Rounds, Vec<PartResult>) {
        let plan = self.plan;
        let workload = &plan.workloads[place.workload];
        let design = design(workload, work, length_us, (place.block, self.sliced_time));
        let mut order = SliceOrder::new(plan.seed, place.block, place.workload);
        let interrupt = self.interrupt;
        let interrupted = || interrupt.load(std::sync::atomic::Ordering::Relaxed);
        let directories: Vec<_> =
            (0..self.pool.entries.len()).map(|e| self.pool.working_directory(e)).collect();
        let EnvironmentPool { entries, sensors, .. } = &mut self.pool;
        let mut instances: BTreeMap<usize, (&mut Instance, bool)> = entries
            .iter_mut()
            .enumerate()
            .filter_map(|(environment, entry)| match &mut entry.state {
                State::Running(instance) => Some((environment, (instance, entry.bare))),
                _ => None,
            })
            .collect();
        let attached: Vec<Option<InstanceId>> = parts
            .iter()
            .map(|part| instances.get(&part.environment).and_then(|(instance, _)| instance.attached))
            .collect();
        let begin = |part: Part| {
            let (instance, bare) = instances.remove(&part.environment).expect("its instance runs");
            let placeholders = instance.placeholders(bare, part.sequence, place.seed);
            let commands = WorkloadCommands::in_environment(
                workload,
                &plan.environments[part.environment],
                directories[part.environment],
                place.padding_bytes,
                placeholders,
            );
            let warm_up = if instance.warm.contains(&place.workload) { 0 } else { workload.warmup };
            instance.warm.insert(place.workload);
            let arm = GuestArm::begin(instance, commands, (work, length_us), warm_up);
            (part, arm)
        };
        let mut under_way: Vec<(Part, GuestArm)> =
            begin_windows(&mut **sensors, &attached, work, || parts.into_iter().map(begin).collect());
        let mut arms: Vec<&mut dyn Arm> = under_way.iter_mut().map(|(_, arm)| arm as &mut dyn Arm).collect();
        let outcome = rounds(&mut arms, design, &mut order, &interrupted);
        let end = |(part, arm): (Part, GuestArm)| (part, arm.end(outcome == Rounds::Interrupted));
        let (ended, observed) = end_windows(&mut **sensors, &attached, || {
            under_way.into_iter().map(end).collect::<Vec<(Part, ArmResult)>>()
        });
        let results = ended.into_iter().zip(observed);
        (outcome, results.map(|((part, result), observed)| PartResult { part, result, observed }).collect())
    }

    /// The values of all parts over their common rounds.
    #[expect(clippy::type_complexity, reason = "the parts of a record, used once")]
    fn values_of(
        &mut self,
        place: Place,
        results: Vec<PartResult>,
    ) -> Result<BTreeMap<usize, (u64, Result<Measured, TrialFailure>, Slices)>, RunnerError> {
        let measured = || results.iter().filter(|part| part.result.outcome.is_ok());
        let arms: Vec<&Slices> = measured().map(|part| &part.result.slices).collect();
        let is_baseline = |environment: usize| self.plan.environments[environment].name == self.plan.baseline;
        // If it failed, any other serves.
        let baseline = measured().position(|measured| is_baseline(measured.part.environment)).unwrap_or(0);
        let found = common_rounds(&arms).map(|rounds| costs(&arms, baseline, rounds));
        let mut costs_of_arms = found.into_iter().flatten();
        let used: u64 = results.iter().filter_map(|part| part.observed.as_ref()).map(used_ns).sum();
        let mut values = BTreeMap::new();
        for PartResult { part, result, observed } in results {
            let Part { environment, sequence, instance, guest_log } = part;
            let end = result.end;
            self.statistics.warm_ups += u64::from(result.warm_ups);
            if end.lost {
                self.retire(environment, end.complaint)?;
            }
            let workload = &self.plan.workloads[place.workload];
            let outcome = result.outcome.and_then(|finished| {
                let costs = costs_of_arms.next().filter(|costs| !costs.is_empty()).ok_or_else(too_short)?;
                Ok(finished.into_iter().map(|(i, c)| (valued(workload, i, &costs), c)).collect::<Vec<_>>())
            });
            let outcome = match outcome {
                Ok(finished) => {
                    let label = format!("trial {sequence}, block {}, attempt {}", place.block, place.attempt);
                    let mut iterations = Vec::new();
                    let log = self.logs.cell(environment, place.workload);
                    let mut written = Ok(());
                    for (number, (iteration, completed)) in finished.into_iter().enumerate() {
                        iterations.push(iteration);
                        written = written.and(log.hold(&format!("{label}, iteration {number}"), &completed));
                    }
                    let written = written.and_then(|()| log.write());
                    self.warn_about_logs(written.err())?;
                    let observed = observed.map(|seen| Box::new(alone(seen, used)));
                    Ok(Measured { iterations, observed, clock: None })
                }
                Err(failure) => {
                    let failure = failure.because(end.exit_reason).in_guest(guest_log);
                    let when = format!("trial-{sequence}");
                    Err(self.file_failure(environment, place.workload, &when, failure)?)
                }
            };
            values.insert(environment, (instance, outcome, result.slices));
        }
        Ok(values)
    }
}

/// Begins the windows of a unit's guests, and their arms. What one guest uses while its arm begins is
/// in all windows or in none, because [`alone`] takes what the others used away from each. A kernel
/// counts operations from its start, a command only those of measured runs.
fn begin_windows<T>(
    sensors: &mut dyn Sensors,
    attached: &[Option<InstanceId>],
    work: SlicedWork,
    begin_arms: impl FnOnce() -> T,
) -> T {
    let mut begin = || attached.iter().flatten().for_each(|instance| sensors.begin(*instance));
    match work {
        SlicedWork::Marks => {
            begin();
            begin_arms()
        }
        SlicedWork::Iterations => {
            let arms = begin_arms();
            begin();
            arms
        }
    }
}

/// Ends the arms, and then the windows, which have the ends of all arms for the same reason.
fn end_windows<T>(
    sensors: &mut dyn Sensors,
    attached: &[Option<InstanceId>],
    end_arms: impl FnOnce() -> T,
) -> (T, Vec<Option<Observed>>) {
    let ended = end_arms();
    (ended, attached.iter().map(|instance| instance.map(|instance| sensors.end(instance))).collect())
}

fn too_short() -> Failure {
    let reason = "there were no rounds in which all environments were at work; give it longer slices by \
                  --slices, or whole trials by --slices off";
    Failure::new(FailureKind::Check, reason)
}

/// CPU time of a guest and its helpers in its window, nanoseconds.
fn used_ns(observed: &Observed) -> u64 {
    observed.charge.total_ns() - observed.charge.softirq_ns
}

/// The observations of a guest, in which the CPU use of the unit's other guests is not foreign.
/// Softirqs and counters of the whole host are those of all these guests together, and left out.
fn alone(mut observed: Observed, all_used_ns: u64) -> Observed {
    let others_ns = all_used_ns.saturating_sub(used_ns(&observed));
    observed.charge.softirq_ns = 0;
    observed.foreign.ns = observed.foreign.ns.saturating_sub(others_ns);
    observed.charge.unattributed_ns -= others_ns as i64;
    observed.charge.counters.retain(|name, _| !name.starts_with("host_"));
    observed
}

/// A run of the command with the values that its slices give.
fn valued(workload: &WorkloadPlan, mut iteration: Iteration, costs: &BTreeMap<String, f64>) -> Iteration {
    for metric in &workload.metrics {
        let name = &metric.spec.name;
        let cost = match (workload.sliced, &metric.from) {
            (Some(SlicedWork::Iterations), Extraction::Duration) => {
                costs.get(ITERATION).map(|seconds| seconds * metric.factor)
            }
            (Some(SlicedWork::Marks), _) => costs.get(name.as_str()).copied(),
            _ => continue,
        };
        match cost {
            Some(cost) => {
                let value = if metric.spec.better == Better::Higher { 1.0 / cost } else { cost };
                iteration.values.insert(name.clone(), value);
            }
            None => {
                let why = "it is not among what the command reports in slices; --slices off measures it";
                iteration.absent.insert(name.clone(), why.into());
            }
        }
    }
    iteration
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::time::Duration;
    use weigh_host::accounts::Accounts;
    use weigh_model::{Charge, CpuTime, HostSettings};

    /// Sensors that note when windows begin and end.
    struct Noting<'l>(&'l RefCell<Vec<&'static str>>);

    impl Sensors for Noting<'_> {
        fn settings(&mut self) -> HostSettings {
            HostSettings::default()
        }
        fn attach(&mut self, _: &Accounts, _: &[u32]) -> InstanceId {
            InstanceId(0)
        }
        fn begin(&mut self, _: InstanceId) {
            self.0.borrow_mut().push("window begins");
        }
        fn end(&mut self, _: InstanceId) -> Observed {
            self.0.borrow_mut().push("window ends");
            Observed::default()
        }
        fn detach(&mut self, _: InstanceId) {}
    }

    #[test]
    fn what_an_arm_begins_or_ends_with_is_in_all_windows_or_in_none() {
        let log = RefCell::new(Vec::new());
        let mut sensors = Noting(&log);
        let attached = [Some(InstanceId(1)), None, Some(InstanceId(2))];
        let note = |what| (0..3).for_each(|_| log.borrow_mut().push(what));
        begin_windows(&mut sensors, &attached, SlicedWork::Marks, || note("arm begins"));
        let marks = ["window begins", "window begins", "arm begins", "arm begins", "arm begins"];
        assert_eq!(log.take(), marks);
        begin_windows(&mut sensors, &attached, SlicedWork::Iterations, || note("arm begins"));
        let iterations = ["arm begins", "arm begins", "arm begins", "window begins", "window begins"];
        assert_eq!(log.take(), iterations);
        let ((), observed) = end_windows(&mut sensors, &attached, || note("arm ends"));
        assert_eq!(log.take(), ["arm ends", "arm ends", "arm ends", "window ends", "window ends"]);
        assert_eq!(observed.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, true]);
    }

    /// All windows of a unit overlap, so the softirqs of the host are in each of them.
    #[test]
    fn softirqs_of_the_host_are_charged_to_no_guest_of_a_unit() {
        let window = |guest_ns| Observed {
            foreign: CpuTime { ns: 450, uncertainty_ns: 0 },
            charge: Charge { guest_ns, softirq_ns: 50, unattributed_ns: 400, ..Charge::default() },
            ..Observed::default()
        };
        let windows = [window(100), window(300)];
        let all_ns: u64 = windows.iter().map(used_ns).sum();
        let [one, other] = windows.map(|window| alone(window, all_ns));
        assert_eq!((one.charge.total_ns(), other.charge.total_ns()), (100, 300));
        assert_eq!((one.foreign.ns, other.foreign.ns), (150, 350), "less what the other guest used");
        assert_eq!((one.charge.unattributed_ns, other.charge.unattributed_ns), (100, 300));
    }

    #[test]
    fn the_time_of_a_unit_is_set_by_its_size_or_by_the_run() {
        let ms = Duration::from_millis;
        let workload = |size: &str| {
            let plan = WorkloadPlan::of("w", vec!["w".into()], Vec::new());
            WorkloadPlan { size: size.into(), ..plan }
        };
        let each = |size: &str, length_us, wanted: Option<Duration>| {
            design(&workload(size), SlicedWork::Marks, length_us, (0, wanted)).nominal.each
        };
        assert_eq!((each("quick", 5000, None), each("paper", 5000, None)), (ms(500), ms(1000)));
        assert_eq!(each("quick", 5000, Some(ms(100))), ms(100));
        assert_eq!(each("quick", 20_000, Some(ms(100))), ms(160), "enough rounds");
    }
}
