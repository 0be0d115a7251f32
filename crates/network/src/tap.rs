//! Tap devices: interfaces whose other end is a program, such as a VMM.
//!
//! They are persistent, so that a program may open one by name at any time (`tuntap.rst` of the
//! kernel). Packets may carry the header of virtio network cards (`IFF_VNET_HDR`), so that
//! checksums and segmentation are offloaded as between two interfaces of one kernel.

use crate::changes::RecordedChanges;
use crate::run::absent;
use crate::tool::ip;
use crate::{NetworkError, Result, namespace};
use rustix::ioctl::{IntegerSetter, Setter, ioctl, opcode};
use serde_json::json;
use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::path::Path;

/// The device that opens the queue of a tap.
const DEVICE: &str = "/dev/net/tun";
/// `IFF_TAP`, `IFF_NO_PI` and `IFF_VNET_HDR` of `linux/if_tun.h`.
const FRAMES: u16 = 0x0002 | 0x1000 | 0x4000;
/// Length of a name with its terminating zero, bytes (netdevice(7)).
const NAME_BYTES: usize = 16;

/// `struct ifreq` with flags.
#[repr(C)]
struct Request {
    name: [u8; NAME_BYTES],
    flags: u16,
    _rest: [u8; 22],
}

/// Makes a tap in the namespace of this thread. The commands `further` run before it is up.
pub(crate) fn make(changes: &mut RecordedChanges, name: &str, alias: &str, further: &[String]) -> Result<()> {
    absent(name)?;
    changes.record("link", name, json!({}))?;
    add(name, alias, further)
}

/// As [`make`], in a namespace with which the tap is removed.
pub(crate) fn make_within(namespace: &Path, name: &str, alias: &str, further: &[String]) -> Result<()> {
    namespace::within(Some(namespace), || add(name, alias, further))?
}

fn add(name: &str, alias: &str, further: &[String]) -> Result<()> {
    let first =
        [format!("tuntap add dev {name} mode tap vnet_hdr"), format!("link set dev {name} alias {alias}")];
    let last = [format!("link set dev {name} up")];
    // Without /dev/net/tun the message of ip would not say which file is missing.
    if let Err(source) = std::fs::metadata(DEVICE) {
        return Err(NetworkError::NoTaps(source));
    }
    ip(&[&first, further, &last].concat())
}

/// Opens the queue of a tap in the namespace of this thread. While it is open the tap has a
/// carrier.
pub(crate) fn open(name: &str) -> Result<OwnedFd> {
    let device = OpenOptions::new().read(true).write(true).open(DEVICE).map_err(NetworkError::NoTaps)?;
    let mut request = Request { name: [0; NAME_BYTES], flags: FRAMES, _rest: [0; 22] };
    for (to, from) in request.name[..NAME_BYTES - 1].iter_mut().zip(name.bytes()) {
        *to = from;
    }
    // SAFETY: TUNSETIFF takes a `struct ifreq`, which the kernel reads and writes as far as this
    // one goes; its number has the size of an int (tuntap.rst).
    let set = unsafe { Setter::<{ opcode::write::<i32>(b'T', 202) }, Request>::new(request) };
    // SAFETY: as above.
    unsafe { ioctl(&device, set) }.map_err(NetworkError::io(format!("open the tap {name}")))?;
    Ok(device.into())
}

/// Lets a user of the host open a tap in the namespace of this thread, which only root may
/// otherwise.
pub(crate) fn give(name: &str, user: u32) -> Result<()> {
    let queue = open(name)?;
    // SAFETY: TUNSETOWNER takes the number itself (tuntap.rst); its number has the size of an int.
    let set = unsafe { IntegerSetter::<{ opcode::write::<i32>(b'T', 204) }>::new_usize(user as usize) };
    // SAFETY: as above.
    unsafe { ioctl(&queue, set) }.map_err(NetworkError::io(format!("give the tap {name} to user {user}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_is_that_of_the_kernel() {
        assert_eq!(size_of::<Request>(), 40);
        assert_eq!(opcode::write::<i32>(b'T', 202), 0x4004_54ca);
    }
}
