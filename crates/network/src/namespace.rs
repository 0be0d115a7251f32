//! Network namespaces that are held by files, and threads that go there.

use crate::NetworkError;
use rustix::mount::mount_bind;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

/// The network namespace of the thread that looks.
const OWN: &str = "/proc/thread-self/ns/net";

/// What Docker's engine sets in the namespaces of its containers as well: a guest's root that is
/// nobody outside may listen on every port, and everybody in a guest may ping.
const FOR_GUESTS: [(&str, &str); 2] = [
    ("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0"),
    ("/proc/sys/net/ipv4/ping_group_range", "0 2147483647"),
];

/// Makes a network namespace and binds it to a file that is there, so that it lives without a
/// process (`namespaces(7)`).
pub(crate) fn make(file: &Path) -> Result<(), NetworkError> {
    // The thread that makes it is in it, and ends.
    apart(|| {
        // SAFETY: only the network namespace is unshared, no descriptors and no memory.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }
            .map_err(NetworkError::io("make a network namespace"))?;
        for (file, value) in FOR_GUESTS {
            std::fs::write(file, value).map_err(NetworkError::io(format!("write {file}")))?;
        }
        mount_bind(OWN, file)
            .map_err(NetworkError::io(format!("bind a network namespace to {}", file.display())))
    })
}

/// Moves this thread into the network namespace of a file, for good. Sockets that it has stay where
/// they were made.
///
/// # Errors
/// [`NetworkError::Io`]: the file is no network namespace, or this is not root.
pub fn enter(namespace: &Path) -> Result<(), NetworkError> {
    File::open(namespace)
        .and_then(|file| Ok(move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?))
        .map_err(NetworkError::io(format!("enter the network namespace {}", namespace.display())))
}

/// A stay of the calling thread in another network namespace, which ends when this is dropped.
/// Processes that the thread starts meanwhile are there for good.
#[derive(Debug)]
pub struct Visit {
    home: File,
    /// It is this thread's.
    _thread: PhantomData<*const ()>,
}

impl Visit {
    /// Begins it.
    ///
    /// # Errors
    /// As [`enter`].
    pub fn begin(namespace: &Path) -> Result<Self, NetworkError> {
        let home = File::open(OWN).map_err(NetworkError::io(format!("open {OWN}")))?;
        enter(namespace)?;
        Ok(Self { home, _thread: PhantomData })
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        move_into_link_name_space(self.home.as_fd(), Some(LinkNameSpaceType::Network))
            .expect("who could leave a network namespace may go back");
    }
}

/// Does something on a thread of its own in a network namespace, the caller's own when there is
/// none, and returns what came of it. Threads and programs that it starts are there as well.
///
/// # Errors
/// Those of [`enter`].
pub fn within<T: Send>(namespace: Option<&Path>, work: impl FnOnce() -> T + Send) -> Result<T, NetworkError> {
    match namespace {
        None => Ok(work()),
        Some(namespace) => apart(|| enter(namespace).map(|()| work())),
    }
}

/// Connects from a network namespace: to what `Guest::reach` says, from where it says. One try,
/// which may take `timeout`; the stream can be used by any thread wherever it is.
///
/// # Errors
/// Those of `connect(2)`, or that of [`enter`] as one of another kind.
pub fn connect(address: SocketAddr, from: Option<&Path>, timeout: Duration) -> io::Result<TcpStream> {
    within(from, || TcpStream::connect_timeout(&address, timeout)).unwrap_or_else(|error| match error {
        NetworkError::Io { source, .. } => Err(source),
        other => Err(io::Error::other(other)),
    })
}

fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| match scope.spawn(work).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}
