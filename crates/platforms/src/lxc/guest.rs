//! A container that runs.

use super::config::Config;
use super::groups::Groups;
use super::rootfs::{Rootfs, storage_name};
use super::{COMMAND_DEADLINE, Plan};
use crate::link::Link;
use crate::oci::with_tail;
use crate::oci::witness::Witness;
use crate::platform::remove_directory;
use crate::{Guest, GuestRequest, Host, PlatformError, Reach, Session};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weigh_host::accounts::Accounts;
use weigh_host::cgroup::Cgroup;
use weigh_host::clock::monotonic_ns;
use weigh_host::command::{Invocation, Running};
use weigh_network::Hop;

/// From the start of LXC to the probe's hello; a loaded machine may need seconds.
const HELLO_DEADLINE: Duration = Duration::from_secs(20);
/// For the probe to end when it is asked to.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(2);
/// For the monitor to end after its container.
const EXIT_DEADLINE: Duration = Duration::from_secs(5);
/// Where LXC looks for containers by name. Ours have their configuration elsewhere, and nothing is
/// written there; but a mapped container's root must be able to enter it.
const LXC_PATH: &str = "/run";

/// A container of LXC's.
pub(super) struct LxcGuest {
    name: String,
    /// Holds the configuration and what belongs to this guest's root.
    directory: PathBuf,
    storage: PathBuf,
    log: PathBuf,
    groups: Option<Groups>,
    link: Option<Link>,
    running: Option<Running>,
    session: Option<Session>,
    witness: Witness,
    spawned_ns: u64,
    /// Of `lxc-start`, which has ended by then.
    launch_cpu_ns: u64,
}

impl LxcGuest {
    /// Starts a container and returns when its probe has said hello.
    pub(super) fn launch(host: &Host, request: &GuestRequest, plan: &Plan) -> Result<Self, PlatformError> {
        let short = format!("lxc-{}", request.instance);
        let mut guest = Self {
            name: format!("weighbridge-{}-{}", host.run, request.instance),
            directory: host.work.join(&short),
            storage: host.work.join(format!("{}-storage", storage_name(request))),
            log: host.logs.join(format!("{short}.log")),
            groups: None,
            link: None,
            running: None,
            session: None,
            witness: Witness::default(),
            spawned_ns: 0,
            launch_cpu_ns: 0,
        };
        let started = Groups::make(host, request, &short).and_then(|groups| {
            guest.groups = Some(groups);
            guest.start(host, request, plan)
        });
        // One that did not come up is dropped, and with that undone.
        started.map(|()| guest)
    }

    fn start(&mut self, host: &Host, request: &GuestRequest, plan: &Plan) -> Result<(), PlatformError> {
        fs::create_dir_all(&self.directory).map_err(PlatformError::io("make a guest's directory"))?;
        let rootfs = Rootfs::make(plan, host, request, &self.directory)?;
        let link = self.link.insert(Link::make("lxc", host, request, &plan.network, plan.mapped.is_some())?);
        let Some(groups) = &self.groups else {
            return Err(self.failed("it has no control groups".into()));
        };
        let config = Config {
            plan,
            rootfs: &rootfs,
            groups,
            network: link.network(),
            console: &self.log.with_extension("console.log"),
        };
        let file = self.directory.join("config");
        fs::write(&file, config.text()).map_err(PlatformError::io(format!("write {}", file.display())))?;
        if plan.system {
            let start = self.command(&plan.programs.start).arg("--rcfile").arg(&file);
            let start = start.arg("--logfile").arg(&self.log).args(["--logpriority", "ERROR"]);
            self.spawned_ns = monotonic_ns();
            start.deadline(COMMAND_DEADLINE).run_ok()?;
            self.launch_cpu_ns = self.groups.as_ref().map_or(0, Groups::ended_cpu_ns);
            self.groups.iter().for_each(Groups::uncover_boot_identity);
            self.speak(self.command(&plan.programs.attach).args(["--clear-env", "--"]))
        } else {
            let execute = self.command(&plan.programs.execute).arg("--rcfile").arg(&file).arg("--");
            self.spawned_ns = monotonic_ns();
            self.speak(execute)?;
            self.groups.iter().for_each(Groups::uncover_boot_identity);
            Ok(())
        }
    }

