//! containerd's own client `ctr`, for one daemon, one of its namespaces and one snapshotter.

use super::{Containerd, PLATFORM};
use crate::guest::platform_change;
use crate::helpers::fnv_1a;
use crate::oci::image_name;
use crate::oci::mounts::all_mount_points;
use crate::{Host, PlatformError, Result, common_keys, setting};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::net::sockopt::socket_peercred;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use weigh_host::command::{Finished, Invocation};
use weigh_images::Root;
use weigh_images::oci::{Layer, write_layout};
use weigh_model::EnvironmentSpec;

/// The deadline of any command but `run`; an import on a loaded machine takes some seconds.
const COMMAND_DEADLINE: Duration = Duration::from_secs(60);
/// The deadline for removing everything in a namespace, one thing after the other.
const REMOVAL_DEADLINE: Duration = Duration::from_secs(30);
/// The pause between two attempts to remove what containerd still uses.
const PAUSE: Duration = Duration::from_millis(50);
/// Longest name of a namespace or a container that containerd takes, bytes (its package
/// `identifiers`).
const LONGEST_NAME: usize = 76;
/// containerd's error for a snapshotter that it does not have.
const NOT_LOADED: &str = "snapshotter not loaded";
/// Where containerd has the directories of running containers, below its state directory.
const TASKS: &str = "io.containerd.runtime.v2.task";
/// Where containerd listens by default.
const DEFAULT_ADDRESS: &str = "/run/containerd/containerd.sock";

/// `ctr` for one namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Client {
    binary: PathBuf,
    /// The daemon's socket.
    pub(super) address: PathBuf,
    namespace: String,
    snapshotter: String,
}

impl Client {
    /// Returns the client of an environment. It does not contact the daemon yet.
    ///
    /// # Errors
    /// [`PlatformError::Unavailable`] with the remedy.
    pub(super) fn find(host: &Host, environment: &EnvironmentSpec) -> Result<Self> {
        host.require_root("containerd containers require root")?;
        let remedy = "install it with `apt-get install containerd`, or name it with `containerd:binary=PATH`";
        let binary = common_keys::program(&Containerd, environment, "ctr", remedy)?;
        let address = match setting(&Containerd, environment, "address") {
            "" => std::env::var_os("CONTAINERD_ADDRESS").map_or(DEFAULT_ADDRESS.into(), PathBuf::from),
            given => given.into(),
        };
        let snapshotter = setting(&Containerd, environment, "snapshotter").into();
        Ok(Self { binary, address, namespace: bounded(format!("weighbridge-{}", host.run)), snapshotter })
    }

    /// Returns the client that a ledger entry describes, with the installed program: none is ever
    /// taken from a ledger. `None` if its namespace is not one of weighbridge's.
    pub(super) fn of_detail(detail: &Value) -> Option<Self> {
        let text = |key: &str| detail.get(key)?.as_str().map(str::to_string);
        Some(Self {
            binary: "ctr".into(),
            address: text("address")?.into(),
            namespace: text("namespace").filter(|name| name.starts_with("weighbridge-"))?,
            snapshotter: text("snapshotter")?,
        })
    }

    /// Returns what a ledger entry needs to find the daemon again.
    pub(super) fn detail(&self) -> Value {
        json!({"address": self.address, "namespace": self.namespace, "snapshotter": self.snapshotter})
    }

    /// Returns a command for the run's namespace.
    pub(super) fn command(&self) -> Invocation {
        Invocation::new(&self.binary)
            .arg("--address")
            .arg(&self.address)
            .args(["--namespace", &self.namespace])
            .deadline(COMMAND_DEADLINE)
    }

    /// Returns the option of commands that deal with snapshots.
    pub(super) fn snapshotter(&self) -> [&str; 2] {
        ["--snapshotter", &self.snapshotter]
    }

    /// Returns the ID of the process that listens at the socket.
    ///
    /// # Errors
    /// [`PlatformError::Unavailable`]: no process does.
    pub(super) fn daemon(&self) -> Result<u32> {
        let peer = UnixStream::connect(&self.address).and_then(|stream| Ok(socket_peercred(&stream)?.pid));
        peer.map(|pid| pid.as_raw_nonzero().get().cast_unsigned()).map_err(|error| {
            PlatformError::unavailable(
                format!("no containerd listens at {}: {error}", self.address.display()),
                "start it with `systemctl start containerd`, or name its socket with `containerd:address=PATH`",
            )
        })
    }

