//! Decides where load generators run.

use crate::error::{ExitKind, Failure};
use crate::host::HostView;
use weigh_model::EnvironmentSpec;
use weigh_platforms::loader::RemoteMachine;

/// The name of this host in `--loader`.
const THIS_HOST: &str = "host";

/// Parses the machine that `--loader` names; none for this host.
///
/// # Errors
/// A word is wrong (underlined).
pub fn parse(text: &str) -> Result<Option<RemoteMachine>, Failure> {
    if text == THIS_HOST {
        return Ok(None);
    }
    let machine = EnvironmentSpec::parse(text).and_then(|spec| RemoteMachine::of(&spec));
    machine.map(Some).map_err(|error| Failure::of_spec("--loader", &error))
}

/// Refuses a loader if no workload is a server.
///
/// # Errors
/// There is nothing to load.
pub fn check(machine: Option<&RemoteMachine>, serves: bool) -> Result<(), Failure> {
    if machine.is_none() || serves {
        return Ok(());
    }
    let hint = "leave it out, or name a workload that is a server, such as `redis`";
    Err(Failure::input("`--loader` has nothing to load: no workload of this run is a server").hint(hint))
}

/// Asks the machine, and returns it as a plan records it.
///
/// # Errors
/// The machine cannot be used; the error says what to do.
pub fn make_explicit(machine: &RemoteMachine, host: &mut dyn HostView) -> Result<EnvironmentSpec, Failure> {
    let explicit = host.make_loader_explicit(machine)?.map_err(|error| {
        let message = format!("{} cannot run load generators", machine.name());
        Failure::new(ExitKind::Failed, message).because(error)
    })?;
    host.note(&format!("load generators run on {}, guests get the CPUs of this host", machine.name()));
    Ok(explicit)
}

/// Checks the machine of a plan that was read from a file.
///
/// # Errors
/// As [`parse`].
pub fn check_planned(machine: Option<&EnvironmentSpec>) -> Result<(), Failure> {
    let machine = machine.map(RemoteMachine::of).transpose();
    machine.map(drop).map_err(|error| Failure::of_spec("loader", &error))
}
