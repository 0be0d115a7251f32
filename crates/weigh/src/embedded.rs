//! The two programs that run inside guests, compressed and embedded by the build script.

use crate::error::{Failure, file_failure};
use flate2::read::GzDecoder;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use weigh_images::Programs;

static PROBE: &[u8] = include_bytes!(env!("WEIGH_PROBE_GZ"));
static KERNELS: &[u8] = include_bytes!(env!("WEIGH_KERNELS_GZ"));

/// SHA-256 of each program, hexadecimal: part of every plan.
pub fn digests() -> BTreeMap<String, String> {
    let digests = [("probe", env!("WEIGH_PROBE_DIGEST")), ("kernels", env!("WEIGH_KERNELS_DIGEST"))];
    digests.map(|(name, digest)| (name.to_string(), digest.to_string())).into()
}

/// Decompresses the programs into a directory that is already in the ledger.
///
/// Natively they run from there, in guests from copies of these files. So each of these files is a
/// copy, too: the page cache holds a file in larger folios the larger the pieces were in which it
/// was written (ext4, XFS), and a program of 5 MB that was written by 8 KiB took a tenth longer to
/// fork and execute than its copy.
///
/// # Errors
/// The directory cannot be written.
pub fn write_out(directory: &Path) -> Result<Programs, Failure> {
    let write = |name: &str, compressed: &[u8]| -> Result<PathBuf, Failure> {
        let path = directory.join(name);
        let unpacked = directory.join(format!("{name}.unpacked"));
        fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o755)
            .open(&unpacked)
            .and_then(|mut file| io::copy(&mut GzDecoder::new(compressed), &mut file))
            .and_then(|_| fs::copy(&unpacked, &path))
            .and_then(|_| fs::remove_file(&unpacked))
            .map_err(|error| file_failure("write the guest program", &path, error))?;
        Ok(path)
    };
    Ok(Programs { probe: write("weigh-probe", PROBE)?, kernels: write("weigh-kernels", KERNELS)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};
    use std::os::unix::fs::FileExt;

    #[test]
    fn programs_are_written_as_their_digests_say() {
        let directory = tempfile::tempdir().unwrap();
        let programs = write_out(directory.path()).unwrap();
        let digest = |path: &Path| {
            let bytes = fs::read(path).unwrap();
            Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        let digests = digests();
        assert_eq!(digest(&programs.probe), digests["probe"]);
        assert_eq!(digest(&programs.kernels), digests["kernels"]);
    }

    /// Pages at which a folio of several pages begins, among those that the cache holds of a file;
    /// `None` where the kernel does not say (Documentation/admin-guide/mm/pagemap.rst).
    fn large_folios(path: &Path) -> Option<usize> {
        const COMPOUND_HEAD: u64 = 1 << 15;
        let file = fs::File::open(path).unwrap();
        let length = usize::try_from(file.metadata().unwrap().len()).unwrap();
        let (read, private) = (rustix::mm::ProtFlags::READ, rustix::mm::MapFlags::PRIVATE);
        // SAFETY: a new mapping, which nobody else uses, of a file that stays as it is.
        let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), length, read, private, &file, 0) };
        let start = start.unwrap() as usize;
        let entry = |file: &fs::File, index: usize| {
            let mut bytes = [0; 8];
            file.read_exact_at(&mut bytes, index as u64 * 8).ok()?;
            Some(u64::from_ne_bytes(bytes))
        };
        let places = fs::File::open("/proc/self/pagemap").ok()?;
        let flags = fs::File::open("/proc/kpageflags").ok()?;
        let mut heads = 0;
        for at in (start..start + length).step_by(4096) {
            // SAFETY: the address lies in the mapping; the read brings the page in.
            unsafe { (at as *const u8).read_volatile() };
            let frame = usize::try_from(entry(&places, at / 4096)? & ((1 << 55) - 1)).unwrap();
            heads += usize::from(frame != 0 && entry(&flags, frame)? & COMPOUND_HEAD != 0);
        }
        Some(heads)
    }

    #[test]
    fn the_page_cache_holds_programs_as_it_holds_their_copies() {
        let directory = tempfile::tempdir().unwrap();
        let kernels = write_out(directory.path()).unwrap().kernels;
        let copy = directory.path().join("copy");
        fs::copy(&kernels, &copy).unwrap();
        match (large_folios(&kernels), large_folios(&copy)) {
            (Some(program), Some(copy)) => {
                assert!(program.abs_diff(copy) <= 8, "{program} and {copy} large folios")
            }
            _ => eprintln!(
                "SKIPPED the_page_cache_holds_programs_as_it_holds_their_copies: needs root and /proc/kpageflags"
            ),
        }
    }
}
