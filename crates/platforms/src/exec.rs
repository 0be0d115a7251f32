//! Programs that a platform's own client runs in a guest that runs: `docker exec`, `runc exec`,
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

/// A program for [`crate::Guest::exec`].
#[derive(Debug, Clone, Copy)]
pub struct ExecRequest<'a> {
    /// The program as the guest sees it, with its arguments. It must print something.
    pub argv: &'a [String],
    /// The control group in which the client is started; weighbridge's own when absent.
    pub group: Option<&'a Cgroup>,
    /// Time limit from the client's start to the program's end.
    pub deadline: Duration,
}

/// The times of a program, host's monotonic clock, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExecTimes {
    /// The client was started, or the first request was sent.
    pub started_ns: u64,
    /// The first output of the program arrived.
    pub output_ns: u64,
    /// Program and client had ended.
    pub ended_ns: u64,
}

/// Runs a client that runs a program in a guest.
///
/// # Errors
/// [`PlatformError::Exec`]: it printed nothing, failed, or took too long.
pub(crate) fn run(client: Invocation, request: &ExecRequest<'_>, log: &Path) -> Result<ExecTimes> {
    let line = client.command_line();
    let failed = |what: &str| PlatformError::Exec(with_tail(&format!("`{line}` {what}"), log));
    let client = match request.group {
        Some(group) => client.pre_exec_cgroup(group),
        None => client,
    };
    let deadline = weigh_host::deadlines::scaled(request.deadline);
    let end = Instant::now() + deadline;
    let mut running = client.log_to(log).spawn()?;
    drop(running.take_input());
    let mut output = running.take_output().map(File::from).ok_or_else(|| failed("has no output"))?;
    let in_time = is_readable(&output, deadline);
    let printed = in_time && output.read(&mut [0; 4096]).is_ok_and(|bytes| bytes > 0);
    let output_ns = monotonic_ns();
    let status = running
        .wait(end.saturating_duration_since(Instant::now()))
        .map_err(PlatformError::io("wait for a program in a guest"))?;
    let ended_ns = monotonic_ns();
    let started_ns = running.started_ns();
    match status {
        None => Err(failed(&format!("did not end within {deadline:?}"))),
        Some(status) if !status.success() => Err(failed(&format!("failed ({status})"))),
        Some(_) if !printed => Err(failed("printed nothing")),
        Some(_) => Ok(ExecTimes { started_ns, output_ns, ended_ns }),
    }
}
