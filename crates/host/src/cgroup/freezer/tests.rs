//! Freezing groups of this host in both versions, and groups that do not obey.

use super::*;
use crate::cgroup::tests::{ledger, read_line, run_name, shell, usable, version_2};
use crate::cgroup::{Cgroup, Hierarchy, Limits};
use crate::command::Invocation;
use crate::ledger::NoPlatforms;
use crate::wait::until;
use stuck_files::StuckFiles;

#[path = "../../../../../tests/support/stuck_files.rs"]
mod stuck_files;

const PATIENCE: Duration = Duration::from_secs(30);
/// In this time a busy group that is not frozen uses enough CPU time for the counters to show it.
const LOOK: Duration = Duration::from_millis(20);

/// Runs a check with a new group and its freezer, in this host's own hierarchy with a freezer and
/// in one of version 2. Afterwards nothing of the group is left.
fn with_groups(test: &str, check: impl Fn(&Cgroup, &Freezer)) {
    let own = usable(test);
    let hierarchies: [(&str, Option<Hierarchy>); 2] = [("own", own), ("v2", version_2(test))];
    for (name, hierarchy) in hierarchies {
        let Some(hierarchy) = hierarchy else { continue };
        let base = tempfile::tempdir().unwrap();
        let run = run_name(&format!("{test}-{name}"));
        let ledger = ledger(&base, &run);
        let cgroup = hierarchy.create(&ledger, &format!("weighbridge-{run}/guest"), &Limits::default());
        let cgroup = cgroup.unwrap();
        match cgroup.freezer() {
            Some(freezer) => check(&cgroup, &freezer),
            None => eprintln!("SKIPPED {test}: no group of {name} freezes"),
        }
        cgroup.remove().unwrap();
        ledger.close(&NoPlatforms).unwrap();
        let parent = format!("weighbridge-{run}");
        assert!(hierarchy.mounts.iter().all(|mount| !mount.path.join(&parent).exists()), "{name}");
    }
}

fn works(cgroup: &Cgroup) -> bool {
    let before = cgroup.cpu_ns().unwrap();
    until(PATIENCE, || cgroup.cpu_ns().unwrap() > before)
}

/// Whether nothing of the group uses a CPU for a moment. The last microseconds before a process
/// froze may be charged to the group afterwards.
fn stands_still(cgroup: &Cgroup) -> bool {
    let before = cgroup.cpu_ns().unwrap();
    let charged = u64::try_from(LOOK.as_nanos()).unwrap() / 20;
    !until(LOOK, || cgroup.cpu_ns().unwrap() > before + charged)
}

#[test]
fn two_hundred_busy_processes_stand_still_and_go_on() {
    with_groups("busy", |cgroup, freezer| {
        let script = "for n in $(seq 200); do while :; do :; done & done; echo ready; wait";
        let mut busy = shell(cgroup, script);
        assert_eq!(read_line(&mut busy), "ready");
        assert_eq!(cgroup.processes().len(), 201);
        for round in 0..5 {
            assert!(works(cgroup), "round {round}: it does not go on");
            freezer.freeze().unwrap();
            freezer.freeze().unwrap();
            assert!(stands_still(cgroup), "round {round}: it is not frozen");
            freezer.thaw().unwrap();
        }
        let (freeze_ns, thaw_ns) = freezer.latency_ns().unwrap();
        eprintln!(
            "{}: {freeze_ns} ns to freeze 200 processes, {thaw_ns} ns to thaw",
            freezer.control().display()
        );
    });
}

/// A group that a guest has made below its own.
fn below(freezer: &Freezer, pid: u32) -> Freezer {
    let inner = freezer.in_group(freezer.directory().join("inner"));
    fs::create_dir(inner.directory()).unwrap();
    fs::write(inner.directory().join("cgroup.procs"), pid.to_string()).unwrap();
    inner
}

