//! Tests with fake QEMUs.

use super::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;
use weigh_host::cgroup::Hierarchy;
use weigh_host::ledger::{Change, Ledger};
use weigh_host::state::StateDirectory;
use weigh_images::{Programs, Root};
use weigh_model::ImageSpec;

/// Longer than the deadline: killed processes take time to end on a busy host.
const PATIENCE: Duration = Duration::from_secs(8);

struct Bench {
    base: tempfile::TempDir,
    host: Host,
}

impl Bench {
    fn new(name: &str) -> Self {
        let base = tempfile::tempdir_in("/var/tmp").unwrap();
        let run = format!("test-qemu-{name}-{}", std::process::id());
        let state = StateDirectory::at(base.path().join("state"));
        let ledger = Ledger::create(&state, &run).unwrap();
        let work = state.path().join("work");
        ledger.record(Change::Directory { path: work.clone() }).unwrap();
        let logs = base.path().join("logs");
        for directory in [&work, &logs] {
            fs::create_dir_all(directory).unwrap();
        }
        let programs = Programs { probe: "/bin/true".into(), kernels: "/bin/true".into(), module: None };
        let is_root = weigh_host::facts::is_root();
        let (hierarchy, fetch_until) = (Hierarchy::detect(), None);
        let host = Host { ledger, hierarchy, work, logs, run, programs, is_root, fetch_until };
        Self { base, host }
    }

    /// A kernel that nothing boots, so that none is fetched, and this script as a QEMU that takes all
    /// options.
    fn fake(&self, script: &str) -> EnvironmentSpec {
        let (kernel, binary) = (self.base.path().join("vmlinux-1"), self.base.path().join("fake-qemu"));
        fs::write(&kernel, b"\x7fELF Linux version 1.2.3 ").unwrap();
        let trial = r#"case "$*" in *"-machine none"*-sandbox*) exit;; esac"#;
        fs::write(&binary, format!("#!/bin/bash\n{trial}\n{script}\n")).unwrap();
        fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).unwrap();
        EnvironmentSpec::parse(&format!("qemu:binary={},kernel={}", binary.display(), kernel.display()))
            .unwrap()
    }

    /// A launch with KVM, which must fail within the time of a proof and leave nothing behind.
    fn failure(&self, environment: &EnvironmentSpec, marker: &str) -> String {
        let root = Root::prepare(&ImageSpec::Probe, &self.host.programs, &self.host.work.join("root"), None);
        let request = GuestRequest {
            memory_bytes: Some(accel::PROOF_MEMORY_BYTES),
            ..GuestRequest::new(environment.clone(), 0, Arc::new(root.unwrap()))
        };
        let prepared = prepare::prepare(&self.host, &request).unwrap();
        let started = Instant::now();
        let error = prove_by_booting(&self.host, &request, &prepared).unwrap_err().to_string();
        assert!(started.elapsed() < accel::PROOF_DEADLINE + PATIENCE, "{:?}", started.elapsed());
        self.assert_nothing_left(marker);
        error
    }

    fn assert_nothing_left(&self, marker: &str) {
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let arguments = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let arguments = String::from_utf8_lossy(&arguments).into_owned();
            assert!(!arguments.contains(marker), "{} lives on: {arguments}", entry.path().display());
        }
        let standing = self.host.ledger.standing();
        assert!(standing.iter().all(|change| matches!(change, Change::Directory { .. })), "{standing:?}");
    }

    fn close(self) {
        self.host.ledger.close(&crate::Undoers).unwrap();
    }
}

#[test]
fn a_qemu_that_hangs_is_killed_with_its_children() {
    let bench = Bench::new("hangs");
    let marker = format!("1000.{}1", std::process::id());
    let environment = bench.fake(&format!("sleep {marker} & sleep {marker}"));
    let error = bench.failure(&environment, &marker);
    assert!(error.contains("in time"), "{error}");
    bench.close();
}

