//! What the keys of the runtimes runc, crun, youki and runsc guarantee: networks, storage, filters, users,
//! saving; and many simultaneous guests.

use crate::common::victim::{Killed, kill_and_sweep, kill_while_launching};
use crate::common::{Bench, benches, benches_with, exclusive_turn, says, shell, stop_at_once, turn_for};
use std::time::Instant;
use weigh_host::command::Invocation;
use weigh_model::{EnvironmentSpec, ImageSpec};
use weigh_platforms::{GuestRequest, PlatformError, resolve};
use weigh_protocol::Status;

const RUNTIMES: &[&str] = &["runc", "crun", "youki", "runsc"];
/// The runtimes with the keys `user` and `seccomp`.
const CONTAINERS: &[&str] = &["runc", "crun"];

#[test]
fn storage_follows_the_storage_key() {
    for platform in RUNTIMES {
        let Some(bench) = Bench::on_disk("storage", platform) else { continue };
        let disk = Bench::file_system(&bench.host.work);
        let own_kernel = *platform == "runsc";
        for (word, seen) in [("tmpfs", "tmpfs"), ("volume", &disk), ("overlay", "overlay")] {
            if word == "overlay" && own_kernel {
                continue;
            }
            let environment = format!("{platform}:storage={word}");
            let mut guest = bench.guest(&environment);
            let kind = says(&mut *guest, "grep ' /var/tmp ' /proc/self/mounts | tail -n 1 | cut -d ' ' -f 3");
            // The sandbox has a file server in between.
            let seen = if own_kernel && word == "volume" { "9p" } else { seen };
            assert_eq!(kind, seen, "{environment}");
            says(&mut *guest, "head -c 1000000 /dev/zero > /var/tmp/x && rm /var/tmp/x && touch /var/tmp/y");
            // Files of other guests are not visible.
            let mut other = bench.guest(&environment);
            assert_eq!(says(&mut *other, "ls -A /var/tmp"), "", "{environment}");
            other.stop().unwrap();
            guest.stop().unwrap();
            let left = std::fs::read_dir(&bench.host.work).unwrap().flatten();
            let left: Vec<_> =
                left.filter(|entry| entry.file_name().to_string_lossy().ends_with("-storage")).collect();
            assert!(left.is_empty(), "{left:?}");
        }
        let mut probe = bench
            .launch(&bench.request_with(&format!("{platform}:storage=volume"), &ImageSpec::Probe, None))
            .unwrap();
        probe.session().put("/var/tmp/note", 0o600, b"kept").unwrap();
        probe.stop().unwrap();
    }
}

#[test]
fn a_filter_refuses_the_same_calls_as_dockers() {
    // Calls that work without a filter and are refused with it; the last is refused with an error
    // that makes C libraries use another call.
    let calls = [
        "unshare --user true",
        "python3 -c 'import ctypes; c = ctypes.CDLL(None, use_errno=True); c.syscall(250, 0, -2, 0, 0, 0) >= 0 or exit(ctypes.get_errno() == 1)'",
        "python3 -c 'import ctypes; c = ctypes.CDLL(None); exit(c.personality(0x0040000) == -1)'",
    ];
    for (platform, bench) in benches("seccomp", CONTAINERS) {
        for (word, mode) in [("off", "0"), ("on", "2")] {
            let mut guest = bench.guest(&format!("{platform}:seccomp={word}"));
            let said = says(&mut *guest, "sed -n 's/^Seccomp:[[:space:]]*//p' /proc/self/status");
            assert_eq!(said, mode, "{platform} {word}");
            for call in calls {
                let status = shell(&mut *guest, call).end.status;
                assert_eq!(status == Status::Exited(0), word == "off", "{platform} {word}: {call}");
            }
            // Threads, processes and pipes still work.
            says(
                &mut *guest,
                "python3 -c 'import threading; t = threading.Thread(target=print); t.start(); t.join()' | cat",
            );
            guest.stop().unwrap();
        }
    }
}

