//! Where load generators run, from the command line to a plan.

use crate::error::{Failure, Kind};
use crate::request::Surroundings;
use weigh_model::EnvironmentSpec;
use weigh_platforms::loader::Elsewhere;

/// The word for this host.
const HERE: &str = "host";

/// The machine that `--loader` names; none for this host.
///
/// # Errors
/// The word that is wrong, underlined.
pub fn named(text: &str) -> Result<Option<Elsewhere>, Failure> {
    if text == HERE {
        return Ok(None);
    }
    let machine = EnvironmentSpec::parse(text).and_then(|spec| Elsewhere::of(&spec));
    machine.map(Some).map_err(|error| Failure::of_spec("--loader", &error))
}

/// Whether there is anything to load for a machine that is named.
///
/// # Errors
/// There is not.
pub fn check(machine: Option<&Elsewhere>, serves: bool) -> Result<(), Failure> {
    if machine.is_none() || serves {
        return Ok(());
    }
    let hint = "leave it out, or name a workload that is a server, such as `redis`";
    Err(Failure::input("no workload of this run is a server, and `--loader` says who loads one").hint(hint))
}

/// The machine as a plan has it, after asking it.
///
/// # Errors
/// It cannot be used, with what to do.
pub fn settle(machine: &Elsewhere, here: &mut dyn Surroundings) -> Result<EnvironmentSpec, Failure> {
    let settled = here.settle_loader(machine)?.map_err(|error| {
        let message = format!("{} cannot run load generators", machine.name());
        Failure::new(Kind::Failed, message).because(error)
    })?;
    here.note(&format!("load generators run on {}, guests get the CPUs of this host", machine.name()));
    Ok(settled)
}

/// Checks the machine of a plan that was read from a file.
///
/// # Errors
/// As [`named`].
pub fn read(machine: Option<&EnvironmentSpec>) -> Result<(), Failure> {
    let machine = machine.map(Elsewhere::of).transpose();
    machine.map(drop).map_err(|error| Failure::of_spec("loader", &error))
}
