//! Disks for workloads.

use super::device::{HeldDevice, Loop, hold};
use super::fill;
pub(crate) use super::fill::Format;
use crate::common_keys::Storage;
use crate::{Host, KeySpec, Platform, PlatformError, Result, setting};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use weigh_model::{EnvironmentSpec, SpecError, format_bytes, parse_bytes};
use weigh_protocol::boot::BootMount;

/// Disk sizes are multiples of a page, so that no reader meets half a sector at the end.
const STEP: u64 = 4096;

/// The key `disk` with a platform's kinds; the first one is the default.
pub(crate) const fn disk_key(words: &'static [&'static str]) -> KeySpec {
    KeySpec::words("disk", words).about(
        "a disk for workloads, /dev/vda in the guest, filled with random content: a raw or qcow2 \
            file, or a block device",
    )
}

/// The key `size`: how large the disk is.
pub(crate) const SIZE: KeySpec = KeySpec::text("size").or("1GiB").about("size of the disk");

/// The key `device`: the block device that becomes the disk.
pub(crate) const DEVICE: KeySpec = KeySpec::path("device").about(
    "for disk=block: the host's device, whose content is destroyed; else a loop device above a \
        file of the run",
);

/// The key `storage` of machines that have a disk: what holds the guest's `/var/tmp`.
pub(crate) const STORAGE: KeySpec = KeySpec::words("storage", &["tmpfs", "disk"])
    .about("what holds /var/tmp: memory, or an ext4 file system on the disk that `disk` says");

/// Type of the file system on a disk, also part of the names of files about it.
const FILE_SYSTEM: &str = "ext4";

/// The value of `disk`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiskKind {
    /// A raw file.
    Raw,
    /// A qcow2 file.
    Qcow2,
    /// A block device.
    Block,
}

/// The disk that an environment asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DataDiskSpec {
    pub(crate) kind: DiskKind,
    /// Length, bytes.
    pub(crate) bytes: u64,
    /// Whether the user named the length.
    sized: bool,
    /// The user's device.
    device: Option<PathBuf>,
    /// Whether the monitor can give a guest only a whole device.
    only_whole: bool,
    /// Whether it has a file system, which is the guest's [`Storage::TARGET`].
    pub(crate) is_storage: bool,
}

impl DataDiskSpec {
    /// The disk that the keys, which [`DataDiskSpec::check`] has accepted, ask for, if any.
    pub(crate) fn of(platform: &dyn Platform, environment: &EnvironmentSpec) -> Option<Self> {
        let kind = match setting(platform, environment, "disk") {
            "raw" => DiskKind::Raw,
            "qcow2" => DiskKind::Qcow2,
            "block" => DiskKind::Block,
            _ => return None,
        };
        let bytes = parse_bytes(setting(platform, environment, "size")).unwrap_or(1 << 30);
        let device = environment.get("device").map(|path| std::path::absolute(path).unwrap_or(path.into()));
        let is_storage = environment.get(STORAGE.name) == Some("disk");
        let sized = environment.get("size").is_some();
        Some(Self { kind, bytes, sized, device, only_whole: false, is_storage })
    }

    /// The same for a monitor that can give a guest only a whole device.
    pub(crate) fn only_whole(self) -> Self {
        Self { only_whole: true, ..self }
    }

    /// Checks what [`KeySpec`] cannot express about `disk`, `size`, `device` and `storage`.
    ///
    /// # Errors
    /// A value is invalid; the error points at it.
    pub(crate) fn check(platform: &dyn Platform, environment: &EnvironmentSpec) -> Result<(), SpecError> {
        let disk = setting(platform, environment, "disk");
        if let Some(size) = environment.get("size") {
            let wrong = |message: String| {
                environment.value_error("size", message, "write a size, as in `size=10GiB`")
            };
            if disk == "none" {
                let help = "name the kind of the disk too, as in `disk=raw,size=10GiB`";
                return Err(environment.key_error("size", "there is no disk to have a size", help));
            }
            match parse_bytes(size) {
                Ok(bytes) if bytes > 0 && bytes % STEP == 0 => {}
                Ok(_) => return Err(wrong(format!("`{size}` is not a positive multiple of 4KiB"))),
                Err(error) => return Err(wrong(error.to_string())),
            }
        }
        if environment.get(STORAGE.name) == Some("disk") && disk == "none" {
            let help = "name the kind of the disk too, as in `disk=qcow2,storage=disk`";
            return Err(environment.key_error(STORAGE.name, "there is no disk to hold /var/tmp", help));
        }
        if environment.get("device").is_some() && disk != "block" {
            let (message, help) = ("only `disk=block` has a device", "write `disk=block` too");
            return Err(environment.key_error("device", message, help));
        }
        Ok(())
    }

