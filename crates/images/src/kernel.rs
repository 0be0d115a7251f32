//! The kernel of a virtual machine, and its modules.
//!
//! It is the one that the user names, else the newest of the host's kernels that suits a guest,
//! else Debian's cloud kernel. apt(8) downloads that into the cache, where it is unpacked but never
//! installed. A Debian kernel in the cache is used until the cache is removed, so that runs on
//! different days use the same kernel and need no network.

mod debian;
mod payload;

pub(crate) use payload::decompress;

use crate::FileError;
use crate::modules::ModuleTree;
use crate::package::{Fetching, PackageError};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use weigh_host::cache::{CacheDirectory, CacheError};
use weigh_host::command::CommandError;
use weigh_host::ledger::Ledger;

/// Drivers that a guest needs, built in or as modules: the bus, and the channel to the probe.
const NEEDED: [&str; 2] = ["virtio_pci", "virtio_console"];
/// Directory of the kernels in the cache.
const CACHE: &str = "kernels";

/// Why no kernel for a guest is available.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The file is not a kernel, or lacks a driver that a guest needs.
    #[error("{} cannot be the kernel of a guest: {reason}", path.display())]
    Unfit {
        /// The kernel.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A module does not exist.
    #[error("the kernel has no module {name} ({} was searched); name one that has it by kernel=PATH", directory.display())]
    NoModule {
        /// Name of the module.
        name: String,
        /// The directory of the modules.
        directory: PathBuf,
    },
    /// No kernel of the host suits a guest, and Debian's is not available.
    #[error(
        "there is no kernel for a guest: none in /boot has the modules that a guest needs in /lib/modules, and {reason}"
    )]
    Unobtainable {
        /// Why Debian's kernel is not available.
        reason: String,
    },
    /// The moment of [`Fetching::until`] has come.
    #[error("there was no more time to fetch Debian's cloud kernel")]
    Late,
    /// Downloading or unpacking Debian's kernel failed.
    #[error("Debian's cloud kernel could not be fetched: {0}")]
    Fetch(#[from] CommandError),
    /// The cache cannot be used.
    #[error(
        "the cache of kernels cannot be used: {0}; set WEIGH_CACHE to a directory of yours that nobody else may write"
    )]
    Cache(String),
    /// The system refused an operation on a file, or a file is damaged.
    #[error(transparent)]
    File(#[from] FileError),
}

impl From<PackageError> for KernelError {
    fn from(error: PackageError) -> Self {
        match error {
            PackageError::Late => Self::Late,
            PackageError::Command(error) => Self::Fetch(error),
            PackageError::Cache(reason) => Self::Cache(reason),
            PackageError::File(error) => Self::File(error),
            other => Self::Unobtainable { reason: other.to_string() },
        }
    }
}

impl From<CacheError<KernelError>> for KernelError {
    fn from(error: CacheError<KernelError>) -> Self {
        match error {
            CacheError::Make(error) => error,
            other => Self::Cache(other.to_string()),
        }
    }
}

/// A kernel that a guest can boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestKernel {
    /// The file to boot, decompressed if possible.
    pub boot: PathBuf,
    /// The release, as `uname -r` prints it.
    pub release: String,
    /// Its modules; absent if it has none.
    pub modules: Option<ModuleTree>,
    /// Its origin, for display.
    pub source: String,
}

impl GuestKernel {
    /// Whether it has this driver, built in or as a module; assumed for a kernel without modules.
    pub fn has(&self, module: &str) -> bool {
        self.modules.as_ref().is_none_or(|modules| modules.has(module))
    }

    /// The kernel at this path, or by default the one described in the module's documentation. It
    /// may be downloaded and decompressed into the cache.
    ///
    /// # Errors
    /// None is available, or the named one does not suit a guest.
    pub fn find(
        named: Option<&Path>,
        cache: &CacheDirectory,
        ledger: &Ledger,
        fetching: Fetching<'_>,
    ) -> Result<Self, KernelError> {
        if let Some(path) = named {
            return Self::named(path, Path::new("/lib/modules"))?.decompressed(cache, ledger);
        }
        match newest(Path::new("/boot"), Path::new("/lib/modules")) {
            Some(kernel) => kernel.decompressed(cache, ledger),
            None => debian::kernel(cache, ledger, fetching),
        }
    }

    /// Like [`GuestKernel::find`], but without downloading or making anything: `None` if that would
    /// be necessary.
    pub fn find_local(named: Option<&Path>, cache: &CacheDirectory) -> Option<Self> {
        match named {
            Some(path) => Self::named(path, Path::new("/lib/modules")).ok(),
            None => newest(Path::new("/boot"), Path::new("/lib/modules"))
                .or_else(|| debian::cached(cache).and_then(|directory| debian::open(&directory).ok())),
        }
    }

