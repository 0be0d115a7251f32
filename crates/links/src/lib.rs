//! Network interfaces of the namespace of the calling thread, by the ioctls of netdevice(7).
//!
//! The same code describes interfaces in guests, in the probe, and on the host, so that both ends
//! of a path can be compared.

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod address;
mod describe;

pub use address::{Address, AddressError, raise_loopback};
pub use describe::describe;

use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use rustix::io::Errno;

/// The socket for the requests.
struct Socket(OwnedFd);

impl Socket {
    fn open() -> Result<Self, Errno> {
        // SAFETY: makes a new descriptor or none; it is owned from here on.
        unsafe {
            let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
            if socket < 0 { Err(last_errno()) } else { Ok(Self(OwnedFd::from_raw_fd(socket))) }
        }
    }

    /// Makes a request about an interface.
    fn ask(&self, number: u64, request: &mut libc::ifreq) -> Result<(), Errno> {
        // SAFETY: the requests used here read and write the structure alone, which is initialised
        // and outlives the call; SIOCETHTOOL writes beyond it to what its pointer leads to, which
        // `describe` holds meanwhile.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), number as _, core::ptr::from_mut(request)) };
        if result < 0 { Err(last_errno()) } else { Ok(()) }
    }
}

/// The error number of the C library's last call, which failed.
fn last_errno() -> Errno {
    // SAFETY: the C library gives every thread its own, always valid.
    Errno::from_raw_os_error(unsafe { *libc::__errno_location() })
}

/// An interface's name as the kernel has it: bytes up to a zero.
fn name(text: &str) -> [libc::c_char; libc::IFNAMSIZ] {
    let mut name = [0; libc::IFNAMSIZ];
    for (to, from) in name.iter_mut().zip(text.bytes().take(libc::IFNAMSIZ - 1)) {
        *to = from as _;
    }
    name
}

fn request(name: [libc::c_char; libc::IFNAMSIZ]) -> libc::ifreq {
    // SAFETY: all members may be zero.
    let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
    request.ifr_name = name;
    request
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the probe has no part in the host's helper")]
fn program(name: &str) -> std::process::Command {
    std::process::Command::new(name)
}
