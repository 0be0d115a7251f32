//! The thread that plays a probe.

use super::script::{Fault, Noise, Script};
use crate::GuestRequest;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use weigh_host::clock::monotonic_ns;
use weigh_protocol::{
    ClockReading, Command, Decoder, EndOfCommand, GuestFacts, Reply, Request, ResourceUse, Status, Stream,
    VERSION, encode,
};

/// The program that plays a server.
const SERVER: &str = "serve";

/// A fake guest as it was asked for.
pub(super) struct Fake {
    pub(super) run: String,
    pub(super) request: GuestRequest,
}

/// What the guest's owner and its thread both see.
#[derive(Debug, Default)]
pub(super) struct Shared(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    frozen: bool,
    running: bool,
}

impl Shared {
    /// Freezes or thaws. A real guest would be frozen in the middle of its command; a runner that
    /// does that is wrong.
    pub(super) fn freeze(&self, frozen: bool) -> Result<(), Errno> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.running {
            return Err(Errno::BUSY);
        }
        state.frozen = frozen;
        Ok(())
    }

    /// Notes that a command begins. Returns `false` in a frozen guest; a real one would not answer.
    fn begin(&self) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.running = !state.frozen;
        state.running
    }

    fn end(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).running = false;
    }
}

struct Running {
    id: u32,
    fault: Option<Fault>,
    duration: Duration,
    /// On the guest's clock, nanoseconds.
    started_ns: u64,
    output_limit_bytes: u64,
    /// When it ends by itself, if ever.
    until: Option<Instant>,
}

struct Probe<'a> {
    stream: &'a UnixStream,
    script: Script,
    fake: &'a Fake,
    shared: &'a Shared,
    noise: Noise,
    /// Noise of the times that messages are under way, apart from `noise` so that a slow channel
    /// does not change the times of commands.
    ways: Noise,
    /// The host's clock when the guest began, nanoseconds.
    began_ns: u64,
    commands: u64,
    files: BTreeMap<String, Vec<u8>>,
    running: Option<Running>,
}

/// Answers until the channel is closed, a shutdown is asked for, or the script says die.
pub(super) fn serve(stream: &UnixStream, script: Script, fake: &Fake, shared: &Shared) {
    let GuestRequest { environment, instance, .. } = &fake.request;
    let noise = Noise::new(script.seed, &environment.to_string(), *instance);
    let ways = Noise::new(script.seed, "ways", *instance);
    let mut probe = Probe {
        stream,
        script,
        fake,
        shared,
        noise,
        ways,
        began_ns: monotonic_ns(),
        commands: 0,
        files: BTreeMap::new(),
        running: None,
    };
    let mut decoder = Decoder::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        while let Ok(Some(request)) = decoder.next_message() {
            if probe.answer(request).is_none() {
                return;
            }
        }
        match probe.wait(&mut buffer) {
            Some(n) => decoder.push(&buffer[..n]),
            None => return,
        }
    }
}

