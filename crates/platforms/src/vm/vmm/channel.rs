//! The channel to the probe: a vsock port behind the monitor's socket, or the console.

use super::{PORT, VSOCK};
use crate::Session;
use crate::vm::api::Api;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Pause between two attempts to reach a guest that does not listen yet.
const PAUSE: Duration = Duration::from_millis(1);
/// Time limit of one attempt: a guest that is about to listen may have lost it.
const PATIENCE: Duration = Duration::from_secs(1);
/// The number that a monitor gives to the first connection that it is asked for.
const FIRST: u32 = 1 << 30;
/// Longest line with which a monitor confirms a connection, bytes.
const LONGEST: usize = 64;

/// The channel between host and probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channel {
    /// A vsock port that the probe listens on.
    Vsock,
    /// The first serial line, shared with the console's output.
    Serial,
}

impl Channel {
    /// The value of the key `channel`.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Vsock => "vsock",
            Self::Serial => "serial",
        }
    }

    /// Parses the value of the key.
    pub(crate) fn from_key(word: &str) -> Option<Self> {
        [Self::Vsock, Self::Serial].into_iter().find(|channel| channel.key() == word)
    }

    /// The probe's argument for the channel.
    pub(crate) fn probe_argument(self) -> String {
        match self {
            Self::Vsock => format!("vsock-listen:{PORT}"),
            Self::Serial => "/dev/ttyS0".into(),
        }
    }
}

/// Connects to the probe's port through the monitor, retrying until the probe listens: a monitor
/// closes the connection to a port that nobody listens on. `lives` says whether the monitor still
/// runs. With `spare_first` the session is never on the monitor's first connection.
///
/// # Errors
/// The probe does not listen before `until`, the monitor has ended, or it answers something other
/// than that it connected.
pub(super) fn connect(
    api: &Api,
    until: Instant,
    spare_first: bool,
    mut lives: impl FnMut() -> bool,
) -> io::Result<Session> {
    loop {
        match try_connect(api, until) {
            // The probe takes the next connection in place of this one.
            Ok((_, FIRST)) if spare_first && Instant::now() < until => {}
            Ok((stream, _)) => {
                stream.set_read_timeout(None)?;
                stream.set_write_timeout(None)?;
                let write = stream.try_clone()?;
                return Ok(Session::new(stream.into(), write.into()));
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(error),
            Err(error) if Instant::now() >= until => {
                let seen = format!("the probe cannot be reached at port {PORT} of vsock: {error}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, seen));
            }
            Err(_) if !lives() => return Err(io::Error::other("the monitor has ended")),
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

/// A connection to the probe's port, and its number.
fn try_connect(api: &Api, until: Instant) -> io::Result<(UnixStream, u32)> {
    let mut stream = UnixStream::connect(api.path(VSOCK))?;
    // A shorter time would round to zero, which means no timeout at all.
    let left = until.saturating_duration_since(Instant::now()).clamp(PAUSE, PATIENCE);
    stream.set_read_timeout(Some(left))?;
    stream.set_write_timeout(Some(left))?;
    stream.write_all(format!("CONNECT {PORT}\n").as_bytes())?;
    let mut line = Vec::new();
    // Reads single bytes: what follows the line is the probe's.
    let mut byte = [0];
    while line.len() < LONGEST {
        match stream.read(&mut byte)? {
            0 => return Err(io::ErrorKind::ConnectionReset.into()),
            _ if byte[0] == b'\n' => break,
            _ => line.push(byte[0]),
        }
    }
    let confirmed = std::str::from_utf8(&line).ok().and_then(|line| line.strip_prefix("OK "));
    match confirmed.map(str::parse::<u32>) {
        Some(Ok(number)) => Ok((stream, number)),
        _ => {
            let seen = format!("the monitor says `{}` instead of OK", line.escape_ascii());
            Err(io::Error::new(io::ErrorKind::InvalidData, seen))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    /// Connects to a socket that answers successive connections with these words, and closes those
    /// for which the word is empty.
    fn reached(answers: &'static [&'static str], spare_first: bool) -> io::Result<Session> {
        let base = tempfile::tempdir().unwrap();
        let api = Api::new(base.path(), "api").unwrap();
        let listener = UnixListener::bind(base.path().join(VSOCK)).unwrap();
        let server = std::thread::spawn(move || {
            let mut streams = Vec::new();
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut asked = [0; 13];
                stream.read_exact(&mut asked).unwrap();
                assert_eq!(&asked, format!("CONNECT {PORT}\n").as_bytes());
                if !answer.is_empty() {
                    stream.write_all(answer.as_bytes()).unwrap();
                    streams.push(stream);
                }
            }
            streams
        });
        let reached = connect(&api, Instant::now() + Duration::from_secs(1), spare_first, || true);
        drop(server.join().unwrap());
        reached
    }

    #[test]
    fn the_probe_is_reached_once_it_listens() {
        reached(&["", "", "OK 1073741824\n"], false).unwrap();
    }

    /// The server waits for as many connections as it has answers.
    #[test]
    fn the_first_connection_can_be_spared() {
        reached(&["OK 1073741824\n", "OK 1073741825\n"], true).unwrap();
        reached(&["", "OK 1073741825\n"], true).unwrap();
    }

    #[test]
    fn a_monitor_with_another_protocol_is_reported() {
        for answer in
            ["NO\n", "OK x\n", "\n", "OK 12345678901234567890123456789012345678901234567890123456789012345\n"]
        {
            let error = reached(Box::leak(Box::new([answer])), false).unwrap_err();
            assert!(error.to_string().contains("instead of OK"), "{answer}: {error}");
        }
    }

    #[test]
    fn patience_ends() {
        let base = tempfile::tempdir().unwrap();
        let api = Api::new(base.path(), "api").unwrap();
        let error = connect(&api, Instant::now() + Duration::from_millis(30), false, || true).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let error = connect(&api, Instant::now() + Duration::from_secs(60), false, || false).unwrap_err();
        assert!(error.to_string().contains("ended"), "{error}");
    }
}
