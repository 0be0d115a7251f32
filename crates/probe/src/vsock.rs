//! Sockets between a machine and its host, vsock(7).

use crate::error::ProbeError;
use crate::{clock, signals};
use alloc::format;
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use rustix::io::Errno;

/// The address of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// The context id of the machine: 2 is the host, 1 the machine itself.
    cid: u32,
    port: u32,
}

impl Address {
    /// Parses `PORT` (of the host) or `CID:PORT`.
    pub fn parse(text: &str) -> Option<Self> {
        let (cid, port) = match text.split_once(':') {
            Some((cid, port)) => (cid.parse().ok()?, port),
            None => (libc::VMADDR_CID_HOST, text),
        };
        Some(Self { cid, port: port.parse().ok()? })
    }

    /// The kernel's structure, with its size.
    fn raw(self) -> (libc::sockaddr_vm, libc::socklen_t) {
        // SAFETY: all of its fields are numbers.
        let mut raw: libc::sockaddr_vm = unsafe { core::mem::zeroed() };
        raw.svm_family = libc::AF_VSOCK as _;
        raw.svm_cid = self.cid;
        raw.svm_port = self.port;
        (raw, size_of::<libc::sockaddr_vm>() as libc::socklen_t)
    }
}

/// Connects. As init of a machine it waits for the device and for the host to listen; elsewhere it
/// tries once.
pub fn connect(address: Address) -> Result<OwnedFd, ProbeError> {
    let Address { cid, port } = address;
    clock::retry(rustix::process::getpid().is_init(), || try_connect(address))
        .map_err(ProbeError::system(format!("connect to vsock port {port} of machine {cid}")))
}

fn try_connect(address: Address) -> Result<OwnedFd, Errno> {
    let socket = socket()?;
    let (to, size) = address.raw();
    // SAFETY: the address is initialised, of the given size, and outlives the call.
    match unsafe { libc::connect(socket.as_raw_fd(), (&raw const to).cast(), size) } {
        0 => Ok(socket),
        _ => Err(signals::last_errno()),
    }
}

/// A listening socket for a port of this machine.
pub fn listen(port: u32) -> Result<OwnedFd, Errno> {
    let socket = socket()?;
    let (at, size) = Address { cid: libc::VMADDR_CID_ANY, port }.raw();
    // SAFETY: the address is initialised, of the given size, and outlives the call.
    let failed = unsafe {
        libc::bind(socket.as_raw_fd(), (&raw const at).cast(), size) < 0
            || libc::listen(socket.as_raw_fd(), 1) < 0
    };
    if failed { Err(signals::last_errno()) } else { Ok(socket) }
}

fn socket() -> Result<OwnedFd, Errno> {
    // SAFETY: the descriptor is new and owned from here on.
    unsafe {
        let socket = libc::socket(libc::AF_VSOCK, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        if socket < 0 { Err(signals::last_errno()) } else { Ok(OwnedFd::from_raw_fd(socket)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_the_default_machine() {
        assert_eq!(Address::parse("1024"), Some(Address { cid: 2, port: 1024 }));
        assert_eq!(Address::parse("1:52"), Some(Address { cid: 1, port: 52 }));
        for bad in ["", "x", "1:", ":1", "1:2:3", "-1", "4294967296"] {
            assert_eq!(Address::parse(bad), None, "{bad}");
        }
    }
}
