//! The monitor's threads: which of them are the guest's CPUs, and where they may run.
//!
//! A thread inherits the CPUs on which its creator may run. So before a machine boots, all threads
//! of its monitor are confined to the run's CPUs. Afterwards the guest's CPU threads are pinned and
//! the others are released: no CPU of a guest ever runs elsewhere, not even at first.

use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::time::{Duration, Instant};

/// Time limit for new threads to get their names.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(1);

/// Why a monitor's threads could not be placed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ThreadError {
    #[error("it has {found} CPU threads for the guest's {wanted} CPUs")]
    Count { found: usize, wanted: usize },
    #[error("weigh's own CPUs cannot be read: {0}")]
    Own(Errno),
    #[error("its thread {name} cannot be placed: {errno}")]
    Place { name: String, errno: Errno },
}

/// Confines every thread of a process to some CPUs.
///
/// # Errors
/// A thread cannot be placed.
pub(super) fn confine(process: u32, cpus: &[u32]) -> Result<(), ThreadError> {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu as usize));
    threads(process).into_iter().try_for_each(|(thread, name)| move_to(thread, &name, &set))
}

/// Pins the guest's CPU threads, and lets the others run wherever this process may.
///
/// # Errors
/// The number of such threads differs from the number of CPUs, or one cannot be placed.
pub(super) fn place(
    process: u32,
    cpus: &[u32],
    which: impl Fn(&str) -> Option<usize>,
) -> Result<(), ThreadError> {
    let until = Instant::now() + PATIENCE;
    loop {
        let threads = threads(process);
        let mut found: Vec<usize> = threads.iter().filter_map(|(_, name)| which(name)).collect();
        found.sort_unstable();
        if found.iter().copied().eq(0..cpus.len()) {
            return place_each(&threads, cpus, which);
        }
        if Instant::now() > until {
            return Err(ThreadError::Count { found: found.len(), wanted: cpus.len() });
        }
        std::thread::sleep(PAUSE);
    }
}

fn place_each(
    threads: &[(i32, String)],
    cpus: &[u32],
    which: impl Fn(&str) -> Option<usize>,
) -> Result<(), ThreadError> {
    let everywhere = sched_getaffinity(None).map_err(ThreadError::Own)?;
    threads.iter().try_for_each(|(thread, name)| match which(name) {
        Some(cpu) => {
            let mut set = CpuSet::new();
            set.set(cpus[cpu] as usize);
            move_to(*thread, name, &set)
        }
        None => move_to(*thread, name, &everywhere),
    })
}

fn move_to(thread: i32, name: &str, set: &CpuSet) -> Result<(), ThreadError> {
    match sched_setaffinity(Pid::from_raw(thread), set) {
        // The thread may have ended meanwhile.
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(errno) => Err(ThreadError::Place { name: name.into(), errno }),
    }
}

/// The threads of a process, by number and name.
fn threads(process: u32) -> Vec<(i32, String)> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    tasks
        .filter_map(|task| {
            let number = task.file_name().to_str()?.parse().ok()?;
            let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
            Some((number, name.trim_end().to_string()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn cpus_of_the_guest_are_pinned_and_others_left_alone() {
        let all = weigh_host::facts::allowed_cpus();
        let last = *all.last().unwrap();
        let (end, wait) = channel::<()>();
        let (tell, told) = channel();
        let of_guest = std::thread::Builder::new().name("wb_cpu 0".into()).spawn(move || {
            tell.send(rustix::thread::gettid()).unwrap();
            let _ = wait.recv();
        });
        let thread = told.recv().unwrap();
        let which = |name: &str| name.strip_prefix("wb_cpu ")?.parse().ok();
        place(std::process::id(), &[last], which).unwrap();
        let set = sched_getaffinity(Some(thread)).unwrap();
        assert!(set.count() == 1 && set.is_set(last as usize));
        assert_eq!(sched_getaffinity(None).unwrap().count() as usize, all.len());
        let error = place(std::process::id(), &[last, last], which).unwrap_err();
        assert_eq!(error.to_string(), "it has 1 CPU threads for the guest's 2 CPUs");
        drop(end);
        of_guest.unwrap().join().unwrap();
    }
}
