//! Running guests: clocks, identity, freezing, roots.

use super::bench::{Bench, Check, MINUTE, command, output, refusal, run, shell};
use crate::common::patience;
use std::path::Path;
use std::time::{Duration, Instant};
use weigh_host::cgroup::Freezer;
use weigh_host::clock::monotonic_ns;
use weigh_model::ImageSpec;
use weigh_platforms::{Guest, Progress, RunOptions};
use weigh_protocol::{Command, Status};

const CHECKS: &[Check] = &[
    ("clock_and_identity", clock_and_identity),
    ("frozen_guests_stand_still", frozen_guests_stand_still),
    ("the_freezer_stops_guests", the_freezer_stops_guests),
    ("clocks_survive_slices", clocks_survive_slices),
];

/// One guest is frozen in every way, and its clocks are read.
pub fn clocks_and_freezing(bench: &Bench) {
    bench.check_one_guest(CHECKS);
}

/// The monotonic clock never goes back; on the host's kernel it equals the host's.
fn clock_and_identity(bench: &Bench, guest: &mut dyn Guest) {
    let mut last_ns = 0;
    for _ in 0..50 {
        let (reading, before_ns, after_ns) = guest.session().clock().unwrap();
        assert!(reading.monotonic_ns >= last_ns);
        last_ns = reading.monotonic_ns;
        assert!(before_ns <= after_ns);
        if bench.capabilities.shares_kernel {
            assert!((before_ns..=after_ns).contains(&reading.monotonic_ns), "{reading:?}");
        }
    }
    let facts = guest.session().facts(&[], &[]).unwrap();
    let host = weigh_host::facts::host_facts();
    if bench.capabilities.shares_kernel {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        assert_eq!(facts.boot.as_deref(), Some(boot.trim()));
        assert_eq!(facts.kernel, host.kernel);
    }
    assert_eq!(facts.architecture, host.architecture);
    assert!(!facts.cpus.is_empty() || bench.capabilities.fake);
}

/// Nothing in a frozen guest moves; a thawed one continues where it was.
fn frozen_guests_stand_still(bench: &Bench, guest: &mut dyn Guest) {
    if !bench.capabilities.freeze {
        return;
    }
    if bench.executes() {
        let beat = Command {
            output_limit_bytes: 1 << 20,
            ..shell("while :; do cat /proc/uptime; sleep 0.02; done")
        };
        // An emulated machine, whether it is the guest or the host, takes half a second for one beat.
        let slow = Duration::from_secs(4);
        let quick = patience(Duration::from_millis(500)).min(slow);
        let moving = if bench.capabilities.shares_kernel { quick } else { slow };
        let started = Instant::now();
        let id = guest.session().start(&beat).unwrap();
        std::thread::sleep(moving);
        guest.freeze().unwrap();
        guest.freeze().unwrap();
        let frozen = Instant::now();
        std::thread::sleep(moving.max(Duration::from_secs(1)));
        let slept = frozen.elapsed();
        guest.thaw().unwrap();
        guest.thaw().unwrap();
        std::thread::sleep(moving);
        guest.session().signal(id, 9).unwrap();
        let awake = started.elapsed() - slept;
        let text = String::from_utf8(guest.session().finish(id, MINUTE).unwrap().output).unwrap();
        let beats: Vec<f64> = text.lines().filter_map(|line| line.split(' ').next()?.parse().ok()).collect();
        let gap = beats.windows(2).position(|pair| pair[1] - pair[0] >= 0.95 * slept.as_secs_f64());
        match (gap, &*beats) {
            (Some(gap), _) => {
                assert!(gap > 0 && gap + 2 < beats.len(), "it moved before and after: {beats:?}")
            }
            // A machine's clocks may stop with it: then it only saw the time for which it was
            // awake.
            (None, [first, .., last]) if !bench.capabilities.shares_kernel => {
                assert!(
                    last - first < awake.as_secs_f64() + 0.2,
                    "it moved for more than {awake:?}: {beats:?}"
                );
            }
            _ => panic!("no gap of {slept:?}: {beats:?}"),
        }
    } else {
        guest.freeze().unwrap();
        let error = refusal(guest.session().run(&command(&["anything"]), RunOptions::within(MINUTE)));
        assert!(error.0.contains("frozen"), "{}", error.0);
        guest.thaw().unwrap();
    }
    assert_eq!(run(guest, &command(&["true"])).end.status, Status::Exited(0));
}

