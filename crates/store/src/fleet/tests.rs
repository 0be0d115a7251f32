//! Tests of fleets that were made, received runs, crashed and were damaged.

use super::*;
use crate::fixtures::{host, measured, plan};
use std::fs;
use weigh_disk::simulation::{Faults, Machine as Disk};

fn fleet(names: &[&str]) -> Fleet {
    let machines = machine_names(names.iter().copied()).into_iter();
    Fleet::new("fleet-1", machines.map(|name| Machine::new(name, "ssh:host=x".into())).collect())
}

fn created(parent: &Path) -> FleetDirectory {
    FleetDirectory::create(&parent.join("f"), &plan("work"), fleet(&["a", "b"])).unwrap()
}

/// Makes a run of `trials` trials in the receiving directory and has it accepted.
fn receive(directory: &FleetDirectory, at: usize, trials: u64) -> Result<RunDirectory, StoreError> {
    let room = directory.make_room(at)?;
    let mut run = RunDirectory::create_at(&room, directory.plan(), &host())?;
    for trial in 0..trials {
        run.append(&measured(trial, 1.5))?;
    }
    drop(run);
    directory.accept(at)
}

#[test]
fn names_are_safe_and_differ() {
    assert_eq!(
        machine_names(["a", "a", "a-2", "../b/c", "é", ""]),
        ["a", "a-2", "a-2-2", "b-c", "machine", "machine-2"]
    );
    // A run must not take the place of the fleet's own files.
    assert_eq!(
        machine_names(["a", "a.log", "fleet.json", "fleet-plan.json", "lock", "lock-2"]),
        ["a", "a.log-2", "fleet.json-2", "fleet-plan.json-2", "lock-2", "lock-2-2"]
    );
}

#[test]
fn facts_about_machines_are_read_back() {
    let parent = tempfile::tempdir().unwrap();
    let mut directory = created(parent.path());
    directory
        .update(1, |machine| {
            machine.state = MachineState::Failed { reason: "away".into() };
            machine.directory = Some("/tmp/x".into());
        })
        .unwrap();
    let (path, known) = (directory.path().to_path_buf(), directory.fleet().clone());
    assert!(matches!(FleetDirectory::open_for_work(&path), Err(StoreError::Busy(_))));
    let mut read = FleetDirectory::open(&path).unwrap();
    assert_eq!((read.fleet(), read.plan()), (&known, &plan("work")));
    let changed = read.update(0, |machine| machine.state = MachineState::Running);
    assert!(matches!(changed, Err(StoreError::ReadOnly(_))));
    drop(directory);
    FleetDirectory::open_for_work(&path).unwrap();
    assert!(FleetDirectory::is_one(&path) && !FleetDirectory::is_one(parent.path()));
    let again = FleetDirectory::create(&path, &plan("work"), fleet(&["a"]));
    assert!(matches!(again, Err(StoreError::Exists(_))));
}

#[test]
fn a_longer_run_takes_the_place_of_a_half_one() {
    let parent = tempfile::tempdir().unwrap();
    let directory = created(parent.path());
    assert!(directory.run(0).unwrap().is_none());
    receive(&directory, 0, 1).unwrap();
    let run = receive(&directory, 0, 3).unwrap();
    assert_eq!(run.records().unwrap().records.len(), 3);
    let mut names: Vec<_> = fs::read_dir(directory.path())
        .unwrap()
        .map(|it| it.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["a", FLEET_PLAN, STATE, "lock"], "nothing else stays");
}

/// A machine that lost its run and began again has less than what was brought back before.
#[test]
fn a_shorter_run_takes_the_place_of_none() {
    let parent = tempfile::tempdir().unwrap();
    let directory = created(parent.path());
    receive(&directory, 0, 3).unwrap();
    let run = receive(&directory, 0, 1).unwrap();
    assert_eq!(run.records().unwrap().records.len(), 3);
    assert_eq!(run.path(), directory.run_path(0));
    assert!(!directory.hidden(RECEIVED, 0).exists());
    fs::write(run.path().join("samples.jsonl"), "damaged").unwrap();
    assert_eq!(receive(&directory, 0, 1).unwrap().records().unwrap().records.len(), 1);
}

#[test]
fn a_run_of_another_plan_is_not_accepted() {
    let parent = tempfile::tempdir().unwrap();
    let directory = created(parent.path());
    receive(&directory, 0, 1).unwrap();
    let room = directory.make_room(0).unwrap();
    drop(RunDirectory::create_at(&room, &plan("other"), &host()).unwrap());
    assert!(matches!(directory.accept(0), Err(StoreError::OtherPlan(_))));
    assert_eq!(directory.run(0).unwrap().unwrap().records().unwrap().records.len(), 1);
    std::os::unix::fs::symlink(directory.run_path(0), directory.run_path(1)).unwrap();
    assert!(matches!(directory.run(1), Err(StoreError::OtherPlan(_))), "no link is a run");
}

#[test]
fn unsafe_machine_names_and_newer_formats_are_refused() {
    let parent = tempfile::tempdir().unwrap();
    let path = created(parent.path()).path().to_path_buf();
    let text = fs::read_to_string(path.join(STATE)).unwrap();
    for name in ["../a", "/etc", ".received", "a/b", ""] {
        fs::write(path.join(STATE), text.replace("\"name\": \"a\"", &format!("\"name\": \"{name}\"")))
            .unwrap();
        assert!(matches!(FleetDirectory::open(&path), Err(StoreError::Damaged { .. })), "{name}");
    }
    fs::write(path.join(STATE), text.replace(&format!("\"format\": {FLEET_FORMAT}"), "\"format\": 9"))
        .unwrap();
    assert!(matches!(FleetDirectory::open(&path), Err(StoreError::NewerFormat { found: 9, .. })));
}

/// Whenever the power fails while a longer run replaces an incomplete one, the fleet has one of the
/// two, whole, and a machine is done only if its run is here.
#[test]
fn a_loss_of_power_leaves_one_whole_run() {
    let (mut halves, mut wholes, mut done) = (0, 0, 0);
    for seed in 0..150 {
        let disk = tempfile::tempdir().unwrap();
        let root = disk.path().canonicalize().unwrap();
        let machine = Disk::new(&root, seed, None, false);
        let home = root.join("home");
        let process = || {
            let mut directory = created(&home);
            receive(&directory, 0, 1).unwrap();
            machine.set_faults(Faults { power: 40, ..Faults::default() });
            let _ = receive(&directory, 0, 3).unwrap();
            directory.update(0, |machine| machine.state = MachineState::Done).unwrap();
        };
        machine.run(Faults::default(), "logs", vec![Box::new(process)]).unwrap();
        let directory = FleetDirectory::open_for_work(&home.join("f")).unwrap();
        let records = directory.run(0).unwrap().unwrap().records().unwrap().records.len();
        let is_done = directory.fleet().machines[0].state == MachineState::Done;
        assert!([1, 3].contains(&records) && (!is_done || records == 3), "seed {seed}: {records}, {is_done}");
        halves += usize::from(records == 1);
        wholes += usize::from(records == 3 && !is_done);
        done += usize::from(is_done);
    }
    assert!(halves > 0 && wholes > 0 && done > 0, "{halves}, {wholes} and {done}");
}
