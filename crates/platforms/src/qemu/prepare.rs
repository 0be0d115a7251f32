//! What all guests of an environment share: kernel, initial RAM file system, and the disk that
//! their roots are overlays of.

use super::channel::Channel;
use super::share::{self, Share};
use super::{RootKind, Settings, confine, devices, disks, net};
use crate::vm::boot::{self, Contents, INITRAMFS, PreparedCache};
use crate::vm::disk as vm_disk;
use crate::{GuestRequest, Host, Result};
use std::path::PathBuf;
use weigh_images::disk::RootDisk;
use weigh_images::kernel::GuestKernel;

/// Modules that every guest needs for virtio devices.
const MODULES_OF_ALL: [&str; 1] = ["virtio_pci"];

/// What a guest needs to boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Prepared {
    pub(super) kernel: PathBuf,
    pub(super) release: String,
    /// Where the kernel comes from, in words.
    pub(super) source: String,
    pub(super) initramfs: PathBuf,
    /// How the root's binds get into the guest, and the directory that is shared; absent if nothing
    /// is, or can be, shared.
    pub(super) share: Option<(Share, PathBuf)>,
    /// The image as a disk, which no guest writes to.
    pub(super) root: Option<RootDisk>,
    /// Options that make QEMU give up rights.
    pub(super) confinement: Vec<String>,
}

/// Makes whatever does not exist yet.
///
/// # Errors
/// No kernel was found, the image does not fit, or no space is left.
pub(super) fn prepare(host: &Host, request: &GuestRequest) -> Result<Prepared> {
    static KNOWN: PreparedCache<Prepared> = PreparedCache::new();
    let settings = Settings::of(request)?;
    KNOWN.get_or_make(host, request, settings.memory_bytes, |place| {
        if settings.opening.aio == "io_uring" {
            disks::check_io_uring(&settings.binary)?;
        }
        let kernel = boot::kernel(host, settings.kernel)?;
        let root = match settings.root {
            RootKind::Disk => Some(vm_disk::root_disk(host, request, settings.system)?),
            _ => None,
        };
        let share = share(&kernel, request, &settings)?;
        let share = share.map(|share| (share, share::shared(&request.root, host)));
        let initramfs = place.join(INITRAMFS);
        boot::write(&kernel, &contents(request, &settings, share.as_ref()), &initramfs)?;
        if let Some(disk) = &settings.disk {
            disk.prepare(host)?;
        }
        let serves_files = matches!(share, Some((Share::NineP, _)));
        let confinement = confine::options(&settings.binary, host.is_root, serves_files)?;
        let GuestKernel { boot: kernel, release, source, .. } = kernel;
        Ok(Prepared { kernel, release, source, initramfs, share, root, confinement })
    })
}

/// How the root's binds get into the guest.
///
/// # Errors
/// A way that is asked for by name is not available.
fn share(kernel: &GuestKernel, request: &GuestRequest, settings: &Settings<'_>) -> Result<Option<Share>> {
    if request.root.binds.is_empty() {
        return Ok(None);
    }
    match settings.root {
        RootKind::Auto => Ok(Share::of(kernel, &Share::WAYS)),
        RootKind::Initramfs | RootKind::Disk => Ok(None),
        RootKind::Shared(share) => share.check(kernel).map(|()| Some(share)),
    }
}

/// What goes into the guest's memory at boot.
fn contents<'a>(
    request: &'a GuestRequest,
    settings: &Settings<'_>,
    share: Option<&(Share, PathBuf)>,
) -> Contents<'a> {
    let environment = &request.environment;
    let mut modules = MODULES_OF_ALL.to_vec();
    modules.extend(Channel::modules(environment));
    modules.extend(net::modules(environment));
    modules.extend(devices::modules(environment));
    let disk = (settings.root == RootKind::Disk).then_some(settings.system);
    Contents::new(&request.root, share, disk, settings.disk.as_ref(), modules, settings.memory_bytes)
}
