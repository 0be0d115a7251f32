//! A root on a disk: the init of a machine leaves the initial RAM file system for it, and may hand
//! its place to the init of a system.

use crate::{boot, clock, init, signals};
use alloc::ffi::CString;
use alloc::format;
use alloc::string::String;
use rustix::fs::{Access, Mode};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount, mount_bind, mount_move, mount_remount};
use rustix::process::{chdir, chroot};

/// Time for the disk to appear.
const PATIENCE_NS: u64 = 10_000_000_000;
/// Between two looks for it.
const PAUSE: rustix::time::Timespec = rustix::time::Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
/// Where the disk is mounted before it is the root.
const PLACE: &str = "/.weighbridge-root";
/// The probe's own directory: it stays in memory, and is seen on the disk's root as on every other.
const OWN: &str = "/.weighbridge";
/// What the kernel provides, and has been mounted already.
const KERNELS: [&str; 3] = ["/dev", "/proc", "/sys"];

/// Mounts the file system of a disk and makes it the root of this process and of all to come.
pub fn enter(device: &str) -> Result<(), String> {
    let failed = |doing: &str| {
        let doing = format!("cannot {doing}");
        move |errno: Errno| format!("{doing}: {errno}")
    };
    let until_ns = clock::monotonic_ns() + PATIENCE_NS;
    while rustix::fs::access(device, Access::EXISTS).is_err() {
        if clock::monotonic_ns() > until_ns {
            return Err(format!("the disk {device} of the root did not appear"));
        }
        let _ = rustix::thread::nanosleep(&PAUSE);
    }
    make_directory(PLACE).map_err(failed("make a place for the root"))?;
    mount(device, PLACE, "ext4", MountFlags::empty(), None)
        .map_err(failed(&format!("mount {device} as the root")))?;
    let inside = |path: &str| format!("{PLACE}{path}");
    for path in KERNELS.into_iter().chain([OWN]) {
        make_directory(&inside(path)).map_err(failed(&format!("make {path} on {device}")))?;
    }
    for path in KERNELS {
        mount_move(path, inside(path).as_str()).map_err(failed(&format!("move {path} to the root")))?;
    }
    let own = inside(OWN);
    mount_bind(OWN, own.as_str())
        .and_then(|()| mount_remount(own.as_str(), MountFlags::BIND | MountFlags::RDONLY, c""))
        .map_err(failed("show the probe on the root"))?;
    // As switch_root(8) does it: the initial root cannot be moved away, but it can be covered.
    chdir(PLACE)
        .and_then(|()| mount_move(".", "/"))
        .and_then(|()| chroot("."))
        .and_then(|()| chdir("/"))
        .map_err(failed("move the root"))
}

fn make_directory(path: &str) -> Result<(), Errno> {
    match rustix::fs::mkdir(path, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}

/// Makes this process, PID 1, the init of a system. The probe goes on as a child of it, in which
/// alone this returns.
pub fn start_system(program: &str) -> Result<(), String> {
    let path = CString::new(program).map_err(|_| format!("{program} is no path"))?;
    // SAFETY: the process has one thread.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: a system call. A session of its own: no terminal of the system's is the
            // probe's.
            unsafe { libc::setsid() };
            // What a child does not inherit.
            init::set_up_process();
            Ok(())
        }
        child if child > 0 => {
            // The system finds its signals as a kernel would have left them.
            signals::restore();
            let arguments = [path.as_ptr(), core::ptr::null()];
            // SAFETY: a C string, and an array of them that ends with a null pointer.
            unsafe { libc::execv(path.as_ptr(), arguments.as_ptr()) };
            boot::say(&format!("cannot start {program}: {}", signals::last_errno()));
            // An init that returned would make the kernel panic; nobody would know why.
            init::power_off();
            Err(format!("cannot start {program}"))
        }
        _ => Err(format!("cannot make a process beside {program}: {}", signals::last_errno())),
    }
}
