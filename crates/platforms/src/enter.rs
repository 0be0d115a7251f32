//! Entering the namespaces of a guest.

use crate::spawn::is_first;
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;

/// The file with the running kernel's boot identity, `proc_sys_kernel(5)`.
const BOOT_IDENTITY: &str = "/proc/sys/kernel/random/boot_id";

/// Uncovers the kernel's own boot identity for the guest with these processes, where a platform has
/// mounted another one over it. It shows that the guest shares the host's kernel, and so the host's
/// clock. If that fails, the guest is measured all the same, with a wider bracket around its clock.
pub(crate) fn uncover_boot_identity(processes: Vec<u32>) {
    if let Some(first) = processes.into_iter().find(|pid| is_first(*pid)) {
        let _its_clock_is_checked_otherwise = uncover_for(first);
    }
}

/// Does so in the mount namespace of a process.
fn uncover_for(pid: u32) -> io::Result<()> {
    let namespace = File::open(format!("/proc/{pid}/ns/mnt"))?;
    let enter = move || -> io::Result<()> {
        // SAFETY: only this thread, which ends at once, gets a root and working directory of its
        // own; no descriptor is unshared.
        unsafe { unshare_unsafe(UnshareFlags::FS) }?;
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))?;
        match unmount(BOOT_IDENTITY, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
            Err(Errno::INVAL | Errno::NOENT) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    };
    let thread = std::thread::Builder::new().name("enter".into()).spawn(enter)?;
    thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread that entered it panicked")))
}
