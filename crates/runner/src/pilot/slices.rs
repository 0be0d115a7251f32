//! Which workloads are measured in slices, and how long these are (method specification, "Slices").

use crate::pool::Instance;
use crate::run::Runner;
use crate::{RunnerError, trial};
use std::collections::BTreeMap;
use weigh_model::{Record, SliceChoice, SlicedWork, Slicing, WorkloadPlan};

/// The shortest slice as a multiple of the time to freeze a guest. Most of that time is work, and
/// counts as such. Longer slices would contain more of the noise that neighbouring slices do not
/// share.
const FREEZES_PER_SLICE: f64 = 40.0;
/// A guest that takes longer than this to freeze, microseconds, is not sliced.
const SLOWEST_FREEZE_US: f64 = 800.0;
/// The share of the margin that may be lost to freezing and thawing in one environment more than in
/// another: as much as the check of the length allows.
const LOST_SHARE: f64 = 0.25;
/// Bounds of the chosen length, microseconds.
const CHOSEN_US: (f64, f64) = (5_000.0, 20_000.0);
/// Number of times that a guest is frozen to see how long that takes.
const LOOKS: usize = 9;
/// How often these looks are repeated if the guest seems too slow: other load on the host may have
/// slowed all of them.
const ROUNDS: usize = 3;
/// A command that uses less than this share of its time on a CPU, and was not preempted more often
/// than it yielded the CPU, waits for something. What it waits for continues while it is frozen.
const LEAST_CPU_SHARE: f64 = 0.9;
/// The same threshold if every run was preempted: beside three other commands that compute, a
/// command that computes has this share of a CPU. One that waits has less even in its best run.
const LEAST_SHARE_AMONG_OTHERS: f64 = 0.25;
/// If one environment takes this many times as long for a command as another, most slices of the
/// faster one would go to surplus runs.
const MOST_UNEQUAL: f64 = 8.0;
/// A command that keeps more CPUs busy than this has several threads, which may wait for one another.
/// After a thaw they seem to share one CPU for some ten milliseconds, and longer in some control
/// groups than in others (`docs/design/0044-slices.md`): slices find a difference where whole trials
/// find none.
const MOST_CPUS: f64 = 1.2;

/// The pilot's observations that decide about slices.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Times to freeze and to thaw a guest, by environment; or why it cannot be frozen.
    freezing: BTreeMap<usize, Result<Latency, String>>,
    runs: BTreeMap<usize, Vec<RunSeen>>,
}

/// Times to freeze and to thaw an idle guest, microseconds.
#[derive(Debug, Clone, Copy)]
struct Latency {
    freeze: f64,
    thaw: f64,
}

/// One run of a workload.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunSeen {
    pub(super) wall_s: f64,
    pub(super) cpu_s: f64,
    /// Whether it was preempted more often than it yielded the CPU.
    pub(super) preempted: bool,
}

impl Seen {
    /// Measures the freezer: freezes and thaws a guest a few times.
    pub(super) fn add_freezer(&mut self, environment: usize, instance: &mut Instance) {
        let latency = latency(instance);
        let _settled_or_stopped_next = instance.settle(false);
        self.freezing.insert(environment, latency);
    }

    pub(super) fn add_run(&mut self, workload: usize, run: RunSeen) {
        self.runs.entry(workload).or_default().push(run);
    }

    /// Why a command that is repeated cannot be sliced.
    fn objection_to_runs(&self, workload: usize) -> Option<String> {
        let runs = self.runs.get(&workload)?;
        let share = |run: &RunSeen| run.cpu_s / run.wall_s;
        let alone = runs.iter().filter(|run| !run.preempted).map(share).reduce(f64::min);
        let among_others = || runs.iter().map(share).reduce(f64::max);
        let (used, least) = match alone {
            Some(used) => (used, LEAST_CPU_SHARE),
            None => (among_others()?, LEAST_SHARE_AMONG_OTHERS),
        };
        if used < least {
            return Some(format!("it used a CPU for only {:.0} % of its time: it waits", used * 100.0));
        }
        let seconds = runs.iter().map(|run| run.wall_s);
        let (shortest, longest) = seconds.fold((f64::INFINITY, 0.0f64), |(a, b), s| (a.min(s), b.max(s)));
        (longest > MOST_UNEQUAL * shortest)
            .then(|| format!("one environment takes {:.0} times as long as another", longest / shortest))
    }

    /// Why a command that has several threads is not sliced unless the user asks for it.
    fn objection_to_threads(&self, workload: usize) -> Option<String> {
        let shares = self.runs.get(&workload)?.iter().map(|run| run.cpu_s / run.wall_s);
        let used = shares.reduce(f64::max).filter(|used| *used > MOST_CPUS)?;
        Some(format!(
            "it keeps {used:.1} CPUs busy, and after each thaw its threads have to spread over them"
        ))
    }

