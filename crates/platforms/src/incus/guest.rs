//! A container of a manager's.

use super::Manager;
use super::daemon::{COPY_DEADLINE, Daemon, POOL, alias};
use crate::link::{Link, Network};
use crate::lxc::groups::Groups;
use crate::lxc::rootfs::{KEEP_TMP, field, reachable};
use crate::oci::with_tail;
use crate::oci::witness::Witness;
use crate::{Guest, GuestRequest, Host, PlatformError, Reach, Session, setting};
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;
use weigh_host::accounts::Accounts;
use weigh_host::cgroup::Cgroup;
use weigh_host::clock::monotonic_ns;
use weigh_host::command::{Invocation, Running};
use weigh_network::Hop;

/// From the start of the client that brings the probe in to the probe's hello.
const HELLO_DEADLINE: Duration = Duration::from_secs(30);
/// For a client whose container is gone.
const EXIT_DEADLINE: Duration = Duration::from_secs(5);

/// A container of a manager's.
pub(super) struct ManagedGuest {
    platform: &'static str,
    /// Unique at its daemon.
    name: String,
    daemon: Daemon,
    log: PathBuf,
    groups: Option<Groups>,
    link: Option<Link>,
    running: Option<Running>,
    session: Option<Session>,
    witness: Witness,
    spawned_ns: u64,
    launch_cpu_ns: u64,
    stopped: bool,
}

impl ManagedGuest {
    /// Makes a container, starts it, and returns when its probe has said hello.
    pub(super) fn launch(
        manager: &Manager,
        host: &Host,
        request: &GuestRequest,
        daemon: Daemon,
    ) -> Result<Self, PlatformError> {
        let platform = manager.0.name;
        let short = format!("{platform}-{}", request.instance);
        let mut guest = Self {
            platform,
            name: format!("g-{}", request.instance),
            daemon,
            log: host.logs.join(format!("{short}.log")),
            groups: None,
            link: None,
            running: None,
            session: None,
            witness: Witness::default(),
            spawned_ns: 0,
            launch_cpu_ns: 0,
            stopped: false,
        };
        // One that did not come up is dropped, and with that undone.
        guest.make(manager, host, request, &short).and_then(|()| guest.start()).map(|()| guest)
    }

    /// Makes the container; that is not yet what a start takes.
    fn make(
        &mut self,
        manager: &Manager,
        host: &Host,
        request: &GuestRequest,
        short: &str,
    ) -> Result<(), PlatformError> {
        let setting = |key: &str| setting(manager, &request.environment, key);
        let mapped = setting("user") == "mapped";
        if mapped {
            reachable(&host.work.join("it"))?;
        }
        let groups = self.groups.insert(Groups::make(host, request, short)?);
        let link = self.link.insert(Link::make(self.platform, host, request, setting("net"), true)?);
        let probe = request.root.skeleton.join(".weighbridge");
        let mut raw: Vec<(String, String)> =
            groups.configuration().map(|(key, value)| (key.into(), value)).into();
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
        let init = self.daemon.command(&["init", &alias(&request.root), &self.name, "--no-profiles"]);
        init.input(text).log_to(&self.log).deadline(COPY_DEADLINE).run_ok()?;
        Ok(())
    }

    fn start(&mut self) -> Result<(), PlatformError> {
        self.spawned_ns = monotonic_ns();
        self.client(&["start", &self.name]).run_ok()?;
        self.launch_cpu_ns = self.groups.as_ref().map_or(0, Groups::ended_cpu_ns);
        self.groups.iter().for_each(Groups::uncover_boot_identity);
        let mut running = self.client(&["exec", &self.name, "-T", "--", weigh_images::PROBE]).spawn()?;
        let (Some(input), Some(output)) = (running.take_input(), running.take_output()) else {
            return Err(self.failed("its client has no standard streams".into()));
        };
        self.running = Some(running);
        let hello = self.session.insert(Session::new(output, input)).hello(HELLO_DEADLINE);
        hello.map_err(|error| self.failed(with_tail(&error.to_string(), &self.log)))?;
        self.witness.see(Guest::processes(self));
        Ok(())
    }

    /// The manager's client, which is charged to this guest.
    fn client(&self, arguments: &[&str]) -> Invocation {
        let command = self.daemon.command(arguments).log_to(&self.log);
        match &self.groups {
            Some(groups) => groups.start_in(command),
            None => command,
        }
    }

    fn failed(&self, reason: String) -> PlatformError {
        PlatformError::Launch { platform: self.platform, reason, log: Some(self.log.clone()) }
    }

    /// Ends everything that runs, and has the daemon forget the container.
    fn end(&mut self) -> Result<(), String> {
        if let Some(session) = &mut self.session {
            session.close();
        }
        let Some(groups) = &self.groups else { return Ok(()) };
        groups.rouse(&mut self.witness);
        groups.kill()?;
        if let Some(running) = &mut self.running
            && !matches!(running.wait(EXIT_DEADLINE), Ok(Some(_)))
        {
            running.kill_group();
        }
        groups.outlive(&self.witness)?;
        // It is gone already where it was never made, or where the daemon is.
        let delete = self.daemon.command(&["delete", "--force", &self.name]).log_to(&self.log);
        delete.run().map(|_| ()).map_err(|error| error.to_string())
    }
}

impl Guest for ManagedGuest {
    fn session(&mut self) -> &mut Session {
        self.session.as_mut().expect("a guest is only handed out after its probe has said hello")
    }

    fn processes(&self) -> Vec<u32> {
        self.groups.iter().flat_map(Groups::processes).collect()
    }

    fn cgroup(&self) -> Option<&Cgroup> {
        self.groups.as_ref().map(Groups::cgroup)
    }

    fn spawned_ns(&self) -> u64 {
        self.spawned_ns
    }

    fn launch_cpu_ns(&self) -> Vec<(String, u64)> {
        vec![(format!("{} client", self.platform), self.launch_cpu_ns)]
    }

    fn log(&self) -> Option<PathBuf> {
        Some(self.log.clone())
    }

    fn reach(&self, port: u16) -> Option<Reach> {
        self.link.as_ref()?.reach(port)
    }

    fn hops(&self) -> Vec<Hop> {
        self.link.as_ref().map(Link::hops).unwrap_or_default()
    }

    /// The container's control group; its monitor and the client that holds the probe's streams are
    /// helpers; the daemon is shared by all.
    fn accounts(&self) -> Accounts {
        let mut accounts = self.groups.as_ref().map(Groups::accounts).unwrap_or_default();
        accounts.daemons = self.daemon.processes();
        accounts
    }

    fn freeze(&mut self) -> Result<(), PlatformError> {
        Ok(self.cgroup().map_or(Ok(()), Cgroup::freeze)?)
    }

    fn thaw(&mut self) -> Result<(), PlatformError> {
        Ok(self.cgroup().map_or(Ok(()), Cgroup::thaw)?)
    }

    fn stop(&mut self) -> Result<(), PlatformError> {
        if self.stopped {
            return Ok(());
        }
        let ended = self.end().map_err(|reason| PlatformError::Stop { platform: self.platform, reason });
        // What is stuck in the container does not keep the rest from being undone.
        let removed = self.groups.iter().try_for_each(Groups::remove);
        ended?;
        self.running = None;
        removed?;
        self.groups = None;
        self.link.iter_mut().try_for_each(Link::remove)?;
        self.link = None;
        self.stopped = true;
        Ok(())
    }
}

impl Drop for ManagedGuest {
    fn drop(&mut self) {
        // What could not be undone stays in the ledger.
        let _ = self.stop();
    }
}
