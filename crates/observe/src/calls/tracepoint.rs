//! The number of a tracepoint.

use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::fs::{self, File};
use std::io::{self, Read};

/// Where the file system is mounted by convention.
const TRACING: &str = "/sys/kernel/tracing";
/// The tracepoint at the begin of every system call that seccomp lets through.
const ID: &str = "events/raw_syscalls/sys_enter/id";

/// The number of `raw_syscalls:sys_enter` for `perf_event_open(2)`. Where tracefs is not mounted, it
/// is read from a mount that is attached nowhere, and that the kernel drops when its descriptor is
/// closed.
///
/// # Errors
/// The right to mount is missing, the kernel has no such tracepoint, or it is older than Linux 5.2.
pub(super) fn number() -> io::Result<u64> {
    let text = match fs::read_to_string(format!("{TRACING}/{ID}")) {
        Ok(text) => text,
        Err(_) => read_detached()?,
    };
    text.trim().parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
}

fn read_detached() -> io::Result<String> {
    let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_RDONLY)?;
    let mut text = String::new();
    let file = openat(&mount, ID, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    File::from(file).read_to_string(&mut text)?;
    Ok(text)
}
