//! What all guests of an environment share: kernel, initial RAM file system, and the image's disk.

use super::parts::{RootPlace, data_disk};
use super::{Channel, Monitor, NET, Settings, Vmm};
use crate::helpers::version_line;
use crate::vm::boot::{self, Contents, INITRAMFS, PreparedCache};
use crate::vm::disk;
use crate::vm::tap;
use crate::{GuestRequest, Host, PlatformError, Result, setting};
use std::path::PathBuf;
use weigh_images::kernel::GuestKernel;

/// The module of the guest's half of vsock.
const VSOCK_MODULE: &str = "vmw_vsock_virtio_transport";

/// What a guest needs to boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Prepared {
    pub(crate) kernel: PathBuf,
    /// Where the kernel comes from, in words.
    pub(crate) source: String,
    pub(crate) initramfs: PathBuf,
    pub(crate) channel: Channel,
}

/// Makes whatever does not exist yet.
///
/// # Errors
/// No kernel was found, it supports no channel, the image does not fit, or no space is left.
pub(super) fn prepare(
    platform: &Vmm,
    host: &Host,
    request: &GuestRequest,
    settings: &Settings,
) -> Result<Prepared> {
    static KNOWN: PreparedCache<Prepared> = PreparedCache::new();
    KNOWN.get_or_make(host, request, settings.memory_bytes, |place| {
        make(platform, host, request, settings, place.join(INITRAMFS))
    })
}

fn make(
    platform: &Vmm,
    host: &Host,
    request: &GuestRequest,
    settings: &Settings,
    initramfs: PathBuf,
) -> Result<Prepared> {
    let monitor = platform.monitor();
    let kernel = boot::kernel(host, settings.kernel.as_deref())?;
    // A program that says nothing of its version has no known fault.
    let version = version_line(&settings.binary).unwrap_or_default();
    let channel = channel(monitor, &kernel, settings.channel, monitor.vsock_fault(&version))?;
    let mut modules = monitor.modules().to_vec();
    if channel == Channel::Vsock {
        modules.push(VSOCK_MODULE);
    }
    if setting(platform, &request.environment, NET.name) != "none" {
        modules.extend(tap::MODULES);
    }
    let disk = match RootPlace::of(platform, request) {
        RootPlace::Memory => None,
        RootPlace::Disk { system } => {
            disk::root_disk(host, request, system)?;
            Some(system)
        }
    };
    let data = data_disk(platform, &request.environment);
    let contents = Contents::new(&request.root, None, disk, data.as_ref(), modules, settings.memory_bytes);
    boot::write(&kernel, &contents, &initramfs)?;
    if let Some(data) = data {
        data.prepare(host)?;
    }
    Ok(Prepared { kernel: kernel.boot, source: kernel.source, initramfs, channel })
}

/// The channel to use with this kernel; `fault` is why it cannot be vsock.
fn channel(
    monitor: &dyn Monitor,
    kernel: &GuestKernel,
    asked: Option<Channel>,
    fault: Option<&str>,
) -> Result<Channel> {
    let has_vsock = kernel.has(VSOCK_MODULE);
    match asked {
        Some(Channel::Vsock) | None if has_vsock && fault.is_none() => Ok(Channel::Vsock),
        Some(Channel::Serial) | None if monitor.talks_over_console() => Ok(Channel::Serial),
        _ => Err(match fault.filter(|_| has_vsock) {
            Some(fault) => PlatformError::unavailable(
                format!("cannot talk to guests: this version {fault}"),
                "name another version by binary=PATH, or leave `channel` out",
            ),
            None => PlatformError::unavailable(
                format!("cannot talk to guests with the kernel {}: it has no {VSOCK_MODULE}", kernel.release),
                "name a kernel with virtio's vsock by kernel=PATH",
            ),
        }),
    }
}
