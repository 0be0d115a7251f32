//! An existing control group: freezing, counting, killing, removing.

use super::CgroupError;
use super::freezer::Freezer;
use super::layout::{Hierarchy, Layout, MountKind};
use super::view::CgroupView;
use crate::deadlines::{self, scaled};
use crate::ledger::{EntryId, Ledger};
use crate::process;
use crate::wait::until;
use rustix::fs::{Dir, FileType, Mode, OFlags, open, openat};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

/// How long freezing and thawing may take.
const STATE_DEADLINE: Duration = Duration::from_secs(2);
/// The group below a group with kernel threads that has all its processes.
const PROCESSES: &str = "processes";
/// What an error says was being done.
const REMOVE: &str = "remove the control group";
/// After this long the processes are frozen before they are killed. That takes longer, but forks
/// cannot outrun it.
const FREEZE_AFTER: Duration = Duration::from_millis(20);

/// A control group of weighbridge, in every hierarchy that guests use.
#[derive(Debug)]
pub struct Cgroup {
    hierarchy: Hierarchy,
    relative: PathBuf,
    pub(super) unlimited: Vec<&'static str>,
    ledger: Ledger,
    entry: EntryId,
    /// The group below that is frozen in place of this one, once its kernel threads were set aside.
    divided: OnceLock<PathBuf>,
}

impl Cgroup {
    pub(super) fn new(hierarchy: Hierarchy, relative: PathBuf, ledger: Ledger, entry: EntryId) -> Self {
        Self { hierarchy, relative, unlimited: Vec::new(), ledger, entry, divided: OnceLock::new() }
    }

    /// Path below the mount points: `weighbridge-<run>/<guest>`. With a leading slash it is an OCI
    /// `cgroupsPath`.
    pub fn relative_path(&self) -> &Path {
        &self.relative
    }

    /// The directories of the group, one per hierarchy that guests use.
    pub fn directories(&self) -> Vec<PathBuf> {
        self.hierarchy.used().map(|mount| mount.path.join(&self.relative)).collect()
    }

    /// A read-only view of the group in every hierarchy that has it.
    pub fn view(&self) -> CgroupView {
        let divided = self.v2_directory().filter(|_| self.divided.get().is_some());
        let divided = divided.map(|directory| directory.join(PROCESSES));
        CgroupView { divided, ..CgroupView::new(&self.hierarchy, &self.relative) }
    }

    /// The group that is frozen.
    fn frozen(&self) -> &Path {
        self.divided.get().unwrap_or(&self.relative)
    }

    /// The directory in the tree of version 2 if guests use that, for `CLONE_INTO_CGROUP`.
    pub fn v2_directory(&self) -> Option<PathBuf> {
        let mount = self.hierarchy.used().find(|mount| mount.kind == MountKind::V2)?;
        Some(mount.path.join(&self.relative))
    }

    /// The `cgroup.procs` files: a process joins by writing its number, or `0` for itself, to each.
    pub fn procs_files(&self) -> Vec<PathBuf> {
        self.directories().into_iter().map(|directory| directory.join("cgroup.procs")).collect()
    }

    /// The files by which a *single-threaded* process joins, by writing `0` to each.
    ///
    /// On version 1 these are the `tasks` files. Moving a whole process by `cgroup.procs` blocks
    /// every fork and exit of the host for a grace period, milliseconds; moving one thread takes
    /// microseconds.
    pub fn join_files(&self) -> Vec<PathBuf> {
        let file = |kind: &MountKind| if *kind == MountKind::V2 { "cgroup.procs" } else { "tasks" };
        self.hierarchy.joined().map(|mount| mount.path.join(&self.relative).join(file(&mount.kind))).collect()
    }

    /// The groups at or below this one that a process is in, one per hierarchy in which the group
    /// was made.
    pub fn directories_of(&self, pid: u32) -> Vec<PathBuf> {
        let holds = |directory: &Path| {
            let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
            text.lines().any(|line| line.parse() == Ok(pid))
        };
        let groups = self.hierarchy.joined().map(|mount| mount.path.join(&self.relative));
        let find = |group: PathBuf| {
            let mut found = None;
            each_group(&group, |directory, path| {
                if found.is_none() && holds(directory) {
                    found = Some(path.to_path_buf());
                }
            });
            found
        };
        groups.filter_map(find).collect()
    }

    /// Controllers of requested limits that this host lacks: `cpuset`, `memory`. These limits are
    /// not in force.
    pub fn unlimited(&self) -> &[&'static str] {
        &self.unlimited
    }

    /// The processes in the group and below it, ascending.
    pub fn processes(&self) -> Vec<u32> {
        self.hierarchy.processes_of(&self.relative).into_iter().collect()
    }

