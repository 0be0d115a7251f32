//! What the runtimes of the Open Container Initiative have in common: a bundle, a state directory, and the commands
//! `run`, `kill` and `delete`.
//!
//! The container is run in the foreground, so that the runtime itself waits for it and takes it away when it ends. Its
//! standard streams are the channel to the probe.

mod bundle;
pub(crate) mod freezer;
pub(crate) mod mounts;
pub(crate) mod own_layer;
pub(crate) mod witness;

use crate::{Availability, Guest, GuestRequest, Host, Platform, PlatformError, Session};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use weigh_host::accounts::{Accounts, Process};
use weigh_host::cgroup::{Cgroup, Layout, Limits};
use weigh_host::clock::monotonic_ns;
use weigh_host::command::{Invocation, Running, find_program};
use weigh_host::ledger::{Change, EntryId, Ledger};
use weigh_images::Root;
use weigh_model::{EnvironmentSpec, ImageSpec};
use witness::Witness;

/// From the start of the runtime to the probe's hello; a loaded machine may need a second.
const HELLO_DEADLINE: Duration = Duration::from_secs(15);
/// For the probe to end when it is asked to.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(2);
/// For the runtime to take a container away whose processes have ended.
const EXIT_DEADLINE: Duration = Duration::from_secs(5);
/// For any command of the runtime.
const COMMAND_DEADLINE: Duration = Duration::from_secs(20);
/// How much of a log's end an error message tells, bytes.
const TAIL: usize = 600;

/// One runtime.
#[derive(Debug, Clone)]
pub(crate) struct Runtime {
    /// Name of the platform.
    pub(crate) platform: &'static str,
    /// The program.
    pub(crate) binary: PathBuf,
    /// Where it keeps its state.
    pub(crate) state: PathBuf,
}

impl Runtime {
    /// The runtime of a request: the binary that its keys name, or the one that is installed.
    ///
    /// # Errors
    /// [`PlatformError::Missing`] with the remedy.
    pub(crate) fn find(
        platform: &'static str,
        host: &Host,
        binary: &str,
        remedy: &str,
    ) -> Result<Self, PlatformError> {
        if !host.is_root {
            let what = format!("the right to make containers with {platform}");
            return Err(PlatformError::Missing { what, remedy: Some("run weigh as root".into()) });
        }
        let name = if binary.is_empty() { platform } else { binary };
        let binary = find_program(name).ok_or_else(|| PlatformError::Missing {
            what: format!("the program {name}"),
            remedy: Some(remedy.into()),
        })?;
        // What goes into the ledger is undone by another process, maybe in another directory.
        let binary = binary.canonicalize().map_err(PlatformError::io(format!("resolve {name}")))?;
        Ok(Self { platform, binary, state: host.work.join(format!("{platform}-state")) })
    }

    fn command(&self) -> Invocation {
        Invocation::new(&self.binary).arg("--root").arg(&self.state).deadline(COMMAND_DEADLINE)
    }

    /// First line of `--version`.
    ///
    /// # Errors
    /// Those of running it.
    pub(crate) fn version(&self) -> Result<String, PlatformError> {
        let output =
            Invocation::new(&self.binary).arg("--version").deadline(COMMAND_DEADLINE).run_ok()?.output;
        Ok(String::from_utf8_lossy(&output).lines().next().unwrap_or_default().trim().into())
    }

    /// Starts a container and returns when its probe has said hello.
    ///
    /// # Errors
    /// It did not come up; what was made is undone.
    pub(crate) fn launch(
        self,
        host: &Host,
        request: &GuestRequest,
        own_network: bool,
    ) -> Result<OciGuest, PlatformError> {
        let name = format!("{}-{}", self.platform, request.instance);
        let id = format!("weighbridge-{}-{}", host.run, request.instance);
        let cgroup_name = format!("weighbridge-{}/{name}", host.run);
        let log = host.logs.join(format!("{name}.log"));
        let bundle = host.work.join(&name);
        let container = bundle::Container {
            root: &request.root,
            cgroup: &Path::new("/").join(&cgroup_name),
            cpus: &request.cpus,
            memory_bytes: request.memory_bytes,
            own_network,
        };
        bundle::write(&bundle, &container)
            .map_err(PlatformError::io(format!("write the bundle {}", bundle.display())))?;
        record_controllers(host)?;
        // The container is recorded before its control group, so that after a crash the group is undone first: that kills the
        // container whatever state it is in, and the runtime has only its own files left to remove.
        let entry = host.ledger.record(Change::Platform {
            platform: self.platform.into(),
            what: "container".into(),
            id: id.clone(),
            detail: json!({"binary": self.binary, "state": self.state}),
        })?;
        let mut guest = OciGuest {
            runtime: self,
            id,
            bundle,
            ledger: host.ledger.clone(),
            entry,
            cgroup: None,
            running: None,
            spawned_ns: 0,
            session: None,
            witness: Witness::default(),
        };
        match guest.start(host, request, &cgroup_name, &log) {
            Ok(()) => Ok(guest),
            Err(error) => {
                // The first error is the one to tell; what cannot be undone stays in the ledger.
                let _ = guest.stop();
                Err(error)
            }
        }
    }
}

