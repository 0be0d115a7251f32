//! The host's files in the guest: by 9p where the guest's kernel supports it, else by virtiofs and
//! its daemon.
//!
//! The guest's root could mount everything that is shared a second time, without the rest of its
//! root, and writable. So the program that serves the files sees only the root that containers
//! have: the parts of the image, read-only, at their places in the skeleton, in a private mount
//! namespace. Without root no such namespace is possible; then QEMU serves the directory that holds
//! all parts, read-only and with the user's rights.

use super::storage::TAG;
use crate::vm::boot::scratch;
use crate::{Host, PlatformError, Result};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use weigh_host::cache::CacheDirectory;
use weigh_host::cgroup::Cgroup;
use weigh_host::command::{Invocation, Running};
use weigh_images::{Mount, Root, kernel::GuestKernel};
use weigh_protocol::boot::BootMount;

/// Where the daemon may be: the separately packaged one, and the one that is part of QEMU 7.
const DAEMONS: [&str; 3] = ["/usr/libexec/virtiofsd", "/usr/lib/qemu/virtiofsd", "/usr/lib/virtiofsd"];
/// How to install a daemon.
const INSTALL_DAEMON: &str =
    "install it with `apt-get install virtiofsd` (before Debian 13: qemu-system-common)";
/// Where the guest mounts what is shared, before it binds the parts to their places.
const PLACE: &str = "/.weighbridge/files";

/// A way to share files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Share {
    /// `virtio-9p`, served by QEMU itself.
    NineP,
    /// `vhost-user-fs`, served by virtiofsd(1).
    Virtiofs,
}

/// Whether guests will see the host's files, as far as that is known without fetching a kernel: a
/// fetched kernel is Debian's, which supports virtiofs but not 9p. `kernel` is the value of the
/// key, possibly empty.
pub(crate) fn is_expected(kernel: &str, ways: &[Share]) -> bool {
    let named = Some(kernel).filter(|path| !path.is_empty()).map(Path::new);
    match CacheDirectory::open().and_then(|cache| GuestKernel::find_local(named, &cache)) {
        Some(kernel) => Share::of(&kernel, ways).is_some(),
        None => weigh_host::facts::is_root() && daemon().is_some(),
    }
}

impl Share {
    /// All ways, the one that needs no daemon first.
    pub(crate) const WAYS: [Self; 2] = [Self::NineP, Self::Virtiofs];

    /// The first of these ways that works with this kernel on this host.
    pub(crate) fn of(kernel: &GuestKernel, ways: &[Self]) -> Option<Self> {
        ways.iter().copied().find(|share| share.check(kernel).is_ok())
    }

    /// Checks that this way works with this kernel on this host.
    ///
    /// # Errors
    /// Something is missing.
    pub(crate) fn check(self, kernel: &GuestKernel) -> Result<()> {
        let unavailable = |reason: String, remedy: &str| Err(PlatformError::unavailable(reason, remedy));
        let known = self.modules().iter().all(|module| kernel.has(module));
        // A kernel without modules does not show whether it has 9p, which few such kernels have.
        if !known || (self == Self::NineP && kernel.modules.is_none()) {
            let reason = format!("the guest's kernel {} has no {}", kernel.release, self.as_str());
            return unavailable(reason, "name another kernel by kernel=PATH, or write root=disk");
        }
        match self {
            Self::NineP => Ok(()),
            Self::Virtiofs if !weigh_host::facts::is_root() => {
                unavailable("serving files by virtiofs requires root".into(), crate::remedy::AS_ROOT)
            }
            Self::Virtiofs if daemon().is_none() => Err(no_daemon()),
            Self::Virtiofs => Ok(()),
        }
    }

