//! Parity during a run: the recorded facts, those of the present instances, and the consequences.

use super::{Difference, Facts, ParityResult, Side, compare};
use crate::block::of_neighbours;
use crate::pool::State;
use crate::run::{Ended, Runner};
use crate::{RunnerError, UnequalEnvironment};
use weigh_model::{
    EnvironmentPlan, Exclusion, FailureKind, InstanceFacts, Plan, Record, TrialFailure, WorkloadPlan,
};

/// Instances of one machine may see slightly different amounts of memory, because the kernel's
/// location differs at every boot. A change by less than this share is ignored.
const SAME_MEMORY: f64 = 1.0 / 64.0;

/// Facts that a machine's kernel derives from the memory that it finds.
const MADE_OF_MEMORY: &[&str] = &["memory", "sysctl:net.ipv4.tcp_rmem", "sysctl:net.ipv4.tcp_wmem"];

/// The facts of a run's environments by their places in the plan.
#[derive(Debug)]
pub(crate) struct Parity {
    baseline: usize,
    /// The last facts on record.
    recorded: Vec<Option<InstanceFacts>>,
    /// Why trials of the present instance do not count.
    unequal: Vec<Option<TrialFailure>>,
    /// Whether all environments have been compared once since the run was begun or resumed.
    compared: bool,
}

impl Parity {
    /// Parity according to the records.
    pub(crate) fn new(plan: &Plan, records: &[Record]) -> Self {
        let place = |name: &str| plan.environments.iter().position(|environment| environment.name == name);
        let mut recorded: Vec<Option<InstanceFacts>> = vec![None; plan.environments.len()];
        for record in records {
            if let Record::Facts(facts) = record
                && let Some(environment) = place(&facts.environment)
            {
                recorded[environment] = Some(facts.clone());
            }
        }
        Self {
            baseline: place(&plan.baseline).unwrap_or(0),
            unequal: vec![None; recorded.len()],
            recorded,
            compared: false,
        }
    }

    /// Place of the baseline in the plan.
    pub(crate) fn baseline(&self) -> usize {
        self.baseline
    }

    /// Why trials of the present instance of an environment do not count, if they do not.
    pub(crate) fn unequal(&self, environment: usize) -> Option<&TrialFailure> {
        self.unequal[environment].as_ref()
    }

    /// Whether differences fail trials, instead of ending the run or leaving an environment out.
    pub(crate) fn is_compared(&self) -> bool {
        self.compared
    }

    /// From now on differences fail trials.
    pub(crate) fn mark_compared(&mut self) {
        self.compared = true;
    }
}

/// The facts known now: an instance that was not asked about its programs takes those of the
/// previous instance.
fn merged(before: Option<&Facts>, now: &Facts) -> Facts {
    let mut merged = before.cloned().unwrap_or_default();
    for (key, value) in now {
        let by_memory = MADE_OF_MEMORY.contains(&key.as_str());
        if !by_memory || !merged.get(key).is_some_and(|before| are_near(before, value)) {
            merged.insert(key.clone(), value.clone());
        }
    }
    merged
}

/// Whether two values differ by numbers that are nearly the same.
fn are_near(before: &str, now: &str) -> bool {
    let (before, now): (Vec<&str>, Vec<&str>) = (before.split(' ').collect(), now.split(' ').collect());
    let near = |(before, now): (&&str, &&str)| match (before.parse::<u64>(), now.parse::<u64>()) {
        (Ok(before), Ok(now)) => now.abs_diff(before) as f64 <= before as f64 * SAME_MEMORY,
        _ => before == now,
    };
    before.len() == now.len() && before.iter().zip(&now).all(near)
}

/// Differences in a sentence.
fn in_words(differences: &[Difference]) -> String {
    let words = |d: &Difference| format!("{} is {}, not {}", d.key, d.value, d.baseline_value);
    differences.iter().map(words).collect::<Vec<_>>().join("; ")
}

