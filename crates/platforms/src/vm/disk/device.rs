//! Block devices of the host as disks: one that the user names, or a loop device above a file of
//! the run.

use super::PLATFORM;
use super::data::is_disk;
use crate::guest::platform_change;
use crate::{Host, PlatformError, Result};
use serde_json::json;
use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weigh_host::command::Invocation;
use weigh_host::ledger::{EntryId, Ledger};

/// The ledger's word for a loop device.
const LOOP: &str = "loop device";
/// The remedy for a device that is in use.
const NAME_UNUSED: &str = "name a device that nothing uses: its content is destroyed";
/// Time limit for losetup(8).
const DEADLINE: Duration = Duration::from_secs(10);
/// Time limit for a detached loop device to be gone; another process may have it open for a moment.
const PATIENCE: Duration = Duration::from_secs(5);

/// A device that the user named, held so that nobody mounts it and no other guest gets it.
#[derive(Debug)]
pub(super) struct HeldDevice {
    pub(super) file: File,
    /// Length of the device.
    pub(super) bytes: u64,
}

impl HeldDevice {
    /// Sectors ever written to the device (`Documentation/block/stat.rst`).
    pub(super) fn written(&self) -> Option<u64> {
        let number = self.file.metadata().ok()?.rdev();
        let stat = fs::read_to_string(of_kernel(number).join("stat")).ok()?;
        stat.split_ascii_whitespace().nth(6)?.parse().ok()
    }
}

/// The directory in sysfs of the block device of this number.
fn of_kernel(number: u64) -> PathBuf {
    format!("/sys/dev/block/{}:{}", rustix::fs::major(number), rustix::fs::minor(number)).into()
}

/// Takes a block device for a guest.
///
/// # Errors
/// It is not a block device, or it is in use: mounted, or part of another device, a volume group or
/// a swap area.
pub(super) fn hold(path: &Path) -> Result<HeldDevice> {
    let metadata = path.metadata().map_err(PlatformError::at("look at", path))?;
    if !metadata.file_type().is_block_device() {
        let reason = format!("{} is not a block device", path.display());
        return Err(PlatformError::unavailable(
            reason,
            "name a disk or a partition, as in `device=/dev/sdb`",
        ));
    }
    let holders = fs::read_dir(of_kernel(metadata.rdev()).join("holders")).into_iter().flatten().flatten();
    let holders: Vec<String> =
        holders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    if !holders.is_empty() {
        let reason = format!("{} is part of {}", path.display(), holders.join(", "));
        return Err(PlatformError::unavailable(reason, NAME_UNUSED));
    }
    // For a block device, O_EXCL means: fail if it, or a part of it, is mounted or otherwise
    // claimed (open(2)).
    let opened = OpenOptions::new().read(true).write(true).custom_flags(libc::O_EXCL).open(path);
    let mut file = opened.map_err(|error| {
        if error.raw_os_error() == Some(libc::EBUSY) {
            let reason = format!("{} is mounted, or in use", path.display());
            return PlatformError::unavailable(reason, NAME_UNUSED);
        }
        PlatformError::io(format!("open {} alone", path.display()))(error)
    })?;
    let bytes = file.seek(SeekFrom::End(0)).map_err(PlatformError::io("find the length of a device"))?;
    Ok(HeldDevice { file, bytes })
}

/// A loop device above a file of the run, which bypasses the host's page cache.
#[derive(Debug)]
pub(super) struct Loop {
    pub(super) device: PathBuf,
    file: PathBuf,
    ledger: Ledger,
    entry: EntryId,
}

impl Loop {
    /// Attaches a loop device.
    ///
    /// # Errors
    /// The host has no loop devices, or the file's file system has no direct access.
    pub(super) fn attach(host: &Host, file: &Path) -> Result<Self> {
        if !host.is_root {
            return Err(PlatformError::unavailable(
                "attaching a loop device requires root",
                "run weigh as root, or name a device that you may write to by `device=`",
            ));
        }
        let entry =
            host.ledger.record(platform_change(PLATFORM, LOOP, &file.to_string_lossy(), json!({})))?;
        let attach = Invocation::new("losetup").args(["--find", "--show", "--direct-io=on"]).arg(file);
        match attach.deadline(DEADLINE).run_ok() {
            Ok(done) => Ok(Self {
                device: String::from_utf8_lossy(&done.output).trim().into(),
                file: file.into(),
                ledger: host.ledger.clone(),
                entry,
            }),
            Err(error) => {
                // The device may be attached even so, without direct access.
                if undo_loop(file).is_ok() {
                    host.ledger.forget(entry)?;
                }
                Err(PlatformError::unavailable(
                    format!("cannot attach a loop device with direct access to its file: {error}"),
                    "load the module: `modprobe loop`, keep the run on a disk, or name a device by `device=`",
                ))
            }
        }
    }

    /// Detaches the device; further calls do nothing.
    ///
    /// # Errors
    /// The device stays attached, and stays in the ledger.
    pub(super) fn detach(&mut self) -> Result<()> {
        undo_loop(&self.file)?;
        Ok(self.ledger.forget(self.entry)?)
    }
}

/// The loop devices above a file, from sysfs.
fn loops_above(file: &Path) -> Vec<PathBuf> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let above = devices.filter(|device| {
        let backing = fs::read_to_string(device.path().join("loop/backing_file")).unwrap_or_default();
        // For a deleted file, the kernel appends a word to the name.
        let backing = backing.trim_end_matches('\n');
        Path::new(backing.strip_suffix(" (deleted)").unwrap_or(backing)) == file
    });
    above.map(|device| Path::new("/dev").join(device.file_name())).collect()
}

fn undo_loop(file: &Path) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        let above = loops_above(file);
        if above.is_empty() {
            return Ok(());
        }
        for device in above {
            // A device that somebody has open is detached when it is closed, without any message.
            let _ = Invocation::new("losetup").arg("--detach").arg(&device).deadline(DEADLINE).run();
        }
        if Instant::now() > until {
            let what = format!("a loop device above {} is still there", file.display());
            return Err(PlatformError::StillThere(what));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Undoes a change that this module has recorded in a ledger.
///
/// # Errors
/// The device still exists, or this module never makes such a change.
pub(crate) fn undo(what: &str, id: &str) -> Result<()> {
    match what {
        LOOP if is_disk(Path::new(id)) => undo_loop(Path::new(id)),
        LOOP => Err(PlatformError::foreign(what, id)),
        other => Err(PlatformError::never_made(PLATFORM, other)),
    }
}
