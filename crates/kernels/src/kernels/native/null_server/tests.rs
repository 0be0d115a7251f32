use super::*;
use std::io::{Read, Write};
use std::net::TcpStream;

/// The server's answers on one connection to two pieces of input. The first piece, unless it is
/// alone, ends inside a request that follows a complete one.
fn answers(protocol: Protocol, first: &[u8], second: &[u8]) -> Vec<u8> {
    let mut heard = Vec::new();
    let sizes = Sizes { value: 12, body: 3 };
    beside(protocol, sizes, |address| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
        stream.write_all(first).unwrap();
        if !second.is_empty() {
            // The first reply arrives when the server has read the first piece.
            heard.push(0);
            stream.read_exact(&mut heard).unwrap();
            stream.write_all(second).unwrap();
        }
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        stream.read_to_end(&mut heard).unwrap();
        Ok(Outcome::new())
    })
    .unwrap();
    heard
}

#[test]
fn redis_and_http_answer_the_requests_of_tools() {
    let redis = answers(Protocol::Redis, b"*1\r\n$4\r\nPING\r\n*2\r\n$3", b"\r\nGET\r\n$3\r\nabc\r\n");
    assert_eq!(redis, b"+PONG\r\n$12\r\nabcxxxxxxxxx\r\n");
    let first = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /a HT";
    let http = answers(Protocol::Http, first, b"TP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let text = String::from_utf8(http).unwrap();
    assert_eq!(text.matches("\r\n\r\nxxx").count(), 2, "{text}");
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\nxxx"), "{text}");
}

#[test]
fn another_protocol_ends_the_connection() {
    assert!(answers(Protocol::Echo, b"GET / HTTP/1.1\r\n\r\n", b"").is_empty());
    assert!(answers(Protocol::Redis, b"*x\r\n", b"").starts_with(b"-ERR"));
}

/// More than the sockets hold: the server must neither wait for its client to read nor lose the
/// rest of its replies.
#[test]
fn answers_beyond_all_buffers_come_whole() {
    const REQUESTS: usize = 40;
    const BODY: usize = 1 << 20;
    let sizes = Sizes { value: 0, body: BODY };
    beside(Protocol::Http, sizes, |address| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        stream.write_all("GET / HTTP/1.1\r\n\r\n".repeat(REQUESTS).as_bytes()).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n").unwrap();
        let heard = std::io::copy(&mut stream, &mut std::io::sink()).unwrap();
        assert!(heard > ((REQUESTS + 1) * BODY) as u64, "{heard}");
        Ok(Outcome::new())
    })
    .unwrap();
}
