//! Parses requests and builds replies. Only GET of three paths is served, with a host name of this
//! machine's loopback interface. The paths begin with a secret, because every user of this machine
//! can connect.

/// The largest head of a request, bytes.
pub(super) const LONGEST_HEAD: usize = 8 << 10;
/// The largest number of headers; browsers send a dozen or two.
const MOST_HEADERS: usize = 64;

/// The reply to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// The report.
    Page,
    /// The progress of the run.
    State,
    /// An empty reply, on purpose: browsers ask for an icon of the page.
    Nothing,
    /// A refusal.
    Refused(Refusal),
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    NoHttp,
    ForeignHost,
    Method,
    Unknown,
    TooLong,
}

impl Refusal {
    /// Returns the status line (RFC 9110) and a sentence.
    pub(super) fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::NoHttp => ("400 Bad Request", "this is not an HTTP/1.1 request"),
            // Otherwise a foreign host name that resolves to 127.0.0.1 would let its page read this
            // one (DNS rebinding).
            Self::ForeignHost => ("403 Forbidden", "ask for 127.0.0.1 or localhost"),
            Self::Method => ("405 Method Not Allowed", "there is nothing to change here, only to GET"),
            Self::Unknown => {
                ("404 Not Found", "there is nothing here; weigh has printed the address of the report")
            }
            Self::TooLong => {
                ("431 Request Header Fields Too Large", "the head of a request may have at most 8 KiB")
            }
        }
    }
}

/// Parses the request in a head; none if the head is not complete yet. Pages are below `secret`, a
/// directory.
pub(super) fn answer(head: &[u8], secret: &str) -> Option<Answer> {
    let is_whole = head.windows(4).any(|end| end == b"\r\n\r\n") || head.windows(2).any(|end| end == b"\n\n");
    if !is_whole {
        return (head.len() >= LONGEST_HEAD).then_some(Answer::Refused(Refusal::TooLong));
    }
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Complete(_)) => Some(answer_to(&request, secret)),
        Err(httparse::Error::TooManyHeaders) => Some(Answer::Refused(Refusal::TooLong)),
        Ok(httparse::Status::Partial) | Err(_) => Some(Answer::Refused(Refusal::NoHttp)),
    }
}

fn answer_to(request: &httparse::Request<'_, '_>, secret: &str) -> Answer {
    let mut hosts = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
    match (hosts.next(), hosts.next()) {
        (Some(host), None) if is_own(host.value) => {}
        _ => return Answer::Refused(Refusal::ForeignHost),
    }
    if request.method != Some("GET") {
        return Answer::Refused(Refusal::Method);
    }
    let path = request.path.unwrap_or_default();
    match below(path.split_once('?').map_or(path, |(path, _)| path), secret) {
        Some("/") => Answer::Page,
        Some("/state") => Answer::State,
        None if path == "/favicon.ico" => Answer::Nothing,
        _ => Answer::Refused(Refusal::Unknown),
    }
}

/// Returns the part of a path below `/secret`. The time it takes does not depend on how much of the
/// secret is right.
fn below<'a>(path: &'a str, secret: &str) -> Option<&'a str> {
    let (given, rest) = path.strip_prefix('/')?.split_at_checked(secret.len())?;
    let difference = given.bytes().zip(secret.bytes()).fold(0, |found, (a, b)| found | (a ^ b));
    (difference == 0 && !secret.is_empty()).then_some(rest)
}

/// Whether a `Host` header names the loopback interface. The port may be another one, such as that
/// of a tunnel.
fn is_own(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        Some(_) => return false,
        None => host,
    };
    name == "127.0.0.1" || name.eq_ignore_ascii_case("localhost")
}

