//! Disks of machines, and roots on them: what guests see of them, that guests do not see each
//! other's, and what is left after a crash.

use crate::common::victim::Killed;
use crate::common::{Bench, MINUTE, patience, says, skip_or_fail, system_image, turn_for};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use weigh_platforms::{Guest, GuestRequest, RunOptions};

/// A request for a machine that can run everywhere.
fn request(bench: &Bench, keys: &str) -> GuestRequest {
    let memory_bytes = Some(256 << 20);
    let cpus = weigh_host::facts::allowed_cpus().into_iter().take(1).collect();
    GuestRequest { memory_bytes, cpus, ..bench.request(&format!("qemu:accel=tcg,{keys}")) }
}

/// Whether loop devices are available here. If not, prints so, and fails if `WEIGH_REQUIRE` names
/// `loop`.
fn loops(test: &str) -> bool {
    let works = weigh_host::facts::is_root() && Path::new("/dev/loop-control").exists();
    if !works {
        let reason = "there are no loop devices here, or not for this user";
        skip_or_fail(&format!("{test} on disk=block"), "loop", reason);
    }
    works
}

/// Loop devices above the files of a run.
fn attached(run: &str) -> BTreeSet<String> {
    let devices = std::fs::read_dir("/sys/block").unwrap().flatten();
    let files =
        devices.filter_map(|device| std::fs::read_to_string(device.path().join("loop/backing_file")).ok());
    files.filter(|file| file.contains(run)).collect()
}

/// A disk of any kind has its size, random content in every block, and the facts that QEMU reports.
#[test]
fn disks_are_full_of_random_bytes() {
    let Some(bench) = Bench::on("disks", "qemu") else { return };
    let mut kinds = vec![
        ("disk=raw,size=8MiB", "none", "raw file, aio=native"),
        ("disk=qcow2,size=8MiB,cache=writeback", "host's page cache (writeback)", "qcow2 file, aio=threads"),
    ];
    if loops("disks_are_full_of_random_bytes") {
        kinds.push((
            "disk=block,size=8MiB,cache=directsync",
            "none (directsync)",
            "raw block device, aio=native",
        ));
    }
    for (keys, cache, disk) in kinds {
        let mut guest = bench.launch(&request(&bench, &format!("{keys},rootfs=probe"))).unwrap();
        let facts = guest.facts();
        assert_eq!(
            (&*facts["cache"], &*facts["disk"], &*facts["root"]),
            (cache, disk, "initramfs"),
            "{keys}"
        );
        let size = guest.session().get("/sys/class/block/vda/size", 100).unwrap();
        assert_eq!(String::from_utf8_lossy(&size).trim(), (8 * 2048).to_string(), "{keys}");
        let before = guest.disk_meter().unwrap().read().unwrap();
        let content = guest.session().get("/dev/vda", 16 << 20).unwrap();
        assert_eq!(content.len(), 8 << 20);
        assert!(content.chunks(4096).all(|block| block.iter().any(|byte| *byte != 0)), "{keys}");
        let moved = guest.disk_meter().unwrap().read().unwrap();
        // The guest may have read a little when it detected the disk.
        let read = moved.read_bytes - before.read_bytes;
        assert!((7 << 20..10 << 20).contains(&read), "{keys}: {read}");
        assert_eq!(moved.written_bytes, 0);
        assert_eq!(attached(&bench.host.run).len(), usize::from(keys.contains("block")), "{keys}");
        guest.stop().unwrap();
        assert!(attached(&bench.host.run).is_empty());
        // As nobody has written to it, it serves the next guest.
        let pools = std::fs::read_dir(&bench.host.work).unwrap().flatten();
        let free = pools.filter(|pool| pool.file_name().to_string_lossy().starts_with("disks-"));
        assert!(free.count() > 0);
    }
}

