//! What the conformance suite cannot ask of a machine: its acceleration, its types, its disk.

#![expect(clippy::unwrap_used, reason = "what these helpers unwrap is what the tests are about")]
#![expect(clippy::print_stderr, reason = "a skipped test says so")]

mod static_probe;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weigh_host::cgroup::Hierarchy;
use weigh_host::command::find_program;
use weigh_host::ledger::{Change, Ledger};
use weigh_host::state::StateDirectory;
use weigh_images::{Programs, Root};
use weigh_model::{EnvironmentSpec, ImageSpec};
use weigh_platforms::{Guest, GuestRequest, Host, PlatformError, RunOptions, Undoers, resolve};
use weigh_protocol::Command;

struct Bench {
    base: tempfile::TempDir,
    host: Host,
}

impl Bench {
    /// `None`, said, where there is no QEMU.
    fn new(name: &str) -> Option<Self> {
        let binary = format!("qemu-system-{}", std::env::consts::ARCH);
        if find_program(&binary).is_none() {
            let required = std::env::var("WEIGH_REQUIRE").unwrap_or_default();
            assert!(!required.split(',').any(|name| name == "qemu"), "{binary} is required");
            eprintln!("SKIPPED {name}: {binary} is not installed");
            return None;
        }
        let base = tempfile::tempdir_in("/var/tmp").unwrap();
        let run = format!("qemu-{name}-{}", std::process::id());
        let state = StateDirectory::at(base.path().join("state"));
        let ledger = Ledger::create(&state, &run).unwrap();
        let work = state.path().join("work");
        ledger.record(Change::Directory { path: work.clone() }).unwrap();
        let logs = base.path().join("logs");
        for directory in [&work, &logs] {
            std::fs::create_dir_all(directory).unwrap();
        }
        let programs = Programs { probe: static_probe::path().into(), kernels: "/bin/true".into() };
        let is_root = weigh_host::facts::is_root();
        let host = Host { ledger, hierarchy: Hierarchy::detect(), work, logs, run, programs, is_root };
        Some(Self { base, host })
    }

    fn launch(&self, environment: &str, instance: u64) -> Box<dyn Guest> {
        let (platform, environment) = resolve(&EnvironmentSpec::parse(environment).unwrap()).unwrap();
        let place = self.host.work.join(format!("root-{instance}"));
        let root = Root::prepare(&ImageSpec::Probe, &self.host.programs, &place, None).unwrap();
        let cpus = weigh_host::facts::allowed_cpus().into_iter().take(1).collect();
        let memory_bytes = Some(256 << 20);
        let request = GuestRequest {
            environment,
            instance,
            root: Arc::new(root),
            cpus,
            memory_bytes,
            publish: Vec::new(),
        };
        platform.launch(&self.host, &request).unwrap()
    }

    fn settle(&self, environment: &str) -> Result<String, PlatformError> {
        let (platform, environment) = resolve(&EnvironmentSpec::parse(environment).unwrap()).unwrap();
        platform.settle(&self.host, &environment).map(|settled| settled.to_string())
    }

    /// The installed QEMU under a name of its own, of which nothing is known.
    fn fresh_qemu(&self) -> PathBuf {
        let link = self.base.path().join("qemu");
        let binary = find_program(&format!("qemu-system-{}", std::env::consts::ARCH)).unwrap();
        std::os::unix::fs::symlink(binary, &link).unwrap();
        link
    }

    fn close(self) {
        let standing = self.host.ledger.standing();
        assert!(standing.iter().all(|change| matches!(change, Change::Directory { .. })), "{standing:?}");
        self.host.ledger.close(&Undoers).unwrap();
    }
}

