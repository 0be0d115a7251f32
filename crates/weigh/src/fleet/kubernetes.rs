//! Runs a fleet on the nodes of a Kubernetes cluster: one privileged pod on each, which `kubectl`
//! makes, enters and deletes.

use super::{Engine, Failure, Work, connected};
use weigh_model::{EnvironmentSpec, SpecError};
use weigh_platforms::fleet;
use weigh_store::fleet::Fleet;

/// The engine.
pub struct Kubernetes;

impl Engine for Kubernetes {
    fn name(&self) -> &'static str {
        "kubernetes"
    }

    fn machines(&self, spec: &EnvironmentSpec) -> Result<Vec<(String, EnvironmentSpec)>, SpecError> {
        fleet::nodes(spec)
    }

    fn changes(&self, fleet: &Fleet) -> Vec<String> {
        let of = |via: &str| {
            let spec = EnvironmentSpec::parse(via).ok()?;
            let namespace = match spec.get("namespace") {
                Some(given) => format!("in the namespace {given}"),
                None => "in a namespace of its own".into(),
            };
            Some(format!(
                "in the cluster of the context {}: make a privileged pod weighbridge-fleet-... on the node {}, {namespace}, and run weigh in it; deleted once its run has been brought here",
                spec.get("context")?,
                spec.get("nodes")?
            ))
        };
        fleet.machines.iter().filter_map(|machine| of(&machine.via)).collect()
    }

    fn carry_out(&self, work: &Work<'_>) -> Result<(), Failure> {
        connected::carry_out(work)
    }
}
