//! A machine's kernel and its initial RAM file system: the root's skeleton with the probe as init,
//! kernel modules in the order of their dependencies, and the tables that tell the probe what to
//! load and to mount ([`weigh_protocol::boot`]).

use super::disk::{self as vm_disk, DataDiskSpec};
use crate::qemu::share::Share;
use crate::{GuestRequest, Host, PlatformError, Result, remedy};
use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use weigh_host::cache::CacheDirectory;
use weigh_images::Root;
use weigh_images::initramfs::Initramfs;
use weigh_images::kernel::{GuestKernel, KernelError};
use weigh_images::package::Fetching;
use weigh_protocol::boot::{BootModule, BootMount, MODULES, MOUNTS};

/// Name of the initial RAM file system in the directory for prepared files.
pub(crate) const INITRAMFS: &str = "initramfs.cpio";
/// Directory of the modules in the guest.
const MODULE_DIRECTORY: &str = "/.weighbridge/modules.d";
/// An image that is packed into memory may take one part in this many: the archive and its unpacked
/// files are in memory at the same time.
const PACKED_SHARE: u64 = 4;

/// What goes into an initial RAM file system.
pub(crate) struct Contents<'a> {
    /// Its skeleton is always in it.
    pub(crate) root: &'a Root,
    /// Whether the image's files are included as well.
    pub(crate) packed: bool,
    /// Kernel modules by name; their dependencies are added, built-in ones are skipped.
    pub(crate) modules: Vec<&'a str>,
    /// What the probe mounts before its hello, in order.
    pub(crate) mounts: Vec<BootMount>,
    /// Memory of the guest, bytes.
    pub(crate) memory_bytes: u64,
}

impl<'a> Contents<'a> {
    /// The contents for a guest's root, which is shared files, or a disk (`Some`, with whether a
    /// system boots from it), or memory; with the disk for workloads, if any. `modules` are those
    /// that the guest needs in any case.
    pub(crate) fn new(
        root: &'a Root,
        share: Option<&(Share, PathBuf)>,
        disk: Option<bool>,
        data: Option<&DataDiskSpec>,
        mut modules: Vec<&'a str>,
        memory_bytes: u64,
    ) -> Self {
        let mounts = match (share, disk) {
            (Some((share, shared)), _) => share.mounts(root, shared),
            (None, Some(system)) => vm_disk::mounts(root, system),
            (None, None) => root.scratch.iter().map(|path| scratch(path)).collect(),
        };
        let mut mounts = match data {
            Some(data) => data.mounted(mounts),
            None => mounts,
        };
        // The init of a system mounts its own, with options of its own.
        if disk != Some(true) {
            mounts.insert(0, terminals());
        }
        modules.extend(share.iter().flat_map(|(share, _)| share.modules()));
        modules.extend(data.iter().flat_map(|data| data.modules()));
        if disk.is_some() {
            modules.extend(vm_disk::MODULES);
        }
        let packed = share.is_none() && disk.is_none() && !root.host && !root.binds.is_empty();
        Self { root, packed, modules, mounts, memory_bytes }
    }
}

/// The kernel that a machine boots: the named one, else the newest suitable one of the host, else
/// Debian's cloud kernel, which is fetched.
///
/// # Errors
/// No kernel is available.
pub(crate) fn kernel(host: &Host, named: Option<&Path>) -> Result<GuestKernel> {
    let cache = CacheDirectory::open().ok_or_else(|| {
        PlatformError::unavailable(
            "no cache directory for guest kernels",
            "set WEIGH_CACHE to a directory that nobody else may write: `export WEIGH_CACHE=/var/cache/weighbridge`",
        )
    })?;
    let log = host.logs.join("kernel.log");
    let fetching = Fetching { log: &log, until: host.fetch_until };
    GuestKernel::find(named, &cache, &host.ledger, fetching).map_err(|error| match error {
        KernelError::Late => PlatformError::unavailable(error.to_string(), remedy::FETCH),
        KernelError::Unobtainable { .. } | KernelError::Fetch(_) => PlatformError::unavailable(
            error.to_string(),
            "check the network and run `apt-get update`, or name a kernel with kernel=PATH",
        ),
        other => PlatformError::io("get a kernel for the guest")(std::io::Error::other(other)),
    })
}

