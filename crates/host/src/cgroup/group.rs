//! A control group that exists: freezing, counting, killing, removing.

use super::CgroupError;
use super::layout::{Hierarchy, Kind, Layout};
use super::view::CgroupView;
use crate::ledger::{EntryId, Ledger};
use crate::process;
use crate::wait::until;
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long freezing and thawing may take.
const STATE_DEADLINE: Duration = Duration::from_secs(2);
/// How long killed processes may take to be gone.
const DEATH_DEADLINE: Duration = Duration::from_secs(10);
/// After this long without success killing takes the slow and sure way: freeze, kill, thaw.
const STUBBORN: Duration = Duration::from_millis(20);

/// A control group of weighbridge's, in every hierarchy that guests use.
#[derive(Debug)]
pub struct Cgroup {
    hierarchy: Hierarchy,
    relative: PathBuf,
    pub(super) unlimited: Vec<&'static str>,
    ledger: Ledger,
    entry: EntryId,
}

impl Cgroup {
    pub(super) fn new(hierarchy: Hierarchy, relative: PathBuf, ledger: Ledger, entry: EntryId) -> Self {
        Self { hierarchy, relative, unlimited: Vec::new(), ledger, entry }
    }

    /// Path below the mount points: `weighbridge-<run>/<guest>`. With a slash before it, it is an
    /// OCI `cgroupsPath`.
    pub fn relative_path(&self) -> &Path {
        &self.relative
    }

    /// The directories of the group, one per hierarchy that guests use.
    pub fn directories(&self) -> Vec<PathBuf> {
        self.hierarchy.used().map(|mount| mount.path.join(&self.relative)).collect()
    }

    /// The group for looking at only, in every hierarchy that has it.
    pub fn view(&self) -> CgroupView {
        CgroupView::new(&self.hierarchy, &self.relative)
    }

    /// The directory in the tree of version 2, where that is what guests use: for
    /// `CLONE_INTO_CGROUP`.
    pub fn v2_directory(&self) -> Option<PathBuf> {
        let mount = self.hierarchy.used().find(|mount| mount.kind == Kind::V2)?;
        Some(mount.path.join(&self.relative))
    }

    /// The `cgroup.procs` files: a process joins by writing its number, or `0` for itself, to each.
    pub fn procs_files(&self) -> Vec<PathBuf> {
        self.directories().into_iter().map(|directory| directory.join("cgroup.procs")).collect()
    }

    /// The files by which a process *of one thread* joins, by writing `0` to each.
    ///
    /// On version 1 these are the `tasks` files: a thread that moves only itself needs none of the
    /// locks that stop every fork and exit of the host until a grace period is over, so it takes
    /// microseconds where `cgroup.procs` takes milliseconds.
    pub fn join_files(&self) -> Vec<PathBuf> {
        let file = |kind: &Kind| if *kind == Kind::V2 { "cgroup.procs" } else { "tasks" };
        self.hierarchy.joined().map(|mount| mount.path.join(&self.relative).join(file(&mount.kind))).collect()
    }

    /// The groups at or below this one that hold a process, one per hierarchy in which the group
    /// was made.
    pub fn directories_of(&self, pid: u32) -> Vec<PathBuf> {
        let holds = |directory: &PathBuf| {
            let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
            text.lines().any(|line| line.parse() == Ok(pid))
        };
        let groups = self.hierarchy.joined().map(|mount| mount.path.join(&self.relative));
        groups.filter_map(|group| tree(&group).into_iter().find(holds)).collect()
    }

    /// Controllers that this host lacks and whose limits were asked for: `cpuset`, `memory`. These
    /// limits are not in force.
    pub fn unlimited(&self) -> &[&'static str] {
        &self.unlimited
    }

    /// The processes in it and below it, ascending.
    pub fn processes(&self) -> Vec<u32> {
        self.hierarchy.processes_of(&self.relative).into_iter().collect()
    }

    /// Stops every process of the group, and waits until all have stopped.
    ///
    /// # Errors
    /// [`CgroupError::State`] after 2 s; the group is let go again then. [`CgroupError::Missing`]
    /// without a freezer.
    pub fn freeze(&self) -> Result<(), CgroupError> {
        let result = self.hierarchy.set_frozen(&self.relative, true, STATE_DEADLINE);
        if let Err(CgroupError::State { .. }) = result {
            let _ = self.hierarchy.set_frozen(&self.relative, false, Duration::ZERO);
        }
        result
    }

