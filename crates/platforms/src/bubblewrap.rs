//! Sandboxes by bubblewrap, the program below Flatpak: an ordinary program of the host makes
//! namespaces and binds, without a daemon.
//!
//! `bwrap` takes every mount on its command line, makes the namespaces, and waits outside of them
//! for the probe, which is process 1 inside. It starts in the guest's control group like any
//! process of the host and stays there, so all that it costs is charged to the guest. Its option
//! `--die-with-parent` is not used, because it sends its signal when the *thread* that started
//! `bwrap` ends. Instead, the probe ends when its standard input does.

use crate::common_keys::{self, Storage};
use crate::helpers::version_text;
use crate::namespaces::{self, USER};
use crate::privileges::{self, WITHOUT_DEVICES};
use crate::spawn::{Runtime, shown_groups};
use crate::{
    About, Availability, Capabilities, Guest, GuestRequest, Host, Platform, PlatformError, Result, network,
    setting,
};
use rustix::thread::UnshareFlags;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use weigh_host::cgroup::Cgroup;
use weigh_images::Mount;
use weigh_model::EnvironmentSpec;

const REMEDY: &str =
    "install it with `apt-get install bubblewrap`, or name the file with `bubblewrap:binary=PATH`";

/// The platform `bubblewrap`.
pub struct Bubblewrap;

const ABOUT: About = About {
    name: "bubblewrap",
    summary: "a sandbox by bwrap: all namespaces, no new privileges, no daemon; for ordinary users too",
    keys: &[
        common_keys::net(network::WORDS),
        USER,
        common_keys::STORAGE,
        common_keys::CPUS,
        common_keys::MEMORY,
        common_keys::ROOTFS,
        common_keys::BINARY,
    ],
};

impl Platform for Bubblewrap {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn capabilities(&self, environment: &EnvironmentSpec) -> Capabilities {
        namespaces::capabilities().with_networks(self, environment)
    }

    fn availability(&self, host: &Host) -> Availability {
        let found = crate::oci::availability(self, host, |request| {
            let program = self.program(&request.environment)?;
            let version = version_text(&program)?;
            self.launch(host, request)?.stop()?;
            Ok(version)
        });
        common_keys::with_namespaces_remedy(found, host)
    }

    fn prepare(&self, _: &Host, request: &GuestRequest) -> Result<()> {
        self.program(&request.environment).map(|_| ())
    }

    fn launch(&self, host: &Host, request: &GuestRequest) -> Result<Box<dyn Guest>> {
        let program = self.program(&request.environment)?;
        let command = |cgroup: Option<&Cgroup>, storage: &Storage| {
            let mut command = Arguments(vec![program.clone().into()]);
            self.isolate(&mut command, &request.environment);
            command.mount(request, cgroup, storage);
            command.add(["--", weigh_images::PROBE]);
            command.0
        };
        let overlay = setting(self, &request.environment, "storage") == "overlay";
        if overlay && !host.is_root {
            return Err(PlatformError::unavailable(
                "mounting an overlay for a sandbox requires root",
                "run as root, or with `storage=volume`",
            ));
        }
        // This version of bwrap cannot mount overlays, but can bind one that only it sees.
        let namespaces = if overlay { UnshareFlags::NEWNS } else { UnshareFlags::empty() };
        Runtime::new(&command).launch(self, host, request, namespaces)
    }

    fn host_changes(&self, request: &GuestRequest) -> Vec<String> {
        Runtime::host_changes(self, request)
    }
}

impl Bubblewrap {
    fn program(&self, environment: &EnvironmentSpec) -> Result<PathBuf> {
        common_keys::program(self, environment, "bwrap", REMEDY)
    }

    /// Does not use `--unshare-all`, which makes a user namespace as well, even for root.
    fn isolate(&self, command: &mut Arguments, environment: &EnvironmentSpec) {
        command.add(["--unshare-ipc", "--unshare-pid", "--unshare-uts", "--hostname", "weigh", "--as-pid-1"]);
        command.add(["--unshare-cgroup-try"]);
        if setting(self, environment, "net") == "none" {
            command.add(["--unshare-net"]);
        }
        if setting(self, environment, "user") == "mapped" || !weigh_host::facts::is_root() {
            command.add(["--unshare-user", "--uid", "0", "--gid", "0"]);
        }
        // To root it leaves all capabilities, to others none.
        if weigh_host::facts::is_root() {
            command.add(["--cap-drop", "ALL"]);
            privileges::names(WITHOUT_DEVICES).iter().for_each(|name| command.add(["--cap-add", name]));
        }
    }
}

/// A command line.
struct Arguments(Vec<OsString>);

impl Arguments {
    fn add<T: Into<OsString>>(&mut self, words: impl IntoIterator<Item = T>) {
        self.0.extend(words.into_iter().map(Into::into));
    }

    fn bind(&mut self, read_only: bool, source: &Path, target: impl AsRef<Path>) {
        let option = if read_only { "--ro-bind" } else { "--bind" };
        self.add([option.as_ref(), source.as_os_str(), target.as_ref().as_os_str()]);
    }

    fn tmpfs(&mut self, target: &Path) {
        let mode = crate::oci::mounts::scratch_mode(target);
        self.add(["--perms".as_ref(), mode.as_ref(), "--tmpfs".as_ref(), target.as_os_str()]);
    }

    fn mount_one(&mut self, mount: Mount<'_>) {
        match mount {
            Mount::Bind(bind) => self.bind(bind.read_only, &bind.source, &bind.target),
            Mount::Scratch(path) => self.tmpfs(path),
        }
    }

    fn mount(&mut self, request: &GuestRequest, cgroup: Option<&Cgroup>, storage: &Storage) {
        self.bind(true, &request.root.skeleton, "/");
        let on_disk = match storage {
            Storage::Tmpfs => None,
            Storage::Volume(directory) => Some(directory.clone()),
            Storage::Overlay { .. } => storage.merged(),
        };
        let target = Path::new(Storage::TARGET);
        let mounts = request.root.mounts();
        // Mounts below the storage, such as a user's directory, come after it.
        let (stored, first): (Vec<_>, Vec<_>) =
            mounts.into_iter().partition(|mount| Storage::holds(mount.target()));
        for mount in first {
            match mount {
                // Bound below, so that roots without this scratch mount have it too.
                Mount::Scratch(path) if path == target && on_disk.is_some() => {}
                mount => self.mount_one(mount),
            }
        }
        if let Some(directory) = on_disk {
            self.bind(false, &directory, target);
        }
        for mount in stored {
            self.mount_one(mount);
        }
        self.add(["--proc", "/proc", "--dev", "/dev"]);
        self.bind(true, Path::new("/sys"), "/sys");
        self.control_groups(cgroup);
    }

    /// Shows the guest its own control groups, so that programs find their limits where they look
    /// for them.
    fn control_groups(&mut self, cgroup: Option<&Cgroup>) {
        let place = Path::new("/sys/fs/cgroup");
        let shown = cgroup.map(shown_groups).unwrap_or_default();
        if shown.iter().any(|(_, name)| !name.as_os_str().is_empty()) {
            self.tmpfs(place);
        }
        for (directory, name) in shown {
            self.bind(true, &directory, place.join(name));
        }
    }
}