/// Where kernels and images' disks are kept, in words.
pub(crate) fn cache_place() -> String {
    let cache = CacheDirectory::open().map(|cache| cache.path().display().to_string());
    cache.unwrap_or_else(|| "the cache directory".into())
}

/// The change that [`kernel`] makes on the host, in a sentence that `more` ends.
pub(crate) fn kernel_kept(more: &str) -> String {
    let cache = cache_place();
    format!(
        "keep the guest's kernel in {cache}, fetched by apt-get where the host has none that will do{more}"
    )
}

/// What this process has prepared for environments, by the directory that holds it. Another process
/// that continues the run prepares it again.
pub(crate) struct PreparedCache<T>(Mutex<BTreeMap<PathBuf, T>>);

impl<T: Clone> PreparedCache<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Returns what is prepared for guests of a platform. Calls `make` if nothing is prepared yet,
    /// with a directory in which it writes the initial RAM file system to [`INITRAMFS`].
    pub(crate) fn get_or_make(
        &self,
        host: &Host,
        request: &GuestRequest,
        memory_bytes: u64,
        make: impl FnOnce(&Path) -> Result<T>,
    ) -> Result<T> {
        let platform = &request.environment.platform;
        let place = host.work.join(format!("{platform}-{:016x}", key(request, memory_bytes)));
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(prepared) = known.get(&place).filter(|_| place.join(INITRAMFS).exists()) {
            return Ok(prepared.clone());
        }
        fs::create_dir_all(&place).map_err(PlatformError::at("make", &place))?;
        let prepared = make(&place)?;
        known.insert(place, prepared.clone());
        Ok(prepared)
    }
}

/// Distinguishes what must be prepared separately.
fn key(request: &GuestRequest, memory_bytes: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (request.environment.to_string(), &request.root.skeleton, &request.root.digest).hash(&mut hasher);
    memory_bytes.hash(&mut hasher);
    hasher.finish()
}

/// Writes the initial RAM file system and checks that it fits.
///
/// # Errors
/// The image, or everything together, does not fit into the guest's memory; a module is missing; or
/// the file cannot be written.
pub(crate) fn write(kernel: &GuestKernel, contents: &Contents<'_>, path: &Path) -> Result<()> {
    archive(kernel, contents)?.write_file(path)?;
    check_memory(&kernel.boot, path, contents.memory_bytes)
}

fn archive(kernel: &GuestKernel, contents: &Contents<'_>) -> Result<Initramfs> {
    let mut archive = Initramfs::new();
    archive.skeleton(contents.root)?;
    if contents.packed {
        check_size(contents.root, contents.memory_bytes)?;
        archive.image(contents.root)?;
    }
    let modules = match &kernel.modules {
        Some(tree) => tree
            .resolve(&contents.modules)
            .map_err(|error| PlatformError::io("gather the guest's modules")(std::io::Error::other(error)))?,
        None => Vec::new(),
    };
    let mut table = String::new();
    for module in modules {
        let path = format!("{MODULE_DIRECTORY}/{}.ko", module.name);
        table += &BootModule { path: path.clone(), parameters: String::new() }.to_string();
        archive.bytes(&path, module.content, 0o644)?;
    }
    archive.bytes(MODULES, table, 0o644)?;
    archive.bytes(MOUNTS, contents.mounts.iter().map(ToString::to_string).collect::<String>(), 0o644)?;
    Ok(archive)
}

/// The file system of pseudo-terminals, which containers have, too.
pub(crate) fn terminals() -> BootMount {
    BootMount::new("devpts", "devpts", "/dev/pts", "nosuid,noexec,mode=620,ptmxmode=666")
}

/// A private scratch directory of a guest.
pub(crate) fn scratch(path: &Path) -> BootMount {
    let mode = if path.ends_with("tmp") { "1777" } else { "0755" };
    BootMount::new("tmpfs", "tmpfs", &path.to_string_lossy(), &format!("nosuid,nodev,mode={mode}"))
}

