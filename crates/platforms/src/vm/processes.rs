//! Processes of machines to which nobody has a handle: those that a killed weighbridge left behind.

use crate::helpers::{has_argument, is_readable, processes};
use crate::{PlatformError, Result};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::os::fd::OwnedFd;
use std::time::Duration;
use weigh_host::deadlines;

/// How long a new process may take until its arguments are visible.
const EXEC_GRACE: Duration = Duration::from_millis(20);

/// Kills the machine of this name, whichever process started it. Its process has an argument that
/// is the name, or begins with the name and a comma, and may be one by `is_owned`.
///
/// # Errors
/// The process survives. If there are several, the others are killed first.
pub(crate) fn end(name: &str, is_owned: impl Fn(u32) -> bool) -> Result<()> {
    let is_name = |word: &[u8]| word.split(|byte| *byte == b',').next() == Some(name.as_bytes());
    let is_it = |pid: u32| has_argument(pid, is_name) && is_owned(pid);
    let found =
        || -> Vec<u32> { processes().filter(|pid| is_it(*pid) && *pid != std::process::id()).collect() };
    let mut ids = found();
    if ids.is_empty() {
        // A process in the middle of execve(2) has no arguments yet to identify it by.
        std::thread::sleep(EXEC_GRACE);
        ids = found();
    }
    let mut ended = Ok(());
    for pid in ids {
        let number = Pid::from_raw(pid.cast_signed());
        let Some(handle) = number.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else { continue };
        // Checked again: from here on the handle refers to this very process.
        if is_it(pid) {
            ended = ended.and(kill(pid, &handle));
        }
    }
    ended
}

fn kill(pid: u32, handle: &OwnedFd) -> Result<()> {
    pidfd_send_signal(handle, Signal::KILL).map_err(PlatformError::io(format!("kill process {pid}")))?;
    let deadline = deadlines::death();
    if is_readable(handle, deadline) {
        return Ok(());
    }
    let what = format!("process {pid} did not end within {deadline:?} of being killed");
    Err(PlatformError::StillThere(what))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::time::Instant;
    use weigh_host::accounts::is_owned;
    use weigh_host::command::Invocation;

    /// Waits until a condition holds, which it should soon.
    pub(crate) fn until(holds: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(10);
        while !holds() {
            assert!(Instant::now() < end, "it does not hold within 10 s");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether a process has been executed and shows its arguments.
    fn has_argument(pid: u32, word: &str) -> bool {
        let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        arguments.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes())
    }

    #[test]
    fn a_machine_is_found_by_its_whole_name() {
        let name = format!("weighbridge-undo-{}", std::process::id());
        let start = |word: &str| {
            let script = "while :; do sleep 1; done";
            let running = Invocation::new("sh").args(["-c", script, "x", "-name", word]).spawn().unwrap();
            until(|| has_argument(running.pid(), word));
            running
        };
        let mut other = start(&format!("{name}1,process=x"));
        let mut it = start(&format!("{name},process=x"));
        end(&name, |pid| is_owned(pid, &[])).unwrap();
        assert!(it.wait(Duration::from_secs(5)).unwrap().is_some());
        assert!(other.try_wait().unwrap().is_none());
        end(&name, |pid| is_owned(pid, &[])).unwrap();
    }
}
