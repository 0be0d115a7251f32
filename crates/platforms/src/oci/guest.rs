//! A container of a runtime, from its making to its end.

use super::bundle::{self, Binds, Container, Network};
use super::runtime::Runtime;
use super::{leftovers, restore};
use crate::common_keys::Storage;
use crate::exec::ExecRequest;
use crate::guest::{Backend, CoreGuest, GuestCore, platform_change};
use crate::mapped::{MAPPED, grant_traverse};
use crate::process_tracker::ended_children_cpu_ns;
use crate::{GuestRequest, Host, PlatformError, Result, network};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::chown;
use std::path::Path;
use std::time::Duration;
use weigh_host::accounts::{Accounts, Process};
use weigh_host::cgroup::{Cgroup, Layout, Limits};
use weigh_host::command::{Invocation, Running};
use weigh_host::ledger::Change;
use weigh_network::Mode;

/// How long the runtime may take from start to the probe's hello. A loaded machine may need 1 s.
const HELLO_DEADLINE: Duration = Duration::from_secs(15);
/// How long the probe may take to end when it is asked to.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(2);
/// How long the runtime may take to remove a container whose processes have ended.
const EXIT_DEADLINE: Duration = Duration::from_secs(5);

/// The longest name of a run that is part of its containers' names, bytes.
const LONGEST_RUN: usize = 40;

/// What the keys of an environment say of its guests.
pub(super) struct ContainerOptions<'a> {
    pub(super) network: &'a str,
    pub(super) storage: &'a str,
    pub(super) binds: Binds,
    pub(super) mapped: bool,
    pub(super) filtered: bool,
    pub(super) filters_devices: bool,
}

/// Starts a container, or restores it from what [`crate::Guest::save`] wrote to `saved`, and returns
/// when its probe has said hello.
///
/// # Errors
/// The container did not come up; what was made is undone.
pub(super) fn launch(
    runtime: Runtime,
    host: &Host,
    request: &GuestRequest,
    options: &ContainerOptions<'_>,
    saved: Option<&Path>,
) -> Result<CoreGuest<OciContainer>> {
    let name = container_id(&host.run, request.instance);
    let mut core = GuestCore { name, ..GuestCore::new(runtime.platform, host, request) };
    let cgroup_name = core.group_name(host);
    if options.mapped {
        grant_traverse(host, MAPPED.0, &request.root.skeleton)?;
    }
    let storage = storage(host, request, options, &core.short_name)?;
    let network = network::of_guest(host, request, options.network)?;
    let bundle = host.work.join(&core.short_name);
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
        binds: options.binds,
        mapped: options.mapped,
        filtered: options.filtered,
        filters_devices: options.filters_devices,
    };
    bundle::write(&bundle, &container).map_err(PlatformError::at("write the bundle", &bundle))?;
    record_controllers(host)?;
    let limits = Limits { cpus: request.cpus.clone(), memory_bytes: request.memory_bytes };
    // Recorded after its control group, and so undone before it after a crash: then the runtime is
    // gone and cannot put anything into the group any more.
    let container = platform_change(runtime.platform, "container", &core.name, runtime.detail(&cgroup_name));
    let (cgroup, entries) =
        host.hierarchy.create_with(&host.ledger, &cgroup_name, &limits, vec![container])?;
    core.directories = vec![bundle.clone()];
    if storage != Storage::Tmpfs {
        core.directories.push(host.work.join(format!("{}-storage", core.short_name)));
    }
    core.network = network.map(|network| Box::new(network) as _);
    (core.cgroup, core.entries) = (Some(cgroup), entries);
    CoreGuest::launch(core, OciContainer { runtime }, |container, core| container.start(core, &bundle, saved))
}

/// Returns the name of a container, unique on this host. A hash replaces a long name of a run:
/// runsc makes a socket of the name, and the path of a socket has little room (`unix(7)`).
fn container_id(run: &str, instance: u64) -> String {
    if run.len() <= LONGEST_RUN {
        return format!("weighbridge-{run}-{instance}");
    }
    let mut hasher = DefaultHasher::new();
    run.hash(&mut hasher);
    format!("weighbridge-{:016x}-{instance}", hasher.finish())
}

