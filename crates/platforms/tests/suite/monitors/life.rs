//! A machine's life, and the requests that the monitor received for it.

use super::fake_monitor::guest::IGNORED;
use super::{KINDS, Place, is_cpu, last_cpu, line_told};
use crate::common::{Bench, MINUTE, command, says, shell, threads};
use weigh_model::ImageSpec;
use weigh_platforms::{Guest, GuestRequest, resolve};
use weigh_protocol::Status;

/// Everything that a run does with a guest, and the requests that the monitor received for it.
#[test]
fn a_whole_life() {
    for kind in KINDS {
        let (place, bench) = Place::with_bench(kind, "monitors-life");
        let mut seen = 0;
        let request = place.request(&bench);
        let mut guest = bench.launch(&request).unwrap();
        assert_eq!(place.asked(&mut seen), kind.boot);
        check_placed(&*guest);
        // There is no KVM machine behind this guest, so the name KVM is not used.
        assert_eq!(guest.facts()["acceleration"], "unproven");
        assert_eq!(says(&mut *guest, "echo $((6*7))"), "42");
        let failing = shell(&mut *guest, "echo no >&2; exit 3");
        assert_eq!((failing.end.status, failing.error.as_slice()), (Status::Exited(3), b"no\n".as_slice()));
        let content: Vec<u8> = (0..300_000_u32).map(|n| n as u8).collect();
        let file = place.base.path().join("file").display().to_string();
        guest.session().put(&file, 0o600, &content).unwrap();
        assert!(guest.session().get(&file, 1 << 20).unwrap() == content);
        assert!(guest.cgroup().is_none_or(|cgroup| cgroup.processes().len() >= 2));
        freeze_and_thaw(&mut *guest);
        assert_eq!(place.asked(&mut seen), kind.freeze);
        let saved = place.base.path().join("saved");
        std::fs::create_dir(&saved).unwrap();
        guest.save(&saved).unwrap();
        assert_eq!(place.asked(&mut seen), kind.save);
        guest.stop().unwrap();
        guest.stop().unwrap();
        let (platform, _) = resolve(&request.environment).unwrap();
        platform.restores(&bench.host, &request).unwrap();
        for instance in [100, 101] {
            let again = GuestRequest { instance, ..request.clone() };
            place.asked(&mut seen);
            let mut guest = platform.restore(&bench.host, &again, &saved).unwrap();
            assert_eq!(place.asked(&mut seen), kind.load);
            check_placed(&*guest);
            assert_eq!(says(&mut *guest, "echo again"), "again");
            guest.stop().unwrap();
            assert_eq!(place.asked(&mut seen), kind.end);
        }
    }
}

/// A restored machine answers to the first connection, although it may hold the one of the machine
/// that was saved. Its guest listens at once, so that the saved machine could have its first one.
#[test]
fn a_restored_machine_ignores_no_connection() {
    for kind in KINDS {
        let place = Place::new(kind, "eager");
        let bench = Bench::alone("monitors-eager");
        let request = place.request(&bench);
        let mut guest = bench.launch(&request).unwrap();
        let saved = place.base.path().join("saved");
        std::fs::create_dir(&saved).unwrap();
        guest.save(&saved).unwrap();
        guest.stop().unwrap();
        let (platform, _) = resolve(&request.environment).unwrap();
        let again = GuestRequest { instance: 100, ..request.clone() };
        let mut guest = platform.restore(&bench.host, &again, &saved).unwrap();
        let machines = std::fs::read_dir(&bench.host.work).unwrap().flatten();
        let ignored = machines.filter(|machine| machine.path().join(IGNORED).exists()).count();
        assert_eq!(ignored, 0, "{}", kind.name);
        assert_eq!(says(&mut *guest, "echo again"), "again");
        guest.stop().unwrap();
    }
}

pub(super) fn check_placed(guest: &dyn Guest) {
    let all = weigh_host::facts::allowed_cpus();
    let (cpus, others): (Vec<_>, Vec<_>) = threads(guest).into_iter().partition(|(name, _)| is_cpu(name));
    assert_eq!(cpus.len(), 1, "{cpus:?}");
    assert_eq!(cpus[0].1, [last_cpu()]);
    // The probe is the guest's own process; a thread of the fake monitor started it.
    let others: Vec<_> = others.into_iter().filter(|(name, _)| name != "weigh-probe").collect();
    assert!(!others.is_empty() && others.iter().all(|(_, cpus)| *cpus == all), "{others:?}");
}

