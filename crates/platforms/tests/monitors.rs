//! Firecracker and Cloud Hypervisor, whose programs are the user's and need KVM: their drivers against monitors that check every request against the
//! published description of the interface. What no real machine here has shown is told in `docs/design/0024-machines-by-an-interface.md`.

#![expect(clippy::unwrap_used, reason = "what these helpers unwrap is what the tests are about")]

mod common;
mod fake_monitor;
mod static_probe;

use common::victim::{Killed, kill_and_sweep};
use common::{Bench, MINUTE, command, says, shell};
use fake_monitor::Program;
use fake_monitor::description::Description;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};
use weigh_host::command::find_program;
use weigh_host::ledger::Change;
use weigh_model::{EnvironmentSpec, ImageSpec};
use weigh_platforms::{Availability, Guest, GuestRequest, PlatformError, resolve};
use weigh_protocol::Status;

/// The monitors: name of the platform, requests that bring a machine up, those that bring a saved one up, and how it is named by
/// requests that a fault can be put to.
struct Kind {
    name: &'static str,
    boot: &'static [&'static str],
    load: &'static [&'static str],
    freeze: &'static [&'static str],
    save: &'static [&'static str],
    end: &'static [&'static str],
}

const KINDS: &[Kind] = &[FIRECRACKER, CLOUD_HYPERVISOR];

const FIRECRACKER: Kind = Kind {
    name: "firecracker",
    boot: &["PUT /machine-config", "PUT /boot-source", "PUT /vsock", "PUT /actions", "GET /machine-config"],
    load: &["PUT /snapshot/load", "GET /machine-config", "PATCH /vm"],
    freeze: &["PATCH /vm", "PATCH /vm"],
    save: &["PATCH /vm", "PUT /snapshot/create"],
    end: &[],
};

const CLOUD_HYPERVISOR: Kind = Kind {
    name: "cloud-hypervisor",
    boot: &["PUT /api/v1/vm.create", "PUT /api/v1/vm.boot", "GET /api/v1/vm.info"],
    load: &["PUT /api/v1/vm.restore", "GET /api/v1/vm.info", "PUT /api/v1/vm.resume"],
    freeze: &["PUT /api/v1/vm.pause", "PUT /api/v1/vm.resume"],
    save: &["PUT /api/v1/vm.pause", "PUT /api/v1/vm.snapshot"],
    // The guest powers its machine off, and with it ends the monitor.
    end: &[],
};

#[test]
#[ignore = "the monitor of other tests"]
fn fake_monitor() {
    fake_monitor::play();
}

#[test]
#[ignore = "the victim of another test"]
fn victim() {
    common::victim::play();
}

/// A fake monitor, and an environment with it.
struct Place {
    base: tempfile::TempDir,
    program: Program,
    kind: &'static Kind,
}

impl Place {
    fn new(kind: &'static Kind, fault: &str) -> Self {
        let base = tempfile::tempdir_in("/var/tmp").unwrap();
        let program = Program::new(base.path(), kind.name, fault, static_probe::path());
        // Nothing executes it; its release is in its name.
        std::fs::write(base.path().join("vmlinux-6.1.0-fake"), b"\x7fELF and nothing else").unwrap();
        Self { base, program, kind }
    }

    fn environment(&self) -> String {
        let (name, program) = (self.kind.name, self.program.path.display());
        format!("{name}:binary={program},kernel={}/vmlinux-6.1.0-fake", self.base.path().display())
    }

    fn request(&self, bench: &Bench) -> GuestRequest {
        let request = bench.request_with(&self.environment(), &ImageSpec::Probe, None);
        GuestRequest { cpus: vec![last_cpu()], memory_bytes: Some(300 << 20), ..request }
    }

    /// What was asked since the last look, but for how often it was asked whether it is up.
    fn asked(&self, seen: &mut usize) -> Vec<String> {
        let all = self.program.requests();
        let new = all[*seen..].iter();
        let asked = new.filter(|(request, _)| !is_greeting(request)).map(|(request, status)| {
            assert!((200..300).contains(status), "{request}: {status}");
            request.clone()
        });
        let asked = asked.collect();
        *seen = all.len();
        asked
    }
}

