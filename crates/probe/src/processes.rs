//! Children of the probe: its command, and orphans, which the kernel reparents to the probe as the
//! nearest subreaper.

use crate::signals::last_errno;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use rustix::fs::{Mode, OFlags, RawDir};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpid, kill_process};
use weigh_protocol::{ResourceUse, Status};

/// A child that has ended and is not reaped; `Err(ECHILD)` if there are no children.
pub fn peek() -> Result<Option<Pid>, Errno> {
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: an all-zero siginfo_t is valid; waitid fills it, and leaves the PID at 0 when no
    // child has ended (waitid(2)).
    unsafe {
        let mut info: libc::siginfo_t = core::mem::zeroed();
        while libc::waitid(libc::P_ALL, 0, &raw mut info, options) < 0 {
            let errno = last_errno();
            if errno != Errno::INTR {
                return Err(errno);
            }
        }
        Ok(Pid::from_raw(info.si_pid()))
    }
}

/// Reaps a child, waiting for its end.
pub fn wait4(pid: Pid) -> Option<(Status, ResourceUse)> {
    let mut status = 0;
    // SAFETY: an all-zero rusage is valid, and both pointers are to valid memory.
    let usage = unsafe {
        let mut usage: libc::rusage = core::mem::zeroed();
        while libc::wait4(pid.as_raw_nonzero().get(), &raw mut status, 0, &raw mut usage) < 0 {
            if last_errno() != Errno::INTR {
                return None;
            }
        }
        usage
    };
    let status = if libc::WIFSIGNALED(status) {
        Status::Signalled(libc::WTERMSIG(status))
    } else {
        Status::Exited(libc::WEXITSTATUS(status))
    };
    let nanoseconds = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
    let resources = ResourceUse {
        user_ns: nanoseconds(usage.ru_utime),
        system_ns: nanoseconds(usage.ru_stime),
        // Linux counts it in KiB (getrusage(2)).
        maximum_resident_set_bytes: usage.ru_maxrss as u64 * 1024,
        minor_faults: usage.ru_minflt as u64,
        major_faults: usage.ru_majflt as u64,
        voluntary_switches: usage.ru_nvcsw as u64,
        involuntary_switches: usage.ru_nivcsw as u64,
    };
    Some((status, resources))
}

/// Kills every child. Their children are reparented to the probe then, so this must be called again
/// until there are none.
pub fn kill_children() {
    let me = getpid();
    if me.is_init() {
        // As PID 1 of its namespace: all but itself (kill(2)).
        // SAFETY: sends a signal.
        unsafe { libc::kill(-1, libc::SIGKILL) };
        return;
    }
    // Only the probe reaps its children, so their numbers cannot be reused here.
    for child in numbers_in_proc().into_iter().filter(|pid| parent_of(*pid) == Some(me)) {
        let _ = kill_process(child, Signal::KILL);
    }
}

fn numbers_in_proc() -> Vec<Pid> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(proc) = rustix::fs::open("/proc", flags, Mode::empty()) else { return Vec::new() };
    let mut buffer = Vec::with_capacity(8 << 10);
    let mut entries = RawDir::new(proc, buffer.spare_capacity_mut());
    let mut numbers = Vec::new();
    while let Some(Ok(entry)) = entries.next() {
        let number = entry.file_name().to_str().ok().and_then(|name| name.parse().ok());
        numbers.extend(number.and_then(Pid::from_raw));
    }
    numbers
}

/// The fourth field of `/proc/PID/stat`; the second is a name in parentheses that may contain
/// anything (proc_pid_stat(5)).
fn parent_of(pid: Pid) -> Option<Pid> {
    let text: String = crate::files::read_small(&format!("/proc/{}/stat", pid.as_raw_nonzero()))?;
    Pid::from_raw(text[text.rfind(')')? + 1..].split_whitespace().nth(1)?.parse().ok()?)
}