#[test]
fn a_mapped_root_is_unprivileged_outside() {
    for (platform, bench) in benches("mapped", CONTAINERS) {
        for net in ["none", "host", "bridge"] {
            for storage in ["tmpfs", "volume", "overlay"] {
                if net != "none" && storage != "tmpfs" {
                    continue;
                }
                let environment = format!("{platform}:user=mapped,net={net},storage={storage}");
                let mut guest = bench.guest(&environment);
                assert_eq!(says(&mut *guest, "id -u"), "0", "{environment}");
                says(&mut *guest, "touch /var/tmp/x && rm /var/tmp/x && ls /sys/class/net > /dev/null");
                assert_ne!(shell(&mut *guest, "touch /etc/x").end.status, Status::Exited(0), "{environment}");
                let probes = guest.cgroup().unwrap().processes();
                assert!(!probes.is_empty());
                for pid in probes {
                    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
                    assert!(status.contains("Uid:\t100000\t100000"), "{environment}: {status}");
                }
                guest.stop().unwrap();
            }
        }
    }
}

#[test]
fn a_mapped_user_that_cannot_reach_its_root_has_a_remedy() {
    for (platform, bench) in benches("closed", CONTAINERS) {
        let request = bench.request(&format!("{platform}:user=mapped"));
        let closed = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(bench.state.path().parent().unwrap(), closed).unwrap();
        let error = bench.launch(&request).err().unwrap().to_string();
        assert!(error.contains("does not let other users pass") && error.contains("chmod o+x"), "{error}");
    }
}

/// A guest that is saved, stopped and restored is as it was.
#[test]
fn a_saved_guest_goes_on_where_it_was() {
    for (name, bench) in benches("restore", RUNTIMES) {
        let request = bench.request(name);
        let (platform, _) = resolve(&request.environment).unwrap();
        if let Err(reason) = platform.restores(&bench.host, &request) {
            eprintln!("SKIPPED restore on {name}: {reason}");
            assert!(name != "runsc", "{reason}");
            assert!(name == "youki" || reason.to_string().contains("CRIU"), "{reason}");
            let refused = platform.restore(&bench.host, &request, &bench.host.work).err().unwrap();
            assert!(matches!(refused, PlatformError::Unavailable { .. }), "{refused}");
            continue;
        }
        let saved = bench.host.work.join("saved");
        std::fs::create_dir(&saved).unwrap();
        let mut guest = bench.launch(&request).unwrap();
        guest.session().put("/tmp/note", 0o600, b"kept").unwrap();
        // The start time of the first process, in ticks since the guest's boot.
        let began = "sed 's/.*) //' /proc/1/stat | cut -d ' ' -f 20";
        let before = says(&mut *guest, began);
        guest.save(&saved).unwrap();
        guest.stop().unwrap();
        for _ in 0..2 {
            let mut again = platform.restore(&bench.host, &request, &saved).unwrap();
            assert_eq!(again.session().get("/tmp/note", 10).unwrap(), b"kept", "{name}");
            assert_eq!(says(&mut *again, began), before, "{name}: the probe is another one");
            again.freeze().unwrap();
            again.thaw().unwrap();
            assert_eq!(says(&mut *again, "echo goes on"), "goes on", "{name}");
            again.stop().unwrap();
        }
    }
}

#[test]
fn criu_is_asked_for_its_version() {
    let Some(bench) = Bench::on("criu", "runc") else { return };
    for (said, works) in [("Version: 3.17.1", false), ("Version: 4.1", true), ("nothing", false)] {
        let program = bench.host.work.join("criu");
        std::fs::write(&program, format!("#!/bin/sh\necho '{said}'\n")).unwrap();
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let request = bench.request(&format!("runc:criu={}", program.display()));
        let (platform, _) = resolve(&request.environment).unwrap();
        let found = platform.restores(&bench.host, &request);
        assert_eq!(found.is_ok(), works, "{said}: {found:?}");
        assert!(found.err().is_none_or(|reason| reason.to_string().contains("version 4 or later")));
    }
}

