//! The comparisons of a workload: for every environment one number per block.

use super::value::{BlockValue, block_value};
use super::{Collector, ConcludedCell, CountingUnit};
use crate::analysis::Flag;
use crate::quantile;
use crate::warning::{Warning, WarningKind};
use weigh_model::{
    Comparison, Extraction, FailureKind, MetricSource, Observation, Outcome, Series, TrialFailure,
    WorkloadKey, WorkloadPlan,
};

impl<'a> Collector<'a> {
    pub(super) fn comparison(
        &mut self,
        workload: &WorkloadPlan,
        metric: &MetricSource,
        units: &[CountingUnit<'a>],
    ) -> Comparison {
        let plan = self.plan;
        let series =
            plan.environments.iter().map(|e| self.series(workload, metric, &e.name, units)).collect();
        Comparison {
            workload: workload.id.clone(),
            key: WorkloadKey::of(workload),
            metric: metric.spec.clone(),
            series,
        }
    }

    fn series(
        &mut self,
        workload: &WorkloadPlan,
        metric: &MetricSource,
        environment: &str,
        units: &[CountingUnit<'a>],
    ) -> Series {
        let mut series = Series::of(environment, Vec::new());
        let mut fewest: Option<u64> = None;
        let mut absent: Option<String> = None;
        for (block, trials) in units {
            let Some(trial) = trials.get(environment) else { continue };
            series.tried += 1;
            let Outcome::Measured { iterations } = &trial.outcome else {
                series.failed += 1;
                self.count_baseline_failure(workload, metric, environment, *block);
                continue;
            };
            match block_value(iterations, metric) {
                BlockValue::Value(value) => {
                    series.observations.push(Observation { block: Some(*block), value });
                }
                BlockValue::TooFew { samples } => fewest = Some(fewest.unwrap_or(samples).min(samples)),
                BlockValue::Absent(reason) => absent = absent.or(Some(reason)),
                BlockValue::Missing => {
                    series.failed += 1;
                    self.count_baseline_failure(workload, metric, environment, *block);
                    let failure = TrialFailure {
                        kind: FailureKind::Check,
                        reason: format!("an iteration gave no value for the metric `{}`", metric.spec.name),
                        log: None,
                    };
                    self.fail(environment, &workload.id, *block, false, &failure);
                }
            }
        }
        if let Some(reason) = absent {
            if matches!(metric.from, Extraction::Parser { .. }) {
                // Whether the tool could measure a value may depend on the value itself.
                series.observations.clear();
            }
            self.flag(Some(workload), Some(&metric.spec.name), environment, Flag::Absent);
            if let Some(flag) = self.collected.flags.last_mut() {
                flag.reason = Some(reason);
            }
        }
        if let Some(samples) = fewest {
            // The blocks with enough samples are not kept either: which blocks those are may depend
            // on the latency itself.
            series.observations.clear();
            self.refuse_quantile(workload, metric, environment, samples);
        }
        series
    }

    /// Counts a failure of the baseline in the cells of its workload that were still measured.
    fn count_baseline_failure(
        &mut self,
        workload: &WorkloadPlan,
        metric: &MetricSource,
        environment: &str,
        block: u32,
    ) {
        if environment != self.plan.baseline {
            return;
        }
        let of_it = |one: &&mut ConcludedCell| one.workload == workload.id && block < one.from_block;
        for concluded in self.concluded.values_mut().filter(of_it) {
            *concluded.baseline_failed.entry(metric.spec.name.clone()).or_default() += 1;
        }
    }

    fn refuse_quantile(
        &mut self,
        workload: &WorkloadPlan,
        metric: &MetricSource,
        environment: &str,
        samples: u64,
    ) {
        let Extraction::Quantile { quantile, .. } = metric.from else { return };
        self.flag(Some(workload), Some(&metric.spec.name), environment, Flag::TooFewForQuantile);
        let needed = quantile::fewest_samples(quantile);
        let kind = WarningKind::TooFewForQuantile { samples, needed };
        let warning = Warning::of(Some(&workload.id), Some(environment), kind);
        self.collected.warnings.push(warning.about_metric(&metric.spec.name));
    }
}
