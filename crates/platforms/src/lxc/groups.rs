//! The control groups of a container of LXC's library, whoever manages it.
//!
//! By default LXC makes its own groups at the top of every hierarchy. Here it makes them in groups
//! of weighbridge, so that a container and its monitor can be limited, frozen, charged, killed and
//! removed without LXC.

use super::rootfs::field;
use crate::enter::uncover_boot_identity;
use crate::process_tracker::ProcessTracker;
use crate::{GuestRequest, Host, PlatformError, Result};
use std::fs;
use std::time::Duration;
use weigh_host::accounts::{Accounts, Process, process_text};
use weigh_host::cgroup::{Cgroup, Layout, Limits};
use weigh_host::clock::process_cpu_ns;
use weigh_host::command::Invocation;

/// How long the monitor may take to end after its container.
const EXIT_DEADLINE: Duration = Duration::from_secs(5);

/// The groups of one container.
pub(crate) struct Groups {
    /// Holds the container's group, and the limits.
    cgroup: Cgroup,
    /// Holds LXC's monitor, and clients.
    monitor: Cgroup,
    /// With control groups of version 2, the part of `monitor` that programs are started in: a
    /// group with groups below it that have controllers cannot hold processes.
    client: Option<Cgroup>,
}

impl Groups {
    /// Makes the groups, with the request's limits. `short` names them and is unique in the run.
    pub(crate) fn make(host: &Host, request: &GuestRequest, short: &str) -> Result<Self> {
        let limits = Limits { cpus: request.cpus.clone(), memory_bytes: request.memory_bytes };
        let name = format!("weighbridge-{}/{short}", host.run);
        let make = |name: &str, limits: &Limits| host.hierarchy.create(&host.ledger, name, limits);
        let cgroup = make(&name, &limits)?;
        // A ledger is undone newest first, so the monitor is gone when the container's processes
        // are killed.
        let monitor = make(&format!("{name}-monitor"), &Limits::default());
        let monitor = monitor.inspect_err(|_| drop(cgroup.remove()))?;
        let mut groups = Self { cgroup, monitor, client: None };
        groups.fill(host, &name).inspect_err(|_| drop(groups.remove()))?;
        Ok(groups)
    }

    fn fill(&mut self, host: &Host, name: &str) -> Result<()> {
        if host.hierarchy.layout() == Layout::V2 {
            let name = format!("{name}-monitor/client");
            self.client = Some(host.hierarchy.create(&host.ledger, &name, &Limits::default())?);
        }
        [&self.cgroup, &self.monitor].into_iter().try_for_each(pass_cpus_on)
    }

    /// Returns the keys of `lxc.container.conf(5)`, without their prefix `lxc.`, that make LXC use
    /// these groups. The container's group must not exist yet.
    pub(crate) fn configuration(&self) -> [(&'static str, String); 3] {
        let monitor = self.monitor.relative_path();
        [
            ("cgroup.dir.container", field(&self.cgroup.relative_path().join("payload"))),
            ("cgroup.dir.monitor", field(&monitor.join("lxc"))),
            ("cgroup.dir.monitor.pivot", field(&monitor.join("pivot"))),
        ]
    }

    /// Has a command start outside of the container, in a group that is charged to it.
    pub(crate) fn start_in(&self, command: Invocation) -> Invocation {
        command.pre_exec_cgroup(self.client.as_ref().unwrap_or(&self.monitor))
    }

    /// Returns the group that holds only the container's group.
    pub(crate) fn cgroup(&self) -> &Cgroup {
        &self.cgroup
    }

    /// Returns the processes of the container and of LXC.
    pub(crate) fn processes(&self) -> Vec<u32> {
        [&self.cgroup, &self.monitor].into_iter().flat_map(Cgroup::processes).collect()
    }

    /// The container's group; LXC's monitor, and what holds the probe's streams, are helpers.
    pub(crate) fn accounts(&self) -> Accounts {
        let mut accounts = Accounts::of_group(self.cgroup.view());
        let name = |pid: u32| {
            let comm = process_text(format!("/proc/{pid}/comm")).unwrap_or_default();
            Process { name: comm.trim_end().into(), pid }
        };
        accounts.helpers = self.monitor.processes().into_iter().map(name).collect();
        accounts
    }

    /// Returns the CPU time of the processes in the monitor's group that have ended, nanoseconds.
    pub(crate) fn ended_cpu_ns(&self) -> u64 {
        let living: u64 = self.monitor.processes().into_iter().filter_map(process_cpu_ns).sum();
        self.monitor.cpu_ns().map_or(0, |all| all.saturating_sub(living))
    }

    /// Shows the container the boot identity of the host, which LXC hides.
    pub(crate) fn uncover_boot_identity(&self) {
        uncover_boot_identity(self.cgroup.processes());
    }

    /// Resumes the container's processes and LXC's own: one that is frozen does not answer, nor
    /// does one that a signal has stopped.
    pub(crate) fn resume_all(&self, tracker: &mut ProcessTracker) {
        let _killing_needs_it_not = self.cgroup.thaw();
        tracker.track(self.processes());
        tracker.resume();
    }

    /// Kills all that is in the container.
    pub(crate) fn kill(&self) -> Result<()> {
        Ok(self.cgroup.kill_all()?)
    }

    /// Waits until all tracked processes are gone. The monitor waits for the container, and is
    /// killed if it does not end in time.
    pub(crate) fn wait_ended(&self, tracker: &ProcessTracker) -> Result<()> {
        if !tracker.wait_ended(EXIT_DEADLINE) {
            self.monitor.kill_all()?;
        }
        tracker.ended_within(EXIT_DEADLINE)
    }

    /// Kills what is left, and removes the groups.
    pub(crate) fn remove(&self) -> Result<()> {
        let groups = self.client.iter().chain([&self.monitor, &self.cgroup]);
        Ok(groups.into_iter().try_for_each(Cgroup::remove)?)
    }
}

/// Has the kernel pass the CPUs of a group on to the groups that LXC makes below it. In cgroup v1 a
/// new group has no CPUs, and LXC sets only those of groups that it makes at the top
/// (`Documentation/admin-guide/cgroup-v1/cgroups.rst`, "clone_children").
fn pass_cpus_on(group: &Cgroup) -> Result<()> {
    for directory in group.directories().iter().filter(|it| it.join("cpuset.mems").exists()) {
        let file = directory.join("cgroup.clone_children");
        if file.exists() {
            fs::write(&file, "1").map_err(PlatformError::at("write", &file))?;
        }
    }
    Ok(())
}
