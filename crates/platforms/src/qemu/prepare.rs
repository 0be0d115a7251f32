//! What all guests of an environment share: kernel, initial RAM file system, disk.

use super::share::{self, Share};
use super::{Settings, disk};
use crate::{GuestRequest, Host, PlatformError};
use serde_json::{Value, json};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use weigh_host::cache::CacheDirectory;
use weigh_images::Root;
use weigh_images::initramfs::Initramfs;
use weigh_images::kernel::{GuestKernel, KernelError};
use weigh_protocol::boot::{BootModule, BootMount, MODULES, MOUNTS};

/// Without these there is no channel.
const MODULES_OF_ALL: [&str; 2] = ["virtio_pci", "virtio_console"];
/// Directory of the modules in the guest.
const MODULE_DIRECTORY: &str = "/.weighbridge/modules.d";
/// An image that is packed into memory may take so much of it: the archive and what is unpacked of it are there at the same time.
const PACKED_SHARE: u64 = 4;
/// Name of the file that says that everything else is there.
const DONE: &str = "prepared.json";

/// Ready to boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Prepared {
    pub(super) kernel: PathBuf,
    pub(super) release: String,
    /// Where the kernel is from, in words.
    pub(super) source: String,
    pub(super) initramfs: PathBuf,
    /// How the root's binds get into the guest, and the directory that is shared; absent when nothing is to be shared or can be.
    pub(super) share: Option<(Share, PathBuf)>,
    pub(super) disk: Option<PathBuf>,
}

/// The kernel that an environment boots.
///
/// # Errors
/// None can be had.
pub(super) fn kernel(host: &Host, settings: &Settings<'_>) -> Result<GuestKernel, PlatformError> {
    let cache = CacheDirectory::open().ok_or_else(|| PlatformError::Missing {
        what: "a place for guest kernels".into(),
        remedy: Some("set WEIGH_CACHE to a directory".into()),
    })?;
    let log = host.logs.join("kernel.log");
    GuestKernel::find(settings.kernel, &cache, &host.ledger, &log).map_err(|error| match error {
        KernelError::Unobtainable { .. } | KernelError::Fetch(_) => {
            PlatformError::Missing { what: format!("a kernel for guests ({error})"), remedy: None }
        }
        other => PlatformError::io("get a kernel for the guest")(std::io::Error::other(other)),
    })
}

/// Makes what is not there yet.
///
/// # Errors
/// No kernel can be had, the image does not fit, no space.
pub(super) fn prepare(host: &Host, request: &GuestRequest) -> Result<Prepared, PlatformError> {
    let settings = Settings::of(request)?;
    let place = host.work.join(format!("qemu-{:016x}", key(request, &settings)));
    if let Some(prepared) = read(&place) {
        return Ok(prepared);
    }
    fs::create_dir_all(&place).map_err(PlatformError::io(format!("make {}", place.display())))?;
    let kernel = kernel(host, &settings)?;
    let share = if request.root.binds.is_empty() { None } else { Share::of(&kernel) };
    let share = share.map(|share| (share, share::common(&request.root)));
    let initramfs = place.join("initramfs.cpio");
    archive(&kernel, request, &settings, share.as_ref())?.write_file(&initramfs)?;
    check_memory(&kernel.boot, &initramfs, settings.memory_bytes)?;
    let disk = match settings.disk_bytes {
        None => None,
        Some(bytes) => {
            let path = place.join("disk.raw");
            disk::make(&path, bytes)?;
            Some(path)
        }
    };
    let prepared = Prepared {
        kernel: kernel.boot,
        release: kernel.release,
        source: kernel.source,
        initramfs,
        share,
        disk,
    };
    write(&place, &prepared).map_err(PlatformError::io(format!("write to {}", place.display())))?;
    Ok(prepared)
}

/// Tells apart what is prepared differently.
fn key(request: &GuestRequest, settings: &Settings<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (request.environment.to_string(), &request.root.skeleton, &request.root.digest).hash(&mut hasher);
    settings.memory_bytes.hash(&mut hasher);
    hasher.finish()
}

