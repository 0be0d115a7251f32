//! What the probe does to its process and, as PID 1, to the system around it.

use crate::signals;
use alloc::string::String;
use rustix::fs::{Mode, OFlags, PROC_SUPER_MAGIC};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use rustix::process::{Pid, getpid, set_child_subreaper};
use rustix::system::{RebootCommand, reboot};

/// Inode of the kernel's first PID namespace (`PROC_PID_INIT_INO`, include/linux/proc_ns.h).
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// Signals, descriptors and file mode mask in a known state, so that a command is the same whoever
/// started the probe.
pub fn set_up_process() {
    signals::settle();
    // A closed standard stream would make a pipe of a command take its number.
    for _ in 0..3 {
        match rustix::fs::open("/", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()) {
            Ok(fd) if rustix::fd::AsRawFd::as_raw_fd(&fd) < 3 => core::mem::forget(fd),
            _ => break,
        }
    }
    // What the parent left open belongs to no command. Kernels before 5.11 do not know the flag,
    // and leave it open. SAFETY: marks descriptors, closes none.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    rustix::process::umask(Mode::WGRP | Mode::WOTH);
    // Daemons that a command leaves behind become children of the probe, which ends them.
    let _ = set_child_subreaper(Pid::from_raw(1));
}

/// As PID 1: mounts what is not there, as far as it may, and tells whether it is PID 1 of a
/// machine.
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
    // Only a machine's own devices: a container has those that its platform gives it.
    if machine && rustix::fs::access("/dev/null", rustix::fs::Access::EXISTS).is_err() {
        let _ = rustix::fs::mkdir("/dev", Mode::from_raw_mode(0o755));
        let _ = mount_at("devtmpfs", "/dev", MountFlags::NOSUID);
    }
    machine
}

/// Powers the machine off; where it cannot, halts it. Returns only when the kernel refuses both.
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

/// The directory that the probe's program is in, with a slash at the end; empty when nothing tells.
pub fn own_directory(program: &str) -> String {
    let path = match rustix::fs::readlink("/proc/self/exe", alloc::vec::Vec::new()) {
        Ok(path) => path.to_string_lossy().into_owned(),
        Err(_) => program.into(),
    };
    path.rfind('/').map_or_else(String::new, |slash| path[..=slash].into())
}
