//! Which runs of a pool come from one machine.
//!
//! A machine id names a machine. But machines that were made from one image can have one id, and
//! containers on one kernel can have several. A boot id names a kernel that runs. So runs of one
//! boot come from one machine, and runs of one machine id do, too, unless something shows that they
//! cannot. Whatever the user should check is a notice.

use super::PoolRun;
use crate::error::Failure;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use weigh_model::{Event, HostFacts, grouped};
use weigh_report::PooledMachine;
use weigh_stats::Notice;
use weigh_store::RunDirectory;

/// The part of its memory by which two reports of one machine may differ: kernels reserve some.
const MEMORY_TOLERANCE: f64 = 0.1;
/// The greatest number of groups that a notice names, and of runs of each.
const MOST_NAMED: usize = 4;
const OWN_ID: &str =
    "machines from one image can have the same /etc/machine-id: give each its own (systemd-machine-id-setup)";

/// Gives every run its machine: the index of the first run that comes from it.
pub fn assign(runs: &mut [PoolRun]) -> Vec<Notice> {
    let mut machines = vec![0; runs.len()];
    let mut containers = Vec::new();
    for (_, members) in grouped(0..runs.len(), |at| kernel(&runs[*at].host)) {
        members.iter().for_each(|at| machines[*at] = members[0]);
        let id = |at: usize| &runs[at].host.identity;
        if members.iter().any(|at| id(*at) != id(members[0])) {
            containers.push(members);
        }
    }
    let (mut clones, mut restarted) = (Vec::new(), Vec::new());
    for (_, members) in grouped(0..runs.len(), |at| runs[*at].host.identity.as_str()) {
        let kernel = |at: usize| kernel(&runs[at].host);
        if members.iter().all(|at| kernel(*at) == kernel(members[0])) {
            continue;
        }
        if are_several(&members.iter().map(|at| &runs[*at]).collect::<Vec<_>>()) {
            clones.push(members);
            continue;
        }
        for at in &members {
            let joined = [machines[members[0]], machines[*at]];
            let first = joined[0].min(joined[1]);
            machines
                .iter_mut()
                .filter(|machine| joined.contains(machine))
                .for_each(|machine| *machine = first);
        }
        restarted.push(members);
    }
    let notices = [
        (containers, "have several machine ids and were made on one kernel: they count as one machine", ""),
        (
            clones,
            "have one machine id and cannot come from one machine: each boot counts as a machine of its own",
            OWN_ID,
        ),
        (
            restarted,
            "have one machine id and were made in several boots: they count as one machine",
            "if they come from several machines, which can have the same /etc/machine-id if they were made from one image, give each its own (systemd-machine-id-setup) and measure again",
        ),
    ];
    let found = notices.iter().filter(|(groups, ..)| !groups.is_empty());
    let notice = |(groups, seen, action): &(Vec<Vec<usize>>, &str, &str)| {
        Notice::new(sentence(runs, groups, seen), *action)
    };
    let notices: Vec<Notice> = found.map(notice).collect();
    runs.iter_mut().zip(machines).for_each(|(run, machine)| run.machine = machine);
    notices
}

/// Names the running kernel of a host; if its boot is not known, its machine id has to do.
fn kernel(host: &HostFacts) -> &str {
    match host.boot.as_str() {
        "" | "unknown" => &host.identity,
        boot => boot,
    }
}

/// Whether runs with one machine id cannot all come from one machine: its CPUs or its memory would
/// have to be different, or two of its boots would have been at the same time. If they do come from
/// one machine, it is that machine's own clock that dates them.
fn are_several(runs: &[&PoolRun]) -> bool {
    let differs = |run: &&PoolRun| {
        let (own, other) = (&run.host, &runs[0].host);
        let (most, difference) =
            (own.memory_bytes.max(other.memory_bytes), own.memory_bytes.abs_diff(other.memory_bytes));
        (&own.architecture, &own.cpu_model) != (&other.architecture, &other.cpu_model)
            || difference as f64 > MEMORY_TOLERANCE * most as f64
    };
    let sessions: Vec<OnceCell<Option<Session>>> = runs.iter().map(|_| OnceCell::new()).collect();
    let session = |at: usize| sessions[at].get_or_init(|| Session::of(runs[at])).as_ref();
    let meets = |at: usize, other: usize| {
        let (Some(one), Some(other)) = (session(at), session(other)) else { return false };
        one.meets(other)
    };
    let meets_earlier = |at: usize| {
        (0..at).any(|other| kernel(&runs[at].host) != kernel(&runs[other].host) && meets(at, other))
    };
    runs.iter().any(differs) || (0..runs.len()).any(meets_earlier)
}

