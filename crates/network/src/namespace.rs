//! Network namespaces bound to files, and threads that enter them.

use crate::{NetworkError, Result};
use rustix::mount::mount_bind;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

/// The network namespace of the current thread.
const OWN: &str = "/proc/thread-self/ns/net";

/// Settings of a guest's namespace, the same as those of Docker's engine: an unprivileged root may
/// listen on every port, and every user may ping.
const GUEST_SETTINGS: [(&str, &str); 2] = [
    ("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0"),
    ("/proc/sys/net/ipv4/ping_group_range", "0 2147483647"),
];

/// Makes a network namespace and binds it to an existing file, so that it needs no process
/// (`namespaces(7)`).
pub(crate) fn make(file: &Path) -> Result<()> {
    on_own_thread(|| {
        // SAFETY: only the network namespace is unshared, no descriptors and no memory.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }
            .map_err(NetworkError::io("make a network namespace"))?;
        for (file, value) in GUEST_SETTINGS {
            std::fs::write(file, value).map_err(NetworkError::io(format!("write {file}")))?;
        }
        mount_bind(OWN, file)
            .map_err(NetworkError::io(format!("bind a network namespace to {}", file.display())))
    })
}

/// Moves this thread into the network namespace of a file, for good. Its sockets stay in the
/// namespace in which they were made.
///
/// # Errors
/// [`NetworkError::Io`]: the file is no network namespace, or this is not root.
pub fn enter(namespace: &Path) -> Result<()> {
    File::open(namespace)
        .and_then(|file| Ok(move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?))
        .map_err(NetworkError::io(format!("enter the network namespace {}", namespace.display())))
}

/// Keeps the calling thread in another network namespace until it is dropped. Processes that the
/// thread starts meanwhile stay there.
#[derive(Debug)]
pub struct NamespaceVisit {
    home: File,
    /// Another thread must not drop it.
    _thread: PhantomData<*const ()>,
}

impl NamespaceVisit {
    /// Enters the namespace.
    ///
    /// # Errors
    /// As [`enter`].
    pub fn begin(namespace: &Path) -> Result<Self> {
        let home = File::open(OWN).map_err(NetworkError::io(format!("open {OWN}")))?;
        enter(namespace)?;
        Ok(Self { home, _thread: PhantomData })
    }
}

impl Drop for NamespaceVisit {
    fn drop(&mut self) {
        move_into_link_name_space(self.home.as_fd(), Some(LinkNameSpaceType::Network))
            .expect("a thread that could leave a network namespace may return to it");
    }
}

/// Runs `work` in a network namespace, on its own thread, and returns the result; without a
/// namespace it runs in that of the caller. Threads and programs that it starts are in the
/// namespace, too.
///
/// # Errors
/// Those of [`enter`].
pub fn within<T: Send>(namespace: Option<&Path>, work: impl FnOnce() -> T + Send) -> Result<T> {
    match namespace {
        None => Ok(work()),
        Some(namespace) => on_own_thread(|| enter(namespace).map(|()| work())),
    }
}

/// Connects from a network namespace, with the result of `Guest::reach`. It tries once, for up to
/// `timeout`. The stream can be used in any namespace.
///
/// # Errors
/// Those of `connect(2)` and of [`enter`].
pub fn connect(address: SocketAddr, from: Option<&Path>, timeout: Duration) -> io::Result<TcpStream> {
    within(from, || TcpStream::connect_timeout(&address, timeout)).unwrap_or_else(|error| match error {
        NetworkError::Io { source, .. } => Err(source),
        other => Err(io::Error::other(other)),
    })
}

fn on_own_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| match scope.spawn(work).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}
