//! Processes of a guest, remembered with what distinguishes them from later ones with the same PID.

use crate::{PlatformError, Result};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use weigh_host::accounts::process_text;

/// Processes that were seen.
#[derive(Debug, Default)]
pub(crate) struct ProcessTracker(Vec<(u32, Stat)>);

/// What is read of `/proc/PID/stat` (`proc_pid_stat(5)`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    /// Whether it has ended: a zombie has, even if its parent has not yet asked how.
    ended: bool,
    parent: u32,
    /// Start time, in clock ticks since boot.
    start: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = process_text(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything. The first field after it is the third of all.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let start = fields.nth(17)?.parse().ok()?;
    Some(Stat { ended: matches!(state, "Z" | "X"), parent, start })
}

/// Returns the parent of a process.
pub(crate) fn parent_of(pid: u32) -> Option<u32> {
    stat(pid).map(|stat| stat.parent)
}

/// Returns the CPU time of the children that a process has waited for, and of their children,
/// nanoseconds; a multiple of a clock tick.
pub(crate) fn ended_children_cpu_ns(pid: u32) -> u64 {
    let text = process_text(format!("/proc/{pid}/stat")).unwrap_or_default();
    let Some((_, fields)) = text.rsplit_once(')') else { return 0 };
    // Fields 16 and 17 of all, user and system.
    let ticks: u64 =
        fields.split_whitespace().skip(13).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    ticks * (1_000_000_000 / rustix::param::clock_ticks_per_second().max(1))
}

impl ProcessTracker {
    /// Remembers more processes.
    pub(crate) fn track(&mut self, pids: impl IntoIterator<Item = u32>) {
        for pid in pids {
            if let Some(stat) = stat(pid)
                && !self.0.iter().any(|(known, seen)| *known == pid && seen.start == stat.start)
            {
                self.0.push((pid, stat));
            }
        }
    }

    fn alive(&self) -> impl Iterator<Item = u32> {
        let lives =
            |(pid, seen): &&(u32, Stat)| stat(*pid).is_some_and(|now| now.start == seen.start && !now.ended);
        self.0.iter().filter(lives).map(|(pid, _)| *pid)
    }

    /// Resumes the processes that a signal has stopped: a stopped shim or monitor cannot help to
    /// end its guest.
    pub(crate) fn resume(&self) {
        for pid in self.alive().filter_map(|pid| Pid::from_raw(i32::try_from(pid).ok()?)) {
            // Refused for processes of others, when weighbridge is not root; those were not stopped
            // by its user either.
            let _ = kill_process(pid, Signal::CONT);
        }
    }

    /// Waits until all have ended. Returns whether they have.
    pub(crate) fn wait_ended(&self, deadline: Duration) -> bool {
        let end = Instant::now() + deadline;
        while self.alive().next().is_some() {
            if Instant::now() > end {
                return false;
            }
            sleep(Duration::from_millis(1));
        }
        true
    }

    /// The same, as a step of ending a guest.
    ///
    /// # Errors
    /// Some of them still run.
    pub(crate) fn ended_within(&self, deadline: Duration) -> Result<()> {
        if self.wait_ended(deadline) {
            return Ok(());
        }
        Err(PlatformError::StillThere("some of its processes are still running".into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use weigh_host::command::Invocation;

    #[test]
    fn a_process_is_revived_and_seen_to_end() {
        let child = Invocation::new("sleep").arg("60").spawn().unwrap();
        let mut tracker = ProcessTracker::default();
        tracker.track([child.pid(), child.pid(), u32::MAX]);
        assert_eq!(tracker.0.len(), 1);
        assert_eq!(parent_of(child.pid()), Some(std::process::id()));
        kill_process(Pid::from_raw(child.pid().cast_signed()).unwrap(), Signal::STOP).unwrap();
        tracker.resume();
        assert!(!tracker.wait_ended(Duration::from_millis(20)));
        let state = fs::read_to_string(format!("/proc/{}/stat", child.pid())).unwrap();
        assert!(!state.contains(") T "), "{state}");
        kill_process(Pid::from_raw(child.pid().cast_signed()).unwrap(), Signal::KILL).unwrap();
        // It stays a zombie until the handle is dropped.
        assert!(tracker.wait_ended(Duration::from_secs(5)));
        drop(child);
        assert!(tracker.wait_ended(Duration::ZERO));
    }

    #[test]
    fn work_of_children_is_counted_when_they_have_ended() {
        let script = "sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done'; echo done; sleep 60";
        let mut shell = Invocation::new("sh").args(["-c", script]).spawn().unwrap();
        let mut said = [0; 5];
        std::io::Read::read_exact(&mut fs::File::from(shell.take_output().unwrap()), &mut said).unwrap();
        assert!(ended_children_cpu_ns(shell.pid()) > 0);
        assert_eq!(ended_children_cpu_ns(u32::MAX), 0);
    }

    #[test]
    fn a_later_process_of_the_same_number_is_another() {
        let mut seen = stat(std::process::id()).unwrap();
        seen.start -= 1;
        assert!(ProcessTracker(vec![(std::process::id(), seen)]).wait_ended(Duration::ZERO));
    }
}
