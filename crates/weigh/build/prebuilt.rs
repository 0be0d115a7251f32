//! Guest programs that were built before: a package of this crate has no workspace to build them
//! from.

use std::io;
use std::path::{Path, PathBuf};

/// The programs, compressed, and the digest of the code that reads samples.
pub struct Prebuilt {
    pub probe: PathBuf,
    pub kernels: PathBuf,
    /// The kernels in WebAssembly; an empty file where there are none.
    pub module: PathBuf,
    pub readers: String,
}

/// Finds the programs in `build/prebuilt/<architecture>/` beside the manifest. Returns `None` if
/// there is no such directory, and the workspace has the sources of the programs.
///
/// # Errors
/// The directory lacks a file, or `readers` holds no digest. There are neither programs for the
/// architecture nor their sources.
pub fn find(manifest: &Path, architecture: &str) -> io::Result<Option<Prebuilt>> {
    let directory = manifest.join("build/prebuilt").join(architecture);
    if !directory.is_dir() {
        if manifest.join("../probe").is_dir() {
            return Ok(None);
        }
        let message = format!(
            "this package of weighbridge has no guest programs for {architecture}: build weighbridge from its \
             repository"
        );
        return Err(io::Error::new(io::ErrorKind::NotFound, message));
    }
    let file = |name: &str| {
        let path = directory.join(name);
        if path.is_file() {
            return Ok(path);
        }
        Err(io::Error::new(io::ErrorKind::NotFound, format!("{} is missing", path.display())))
    };
    let readers = file("readers")?;
    let digest = std::fs::read_to_string(&readers)?.trim().to_string();
    if digest.len() != 32 || !digest.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        let message = format!("{} holds no digest of 32 hexadecimal digits", readers.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(Some(Prebuilt {
        probe: file("weigh-probe.xz")?,
        kernels: file("weigh-kernels.xz")?,
        module: file("weigh-kernels.wasm.xz")?,
        readers: digest,
    }))
}
