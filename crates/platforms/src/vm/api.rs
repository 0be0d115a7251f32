//! The API of a machine's monitor: HTTP with JSON over a Unix socket, one request at a time, each
//! with a deadline.
//!
//! Every request has its own connection: there are few, none is part of what is measured, and no
//! answer on a broken connection can reach a later request.

use crate::with_causes;
use futures_util::future::{Either, select};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustix::fs::{Mode, OFlags};
use serde_json::Value;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Instant;
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};

/// Longest answer that is read, bytes.
const LONGEST: usize = 1 << 20;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// The monitor refused.
    #[error("it refused `{request}` ({status}): {said}")]
    Refused {
        /// Method and path.
        request: String,
        /// HTTP status.
        status: u16,
        /// The monitor's reason.
        said: String,
    },
    /// No answer came in time.
    #[error("it did not answer `{request}` in time")]
    Silent {
        /// Method and path.
        request: String,
    },
    /// Nobody listens, the connection broke, or the answer is not valid.
    #[error("it gave no valid answer to `{request}`: {reason}")]
    Lost {
        /// Method and path.
        request: String,
        /// The reason, in words.
        reason: String,
    },
}

/// A monitor behind a socket.
#[derive(Debug)]
pub(crate) struct Api {
    runtime: Runtime,
    place: OwnedFd,
    socket: String,
}

impl Api {
    /// An API on the socket of this name in a directory. The socket need not exist yet.
    ///
    /// # Errors
    /// The directory does not exist, or no file descriptor is left.
    pub(crate) fn new(place: &Path, socket: &str) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let place = rustix::fs::open(place, flags, Mode::empty())?;
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        Ok(Self { runtime, place, socket: socket.into() })
    }

    /// The path of a file in the directory, short enough for the address of a socket (unix(7)).
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        format!("/proc/self/fd/{}/{name}", self.place.as_raw_fd()).into()
    }

    /// Requests the resource at a path.
    ///
    /// # Errors
    /// [`ApiError`].
    pub(crate) fn get(&self, path: &str, until: Instant) -> Result<Value, ApiError> {
        self.call(Method::GET, path, None, until)
    }

    /// Puts a resource at a path, or requests an action that has no body.
    ///
    /// # Errors
    /// [`ApiError`].
    pub(crate) fn put(&self, path: &str, body: Option<Value>, until: Instant) -> Result<Value, ApiError> {
        self.call(Method::PUT, path, body, until)
    }

    /// Changes the resource at a path.
    ///
    /// # Errors
    /// [`ApiError`].
    pub(crate) fn patch(&self, path: &str, body: Value, until: Instant) -> Result<Value, ApiError> {
        self.call(Method::PATCH, path, Some(body), until)
    }

    fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
        until: Instant,
    ) -> Result<Value, ApiError> {
        let request = format!("{method} {path}");
        let lost = |reason: String| ApiError::Lost { request: request.clone(), reason };
        let within = until.saturating_duration_since(Instant::now());
        let answered = self.runtime.block_on(async {
            tokio::time::timeout(within, exchange(&self.path(&self.socket), method, path, body)).await
        });
        let (status, said) = match answered {
            Err(_) => return Err(ApiError::Silent { request }),
            Ok(answer) => answer.map_err(|error| lost(with_causes(&*error)))?,
        };
        if !status.is_success() {
            let said = reason(&said);
            return Err(ApiError::Refused { request, status: status.as_u16(), said });
        }
        if said.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&said).map_err(|error| lost(format!("the answer is not JSON ({error})")))
    }
}

type Fault = Box<dyn std::error::Error + Send + Sync>;

