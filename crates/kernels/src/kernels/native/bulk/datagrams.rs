//! Messages over UDP: the side that sends them, and the one socket that receives them for all
//! streams.

use super::wire::{Account, FILLER, HELLO, LARGEST_DATAGRAM, Order, STAMP_BYTES, word};
use crate::clock::now_ns;
use crate::kernels::native::serving::passes;
use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often a receiver checks whether it must end.
pub(super) const LOOK: Duration = Duration::from_millis(20);

/// Sends messages as fast as possible for as long as the order says. `send` is that of a socket.
pub(super) fn send(order: Order, send: impl Fn(&[u8]) -> std::io::Result<usize>) -> std::io::Result<Account> {
    let mut message = order.message();
    let mut account = Account::default();
    let start_ns = now_ns();
    while account.elapsed_ns < order.duration_ns {
        order.number(&mut message, account.messages);
        match send(&message) {
            Ok(_) => account.messages += 1,
            // A queue on the way was full: this message was not sent. A refusal is the answer to an
            // earlier message, which is lost.
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => std::thread::yield_now(),
            Err(error) if passes(&error) => {}
            Err(error) => return Err(error),
        }
        account.elapsed_ns = now_ns() - start_ns;
    }
    account.bytes = account.messages * u64::from(order.message_bytes);
    Ok(account)
}

/// What has arrived of one stream.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    account: Account,
    first_ns: u64,
    /// The address of its other end, once that has said hello.
    peer: Option<SocketAddr>,
    /// The length that each of its messages must have, bytes.
    message_bytes: u64,
}

/// Streams that a receiver expects, by token.
#[derive(Default)]
pub(super) struct Streams {
    seen: Mutex<HashMap<u64, Seen>>,
}

impl Streams {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Seen>> {
        // The counts are always consistent, so a panic elsewhere does not spoil them.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to count the messages of a stream.
    pub(super) fn expect(self: &Arc<Self>, order: Order) -> Expected {
        let message_bytes = u64::from(order.message_bytes);
        self.lock().insert(order.token, Seen { message_bytes, ..Seen::default() });
        Expected { streams: Arc::clone(self), token: order.token }
    }
}

/// A stream that is expected, as long as this lives.
pub(super) struct Expected {
    streams: Arc<Streams>,
    token: u64,
}

impl Expected {
    pub(super) fn account(&self) -> Account {
        self.streams.lock().get(&self.token).map(|seen| seen.account).unwrap_or_default()
    }

    pub(super) fn peer(&self) -> Option<SocketAddr> {
        self.streams.lock().get(&self.token).and_then(|seen| seen.peer)
    }

    /// All that arrived: waits until nothing more arrives. To be called when the sender has
    /// reported that it is done.
    pub(super) fn final_account(&self) -> Account {
        let mut before = self.account();
        loop {
            std::thread::sleep(3 * LOOK);
            let now = self.account();
            if now == before {
                return now;
            }
            before = now;
        }
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.streams.lock().remove(&self.token);
    }
}

/// Receives for all streams until `ended`.
pub(super) fn receive(socket: &UdpSocket, streams: &Streams, ended: &AtomicBool) -> std::io::Result<()> {
    socket.set_read_timeout(Some(LOOK))?;
    // One byte more than the largest message, so that a longer one is noticed.
    let mut message = vec![0; LARGEST_DATAGRAM as usize + 1];
    while !ended.load(Ordering::Relaxed) {
        match socket.recv_from(&mut message) {
            Ok((length, peer)) => count(&message[..length], peer, &mut streams.lock()),
            Err(error) if passes(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn count(message: &[u8], peer: SocketAddr, streams: &mut HashMap<u64, Seen>) {
    let (Some(token), Some(number)) = (word(message, 0), word(message, 8)) else { return };
    // A message for an unexpected stream is late, or a stray.
    let Some(seen) = streams.get_mut(&token) else { return };
    if number == HELLO {
        seen.peer = Some(peer);
        return;
    }
    let now = now_ns();
    if seen.account.messages == 0 {
        seen.first_ns = now;
    }
    seen.account.messages += 1;
    seen.account.bytes += message.len() as u64;
    seen.account.elapsed_ns = now - seen.first_ns;
    let sampled = number.is_multiple_of(super::wire::SAMPLE);
    let right = message.len() as u64 == seen.message_bytes
        && (!sampled || message[STAMP_BYTES..].iter().all(|byte| *byte == FILLER));
    seen.account.wrong += u64::from(!right);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_counted_and_wrong_ones_seen() {
        let order = Order { udp: true, to_server: true, message_bytes: 40, duration_ns: 0, token: 5 };
        let peer = "127.0.0.1:9".parse().unwrap();
        let streams = Arc::new(Streams::default());
        let expected = streams.expect(order);
        let mut message = order.message();
        let mut come = |number: u64, length: usize, last: u8| {
            order.number(&mut message, number);
            message[39] = last;
            count(&message[..length], peer, &mut streams.lock());
        };
        come(HELLO, 40, FILLER);
        for number in 0..20 {
            come(number, 40, FILLER);
        }
        assert_eq!(expected.peer(), Some(peer));
        let account = expected.account();
        assert_eq!((account.messages, account.bytes, account.wrong), (20, 800, 0));
        come(20, 39, FILLER);
        come(32, 40, 0);
        assert_eq!(expected.account().wrong, 2);
        drop(expected);
        assert!(streams.lock().is_empty());
    }
}
