//! The same drivers with the real programs, where both they and KVM are.

use super::life::check_placed;
use super::{FIRECRACKER, KINDS, last_cpu};
use crate::common::{Bench, MINUTE, command, system_image, turn_for};
use weigh_model::ImageSpec;
use weigh_platforms::{GuestRequest, RunOptions, resolve};

/// A run with a monitor, and a request for a machine with one CPU and only the probe.
fn bench(name: &str, keys: &str) -> Option<(Bench, GuestRequest)> {
    let bench = Bench::on("real-monitors", name)?;
    let request = bench.request_with(&format!("{name}:{keys}"), &ImageSpec::Probe, None);
    let memory_bytes = Some(256 << 20);
    Some((bench, GuestRequest { cpus: vec![last_cpu()], memory_bytes, ..request }))
}

/// KVM executes the machine, its CPU is on the one that was asked for, and each copy of it has what
/// was in its memory.
#[test]
fn real_machines_are_saved_and_restored() {
    for kind in KINDS {
        let Some((bench, request)) = bench(kind.name, "net=none") else { continue };
        let mut guest = bench.launch(&request).unwrap();
        assert_eq!(guest.facts()["acceleration"], "kvm");
        check_placed(&*guest);
        guest.freeze().unwrap();
        guest.thaw().unwrap();
        guest.session().put("/tmp/note", 0o600, b"of the one that was saved").unwrap();
        let saved = bench.host.work.join("saved");
        std::fs::create_dir(&saved).unwrap();
        guest.save(&saved).unwrap();
        guest.stop().unwrap();
        let (platform, _) = resolve(&request.environment).unwrap();
        for instance in [100, 101] {
            let again = GuestRequest { instance, ..request.clone() };
            let mut copy = platform.restore(&bench.host, &again, &saved).unwrap();
            assert_eq!(copy.facts()["acceleration"], "kvm");
            check_placed(&*copy);
            let note = copy.session().get("/tmp/note", 100).unwrap();
            assert_eq!(note, b"of the one that was saved");
            copy.stop().unwrap();
        }
    }
}

/// The guest has the disk that the monitor was told of. It is small, because it may have to pass
/// through a serial line.
#[test]
fn real_machines_have_their_disks() {
    for kind in KINDS {
        let Some((bench, request)) = bench(kind.name, "disk=raw,size=1MiB") else { continue };
        let mut guest = bench.launch(&request).unwrap();
        let size = guest.session().get("/sys/class/block/vda/size", 100).unwrap();
        assert_eq!(String::from_utf8_lossy(&size).trim(), 2048.to_string());
        let content = guest.session().get("/dev/vda", 2 << 20).unwrap();
        assert_eq!(content.len(), 1 << 20);
        assert!(content.chunks(4096).all(|block| block.iter().any(|byte| *byte != 0)));
        guest.stop().unwrap();
    }
}

/// Clients reach the machine as `net` says.
#[test]
fn real_machines_are_reached() {
    for kind in KINDS {
        let Some(_turn) = turn_for("real-monitors", kind.name) else { continue };
        // Its guests see none of the host's programs.
        if let Some(image) = system_image("real-monitors") {
            crate::networks::every_network_of_machines(&format!("{}:rootfs={image}", kind.name));
        }
    }
}

/// The kernel's messages and the session share the serial line.
#[test]
fn the_console_of_a_real_machine_can_be_the_channel() {
    let Some((bench, request)) = bench(FIRECRACKER.name, "channel=serial") else { return };
    let mut guest = bench.launch(&request).unwrap();
    let version = command(&["/.weighbridge/probe", "--version"]);
    let done = guest.session().run(&version, RunOptions::within(MINUTE)).unwrap();
    assert!(done.output.starts_with(b"weigh-probe "), "{done:?}");
    guest.stop().unwrap();
}
