//! The limits of a gate between two builds.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The largest change of the cost that a gate allows (method specification, "Gates of two builds").
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GateLimits {
    /// Of every metric that has no limit of its own, as a fraction above -1: .03 for 3 %.
    pub limit: f64,
    /// Of metrics by `workload.metric`, with the name or the id of the workload, or by the name of
    /// the metric alone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub of: BTreeMap<String, f64>,
}

impl GateLimits {
    /// One limit for everything, as a fraction.
    pub fn all(limit: f64) -> Self {
        Self { limit, of: BTreeMap::new() }
    }

    /// The limit of a metric of a workload, given by its id: the most specific that there is.
    pub fn of(&self, workload: &str, metric: &str) -> f64 {
        let own = Self::keys(workload, metric).into_iter().find_map(|key| self.of.get(&key));
        own.copied().unwrap_or(self.limit)
    }

    /// The keys under which the limit of a metric may stand, the most specific first.
    pub fn keys(workload: &str, metric: &str) -> [String; 3] {
        let name = workload.split('{').next().unwrap_or(workload);
        [format!("{workload}.{metric}"), format!("{name}.{metric}"), metric.to_string()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_limit_counts() {
        let of = [("time", 0.1), ("spawn.time", 0.2), ("spawn{size=1}.time", 0.3)];
        let limits = GateLimits { limit: 0.03, of: of.map(|(key, limit)| (key.to_string(), limit)).into() };
        assert_eq!(limits.of("spawn{size=1}", "time"), 0.3);
        assert_eq!(limits.of("spawn{size=2}", "time"), 0.2);
        assert_eq!(limits.of("gups", "time"), 0.1);
        assert_eq!(limits.of("gups", "rate"), 0.03);
    }
}
