//! What the init of a machine does before it talks: kernel modules, its root, mounts, network
//! interfaces, the channel's device.
//!
//! The tables are those of [`weigh_protocol::boot`]. Nothing here ends the boot: what fails is said
//! on the console, and the host sees by what is missing, at the latest by the hello that does not
//! come.

use crate::clock;
use crate::files::read_small;
use alloc::ffi::CString;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use rustix::fs::{Mode, OFlags, RawDir};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use weigh_links::Address;
use weigh_protocol::boot::{BootModule, BootMount, MODULES, MOUNTS, NO_NETWORK};

/// Time for the device of a virtio port to appear.
const PORT_PATIENCE_NS: u64 = 10_000_000_000;
/// Between two looks for it.
const PORT_PAUSE: rustix::time::Timespec = rustix::time::Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
/// Where the kernel tells the names of virtio ports.
const PORTS: &str = "/sys/class/virtio-ports";

/// Everything in order; the mounts of `/proc`, `/sys` and `/dev` are there. `disk` holds the root,
/// where that is not in memory: without it nothing would be as it is said to be.
pub fn boot(address: Option<Address>, disk: Option<&str>) -> Result<(), String> {
    let modules = read_small(MODULES).unwrap_or_default();
    for module in BootModule::parse(&modules) {
        if let Err(errno) = load(&module) {
            say(&format!("cannot load {}: {errno}", module.path));
        }
    }
    let mounts = read_small(MOUNTS).unwrap_or_default();
    disk.map_or(Ok(()), crate::root::enter)?;
    for mount in BootMount::parse(&mounts) {
        match mount.map(|mount| (make_mount(&mount), mount)) {
            Ok((Ok(()), _)) => {}
            Ok((Err(errno), mount)) => {
                say(&format!("cannot mount {} at {}: {errno}", mount.kind, mount.target))
            }
            Err(reason) => say(&format!("{MOUNTS}: {reason}")),
        }
    }
    if let Err(errno) = weigh_links::raise_loopback() {
        say(&format!("cannot raise lo: {errno}"));
    }
    if let Some(Err(reason)) = address.map(Address::configure) {
        say(&format!("{NO_NETWORK}{reason}"));
    }
    // A name that every system can look up.
    let _ = rustix::system::sethostname(b"localhost");
    say(&format!("init at {} ns of boot time", clock::read().boottime_ns));
    Ok(())
}

/// Writes a line to the console.
pub fn say(line: &str) {
    let line = format!("weigh-probe: {line}\n");
    let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
    match rustix::fs::open("/dev/console", flags, Mode::empty()) {
        Ok(console) => drop(rustix::io::write(&console, line.as_bytes())),
        Err(_) => drop(rustix::io::write(crate::standard(2), line.as_bytes())),
    }
}

fn load(module: &BootModule) -> Result<(), Errno> {
    let file = rustix::fs::open(&*module.path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let parameters = CString::new(&*module.parameters).map_err(|_| Errno::INVAL)?;
    match rustix::system::finit_module(&file, &parameters, 0) {
        // It is there already, or built in.
        Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}

fn make_mount(mount: &BootMount) -> Result<(), Errno> {
    let (flags, data) = options(&mount.options);
    if rustix::fs::access(&*mount.target, rustix::fs::Access::EXISTS).is_err() {
        make_directories(&mount.target)?;
    }
    let data = CString::new(data).map_err(|_| Errno::INVAL)?;
    if !flags.contains(MountFlags::BIND) {
        return rustix::mount::mount(&*mount.source, &*mount.target, &*mount.kind, flags, data.as_c_str());
    }
    rustix::mount::mount(&*mount.source, &*mount.target, "", MountFlags::BIND, None)?;
    // The kernel takes the other flags of a bind mount only when it is there (mount(2)).
    let rest = flags - MountFlags::BIND;
    if rest.is_empty() { Ok(()) } else { rustix::mount::mount_remount(&*mount.target, flags, c"") }
}

/// Splits options into the flags of mount(2) and what the file system takes.
fn options(options: &str) -> (MountFlags, String) {
    let mut flags = MountFlags::empty();
    let mut data = String::new();
    for option in options.split(',') {
        match option {
            "" | "rw" | "defaults" => {}
            "ro" => flags |= MountFlags::RDONLY,
            "nosuid" => flags |= MountFlags::NOSUID,
            "nodev" => flags |= MountFlags::NODEV,
            "noexec" => flags |= MountFlags::NOEXEC,
            "noatime" => flags |= MountFlags::NOATIME,
            "relatime" => flags |= MountFlags::RELATIME,
            "bind" => flags |= MountFlags::BIND,
            "remount" => flags |= MountFlags::from_bits_retain(libc::MS_REMOUNT as _),
            other => {
                if !data.is_empty() {
                    data.push(',');
                }
                data.push_str(other);
            }
        }
    }
    (flags, data)
}

fn make_directories(path: &str) -> Result<(), Errno> {
    let ends = path.match_indices('/').map(|(at, _)| at).skip(1).chain([path.len()]);
    for end in ends {
        match rustix::fs::mkdir(&path[..end], Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// The device of the virtio port of that name, when it is there in time. `booting`: it may be on
/// its way.
pub fn port(name: &str, booting: bool) -> Result<String, String> {
    let until_ns = clock::monotonic_ns() + PORT_PATIENCE_NS;
    loop {
        let names = directory(PORTS);
        let found = names.iter().find(|port| {
            read_small(&format!("{PORTS}/{port}/name")).is_some_and(|found| found.trim() == name)
        });
        let device = found.map(|port| format!("/dev/{port}"));
        if let Some(device) = device
            && rustix::fs::access(&*device, rustix::fs::Access::EXISTS).is_ok()
        {
            return Ok(device);
        }
        if !booting || clock::monotonic_ns() > until_ns {
            let seen = if names.is_empty() { "none".into() } else { names.join(", ") };
            return Err(format!("there is no virtio port `{name}`; seen: {seen}"));
        }
        let _ = rustix::thread::nanosleep(&PORT_PAUSE);
    }
}

fn directory(path: &str) -> Vec<String> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(directory) = rustix::fs::open(path, flags, Mode::empty()) else { return Vec::new() };
    let mut buffer = Vec::with_capacity(4 << 10);
    let mut entries = RawDir::new(directory, buffer.spare_capacity_mut());
    let mut names = Vec::new();
    while let Some(Ok(entry)) = entries.next() {
        let name = entry.file_name().to_string_lossy();
        if !name.starts_with('.') {
            names.push(name.into_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_flags_or_data() {
        let ro = MountFlags::RDONLY;
        assert_eq!(options("ro,/usr"), (ro, "/usr".into()));
        assert_eq!(options("/a,b"), (MountFlags::empty(), "/a,b".into()));
        assert_eq!(
            options("ro,trans=virtio,nodev,msize=65536"),
            (ro | MountFlags::NODEV, "trans=virtio,msize=65536".into())
        );
        assert_eq!(options(""), (MountFlags::empty(), "".into()));
        assert_eq!(options("remount,ro").0.bits(), libc::MS_REMOUNT as u32 | ro.bits());
    }
}