    /// Lets every process of the group go on, and waits until all do.
    ///
    /// # Errors
    /// As [`Cgroup::freeze`].
    pub fn thaw(&self) -> Result<(), CgroupError> {
        self.hierarchy.set_frozen(&self.relative, false, STATE_DEADLINE)
    }

    /// CPU time used by all that was ever in the group, user and kernel, nanoseconds.
    ///
    /// # Errors
    /// When the counter cannot be read.
    pub fn cpu_ns(&self) -> Result<u64, CgroupError> {
        if let Some(directory) = self.v2_directory() {
            // cpu.stat is there without the controller too (cgroup-v2, "CPU Interface Files").
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

    /// Kills every process in it and below it, frozen ones too, and waits until none is left.
    ///
    /// # Errors
    /// [`CgroupError::Remove`] when some are left after 10 s.
    pub fn kill_all(&self) -> Result<(), CgroupError> {
        self.hierarchy.kill_tree(&self.relative).map_err(CgroupError::Remove)
    }

    /// Kills every process, removes the group, and its parent where that is left empty, and strikes
    /// it out of the ledger. A group that is gone is fine.
    ///
    /// # Errors
    /// [`CgroupError::Remove`]; then it stays in the ledger.
    pub fn remove(&self) -> Result<(), CgroupError> {
        self.hierarchy.remove_tree(&self.relative).map_err(CgroupError::Remove)?;
        self.ledger.forget(self.entry)?;
        Ok(())
    }
}

impl Hierarchy {
    /// The processes in a group of weighbridge's and below it, ascending; none when there is no
    /// such group. For undoing, when there is no [`Cgroup`] any more.
    pub fn members(&self, relative: &Path) -> Vec<u32> {
        self.processes_of(relative).into_iter().collect()
    }

    /// Kills every process in a group of weighbridge's and below it, frozen ones too, and waits
    /// until none is left. No such group: does nothing.
    ///
    /// # Errors
    /// A path that is none of weighbridge's; processes that are left after 10 s.
    pub fn kill(&self, relative: &Path) -> Result<(), String> {
        super::check_relative(relative)?;
        self.kill_tree(relative)
    }

    /// Kills and removes a group wherever a hierarchy has it: container runtimes make groups of
    /// this name in hierarchies that weighbridge itself does not use.
    pub(crate) fn remove_tree(&self, relative: &Path) -> Result<(), String> {
        self.kill_tree(relative)?;
        for mount in &self.mounts {
            for directory in tree(&mount.path.join(relative)) {
                remove_directory(&directory)?;
            }
            for parent in relative.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty()) {
                remove_unless_used(&mount.path.join(parent));
            }
        }
        Ok(())
    }

    fn kill_tree(&self, relative: &Path) -> Result<(), String> {
        let started = std::time::Instant::now();
        let mut first = true;
        let empty = until(DEATH_DEADLINE, || {
            let members = self.processes_of(relative);
            if members.is_empty() {
                return true;
            }
            let stubborn = started.elapsed() > STUBBORN;
            if stubborn {
                // Something forks faster than it is killed. Frozen, it cannot.
                let _ = self.set_frozen(relative, true, STUBBORN);
            }
            if first || stubborn {
                self.kill_members(relative);
                first = false;
            }
            // SIGKILL acts on a frozen process of version 1 only after it is thawed.
            let _ = self.set_frozen(relative, false, Duration::ZERO);
            false
        });
        if empty {
            return Ok(());
        }
        let left = self.processes_of(relative).iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        Err(format!(
            "processes {left} of the control group {} did not end within {DEATH_DEADLINE:?} of being killed",
            relative.display()
        ))
    }

    fn kill_members(&self, relative: &Path) {
        for mount in self.mounts.iter().filter(|mount| mount.kind == Kind::V2) {
            // Kills the whole subtree at once, forks included (Linux 5.14). Without it the loop
            // below does the work.
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
        // Read again: a number that is still in the group after its handle was taken is the process
        // that the handle means.
        let members = self.processes_of(relative);
        for (_, handle) in handles.iter().filter(|(pid, _)| members.contains(pid)) {
            let _ = process::kill(handle);
        }
    }

    fn processes_of(&self, relative: &Path) -> BTreeSet<u32> {
        let mut processes = BTreeSet::new();
        for mount in &self.mounts {
            for directory in tree(&mount.path.join(relative)) {
                let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
                // 0 stands for a process that this PID namespace does not see.
                processes
                    .extend(text.lines().filter_map(|line| line.parse::<u32>().ok()).filter(|pid| *pid != 0));
            }
        }
        processes
    }

    fn set_frozen(&self, relative: &Path, frozen: bool, deadline: Duration) -> Result<(), CgroupError> {
        let freezer = match self.layout() {
            Layout::V2 => self.used().next().map(|mount| (mount, "cgroup.freeze", ["0", "1"])),
            _ => self.v1("freezer").map(|mount| (mount, "freezer.state", ["THAWED", "FROZEN"])),
        };
        let missing = || CgroupError::Missing { path: relative.into(), what: "freezer" };
        let (mount, file, words) = freezer.ok_or_else(missing)?;
        let group = mount.path.join(relative);
        if !group.join(file).exists() {
            return Err(missing());
        }
        write_control(&group.join(file), words[usize::from(frozen)])?;
        let reached = || match mount.kind {
            Kind::V2 => fs::read_to_string(group.join("cgroup.events"))
                .is_ok_and(|text| text.lines().any(|line| line == format!("frozen {}", u8::from(frozen)))),
            Kind::V1(_) => {
                let word = words[usize::from(frozen)];
                let there = fs::read_to_string(group.join(file)).is_ok_and(|text| text.trim() == word);
                // A process in vfork(2) sleeps where version 1 does not count it as frozen, and the
                // group stays FREEZING until somebody writes the state again.
                if !there {
                    let _the_next_look_tells = write_control(&group.join(file), word);
                }
                there
            }
        };
        if deadline.is_zero() || until(deadline, reached) {
            return Ok(());
        }
        let wanted = if frozen { "frozen" } else { "thawed" };
        Err(CgroupError::State { path: relative.into(), wanted, after: deadline })
    }
}

/// A directory and those below it, deepest first; none when it is gone.
fn tree(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut all: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .flat_map(|entry| tree(&entry.path()))
        .collect();
    all.push(directory.into());
    all
}

/// Removes a group unless another guest of the run is in it. `rmdir(2)` says "busy" for that, and
/// also for a moment after the last group in it has been removed, because the kernel takes that one
/// down in the background.
fn remove_unless_used(directory: &Path) {
    until(STATE_DEADLINE, || match fs::remove_dir(directory) {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            let processes = fs::read_to_string(directory.join("cgroup.procs"));
            tree(directory).len() > 1 || processes.is_ok_and(|text| !text.trim().is_empty())
        }
        Err(_) => true,
    });
}

/// `rmdir(2)` of a group is busy for a moment after its last process has ended.
fn remove_directory(directory: &Path) -> Result<(), String> {
    let mut last = None;
    until(STATE_DEADLINE, || match fs::remove_dir(directory) {
        Ok(()) => {
            last = None;
            true
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            last = None;
            true
        }
        Err(error) => {
            last = Some(error);
            false
        }
    });
    last.map_or(Ok(()), |error| {
        Err(format!("cannot remove the control group {}: {error}", directory.display()))
    })
}

/// Writes a control file. The flags are those of a shell's `>`, so that a tree of ordinary files
/// serves in tests.
pub(super) fn write_control(file: &Path, value: &str) -> Result<(), CgroupError> {
    let write = || {
        fs::OpenOptions::new().write(true).create(true).truncate(true).open(file)?.write_all(value.as_bytes())
    };
    write().map_err(|source| CgroupError::Io { doing: "write", path: file.into(), source })
}

fn read_control(file: &Path) -> Result<String, CgroupError> {
    fs::read_to_string(file).map_err(|source| CgroupError::Io { doing: "read", path: file.into(), source })
}

fn parse_number(file: &Path) -> Result<u64, CgroupError> {
    read_control(file)?.trim().parse().map_err(|_| CgroupError::Io {
        doing: "read",
        path: file.into(),
        source: io::Error::new(io::ErrorKind::InvalidData, "it does not hold a number"),
    })
}