    /// A program of LXC's for this container, in the group that is made for it.
    fn command(&self, program: &Path) -> Invocation {
        let command = Invocation::new(program).args(["--lxcpath", LXC_PATH, "--name", &self.name]);
        match &self.groups {
            Some(groups) => groups.start_in(command),
            None => command,
        }
    }

    /// Starts the probe and waits for its hello.
    fn speak(&mut self, command: Invocation) -> Result<(), PlatformError> {
        let mut running = command.arg(weigh_images::PROBE).log_to(&self.log).spawn()?;
        let (Some(input), Some(output)) = (running.take_input(), running.take_output()) else {
            return Err(self.failed("it has no standard streams".into()));
        };
        self.running = Some(running);
        let hello = self.session.insert(Session::new(output, input)).hello(HELLO_DEADLINE);
        hello.map_err(|error| self.failed(with_tail(&error.to_string(), &self.log)))?;
        self.witness.see(Guest::processes(self));
        Ok(())
    }

    fn failed(&self, reason: String) -> PlatformError {
        PlatformError::Launch { platform: "lxc", reason, log: Some(self.log.clone()) }
    }

    /// Ends everything that runs, by asking or by force.
    fn end(&mut self) -> Result<(), String> {
        let Some(groups) = &self.groups else { return Ok(()) };
        groups.rouse(&mut self.witness);
        let asked = self.session.as_mut().is_some_and(|session| session.shutdown(SHUTDOWN_DEADLINE).is_ok());
        if let Some(session) = &mut self.session {
            session.close();
        }
        let mut ended = |time| match &mut self.running {
            Some(running) => matches!(running.wait(time), Ok(Some(_))),
            None => true,
        };
        let alone = asked && ended(EXIT_DEADLINE);
        // A system goes on without the probe, and LXC's small init waits for whatever the probe has
        // left.
        groups.kill()?;
        if !alone
            && !ended(EXIT_DEADLINE)
            && let Some(running) = &mut self.running
        {
            running.kill_group();
        }
        groups.outlive(&self.witness)
    }
}

impl Guest for LxcGuest {
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
        match self.launch_cpu_ns {
            0 => Vec::new(),
            used => vec![("lxc-start".into(), used)],
        }
    }

    fn reach(&self, port: u16) -> Option<Reach> {
        self.link.as_ref()?.reach(port)
    }

    fn hops(&self) -> Vec<Hop> {
        self.link.as_ref().map(Link::hops).unwrap_or_default()
    }

    fn log(&self) -> Option<PathBuf> {
        Some(self.log.clone())
    }

    /// The container's control group; LXC's monitor, and what holds the probe's streams, are
    /// helpers.
    fn accounts(&self) -> Accounts {
        self.groups.as_ref().map(Groups::accounts).unwrap_or_default()
    }

    fn freeze(&mut self) -> Result<(), PlatformError> {
        Ok(self.cgroup().map_or(Ok(()), Cgroup::freeze)?)
    }

    fn thaw(&mut self) -> Result<(), PlatformError> {
        Ok(self.cgroup().map_or(Ok(()), Cgroup::thaw)?)
    }

    fn stop(&mut self) -> Result<(), PlatformError> {
        let ended = self.end().map_err(|reason| PlatformError::Stop { platform: "lxc", reason });
        // What is stuck in the container does not keep the rest from being undone.
        let removed = self.groups.iter().try_for_each(Groups::remove);
        ended?;
        self.running = None;
        removed?;
        self.groups = None;
        self.link.iter_mut().try_for_each(Link::remove)?;
        self.link = None;
        [&self.directory, &self.storage].into_iter().try_for_each(|directory| remove_directory(directory))
    }
}

impl Drop for LxcGuest {
    fn drop(&mut self) {
        // What could not be undone stays in the ledger.
        let _ = self.stop();
    }
}
