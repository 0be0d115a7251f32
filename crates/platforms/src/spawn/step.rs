//! What the child does before its exec, prepared so that doing it allocates nothing.

use super::rights::Rights;
use super::{OwnMount, SpawnError, SpawnRequest};
use crate::common_keys::Storage;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, mkdirat, openat, symlinkat};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, OpenTreeFlags, UnmountFlags, mount, mount_bind_recursive,
    mount_change, open_tree, unmount,
};
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::thread::{CpuSet, ThreadNameSpaceType, UnshareFlags};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use weigh_host::cgroup::Cgroup;
use weigh_images::{Mount, Root};

/// Host name of guests with a UTS namespace of their own.
const HOST_NAME: &[u8] = b"weigh";

/// Devices of a private `/dev`.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// One thing to do, and its name in an error.
#[derive(Debug)]
pub(super) struct Step<'a> {
    pub(super) what: String,
    pub(super) act: Act<'a>,
}

/// What is done. Every variant is a few system calls.
#[derive(Debug)]
pub(super) enum Act<'a> {
    /// Joins a control group of version 1 by its open `tasks` file.
    Join(BorrowedFd<'a>),
    Affinity(Box<CpuSet>),
    CgroupNamespace,
    /// Enters the namespaces of a process, except its PID namespace.
    Enter {
        process: BorrowedFd<'a>,
        namespaces: ThreadNameSpaceType,
    },
    /// Becomes the root of the present user namespace.
    BecomeRoot,
    /// Gives up what a process may not do.
    Confine(&'a Rights),
    HostName,
    LoopbackUp,
    /// From here on, host and child do not see each other's new mounts.
    Private,
    /// Binds a directory with everything below it, or a file.
    Bind {
        source: CString,
        target: CString,
        read_only: bool,
    },
    FileSystem {
        kind: &'static CStr,
        target: CString,
        flags: MountFlags,
        data: &'static CStr,
    },
    Overlay {
        target: CString,
        flags: MountFlags,
        data: CString,
    },
    /// Makes set-user-ID bits and device files of a mount ineffective.
    Harmless(CString),
    /// Does the second if the first is not permitted.
    Permitted(Box<Act<'a>>, Box<Act<'a>>),
    Directory {
        path: CString,
        mode: u32,
    },
    EmptyFile(CString),
    Link {
        to: &'static CStr,
        path: CString,
    },
    ReadOnly(CString),
    /// Makes the directory the root, and unmounts the old one.
    Pivot(CString),
}

/// What `/dev`, `/proc` and `/sys` are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Devices {
    /// The host's.
    Host,
    /// The guest's own, for its own namespaces.
    Private,
    /// Made by the program that enters the root.
    Absent,
}

impl Act<'_> {
    /// Does it. Runs in the child: no allocation, no lock, only system calls.
    pub(super) fn run(&self) -> Result<(), Errno> {
        match self {
            Self::Join(file) => rustix::io::write(file, b"0").map(|_| ()),
            Self::Affinity(cpus) => rustix::thread::sched_setaffinity(None, cpus),
            Self::CgroupNamespace => unshare(UnshareFlags::NEWCGROUP),
            Self::Enter { process, namespaces } => {
                rustix::thread::move_into_thread_name_spaces(process.as_fd(), *namespaces)
            }
            Self::BecomeRoot => become_root(),
            Self::Confine(rights) => rights.confine(),
            Self::HostName => rustix::system::sethostname(HOST_NAME),
            Self::LoopbackUp => loopback_up(),
            Self::Private => mount_change(c"/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC),
            Self::Bind { source, target, read_only } => {
                mount_bind_recursive(source.as_c_str(), target.as_c_str())?;
                if *read_only { set_read_only(target, true) } else { Ok(()) }
            }
            Self::FileSystem { kind, target, flags, data } => {
                mount(*kind, target.as_c_str(), *kind, *flags, *data)
            }
            Self::Overlay { target, flags, data } => {
                mount(c"overlay", target.as_c_str(), c"overlay", *flags, data.as_c_str())
            }
            Self::Harmless(path) => {
                set_attributes(CWD, path, libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV, false)
            }
            Self::Permitted(first, second) => match first.run() {
                Err(Errno::PERM | Errno::ACCESS) => second.run(),
                other => other,
            },
            Self::Directory { path, mode } => match mkdirat(CWD, path.as_c_str(), Mode::from_raw_mode(*mode))
            {
                Err(Errno::EXIST) => Ok(()),
                other => other,
            },
            Self::EmptyFile(path) => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
                openat(CWD, path.as_c_str(), flags, Mode::from_raw_mode(0o644)).map(|_| ())
            }
            Self::Link { to, path } => symlinkat(*to, CWD, path.as_c_str()),
            Self::ReadOnly(path) => set_read_only(path, false),
            Self::Pivot(root) => {
                rustix::process::chdir(root.as_c_str())?;
                // The old root is put on top of the new one and unmounted there, which needs no
                // directory for it (pivot_root(2), "pivot_root(".", ".")").
                rustix::process::pivot_root(c".", c".")?;
                unmount(c".", UnmountFlags::DETACH)?;
                rustix::process::chdir(c"/")
            }
        }
    }
}

