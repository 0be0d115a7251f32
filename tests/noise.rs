//! A real noisy neighbour: a process that burns the guests' own CPU in every other block.

use crate::support::{Stage, cell_of, is_root, shown};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

/// Planned blocks.
const BLOCKS: u64 = 8;
/// Takes about a tenth of a second, and needs no guest program.
const WORK: &str = "i=0; while [ $i -lt 40000 ]; do i=$((i+1)); done";

/// A process that burns one CPU, and stops when it is told to.
struct Neighbour {
    process: Child,
    burns: bool,
}

impl Neighbour {
    fn on(cpu: u32) -> Self {
        let process = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let neighbour = Self { process, burns: true };
        let mut cpus = CpuSet::new();
        cpus.set(cpu as usize);
        sched_setaffinity(Some(neighbour.pid()), &cpus).unwrap();
        neighbour
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    fn burn(&mut self, burns: bool) {
        if burns != self.burns {
            kill_process(self.pid(), if burns { Signal::CONT } else { Signal::STOP }).unwrap();
            self.burns = burns;
        }
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Records on disk so far; the last line may be incomplete.
fn records(samples: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(samples).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The block that is measured next: a unit ends with its second trial, or when it is void.
fn next_block(records: &[Value]) -> u64 {
    let Some(last) = records.iter().filter_map(|record| record["block"].as_u64()).max() else { return 0 };
    let of_last: Vec<&Value> = records.iter().filter(|record| record["block"] == last).collect();
    let is_over = of_last.len() >= 2 || of_last.iter().any(|record| record["record"] == "void");
    if is_over { last + 1 } else { last }
}

/// Whether others certainly took so much of the CPUs that a warning is due.
fn is_disturbed(trial: &Value) -> bool {
    let number = |value: &Value| value.as_f64().unwrap();
    let observed = &trial["observed"];
    let available = number(&observed["window_ns"]) * observed["cpus"].as_array().unwrap().len() as f64;
    let foreign = &observed["foreign"];
    (number(&foreign["ns"]) - number(&foreign["uncertainty_ns"])) / available > 0.005
}

#[test]
fn a_neighbour_on_the_guests_cpu_voids_or_warns_and_makes_no_difference() {
    let why = "needs root for the native environment's control group";
    if !is_root("a_neighbour_on_the_guests_cpu", why) {
        return;
    }
    let stage = Stage::new();
    let cpu = *weigh_host::facts::allowed_cpus().last().unwrap();
    let mut neighbour = Neighbour::on(cpu);
    neighbour.burn(false);
    let mut run = stage.spawn(&format!(
        "run --on native;native:label=b --blocks {BLOCKS} --cpus {cpu} --seed 5 --out r -- sh -c '{WORK}'"
    ));
    let samples = stage.here().join("r/samples.jsonl");
    let status = loop {
        if let Some(status) = run.try_wait().unwrap() {
            break status;
        }
        neighbour.burn(next_block(&records(&samples)) % 2 == 1);
        std::thread::sleep(Duration::from_millis(2));
    };
    drop(neighbour);
    assert!(status.success(), "{}", stage.spawned_said());

    let records = records(&samples);
    let of = |kind: &'static str| records.iter().filter(move |record| record["record"] == kind);
    let block = |record: &Value| record["block"].as_u64().unwrap();
    // In every block in which the neighbour burned, the unit is void or, where voiding was given
    // up, its trials are marked. One block may have begun before this test saw the end of the last
    // one.
    let burnt: Vec<u64> = (0..next_block(&records)).filter(|block| block % 2 == 1).collect();
    let void = |b: &&u64| of("void").any(|unit| block(unit) == **b && unit["cause"] == "foreign-cpu");
    let marked = |b: &&u64| of("trial").filter(|trial| block(trial) == **b).any(is_disturbed);
    let seen = burnt.iter().filter(|b| void(b) || marked(b)).count();
    assert!(burnt.len() >= 4 && seen + 1 >= burnt.len(), "{seen} of {burnt:?}: {}", stage.spawned_said());
    // No trial of a void unit counts, and every planned block does.
    let report = shown(&stage, "r");
    assert_eq!(report["blocks"]["done"], BLOCKS);
    let cell = cell_of(&report, "native:label=b", "time");
    assert_eq!(cell["n"], BLOCKS);
    // Native does not differ from native. The level is 1 in 1000, because a correct test must not
    // fail once in twenty runs.
    let p = cell["p_diff_holm"].as_f64().unwrap();
    assert!(p > 0.001, "p = {p}: {cell}");
    stage.host_is_as_before();
}
