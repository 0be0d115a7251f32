//! A process inside a running system, beside its init: in its namespaces, its root and its control
//! groups, and with no more rights than the init.

use super::SpawnError;
use super::rights::Rights;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::thread::{LinkNameSpaceType, ThreadNameSpaceType, move_into_link_name_space};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weigh_host::accounts::process_text;
use weigh_host::cgroup::Cgroup;

/// The pause between two looks for the init of a system.
const PAUSE: Duration = Duration::from_millis(1);

/// Namespaces as `/proc/PID/ns` names them; the PID namespace is entered in another way.
const NAMESPACES: [(&str, ThreadNameSpaceType); 6] = [
    ("mnt", ThreadNameSpaceType::MOUNT),
    ("uts", ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME),
    ("ipc", ThreadNameSpaceType::INTER_PROCESS_COMMUNICATION),
    ("net", ThreadNameSpaceType::NETWORK),
    ("cgroup", ThreadNameSpaceType::CONTROL_GROUP),
    ("user", ThreadNameSpaceType::USER),
];

/// A running system, by its init.
#[derive(Debug)]
pub struct Inside {
    process: OwnedFd,
    processes: File,
    namespaces: ThreadNameSpaceType,
    groups: Vec<PathBuf>,
    rights: Rights,
}

impl Inside {
    /// Returns the system in a control group whose init is this process.
    ///
    /// # Errors
    /// The process is gone, or its filters of system calls cannot be read.
    pub fn of(pid: u32, cgroup: &Cgroup) -> Result<Self, SpawnError> {
        let what = || format!("look at the guest's init (process {pid})");
        let gone = || SpawnError::at(what())(io::ErrorKind::NotFound);
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(gone)?;
        let process = pidfd_open(number, PidfdFlags::empty()).map_err(SpawnError::at(what()))?;
        let link = |process: &str, name: &str| {
            fs::read_link(format!("/proc/{process}/ns/{name}")).map_err(SpawnError::at(what()))
        };
        let mut namespaces = ThreadNameSpaceType::empty();
        for (name, kind) in NAMESPACES {
            // The present user namespace cannot be entered again (setns(2)), and the others need
            // not be.
            namespaces.set(kind, link("self", name)? != link(&pid.to_string(), name)?);
        }
        let groups = cgroup.directories_of(pid);
        let processes = File::open(format!("/proc/{pid}/ns/pid")).map_err(SpawnError::at(what()))?;
        let rights = Rights::of(pid)?;
        Ok(Self { process, processes, namespaces, groups, rights })
    }

    /// Waits until `supervisor` has started the init of the system in a control group, and until a
    /// file exists in its root. Fails if that takes too long, or the supervisor has ended.
    pub(super) fn wait(
        cgroup: &Cgroup,
        supervisor: u32,
        file: &str,
        deadline: Duration,
    ) -> Result<Self, SpawnError> {
        let exe = |pid: u32| fs::read_link(format!("/proc/{pid}/exe")).ok();
        let failed = |why: String| SpawnError::at("start the guest's init")(io::Error::other(why));
        let end = Instant::now() + deadline;
        while Instant::now() < end {
            let program =
                exe(supervisor).ok_or_else(|| failed("the program that starts it has ended".into()))?;
            // Until its exec the init is a copy of the supervisor, with the root still to come.
            let is_init = |pid: &u32| {
                is_first(*pid) && exe(*pid).is_some_and(|own| own != program) && {
                    Path::new(&format!("/proc/{pid}/root{file}")).exists()
                }
            };
            if let Some(pid) = cgroup.processes().into_iter().find(is_init) {
                return Self::of(pid, cgroup);
            }
            std::thread::sleep(PAUSE);
        }
        Err(failed(format!("it took more than {deadline:?}")))
    }

    pub(super) fn process(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }

    pub(super) fn namespaces(&self) -> ThreadNameSpaceType {
        self.namespaces
    }

    pub(super) fn rights(&self) -> &Rights {
        &self.rights
    }

    /// Returns the files by which a process joins its own groups beside those of the init; makes
    /// the groups that do not exist. They lie where the init makes its groups, and are removed with
    /// those.
    pub(super) fn join_files(&self) -> Result<Vec<PathBuf>, SpawnError> {
        let mut files = Vec::new();
        for directory in &self.groups {
            let own = match directory.file_name().and_then(|name| name.to_str()) {
                // systemd puts itself there; in version 2 no process may be in a group with
                // subgroups that have controllers.
                Some("init.scope") => directory.with_file_name("weighbridge"),
                Some("payload") => directory.join("weighbridge"),
                _ => directory.clone(),
            };
            match fs::create_dir(&own) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(SpawnError::at(format!("make the control group {}", own.display()))(error));
                }
                _ => {}
            }
            // As in [`Cgroup::join_files`]; version 2 has no such file.
            let tasks = own.join("tasks");
            files.push(if tasks.exists() { tasks } else { own.join("cgroup.procs") });
        }
        Ok(files)
    }

    /// Has this thread clone processes of the system from now on, until the guard is dropped. The
    /// thread itself stays where it is (`setns(2)`).
    pub(super) fn enter_processes(&self) -> Result<Entered, SpawnError> {
        let kind = Some(LinkNameSpaceType::ProcessID);
        let own = File::open("/proc/self/ns/pid").map_err(SpawnError::at("open the own PID namespace"))?;
        move_into_link_name_space(self.processes.as_fd(), kind)
            .map_err(SpawnError::at("enter the PID namespace of the guest"))?;
        Ok(Entered { own })
    }
}

/// See [`Inside::enter_processes`].
pub(super) struct Entered {
    own: File,
}

impl Drop for Entered {
    fn drop(&mut self) {
        // A thread may always go back to its own namespace.
        let _ = move_into_link_name_space(self.own.as_fd(), Some(LinkNameSpaceType::ProcessID));
    }
}

/// Whether a process is the first one of a PID namespace below the host's (`NSpid` of
/// `proc_pid_status(5)`).
pub(crate) fn is_first(pid: u32) -> bool {
    let status = process_text(format!("/proc/{pid}/status")).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    let numbers: Vec<&str> = numbers.split_whitespace().collect();
    numbers.len() > 1 && numbers.last() == Some(&"1")
}
