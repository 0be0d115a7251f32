//! The channel to a probe in a container: the engine's attached streams, copied to and from a pair
//! of sockets.
//!
//! The engine wraps both output streams into one, in its own frames; a thread with the client's
//! event loop takes them apart. It ends when the container's output ends or when the session's side
//! is closed.

use super::client::{Client, Content};
use super::engine::{Engine, EngineError, call};
use crate::exec::ExecRequest;
use futures_util::future::{Either, select};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy, split};
use tokio::net::UnixStream;
use weigh_host::clock::monotonic_ns;

/// How long the container may still write to the log after the session's side is closed.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// How many bytes are copied at once.
const PIECE: usize = 64 << 10;

/// The number of standard error in the header of a frame.
const STANDARD_ERROR: u8 = 2;

/// The thread that copies.
pub(super) struct Channel {
    thread: Option<JoinHandle<()>>,
}

impl Channel {
    /// Attaches to a container that has not been started yet, so that none of its output is missed.
    /// Returns the session's side for reading and for writing. The container's standard error goes
    /// to `log`.
    ///
    /// # Errors
    /// The engine refused, or the sockets or the thread could not be made.
    pub(super) fn open(
        engine: Engine,
        container: &str,
        log: &Path,
    ) -> Result<(Self, OwnedFd, OwnedFd), EngineError> {
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let write = theirs.try_clone()?;
        let log = log.to_path_buf();
        let (report, attached) = mpsc::channel();
        let name = container.to_string();
        let thread = std::thread::Builder::new().name("docker attach".into()).spawn(move || {
            let (runtime, client) = engine.into_parts();
            runtime.block_on(serve(&client, &name, ours, log, &report));
        })?;
        let channel = Self { thread: Some(thread) };
        match attached.recv() {
            Ok(Ok(())) => Ok((channel, theirs.into(), write.into())),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(io::Error::other("its thread ended").into()),
        }
    }

    /// Waits for the thread, which ends at most [`LAST_WORDS`] after the session is closed.
    pub(super) fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(
    client: &Client,
    container: &str,
    ours: StdUnixStream,
    log: PathBuf,
    report: &mpsc::Sender<Result<(), EngineError>>,
) {
    let path = format!("/containers/{container}/attach?stream=true&stdin=true&stdout=true&stderr=true");
    let begun = async {
        let ours = UnixStream::from_std(ours)?;
        let attached = call("attach to a container", client.upgrade(&path, Content::Nothing)).await?;
        Ok::<_, EngineError>((ours, attached))
    };
    let (mut ours, attached) = match begun.await {
        Ok(begun) => begun,
        Err(error) => {
            let _ = report.send(Err(error));
            return;
        }
    };
    let _ = report.send(Ok(()));
    let (mut from_session, mut to_session) = ours.split();
    let (mut output, mut input) = split(attached);
    let inward = async {
        // Either end may vanish at any time; what matters is that the container's standard input
        // ends with the session.
        let _ = copy(&mut from_session, &mut input).await;
        let _ = input.shutdown().await;
        tokio::time::sleep(LAST_WORDS).await;
    };
    let outward = async {
        let mut listening = true;
        while let Ok((stream, mut left)) = frame(&mut output).await {
            while let Some(piece) = piece(&mut output, &mut left).await {
                match stream {
                    STANDARD_ERROR => drop(weigh_host::log::append(&log, &piece)),
                    _ if listening => listening = to_session.write_all(&piece).await.is_ok(),
                    _ => {}
                }
            }
        }
        let _ = to_session.shutdown().await;
    };
    // The first to end ends the other: without output there is no session.
    select(pin!(inward), pin!(outward)).await;
}

/// What a program said.
#[derive(Default)]
pub(super) struct ProgramOutput {
    /// When the first of its standard output arrived, host's monotonic clock, nanoseconds.
    pub(super) output_ns: Option<u64>,
    /// Its standard output.
    pub(super) output: Vec<u8>,
    /// It printed more than it may; the rest was not read.
    pub(super) too_much: bool,
    /// The beginning of its standard error.
    pub(super) error: String,
}

/// Gives a program its input and reads its output to the end, or to the most that it may print.
pub(super) async fn program(
    attached: impl AsyncRead + AsyncWrite,
    request: &ExecRequest<'_>,
) -> ProgramOutput {
    let (mut output, mut stdin) = split(attached);
    let inward = async {
        if let Some(input) = request.input {
            // A program that ends early reads no more.
            let _ = stdin.write_all(input).await;
            let _ = stdin.shutdown().await;
        }
    };
    let outward = async {
        let (mut said, mut error) = (ProgramOutput::default(), Vec::new());
        'all: while let Ok((stream, mut left)) = frame(&mut output).await {
            while let Some(piece) = piece(&mut output, &mut left).await {
                match stream {
                    STANDARD_ERROR if error.len() < PIECE => error.extend(piece),
                    STANDARD_ERROR => {}
                    _ if said.output.len() + piece.len() > request.most_output => {
                        said.too_much = true;
                        break 'all;
                    }
                    _ => {
                        said.output_ns = said.output_ns.or_else(|| Some(monotonic_ns()));
                        said.output.extend(piece);
                    }
                }
            }
        }
        said.error = String::from_utf8_lossy(&error).trim().into();
        said
    };
    match select(pin!(outward), pin!(inward)).await {
        Either::Left((said, _)) => said,
        Either::Right(((), outward)) => outward.await,
    }
}

/// Reads the header of the next frame: the first byte is the stream, the last four of eight are the
/// length of what follows.
async fn frame(output: &mut (impl AsyncRead + Unpin)) -> io::Result<(u8, u32)> {
    let mut header = [0; 8];
    output.read_exact(&mut header).await?;
    let [stream, _, _, _, length @ ..] = header;
    Ok((stream, u32::from_be_bytes(length)))
}

/// Reads the next piece of a frame with `left` bytes left; `None` at its end and the stream's.
async fn piece(output: &mut (impl AsyncRead + Unpin), left: &mut u32) -> Option<Vec<u8>> {
    let mut piece = vec![0; (*left as usize).min(PIECE)];
    let read = output.read(&mut piece).await.ok().filter(|read| *read > 0)?;
    piece.truncate(read);
    *left -= read as u32;
    Some(piece)
}