impl Runner<'_> {
    /// Compares the present instance of an environment with the baseline's and records what is new.
    /// Returns the unintended differences.
    fn compare_instance(&mut self, environment: usize) -> Result<Vec<Difference>, RunnerError> {
        let State::Running(instance) = &self.pool.entries[environment].state else { return Ok(Vec::new()) };
        let (number, implies) = (instance.number, self.pool.implies(environment));
        let before = self.parity.recorded[environment].as_ref();
        let facts = merged(before.map(|record| &record.facts), &instance.facts);
        let baseline = self.parity.baseline;
        let implied_by_baseline = self.pool.implies(baseline);
        let compared = match &self.parity.recorded[baseline] {
            Some(record) if environment != baseline => compare(
                Side { facts: &record.facts, implies: &implied_by_baseline },
                Side { facts: &facts, implies: &implies },
                &self.plan.allow_unequal,
            ),
            // Without a baseline there is no ratio that could be unfair.
            _ => ParityResult::default(),
        };
        let name = self.plan.environments[environment].name.clone();
        let change = before.map(|record| {
            compare(Side { facts: &record.facts, implies: &[] }, Side { facts: &facts, implies: &[] }, &[])
        });
        if before.is_none_or(|record| record.facts != facts || record.intended != compared.intended) {
            if let Some(change) = change.filter(|change| !change.refused.is_empty()) {
                self.journal.warn(format!("{name} has changed: {}", in_words(&change.refused)))?;
            }
            let record =
                InstanceFacts { environment: name, instance: number, facts, intended: compared.intended };
            self.journal.append(Record::Facts(record.clone()))?;
            self.parity.recorded[environment] = Some(record);
        }
        Ok(compared.refused)
    }

    /// Compares an environment that was just launched before the run's first block. Returns its
    /// differences when it cannot take part.
    pub(crate) fn refuses(&mut self, environment: usize) -> Result<Option<UnequalEnvironment>, RunnerError> {
        let differences = self.compare_instance(environment)?;
        let environment = self.plan.environments[environment].name.clone();
        Ok((!differences.is_empty()).then_some(UnequalEnvironment { environment, differences }))
    }

    /// Compares every instance of a block with the baseline's. In the first block of a run without
    /// a pilot this ends the run or leaves environments out; later it fails trials.
    pub(crate) fn compare_instances(&mut self, block: u32) -> Result<(), RunnerError> {
        let mut unequal = Vec::new();
        for environment in self.baseline_first() {
            if self.parity.is_compared() {
                self.judge(environment)?;
            } else {
                unequal.extend(self.refuses(environment)?);
            }
        }
        self.parity.mark_compared();
        self.conclude(block, unequal)
    }

    /// Like [`Runner::compare_instances`], for a block that begins with starts, whose guests are
    /// not asked anything. If it has not been done yet, launches an instance of every environment
    /// that takes part, one after the other, and stops it.
    pub(crate) fn compare_before_starts(
        &mut self,
        block: u32,
        open: &[(usize, u32)],
    ) -> Result<Ended, RunnerError> {
        if self.parity.is_compared() {
            return Ok(Ended::Done);
        }
        let mut unequal = Vec::new();
        for environment in self.baseline_first() {
            let active = |workload| self.journal.history().active(block, environment, workload);
            if !open.iter().any(|(workload, _)| active(*workload)) {
                continue;
            }
            if self.interrupted() {
                return Ok(Ended::Interrupted);
            }
            self.launch(environment)?;
            unequal.extend(self.refuses(environment)?);
            if let Some(message) = self.pool.stop(environment, State::Empty, &mut self.statistics) {
                self.journal.warn(message)?;
            }
        }
        self.parity.mark_compared();
        self.conclude(block, unequal)?;
        Ok(Ended::Done)
    }

    /// Ends the run because of environments that are unequal, or leaves them out.
    fn conclude(&mut self, block: u32, unequal: Vec<UnequalEnvironment>) -> Result<(), RunnerError> {
        if unequal.is_empty() {
            return Ok(());
        }
        if !self.plan.leave_out_unequal {
            return self.refuse(unequal);
        }
        for exclusion in self.left_out(&unequal, block) {
            self.journal.exclude(exclusion)?;
        }
        Ok(())
    }

    /// Decides whether trials of the present instance count.
    pub(crate) fn judge(&mut self, environment: usize) -> Result<(), RunnerError> {
        let differences = self.compare_instance(environment)?;
        self.parity.unequal[environment] = (!differences.is_empty()).then(|| TrialFailure {
            kind: FailureKind::Unequal,
            reason: format!("the guest is not like {}: {}", self.plan.baseline, in_words(&differences)),
            log: None,
        });
        Ok(())
    }

    /// Ends the run because environments are unequal; the reason is recorded in the run.
    pub(crate) fn refuse(&mut self, unequal: Vec<UnequalEnvironment>) -> Result<(), RunnerError> {
        let error = RunnerError::Unequal { baseline: self.plan.baseline.clone(), unequal };
        self.journal.file_warning(error.to_string())?;
        self.journal.flush()?;
        Err(error)
    }

    /// The exclusions of environments that are left out, first as measured and then as those of
    /// neighbours: of two reasons for one cell its own counts.
    pub(crate) fn left_out(&self, unequal: &[UnequalEnvironment], from_block: u32) -> Vec<Exclusion> {
        let exclusion = |environment: &str, workload: &WorkloadPlan, failure: TrialFailure| Exclusion {
            environment: environment.into(),
            workload: workload.id.clone(),
            from_block,
            failure,
        };
        let (mut own, mut of_others) = (Vec::new(), Vec::new());
        for unequal in unequal {
            let name = unequal.environment.as_str();
            let failure = TrialFailure {
                kind: FailureKind::Unequal,
                reason: format!(
                    "it is not like {}: {}; allow it with `--allow-unequal {}`",
                    self.plan.baseline,
                    in_words(&unequal.differences),
                    unequal.differences.iter().map(|d| d.key.as_str()).collect::<Vec<_>>().join(",")
                ),
                log: None,
            };
            let as_neighbours = of_neighbours(name, &failure);
            for workload in &self.plan.workloads {
                own.push(exclusion(name, workload, failure.clone()));
                let beside = workload.neighbours.as_ref().and_then(|all| all.environment.as_deref());
                if beside == Some(name) {
                    let others = self.plan.environments.iter().filter(|other| other.name != name);
                    let exclusion =
                        |other: &EnvironmentPlan| exclusion(&other.name, workload, as_neighbours.clone());
                    of_others.extend(others.map(exclusion));
                }
            }
        }
        own.extend(of_others);
        own
    }

    /// Places of all environments, the baseline's first: the others are compared with it.
    pub(crate) fn baseline_first(&self) -> Vec<usize> {
        let baseline = self.parity.baseline();
        let others = (0..self.plan.environments.len()).filter(|environment| *environment != baseline);
        std::iter::once(baseline).chain(others).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(pairs: &[(&str, &str)]) -> Facts {
        pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
    }

    #[test]
    fn facts_that_are_not_read_again_stay() {
        let before = facts(&[("binary:x", "a"), ("cpus", "2")]);
        let now = merged(Some(&before), &facts(&[("cpus", "1")]));
        assert_eq!(now, facts(&[("binary:x", "a"), ("cpus", "1")]));
        assert_eq!(merged(None, &before), before);
    }

    #[test]
    fn a_little_more_memory_is_no_change() {
        let before = facts(&[("memory", "1000000000 bytes")]);
        let of = |bytes: &str| merged(Some(&before), &facts(&[("memory", bytes)]))["memory"].clone();
        assert_eq!(of("1000100000 bytes"), "1000000000 bytes");
        assert_eq!(of("900000000 bytes"), "900000000 bytes");
        assert!(are_near("4096 131072 4183424", "4096 131072 4184000"));
        assert!(!are_near("4096 131072 4183424", "4096 131072 6291456"));
        assert!(!are_near("4096 16384", "4096 16384 4194304"));
    }
}
