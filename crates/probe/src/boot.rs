//! Booting a machine: kernel modules, the root, mounts, network interfaces, the device of the
//! channel.
//!
//! The tables are those of [`weigh_protocol::boot`]. Most failures do not end the boot: they are
//! reported on the console, and the host notices what is missing.

use crate::clock;
use crate::error::ProbeError;
use crate::files::{make_directories, names, read_small};
use alloc::ffi::CString;
use alloc::format;
use alloc::string::String;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use weigh_links::Address;
use weigh_protocol::boot::{BootModule, BootMount, MODULES, MOUNTS, NO_NETWORK};

/// Where the kernel shows the names of virtio ports.
const PORTS: &str = "/sys/class/virtio-ports";

/// Boots; `/proc`, `/sys` and `/dev` are mounted already. `disk` holds the root unless that is in
/// memory. Only a failure to use the disk is an error.
pub fn boot(address: Option<Address>, disk: Option<&str>) -> Result<(), ProbeError> {
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
            Err(error) => say(&format!("{MOUNTS}: {error}")),
        }
    }
    if let Err(errno) = weigh_links::raise_loopback() {
        say(&format!("cannot raise lo: {errno}"));
    }
    if let Some(Err(error)) = address.map(Address::configure) {
        say(&format!("{NO_NETWORK}{error}"));
    }
    // Every system can resolve this name.
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
        // It is loaded already, or built in.
        Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}

fn make_mount(mount: &BootMount) -> Result<(), Errno> {
    let (flags, data) = options(&mount.options);
    if rustix::fs::access(&*mount.target, rustix::fs::Access::EXISTS).is_err() {
        make_directories(&mount.target).map_err(|(_, errno)| errno)?;
    }
    let data = CString::new(data).map_err(|_| Errno::INVAL)?;
    if !flags.contains(MountFlags::BIND) {
        return rustix::mount::mount(&*mount.source, &*mount.target, &*mount.kind, flags, data.as_c_str());
    }
    rustix::mount::mount(&*mount.source, &*mount.target, "", MountFlags::BIND, None)?;
    // The kernel accepts other flags of a bind mount only when it is remounted (mount(2)).
    let rest = flags - MountFlags::BIND;
    if rest.is_empty() { Ok(()) } else { rustix::mount::mount_remount(&*mount.target, flags, c"") }
}

/// Splits options into flags of mount(2) and options of the file system.
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

/// The device of a virtio port. While `booting`, it may take a while to appear.
pub fn port(name: &str, booting: bool) -> Result<String, ProbeError> {
    clock::retry(booting, || {
        let ports = names(PORTS);
        let is_named = |port: &&String| {
            read_small(&format!("{PORTS}/{port}/name")).is_some_and(|found| found.trim() == name)
        };
        let device = ports.iter().find(is_named).map(|port| format!("/dev/{port}"));
        device.filter(|device| rustix::fs::access(&**device, rustix::fs::Access::EXISTS).is_ok()).ok_or_else(
            || {
                let found = if ports.is_empty() { "none".into() } else { ports.join(", ") };
                ProbeError::Absent(format!("there is no virtio port `{name}`; found: {found}"))
            },
        )
    })
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
        let remount = MountFlags::from_bits_retain(libc::MS_REMOUNT as _);
        assert_eq!(options("remount,ro").0, remount | ro);
    }
}
