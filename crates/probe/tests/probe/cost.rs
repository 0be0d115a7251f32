//! What the probe itself costs. The bounds are for a build without optimisation on a busy machine.
//! The release build stays far below them; the measured values are printed.

use crate::driver::{Driver, command};
use std::time::{Duration, Instant};

fn median(mut values: Vec<Duration>) -> Duration {
    values.sort();
    values[values.len() / 2]
}

#[test]
fn it_starts_quickly() {
    let times = (0..20).map(|_| {
        let started = Instant::now();
        let _probe = Driver::start();
        started.elapsed()
    });
    let median = median(times.collect());
    eprintln!("start to hello: {median:?} (median of 20)");
    assert!(median < Duration::from_millis(50), "{median:?}");
}

#[test]
fn a_command_takes_little_longer_than_it_runs() {
    let mut probe = Driver::start();
    let times = (0..10).map(|_| {
        let end = probe.run(command(&["sleep", "0.1"])).end;
        Duration::from_nanos(end.duration_ns) - Duration::from_millis(100)
    });
    let median = median(times.collect());
    eprintln!("beyond `sleep 0.1`: {median:?} (median of 10)");
    assert!(median < Duration::from_millis(20), "{median:?}");
}

#[test]
fn it_sleeps_while_a_command_runs() {
    let mut probe = Driver::start();
    // First field: time on a CPU, nanoseconds (scheduler documentation, sched-stats).
    let cpu_ns = |probe: &Driver| probe.number("schedstat", "");
    let switches = |probe: &Driver| probe.number("status", "voluntary_ctxt_switches:");
    let (id, _) = probe.begin(command(&["sleep", "2"]));
    std::thread::sleep(Duration::from_millis(200));
    let (before_ns, before) = (cpu_ns(&probe), switches(&probe));
    std::thread::sleep(Duration::from_millis(1500));
    let (asleep_ns, woken) = (cpu_ns(&probe) - before_ns, switches(&probe) - before);
    probe.finish(id);
    let whole_ns = cpu_ns(&probe) - before_ns;
    eprintln!(
        "CPU within 1.5 s of `sleep 2`: {asleep_ns} ns, woken {woken} times; with its end {whole_ns} ns"
    );
    assert_eq!((asleep_ns, woken), (0, 0), "nothing happens, so nothing is done");
    assert!(whole_ns < 20_000_000, "{whole_ns}");
}

#[test]
fn it_is_small_when_idle() {
    let mut probe = Driver::start();
    probe.run(command(&["true"]));
    let kibibytes = probe.number("smaps_rollup", "Pss:");
    eprintln!("proportional set size, idle: {kibibytes} KiB");
    assert!(kibibytes < 5 << 10, "{kibibytes} KiB");
}