    /// Returns the daemon's version.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub(super) fn describe(&self) -> Result<String> {
        self.daemon()?;
        let said = self.command().arg("version").run_ok()?.output;
        let said = String::from_utf8_lossy(&said).into_owned();
        // The client's version comes first.
        let version = said.lines().rev().find_map(|line| line.trim().strip_prefix("Version:"));
        Ok(format!("containerd {}", version.unwrap_or_default().trim()))
    }

    /// Imports the skeleton of a root as an image of one layer, unless it is there.
    ///
    /// # Errors
    /// Packing or containerd failed.
    pub(super) fn import(&self, host: &Host, root: &Root) -> Result<()> {
        // containerd refuses to write the same content twice at once.
        static TURN: Mutex<()> = Mutex::new(());
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        if self.snapshots()?.is_none() {
            return Err(PlatformError::unavailable(
                format!("containerd has no snapshotter `{}`", self.snapshotter),
                "name one that `ctr plugins list` shows as ok",
            ));
        }
        let namespace = platform_change(PLATFORM, "namespace", &self.namespace, self.detail());
        if !host.ledger.standing().contains(&namespace) {
            host.ledger.record(namespace)?;
        }
        let name = image_name(root);
        if self.list(&["images", "list", "--quiet"])?.contains(&name) {
            return Ok(());
        }
        let archive = host.work.join(format!("{PLATFORM}-{:016x}.tar", fnv_1a(name.bytes())));
        let layer: Layer<'_> = &|output| root.write_tar(output);
        let packed = fs::File::create(&archive)
            .and_then(|file| write_layout(&[layer], &name, &mut std::io::BufWriter::new(file)));
        packed.map_err(PlatformError::io("pack the root file system"))?;
        let import = self.command().args(["images", "import"]).args(self.snapshotter()).arg(&archive);
        let imported = import.log_to(&host.logs.join("containerd.log")).dies_with_caller().run_ok();
        // If it stays, it only takes space.
        let _ = fs::remove_file(&archive);
        imported?;
        Ok(())
    }

    /// Removes whatever exists of a container, its task and its snapshot.
    ///
    /// # Errors
    /// Why something is still there.
    pub(super) fn remove(&self, container: &str) -> Result<()> {
        self.daemon()?;
        self.until_removed(|| {
            for task in
                [&["tasks", "kill", "--all", "--signal", "SIGKILL"][..], &["tasks", "delete", "--force"]]
            {
                // There may be no task. If one is left, the next command fails.
                let _ = self.command().args(task).arg(container).run()?;
            }
            self.gone(self.command().args(["containers", "delete", container]))?;
            self.unmount_root(container)?;
            self.gone(self.command().arg("snapshots").args(self.snapshotter()).args(["delete", container]))
        })
    }

    /// Unmounts the root of a container whose shim was killed. containerd cleans up after a dead
    /// shim only if it sees the shim's end before the container is gone.
    fn unmount_root(&self, container: &str) -> Result<()> {
        let root = Path::new(TASKS).join(&self.namespace).join(container).join("rootfs");
        let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
        for point in all_mount_points(&table).filter(|point| point.ends_with(&root)) {
            match unmount(&point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
                // Another process was faster.
                Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
                Err(error) => return Err(PlatformError::at("unmount", &point)(error)),
            }
        }
        Ok(())
    }

    /// Removes the run's namespace and all that is in it.
    ///
    /// # Errors
    /// Why something is still there.
    pub(super) fn remove_namespace(&self) -> Result<()> {
        self.daemon()?;
        self.until_removed(|| {
            for container in self.list(&["containers", "list", "--quiet"])? {
                self.remove(&container)?;
            }
            for image in self.list(&["images", "list", "--quiet"])? {
                // This also removes, at once, the content and the snapshots that nothing else uses.
                self.gone(self.command().args(["images", "delete", "--sync", &image]))?;
            }
            for lease in self.list(&["leases", "list", "--quiet"])? {
                self.gone(self.command().args(["leases", "delete", "--sync", &lease]))?;
            }
            for blob in self.list(&["content", "list", "--quiet"])? {
                self.gone(self.command().args(["content", "delete", &blob]))?;
            }
            for key in self.snapshots()?.unwrap_or_default() {
                self.gone(self.command().arg("snapshots").args(self.snapshotter()).args(["delete", &key]))?;
            }
            self.gone(self.command().args(["namespaces", "remove", &self.namespace]))
        })
    }

    /// Tries to remove something until it is gone, since containerd takes a moment to let go.
    fn until_removed(&self, attempt: impl Fn() -> Result<()>) -> Result<()> {
        let end = Instant::now() + REMOVAL_DEADLINE;
        loop {
            match attempt() {
                Err(_) if Instant::now() < end => std::thread::sleep(PAUSE),
                result => return result,
            }
        }
    }

    /// Runs a command that removes something. Not finding it counts as success.
    fn gone(&self, command: Invocation) -> Result<()> {
        let line = command.command_line();
        let Finished { status, error, .. } = command.run()?;
        let error = String::from_utf8_lossy(&error);
        if status.success()
            || ["not found", "does not exist", NOT_LOADED].iter().any(|word| error.contains(word))
        {
            return Ok(());
        }
        Err(PlatformError::StillThere(format!("`{line}` failed: {}", error.trim())))
    }

    /// Returns the keys of the namespace's snapshots; `None` if containerd lacks the snapshotter.
    fn snapshots(&self) -> Result<Option<Vec<String>>> {
        let list = [&["snapshots"][..], &self.snapshotter(), &["list"]].concat();
        match self.list(&list) {
            // After a line of headings, there is a line for each snapshot: key, parent and kind.
            Ok(lines) => {
                let keys = lines.iter().skip(1).filter_map(|line| line.split_whitespace().next());
                Ok(Some(keys.map(String::from).collect()))
            }
            Err(error) if error.to_string().contains(NOT_LOADED) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the lines that a command prints.
    fn list(&self, arguments: &[&str]) -> Result<Vec<String>> {
        let output = self.command().args(arguments).run_ok()?.output;
        Ok(String::from_utf8_lossy(&output).lines().map(|line| line.trim().to_string()).collect())
    }
}

/// Returns a name that containerd accepts: a hash replaces a name that is too long.
pub(super) fn bounded(name: String) -> String {
    if name.len() <= LONGEST_NAME {
        return name;
    }
    format!("weighbridge-{:016x}", fnv_1a(name.bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_distinguished_by_a_hash() {
        assert_eq!(bounded("weighbridge-a-1".into()), "weighbridge-a-1");
        let name = |last: &str| bounded(format!("weighbridge-{}{last}", "x".repeat(80)));
        assert!(name("1").len() <= LONGEST_NAME && name("1") != name("2"));
        assert_eq!(name("1"), name("1"));
    }
}
