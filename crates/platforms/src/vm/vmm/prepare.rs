//! What all guests of an environment share: kernel, initial RAM file system, the image's disk.

use super::parts::{self, RootPlace};
use super::{Channel, Monitor, Settings, Vmm};
use crate::vm::boot::{self, Contents};
use crate::vm::disk::{self, Wanted};
use crate::{GuestRequest, Host, PlatformError};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use weigh_images::kernel::GuestKernel;

/// The guest's half of vsock.
const VSOCK_MODULE: &str = "vmw_vsock_virtio_transport";
/// Name of the file that says that everything else is there.
const DONE: &str = "prepared.json";

/// Ready to boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Prepared {
    pub(crate) kernel: PathBuf,
    /// Where the kernel is from, in words.
    pub(crate) source: String,
    pub(crate) initramfs: PathBuf,
    pub(crate) channel: Channel,
}

/// Makes what is not there yet.
///
/// # Errors
/// No kernel can be had, it cannot be talked with, the image does not fit, no space.
pub(super) fn prepare(
    platform: &Vmm,
    host: &Host,
    request: &GuestRequest,
    settings: &Settings,
) -> Result<Prepared, PlatformError> {
    let monitor = platform.monitor();
    let place =
        host.work.join(format!("{}-{:016x}", monitor.platform(), boot::key(request, settings.memory_bytes)));
    if let Some(prepared) = read(&place) {
        return Ok(prepared);
    }
    fs::create_dir_all(&place).map_err(PlatformError::io(format!("make {}", place.display())))?;
    let kernel = boot::kernel(host, settings.kernel.as_deref())?;
    let channel = channel(monitor, &kernel, settings.channel)?;
    let initramfs = place.join("initramfs.cpio");
    let root = &*request.root;
    let mut modules = monitor.modules().to_vec();
    if channel == Channel::Vsock {
        modules.push(VSOCK_MODULE);
    }
    modules.extend(parts::modules(platform, request));
    let (packed, mounts) = match RootPlace::of(platform, request) {
        RootPlace::Memory => {
            let scratch = root.scratch.iter().map(|path| boot::scratch(path));
            (!root.host && !root.binds.is_empty(), scratch.collect())
        }
        RootPlace::Disk { system } => {
            disk::root_disk(host, request, system)?;
            (false, disk::mounts(root, system))
        }
    };
    let contents = Contents { root, packed, modules, mounts, memory_bytes: settings.memory_bytes };
    boot::write(&kernel, &contents, &initramfs)?;
    if let Some(wanted) = Wanted::of(platform, &request.environment) {
        wanted.prepare(host)?;
    }
    let prepared = Prepared { kernel: kernel.boot, source: kernel.source, initramfs, channel };
    write(&place, &prepared).map_err(PlatformError::io(format!("write to {}", place.display())))?;
    Ok(prepared)
}

/// What this kernel can be talked with over.
fn channel(
    monitor: &dyn Monitor,
    kernel: &GuestKernel,
    asked: Option<Channel>,
) -> Result<Channel, PlatformError> {
    let has_vsock = kernel.has(VSOCK_MODULE);
    match asked {
        Some(Channel::Vsock) | None if has_vsock => Ok(Channel::Vsock),
        Some(Channel::Serial) | None if monitor.talks_over_console() => Ok(Channel::Serial),
        _ => Err(PlatformError::Missing {
            what: format!("a way to talk with guests of kernel {}: it has no {VSOCK_MODULE}", kernel.release),
            remedy: Some("name a kernel with virtio's vsock by kernel=PATH".into()),
        }),
    }
}

fn write(place: &Path, prepared: &Prepared) -> std::io::Result<()> {
    let value = json!({
        "kernel": prepared.kernel.to_string_lossy(),
        "source": prepared.source,
        "initramfs": prepared.initramfs.to_string_lossy(),
        "channel": prepared.channel.key(),
    });
    let staging = place.join("prepared.new");
    fs::write(&staging, value.to_string())?;
    fs::rename(staging, place.join(DONE))
}

fn read(place: &Path) -> Option<Prepared> {
    let value: Value = serde_json::from_slice(&fs::read(place.join(DONE)).ok()?).ok()?;
    let text = |name: &str| value[name].as_str().map(String::from);
    Some(Prepared {
        kernel: text("kernel")?.into(),
        source: text("source")?,
        initramfs: text("initramfs")?.into(),
        channel: Channel::from_key(&text("channel")?)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_prepared_reads_back() {
        let base = tempfile::tempdir().unwrap();
        assert_eq!(read(base.path()), None);
        for channel in [Channel::Vsock, Channel::Serial] {
            let prepared =
                Prepared { kernel: "/k".into(), source: "Debian's".into(), initramfs: "/i".into(), channel };
            write(base.path(), &prepared).unwrap();
            assert_eq!(read(base.path()), Some(prepared));
        }
    }
}
