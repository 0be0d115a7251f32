//! Functions shared by the servers: announcing that they listen, and waiting for their end.

use crate::kernel::KernelError;
use crate::machine;
use crate::options::Options;
use crate::outcome::Outcome;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::io::{Error, ErrorKind, Write as _};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The line that a server prints when it listens.
const LISTENING: &str = "listening";

/// Device number of `/dev/null`: major 1, minor 3 (Documentation/admin-guide/devices.txt of Linux).
const NULL_DEVICE: u64 = 1 << 8 | 3;

/// Announces on stdout that the server listens. The result is another line.
pub(super) fn say_listening() -> Result<(), KernelError> {
    let mut output = std::io::stdout().lock();
    let said = writeln!(output, "{LISTENING}").and_then(|()| output.flush());
    said.map_err(KernelError::system("say that the server listens"))
}

/// A flag that is set when stdin is closed, upon which the server must end.
///
/// If stdin is `/dev/null`, which reads as closed at once, the server lives until it is killed.
pub(super) fn ends_with_stdin() -> Arc<AtomicBool> {
    let ended = Arc::new(AtomicBool::new(false));
    if stdin_is_null() {
        return ended;
    }
    let flag = Arc::clone(&ended);
    std::thread::spawn(move || {
        // The input is ignored, and an unreadable stdin counts as closed.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        flag.store(true, Ordering::Relaxed);
    });
    ended
}

fn stdin_is_null() -> bool {
    std::io::stdin().as_fd().try_clone_to_owned().is_ok_and(|stdin| is_null(&File::from(stdin)))
}

fn is_null(file: &File) -> bool {
    file.metadata().is_ok_and(|about| about.file_type().is_char_device() && about.rdev() == NULL_DEVICE)
}

/// Raises the limit of open files, if necessary, as far as this process may. If that is not enough,
/// connecting fails later.
pub(super) fn allow_sockets(clients: u64) {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < clients + 64) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
}

/// Whether a socket still works after an error: nothing arrived in time, or an earlier datagram was
/// refused by a peer that is gone.
pub(super) fn passes(error: &Error) -> bool {
    use ErrorKind::{ConnectionRefused, Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted | ConnectionRefused)
}

/// The ends of a path that this process serves.
pub(super) enum Role {
    /// Both, over the loopback interface.
    Both,
    /// The server, at the address of `--serve`.
    Server(SocketAddr),
    /// A client of the server at the address of `--connect`.
    Client(SocketAddr),
}

impl Role {
    pub(super) fn of(options: &Options) -> Result<Self, KernelError> {
        match (options.text("serve"), options.text("connect")) {
            ("", "") => Ok(Self::Both),
            (address, "") => resolve("serve", address).map(Self::Server),
            ("", address) => resolve("connect", address).map(Self::Client),
            _ => {
                let message = "`--serve` and `--connect` exclude each other; start one process for each";
                Err(KernelError::usage(message))
            }
        }
    }
}

/// The address that an option names.
pub(super) fn resolve(option: &str, address: &str) -> Result<SocketAddr, KernelError> {
    let mut found = address.to_socket_addrs().map_err(|error| {
        let message = format!("cannot read `--{option} {address}` ({error}): write it as `127.0.0.1:7007`");
        KernelError::usage(message)
    })?;
    let found = found.next().ok_or_else(|| KernelError::usage(format!("`{address}` names no address")))?;
    if found.port() == 0 {
        let message = format!("`--{option} {address}` needs a port that both sides know");
        return Err(KernelError::usage(message));
    }
    Ok(found)
}

/// The words of `--placement`.
pub(super) const PLACEMENTS: &[&str] = &["apart", "together", "free"];

/// The CPUs of the two ends in one process, according to `--placement`; `None` if the scheduler
/// decides.
pub(super) struct Placement {
    pub(super) client: Option<usize>,
    pub(super) server: Option<usize>,
    /// Whether the ends should be apart but share the only CPU.
    shared: bool,
}

impl Placement {
    pub(super) fn of(options: &Options) -> Result<Self, KernelError> {
        let cpus = machine::allowed_cpus()?;
        let (client, server) = match options.text("placement") {
            "apart" => (Some(cpus[0]), cpus.last().copied()),
            "together" => (Some(cpus[0]), Some(cpus[0])),
            _ => (None, None),
        };
        let shared = options.text("placement") == "apart" && cpus.len() < 2;
        Ok(Self { client, server, shared })
    }

    /// Records the placement and the path in the facts.
    pub(super) fn state(&self, outcome: &mut Outcome, path: &str) {
        outcome.fact("path", path);
        outcome.fact("client_cpu", self.client);
        outcome.fact("server_cpu", self.server);
        if self.shared {
            outcome.warn("client and server share the only usable CPU");
        }
    }
}

/// Explains that the loopback interface is down, which is common in a new network namespace or a
/// minimal guest.
pub(super) fn explain_loopback(error: KernelError) -> KernelError {
    let KernelError::System { doing, source } = &error else { return error };
    let unreachable = source.raw_os_error() == Some(libc::ENETUNREACH);
    if unreachable || source.kind() == ErrorKind::AddrNotAvailable {
        return KernelError::Unable(format!(
            "cannot {doing}: {source}; the loopback interface is down, bring it up with `ip link set lo up`"
        ));
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server without a stdin must not end at once.
    #[test]
    fn the_null_device_is_distinguished_from_other_files() {
        assert!(is_null(&File::open("/dev/null").unwrap()));
        assert!(!is_null(&File::open("/dev/zero").unwrap()));
        assert!(!is_null(&File::open("/proc/self/maps").unwrap()));
    }
}
