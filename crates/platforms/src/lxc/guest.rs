//! A running container.

use super::config::Config;
use super::groups::Groups;
use super::rootfs::{Rootfs, storage_name};
use super::{COMMAND_DEADLINE, Plan, unguessable};
use crate::exec::ExecRequest;
use crate::guest::{Backend, CoreGuest, GuestCore};
use crate::link::Link;
use crate::{GuestRequest, Host, PlatformError, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weigh_host::accounts::Accounts;
use weigh_host::cgroup::Cgroup;
use weigh_host::command::Invocation;

/// The deadline from the start of LXC to the probe's hello; a loaded machine may need seconds.
const HELLO_DEADLINE: Duration = Duration::from_secs(20);
/// How long the probe may take to end when it is asked to.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(2);
/// How long the monitor may take to end after its container.
const EXIT_DEADLINE: Duration = Duration::from_secs(5);
/// Where LXC looks for containers by name. Ours have their configuration elsewhere, and nothing is
/// written there; but a mapped container's root must be able to enter it.
const LXC_PATH: &str = "/run";

/// A container of LXC.
pub(crate) struct LxcContainer {
    groups: Groups,
    /// The program `lxc-attach`.
    attach: PathBuf,
}

/// Starts a container and returns when its probe has said hello.
pub(super) fn launch(host: &Host, request: &GuestRequest, plan: &Plan) -> Result<CoreGuest<LxcContainer>> {
    let mut core = GuestCore::new("lxc", host, request);
    core.name = unguessable(&core.name)?;
    let groups = Groups::make(host, request, &core.short_name)?;
    // Holds the configuration and what belongs to this guest's root.
    let directory = host.work.join(&core.short_name);
    let storage = host.work.join(format!("{}-storage", storage_name(request)));
    core.directories = vec![directory.clone(), storage];
    CoreGuest::launch(
        core,
        LxcContainer { groups, attach: plan.programs.attach.clone() },
        |container, core| container.start(core, host, request, plan, &directory),
    )
}

impl LxcContainer {
    fn start(
        &mut self,
        core: &mut GuestCore,
        host: &Host,
        request: &GuestRequest,
        plan: &Plan,
        directory: &Path,
    ) -> Result<()> {
        fs::create_dir_all(directory).map_err(PlatformError::io("make a guest's directory"))?;
        let rootfs = Rootfs::make(plan, host, request, directory)?;
        let link = Link::make("lxc", host, request, &plan.network, plan.mapped.is_some())?;
        let config = Config {
            plan,
            rootfs: &rootfs,
            groups: &self.groups,
            network: link.network(),
            console: &core.log.with_extension("console.log"),
        };
        let text = config.text();
        core.network = Some(Box::new(link));
        let file = directory.join("config");
        fs::write(&file, text).map_err(PlatformError::at("write", &file))?;
        if plan.system {
            let start = self.command(core, &plan.programs.start).arg("--rcfile").arg(&file);
            let start = start.arg("--logfile").arg(&core.log).args(["--logpriority", "ERROR"]);
            core.start_clock();
            start.deadline(COMMAND_DEADLINE).run_ok()?;
            core.launch_cpu_ns = vec![("lxc-start".into(), self.groups.ended_cpu_ns())];
            self.groups.uncover_boot_identity();
            let attach = self.command(core, &plan.programs.attach).args(["--clear-env", "--"]);
            core.start_and_greet(attach.arg(weigh_images::PROBE), HELLO_DEADLINE)?;
        } else {
            let execute = self.command(core, &plan.programs.execute).arg("--rcfile").arg(&file).arg("--");
            core.start_clock();
            core.start_and_greet(execute.arg(weigh_images::PROBE), HELLO_DEADLINE)?;
            self.groups.uncover_boot_identity();
        }
        core.tracker.track(self.groups.processes());
        Ok(())
    }

    /// Returns the command of an LXC program for this container, in the group for such programs.
    fn command(&self, core: &GuestCore, program: &Path) -> Invocation {
        self.groups.start_in(of_container(core, program))
    }
}

/// Returns the command of an LXC program for a container.
fn of_container(core: &GuestCore, program: &Path) -> Invocation {
    Invocation::new(program).args(["--lxcpath", LXC_PATH, "--name", &core.name])
}

impl Backend for LxcContainer {
    fn processes(&self, _: &GuestCore) -> Vec<u32> {
        self.groups.processes()
    }

    fn cgroup<'a>(&'a self, _: &'a GuestCore) -> Option<&'a Cgroup> {
        Some(self.groups.cgroup())
    }

    fn accounts(&self, _: &GuestCore) -> Accounts {
        self.groups.accounts()
    }

    fn client(&self, core: &GuestCore, request: &ExecRequest<'_>) -> Result<Invocation> {
        Ok(of_container(core, &self.attach).args(["--clear-env", "--"]).args(request.argv))
    }

    fn end(&mut self, core: &mut GuestCore) -> Result<()> {
        self.groups.resume_all(&mut core.tracker);
        let alone = core.shut_down(SHUTDOWN_DEADLINE) && core.program_ended(EXIT_DEADLINE);
        // A system goes on without the probe, and LXC's small init waits for whatever the probe has
        // left.
        self.groups.kill()?;
        if !alone {
            core.kill_program(EXIT_DEADLINE);
        }
        self.groups.wait_ended(&core.tracker)
    }

    fn remove_groups(&mut self, _: &GuestCore) -> Result<()> {
        self.groups.remove()
    }
}
