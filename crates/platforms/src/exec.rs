//! Programs that are run in a running guest: by the platform's own client (`docker exec`,
//! `runc exec`, `nsenter`), or by an agent in a machine.

use crate::guest::with_tail;
use crate::helpers::is_readable;
use crate::{PlatformError, Result, RunOptions, Session, SessionError};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};
use weigh_host::cgroup::Cgroup;
use weigh_host::clock::{monotonic_ns, thread_cpu_ns};
use weigh_host::command::Invocation;
use weigh_protocol::{COMMAND_PATH, Command, Input, Status};

/// How many bytes of output are read at once: what a pipe holds.
const PIECE: usize = 64 << 10;

/// A program for [`crate::Guest::exec`].
#[derive(Debug, Clone, Copy)]
pub struct ExecRequest<'a> {
    /// The program as the guest sees it, with its arguments. It must print something.
    pub argv: &'a [String],
    /// The whole standard input of the program; empty if absent.
    pub input: Option<&'a [u8]>,
    /// The most bytes of standard output that it may print.
    pub most_output: usize,
    /// The control group in which the client is started, where it is a program; weighbridge's own
    /// when absent.
    pub group: Option<&'a Cgroup>,
    /// Time limit from the client's start to the program's end.
    pub deadline: Duration,
}

/// A program that ran: its times, host's monotonic clock, nanoseconds, and its output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecResult {
    /// The client was started, or the first request was sent.
    pub started_ns: u64,
    /// The first output of the program arrived.
    pub output_ns: u64,
    /// Program and client had ended.
    pub ended_ns: u64,
    /// CPU time of this thread as the client, nanoseconds; 0 where the client is a program, which
    /// is in the request's group. An agent's own is the guest's.
    pub client_cpu_ns: u64,
    /// Its standard output.
    pub output: Vec<u8>,
}

/// Runs a program through the guest's probe, which is what the agent of a machine does: a process
/// of the guest starts the program, and input and output travel over the machine's channel. The
/// host has no other way in. The client is this thread.
///
/// # Errors
/// [`PlatformError::Exec`]: the program cannot be run, printed nothing or too much, failed, or took
/// too long. [`PlatformError::Session`]: the guest is lost.
pub(crate) fn by_agent(session: &mut Session, request: &ExecRequest<'_>) -> Result<ExecResult> {
    let failed = |what: &str| PlatformError::Exec(format!("`{}` {what}", request.argv.join(" ")));
    let command = Command {
        argv: request.argv.to_vec(),
        environment: vec![("PATH".into(), COMMAND_PATH.into())],
        working_directory: None,
        input: Input::Empty,
        output_limit_bytes: request.most_output as u64,
    };
    let deadline = weigh_host::deadlines::scaled(request.deadline);
    let cpu_before_ns = thread_cpu_ns();
    let ran = session.run(&command, RunOptions { deadline, input: request.input });
    let client_cpu_ns = thread_cpu_ns().saturating_sub(cpu_before_ns);
    let ran = ran.map_err(|error| match error {
        SessionError::Deadline { .. } => failed(&format!("did not end within {deadline:?}")),
        SessionError::Refused { reason, .. } => failed(&format!("was refused: {reason}")),
        lost => lost.into(),
    })?;
    let what = match (ran.end.status, ran.first_output_ns) {
        _ if ran.end.output_bytes > request.most_output as u64 => too_much(request),
        (Status::Exited(0), Some(output_ns)) => {
            let (started_ns, ended_ns) = (ran.host_started_ns, ran.host_ended_ns);
            return Ok(ExecResult { started_ns, output_ns, ended_ns, client_cpu_ns, output: ran.output });
        }
        (Status::Exited(0), None) => "printed nothing".into(),
        (Status::Exited(code), _) => format!("failed (exit status: {code})"),
        (Status::Signalled(signal), _) => format!("failed (signal: {signal})"),
    };
    let said = String::from_utf8_lossy(&ran.error).trim().to_string();
    Err(failed(&if said.is_empty() { what } else { format!("{what}: {said}") }))
}

/// What is wrong with a program that prints more than it may.
pub(crate) fn too_much(request: &ExecRequest<'_>) -> String {
    format!("printed more than {} bytes", request.most_output)
}

