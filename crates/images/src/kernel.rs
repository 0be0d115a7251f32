//! The kernel that a virtual machine boots, and its modules.
//!
//! In this order: the one that the user names; the newest of the host's own that can serve a guest;
//! Debian's cloud kernel, fetched by apt(8) into the cache and only unpacked there, never
//! installed. A Debian kernel in the cache is used until the cache is removed, so that runs of
//! different days have the same kernel and none needs the network.

mod debian;
mod payload;

pub(crate) use payload::decompress;

use crate::modules::ModuleTree;
use crate::package::PackageError;
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use weigh_host::cache::{CacheDirectory, CacheError};
use weigh_host::command::CommandError;
use weigh_host::ledger::Ledger;

/// What a guest needs, built in or as modules: a disk's bus, and the channel to the probe.
const NEEDED: [&str; 2] = ["virtio_pci", "virtio_console"];
/// Directory of the cache for kernels.
const CACHE: &str = "kernels";

/// Why there is no kernel for a guest.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The file is no kernel, or lacks what a guest needs.
    #[error("{} cannot be the kernel of a guest: {reason}", path.display())]
    Unfit {
        /// The kernel.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A module is not there.
    #[error("the kernel has no module {name} ({} was searched); name one that has it by kernel=PATH", directory.display())]
    NoModule {
        /// Name of the module.
        name: String,
        /// Where it was looked for.
        directory: PathBuf,
    },
    /// Nothing on the host serves, and Debian's kernel cannot be had.
    #[error(
        "there is no kernel for a guest: none in /boot can serve with its modules in /lib/modules, and {reason}"
    )]
    Unobtainable {
        /// Why it cannot be fetched.
        reason: String,
    },
    /// A step of fetching it failed.
    #[error("Debian's cloud kernel could not be fetched: {0}")]
    Fetch(#[from] CommandError),
    /// The cache cannot be used.
    #[error("the cache of kernels cannot be used: {0}; set WEIGH_CACHE to a directory that you may write")]
    Cache(String),
    /// The system refused something, or a file is damaged.
    #[error("could not {doing} {}: {source}", path.display())]
    Io {
        /// What was tried, a verb.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

impl KernelError {
    pub(crate) fn io<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Self + 'a {
        move |source| Self::Io { doing, path: path.into(), source }
    }
}

impl From<PackageError> for KernelError {
    fn from(error: PackageError) -> Self {
        match error {
            PackageError::Command(error) => Self::Fetch(error),
            PackageError::Cache(reason) => Self::Cache(reason),
            PackageError::Io { doing, path, source } => Self::Io { doing, path, source },
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
    /// The file to boot: uncompressed where it could be unpacked.
    pub boot: PathBuf,
    /// As `uname -r` will print it.
    pub release: String,
    /// Its modules; absent when all of it is in one file.
    pub modules: Option<ModuleTree>,
    /// Where it is from, in words.
    pub source: String,
}

impl GuestKernel {
    /// Whether it has this, built in or as a module. A kernel without modules is trusted to have
    /// what it needs.
    pub fn has(&self, module: &str) -> bool {
        self.modules.as_ref().is_none_or(|modules| modules.has(module))
    }

    /// The kernel at this path, or the one that is chosen without one. It may be fetched and
    /// unpacked into the cache; `log` gets what the programs say that do it.
    ///
    /// # Errors
    /// None can be had, or the one that is named does not serve.
    pub fn find(
        named: Option<&Path>,
        cache: &CacheDirectory,
        ledger: &Ledger,
        log: &Path,
    ) -> Result<Self, KernelError> {
        if let Some(path) = named {
            return Candidate::named(path, Path::new("/lib/modules"))?.unpacked(cache, ledger);
        }
        match newest(Path::new("/boot"), Path::new("/lib/modules")) {
            Some(candidate) => candidate.unpacked(cache, ledger),
            None => debian::kernel(cache, ledger, log),
        }
    }

    /// As [`GuestKernel::find`], without fetching or making anything: `None` where that would be
    /// needed.
    pub fn at_hand(named: Option<&Path>, cache: &CacheDirectory) -> Option<Self> {
        let candidate = match named {
            Some(path) => Candidate::named(path, Path::new("/lib/modules")).ok(),
            None => newest(Path::new("/boot"), Path::new("/lib/modules")),
        };
        match candidate {
            Some(candidate) => Some(candidate.packed()),
            None if named.is_some() => None,
            None => debian::cached(cache).and_then(|directory| debian::open(&directory).ok()),
        }
    }
}

/// A kernel as it was found.
struct Candidate {
    image: PathBuf,
    release: String,
    modules: Option<ModuleTree>,
    source: String,
}

impl Candidate {
    /// A kernel that the user names. Its modules are looked for where packages put them, beside it
    /// first.
    fn named(path: &Path, installed: &Path) -> Result<Self, KernelError> {
        let path = path.canonicalize().map_err(KernelError::io("find", path))?;
        let unfit = |reason: String| KernelError::Unfit { path: path.clone(), reason };
        let image = fs::read(&path).map_err(KernelError::io("read", &path))?;
        let of_name = || {
            let name = path.file_name()?.to_str()?;
            name.split_once('-').map(|(_, release)| release.to_string())
        };
        let is_elf = image.starts_with(b"\x7fELF");
        let release = payload::release(&image)
            .or_else(|| is_elf.then(|| payload::release_of_elf(&image)).flatten())
            .or_else(of_name)
            .ok_or_else(|| unfit("it does not say its release, and its name is not NAME-RELEASE".into()))?;
        let beside = path.ancestors().skip(1).take(2).flat_map(|parent| {
            [parent.join("lib/modules").join(&release), parent.join("modules").join(&release)]
        });
        let directory = beside.chain([installed.join(&release)]).find(|directory| directory.is_dir());
        let modules = directory.map(|directory| ModuleTree::open(&directory)).transpose()?;
        if let Some(modules) = &modules {
            check(modules, &path)?;
        }
        let source = format!("{}, as named", path.display());
        Ok(Self { image: path, release, modules, source })
    }

    fn packed(self) -> GuestKernel {
        GuestKernel { boot: self.image, release: self.release, modules: self.modules, source: self.source }
    }

    /// With the kernel proper unpacked in the cache, where that can be done.
    fn unpacked(self, cache: &CacheDirectory, ledger: &Ledger) -> Result<GuestKernel, KernelError> {
        let image = fs::read(&self.image).map_err(KernelError::io("read", &self.image))?;
        if image.starts_with(b"\x7fELF") {
            return Ok(self.packed());
        }
        let name = format!("{CACHE}/unpacked-{}", identity(&self.image)?);
        let place = cache.directory(&name, ledger, |staging| unpack(&image, &self.image, staging))?;
        let vmlinux = place.join(VMLINUX);
        let mut kernel = self.packed();
        if vmlinux.exists() {
            kernel.boot = vmlinux;
        }
        Ok(kernel)
    }
}

/// Name of the kernel proper in an entry of the cache.
const VMLINUX: &str = "vmlinux";

/// Puts the kernel proper of an image into a directory; nothing, when the image is to be booted as
/// it is.
fn unpack(image: &[u8], path: &Path, directory: &Path) -> Result<(), KernelError> {
    let Some(kernel) = payload::uncompressed(image, path)? else { return Ok(()) };
    let to = directory.join(VMLINUX);
    fs::write(&to, kernel).map_err(KernelError::io("write", &to))
}

/// Tells one file from another, and from itself after a change, without reading it.
fn identity(path: &Path) -> Result<String, KernelError> {
    let metadata = path.metadata().map_err(KernelError::io("look at", path))?;
    let what = format!(
        "{} {} {} {} {}",
        path.display(),
        metadata.ino(),
        metadata.size(),
        metadata.mtime(),
        metadata.mtime_nsec()
    );
    Ok(Sha256::digest(what).iter().take(10).map(|byte| format!("{byte:02x}")).collect())
}

/// The newest of the host's kernels that can serve: readable, with its modules, and with what a
/// guest needs.
fn newest(boot: &Path, installed: &Path) -> Option<Candidate> {
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
        Some(Candidate { image, release, modules: Some(modules), source })
    })
}

/// What no module can add. A host that does not keep the configuration is trusted.
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

/// A part of a version: numbers compare as numbers, and come after words, so that 6.1 is newer than 6.1-rc1.
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