    /// The length that suits the slowest freezer, microseconds; or why there is none.
    fn length_us(&self, environments: &[usize], names: &[&str]) -> Result<f64, String> {
        let latencies = self.latencies(environments, names)?;
        let slowest = latencies.iter().map(|latency| latency.freeze).fold(0.0, f64::max);
        if slowest > SLOWEST_FREEZE_US {
            return Err(format!("it takes {:.1} ms to freeze a guest", slowest / 1000.0));
        }
        Ok(slowest * FREEZES_PER_SLICE)
    }

    /// The length of which no environment loses so much more to freezing and thawing than another
    /// that it matters beside the margin, microseconds; or why there is none. A guest of many
    /// threads works in little of that time.
    fn even_length_us(&self, environments: &[usize], names: &[&str], margin: f64) -> Result<f64, String> {
        let latencies = self.latencies(environments, names)?;
        let sums = latencies.iter().map(|latency| latency.freeze + latency.thaw).zip(environments);
        let (least, quickest) = sums.clone().min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((0.0, &0));
        let (most, slowest) = sums.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((0.0, &0));
        let length_us = (most - least) / (LOST_SHARE * margin);
        if length_us > CHOSEN_US.1 {
            return Err(format!(
                "freezing and thawing {} takes {:.2} ms longer than {}, too much for slices of {} ms",
                names[*slowest],
                (most - least) / 1000.0,
                names[*quickest],
                CHOSEN_US.1 / 1000.0,
            ));
        }
        Ok(length_us)
    }

    fn latencies(&self, environments: &[usize], names: &[&str]) -> Result<Vec<Latency>, String> {
        let of = |environment: &usize| match self.freezing.get(environment) {
            Some(Ok(latency)) => Ok(*latency),
            Some(Err(reason)) => Err(format!("{}: {reason}", names[*environment])),
            None => Err(format!("{} was not tried", names[*environment])),
        };
        environments.iter().map(of).collect()
    }
}

/// The length that is used where at least this one is needed, microseconds: a whole number of half
/// milliseconds reads well.
fn chosen_us(least_us: f64) -> u32 {
    let (shortest, longest) = CHOSEN_US;
    ((least_us.clamp(shortest, longest) / 500.0).ceil() * 500.0) as u32
}

/// The times to freeze and to thaw an idle guest: the lower quartiles of a few attempts, because on
/// a busy host some of them wait for a CPU. The least of a few rounds if freezing takes too long.
fn latency(instance: &mut Instance) -> Result<Latency, String> {
    let freezer = instance.freezer().ok_or("it has no control group that freezes it")?;
    instance.wake().map_err(|failure| failure.reason)?;
    let mut least = Latency { freeze: f64::INFINITY, thaw: f64::INFINITY };
    for _ in 0..ROUNDS {
        let mut looks = [Vec::with_capacity(LOOKS), Vec::with_capacity(LOOKS)];
        for _ in 0..LOOKS {
            let (freeze_ns, thaw_ns) = freezer.latency_ns().map_err(|error| trial::describe(&error))?;
            for (look, ns) in looks.iter_mut().zip([freeze_ns, thaw_ns]) {
                look.push(ns as f64 / 1000.0);
            }
        }
        let [freeze, thaw] = looks.map(|mut look| {
            look.sort_by(f64::total_cmp);
            look[LOOKS / 4]
        });
        least = Latency { freeze: least.freeze.min(freeze), thaw: least.thaw.min(thaw) };
        if least.freeze <= SLOWEST_FREEZE_US {
            break;
        }
    }
    Ok(least)
}

/// Why a workload is never sliced, whatever the pilot sees; none if it may be.
fn objection(plan: &WorkloadPlan) -> Option<&'static str> {
    if plan.start.is_some() {
        return Some("a start cannot be frozen");
    }
    if plan.staging.server.is_some() {
        return Some("it has a server and its clients, which wait for one another");
    }
    if plan.neighbours.is_some() {
        return Some("its guest has neighbours, which keep running");
    }
    if plan.prepare.is_some() || plan.cleanup.is_some() {
        return Some("it is prepared before every run");
    }
    match plan.sliced {
        Some(_) => None,
        None if plan.warmup == 0 => Some("it is measured cold, and in slices most of its work is warm"),
        None => Some("its manifest does not say `sliced`"),
    }
}

