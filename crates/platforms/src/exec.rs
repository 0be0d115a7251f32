//! Programs that a platform's own client runs in a running guest: `docker exec`, `runc exec`,
//! `nsenter`.

use crate::guest::with_tail;
use crate::helpers::is_readable;
use crate::{PlatformError, Result};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};
use weigh_host::cgroup::Cgroup;
use weigh_host::clock::monotonic_ns;
use weigh_host::command::Invocation;

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
    /// The control group in which the client is started; weighbridge's own when absent.
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
    /// CPU time of this thread as the client, nanoseconds; 0 where the client is a program, which is
    /// in the request's group.
    pub client_cpu_ns: u64,
    /// Its standard output.
    pub output: Vec<u8>,
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
}