/// The initial RAM file system: the skeleton, the modules, the tables, and the image where it cannot be shared.
fn archive(
    kernel: &GuestKernel,
    request: &GuestRequest,
    settings: &Settings<'_>,
    share: Option<&(Share, PathBuf)>,
) -> Result<Initramfs, PlatformError> {
    let root = &request.root;
    let mut archive = Initramfs::new();
    archive.skeleton(root)?;
    let mounts: Vec<BootMount> = match share {
        Some((share, shared)) => share.mounts(root, shared),
        None => root.scratch.iter().map(|path| share::scratch(path)).collect(),
    };
    if share.is_none() && !root.host && !root.binds.is_empty() {
        check_size(root, settings.memory_bytes)?;
        archive.image(root)?;
    }
    let mut names = MODULES_OF_ALL.to_vec();
    names.extend(share.iter().flat_map(|(share, _)| share.modules()));
    if settings.disk_bytes.is_some() {
        names.push("virtio_blk");
    }
    let modules = match &kernel.modules {
        Some(tree) => tree
            .resolve(&names)
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
    archive.bytes(MOUNTS, mounts.iter().map(ToString::to_string).collect::<String>(), 0o644)?;
    Ok(archive)
}

/// A kernel that does not fit panics, or says nothing at all. Kernel and initial RAM file system are in memory twice for a moment:
/// packed or as they were loaded, and where they are used.
fn check_memory(kernel: &Path, initramfs: &Path, memory_bytes: u64) -> Result<(), PlatformError> {
    let size = |path: &Path| path.metadata().map_or(0, |metadata| metadata.len());
    let needed = 2 * (size(kernel) + size(initramfs));
    if needed <= memory_bytes {
        return Ok(());
    }
    let mib = |bytes: u64| bytes >> 20;
    let what = format!(
        "memory for the guest's kernel and root: {} MiB of the {} MiB given",
        mib(needed),
        mib(memory_bytes)
    );
    Err(PlatformError::Missing {
        what,
        remedy: Some(format!("give --memory {}MiB or more", mib(needed) + 64)),
    })
}

/// An image that is packed has to leave room for what is measured.
fn check_size(root: &Root, memory_bytes: u64) -> Result<(), PlatformError> {
    let size = root.binds.iter().map(|bind| size_of(&bind.source)).sum::<u64>();
    if size <= memory_bytes / PACKED_SHARE {
        return Ok(());
    }
    let mib = |bytes: u64| bytes >> 20;
    let what = format!(
        "a way to show the guest an image of {} MiB: its kernel knows neither 9p nor virtiofs with a daemon here, and packed into \
         memory it may take a quarter of the guest's {} MiB",
        mib(size),
        mib(memory_bytes)
    );
    let remedy = "install virtiofsd and run weigh as root, name a kernel with 9p by kernel=PATH, give --memory more, or use --image probe";
    Err(PlatformError::Missing { what, remedy: Some(remedy.into()) })
}

/// Bytes of the files at and below a path.
fn size_of(path: &Path) -> u64 {
    let Ok(metadata) = path.symlink_metadata() else { return 0 };
    if !metadata.is_dir() {
        return metadata.len();
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| size_of(&entry.path())).sum()
}

fn write(place: &Path, prepared: &Prepared) -> std::io::Result<()> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let value = json!({
        "kernel": text(&prepared.kernel),
        "release": prepared.release,
        "source": prepared.source,
        "initramfs": text(&prepared.initramfs),
        "share": prepared.share.as_ref().map(|(share, path)| json!([share.word(), text(path)])),
        "disk": prepared.disk.as_deref().map(text),
    });
    let staging = place.join("prepared.new");
    fs::write(&staging, value.to_string())?;
    fs::rename(staging, place.join(DONE))
}

fn read(place: &Path) -> Option<Prepared> {
    let value: Value = serde_json::from_slice(&fs::read(place.join(DONE)).ok()?).ok()?;
    let text = |value: &Value| value.as_str().map(String::from);
    let share = match &value["share"] {
        Value::Null => None,
        pair => Some((Share::from_word(pair[0].as_str()?)?, pair[1].as_str()?.into())),
    };
    Some(Prepared {
        kernel: text(&value["kernel"])?.into(),
        release: text(&value["release"])?,
        source: text(&value["source"])?,
        initramfs: text(&value["initramfs"])?.into(),
        share,
        disk: text(&value["disk"]).map(Into::into),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_prepared_reads_back() {
        let base = tempfile::tempdir().unwrap();
        assert_eq!(read(base.path()), None);
        let full = Prepared {
            kernel: "/k".into(),
            release: "6.1".into(),
            source: "Debian's".into(),
            initramfs: "/i".into(),
            share: Some((Share::Virtiofs, "/".into())),
            disk: Some("/d".into()),
        };
        for prepared in [Prepared { share: None, disk: None, ..full.clone() }, full] {
            write(base.path(), &prepared).unwrap();
            assert_eq!(read(base.path()), Some(prepared));
        }
    }

    #[test]
    fn a_kernel_that_does_not_fit_is_said() {
        let base = tempfile::tempdir().unwrap();
        let (kernel, root) = (base.path().join("k"), base.path().join("r"));
        fs::write(&kernel, vec![0; 2 << 20]).unwrap();
        fs::write(&root, vec![0; 1 << 20]).unwrap();
        check_memory(&kernel, &root, 6 << 20).unwrap();
        let error = check_memory(&kernel, &root, 5 << 20).unwrap_err().to_string();
        assert!(error.contains("6 MiB of the 5 MiB") && error.contains("--memory 70MiB"), "{error}");
    }

    #[test]
    fn an_image_that_does_not_fit_is_said() {
        let base = tempfile::tempdir().unwrap();
        fs::create_dir(base.path().join("a")).unwrap();
        fs::write(base.path().join("a/file"), vec![1; 3 << 20]).unwrap();
        let bind = weigh_images::Bind { source: base.path().join("a"), target: "/a".into(), read_only: true };
        let root = Root {
            skeleton: base.path().into(),
            binds: vec![bind],
            scratch: Vec::new(),
            digest: String::new(),
            host: false,
            notes: Vec::new(),
            tree: None,
            hold: None,
        };
        check_size(&root, 12 << 20).unwrap();
        let error = check_size(&root, 11 << 20).unwrap_err().to_string();
        assert!(error.contains("3 MiB") && error.contains("--image probe"), "{error}");
    }
}
