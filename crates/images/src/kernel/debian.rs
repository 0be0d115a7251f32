//! Debian's kernel for virtual machines, from the package archive configured on the host.

use super::{CACHE, GuestKernel, KernelError, VMLINUX, parts, unpack};
use crate::FileError;
use crate::modules::ModuleTree;
use crate::package::{Package, field, show};
use std::fs;
use std::path::{Path, PathBuf};
use weigh_host::cache::CacheDirectory;
use weigh_host::ledger::Ledger;

/// Prefix of the names of entries in the cache.
const PREFIX: &str = "debian-";

/// The newest kernel in the cache, else the one of the package archive, downloaded.
pub(super) fn kernel(
    cache: &CacheDirectory,
    ledger: &Ledger,
    log: &Path,
) -> Result<GuestKernel, KernelError> {
    let directory = match cached(cache) {
        Some(directory) => directory,
        None => fetch(cache, ledger, log)?,
    };
    open(&directory)
}

/// The newest kernel in the cache.
pub(super) fn cached(cache: &CacheDirectory) -> Option<PathBuf> {
    let mut entries: Vec<_> = fs::read_dir(cache.path().join(CACHE))
        .ok()?
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let version = name.strip_prefix(PREFIX)?;
            let whole = entry.path().is_dir() && !name.ends_with(".new");
            whole.then(|| (parts(version), entry.path()))
        })
        .collect();
    entries.sort();
    entries.pop().map(|(_, path)| path)
}

/// A kernel of the cache.
pub(super) fn open(directory: &Path) -> Result<GuestKernel, KernelError> {
    let (image, release) = image(directory)?;
    let modules = ModuleTree::open(&modules(directory, &release))?;
    super::check(&modules, &image)?;
    let unpacked = directory.join(VMLINUX);
    let boot = if unpacked.exists() { unpacked } else { image };
    Ok(GuestKernel { boot, modules: Some(modules), source: format!("Debian's {release}"), release })
}

fn image(directory: &Path) -> Result<(PathBuf, String), KernelError> {
    let boot = directory.join("boot");
    let mut entries = fs::read_dir(&boot).map_err(FileError::of("read the directory", &boot))?.flatten();
    let image = entries.find_map(|entry| {
        let release = entry.file_name().into_string().ok()?.strip_prefix("vmlinuz-")?.to_string();
        Some((entry.path(), release))
    });
    image.ok_or_else(|| KernelError::Unfit {
        path: boot,
        reason: "the package holds no vmlinuz-RELEASE".into(),
    })
}

/// The directory of the modules. Newer packages have it below `/usr`.
fn modules(directory: &Path, release: &str) -> PathBuf {
    let usr = directory.join("usr/lib/modules").join(release);
    if usr.is_dir() { usr } else { directory.join("lib/modules").join(release) }
}

fn fetch(cache: &CacheDirectory, ledger: &Ledger, log: &Path) -> Result<PathBuf, KernelError> {
    let package = candidate(log)?;
    let name = format!("{CACHE}/{PREFIX}{}", package.label());
    Ok(cache.directory(&name, ledger, |staging| make(&package, staging, log))?)
}

/// The package on which the metapackage depends.
fn candidate(log: &Path) -> Result<Package, KernelError> {
    let architecture = match std::env::consts::ARCH {
        "aarch64" => "arm64",
        "x86_64" => "amd64",
        other => {
            let reason = format!("Debian has no cloud kernel for {other}");
            return Err(KernelError::Unobtainable { reason });
        }
    };
    let meta = format!("linux-image-cloud-{architecture}");
    let name = depends(&show(&meta, log)?).ok_or_else(|| {
        let reason = format!("apt knows no kernel that the package {meta} depends on");
        KernelError::Unobtainable { reason }
    })?;
    Ok(Package::candidate(&name, log)?)
}

/// Downloads and unpacks the package, and decompresses the kernel.
fn make(package: &Package, staging: &Path, log: &Path) -> Result<(), KernelError> {
    package.unpack(staging, log)?;
    let (image, _) = image(staging)?;
    let bytes = fs::read(&image).map_err(FileError::of("read", &image))?;
    unpack(&bytes, &image, staging)?;
    // An unsuitable kernel must not stay in the cache.
    open(staging).map(|_| ())
}

/// The kernel that a package depends on.
fn depends(paragraph: &str) -> Option<String> {
    let names = field(paragraph, "Depends")?.split(',').filter_map(|one| one.split_whitespace().next());
    names.into_iter().find(|name| name.starts_with("linux-image-")).map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_behind_the_package() {
        let text = "Package: linux-image-cloud-amd64\nVersion: 6.1.192-2\nDepends: base, linux-image-6.1.0-56-cloud-amd64 (= 6.1.192-2)\nDescription: Linux\n Depends: nothing\n\nPackage: other\nSection: kernel\n";
        assert_eq!(depends(text).as_deref(), Some("linux-image-6.1.0-56-cloud-amd64"));
        assert_eq!(depends(""), None);
    }

    #[test]
    fn the_newest_of_the_cache_is_used() {
        let base = tempfile::tempdir().unwrap();
        let cache = CacheDirectory::at(base.path());
        assert_eq!(cached(&cache), None);
        for name in [
            "debian-linux-image-6.1.0-9-cloud-amd64_6.1.27-1",
            "debian-linux-image-6.1.0-56-cloud-amd64_6.1.192-2",
            "debian-linux-image-6.1.0-57-cloud-amd64_6.1.193-1.new",
            "unpacked-0123",
        ] {
            fs::create_dir_all(base.path().join(CACHE).join(name)).unwrap();
        }
        fs::write(base.path().join(CACHE).join("debian-linux-image-9_1.lock"), "").unwrap();
        assert!(cached(&cache).unwrap().ends_with("debian-linux-image-6.1.0-56-cloud-amd64_6.1.192-2"));
    }
}