    /// Its name in the key `root` and in facts.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::NineP => "9p",
            Self::Virtiofs => "virtiofs",
        }
    }

    pub(crate) fn from_name(word: &str) -> Option<Self> {
        [Self::NineP, Self::Virtiofs].into_iter().find(|share| share.as_str() == word)
    }

    /// Kernel modules that the guest needs for this way.
    pub(crate) fn modules(self) -> &'static [&'static str] {
        match self {
            Self::NineP => &["9pnet_virtio", "9p"],
            Self::Virtiofs => &["virtiofs"],
        }
    }

    /// The mount of everything that is shared.
    fn mount(self) -> BootMount {
        match self {
            // Shared files do not change while the guest runs, so it may cache what it has read
            // (fs/9p, "cache").
            Self::NineP => {
                BootMount::new("9p", TAG, PLACE, "ro,trans=virtio,version=9p2000.L,msize=512000,cache=loose")
            }
            Self::Virtiofs => BootMount::new("virtiofs", TAG, PLACE, "ro"),
        }
    }

    /// All mounts of a root, given the host directory that is shared ([`shared`]).
    pub(crate) fn mounts(self, root: &Root, shared: &Path) -> Vec<BootMount> {
        let on_places = shared == root.skeleton;
        let bind = |mount: Mount<'_>| match mount {
            Mount::Scratch(path) => scratch(path),
            Mount::Bind(bind) => {
                let (path, above) =
                    if on_places { (&bind.target, Path::new("/")) } else { (&bind.source, shared) };
                let source = Path::new(PLACE).join(path.strip_prefix(above).unwrap_or(path));
                let options = if bind.read_only { "bind,ro" } else { "bind" };
                BootMount::new("none", &source.to_string_lossy(), &bind.target.to_string_lossy(), options)
            }
        };
        let mounts = if on_places { root.outer_mounts() } else { root.mounts() };
        [self.mount()].into_iter().chain(mounts.into_iter().map(bind)).collect()
    }
}

/// The host directory that is shared with guests of this root: the skeleton, for programs that are
/// started [`with_parts`], else the deepest directory that holds all binds.
pub(crate) fn shared(root: &Root, host: &Host) -> PathBuf {
    if host.is_root { root.skeleton.clone() } else { common(root) }
}

fn common(root: &Root) -> PathBuf {
    let mut sources = root.binds.iter().map(|bind| bind.source.as_path());
    let mut common = sources.next().and_then(Path::parent).unwrap_or(Path::new("/")).to_path_buf();
    for source in sources {
        while !source.parent().is_some_and(|parent| parent.starts_with(&common)) && common.pop() {}
    }
    common
}

/// Lets a program see the parts of a root at their places in its skeleton, all read-only. Needs
/// root.
pub(crate) fn with_parts(program: Invocation, root: &Root) -> Invocation {
    let skeleton = &root.skeleton;
    let program = program.with_read_only(skeleton, skeleton);
    root.mounts().into_iter().fold(program, |program, mount| match mount {
        Mount::Bind(bind) => {
            let target = bind.target.strip_prefix("/").unwrap_or(&bind.target);
            program.with_read_only(&bind.source, &skeleton.join(target))
        }
        Mount::Scratch(_) => program,
    })
}

/// virtiofsd(1), if it is installed.
pub(crate) fn daemon() -> Option<&'static Path> {
    DAEMONS.iter().map(Path::new).find(|path| path.is_file())
}

/// A daemon that serves one guest, and the connection to it.
pub(crate) struct Daemon {
    pub(crate) running: Running,
    pub(crate) connection: OwnedFd,
}

impl Daemon {
    /// Starts the daemon in the guest's control group. It ends when the connection is closed.
    ///
    /// # Errors
    /// The daemon is not installed or does not start.
    pub(crate) fn start(root: &Root, cgroup: Option<&Cgroup>, log: &Path) -> Result<Self> {
        let (listener, connection) = connected().map_err(PlatformError::io("make a socket for virtiofsd"))?;
        Ok(Self { running: serve(listener, root, cgroup, log)?, connection })
    }
}

/// The error for a host without virtiofsd(1).
fn no_daemon() -> PlatformError {
    PlatformError::program_missing("virtiofsd", INSTALL_DAEMON)
}