fn unshare(flags: UnshareFlags) -> Result<(), Errno> {
    // SAFETY: only namespaces are unshared, no descriptors and no memory.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}

fn set_read_only(path: &CStr, recursive: bool) -> Result<(), Errno> {
    set_attributes(CWD, path, libc::MOUNT_ATTR_RDONLY, recursive)
}

/// Opens a file of the host in a read-only mount of its own, so that a guest in which it is executed
/// cannot write to it through `/proc/PID/exe`.
pub(super) fn open_read_only(file: &Path) -> Result<OwnedFd, SpawnError> {
    let opened = open_tree(CWD, file, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC);
    let opened = opened.and_then(|mount| {
        set_attributes(mount.as_fd(), c"", libc::MOUNT_ATTR_RDONLY, false)?;
        Ok(mount)
    });
    opened.map_err(SpawnError::at(format!("open {} read-only", file.display())))
}

/// Sets attributes of the mount at a path, or of the open one if the path is empty.
fn set_attributes(
    directory: BorrowedFd<'_>,
    path: &CStr,
    attr_set: u64,
    recursive: bool,
) -> Result<(), Errno> {
    let attributes = libc::mount_attr { attr_set, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let flags = (AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH).bits()
        | if recursive { libc::AT_RECURSIVE as u32 } else { 0 };
    // SAFETY: the path and the attributes are valid for the call, and the size is that of the
    // attributes (mount_setattr(2)).
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            directory.as_raw_fd(),
            path.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}

fn loopback_up() -> Result<(), Errno> {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    // SAFETY: all fields are integers, or arrays of them, for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the request is valid for the call and names an interface by a string that ends in
    // zero (netdevice(7)).
    let result =
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as libc::Ioctl, &raw const request) };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Uses the kernel's own calls: the C library's would change all threads, of which there is one
/// here.
fn become_root() -> Result<(), Errno> {
    // SAFETY: only numbers are passed; an empty list of groups needs no address.
    let results = unsafe {
        [
            libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()),
            libc::syscall(libc::SYS_setresgid, 0, 0, 0),
            libc::syscall(libc::SYS_setresuid, 0, 0, 0),
        ]
    };
    if results == [0; 3] { Ok(()) } else { Err(last_errno()) }
}

pub(super) fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

