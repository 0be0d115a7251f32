//! The limits of a gate between two builds.

use crate::WorkloadKey;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The largest change of the cost that a gate allows (method specification, "Gates of two builds").
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GateLimits {
    /// The limit of every metric that has no limit of its own, as a fraction above -1: .03 for 3 %.
    pub limit: f64,
    /// Limits of single metrics, by `workload.metric` with the name or the id of the workload, or
    /// by the name of the metric alone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub of: BTreeMap<String, f64>,
}

impl GateLimits {
    /// One limit for everything, as a fraction.
    pub fn all(limit: f64) -> Self {
        Self { limit, of: BTreeMap::new() }
    }

    /// The most specific limit that applies to a metric of the workload with this id and key.
    pub fn of(&self, id: &str, workload: &WorkloadKey, metric: &str) -> f64 {
        let own = Self::keys(id, workload, metric).into_iter().find_map(|key| self.of.get(&key));
        own.copied().unwrap_or(self.limit)
    }

    /// The keys that can hold the limit of a metric, the most specific first.
    pub fn keys(id: &str, workload: &WorkloadKey, metric: &str) -> [String; 3] {
        [format!("{id}.{metric}"), format!("{}.{metric}", workload.name), metric.to_string()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_limit_counts() {
        let of = [("time", 0.1), ("spawn.time", 0.2), ("spawn{size=1}.time", 0.3)];
        let limits = GateLimits { limit: 0.03, of: of.map(|(key, limit)| (key.to_string(), limit)).into() };
        let of = |id, name, metric| limits.of(id, &WorkloadKey::named(name), metric);
        assert_eq!(of("spawn{size=1}", "spawn", "time"), 0.3);
        assert_eq!(of("spawn{size=2}", "spawn", "time"), 0.2);
        assert_eq!(of("gups", "gups", "time"), 0.1);
        assert_eq!(of("gups", "gups", "rate"), 0.03);
        // Braces in a command line are not parameters.
        assert_eq!(of("awk {print}", "awk {print}", "rate"), 0.03);
    }
}