/// When a run began, and when it ended or was interrupted first: in UTC, as RFC 3339 writes it.
/// Only this part of a run is certain to have been measured in the boot that it names.
#[derive(Debug)]
struct Session {
    from: String,
    to: String,
}

impl Session {
    fn of(run: &PoolRun) -> Option<Self> {
        let events = RunDirectory::open(&run.path).ok()?.events().ok()?.events;
        let mut events = events.into_iter();
        let first = events.next()?;
        let first_session = events.take_while(|read| !matches!(read.event, Event::Started { .. }));
        let to = first_session.last().map_or_else(|| first.at.clone(), |last| last.at);
        Some(Self { from: first.at, to })
    }

    /// Whether both lie at one time, in seconds. No machine is started again within one.
    fn meets(&self, other: &Self) -> bool {
        self.from <= other.to && other.from <= self.to
    }
}

/// Returns the machines in the order of their first runs, each named by its first run.
///
/// # Errors
/// A machine is in two groups.
pub fn of_runs(runs: &[PoolRun]) -> Result<Vec<PooledMachine>, Failure> {
    let mut all: BTreeMap<usize, Vec<&PoolRun>> = BTreeMap::new();
    for run in runs {
        all.entry(run.machine).or_default().push(run);
    }
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for of_machine in all.values() {
        *names.entry(&of_machine[0].name).or_default() += 1;
    }
    let machine = |of_machine: &Vec<&PoolRun>| {
        let run = of_machine[0];
        if let Some(other) = of_machine.iter().find(|other| other.group != run.group) {
            let message = format!(
                "{} and {} are of one machine and in two groups, {} and {}",
                run.named, other.named, run.group, other.group
            );
            return Err(Failure::input(message).hint("a machine is of one kind; leave one of the runs out"));
        }
        let is_unique = names[run.name.as_str()] == 1;
        Ok(PooledMachine {
            name: if is_unique { run.name.clone() } else { run.named.clone() },
            group: run.group.clone(),
            runs: of_machine.iter().map(|run| run.named.clone()).collect(),
            host: run.host.clone(),
        })
    };
    all.values().map(machine).collect()
}

/// Says of groups of runs what was seen.
fn sentence(runs: &[PoolRun], groups: &[Vec<usize>], seen: &str) -> String {
    let names = |group: &Vec<usize>| {
        let names: Vec<String> = group.iter().map(|at| runs[*at].named.clone()).collect();
        some(&names, ", ")
    };
    let groups: Vec<String> = groups.iter().map(names).collect();
    format!("the runs {} {seen}", some(&groups, "; "))
}

/// Joins the first of some texts, and counts the others.
fn some(texts: &[String], separator: &str) -> String {
    let named = &texts[..texts.len().min(MOST_NAMED)];
    let more = texts.len() - named.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    named.join(separator) + &more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_meet_unless_one_is_over_before_the_other() {
        let session = |from: &str, to: &str| {
            let at = |time: &str| format!("2026-11-21T{time}:00Z");
            Session { from: at(from), to: at(to) }
        };
        let noon = session("12:00", "13:00");
        for (other, meets) in [
            (session("12:30", "14:00"), true),
            (session("11:00", "12:01"), true),
            (session("11:00", "15:00"), true),
            (session("13:00", "14:00"), true),
            (session("13:01", "14:00"), false),
            (session("10:00", "11:59"), false),
        ] {
            assert_eq!((noon.meets(&other), other.meets(&noon)), (meets, meets), "{other:?}");
        }
    }

    #[test]
    fn many_runs_are_counted() {
        let texts: Vec<String> = (0..6).map(|number| number.to_string()).collect();
        assert_eq!(some(&texts, ", "), "0, 1, 2, 3 and 2 more");
        assert_eq!(some(&texts[..2], "; "), "0; 1");
    }
}
