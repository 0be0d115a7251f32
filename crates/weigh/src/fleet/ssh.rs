//! Runs a fleet by `ssh`.

use super::{Engine, Failure, Work, connected};
use weigh_model::{EnvironmentSpec, SpecError};
use weigh_platforms::fleet::FleetMachine;
use weigh_store::fleet::Fleet;

/// The engine.
pub struct Ssh;

impl Engine for Ssh {
    fn name(&self) -> &'static str {
        "ssh"
    }

    fn machines(&self, spec: &EnvironmentSpec) -> Result<Vec<(String, EnvironmentSpec)>, SpecError> {
        FleetMachine::check(spec)?;
        let host = spec.get("host").unwrap_or_default();
        let address = host.rsplit_once('@').map_or(host, |(_, address)| address);
        Ok(vec![(spec.get("label").unwrap_or(address).into(), spec.clone())])
    }

    fn changes(&self, fleet: &Fleet) -> Vec<String> {
        let of = |via: &str| {
            let spec = EnvironmentSpec::parse(via).ok()?;
            let directory = spec.get("directory").unwrap_or("/tmp").to_string();
            Some(format!(
                "on {}: make {directory}/weighbridge-fleet-... with a copy of weigh and the plan, and run it; removed once its run has been brought here",
                spec.get("host")?
            ))
        };
        fleet.machines.iter().filter_map(|machine| of(&machine.via)).collect()
    }

    fn carry_out(&self, work: &Work<'_>) -> Result<(), Failure> {
        connected::carry_out(work)
    }
}
