//! What all guests of an environment share: kernel, initial RAM file system, the disk of an image.

use super::{Libvirt, Settings, storage};
use crate::qemu::share::{self, Share};
use crate::vm::boot::{self, Contents, INITRAMFS, PreparedCache};
use crate::vm::disk::{self, DataDiskSpec};
use crate::vm::tap;
use crate::{GuestRequest, Host, Result, setting};
use std::path::PathBuf;
use weigh_images::disk::RootDisk;
use weigh_images::kernel::GuestKernel;

/// Modules that every guest needs for the channel.
const MODULES_OF_ALL: [&str; 2] = ["virtio_pci", "virtio_console"];

/// What a guest needs to boot.
#[derive(Debug, Clone)]
pub(super) struct Prepared {
    pub(super) kernel: PathBuf,
    /// Where the kernel comes from, in words.
    pub(super) source: String,
    pub(super) initramfs: PathBuf,
    /// How the root's binds get into the guest, and the directory that is shared; absent if nothing
    /// is, or can be, shared.
    pub(super) share: Option<(Share, PathBuf)>,
    /// For systems: the disk that the guests' roots are overlays of.
    pub(super) root: Option<RootDisk>,
}

/// Makes whatever does not exist yet.
///
/// # Errors
/// No kernel was found, the image does not fit, or no space is left.
pub(super) fn prepare(host: &Host, request: &GuestRequest) -> Result<Prepared> {
    static KNOWN: PreparedCache<Prepared> = PreparedCache::new();
    let settings = Settings::of(request)?;
    KNOWN.get_or_make(host, request, settings.memory_bytes, |place| {
        let kernel = boot::kernel(host, settings.kernel)?;
        let is_system = storage::is_system(&request.environment);
        let is_shared = !request.root.binds.is_empty() && !is_system;
        let share = if is_shared { Share::of(&kernel, ways()) } else { None };
        let share = share.map(|share| (share, share::shared(&request.root, host)));
        let initramfs = place.join(INITRAMFS);
        boot::write(&kernel, &contents(request, &settings, share.as_ref()), &initramfs)?;
        if let Some(wanted) = DataDiskSpec::of(&Libvirt, &request.environment) {
            wanted.prepare(host)?;
        }
        let root = if is_system { Some(disk::root_disk(host, request, true)?) } else { None };
        let GuestKernel { boot: kernel, source, .. } = kernel;
        Ok(Prepared { kernel, source, initramfs, share, root })
    })
}

/// The ways to share files. libvirt starts QEMU, which sees more of the host than the guest may, so
/// QEMU serves 9p only with the rights of an ordinary user.
pub(super) fn ways() -> &'static [Share] {
    if weigh_host::facts::is_root() { &[Share::Virtiofs] } else { &[Share::NineP] }
}

/// What goes into the guest's memory at boot.
fn contents<'a>(
    request: &'a GuestRequest,
    settings: &Settings<'_>,
    share: Option<&(Share, PathBuf)>,
) -> Contents<'a> {
    let environment = &request.environment;
    let mut modules = MODULES_OF_ALL.to_vec();
    if setting(&Libvirt, environment, "net") != "none" {
        modules.extend(tap::MODULES);
    }
    let disk = storage::is_system(environment).then_some(true);
    let data = DataDiskSpec::of(&Libvirt, environment);
    Contents::new(&request.root, share, disk, data.as_ref(), modules, settings.memory_bytes)
}
