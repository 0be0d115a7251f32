//! The answers to echo and http requests.

use super::serve::{Answer, Answered, ConnectionAction};
use crate::kernels::native::echo::wire::{GREETING_BYTES, Shape};
use crate::kernels::native::load::http::end_of_head;

/// The longest head of a request that is accepted.
const LONGEST_HEAD: usize = 64 << 10;

/// The protocol of the kernel `echo`.
pub(super) struct Echo;

impl Answer for Echo {
    type Session = Option<Shape>;

    fn answer(&mut self, session: &mut Option<Shape>, input: &[u8], out: &mut Vec<u8>) -> Answered {
        let mut answered = Answered::default();
        let shape = match session {
            Some(shape) => *shape,
            None => {
                let Some(greeting) = input.get(..GREETING_BYTES) else { return answered };
                let Some(shape) = Shape::from_greeting(greeting) else {
                    answered.then = ConnectionAction::Refuse;
                    return answered;
                };
                out.extend_from_slice(greeting);
                answered.consumed = GREETING_BYTES;
                *session.insert(shape)
            }
        };
        let requests = input[answered.consumed..].chunks_exact(shape.request_bytes as usize);
        for request in requests {
            let first = out.len();
            out.resize(first + shape.response_bytes as usize, 0x5a);
            shape.answer(request, &mut out[first..]);
            answered.consumed += request.len();
            answered.requests += 1;
        }
        answered
    }
}

/// A page that is always the same.
pub(super) struct Http {
    page: Vec<u8>,
    /// For clients of HTTP/1.0 that ask to keep the connection.
    keep_alive_page: Vec<u8>,
    /// The last request that was read. Most equal the one before.
    known: Vec<u8>,
}

impl Http {
    pub(super) fn new(body_bytes: usize) -> Self {
        let page = |header: &str| {
            let head = format!(
                "HTTP/1.1 200 OK\r\nServer: weigh-kernels\r\nContent-Type: text/plain\r\n{header}Content-Length: {body_bytes}\r\n\r\n"
            );
            let mut page = head.into_bytes();
            page.resize(page.len() + body_bytes, b'x');
            page
        };
        Self { page: page(""), keep_alive_page: page("Connection: keep-alive\r\n"), known: Vec::new() }
    }
}

impl Answer for Http {
    type Session = ();

    fn answer(&mut self, (): &mut (), input: &[u8], out: &mut Vec<u8>) -> Answered {
        let mut answered = Answered::default();
        while answered.then == ConnectionAction::Keep {
            let input = &input[answered.consumed..];
            if !self.known.is_empty() && input.starts_with(&self.known) {
                out.extend_from_slice(&self.page);
                answered.consumed += self.known.len();
                answered.requests += 1;
                continue;
            }
            let Some(length) = end_of_head(input) else {
                if input.len() > LONGEST_HEAD {
                    answered.then = ConnectionAction::Refuse;
                }
                break;
            };
            let head = &input[..length];
            match wants(head) {
                None => {
                    answered.then = ConnectionAction::Refuse;
                    break;
                }
                Some(Wants::KeepAlive) => {
                    self.known = head.to_vec();
                    out.extend_from_slice(&self.page);
                }
                Some(Wants::ExplicitKeepAlive) => out.extend_from_slice(&self.keep_alive_page),
                Some(Wants::Closed) => {
                    out.extend_from_slice(&self.page);
                    answered.then = ConnectionAction::Close;
                }
            }
            answered.consumed += length;
            answered.requests += 1;
        }
        answered
    }
}

/// What a client asks of the connection.
#[derive(Debug, PartialEq, Eq)]
enum Wants {
    /// Keep it, which is the default of HTTP/1.1.
    KeepAlive,
    /// Keep it, and confirm that: HTTP/1.0.
    ExplicitKeepAlive,
    /// Close it after the answer.
    Closed,
}

/// Parses the head of a request. `None` if it is malformed.
fn wants(head: &[u8]) -> Option<Wants> {
    let mut lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let first = lines.find(|line| !line.is_empty())?;
    let version = first.rsplit(|byte| *byte == b' ').next()?.strip_prefix(b"HTTP/1.")?;
    let said = lines.find_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        line[..colon]
            .eq_ignore_ascii_case(b"connection")
            .then(|| line[colon + 1..].trim_ascii().to_ascii_lowercase())
    });
    Some(match (version, said.as_deref()) {
        (b"0", Some(b"keep-alive")) => Wants::ExplicitKeepAlive,
        (b"0", _) | (_, Some(b"close")) => Wants::Closed,
        _ => Wants::KeepAlive,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_answered_and_parts_of_them_wait() {
        let shape = Shape { request_bytes: 4, response_bytes: 6 };
        let mut input = shape.greeting().to_vec();
        input.extend_from_slice(b"AbcdEfghIj");
        let (mut session, mut out) = (None, Vec::new());
        assert_eq!(Echo.answer(&mut session, &input[..10], &mut out), Answered::default());
        let answered = Echo.answer(&mut session, &input, &mut out);
        assert_eq!(answered, Answered { consumed: 24, requests: 2, then: ConnectionAction::Keep });
        assert_eq!(out[GREETING_BYTES..], *b"AbcdZZEfghZZ");
        assert_eq!(Echo.answer(&mut None, b"GET / HTTP/1.1\r\n", &mut out).then, ConnectionAction::Refuse);
    }

    #[test]
    fn http_connections_are_kept_as_the_client_wants() {
        let mut http = Http::new(3);
        let mut answer = |input: &str| {
            let mut out = Vec::new();
            let answered = http.answer(&mut (), input.as_bytes(), &mut out);
            (answered.requests, answered.then, String::from_utf8(out).unwrap())
        };
        let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let (requests, then, text) = answer(&format!("{get}{get}{get}GET"));
        assert_eq!((requests, then), (3, ConnectionAction::Keep));
        assert_eq!(text.matches("Content-Length: 3\r\n\r\nxxx").count(), 3);
        let old = "GET / HTTP/1.0\r\n\r\n";
        assert_eq!(answer(old).1, ConnectionAction::Close);
        let (_, then, text) = answer(&old.replace("1.0\r\n", "1.0\r\nConnection: Keep-Alive\r\n"));
        assert!(then == ConnectionAction::Keep && text.contains("Connection: keep-alive"));
        assert_eq!(answer("GET / HTTP/1.1\r\nConnection: close\r\n\r\n").1, ConnectionAction::Close);
        assert_eq!(answer("*1\r\n$4\r\nPING\r\n\r\n").1, ConnectionAction::Refuse);
    }
}
