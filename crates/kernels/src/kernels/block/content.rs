//! The file that the kernel writes where it is asked to: every sector says where it belongs, so
//! that a read of the wrong place is seen, and no two are alike, so that a disk that merges equal
//! blocks has nothing to merge.

use super::disk::{self, Access};
use crate::kernel::KernelError;
use crate::kernels::place;
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::path::Path;

/// Bytes of a sector: the least that a disk reads, and the alignment of direct reads on most.
pub(super) const SECTOR: usize = 512;

/// First word of every sector, the second being its place: "weighblk".
const MARK: u64 = u64::from_le_bytes(*b"weighblk");

/// Reads above this length are looked at in part.
const LONG: usize = 64 << 10;

/// Bytes written at once.
const PIECE: usize = 1 << 20;

/// Writes a file of `bytes` bytes, unless one of at least that length that an earlier run wrote is
/// there. It is on the disk when this returns, so that no writing disturbs the reads.
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
    // Before memory is filled that stands for a disk.
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
    // Direct writes would have to throw away page by page what the cache has of the file. Advice,
    // so the answer does not matter.
    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    Ok(())
}

/// Removes a file that [`provide`] wrote, and no other. Whether there was one.
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

/// Says in every sector of `bytes`, to be written to `place`, that it belongs there, and which
/// write it comes from.
pub(super) fn stamp(bytes: &mut [u8], place: u64, tag: u64) {
    let mut at = place;
    for sector in bytes.chunks_exact_mut(SECTOR) {
        sector[..8].copy_from_slice(&MARK.to_le_bytes());
        sector[8..16].copy_from_slice(&at.to_le_bytes());
        sector[16..24].copy_from_slice(&tag.to_le_bytes());
        at += SECTOR as u64;
    }
}

/// What the writes of one request in flight put around their stamps: the same for the same `seed`
/// and `slot`.
pub(super) fn fill_body(bytes: &mut [u8], seed: u64, slot: usize) {
    Pcg64Mcg::new(u128::from(seed) << 64 | (slot as u128) << 1 | 1).fill_bytes(bytes);
}

/// Whether `bytes`, read from `place` on, are sectors that say that they belong there. Of a long
/// read every eighth is looked at and the last: looking at all would take time that is not the
/// disk's.
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
