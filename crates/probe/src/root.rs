//! A root on a disk: the init of a machine switches to it from the initial RAM file system, and may
//! start the init of a system.

use crate::error::ProbeError;
use crate::files::make_directories;
use crate::{boot, clock, init, signals};
use alloc::ffi::CString;
use alloc::format;
use rustix::fs::Access;
use rustix::mount::{MountFlags, mount, mount_bind, mount_move, mount_remount};
use rustix::process::{chdir, chroot};

/// Where the disk is mounted before it becomes the root.
const NEW_ROOT: &str = "/.weighbridge-root";
/// The probe's directory. It stays in memory, and is bound into the new root.
const OWN: &str = "/.weighbridge";
/// Mounts of kernel file systems, which are moved to the new root.
const MOUNTS: [&str; 3] = ["/dev", "/proc", "/sys"];

/// Mounts the file system of a disk and makes it the root of this process and its descendants.
pub fn enter(device: &str) -> Result<(), ProbeError> {
    clock::retry(true, || rustix::fs::access(device, Access::EXISTS))
        .map_err(ProbeError::system(format!("find the disk {device} of the root")))?;
    let inside = |path: &str| format!("{NEW_ROOT}{path}");
    make_directories(NEW_ROOT)
        .map_err(|(_, errno)| errno)
        .map_err(ProbeError::system(format!("make {NEW_ROOT}")))?;
    mount(device, NEW_ROOT, "ext4", MountFlags::empty(), None)
        .map_err(ProbeError::system(format!("mount {device} as the root")))?;
    for path in MOUNTS.into_iter().chain([OWN]) {
        make_directories(&inside(path))
            .map_err(|(_, errno)| errno)
            .map_err(ProbeError::system(format!("make {path} on {device}")))?;
    }
    for path in MOUNTS {
        mount_move(path, inside(path).as_str())
            .map_err(ProbeError::system(format!("move {path} to the root")))?;
    }
    let own = inside(OWN);
    mount_bind(OWN, own.as_str())
        .and_then(|()| mount_remount(own.as_str(), MountFlags::BIND | MountFlags::RDONLY, c""))
        .map_err(ProbeError::system("bind the probe into the root"))?;
    // As in switch_root(8): the initial root cannot be moved away, but it can be covered.
    chdir(NEW_ROOT)
        .and_then(|()| mount_move(".", "/"))
        .and_then(|()| chroot("."))
        .and_then(|()| chdir("/"))
        .map_err(ProbeError::system("move the root"))
}

/// Makes this process, PID 1, the init of a system. The probe continues as its child, in which this
/// returns.
pub fn start_system(program: &str) -> Result<(), ProbeError> {
    let path = CString::new(program).map_err(|_| ProbeError::Usage(format!("{program} is not a path")))?;
    // SAFETY: the process has one thread.
    match unsafe { libc::fork() } {
        0 => {
            // A session of its own, without a terminal of the system. SAFETY: a system call.
            unsafe { libc::setsid() };
            // The settings that a child does not inherit.
            init::set_up_process();
            Ok(())
        }
        child if child > 0 => {
            // The system gets the signal dispositions that a kernel would set.
            signals::restore();
            let arguments = [path.as_ptr(), core::ptr::null()];
            // SAFETY: a C string, and an array of them that ends with a null pointer.
            unsafe { libc::execv(path.as_ptr(), arguments.as_ptr()) };
            let error = ProbeError::system(format!("start {program}"))(signals::last_errno());
            boot::say(&format!("{error}"));
            // The kernel panics if its init returns.
            init::power_off();
            Err(error)
        }
        _ => Err(ProbeError::system(format!("make a process beside {program}"))(signals::last_errno())),
    }
}