impl Probe<'_> {
    /// Waits for bytes, or for the end of a command that really takes its time. `None` at the end
    /// of the channel.
    fn wait(&mut self, buffer: &mut [u8]) -> Option<usize> {
        let due = self.running.as_ref().and_then(|running| running.until);
        let left = due.map(|until| until.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return self.finish().map(|()| 0);
        }
        self.stream.set_read_timeout(left).ok()?;
        match (&mut &*self.stream).read(buffer) {
            Ok(0) => None,
            Ok(n) => Some(n),
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) =>
            {
                Some(0)
            }
            Err(_) => None,
        }
    }

    /// The guest's clock: the host's, or one that began with the guest.
    fn clock_ns(&self) -> u64 {
        let host_ns = monotonic_ns();
        if !self.script.has_own_clock() {
            return host_ns;
        }
        (host_ns.saturating_sub(self.began_ns) as f64 * self.script.clock) as u64
    }

    /// Waits as long as a message is under way. Pieces of output travel with the answer that
    /// follows them.
    fn travel(&mut self, answer: bool) {
        let way = self.script.way(answer, &mut self.ways);
        if !way.is_zero() {
            std::thread::sleep(way);
        }
    }

    fn send(&mut self, reply: &Reply) -> Option<()> {
        if !matches!(reply, Reply::Started { .. } | Reply::Output { .. }) {
            self.travel(true);
        }
        let mut frame = Vec::new();
        encode(reply, &mut frame).ok()?;
        (&mut &*self.stream).write_all(&frame).ok()
    }

    /// Answers one request; `None` when the guest ends with it.
    fn answer(&mut self, request: Request) -> Option<()> {
        self.travel(false);
        match request {
            Request::Hello { .. } => {
                let started_ns = self.began_ns;
                self.send(&Reply::Hello { version: VERSION, pid: 1, started_ns })
            }
            Request::Run { id, command } => self.run(id, &command),
            Request::Input { id, bytes } => self.send(&Reply::InputTaken { id, bytes: bytes.len() as u32 }),
            Request::CloseInput { .. } => Some(()),
            Request::Signal { id, signal } => match &self.running {
                Some(running) if running.id == id => self.end(Status::Signalled(signal), "", ""),
                _ => Some(()),
            },
            Request::Put { id, path, first, bytes, .. } => {
                let file = self.files.entry(path).or_default();
                if first {
                    file.clear();
                }
                file.extend_from_slice(&bytes);
                self.send(&Reply::Done { id })
            }
            Request::Get { id, path, limit_bytes } => self.get(id, &path, limit_bytes),
            Request::Clock { id } => {
                let now = self.clock_ns();
                let reading = ClockReading { monotonic_ns: now, boottime_ns: now, realtime_ns: now };
                self.send(&Reply::Clock { id, reading })
            }
            Request::Facts { id, .. } => {
                let facts = self.facts();
                self.send(&Reply::Facts { id, facts: facts.into() })
            }
            Request::Shutdown { id } => self.send(&Reply::Done { id }).and(None),
        }
    }

    fn refuse(&mut self, id: u32, reason: &str, errno: Errno) -> Option<()> {
        self.send(&Reply::Refused { id, reason: reason.into(), errno: errno.raw_os_error() })
    }

    fn run(&mut self, id: u32, command: &Command) -> Option<()> {
        if self.running.is_some() {
            return self.refuse(id, "a command is running already", Errno::BUSY);
        }
        if !self.shared.begin() {
            return self.refuse(id, "the guest is frozen; thaw it before a command", Errno::AGAIN);
        }
        let fault = self.script.fault(self.commands);
        self.commands += 1;
        let duration = self.script.duration(&self.fake.run, &mut self.noise);
        if fault == Some(Fault::Missing) {
            self.shared.end();
            let program = command.argv.first().map_or("", String::as_str);
            return self.refuse(id, &format!("there is no program `{program}`"), Errno::NOENT);
        }
        self.send(&Reply::Started { id, pid: 2 })?;
        // A server runs until it is told to end.
        let serves = fault.is_none() && command.argv.first().is_some_and(|program| program == SERVER);
        let until = (fault != Some(Fault::Hang) && !serves).then(|| Instant::now() + duration);
        let output_limit_bytes = command.output_limit_bytes;
        let started_ns = self.clock_ns();
        self.running = Some(Running { id, fault, duration, started_ns, output_limit_bytes, until });
        match fault {
            Some(Fault::Die) => None,
            Some(Fault::Mute) => self.until_closed(),
            Some(Fault::Hang) => Some(()),
            _ if self.script.real || serves => Some(()),
            _ => self.finish(),
        }
    }

    /// Lets the running command end by itself, as the script says.
    fn finish(&mut self) -> Option<()> {
        let running = self.running.as_ref()?;
        let seconds = running.duration.as_secs_f64() * self.script.clock;
        let passed = running.fault != Some(Fault::Check);
        let line = serde_json::json!({
            "kernel": "null",
            "metrics": {"time": {"value": seconds, "unit": "s"}},
            "check": {"passed": passed},
        });
        match running.fault {
            Some(Fault::Exit) => self.end(Status::Exited(1), "", "the script says that this command fails\n"),
            Some(Fault::Garbage) => self.end(Status::Exited(0), "\u{1b}[2J}{ not what was promised\n", ""),
            Some(Fault::Check) => self.end(Status::Exited(3), &format!("{line}\n"), "the check failed\n"),
            _ => self.end(Status::Exited(0), &format!("{line}\n"), ""),
        }
    }

    /// Ends the running command.
    fn end(&mut self, status: Status, output: &str, error: &str) -> Option<()> {
        let Some(running) = self.running.take() else { return Some(()) };
        for (stream, text) in [(Stream::Output, output), (Stream::Error, error)] {
            let kept = text.len().min(usize::try_from(running.output_limit_bytes).unwrap_or(usize::MAX));
            if kept > 0 {
                let bytes = text.as_bytes()[..kept].to_vec();
                self.send(&Reply::Output { id: running.id, stream, bytes })?;
            }
        }
        let duration_ns = if self.script.real {
            self.clock_ns().saturating_sub(running.started_ns)
        } else {
            u64::try_from(running.duration.as_nanos()).unwrap_or(u64::MAX)
        };
        let end = EndOfCommand {
            status,
            duration_ns,
            resources: ResourceUse { user_ns: duration_ns, ..ResourceUse::default() },
            output_bytes: output.len() as u64,
            error_bytes: error.len() as u64,
        };
        self.shared.end();
        self.send(&Reply::Ended { id: running.id, end })
    }

    /// Reads and answers nothing until the channel is closed.
    fn until_closed(&mut self) -> Option<()> {
        let mut buffer = [0; 4096];
        // A failing read ends the guest as the end of the channel does.
        while (&mut &*self.stream).read(&mut buffer).is_ok_and(|n| n > 0) {}
        None
    }

    fn get(&mut self, id: u32, path: &str, limit_bytes: u64) -> Option<()> {
        let Some(content) = self.files.get(path).cloned() else {
            return self.refuse(id, &format!("there is no file {path}"), Errno::NOENT);
        };
        if content.len() as u64 > limit_bytes {
            return self.refuse(id, &format!("{path} is longer than {limit_bytes} bytes"), Errno::FBIG);
        }
        for piece in content.chunks(64 << 10) {
            self.send(&Reply::File { id, bytes: piece.to_vec() })?;
        }
        self.send(&Reply::Done { id })
    }

    fn facts(&self) -> GuestFacts {
        let host = rustix::system::uname();
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().into());
        GuestFacts {
            kernel: host.release().to_string_lossy().into_owned(),
            architecture: host.machine().to_string_lossy().into_owned(),
            boot: if self.script.own_kernel { Some("a boot of its own".into()) } else { boot.ok() },
            cpus: self.script.cpus.map_or_else(|| self.fake.request.cpus.clone(), |cpus| (0..cpus).collect()),
            memory_limit_bytes: self.fake.request.memory_bytes,
            init: true,
            user: rustix::process::geteuid().as_raw(),
            ..GuestFacts::default()
        }
    }
}