fn is_greeting(request: &str) -> bool {
    matches!(request, "GET /version" | "GET /api/v1/vmm.ping")
}

fn last_cpu() -> u32 {
    *weigh_host::facts::allowed_cpus().last().unwrap()
}

/// CPUs that each thread of the guest's monitor may run on, by the thread's name.
fn affinities(guest: &dyn Guest) -> Vec<(String, Vec<u32>)> {
    let mut found = Vec::new();
    for process in guest.processes() {
        for task in std::fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten() {
            let name = std::fs::read_to_string(task.path().join("comm")).unwrap().trim().to_string();
            let status = std::fs::read_to_string(task.path().join("status")).unwrap();
            let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
            found.push((name, weigh_model::parse_cpu_list(list.trim()).unwrap()));
        }
    }
    found
}

fn is_cpu(name: &str) -> bool {
    name.starts_with("fc_vcpu ") || name.strip_prefix("vcpu").is_some_and(|rest| rest.parse::<u32>().is_ok())
}

fn check_placed(guest: &dyn Guest) {
    let all = weigh_host::facts::allowed_cpus();
    let (cpus, others): (Vec<_>, Vec<_>) = affinities(guest).into_iter().partition(|(name, _)| is_cpu(name));
    assert_eq!(cpus.len(), 1, "{cpus:?}");
    assert_eq!(cpus[0].1, [last_cpu()]);
    // The probe is the guest's own, and was started by a thread that stood for the monitor's.
    let others: Vec<_> = others.into_iter().filter(|(name, _)| name != "weigh-probe").collect();
    assert!(!others.is_empty() && others.iter().all(|(_, cpus)| *cpus == all), "{others:?}");
}

/// Everything that a run does with a guest, and what the monitor was asked for it.
#[test]
fn a_whole_life() {
    for kind in KINDS {
        let _turn = common::turn();
        let (bench, place, mut seen) = (Bench::new("monitors-life"), Place::new(kind, ""), 0);
        let request = place.request(&bench);
        let mut guest = bench.launch(&request).unwrap();
        assert_eq!(place.asked(&mut seen), kind.boot);
        check_placed(&*guest);
        // No machine of KVM's is behind this, and the name is not used without.
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
        bench.close();
    }
}