#[test]
fn a_qemu_that_ignores_signals_is_killed() {
    let bench = Bench::new("ignores");
    let marker = format!("1000.{}2", std::process::id());
    // It answers once and then falls silent. Not every shell takes a number of two digits for a
    // descriptor; bash does.
    let script = format!(
        r#"trap '' TERM INT HUP QUIT
for word in "$@"; do case $word in socket,id=qmp,fd=*) fd=${{word##*=}};; esac; done
echo '{{"QMP": {{}}}}' >&$fd; read -u $fd line; echo '{{"return": {{}}}}' >&$fd
(trap '' TERM; sleep {marker}) & while :; do sleep {marker}; done"#
    );
    let error = bench.failure(&bench.fake(&script), &marker);
    assert!(error.contains("query-cpus-fast"), "{error}");
    bench.close();
}

#[test]
fn the_last_words_of_qemu_are_reported() {
    let bench = Bench::new("exits");
    let started = Instant::now();
    let error = bench.failure(&bench.fake("echo 'no such machine' >&2; exit 1"), "no such argument");
    assert!(started.elapsed() < accel::PROOF_DEADLINE, "it is noticed at once: {:?}", started.elapsed());
    assert!(error.contains("no such machine") && !error.contains("-nodefaults"), "{error}");
    bench.close();
}

/// A QEMU that emulates although KVM was asked for is refused.
#[test]
fn emulation_never_passes_for_kvm() {
    let bench = Bench::new("passes");
    let script = r#"for word in "$@"; do case $word in socket,id=qmp,fd=*) fd=${word##*=};; esac; done
echo '{"QMP": {}}' >&$fd
while read -u $fd line; do case $line in
*query-cpus-fast*) echo '{"return": [{"cpu-index": 0, "thread-id": '$$'}]}' >&$fd;;
*query-kvm*) echo '{"return": {"present": true, "enabled": false}}' >&$fd;;
*) echo '{"return": {}}' >&$fd;; esac; done"#;
    let environment = bench.fake(script);
    let root = Root::prepare(&ImageSpec::Probe, &bench.host.programs, &bench.host.work.join("root"), None);
    let request = accel::proof_request(&GuestRequest::new(environment, 0, Arc::new(root.unwrap())));
    let prepared = prepare::prepare(&bench.host, &request).unwrap();
    let error = prove_by_booting(&bench.host, &request, &prepared).unwrap_err().to_string();
    assert!(error.contains("by tcg although kvm was asked for"), "{error}");
    bench.close();
}

#[test]
fn disks_are_checked() {
    let refused = |text: &str| {
        let error = crate::resolve(&EnvironmentSpec::parse(text).unwrap()).err().unwrap();
        error.text[error.span].to_string()
    };
    for (text, word) in [
        ("qemu:disk=1GiB", "1GiB"),
        ("qemu:disk=raw,size=0", "0"),
        ("qemu:size=1GiB", "size"),
        ("qemu:cache=none", "cache"),
        ("qemu:aio=threads", "aio"),
        ("qemu:disk=raw,cache=writeback,aio=native", "native"),
        ("qemu:root=disk,rootfs=probe", "probe"),
        ("qemu:init=full,root=9p", "9p"),
        ("qemu:init=full,rootfs=host", "host"),
    ] {
        assert_eq!(refused(text), word, "{text}");
    }
    for text in [
        "qemu:disk=raw,size=1GiB,cache=writeback",
        "qemu:disk=qcow2,cache=unsafe,aio=io_uring",
        "qemu:root=disk,cache=directsync,aio=native",
        "qemu:init=full",
    ] {
        crate::resolve(&EnvironmentSpec::parse(text).unwrap()).unwrap();
    }
}

/// io_uring that does not work is refused at planning, with QEMU's message.
#[test]
fn io_uring_is_proven_or_refused() {
    let bench = Bench::new("io_uring");
    let fake = bench.fake("echo 'fake-qemu: aio=io_uring was specified, but is not supported' >&2; exit 1");
    let fake = fake.with("disk", "raw").with("aio", "io_uring").with("accel", "tcg");
    let error = Qemu.make_explicit(&bench.host, &fake).unwrap_err().to_string();
    assert!(error.contains("not supported") && error.contains("aio=threads"), "{error}");
    bench.close();
}

/// The key `init` decides the capability `system`, and a system's default image.
#[test]
fn a_system_is_a_capability() {
    let can = |text: &str| Qemu.capabilities(&EnvironmentSpec::parse(text).unwrap());
    assert!(!can("qemu").system && can("qemu:init=full").system);
    assert!(!can("qemu:init=full").host_root && !can("qemu:root=initramfs").host_root);
    let spec = EnvironmentSpec::parse("qemu:init=full").unwrap();
    assert_eq!(crate::common_keys::image(&Qemu, &spec, &ImageSpec::Host), ImageSpec::Debian);
}
