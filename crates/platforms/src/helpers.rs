//! Small tools that several platforms need.

use crate::Result;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};
use weigh_host::command::Invocation;

/// How long a program may take to print its version.
const VERSION_DEADLINE: Duration = Duration::from_secs(20);

/// Returns everything that a program prints about its version.
pub(crate) fn version_text(program: &Path) -> Result<String> {
    // ch-run refuses callers without a user name in the environment, which a service lacks.
    let asked = Invocation::new(program).arg("--version").env("USER", "root").deadline(VERSION_DEADLINE);
    let answer = asked.run_ok()?;
    // ch-run prints it to its standard error.
    let said = if answer.output.is_empty() { answer.error } else { answer.output };
    Ok(String::from_utf8_lossy(&said).trim().into())
}

/// Returns the first line of [`version_text`].
pub(crate) fn version_line(program: &Path) -> Result<String> {
    Ok(version_text(program)?.lines().next().unwrap_or_default().into())
}

/// The hash FNV-1a of 64 bits, for names that must be short and the same on every machine.
pub(crate) fn fnv_1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// Waits until there is something to read, the other end is closed, or the process of a handle has
/// ended. Returns whether that happened in time.
pub(crate) fn is_readable(descriptor: impl AsFd, within: Duration) -> bool {
    let end = Instant::now() + within;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&timeout)) {
            Err(Errno::INTR) => {}
            ready => return matches!(ready, Ok(1..)),
        }
    }
}

/// Returns the IDs of the host's processes.
pub(crate) fn processes() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Whether any argument on a process's command line satisfies `is_it`. A zombie has no arguments
/// any more, and a process in the middle of execve(2) has none yet.
pub(crate) fn has_argument(process: u32, is_it: impl Fn(&[u8]) -> bool) -> bool {
    let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).any(is_it)
}

/// Returns the CPUs that a thread of a process may run on, as the kernel lists them: `0-3,8`.
pub(crate) fn allowed_cpus(process: u32, thread: u32) -> Option<String> {
    let status = weigh_host::accounts::process_text(format!("/proc/{process}/task/{thread}/status")).ok()?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(list.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn versions_are_read_from_either_output() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("program");
        for (script, version) in [("echo 1.2; echo careful >&2", "1.2"), ("echo 0.31 >&2", "0.31")] {
            std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
            assert_eq!(version_text(&program).unwrap(), version);
        }
    }
}