async fn exchange(
    socket: &Path,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> Result<(StatusCode, Bytes), Fault> {
    let stream = UnixStream::connect(socket).await?;
    // Spells header names as the examples in the monitors' own documentation do.
    let (mut sender, connection) =
        http1::Builder::new().title_case_headers(true).handshake(TokioIo::new(stream)).await?;
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, HeaderValue::from_static("localhost"))
        .header(ACCEPT, HeaderValue::from_static("application/json"));
    if body.is_some() {
        request = request.header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    let body = body.map_or_else(Bytes::new, |body| body.to_string().into());
    let request = request.body(Full::new(body))?;
    let asking = async {
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        let said = Limited::new(answer.into_body(), LONGEST).collect().await?.to_bytes();
        Ok((status, said))
    };
    // Both are one future, so that nothing of the connection is left when the time is up.
    match select(pin!(asking), pin!(connection)).await {
        Either::Left((answer, _)) => answer,
        Either::Right((ended, asking)) => {
            ended?;
            asking.await
        }
    }
}

/// The reason in a refusal's body: Firecracker names a fault; Cloud Hypervisor lists causes or
/// writes a sentence.
fn reason(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said).trim().to_string();
    let value: Value = serde_json::from_slice(said).unwrap_or_default();
    if let Some(fault) = value.get("fault_message").and_then(Value::as_str) {
        return fault.trim().into();
    }
    let causes = value.as_array().map(|causes| causes.iter().filter_map(Value::as_str).collect::<Vec<_>>());
    match causes.filter(|causes| !causes.is_empty()) {
        Some(causes) => causes.join(": "),
        None if text.is_empty() => "it gave no reason".into(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;
    use std::time::Duration;

    /// The client's result with a server that sends these bytes whatever it is asked, and the
    /// request that the server received.
    fn answered(
        bytes: &'static [u8],
        stays: bool,
        ask: impl FnOnce(&Api, Instant) -> Result<Value, ApiError>,
    ) -> (Result<Value, ApiError>, String) {
        let base = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(base.path().join("s")).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            let mut asked = vec![0; 4096];
            let n = stream.read(&mut asked).unwrap();
            stream.write_all(bytes).unwrap();
            if stays {
                // Until the client gives up.
                stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                let _ = stream.read(&mut [0; 16]);
            }
            String::from_utf8_lossy(&asked[..n]).into_owned()
        });
        let api = Api::new(base.path(), "s").unwrap();
        let result = ask(&api, Instant::now() + Duration::from_secs(if stays { 1 } else { 20 }));
        (result, server.join().unwrap())
    }

    fn get(api: &Api, until: Instant) -> Result<Value, ApiError> {
        api.get("/version", until)
    }

    #[test]
    fn an_answer_is_read_and_the_request_is_whole() {
        let answer =
            b"HTTP/1.1 200 \r\nServer: x\r\nConnection: keep-alive\r\nContent-Length: 7\r\n\r\n{\"a\":1}";
        let (result, asked) = answered(answer, false, get);
        assert_eq!(result.unwrap(), json!({"a": 1}));
        assert!(
            asked.starts_with("GET /version HTTP/1.1\r\n") && asked.contains("Host: localhost"),
            "{asked}"
        );
        assert!(!asked.contains("Content-Type"), "{asked}");
        let put = |api: &Api, until| api.put("/x", Some(json!({"b": 2})), until);
        let (result, asked) = answered(b"HTTP/1.1 204 \r\n\r\n", false, put);
        assert_eq!(result.unwrap(), Value::Null);
        assert!(asked.contains("Content-Type: application/json\r\n"), "{asked}");
        assert!(asked.contains("Content-Length: 7\r\n") && asked.ends_with("\r\n\r\n{\"b\":2}"), "{asked}");
    }

    #[test]
    fn a_refusal_is_quoted() {
        for (body, said) in [
            (r#"{"fault_message":"no such kernel"}"#, "no such kernel"),
            (r#"["cannot boot","no such kernel"]"#, "cannot boot: no such kernel"),
            ("no such kernel", "no such kernel"),
            ("", "it gave no reason"),
        ] {
            let answer = format!("HTTP/1.1 400 \r\nContent-Length: {}\r\n\r\n{body}", body.len());
            let (result, _) = answered(answer.leak().as_bytes(), false, get);
            match result.unwrap_err() {
                ApiError::Refused { request, status: 400, said: heard } => {
                    assert_eq!((request.as_str(), heard.as_str()), ("GET /version", said));
                }
                other => panic!("{other}"),
            }
        }
    }

    #[test]
    fn an_invalid_answer_is_reported_within_the_deadline() {
        let long =
            format!("HTTP/1.1 200 \r\nContent-Length: {}\r\n\r\n{}", LONGEST + 1, "x".repeat(LONGEST + 1));
        for (bytes, word) in [
            (b"".as_slice(), "`GET /version`"),
            (b"SSH-2.0-OpenSSH\r\n", "`GET /version`"),
            (b"HTTP/1.1 200 \r\nContent-Length: 9\r\n\r\n{\"a\"", "`GET /version`"),
            (b"HTTP/1.1 200 \r\nContent-Length: 4\r\n\r\nyes!", "not JSON"),
            (long.leak().as_bytes(), "length limit"),
        ] {
            let error = answered(bytes, false, get).0.unwrap_err();
            assert!(matches!(&error, ApiError::Lost { .. }) && error.to_string().contains(word), "{error}");
        }
        let silent = answered(b"HTTP/1.1 200 \r\n", true, get).0.unwrap_err();
        assert!(matches!(silent, ApiError::Silent { .. }), "{silent}");
        let base = tempfile::tempdir().unwrap();
        let nobody = Api::new(base.path(), "s").unwrap();
        let error = get(&nobody, Instant::now() + Duration::from_secs(20)).unwrap_err();
        assert!(matches!(error, ApiError::Lost { .. }), "{error}");
    }

    #[test]
    fn a_deep_directory_is_no_hindrance() {
        let base = tempfile::tempdir().unwrap();
        let deep = base.path().join("a".repeat(120));
        std::fs::create_dir(&deep).unwrap();
        let api = Api::new(&deep, "s").unwrap();
        let _listener = UnixListener::bind(api.path("s")).unwrap();
        assert!(deep.join("s").exists());
    }
}