/// Starts virtiofsd(1) in the guest's control group. It serves a root's parts to the one connection
/// that it accepts on a listening socket.
///
/// # Errors
/// The daemon is not installed or does not start.
pub(crate) fn serve(listener: OwnedFd, root: &Root, cgroup: Option<&Cgroup>, log: &Path) -> Result<Running> {
    let binary = daemon().ok_or_else(no_daemon)?;
    let mut command = Invocation::new(binary);
    // The older daemon, which is part of QEMU, takes its options by `-o`. By default it makes its
    // own sandbox, which needs pivot_root(2) and so fails on initial RAM file systems.
    let old = binary.starts_with("/usr/lib/qemu");
    let shared = &root.skeleton;
    let source = shared.to_string_lossy();
    command = if old {
        let options = format!("source={},cache=always,sandbox=chroot", source.replace(',', "\\,"));
        command
            .arg(format!("--fd={}", listener.as_raw_fd()))
            .args(["-f", "--thread-pool-size=0", "-o"])
            .arg(options)
    } else {
        command.arg(format!("--fd={}", listener.as_raw_fd())).arg("--shared-dir").arg(shared).args([
            "--cache=always",
            "--sandbox=chroot",
            "--thread-pool-size=0",
        ])
    };
    if let Some(cgroup) = cgroup {
        command = command.pre_exec_cgroup(cgroup);
    }
    Ok(with_parts(command, root).pass(listener).log_to(log).spawn()?)
}

/// A listening socket and a connection to it. Their name is in no file system, and the kernel drops
/// it with them (unix(7), autobind).
fn connected() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    use rustix::net::{
        AddressFamily, SocketFlags, SocketType, bind, connect, getsockname, listen, socket_with,
    };
    let make = || socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let listener = make()?;
    bind(&listener, &rustix::net::SocketAddrUnix::new_unnamed())?;
    listen(&listener, 1)?;
    let name = getsockname(&listener)?;
    let connection = make()?;
    connect(&connection, &name)?;
    Ok((listener, connection))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weigh_images::Bind;

    fn root(sources: &[&str]) -> Root {
        let bind = |source: &&str| Bind {
            source: source.into(),
            target: Path::new("/").join(Path::new(source).file_name().unwrap()),
            read_only: true,
        };
        Root {
            skeleton: "/w/skeleton".into(),
            binds: sources.iter().map(bind).collect(),
            scratch: vec!["/tmp".into(), "/run".into()],
            ..Root::default()
        }
    }

    #[test]
    fn only_the_common_parent_of_the_image_is_shared() {
        assert_eq!(common(&root(&["/usr", "/etc", "/tmp/work"])), Path::new("/"));
        assert_eq!(common(&root(&["/images/a/usr", "/images/a/etc"])), Path::new("/images/a"));
        assert_eq!(common(&root(&["/images/a/usr", "/images/b"])), Path::new("/images"));
        assert_eq!(common(&root(&["/usr"])), Path::new("/"));
    }

    #[test]
    fn parts_of_the_shared_directory_are_bound_to_their_targets() {
        let mounts = Share::NineP.mounts(&root(&["/images/a/usr", "/images/a/etc"]), Path::new("/images/a"));
        let table: Vec<String> = mounts.iter().map(ToString::to_string).collect();
        assert_eq!(mounts[0].kind, "9p");
        assert!(table.contains(&"none /.weighbridge/files/usr /usr bind,ro\n".into()), "{table:?}");
        assert!(table.contains(&"tmpfs tmpfs /tmp nosuid,nodev,mode=1777\n".into()), "{table:?}");
        assert!(table.contains(&"tmpfs tmpfs /run nosuid,nodev,mode=0755\n".into()), "{table:?}");
        let root = root(&["/images/a/usr", "/covers/empty"]);
        let mounts = Share::Virtiofs.mounts(&root, &root.skeleton);
        let table: Vec<String> = mounts.iter().map(ToString::to_string).collect();
        assert!(table.contains(&"none /.weighbridge/files/empty /empty bind,ro\n".into()), "{table:?}");
    }
}