    /// The changes that the disk makes on the host, one sentence each.
    pub(crate) fn host_changes(&self) -> Vec<String> {
        let size = format_bytes(self.bytes);
        match (&self.device, self.kind) {
            (Some(device), _) => vec![format!(
                "DESTROY the content of {}: its first {size} are overwritten with random bytes, and guests may write to it",
                device.display()
            )],
            (None, DiskKind::Block) => vec![
                format!("write a disk of {size} in the run's work directory"),
                "attach a loop device to it for each guest".into(),
            ],
            _ => vec![format!("write a disk of {size} in the run's work directory")],
        }
    }

    /// Prepares a disk for the first guest.
    ///
    /// # Errors
    /// No space is left, or the device is not available.
    pub(crate) fn prepare(&self, host: &Host) -> Result<()> {
        if let Some(device) = &self.device {
            return self.fill_device(host, device).map(drop);
        }
        let pool = self.pool(host)?;
        if fs::read_dir(&pool).is_ok_and(|mut entries| entries.next().is_some()) {
            return Ok(());
        }
        self.make_file(host, &pool.join(format!("{FREE}0")))
    }

    /// Makes a disk's file.
    fn make_file(&self, host: &Host, path: &Path) -> Result<()> {
        fill::file(path, self.format(), self.bytes, self.is_storage.then_some(&*host.work))
    }

    /// Replaces the guest's storage in memory by the disk's file system, if it has one.
    pub(crate) fn mounted(&self, mut mounts: Vec<BootMount>) -> Vec<BootMount> {
        if self.is_storage {
            mounts.retain(|mount| mount.target != Storage::TARGET);
            // The disk for workloads is the first one.
            mounts.push(BootMount::new(FILE_SYSTEM, "/dev/vda", Storage::TARGET, "nosuid,nodev"));
        }
        mounts
    }

    /// Kernel modules that the guest needs for the disk.
    pub(crate) fn modules(&self) -> &'static [&'static str] {
        if self.is_storage { &super::MODULES } else { &["virtio_blk"] }
    }

    /// Takes a disk for one guest, which nobody else has. The host's page cache keeps nothing of it
    /// from an earlier guest.
    ///
    /// # Errors
    /// As [`DataDiskSpec::prepare`], or no loop device is available.
    pub(crate) fn take(&self, host: &Host, instance: u64) -> Result<DataDisk> {
        if let Some(device) = &self.device {
            let (held, marker) = self.fill_device(host, device)?;
            let bytes = self.bytes_of(held.bytes);
            let whole = bytes == held.bytes;
            let written = held.written();
            let source = Source::Device { marker, held, written };
            return Ok(DataDisk { path: device.clone(), format: Format::Raw, bytes, whole, source });
        }
        let pool = self.pool(host)?;
        let file = pool.join(format!("{TAKEN}{instance}"));
        let free = fs::read_dir(&pool).into_iter().flatten().flatten().map(|entry| entry.path());
        let is_free = |path: &PathBuf| {
            path.extension().is_none()
                && path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(FREE))
        };
        // Whoever renames a file first owns it.
        if !free.filter(is_free).any(|path| fs::rename(path, &file).is_ok()) {
            self.make_file(host, &file)?;
        }
        let made = File::open(&file)
            .and_then(|opened| fill::forget(&opened).and_then(|()| opened.metadata()?.modified()))
            .map_err(PlatformError::at("open", &file))?;
        let (path, attached) = match self.kind {
            DiskKind::Block => {
                let attached = Loop::attach(host, &file)?;
                (attached.device.clone(), Some(attached))
            }
            _ => (file.clone(), None),
        };
        let source = Source::File { free: pool.join(format!("{FREE}{instance}")), file, made, attached };
        Ok(DataDisk { path, format: self.format(), bytes: self.bytes, whole: true, source })
    }

    fn format(&self) -> Format {
        match self.kind {
            DiskKind::Qcow2 => Format::Qcow2,
            DiskKind::Raw | DiskKind::Block => Format::Raw,
        }
    }

    /// The directory for all disks like this one.
    fn pool(&self, host: &Host) -> Result<PathBuf> {
        let pool =
            host.work.join(format!("{POOL}{}-{}{}", self.format().as_str(), self.bytes, self.suffix()));
        fs::create_dir_all(&pool).map_err(PlatformError::at("make", &pool))?;
        Ok(pool)
    }

    /// Distinguishes, in names of files, disks with a file system from those without.
    fn suffix(&self) -> String {
        if self.is_storage { format!("-{FILE_SYSTEM}") } else { String::new() }
    }

    /// How much of a user's device is used.
    fn bytes_of(&self, device: u64) -> u64 {
        if self.sized { self.bytes } else { self.bytes.min(device) }
    }

    /// Takes the user's device and fills it with random content unless it is still filled.
    fn fill_device(&self, host: &Host, device: &Path) -> Result<(HeldDevice, PathBuf)> {
        let held = hold(device)?;
        let bytes = self.bytes_of(held.bytes);
        if bytes > held.bytes {
            return Err(PlatformError::unavailable(
                format!("{} do not fit on {}", format_bytes(bytes), device.display()),
                format!("write size={} or less", format_bytes(held.bytes)),
            ));
        }
        if self.only_whole && bytes < held.bytes {
            return Err(PlatformError::unavailable(
                format!("the guest cannot have a part of {}", device.display()),
                format!("write size={}, the whole length, or name a partition", format_bytes(held.bytes)),
            ));
        }
        // This file says that nobody has written to the device since.
        let name = device.to_string_lossy().replace('/', "-");
        let marker = host.work.join(format!("disk{name}-{bytes}{}.filled", self.suffix()));
        if !marker.exists() {
            let filling = format!("overwrite {}", device.display());
            fill::random(&held.file, 0, bytes)
                .and_then(|()| match self.is_storage {
                    true => fill::file_system(&held.file, device, (0, bytes), &host.work),
                    false => Ok(()),
                })
                .and_then(|()| fs::write(&marker, ""))
                .map_err(PlatformError::io(filling))?;
        }
        fill::forget(&held.file).map_err(PlatformError::io("empty the cache of a device"))?;
        Ok((held, marker))
    }
}

