//! A container that runs.

use super::config::Config;
use super::link::Link;
use super::rootfs::{Rootfs, storage_name};
use super::{COMMAND_DEADLINE, Plan};
use crate::enter::uncover_boot_identity;
use crate::oci::with_tail;
use crate::oci::witness::Witness;
use crate::spawn::is_first;
use crate::{Guest, GuestRequest, Host, PlatformError, Reach, Session};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weigh_host::accounts::{Accounts, Process};
use weigh_host::cgroup::{Cgroup, Layout, Limits};
use weigh_host::clock::{monotonic_ns, process_cpu_ns};
use weigh_host::command::{Invocation, Running};

/// From the start of LXC to the probe's hello; a loaded machine may need seconds.
const HELLO_DEADLINE: Duration = Duration::from_secs(20);
/// For the probe to end when it is asked to.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(2);
/// For the monitor to end after its container.
const EXIT_DEADLINE: Duration = Duration::from_secs(5);
/// Where LXC looks for containers by name. Ours have their configuration elsewhere, and nothing is written there; but a mapped
/// container's root must be able to enter it.
const LXC_PATH: &str = "/run";

/// A container of LXC's.
pub(super) struct LxcGuest {
    name: String,
    /// Holds the configuration and what belongs to this guest's root.
    directory: PathBuf,
    storage: PathBuf,
    log: PathBuf,
    /// Holds the container's group, and the limits.
    cgroup: Option<Cgroup>,
    /// Holds LXC's monitor and client.
    monitor: Option<Cgroup>,
    /// With control groups of version 2, the part of `monitor` that programs are started in: a group with groups below it that have
    /// controllers cannot hold processes.
    client: Option<Cgroup>,
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
            cgroup: None,
            monitor: None,
            client: None,
            link: None,
            running: None,
            session: None,
            witness: Witness::default(),
            spawned_ns: 0,
            launch_cpu_ns: 0,
        };
        let started = guest.confine(host, request, &short).and_then(|()| guest.start(host, request, plan));
        match started {
            Ok(()) => Ok(guest),
            Err(error) => {
                // The first error is the one to tell; what cannot be undone stays in the ledger.
                let _ = guest.stop();
                Err(error)
            }
        }
    }

    fn confine(&mut self, host: &Host, request: &GuestRequest, short: &str) -> Result<(), PlatformError> {
        let limits = Limits { cpus: request.cpus.clone(), memory_bytes: request.memory_bytes };
        let name = format!("weighbridge-{}/{short}", host.run);
        let make = |name: &str, limits: &Limits| host.hierarchy.create(&host.ledger, name, limits);
        self.cgroup = Some(make(&name, &limits)?);
        // Newest first is how a ledger is undone: no monitor is there any more when the container's processes are killed.
        self.monitor = Some(make(&format!("{name}-monitor"), &Limits::default())?);
        if host.hierarchy.layout() == Layout::V2 {
            self.client = Some(make(&format!("{name}-monitor/client"), &Limits::default())?);
        }
        self.cgroup.iter().chain(&self.monitor).try_for_each(pass_cpus_on)
    }

    fn start(&mut self, host: &Host, request: &GuestRequest, plan: &Plan) -> Result<(), PlatformError> {
        fs::create_dir_all(&self.directory).map_err(PlatformError::io("make a guest's directory"))?;
        let rootfs = Rootfs::make(plan, host, request, &self.directory)?;
        let link = self.link.insert(Link::make(host, request, plan)?);
        let (Some(cgroup), Some(monitor)) = (&self.cgroup, &self.monitor) else {
            return Err(self.failed("it has no control groups".into()));
        };
        let config = Config {
            plan,
            rootfs: &rootfs,
            payload: &cgroup.relative_path().join("payload"),
            monitor: monitor.relative_path(),
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
            self.launch_cpu_ns = self.client_cpu_ns();
            self.uncover();
            self.speak(self.command(&plan.programs.attach).args(["--clear-env", "--"]))
        } else {
            let execute = self.command(&plan.programs.execute).arg("--rcfile").arg(&file).arg("--");
            self.spawned_ns = monotonic_ns();
            self.speak(execute)?;
            self.uncover();
            Ok(())
        }
    }

    /// A program of LXC's for this container, in the group that is made for it.
    fn command(&self, program: &Path) -> Invocation {
        let command = Invocation::new(program).args(["--lxcpath", LXC_PATH, "--name", &self.name]);
        match self.client.as_ref().or(self.monitor.as_ref()) {
            Some(group) => command.pre_exec_cgroup(group),
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

    /// CPU time that was used in the monitor's group by processes that are not there any more.
    fn client_cpu_ns(&self) -> u64 {
        let Some(monitor) = &self.monitor else { return 0 };
        let living: u64 = monitor.processes().into_iter().filter_map(process_cpu_ns).sum();
        monitor.cpu_ns().map_or(0, |all| all.saturating_sub(living))
    }

    /// A guest whose kernel is not seen to be the host's is measured all the same, with a wider bracket around its clock.
    fn uncover(&self) {
        let mut inside = self.cgroup.iter().flat_map(Cgroup::processes);
        if let Some(first) = inside.find(|pid| is_first(*pid)) {
            let _its_clock_is_checked_otherwise = uncover_boot_identity(first);
        }
    }

    fn failed(&self, reason: String) -> PlatformError {
        PlatformError::Launch { platform: "lxc", reason, log: Some(self.log.clone()) }
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
        let alone = asked && ended(EXIT_DEADLINE);
        // A system goes on without the probe, and LXC's small init waits for whatever the probe has left.
        if let Some(cgroup) = &self.cgroup {
            cgroup.kill_all().map_err(|error| error.to_string())?;
        }
        if !alone
            && !ended(EXIT_DEADLINE)
            && let Some(running) = &mut self.running
        {
            running.kill_group();
        }
        // The monitor waits for the container; one that does not is killed with its group.
        if !self.witness.wait_ended(EXIT_DEADLINE)
            && let Some(monitor) = &self.monitor
        {
            monitor.kill_all().map_err(|error| error.to_string())?;
        }
        if self.witness.wait_ended(EXIT_DEADLINE) {
            Ok(())
        } else {
            Err("some of its processes live on".into())
        }
    }
}

/// With control groups of version 1 a new group has no CPUs, and LXC fills only those that it makes at the top. So the kernel is asked
/// to do it for what LXC makes below ours (`Documentation/admin-guide/cgroup-v1/cgroups.rst`, "clone_children").
fn pass_cpus_on(group: &Cgroup) -> Result<(), PlatformError> {
    for directory in group.directories().iter().filter(|it| it.join("cpuset.mems").exists()) {
        let file = directory.join("cgroup.clone_children");
        if file.exists() {
            fs::write(&file, "1").map_err(PlatformError::io(format!("write {}", file.display())))?;
        }
    }
    Ok(())
}

impl Guest for LxcGuest {
    fn session(&mut self) -> &mut Session {
        self.session.as_mut().expect("a guest is only handed out after its probe has said hello")
    }

    fn processes(&self) -> Vec<u32> {
        self.cgroup.iter().chain(&self.monitor).flat_map(Cgroup::processes).collect()
    }

    fn cgroup(&self) -> Option<&Cgroup> {
        self.cgroup.as_ref()
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

    fn log(&self) -> Option<PathBuf> {
        Some(self.log.clone())
    }

    /// The container's control group; LXC's monitor, and what holds the probe's streams, are helpers.
    fn accounts(&self) -> Accounts {
        let Some(cgroup) = &self.cgroup else { return Accounts::default() };
        let mut accounts = Accounts::of_group(cgroup.view());
        let name = |pid: u32| {
            let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            Process { name: comm.trim_end().into(), pid }
        };
        accounts.helpers = self.monitor.iter().flat_map(Cgroup::processes).map(name).collect();
        accounts
    }

    fn freeze(&mut self) -> Result<(), PlatformError> {
        Ok(self.cgroup.iter().try_for_each(Cgroup::freeze)?)
    }

    fn thaw(&mut self) -> Result<(), PlatformError> {
        Ok(self.cgroup.iter().try_for_each(Cgroup::thaw)?)
    }

    fn stop(&mut self) -> Result<(), PlatformError> {
        let ended = self.end().map_err(|reason| PlatformError::Stop { platform: "lxc", reason });
        // What is stuck in the container does not keep the rest from being undone.
        let groups = [&self.client, &self.monitor, &self.cgroup];
        let removed = groups.into_iter().flatten().try_for_each(Cgroup::remove);
        ended?;
        self.running = None;
        removed?;
        (self.client, self.monitor, self.cgroup) = (None, None, None);
        self.link.iter_mut().try_for_each(Link::remove)?;
        self.link = None;
        for directory in [&self.directory, &self.storage] {
            match fs::remove_dir_all(directory) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(PlatformError::io(format!("remove {}", directory.display()))(error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Drop for LxcGuest {
    fn drop(&mut self) {
        // What could not be undone stays in the ledger.
        let _ = self.stop();
    }
}
