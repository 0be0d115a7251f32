//! A running container of containerd.
//!
//! `ctr` stays in the foreground: it passes the session with the probe between its own streams and
//! those of the shim, and removes container and snapshot when the probe ends.

use super::PLATFORM;
use super::client::{self, Client};
use crate::docker::shim_of;
use crate::exec::ExecRequest;
use crate::guest::{Backend, CoreGuest, GuestCore, HELLO_DEADLINE, platform_change};
use crate::oci::{kill_serving, record_controllers};
use crate::process_tracker::ended_children_cpu_ns;
use crate::{GuestRequest, Host, Result};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;
use weigh_host::accounts::{Accounts, Process};
use weigh_host::cgroup::{Cgroup, Hierarchy, Limits};
use weigh_host::command::{Invocation, Running};
use weigh_network::GuestNetwork;

/// How long the probe may take to end when it is asked to.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(2);
/// How long `ctr` may take to remove a container whose probe has ended, and the shim to end.
const EXIT_DEADLINE: Duration = Duration::from_secs(10);

/// A container.
pub(super) struct ContainerdContainer {
    client: Client,
    daemon: u32,
    /// The first process of the container.
    pid: Option<u32>,
    pid_file: PathBuf,
}

/// Starts a container and returns when its probe has said hello. `arguments` are those of `ctr run`
/// except the names of files and of this guest.
///
/// # Errors
/// The container did not come up; what was made is undone.
pub(super) fn launch(
    host: &Host,
    request: &GuestRequest,
    client: Client,
    network: Option<GuestNetwork>,
    arguments: &[String],
    image: &str,
) -> Result<CoreGuest<ContainerdContainer>> {
    let core = GuestCore::new(PLATFORM, host, request);
    let mut core = GuestCore { name: client::bounded(core.name.clone()), ..core };
    let daemon = client.daemon()?;
    let group = core.group_name(host);
    record_controllers(host)?;
    // The runtime puts the container into this group, whose limits are set already.
    let limits = Limits { cpus: request.cpus.clone(), memory_bytes: request.memory_bytes };
    let mut detail = client.detail();
    detail["group"] = json!(group);
    // Recorded after the group, and so undone before it.
    let container = platform_change(PLATFORM, "container", &core.name, detail);
    let (cgroup, entries) = host.hierarchy.create_with(&host.ledger, &group, &limits, vec![container])?;
    (core.cgroup, core.entries) = (Some(cgroup), entries);
    core.network = network.map(|network| Box::new(network) as _);
    core.directories = vec![host.work.join(format!("{}-storage", core.short_name))];
    let files = host.work.join(&core.short_name);
    core.directories.push(files.clone());
    let container = ContainerdContainer { client, daemon, pid: None, pid_file: files.join("pid") };
    CoreGuest::launch(core, container, |container, core| {
        fs::create_dir_all(&files).map_err(crate::PlatformError::at("make", &files))?;
        container.start(core, &group, arguments, image)
    })
}

impl ContainerdContainer {
    fn start(&mut self, core: &mut GuestCore, group: &str, arguments: &[String], image: &str) -> Result<()> {
        let command = self
            .client
            .command()
            .args(["run", "--rm"])
            .args(self.client.snapshotter())
            .args(["--cgroup", &format!("/{group}")])
            .arg("--pid-file")
            .arg(&self.pid_file)
            .arg("--fifo-dir")
            .arg(self.pid_file.with_file_name("fifos"))
            .args(arguments)
            .args([image, &core.name, weigh_images::PROBE]);
        core.start_clock();
        core.start_and_greet(command, HELLO_DEADLINE)?;
        self.pid = fs::read_to_string(&self.pid_file).ok().and_then(|text| text.trim().parse().ok());
        // The CPU time of the runtime below the shim, usually in steps of 10 ms. What the daemon
        // itself did for this guest cannot be told apart from what it did for others.
        let runtime_ns = self.shim().map(ended_children_cpu_ns).filter(|used| *used > 0);
        core.launch_cpu_ns = runtime_ns.into_iter().map(|used| ("runtime".into(), used)).collect();
        core.tracker.track(self.processes(core));
        Ok(())
    }

    fn shim(&self) -> Option<u32> {
        self.pid.and_then(shim_of)
    }
}

impl Backend for ContainerdContainer {
    fn processes(&self, core: &GuestCore) -> Vec<u32> {
        let inside = core.cgroup.iter().flat_map(Cgroup::processes);
        inside.chain(self.shim()).chain(core.program.iter().map(Running::pid)).collect()
    }

    /// The container's control group; the shim and the client, which carries the container's
    /// streams, are helpers.
    fn accounts(&self, core: &GuestCore) -> Accounts {
        let Some(cgroup) = &core.cgroup else { return Accounts::default() };
        let process = |name: &str, pid| Process { name: name.into(), pid };
        let mut accounts = Accounts::of_group(cgroup.view());
        accounts.helpers.extend(self.shim().map(|pid| process("containerd-shim", pid)));
        accounts.helpers.extend(core.program.iter().map(|running| process("ctr", running.pid())));
        accounts.daemons.push(process("containerd", self.daemon));
        accounts
    }

    fn client(&self, core: &GuestCore, request: &ExecRequest<'_>) -> Result<Invocation> {
        // Programs of one container must have different names, and the names of those that have
        // ended are free again.
        let client = self.client.command().args(["tasks", "exec", "--exec-id", "program", "--fifo-dir"]);
        Ok(client.arg(self.pid_file.with_file_name("fifos")).arg(&core.name).args(request.argv))
    }

    fn end(&mut self, core: &mut GuestCore) -> Result<()> {
        core.end_with_probe(self.processes(core), SHUTDOWN_DEADLINE, EXIT_DEADLINE)?;
        self.client.remove(&core.name)?;
        core.tracker.ended_within(EXIT_DEADLINE)
    }
}

/// Removes what a crash left of a container. It kills `ctr` and the shim first, which would
/// otherwise go on making the container, or wait for one that is frozen.
///
/// # Errors
/// The container is still there.
pub(super) fn undo(name: &str, detail: &Value, client: &Client) -> Result<()> {
    let group = detail.get("group").and_then(Value::as_str).unwrap_or_default();
    kill_serving(&client.address, name, group)?;
    if !group.is_empty() {
        Hierarchy::detect().kill(group.as_ref())?;
    }
    client.remove(name)
}
