//! Every platform charges the same CPU time for the same work, and it is the time that was used.

use crate::common::{MINUTE, benches_with, command, exclusive_turn};
use weigh_host::accounts::Accounts;
use weigh_model::Observed;
use weigh_observe::{Observer, Sensors};
use weigh_platforms::{Guest, GuestRequest, RunOptions};
use weigh_protocol::{Command, Status};

/// CPU time that the command uses, by its own count, nanoseconds.
const USED_NS: u64 = 1_000_000_000;
/// How far the charge may differ from that time.
const MARGIN: f64 = 0.02;

/// Runs until it has used that CPU time itself, so that the host's current speed does not affect
/// the test.
fn spin() -> Command {
    let script = format!("use Time::HiRes qw(clock); 1 while clock() < {};", USED_NS as f64 / 1e9);
    command(&["perl", "-e", &script])
}

fn observe(guest: &mut dyn Guest, accounts: &Accounts, cpu: u32) -> Observed {
    let mut observer = Observer::new();
    let instance = observer.attach(accounts, &[cpu]);
    observer.begin(instance);
    let done = guest.session().run(&spin(), RunOptions::within(MINUTE)).unwrap();
    let seen = observer.end(instance);
    assert_eq!(done.end.status, Status::Exited(0), "{}", String::from_utf8_lossy(&done.error));
    seen
}

fn check(environment: &str, seen: &Observed, slack_ns: u64) {
    let charged = seen.charge.guest_ns + seen.charge.helpers_ns.values().sum::<u64>();
    let bound = (USED_NS as f64 * MARGIN) as u64 + slack_ns;
    eprintln!("{environment}: {charged} ns of {USED_NS}, sensors {} ns", seen.sensors_ns);
    assert!(charged.abs_diff(USED_NS) <= bound, "{environment}: {charged} of {USED_NS}: {seen:#?}");
    // The guest's own CPU time is never counted as foreign: others had at most the rest of the CPU.
    let left = seen.window_ns.saturating_sub(charged) + bound;
    assert!(seen.foreign.ns <= left + seen.foreign.uncertainty_ns, "{environment}: {seen:#?}");
}

#[test]
fn every_platform_is_charged_the_same() {
    let cpu = *weigh_host::facts::allowed_cpus().last().unwrap();
    for (name, bench) in benches_with(exclusive_turn, "charge", &["native", "namespaces", "runc", "docker"]) {
        let request = GuestRequest { cpus: vec![cpu], ..bench.request(name) };
        let mut guest = bench.launch(&request).unwrap();
        let accounts = guest.accounts();
        let seen = observe(&mut *guest, &accounts, cpu);
        check(name, &seen, 0);
        assert!(!accounts.groups.is_empty() || !bench.host.is_root, "{name} has a group: {accounts:?}");
        let faults = seen.charge.counters.get("page_faults");
        assert!(faults.is_none_or(|faults| *faults > 100), "perl alone has hundreds: {seen:#?}");
        if name == "docker" {
            assert!(seen.charge.helpers_ns.contains_key("containerd-shim"), "{seen:#?}");
            assert!(seen.charge.daemons_ns.contains_key("dockerd"), "{seen:#?}");
        }
        if name == "native" {
            // As for guests without a control group. Ended processes are counted in ticks: up to
            // one tick each for user and system time.
            let processes = Accounts::of_processes(guest.processes());
            check("native by its processes", &observe(&mut *guest, &processes, cpu), 20_000_000);
        }
        guest.stop().unwrap();
    }
}
