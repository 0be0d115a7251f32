//! What the conformance suite cannot test of libvirt machines: their keys, their daemons, and what
//! a killed run leaves.

use crate::common::victim::{Killed, kill_and_sweep, kill_while_launching};
use crate::common::{Bench, acceleration, says, status, system_image, turn_for};
use std::path::PathBuf;
use std::time::Duration;
use weigh_host::command::Invocation;
use weigh_host::ledger::Change;
use weigh_model::ImageSpec;
use weigh_platforms::{Guest, GuestRequest};

const EMULATED: &str = "libvirt:accel=tcg";

/// A request for a guest with only the probe.
fn request(bench: &Bench, environment: &str) -> GuestRequest {
    let request = bench.request_with(environment, &ImageSpec::Probe, None);
    GuestRequest { memory_bytes: Some(256 << 20), ..request }
}

fn read(guest: &mut dyn Guest, path: &str) -> Vec<u8> {
    guest.session().get(path, 64 << 20).unwrap()
}

/// The socket of a run's daemon.
fn socket(bench: &Bench) -> PathBuf {
    bench.host.work.join("lv/libvirt-sock")
}

/// The names of a daemon's domains.
fn domains(uri: &str) -> String {
    let list = Invocation::new("virsh").args(["--connect", uri, "list", "--all", "--name"]);
    String::from_utf8(list.run_ok().unwrap().output).unwrap().trim().into()
}

/// The guest has everything that its machine's keys ask for, and somebody else's daemon is asked
/// for domains only.
#[test]
fn machines_follow_their_keys_with_own_and_foreign_daemons() {
    let Some(bench) = Bench::on("libvirt-keys", EMULATED) else { return };
    let keys = "machine=q35,tune=on,hugepages=off,disk=qcow2,size=8MiB,cache=writeback,net=bridge,vhost=off";
    let mut guest = bench.launch(&request(&bench, &format!("{EMULATED},{keys}"))).unwrap();
    let facts = guest.facts();
    let made = guest.read_back().unwrap();
    assert_eq!(facts["acceleration"], acceleration());
    assert_eq!((&*facts["network"], &*facts["network-card"]), ("bridge", "virtio-net-pci, no vhost"));
    assert_eq!(guest.exit_reason(), None);
    assert_eq!(facts["cache"], "host's page cache (writeback)");
    let content = read(&mut *guest, "/dev/vda");
    assert_eq!(content.len(), 8 << 20);
    assert!(content.chunks(4096).all(|block| block.iter().any(|byte| *byte != 0)), "it is full");
    let board = read(&mut *guest, "/sys/class/dmi/id/product_name");
    assert!(String::from_utf8_lossy(&board).contains("Q35"), "{board:?}");
    let cpus = weigh_host::facts::allowed_cpus().len();
    assert_eq!(guest.session().facts(&[], &[]).unwrap().cpus.len(), cpus);
    // The guest's kernel answers at its address, and refuses, because nobody listens.
    let reach = guest.reach(7).unwrap();
    let answer = weigh_network::connect(reach.address, reach.from.as_deref(), Duration::from_secs(20));
    assert_eq!(answer.unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
    // Each CPU is pinned separately, the disk has a thread, and QEMU is in the guest's group.
    assert!(made["machine:placement"].starts_with("pinned: 0 on "), "{made:?}");
    let model = if acceleration() == "kvm" { "host" } else { "max" };
    assert!(made["machine:cpu"].starts_with(model), "{made:?}");
    assert!(made["machine:iothread"].contains("iothread"), "{made:?}");
    let qemu = *guest.processes().last().unwrap();
    assert!(guest.cgroup().unwrap().processes().contains(&qemu));
    assert!(guest.freezer().is_some());
    assert_eq!(status(qemu, "Seccomp"), "2", "libvirt filters its system calls");
    let shared = guest.accounts().daemons;
    assert!(!shared.is_empty() && shared.iter().all(|daemon| daemon.pid != qemu), "{shared:?}");
    guest.stop().unwrap();

    let (spawned, code) = (guest.spawned_ns(), guest.code_ns().unwrap());
    assert!(spawned < code && code < weigh_host::clock::monotonic_ns(), "{spawned} {code}");

    // One run's daemon is somebody else's daemon for another run.
    let uri = format!("qemu+unix:///system?socket={}", socket(&bench).display());
    let other = Bench::new("libvirt-uri");
    let mut guest = other.launch(&request(&other, &format!("{EMULATED},uri={uri}"))).unwrap();
    assert!(domains(&uri).contains(&other.host.run));
    assert!(guest.freezer().is_none(), "its group does not hold QEMU");
    guest.freeze().unwrap();
    guest.thaw().unwrap();
    let accounts = guest.accounts();
    assert!(!accounts.processes.is_empty() && !accounts.are_all_in_groups(), "{accounts:?}");
    // The loss of a machine that somebody kills is noticed.
    for process in guest.processes() {
        let pid = rustix::process::Pid::from_raw(process.cast_signed()).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    guest.session().clock().unwrap_err();
    let exit_reason = guest.exit_reason().unwrap();
    assert!(exit_reason.contains("its QEMU has ended"), "{exit_reason}");
    guest.stop().unwrap();
    assert_eq!(domains(&uri), "");
    let daemon = |change: &Change| change.to_string().contains("libvirt-daemon");
    assert!(!other.host.ledger.standing().iter().any(daemon), "it has none of its own");
    drop(other);
    assert_eq!(domains(&uri), "", "it lives on");
}

/// A full system from its own disk, with the disk for workloads before it. It takes a minute
/// without acceleration.
#[test]
fn a_system_boots_from_a_disk() {
    let test = "a_system_boots_from_a_disk";
    if std::env::var_os("WEIGH_LONG").is_none() {
        eprintln!("SKIPPED {test}: it boots a whole system; WEIGH_LONG=1 has it");
        return;
    }
    let Some(image) = system_image(test) else { return };
    let Some(bench) = Bench::on("libvirt-full", EMULATED) else { return };
    let keys = format!("{EMULATED},init=full,disk=raw,size=8MiB,rootfs={image}");
    let request = GuestRequest { memory_bytes: Some(512 << 20), ..bench.request(&keys) };
    let mut guest = bench.launch(&request).unwrap();
    assert_eq!(says(&mut *guest, "cat /proc/1/comm"), "systemd");
    assert_eq!(says(&mut *guest, "findmnt -n -o SOURCE,FSTYPE /"), "/dev/vdb ext4");
    assert_eq!(says(&mut *guest, "cat /sys/class/block/vda/size"), (8 * 2048).to_string());
    let wait = "until systemctl is-active multi-user.target; do sleep 1; done | tail -n 1";
    assert_eq!(says(&mut *guest, wait), "active");
    assert_eq!(guest.facts()["cache"], "none");
    guest.stop().unwrap();
}

#[test]
fn nothing_outlives_a_killed_run() {
    let Some(_turn) = turn_for("libvirt-killed", EMULATED) else { return };
    assert!(kill_and_sweep("killed-libvirt", &format!("{EMULATED},net=nat"), Killed::Running) > 3);
    // The daemon starts, probes QEMU, and starts QEMU.
    kill_while_launching("launch-libvirt", EMULATED, &[20, 150, 400, 800]);
}