/// KVM is proven by a guest, or not at all: whatever `/dev/kvm` can do here, it is found within the deadline and kept, `auto` means what
/// was found, and what is asked for by name is never something else.
#[test]
fn acceleration_is_proven_by_booting() {
    let Some(bench) = Bench::new("proof") else { return };
    // `qemu64` is a model that any processor can be; with it a guest starts even where it then hangs.
    let keys = format!("binary={},cpu=qemu64", bench.fresh_qemu().display());
    let started = Instant::now();
    let first = bench.settle(&format!("kvm:{keys}"));
    // The deadline of the proof, and what killing takes on a busy host.
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    let auto = bench.settle(&format!("qemu:{keys}")).unwrap();
    assert_eq!(bench.settle(&format!("qemu:accel=tcg,{keys}")).unwrap(), format!("qemu:accel=tcg,{keys}"));
    match first {
        Ok(settled) => {
            assert_eq!(settled, format!("qemu:accel=kvm,{keys}"));
            assert_eq!(auto, settled);
        }
        Err(error) => {
            assert_eq!(auto, format!("qemu:accel=tcg,{keys}"));
            let text = error.to_string();
            assert!(text.contains("/dev/kvm"), "{text}");
            eprintln!("KVM here: {text}");
            let started = Instant::now();
            let again = bench.settle(&format!("kvm:{keys}")).unwrap_err().to_string();
            assert!(started.elapsed() < Duration::from_secs(3), "it is kept: {:?}", started.elapsed());
            // The remedy names the place where it is kept; without a device nothing is.
            if let Some(place) = again.split_once("then remove ").and_then(|(_, rest)| rest.split(' ').next())
            {
                assert!(again.contains("no guest answered"), "{again}");
                std::fs::remove_dir_all(place).unwrap();
                std::fs::remove_file(format!("{place}.lock")).unwrap();
            }
        }
    }
    bench.close();
}

/// Other types of machine boot as well.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_microvm_boots() {
    let Some(bench) = Bench::new("microvm") else { return };
    let mut guest = bench.launch("qemu:accel=tcg,machine=microvm", 0);
    assert_eq!(guest.facts()["acceleration"], "tcg");
    assert_eq!(guest.session().facts(&[], &[]).unwrap().cpus, [0]);
    guest.stop().unwrap();
    bench.close();
}

/// The disk is there, full, and its way past the host's cache is told.
#[test]
fn a_disk_is_full_of_random_bytes() {
    let Some(bench) = Bench::new("disk") else { return };
    for (instance, (cache, fact)) in
        [("none", "none"), ("writeback", "host's page cache (writeback)")].into_iter().enumerate()
    {
        let mut guest = bench.launch(&format!("qemu:accel=tcg,disk=8MiB,cache={cache}"), instance as u64);
        assert_eq!(guest.facts()["cache"], fact);
        let size = guest.session().get("/sys/class/block/vda/size", 100).unwrap();
        assert_eq!(String::from_utf8_lossy(&size).trim(), (8 * 2048).to_string());
        let content = guest.session().get("/dev/vda", 16 << 20).unwrap();
        assert_eq!(content.len(), 8 << 20);
        assert!(content.chunks(4096).all(|block| block.iter().any(|byte| *byte != 0)));
        guest.stop().unwrap();
    }
    bench.close();
}

/// What a guest's clock does while it is frozen, and what its kernel says of it: nothing.
#[test]
fn a_frozen_guest_does_not_see_the_time() {
    let Some(bench) = Bench::new("frozen") else { return };
    let mut guest = bench.launch("qemu:accel=tcg", 0);
    let read = |guest: &mut dyn Guest| guest.session().clock().unwrap().0;
    let before = read(&mut *guest);
    for _ in 0..3 {
        guest.freeze().unwrap();
        std::thread::sleep(Duration::from_secs(2));
        guest.thaw().unwrap();
    }
    let after = read(&mut *guest);
    for (before, after) in
        [(before.monotonic_ns, after.monotonic_ns), (before.realtime_ns, after.realtime_ns)]
    {
        assert!(after - before < 3_000_000_000, "{before} ns, then {after} ns");
    }
    let version = Command {
        argv: vec!["/.weighbridge/probe".into(), "--version".into()],
        environment: Vec::new(),
        working_directory: None,
        input: false,
        output_limit_bytes: 1000,
    };
    guest.session().run(&version, RunOptions::within(Duration::from_secs(30))).unwrap();
    let log = std::fs::read_to_string(guest.log().unwrap()).unwrap();
    for word in ["stall", "lockup", "unstable", "Marking TSC", "WARNING", "BUG"] {
        assert!(!log.contains(word), "{log}");
    }
    guest.stop().unwrap();
    bench.close();
}
