//! HTTP to the engine behind one unix socket: a connection for every request.

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, UPGRADE};
use hyper::upgrade::Upgraded;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::io;
use std::path::{Path, PathBuf};
use tokio::net::UnixStream;

/// The newest version of the engine's interface that these requests are written for, and whose
/// answers are understood.
const NEWEST: (u32, u32) = (1, 53);

/// Longest answer that is read, bytes: what loading an image reports may be long.
const LONGEST: usize = 64 << 20;

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    /// The engine answered with an error.
    #[error("{reason}")]
    Refused { status: u16, reason: String },
    /// The engine reported an error after it had begun its answer.
    #[error("{0}")]
    Failed(String),
    #[error(transparent)]
    Connection(#[from] io::Error),
    #[error(transparent)]
    Http(#[from] hyper::Error),
    #[error(transparent)]
    Request(#[from] hyper::http::Error),
    #[error("the answer is not JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("the answer has no version of the interface")]
    Version,
    #[error("the answer cannot be read: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
}

/// What a request carries.
pub(super) enum Content {
    Nothing,
    Json(Value),
    Archive(Vec<u8>),
}

impl Content {
    /// Completes a request with this content.
    fn of(self, request: hyper::http::request::Builder) -> Result<Request<Full<Bytes>>, ClientError> {
        let (request, bytes) = match self {
            Self::Nothing => (request, Bytes::new()),
            Self::Json(value) => (request.header(CONTENT_TYPE, "application/json"), value.to_string().into()),
            Self::Archive(bytes) => (request.header(CONTENT_TYPE, "application/x-tar"), bytes.into()),
        };
        Ok(request.body(Full::new(bytes))?)
    }
}

/// A client of one engine. Its requests need the event loop that they are awaited on.
#[derive(Clone)]
pub(super) struct Client {
    socket: PathBuf,
    version: (u32, u32),
}

impl Client {
    /// Connects, and asks the engine for its version of the interface unless that is known.
    pub(super) async fn connect(socket: &Path, known: Option<(u32, u32)>) -> Result<Self, ClientError> {
        if let Some(version) = known {
            return Ok(Self { socket: socket.into(), version });
        }
        let client = Self { socket: socket.into(), version: NEWEST };
        let answer = client.ask(Method::GET, "/version", Content::Nothing).await?;
        let version = answer["ApiVersion"].as_str().and_then(parse_version).ok_or(ClientError::Version)?;
        Ok(Self { version: version.min(NEWEST), ..client })
    }

    /// The version of the interface that engine and client have agreed upon.
    pub(super) fn version(&self) -> (u32, u32) {
        self.version
    }

    /// Returns the answer to a request; null if it is empty. An answer of several values is a
    /// report on progress, and the last one counts.
    pub(super) async fn ask(
        &self,
        method: Method,
        path: &str,
        content: Content,
    ) -> Result<Value, ClientError> {
        let answer = self.send(content.of(self.request(method, path))?).await?;
        let said = body_of(answer).await?;
        let mut last = Value::Null;
        for value in serde_json::Deserializer::from_slice(&said).into_iter() {
            last = value?;
            if let Some(message) = last["errorDetail"]["message"].as_str() {
                return Err(ClientError::Failed(message.into()));
            }
        }
        Ok(last)
    }

    /// Sends a request that turns its connection into one of raw bytes. Returns the connection.
    pub(super) async fn upgrade(
        &self,
        path: &str,
        content: Content,
    ) -> Result<TokioIo<Upgraded>, ClientError> {
        let request = self.request(Method::POST, path).header(CONNECTION, "Upgrade").header(UPGRADE, "tcp");
        let answer = self.send(content.of(request)?).await?;
        Ok(TokioIo::new(hyper::upgrade::on(answer).await?))
    }

    fn request(&self, method: Method, path: &str) -> hyper::http::request::Builder {
        let (major, minor) = self.version;
        // Only this request needs no version in its path.
        let uri = if path == "/version" { path.into() } else { format!("/v{major}.{minor}{path}") };
        Request::builder().method(method).uri(uri).header(HOST, "localhost")
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, ClientError> {
        let stream = UnixStream::connect(&self.socket).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection.with_upgrades());
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        if status.is_success()
            || [StatusCode::NOT_MODIFIED, StatusCode::SWITCHING_PROTOCOLS].contains(&status)
        {
            return Ok(answer);
        }
        let said = body_of(answer).await?;
        let message = serde_json::from_slice(&said)
            .ok()
            .and_then(|value: Value| value["message"].as_str().map(String::from));
        let reason = message.unwrap_or_else(|| String::from_utf8_lossy(&said).into_owned());
        Err(ClientError::Refused { status: status.as_u16(), reason: reason.trim().into() })
    }
}

/// The body of an answer.
async fn body_of(answer: Response<Incoming>) -> Result<Bytes, ClientError> {
    let body = Limited::new(answer.into_body(), LONGEST).collect().await;
    Ok(body.map_err(ClientError::Body)?.to_bytes())
}

fn parse_version(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