fn freeze_and_thaw(guest: &mut dyn Guest) {
    let script = "while :; do echo x; sleep 0.01; done";
    let id = guest.session().start(&command(&["sh", "-c", script])).unwrap();
    guest.session().signal(id, libc::SIGKILL).unwrap();
    guest.session().finish(id, MINUTE).unwrap();
    guest.freeze().unwrap();
    guest.freeze().unwrap();
    // The probe's process is in the state of a stopped one.
    let stands = |guest: &dyn Guest| {
        guest.processes().iter().any(|process| {
            let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
        })
    };
    assert!(stands(guest));
    guest.thaw().unwrap();
    guest.thaw().unwrap();
    assert!(!stands(guest));
    assert_eq!(says(guest, "echo awake"), "awake");
}

/// Some versions of Firecracker send nothing over vsock to a guest that was paused. Its guests talk
/// over the console instead, and vsock by name is refused.
#[test]
fn guests_of_versions_that_lose_vsock_survive_a_pause() {
    let place = Place::new(&KINDS[0], "version:1.16.1");
    let bench = Bench::alone("monitors-version");
    let mut guest = bench.launch(&place.request(&bench)).unwrap();
    guest.freeze().unwrap();
    guest.thaw().unwrap();
    assert_eq!(says(&mut *guest, "echo awake"), "awake");
    guest.stop().unwrap();
    let request = place.request_with(&bench, ",channel=vsock", &ImageSpec::Probe);
    let error = bench.launch(&request).err().unwrap().to_string();
    assert!(error.contains("sends nothing over vsock to a guest that was paused"), "{error}");
}

/// Firecracker restores no machine with huge pages from a file, and Cloud Hypervisor does.
#[test]
fn huge_pages_are_restored_only_where_the_monitor_can() {
    for kind in KINDS {
        let (place, bench) = Place::with_bench(kind, "monitors-pages");
        let request = place.request_with(&bench, ",hugepages=on", &ImageSpec::Probe);
        let (platform, _) = resolve(&request.environment).unwrap();
        let refused = platform.restores(&bench.host, &request).err().map(|error| error.to_string());
        let saved = place.base.path().join("saved");
        std::fs::create_dir(&saved).unwrap();
        let mut guest = bench.launch(&request).unwrap();
        guest.save(&saved).unwrap();
        guest.stop().unwrap();
        // The platform says what the monitor does.
        let again = GuestRequest { instance: 100, ..request.clone() };
        let restored = platform.restore(&bench.host, &again, &saved);
        assert_eq!(restored.is_err(), refused.is_some(), "{}: {refused:?}", kind.name);
        assert_eq!(refused.is_some(), kind.name == "firecracker");
    }
}

/// Firecracker's standard streams are the channel if asked for, shared with the guest's kernel
/// messages and nothing else.
#[test]
fn the_console_can_be_the_channel() {
    let (place, bench) = Place::with_bench(&KINDS[0], "monitors-serial");
    let request = place.request_with(&bench, ",channel=serial", &ImageSpec::Probe);
    let mut guest = bench.launch(&request).unwrap();
    assert!(line_told(&place).contains("-- --channel /dev/ttyS0"));
    assert_eq!(place.program.bodies("PUT /vsock").len(), 0);
    let said = guest.session().take_noise();
    let text = String::from_utf8_lossy(&said);
    assert!(text.contains("Linux version"), "{}", said.escape_ascii());
    // The monitor's own log would damage messages of the session.
    assert!(!text.contains("API server"), "{}", said.escape_ascii());
    let content: Vec<u8> = (0..60_000_u32).map(|n| n as u8).collect();
    let file = place.base.path().join("file").display().to_string();
    guest.session().put(&file, 0o600, &content).unwrap();
    assert!(guest.session().get(&file, 1 << 20).unwrap() == content);
    assert_eq!(says(&mut *guest, "echo $((6*7))"), "42");
    guest.stop().unwrap();
}