/// Runs a client that runs a program in a guest.
///
/// # Errors
/// [`PlatformError::Exec`]: it printed nothing or too much, failed, or took too long.
pub(crate) fn run(client: Invocation, request: &ExecRequest<'_>, log: &Path) -> Result<ExecResult> {
    let line = client.command_line();
    let failed = |what: &str| PlatformError::Exec(with_tail(&format!("`{line}` {what}"), log));
    let client = match request.group {
        Some(group) => client.pre_exec_cgroup(group),
        None => client,
    };
    let deadline = weigh_host::deadlines::scaled(request.deadline);
    let end = Instant::now() + deadline;
    let mut running = client.input(request.input.unwrap_or_default()).log_to(log).spawn()?;
    let mut pipe = running.take_output().map(File::from).ok_or_else(|| failed("has no output"))?;
    let left = || end.saturating_duration_since(Instant::now());
    let (mut output, mut output_ns) = (Vec::new(), None);
    let mut piece = vec![0; PIECE];
    let has_ended = loop {
        // Another process may keep the pipe open.
        if !is_readable(&pipe, left()) {
            break false;
        }
        let bytes = pipe.read(&mut piece).map_err(PlatformError::io("read the output of a program"))?;
        if bytes == 0 {
            break true;
        }
        output_ns = output_ns.or_else(|| Some(monotonic_ns()));
        output.extend_from_slice(&piece[..bytes]);
        if output.len() > request.most_output {
            return Err(failed(&too_much(request)));
        }
    };
    let status = match has_ended {
        true => running.wait(left()).map_err(PlatformError::io("wait for a program in a guest"))?,
        false => None,
    };
    let ended_ns = monotonic_ns();
    let started_ns = running.started_ns();
    match (status, output_ns) {
        (None, _) => Err(failed(&format!("did not end within {deadline:?}"))),
        (Some(status), _) if !status.success() => Err(failed(&format!("failed ({status})"))),
        (Some(_), None) => Err(failed("printed nothing")),
        (Some(_), Some(output_ns)) => {
            Ok(ExecResult { started_ns, output_ns, ended_ns, client_cpu_ns: 0, output })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use weigh_protocol::{Decoder, EndOfCommand, Reply, Request, ResourceUse, Stream, VERSION, encode};

    fn run_shell(script: &str, deadline: Duration) -> Result<ExecResult> {
        let directory = tempfile::tempdir().unwrap();
        let client = Invocation::new("/bin/sh").args(["-c", script]);
        let request = ExecRequest { argv: &[], input: None, most_output: 10, group: None, deadline };
        run(client, &request, &directory.path().join("log"))
    }

    #[test]
    fn a_program_prints_what_it_may() {
        let minute = Duration::from_secs(60);
        assert_eq!(run_shell("echo 123456789", minute).unwrap().output, b"123456789\n");
        let error = run_shell("echo 1234567890", minute).unwrap_err().to_string();
        assert!(error.contains("printed more than 10 bytes"), "{error}");
    }

    /// The deadline has passed when the output ends, whatever the client's status is.
    #[test]
    fn a_process_that_keeps_the_output_open_does_not_hide_the_deadline() {
        let error = run_shell("echo; sleep 300 &", Duration::from_millis(300)).unwrap_err().to_string();
        assert!(error.contains("did not end within 300ms"), "{error}");
    }

    /// What an agent answers to a command that writes this and ends so.
    fn answers(request: Request, written: &[(Stream, &str)], status: Status) -> Vec<Reply> {
        let Request::Run { id, .. } = request else {
            return vec![Reply::Hello { version: VERSION, pid: 1, started_ns: 1 }];
        };
        let output = |&(stream, text): &(Stream, &str)| Reply::Output { id, stream, bytes: text.into() };
        let of = |wanted: Stream| written.iter().filter(move |(stream, _)| *stream == wanted);
        let bytes = |wanted: Stream| of(wanted).map(|(_, text)| text.len() as u64).sum::<u64>();
        let end = EndOfCommand {
            status,
            duration_ns: 1,
            resources: ResourceUse::default(),
            output_bytes: bytes(Stream::Output),
            error_bytes: bytes(Stream::Error),
        };
        let started = Reply::Started { id, pid: 2 };
        std::iter::once(started).chain(written.iter().map(output)).chain([Reply::Ended { id, end }]).collect()
    }

    /// Runs a program by an agent that answers so.
    fn run_by_agent(written: Vec<(Stream, &'static str)>, status: Status) -> Result<ExecResult> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let agent = std::thread::spawn(move || {
            let (mut decoder, mut buffer) = (Decoder::new(), [0; 4096]);
            loop {
                while let Some(request) = decoder.next_message().unwrap() {
                    let mut frames = Vec::new();
                    for reply in answers(request, &written, status) {
                        encode(&reply, &mut frames).unwrap();
                    }
                    theirs.write_all(&frames).unwrap();
                }
                match theirs.read(&mut buffer).unwrap() {
                    0 => return,
                    bytes => decoder.push(&buffer[..bytes]),
                }
            }
        });
        let write = ours.try_clone().unwrap();
        let mut session = Session::new(ours.into(), write.into());
        let minute = Duration::from_secs(60);
        session.hello(minute).unwrap();
        let argv = ["/bin/program".to_string()];
        let request =
            ExecRequest { argv: &argv, input: None, most_output: 10, group: None, deadline: minute };
        let ran = by_agent(&mut session, &request);
        session.close();
        agent.join().unwrap();
        ran
    }

    #[test]
    fn an_agent_runs_a_program_and_says_how_it_failed() {
        let ran = run_by_agent(
            vec![(Stream::Error, "late"), (Stream::Output, "a"), (Stream::Output, "b\n")],
            Status::Exited(0),
        );
        let ran = ran.unwrap();
        assert_eq!(ran.output, b"ab\n");
        assert!(ran.started_ns < ran.output_ns && ran.output_ns <= ran.ended_ns, "{ran:?}");
        for (written, status, expected) in [
            (vec![], Status::Exited(0), "`/bin/program` printed nothing"),
            (
                vec![(Stream::Output, "a"), (Stream::Error, "why\n")],
                Status::Exited(3),
                "(exit status: 3): why",
            ),
            (vec![(Stream::Output, "a")], Status::Signalled(9), "failed (signal: 9)"),
        ] {
            let error = run_by_agent(written, status).unwrap_err();
            assert!(matches!(&error, PlatformError::Exec(said) if said.ends_with(expected)), "{error}");
        }
    }
}