impl Runner<'_> {
    /// Decides which workloads are sliced, and records it if the user wants slices.
    pub(super) fn settle_slices(&mut self, seen: &Seen) -> Result<(), RunnerError> {
        if self.plan.slices.is_off() {
            return Ok(());
        }
        for workload in 0..self.plan.workloads.len() {
            let (length_us, reason) = match self.decide_slices(workload, seen) {
                Ok((length_us, reason)) => (Some(length_us), reason),
                Err(reason) => (None, reason),
            };
            let workload = self.plan.workloads[workload].id.clone();
            self.journal.append(Record::Slicing(Slicing { workload, length_us, reason }))?;
        }
        Ok(())
    }

    fn decide_slices(&self, workload: usize, seen: &Seen) -> Result<(u32, String), String> {
        let plan = &self.plan.workloads[workload];
        if let Some(objection) = objection(plan) {
            return Err(objection.into());
        }
        let environments: Vec<usize> = (0..self.plan.environments.len())
            .filter(|environment| self.journal.history().active(0, *environment, workload))
            .collect();
        if environments.len() < 2 {
            return Err("there is nothing to compare it with".into());
        }
        let names: Vec<&str> = self.plan.environments.iter().map(|e| e.name.as_str()).collect();
        // What the work itself rules out comes first: it holds on every host.
        if plan.sliced == Some(SlicedWork::Iterations) {
            let threads = || match self.plan.slices {
                SliceChoice::Length(_) => None,
                _ => seen.objection_to_threads(workload),
            };
            if let Some(objection) = seen.objection_to_runs(workload).or_else(threads) {
                return Err(objection);
            }
        }
        let fitting = seen.length_us(&environments, &names)?;
        if let SliceChoice::Length(us) = self.plan.slices {
            return Ok((us, "as the user asks".into()));
        }
        let even = seen.even_length_us(&environments, &names, self.plan.margin)?;
        Ok((chosen_us(fitting.max(even)), "the shortest that freezing does not distort".into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(freeze_us: &[Result<f64, String>], runs: &[(f64, f64, bool)]) -> Seen {
        let latency =
            |freeze: &Result<f64, String>| freeze.clone().map(|freeze| Latency { freeze, thaw: 10.0 });
        let run = |&(wall_s, cpu_s, preempted): &(f64, f64, bool)| RunSeen { wall_s, cpu_s, preempted };
        Seen {
            freezing: freeze_us.iter().map(latency).enumerate().collect(),
            runs: BTreeMap::from([(0, runs.iter().map(run).collect())]),
        }
    }

    #[test]
    fn threads_that_compute_at_once_are_not_sliced() {
        let objection = |runs: &[(f64, f64, bool)]| seen(&[], runs).objection_to_threads(0);
        assert_eq!(objection(&[(1.0, 0.99, false), (1.0, 1.1, true)]), None);
        let said = objection(&[(1.0, 1.0, false), (1.0, 1.9, true)]).unwrap();
        assert!(said.contains("1.9 CPUs"), "{said}");
        assert_eq!(Seen::default().objection_to_threads(0), None);
    }

    #[test]
    fn slices_are_long_beside_freezing() {
        let length = |us: &[f64]| {
            let all: Vec<_> = us.iter().map(|us| Ok(*us)).collect();
            let environments: Vec<usize> = (0..us.len()).collect();
            seen(&all, &[]).length_us(&environments, &["a", "b"]).map(chosen_us)
        };
        assert_eq!(length(&[10.0, 20.0]), Ok(5_000));
        assert_eq!(length(&[10.0, 183.0]), Ok(7_500));
        assert_eq!(length(&[700.0, 20.0]), Ok(20_000));
        assert!(length(&[900.0]).unwrap_err().contains("0.9 ms to freeze"));
        let stuck = seen(&[Ok(5.0), Err("no group".into())], &[]);
        assert_eq!(stuck.length_us(&[0, 1], &["a", "b"]), Err("b: no group".into()));
    }

    #[test]
    fn slices_are_long_beside_what_one_environment_loses_more_than_another() {
        let length = |us: &[f64], margin: f64| {
            let all: Vec<_> = us.iter().map(|us| Ok(*us)).collect();
            let environments: Vec<usize> = (0..us.len()).collect();
            seen(&all, &[]).even_length_us(&environments, &["a", "b", "c"], margin)
        };
        assert_eq!(length(&[40.0, 40.0], 0.02), Ok(0.0));
        // 50 us are half of a per cent of 10 ms.
        assert_eq!(length(&[50.0, 100.0, 60.0], 0.02), Ok(10_000.0));
        assert_eq!(length(&[50.0, 100.0, 60.0], 0.04), Ok(5_000.0));
        let said = length(&[50.0, 300.0, 60.0], 0.02).unwrap_err();
        assert!(said.contains("thawing b takes 0.25 ms longer than a"), "{said}");
    }

    #[test]
    fn commands_that_wait_or_differ_too_much_are_whole() {
        assert_eq!(seen(&[], &[(1.0, 0.98, false), (3.0, 1.2, true)]).objection_to_runs(0), None);
        let waits = seen(&[], &[(1.0, 0.98, false), (1.0, 0.5, false)]).objection_to_runs(0).unwrap();
        assert!(waits.contains("50 %"), "{waits}");
        // On a busy host a command that sleeps is preempted more often than it yields the CPU.
        let busy = |shares: [f64; 2]| seen(&[], &shares.map(|cpu_s| (1.0, cpu_s, true))).objection_to_runs(0);
        assert_eq!(busy([0.3, 0.1]), None);
        assert!(busy([0.02, 0.04]).unwrap().contains("4 %"));
        let unequal = seen(&[], &[(1.0, 1.0, false), (90.0, 90.0, false)]).objection_to_runs(0).unwrap();
        assert!(unequal.contains("90 times"), "{unequal}");
    }
}
