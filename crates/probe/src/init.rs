//! Setting up the process and, as PID 1, the system.

use crate::signals;
use alloc::string::String;
use rustix::fs::{Mode, OFlags, PROC_SUPER_MAGIC};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use rustix::process::{Pid, getpid, set_child_subreaper};
use rustix::system::{RebootCommand, reboot};

/// Inode of the kernel's first PID namespace (`PROC_PID_INIT_INO`, include/linux/proc_ns.h).
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// Sets signals, descriptors and umask to a known state, so that commands do not depend on who
/// started the probe.
pub fn set_up_process() {
    signals::initialise();
    // Otherwise a pipe of a command could get the number of a closed standard stream.
    for _ in 0..3 {
        match rustix::fs::open("/", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()) {
            Ok(fd) if rustix::fd::AsRawFd::as_raw_fd(&fd) < 3 => core::mem::forget(fd),
            _ => break,
        }
    }
    // Commands must not inherit descriptors of the parent. Kernels before 5.11 do not know the
    // flag. SAFETY: it marks descriptors and closes none.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    rustix::process::umask(Mode::WGRP | Mode::WOTH);
    // Daemons of a command become children of the probe, which ends them.
    let _ = set_child_subreaper(Pid::from_raw(1));
}

/// As PID 1: makes the missing mounts, if it may. Returns whether it is PID 1 of a machine.
pub fn set_up_system() -> bool {
    if !is_proc("/proc") {
        let _ = rustix::fs::mkdir("/proc", Mode::from_raw_mode(0o555));
        let _ = mount_at("proc", "/proc", MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC);
    }
    if rustix::fs::access("/sys/kernel", rustix::fs::Access::EXISTS).is_err() {
        let _ = rustix::fs::mkdir("/sys", Mode::from_raw_mode(0o555));
        let _ = mount_at("sysfs", "/sys", MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC);
    }
    let machine = getpid().is_init() && is_machine();
    // Only in a machine: a container gets its devices from its platform.
    if machine && rustix::fs::access("/dev/null", rustix::fs::Access::EXISTS).is_err() {
        let _ = rustix::fs::mkdir("/dev", Mode::from_raw_mode(0o755));
        let _ = mount_at("devtmpfs", "/dev", MountFlags::NOSUID);
    }
    machine
}

/// Powers the machine off, or halts it if that fails. Returns only if the kernel refuses both.
pub fn power_off() {
    rustix::fs::sync();
    for command in [RebootCommand::PowerOff, RebootCommand::Halt] {
        let _ = reboot(command);
    }
}

/// Whether this PID namespace is the kernel's first.
fn is_machine() -> bool {
    rustix::fs::stat("/proc/self/ns/pid").is_ok_and(|namespace| namespace.st_ino == FIRST_PID_NAMESPACE)
}

fn is_proc(path: &str) -> bool {
    rustix::fs::statfs(path).is_ok_and(|system| system.f_type == PROC_SUPER_MAGIC)
}

fn mount_at(kind: &str, target: &str, flags: MountFlags) -> Result<(), Errno> {
    mount(kind, target, kind, flags, None)
}

/// The directory of the probe's program, with a slash at the end; empty if unknown.
pub fn own_directory(program: &str) -> String {
    let path = match rustix::fs::readlink("/proc/self/exe", alloc::vec::Vec::new()) {
        Ok(path) => path.to_string_lossy().into_owned(),
        Err(_) => program.into(),
    };
    path.rfind('/').map_or_else(String::new, |slash| path[..=slash].into())
}
