//! Processes, distinguished from later ones with the same number.

use procfs::process::{Process, Stat};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// What `/proc/PID/stat` says of a process; `None` if it has ended.
fn stat(pid: u32) -> Option<Stat> {
    Process::new(i32::try_from(pid).ok()?).ok()?.stat().ok()
}

/// Start time of a process in clock ticks since boot, field 22 of `/proc/PID/stat`
/// (`proc_pid_stat(5)`). Together with the number it identifies a process within one boot.
pub(crate) fn start_ticks(pid: u32) -> Option<u64> {
    Some(stat(pid)?.starttime)
}

/// Whether a process with this number and start time exists and is no zombie.
pub(crate) fn is_alive(pid: u32, start: u64) -> bool {
    stat(pid).is_some_and(|stat| stat.starttime == start && !matches!(stat.state, 'Z' | 'X'))
}

/// Whether this is a thread of the kernel: `PF_KTHREAD` among the flags, field 9 of
/// `/proc/PID/stat` (`include/linux/sched.h`).
pub(crate) fn is_kernel_thread(pid: u32) -> bool {
    const PF_KTHREAD: u32 = 0x0020_0000;
    stat(pid).is_some_and(|stat| stat.flags & PF_KTHREAD != 0)
}

/// A handle that always refers to this process, even if its number is reused (`pidfd_open(2)`);
/// `None` if it has ended.
pub(crate) fn handle(pid: u32) -> rustix::io::Result<Option<OwnedFd>> {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(None) };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(fd) => Ok(Some(fd)),
        Err(rustix::io::Errno::SRCH) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Sends SIGKILL. It is not an error if the process has ended.
pub(crate) fn kill(handle: impl AsFd) -> rustix::io::Result<()> {
    match pidfd_send_signal(handle, Signal::KILL) {
        Err(rustix::io::Errno::SRCH) | Ok(()) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Waits for the end of a process. Returns whether it ended in time.
pub(crate) fn wait_end(handle: impl AsFd, deadline: Duration) -> bool {
    let end = Instant::now() + deadline;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// The processes of a session (`setsid(2)`) including its leader, without zombies.
pub(crate) fn of_session(session: u32) -> Vec<u32> {
    let Ok(all) = procfs::process::all_processes() else { return Vec::new() };
    all.filter_map(|process| process.ok()?.stat().ok())
        .filter(|stat| u32::try_from(stat.session) == Ok(session) && !matches!(stat.state, 'Z' | 'X'))
        .filter_map(|stat| u32::try_from(stat.pid).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_the_kernel_are_told_apart() {
        assert!(!is_kernel_thread(std::process::id()));
        let name = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        // In a PID namespace this number is another process's.
        if name(2).trim() == "kthreadd" {
            assert!(is_kernel_thread(2));
        }
    }
}
