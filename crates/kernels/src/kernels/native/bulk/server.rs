//! The end that carries out the orders of clients.

use super::datagrams::{self, LOOK, Streams};
use super::stream;
use super::wire::{ACCOUNT_BYTES, Account, ORDER_BYTES, Order};
use crate::kernel::KernelError;
use crate::kernels::join;
use crate::machine;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long to wait for the other end of a stream.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// What a server has done.
#[derive(Default)]
pub(super) struct Served {
    pub(super) streams: AtomicU64,
    /// Bytes received or sent.
    pub(super) bytes: AtomicU64,
    /// Connections that broke, or carried no order.
    pub(super) failed: AtomicU64,
    /// CPU time of its threads for the streams that have ended.
    pub(super) cpu_ns: AtomicU64,
}

/// CPU time of the calling thread.
pub(super) fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Both sockets of a server, on the same port.
pub(super) fn bind(address: SocketAddr) -> Result<(TcpListener, UdpSocket), KernelError> {
    let failed = |what: &str| {
        KernelError::system::<std::io::Error>(format!("listen for {what} at {address}; is the port free?"))
    };
    // A port that TCP chose may be in use for UDP: then another is tried.
    let tries = if address.port() == 0 { 20 } else { 1 };
    let mut last = None;
    for _ in 0..tries {
        let listener = TcpListener::bind(address).map_err(failed("TCP"))?;
        let here = listener.local_addr().map_err(failed("TCP"))?;
        match UdpSocket::bind(here) {
            Ok(socket) => return Ok((listener, socket)),
            Err(error) => last = Some(error),
        }
    }
    Err(failed("UDP")(last.unwrap_or_else(|| ErrorKind::AddrInUse.into())))
}

/// Serves streams, each on its own thread bound to `cpu`, until `ended`.
pub(super) fn until(
    listener: &TcpListener,
    socket: &UdpSocket,
    cpu: Option<usize>,
    served: &Served,
    ended: &AtomicBool,
) -> Result<(), KernelError> {
    let failed = |source: std::io::Error| KernelError::System { doing: "accept a connection".into(), source };
    listener.set_nonblocking(true).map_err(failed)?;
    let streams = &Arc::new(Streams::default());
    let look = Timespec { tv_sec: 0, tv_nsec: LOOK.as_nanos() as _ };
    std::thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            bound(cpu)?;
            let received = datagrams::receive(socket, streams, ended);
            served.cpu_ns.fetch_add(thread_cpu_ns(), Ordering::Relaxed);
            received
        });
        while !ended.load(Ordering::Relaxed) && !receiver.is_finished() {
            let mut waiting = [PollFd::new(listener, PollFlags::IN)];
            if !poll(&mut waiting, Some(&look)).is_ok_and(|ready| ready > 0) {
                continue;
            }
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionAborted) =>
                {
                    continue;
                }
                Err(error) => {
                    ended.store(true, Ordering::Relaxed);
                    return Err(failed(error));
                }
            };
            scope.spawn(move || {
                let before_ns = thread_cpu_ns();
                match bound(cpu).and_then(|()| serve(stream, socket, streams)) {
                    Ok(account) => {
                        served.bytes.fetch_add(account.bytes, Ordering::Relaxed);
                        served.streams.fetch_add(1, Ordering::Relaxed);
                    }
                    // The client notices it, too, and reports it.
                    Err(_) => {
                        served.failed.fetch_add(1, Ordering::Relaxed);
                    }
                }
                served.cpu_ns.fetch_add(thread_cpu_ns() - before_ns, Ordering::Relaxed);
            });
        }
        join(receiver).map_err(KernelError::system("receive over UDP"))
    })
}

pub(super) fn bound(cpu: Option<usize>) -> std::io::Result<()> {
    cpu.map_or(Ok(()), machine::pin_to)
}

/// Carries out the order of one connection.
fn serve(mut stream: TcpStream, socket: &UdpSocket, streams: &Arc<Streams>) -> std::io::Result<Account> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut order = [0; ORDER_BYTES];
    stream.read_exact(&mut order)?;
    let order_bytes = order;
    let order = Order::from_bytes(&order).ok_or_else(|| std::io::Error::from(ErrorKind::InvalidData))?;
    let expected = order.udp.then(|| streams.expect(order));
    stream.write_all(&order_bytes)?;
    match (expected, order.to_server) {
        (None, true) => {
            let account = stream::receive(&mut stream, order)?;
            stream.write_all(&account.to_bytes())?;
            Ok(account)
        }
        (None, false) => stream::send(&mut stream, order),
        (Some(expected), true) => {
            stream.set_read_timeout(Some(PATIENCE + Duration::from_nanos(order.duration_ns)))?;
            let mut sent = [0; ACCOUNT_BYTES];
            stream.read_exact(&mut sent)?;
            let account = expected.final_account();
            stream.write_all(&account.to_bytes())?;
            Ok(account)
        }
        (Some(expected), false) => {
            let deadline = Instant::now() + PATIENCE;
            let peer = loop {
                if let Some(peer) = expected.peer() {
                    break peer;
                }
                if Instant::now() > deadline {
                    return Err(ErrorKind::TimedOut.into());
                }
                std::thread::sleep(Duration::from_millis(1));
            };
            let account = datagrams::send(order, |message| socket.send_to(message, peer))?;
            stream.write_all(&account.to_bytes())?;
            Ok(account)
        }
    }
}
