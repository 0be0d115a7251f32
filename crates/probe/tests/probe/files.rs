//! Files, clocks and facts.

use crate::driver::Driver;
use std::os::unix::fs::PermissionsExt;
use weigh_protocol::{Questions, Reply, Request};

fn put(probe: &mut Driver, path: &str, mode: u32, first: bool, bytes: &[u8]) -> Reply {
    let id = probe.id();
    probe.send(&Request::Put { id, path: path.into(), mode, first, bytes: bytes.to_vec() });
    probe.next()
}

fn get(probe: &mut Driver, path: &str, limit_bytes: u64) -> Result<Vec<u8>, (String, i32)> {
    let id = probe.id();
    probe.send(&Request::Get { id, path: path.into(), limit_bytes });
    let mut content = Vec::new();
    loop {
        match probe.next() {
            Reply::File { bytes, .. } => content.extend(bytes),
            Reply::Done { id: of } if of == id => return Ok(content),
            Reply::Refused { reason, errno, .. } => return Err((reason, errno)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn files_go_in_and_come_out() {
    let mut probe = Driver::start();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a/b/file");
    let name = path.to_str().unwrap();
    let content: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    for (at, piece) in content.chunks(700_000).enumerate() {
        assert!(matches!(put(&mut probe, name, 0o751, at == 0, piece), Reply::Done { .. }));
    }
    assert!(std::fs::read(&path).unwrap() == content);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o751);
    assert!(get(&mut probe, name, 3_000_000).unwrap() == content);
    let (reason, errno) = get(&mut probe, name, 2_999_999).unwrap_err();
    assert_eq!(errno, 27, "{reason}");
    // A first part empties the existing file.
    put(&mut probe, name, 0o600, true, b"short");
    assert_eq!(get(&mut probe, name, 100).unwrap(), b"short");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
}

#[test]
fn faults_with_files_are_refused_with_the_path() {
    let mut probe = Driver::start();
    let (reason, errno) = get(&mut probe, "/no/such/file", 10).unwrap_err();
    assert!(errno == 2 && reason.contains("/no/such/file"), "{reason}");
    assert_eq!(get(&mut probe, "/etc", 10).unwrap_err().1, 21);
    let refused = |reply: Reply| match reply {
        Reply::Refused { reason, errno, .. } => (reason, errno),
        other => panic!("{other:?}"),
    };
    let (reason, errno) = refused(put(&mut probe, "/etc/passwd/x", 0o600, true, b""));
    assert!(errno == 20 && reason.contains("/etc/passwd"), "{errno} {reason}");
    assert_eq!(refused(put(&mut probe, "relative", 0o600, true, b"")).1, 22);
}

#[test]
fn clocks_lie_between_two_readings_of_the_host() {
    let mut probe = Driver::start();
    let now = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    };
    for _ in 0..20 {
        let before = now();
        let id = probe.id();
        probe.send(&Request::Clock { id });
        let Reply::Clock { reading, .. } = probe.next() else { panic!("no clock") };
        assert!((before..=now()).contains(&reading.monotonic_ns));
        assert!(reading.boottime_ns >= reading.monotonic_ns);
        assert!(reading.realtime_ns > 1_600_000_000_000_000_000);
    }
}

#[test]
fn facts_are_those_of_this_machine() {
    let mut probe = Driver::start();
    let facts = probe.facts(Questions::default());
    let read = |path: &str| std::fs::read_to_string(path).ok().map(|text| text.trim().to_string());
    assert_eq!(facts.boot, read("/proc/sys/kernel/random/boot_id"));
    assert_eq!(Some(facts.kernel), read("/proc/sys/kernel/osrelease"));
    assert_eq!(facts.cpus.len(), std::thread::available_parallelism().unwrap().get());
    assert!(!facts.init);
    assert_eq!(facts.user, rustix::process::geteuid().as_raw());
    assert!(facts.network_interfaces.contains(&"lo".to_string()), "{:?}", facts.network_interfaces);
    assert!(facts.root_file_system.is_some());
    assert_eq!(facts.clock_source, read("/sys/devices/system/clocksource/clocksource0/current_clocksource"));
}