/// Whether a platform can be used, proven by a guest that holds only the probe. `prove` launches it from the request and tells the
/// platform's version.
pub(crate) fn availability(
    platform: &dyn Platform,
    host: &Host,
    prove: impl FnOnce(&GuestRequest) -> Result<String, PlatformError>,
) -> Availability {
    // Numbers that no run comes to, so that the guest's names are not taken.
    static NEXT: AtomicU64 = AtomicU64::new(1 << 32);
    let instance = NEXT.fetch_add(1, Ordering::Relaxed);
    let work = host.work.join(format!("{}-{instance}-root", platform.name()));
    let proven = Root::prepare(&ImageSpec::Probe, &host.programs, &work, None)
        .map_err(PlatformError::from)
        .and_then(|root| {
            let environment = EnvironmentSpec::new(platform.name(), Default::default());
            let (cpus, memory_bytes) = (Vec::new(), None);
            let root = Arc::new(root);
            prove(&GuestRequest { environment, instance, root, cpus, memory_bytes, publish: Vec::new() })
        });
    // It lies in the run's work directory, which is in the ledger; leaving it costs only space.
    let _ = fs::remove_dir_all(&work);
    match proven {
        Ok(detail) => Availability::Ready { detail },
        Err(PlatformError::Missing { what, remedy }) => {
            Availability::Missing { reason: format!("{what} is missing"), remedy }
        }
        Err(error) => Availability::Missing { reason: with_causes(&error), remedy: None },
    }
}

/// An error and what caused it, on one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.ends_with(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}

/// Takes away what a crash left of a container. The processes are gone with their control group by now, as a rule.
///
/// # Errors
/// Why its state is still there.
pub(crate) fn undo(what: &str, id: &str, detail: &Value) -> Result<(), String> {
    let path = |name: &str| detail.get(name).and_then(Value::as_str).map(PathBuf::from);
    let (Some(binary), Some(state)) = (path("binary"), path("state")) else {
        return Err(format!("the ledger does not say where the {what} {id} is"));
    };
    if !state.join(id).exists() {
        return Ok(());
    }
    let delete = Invocation::new(binary).arg("--root").arg(&state).args(["delete", "--force", id]);
    delete.deadline(COMMAND_DEADLINE).run_ok().map(|_| ()).map_err(|error| error.to_string())
}

/// With control groups of version 2 a runtime switches on every controller on the way down from the root: written down first.
fn record_controllers(host: &Host) -> Result<(), PlatformError> {
    if host.hierarchy.layout() != Layout::V2 {
        return Ok(());
    }
    let root = Path::new("/sys/fs/cgroup");
    let read = |name: &str| fs::read_to_string(root.join(name)).unwrap_or_default();
    let (all, on) = (read("cgroup.controllers"), read("cgroup.subtree_control"));
    let added: Vec<String> = all
        .split_whitespace()
        .filter(|word| !on.split_whitespace().any(|on| on == *word))
        .map(Into::into)
        .collect();
    if !added.is_empty() {
        host.ledger.record(Change::SubtreeControl { file: root.join("cgroup.subtree_control"), added })?;
    }
    Ok(())
}

/// A container of a runtime.
pub(crate) struct OciGuest {
    runtime: Runtime,
    id: String,
    bundle: PathBuf,
    ledger: Ledger,
    entry: EntryId,
    cgroup: Option<Cgroup>,
    running: Option<Running>,
    spawned_ns: u64,
    session: Option<Session>,
    witness: Witness,
}