/// Returns everything that the child of a request has to do, in order.
pub(super) fn all<'a>(request: &SpawnRequest<'a>, joins: &'a [File]) -> Result<Vec<Step<'a>>, SpawnError> {
    let mut list = Steps(Vec::with_capacity(64));
    let new = request.namespaces;
    for file in joins {
        list.add("join the control group", Act::Join(file.as_fd()));
    }
    // After the group: joining a cpuset resets the affinity.
    if !request.cpus.is_empty() {
        list.add(
            format!("run on the CPUs {:?}", request.cpus),
            Act::Affinity(Box::new(cpu_set(request.cpus)?)),
        );
    }
    if new.contains(UnshareFlags::NEWCGROUP) {
        list.add("make a namespace of control groups", Act::CgroupNamespace);
    }
    if new.contains(UnshareFlags::NEWUTS) {
        list.add("set the host name", Act::HostName);
    }
    if new.contains(UnshareFlags::NEWNET) {
        list.add("bring the loopback interface up", Act::LoopbackUp);
    }
    if let Some(root) = request.root {
        let devices = match (request.outside, new.contains(UnshareFlags::NEWPID)) {
            (true, _) => Devices::Absent,
            (false, true) => Devices::Private,
            (false, false) => Devices::Host,
        };
        list.root(root, devices, request)?;
    } else if new.contains(UnshareFlags::NEWNS) {
        list.add("make mounts private", Act::Private);
        for mount in request.mounts {
            list.own_mount(mount)?;
        }
        if let Some(merged) = request.storage.merged() {
            list.storage(request.storage, &merged)?;
        }
    }
    // `native` with another root is still the host itself.
    if request.root.is_some() && new.contains(UnshareFlags::NEWPID) {
        list.add("give up the rights that no guest has", Act::Confine(Rights::OF_A_GUEST));
    }
    if let Some(inside) = request.inside {
        let what = "enter the namespaces of the guest's init";
        list.add(what, Act::Enter { process: inside.process(), namespaces: inside.namespaces() });
        if inside.namespaces().contains(ThreadNameSpaceType::USER) {
            list.add("become root of the guest", Act::BecomeRoot);
        }
        list.add("give up what the guest's init may not do", Act::Confine(inside.rights()));
    }
    Ok(list.0)
}

fn cpu_set(cpus: &[u32]) -> Result<CpuSet, SpawnError> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        let cpu = *cpu as usize;
        if cpu >= CpuSet::MAX_CPU {
            return Err(SpawnError::at(format!("run on CPU {cpu}"))(Errno::INVAL));
        }
        set.set(cpu);
    }
    Ok(set)
}

/// Flags for mounts that a guest writes to: no set-user-ID bits, no devices, as elsewhere.
const SCRATCH: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);

struct Steps<'a>(Vec<Step<'a>>);

