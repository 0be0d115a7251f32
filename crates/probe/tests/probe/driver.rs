//! The host's side of the protocol, kept plain so that the tests see every message.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use weigh_protocol::{
    Command, Decoder, EndOfCommand, GuestFacts, Input, Questions, Reply, Request, Status, Stream, VERSION,
    encode,
};

/// The program that is tested.
pub fn probe_path() -> String {
    std::env::var("WEIGH_PROBE").unwrap_or_else(|_| env!("CARGO_BIN_EXE_weigh-probe").into())
}

/// Far longer than anything should take; the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A started probe.
pub struct Driver {
    pub child: Child,
    pub write: Option<File>,
    read: File,
    decoder: Decoder,
    last_id: u32,
    /// Bytes of requests that a probe on a terminal has acknowledged.
    pub taken: usize,
}

/// A command that ended.
#[derive(Debug)]
pub struct Ended {
    pub end: EndOfCommand,
    pub output: Vec<u8>,
    pub error: Vec<u8>,
}

impl Ended {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.output).unwrap()
    }
}

/// A program with arguments, nothing in its environment but PATH.
pub fn command(argv: &[&str]) -> Command {
    Command {
        argv: argv.iter().map(ToString::to_string).collect(),
        environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
        working_directory: None,
        input: Input::Empty,
        output_limit_bytes: 1 << 20,
    }
}

/// A shell script.
pub fn shell(script: &str) -> Command {
    command(&["sh", "-c", script])
}

#[expect(clippy::disallowed_methods, reason = "the tests start the probe as a platform would, without any")]
pub fn program(path: impl AsRef<Path>) -> std::process::Command {
    std::process::Command::new(path.as_ref())
}

/// The message with which the probe refuses a command line.
pub fn refused(words: &[&str]) -> String {
    let output = program(probe_path()).args(words).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{words:?}");
    String::from_utf8(output.stderr).unwrap()
}

impl Driver {
    /// A probe that has said hello.
    pub fn start() -> Self {
        Self::start_as(program(probe_path()))
    }

    pub fn start_as(mut command: std::process::Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let write = OwnedFd::from(child.stdin.take().unwrap());
        let read = OwnedFd::from(child.stdout.take().unwrap());
        Self::over(child, read, write)
    }

    /// Says hello over these descriptors, and receives the answer.
    pub fn over(child: Child, read: OwnedFd, write: OwnedFd) -> Self {
        let mut driver = Self::unheard(child, read, write);
        driver.send(&Request::Hello { version: VERSION });
        driver.hear();
        driver
    }

    /// A probe on a device, which says hello unasked.
    pub fn announced(child: Child, read: OwnedFd, write: OwnedFd) -> Self {
        let mut driver = Self::unheard(child, read, write);
        driver.hear();
        driver
    }

    fn unheard(child: Child, read: OwnedFd, write: OwnedFd) -> Self {
        Self {
            child,
            write: Some(File::from(write)),
            read: File::from(read),
            decoder: Decoder::new(),
            last_id: 0,
            taken: 0,
        }
    }

    fn hear(&mut self) {
        assert!(matches!(self.next(), Reply::Hello { version: VERSION, .. }));
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn id(&mut self) -> u32 {
        self.last_id += 1;
        self.last_id
    }

    pub fn send(&mut self, request: &Request) {
        let mut frame = Vec::new();
        encode(request, &mut frame).unwrap();
        self.write.as_mut().unwrap().write_all(&frame).unwrap();
    }

    /// The next message, or `None` when none comes within the time.
    pub fn wait(&mut self, patience: Duration) -> Option<Reply> {
        let until = Instant::now() + patience;
        loop {
            match self.decoder.next_message().unwrap() {
                Some(Reply::Taken { bytes }) => {
                    self.taken += bytes as usize;
                    continue;
                }
                Some(reply) => return Some(reply),
                None => {}
            }
            let left = until.saturating_duration_since(Instant::now());
            let timeout = Timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos().into() };
            if poll(&mut [PollFd::new(&self.read, PollFlags::IN)], Some(&timeout)).unwrap() == 0 {
                return None;
            }
            let mut buffer = [0; 64 << 10];
            let n = self.read.read(&mut buffer).unwrap();
            assert!(n > 0, "the probe closed the channel");
            self.decoder.push(&buffer[..n]);
        }
    }

    pub fn next(&mut self) -> Reply {
        self.wait(PATIENCE).expect("the probe answers")
    }

    /// Starts a command and waits for the reply that it runs.
    pub fn begin(&mut self, command: Command) -> (u32, u32) {
        let id = self.id();
        self.send(&Request::Run { id, command });
        match self.next() {
            Reply::Started { id: of, pid } if of == id => (id, pid),
            other => panic!("not started: {other:?}"),
        }
    }

    /// Collects the output of a command until it has ended.
    pub fn finish(&mut self, id: u32) -> Ended {
        let (mut output, mut error) = (Vec::new(), Vec::new());
        loop {
            match self.next() {
                Reply::Output { id: of, stream: Stream::Output, bytes } if of == id => output.extend(bytes),
                Reply::Output { id: of, stream: Stream::Error, bytes } if of == id => error.extend(bytes),
                Reply::InputTaken { .. } => {}
                Reply::Ended { id: of, end } if of == id => return Ended { end, output, error },
                other => panic!("out of order: {other:?}"),
            }
        }
    }

    pub fn run(&mut self, command: Command) -> Ended {
        let (id, _) = self.begin(command);
        self.finish(id)
    }

    /// Runs a command that must succeed, and returns its output.
    pub fn output_of(&mut self, command: Command) -> String {
        let ended = self.run(command);
        assert_eq!(ended.end.status, Status::Exited(0), "{}", String::from_utf8_lossy(&ended.error));
        ended.text().to_string()
    }

    /// The reason and error number with which a command is refused.
    pub fn refusal_of(&mut self, command: Command) -> (String, i32) {
        let id = self.id();
        self.send(&Request::Run { id, command });
        match self.next() {
            Reply::Refused { id: of, reason, errno } if of == id => (reason, errno),
            other => panic!("not refused: {other:?}"),
        }
    }

    /// Requests the shutdown, which the probe answers before it ends.
    pub fn shut_down(&mut self) {
        let id = self.id();
        self.send(&Request::Shutdown { id });
        assert_eq!(self.next(), Reply::Done { id });
        assert_eq!(self.exit_code(), Some(0));
    }

    /// The facts of the guest.
    pub fn facts(&mut self, about: Questions) -> GuestFacts {
        let id = self.id();
        self.send(&Request::Facts { id, about });
        match self.next() {
            Reply::Facts { id: of, facts } if of == id => *facts,
            other => panic!("no facts: {other:?}"),
        }
    }

    /// A number of the probe's process: the one after `name` in a file of its directory in /proc.
    pub fn number(&self, file: &str, name: &str) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/{file}", self.pid().as_raw_nonzero())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// Waits until the probe has ended.
    pub fn exit_code(&mut self) -> Option<i32> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        panic!("the probe does not end");
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.write = None;
        // The probe ends by itself in tests that pass; this is for tests that do not.
        let until = Instant::now() + Duration::from_secs(3);
        while self.child.try_wait().is_ok_and(|status| status.is_none()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a process exists and is not a zombie.
pub fn is_alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat[stat.rfind(')').unwrap()..].starts_with(") Z"))
}

/// Waits for something to become true.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < until, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub fn kill(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}
