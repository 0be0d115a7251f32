//! Running the program that builds the image.

use super::BuildError;
use crate::making::{KeepError, Watch};
use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::path::Path;
use std::time::{Duration, Instant};
use weigh_host::command::Invocation;

/// For the whole build.
pub(super) const DEADLINE: Duration = Duration::from_secs(30 * 60);
/// How often the log is looked at for news.
const NEWS: Duration = Duration::from_millis(250);

/// A program in a mount and process namespace of its own, which the kernel ends with the thread
/// that starts it (setpriv(1), unshare(1)): nothing of a build outlives weighbridge, and no mount
/// of it is ever seen outside.
pub(super) fn confined(program: &Path, arguments: &[OsString]) -> Invocation {
    Invocation::new("setpriv")
        .args(["--pdeathsig", "KILL", "--"])
        .args(["unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--"])
        // Its standard output belongs into the log, too.
        .args(["/bin/sh", "-c", "exec \"$@\" >&2", "sh"])
        .arg(program)
        .args(arguments)
        .env("LC_ALL", "C.UTF-8")
        .env("DEBIAN_FRONTEND", "noninteractive")
}

/// Runs a build to its end and tells what it says.
pub(super) fn to_end(build: Invocation, log: &Path, watch: &Watch<'_>) -> Result<(), BuildError> {
    let end = Instant::now() + DEADLINE;
    let mut running = build.log_to(log).spawn()?;
    drop((running.take_input(), running.take_output()));
    let mut seen = 0;
    loop {
        let ended = running.wait(NEWS).map_err(BuildError::io("wait for the build logged in", log))?;
        seen = news(log, seen, watch).map_err(BuildError::io("read", log))?;
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
            // Dropped, it is killed.
            None if watch.interrupted() => return Err(KeepError::Interrupted.into()),
            None if Instant::now() > end => {
                return Err(BuildError::Deadline { after: DEADLINE, log: log.into() });
            }
            None => {}
        }
    }
}

/// Tells the steps that were logged since `seen`, bytes, and returns how much was looked at.
fn news(log: &Path, mut seen: u64, watch: &Watch<'_>) -> io::Result<u64> {
    let mut file = BufReader::new(fs::File::open(log)?);
    file.seek(SeekFrom::Start(seen))?;
    let mut line = Vec::new();
    while file.read_until(b'\n', &mut line)? > 0 && line.ends_with(b"\n") {
        seen += line.len() as u64;
        if let Some(step) = String::from_utf8_lossy(&line).strip_prefix("I: ") {
            watch.say(step.trim_end());
        }
        line.clear();
    }
    Ok(seen)
}
