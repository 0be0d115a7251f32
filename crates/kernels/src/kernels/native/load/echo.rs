//! The protocol of the kernel `echo`, with many requests in flight.

use super::protocol::{Protocol, Reply, Step, excerpt};
use crate::kernels::native::echo::wire::{GREETING_BYTES, Shape};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

/// One thread's requests.
pub(super) struct Echo {
    shape: Shape,
    /// The number of the next request.
    number: u64,
}

impl Echo {
    pub(super) fn new(shape: Shape) -> Self {
        Self { shape, number: 0 }
    }
}

impl Protocol for Echo {
    type Expected = u64;
    type Partial = ();

    fn greet(&self, stream: &mut TcpStream) -> std::io::Result<()> {
        let greeting = self.shape.greeting();
        let mut back = [0; GREETING_BYTES];
        stream.write_all(&greeting)?;
        stream.read_exact(&mut back)?;
        if back == greeting {
            return Ok(());
        }
        Err(std::io::Error::new(ErrorKind::InvalidData, "what answers is not an echo server of this version"))
    }

    fn request(&mut self, out: &mut Vec<u8>) -> u64 {
        let number = self.number;
        self.number += 1;
        let first = out.len();
        out.resize(first + self.shape.request_bytes as usize, 0xa5);
        self.shape.number(&mut out[first..], number);
        number
    }

    fn reply(&mut self, _: &mut (), input: &[u8], expected: &u64) -> Step {
        let bytes = self.shape.response_bytes as usize;
        let Some(response) = input.get(..bytes) else { return Step::more(0) };
        let reply = if self.shape.answers(response, *expected) {
            Reply::Right
        } else {
            Reply::Wrong(format!("{} for request {expected}", excerpt(&response[..bytes.min(8)])))
        };
        Step::done(bytes, reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_numbered_and_responses_compared() {
        let mut echo = Echo::new(Shape { request_bytes: 9, response_bytes: 10 });
        let mut out = Vec::new();
        assert_eq!((echo.request(&mut out), echo.request(&mut out)), (0, 1));
        assert_eq!(out[9..], [1, 0, 0, 0, 0, 0, 0, 0, 0xa5]);
        let response = [1, 0, 0, 0, 0, 0, 0, 0, 9, 9, 9];
        assert!(echo.reply(&mut (), &response[..9], &1).reply.is_none());
        let step = echo.reply(&mut (), &response, &1);
        assert_eq!((step.consumed, step.reply), (10, Some(Reply::Right)));
        assert!(matches!(echo.reply(&mut (), &response, &2).reply, Some(Reply::Wrong(_))));
    }
}
