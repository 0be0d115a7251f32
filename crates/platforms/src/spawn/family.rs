//! The processes of a guest without a control group.

use crate::helpers;

/// A process of a guest.
pub(super) struct Member {
    pub(super) pid: u32,
    pub(super) stopped: bool,
    pub(super) uninterruptible: bool,
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
        .map(|process| Member {
            pid: process.pid,
            stopped: process.state == b'T',
            uninterruptible: process.state == b'D',
        })
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
        assert!(of(mine).iter().any(|member| member.pid == mine && !member.stopped));
    }
}
