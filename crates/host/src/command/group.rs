//! A child and its process group.

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::Duration;

/// A child that leads its process group.
///
/// It stays a zombie until no more signals are sent to its group, so that the number of the group
/// cannot be reused before that.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) child: Child,
    handle: OwnedFd,
    ended: Option<ExitStatus>,
    reaped: bool,
}

impl Group {
    pub(super) fn new(mut child: Child) -> io::Result<Self> {
        match crate::process::handle(child.id()) {
            Ok(Some(handle)) => Ok(Self { child, handle, ended: None, reaped: false }),
            other => {
                let _ = child.kill();
                let _ = child.wait();
                Err(other.err().unwrap_or(rustix::io::Errno::SRCH).into())
            }
        }
    }

    /// The exit status of the leader, if it ends within the time.
    pub(super) fn wait(&mut self, time: Duration) -> io::Result<Option<ExitStatus>> {
        if self.ended.is_none() && crate::process::wait_end(&self.handle, time) {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            let status = waitid(WaitId::PidFd(self.handle.as_fd()), options)?;
            self.ended = status.and_then(|status| {
                let raw = status.exit_status().map(|code| code << 8).or(status.terminating_signal());
                raw.map(ExitStatus::from_raw)
            });
        }
        Ok(self.ended)
    }

    pub(super) fn kill(&mut self) {
        if self.reaped {
            return;
        }
        if let Some(group) = Pid::from_raw(self.child.id() as i32) {
            // ESRCH cannot happen, because the leader is at least a zombie. After EPERM a second
            // try would also fail.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    /// Reaps the leader. A process that does not end in time after SIGKILL, because it waits for a
    /// dead disk, is left to the kernel.
    pub(super) fn reap(&mut self) {
        if !self.reaped && crate::process::wait_end(&self.handle, Duration::from_secs(5)) {
            let _ = self.child.wait();
            self.reaped = true;
        }
    }
}
