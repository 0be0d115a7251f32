//! A monitor receives the configuration of the machine that was asked for.

use super::{KINDS, Place, is_cpu, line_told};
use crate::common::threads;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use weigh_host::command::find_program;
use weigh_model::ImageSpec;
use weigh_platforms::{Guest, GuestRequest, PlatformError, resolve};

/// CPUs, memory, kernel, channel and console.
#[test]
fn the_machine_is_as_asked() {
    let (place, bench) = Place::with_bench(&KINDS[0], "monitors-asked");
    let all = weigh_host::facts::allowed_cpus();
    let launch = |place: &Place| {
        let request = place.request_with(&bench, ",hugepages=on", &ImageSpec::Probe);
        let (cpus, memory_bytes) = (all.clone(), Some(258 << 20));
        bench.launch(&GuestRequest { cpus, memory_bytes, ..request }).unwrap()
    };
    let mut guest = launch(&place);
    let machine = json!({
        "vcpu_count": all.len(), "mem_size_mib": 258, "smt": false, "track_dirty_pages": false, "huge_pages": "2M",
    });
    assert_eq!(place.program.bodies("PUT /machine-config"), [machine]);
    let source = &place.program.bodies("PUT /boot-source")[0];
    assert_eq!(source["kernel_image_path"], format!("{}/vmlinux-6.1.0-fake", place.base.path().display()));
    let line = source["boot_args"].as_str().unwrap();
    assert!(line.contains("rdinit=/.weighbridge/probe -- --channel vsock-listen:1024"), "{line}");
    let initramfs = Path::new(source["initrd_path"].as_str().unwrap());
    assert!(initramfs.starts_with(&bench.host.work));
    assert_eq!(place.program.bodies("PUT /vsock"), [json!({"guest_cid": 3, "uds_path": "vsock.sock"})]);
    check_cpus(&*guest, "fc_vcpu ");
    guest.stop().unwrap();
    let other = Place::new(&KINDS[1], "");
    let mut guest = launch(&other);
    let config = &other.program.bodies("PUT /api/v1/vm.create")[0];
    let affinity: Vec<Value> =
        all.iter().enumerate().map(|(vcpu, cpu)| json!({"vcpu": vcpu, "host_cpus": [cpu]})).collect();
    let cpus = json!({"boot_vcpus": all.len(), "max_vcpus": all.len(), "affinity": affinity});
    assert_eq!(config["cpus"], cpus);
    assert_eq!(config["memory"], json!({"size": 258 << 20, "hugepages": true}));
    assert_eq!(config["vsock"], json!({"cid": 3, "socket": "vsock.sock"}));
    assert_eq!(config["console"], json!({"mode": "Off"}));
    check_cpus(&*guest, "vcpu");
    // The guest's console output outlives the machine's directory.
    let console = guest.log().unwrap().with_extension("console.log");
    guest.stop().unwrap();
    assert_eq!(std::fs::read_to_string(console).unwrap(), "the guest's console\n");
}

/// Asserts that every CPU of the guest is on its own CPU of the host.
fn check_cpus(guest: &dyn Guest, name: &str) {
    let mut of_guest: Vec<_> = threads(guest).into_iter().filter(|(name, _)| is_cpu(name)).collect();
    of_guest.sort();
    let all = weigh_host::facts::allowed_cpus();
    let expected: Vec<_> =
        all.iter().enumerate().map(|(n, cpu)| (format!("{name}{n}"), vec![*cpu])).collect();
    assert_eq!(of_guest, expected);
}

/// The disks that a monitor received: name, path, and the whole description.
fn disks_told(place: &Place) -> Vec<(String, PathBuf, Value)> {
    let disk = |name: &str, path: &str, whole: &Value| {
        (whole[name].as_str().unwrap().to_string(), whole[path].as_str().unwrap().into(), whole.clone())
    };
    if place.kind.name == "firecracker" {
        let bodies = ["PUT /drives/data", "PUT /drives/root"].map(|request| place.program.bodies(request));
        return bodies.iter().flatten().map(|body| disk("drive_id", "path_on_host", body)).collect();
    }
    let config = &place.program.bodies("PUT /api/v1/vm.create")[0];
    config["disks"].as_array().unwrap().iter().map(|body| disk("id", "path", body)).collect()
}

