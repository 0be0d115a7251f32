//! Messages over TCP: the side that sends them, and the side that counts them.

use super::wire::{Account, Order, SAMPLE};
use crate::clock::now_ns;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

/// Bytes that one read can return: two of the largest segments that a kernel assembles.
const BUFFER: usize = 128 << 10;

/// Sends messages as fast as possible for as long as the order says, and closes this side.
pub(super) fn send(stream: &mut TcpStream, order: Order) -> std::io::Result<Account> {
    let mut message = order.message();
    let mut account = Account::default();
    let start_ns = now_ns();
    loop {
        order.number(&mut message, account.messages);
        stream.write_all(&message)?;
        account.messages += 1;
        account.elapsed_ns = now_ns() - start_ns;
        if account.elapsed_ns >= order.duration_ns {
            break;
        }
    }
    account.bytes = account.messages * u64::from(order.message_bytes);
    stream.shutdown(Shutdown::Write)?;
    Ok(account)
}

/// Counts what arrives until the other side is closed.
pub(super) fn receive(stream: &mut TcpStream, order: Order) -> std::io::Result<Account> {
    let mut buffer = vec![0; BUFFER];
    let mut account = Account::default();
    let mut stamps = Stamps::new(order);
    let start_ns = now_ns();
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => {
                account.elapsed_ns = now_ns() - start_ns;
                account.wrong += stamps.wrong(account.bytes, &buffer[..length]);
                account.bytes += length as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    // A message that was cut off does not count.
    account.wrong += u64::from(!account.bytes.is_multiple_of(u64::from(order.message_bytes)));
    account.messages = account.bytes / u64::from(order.message_bytes);
    Ok(account)
}

/// Checks the stamps of a sample of the messages in a stream of bytes.
struct Stamps {
    message_bytes: u64,
    /// The next message to check.
    next: u64,
}

impl Stamps {
    fn new(order: Order) -> Self {
        Self { message_bytes: u64::from(order.message_bytes), next: 0 }
    }

    /// The number of wrong stamps in `piece`, which begins at byte `at` of the stream.
    fn wrong(&mut self, at: u64, piece: &[u8]) -> u64 {
        let end = at + piece.len() as u64;
        let mut wrong = 0;
        loop {
            let place = self.next * self.message_bytes;
            if place >= end {
                return wrong;
            }
            // A stamp that is split between two pieces is not checked.
            if place >= at
                && let Some(number) = super::wire::word(piece, (place - at) as usize)
            {
                wrong += u64::from(number != self.next);
            }
            self.next += SAMPLE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_found_in_any_pieces_and_wrong_ones_seen() {
        let order = Order { udp: false, to_server: true, message_bytes: 20, duration_ns: 0, token: 0 };
        let mut text = Vec::new();
        for number in 0..4 * SAMPLE {
            let mut message = order.message();
            order.number(&mut message, number);
            text.extend_from_slice(&message);
        }
        let wrong = |text: &[u8], piece: usize| {
            let mut stamps = Stamps::new(order);
            let pieces = text.chunks(piece).enumerate();
            pieces.map(|(index, bytes)| stamps.wrong((index * piece) as u64, bytes)).sum::<u64>()
        };
        for piece in [8, 20, 33, 1000, 5000] {
            assert_eq!(wrong(&text, piece), 0, "{piece}");
        }
        // A byte is missing: every stamp after it is in the wrong place.
        assert_eq!(wrong(&text[1..], 5000), 4);
    }
}
