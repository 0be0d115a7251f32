//! Who uses CPU time for a guest: handed by platforms to the sensors.

use crate::cgroup::CgroupView;

/// The control groups and processes behind a guest.
///
/// Everything in them is charged to the guest but `daemons`, which serve all guests of a platform and are reported apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Accounts {
    /// Control groups that hold nothing but this guest and its helpers. No group lies in another of the list.
    pub groups: Vec<CgroupView>,
    /// Processes of the guest that are in none of `groups`; for guests without a group.
    pub processes: Vec<u32>,
    /// Helpers in none of `groups` that serve this guest alone: shims, proxies, vhost threads.
    pub helpers: Vec<Process>,
    /// Daemons shared by all guests of the platform.
    pub daemons: Vec<Process>,
}

/// A process with a name for people.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    /// What it is: `containerd-shim`, `docker-proxy`, `vhost`.
    pub name: String,
    /// On the host.
    pub pid: u32,
}

impl Accounts {
    /// A guest that is wholly in one control group.
    pub fn of_group(group: CgroupView) -> Self {
        Self { groups: vec![group], ..Self::default() }
    }

    /// A guest without a control group.
    pub fn of_processes(processes: Vec<u32>) -> Self {
        Self { processes, ..Self::default() }
    }
}