#[test]
fn every_platform_of_runsc_launches_or_reports_why_not() {
    let Some(bench) = Bench::on("sandboxes", "runsc") else { return };
    for word in ["systrap", "ptrace"] {
        let mut guest = bench.guest(&format!("runsc:platform={word}"));
        assert!(says(&mut *guest, "uname -a").contains("Linux"), "{word}");
        assert!(says(&mut *guest, "dmesg | head -n 1").contains("gVisor"), "{word}");
        guest.stop().unwrap();
    }
    let (platform, kvm) = resolve(&EnvironmentSpec::parse("runsc:platform=kvm").unwrap()).unwrap();
    assert!(platform.capabilities(&kvm).makes_explicit);
    match platform.make_explicit(&bench.host, &kvm) {
        Ok(explicit) => assert_eq!(explicit, kvm),
        Err(PlatformError::Unavailable { reason, .. }) => {
            assert!(reason.contains("KVM"), "{reason}");
            // Other keys do not affect the proof, and its result is cached.
            let other = EnvironmentSpec::parse("runsc:platform=kvm,storage=volume").unwrap();
            let again = platform.make_explicit(&bench.host, &other).unwrap_err().to_string();
            assert!(!reason.contains("no guest answered") || again.contains("seen earlier"), "{again}");
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn fifty_guests_are_up_at_once() {
    for (platform, bench) in benches("fifty", &["runc", "crun", "youki"]) {
        let request = bench.request_with(platform, &ImageSpec::Probe, None);
        let started = Instant::now();
        let requests = (1..=50).map(|instance| GuestRequest { instance, ..request.clone() });
        let mut guests = bench.launch_at_once(requests);
        eprintln!("{platform}: 50 guests up after {:?}", started.elapsed());
        for guest in &mut guests {
            guest.session().clock().unwrap();
            assert!(guest.spawned_ns() > 0);
        }
        stop_at_once(guests);
    }
}

/// Guests with everything that their keys can make, killed while they are made and when they run.
#[test]
fn nothing_of_the_keys_outlives_a_killed_run() {
    for (platform, environment) in [
        ("runc", "runc:net=nat,storage=volume,seccomp=on,user=mapped"),
        ("crun", "crun:net=bridge,storage=overlay,user=mapped"),
        ("youki", "youki:net=bridge,storage=overlay"),
        ("runsc", "runsc:net=nat,storage=volume"),
    ] {
        let Some(_turn) = turn_for("nothing_of_the_keys_outlives_a_killed_run", platform) else { continue };
        kill_while_launching(&format!("keys-{platform}"), environment, &[40, 100, 200, 350]);
        kill_and_sweep(&format!("keys-{platform}-up"), environment, Killed::Running);
    }
}

/// Not a check: prints the driver's overhead over the runtime or the engine itself.
#[test]
#[ignore = "a measurement, for people to read"]
fn the_overhead_of_the_driver() {
    const GUESTS: u64 = 20;
    let platforms = [RUNTIMES, &["docker", "podman"]].concat();
    for (platform, bench) in benches_with(exclusive_turn, "adds", &platforms) {
        let request = bench.request_with(platform, &ImageSpec::Probe, None);
        let (mut before, mut up, mut stop, mut cpu) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for instance in 1..=GUESTS {
            let request = GuestRequest { instance, ..request.clone() };
            let asked_ns = weigh_host::clock::monotonic_ns();
            let mut guest = bench.launch(&request).unwrap();
            let up_ns = weigh_host::clock::monotonic_ns();
            cpu = guest.launch_cpu_ns();
            guest.stop().unwrap();
            before.push(guest.spawned_ns() - asked_ns);
            up.push(up_ns - guest.spawned_ns());
            stop.push(weigh_host::clock::monotonic_ns() - up_ns);
        }
        let median_ms = |mut times: Vec<u64>| {
            times.sort_unstable();
            times[times.len() / 2] as f64 / 1e6
        };
        eprintln!(
            "{platform}: {:.1} ms before it starts, {:.1} ms until the probe answers, {:.1} ms to stop, CPU time {cpu:?} ns",
            median_ms(before),
            median_ms(up),
            median_ms(stop)
        );
    }
    let done = Invocation::new("true").run_ok().unwrap();
    eprintln!("a program that does nothing: {:.1} ms", done.took.as_secs_f64() * 1e3);
}
