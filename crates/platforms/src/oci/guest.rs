//! A container of a runtime, from its making to its end.

use super::bundle::{self, Binds, Container, MAPPED, Network};
use super::runtime::Runtime;
use super::witness::{Witness, ended_children_cpu_ns};
use super::{leftovers, restore};
use crate::axes::Storage;
use crate::platform::remove_directory;
use crate::{Guest, GuestRequest, Host, PlatformError, Reach, Session, network};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;
use weigh_host::accounts::{Accounts, Process};
use weigh_host::cgroup::{Cgroup, Layout, Limits};
use weigh_host::clock::monotonic_ns;
use weigh_host::command::Running;
use weigh_host::ledger::{Change, EntryId, Ledger};
use weigh_network::{GuestNetwork, Hop, Mode};

/// From the start of the runtime to the probe's hello; a loaded machine may need a second.
const HELLO_DEADLINE: Duration = Duration::from_secs(15);
/// For the probe to end when it is asked to.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(2);
/// For the runtime to take a container away whose processes have ended.
const EXIT_DEADLINE: Duration = Duration::from_secs(5);

/// Of a run's name that is part of its containers' names, bytes.
const LONGEST_RUN: usize = 40;

/// What the keys of an environment say of its guests, in their words.
pub(super) struct Wishes<'a> {
    pub(super) network: &'a str,
    pub(super) storage: &'a str,
    pub(super) binds: Binds,
    pub(super) mapped: bool,
    pub(super) filtered: bool,
}

/// How a guest begins.
#[derive(Debug, Clone, Copy)]
pub(super) enum Begin<'a> {
    /// Anew.
    Fresh,
    /// From what [`Guest::save`] wrote to this directory.
    Saved(&'a Path),
}

/// Starts a container and returns when its probe has said hello.
///
/// # Errors
/// It did not come up; what was made is undone.
pub(super) fn launch(
    runtime: Runtime,
    host: &Host,
    request: &GuestRequest,
    wishes: &Wishes<'_>,
    begin: Begin<'_>,
) -> Result<OciGuest, PlatformError> {
    let name = format!("{}-{}", runtime.platform, request.instance);
    let cgroup_name = format!("weighbridge-{}/{name}", host.run);
    let id = container_id(&host.run, request.instance);
    if wishes.mapped {
        reachable(&request.root.skeleton)?;
    }
    let storage = storage(host, request, wishes, &name)?;
    let network = network::of_guest(host, request, wishes.network)?;
    let bundle = host.work.join(&name);
    let container = Container {
        root: &request.root,
        cgroup: &Path::new("/").join(&cgroup_name),
        cpus: &request.cpus,
        memory_bytes: request.memory_bytes,
        network: match &network {
            None => Network::Own,
            Some(network) if network.mode() == Mode::Host => Network::Host,
            Some(network) => Network::At(network.namespace()),
        },
        storage: &storage,
        binds: wishes.binds,
        mapped: wishes.mapped,
        filtered: wishes.filtered,
    };
    bundle::write(&bundle, &container)
        .map_err(PlatformError::io(format!("write the bundle {}", bundle.display())))?;
    record_controllers(host)?;
    let limits = Limits { cpus: request.cpus.clone(), memory_bytes: request.memory_bytes };
    // Recorded after its control group, so that after a crash it is undone before: the runtime is
    // gone then, and cannot put anything into the group any more.
    let container = Change::Platform {
        platform: runtime.platform.into(),
        what: "container".into(),
        id: id.clone(),
        detail: runtime.detail(&cgroup_name),
    };
    let (cgroup, entries) =
        host.hierarchy.create_with(&host.ledger, &cgroup_name, &limits, vec![container])?;
    let mut guest = OciGuest {
        log: host.logs.join(format!("{name}.log")),
        storage: (storage != Storage::Tmpfs).then(|| host.work.join(format!("{name}-storage"))),
        runtime,
        id,
        bundle,
        ledger: host.ledger.clone(),
        entries,
        cgroup: Some(cgroup),
        network,
        running: None,
        spawned_ns: 0,
        launch_cpu_ns: 0,
        session: None,
        witness: Witness::default(),
    };
    // One that did not come up is dropped, and with that undone.
    guest.start(begin).map(|()| guest)
}

/// Name of a container, unique on this host. That of a run whose name is long tells it by a hash:
/// runsc makes a socket of the name, and the path of a socket has little room (`unix(7)`).
fn container_id(run: &str, instance: u64) -> String {
    if run.len() <= LONGEST_RUN {
        return format!("weighbridge-{run}-{instance}");
    }
    let mut hasher = DefaultHasher::new();
    run.hash(&mut hasher);
    format!("weighbridge-{:016x}-{instance}", hasher.finish())
}

