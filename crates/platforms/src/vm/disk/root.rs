//! The root of an image as a disk.

use super::fill::Format;
use crate::vm::boot::scratch;
use crate::{GuestRequest, Host, PlatformError, Result};
use std::fs;
use std::path::{Path, PathBuf};
use weigh_host::cache::CacheDirectory;
use weigh_images::Root;
use weigh_images::disk::{DiskError, RootDisk};
use weigh_protocol::boot::BootMount;

/// Kernel modules that a root disk needs, for machines with virtio disks.
pub(crate) const MODULES: [&str; 2] = ["virtio_blk", "ext4"];
/// The init of a system.
const INIT: &str = "/sbin/init";
/// With this file systemd empties `/tmp` while it boots. `/tmp` is empty anyway, and files that the
/// probe was told to put there could be lost.
const CLEANING: &str = "/usr/lib/tmpfiles.d/tmp.conf";

/// The root disk of a guest's image, made unless it exists. `system` says whether it must have an
/// init.
///
/// # Errors
/// The image cannot be put on a disk, or mke2fs(8) is missing.
pub(crate) fn root_disk(host: &Host, request: &GuestRequest, system: bool) -> Result<RootDisk> {
    let told = |error: DiskError| match error {
        DiskError::NoTree => PlatformError::unavailable(
            "the image has no root file system to make a disk from",
            "add `rootfs=debian`, or name a directory or archive that holds one",
        ),
        DiskError::NoSystem(path) => PlatformError::unavailable(
            format!("the image has no /{path}"),
            "give an image that is a whole system, as with `rootfs=debian`",
        ),
        DiskError::NoProgram => {
            PlatformError::program_missing("mke2fs", "install it with `apt-get install e2fsprogs`")
        }
        other => PlatformError::io("make a disk of the image")(std::io::Error::other(other)),
    };
    if system {
        RootDisk::check_system(&request.root).map_err(told)?;
    }
    RootDisk::make(&request.root, CacheDirectory::open().as_ref(), &host.work, &host.ledger).map_err(told)
}

/// Arguments that tell the probe which disk its root is on, and whether to start a system there.
pub(crate) fn probe_words(device: &str, system: bool) -> String {
    if system { format!("--root {device} --init {INIT}") } else { format!("--root {device}") }
}

/// Mounts on a disk's root: private scratch. A system has its own `/run`.
pub(crate) fn mounts(root: &Root, system: bool) -> Vec<BootMount> {
    if !system {
        return root.scratch.iter().map(|path| scratch(path)).collect();
    }
    let has = |path: &str| root.tree.as_ref().is_some_and(|tree| tree.join(&path[1..]).exists());
    let hidden = has(CLEANING).then(|| BootMount::new("none", "/dev/null", CLEANING, "bind,ro"));
    ["/tmp", "/var/tmp"].map(|path| scratch(Path::new(path))).into_iter().chain(hidden).collect()
}

/// A guest's root disk. Dropping it removes its file.
#[derive(Debug)]
pub(crate) struct GuestRoot {
    /// The file that the machine opens.
    pub(crate) path: PathBuf,
    /// The format of its content.
    pub(crate) format: Format,
}

impl GuestRoot {
    /// Makes an overlay of the image's disk, in an instant.
    ///
    /// # Errors
    /// The overlay cannot be written.
    pub(crate) fn overlay(host: &Host, disk: &RootDisk, instance: u64) -> Result<Self> {
        let path = host.work.join(format!("root-{instance}.qcow2"));
        disk.overlay(&path).map_err(failed)?;
        Ok(Self { path, format: Format::Qcow2 })
    }

    /// Copies the image's disk, for machines that read raw images only. That takes as long as
    /// reading the image.
    ///
    /// # Errors
    /// The copy cannot be written.
    pub(crate) fn copy(host: &Host, disk: &RootDisk, instance: u64) -> Result<Self> {
        let path = host.work.join(format!("root-{instance}.raw"));
        disk.copy(&path).map_err(failed)?;
        Ok(Self { path, format: Format::Raw })
    }
}

fn failed(error: DiskError) -> PlatformError {
    PlatformError::io("make a root disk for the guest")(std::io::Error::other(error))
}

impl Drop for GuestRoot {
    fn drop(&mut self) {
        // The file is removed with the run's work directory at the latest.
        let _ = fs::remove_file(&self.path);
    }
}