/// Checks that a kernel fits into memory; one that does not panics, or prints nothing at all.
/// Kernel and initial RAM file system are briefly in memory twice: as loaded, and unpacked.
fn check_memory(kernel: &Path, initramfs: &Path, memory_bytes: u64) -> Result<()> {
    let size = |path: &Path| path.metadata().map_or(0, |metadata| metadata.len());
    let needed = 2 * (size(kernel) + size(initramfs));
    if needed <= memory_bytes {
        return Ok(());
    }
    let mib = |bytes: u64| bytes >> 20;
    let reason = format!(
        "the guest has too little memory: its kernel and root need {} MiB, and {} MiB are given",
        mib(needed),
        mib(memory_bytes)
    );
    Err(PlatformError::unavailable(reason, format!("give --memory {}MiB or more", mib(needed) + 64)))
}

/// Checks that a packed image leaves room for what is measured.
fn check_size(root: &Root, memory_bytes: u64) -> Result<()> {
    let size = root.binds.iter().map(|bind| size_of(&bind.source)).sum::<u64>();
    if size <= memory_bytes / PACKED_SHARE {
        return Ok(());
    }
    let mib = |bytes: u64| bytes >> 20;
    let reason = format!(
        "the guest cannot have an image of {} MiB: its kernel knows neither 9p nor virtiofs with a daemon here, and packed into \
         memory the image may take at most a quarter of the guest's {} MiB",
        mib(size),
        mib(memory_bytes)
    );
    let remedy = "install virtiofsd and run weigh as root, name a kernel with 9p by kernel=PATH, give --memory more, or use --image probe";
    Err(PlatformError::unavailable(reason, remedy))
}

/// Total size of the files at and below a path, bytes.
fn size_of(path: &Path) -> u64 {
    let Ok(metadata) = path.symlink_metadata() else { return 0 };
    if !metadata.is_dir() {
        return metadata.len();
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| size_of(&entry.path())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_does_not_fit_is_reported() {
        let base = tempfile::tempdir().unwrap();
        let (kernel, root) = (base.path().join("k"), base.path().join("r"));
        fs::write(&kernel, vec![0; 2 << 20]).unwrap();
        fs::write(&root, vec![0; 1 << 20]).unwrap();
        check_memory(&kernel, &root, 6 << 20).unwrap();
        let error = check_memory(&kernel, &root, 5 << 20).unwrap_err().to_string();
        assert!(
            error.contains("need 6 MiB, and 5 MiB are given") && error.contains("--memory 70MiB"),
            "{error}"
        );
    }

    #[test]
    fn machines_have_terminals_unless_a_system_makes_its_own() {
        let root = Root { scratch: vec!["/tmp".into()], ..Root::default() };
        let targets = |disk| -> Vec<String> {
            let contents = Contents::new(&root, None, disk, None, Vec::new(), 0);
            contents.mounts.into_iter().map(|mount| mount.target).collect()
        };
        assert_eq!(targets(None), ["/dev/pts", "/tmp"]);
        assert_eq!(targets(Some(false)), ["/dev/pts", "/tmp"]);
        assert_eq!(targets(Some(true)), ["/tmp", "/var/tmp"]);
    }

    #[test]
    fn an_image_that_does_not_fit_is_reported() {
        let base = tempfile::tempdir().unwrap();
        fs::create_dir(base.path().join("a")).unwrap();
        fs::write(base.path().join("a/file"), vec![1; 3 << 20]).unwrap();
        let bind = weigh_images::Bind { source: base.path().join("a"), target: "/a".into(), read_only: true };
        let root = Root { skeleton: base.path().into(), binds: vec![bind], ..Root::default() };
        check_size(&root, 12 << 20).unwrap();
        let error = check_size(&root, 11 << 20).unwrap_err().to_string();
        assert!(error.contains("3 MiB") && error.contains("--image probe"), "{error}");
    }
}
