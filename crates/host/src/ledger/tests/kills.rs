//! A process that is killed at any moment.

use super::*;
use std::io::{BufRead, BufReader};

/// Environment variable of a test's child process: the state directory, the base of what it
/// changes, and where it stops.
const CHILD: &str = "WEIGH_TEST_LEDGER_CHILD";
/// The line with which the child process reports that it has stopped there.
const READY: &str = "ready to be killed";

/// The child process of the test below. It records and makes changes, and reports its progress
/// until it is killed.
#[test]
fn child_that_changes_things() {
    let Ok(order) = std::env::var(CHILD) else { return };
    let (base, stop) = order.split_once('|').unwrap();
    let (base, stop) = (PathBuf::from(base), stop.parse::<usize>().unwrap());
    let state = StateDirectory::at(base.join("state"));
    let ledger = Ledger::create(&state, "killed").unwrap();
    let mut done = 0;
    let mut reached = move || {
        if done == stop {
            // The test waits for this line, then kills this process.
            println!("\n{READY}");
            loop {
                std::thread::park();
            }
        }
        done += 1;
    };
    let work = state.path().parent().unwrap().join("weighbridge-work");
    reached();
    ledger.record(Change::Directory { path: work.clone() }).unwrap();
    reached();
    fs::create_dir(&work).unwrap();
    fs::write(work.join("file"), "x").unwrap();
    reached();
    let target = work.join("mnt");
    let root = crate::facts::is_root();
    let mount = ledger.record(Change::Mount { target: target.clone() }).unwrap();
    reached();
    fs::create_dir(&target).unwrap();
    if root {
        rustix::mount::mount("none", &target, "tmpfs", rustix::mount::MountFlags::empty(), None).unwrap();
        fs::write(target.join("inside"), "x").unwrap();
    }
    reached();
    let mut sleeper = crate::command::Invocation::new("sleep").arg("60").spawn().unwrap();
    fs::write(state.path().parent().unwrap().join("pid"), sleeper.pid().to_string()).unwrap();
    ledger.record(Change::process(sleeper.pid()).unwrap()).unwrap();
    reached();
    // Half undone: the change is undone, but its line is not written.
    sleeper.kill_group();
    if root {
        rustix::mount::unmount(&target, rustix::mount::UnmountFlags::empty()).unwrap();
    }
    reached();
    ledger.forget(mount).unwrap();
    reached();
    fs::remove_dir_all(&work).unwrap();
    reached();
    std::process::exit(7);
}

#[test]
fn killed_at_any_point_everything_is_swept() {
    for stop in 0..9 {
        let (base, state) = state();
        let mut child = crate::command::Invocation::new(std::env::current_exe().unwrap())
            .args(["--exact", "ledger::tests::kills::child_that_changes_things", "--nocapture"])
            .env(CHILD, format!("{}|{stop}", base.path().display()))
            .log_to(&base.path().join("log"))
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(fs::File::from(child.take_output().unwrap())).lines();
        let is_ready = lines.any(|line| line.unwrap() == READY);
        let log = || fs::read_to_string(base.path().join("log")).unwrap();
        assert!(is_ready, "the child ended before {stop}: {}", log());
        assert_eq!(sweep(&state, &NoPlatforms).unwrap().live, ["killed"], "it lives at {stop}");
        // Kills only the child, as `kill -9` would: what it started goes on.
        let handle = crate::process::handle(child.pid()).unwrap().unwrap();
        crate::process::kill(&handle).unwrap();
        assert!(crate::process::wait_end(&handle, Duration::from_secs(5)));
        let result = sweep_dead(&state, &NoPlatforms).unwrap();
        assert!(result.failed.is_empty() && result.live.is_empty(), "at {stop}: {result:?}");
        assert!(!base.path().join("weighbridge-work").exists(), "at {stop} the directory is left");
        assert!(!state.path().exists(), "at {stop} the state directory is left");
        if let Ok(pid) = fs::read_to_string(base.path().join("pid")) {
            let pid: u32 = pid.parse().unwrap();
            let alive =
                crate::process::start_ticks(pid).is_some_and(|start| crate::process::is_alive(pid, start));
            assert!(!alive, "at {stop} the process is left");
        }
        let again = sweep_dead(&state, &NoPlatforms).unwrap();
        assert!(again.undone.is_empty(), "a second sweep finds nothing");
    }
}