impl Steps<'_> {
    fn root(&mut self, root: &Root, devices: Devices, request: &SpawnRequest<'_>) -> Result<(), SpawnError> {
        let top = &root.skeleton;
        self.add("make mounts private", Act::Private);
        for mount in request.mounts {
            self.own_mount(mount)?;
        }
        self.bind(top, top, false)?;
        for mount in root.mounts() {
            let target = below(top, mount.target());
            match mount {
                Mount::Bind(bind) => {
                    self.places(root, &bind.target, bind.source.is_dir())?;
                    self.bind(&bind.source, &target, bind.read_only)?;
                }
                Mount::Scratch(path)
                    if path == Path::new(Storage::TARGET) && *request.storage != Storage::Tmpfs =>
                {
                    self.storage(request.storage, &target)?;
                }
                Mount::Scratch(path) => {
                    let data = if path.ends_with("tmp") { c"mode=1777" } else { c"mode=0755" };
                    self.file_system(c"tmpfs", &target, SCRATCH, data)?;
                }
            }
        }
        if !root.scratch.iter().any(|path| path == Path::new(Storage::TARGET)) {
            self.storage(request.storage, &below(top, Path::new(Storage::TARGET)))?;
        }
        match devices {
            Devices::Host => {
                for name in ["proc", "sys", "dev"] {
                    self.bind(&Path::new("/").join(name), &top.join(name), false)?;
                }
            }
            Devices::Private => self.private_devices(top, request)?,
            Devices::Absent => {}
        }
        self.add("make the root read-only", Act::ReadOnly(path(top)?));
        if !request.outside {
            self.add("change the root", Act::Pivot(path(top)?));
        }
        Ok(())
    }

    fn private_devices(&mut self, top: &Path, request: &SpawnRequest<'_>) -> Result<(), SpawnError> {
        let user = request.namespaces.contains(UnshareFlags::NEWUSER);
        let harmless = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        self.file_system(c"proc", &top.join("proc"), harmless, c"")?;
        let sys = top.join("sys");
        let own = Act::FileSystem {
            kind: c"sysfs",
            target: path(&sys)?,
            flags: harmless | MountFlags::RDONLY,
            data: c"",
        };
        // Only the owner of the network namespace may mount sysfs (sysfs(5)), which a user
        // namespace with the host's network is not.
        let hosts = Act::Bind { source: path(Path::new("/sys"))?, target: path(&sys)?, read_only: true };
        self.add("mount sysfs", Act::Permitted(Box::new(own), Box::new(hosts)));
        self.control_groups(&sys, request)?;
        let dev = top.join("dev");
        self.file_system(c"tmpfs", &dev, MountFlags::NOSUID | MountFlags::NOEXEC, c"mode=0755")?;
        for name in DEVICES {
            let file = dev.join(name);
            self.add(format!("make /dev/{name}"), Act::EmptyFile(path(&file)?));
            self.bind(&Path::new("/dev").join(name), &file, false)?;
        }
        self.directory(&dev.join("pts"), 0o755)?;
        // Group 5 is tty in every distribution; an ordinary user's namespace has no group but its
        // own.
        let mapped_alone = user && !weigh_host::facts::is_root();
        let data = if mapped_alone {
            c"newinstance,ptmxmode=0666,mode=0620"
        } else {
            c"newinstance,ptmxmode=0666,mode=0620,gid=5"
        };
        self.file_system(c"devpts", &dev.join("pts"), MountFlags::NOSUID | MountFlags::NOEXEC, data)?;
        self.directory(&dev.join("shm"), 0o755)?;
        self.file_system(c"tmpfs", &dev.join("shm"), MountFlags::NOSUID | MountFlags::NODEV, c"mode=1777")?;
        let links = [
            ("ptmx", c"pts/ptmx"),
            ("fd", c"/proc/self/fd"),
            ("stdin", c"/proc/self/fd/0"),
            ("stdout", c"/proc/self/fd/1"),
            ("stderr", c"/proc/self/fd/2"),
        ];
        for (name, to) in links {
            self.add(format!("make /dev/{name}"), Act::Link { to, path: path(&dev.join(name))? });
        }
        Ok(())
    }

    /// Mounts what holds the guest's `/var/tmp`, except a tmpfs, which is one of the root's own
    /// scratch mounts.
    fn storage(&mut self, storage: &Storage, target: &Path) -> Result<(), SpawnError> {
        match storage {
            Storage::Tmpfs => Ok(()),
            Storage::Volume(directory) => {
                self.bind(directory, target, false)?;
                self.add(format!("restrict {}", target.display()), Act::Harmless(path(target)?));
                Ok(())
            }
            Storage::Overlay { lower, upper, work } => self.overlay([lower, upper, work], target, SCRATCH),
        }
    }

    fn overlay(&mut self, layers: [&Path; 3], target: &Path, flags: MountFlags) -> Result<(), SpawnError> {
        let mut data = Vec::new();
        for (name, directory) in ["lowerdir=", ",upperdir=", ",workdir="].iter().zip(layers) {
            data.extend_from_slice(name.as_bytes());
            data.extend_from_slice(directory.as_os_str().as_bytes());
        }
        let data = path(Path::new(std::ffi::OsStr::from_bytes(&data)))?;
        let act = Act::Overlay { target: path(target)?, flags, data };
        self.add(format!("mount an overlay at {}", target.display()), act);
        Ok(())
    }

    fn own_mount(&mut self, mount: &OwnMount) -> Result<(), SpawnError> {
        match mount {
            OwnMount::Empty(at) => self.file_system(c"tmpfs", at, MountFlags::NOSUID, c"mode=0755"),
            OwnMount::ReadOnly(at) => self.bind(at, at, true),
            OwnMount::Bind(source, target) => self.bind(source, target, true),
            OwnMount::Overlay { lower, upper, work, target } => {
                self.overlay([lower, upper, work], target, MountFlags::empty())
            }
        }
    }

    /// Shows the guest its own control groups, so that programs find their limits where they look
    /// for them.
    fn control_groups(&mut self, sys: &Path, request: &SpawnRequest<'_>) -> Result<(), SpawnError> {
        let Some(cgroup) = request.cgroup else { return Ok(()) };
        let place = sys.join("fs/cgroup");
        let shown = shown_groups(cgroup);
        if let [(directory, name)] = &*shown
            && name.as_os_str().is_empty()
        {
            return self.bind(directory, &place, true);
        }
        self.file_system(
            c"tmpfs",
            &place,
            MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC,
            c"mode=0755",
        )?;
        for (directory, name) in shown {
            self.directory(&place.join(&name), 0o755)?;
            self.bind(&directory, &place.join(&name), true)?;
        }
        Ok(())
    }

    /// Makes the mount point of a bind where the skeleton cannot have it: below a scratch mount.
    fn places(&mut self, root: &Root, target: &Path, directory: bool) -> Result<(), SpawnError> {
        let Some(scratch) =
            root.scratch.iter().find(|scratch| target.starts_with(scratch) && target != *scratch)
        else {
            return Ok(());
        };
        let mut missing: Vec<&Path> = target.ancestors().take_while(|path| path != scratch).collect();
        missing.reverse();
        for (at, place) in missing.iter().enumerate() {
            let place = below(&root.skeleton, place);
            if at + 1 < missing.len() || directory {
                self.directory(&place, 0o755)?;
            } else {
                self.add(format!("make {}", place.display()), Act::EmptyFile(path(&place)?));
            }
        }
        Ok(())
    }

    fn bind(&mut self, source: &Path, target: &Path, read_only: bool) -> Result<(), SpawnError> {
        let act = Act::Bind { source: path(source)?, target: path(target)?, read_only };
        self.add(format!("bind {} to {}", source.display(), target.display()), act);
        Ok(())
    }

    fn file_system(
        &mut self,
        kind: &'static CStr,
        target: &Path,
        flags: MountFlags,
        data: &'static CStr,
    ) -> Result<(), SpawnError> {
        let act = Act::FileSystem { kind, target: path(target)?, flags, data };
        self.add(format!("mount {} at {}", kind.to_string_lossy(), target.display()), act);
        Ok(())
    }

    fn directory(&mut self, at: &Path, mode: u32) -> Result<(), SpawnError> {
        self.add(format!("make the directory {}", at.display()), Act::Directory { path: path(at)?, mode });
        Ok(())
    }
}

impl<'a> Steps<'a> {
    fn add(&mut self, what: impl Into<String>, act: Act<'a>) {
        self.0.push(Step { what: what.into(), act });
    }
}

/// Returns the directories of a control group, each with the place below `/sys/fs/cgroup` where its
/// processes look for it. The place is empty if there is only one directory.
pub(crate) fn shown_groups(cgroup: &Cgroup) -> Vec<(PathBuf, PathBuf)> {
    if let Some(directory) = cgroup.v2_directory() {
        return vec![(directory, PathBuf::new())];
    }
    let depth = cgroup.relative_path().components().count();
    let named = |directory: PathBuf| {
        let name = PathBuf::from(directory.ancestors().nth(depth)?.file_name()?);
        Some((directory, name))
    };
    cgroup.directories().into_iter().filter_map(named).collect()
}

/// Returns the place of a guest's absolute path while the root is still a directory of the host.
fn below(top: &Path, absolute: &Path) -> PathBuf {
    top.join(absolute.strip_prefix("/").unwrap_or(absolute))
}

fn path(path: &Path) -> Result<CString, SpawnError> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|error| SpawnError { step: format!("name {}", path.display()), source: error.into() })
}