    /// Stops every process of the group, and waits until all have stopped.
    ///
    /// # Errors
    /// [`CgroupError::State`] after 2 s; then the group is thawed. [`CgroupError::Missing`] without
    /// a freezer.
    pub fn freeze(&self) -> Result<(), CgroupError> {
        let result = self.hierarchy.set_frozen(self.frozen(), true, scaled(STATE_DEADLINE));
        if let Err(CgroupError::State { .. }) = result {
            let _ = self.hierarchy.set_frozen(self.frozen(), false, Duration::ZERO);
        }
        result
    }

    /// Lets every process of the group continue, and waits until all run.
    ///
    /// # Errors
    /// The same as [`Cgroup::freeze`].
    pub fn thaw(&self) -> Result<(), CgroupError> {
        self.hierarchy.set_frozen(self.frozen(), false, scaled(STATE_DEADLINE))
    }

    /// The freezer of the group, for freezing and thawing it quickly and often; `None` where no
    /// hierarchy of the host freezes.
    pub fn freezer(&self) -> Option<Freezer> {
        self.hierarchy.freezer(self.frozen())
    }

    /// Leaves the kernel threads of a running machine out of what is frozen. KVM puts one into the
    /// group of every machine's process (until Linux 6.13), and vhost its workers (until 6.3, and
    /// since 6.17 where `fork_from_owner_default` of the module `vhost` is off).
    /// Version 2 does not freeze kernel threads and counts them all the same, so that a group with
    /// one never becomes frozen (`kernel/cgroup/freezer.c`). If there is one, all processes move to
    /// a group below, which is frozen in its place. No controller is enabled there: limits and
    /// counts stay those of the whole group.
    ///
    /// # Errors
    /// The group below cannot be made, or a process cannot be moved.
    pub fn set_kernel_threads_aside(&self) -> Result<(), CgroupError> {
        let Some(directory) = self.v2_directory().filter(|_| self.hierarchy.layout() == Layout::V2) else {
            return Ok(());
        };
        let (kernel, others): (Vec<u32>, Vec<u32>) =
            self.view().processes().into_iter().partition(|pid| process::is_kernel_thread(*pid));
        if kernel.is_empty() {
            return Ok(());
        }
        let below = directory.join(PROCESSES);
        fs::create_dir(&below).map_err(CgroupError::io("make", &below))?;
        self.divided.get_or_init(|| self.relative.join(PROCESSES));
        let procs = below.join("cgroup.procs");
        for pid in others {
            match fs::write(&procs, pid.to_string()) {
                // It has ended.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                moved => moved.map_err(CgroupError::io("write", &procs))?,
            }
        }
        Ok(())
    }

    /// CPU time of all processes that were ever in the group, user and kernel, nanoseconds.
    ///
    /// # Errors
    /// When the counter cannot be read.
    pub fn cpu_ns(&self) -> Result<u64, CgroupError> {
        if let Some(directory) = self.v2_directory() {
            // cpu.stat exists without the controller, too (cgroup-v2, "CPU Interface Files").
            let text = read_control(&directory.join("cpu.stat"))?;
            let value = text.lines().find_map(|line| line.strip_prefix("usage_usec "));
            return value
                .and_then(|value| value.trim().parse::<u64>().ok())
                .map(|microseconds| microseconds * 1000)
                .ok_or_else(|| self.missing("usage_usec in cpu.stat"));
        }
        self.v1_number("cpuacct", "cpuacct.usage", "cpuacct controller")
    }

    /// Memory charged to the group now, page cache and kernel memory included, bytes.
    ///
    /// # Errors
    /// When the counter cannot be read.
    pub fn memory_bytes(&self) -> Result<u64, CgroupError> {
        match self.v2_directory().map(|directory| directory.join("memory.current")) {
            Some(file) if file.exists() => parse_number(&file),
            Some(_) => Err(self.missing("memory controller")),
            None => self.v1_number("memory", "memory.usage_in_bytes", "memory controller"),
        }
    }

    fn v1_number(&self, controller: &str, file: &str, what: &'static str) -> Result<u64, CgroupError> {
        let mount = self.hierarchy.v1(controller).ok_or_else(|| self.missing(what))?;
        parse_number(&mount.path.join(&self.relative).join(file))
    }

    fn missing(&self, what: &'static str) -> CgroupError {
        CgroupError::Missing { path: self.relative.clone(), what }
    }

    /// Kills every process in the group and below it, frozen ones too, and waits for their end.
    ///
    /// # Errors
    /// [`CgroupError::StillAlive`] when some are left after 10 s.
    pub fn kill_all(&self) -> Result<(), CgroupError> {
        self.hierarchy.kill_tree(&self.relative)
    }

