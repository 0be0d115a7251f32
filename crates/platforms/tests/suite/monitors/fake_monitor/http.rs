//! The part of HTTP/1.1 that a monitor's own server accepts.

use serde_json::Value;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

#[derive(Debug)]
pub struct Asked {
    pub method: String,
    pub path: String,
    pub body: Option<Value>,
}

/// Reads a connection's next request: `None` at its end, or what is wrong with the request.
pub fn read(stream: &mut UnixStream) -> io::Result<Option<Result<Asked, String>>> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte)? == 0 {
            return Ok(None);
        }
        head.push(byte[0]);
        if head.len() > 8192 {
            return Ok(Some(Err("the head of the request has no end".into())));
        }
    }
    let (asked, length) = match parse(&String::from_utf8_lossy(&head)) {
        Ok(parsed) => parsed,
        Err(reason) => return Ok(Some(Err(reason))),
    };
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    if body.is_empty() {
        return Ok(Some(Ok(asked)));
    }
    Ok(Some(match serde_json::from_slice(&body) {
        Ok(body) => Ok(Asked { body: Some(body), ..asked }),
        Err(error) => Err(format!("the body is not JSON: {error}")),
    }))
}

/// A request without its body, and the body's length.
pub fn parse(head: &str) -> Result<(Asked, usize), String> {
    let mut lines = head.split("\r\n");
    let line: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, path, "HTTP/1.1"] = line[..] else { return Err(format!("{line:?} is no request line")) };
    if !path.starts_with('/') {
        return Err(format!("{path} is no path"));
    }
    let (mut length, mut json) = (0, false);
    for line in lines.filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(": ").ok_or_else(|| format!("`{line}` is no header"))?;
        match name {
            "Content-Length" => length = value.parse().map_err(|_| format!("`{value}` is no length"))?,
            "Content-Type" => json = value == "application/json",
            "Transfer-Encoding" => return Err("bodies in pieces are not taken".into()),
            "Host" | "Accept" => {}
            other => return Err(format!("a header {other} was not expected")),
        }
    }
    if length > 0 && !json {
        return Err("a body that is not said to be JSON".into());
    }
    if length > 0 && method == "GET" {
        return Err("a GET with a body".into());
    }
    Ok((Asked { method: method.into(), path: path.into(), body: None }, length))
}

pub fn answer(stream: &mut UnixStream, status: u16, body: Option<&Value>) -> io::Result<()> {
    let text = body.map(ToString::to_string).unwrap_or_default();
    let head = format!("HTTP/1.1 {status} \r\nServer: fake\r\nConnection: keep-alive\r\n");
    let rest = match body {
        None => "\r\n".into(),
        Some(_) => format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{text}", text.len()),
    };
    stream.write_all((head + &rest).as_bytes())
}
