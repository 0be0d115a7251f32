//! A guest on another machine: a connection with the probe at its other end, or commands one by one
//! where the probe does not run.

use super::PLATFORM;
use super::keeper::{Kept, log_of};
use super::scripts::Script;
use super::shell::Shell;
use super::target::Target;
use crate::oci::with_tail;
use crate::stand_in::StandIn;
use crate::{Guest, GuestRequest, Host, PlatformError, Session};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use weigh_host::accounts::Accounts;
use weigh_host::cgroup::Cgroup;
use weigh_host::clock::monotonic_ns;
use weigh_host::command::Running;
use weigh_images::KERNELS;

/// From the start of `ssh` to the probe's hello.
const HELLO_DEADLINE: Duration = Duration::from_secs(40);
/// For the probe to agree to end.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(3);
/// For `ssh` to end after that.
const EXIT_DEADLINE: Duration = Duration::from_secs(5);

/// What answers for a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GuestBy {
    /// The probe, over there.
    Probe,
    /// A stand-in here, which has every command run by an `ssh` of its own.
    Shell,
}

impl GuestBy {
    /// As the key `by` has it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Probe => "probe",
            Self::Shell => "shell",
        }
    }
}

/// A guest on another machine.
pub(super) struct SshGuest {
    talk: Talk,
    target: Target,
    /// Where the machine sees this host.
    client: Option<IpAddr>,
    directory: String,
    /// For files of commands, in the guest's own directory.
    scratch: PathBuf,
    kernels: PathBuf,
    name: String,
    log: PathBuf,
    spawned_ns: u64,
    stopped: bool,
}

enum Talk {
    Probe {
        /// None once it has been taken down.
        running: Option<Running>,
        session: Session,
    },
    Shell(StandIn),
}

/// Starts a guest where a directory is held.
pub(super) fn launch(
    host: &Host,
    request: &GuestRequest,
    kept: &Arc<Kept>,
) -> Result<SshGuest, PlatformError> {
    match kept.by {
        GuestBy::Probe => launch_by_probe(host, request, kept),
        GuestBy::Shell => {
            let spawned_ns = monotonic_ns();
            let (name, log) = (name(request.instance), log_of(host, request.instance));
            let shell = Shell::new(kept, &name, &log);
            let talk = Talk::Shell(StandIn::start(PLATFORM, shell)?);
            Ok(SshGuest::new(talk, kept, name, log, spawned_ns))
        }
    }
}

/// Starts the probe over there and returns when it has said hello.
pub(super) fn launch_by_probe(
    host: &Host,
    request: &GuestRequest,
    kept: &Kept,
) -> Result<SshGuest, PlatformError> {
    let (name, log) = (name(request.instance), log_of(host, request.instance));
    let cpus = request.environment.get("cpus").and_then(|count| count.parse().ok());
    let failed = |reason: &str| PlatformError::Launch {
        platform: PLATFORM,
        reason: format!("{}: {}", kept.target.host, with_tail(reason, &log)),
        log: Some(log.clone()),
    };
    let spawned_ns = monotonic_ns();
    let script = Script::Guest(&kept.directory, &name, cpus);
    let mut running = kept.target.invocation(&script).log_to(&log).spawn()?;
    let (Some(input), Some(output)) = (running.take_input(), running.take_output()) else {
        return Err(failed("ssh has no standard streams"));
    };
    let talk = Talk::Probe { running: Some(running), session: Session::new(output, input) };
    let mut guest = SshGuest::new(talk, kept, name, log.clone(), spawned_ns);
    let hello = guest.session().hello(HELLO_DEADLINE).map_err(|error| failed(&error.to_string()));
    let counted = hello.and_then(|_| match cpus {
        None => Ok(()),
        Some(wanted) => match guest.session().facts(&[], &[])?.cpus.len() {
            has if has == wanted => Ok(()),
            has => Err(failed(&format!("it has {has} CPUs, fewer than the key cpus={wanted} asks for"))),
        },
    });
    // One that did not come up is dropped, and with that undone.
    counted.map(|()| guest)
}

