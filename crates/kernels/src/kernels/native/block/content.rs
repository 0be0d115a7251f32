//! The content of the kernel's file. Every sector holds its place, so that a read of the wrong
//! place is noticed, and no two sectors are equal, so that a disk that merges equal blocks has
//! nothing to merge.

use super::disk::{self, Access};
use crate::kernel::KernelError;
use crate::kernels::native::place;
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::path::Path;

/// Bytes of a sector: the least that a disk reads, and the alignment of direct reads on most.
pub(super) const SECTOR: usize = 512;

/// First word of every sector, the second being its place: "weighblk".
const MARK: u64 = u64::from_le_bytes(*b"weighblk");

/// Reads longer than this are checked only in part.
const LONG: usize = 64 << 10;

/// Bytes written at once.
const PIECE: usize = 1 << 20;

/// Writes a file of `bytes` bytes, unless an earlier run left one of at least that length. The file
/// is on the disk when this returns, so that no write-back disturbs the reads.
pub(super) fn provide(path: &Path, bytes: u64, access: Access) -> Result<(), KernelError> {
    if !bytes.is_multiple_of(SECTOR as u64) {
        return Err(KernelError::usage(format!("`--file-bytes {bytes}` must be a multiple of {SECTOR}")));
    }
    match std::fs::metadata(path) {
        Ok(there) if !there.is_file() => {
            return Err(KernelError::Unable(format!(
                "{} is not a file: nothing is written to it; leave `--file-bytes` out to read it as it is",
                path.display()
            )));
        }
        Ok(there) if !is_stamped(path)? && there.len() > 0 => {
            return Err(KernelError::Unable(format!(
                "{} is somebody else's file: nothing is written to it; name another, or leave `--file-bytes` out to read it \
                 as it is",
                path.display()
            )));
        }
        Ok(there) if there.len() >= bytes => return Ok(()),
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(KernelError::system(format!("look at {}", path.display()))(error)),
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (existed, there) = std::fs::metadata(path).map_or((false, 0), |there| (true, there.len()));
    place::require_space(
        folder,
        bytes.saturating_sub(there),
        "have a shorter one written with `--file-bytes`, or name another place with `--path`",
    )?;
    let failed =
        || KernelError::system(format!("write {} to {}", weigh_model::format_bytes(bytes), path.display()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(path).map_err(failed())?;
    // Check the disk before filling what may turn out to be memory.
    if let Err(error) = disk::open(path, Access { writes: false, ..access }) {
        if !existed {
            let _ = std::fs::remove_file(path);
        }
        return Err(error);
    }
    let mut random = Pcg64Mcg::new(u128::from(bytes) << 1 | 1);
    let mut place = 0;
    while place < bytes {
        let mut piece = vec![0; PIECE.min((bytes - place) as usize)];
        random.fill_bytes(&mut piece);
        stamp(&mut piece, place, random.next_u64());
        file.write_all(&piece).map_err(failed())?;
        place += piece.len() as u64;
    }
    file.sync_all().map_err(failed())?;
    // Otherwise direct writes would have to drop the file's cached pages one by one. This is only
    // advice, so the result does not matter.
    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    Ok(())
}

/// Removes a file that [`provide`] wrote, and no other. Returns whether there was one.
pub(super) fn remove(path: &Path) -> Result<bool, KernelError> {
    let is_file = std::fs::metadata(path).is_ok_and(|there| there.is_file());
    let ours = is_file && is_stamped(path)?;
    if ours {
        std::fs::remove_file(path).map_err(KernelError::system(format!("remove {}", path.display())))?;
    }
    Ok(ours)
}

/// Whether the file at `path` begins as one that [`provide`] wrote.
pub(super) fn is_stamped(path: &Path) -> Result<bool, KernelError> {
    let mut first = [0; SECTOR];
    let failed = || KernelError::system(format!("read the beginning of {}", path.display()));
    match File::open(path).map_err(failed())?.read_exact(&mut first) {
        Ok(()) => Ok(belongs(&first, 0)),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(failed()(error)),
    }
}

/// Stamps every sector of `bytes`, to be written to `place`, with its place and with the write that
/// it comes from.
pub(super) fn stamp(bytes: &mut [u8], place: u64, tag: u64) {
    let mut at = place;
    for sector in bytes.chunks_exact_mut(SECTOR) {
        sector[..8].copy_from_slice(&MARK.to_le_bytes());
        sector[8..16].copy_from_slice(&at.to_le_bytes());
        sector[16..24].copy_from_slice(&tag.to_le_bytes());
        at += SECTOR as u64;
    }
}

/// Fills a write of one request slot around its stamps. The bytes depend only on `seed` and `slot`.
pub(super) fn fill_body(bytes: &mut [u8], seed: u64, slot: usize) {
    Pcg64Mcg::new(u128::from(seed) << 64 | (slot as u128) << 1 | 1).fill_bytes(bytes);
}

/// Whether the stamps of `bytes`, read from `place` on, are right. In a long read only every eighth
/// sector and the last are checked, because checking all would take time that is not the disk's.
pub(super) fn belongs(bytes: &[u8], place: u64) -> bool {
    let sectors = bytes.len() / SECTOR;
    let step = if bytes.len() > LONG { 8 } else { 1 };
    (0..sectors).step_by(step).chain(sectors.checked_sub(1)).all(|index| {
        let at = index * SECTOR;
        let word =
            |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes of a sector"));
        word(at) == MARK && word(at + 8) == place + at as u64
    })
}
