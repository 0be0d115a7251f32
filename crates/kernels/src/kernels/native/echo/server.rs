//! The side that answers.

use super::wire::{GREETING_BYTES, LARGEST_DATAGRAM, Shape};
use crate::kernel::KernelError;
use crate::kernels::native::serving;
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How often a server checks whether it must end.
const LOOK: Duration = Duration::from_millis(20);

/// The most clients that a UDP server remembers.
const MOST_CLIENTS: usize = 4096;

/// Called with each request and its response. The response is sent if this returns true. Only tests
/// change anything there.
pub(super) type FaultInjector = fn(&[u8], &mut [u8]) -> bool;

/// Sends every response unchanged.
pub(super) const AS_IT_IS: FaultInjector = |_, _| true;

/// What servers have done so far, and whether they must end.
#[derive(Default)]
pub(super) struct Served {
    requests: AtomicU64,
    malformed: AtomicU64,
    ended: AtomicBool,
}

impl Served {
    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    pub(super) fn malformed(&self) -> u64 {
        self.malformed.load(Ordering::Relaxed)
    }

    pub(super) fn stop(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    fn ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Counts a request. Called by the one thread that serves a protocol or connection, after it
    /// sent the response.
    fn answered(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }
}

/// Answers one TCP client until it closes the connection. Stops waiting for it when `served` says
/// that the server must end.
pub(super) fn tcp_once(
    listener: &TcpListener,
    served: &Served,
    inject: FaultInjector,
) -> Result<(), KernelError> {
    let failed = || KernelError::system::<std::io::Error>("accept a connection");
    listener.set_nonblocking(true).map_err(failed())?;
    let stream = loop {
        match listener.accept() {
            Ok((stream, _)) => break stream,
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(failed()(error)),
            Err(_) if served.ended() => return Ok(()),
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    stream.set_nonblocking(false).map_err(failed())?;
    answer_tcp(stream, served, inject).map_err(KernelError::system("answer over TCP"))
}

fn answer_tcp(mut stream: TcpStream, served: &Served, inject: FaultInjector) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut greeting = [0; GREETING_BYTES];
    stream.read_exact(&mut greeting)?;
    let Some(shape) = Shape::from_greeting(&greeting) else {
        served.malformed.fetch_add(1, Ordering::Relaxed);
        return Ok(());
    };
    stream.write_all(&greeting)?;
    let mut request = vec![0; shape.request_bytes as usize];
    let mut response = vec![0x5a; shape.response_bytes as usize];
    loop {
        match stream.read_exact(&mut request) {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => {
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        shape.answer(&request, &mut response);
        if !inject(&request, &mut response) {
            continue;
        }
        stream.write_all(&response)?;
        served.answered();
    }
}

/// Answers UDP clients until the server must end.
pub(super) fn udp(socket: &UdpSocket, served: &Served, inject: FaultInjector) -> Result<(), KernelError> {
    socket.set_read_timeout(Some(LOOK)).map_err(KernelError::system("set up a UDP socket"))?;
    let mut message = vec![0; LARGEST_DATAGRAM as usize + 1];
    let mut response = vec![0x5a; LARGEST_DATAGRAM as usize];
    let mut clients: HashMap<SocketAddr, Shape> = HashMap::new();
    while !served.ended() {
        let (length, client) = match socket.recv_from(&mut message) {
            Ok(received) => received,
            // Refusals come from clients that are gone.
            Err(error) if serving::passes(&error) => continue,
            Err(source) => return Err(KernelError::System { doing: "receive over UDP".into(), source }),
        };
        let message = &message[..length];
        if let Some(shape) = Shape::from_greeting(message)
            && u64::from(shape.response_bytes) <= LARGEST_DATAGRAM
        {
            if clients.len() >= MOST_CLIENTS {
                clients.clear();
            }
            clients.insert(client, shape);
            // A lost greeting is repeated.
            let _ = socket.send_to(message, client);
            continue;
        }
        let Some(shape) = clients.get(&client).filter(|shape| shape.request_bytes as usize == length) else {
            served.malformed.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        let response = &mut response[..shape.response_bytes as usize];
        shape.answer(message, response);
        if !inject(message, response) {
            continue;
        }
        // A response that cannot be sent is lost, and the client counts it.
        let _ = socket.send_to(response, client);
        served.answered();
    }
    Ok(())
}

/// Serves until stdin is closed or, unless `requests` is 0, until that many are answered.
pub(super) fn until_stdin_closes(
    address: SocketAddr,
    protocols: [bool; 2],
    requests: u64,
) -> Result<Arc<Served>, KernelError> {
    let closed = serving::ends_with_stdin();
    serve(address, protocols, requests, || closed.load(Ordering::Relaxed))
}

/// Serves TCP and UDP, as `protocols` says, until `ended` or, unless `requests` is 0, until that
/// many are answered.
pub(super) fn serve(
    address: SocketAddr,
    protocols: [bool; 2],
    requests: u64,
    ended: impl Fn() -> bool,
) -> Result<Arc<Served>, KernelError> {
    let served = Arc::new(Served::default());
    let mut threads = Vec::new();
    if protocols[0] {
        let listener = TcpListener::bind(address)
            .map_err(KernelError::system(format!("listen for TCP at {address}")))?;
        let served = Arc::clone(&served);
        // This thread may be blocked in accept when the server ends; it ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let served = Arc::clone(&served);
                std::thread::spawn(move || answer_tcp(stream, &served, AS_IT_IS));
            }
        });
    }
    if protocols[1] {
        let socket =
            UdpSocket::bind(address).map_err(KernelError::system(format!("receive UDP at {address}")))?;
        let served = Arc::clone(&served);
        threads.push(std::thread::spawn(move || udp(&socket, &served, AS_IT_IS)));
    }
    serving::say_listening()?;
    let enough = || requests > 0 && served.requests() >= requests;
    while !ended() && !enough() && threads.iter().all(|thread| !thread.is_finished()) {
        std::thread::sleep(LOOK);
    }
    served.stop();
    for thread in threads {
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    }
    Ok(served)
}
