//! vhost-net: a worker of the host's kernel, instead of QEMU, carries packets between tap and
//! guest.
//!
//! The worker belongs to the process that opens `/dev/vhost-net`. It is a thread of QEMU; before
//! Linux 6.4 it is a kernel thread that joins QEMU's control groups. Either way it is in the
//! guest's group and charged to the guest. Its name, after QEMU's process, proves its existence.

use super::super::qmp::QmpError;
use crate::{PlatformError, Result};
use rustix::ioctl::{Getter, ioctl, opcode};
use std::fmt;
use std::fs::{self, OpenOptions};
use std::os::fd::OwnedFd;
use std::path::Path;
use weigh_host::accounts::{Process, process_text};

/// The device of vhost-net.
const DEVICE: &str = "/dev/vhost-net";

/// Who carries the packets.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Vhost {
    On,
    /// The key says so.
    Off,
    /// The host has none, for this reason.
    Absent(String),
}

impl Vhost {
    /// Resolves a value of the key on this host; also returns the device for QEMU.
    ///
    /// # Errors
    /// The key asks for vhost-net and the host has none.
    pub(super) fn of(word: &str) -> Result<(Self, Option<OwnedFd>)> {
        Self::at(word, Path::new(DEVICE))
    }

    fn at(word: &str, device: &Path) -> Result<(Self, Option<OwnedFd>)> {
        if word == "off" {
            return Ok((Self::Off, None));
        }
        match open(device) {
            Ok(opened) => Ok((Self::On, Some(opened))),
            Err(error) if word == "on" => Err(PlatformError::unavailable(
                format!("cannot open {} for `vhost=on`: {error}", device.display()),
                "load the module: `modprobe vhost_net`, or write `vhost=auto`",
            )),
            Err(error) => Ok((Self::Absent(format!("{}: {error}", device.display())), None)),
        }
    }

    /// Checks whether QEMU has a worker.
    ///
    /// # Errors
    /// It has none although it should, or the reverse.
    pub(super) fn check(&self, pid: u32) -> Result<(), QmpError> {
        match (self, has_worker(pid)) {
            (Self::On, false) => {
                Err(QmpError::Lost("has no vhost worker although it was given vhost-net".into()))
            }
            (Self::Off | Self::Absent(_), true) => {
                Err(QmpError::Lost("has a vhost worker although it was given no vhost-net".into()))
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Vhost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::On => f.write_str("vhost"),
            Self::Off => f.write_str("no vhost"),
            Self::Absent(why) => write!(f, "no vhost ({why})"),
        }
    }
}

/// Opens the device and checks that it answers as vhost-net.
fn open(device: &Path) -> std::io::Result<OwnedFd> {
    let opened = OpenOptions::new().read(true).write(true).open(device)?;
    // SAFETY: VHOST_GET_FEATURES writes a u64 (linux/vhost.h).
    let features = unsafe { ioctl(&opened, Getter::<{ opcode::read::<u64>(0xAF, 0x00) }, u64>::new()) };
    features?;
    Ok(opened.into())
}

/// Whether vhost-net carries packets for this process: it does so in a worker that is named after the
/// process, which is a thread of the process or of the kernel.
pub(crate) fn has_worker(pid: u32) -> bool {
    let name = format!("vhost-{pid}");
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut names = threads.map(|thread| process_text(thread.path().join("comm")).unwrap_or_default());
    names.any(|found| found.trim_end() == name) || !Process::named(&name).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_vhost_device_is_refused_or_reported() {
        let nowhere = Path::new("/nowhere/vhost-net");
        assert_eq!(Vhost::at("off", nowhere).unwrap().0, Vhost::Off);
        let (vhost, device) = Vhost::at("auto", nowhere).unwrap();
        assert!(
            device.is_none() && vhost.to_string().contains("/nowhere/vhost-net: No such file"),
            "{vhost}"
        );
        let error = Vhost::at("on", nowhere).unwrap_err().to_string();
        assert!(error.contains("vhost=on") && error.contains("No such file"), "{error}");
        // A device of another kind does not answer.
        assert!(Vhost::at("on", Path::new("/dev/null")).is_err());
    }

    /// Only a thread with a worker's name is taken for one.
    #[test]
    fn a_worker_is_known_by_its_name() {
        let pid = std::process::id();
        assert!(!has_worker(pid));
        Vhost::Off.check(pid).unwrap();
        assert!(Vhost::On.check(pid).is_err());
        let worker = move || {
            assert!(has_worker(pid));
            Vhost::On.check(pid).unwrap();
            assert!(Vhost::Absent(String::new()).check(pid).is_err());
        };
        std::thread::Builder::new().name(format!("vhost-{pid}")).spawn(worker).unwrap().join().unwrap();
    }
}
