//! The side that measures.

use super::Load;
use super::wire::GREETING_BYTES;
use crate::clock::{now_ns, seconds};
use crate::kernel::KernelError;
use crate::kernels::latencies;
use hdrhistogram::Histogram;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// Times of one protocol.
pub(super) struct Exchange {
    /// From just before the request was sent until its response arrived.
    pub(super) latency_ns: Histogram<u64>,
    /// From the first request to the last response, without the time lost waiting for responses
    /// that never came.
    pub(super) seconds: f64,
}

/// The results of one client.
pub(super) struct Talk {
    pub(super) exchange: Exchange,
    /// Responses that were wrong.
    pub(super) wrong: u64,
    /// Requests without a response, over UDP.
    pub(super) lost: u64,
}

/// The answer to one request.
enum Answer {
    Right,
    Wrong,
    Lost,
}

/// Sends the warm-up and the measured requests one by one through `ask`.
fn converse(
    load: &Load,
    mut ask: impl FnMut(u64) -> Result<Answer, KernelError>,
) -> Result<Talk, KernelError> {
    let exchange = Exchange { latency_ns: latencies(), seconds: 0.0 };
    let mut talk = Talk { exchange, wrong: 0, lost: 0 };
    for number in 0..load.warmup {
        ask(number)?;
    }
    let start = now_ns();
    let mut waited_in_vain = 0;
    for number in load.warmup..load.warmup + load.requests {
        let sent = now_ns();
        let answer = ask(number)?;
        let took = now_ns() - sent;
        match answer {
            Answer::Right => talk.exchange.latency_ns.saturating_record(took),
            Answer::Wrong => talk.wrong += 1,
            Answer::Lost => {
                talk.lost += 1;
                waited_in_vain += took;
            }
        }
    }
    talk.exchange.seconds = seconds((now_ns() - start).saturating_sub(waited_in_vain).max(1));
    Ok(talk)
}

pub(super) fn tcp(address: SocketAddr, load: &Load) -> Result<Talk, KernelError> {
    let failed = |doing: &str| KernelError::system::<std::io::Error>(format!("{doing} {address} over TCP"));
    let mut stream = connect_tcp(address, load.timeout).map_err(failed("connect to"))?;
    stream
        .set_nodelay(true)
        .and_then(|()| stream.set_read_timeout(Some(load.timeout)))
        .map_err(failed("set up the connection to"))?;
    let greeting = load.shape.greeting();
    let mut back = [0; GREETING_BYTES];
    stream.write_all(&greeting).and_then(|()| stream.read_exact(&mut back)).map_err(failed("greet"))?;
    if back != greeting {
        return Err(KernelError::Unable(format!(
            "what answers at {address} is not an echo server of this version"
        )));
    }
    let mut request = vec![0xa5; load.shape.request_bytes as usize];
    let mut response = vec![0; load.shape.response_bytes as usize];
    converse(load, |number| {
        load.shape.number(&mut request, number);
        stream.write_all(&request).map_err(failed("send to"))?;
        stream.read_exact(&mut response).map_err(failed("read the response of"))?;
        Ok(if load.shape.answers(&response, number) { Answer::Right } else { Answer::Wrong })
    })
}

/// Connects, and retries while nobody listens: a server that was started at the same time may need
/// a moment.
pub(in crate::kernels) fn connect_tcp(address: SocketAddr, timeout: Duration) -> std::io::Result<TcpStream> {
    let deadline = Instant::now() + timeout;
    loop {
        match TcpStream::connect_timeout(&address, timeout) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(10));
            }
            result => return result,
        }
    }
}

pub(super) fn udp(address: SocketAddr, load: &Load) -> Result<Talk, KernelError> {
    let failed = |doing: &str| KernelError::system::<std::io::Error>(format!("{doing} {address} over UDP"));
    let local = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(local).map_err(failed("make a socket for"))?;
    socket.connect(address).map_err(failed("connect to"))?;
    greet_udp(&socket, address, load)?;
    socket.set_read_timeout(Some(load.timeout)).map_err(failed("set up the socket for"))?;
    let mut request = vec![0xa5; load.shape.request_bytes as usize];
    // One byte more, so that a response that is too long is noticed.
    let mut response = vec![0; load.shape.response_bytes as usize + 1];
    let mut lost_before = false;
    converse(load, |number| {
        load.shape.number(&mut request, number);
        socket.send(&request).map_err(failed("send to"))?;
        loop {
            match socket.recv(&mut response) {
                Ok(length) if load.shape.answers(&response[..length], number) => return Ok(Answer::Right),
                // A late response to a request that was given up is not the response to this one.
                Ok(_) if lost_before => {}
                Ok(_) => return Ok(Answer::Wrong),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    lost_before = true;
                    return Ok(Answer::Lost);
                }
                Err(error) => return Err(failed("read the response of")(error)),
            }
        }
    })
}

/// Sends greetings until the server answers: a greeting can be lost, or precede the server's start.
fn greet_udp(socket: &UdpSocket, address: SocketAddr, load: &Load) -> Result<(), KernelError> {
    let failed = |doing: &str| KernelError::system::<std::io::Error>(format!("{doing} {address} over UDP"));
    socket.set_read_timeout(Some(Duration::from_millis(50))).map_err(failed("set up the socket for"))?;
    let greeting = load.shape.greeting();
    let deadline = Instant::now() + load.timeout;
    loop {
        let mut back = [0; GREETING_BYTES + 1];
        let answer = socket.send(&greeting).and_then(|_| socket.recv(&mut back));
        match answer {
            Ok(length) if back[..length] == greeting => return Ok(()),
            Ok(_) => {}
            Err(error) if Instant::now() >= deadline => return Err(failed("greet")(error)),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            // Nobody listens yet. The refusal comes at once, so wait here.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                std::thread::sleep(Duration::from_millis(10))
            }
            Err(error) => return Err(failed("greet")(error)),
        }
    }
}
