//! Runs, sweeps and resumed runs on a machine whose disk, processes and power fail: the real
//! ledger, locks, store and runner on the simulated disk of `weigh-disk`.
//!
//! One seed decides everything. `WEIGH_LONG=1` takes 100,000 seeds. A seed that fails prints its
//! history; `WEIGH_SEED=17` replays that one alone.

mod world;

use crate::common;
use std::sync::atomic::{AtomicU64, Ordering};
use weigh_disk::simulation::{BrokenPromise, Faults, Machine};
use weigh_model::Effort;
use world::{Measured, Violation, World};

/// Seeds of the default tests: they take some seconds without optimisation.
const SEEDS: u64 = 500;
const LONG_SEEDS: u64 = 100_000;
/// In one of this many seeds the runner measures fake guests, which takes longer.
const RUNNER_EVERY: u64 = 8;
/// Blocks of the run that it measures.
const BLOCKS: u32 = 2;
/// The most sessions of a seed, between which the machine may have lost its power.
const SESSIONS: usize = 5;

/// Draws the faults of a session: often only those that end it, so that it gets far.
fn draw_faults(machine: &Machine) -> Faults {
    let one_of = |rates: &[usize]| rates[machine.below(rates.len())];
    Faults {
        kill: one_of(&[0, 0, 60, 200]),
        power: one_of(&[0, 60, 150, 400]),
        error: one_of(&[0, 0, 0, 15, 150]),
        full: one_of(&[0, 0, 30]),
        short: one_of(&[0, 3, 10]),
        sync: one_of(&[0, 0, 4, 20]),
        switch: one_of(&[2, 5, 20]),
    }
}

/// One life of a machine.
fn simulate(seed: u64, lie: Option<BrokenPromise>, told: bool) -> Result<(), Violation> {
    let measured = seed.is_multiple_of(RUNNER_EVERY).then(|| Measured {
        plan: common::plan(&["null", "null:label=b"], &["u", "v"], common::fixed(BLOCKS)),
        blocks: BLOCKS,
    });
    let world = World::new(seed, lie, told, measured);
    for _ in 0..1 + world.machine.below(SESSIONS) {
        let faults = draw_faults(&world.machine);
        let processes = 1 + world.machine.below(3) / 2;
        world.session(faults, processes)?;
    }
    world.end()
}

/// Runs seeds on all CPUs and returns the first that fails, with its history.
fn first_failure(seeds: std::ops::Range<u64>, lie: Option<BrokenPromise>) -> Option<(u64, String)> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, failed) = (AtomicU64::new(seeds.start), AtomicU64::new(u64::MAX));
    let search = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end.min(failed.load(Ordering::Relaxed)) {
                return;
            }
            if simulate(seed, lie, false).is_err() {
                failed.fetch_min(seed, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(search))));
    let seed = Some(failed.into_inner()).filter(|seed| *seed < seeds.end)?;
    let told = simulate(seed, lie, true).err();
    Some((
        seed,
        told.map_or("it does not fail when it is repeated".into(), |violation| violation.to_string()),
    ))
}

fn is_long() -> bool {
    std::env::var("WEIGH_LONG").is_ok_and(|value| value == "1")
}

#[test]
fn nothing_stored_is_lost_and_nothing_changed_is_forgotten() {
    let asked = std::env::var("WEIGH_SEED").ok().map(|seed| seed.parse().expect("WEIGH_SEED is a number"));
    let seeds = match asked {
        Some(seed) => seed..seed + 1,
        None => 0..if is_long() { LONG_SEEDS } else { SEEDS },
    };
    if let Some((seed, told)) = first_failure(seeds, None) {
        panic!("{told}\nreplay it with WEIGH_SEED={seed}");
    }
}

/// Tests the simulation itself with disks that break their guarantees.
#[test]
fn a_disk_that_lies_is_found_out() {
    for lie in
        [BrokenPromise::FileSync, BrokenPromise::DirectorySync, BrokenPromise::Write, BrokenPromise::Lock]
    {
        assert!(first_failure(0..SEEDS, Some(lie)).is_some(), "{lie:?} was not noticed");
    }
}

/// A run that has no end of its own, with a trial of ten seconds in each of two environments in
/// every block: an hour of it, or a week with `WEIGH_LONG=1`. Something ends it about a hundred times
/// in the week, and twenty times in the hour.
#[test]
fn a_week_of_failures_loses_no_trial() {
    let (blocks, seldom) = if is_long() { (7 * 24 * 180, 5_000) } else { (180, 200) };
    let mut plan = common::plan(&["null", "null:label=b"], &["u"], Effort::Lasting { seconds: 1e9 });
    plan.guest.reuse = true;
    let world = World::new(7, None, false, Some(Measured { plan, blocks }));
    let faults = Faults {
        kill: 2 * seldom,
        power: 2 * seldom,
        error: 4 * seldom,
        full: 4 * seldom,
        short: 50,
        sync: seldom,
        switch: 0,
    };
    let files = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let (before, mut sessions) = (files(), 0);
    while !world.is_complete() {
        world.session(faults, 1).unwrap_or_else(|violation| panic!("{violation}"));
        sessions += 1;
    }
    world.end().unwrap_or_else(|violation| panic!("{violation}"));
    let bytes = std::fs::metadata(world.named().join("samples.jsonl")).unwrap().len();
    println!("{blocks} blocks in {sessions} sessions, {bytes} bytes");
    assert!(sessions > 5, "{sessions} sessions");
    assert_eq!(files(), before);
}
