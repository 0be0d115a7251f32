//! What a protocol must provide so that the loops can load a server with it.

use std::net::TcpStream;

/// One thread's share of a protocol: it makes requests, and judges the replies to them.
///
/// The replies of a connection arrive in the order of its requests.
pub(super) trait Protocol: Send {
    /// What is remembered of a request until its reply arrives.
    type Expected: Send;

    /// What is remembered of a connection between two pieces of one reply.
    type Partial: Default + Send;

    /// Greets the server on a new connection, which is still blocking. By default does nothing.
    fn greet(&self, stream: &mut TcpStream) -> std::io::Result<()> {
        let _ = stream;
        Ok(())
    }

    /// Appends the next request to `out`.
    fn request(&mut self, out: &mut Vec<u8>) -> Self::Expected;

    /// Appends the request that waits for `expected` to `out` once more. For protocols in which a
    /// repeated request does no harm and a server may close a connection between two requests.
    /// Returns false by default: such a server is broken.
    fn repeat(&mut self, expected: &Self::Expected, out: &mut Vec<u8>) -> bool {
        let _ = (expected, out);
        false
    }

    /// Looks for the rest of the reply to `expected` at the beginning of `input`, which is never
    /// empty.
    fn reply(&mut self, partial: &mut Self::Partial, input: &[u8], expected: &Self::Expected) -> Step;
}

/// The progress of one look at the input.
pub(super) struct Step {
    /// Consumed bytes of the input.
    pub(super) consumed: usize,
    /// The reply, if it is complete.
    pub(super) reply: Option<Reply>,
    /// Whether the server announced that it closes the connection after this reply.
    pub(super) closes: bool,
}

impl Step {
    /// More bytes are needed; what was not consumed is passed again.
    pub(super) fn more(consumed: usize) -> Self {
        Self { consumed, reply: None, closes: false }
    }

    pub(super) fn done(consumed: usize, reply: Reply) -> Self {
        Self { consumed, reply: Some(reply), closes: false }
    }
}

/// The judgement of one reply.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// It is what the request asked for.
    Right,
    /// It is a complete reply but a wrong one: what is wrong with it.
    Wrong(String),
    /// This is not the protocol, or the rest of the input cannot be read: what was received.
    Malformed(String),
}

/// The beginning of the received bytes, for people.
pub(super) fn excerpt(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(60)];
    String::from_utf8_lossy(shown).escape_debug().to_string()
}