    /// Kills every process, removes the group, and its parent if that is then empty, and removes
    /// the ledger entry. A group that no longer exists is not an error.
    ///
    /// # Errors
    /// [`CgroupError`]; then the group stays in the ledger.
    pub fn remove(&self) -> Result<(), CgroupError> {
        self.hierarchy.remove_tree(&self.relative)?;
        Ok(self.ledger.forget(self.entry)?)
    }
}

impl Hierarchy {
    /// The processes in a group of weighbridge and below it, ascending; none if there is no such
    /// group. For undoing, when the [`Cgroup`] no longer exists.
    pub fn members(&self, relative: &Path) -> Vec<u32> {
        self.processes_of(relative).into_iter().collect()
    }

    /// Kills every process in a group of weighbridge and below it, frozen ones too, and waits for
    /// their end. Does nothing if there is no such group.
    ///
    /// # Errors
    /// [`CgroupError::Name`], or [`CgroupError::StillAlive`] when some are left after 10 s.
    pub fn kill(&self, relative: &Path) -> Result<(), CgroupError> {
        super::check_relative(relative)?;
        self.kill_tree(relative)
    }

    /// Kills and removes a group in every hierarchy: container runtimes make groups of this name in
    /// hierarchies that weighbridge itself does not use.
    pub(crate) fn remove_tree(&self, relative: &Path) -> Result<(), CgroupError> {
        self.kill_tree(relative)?;
        for mount in &self.mounts {
            let top = mount.path.join(relative);
            let mut removed: Result<(), CgroupError> = Ok(());
            each_group(&top, |directory, path| {
                if removed.is_ok() {
                    removed = remove_empty(directory).map_err(CgroupError::io(REMOVE, path));
                }
            });
            removed?;
            // The walk ended early: this says why the group stays.
            if top.is_dir() {
                remove_directory(&top)?;
            }
            for parent in relative.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty()) {
                remove_unless_used(&mount.path.join(parent));
            }
        }
        Ok(())
    }

    fn kill_tree(&self, relative: &Path) -> Result<(), CgroupError> {
        let started = std::time::Instant::now();
        let mut first = true;
        let deadline = deadlines::death();
        let empty = until(deadline, || {
            let members = self.processes_of(relative);
            if members.is_empty() {
                return true;
            }
            let forks_faster = started.elapsed() > FREEZE_AFTER;
            if forks_faster {
                let _ = self.set_frozen(relative, true, FREEZE_AFTER);
            }
            if first || forks_faster {
                self.kill_members(relative);
                first = false;
            }
            // SIGKILL acts on a frozen process of version 1 only once it is thawed. A guest may
            // have frozen a group of its own, too.
            self.thaw_tree(relative);
            false
        });
        if empty {
            return Ok(());
        }
        let pids = self.processes_of(relative).iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        Err(CgroupError::StillAlive { pids, path: relative.into(), after: deadline })
    }

    /// Asks the kernel to thaw a group and all groups below it.
    fn thaw_tree(&self, relative: &Path) {
        let Some(freezer) = self.freezer(relative) else { return };
        each_group(freezer.directory(), |group, _| {
            let _ = freezer.in_group(group.into()).request(false);
        });
    }

    fn kill_members(&self, relative: &Path) {
        for mount in self.mounts.iter().filter(|mount| mount.kind == MountKind::V2) {
            // Kills the whole subtree at once, forks included (Linux 5.14). Older kernels are left
            // to the loop below.
            let _ = fs::OpenOptions::new()
                .write(true)
                .open(mount.path.join(relative).join("cgroup.kill"))
                .and_then(|mut file| file.write_all(b"1"));
        }
        let handles: Vec<_> = self
            .processes_of(relative)
            .into_iter()
            .filter_map(|pid| Some((pid, process::handle(pid).ok()??)))
            .collect();
        // Read the members again: a number that is still in the group after its handle was opened
        // belongs to the process of the handle.
        let members = self.processes_of(relative);
        for (_, handle) in handles.iter().filter(|(pid, _)| members.contains(pid)) {
            let _ = process::kill(handle);
        }
    }

    fn processes_of(&self, relative: &Path) -> BTreeSet<u32> {
        let mut processes = BTreeSet::new();
        for mount in &self.mounts {
            processes.append(&mut processes_below(&mount.path.join(relative)));
        }
        processes
    }

    /// The freezer of a group; `None` where no hierarchy of the host freezes.
    fn freezer(&self, relative: &Path) -> Option<Freezer> {
        let version_2 = self.layout() == Layout::V2;
        let mount = if version_2 { self.used().next() } else { self.v1("freezer") };
        let freezer = Freezer::of(mount?.path.join(relative), version_2);
        freezer.control().exists().then_some(freezer)
    }

    fn set_frozen(&self, relative: &Path, frozen: bool, deadline: Duration) -> Result<(), CgroupError> {
        let missing = || CgroupError::Missing { path: relative.into(), what: "freezer" };
        let freezer = self.freezer(relative).ok_or_else(missing)?;
        let reached = if deadline.is_zero() {
            freezer.request(frozen)
        } else {
            freezer.open().and_then(|files| files.reach(frozen, deadline).map(|_| ()))
        };
        reached.map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => CgroupError::State {
                path: relative.into(),
                wanted: if frozen { "frozen" } else { "thawed" },
                after: deadline,
            },
            _ => CgroupError::io("write", &freezer.control())(error),
        })
    }
}

