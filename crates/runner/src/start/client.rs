//! The client that waits for a guest's first response.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weigh_host::clock::monotonic_ns;

/// Timeout of one attempt to connect.
const PATIENCE: Duration = Duration::from_millis(200);
/// Pause after a connection was refused.
const PAUSE: Duration = Duration::from_micros(500);
const STACK_BYTES: usize = 256 << 10;

/// Size of the single request, and of its response.
const REQUEST_BYTES: u32 = 8;

/// The bytes that the client of the kernel `echo` sends: the greeting with both sizes, then a
/// request that begins with its number.
fn words() -> Vec<u8> {
    let sizes = [REQUEST_BYTES.to_le_bytes(), REQUEST_BYTES.to_le_bytes()].concat();
    [b"wbecho 1".as_slice(), &sizes, &1u64.to_le_bytes()].concat()
}

/// A client that is ready to connect: a thread in the namespace that reaches the guest.
pub(super) struct Client {
    go: Sender<(SocketAddr, Instant)>,
    thread: JoinHandle<io::Result<u64>>,
}

impl Client {
    /// `from` is the network namespace to connect from, the host's own when absent.
    pub(super) fn new(from: Option<&Path>) -> io::Result<Self> {
        let namespace = from.map(File::open).transpose()?;
        let (go, wait) = channel();
        let (ready, is_ready) = channel();
        // It needs its own thread, because it stays in the namespace.
        let thread = std::thread::Builder::new()
            .name("first-response".into())
            .stack_size(STACK_BYTES)
            .spawn(move || first(namespace, &ready, &wait))?;
        // Either it is ready, or it has ended with an error that the join returns.
        let _ = is_ready.recv();
        Ok(Self { go, thread })
    }

    /// When the response was read, host's monotonic clock, nanoseconds.
    pub(super) fn first_response_ns(self, address: SocketAddr, until: Instant) -> io::Result<u64> {
        // A client that has ended receives nothing; the join says why.
        let _ = self.go.send((address, until));
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the client's thread panicked")))
    }
}

fn first(
    namespace: Option<File>,
    ready: &Sender<()>,
    wait: &Receiver<(SocketAddr, Instant)>,
) -> io::Result<u64> {
    if let Some(namespace) = namespace {
        let kind = Some(rustix::thread::LinkNameSpaceType::Network);
        rustix::thread::move_into_link_name_space(namespace.as_fd(), kind)?;
    }
    let _ = ready.send(());
    let (address, until) = wait.recv().map_err(|_| io::Error::other("nobody wants a response"))?;
    loop {
        match response_ns(address, until) {
            Err(error) if Instant::now() < until && is_early(&error) => std::thread::sleep(PAUSE),
            result => return result,
        }
    }
}

/// Whether the route to the guest may just not exist yet.
fn is_early(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionRefused, ConnectionReset, HostUnreachable, NetworkUnreachable, TimedOut, UnexpectedEof,
    };
    matches!(
        error.kind(),
        ConnectionRefused | ConnectionReset | HostUnreachable | NetworkUnreachable | TimedOut | UnexpectedEof
    )
}

fn response_ns(address: SocketAddr, until: Instant) -> io::Result<u64> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_nodelay(true)?;
    let left = until.saturating_duration_since(Instant::now()).max(PATIENCE);
    stream.set_read_timeout(Some(left))?;
    let words = words();
    stream.write_all(&words)?;
    let mut answer = vec![0; words.len()];
    stream.read_exact(&mut answer)?;
    let at_ns = monotonic_ns();
    if answer == words { Ok(at_ns) } else { Err(io::Error::other("the guest answered something else")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn the_first_right_answer_counts() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            // This imitates a proxy whose server is not there yet.
            drop(listener.accept().unwrap());
            let (mut stream, _) = listener.accept().unwrap();
            let mut bytes = vec![0; words().len()];
            stream.read_exact(&mut bytes).unwrap();
            stream.write_all(&bytes).unwrap();
        });
        let client = Client::new(None).unwrap();
        let before_ns = monotonic_ns();
        let at_ns = client.first_response_ns(address, Instant::now() + Duration::from_secs(10)).unwrap();
        assert!(at_ns > before_ns);
        server.join().unwrap();
    }

    #[test]
    fn a_refused_connection_is_an_error() {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let client = Client::new(None).unwrap();
        let error = client.first_response_ns(address, Instant::now()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert!(Client::new(Some(Path::new("/nowhere/net"))).is_err());
    }
}