fn name(instance: u64) -> String {
    match instance {
        u64::MAX => "guest-copy".into(),
        instance => format!("guest-{instance}"),
    }
}

impl SshGuest {
    fn new(talk: Talk, kept: &Kept, name: String, log: PathBuf, spawned_ns: u64) -> Self {
        let (target, directory) = (kept.target.clone(), kept.directory.clone());
        let client = kept.machine.client;
        let scratch = Path::new(&directory).join(&name).join("scratch");
        let kernels = Path::new(&directory).join(Path::new(KERNELS).file_name().unwrap_or_default());
        Self { talk, target, client, directory, scratch, kernels, name, log, spawned_ns, stopped: false }
    }

    /// Whether the other side said that nothing of the guest is left.
    fn took_leave(&mut self) -> bool {
        match &mut self.talk {
            Talk::Probe { running, session } => {
                let asked = !session.is_lost() && session.shutdown(SHUTDOWN_DEADLINE).is_ok();
                session.close();
                let Some(ssh) = running else { return false };
                let patience = if asked { EXIT_DEADLINE } else { Duration::ZERO };
                let ended = ssh.wait(patience);
                ssh.kill_group();
                *running = None;
                matches!(ended, Ok(Some(status)) if status.success())
            }
            // A job that runs is ended by the closing of its connection, and nobody says whether it
            // was.
            Talk::Shell(stand_in) => stand_in.stop(),
        }
    }
}

impl Guest for SshGuest {
    fn session(&mut self) -> &mut Session {
        match &mut self.talk {
            Talk::Probe { session, .. } => session,
            Talk::Shell(stand_in) => stand_in.session(),
        }
    }

    fn scratch(&self) -> Option<&Path> {
        Some(&self.scratch)
    }

    fn kernels(&self) -> &Path {
        &self.kernels
    }

    /// The client alone: what it is a client of is on another machine.
    fn processes(&self) -> Vec<u32> {
        match &self.talk {
            Talk::Probe { running, .. } => running.iter().map(Running::pid).collect(),
            Talk::Shell(stand_in) => stand_in.processes(),
        }
    }

    fn cgroup(&self) -> Option<&Cgroup> {
        None
    }

    /// Nobody here: the work is done on another machine, and the client does none of it.
    fn accounts(&self) -> Accounts {
        Accounts::default()
    }

    fn facts(&self) -> BTreeMap<String, String> {
        let facts = [("network", "of another machine"), ("acceleration", "not known")];
        facts.map(|(key, value)| (key.into(), value.into())).into()
    }

    fn seen_host(&self) -> Option<IpAddr> {
        self.client
    }

    fn log(&self) -> Option<PathBuf> {
        Some(self.log.clone())
    }

    fn spawned_ns(&self) -> u64 {
        self.spawned_ns
    }

    fn freeze(&mut self) -> Result<(), PlatformError> {
        Err(cannot_freeze())
    }

    fn thaw(&mut self) -> Result<(), PlatformError> {
        Err(cannot_freeze())
    }

    fn stop(&mut self) -> Result<(), PlatformError> {
        if self.stopped {
            return Ok(());
        }
        if !self.took_leave() {
            let script = Script::End(&self.directory, &self.name);
            self.target.run(&script, Some(Path::new(&self.log))).map_err(|error| PlatformError::Stop {
                platform: PLATFORM,
                reason: format!("what is left of it on {} is not known: {error}", self.target.host),
            })?;
        }
        self.stopped = true;
        Ok(())
    }
}

impl Drop for SshGuest {
    fn drop(&mut self) {
        // What could not be undone is in the directory, which the ledger has.
        let _ = self.stop();
    }
}

fn cannot_freeze() -> PlatformError {
    let what = "a way to freeze what runs on another machine".into();
    PlatformError::Missing { what, remedy: None }
}
