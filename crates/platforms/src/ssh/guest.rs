//! A guest on another machine: a connection with the probe at its other end or, where the probe
//! does not run, one connection per command.

use super::PLATFORM;
use super::remote_directory::{RemoteDirectory, log_of};
use super::scripts::Script;
use super::shell::Shell;
use super::target::Target;
use crate::exec::ExecRequest;
use crate::guest::{Backend, CoreGuest, GuestCore, with_tail};
use crate::host_probe::HostProbe;
use crate::{GuestRequest, Host, PlatformError, Result, Session};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use weigh_host::accounts::Accounts;
use weigh_host::command::{Invocation, Running};
use weigh_images::KERNELS;

/// Time limit from the start of `ssh` to the probe's hello.
const HELLO_DEADLINE: Duration = Duration::from_secs(40);
/// Time limit for the probe to agree to end.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(3);
/// Time limit for `ssh` to exit after that.
const EXIT_DEADLINE: Duration = Duration::from_secs(5);

/// What runs a guest's commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommandTransport {
    /// The probe, on the other machine.
    Probe,
    /// A thread on this host, which runs every command through its own `ssh`.
    Shell,
}

impl CommandTransport {
    /// The value of the key `by`.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Probe => "probe",
            Self::Shell => "shell",
        }
    }
}

/// A guest on another machine.
pub(super) struct RemoteGuest {
    target: Target,
    /// This host's address as the machine sees it.
    client: Option<IpAddr>,
    directory: String,
    name: String,
    /// The thread that takes the probe's place, where commands are run one by one.
    probe: Option<HostProbe>,
}

/// Starts a guest in a directory that is held.
pub(super) fn launch(
    host: &Host,
    request: &GuestRequest,
    remote: &Arc<RemoteDirectory>,
) -> Result<CoreGuest<RemoteGuest>> {
    if remote.by == CommandTransport::Probe {
        return launch_by_probe(host, request, remote);
    }
    let (mut core, mut guest) = parts(host, request, remote);
    core.start_clock();
    let (probe, session) = HostProbe::start(PLATFORM, Shell::new(remote, &guest.name, &core.log))?;
    (core.session, guest.probe) = (Some(session), Some(probe));
    Ok(CoreGuest::new(core, guest))
}

/// Starts the probe on the other machine and returns when it has said hello.
pub(super) fn launch_by_probe(
    host: &Host,
    request: &GuestRequest,
    remote: &RemoteDirectory,
) -> Result<CoreGuest<RemoteGuest>> {
    let (core, guest) = parts(host, request, remote);
    let cpus: Option<usize> = request.environment.get("cpus").and_then(|count| count.parse().ok());
    CoreGuest::launch(core, guest, |guest, core| {
        let machine = &guest.target.host;
        let failed = |core: &GuestCore, reason: &str| {
            core.failed_as(format!("{machine}: {}", with_tail(reason, &core.log)))
        };
        core.start_clock();
        let script = Script::Guest(&guest.directory, &guest.name, cpus);
        core.program = Some(guest.target.invocation(&script).log_to(&core.log).spawn()?);
        let hello = core.open_session(Session::new)?.hello(weigh_host::deadlines::scaled(HELLO_DEADLINE));
        hello.map_err(|error| failed(core, &error.to_string()))?;
        let (Some(wanted), Some(session)) = (cpus, &mut core.session) else { return Ok(()) };
        match session.facts(&[], &[])?.cpus.len() {
            has if has == wanted => Ok(()),
            has => {
                let reason = format!("it has {has} CPUs, fewer than the key cpus={wanted} asks for");
                Err(failed(core, &reason))
            }
        }
    })
}

/// What both kinds of guests start from.
fn parts(host: &Host, request: &GuestRequest, remote: &RemoteDirectory) -> (GuestCore, RemoteGuest) {
    let name = match request.instance {
        u64::MAX => "guest-copy".into(),
        instance => format!("guest-{instance}"),
    };
    let directory = Path::new(&remote.directory);
    let mut core = GuestCore::new(PLATFORM, host, request);
    core.log = log_of(host, request.instance);
    // For files of commands; it is in the guest's own directory.
    core.scratch = Some(directory.join(&name).join("scratch"));
    core.kernels = directory.join(Path::new(KERNELS).file_name().unwrap_or_default());
    let facts = [("network", "of another machine"), ("acceleration", "not known")];
    core.facts = facts.map(|(key, value)| (key.into(), value.into())).into();
    let guest = RemoteGuest {
        target: remote.target.clone(),
        client: remote.machine.client,
        directory: remote.directory.clone(),
        name,
        probe: None,
    };
    (core, guest)
}

impl RemoteGuest {
    /// Ends the guest; returns whether the other side confirmed that nothing of it is left.
    fn left_nothing(&mut self, core: &mut GuestCore) -> bool {
        // A running job ends when its connection closes, and nobody confirms that.
        if let Some(probe) = &mut self.probe {
            return probe.stop();
        }
        let agreed = core.shut_down(SHUTDOWN_DEADLINE);
        let Some(mut ssh) = core.program.take() else { return false };
        let ended = ssh.wait(if agreed { EXIT_DEADLINE } else { Duration::ZERO });
        ssh.kill_group();
        matches!(ended, Ok(Some(status)) if status.success())
    }
}

impl Backend for RemoteGuest {
    /// Only the client; the processes that it starts are on another machine.
    fn processes(&self, core: &GuestCore) -> Vec<u32> {
        match &self.probe {
            Some(probe) => probe.processes(),
            None => core.program.iter().map(Running::pid).collect(),
        }
    }

    /// None on this host: the work is done on another machine, and the client does none of it.
    fn accounts(&self, _: &GuestCore) -> Accounts {
        Accounts::default()
    }

    fn seen_host(&self) -> Option<IpAddr> {
        self.client
    }

    /// A connection of its own.
    fn client(&self, _: &GuestCore, request: &ExecRequest<'_>) -> Result<Invocation> {
        Ok(self.target.invocation(&Script::Exec(request.argv)))
    }

    fn set_frozen(&mut self, _: &mut GuestCore, _: bool) -> Result<()> {
        let reason = "weigh cannot freeze what runs on another machine".into();
        Err(PlatformError::Unavailable { reason, remedy: None })
    }

    /// What could not be ended is in the directory, which the ledger records.
    fn end(&mut self, core: &mut GuestCore) -> Result<()> {
        if self.left_nothing(core) {
            return Ok(());
        }
        let script = Script::End(&self.directory, &self.name);
        self.target.run(&script, Some(core.log.as_path())).map(|_| ()).map_err(|error| {
            let host = &self.target.host;
            PlatformError::StillThere(format!("what is left of it on {host} is not known: {error}"))
        })
    }
}
