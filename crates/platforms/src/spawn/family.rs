//! The processes of a guest without a control group.

use crate::helpers;

/// A process of a guest.
pub(super) struct Member {
    pub(super) pid: u32,
    state: u8,
}

impl Member {
    /// Whether it has acted on a signal that stops it (`stop`) or continues it, or will do so
    /// before it runs anything of its own. `signalled`: it was sent that signal.
    ///
    /// A process that sleeps in the kernel for a child in vfork(2), or that its tracer holds
    /// (ptrace(2)), acts on the signal as soon as it goes on; until then the signal is pending.
    pub(super) fn has_obeyed(&self, stop: bool, signalled: bool) -> bool {
        match self.state {
            b't' => signalled,
            b'D' => signalled || !stop,
            state => (state == b'T') == stop,
        }
    }
}

struct Process {
    pid: u32,
    parent: u32,
    session: u32,
    state: u8,
}

/// Returns the process, all its descendants, and all of its session, except those that have ended.
pub(super) fn of(first: u32) -> Vec<Member> {
    let all = processes();
    let mut known = vec![first];
    let mut at = 0;
    while at < known.len() {
        let parent = known[at];
        let more = all.iter().filter(|p| p.parent == parent || p.session == first).map(|p| p.pid);
        for pid in more {
            if !known.contains(&pid) {
                known.push(pid);
            }
        }
        at += 1;
    }
    all.iter()
        .filter(|process| known.contains(&process.pid) && !matches!(process.state, b'Z' | b'X'))
        .map(|process| Member { pid: process.pid, state: process.state })
        .collect()
}

fn processes() -> Vec<Process> {
    let stat = |pid| weigh_host::accounts::process_text(format!("/proc/{pid}/stat")).ok();
    helpers::processes().filter_map(|pid| read(pid, &stat(pid)?)).collect()
}

/// Reads `/proc/PID/stat` (`proc_pid_stat(5)`): the name is in parentheses and may hold anything,
/// so the fields are counted from its end.
fn read(pid: u32, stat: &str) -> Option<Process> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = *fields.next()?.as_bytes().first()?;
    let parent = fields.next()?.parse().ok()?;
    let _group = fields.next()?;
    let session = fields.next()?.parse().ok()?;
    Some(Process { pid, parent, session, state })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_hold_anything() {
        let process = read(7, "7 (a) S b) T 3 7 9 0 -1 4194304").unwrap();
        assert_eq!((process.state, process.parent, process.session), (b'T', 3, 9));
    }

    #[test]
    fn this_process_is_its_own_family() {
        let mine = std::process::id();
        assert!(of(mine).iter().any(|member| member.pid == mine && member.has_obeyed(false, false)));
    }

    #[test]
    fn what_the_kernel_or_a_tracer_holds_obeys_once_it_was_signalled() {
        let obeys = |state, stop, signalled| Member { pid: 7, state }.has_obeyed(stop, signalled);
        for signalled in [false, true] {
            assert!(obeys(b'T', true, signalled) && !obeys(b'T', false, signalled));
            assert!(obeys(b'R', false, signalled) && !obeys(b'R', true, signalled));
            assert!(obeys(b'S', false, signalled) && !obeys(b'S', true, signalled));
            assert_eq!([obeys(b'D', true, signalled), obeys(b'D', false, signalled)], [signalled, true]);
            assert_eq!([obeys(b't', true, signalled), obeys(b't', false, signalled)], [signalled; 2]);
        }
    }
}