/// How often a guest is frozen by its freezer.
const ROUNDS: usize = 20;
/// Time within which something that is not frozen shows.
const LOOK: Duration = Duration::from_millis(50);

/// The freezer of a guest that counts; prints why if there is none.
fn freezer_of(bench: &Bench, guest: &dyn Guest, check: &str) -> Option<Freezer> {
    let reason = if !bench.capabilities.freeze {
        "its guests cannot be frozen"
    } else if !bench.executes() {
        "its guests execute nothing that could be seen to stop"
    } else if guest.freezer().is_none() {
        "no control group of this host holds its guest and freezes"
    } else {
        return guest.freezer();
    };
    eprintln!("SKIPPED {check} on {}: {reason}", bench.environment);
    None
}

/// The processes of a control group and of its descendants.
fn processes(group: &Path) -> Vec<u32> {
    let own = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let entries = std::fs::read_dir(group).into_iter().flatten().flatten();
    let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let below = below.flat_map(|entry| processes(&entry.path()));
    own.lines().filter_map(|pid| pid.parse().ok()).chain(below).collect()
}

/// Ticks of CPU time that the processes of a freezer have used. Processes that serve a guest on the
/// host, such as podman's client, are not among them.
fn ticks(freezer: &Freezer) -> u64 {
    let ticks_of = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_whitespace().collect();
        Some(fields[11].parse::<u64>().ok()? + fields[12].parse::<u64>().ok()?)
    };
    let stopped = processes(freezer.directory());
    assert!(!stopped.is_empty(), "{freezer:?} stops nothing");
    stopped.into_iter().filter_map(ticks_of).sum()
}

/// The median and the 95th percentile, microseconds.
fn quantiles(mut ns: Vec<u64>) -> (u64, u64) {
    ns.sort_unstable();
    (ns[ns.len() / 2] / 1000, ns[ns.len() * 95 / 100] / 1000)
}

/// A freezer used hundreds of times a second stops the guest's work each time, and lets it go on.
fn the_freezer_stops_guests(bench: &Bench, guest: &mut dyn Guest) {
    if let Some(freezer) = freezer_of(bench, guest, "the_freezer_stops_guests") {
        let counter = shell("while :; do i=0; while [ $i -lt 100 ]; do i=$((i+1)); done; echo; done");
        let id = guest.session().start(&counter).unwrap();
        let (mut freeze_ns, mut thaw_ns) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            let moved = guest.session().next_progress(id, Instant::now() + MINUTE).unwrap();
            assert!(matches!(moved, Some(Progress::Output { .. })), "round {round}: {moved:?}");
            let ordered_ns = monotonic_ns();
            freezer.freeze().unwrap();
            freeze_ns.push(monotonic_ns() - ordered_ns);
            // Output that it had written before is still on its way.
            let patience = Instant::now() + MINUTE;
            while guest.session().next_progress(id, Instant::now() + LOOK).unwrap().is_some() {
                assert!(Instant::now() < patience, "round {round}: it goes on although it is frozen");
            }
            let before = ticks(&freezer);
            let still = guest.session().next_progress(id, Instant::now() + LOOK).unwrap();
            assert!(still.is_none(), "round {round}: {still:?}");
            assert!(ticks(&freezer) <= before + 1, "round {round}: some of its processes go on");
            let ordered_ns = monotonic_ns();
            freezer.thaw().unwrap();
            thaw_ns.push(monotonic_ns() - ordered_ns);
        }
        guest.session().signal(id, 9).unwrap();
        guest.session().finish(id, MINUTE).unwrap();
        let ((freeze, freeze_most), (thaw, thaw_most)) = (quantiles(freeze_ns), quantiles(thaw_ns));
        eprintln!(
            "{}: {freeze} us to freeze (p95 {freeze_most}), {thaw} us to thaw (p95 {thaw_most})",
            bench.environment
        );
        assert_eq!(run(guest, &command(&["true"])).end.status, Status::Exited(0));
    }
}

/// How long a guest works, and then stands still, as in a unit of four environments.
const SLICE: Duration = Duration::from_millis(5);
const SLICES: u32 = 200;

