//! What a protocol must say so that the loops can load a server with it.

use std::net::TcpStream;

/// One thread's share of a protocol: it makes requests, and judges what comes back for them.
///
/// Replies of a connection come in the order of its requests.
pub(super) trait Protocol: Send {
    /// What is remembered of a request until its reply is there.
    type Expected: Send;

    /// What is remembered of a connection between two pieces of one reply.
    type Partial: Default + Send;

    /// Readies a new connection, which blocks as yet. By default nothing is said before the first
    /// request.
    fn greet(&self, stream: &mut TcpStream) -> std::io::Result<()> {
        let _ = stream;
        Ok(())
    }

    /// Appends the next request to `out`.
    fn request(&mut self, out: &mut Vec<u8>) -> Self::Expected;

    /// Appends the request that waits for `expected` to `out` once more, where asking twice does no
    /// harm and a server may close a connection between two requests. False, the default: such a
    /// server is broken.
    fn repeat(&mut self, expected: &Self::Expected, out: &mut Vec<u8>) -> bool {
        let _ = (expected, out);
        false
    }

    /// Looks for the rest of the reply to `expected` at the beginning of `input`, which is never
    /// empty.
    fn reply(&mut self, partial: &mut Self::Partial, input: &[u8], expected: &Self::Expected) -> Step;
}

/// How far one look got.
pub(super) struct Step {
    /// Bytes of the input that are done with.
    pub(super) consumed: usize,
    /// The reply, when it is there as a whole.
    pub(super) reply: Option<Reply>,
    /// Whether the server said that it closes the connection after this reply.
    pub(super) closes: bool,
}

impl Step {
    /// More must come; what was not consumed is shown again.
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
    /// It is a whole reply, and not the right one: what is wrong with it.
    Wrong(String),
    /// This is not the protocol, or what follows cannot be read any more: what came.
    Malformed(String),
}

/// The beginning of what came, for people.
pub(super) fn excerpt(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(60)];
    String::from_utf8_lossy(shown).escape_debug().to_string()
}