/// Two simultaneous guests each write to their disk and their root, and see what they wrote and
/// nothing of the other's.
#[test]
fn no_two_guests_have_the_same_disk() {
    let test = "two";
    let Some(bench) = Bench::on(test, "qemu") else { return };
    let Some(image) = system_image(test) else { return };
    let keys = format!("disk=raw,size=1MiB,root=disk,rootfs={image}");
    let mut guests: Vec<Box<dyn Guest>> =
        (0..2).map(|_| bench.launch(&request(&bench, &keys)).unwrap()).collect();
    for (number, guest) in guests.iter_mut().enumerate() {
        assert_eq!(guest.facts()["root"], "disk, qcow2");
        let root = says(&mut **guest, "grep ' / ' /proc/mounts | tail -n 1");
        assert!(root.starts_with("/dev/vdb / ext4 rw"), "{root}");
        let script = format!(
            "echo {number} >/etc/mine; cat /var/lib/mine 2>/dev/null; echo own >/var/lib/mine; \
             printf own-{number} | dd of=/dev/vda conv=fsync 2>/dev/null; sync; ls /.weighbridge/probe"
        );
        assert_eq!(says(&mut **guest, &script), "/.weighbridge/probe");
    }
    for (number, guest) in guests.iter_mut().enumerate() {
        let seen = says(&mut **guest, "cat /etc/mine; head -c 5 /dev/vda");
        assert_eq!(seen, format!("{number}\nown-{number}"));
    }
    drop(guests);
    // No later guest sees what they wrote.
    let mut fresh = bench.launch(&request(&bench, &keys)).unwrap();
    let seen =
        says(&mut *fresh, "cat /etc/mine /var/lib/mine 2>/dev/null; head -c 3 /dev/vda | od -A n -c; true");
    assert!(!seen.contains("own") && !seen.contains("o   w   n"), "{seen}");
    let overlays = std::fs::read_dir(&bench.host.work).unwrap().flatten();
    let overlays = overlays.filter(|entry| entry.path().extension().is_some_and(|ending| ending == "qcow2"));
    assert_eq!(overlays.count(), 1, "those of guests that have ended are gone");
    fresh.stop().unwrap();
}

/// Debian from a disk: systemd is PID 1, the probe runs beside it, and commands run.
#[test]
fn a_system_boots_from_its_disk() {
    let test = "system";
    let Some(bench) = Bench::on(test, "qemu") else { return };
    let Some(image) = system_image(test) else { return };
    let keys = format!("init=full,rootfs={image}");
    let request = GuestRequest { memory_bytes: Some(512 << 20), ..request(&bench, &keys) };
    let mut guest = bench.launch(&request).unwrap();
    let wait = "until systemctl is-active --quiet multi-user.target; do sleep 0.2; done; cat /proc/1/comm; \
                grep -c ' /tmp tmpfs ' /proc/mounts; cat /proc/self/cgroup; systemctl --failed --plain --no-legend";
    let done = guest
        .session()
        .run(&crate::common::command(&["sh", "-c", wait]), RunOptions::within(patience(4 * MINUTE)))
        .unwrap();
    let said = String::from_utf8(done.output).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..2], ["systemd", "1"], "{said}");
    assert!(lines[2].contains("init.scope"), "{said}");
    assert_eq!(lines.len(), 3, "units failed: {said}");
    assert_eq!(guest.facts()["root"], "disk, qcow2");
    assert!(!guest.session().facts(&[], &[]).unwrap().init, "the probe is beside the init");
    guest.stop().unwrap();
}

/// SIGKILL with overlays and loop devices: the sweep removes them.
#[test]
fn killed_with_disks_nothing_is_left() {
    let test = "killed_with_disks_nothing_is_left";
    let Some(_turn) = turn_for(test, "qemu").filter(|_| loops(test)) else { return };
    let Some(image) = system_image(test) else { return };
    let environment = format!("qemu:accel=tcg,memory=256MiB,disk=block,size=1MiB,root=disk,rootfs={image}");
    for when in [Killed::Running, Killed::Launching(Duration::from_millis(700))] {
        crate::common::victim::kill_and_sweep("disks", &environment, when);
        assert!(attached(&format!("test-disks-{}", std::process::id())).is_empty());
    }
}
