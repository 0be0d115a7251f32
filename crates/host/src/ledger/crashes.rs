//! What a power failure or a killed process leaves of ledgers: one test for each kind of fault that
//! the simulation of whole machines looks for.

use super::*;
use weigh_disk::simulation::{Faults, Machine, pause};

/// A machine with an empty disk, and its state directory.
fn machine(seed: u64) -> (tempfile::TempDir, Machine, StateDirectory) {
    let disk = tempfile::tempdir().unwrap();
    let root = disk.path().canonicalize().unwrap();
    let state = StateDirectory::at(root.join("var/lib/weighbridge"));
    (disk, Machine::new(&root, seed, None, false), state)
}

fn run<'p>(machine: &Machine, process: impl FnOnce() + Send + 'p) {
    machine.run(Faults::default(), "untracked", vec![Box::new(process)]).unwrap();
}

fn directory(path: &Path) -> Change {
    Change::Directory { path: path.into() }
}

#[test]
fn directories_that_a_killed_run_made_are_synced_by_the_next() {
    let (_disk, machine, state) = machine(0);
    run(&machine, || state.prepare_ledgers().unwrap());
    run(&machine, || {
        let ledger = Ledger::create(&state, "run").unwrap();
        ledger.record(directory(&state.path().join("work"))).unwrap();
        assert!(machine.is_durable(ledger.path()));
    });
}

#[test]
fn nothing_is_recorded_after_a_sync_that_failed() {
    let (_disk, machine, state) = machine(0);
    run(&machine, || {
        let ledger = Ledger::create(&state, "run").unwrap();
        let change = directory(&state.path().join("work"));
        machine.set_faults(Faults { sync: 1, ..Faults::default() });
        ledger.record(change.clone()).unwrap_err();
        machine.set_faults(Faults::default());
        // The sync of this entry would succeed even if the lines before it were lost.
        ledger.record(change).unwrap_err();
        ledger.close(&NoPlatforms).unwrap();
    });
    assert!(!state.path().exists());
}

/// A partial line that cannot be truncated would make the next one unreadable.
#[test]
fn recorded_changes_can_be_read_whatever_fails() {
    for seed in 0..200 {
        let (_disk, machine, state) = machine(seed);
        run(&machine, || {
            let ledger = Ledger::create(&state, "run").unwrap();
            machine.set_faults(Faults { error: 3, short: 2, sync: 9, ..Faults::default() });
            let change = |number| directory(&state.path().join(format!("work-{number}")));
            let recorded: Vec<Change> =
                (0..9).map(change).filter(|change| ledger.record(change.clone()).is_ok()).collect();
            machine.set_faults(Faults::default());
            let read = file::parse(&std::fs::read(ledger.path()).unwrap());
            let standing: Vec<Change> = read.standing.into_iter().map(|(_, change)| change).collect();
            // An entry whose sync failed may also be there.
            assert!(recorded.iter().all(|change| standing.contains(change)), "seed {seed}");
            assert!(read.damaged.is_empty(), "seed {seed}");
            ledger.close(&NoPlatforms).unwrap();
        });
    }
}

/// Removals are on disk before the ledger that records them is removed.
#[test]
fn undone_changes_do_not_come_back() {
    for seed in 0..32 {
        let (_disk, machine, state) = machine(seed);
        let tree = state.path().parent().unwrap().join("weighbridge-tree");
        run(&machine, || {
            let ledger = Ledger::create(&state, "run").unwrap();
            let entry = ledger.record(directory(&tree)).unwrap();
            crate::private::close(&tree).unwrap();
            if seed % 2 == 0 {
                ledger.undo(entry, &NoPlatforms).unwrap();
            }
            ledger.close(&NoPlatforms).unwrap();
            machine.set_faults(Faults { power: 1, ..Faults::default() });
            pause("the end");
        });
        assert!(!tree.exists(), "seed {seed}");
    }
}

#[test]
fn an_entry_that_lost_its_beginning_was_never_promised() {
    let mut text = serde_json::to_vec(&Line::header("run")).unwrap();
    text.extend(b"\n{\"entry\":0,\"change\":{\"kind\":\"file\",\"path\":\"/x\"}}\n");
    let whole = file::parse(&text);
    assert_eq!((whole.standing.len(), whole.damaged), (1, vec![]));
    let hole = b"\0\0\0\0\0ile\",\"path\":\"/y\"}}\n";
    let torn = file::parse(&[&text[..], hole].concat());
    assert_eq!((torn.standing.len(), torn.damaged), (1, vec![]));
    // A hole in the middle is damage.
    let damaged = file::parse(&[hole, &text[..]].concat());
    assert_eq!((damaged.standing.len(), damaged.damaged), (1, vec![1]));
}
