//! The sensors against the real activity of this host.
#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests start their own load")]

use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use weigh_host::accounts::{Accounts, Process};
use weigh_model::Observed;
use weigh_observe::{Observer, Sensors};

/// Runs one test at a time, because their loops would take the CPU from each other.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A loop that never ends, on one CPU.
struct Load(Child);

impl Load {
    fn on(cpu: u32) -> Self {
        let child = Command::new("taskset")
            .args(["-c", &cpu.to_string(), "sh", "-c", "while :; do :; done"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        // The loop runs once it has had some CPU time (proc(5), schedstat).
        let had_ns = || {
            let text = std::fs::read_to_string(format!("/proc/{}/schedstat", child.id())).unwrap_or_default();
            text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok())
        };
        while had_ns().is_some_and(|ns| ns < 20_000_000) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Self(child)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The observations of several observers in the same window, so that other activity of the host is
/// the same for all.
fn together(views: &[Accounts], cpus: &[u32], length: Duration) -> Vec<Observed> {
    let mut observers: Vec<_> = views
        .iter()
        .map(|accounts| {
            let mut observer = Observer::new();
            let instance = observer.attach(accounts, cpus);
            (observer, instance)
        })
        .collect();
    for (observer, instance) in &mut observers {
        observer.begin(*instance);
    }
    std::thread::sleep(length);
    observers.iter_mut().map(|(observer, instance)| observer.end(*instance)).collect()
}

fn cpus() -> (u32, Option<u32>) {
    let all = weigh_host::facts::allowed_cpus();
    let last = *all.last().unwrap();
    (last, all.into_iter().find(|cpu| *cpu != last))
}

/// One per cent of the window, and the time for which a running task has not been charged yet.
fn margin(seen: &Observed) -> u64 {
    seen.window_ns / 100 + seen.foreign.uncertainty_ns
}

/// A loop on a CPU in use is foreign with its true share, unless it belongs to the guest.
#[test]
fn a_loop_is_foreign_unless_it_is_the_guests() {
    let _turn = turn();
    let (cpu, _) = cpus();
    let load = Load::on(cpu);
    let views = [Accounts::default(), Accounts::of_processes(vec![load.0.id()])];
    let seen = together(&views, &[cpu], Duration::from_secs(1));
    let (strange, own) = (&seen[0], &seen[1]);
    let got = own.charge.guest_ns;
    assert!(got > 20_000_000, "it hardly ran: {own:?}");
    assert!(strange.foreign.ns >= got - margin(strange), "{strange:?} {own:?}");
    let difference = strange.foreign.ns.saturating_sub(own.foreign.ns);
    assert!(difference.abs_diff(got) <= margin(strange), "{difference} of {got}: {strange:?} {own:?}");
    assert!(own.foreign.ns <= own.window_ns.saturating_sub(got) + margin(own), "{own:?}");
}

/// A loop on another CPU does not matter, whoever runs it.
#[test]
fn a_loop_on_another_cpu_is_not_foreign() {
    let _turn = turn();
    let (cpu, Some(other)) = cpus() else { return };
    let load = Load::on(other);
    let views = [Accounts::default(), Accounts::of_processes(vec![load.0.id()])];
    let seen = together(&views, &[cpu], Duration::from_secs(1));
    let (strange, own) = (&seen[0], &seen[1]);
    assert!(own.charge.guest_ns > 20_000_000, "it hardly ran: {own:?}");
    assert!(strange.foreign.ns.abs_diff(own.foreign.ns) <= margin(own), "{strange:?} {own:?}");
    assert_eq!((own.cpus.as_slice(), own.steal.uncertainty_ns), ([cpu].as_slice(), 20_000_000));
}

/// Helpers and daemons are known too: their time is neither foreign nor the guest's.
#[test]
fn helpers_and_daemons_are_not_foreign() {
    let _turn = turn();
    let (cpu, _) = cpus();
    let load = Load::on(cpu);
    let process = Process { name: "loop".into(), pid: load.0.id() };
    let helped = Accounts { helpers: vec![process.clone()], ..Accounts::default() };
    let served = Accounts { daemons: vec![process], ..Accounts::default() };
    let seen = together(&[Accounts::default(), helped, served], &[cpu], Duration::from_secs(1));
    let got = seen[1].charge.helpers_ns["loop"];
    assert!(got > 20_000_000, "it hardly ran: {:?}", seen[1]);
    assert_eq!((seen[1].charge.total_ns() - seen[1].charge.softirq_ns, seen[1].charge.guest_ns), (got, 0));
    assert!(seen[2].charge.daemons_ns["loop"].abs_diff(got) <= margin(&seen[2]), "{seen:?}");
    for known in &seen[1..] {
        let difference = seen[0].foreign.ns.saturating_sub(known.foreign.ns);
        assert!(difference.abs_diff(got) <= margin(known), "{difference} of {got}: {seen:?}");
    }
}

/// The unattributed time is what is left of the CPUs' busy time.
#[test]
fn accounts_are_reconciled_with_the_host() {
    let _turn = turn();
    let (cpu, _) = cpus();
    let load = Load::on(cpu);
    let views = [Accounts::default(), Accounts::of_processes(vec![load.0.id()])];
    let seen = together(&views, &[cpu], Duration::from_secs(1));
    let charges = [&seen[0].charge, &seen[1].charge];
    let left = charges.map(|charge| charge.unattributed_ns + charge.softirq_ns as i64);
    let bound = 2 * charges[1].unattributed_uncertainty_ns + seen[1].window_ns / 100;
    let difference = (left[0] - left[1]) as u64;
    assert!(difference.abs_diff(charges[1].guest_ns) <= bound, "{left:?} {seen:?}");
}

/// Values that every host has are present, and values that do not apply are absent.
#[test]
fn the_host_is_described() {
    let _turn = turn();
    let (cpu, _) = cpus();
    let seen =
        together(&[Accounts::of_processes(vec![std::process::id()])], &[cpu], Duration::from_millis(200));
    let seen = &seen[0];
    assert!(seen.window_ns >= 200_000_000, "{seen:?}");
    assert!(seen.context_switches > 0 && seen.sensors_ns > 0, "{seen:?}");
    assert_eq!(seen.pressure.is_some(), std::fs::read("/proc/pressure/cpu").is_ok());
    assert!(seen.settings.clock_source.is_some() && seen.settings.aslr.is_some(), "{seen:?}");
    assert!(seen.charge.counters.contains_key("page_faults"), "{seen:?}");
    assert!(!seen.charge.counters.contains_key("network_packets"), "it is in the host's network: {seen:?}");
}
