//! The channel over a socket between machine and host, vsock(7).

use crate::{clock, signals};
use alloc::format;
use alloc::string::String;
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use rustix::io::Errno;

/// Time for the machine's device to come up, and for somebody to listen.
const PATIENCE_NS: u64 = 10_000_000_000;
/// Between two attempts.
const PAUSE: rustix::time::Timespec = rustix::time::Timespec { tv_sec: 0, tv_nsec: 2_000_000 };

/// Whom to connect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// The machine: 2 is the host, 1 the machine itself.
    cid: u32,
    port: u32,
}

impl Address {
    /// `PORT` of the host, or `CID:PORT`.
    pub fn parse(text: &str) -> Option<Self> {
        let (cid, port) = match text.split_once(':') {
            Some((cid, port)) => (cid.parse().ok()?, port),
            None => (libc::VMADDR_CID_HOST, text),
        };
        Some(Self { cid, port: port.parse().ok()? })
    }

    /// As the kernel has it, with its size.
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
pub fn connect(address: Address) -> Result<OwnedFd, String> {
    let until_ns = clock::monotonic_ns() + PATIENCE_NS;
    loop {
        match try_connect(address) {
            Ok(socket) => return Ok(socket),
            Err(errno) if !rustix::process::getpid().is_init() || clock::monotonic_ns() > until_ns => {
                let Address { cid, port } = address;
                return Err(format!("cannot connect to port {port} of machine {cid} by vsock: {errno}"));
            }
            Err(_) => drop(rustix::thread::nanosleep(&PAUSE)),
        }
    }
}

fn try_connect(address: Address) -> Result<OwnedFd, Errno> {
    let socket = socket()?;
    let (to, size) = address.raw();
    // SAFETY: the address is initialised, of the size that is told, and outlives the call.
    match unsafe { libc::connect(socket.as_raw_fd(), (&raw const to).cast(), size) } {
        0 => Ok(socket),
        _ => Err(signals::last_errno()),
    }
}

/// A socket on which connections to a port of this machine arrive, from the host or from within.
pub fn listen(port: u32) -> Result<OwnedFd, Errno> {
    let socket = socket()?;
    let (at, size) = Address { cid: libc::VMADDR_CID_ANY, port }.raw();
    // SAFETY: the address is initialised, of the size that is told, and outlives the call.
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
    fn addresses_are_of_the_host_unless_told() {
        assert_eq!(Address::parse("1024"), Some(Address { cid: 2, port: 1024 }));
        assert_eq!(Address::parse("1:52"), Some(Address { cid: 1, port: 52 }));
        for bad in ["", "x", "1:", ":1", "1:2:3", "-1", "4294967296"] {
            assert_eq!(Address::parse(bad), None, "{bad}");
        }
    }
}