/// Prefixes of the names of disks that no guest has, and of those that a guest has.
const FREE: &str = "free-";
const TAKEN: &str = "guest-";
/// Prefix of the names of the directories that disks are in.
const POOL: &str = "disks-";

/// Whether a file has the name of a guest's disk.
pub(super) fn is_disk(file: &Path) -> bool {
    let begins = |path: &Path, prefix: &str| {
        path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(prefix.as_bytes()))
    };
    begins(file, TAKEN) && file.parent().is_some_and(|pool| begins(pool, POOL))
}

/// A guest's disk. Dropping it without giving it back removes it.
#[derive(Debug)]
pub(crate) struct DataDisk {
    /// What the machine opens: a file or a block device.
    pub(crate) path: PathBuf,
    /// The format of its content.
    pub(crate) format: Format,
    /// Length of the disk that the guest sees.
    pub(crate) bytes: u64,
    /// Whether that is the whole file or device.
    pub(crate) whole: bool,
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// A file of the run. `made` is when it was last written, `attached` the loop device above it,
    /// `free` its name while no guest has it.
    File { file: PathBuf, free: PathBuf, made: SystemTime, attached: Option<Loop> },
    /// The user's device. `marker` is removed once somebody has written to the device; `written` is
    /// how much had been written to it before.
    Device { marker: PathBuf, held: HeldDevice, written: Option<u64> },
    /// It was given back.
    Gone,
}

impl DataDisk {
    /// Whether the machine opens a block device of the host.
    pub(crate) fn is_device(&self) -> bool {
        matches!(self.source, Source::Device { .. } | Source::File { attached: Some(_), .. })
    }

    /// Gives the disk back after its machine has ended; further calls do nothing. Only a disk that
    /// nobody has written to goes to another guest.
    ///
    /// # Errors
    /// A loop device could not be detached; it stays in the ledger.
    pub(crate) fn give_back(&mut self) -> Result<()> {
        let unwritten = match &self.source {
            Source::File { file, made, .. } => {
                file.metadata().and_then(|found| found.modified()).is_ok_and(|now| now == *made)
            }
            Source::Device { held, written, .. } => written.is_some() && held.written() == *written,
            Source::Gone => false,
        };
        self.end(unwritten)
    }

    fn end(&mut self, unwritten: bool) -> Result<()> {
        match &mut self.source {
            Source::File { file, free, attached, .. } => {
                if let Some(attached) = attached {
                    attached.detach()?;
                }
                // Without a pool name the file is nobody's, and goes with the run at the latest.
                let _ = if unwritten { fs::rename(file, free) } else { fs::remove_file(file) };
            }
            Source::Device { marker, .. } if !unwritten => drop(fs::remove_file(marker)),
            Source::Device { .. } | Source::Gone => {}
        }
        self.source = Source::Gone;
        Ok(())
    }
}

impl Drop for DataDisk {
    fn drop(&mut self) {
        // Its machine may still run. What cannot be undone stays in the ledger.
        let _ = self.end(false);
    }
}

#[cfg(test)]
mod tests;