#[test]
fn groups_that_a_guest_froze_stay_frozen_until_it_is_killed() {
    with_groups("nested", |cgroup, freezer| {
        let mut outer = shell(cgroup, "echo ready; while :; do :; done");
        let mut inside = shell(cgroup, "echo ready; while :; do :; done");
        assert_eq!((read_line(&mut outer), read_line(&mut inside)), ("ready".into(), "ready".into()));
        let inner = below(freezer, inside.pid());
        inner.freeze().unwrap();
        let ticks = || procfs::process::Process::new(inside.pid() as i32).unwrap().stat().unwrap().utime;
        let before = ticks();
        for _ in 0..20 {
            freezer.freeze().unwrap();
            assert!(stands_still(cgroup));
            freezer.thaw().unwrap();
            assert!(works(cgroup), "the rest goes on");
        }
        assert!(inner.open().unwrap().is(true).unwrap(), "it was thawed with the group above it");
        assert_eq!(ticks(), before);
        // Killing does not wait for somebody to thaw the group.
        cgroup.kill_all().unwrap();
        assert!(inside.wait(PATIENCE).unwrap().is_some());
        fs::remove_dir(inner.directory()).unwrap();
    });
}

#[test]
fn a_frozen_ancestor_is_reported_when_a_group_cannot_be_thawed() {
    with_groups("above", |cgroup, freezer| {
        let mut busy = shell(cgroup, "echo ready; while :; do :; done");
        assert_eq!(read_line(&mut busy), "ready");
        let above = freezer.in_group(freezer.directory().parent().unwrap().into());
        above.freeze().unwrap();
        freezer.freeze().unwrap();
        let error = freezer.open().unwrap().reach(false, LOOK).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains("a group above it is frozen"), "{error}");
        above.thaw().unwrap();
        freezer.thaw().unwrap();
        assert!(works(cgroup));
    });
}

#[test]
fn a_process_that_cannot_stop_is_reported_and_its_group_thawed() {
    let directory = tempfile::tempdir().unwrap();
    if usable("stuck").is_none() {
        return;
    }
    let Some(_files) = StuckFiles::mount(directory.path()) else {
        eprintln!("SKIPPED a_process_that_cannot_stop_is_reported_and_its_group_thawed: no FUSE");
        return;
    };
    with_groups("stuck", |cgroup, freezer| {
        let script = format!("cat {}/file & echo ready; while :; do :; done", directory.path().display());
        let mut busy = shell(cgroup, &script);
        assert_eq!(read_line(&mut busy), "ready");
        // Until the process waits for the file system, it freezes like any other.
        let mut refused = None;
        let obeys_no_more = until(PATIENCE, || {
            refused = freezer.freeze().err();
            let _ = freezer.thaw();
            refused.is_some()
        });
        assert!(obeys_no_more);
        let error = refused.unwrap();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains("some of its processes did not stop within 2s"), "{error}");
        assert!(works(cgroup), "what else is in the group goes on");
        cgroup.kill_all().unwrap();
    });
}

#[test]
fn a_group_that_does_not_obey_is_thawed() {
    let base = tempfile::tempdir().unwrap();
    let freezer = Freezer::of(base.path().into(), true);
    assert!(freezer.freeze().is_err(), "there is no such group");
    fs::write(base.path().join("cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
    let error = freezer.freeze().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert_eq!(fs::read_to_string(freezer.control()).unwrap(), "0");
    freezer.thaw().unwrap();
}

/// The factor is global to the process, so this test runs in its own.
#[test]
#[ignore = "run by freezing_may_take_longer_by_the_factor"]
fn a_freezer_with_a_factor() {
    crate::deadlines::set("2x").unwrap();
    let base = tempfile::tempdir().unwrap();
    fs::write(base.path().join("cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
    let began = Instant::now();
    Freezer::of(base.path().into(), true).freeze().unwrap_err();
    assert!(began.elapsed() >= 2 * DEADLINE, "{:?}", began.elapsed());
}

#[test]
fn freezing_may_take_longer_by_the_factor() {
    let process = Invocation::new(std::env::current_exe().unwrap());
    let test = "cgroup::freezer::tests::a_freezer_with_a_factor";
    let done = process.args(["--exact", test, "--ignored"]).run_ok().unwrap();
    assert!(String::from_utf8_lossy(&done.output).contains("1 passed"));
}
