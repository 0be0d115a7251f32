//! The part of the QEMU Machine Protocol that weighbridge needs: commands and events as lines of
//! JSON over a socket.
//!
//! Source: QEMU, `docs/interop/qmp-spec.txt` and the QMP reference manual.

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::{Value, json};
use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use weigh_host::clock::monotonic_ns;

/// Longest line that is read, bytes.
const LONGEST: usize = 1 << 20;
/// How many events are kept for later; a guest can cause an unlimited number.
const MOST_EVENTS: usize = 1000;

/// Why a command has no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum QmpError {
    /// QEMU refused.
    #[error("QEMU refused `{command}`: {said}")]
    Refused {
        /// The command.
        command: String,
        /// QEMU's description of the error.
        said: String,
    },
    /// No answer came in time.
    #[error("QEMU did not answer `{waiting}` in time")]
    Silent {
        /// What was waited for.
        waiting: String,
    },
    /// QEMU closed the socket, or does not speak the protocol.
    #[error("QEMU {0}")]
    Lost(String),
}

impl From<QmpError> for crate::vm::readback::MonitorError {
    fn from(error: QmpError) -> Self {
        Self(error.to_string())
    }
}

/// The monitor of one QEMU.
#[derive(Debug)]
pub(super) struct Qmp {
    stream: UnixStream,
    buffer: Vec<u8>,
    events: Vec<Event>,
}

/// An event that QEMU sent.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Event {
    /// Such as `RESUME`.
    pub(super) name: String,
    /// Its data; null if it has none.
    pub(super) data: Value,
    /// When it was read, on the host's monotonic clock, nanoseconds.
    pub(super) seen_ns: u64,
}

impl Qmp {
    /// Reads the greeting and ends the negotiation of capabilities.
    ///
    /// # Errors
    /// No greeting came before `until`.
    pub(super) fn new(stream: UnixStream, until: Instant) -> Result<Self, QmpError> {
        let mut qmp = Self { stream, buffer: Vec::new(), events: Vec::new() };
        loop {
            let message = qmp.next(until, "greeting")?;
            if message.get("QMP").is_some() {
                break;
            }
        }
        qmp.execute("qmp_capabilities", json!({}), until)?;
        Ok(qmp)
    }

    /// Runs a command and returns its result.
    ///
    /// # Errors
    /// [`QmpError`].
    pub(super) fn execute(
        &mut self,
        command: &str,
        arguments: Value,
        until: Instant,
    ) -> Result<Value, QmpError> {
        let mut line = json!({"execute": command, "arguments": arguments}).to_string();
        line.push('\n');
        self.set_timeout(until, command)?;
        self.stream.write_all(line.as_bytes()).map_err(|error| failed(&error, command))?;
        self.result(command, until)
    }

    /// Passes QEMU a descriptor, which later commands refer to by `name` (`getfd`).
    ///
    /// # Errors
    /// [`QmpError`].
    pub(super) fn give(
        &mut self,
        name: &str,
        descriptor: BorrowedFd<'_>,
        until: Instant,
    ) -> Result<(), QmpError> {
        const COMMAND: &str = "getfd";
        let mut line = json!({"execute": COMMAND, "arguments": {"fdname": name}}).to_string();
        line.push('\n');
        self.set_timeout(until, COMMAND)?;
        let descriptors = [descriptor];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        let sent =
            sendmsg(&self.stream, &[IoSlice::new(line.as_bytes())], &mut ancillary, SendFlags::NOSIGNAL);
        match sent {
            Ok(n) if n == line.len() => self.result(COMMAND, until).map(drop),
            Ok(_) => Err(QmpError::Lost("takes no more commands".into())),
            Err(errno) => Err(failed(&errno.into(), COMMAND)),
        }
    }

    /// Waits for the result of a command.
    fn result(&mut self, command: &str, until: Instant) -> Result<Value, QmpError> {
        loop {
            let mut message = self.next(until, command)?;
            if let Some(result) = message.get_mut("return") {
                return Ok(result.take());
            }
            if let Some(error) = message.get("error") {
                let said = error.get("desc").and_then(Value::as_str).unwrap_or("it gave no reason").into();
                return Err(QmpError::Refused { command: command.into(), said });
            }
        }
    }

    /// The event of that name: one that arrived since the last call, else the next.
    ///
    /// # Errors
    /// No such event came before `until`.
    pub(super) fn event(&mut self, name: &str, until: Instant) -> Result<Event, QmpError> {
        loop {
            if let Some(at) = self.events.iter().position(|event| event.name == name) {
                return Ok(self.events.drain(..=at).next_back().expect("the range holds the event"));
            }
            self.next(until, name)?;
        }
    }

    /// All events that have not been taken yet, up to `until` or QEMU's end.
    pub(super) fn last_events(&mut self, until: Instant) -> Vec<Event> {
        while self.next(until, "its end").is_ok() {}
        std::mem::take(&mut self.events)
    }