/// A disk for workloads and a system's root: the monitor gets both, in this order, and they are
/// removed afterwards.
#[test]
fn disks_are_configured_and_removed() {
    if find_program("mke2fs").is_none() {
        eprintln!("SKIPPED disks_are_configured_and_removed: mke2fs is not installed");
        return;
    }
    for kind in KINDS {
        let (place, bench) = Place::with_bench(kind, "monitors-disks");
        let image = place.base.path().join("image");
        for directory in ["sbin", "etc", "tmp", "var/tmp", "usr/lib/systemd"] {
            std::fs::create_dir_all(image.join(directory)).unwrap();
        }
        for file in ["sbin/init", "usr/lib/systemd/systemd"] {
            std::fs::write(image.join(file), "#!/bin/sh\n").unwrap();
            std::fs::set_permissions(image.join(file), PermissionsExt::from_mode(0o755)).unwrap();
        }
        let keys = ",disk=raw,size=8MiB,init=full";
        let request = place.request_with(&bench, keys, &ImageSpec::Path(image));
        let mut guest = bench.launch(&request).unwrap();
        let told = disks_told(&place);
        assert_eq!(told.iter().map(|disk| disk.0.as_str()).collect::<Vec<_>>(), ["data", "root"]);
        assert_eq!(told[0].1.metadata().unwrap().len(), 8 << 20);
        let mut magic = [0; 2];
        let root = std::fs::File::open(&told[1].1).unwrap();
        // The magic number of ext4's superblock (Documentation/filesystems/ext4/super.rst).
        std::os::unix::fs::FileExt::read_exact_at(&root, &mut magic, 1024 + 0x38).unwrap();
        assert_eq!(magic, [0x53, 0xEF]);
        let line = line_told(&place);
        assert!(line.contains("--root /dev/vdb --init /sbin/init"), "{line}");
        let cache = &guest.facts()["cache"];
        if kind.name == "firecracker" {
            assert!(told.iter().all(|disk| disk.2["cache_type"] == "Writeback"), "{told:?}");
            assert_eq!(cache, "host's page cache (writeback)");
        } else {
            assert_eq!(told[0].2["direct"], true);
            assert_eq!(cache, "none");
        }
        let (platform, _) = resolve(&request.environment).unwrap();
        let reason = platform.restores(&bench.host, &request).unwrap_err().to_string();
        assert!(reason.contains("the disk of the one that was saved"), "{reason}");
        guest.stop().unwrap();
        assert!(!told[1].1.exists());
    }
}

/// A card on the run's bridge: the monitor gets an existing tap, the probe its address, and the
/// client a way to it.
#[test]
fn a_network_is_configured_and_removed() {
    if !weigh_host::facts::is_root() || find_program("ip").is_none() {
        eprintln!("SKIPPED a_network_is_configured_and_removed: needs root and iproute2");
        return;
    }
    for kind in KINDS {
        let (place, bench) = Place::with_bench(kind, "monitors-net");
        let request = place.request_with(&bench, ",net=bridge", &ImageSpec::Probe);
        let mut guest = match bench.launch(&request) {
            Err(error @ PlatformError::Unavailable { .. }) => {
                eprintln!("SKIPPED a_network_is_configured_and_removed: {error}");
                return;
            }
            other => other.unwrap(),
        };
        let (tap, address) = if kind.name == "firecracker" {
            let card = &place.program.bodies("PUT /network-interfaces/eth0")[0];
            (card["host_dev_name"].clone(), card["guest_mac"].clone())
        } else {
            let card = place.program.bodies("PUT /api/v1/vm.create")[0]["net"][0].clone();
            (card["tap"].clone(), card["mac"].clone())
        };
        let tap = Path::new("/sys/class/net").join(tap.as_str().unwrap());
        assert!(tap.exists());
        assert_eq!(address.as_str().unwrap().split(':').count(), 6, "{address}");
        let reach = guest.reach(80).unwrap();
        let line = line_told(&place);
        assert!(line.contains(&format!("--address {}/", reach.address.ip())), "{line}");
        assert!(line.contains("--gateway "), "{line}");
        assert_eq!(guest.facts()["network"], "bridge");
        let (platform, _) = resolve(&request.environment).unwrap();
        let reason = platform.restores(&bench.host, &request).unwrap_err().to_string();
        assert!(reason.contains("the address of the one that was saved"), "{reason}");
        guest.stop().unwrap();
        assert!(!tap.exists());
    }
}

/// Both monitors filter their own system calls unless told not to.
#[test]
fn monitors_keep_their_own_filters() {
    for kind in KINDS {
        let (place, bench) = Place::with_bench(kind, "monitors-filters");
        let mut guest = bench.launch(&place.request_with(&bench, "", &ImageSpec::Probe)).unwrap();
        let lines: Vec<String> = guest
            .processes()
            .iter()
            .map(|process| std::fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap())
            .collect();
        assert!(lines.iter().any(|line| line.contains("--api-sock")), "{lines:?}");
        assert!(!lines.iter().any(|line| line.contains("seccomp")), "{lines:?}");
        guest.stop().unwrap();
    }
}
