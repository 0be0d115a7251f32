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
/// # Errors
/// The directory cannot be written.
pub fn write_out(directory: &Path) -> Result<Programs, Failure> {
    let write = |name: &str, compressed: &[u8]| -> Result<PathBuf, Failure> {
        let path = directory.join(name);
        fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o755)
            .open(&path)
            .and_then(|mut file| io::copy(&mut GzDecoder::new(compressed), &mut file))
            .map_err(|error| file_failure("write the guest program", &path, error))?;
        Ok(path)
    };
    Ok(Programs { probe: write("weigh-probe", PROBE)?, kernels: write("weigh-kernels", KERNELS)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};

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
}
