//! Debian's kernel for virtual machines, from the package archive configured on the host.

use super::{CACHE, GuestKernel, KernelError, VMLINUX, parts, unpack};
use crate::FileError;
use crate::modules::ModuleTree;
use crate::package::{Fetching, Package, field, show};
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
    fetching: Fetching<'_>,
) -> Result<GuestKernel, KernelError> {
    let directory = match cached(cache) {
        Some(directory) => directory,
        None => fetch(cache, ledger, fetching)?,
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

/// The image and its release. Newer packages have it beside the modules.
fn image(directory: &Path) -> Result<(PathBuf, String), KernelError> {
    let entries = |below: &str| {
        let entries = fs::read_dir(directory.join(below)).into_iter().flatten().flatten();
        entries.filter_map(|entry| Some((entry.path(), entry.file_name().into_string().ok()?)))
    };
    let in_boot =
        entries("boot").find_map(|(path, name)| Some((path, name.strip_prefix("vmlinuz-")?.to_string())));
    let beside_modules = || {
        let mut images = entries("usr/lib/modules").map(|(path, release)| (path.join("vmlinuz"), release));
        images.find(|(path, _)| path.is_file())
    };
    in_boot.or_else(beside_modules).ok_or_else(|| KernelError::Unfit {
        path: directory.into(),
        reason: "the package holds no vmlinuz".into(),
    })
}

/// The directory of the modules. Newer packages have it below `/usr`.
fn modules(directory: &Path, release: &str) -> PathBuf {
    let usr = directory.join("usr/lib/modules").join(release);
    if usr.is_dir() { usr } else { directory.join("lib/modules").join(release) }
}

fn fetch(cache: &CacheDirectory, ledger: &Ledger, fetching: Fetching<'_>) -> Result<PathBuf, KernelError> {
    let package = candidate(fetching)?;
    let name = format!("{CACHE}/{PREFIX}{}", package.label());
    Ok(cache.directory(&name, ledger, |staging| make(&package, staging, fetching))?)
}

/// The package on which the metapackage depends.
fn candidate(fetching: Fetching<'_>) -> Result<Package, KernelError> {
    let architecture = match std::env::consts::ARCH {
        "aarch64" => "arm64",
        "x86_64" => "amd64",
        other => {
            let reason = format!("Debian has no cloud kernel for {other}");
            return Err(KernelError::Unobtainable { reason });
        }
    };
    let meta = format!("linux-image-cloud-{architecture}");
    let name = depends(&show(&meta, fetching)?).ok_or_else(|| {
        let reason = format!("apt knows no kernel that the package {meta} depends on");
        KernelError::Unobtainable { reason }
    })?;
    Ok(Package::candidate(&name, fetching)?)
}

/// Downloads and unpacks the package and its parts, and decompresses the kernel.
fn make(package: &Package, staging: &Path, fetching: Fetching<'_>) -> Result<(), KernelError> {
    package.unpack(staging, fetching)?;
    for part in parts_of(&show(&package.name, fetching)?) {
        Package::candidate(part, fetching)?.unpack(staging, fetching)?;
    }
    let (image, _) = image(staging)?;
    let bytes = fs::read(&image).map_err(FileError::of("read", &image))?;
    unpack(&bytes, &image, staging)?;
    // An unsuitable kernel must not stay in the cache.
    open(staging).map(|_| ())
}

/// The kernel that a package depends on.
fn depends(paragraph: &str) -> Option<String> {
    dependencies(paragraph).find(|name| name.starts_with("linux-image-")).map(Into::into)
}

/// The packages that hold what a kernel's package is made of, if it is empty itself, as those of
/// Linux 7.2 are: the list of what is built in, the image and the modules.
fn parts_of(paragraph: &str) -> impl Iterator<Item = &str> {
    const PARTS: [&str; 3] = ["linux-base-", "linux-binary-", "linux-modules-"];
    dependencies(paragraph).filter(|name| PARTS.iter().any(|part| name.starts_with(part)))
}

/// The names of the packages that a package depends on; of alternatives the first.
fn dependencies(paragraph: &str) -> impl Iterator<Item = &str> {
    let names = field(paragraph, "Depends").unwrap_or_default();
    names.split(',').filter_map(|one| one.split_whitespace().next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_behind_the_package() {
        let text = "Package: linux-image-cloud-amd64\nVersion: 6.1.192-2\nDepends: base, linux-image-6.1.0-56-cloud-amd64 (= 6.1.192-2)\nDescription: Linux\n Depends: nothing\n\nPackage: other\nSection: kernel\n";
        assert_eq!(depends(text).as_deref(), Some("linux-image-6.1.0-56-cloud-amd64"));
        assert_eq!(depends(""), None);
        assert_eq!(parts_of(text).next(), None);
    }

    /// The package of Linux 7.2 in Debian unstable is empty, and these are its dependencies.
    #[test]
    fn a_kernel_in_several_packages() {
        let text = "Package: linux-image-7.2.13+deb14-cloud-amd64\nDepends: dracut | initramfs-tools (>= 0.120+deb8u2), linux-base-7.2.13+deb14-cloud-amd64 (= 7.2.13-1), linux-binary-7.2.13+deb14-cloud-amd64 (= 7.2.13-1), linux-modules-7.2.13+deb14-cloud-amd64 (= 7.2.13-1)\nPre-Depends: linux-base (>= 4.17~)\n";
        let parts: Vec<&str> = parts_of(text).collect();
        let part = |name: &str| format!("linux-{name}-7.2.13+deb14-cloud-amd64");
        assert_eq!(parts, ["base", "binary", "modules"].map(part));
        let base = tempfile::tempdir().unwrap();
        let modules = base.path().join("usr/lib/modules/7.2.13");
        fs::create_dir_all(&modules).unwrap();
        let error = open(base.path()).unwrap_err().to_string();
        assert!(error.contains("holds no vmlinuz"), "{error}");
        fs::write(modules.join("vmlinuz"), "an image").unwrap();
        let drivers = "kernel/drivers/virtio/virtio_pci.ko\nkernel/drivers/char/virtio_console.ko\n";
        fs::write(modules.join("modules.builtin"), drivers).unwrap();
        let kernel = open(base.path()).unwrap();
        assert_eq!((kernel.release.as_str(), kernel.boot.clone()), ("7.2.13", modules.join("vmlinuz")));
        assert!(kernel.has("virtio_console"));
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
