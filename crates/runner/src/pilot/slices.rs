//! Which workloads are measured in slices, and how long these are (method specification, "Slices").

use crate::pool::Instance;
use crate::run::Runner;
use crate::{RunnerError, trial};
use std::collections::BTreeMap;
use weigh_model::{Effort, Record, SliceChoice, SlicedWork, Slicing, WorkloadPlan};

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
pub(super) struct SliceObservations {
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

impl SliceObservations {
    /// Measures the freezer: freezes and thaws a guest a few times.
    pub(super) fn add_freezer(&mut self, environment: usize, instance: &mut Instance) {
        let latency = latency(instance);
        let _frozen_or_stopped_next = instance.freeze_unless_lost(false);
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

    /// The times to freeze and to thaw a guest of an environment, or why it is not sliced.
    fn latency(&self, environment: usize) -> Result<Latency, String> {
        match self.freezing.get(&environment) {
            Some(Ok(latency)) if latency.freeze > SLOWEST_FREEZE_US => {
                Err(format!("it takes {:.1} ms to freeze a guest", latency.freeze / 1000.0))
            }
            Some(latency) => latency.clone(),
            None => Err("it was not tried".into()),
        }
    }

    /// Divides environments into those that are sliced and those that are not. Those that cannot be
    /// frozen have whole trials, and so has, unless the user gave the length, whichever loses so much
    /// more to freezing and thawing than another that even the longest slices would show it.
    fn divide(
        &self,
        environments: &[usize],
        baseline: usize,
        names: &[&str],
        margin: Option<f64>,
    ) -> Divided {
        let mut divided = Divided::default();
        for environment in environments {
            match self.latency(*environment) {
                Ok(latency) => divided.sliced.push((*environment, latency)),
                Err(reason) => divided.whole.push((*environment, reason)),
            }
        }
        let most_us = margin.map_or(f64::INFINITY, |margin| CHOSEN_US.1 * LOST_SHARE * margin);
        while let Some((more_us, slowest, quickest)) = divided.uneven().filter(|(us, ..)| *us > most_us) {
            // Of two that differ too much, the baseline stays.
            let out = if divided.sliced[slowest].0 == baseline { quickest } else { slowest };
            let reason = format!(
                "freezing and thawing {} takes {:.2} ms longer than {}, too much for slices of {} ms",
                names[divided.sliced[slowest].0],
                more_us / 1000.0,
                names[divided.sliced[quickest].0],
                CHOSEN_US.1 / 1000.0,
            );
            let (environment, _) = divided.sliced.remove(out);
            divided.whole.push((environment, reason));
        }
        divided
    }
}

/// Environments that are sliced, with the times to freeze and to thaw their guests, and those that
/// are not, with the reason.
#[derive(Debug, Default)]
struct Divided {
    sliced: Vec<(usize, Latency)>,
    whole: Vec<(usize, String)>,
}

impl Divided {
    /// The largest difference in what two sliced environments lose to freezing and thawing,
    /// microseconds, with the places of the slower and the quicker one. A guest of many threads
    /// works in little of that time.
    fn uneven(&self) -> Option<(f64, usize, usize)> {
        let sums = || self.sliced.iter().map(|(_, latency)| latency.freeze + latency.thaw).enumerate();
        let (slowest, most) = sums().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let (quickest, least) = sums().min_by(|a, b| a.1.total_cmp(&b.1))?;
        Some((most - least, slowest, quickest))
    }