    /// Reads the next message; also keeps events for later.
    fn next(&mut self, until: Instant, waiting: &str) -> Result<Value, QmpError> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                let message: Value = serde_json::from_slice(&line)
                    .map_err(|_| QmpError::Lost("said something that is not JSON".into()))?;
                if let Some(name) = message.get("event").and_then(Value::as_str) {
                    let data = message.get("data").cloned().unwrap_or_default();
                    let excess = (self.events.len() + 1).saturating_sub(MOST_EVENTS);
                    self.events.drain(..excess);
                    self.events.push(Event { name: name.into(), data, seen_ns: monotonic_ns() });
                }
                return Ok(message);
            }
            if self.buffer.len() > LONGEST {
                return Err(QmpError::Lost("said something without an end".into()));
            }
            self.set_timeout(until, waiting)?;
            let mut piece = [0; 4096];
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(QmpError::Lost("ended".into())),
                Ok(n) => self.buffer.extend_from_slice(&piece[..n]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(&error, waiting)),
            }
        }
    }

    fn set_timeout(&self, until: Instant, waiting: &str) -> Result<(), QmpError> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(QmpError::Silent { waiting: waiting.into() });
        }
        // A shorter time would round to zero, which means no timeout at all.
        let left = Some(left.max(Duration::from_millis(1)));
        let set = self.stream.set_read_timeout(left).and_then(|()| self.stream.set_write_timeout(left));
        set.map_err(|error| failed(&error, waiting))
    }
}

fn failed(error: &io::Error, waiting: &str) -> QmpError {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => QmpError::Silent { waiting: waiting.into() },
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => QmpError::Lost("ended".into()),
        _ => QmpError::Lost(format!("cannot be talked to: {error}")),
    }
}

/// Talks to a monitor that sends these bytes whatever it is asked, for fuzzing.
pub fn fuzz(said: &[u8]) {
    let Ok((ours, mut theirs)) = UnixStream::pair() else { return };
    let said = &said[..said.len().min(64 << 10)];
    let until = Instant::now() + Duration::from_secs(5);
    let is_said = theirs.write_all(said).and_then(|()| theirs.shutdown(std::net::Shutdown::Write));
    let (Ok(()), Ok(mut qmp)) = (is_said, Qmp::new(ours, until)) else { return };
    let _ = qmp.execute("query-kvm", json!({}), until);
    let _ = qmp.event("RESUME", until);
    qmp.last_events(until);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::os::fd::AsFd;
    use std::thread::JoinHandle;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(5)
    }

    /// A fake QEMU that answers every line with the next of these texts.
    fn fake(answers: &'static [&'static str]) -> (UnixStream, JoinHandle<Vec<String>>) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let answering = std::thread::spawn(move || {
            theirs.write_all(b"{\"QMP\": {\"version\": {}, \"capabilities\": []}}\r\n").unwrap();
            let mut heard = Vec::new();
            let mut lines = BufReader::new(theirs.try_clone().unwrap()).lines();
            for answer in answers {
                let Some(Ok(line)) = lines.next() else { break };
                heard.push(line);
                theirs.write_all(answer.as_bytes()).unwrap();
            }
            heard
        });
        (ours, answering)
    }

    #[test]
    fn commands_have_results_and_events_are_kept() {
        let (stream, fake) = fake(&[
            "{\"return\": {}}\r\n",
            "{\"event\": \"RESUME\", \"timestamp\": {}}\r\n{\"return\": {\"running\": true}}\r\n",
            "{\"event\": \"SHUTDOWN\", \"data\": {\"guest\": true}}\r\n{\"return\": {}}\r\n",
            "{\"error\": {\"class\": \"GenericError\", \"desc\": \"no such thing\"}}\r\n",
            "{\"error\": {}}\r\n",
            "{\"event\": \"STOP\"}\n",
        ]);
        let mut qmp = Qmp::new(stream, soon()).unwrap();
        assert_eq!(qmp.execute("cont", json!({}), soon()).unwrap(), json!({"running": true}));
        let before = monotonic_ns();
        assert!(qmp.event("RESUME", soon()).unwrap().seen_ns <= before);
        let file = std::fs::File::open("/dev/null").unwrap();
        qmp.give("null", file.as_fd(), soon()).unwrap();
        let error = qmp.execute("wish", json!({"for": 1}), soon()).unwrap_err();
        assert_eq!(error.to_string(), "QEMU refused `wish`: no such thing");
        let error = qmp.execute("wish", json!({}), soon()).unwrap_err();
        assert_eq!(error.to_string(), "QEMU refused `wish`: it gave no reason");
        let error = qmp.execute("stop", json!({}), soon()).unwrap_err();
        assert!(matches!(error, QmpError::Lost(_)), "{error}");
        assert_eq!(
            qmp.last_events(soon()).iter().map(|event| event.name.as_str()).collect::<Vec<_>>(),
            ["SHUTDOWN", "STOP"]
        );
        let heard = fake.join().unwrap();
        assert_eq!(heard[2], r#"{"execute":"getfd","arguments":{"fdname":"null"}}"#);
        assert_eq!(heard[3], r#"{"execute":"wish","arguments":{"for":1}}"#);
    }

    #[test]
    fn silence_and_rubbish_are_distinguished() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let started = Instant::now();
        let error = Qmp::new(ours, started + Duration::from_millis(80)).unwrap_err();
        assert!(matches!(error, QmpError::Silent { .. }), "{error}");
        assert!((80..2000).contains(&started.elapsed().as_millis()));
        drop(theirs);
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(b"Segmentation fault\n").unwrap();
        let error = Qmp::new(ours, soon()).unwrap_err();
        assert!(error.to_string().contains("not JSON"), "{error}");
    }
}
