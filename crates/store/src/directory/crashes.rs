//! What a loss of power or a killed process leaves of runs. There is one test for each kind of
//! fault that the simulation of whole machines looks for.

use super::*;
use crate::fixtures::{host, measured, plan};
use std::sync::Mutex;
use weigh_disk::simulation::{Faults, Machine};

const STARTED: &str = "2026-11-21T05:00:00Z";

/// Returns a machine with an empty disk, and the directory of its runs.
fn machine(seed: u64) -> (tempfile::TempDir, Machine, PathBuf) {
    let disk = tempfile::tempdir().unwrap();
    let root = disk.path().canonicalize().unwrap();
    (disk, Machine::new(&root, seed, None, false), root.join("home/weigh-runs"))
}

fn run<'p>(machine: &Machine, process: impl FnOnce() + Send + 'p) {
    machine.run(Faults::default(), LOGS, vec![Box::new(process)]).unwrap();
}

#[test]
fn directories_that_a_killed_run_made_are_synced_by_the_next() {
    let (_disk, machine, runs) = machine(0);
    run(&machine, || make_directories(&runs).unwrap());
    run(&machine, || {
        for run in [
            RunDirectory::create(&runs, &plan("a"), &host(), STARTED).unwrap(),
            RunDirectory::create_at(&runs.join("b"), &plan("b"), &host()).unwrap(),
        ] {
            assert!(machine.is_durable(&run.path().join(SAMPLES)));
        }
        let made = make_directory(&runs, STARTED, "c").unwrap();
        write_whole(&made, "state", b"{}").unwrap();
        assert!(machine.is_durable(&made.join("state")));
    });
}

/// A record whose process was killed before the sync is read, and counted, when the run goes on. So
/// is a record whose sync failed and that could not be taken back.
#[test]
fn records_read_by_a_resumed_run_are_on_disk() {
    assert!(read_to_go_on(0, false));
    // A sync that fails may write everything.
    assert!((0..16).filter(|seed| read_to_go_on(*seed, true)).count() > 4);
}

/// Returns whether the record was not on disk before.
fn read_to_go_on(seed: u64, fails: bool) -> bool {
    let (_disk, machine, runs) = machine(seed);
    run(&machine, || {
        let mut run = RunDirectory::create_at(&runs.join("run"), &plan("run"), &host()).unwrap();
        let line = samples::line_of(&measured(0, 1.5)).unwrap();
        let writer = run.writer.as_mut().unwrap();
        writer.write_once(&line).unwrap();
        if fails {
            machine.set_faults(Faults { sync: 1, ..Faults::default() });
            writer.samples.sync_data().unwrap_err();
            machine.set_faults(Faults::default());
            // This sync succeeds, and writes nothing.
            writer.samples.sync_data().unwrap();
        }
    });
    let was_lost = !machine.is_durable(&runs.join("run").join(SAMPLES));
    run(&machine, || {
        let run = RunDirectory::open_for_append(&runs.join("run")).unwrap();
        assert_eq!(run.records().unwrap().records, [measured(0, 1.5)]);
        assert!(machine.is_durable(&run.path().join(SAMPLES)));
    });
    was_lost
}

#[test]
fn a_last_line_that_lost_its_beginning_is_set_aside() {
    let parent = tempfile::tempdir().unwrap();
    let mut run = RunDirectory::create(parent.path(), &plan("run"), &host(), STARTED).unwrap();
    run.append(&measured(0, 1.5)).unwrap();
    let path = run.path().to_path_buf();
    drop(run);
    let whole = std::fs::read(path.join(SAMPLES)).unwrap();
    let mut torn = samples::line_of(&measured(1, 1.5)).unwrap();
    torn[..100].fill(0);
    std::fs::write(path.join(SAMPLES), [&whole[..], &torn].concat()).unwrap();
    let mut run = RunDirectory::open_for_append(&path).unwrap();
    let read = run.records().unwrap();
    assert_eq!(read.records, [measured(0, 1.5)]);
    assert!(read.recovered.unwrap().contains("cut short by a crash"));
    run.append(&measured(1, 2.5)).unwrap();
    assert_eq!(run.records().unwrap().records, [measured(0, 1.5), measured(1, 2.5)]);
    // A torn line in the middle of the file is damage.
    drop(run);
    std::fs::write(
        path.join(SAMPLES),
        [&whole[..], &torn, &samples::line_of(&measured(2, 1.5)).unwrap()].concat(),
    )
    .unwrap();
    assert!(matches!(RunDirectory::open_for_append(&path), Err(StoreError::Damaged { line: 3, .. })));
}

/// Before the lock was taken first, one of the two removed what the other had made.
#[test]
fn two_that_make_the_same_run_leave_one_whole() {
    for seed in 0..64 {
        let (_disk, machine, runs) = machine(seed);
        let path = runs.join("run");
        let made = Mutex::new(0);
        let make = || {
            let Ok(mut run) = RunDirectory::create_at(&path, &plan("run"), &host()) else { return };
            run.append(&measured(0, 1.5)).unwrap();
            *made.lock().unwrap() += 1;
        };
        let faults = Faults { switch: 3, ..Faults::default() };
        machine.run(faults, LOGS, vec![Box::new(make), Box::new(make)]).unwrap();
        let stored = RunDirectory::open(&path).and_then(|run| run.records());
        match made.into_inner().unwrap() {
            // Each may find the other's lock, or a file of the other's in the directory.
            0 => assert!(stored.is_err(), "seed {seed}"),
            made => assert_eq!((made, stored.unwrap().records), (1, vec![measured(0, 1.5)]), "seed {seed}"),
        }
    }
}
