//! Podman with everything that it keeps in a directory of the run's own: images, containers, locks,
//! configuration, the runtime's state.
//!
//! So nothing of the user's storage is touched, a record that a crash leaves half written harms
//! nobody, and what is left to undo are processes, mounts and network devices.

use crate::guest::platform_change;
use crate::oci::access::number_of;
use crate::oci::image_name;
use crate::oci::mounts::OWN_STORE;
use crate::{Host, PlatformError, Result};
use rustix::mount::{UnmountFlags, unmount};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weigh_host::cgroup::{Cgroup, Limits};
use weigh_host::command::{Invocation, find_program};
use weigh_host::ledger::Change;
use weigh_host::private;
use weigh_images::Root;

/// For any command but `run`; an import of a large image on a loaded machine takes some seconds.
const COMMAND_DEADLINE: Duration = Duration::from_secs(120);
/// Where programs of the system are, which Podman looks for: runtimes, `conmon`, `iptables`.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// What the names of directories begin with that do not outlive a start of the host.
const STATE: &str = "/run/weighbridge-podman-";
/// Podman's directory of network namespaces, which it makes a mount point.
const NAMESPACES: &str = "/run/netns";

/// Podman's own limits of open files and processes are above what a root without `CAP_SYS_RESOURCE`
/// may set. File locks, since those in shared memory are one set for all stores of the host.
const CONFIGURATION: &str = "[containers]\n\
    default_ulimits = [\"nofile=20000:20000\", \"nproc=10000:10000\"]\n\
    [engine]\n\
    lock_type = \"file\"\n\
    events_logger = \"none\"\n";

/// Podman and where it keeps things.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Store {
    /// The program.
    pub(super) binary: PathBuf,
    /// The runtime below it.
    pub(super) runtime: PathBuf,
    /// Directory of all the rest.
    pub(super) directory: PathBuf,
}

impl Store {
    /// The store of a run for one build of Podman and one runtime; nothing is made.
    ///
    /// # Errors
    /// [`PlatformError::Unavailable`] with the remedy.
    pub(super) fn find(host: &Host, binary: &str, runtime: &str) -> Result<Self> {
        host.require_root("Podman containers require root")?;
        let (podman, runc) = ("apt-get install podman", "apt-get install runc");
        let binary = program(if binary.is_empty() { "podman" } else { binary }, podman)?;
        let runtime = program(if runtime.is_empty() { "runc" } else { runtime }, runc)?;
        // Another build may keep its records in another way.
        let build = number_of(&[binary.as_os_str(), runtime.as_os_str()]);
        // Beside the work directory, not in it: for a container whose root is mapped, Podman opens
        // every directory on the way to its storage to all users.
        let directory = host.work.with_file_name(format!("{OWN_STORE}-{}-{:08x}", host.run, build >> 32));
        Ok(Self { binary, runtime, directory })
    }

    /// The store that a ledger entry names, for the programs that are installed: none is ever taken
    /// from a ledger, nor from a directory that another user may write.
    pub(super) fn of_detail(detail: &Value) -> Option<Self> {
        let directory = PathBuf::from(detail.get("directory")?.as_str()?);
        let is_trusted = is_named(&directory) && private::check(&directory).is_ok();
        is_trusted.then(|| Self { binary: "podman".into(), runtime: "runc".into(), directory })
    }

    /// What a ledger entry holds to find the store again.
    pub(super) fn detail(&self) -> Value {
        json!({"directory": self.directory})
    }

    /// A path below the store.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// A number that no other store of this host has.
    pub(super) fn number(&self) -> u64 {
        number_of(&[self.directory.as_os_str()])
    }

    /// Directory of what does not outlive a start of the host. Podman refuses one with a path of
    /// more than 50 bytes, so it does not lie with the rest.
    fn state(&self) -> PathBuf {
        PathBuf::from(format!("{STATE}{:016x}", self.number()))
    }

    /// A command of this Podman.
    pub(super) fn command(&self) -> Invocation {
        let runtime_state = format!("root={}", self.path("runtime").display());
        Invocation::new(&self.binary)
            .env_clear()
            .env("PATH", SEARCH_PATH)
            .env("HOME", &self.directory)
            .env("CONTAINERS_CONF", self.path("containers.conf"))
            .arg("--root")
            .arg(self.path("root"))
            .arg("--runroot")
            .arg(self.state())
            .arg("--tmpdir")
            .arg(self.path("temporary"))
            .arg("--network-config-dir")
            .arg(self.path("networks"))
            .arg("--runtime")
            .arg(&self.runtime)
            .args(["--runtime-flag", &runtime_state, "--cgroup-manager=cgroupfs"])
            .deadline(COMMAND_DEADLINE)
    }

    /// Makes the directories and the configuration, unless they are there.
    ///
    /// # Errors
    /// Those of writing to the ledger and the directory.
    pub(super) fn make(&self, host: &Host) -> Result<()> {
        let configuration = self.path("containers.conf");
        if configuration.exists() {
            return Ok(());
        }
        // Undone after what is mounted there.
        for path in [&self.directory, &self.state()] {
            host.ledger.record(Change::Directory { path: path.clone() })?;
        }
        let namespaces_mounted = is_mounted(Path::new(NAMESPACES));
        let detail = json!({"state": self.state(), "namespaces_mounted": namespaces_mounted});
        let id = self.directory.display().to_string();
        host.ledger.record(platform_change("podman", "store", &id, detail))?;
        let write = || {
            for directory in [&self.directory, &self.state()] {
                private::close(directory).map_err(std::io::Error::other)?;
            }
            fs::create_dir_all(self.path("networks"))?;
            fs::create_dir_all(self.path("guests"))?;
            fs::write(&configuration, CONFIGURATION)
        };
        write().map_err(PlatformError::at("make the store", &self.directory))
    }