fn freeze_and_thaw(guest: &mut dyn Guest) {
    let script = "while :; do echo x; sleep 0.01; done";
    let id = guest.session().start(&command(&["sh", "-c", script])).unwrap();
    guest.session().signal(id, libc::SIGKILL).unwrap();
    guest.session().finish(id, MINUTE).unwrap();
    guest.freeze().unwrap();
    guest.freeze().unwrap();
    // The probe's process stands: its state is that of one that was stopped.
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

/// Firecracker's standard streams are the channel when they are asked to be, beside what the guest's kernel says.
#[test]
fn the_console_can_be_the_channel() {
    let _turn = common::turn();
    let (bench, place) = (Bench::new("monitors-serial"), Place::new(&KINDS[0], ""));
    let environment = place.environment() + ",channel=serial";
    let request = GuestRequest {
        memory_bytes: Some(300 << 20),
        ..bench.request_with(&environment, &ImageSpec::Probe, None)
    };
    let mut guest = bench.launch(&request).unwrap();
    assert!(line_told(&place).contains("-- --channel /dev/ttyS0"));
    assert_eq!(place.program.bodies("PUT /vsock").len(), 0);
    let said = guest.session().take_noise();
    assert!(String::from_utf8_lossy(&said).contains("Linux version"), "{}", said.escape_ascii());
    let content: Vec<u8> = (0..60_000_u32).map(|n| n as u8).collect();
    let file = place.base.path().join("file").display().to_string();
    guest.session().put(&file, 0o600, &content).unwrap();
    assert!(guest.session().get(&file, 1 << 20).unwrap() == content);
    assert_eq!(says(&mut *guest, "echo $((6*7))"), "42");
    guest.stop().unwrap();
    bench.close();
}

/// What the machine is told is what was asked for.
#[test]
fn the_machine_is_as_asked() {
    let _turn = common::turn();
    let (bench, place) = (Bench::new("monitors-asked"), Place::new(&KINDS[0], ""));
    let environment = place.environment() + ",hugepages=on";
    let all = weigh_host::facts::allowed_cpus();
    let request = GuestRequest {
        cpus: all.clone(),
        memory_bytes: Some(258 << 20),
        ..bench.request_with(&environment, &ImageSpec::Probe, None)
    };
    let mut guest = bench.launch(&request).unwrap();
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
    let environment = other.environment() + ",hugepages=on";
    let request = GuestRequest {
        cpus: all.clone(),
        memory_bytes: Some(258 << 20),
        ..bench.request_with(&environment, &ImageSpec::Probe, None)
    };
    let mut guest = bench.launch(&request).unwrap();
    let config = &other.program.bodies("PUT /api/v1/vm.create")[0];
    let affinity: Vec<Value> =
        all.iter().enumerate().map(|(vcpu, cpu)| json!({"vcpu": vcpu, "host_cpus": [cpu]})).collect();
    let cpus = json!({"boot_vcpus": all.len(), "max_vcpus": all.len(), "affinity": affinity});
    assert_eq!(config["cpus"], cpus);
    assert_eq!(config["memory"], json!({"size": 258 << 20, "hugepages": true}));
    assert_eq!(config["vsock"], json!({"cid": 3, "socket": "vsock.sock"}));
    assert_eq!(config["console"], json!({"mode": "Off"}));
    check_cpus(&*guest, "vcpu");
    // What the guest's console says outlives the machine's directory.
    let console = guest.log().unwrap().with_extension("console.log");
    guest.stop().unwrap();
    assert_eq!(std::fs::read_to_string(console).unwrap(), "the guest's console\n");
    bench.close();
}

/// What a monitor is told of disks: name, path, and the rest.
fn disks_told(place: &Place) -> Vec<(String, std::path::PathBuf, Value)> {
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

/// The kernel's command line that a monitor is told.
fn line_told(place: &Place) -> String {
    let line = match place.kind.name {
        "firecracker" => place.program.bodies("PUT /boot-source")[0]["boot_args"].clone(),
        _ => place.program.bodies("PUT /api/v1/vm.create")[0]["payload"]["cmdline"].clone(),
    };
    line.as_str().unwrap().into()
}

/// A disk for workloads and a system's root: both are there for the monitor, in this order, and gone afterwards.
#[test]
fn disks_are_told_and_taken_away() {
    if find_program("mke2fs").is_none() {
        eprintln!("SKIPPED disks_are_told_and_taken_away: mke2fs is not installed");
        return;
    }
    for kind in KINDS {
        let _turn = common::turn();
        let (bench, place) = (Bench::new("monitors-disks"), Place::new(kind, ""));
        let image = place.base.path().join("image");
        for directory in ["sbin", "etc", "tmp", "var/tmp", "usr/lib/systemd"] {
            std::fs::create_dir_all(image.join(directory)).unwrap();
        }
        for file in ["sbin/init", "usr/lib/systemd/systemd"] {
            std::fs::write(image.join(file), "#!/bin/sh\n").unwrap();
            std::fs::set_permissions(image.join(file), PermissionsExt::from_mode(0o755)).unwrap();
        }
        let environment = place.environment() + ",disk=raw,size=8MiB,init=full";
        let request = GuestRequest {
            memory_bytes: Some(300 << 20),
            ..bench.request_with(&environment, &ImageSpec::Path(image), None)
        };
        let mut guest = bench.launch(&request).unwrap();
        let told = disks_told(&place);
        assert_eq!(told.iter().map(|disk| disk.0.as_str()).collect::<Vec<_>>(), ["data", "root"]);
        assert_eq!(told[0].1.metadata().unwrap().len(), 8 << 20);
        let mut magic = [0; 2];
        let root = std::fs::File::open(&told[1].1).unwrap();
        // That of ext4's superblock (Documentation/filesystems/ext4/super.rst).
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
        let reason = platform.restores(&bench.host, &request).unwrap_err();
        assert!(reason.contains("the disk of the one that was saved"), "{reason}");
        guest.stop().unwrap();
        assert!(!told[1].1.exists());
        bench.close();
    }
}

/// A card on the run's bridge: the monitor is told of a tap that is there, the probe of its address, the client of the way.
#[test]
fn a_network_is_told_and_taken_away() {
    if !weigh_host::facts::is_root() || find_program("ip").is_none() {
        eprintln!("SKIPPED a_network_is_told_and_taken_away: needs root and iproute2");
        return;
    }
    for kind in KINDS {
        let _turn = common::turn();
        let (bench, place) = (Bench::new("monitors-net"), Place::new(kind, ""));
        let environment = place.environment() + ",net=bridge";
        let request = GuestRequest {
            memory_bytes: Some(300 << 20),
            ..bench.request_with(&environment, &ImageSpec::Probe, None)
        };
        let mut guest = match bench.launch(&request) {
            Err(error @ PlatformError::Missing { .. }) => {
                eprintln!("SKIPPED a_network_is_told_and_taken_away: {error}");
                return bench.close();
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
        let reason = platform.restores(&bench.host, &request).unwrap_err();
        assert!(reason.contains("the address of the one that was saved"), "{reason}");
        guest.stop().unwrap();
        assert!(!tap.exists());
        bench.close();
    }
}

/// Every CPU of the guest is on its own CPU of the host.
fn check_cpus(guest: &dyn Guest, name: &str) {
    let mut of_guest: Vec<_> = affinities(guest).into_iter().filter(|(name, _)| is_cpu(name)).collect();
    of_guest.sort();
    let all = weigh_host::facts::allowed_cpus();
    let expected: Vec<_> =
        all.iter().enumerate().map(|(n, cpu)| (format!("{name}{n}"), vec![*cpu])).collect();
    assert_eq!(of_guest, expected);
}

/// Whatever the monitor does, the launch ends soon, says what was seen, and leaves nothing.
#[test]
fn faults_are_told() {
    for kind in KINDS {
        let _turn = common::turn();
        let bench = Bench::new("monitors-fault");
        for request in kind.boot {
            for (fault, word) in [
                ("refuse", "the fake was told to refuse"),
                ("end", "has no answer to"),
                ("garbage", "has no answer to"),
            ] {
                let said = launch_fails(&bench, kind, &format!("{fault}:{request}"));
                assert!(said.contains(word) && said.contains(request), "{fault} {request}: {said}");
            }
        }
        for (fault, word) in [
            ("end", "the fake ends"),
            ("fewer-threads", "0 of the guest's 1 CPUs"),
            ("other-size", "31 CPUs"),
        ] {
            let said = launch_fails(&bench, kind, fault);
            assert!(said.contains(word), "{fault}: {said}");
        }
        bench.close();
    }
}

fn launch_fails(bench: &Bench, kind: &'static Kind, fault: &str) -> String {
    let place = Place::new(kind, fault);
    let started = Instant::now();
    let Err(error) = bench.launch(&place.request(bench)) else { panic!("{fault}: it starts") };
    assert!(started.elapsed() < Duration::from_secs(20), "{fault}: {:?}", started.elapsed());
    let standing = bench.host.ledger.standing();
    assert!(
        standing.iter().all(|change| matches!(change, Change::Directory { .. })),
        "{fault}: {standing:?}"
    );
    error.to_string()
}

/// A monitor that hangs when it is to stop the guest, and those that refuse to save: told within the deadline, and ended all the same.
#[test]
fn a_monitor_that_fails_later_is_ended() {
    let _turn = common::turn();
    let bench = Bench::new("monitors-late");
    for (kind, fault, at, word) in [
        (&KINDS[0], "hang", 0, "in time"),
        (&KINDS[0], "refuse", 1, "told to refuse"),
        (&KINDS[1], "refuse", 1, "told to refuse"),
    ] {
        let place = Place::new(kind, &format!("{fault}:{}", kind.save[at]));
        let mut guest = bench.launch(&place.request(&bench)).unwrap();
        let saved = place.base.path().join("saved");
        std::fs::create_dir(&saved).unwrap();
        let error = guest.save(&saved).unwrap_err();
        let said = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        assert!(said.contains(word), "{fault}: {error}: {said}");
        guest.stop().unwrap();
    }
    bench.close();
}

/// Without KVM behind it no monitor is available, and no environment is named after KVM.
#[test]
fn acceleration_is_proven_or_the_platform_is_missing() {
    for kind in KINDS {
        let _turn = common::turn();
        let (bench, place) = (Bench::new("monitors-proof"), Place::new(kind, ""));
        let (platform, environment) =
            resolve(&EnvironmentSpec::parse(&place.environment()).unwrap()).unwrap();
        let error = platform.settle(&bench.host, &environment).unwrap_err().to_string();
        assert!(error.contains("working KVM") && error.contains("/dev/kvm"), "{error}");
        if let Some(entry) = error.split_once("then remove ").and_then(|(_, rest)| rest.split(' ').next()) {
            panic!("asked for the first time it is not known yet, and here is {entry}");
        }
        let again = platform.settle(&bench.host, &environment).unwrap_err().to_string();
        // A host where even the device does not work keeps nothing.
        if let Some(entry) = again.split_once("then remove ").and_then(|(_, rest)| rest.split(' ').next()) {
            assert!(error.contains("holds no machine of KVM's"), "{error}");
            std::fs::remove_dir_all(entry).unwrap();
            std::fs::remove_file(format!("{entry}.lock")).unwrap();
        }
        if weigh_host::command::find_program(kind.name).is_none() {
            match platform.availability(&bench.host) {
                Availability::Missing { reason, remedy } => {
                    assert!(reason.contains(&format!("the program {}", kind.name)), "{reason}");
                    assert!(remedy.unwrap().contains("binary=PATH"));
                }
                Availability::Ready { detail } => panic!("ready without a program: {detail}"),
            }
        }
        bench.close();
    }
}

/// A weighbridge that is killed leaves a monitor, its guest and its files; the next one takes them away.
#[test]
fn what_a_killed_run_leaves_is_ended() {
    if !weigh_host::facts::is_root() {
        eprintln!("SKIPPED what_a_killed_run_leaves_is_ended: needs root");
        return;
    }
    for kind in KINDS {
        let _turn = common::turn();
        let place = Place::new(kind, "");
        let environment = place.environment() + ",rootfs=probe";
        let whens = [
            Killed::Running,
            Killed::Frozen,
            Killed::Launching(Duration::from_millis(if kind.name == "firecracker" { 5 } else { 60 })),
        ];
        for (number, when) in whens.into_iter().enumerate() {
            kill_and_sweep(&format!("monitors-killed{number}-{}", kind.name), &environment, when);
        }
    }
}

/// The fakes refuse what the descriptions do not have: a driver that asks wrongly does not pass.
#[test]
fn descriptions_refuse_what_they_do_not_have() {
    let firecracker = Description::parse(fake_monitor::firecracker::DESCRIPTION);
    firecracker.assert_whole();
    let ask = |method: &str, path: &str, body: Option<Value>| {
        firecracker.request(method, path).and_then(|known| firecracker.check_body(&known, body.as_ref()))
    };
    ask("PUT", "/vsock", Some(json!({"guest_cid": 3, "uds_path": "v"}))).unwrap();
    ask("PUT", "/drives/a", Some(json!({"drive_id": "a", "is_root_device": false}))).unwrap();
    ask("GET", "/version", None).unwrap();
    for (method, path, body, word) in [
        ("PUT", "/vsocks", None, "there is no /vsocks"),
        ("PUT", "/drives/", None, "there is no /drives/"),
        ("POST", "/vsock", None, "takes PUT and not POST"),
        ("GET", "/version", Some(json!({})), "takes no body"),
        ("PUT", "/vsock", None, "it takes a Vsock"),
        ("PUT", "/vsock", Some(json!([])), "not an object"),
        ("PUT", "/vsock", Some(json!({"uds_path": "v"})), "has no \"guest_cid\""),
        ("PUT", "/vsock", Some(json!({"guest_cid": 2, "uds_path": "v"})), "Vsock.guest_cid is 2"),
        ("PUT", "/vsock", Some(json!({"guest_cid": 3.5, "uds_path": "v"})), "Vsock.guest_cid is 3.5"),
        ("PUT", "/vsock", Some(json!({"guest_cid": 3, "uds_path": 1})), "not string"),
        ("PUT", "/vsock", Some(json!({"guest_cid": 3, "uds_path": "v", "port": 1})), "knows no \"port\""),
        ("PUT", "/actions", Some(json!({"action_type": "Start"})), "InstanceStart"),
        ("PUT", "/machine-config", Some(json!({"vcpu_count": 33, "mem_size_mib": 1})), "1..32"),
        ("PUT", "/machine-config", Some(json!({"vcpu_count": 1, "mem_size_mib": "1"})), "not integer"),
        (
            "PUT",
            "/machine-config",
            Some(json!({"vcpu_count": 1, "mem_size_mib": 1, "smt": 0})),
            "not boolean",
        ),
        ("PUT", "/drives/a", Some(json!({"drive_id": "b", "is_root_device": true})), "in the path"),
        (
            "PUT",
            "/snapshot/load",
            Some(json!({"snapshot_path": "s", "mem_backend": {"backend_path": "m"}})),
            "has no \"backend_type\"",
        ),
        (
            "PUT",
            "/snapshot/load",
            Some(json!({"snapshot_path": "s", "network_overrides": [{"iface_id": "a"}]})),
            "network_overrides[0] has no",
        ),
    ] {
        let refused = ask(method, path, body.clone()).unwrap_err();
        assert!(refused.contains(word), "{method} {path} {body:?}: {refused}");
    }
    let other = Description::parse(fake_monitor::cloud_hypervisor::DESCRIPTION);
    other.assert_whole();
    let ask = |method: &str, path: &str, body: Option<Value>| {
        other.request(method, path).and_then(|known| other.check_body(&known, body.as_ref()))
    };
    ask("PUT", "/api/v1/vm.create", Some(json!({"payload": {"kernel": "k"}, "disks": [{"path": "d"}]})))
        .unwrap();
    ask("PUT", "/api/v1/vm.boot", None).unwrap();
    for (method, path, body, word) in [
        ("PUT", "/vm.create", json!({"payload": {}}), "not below /api/v1"),
        ("PUT", "/api/v1/vm.create", json!({}), "has no \"payload\""),
        (
            "PUT",
            "/api/v1/vm.create",
            json!({"payload": {}, "disks": [{"file": "d"}]}),
            "disks[0] knows no \"file\"",
        ),
        (
            "PUT",
            "/api/v1/vm.create",
            json!({"payload": {}, "serial": {"mode": "file"}}),
            "serial.mode is \"file\"",
        ),
        (
            "PUT",
            "/api/v1/vm.create",
            json!({"payload": {}, "cpus": {"boot_vcpus": 0, "max_vcpus": 1}}),
            "boot_vcpus is 0",
        ),
        (
            "PUT",
            "/api/v1/vm.create",
            json!({"payload": {}, "cpus": {"boot_vcpus": 1}}),
            "has no \"max_vcpus\"",
        ),
        ("PUT", "/api/v1/vm.boot", json!({}), "takes no body"),
        ("PUT", "/api/v1/vm.restore", json!({"destination_url": "file:///a"}), "has no \"source_url\""),
    ] {
        let refused = ask(method, path, Some(body.clone())).unwrap_err();
        assert!(refused.contains(word), "{method} {path} {body}: {refused}");
    }
    let known = firecracker.request("GET", "/version").unwrap();
    firecracker.check_answer(&known, 200, Some(&json!({"firecracker_version": "1"}))).unwrap();
    for (status, body) in
        [(204, None), (200, None), (200, Some(json!({}))), (200, Some(json!({"version": "1"})))]
    {
        firecracker.check_answer(&known, status, body.as_ref()).unwrap_err();
    }
    for head in [
        "GET /version",
        "GET /version HTTP/1.0",
        "GET version HTTP/1.1",
        "PUT / HTTP/1.1\r\nContent-Length: 2",
        "PUT / HTTP/1.1\r\nContent-Length: x",
        "PUT / HTTP/1.1\r\nTransfer-Encoding: chunked",
        "PUT / HTTP/1.1\r\nCookie: a",
        "GET / HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 2",
    ] {
        fake_monitor::http::parse(head).unwrap_err();
    }
}

/// Requests that are well-formed, at the wrong time.
#[test]
fn fakes_refuse_the_wrong_order() {
    use fake_monitor::{Asked, Fake, cloud_hypervisor::CloudHypervisor, firecracker::Firecracker};
    let base = tempfile::tempdir().unwrap();
    let place = Place::new(&KINDS[0], "");
    let settings = place.program.settings("firecracker", "");
    let arguments = ["--id", "a", "--api-sock", "s"].map(String::from);
    let (mut fake, _) = Firecracker::new(&arguments).unwrap();
    let mut ask = |method: &str, path: &str, body: Value| {
        let asked = Asked { method: method.into(), path: path.into(), body: Some(body) };
        fake.act(&asked, &settings)
    };
    let start = json!({"action_type": "InstanceStart"});
    let snapshot = json!({"snapshot_path": base.path().join("s"), "mem_file_path": base.path().join("m")});
    for (method, path, body, word) in [
        ("PUT", "/actions", start.clone(), "no boot source"),
        ("PATCH", "/vm", json!({"state": "Paused"}), "does not run"),
        ("PUT", "/snapshot/create", snapshot, "not paused"),
        ("PUT", "/boot-source", json!({"kernel_image_path": "/no/such/kernel"}), "/no/such/kernel"),
        ("PUT", "/boot-source", json!({"kernel_image_path": "/etc/hostname"}), "not uncompressed"),
        ("PUT", "/machine-config", json!({"vcpu_count": 3, "mem_size_mib": 9, "smt": true}), "1 or even"),
        (
            "PUT",
            "/machine-config",
            json!({"vcpu_count": 1, "mem_size_mib": 9, "huge_pages": "2M"}),
            "even number",
        ),
    ] {
        let (status, said) = ask(method, path, body);
        let said = said.unwrap_or_default().to_string();
        assert!(status == 400 && said.contains(word), "{method} {path}: {status} {said}");
    }
    assert_eq!(ask("PUT", "/machine-config", json!({"vcpu_count": 1, "mem_size_mib": 9})).0, 204);
    let load = json!({"snapshot_path": "s", "mem_backend": {"backend_type": "File", "backend_path": "m"}});
    let (status, said) = ask("PUT", "/snapshot/load", load);
    assert!(status == 400 && said.unwrap().to_string().contains("fresh monitor"));
    for wrong in [
        ["--api-sock", "s", "--id", "a"],
        ["--id", "a_b", "--api-sock", "s"],
        ["--id", "", "--api-sock", "s"],
    ] {
        assert!(Firecracker::new(&wrong.map(String::from)).is_err(), "{wrong:?}");
    }
    let (mut fake, _) = CloudHypervisor::new(&["--api-socket", "s"].map(String::from)).unwrap();
    let mut ask = |action: &str, body: Value| {
        let asked = Asked { method: "PUT".into(), path: format!("/api/v1/{action}"), body: Some(body) };
        fake.act(&asked, &settings)
    };
    let kernel = place.base.path().join("vmlinux-6.1.0-fake");
    let payload = json!({"kernel": kernel, "initramfs": kernel, "cmdline": ""});
    for (action, body, status) in [
        ("vm.boot", Value::Null, 404),
        ("vm.pause", Value::Null, 404),
        ("vm.snapshot", json!({"destination_url": "file:///tmp"}), 404),
        ("vm.create", json!({"payload": {"kernel": "/no/such", "initramfs": kernel}}), 500),
        ("vm.create", json!({"payload": payload, "memory": {"size": 5000}}), 500),
        ("vm.create", json!({"payload": payload, "memory": {"size": 4096}}), 204),
        ("vm.create", json!({"payload": payload, "memory": {"size": 4096}}), 500),
        ("vm.pause", Value::Null, 405),
        ("vm.resume", Value::Null, 405),
        ("vm.snapshot", json!({"destination_url": "file:///tmp"}), 405),
        ("vm.restore", json!({"source_url": "file:///tmp"}), 404),
        // A machine that leads nowhere: its probe is told nothing.
        ("vm.boot", Value::Null, 500),
    ] {
        assert_eq!(ask(action, body.clone()).0, status, "{action} {body}");
    }
    for wrong in [["--api-socket", "path=s"], ["--api-sock", "s"]] {
        assert!(CloudHypervisor::new(&wrong.map(String::from)).is_err(), "{wrong:?}");
    }
}
