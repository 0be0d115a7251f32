//! Ends: a guest in any state can be ended, and nothing of it stays. Leftovers are searched for
//! after every check.

use super::bench::{Bench, MINUTE, command, must_be_told, run, shell};
use crate::common::{is_left, patience};
use rustix::process::{Pid, Signal, kill_process};
use std::time::{Duration, Instant};
use weigh_platforms::{Availability, Guest, RunOptions, SessionError};
use weigh_protocol::Status;

/// Time limit for an unwilling guest to end.
const PATIENCE: Duration = Duration::from_secs(40);

/// Signals the guest's own processes, including its probe. A helper that serves it, such as an
/// engine's monitor, is not part of the guest: a platform cannot undo a helper that hangs. Of a
/// machine, the host only sees the program that executes it.
fn signal_all(bench: &Bench, guest: &dyn Guest, signal: Signal) {
    let mut signalled = 0;
    for process in guest
        .processes()
        .into_iter()
        .filter(|process| !bench.capabilities.shares_kernel || is_of_the_guest(*process))
    {
        // A process may be gone: the end of the first can end the others.
        let _ = kill_process(Pid::from_raw(process.cast_signed()).unwrap(), signal);
        signalled += 1;
    }
    assert!(signalled > 0 || !bench.executes(), "the guest's processes are known: {:?}", guest.processes());
}

/// Whether a process is the probe or a descendant of it.
fn is_of_the_guest(mut process: u32) -> bool {
    while process > 1 {
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{process}/stat")) else { return false };
        let end_of_name = stat.rfind(')').unwrap();
        if stat[..end_of_name].ends_with("probe") {
            return true;
        }
        process = stat[end_of_name + 1..].split_whitespace().nth(1).unwrap().parse().unwrap();
    }
    false
}

fn stop(mut guest: Box<dyn Guest>) {
    let started = Instant::now();
    guest.stop().unwrap();
    assert!(started.elapsed() < patience(PATIENCE), "{:?}", started.elapsed());
    guest.stop().unwrap();
    assert!(guest.processes().is_empty(), "{:?}", guest.processes());
    assert!(guest.session().clock().is_err(), "a guest that was stopped still answers");
}

/// A guest that is dropped is stopped.
pub fn dropped(bench: &Bench) {
    let mut guest = bench.guest();
    if bench.executes() {
        guest.session().start(&command(&["sleep", "300"])).unwrap();
    }
    let processes = guest.processes();
    drop(guest);
    // A process leaves its control group a moment before it is a zombie.
    let until = Instant::now() + patience(Duration::from_millis(200));
    for process in processes {
        while is_left(process) {
            assert!(Instant::now() < until, "{process}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Every process of a busy guest is known, and is ended.
pub fn busy(bench: &Bench) {
    let mut guest = bench.guest();
    if bench.executes() {
        guest.session().start(&shell("setsid sleep 300 & while :; do :; done")).unwrap();
        if bench.capabilities.shares_kernel {
            let line = |pid: &u32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let ours = |pid: &u32| String::from_utf8_lossy(&line(pid)).contains("sleep");
            // The shell, whose script contains the word, and its child.
            let until = Instant::now() + patience(Duration::from_secs(5));
            while guest.processes().iter().filter(|pid| ours(pid)).count() < 2 {
                assert!(Instant::now() < until, "{:?}", guest.processes());
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
    stop(guest);
}

/// A guest whose processes no longer run is ended.
pub fn hung(bench: &Bench) {
    let guest = bench.guest();
    signal_all(bench, &*guest, Signal::STOP);
    stop(guest);
}

/// A guest that was killed is noticed at once.
pub fn dead(bench: &Bench) {
    let mut guest = bench.guest();
    if bench.executes() {
        let id = guest.session().start(&command(&["sleep", "300"])).unwrap();
        signal_all(bench, &*guest, Signal::KILL);
        let started = Instant::now();
        let error = guest.session().finish(id, MINUTE).unwrap_err();
        assert!(matches!(error, SessionError::Lost { .. }), "{error}");
        assert!(started.elapsed() < patience(Duration::from_secs(10)), "{:?}", started.elapsed());
        assert!(guest.session().is_lost());
    }
    stop(guest);
}

/// A frozen guest is stopped like any other.
pub fn frozen(bench: &Bench) {
    let mut guest = bench.guest();
    if bench.capabilities.freeze {
        guest.freeze().unwrap();
    }
    stop(guest);
}

/// A command that takes too long is killed with all that it started, and the guest continues.
pub fn deadline(bench: &Bench) {
    let mut guest = bench.guest();
    if bench.executes() {
        let slow = shell("echo begun; trap '' TERM; setsid sleep 300 & sleep 301");
        let started = Instant::now();
        let error = guest.session().run(&slow, RunOptions::within(Duration::from_millis(700))).unwrap_err();
        assert!(started.elapsed() < patience(Duration::from_secs(5)), "{:?}", started.elapsed());
        let SessionError::Deadline { after, killed } = error else { panic!("{error}") };
        assert_eq!(after, Duration::from_millis(700));
        assert_eq!(killed.end.status, Status::Signalled(9));
        assert_eq!(killed.output, b"begun\n");
        assert_eq!(run(&mut *guest, &command(&["true"])).end.status, Status::Exited(0));
    }
    stop(guest);
}

/// Checking a platform's availability leaves no guest; what guests share, such as an image, may
/// stay until the run ends.
pub fn availability_leaves_nothing(bench: &Bench) {
    if must_be_told(bench.platform)
        || bench.capabilities.elsewhere
        || bench.environment.get("context").is_some()
    {
        let found = bench.platform.availability(&bench.host);
        assert!(matches!(&found, Availability::Missing { remedy: Some(_), .. }), "{found:?}");
        return bench.assert_no_guest_in_the_ledger();
    }
    if bench.environment.get("address").is_some() {
        // Availability is not checked at the place that was made for the test.
        return;
    }
    for _ in 0..2 {
        let found = bench.platform.availability(&bench.host);
        assert!(matches!(&found, Availability::Ready { detail } if !detail.is_empty()), "{found:?}");
        bench.assert_no_guest_in_the_ledger();
    }
}
