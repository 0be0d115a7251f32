//! The same CPU time is charged whoever runs the guest, and it is the time that was used.

#![expect(clippy::unwrap_used, reason = "all of this file is a test, its helpers too")]
#![expect(clippy::print_stderr, reason = "what is skipped must be seen")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use weigh_host::accounts::Accounts;
use weigh_host::cgroup::Hierarchy;
use weigh_host::ledger::{Change, Ledger};
use weigh_host::state::StateDirectory;
use weigh_images::{Programs, Root};
use weigh_model::{EnvironmentSpec, ImageSpec, Observed};
use weigh_observe::{Observer, Sensors};
use weigh_platforms::{Availability, Guest, GuestRequest, Host, RunOptions, Undoers, resolve};
use weigh_protocol::{Command, Status};

/// CPU time that the command uses, by its own clock, nanoseconds.
const USED_NS: u64 = 1_000_000_000;
/// How far the charge may be from it.
const MARGIN: f64 = 0.02;

fn host(state: &StateDirectory, run: &str) -> Host {
    let ledger = Ledger::create(state, run).unwrap();
    let work = state.path().join("work");
    ledger.record(Change::Directory { path: work.clone() }).unwrap();
    let logs = state.path().parent().unwrap().join("logs");
    for directory in [&work, &logs] {
        std::fs::create_dir_all(directory).unwrap();
    }
    Host {
        ledger,
        hierarchy: Hierarchy::detect(),
        work,
        logs,
        run: run.into(),
        programs: Programs { probe: crate::static_probe::path().into(), kernels: "/bin/true".into() },
        is_root: weigh_host::facts::is_root(),
    }
}

/// Runs until it has used so much CPU time itself: how fast the host is at that moment is nothing
/// to the test.
fn spin() -> Command {
    let script = format!("use Time::HiRes qw(clock); 1 while clock() < {};", USED_NS as f64 / 1e9);
    Command {
        argv: ["perl", "-e", &script].map(Into::into).into(),
        environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
        working_directory: None,
        input: false,
        output_limit_bytes: 1 << 20,
    }
}

fn observe(guest: &mut dyn Guest, accounts: &Accounts, cpu: u32) -> Observed {
    let mut observer = Observer::new();
    let instance = observer.attach(accounts, &[cpu]);
    observer.begin(instance);
    let done = guest.session().run(&spin(), RunOptions::within(Duration::from_secs(60))).unwrap();
    let seen = observer.end(instance);
    assert_eq!(done.end.status, Status::Exited(0), "{}", String::from_utf8_lossy(&done.error));
    seen
}

fn check(environment: &str, seen: &Observed, slack_ns: u64) {
    let charged = seen.charge.guest_ns + seen.charge.helpers_ns.values().sum::<u64>();
    let bound = (USED_NS as f64 * MARGIN) as u64 + slack_ns;
    eprintln!("{environment}: {charged} ns of {USED_NS}, sensors {} ns", seen.sensors_ns);
    assert!(charged.abs_diff(USED_NS) <= bound, "{environment}: {charged} of {USED_NS}: {seen:#?}");
    // What the guest used is never foreign: others had the rest of the CPU at most.
    let left = seen.window_ns.saturating_sub(charged) + bound;
    assert!(seen.foreign.ns <= left + seen.foreign.uncertainty_ns, "{environment}: {seen:#?}");
}

#[test]
fn every_platform_is_charged_the_same() {
    let _turn = crate::common::turn();
    let base = tempfile::tempdir_in("/var/tmp").unwrap();
    let required = std::env::var("WEIGH_REQUIRE").unwrap_or_default();
    let cpu = *weigh_host::facts::allowed_cpus().last().unwrap();
    for (number, name) in (1u64..).zip(["native", "namespaces", "runc", "docker"]) {
        let state = StateDirectory::at(base.path().join(name));
        let host = host(&state, &format!("test-charge-{name}-{}", std::process::id()));
        let (platform, environment) = resolve(&EnvironmentSpec::parse(name).unwrap()).unwrap();
        if let Availability::Missing { reason, .. } = platform.availability(&host) {
            assert!(!required.split(',').any(|word| word == name), "{name} is required: {reason}");
            eprintln!("SKIPPED {name}: {reason}");
            host.ledger.close(&Undoers).unwrap();
            continue;
        }
        let root =
            Root::prepare(&ImageSpec::Host, &host.programs, &host.work.join("root"), None::<&Path>).unwrap();
        let request = GuestRequest {
            environment,
            instance: number,
            root: Arc::new(root),
            cpus: vec![cpu],
            memory_bytes: None,
            publish: Vec::new(),
            outside: None,
        };
        platform.prepare(&host, &request).unwrap();
        let mut guest = platform.launch(&host, &request).unwrap();
        let accounts = guest.accounts();
        let seen = observe(&mut *guest, &accounts, cpu);
        check(name, &seen, 0);
        assert!(!accounts.groups.is_empty() || !host.is_root, "{name} has a group: {accounts:?}");
        let faults = seen.charge.counters.get("page_faults");
        assert!(faults.is_none_or(|faults| *faults > 100), "perl alone has hundreds: {seen:#?}");
        if name == "docker" {
            assert!(seen.charge.helpers_ns.contains_key("containerd-shim"), "{seen:#?}");
            assert!(seen.charge.daemons_ns.contains_key("dockerd"), "{seen:#?}");
        }
        if name == "native" {
            // As for guests without a group. What ended is counted in ticks: a tick each for user
            // and system time.
            let processes = Accounts::of_processes(guest.processes());
            check("native by its processes", &observe(&mut *guest, &processes, cpu), 20_000_000);
        }
        guest.stop().unwrap();
        drop(guest);
        host.ledger.close(&Undoers).unwrap();
    }
}
