//! GET of one path over HTTP/1.1 connections that are kept alive (RFC 9112).

use super::protocol::{Protocol, Reply, Step, excerpt};
use super::resp;

/// The longest head of a response that is accepted.
const LONGEST_HEAD: usize = 64 << 10;

/// How every response begins.
const VERSION: &[u8] = b"HTTP/1.";

/// One thread's requests.
pub(super) struct Http {
    request: Vec<u8>,
    /// The length that every body must have; if none was given, that of the first one.
    body_bytes: Option<u64>,
    /// The last head and its meaning: most heads equal the one before.
    known: Option<(Vec<u8>, Head)>,
}

/// What the server sent instead of a response that can be read.
struct Malformed(String);

impl Malformed {
    fn quote(input: &[u8]) -> Self {
        Self(excerpt(input))
    }

    fn without_length() -> Self {
        Self("a response without Content-Length; load a file, whose length is known".into())
    }
}

/// The head of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    status: u16,
    body_bytes: u64,
    closes: bool,
}

/// A response whose head has been read.
#[derive(Debug)]
pub(super) struct Body {
    head: Head,
    left: u64,
}

impl Http {
    /// `host` is the value of the `Host` header.
    pub(super) fn new(host: &str, path: &str, body_bytes: Option<u64>) -> Self {
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: weigh-kernels\r\nAccept: */*\r\n\r\n"
        );
        Self { request: request.into_bytes(), body_bytes, known: None }
    }

    /// The head at the beginning of `input` and its length. `Ok(None)` while it is incomplete.
    fn head(&mut self, input: &[u8]) -> Result<Option<(Head, usize)>, Malformed> {
        if let Some((text, head)) = &self.known
            && input.starts_with(text)
        {
            return Ok(Some((*head, text.len())));
        }
        let start = input.len().min(VERSION.len());
        if input[..start] != VERSION[..start] {
            return Err(Malformed::quote(input));
        }
        let Some(length) = end_of_head(input) else {
            return if input.len() > LONGEST_HEAD { Err(Malformed::quote(input)) } else { Ok(None) };
        };
        let head = parse_head(&input[..length])?;
        self.known = Some((input[..length].to_vec(), head));
        Ok(Some((head, length)))
    }

    fn judge(&mut self, head: Head) -> Reply {
        if head.status != 200 {
            return Reply::Wrong(format!("status {}", head.status));
        }
        let wanted = *self.body_bytes.get_or_insert(head.body_bytes);
        if head.body_bytes != wanted {
            return Reply::Wrong(format!("a body of {} bytes, not of {wanted}", head.body_bytes));
        }
        Reply::Right
    }
}

impl Protocol for Http {
    type Expected = ();
    type Partial = Option<Body>;

    fn request(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.request);
    }

    /// A server closes a connection after a number of requests, and a GET may be repeated.
    fn repeat(&mut self, (): &(), out: &mut Vec<u8>) -> bool {
        self.request(out);
        true
    }

    fn reply(&mut self, partial: &mut Option<Body>, input: &[u8], (): &()) -> Step {
        let mut consumed = 0;
        let body = match partial {
            Some(body) => body,
            None => match self.head(input) {
                Err(Malformed(what)) => return Step::done(0, Reply::Malformed(what)),
                Ok(None) => return Step::more(0),
                Ok(Some((head, length))) => {
                    consumed = length;
                    partial.insert(Body { head, left: head.body_bytes })
                }
            },
        };
        let here = body.left.min((input.len() - consumed) as u64);
        consumed += here as usize;
        body.left -= here;
        if body.left > 0 {
            return Step::more(consumed);
        }
        let head = body.head;
        *partial = None;
        Step { consumed, reply: Some(self.judge(head)), closes: head.closes }
    }
}

/// Where the body begins, if the head is complete.
pub(in crate::kernels) fn end_of_head(input: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let (line, next) = resp::line(&input[at..])?;
        at += next;
        // Empty lines before the first line must be ignored (RFC 9112, section 2.2).
        if line.is_empty() && at > 2 {
            return Some(at);
        }
    }
}

fn parse_head(head: &[u8]) -> Result<Head, Malformed> {
    let mut lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    let version = first.strip_prefix(VERSION).ok_or_else(|| Malformed::quote(head))?;
    let status = version.get(2..5).and_then(resp::number).ok_or_else(|| Malformed::quote(first))? as u16;
    let mut body_bytes = if matches!(status, 204 | 304) { Some(0) } else { None };
    let mut closes = version.starts_with(b"0");
    for line in lines {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            body_bytes = Some(resp::number(value).ok_or_else(|| Malformed::quote(line))? as u64);
        } else if name.eq_ignore_ascii_case(b"connection") {
            closes = match value.to_ascii_lowercase().as_slice() {
                b"close" => true,
                b"keep-alive" => false,
                _ => closes,
            };
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            return Err(Malformed::without_length());
        }
    }
    match body_bytes {
        Some(body_bytes) => Ok(Head { status, body_bytes, closes }),
        None => Err(Malformed::without_length()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: &str = "HTTP/1.1 200 OK\r\nServer: test\r\ncontent-length: 5\r\n\r\nhello";

    fn http(body_bytes: Option<u64>) -> Http {
        Http::new("127.0.0.1:80", "/a", body_bytes)
    }

    #[test]
    fn a_response_is_read_in_any_pieces() {
        for split in 1..OK.len() {
            let (mut http, mut partial) = (http(None), None);
            let text = format!("{OK}{OK}");
            let first = http.reply(&mut partial, &text.as_bytes()[..split], &());
            assert!(first.reply.is_none(), "{split}");
            let second = http.reply(&mut partial, &text.as_bytes()[first.consumed..], &());
            assert_eq!(second.reply, Some(Reply::Right), "{split}");
            assert_eq!(first.consumed + second.consumed, OK.len());
        }
    }

    #[test]
    fn bodies_must_all_have_one_length() {
        let shorter = OK.replace('5', "4").replace("hello", "hell");
        let mut http = http(None);
        assert_eq!(http.reply(&mut None, OK.as_bytes(), &()).reply, Some(Reply::Right));
        assert_eq!(http.reply(&mut None, OK.as_bytes(), &()).reply, Some(Reply::Right));
        assert!(matches!(http.reply(&mut None, shorter.as_bytes(), &()).reply, Some(Reply::Wrong(_))));
        let asked = self::http(Some(4)).reply(&mut None, OK.as_bytes(), &()).reply;
        assert_eq!(asked, Some(Reply::Wrong("a body of 5 bytes, not of 4".into())));
    }

    #[test]
    fn other_statuses_are_wrong_and_other_protocols_are_malformed() {
        let reply = |text: &str| http(None).reply(&mut None, text.as_bytes(), &());
        let missing = reply("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        assert_eq!(missing.reply, Some(Reply::Wrong("status 404".into())));
        assert!(missing.closes && !reply(OK).closes);
        assert!(reply(&OK.replace("1.1", "1.0")).closes);
        for text in ["-ERR\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 2x0\r\nContent-Length: 1\r\n\r\n"] {
            assert!(matches!(reply(text).reply, Some(Reply::Malformed(_))), "{text}");
        }
        let chunked = reply("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").reply;
        assert!(matches!(chunked, Some(Reply::Malformed(why)) if why.contains("Content-Length")));
    }
}