/// Makes the directories of the guest's storage, and their mount point in its root.
fn storage(
    host: &Host,
    request: &GuestRequest,
    options: &ContainerOptions<'_>,
    name: &str,
) -> Result<Storage> {
    let storage = Storage::make(options.storage, &host.work, name)
        .map_err(PlatformError::io("make the directories of the guest's storage"))?;
    if storage == Storage::Tmpfs {
        return Ok(storage);
    }
    let target = Storage::TARGET.trim_start_matches('/');
    if !request.root.binds.iter().any(|bind| Path::new(Storage::TARGET).starts_with(&bind.target)) {
        // Other guests with the same root get one more empty directory.
        fs::create_dir_all(request.root.skeleton.join(target))
            .map_err(PlatformError::io(format!("make {} in the guest's root", Storage::TARGET)))?;
    }
    if let (true, Some(directory)) = (options.mapped, storage.directory()) {
        grant_traverse(host, MAPPED.0, directory)?;
    }
    if let (true, Storage::Overlay { lower, upper, work }) = (options.mapped, &storage) {
        for directory in [lower, upper, work] {
            chown(directory, Some(MAPPED.0), Some(MAPPED.0))
                .map_err(PlatformError::io(format!("give {} to the guest's root", directory.display())))?;
        }
    }
    Ok(storage)
}

/// Records which controllers a runtime will switch on: in cgroup v2 it enables every controller on
/// the way down from the root.
///
/// # Errors
/// The ledger could not be written.
pub(crate) fn record_controllers(host: &Host) -> Result<()> {
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
pub(super) struct OciContainer {
    runtime: Runtime,
}

impl OciContainer {
    fn start(&self, core: &mut GuestCore, bundle: &Path, saved: Option<&Path>) -> Result<()> {
        let command = match saved {
            None => self.runtime.command().arg("run"),
            Some(saved) => restore::command(&self.runtime, saved),
        };
        core.start_clock();
        core.start_and_greet(command.arg("--bundle").arg(bundle).arg(&core.name), HELLO_DEADLINE)?;
        // The CPU time of processes that the runtime started to make the container; the runtime
        // itself still runs and is a helper.
        let used = core.program.as_ref().map_or(0, |monitor| ended_children_cpu_ns(monitor.pid()));
        core.launch_cpu_ns = vec![(format!("{} init", core.platform), used)];
        core.tracker.track(self.processes(core));
        Ok(())
    }
}

impl Backend for OciContainer {
    fn processes(&self, core: &GuestCore) -> Vec<u32> {
        let inside = core.cgroup.iter().flat_map(Cgroup::processes);
        inside.chain(core.program.iter().map(Running::pid)).collect()
    }

    /// The container's control group; the runtime, which waits in the foreground outside of it, is
    /// a helper.
    fn accounts(&self, core: &GuestCore) -> Accounts {
        let Some(cgroup) = &core.cgroup else { return Accounts::default() };
        let monitor = |running: &Running| Process { name: core.platform.into(), pid: running.pid() };
        Accounts { helpers: core.program.iter().map(monitor).collect(), ..Accounts::of_group(cgroup.view()) }
    }

    fn client(&self, core: &GuestCore, request: &ExecRequest<'_>) -> Result<Invocation> {
        Ok(self.runtime.command().args(["exec", &core.name]).args(request.argv))
    }

    fn save(&mut self, core: &mut GuestCore, directory: &Path) -> Result<()> {
        restore::save(&self.runtime, &core.name, directory, &core.log)
    }

    fn end(&mut self, core: &mut GuestCore) -> Result<()> {
        core.end_with_probe(self.processes(core), SHUTDOWN_DEADLINE, EXIT_DEADLINE)?;
        self.runtime.delete(&core.name)?;
        // The monitor waits for the processes; where it was killed itself, they may take a moment
        // more.
        core.tracker.ended_within(EXIT_DEADLINE)
    }

    fn release(&mut self, core: &mut GuestCore) -> Result<()> {
        leftovers::remove_files(&self.runtime.state, &core.name)
    }
}
