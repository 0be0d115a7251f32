//! The selftest: comparisons with a known truth, made like any other comparison, show whether the
//! method keeps its promises on this host.
//!
//! ```text
//! design      comparisons of native with itself, some with an effect of a known size, in random order
//! conduct     each is a run of its own: plan, blocks, records on disk, statistics
//! judgement   false positives, power and coverage against the bands that chance explains
//! tools       apart from these: the built-in kernels against the tools that they stand for
//! ```

use std::collections::BTreeMap;
use weigh_model::{
    Effort, EnvironmentPlan, GuestPlan, ImageSpec, NoiseLimits, PLAN_FORMAT, Plan, WorkloadPlan,
};

pub mod conduct;
pub mod design;
pub mod judgement;
pub mod tools;

/// A plan with the defaults of everything that a selftest does not choose.
fn plan(
    name: String,
    seed: u64,
    environments: Vec<EnvironmentPlan>,
    workloads: Vec<WorkloadPlan>,
    blocks: u32,
    digests: &BTreeMap<String, String>,
) -> Plan {
    Plan {
        format: PLAN_FORMAT,
        name,
        tool_version: env!("CARGO_PKG_VERSION").into(),
        command: None,
        seed,
        baseline: environments[0].name.clone(),
        environments,
        workloads,
        effort: Effort::Fixed { blocks },
        budget_s: None,
        guest: GuestPlan {
            image: ImageSpec::Probe,
            cpus: Vec::new(),
            memory_bytes: None,
            reuse: false,
            working_directory: None,
        },
        margin: weigh_stats::Options::MARGIN,
        allow_unequal: Vec::new(),
        noise: NoiseLimits::default(),
        loader: None,
        digests: digests.clone(),
    }
}

#[cfg(test)]
mod tests;