/// The processes in the group with this directory and in all groups below it, however deep; none if
/// it does not exist.
pub fn processes_below(directory: &Path) -> BTreeSet<u32> {
    let mut processes = BTreeSet::new();
    each_group(directory, |group, _| {
        let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        // The kernel shows a process outside of this PID namespace as 0.
        processes.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()).filter(|pid| *pid != 0));
    });
    processes
}

/// Visits a group and all groups below it, deepest first; none if it does not exist. A guest may
/// nest its groups deeper than a path can be long. So `visit` gets a short path, which leads to the
/// group while it is being visited, and the whole path, which may be too long for the kernel.
fn each_group(top: &Path, mut visit: impl FnMut(&Path, &Path)) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let (Some(parent), Some(name)) = (top.parent(), top.file_name()) else { return };
    let Ok(mut at) = open(parent, flags, Mode::empty()) else { return };
    let mut path = parent.to_path_buf();
    // The groups in each open directory that are still to be visited, the innermost last.
    let mut left: Vec<Vec<OsString>> = vec![vec![name.into()]];
    while let Some(names) = left.last_mut() {
        if let Some(name) = names.last() {
            match openat(&at, name, flags | OFlags::NOFOLLOW, Mode::empty()) {
                Ok(below) => {
                    path.push(name);
                    at = below;
                    left.push(groups_in(&at));
                }
                // It is gone.
                Err(_) => drop(names.pop()),
            }
            continue;
        }
        left.pop();
        let Some(name) = left.last_mut().and_then(Vec::pop) else { return };
        let Ok(above) = openat(&at, "..", flags, Mode::empty()) else { return };
        at = above;
        visit(&Path::new("/proc/self/fd").join(at.as_raw_fd().to_string()).join(name), &path);
        path.pop();
    }
}

/// The names of the groups directly below one.
fn groups_in(directory: &OwnedFd) -> Vec<OsString> {
    let entries = Dir::read_from(directory).into_iter().flatten().flatten();
    let groups = entries.filter(|entry| entry.file_type() == FileType::Directory);
    let names = groups.map(|entry| OsStr::from_bytes(entry.file_name().to_bytes()).to_os_string());
    names.filter(|name| name != "." && name != "..").collect()
}

/// Removes a group unless another guest of the run is in it. `rmdir(2)` then reports "busy". It
/// also does so for a moment after the last child was removed, because the kernel destroys the
/// child in the background.
fn remove_unless_used(directory: &Path) {
    until(scaled(STATE_DEADLINE), || match fs::remove_dir(directory) {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            let processes = fs::read_to_string(directory.join("cgroup.procs"));
            let mut groups = 0;
            each_group(directory, |_, _| groups += 1);
            groups > 1 || processes.is_ok_and(|text| !text.trim().is_empty())
        }
        Err(_) => true,
    });
}

/// Removes a group.
pub(super) fn remove_directory(directory: &Path) -> Result<(), CgroupError> {
    remove_empty(directory).map_err(CgroupError::io(REMOVE, directory))
}

/// Removes a group. `rmdir(2)` reports "busy" for a moment after the last process has ended.
fn remove_empty(directory: &Path) -> io::Result<()> {
    let mut removed = Ok(());
    until(scaled(STATE_DEADLINE), || {
        removed = match fs::remove_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        };
        removed.is_ok()
    });
    removed
}

/// Writes a control file. The flags are those of a shell's `>`, so that tests can use a tree of
/// ordinary files.
pub(super) fn write_control(file: &Path, value: &str) -> Result<(), CgroupError> {
    let write = || {
        fs::OpenOptions::new().write(true).create(true).truncate(true).open(file)?.write_all(value.as_bytes())
    };
    write().map_err(CgroupError::io("write", file))
}

pub(super) fn read_control(file: &Path) -> Result<String, CgroupError> {
    fs::read_to_string(file).map_err(CgroupError::io("read", file))
}

fn parse_number(file: &Path) -> Result<u64, CgroupError> {
    let not_a_number = |_| io::Error::new(io::ErrorKind::InvalidData, "it does not hold a number");
    read_control(file)?.trim().parse().map_err(not_a_number).map_err(CgroupError::io("read", file))
}