/// The directories behind the guest's storage, and the place in its root where they are mounted.
fn storage(
    host: &Host,
    request: &GuestRequest,
    wishes: &Wishes<'_>,
    name: &str,
) -> Result<Storage, PlatformError> {
    let storage = Storage::make(wishes.storage, &host.work, name)
        .map_err(PlatformError::io("make the directories of the guest's storage"))?;
    if storage == Storage::Tmpfs {
        return Ok(storage);
    }
    let target = Storage::TARGET.trim_start_matches('/');
    if !request.root.binds.iter().any(|bind| Path::new(Storage::TARGET).starts_with(&bind.target)) {
        // Other guests that are made from the same root find an empty directory more.
        fs::create_dir_all(request.root.skeleton.join(target))
            .map_err(PlatformError::io(format!("make {} in the guest's root", Storage::TARGET)))?;
    }
    if let (true, Storage::Overlay { lower, upper, work }) = (wishes.mapped, &storage) {
        for directory in [lower, upper, work] {
            chown(directory, Some(MAPPED.0), Some(MAPPED.0))
                .map_err(PlatformError::io(format!("give {} to the guest's root", directory.display())))?;
        }
    }
    Ok(storage)
}

/// Whether the root of a user namespace, who is nobody on the host, gets to a directory.
fn reachable(directory: &Path) -> Result<(), PlatformError> {
    let closed = directory
        .ancestors()
        .find(|path| path.metadata().is_ok_and(|found| found.permissions().mode() & 0o001 == 0));
    match closed {
        None => Ok(()),
        Some(path) => Err(PlatformError::Missing {
            what: format!(
                "a way to the guest's root for who is nobody on the host: {} is closed to others",
                path.display()
            ),
            remedy: Some(format!(
                "run `chmod o+x {}`, or set WEIGH_STATE to a directory that all can reach",
                path.display()
            )),
        }),
    }
}

/// With control groups of version 2 a runtime switches on every controller on the way down from the
/// root: written down first.
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
pub(super) struct OciGuest {
    runtime: Runtime,
    id: String,
    bundle: PathBuf,
    storage: Option<PathBuf>,
    log: PathBuf,
    ledger: Ledger,
    entries: Vec<EntryId>,
    cgroup: Option<Cgroup>,
    network: Option<GuestNetwork>,
    running: Option<Running>,
    spawned_ns: u64,
    launch_cpu_ns: u64,
    session: Option<Session>,
    witness: Witness,
}

impl OciGuest {
    fn start(&mut self, begin: Begin<'_>) -> Result<(), PlatformError> {
        let log = self.log.clone();
        let platform = self.runtime.platform;
        let failed = |reason: String| PlatformError::Launch { platform, reason, log: Some(log.clone()) };
        let command = match begin {
            Begin::Fresh => self.runtime.command().arg("run"),
            Begin::Saved(saved) => restore::command(&self.runtime, saved),
        };
        let command = command.arg("--bundle").arg(&self.bundle).arg(&self.id);
        self.spawned_ns = monotonic_ns();
        let mut running = command.log_to(&self.log).spawn()?;
        let (Some(input), Some(output)) = (running.take_input(), running.take_output()) else {
            return Err(failed("it has no standard streams".into()));
        };
        let pid = running.pid();
        self.running = Some(running);
        let session = self.session.insert(Session::new(output, input));
        session.hello(HELLO_DEADLINE).map_err(|error| failed(self.runtime.says(error, &self.log)))?;
        self.launch_cpu_ns = ended_children_cpu_ns(pid);
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
        self.runtime.delete(&self.id)?;
        // The monitor waits for the processes; where it was killed itself, they may take a moment
        // more.
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

    /// The container's control group; the runtime, which waits in the foreground outside of it, is
    /// a helper.
    fn accounts(&self) -> Accounts {
        let mut accounts = match &self.cgroup {
            Some(cgroup) => Accounts::of_group(cgroup.view()),
            None => return Accounts::default(),
        };
        let monitor = |running: &Running| Process { name: self.runtime.platform.into(), pid: running.pid() };
        accounts.helpers = self.running.iter().map(monitor).collect();
        accounts
    }

    fn log(&self) -> Option<PathBuf> {
        Some(self.log.clone())
    }

    fn spawned_ns(&self) -> u64 {
        self.spawned_ns
    }

    /// Processes that the runtime started to make the container; the runtime itself lives and is a
    /// helper.
    fn launch_cpu_ns(&self) -> Vec<(String, u64)> {
        vec![(format!("{} init", self.runtime.platform), self.launch_cpu_ns)]
    }

    fn reach(&self, port: u16) -> Option<Reach> {
        network::reach(self.network.as_ref(), port)
    }

    fn hops(&self) -> Vec<Hop> {
        network::hops(self.network.as_ref())
    }

    fn save(&mut self, directory: &Path) -> Result<(), PlatformError> {
        restore::save(&self.runtime, &self.id, directory, &self.log)
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
        let stuck = |reason| PlatformError::Stop { platform, reason };
        leftovers::remove_files(&self.runtime.state, &self.id).map_err(stuck)?;
        self.entries.iter().try_for_each(|entry| self.ledger.forget(*entry))?;
        self.network.iter_mut().try_for_each(GuestNetwork::remove)?;
        let directories = [Some(&self.bundle), self.storage.as_ref()].into_iter().flatten();
        directories.into_iter().try_for_each(|directory| remove_directory(directory))
    }
}

impl Drop for OciGuest {
    fn drop(&mut self) {
        // What could not be undone stays in the ledger.
        let _ = self.stop();
    }
}
