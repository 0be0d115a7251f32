//! The end that orders transfers and reports what arrived.

use super::datagrams::{self, LOOK, Streams};
use super::server::{PATIENCE, bound, thread_cpu_ns};
use super::stream;
use super::wire::{ACCOUNT_BYTES, Account, HELLO, ORDER_BYTES, Order};
use crate::kernel::KernelError;
use crate::kernels::join;
use crate::kernels::native::crew::run_together;
use crate::kernels::native::echo::client::connect_tcp;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Both ends of one stream, or of several together.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Transfer {
    pub(super) sent: Account,
    pub(super) received: Account,
    /// CPU time of this end's threads.
    pub(super) cpu_ns: u64,
}

/// Runs `streams` transfers at once, each on its own thread bound to `cpu`.
pub(super) fn transfer(
    address: SocketAddr,
    order: Order,
    streams: u64,
    cpu: Option<usize>,
) -> Result<Transfer, KernelError> {
    let one = |index| run(address, Order { token: order.token.wrapping_add(index as u64), ..order }, cpu);
    let transfers = run_together(streams as usize, || {}, || {}, one)?;
    Ok(transfers.into_iter().fold(Transfer::default(), |all, one| Transfer {
        sent: sum(all.sent, one.sent),
        received: sum(all.received, one.received),
        cpu_ns: all.cpu_ns + one.cpu_ns,
    }))
}

fn sum(one: Account, other: Account) -> Account {
    Account {
        bytes: one.bytes + other.bytes,
        messages: one.messages + other.messages,
        elapsed_ns: one.elapsed_ns.max(other.elapsed_ns),
        wrong: one.wrong + other.wrong,
    }
}

fn run(address: SocketAddr, order: Order, cpu: Option<usize>) -> Result<Transfer, KernelError> {
    let failed = |doing: &str| KernelError::system::<std::io::Error>(format!("{doing} {address}"));
    bound(cpu).map_err(failed("bind a thread to a CPU for the transfer with"))?;
    let before_ns = thread_cpu_ns();
    let mut control = connect_tcp(address, PATIENCE).map_err(failed("connect to"))?;
    control
        .set_nodelay(true)
        .and_then(|()| control.set_read_timeout(Some(PATIENCE)))
        .and_then(|()| control.set_write_timeout(Some(PATIENCE)))
        .map_err(failed("set up the connection to"))?;
    let mut transfer = match (order.udp, order.to_server) {
        (false, to_server) => {
            begin(&mut control, address, order)?;
            if to_server {
                let sent = stream::send(&mut control, order).map_err(failed("send to"))?;
                Transfer { sent, received: account(&mut control, address)?, cpu_ns: 0 }
            } else {
                let received = stream::receive(&mut control, order).map_err(failed("receive from"))?;
                Transfer { sent: received, received, cpu_ns: 0 }
            }
        }
        (true, true) => {
            begin(&mut control, address, order)?;
            let socket = socket_to(address)?;
            let sent = datagrams::send(order, |message| socket.send(message)).map_err(failed("send to"))?;
            control.write_all(&sent.to_bytes()).map_err(failed("tell how much was sent to"))?;
            Transfer { sent, received: account(&mut control, address)?, cpu_ns: 0 }
        }
        (true, false) => receive_datagrams(&mut control, address, order)?,
    };
    transfer.cpu_ns += thread_cpu_ns() - before_ns;
    Ok(transfer)
}

/// Sends the order, and receives its confirmation.
fn begin(control: &mut TcpStream, address: SocketAddr, order: Order) -> Result<(), KernelError> {
    let failed = |doing: &str| KernelError::system::<std::io::Error>(format!("{doing} {address}"));
    let mut back = [0; ORDER_BYTES];
    control
        .write_all(&order.to_bytes())
        .and_then(|()| control.read_exact(&mut back))
        .map_err(failed("agree on a transfer with"))?;
    if back != order.to_bytes() {
        return Err(KernelError::Unable(format!(
            "what answers at {address} is not a bulk server of this version"
        )));
    }
    Ok(())
}

fn account(control: &mut TcpStream, address: SocketAddr) -> Result<Account, KernelError> {
    let mut bytes = [0; ACCOUNT_BYTES];
    let heard = control.read_exact(&mut bytes);
    heard.map_err(KernelError::system(format!("hear from {address} how much was transferred")))?;
    Ok(Account::from_bytes(&bytes))
}

fn socket_to(address: SocketAddr) -> Result<UdpSocket, KernelError> {
    let local = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    UdpSocket::bind(local)
        .and_then(|socket| socket.connect(address).map(|()| socket))
        .map_err(KernelError::system(format!("make a UDP socket for {address}")))
}

/// Makes the server send: one thread receives while this one waits for the server to report that it
/// is done.
fn receive_datagrams(
    control: &mut TcpStream,
    address: SocketAddr,
    order: Order,
) -> Result<Transfer, KernelError> {
    let streams = Arc::new(Streams::default());
    let expected = streams.expect(order);
    let socket = socket_to(address)?;
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let received = datagrams::receive(&socket, &streams, &ended);
            received.map(|()| thread_cpu_ns())
        });
        let transfer = (|| {
            begin(control, address, order)?;
            let mut hello = order.message();
            order.number(&mut hello, HELLO);
            // A hello can be lost, so it is repeated until a message arrives.
            for _ in 0..PATIENCE.as_millis() / LOOK.as_millis() {
                if expected.account().messages > 0 {
                    break;
                }
                socket.send(&hello).map_err(KernelError::system(format!("send to {address} over UDP")))?;
                std::thread::sleep(LOOK);
            }
            let patience = Some(PATIENCE + Duration::from_nanos(order.duration_ns));
            control.set_read_timeout(patience).map_err(KernelError::system("set up a connection"))?;
            let sent = account(control, address)?;
            Ok(Transfer { sent, received: expected.final_account(), cpu_ns: 0 })
        })();
        ended.store(true, Ordering::Relaxed);
        let cpu_ns = join(receiver).map_err(KernelError::system("receive over UDP"))?;
        transfer.map(|transfer| Transfer { cpu_ns, ..transfer })
    })
}
