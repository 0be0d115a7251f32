//! What only containers guarantee: their logs, their mounts, and that nothing of them outlives a
//! crash.
//!
//! It is the same for every platform with a bundle or an engine. What all platforms guarantee is in
//! `conformance/`, their networks are in `networks.rs` and `engines.rs`, and what the runtimes' keys
//! guarantee is in `runtimes.rs`.

use crate::common::victim::{Killed, kill_and_sweep, kill_while_launching};
use crate::common::{Bench, MINUTE, benches, benches_with, command, exclusive_turn, says, shell};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weigh_host::command::Invocation;
use weigh_model::ImageSpec;
use weigh_platforms::{GuestRequest, PlatformError, RunOptions, SessionError};
use weigh_protocol::{Command, Reply, Status, Stream, encode};

/// The platforms that this file tests.
const PLATFORMS: &[&str] = &["runc", "crun", "youki", "runsc", "docker"];

/// Root in a container floods the standard error of the program that carries it: the log stays
/// short, and the guest works.
#[test]
fn no_guest_fills_the_disk_by_its_log() {
    for (platform, bench) in benches("flood", &["namespaces", "runc", "crun", "docker"]) {
        let mut guest = bench.guest(platform);
        let done =
            shell(&mut *guest, "head -c 200000000 /dev/zero > /proc/1/fd/2; echo the end > /proc/1/fd/2");
        assert_eq!(
            done.end.status,
            Status::Exited(0),
            "{platform}: {}",
            String::from_utf8_lossy(&done.error)
        );
        guest.stop().unwrap();
        let logs = std::fs::read_dir(&bench.host.logs).unwrap().flatten().map(|entry| entry.path());
        let (flooded, others): (Vec<_>, Vec<_>) =
            logs.partition(|log| weigh_host::log::tail(log, 8) == b"the end\n");
        assert_eq!(flooded.len(), 1, "{platform}: {others:?}");
        let length = flooded[0].metadata().unwrap().len();
        assert!((1 << 20..=weigh_host::log::LONGEST_BYTES).contains(&length), "{platform}: {length}");
    }
}

