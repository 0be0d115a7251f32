//! Reading replies, and what to do when the server closes a connection.

use super::super::protocol::{Protocol, Reply, excerpt};
use super::Worker;
use crate::clock::now_ns;
use crate::kernel::KernelError;
use std::io::{ErrorKind, Read};
use std::net::SocketAddr;

impl<P: Protocol> Worker<'_, P> {
    /// Reads what is available, and returns the time of the last piece. With `ended`, reads up to
    /// the end of the connection, which may have come with the last piece and then causes no
    /// further event.
    pub(super) fn receive(
        &mut self,
        number: usize,
        buffer: &mut [u8],
        ended: bool,
    ) -> Result<u64, KernelError> {
        let mut now = 0;
        loop {
            let length = match (&self.clients[number].stream).read(buffer) {
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.failed("read a reply of", error)),
            };
            now = now_ns();
            if length == 0 {
                self.reconnect(number, false)?;
                break;
            }
            self.tally.bytes_in += length as u64;
            if self.take(number, &buffer[..length], now)? {
                self.reconnect(number, true)?;
                break;
            }
            if length < buffer.len() && !ended {
                break;
            }
        }
        Ok(if now == 0 { now_ns() } else { now })
    }

    /// Extracts the replies from received bytes. Returns true if the server announced that it
    /// closes the connection now.
    fn take(&mut self, number: usize, arrived: &[u8], now: u64) -> Result<bool, KernelError> {
        let client = &mut self.clients[number];
        let mut kept = std::mem::take(&mut client.rest);
        let from_rest = !kept.is_empty();
        if from_rest {
            kept.extend_from_slice(arrived);
        }
        let input = if from_rest { kept.as_slice() } else { arrived };
        let mut at = 0;
        let mut closes = false;
        while at < input.len() && !closes {
            let Some(waiting) = client.waiting.front() else {
                let came = excerpt(&input[at..]);
                return Err(malformed(
                    self.shared.address,
                    &format!("`{came}`, which nothing had asked for"),
                ));
            };
            let step = self.protocol.reply(&mut client.partial, &input[at..], &waiting.expected);
            at += step.consumed;
            closes = step.closes;
            match step.reply {
                None => break,
                Some(Reply::Malformed(came)) => {
                    return Err(malformed(self.shared.address, &format!("`{came}`")));
                }
                Some(reply) => {
                    self.tally.reply(reply, waiting.measured, now.saturating_sub(waiting.from_ns));
                    let in_time = (self.opens_ns..self.closes_ns).contains(&now);
                    self.tally.replies_in_time += u64::from(in_time);
                    self.tally.last_reply_ns = now;
                    self.progress_ns = now;
                    self.in_flight -= 1;
                    client.waiting.pop_front();
                }
            }
        }
        if from_rest {
            kept.drain(..at);
        } else {
            kept.extend_from_slice(&arrived[at..]);
        }
        client.rest = kept;
        Ok(closes)
    }

    /// Makes a connection again that the server closed, if the protocol allows it.
    fn reconnect(&mut self, number: usize, announced: bool) -> Result<(), KernelError> {
        let address = self.shared.address;
        let client = &mut self.clients[number];
        let unanswered = client.waiting.len();
        if !announced && unanswered > 0 {
            return Err(KernelError::Unable(format!(
                "{address} closed a connection with {unanswered} requests unanswered; see what the server says"
            )));
        }
        self.tally.reconnects += 1;
        let again = client.reconnect(address, &mut self.protocol).and_then(|allowed| {
            if !allowed {
                return Ok(false);
            }
            client.register(&self.epoll, number).map(|()| true)
        });
        match again {
            Ok(true) => self.flush(number),
            Ok(false) => Err(KernelError::Unable(format!(
                "{address} closed a connection that it should have kept open"
            ))),
            Err(error) => Err(self.failed("connect again to", error)),
        }
    }
}

fn malformed(address: SocketAddr, came: &str) -> KernelError {
    KernelError::Unable(format!("{address} said {came}: is that the protocol it speaks?"))
}