/// A guest survives slicing, and its clock never runs ahead of the host's. Prints how much of the
/// frozen time its clock counts, and its kernel's complaints.
fn clocks_survive_slices(bench: &Bench, guest: &mut dyn Guest) {
    if bench.capabilities.shares_kernel {
        return; // Its clock is the host's.
    }
    if let Some(freezer) = freezer_of(bench, guest, "clocks_survive_slices") {
        let busy = "while :; do :; done </dev/null >/dev/null 2>&1 & echo $!";
        let busy = output(guest, busy);
        let (first, first_ns, _) = guest.session().clock().unwrap();
        let mut thawed = Duration::ZERO;
        for _ in 0..SLICES {
            freezer.freeze().unwrap();
            std::thread::sleep(SLICE * 3);
            let began = Instant::now();
            freezer.thaw().unwrap();
            std::thread::sleep(SLICE);
            thawed += began.elapsed();
        }
        let (last, _, last_ns) = guest.session().clock().unwrap();
        run(guest, &shell(&format!("kill -9 {busy}")));
        let (seen, passed) = (last.monotonic_ns - first.monotonic_ns, last_ns - first_ns);
        assert!(last.monotonic_ns >= first.monotonic_ns && seen <= passed + passed / 100, "{seen} {passed}");
        let log = output(guest, "dmesg 2>/dev/null | tail -n 200; true");
        let console = guest.log().and_then(|log| std::fs::read_to_string(log).ok()).unwrap_or_default();
        const COMPLAINTS: [&str; 5] = ["lockup", "unstable", "stall", "hung_task", "watchdog:"];
        let is_complaint = |line: &&str| COMPLAINTS.iter().any(|word| line.contains(word));
        let complaints: Vec<&str> = log.lines().chain(console.lines()).filter(is_complaint).collect();
        eprintln!(
            "{}: in {SLICES} slices {:.3} s passed, it was thawed for {:.3} s and saw {:.3} s; {complaints:?}",
            bench.environment,
            passed as f64 / 1e9,
            thawed.as_secs_f64(),
            seen as f64 / 1e9,
        );
        assert_eq!(run(guest, &command(&["true"])).end.status, Status::Exited(0));
    }
}

/// Guests of one environment do not affect each other.
pub fn two_guests_at_once(bench: &Bench) {
    let (mut first, mut second) = (bench.guest(), bench.guest());
    if bench.executes() {
        let id = first.session().start(&command(&["sleep", "60"])).unwrap();
        assert_eq!(run(&mut *second, &command(&["true"])).end.status, Status::Exited(0));
        if second.session().facts(&[], &[]).unwrap().init {
            assert_eq!(output(&mut *second, "cat /proc/[0-9]*/comm | grep -c sleep; true"), "0\n");
        }
        if bench.capabilities.freeze {
            second.freeze().unwrap();
        }
        first.session().signal(id, 9).unwrap();
        first.session().finish(id, MINUTE).unwrap();
        first.stop().unwrap();
        if bench.capabilities.freeze {
            second.thaw().unwrap();
        }
    }
    assert_eq!(run(&mut *second, &command(&["true"])).end.status, Status::Exited(0));
    first.stop().unwrap();
    second.stop().unwrap();
}

/// A root with only the probe and the program beside it. No system boots from such a root, and
/// another machine has its own root.
pub fn the_probe_alone(bench: &Bench) {
    if bench.capabilities.system || bench.capabilities.elsewhere || !bench.capabilities.host_root {
        return;
    }
    let mut guest = bench.launch(&bench.request_with(&ImageSpec::Probe, None));
    let facts = guest.session().facts(&[], &[]).unwrap();
    assert!(!facts.kernel.is_empty());
    if bench.executes() {
        let missing = guest.session().run(&command(&["sh"]), RunOptions::within(MINUTE));
        assert_eq!(refusal(missing).1, 2);
        guest.session().put("/tmp/note", 0o600, b"kept").unwrap();
        assert_eq!(guest.session().get("/tmp/note", 100).unwrap(), b"kept");
        // The probe is the only program that certainly exists.
        let version = run(&mut *guest, &command(&["/.weighbridge/probe", "--version"]));
        assert!(version.output.starts_with(b"weigh-probe "), "{version:?}");
        assert_eq!(version.end.status, Status::Exited(0));
    }
    guest.stop().unwrap();
}

/// The guest sees a user's working directory where it is on the host, and can write neither to it
/// nor to the system.
pub fn the_users_files(bench: &Bench) {
    if !bench.executes() || !bench.capabilities.host_root {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("mine"), "seen").unwrap();
    std::fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut guest = bench.launch(&bench.request_with(&ImageSpec::Host, Some(directory.path())));
    let cat = Command {
        working_directory: Some(directory.path().to_str().unwrap().into()),
        ..command(&["cat", "mine"])
    };
    assert_eq!(run(&mut *guest, &cat).output, b"seen");
    guest.stop().unwrap();
}
