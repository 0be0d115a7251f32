//! A container of Incus or LXD.

use super::Manager;
use super::daemon::{COPY_DEADLINE, Daemon, POOL, alias};
use crate::exec::ExecRequest;
use crate::guest::{Backend, CoreGuest, GuestCore, HELLO_DEADLINE};
use crate::link::{Link, Network};
use crate::lxc::groups::Groups;
use crate::lxc::rootfs::{KEEP_TMP, field, first_of_range};
use crate::lxc::unguessable;
use crate::mapped::grant_traverse;
use crate::{GuestRequest, Host, Result, setting};
use std::fmt::Write;
use std::time::Duration;
use weigh_host::accounts::Accounts;
use weigh_host::cgroup::Cgroup;
use weigh_host::command::Invocation;

/// How long a client may take to end after its container is gone.
const EXIT_DEADLINE: Duration = Duration::from_secs(5);

/// A container of a manager.
pub(super) struct ManagedContainer {
    daemon: Daemon,
    groups: Groups,
}

/// Makes a container, starts it, and returns when its probe has said hello.
pub(super) fn launch(
    manager: &Manager,
    host: &Host,
    request: &GuestRequest,
    daemon: Daemon,
) -> Result<CoreGuest<ManagedContainer>> {
    // The name is unique within its daemon.
    let name = unguessable(&format!("g-{}", request.instance))?;
    let core = GuestCore { name, ..GuestCore::new(manager.0.about.name, host, request) };
    let groups = Groups::make(host, request, &core.short_name)?;
    CoreGuest::launch(core, ManagedContainer { daemon, groups }, |container, core| {
        container.make(core, manager, host, request)?;
        container.start(core)
    })
}

impl ManagedContainer {
    /// Makes the container, which is not counted as part of its start.
    fn make(
        &self,
        core: &mut GuestCore,
        manager: &Manager,
        host: &Host,
        request: &GuestRequest,
    ) -> Result<()> {
        let setting = |key: &str| setting(manager, &request.environment, key);
        let mapped = setting("user") == "mapped";
        if mapped {
            // The range that the daemon uses where the host gives it none.
            let first = first_of_range().unwrap_or(1_000_000);
            grant_traverse(host, first, &host.work)?;
        }
        let link = Link::make(core.platform, host, request, setting("net"), true)?;
        let probe = request.root.skeleton.join(".weighbridge");
        let mut raw: Vec<(String, String)> =
            self.groups.configuration().map(|(key, value)| (key.into(), value)).into();
        raw.push((
            "mount.entry".into(),
            format!("{} .weighbridge none bind,ro,create=dir 0 0", field(&probe)),
        ));
        raw.push(("mount.entry".into(), KEEP_TMP.into()));
        for place in ["tmp", "var/tmp"] {
            raw.push((
                "mount.entry".into(),
                format!("tmpfs {place} tmpfs rw,nosuid,nodev,mode=1777,create=dir 0 0"),
            ));
        }
        let mut devices = format!("  root: {{type: disk, path: /, pool: {POOL}}}\n");
        if let Network::Link { name, bridge, address, gateway } = link.network() {
            let _never_fails = writeln!(
                devices,
                "  eth0: {{type: nic, nictype: bridged, name: eth0, parent: {bridge}, host_name: {name}}}"
            );
            raw.push(("net.0.ipv4.address".into(), format!("{address}/{}", weigh_network::PREFIX_BITS)));
            raw.push(("net.0.ipv4.gateway".into(), gateway.to_string()));
        }
        let raw: String = raw.iter().map(|(key, value)| format!("    lxc.{key} = {value}\n")).collect();
        let (privileged, seccomp) = (!mapped, setting("seccomp") == "on");
        let text = format!(
            "config:\n  security.privileged: \"{privileged}\"\n  security.syscalls.deny_default: \"{seccomp}\"\n  \
             raw.lxc: |\n{raw}devices:\n{devices}"
        );
        core.network = Some(Box::new(link));
        let init = self.daemon.command(&["init", &alias(&request.root), &core.name, "--no-profiles"]);
        init.input(text).log_to(&core.log).deadline(COPY_DEADLINE).run_ok()?;
        Ok(())
    }

    fn start(&self, core: &mut GuestCore) -> Result<()> {
        core.start_clock();
        self.client(core, &["start", &core.name]).run_ok()?;
        core.launch_cpu_ns = vec![(format!("{} client", core.platform), self.groups.ended_cpu_ns())];
        self.groups.uncover_boot_identity();
        let exec = self.client(core, &["exec", &core.name, "-T", "--", weigh_images::PROBE]);
        core.start_and_greet(exec, HELLO_DEADLINE)?;
        core.tracker.track(self.groups.processes());
        Ok(())
    }

    /// Returns a command of the manager's client, which is charged to this guest.
    fn client(&self, core: &GuestCore, arguments: &[&str]) -> Invocation {
        self.groups.start_in(self.daemon.command(arguments).log_to(&core.log))
    }
}

impl Backend for ManagedContainer {
    fn processes(&self, _: &GuestCore) -> Vec<u32> {
        self.groups.processes()
    }

    fn cgroup<'a>(&'a self, _: &'a GuestCore) -> Option<&'a Cgroup> {
        Some(self.groups.cgroup())
    }

    /// All containers share the daemon.
    fn accounts(&self, _: &GuestCore) -> Accounts {
        Accounts { daemons: self.daemon.processes(), ..self.groups.accounts() }
    }

    fn client(&self, core: &GuestCore, request: &ExecRequest<'_>) -> Result<Invocation> {
        Ok(self.daemon.command(&["exec", &core.name, "-T", "--"]).args(request.argv))
    }

    fn end(&mut self, core: &mut GuestCore) -> Result<()> {
        if let Some(session) = &mut core.session {
            session.close();
        }
        self.groups.resume_all(&mut core.tracker);
        self.groups.kill()?;
        core.kill_program(EXIT_DEADLINE);
        self.groups.wait_ended(&core.tracker)?;
        // This fails if the container was never made or the daemon is gone.
        self.daemon.command(&["delete", "--force", &core.name]).log_to(&core.log).run()?;
        Ok(())
    }

    fn remove_groups(&mut self, _: &GuestCore) -> Result<()> {
        self.groups.remove()
    }
}
