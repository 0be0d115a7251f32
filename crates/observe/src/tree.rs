//! Processes without a control group: root processes and their descendants.

use crate::cpu::{CpuUse, Placement, clock_tick_ns, process_ns};
use std::collections::BTreeSet;
use std::fs;
use weigh_host::accounts::process_text;

/// Process trees, given by their roots.
///
/// The CPU time is the sum of the CPU clocks of all processes and of their `cutime` and `cstime`,
/// the time of children that ended and were waited for. It lacks children for which nobody waits
/// (`SIGCHLD` ignored) and those that were reparented outside of the tree.
#[derive(Debug)]
pub(crate) struct Tree {
    roots: Vec<(u32, Placement)>,
}

/// The use of a tree up to a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TreeTime {
    /// CPU time.
    pub(crate) spent: CpuUse,
    /// Its uncertainty, nanoseconds: children that ended are counted in ticks.
    pub(crate) uncertainty_ns: u64,
    /// Page faults, also of children that ended.
    pub(crate) page_faults: u64,
}

impl Tree {
    pub(crate) fn new(roots: &[u32], used: &[u32]) -> Self {
        Self { roots: roots.iter().map(|pid| (*pid, Placement::of_process(Some(*pid), used))).collect() }
    }

    /// The use until now.
    pub(crate) fn read(&self) -> TreeTime {
        let mut time = TreeTime::default();
        let mut seen = BTreeSet::new();
        for (root, place) in &self.roots {
            let mut waiting = vec![*root];
            while let Some(pid) = waiting.pop() {
                if seen.insert(pid) {
                    time.count(pid, *place);
                    children(pid, &mut waiting);
                }
            }
        }
        time
    }
}

/// CPU time of the children of a process that ended and were waited for, nanoseconds in whole
/// ticks.
pub(crate) fn ended_children_ns(pid: u32) -> Option<u64> {
    let text = process_text(format!("/proc/{pid}/stat")).ok()?;
    Some(ProcessStat::parse(&text)?.children_ticks * clock_tick_ns())
}

impl TreeTime {
    fn count(&mut self, pid: u32, place: Placement) {
        let Ok(text) = process_text(format!("/proc/{pid}/stat")) else { return };
        let Some(stat) = ProcessStat::parse(&text) else { return };
        let tick = clock_tick_ns();
        let ended = stat.children_ticks * tick;
        // The clock of a process that ended since is gone; a zombie's is not.
        let own = process_ns(pid).unwrap_or(stat.own_ticks * tick);
        self.spent.add(CpuUse::of(own + ended, place));
        self.page_faults += stat.page_faults;
        if ended > 0 {
            // `cutime` and `cstime` are each rounded down to whole ticks.
            self.uncertainty_ns += 2 * tick;
        }
    }
}

/// Fields of `/proc/PID/stat` (`proc_pid_stat(5)`).
#[derive(Debug, PartialEq, Eq)]
struct ProcessStat {
    own_ticks: u64,
    children_ticks: u64,
    page_faults: u64,
}

impl ProcessStat {
    fn parse(text: &str) -> Option<Self> {
        // The name may contain anything, even closing brackets. Field 3 follows it.
        let rest = text.rsplit_once(')')?.1;
        let fields: Vec<u64> =
            rest.split_ascii_whitespace().take(15).map(|word| word.parse().unwrap_or(0)).collect();
        let field = |number: usize| fields.get(number - 3).copied();
        Some(Self {
            own_ticks: field(14)? + field(15)?,
            children_ticks: field(16)? + field(17)?,
            page_faults: field(10)? + field(11)? + field(12)? + field(13)?,
        })
    }
}

/// The children of all threads of a process, from `/proc/PID/task/TID/children`.
fn children(pid: u32, into: &mut Vec<u32>) {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return };
    for task in tasks.flatten() {
        let text = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        into.extend(text.split_ascii_whitespace().filter_map(|word| word.parse::<u32>().ok()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_hold_anything() {
        let text = "7 (a) b) 1) S 1 7 7 0 -1 4194560 10 20 3 4 100 200 30 40 20 0 1 0 99 8192 5\n";
        let stat = ProcessStat::parse(text).unwrap();
        assert_eq!(stat, ProcessStat { own_ticks: 300, children_ticks: 70, page_faults: 37 });
        assert_eq!(ProcessStat::parse("7 (x) S 1"), None);
    }

    /// A process whose name is not valid text is counted all the same.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test needs a process of its own")]
    fn names_that_are_no_text_hide_nothing() {
        use std::os::unix::ffi::OsStrExt;
        let base = tempfile::tempdir().unwrap();
        let program = base.path().join(std::ffi::OsStr::from_bytes(b"\xff) S 1 \xfe"));
        fs::copy("/bin/sleep", &program).unwrap();
        let mut child = std::process::Command::new(&program).arg("60").spawn().unwrap();
        let comm = fs::read(format!("/proc/{}/comm", child.id())).unwrap();
        let seen = Tree::new(&[child.id()], &[]).read();
        let ended = ended_children_ns(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(comm.starts_with(b"\xff"), "{comm:?}");
        assert!(seen.page_faults > 0 && ended == Some(0), "{seen:?}, {ended:?}");
    }

    /// Children that ended count as much as those that live: the shells of the tree report their
    /// own use.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test needs a process tree of its own")]
    fn ended_descendants_are_counted() {
        use std::io::{BufRead, BufReader, Write};
        let spin = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        let script = format!("sh -c '{spin}; times; read line'; {spin}; times; read line");
        let mut child = std::process::Command::new("sh")
            .args(["-c", &script])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let tree = Tree::new(&[child.id()], &[]);
        let mut input = child.stdin.take().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        // Once while the child lives, and once when it has ended and its parent has worked, too.
        let mut told_before = 0;
        for _ in 0..2 {
            let told =
                [lines.next().unwrap(), lines.next().unwrap()].iter().map(|line| used_ns(line)).sum::<u64>();
            let now = tree.read();
            // Both are in whole ticks of each process; starting shells takes one more.
            let apart = now.spent.total.abs_diff(told);
            assert!(apart <= now.uncertainty_ns + 40_000_000, "{now:?}, told: {told} ns");
            assert!(told > told_before + 80_000_000, "a spin is more than that: {told} ns");
            assert!(now.page_faults > 0, "{now:?}");
            assert_eq!(now.uncertainty_ns, if told_before == 0 { 0 } else { 2 * clock_tick_ns() }, "{now:?}");
            told_before = told;
            input.write_all(b"\n").unwrap();
        }
        child.wait().unwrap();
        assert_eq!(tree.read(), TreeTime::default(), "it is gone");
    }

    /// The sum of a line of the shell's `times`, such as `0m0.120000s 0m0.010000s`.
    fn used_ns(line: &str) -> u64 {
        let part = |part: &str| {
            let (minutes, seconds) = part.trim_end_matches('s').split_once('m').unwrap();
            minutes.parse::<u64>().unwrap() * 60_000_000_000 + (seconds.parse::<f64>().unwrap() * 1e9) as u64
        };
        line.split_whitespace().map(part).sum()
    }
}
