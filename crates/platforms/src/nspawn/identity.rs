//! The boot identity of the kernel, which systemd-nspawn hides from its containers.

use crate::Guest;
use crate::spawn::{LocalGuest, is_first};
use rustix::mount::{UnmountFlags, unmount};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;

/// Where it is read, and where another one is mounted.
const BOOT_IDENTITY: &str = "/proc/sys/kernel/random/boot_id";

/// Lets a container read the kernel's own boot identity. Should that fail, its clock is taken for one of its own, and checked as such.
pub(super) fn restore(guest: &LocalGuest) {
    let Some(first) = guest.processes().into_iter().find(|pid| is_first(*pid)) else { return };
    let Ok(mounts) = File::open(format!("/proc/{first}/ns/mnt")) else { return };
    // A thread of its own: only one that shares its root and working directory with no other may enter a mount namespace (setns(2)).
    let thread = std::thread::spawn(move || unmount_in(&mounts));
    let _its_clock_is_checked_otherwise = thread.join();
}

fn unmount_in(mounts: &File) -> io::Result<()> {
    // SAFETY: only the working directory and root of this thread, which ends after this, cease to be shared with the others.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS)? };
    move_into_link_name_space(mounts.as_fd(), Some(LinkNameSpaceType::Mount))?;
    Ok(unmount(BOOT_IDENTITY, UnmountFlags::DETACH)?)
}
