//! The control groups and processes of a guest, which platforms report to the sensors.

use crate::cgroup::CgroupView;
use std::fs;
use std::io;
use std::path::Path;

/// The control groups and processes of a guest.
///
/// All their CPU time is charged to the guest, except that of `daemons`, which serve all guests of
/// a platform and are reported separately.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Accounts {
    /// Control groups that contain only this guest and its helpers. No group of the list contains
    /// another one.
    pub groups: Vec<CgroupView>,
    /// Processes of the guest outside of `groups`; for guests without a group.
    pub processes: Vec<u32>,
    /// Helpers outside of `groups` that serve only this guest: shims, proxies, vhost threads.
    pub helpers: Vec<Process>,
    /// Daemons shared by all guests of the platform.
    pub daemons: Vec<Process>,
}

/// A process with a name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    /// Its kind: `containerd-shim`, `docker-proxy`, `vhost`.
    pub name: String,
    /// Its number on the host.
    pub pid: u32,
}

impl Accounts {
    /// A guest in a single control group.
    pub fn of_group(group: CgroupView) -> Self {
        Self { groups: vec![group], ..Self::default() }
    }

    /// A guest without a control group.
    pub fn of_processes(processes: Vec<u32>) -> Self {
        Self { processes, ..Self::default() }
    }

    /// Whether the control groups have the whole guest, so that what is set for them holds for it.
    pub fn are_all_in_groups(&self) -> bool {
        !self.groups.is_empty() && self.processes.is_empty()
    }
}

/// Reads a file of `/proc` about a process as text. A process may give itself a name of any bytes;
/// bytes that are not UTF-8 are replaced, so that no process escapes being counted by its name.
///
/// # Errors
/// The errors of reading a file.
pub fn process_text(path: impl AsRef<Path>) -> io::Result<String> {
    let bytes = fs::read(path)?;
    Ok(String::from_utf8(bytes).unwrap_or_else(|other| String::from_utf8_lossy(other.as_bytes()).into()))
}

/// Whether a process belongs to this user or to one of `others`, by both its real and its effective
/// user: that of a set-uid program which somebody else started is only effective.
///
/// Whoever looks for processes by their names or arguments asks this as well, because any user can
/// start processes of any name and with any arguments.
pub fn is_owned(process: u32, others: &[u32]) -> bool {
    let status = process_text(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    let own = rustix::process::geteuid().as_raw();
    let users: Vec<u32> = line.split_whitespace().take(2).filter_map(|user| user.parse().ok()).collect();
    users.len() == 2 && users.iter().all(|user| *user == own || others.contains(user))
}

impl Process {
    /// The processes of root and of this user whose program has this name. Only its first 15 bytes
    /// count, because the kernel truncates names (`proc_pid_comm(5)`).
    pub fn named(name: &str) -> Vec<Self> {
        let truncated = &name.as_bytes()[..name.len().min(15)];
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        entries
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|pid| {
                fs::read(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim_ascii_end() == truncated)
            })
            .filter(|pid| is_owned(*pid, &[0]))
            .map(|pid| Self { name: name.into(), pid })
            .collect()
    }

    /// Whether it was started with this argument.
    pub fn has_argument(&self, wanted: &str) -> bool {
        let line = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|argument| argument == wanted.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A user's libvirt daemon keeps QEMU in another group than that of its helpers.
    #[test]
    fn a_guest_outside_of_its_groups_is_not_in_them() {
        let helpers = Accounts::of_group(CgroupView::default());
        assert!(helpers.are_all_in_groups());
        assert!(!Accounts { processes: vec![7], ..helpers }.are_all_in_groups());
        assert!(!Accounts::of_processes(vec![7]).are_all_in_groups());
        assert!(!Accounts::default().are_all_in_groups());
    }

    #[test]
    fn processes_are_found_by_name() {
        let comm = fs::read_to_string("/proc/self/comm").unwrap();
        let own = Process { name: comm.trim_end().into(), pid: std::process::id() };
        assert!(Process::named(comm.trim_end()).contains(&own), "{own:?}");
        assert!(Process::named("no process has it").is_empty());
        let program = std::env::args().next().unwrap();
        assert!(own.has_argument(&program) && !own.has_argument(&program[1..]));
        assert!(is_owned(own.pid, &[]) && !is_owned(u32::MAX, &[0]));
    }

    /// Their CPU time is neither a guest's nor explained by a daemon.
    #[test]
    fn processes_of_other_users_have_no_name_here() {
        if !crate::facts::is_root() {
            eprintln!("SKIPPED processes_of_other_users_have_no_name_here: needs root");
            return;
        }
        let name = "wb-of-others";
        let script = format!("printf {name} > /proc/$$/comm; sleep 60; true");
        let user = ["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", &script];
        let mut theirs = crate::command::Invocation::new("setpriv").args(user).spawn().unwrap();
        let comm = format!("/proc/{}/comm", theirs.pid());
        while fs::read_to_string(&comm).unwrap().trim_end() != name {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(is_owned(theirs.pid(), &[65534]) && !is_owned(theirs.pid(), &[]));
        assert!(Process::named(name).is_empty());
        assert!(theirs.try_wait().unwrap().is_none());
    }
}
