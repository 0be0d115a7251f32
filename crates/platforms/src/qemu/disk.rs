//! The guest's disk: a raw file with every block written, so that neither holes nor blocks that were never written are measured.

use crate::PlatformError;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

/// Written at a time, bytes.
const PIECE: usize = 1 << 20;
/// Any number: content need only be without patterns that a file system or a device could shorten.
const SEED: u64 = 0x7765_6967_6862_7269;

/// Makes the disk unless it is there. It gets its name when it is whole and on the device.
///
/// # Errors
/// No space, or another fault of the file system.
pub(super) fn make(path: &Path, bytes: u64) -> Result<(), PlatformError> {
    if path.metadata().is_ok_and(|metadata| metadata.len() == bytes) {
        return Ok(());
    }
    let staging = path.with_extension("new");
    let failed = |error: std::io::Error| {
        let _ = fs::remove_file(&staging);
        PlatformError::io(format!("write a disk of {bytes} bytes at {}", path.display()))(error)
    };
    write(&staging, bytes).and_then(|()| fs::rename(&staging, path)).map_err(failed)
}

fn write(path: &Path, bytes: u64) -> std::io::Result<()> {
    let file = File::create(path)?;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes)?;
    let mut random = Pcg64::seed_from_u64(SEED);
    let mut piece = vec![0; PIECE];
    let mut writer = BufWriter::with_capacity(PIECE, file);
    let mut left = bytes;
    while left > 0 {
        let now = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE);
        random.fill_bytes(&mut piece[..now]);
        writer.write_all(&piece[..now])?;
        left -= now as u64;
    }
    writer.flush()?;
    writer.get_ref().sync_all()?;
    // What was written must not wait in the host's cache for a guest that is meant to read the device.
    rustix::fs::fadvise(writer.get_ref(), 0, None, rustix::fs::Advice::DontNeed)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn every_block_is_written_once() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("disk.raw");
        make(&path, 3_000_000).unwrap();
        let content = fs::read(&path).unwrap();
        assert_eq!(content.len(), 3_000_000);
        assert!(content.chunks(4096).all(|block| block.iter().any(|byte| *byte != 0)));
        assert!(content[..4096] != content[4096..8192]);
        let made = path.metadata().unwrap();
        assert!(made.blocks() * 512 >= 3_000_000, "it has no holes");
        make(&path, 3_000_000).unwrap();
        assert_eq!(path.metadata().unwrap().ino(), made.ino());
    }

    #[test]
    fn what_does_not_fit_leaves_nothing() {
        let base = tempfile::tempdir().unwrap();
        let error = make(&base.path().join("disk.raw"), 1 << 60).unwrap_err().to_string();
        assert!(error.contains("disk.raw"), "{error}");
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
    }
}