    /// A kernel that the user names. Its modules are searched for beside it, then where packages
    /// install them.
    fn named(path: &Path, installed: &Path) -> Result<Self, KernelError> {
        let path = path.canonicalize().map_err(FileError::of("find", path))?;
        let unfit = |reason: String| KernelError::Unfit { path: path.clone(), reason };
        let image = fs::read(&path).map_err(FileError::of("read", &path))?;
        let of_name = || {
            let name = path.file_name()?.to_str()?;
            name.split_once('-').map(|(_, release)| release.to_string())
        };
        let is_elf = image.starts_with(b"\x7fELF");
        let release = payload::release(&image)
            .or_else(|| is_elf.then(|| payload::release_of_elf(&image)).flatten())
            .or_else(of_name)
            .ok_or_else(|| {
                unfit("it does not contain its release, and its name is not NAME-RELEASE".into())
            })?;
        let beside = path.ancestors().skip(1).take(2).flat_map(|parent| {
            [parent.join("lib/modules").join(&release), parent.join("modules").join(&release)]
        });
        let directory = beside.chain([installed.join(&release)]).find(|directory| directory.is_dir());
        let modules = directory.map(|directory| ModuleTree::open(&directory)).transpose()?;
        if let Some(modules) = &modules {
            check(modules, &path)?;
        }
        let source = format!("{}, as named", path.display());
        Ok(Self { boot: path, release, modules, source })
    }

    /// The kernel, decompressed in the cache if possible.
    fn decompressed(mut self, cache: &CacheDirectory, ledger: &Ledger) -> Result<Self, KernelError> {
        let image = fs::read(&self.boot).map_err(FileError::of("read", &self.boot))?;
        if image.starts_with(b"\x7fELF") {
            return Ok(self);
        }
        let name = format!("{CACHE}/unpacked-{}", identity(&self.boot)?);
        let place = cache.directory(&name, ledger, |staging| unpack(&image, &self.boot, staging))?;
        let vmlinux = place.join(VMLINUX);
        if vmlinux.exists() {
            self.boot = vmlinux;
        }
        Ok(self)
    }
}

/// Name of the decompressed kernel in an entry of the cache.
const VMLINUX: &str = "vmlinux";

/// Decompresses the kernel of an image into a directory. Does nothing if the image must be booted
/// as it is.
fn unpack(image: &[u8], path: &Path, directory: &Path) -> Result<(), KernelError> {
    let Some(kernel) = payload::uncompressed(image, path)? else { return Ok(()) };
    let to = directory.join(VMLINUX);
    Ok(fs::write(&to, kernel).map_err(FileError::of("write", &to))?)
}

/// Identifies a version of a file without reading it.
fn identity(path: &Path) -> Result<String, KernelError> {
    let metadata = path.metadata().map_err(FileError::of("look at", path))?;
    let what = format!(
        "{} {} {} {} {}",
        path.display(),
        metadata.ino(),
        metadata.size(),
        metadata.mtime(),
        metadata.mtime_nsec()
    );
    Ok(weigh_model::hex(&Sha256::digest(what)[..10]))
}

/// The newest of the host's kernels that is readable and has the modules that a guest needs.
fn newest(boot: &Path, installed: &Path) -> Option<GuestKernel> {
    let mut found: Vec<(Vec<Part>, PathBuf, String)> = fs::read_dir(boot)
        .ok()?
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let release = ["vmlinuz-", "Image-"].iter().find_map(|prefix| name.strip_prefix(prefix))?;
            Some((parts(release), entry.path(), release.to_string()))
        })
        .collect();
    found.sort();
    found.into_iter().rev().find_map(|(_, image, release)| {
        File::open(&image).ok()?;
        if !configured(&boot.join(format!("config-{release}"))) {
            return None;
        }
        let modules = ModuleTree::open(&installed.join(&release)).ok()?;
        check(&modules, &image).ok()?;
        let source = format!("{}, the host's own", image.display());
        Some(GuestKernel { boot: image, release, modules: Some(modules), source })
    })
}

/// Whether features that cannot be modules are built in; assumed if the host has no configuration
/// file.
fn configured(config: &Path) -> bool {
    let Ok(text) = fs::read_to_string(config) else { return true };
    let on = |option: &str| text.lines().any(|line| line.strip_prefix(option) == Some("=y"));
    let console = on("CONFIG_SERIAL_8250_CONSOLE") || on("CONFIG_SERIAL_AMBA_PL011_CONSOLE");
    on("CONFIG_BLK_DEV_INITRD") && on("CONFIG_DEVTMPFS") && on("CONFIG_TMPFS") && console
}

fn check(modules: &ModuleTree, path: &Path) -> Result<(), KernelError> {
    match NEEDED.iter().find(|name| !modules.has(name)) {
        None => Ok(()),
        Some(name) => Err(KernelError::Unfit {
            path: path.into(),
            reason: format!("{} has no {name}", modules.directory().display()),
        }),
    }
}

/// A part of a version. Numbers compare as numbers and come after words, so that 6.1 is newer than
/// 6.1-rc1.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Word(String),
    End,
    Number(u64),
}

fn parts(version: &str) -> Vec<Part> {
    let mut parts: Vec<Part> = version
        .split(['.', '-', '_', '+', '~', ':'])
        .map(|part| part.parse().map_or_else(|_| Part::Word(part.into()), Part::Number))
        .collect();
    parts.push(Part::End);
    parts
}

#[cfg(test)]
mod tests;