/// Returns the head of a reply with a body of `length` bytes. It forbids caching, framing and
/// reading by other pages.
pub(super) fn head(status: &str, kind: &str, length: usize) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {length}\r\nConnection: close\r\nAllow: GET\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
         Cross-Origin-Resource-Policy: same-origin\r\nContent-Security-Policy: frame-ancestors 'none'\r\n\r\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECRET: &str = "0123456789abcdef";

    fn asked(head: &str) -> Option<Answer> {
        answer(head.replace('\n', "\r\n").as_bytes(), SECRET)
    }

    fn get(path: &str, host: &str) -> Option<Answer> {
        asked(&format!("GET {path} HTTP/1.1\nHost: {host}\nAccept: */*\n\n"))
    }

    const REFUSED: fn(Refusal) -> Option<Answer> = |refusal| Some(Answer::Refused(refusal));

    #[test]
    fn only_the_page_and_the_state_are_served() {
        let below = |path: &str| format!("/{SECRET}{path}");
        assert_eq!(get(&below("/"), "127.0.0.1:1234"), Some(Answer::Page));
        assert_eq!(get(&below("/?x=1"), "localhost:9"), Some(Answer::Page));
        assert_eq!(get(&below("/state"), "LocalHost"), Some(Answer::State));
        assert_eq!(get("/favicon.ico", "127.0.0.1"), Some(Answer::Nothing));
        for path in ["", "/state/", "/../etc/passwd", "/%2e%2e/x", "//", "/logs/x"] {
            assert_eq!(get(&below(path), "127.0.0.1"), REFUSED(Refusal::Unknown), "{path}");
        }
    }

    /// Every user of the machine can connect, but a user who does not know the address learns
    /// nothing.
    #[test]
    fn requests_without_the_secret_get_neither_page_nor_state() {
        let (almost, longer) = (format!("/{}/", &SECRET[1..]), format!("/{SECRET}0/state"));
        let wrong = format!("/{}e/", &SECRET[..15]);
        for path in
            ["/", "/state", "*", "http://127.0.0.1/", "", "/x/state", "/\u{e9}", &almost, &longer, &wrong]
        {
            assert!(!matches!(get(path, "127.0.0.1"), Some(Answer::Page | Answer::State)), "{path}");
        }
        let head = format!("GET /{SECRET}/ HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(answer(head.as_bytes(), ""), REFUSED(Refusal::Unknown), "there is always a secret");
    }

    #[test]
    fn only_names_of_the_loopback_interface_are_answered() {
        let foreign = [
            "example.org",
            "example.org:80",
            "127.0.0.1.example.org",
            "localhost.example.org:80",
            "127.0.0.2",
            "0.0.0.0",
            "[::1]:80",
            "127.0.0.1:80:80",
            "127.0.0.1:x",
            "a@127.0.0.1",
            "",
            "127.0.0.1, example.org",
        ];
        for host in foreign {
            assert_eq!(get(&format!("/{SECRET}/"), host), REFUSED(Refusal::ForeignHost), "{host}");
        }
        assert_eq!(asked("GET / HTTP/1.1\n\n"), REFUSED(Refusal::ForeignHost));
        let two = "GET / HTTP/1.1\nHost: 127.0.0.1\nHost: example.org\n\n";
        assert_eq!(asked(two), REFUSED(Refusal::ForeignHost));
    }

    #[test]
    fn only_get_is_answered_and_a_foreign_page_learns_not_even_that() {
        for method in ["POST", "HEAD", "PUT", "DELETE", "OPTIONS", "get"] {
            let ask = |host| asked(&format!("{method} / HTTP/1.1\nHost: {host}\n\n"));
            assert_eq!(ask("127.0.0.1"), REFUSED(Refusal::Method), "{method}");
            assert_eq!(ask("example.org"), REFUSED(Refusal::ForeignHost), "{method}");
        }
    }

    #[test]
    fn heads_are_waited_for_and_have_an_end() {
        let whole = format!("GET /{SECRET}/ HTTP/1.1\r\nHost: localhost\r\n\r\n");
        for length in 0..whole.len() {
            assert_eq!(answer(&whole.as_bytes()[..length], SECRET), None, "{length}");
        }
        assert_eq!(answer(whole.as_bytes(), SECRET), Some(Answer::Page));
        let with_body = format!("{whole}GET /state HTTP/1.1\r\n\r\n");
        assert_eq!(answer(with_body.as_bytes(), SECRET), Some(Answer::Page), "what follows is not looked at");
        assert_eq!(answer(&[b'x'; LONGEST_HEAD], SECRET), REFUSED(Refusal::TooLong));
        let many = "X: y\n".repeat(MOST_HEADERS + 1);
        assert_eq!(asked(&format!("GET / HTTP/1.1\n{many}\n")), REFUSED(Refusal::TooLong));
        assert_eq!(asked("\u{16}\u{3}\u{1} TLS hello\n\n"), REFUSED(Refusal::NoHttp));
        assert_eq!(asked("GET / HTTP/1.1\nno header\n\n"), REFUSED(Refusal::NoHttp));
    }

    proptest! {
        #[test]
        fn no_head_is_answered_by_accident(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let ended = [&bytes[..], b"\r\n\r\n"].concat();
            // Random words are refused, and nothing panics.
            prop_assert!(matches!(answer(&ended, SECRET), Some(Answer::Refused(_))));
        }
    }
}
