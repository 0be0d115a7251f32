//! Running mmdebstrap.

use super::BuildError;
use crate::FileError;
use crate::make::{MakeError, Progress};
use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::path::Path;
use std::time::{Duration, Instant};
use weigh_host::command::Invocation;

/// Deadline of a build.
pub(super) const DEADLINE: Duration = Duration::from_secs(30 * 60);
/// How often the log is read for progress.
const POLL: Duration = Duration::from_millis(250);

/// A program in its own mount and process namespace, which the kernel ends with the thread that
/// starts it (setpriv(1), unshare(1)): no process of a build outlives weighbridge, and none of its
/// mounts is visible outside.
pub(super) fn confined(program: &Path, arguments: &[OsString]) -> Invocation {
    Invocation::new("setpriv")
        .args(["--pdeathsig", "KILL", "--"])
        .args(["unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--"])
        // Its standard output goes into the log, too.
        .args(["/bin/sh", "-c", "exec \"$@\" >&2", "sh"])
        .arg(program)
        .args(arguments)
        .env("LC_ALL", "C.UTF-8")
        .env("DEBIAN_FRONTEND", "noninteractive")
}

/// Runs a build to its end and reports its progress.
pub(super) fn to_end(build: Invocation, log: &Path, progress: &Progress<'_>) -> Result<(), BuildError> {
    let end = Instant::now() + DEADLINE;
    let mut running = build.log_to(log).spawn()?;
    drop((running.take_input(), running.take_output()));
    let mut seen = 0;
    loop {
        let ended = running.wait(POLL).map_err(FileError::of("wait for the build logged in", log))?;
        seen = report_steps(log, seen, progress).map_err(FileError::of("read", log))?;
        match ended {
            Some(status) if status.success() => return Ok(()),
            Some(status) => {
                let text = fs::read_to_string(log).unwrap_or_default();
                let mut last: Vec<&str> =
                    text.lines().rev().filter(|line| !line.trim().is_empty()).take(4).collect();
                last.reverse();
                let (status, said) = (status.to_string(), last.join("; "));
                return Err(BuildError::Failed { status, said, log: log.into() });
            }
            // Dropping it kills it.
            None if progress.interrupted() => return Err(MakeError::Interrupted.into()),
            None if Instant::now() > end => {
                return Err(BuildError::Deadline { after: DEADLINE, log: log.into() });
            }
            None => {}
        }
    }
}

/// Reports the steps logged since the offset `seen`, and returns the new offset.
fn report_steps(log: &Path, mut seen: u64, progress: &Progress<'_>) -> io::Result<u64> {
    let mut file = BufReader::new(fs::File::open(log)?);
    file.seek(SeekFrom::Start(seen))?;
    let mut line = Vec::new();
    while file.read_until(b'\n', &mut line)? > 0 && line.ends_with(b"\n") {
        seen += line.len() as u64;
        if let Some(step) = String::from_utf8_lossy(&line).strip_prefix("I: ") {
            progress.report(step.trim_end());
        }
        line.clear();
    }
    Ok(seen)
}
