//! The file that the kernel writes where it is asked to: every sector says where it belongs, so that a read of the wrong place is
//! seen, and no two are alike, so that a disk that merges equal blocks has nothing to merge.

use crate::kernel::KernelError;
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::path::Path;

/// Bytes of a sector: the least that a disk reads, and the alignment of direct reads on most.
pub(super) const SECTOR: usize = 512;

/// First word of every sector, the second being its place: "weighblk".
const MARK: u64 = u64::from_le_bytes(*b"weighblk");

/// Bytes written at once.
const PIECE: usize = 1 << 20;

/// Writes a file of `bytes` bytes, unless one of at least that length that an earlier run wrote is there. It is on the disk when
/// this returns, so that no writing disturbs the reads.
pub(super) fn provide(path: &Path, bytes: u64) -> Result<(), KernelError> {
    if !bytes.is_multiple_of(SECTOR as u64) {
        return Err(
            crate::UsageError(format!("`--file-bytes {bytes}` must be a multiple of {SECTOR}")).into()
        );
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
    let failed =
        || KernelError::system(format!("write {} to {}", weigh_model::format_bytes(bytes), path.display()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(path).map_err(failed())?;
    let mut random = Pcg64Mcg::new(u128::from(bytes) << 1 | 1);
    let mut place = 0;
    while place < bytes {
        let mut piece = vec![0; PIECE.min((bytes - place) as usize)];
        for sector in piece.chunks_exact_mut(SECTOR) {
            random.fill_bytes(sector);
            sector[..8].copy_from_slice(&MARK.to_le_bytes());
            sector[8..16].copy_from_slice(&place.to_le_bytes());
            place += SECTOR as u64;
        }
        file.write_all(&piece).map_err(failed())?;
    }
    file.sync_all().map_err(failed())
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

/// Whether every sector of `bytes`, read from `place` on, says that it belongs there.
pub(super) fn belongs(bytes: &[u8], place: u64) -> bool {
    let word = |sector: &[u8], at: usize| {
        u64::from_le_bytes(sector[at..at + 8].try_into().expect("eight bytes of a sector"))
    };
    bytes
        .chunks_exact(SECTOR)
        .enumerate()
        .all(|(index, sector)| word(sector, 0) == MARK && word(sector, 8) == place + (index * SECTOR) as u64)
}