    /// The length that suits the slowest freezer, and with a margin also the differences between
    /// them, microseconds.
    fn length_us(&self, margin: f64) -> u32 {
        let slowest_us = self.sliced.iter().map(|(_, latency)| latency.freeze).fold(0.0, f64::max);
        let uneven_us = self.uneven().map_or(0.0, |(us, ..)| us);
        chosen_us(f64::max(slowest_us * FREEZES_PER_SLICE, uneven_us / (LOST_SHARE * margin)))
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
    let freezer = instance
        .freezer()
        .ok_or("it has no control group that freezes it, or reports no work before it ends")?;
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
    pub(super) fn choose_sliced_workloads(&mut self, seen: &SliceObservations) -> Result<(), RunnerError> {
        if self.plan.slices.is_off() {
            return Ok(());
        }
        for workload in 0..self.plan.workloads.len() {
            let id = self.plan.workloads[workload].id.clone();
            let whole = |reason| Slicing { workload: id, reason, ..Slicing::default() };
            let slicing = self.decide_slices(workload, seen).unwrap_or_else(whole);
            self.journal.append(Record::Slicing(slicing))?;
        }
        Ok(())
    }

    /// The slices of a workload, or why all its trials are whole.
    fn decide_slices(&self, workload: usize, seen: &SliceObservations) -> Result<Slicing, String> {
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
        let is_baseline = |environment: &usize| names[*environment] == self.plan.baseline;
        let baseline = environments.iter().copied().find(is_baseline);
        let asked_us = match self.plan.slices {
            SliceChoice::Length(us) => Some(us),
            _ => None,
        };
        let margin = self.plan.margin;
        let baseline = baseline.unwrap_or(environments[0]);
        let divided = seen.divide(&environments, baseline, &names, asked_us.is_none().then_some(margin));
        let named = |(environment, reason): &(usize, String)| format!("{}: {reason}", names[*environment]);
        let Divided { sliced, whole } = &divided;
        if sliced.len() < 2 || !sliced.iter().any(|(environment, _)| *environment == baseline) {
            return Err(whole.iter().map(named).collect::<Vec<_>>().join("; "));
        }
        let is_quick = matches!(self.plan.effort, Effort::Quick { .. });
        let has_kernel = |(environment, _): &(usize, _)| !self.pool.entries[*environment].can.shares_kernel;
        let longest = is_quick && sliced.iter().any(has_kernel);
        let (length_us, reason) = match asked_us {
            Some(us) => (us, "as the user asks"),
            None if longest => (
                CHOSEN_US.1 as u32,
                "the longest, because slices may prove too short for a guest with a kernel of its own, and a quick \
                 run has no time to repeat them",
            ),
            None => (divided.length_us(margin), "the shortest that freezing does not distort"),
        };
        let reasons = std::iter::once(reason.to_string()).chain(whole.iter().map(named));
        Ok(Slicing {
            workload: plan.id.clone(),
            length_us: Some(length_us),
            reason: reasons.collect::<Vec<_>>().join("; "),
            whole: whole.iter().map(|(environment, _)| names[*environment].to_string()).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(freeze_us: &[Result<f64, String>], runs: &[(f64, f64, bool)]) -> SliceObservations {
        let latency =
            |freeze: &Result<f64, String>| freeze.clone().map(|freeze| Latency { freeze, thaw: 10.0 });
        let run = |&(wall_s, cpu_s, preempted): &(f64, f64, bool)| RunSeen { wall_s, cpu_s, preempted };
        SliceObservations {
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
        assert_eq!(SliceObservations::default().objection_to_threads(0), None);
    }

    /// The sliced environments with the length of their slices, and why the others are whole. The
    /// first is the baseline.
    fn divided(
        freeze_us: &[Result<f64, String>],
        margin: Option<f64>,
    ) -> (Vec<usize>, u32, Vec<(usize, String)>) {
        let environments: Vec<usize> = (0..freeze_us.len()).collect();
        let divided = seen(freeze_us, &[]).divide(&environments, 0, &["a", "b", "c"], margin);
        let length_us = divided.length_us(margin.unwrap_or(0.02));
        (divided.sliced.iter().map(|(environment, _)| *environment).collect(), length_us, divided.whole)
    }

    #[test]
    fn slices_are_long_beside_freezing() {
        let length = |us: &[f64]| {
            let all: Vec<_> = us.iter().map(|us| Ok(*us)).collect();
            let (sliced, length_us, whole) = divided(&all, Some(1.0));
            assert_eq!((sliced.len(), whole), (us.len(), Vec::new()));
            length_us
        };
        assert_eq!(length(&[10.0, 20.0]), 5_000);
        assert_eq!(length(&[10.0, 183.0]), 7_500);
        assert_eq!(length(&[700.0, 20.0]), 20_000);
    }

    #[test]
    fn guests_that_cannot_be_frozen_soon_enough_are_whole() {
        let (sliced, _, whole) = divided(&[Ok(5.0), Err("no group".into()), Ok(900.0)], Some(0.02));
        let reasons = [(1, "no group".to_string()), (2, "it takes 0.9 ms to freeze a guest".into())];
        assert_eq!((sliced, whole), (vec![0], reasons.into()));
        assert!(SliceObservations::default().latency(0).unwrap_err().contains("not tried"));
    }

    #[test]
    fn slices_are_long_beside_what_one_environment_loses_more_than_another() {
        let of = |us: &[f64], margin: f64| {
            let all: Vec<_> = us.iter().map(|us| Ok(*us)).collect();
            divided(&all, Some(margin))
        };
        let all = |length_us: u32| (vec![0, 1, 2], length_us, Vec::new());
        assert_eq!(of(&[40.0, 40.0, 40.0], 0.02), all(5_000));
        // 50 us are half of a per cent of 10 ms.
        assert_eq!(of(&[50.0, 100.0, 60.0], 0.02), all(10_000));
        assert_eq!(of(&[50.0, 100.0, 60.0], 0.04), all(5_000));
        let (sliced, length_us, whole) = of(&[50.0, 300.0, 60.0], 0.02);
        assert_eq!((sliced, length_us), (vec![0, 2], 5_000));
        let [(1, said)] = whole.as_slice() else { panic!("{whole:?}") };
        assert!(said.contains("thawing b takes 0.25 ms longer than a"), "{said}");
        // The baseline takes part as long as anything does.
        let (sliced, _, whole) = of(&[300.0, 50.0, 60.0], 0.02);
        assert_eq!((sliced, whole.len()), (vec![0], 2));
        assert!(whole[0].1.contains("thawing a takes 0.25 ms longer than b"), "{whole:?}");
    }

    #[test]
    fn the_user_may_ignore_what_one_environment_loses_more_than_another() {
        let (sliced, _, whole) = divided(&[Ok(50.0), Ok(300.0)], None);
        assert_eq!((sliced, whole), (vec![0, 1], Vec::new()));
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