    /// Runs a command in a control group of its own: what a dead run has begun is ended before its
    /// directory is removed.
    fn run(&self, host: &Host, what: &str, command: Invocation) -> Result<Vec<u8>> {
        let group = format!("weighbridge-{}/podman-{what}", host.run);
        let group = host.hierarchy.create(&host.ledger, &group, &Limits::default())?;
        let done = command.pre_exec_cgroup(&group).log_to(&host.logs.join("podman.log")).run_ok();
        group.remove()?;
        Ok(done?.output)
    }

    /// Version and storage driver.
    ///
    /// # Errors
    /// Those of running it.
    pub(super) fn describe(&self, host: &Host) -> Result<String> {
        let format = "Podman {{.Version.Version}}, storage driver {{.Store.GraphDriverName}}, {{.Host.OCIRuntime.Version}}";
        let output = self.run(host, "info", self.command().args(["info", "--format", format]))?;
        Ok(String::from_utf8_lossy(&output).lines().next().unwrap_or_default().trim().into())
    }

    /// Imports the skeleton of a root as an image of one layer, unless it is there; its name.
    ///
    /// # Errors
    /// Those of packing and of Podman.
    pub(super) fn import(&self, host: &Host, root: &Root) -> Result<String> {
        let name = image_name(root);
        // Podman's own list, instead of a command that asks for it.
        let list = self.path("root").join("overlay-images/images.json");
        if fs::read_to_string(list).is_ok_and(|text| text.contains(&format!("\"{name}\""))) {
            return Ok(name);
        }
        let short = &name[name.len().saturating_sub(12)..];
        let archive = self.path(&format!("{short}.tar"));
        let packed =
            fs::File::create(&archive).and_then(|file| root.write_tar(std::io::BufWriter::new(file)));
        packed.map_err(PlatformError::io("pack the root file system"))?;
        let import = self.command().args(["import", "--quiet"]).arg(&archive).arg(&name);
        let imported = self.run(host, &format!("import-{short}"), import);
        // It takes only space.
        let _ = fs::remove_file(&archive);
        imported.map(|_| name)
    }

    /// Kills and removes a container, by a command in that group. One that is gone is fine.
    ///
    /// # Errors
    /// Why it is still there.
    pub(super) fn remove(&self, container: &str, group: Option<&Cgroup>) -> Result<()> {
        // Without its configuration there is no store, and nothing in it. Without its state it is
        // one of an earlier start of the host: no container runs, and its files go with the store.
        if [self.path("containers.conf"), self.path("root"), self.state()].iter().any(|path| !path.exists()) {
            return Ok(());
        }
        let remove =
            self.command().args(["rm", "--force", "--ignore", "--time", "0", "--volumes", container]);
        let remove = match group {
            Some(group) => remove.pre_exec_cgroup(group),
            None => remove,
        };
        remove.run_ok()?;
        Ok(())
    }

    /// Whether the storage holds a container of this name: its layer at least is there.
    pub(super) fn holds(&self, container: &str) -> bool {
        let list = self.path("root").join("overlay-containers/containers.json");
        fs::read_to_string(list).is_ok_and(|text| text.contains(&format!("\"{container}\"")))
    }
}

/// Whether a directory has the name of a store.
fn is_named(directory: &Path) -> bool {
    directory.file_name().is_some_and(|name| name.to_string_lossy().starts_with(OWN_STORE))
}

/// Unmounts what is mounted below a store.
///
/// # Errors
/// What could not be unmounted.
pub(super) fn undo(directory: &str, detail: &Value) -> Result<()> {
    let state = detail.get("state").and_then(Value::as_str).map(Path::new);
    let directory = Path::new(directory);
    let is_ours = is_named(directory) && state.is_none_or(|state| state.to_string_lossy().starts_with(STATE));
    if !is_ours {
        let what = format!("{} is not a store of weighbridge's", directory.display());
        return Err(PlatformError::StillThere(what));
    }
    for directory in [Some(directory), state].into_iter().flatten() {
        for point in mounted_below(directory) {
            // In use by a process that is ending: it goes with it.
            unmount(&point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
                .map_err(PlatformError::at("unmount", &point))?;
        }
    }
    let namespaces = Path::new(NAMESPACES);
    let empty = || fs::read_dir(namespaces).is_ok_and(|mut entries| entries.next().is_none());
    if detail.get("namespaces_mounted") == Some(&Value::Bool(false)) && is_mounted(namespaces) && empty() {
        // Somebody else may use it by now: busy then, and not ours any more.
        let _ = unmount(namespaces, UnmountFlags::NOFOLLOW);
    }
    Ok(())
}

/// Mount points below a directory, deepest first.
fn mounted_below(directory: &Path) -> Vec<PathBuf> {
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let mut points: Vec<PathBuf> = crate::oci::mounts::all_mount_points(&table)
        .filter(|point| point != directory && point.starts_with(directory))
        .collect();
    points.sort_by_key(|point| std::cmp::Reverse(point.components().count()));
    points
}

fn is_mounted(path: &Path) -> bool {
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    crate::oci::mounts::all_mount_points(&table).any(|point| point == path)
}

fn program(name: &str, install: &str) -> Result<PathBuf> {
    let found = find_program(name).ok_or_else(|| {
        let remedy = format!("install it with `{install}`, or name the file with a key");
        PlatformError::program_missing(name, remedy)
    })?;
    // Podman is started in another directory.
    found.canonicalize().map_err(PlatformError::io(format!("resolve {name}")))
}
