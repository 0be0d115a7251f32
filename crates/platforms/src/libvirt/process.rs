//! A domain's QEMU as a process of the host, identified by the domain's name on its command line.

use crate::Result;
use crate::helpers::{allowed_cpus, has_argument, processes};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fs;
use weigh_host::accounts::is_owned;

/// The word by which QEMU's command line names a domain.
fn word_of(domain: &str) -> String {
    format!("guest={domain}")
}

/// Whether a process may be a domain's QEMU, by its user. Root asks for root in the document of every
/// domain. Whoever else asks a daemon of the system gets QEMU as the user whom that daemon names.
fn may_be_a_domain(process: u32) -> bool {
    !weigh_host::facts::is_root() || is_owned(process, &[])
}

/// The QEMU process of a domain, if it runs.
pub(super) fn of_domain(name: &str) -> Option<u32> {
    let word = word_of(name);
    let is_it = |argument: &[u8]| argument.split(|byte| *byte == b',').next() == Some(word.as_bytes());
    with(is_it).filter(|pid| may_be_a_domain(*pid)).last()
}

/// Processes of this user that have `word` as an argument.
pub(super) fn with_argument(word: &str) -> Vec<u32> {
    let own = with(|argument| !word.is_empty() && argument == word.as_bytes());
    own.filter(|pid| is_owned(*pid, &[])).collect()
}

fn with(is_it: impl Fn(&[u8]) -> bool) -> impl Iterator<Item = u32> {
    processes().filter(move |pid| *pid != std::process::id() && has_argument(*pid, &is_it))
}

/// Kills a domain's QEMU, wherever it is.
///
/// # Errors
/// The process survives.
pub(super) fn end_domain(name: &str) -> Result<()> {
    crate::vm::processes::end(&word_of(name), may_be_a_domain)
}

/// The CPUs that each of these threads of a process may run on.
pub(super) fn places(process: u32, threads: impl Iterator<Item = u32>) -> Vec<Vec<u32>> {
    let place = |thread| {
        let list = allowed_cpus(process, thread);
        list.and_then(|list| weigh_model::parse_cpu_list(&list).ok()).unwrap_or_default()
    };
    threads.map(place).collect()
}

/// The threads of a process, each with the CPUs that it may run on.
pub(super) struct Affinities(Vec<(Pid, CpuSet)>);

impl Affinities {
    pub(super) fn of(process: u32) -> Self {
        let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        let threads = threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok());
        let of_thread = |thread| Some((thread, sched_getaffinity(Some(thread)).ok()?));
        Self(threads.filter_map(Pid::from_raw).filter_map(of_thread).collect())
    }

    /// Sets them again. Before Linux 6.2 a thread that is moved to another control group of the
    /// controller `cpuset` may run on all CPUs of that group, whatever it was pinned to.
    pub(super) fn restore(&self) {
        for (thread, cpus) in &self.0 {
            // One that has ended needs none; one whose CPUs the group excludes is found when the
            // placement is checked.
            let _ = sched_setaffinity(Some(*thread), cpus);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use weigh_host::command::Invocation;

    #[test]
    fn a_domain_is_found_by_its_whole_name() {
        let name = format!("weighbridge-libvirt-{}", std::process::id());
        // The shell stops itself. A child would have the same arguments for a moment.
        let script = ["-c", "kill -STOP $$", "x", "-name"];
        let start = |word: &str| Invocation::new("sh").args(script).arg(word).spawn().unwrap();
        let mut other = start(&format!("guest={name}1,debug-threads=on"));
        let mut it = start(&format!("guest={name},debug-threads=on"));
        // Before exec, a shell has this test's arguments, or none.
        crate::vm::processes::tests::until(|| of_domain(&format!("{name}1")) == Some(other.pid()));
        crate::vm::processes::tests::until(|| of_domain(&name) == Some(it.pid()));
        assert_eq!(with_argument(&format!("guest={name},debug-threads=on")), [it.pid()]);
        assert!(with_argument("").is_empty());
        end_domain(&name).unwrap();
        assert!(it.wait(Duration::from_secs(5)).unwrap().is_some());
        assert!(other.try_wait().unwrap().is_none());
        assert_eq!(of_domain(&name), None);
    }

    /// Another user can start processes of any arguments, as many and as often as they like.
    #[test]
    fn processes_of_other_users_are_no_domain() {
        if !weigh_host::facts::is_root() {
            eprintln!("SKIPPED processes_of_other_users_are_no_domain: needs root");
            return;
        }
        let name = format!("weighbridge-libvirt-others-{}", std::process::id());
        let word = format!("guest={name},debug-threads=on");
        let user = ["--reuid=65534", "--regid=65534", "--clear-groups"];
        let script = ["sh", "-c", "sleep 60; true", "x", "-name", &word];
        let mut theirs = Invocation::new("setpriv").args(user).args(script).spawn().unwrap();
        let is_word = |found: &[u8]| found == word.as_bytes();
        crate::vm::processes::tests::until(|| {
            !is_owned(theirs.pid(), &[]) && has_argument(theirs.pid(), is_word)
        });
        assert_eq!(of_domain(&name), None);
        end_domain(&name).unwrap();
        assert!(theirs.try_wait().unwrap().is_none(), "it is not ours to kill");
    }

    #[test]
    fn threads_stay_on_their_cpus() {
        let mut child = Invocation::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_raw(child.pid().cast_signed());
        let all = sched_getaffinity(pid).unwrap();
        let mut one = CpuSet::new();
        one.set((0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)).unwrap());
        sched_setaffinity(pid, &one).unwrap();
        let pinned = Affinities::of(child.pid());
        sched_setaffinity(pid, &all).unwrap();
        pinned.restore();
        assert_eq!(sched_getaffinity(pid).unwrap(), one);
        child.kill_group();
    }

    #[test]
    fn places_are_those_of_the_threads() {
        let own = std::process::id();
        let found = places(own, [own, u32::MAX].into_iter());
        assert_eq!(found, [weigh_host::facts::allowed_cpus(), vec![]]);
    }
}
