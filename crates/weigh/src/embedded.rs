//! The two programs that run inside guests, embedded by the build script.

use crate::error::{Failure, file_failure};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use weigh_images::Programs;

static PROBE: &[u8] = include_bytes!(env!("WEIGH_PROBE_PATH"));
static KERNELS: &[u8] = include_bytes!(env!("WEIGH_KERNELS_PATH"));

/// SHA-256 of each program, hexadecimal: part of every plan.
pub fn digests() -> BTreeMap<String, String> {
    [("probe", PROBE), ("kernels", KERNELS)].map(|(name, bytes)| (name.to_string(), digest(bytes))).into()
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes the programs into a directory that is already in the ledger.
///
/// # Errors
/// The directory cannot be written.
pub fn write_out(directory: &Path) -> Result<Programs, Failure> {
    let write = |name: &str, bytes: &[u8]| -> Result<PathBuf, Failure> {
        let path = directory.join(name);
        fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o755)
            .open(&path)
            .and_then(|mut file| file.write_all(bytes))
            .map_err(|error| file_failure("write the guest program", &path, error))?;
        Ok(path)
    };
    Ok(Programs { probe: write("weigh-probe", PROBE)?, kernels: write("weigh-kernels", KERNELS)? })
}