impl OciGuest {
    fn start(
        &mut self,
        host: &Host,
        request: &GuestRequest,
        cgroup: &str,
        log: &Path,
    ) -> Result<(), PlatformError> {
        let limits = Limits { cpus: request.cpus.clone(), memory_bytes: request.memory_bytes };
        self.cgroup = Some(host.hierarchy.create(&host.ledger, cgroup, &limits)?);
        let launch = |reason: String| PlatformError::Launch {
            platform: self.runtime.platform,
            reason,
            log: Some(log.into()),
        };
        let command = self.runtime.command().args(["run", "--bundle"]).arg(&self.bundle).arg(&self.id);
        self.spawned_ns = monotonic_ns();
        let mut running = command.log_to(log).spawn()?;
        let (Some(input), Some(output)) = (running.take_input(), running.take_output()) else {
            return Err(launch("it has no standard streams".into()));
        };
        self.running = Some(running);
        let session = self.session.insert(Session::new(output, input));
        session.hello(HELLO_DEADLINE).map_err(|error| launch(with_tail(&error.to_string(), log)))?;
        self.witness.see(Guest::processes(self));
        Ok(())
    }

    /// Ends everything that runs, by asking or by force.
    fn end(&mut self) -> Result<(), String> {
        if let Some(cgroup) = &self.cgroup {
            // A frozen guest hears nothing, and one that was stopped by a signal neither.
            let _ = cgroup.thaw();
        }
        self.witness.see(Guest::processes(self));
        self.witness.revive();
        let asked = self.session.as_mut().is_some_and(|session| session.shutdown(SHUTDOWN_DEADLINE).is_ok());
        if let Some(session) = &mut self.session {
            session.close();
        }
        let mut ended = |time| match &mut self.running {
            Some(running) => matches!(running.wait(time), Ok(Some(_))),
            None => true,
        };
        if !(asked && ended(EXIT_DEADLINE)) {
            if let Some(cgroup) = &self.cgroup {
                cgroup.kill_all().map_err(|error| error.to_string())?;
            }
            if !ended(EXIT_DEADLINE)
                && let Some(running) = &mut self.running
            {
                running.kill_group();
            }
        }
        let detail = json!({"binary": self.runtime.binary, "state": self.runtime.state});
        undo("container", &self.id, &detail)?;
        // The monitor waits for the processes; where it was killed itself, they may take a moment more.
        if self.witness.wait_ended(EXIT_DEADLINE) {
            Ok(())
        } else {
            Err("some of its processes live on".into())
        }
    }
}

impl Guest for OciGuest {
    fn session(&mut self) -> &mut Session {
        self.session.as_mut().expect("a guest is only handed out after its probe has said hello")
    }

    fn processes(&self) -> Vec<u32> {
        let inside = self.cgroup.iter().flat_map(Cgroup::processes);
        inside.chain(self.running.iter().map(Running::pid)).collect()
    }

    fn cgroup(&self) -> Option<&Cgroup> {
        self.cgroup.as_ref()
    }

    fn spawned_ns(&self) -> u64 {
        self.spawned_ns
    }

    /// The container's control group; the runtime, which waits in the foreground outside of it, is a helper.
    fn accounts(&self) -> Accounts {
        let mut accounts = match &self.cgroup {
            Some(cgroup) => Accounts::of_group(cgroup.view()),
            None => return Accounts::default(),
        };
        let monitor = |running: &Running| Process { name: self.runtime.platform.into(), pid: running.pid() };
        accounts.helpers = self.running.iter().map(monitor).collect();
        accounts
    }

    fn freeze(&mut self) -> Result<(), PlatformError> {
        Ok(self.cgroup.iter().try_for_each(Cgroup::freeze)?)
    }

    fn thaw(&mut self) -> Result<(), PlatformError> {
        Ok(self.cgroup.iter().try_for_each(Cgroup::thaw)?)
    }

    fn stop(&mut self) -> Result<(), PlatformError> {
        let platform = self.runtime.platform;
        let ended = self.end().map_err(|reason| PlatformError::Stop { platform, reason });
        // What is stuck in the container does not keep the rest from being undone.
        let removed = self.cgroup.iter().try_for_each(Cgroup::remove);
        ended?;
        self.running = None;
        removed?;
        self.cgroup = None;
        self.ledger.forget(self.entry)?;
        match fs::remove_dir_all(&self.bundle) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(PlatformError::io(format!("remove {}", self.bundle.display()))(error))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for OciGuest {
    fn drop(&mut self) {
        // What could not be undone stays in the ledger.
        let _ = self.stop();
    }
}

/// An error with the end of what the log says.
pub(crate) fn with_tail(error: &str, log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text[text.len().saturating_sub(TAIL)..]).into_owned();
    let said: Vec<&str> =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("$ ")).collect();
    if said.is_empty() { error.into() } else { format!("{error}: {}", said.join("; ")) }
}
