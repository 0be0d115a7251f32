//! Whether the load generator limited the measurement (method specification, "Loader headroom").

use super::{Circumstances, LoaderSummary};
use crate::estimate::count;
use crate::rank;
use crate::warning::WarningKind;
use weigh_model::{
    Better, Extraction, Headroom, LoadLoop, MetricSource, OpenLoopRate, Outcome, Trial, WorkloadPlan,
};

/// The largest share of a window for which the busiest CPU of a load generator may be busy. Beyond
/// it the load generator has no time for more requests, and a faster server would not show.
pub const LOADER_BOUND_SHARE: f64 = 0.70;

/// The load generator of a cell; `None` if no trial has one.
pub(crate) fn summary<'t>(
    workload: &WorkloadPlan,
    environment: &str,
    trials: impl Iterator<Item = &'t Trial>,
    headroom: &[&Headroom],
    paces: &[&OpenLoopRate],
) -> Option<LoaderSummary> {
    let server = workload.staging.server.as_ref()?;
    let (mut shares, mut reached) = (Vec::new(), Vec::new());
    for trial in trials {
        let Outcome::Measured { iterations } = &trial.outcome else { continue };
        let observed = trial.observed.as_deref();
        let share = observed.and_then(|o| o.loader.as_ref().map(|loader| loader.busiest_share(o.window_ns)));
        shares.extend(share);
        reached.extend(workload.reached(iterations));
    }
    // A run that was resumed before its first trial has two pilots; the later one counts.
    let proven = headroom.iter().rev().find(|h| h.workload == workload.id && h.environment == environment);
    let operation = reached.first().map(|(name, _)| *name).or(proven.map(|h| h.operation.as_str()));
    let trials = count(shares.len());
    Some(LoaderSummary {
        workload: workload.id.clone(),
        environment: environment.into(),
        closed: server.kind == LoadLoop::Closed,
        trials,
        busiest_share: rank::median_of(shares)?,
        operation: operation.unwrap_or_default().into(),
        headroom_per_s: proven.map(|h| h.rate_per_s),
        paced: paces.iter().rev().find(|paced| paced.workload == workload.id).map(|paced| (*paced).clone()),
        reached_per_s: rank::median_of(reached.iter().map(|(_, rate)| *rate)),
    })
}

/// A server keeps up if it serves at least this share of the requests. Poisson arrivals vary by
/// some per cent in a short load.
const KEEPS_UP_SHARE: f64 = 0.90;

impl LoaderSummary {
    /// Whether the load generator had no time left for more requests.
    pub fn is_bound(&self) -> bool {
        self.busiest_share > LOADER_BOUND_SHARE
    }

    /// A warning if its CPUs were too busy.
    pub(crate) fn warning(&self) -> Option<WarningKind> {
        let share = self.busiest_share;
        self.is_bound().then_some(WarningKind::LoaderBound { share, trials: self.trials })
    }

    /// A warning if the server did not serve the rate of requests.
    pub fn behind(&self) -> Option<WarningKind> {
        let (paced, served_per_s) = (self.paced.as_ref()?, self.reached_per_s?);
        let offered_per_s = paced.rate_per_s;
        (served_per_s < KEEPS_UP_SHARE * offered_per_s)
            .then_some(WarningKind::FellBehind { offered_per_s, served_per_s })
    }
}

/// Whether a metric is a throughput, which a load generator without time left would limit: a rate,
/// or the duration of the whole load.
pub(crate) fn is_throughput(metric: &MetricSource) -> bool {
    metric.spec.better == Better::Higher || metric.from == Extraction::Duration
}

impl Circumstances {
    /// The load generator of a cell.
    pub fn loader(&self, workload: &str, environment: &str) -> Option<&LoaderSummary> {
        self.loaders.iter().find(|loader| loader.workload == workload && loader.environment == environment)
    }
}
