//! Guests that run: clocks, identity, freezing, roots.

use super::bench::{Bench, MINUTE, command, output, refusal, run, shell};
use std::time::{Duration, Instant};
use weigh_model::ImageSpec;
use weigh_platforms::RunOptions;
use weigh_protocol::{Command, Status};

/// The monotonic clock never goes back; on the host's kernel it is the host's.
pub fn clock_and_identity(bench: &Bench) {
    let mut guest = bench.guest();
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
    guest.stop().unwrap();
}

/// Nothing in a frozen guest moves; thawed it goes on where it was.
pub fn frozen_guests_stand_still(bench: &Bench) {
    if !bench.capabilities.freeze {
        return;
    }
    let mut guest = bench.guest();
    if bench.executes() {
        let beat = Command {
            output_limit_bytes: 1 << 20,
            ..shell("while :; do cat /proc/uptime; sleep 0.02; done")
        };
        // An emulated machine on a busy host takes half a second for one beat.
        let moving = Duration::from_millis(if bench.capabilities.shares_kernel { 500 } else { 4000 });
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
            // A machine's clocks may stop with it: then what it saw of the time is what it was
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
    assert_eq!(run(&mut *guest, &command(&["true"])).end.status, Status::Exited(0));
    guest.stop().unwrap();
}

/// Guests of one environment do not meet.
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

/// A root with nothing but the probe and the program beside it. No system boots from it, and
/// another machine has its own.
pub fn the_probe_alone(bench: &Bench) {
    if bench.capabilities.system || bench.capabilities.elsewhere {
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
        // The probe is the one program that is there for certain.
        let version = run(&mut *guest, &command(&["/.weighbridge/probe", "--version"]));
        assert!(version.output.starts_with(b"weigh-probe "), "{version:?}");
        assert_eq!(version.end.status, Status::Exited(0));
    }
    guest.stop().unwrap();
}

/// A working directory of the user's is seen, where it lies on the host, and cannot be written to;
/// the system cannot either.
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
