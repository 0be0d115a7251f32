//! Every platform charges the same CPU time for the same work, and it is the time that was used.

use crate::common::{Bench, MINUTE, benches_with, command, exclusive_turn, patience, skip_or_fail};
use std::os::unix::fs::MetadataExt;
use weigh_host::accounts::Accounts;
use weigh_host::cgroup::{Hierarchy, Layout};
use weigh_model::Observed;
use weigh_observe::{Observer, Sensors};
use weigh_platforms::{Guest, GuestRequest, RunOptions};
use weigh_protocol::{Command, Status};

/// CPU time that a command uses, by its own count, nanoseconds.
const USED_NS: u64 = 1_000_000_000;
/// How far the charge may differ from that time.
const MARGIN: f64 = 0.02;

/// The CPU time of a command whose charge is checked, nanoseconds. On an emulated host the start and
/// the end of the program, which it does not count itself, take some ten milliseconds.
fn used_ns() -> u64 {
    if patience(MINUTE) > MINUTE { 4 * USED_NS } else { USED_NS }
}

/// Runs until it has used that CPU time itself, so that the host's current speed does not affect
/// the test.
fn spin() -> Command {
    let script = format!("use Time::HiRes qw(clock); 1 while clock() < {};", used_ns() as f64 / 1e9);
    command(&["perl", "-e", &script])
}

fn observe(guest: &mut dyn Guest, accounts: &Accounts, cpu: u32, work: &Command) -> Observed {
    let mut observer = Observer::new();
    let instance = observer.attach(accounts, &[cpu]);
    observer.begin(instance);
    let done = guest.session().run(work, RunOptions::within(patience(MINUTE))).unwrap();
    let seen = observer.end(instance);
    assert_eq!(done.end.status, Status::Exited(0), "{}", String::from_utf8_lossy(&done.error));
    seen
}

fn check(environment: &str, seen: &Observed, slack_ns: u64) {
    let charged = seen.charge.guest_ns + seen.charge.helpers_ns.values().sum::<u64>();
    let used_ns = used_ns();
    let bound = (used_ns as f64 * MARGIN) as u64 + slack_ns;
    eprintln!("{environment}: {charged} ns of {used_ns}, sensors {} ns", seen.sensors_ns);
    assert!(charged.abs_diff(used_ns) <= bound, "{environment}: {charged} of {used_ns}: {seen:#?}");
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
        let seen = observe(&mut *guest, &accounts, cpu, &spin());
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
            let seen = observe(&mut *guest, &processes, cpu, &spin());
            check("native by its processes", &seen, 20_000_000);
        }
        guest.stop().unwrap();
    }
}

/// Under control groups of version 2 a guest is charged with the bytes that devices move for it,
/// those of buffered writes included, and with the time for which its work waits for a CPU.
#[test]
fn bytes_and_stalls_are_those_of_the_guests_group() {
    const TEST: &str = "bytes_and_stalls_are_those_of_the_guests_group";
    const BYTES: u64 = 8 << 20;
    let controllers = std::fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").unwrap_or_default();
    let has_io = controllers.split_whitespace().any(|controller| controller == "io");
    if !has_io || Hierarchy::detect().layout() != Layout::V2 || !weigh_host::facts::is_root() {
        let reason = "only root has it, and only with the controller io of control groups of version 2";
        return skip_or_fail(TEST, "cgroup2", reason);
    }
    let cpu = *weigh_host::facts::allowed_cpus().last().unwrap();
    for name in ["native", "namespaces:storage=volume"] {
        let Some(bench) = Bench::on_disk("bytes", name) else { continue };
        if rustix::fs::major(std::fs::metadata(&bench.host.work).unwrap().dev()) == 0 {
            skip_or_fail(&format!("{TEST} on {name}"), "cgroup2", "its files are on no block device");
            continue;
        }
        let request = GuestRequest { cpus: vec![cpu], ..bench.request(name) };
        let mut guest = bench.launch(&request).unwrap();
        let accounts = guest.accounts();
        let group = accounts.groups[0].v2.as_ref().unwrap();
        assert!(group.join("io.stat").exists(), "{group:?}");
        let own = bench.host.work.join("bytes");
        let file = if name == "native" { own.to_str().unwrap() } else { "/var/tmp/bytes" };
        let move_bytes = format!(
            "dd if=/dev/zero of={file} bs=64k count=128 conv=fsync && \
             dd if={file} of=/dev/null bs=64k iflag=direct && rm {file}"
        );
        let seen = observe(&mut *guest, &accounts, cpu, &command(&["sh", "-c", &move_bytes]));
        for counter in ["block_read_bytes", "block_written_bytes"] {
            // The programs may be read from the disk, too.
            let moved = seen.charge.counters[counter];
            assert!((BYTES..2 * BYTES).contains(&moved), "{name}: {counter} is {moved}");
        }
        if std::fs::read("/proc/pressure/cpu").is_ok() {
            let spin = "perl -MTime::HiRes=clock -e '1 while clock() < 0.5'";
            let both = command(&["sh", "-c", &format!("{spin} & {spin}; wait")]);
            let seen = observe(&mut *guest, &accounts, cpu, &both);
            // One of the two waits while the other one runs. The kernel adds up what has passed.
            let stalled_ns = seen.charge.counters["cpu_stall_ns"];
            let most_ns = seen.window_ns + 100_000_000;
            assert!((USED_NS / 2..most_ns).contains(&stalled_ns), "{name}: {stalled_ns} ns: {seen:#?}");
        }
        guest.stop().unwrap();
    }
}