/// Root in a container forges the probe's frames without end: it gets no more of the host's memory
/// than the command's output limit, and no more time.
#[test]
fn no_guest_fills_the_memory_with_forged_output() {
    for (platform, bench) in benches("forged", &["namespaces", "runc", "crun", "docker"]) {
        let mut guest = bench.guest(platform);
        let forged = |id: u32| {
            let bytes = vec![b'x'; 32 << 10];
            let reply = Reply::Output { id, stream: Stream::Output, bytes };
            let mut frame = Vec::new();
            encode(&reply, &mut frame).unwrap();
            frame
        };
        // The host numbers its requests; the next number is among these.
        let frames: Vec<u8> = (1..50).flat_map(forged).collect();
        guest.session().put("/tmp/frames", 0o644, &frames).unwrap();
        let flood = "while cat /tmp/frames; do :; done > /proc/1/fd/1";
        let flood = Command { output_limit_bytes: 4 << 20, ..command(&["sh", "-c", flood]) };
        let started = Instant::now();
        let error = guest.session().run(&flood, RunOptions::within(MINUTE)).unwrap_err().to_string();
        assert!(
            error.contains("more than it was asked for") || error.contains("nobody asked for"),
            "{platform}: {error}"
        );
        assert!(started.elapsed() < MINUTE, "{platform}");
        guest.stop().unwrap();
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().trim().to_string();
    let kib: u64 = peak.split(' ').next().unwrap().parse().unwrap();
    assert!(kib < 200 << 10, "{peak} of memory");
}

#[test]
fn host_root_is_seen_and_cannot_be_written() {
    for (platform, bench) in benches_with(exclusive_turn, "root", PLATFORMS) {
        let project = tempfile::tempdir_in("/tmp").unwrap();
        std::fs::write(project.path().join("file"), "the user's").unwrap();
        let request = bench.request_with(platform, &ImageSpec::Host, Some(project.path()));
        let mut guest = bench.launch(&request).unwrap();
        let guest = &mut *guest;
        assert_eq!(says(guest, "cat /etc/passwd"), std::fs::read_to_string("/etc/passwd").unwrap().trim());
        assert_eq!(says(guest, &format!("cat {}/file", project.path().display())), "the user's");
        for place in ["/", "/usr", "/etc", "/var", "/.weighbridge", project.path().to_str().unwrap()] {
            let done = shell(guest, &format!("touch {place}/written-by-a-guest"));
            assert_ne!(done.end.status, Status::Exited(0), "{platform}: {place} can be written");
        }
        // Nor are the file systems that the host mounts below writable.
        let writable = says(
            guest,
            "grep -E ' (ext[234]|xfs|btrfs|vfat|nfs4?) ' /proc/self/mounts | grep -v ' ro[ ,]' || true",
        );
        let engines_own = |line: &str| {
            ["/etc/hosts", "/etc/hostname", "/etc/resolv.conf"].iter().any(|file| line.contains(file))
        };
        assert_eq!(writable.lines().find(|line| !engines_own(line)), None, "{platform}");
        for place in ["/tmp", "/run", "/var/tmp"] {
            says(guest, &format!("cp /bin/true {place}/x && {place}/x && rm {place}/x"));
        }
        assert_eq!(says(guest, "ls -A /tmp"), project.path().file_name().unwrap().to_str().unwrap());
        let mounts: usize = says(guest, "wc -l < /proc/self/mounts").parse().unwrap();
        assert!(mounts < 100, "{platform}: {mounts} mounts, the binds hold each other");
        guest.stop().unwrap();
    }
}

#[test]
fn other_images_are_seen_with_the_mounts_inside_them() {
    if !weigh_host::facts::is_root() {
        eprintln!("SKIPPED other_images_are_seen_with_the_mounts_inside_them: only root can mount");
        return;
    }
    for (platform, bench) in benches_with(exclusive_turn, "image", PLATFORMS) {
        let base = tempfile::tempdir_in("/var/tmp").unwrap();
        let image = base.path().join("image");
        for directory in ["etc", "data", "disk", "tmp"] {
            std::fs::create_dir_all(image.join(directory)).unwrap();
        }
        // The image has no file that an engine could mount its own /etc/hosts over, and a dangling
        // link.
        std::fs::write(image.join("etc/only"), "the image's").unwrap();
        std::os::unix::fs::symlink("../run/nowhere/resolv.conf", image.join("etc/resolv.conf")).unwrap();
        std::fs::write(image.join("data/file"), "data").unwrap();
        std::fs::write(image.join("tmp/hidden"), "").unwrap();
        let disk = Disk::mount(&image.join("disk"));
        std::fs::write(image.join("disk/file"), "on the disk").unwrap();
        let archive = base.path().join("image.tar");
        Invocation::new("tar").arg("-C").arg(&image).arg("-cf").arg(&archive).arg(".").run_ok().unwrap();
        for image in [&image, &archive] {
            let request = bench.request_with(platform, &ImageSpec::Path(image.clone()), None);
            let mut guest = bench.launch(&request).unwrap();
            let session = guest.session();
            assert_eq!(session.get("/etc/only", 100).unwrap(), b"the image's", "{platform}");
            assert_eq!(session.get("/data/file", 100).unwrap(), b"data", "{platform}");
            assert_eq!(session.get("/disk/file", 100).unwrap(), b"on the disk", "{platform}");
            session.get("/etc/hosts", 10_000).unwrap();
            for path in ["/data/new", "/disk/new", "/etc/new", "/new"] {
                let refused = session.put(path, 0o644, b"x");
                assert!(
                    matches!(refused, Err(SessionError::Refused { .. })),
                    "{platform}: {path} can be written"
                );
            }
            assert!(session.get("/tmp/hidden", 100).is_err(), "{platform}");
            session.put("/tmp/new", 0o644, b"x").unwrap();
            let version = session
                .run(&command(&[weigh_images::PROBE, "--version"]), RunOptions::within(MINUTE))
                .unwrap();
            assert_eq!(version.end.status, Status::Exited(0), "{platform}");
            guest.stop().unwrap();
        }
        drop(disk);
    }
}

/// A tmpfs that is unmounted at the end of the test.
struct Disk(PathBuf);

impl Disk {
    fn mount(at: &Path) -> Self {
        Invocation::new("mount").args(["-t", "tmpfs", "weighbridge-test"]).arg(at).run_ok().unwrap();
        Self(at.into())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        Invocation::new("umount").arg(&self.0).run_ok().unwrap();
    }
}

#[test]
fn guests_of_one_root_run_side_by_side() {
    for (platform, bench) in benches("many", PLATFORMS) {
        let request = bench.request_with(platform, &ImageSpec::Probe, None);
        let mut guests: Vec<_> = (1..=3)
            .map(|instance| bench.launch(&GuestRequest { instance, ..request.clone() }).unwrap())
            .collect();
        for guest in &mut guests {
            guest.session().put("/tmp/mine", 0o600, b"mine").unwrap();
        }
        let (left, right) = guests.split_at_mut(1);
        left[0].freeze().unwrap();
        let facts = right[0].session().facts(&[], &[]).unwrap();
        assert!(facts.init, "{platform}: the probe is the first process");
        // They are stopped in another order than they started, one of them by dropping it.
        drop(guests.remove(1));
        guests[1].session().get("/tmp/mine", 10).unwrap();
        guests[1].stop().unwrap();
        guests[0].thaw().unwrap();
        guests[0].session().facts(&[], &[]).unwrap();
        guests[0].stop().unwrap();
    }
}

#[test]
fn a_guest_whose_helpers_stand_still_can_be_stopped() {
    for (platform, bench) in benches("stopped", PLATFORMS) {
        let mut guest = bench.guest(platform);
        let pids: Vec<String> = guest.processes().iter().map(u32::to_string).collect();
        assert!(pids.len() >= 2, "{platform}: the probe and a helper");
        Invocation::new("kill").arg("-STOP").args(&pids).run_ok().unwrap();
        let started = Instant::now();
        guest.stop().unwrap();
        assert!(started.elapsed() < Duration::from_secs(15), "{platform}: {:?}", started.elapsed());
    }
}

#[test]
fn a_guest_that_fails_to_launch_reports_why_and_leaves_nothing() {
    for (platform, mut bench) in benches("broken", PLATFORMS) {
        let garbage = bench.host.work.join("garbage");
        std::fs::write(&garbage, "this is no program").unwrap();
        bench.host.programs.probe = garbage;
        let error = bench.launch(&bench.request(platform)).err().unwrap().to_string();
        assert!(error.to_lowercase().contains("exec"), "{platform}: {error}");
        let left: Vec<_> =
            bench.host.ledger.standing().into_iter().map(|change| change.to_string()).collect();
        assert!(
            left.iter().all(|change| !change.contains("container") && !change.contains("control group")),
            "{left:?}"
        );
    }
}

#[test]
fn a_missing_runtime_has_a_remedy() {
    let bench = Bench::alone("missing");
    let empty = bench.host.work.join("no-runtime");
    std::fs::write(&empty, "").unwrap();
    for platform in ["runc", "crun", "youki", "runsc"] {
        let request = bench.request(&format!("{platform}:binary={}", empty.display()));
        let error = bench.launch(&request).err().unwrap();
        assert!(matches!(&error, PlatformError::Unavailable { remedy: Some(_), .. }), "{error}");
    }
}

#[test]
fn nothing_outlives_a_killed_run() {
    for (platform, _bench) in benches("crash", PLATFORMS) {
        for when in [Killed::Running, Killed::Frozen] {
            assert!(kill_and_sweep(&format!("killed-{platform}"), platform, when) > 1);
        }
    }
}

/// Whatever a runtime has made when the run is killed, or would make afterwards, is removed.
#[test]
fn nothing_outlives_a_run_that_is_killed_while_it_launches() {
    for (platform, _bench) in benches("crash-launching", PLATFORMS) {
        kill_while_launching(&format!("launch-{platform}"), platform, &[5, 15, 30, 50, 70, 100, 150]);
    }
}

#[test]
fn undoing_twice_is_success() {
    let socket = "/var/run/docker.sock";
    for (platform, _bench) in benches("undo", PLATFORMS) {
        let platform = weigh_platforms::find(platform).unwrap();
        let detail: Value = serde_json::json!({"socket": socket, "state": "/nowhere"});
        platform.undo("container", "weighbridge-never-was", &detail).unwrap();
    }
}
