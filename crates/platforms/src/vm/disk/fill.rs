//! Random content for disks, with every block written, so that neither holes nor unwritten blocks
//! are measured.

use crate::{PlatformError, Result};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// How much is written at a time, bytes.
const PIECE: usize = 1 << 20;
/// An arbitrary number: the content only needs to have no patterns that could be compressed.
const SEED: u64 = 0x7765_6967_6862_7269;

/// The format of a disk's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// The disk, byte by byte.
    Raw,
    /// QEMU's own format, with every cluster allocated.
    Qcow2,
}

impl Format {
    /// The format's name in QEMU and libvirt.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
        }
    }
}

/// Makes the file of a disk of this length. The file gets its name once it is complete and on the
/// device. If a directory for `formatting` is given, the disk has an empty file system.
///
/// # Errors
/// No space is left, or the file system failed; no file is left.
pub(super) fn file(path: &Path, format: Format, bytes: u64, formatting: Option<&Path>) -> Result<()> {
    let staging = path.with_extension("new");
    let failed = |error: std::io::Error| {
        let _ = fs::remove_file(&staging);
        PlatformError::io(format!("write a disk of {bytes} bytes at {}", path.display()))(error)
    };
    let write = || {
        let file = File::create(&staging)?;
        let at = match format {
            Format::Raw => 0,
            Format::Qcow2 => weigh_images::qcow2::allocated(&file, bytes)?,
        };
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, at + bytes)?;
        random(&file, at, bytes)?;
        if let Some(work) = formatting {
            file_system(&file, &staging, (at, bytes), work)?;
        }
        fs::rename(&staging, path)
    };
    write().map_err(failed)
}

/// Writes random content from the offset `at` on, and flushes it to the device.
pub(super) fn random(file: &File, at: u64, bytes: u64) -> std::io::Result<()> {
    let mut random = Pcg64::seed_from_u64(SEED);
    let mut piece = vec![0; PIECE];
    let mut done = 0;
    while done < bytes {
        let now = usize::try_from(bytes - done).unwrap_or(usize::MAX).min(PIECE);
        random.fill_bytes(&mut piece[..now]);
        file.write_all_at(&piece[..now], at + done)?;
        done += now as u64;
    }
    file.sync_all()?;
    forget(file)
}

/// Makes an empty file system at an offset and of a length, and flushes it to the device.
pub(super) fn file_system(
    file: &File,
    path: &Path,
    (at, bytes): (u64, u64),
    work: &Path,
) -> std::io::Result<()> {
    weigh_images::disk::make_empty(path, at, bytes, work).map_err(std::io::Error::other)?;
    file.sync_all()?;
    forget(file)
}

/// Drops a file from the host's page cache, so that a guest reads the device.
pub(super) fn forget(file: &File) -> std::io::Result<()> {
    Ok(rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn every_block_is_written() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("disk.raw");
        file(&path, Format::Raw, 3 << 20, None).unwrap();
        let content = fs::read(&path).unwrap();
        assert_eq!(content.len(), 3 << 20);
        assert!(content.chunks(4096).all(|block| block.iter().any(|byte| *byte != 0)));
        assert!(content[..4096] != content[4096..8192]);
        assert!(path.metadata().unwrap().blocks() * 512 >= 3 << 20, "it has no holes");
        let image = base.path().join("disk.qcow2");
        file(&image, Format::Qcow2, 3 << 20, None).unwrap();
        let image_content = fs::read(&image).unwrap();
        assert!(image_content.starts_with(b"QFI\xfb") && image_content.ends_with(&content));
        assert!(image.metadata().unwrap().blocks() * 512 >= 3 << 20, "it has no holes");
    }

    #[test]
    fn a_disk_that_does_not_fit_leaves_nothing() {
        let base = tempfile::tempdir().unwrap();
        let error = file(&base.path().join("disk.raw"), Format::Raw, 1 << 60, None).unwrap_err().to_string();
        assert!(error.contains("disk.raw"), "{error}");
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
    }
}
