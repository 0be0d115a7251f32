//! Who uses CPU time for a guest: handed by platforms to the sensors.

use crate::cgroup::CgroupView;
use std::fs;

/// The control groups and processes behind a guest.
///
/// Everything in them is charged to the guest but `daemons`, which serve all guests of a platform
/// and are reported apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Accounts {
    /// Control groups that hold nothing but this guest and its helpers. No group lies in another of
    /// the list.
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

impl Process {
    /// The processes whose program is called so, by the first 15 bytes of its name, which is what
    /// the kernel keeps (`proc_pid_comm(5)`).
    pub fn named(name: &str) -> Vec<Self> {
        let kept = name.get(..15).unwrap_or(name);
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        entries
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|pid| {
                fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim_end() == kept)
            })
            .map(|pid| Self { name: name.into(), pid })
            .collect()
    }

    /// Whether its command line has this word.
    pub fn has_argument(&self, word: &str) -> bool {
        let line = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_found_by_name() {
        let comm = fs::read_to_string("/proc/self/comm").unwrap();
        let own = Process { name: comm.trim_end().into(), pid: std::process::id() };
        assert!(Process::named(comm.trim_end()).contains(&own), "{own:?}");
        assert!(Process::named("no process has it").is_empty());
        let program = std::env::args().next().unwrap();
        assert!(own.has_argument(&program) && !own.has_argument(&program[1..]));
    }
}
