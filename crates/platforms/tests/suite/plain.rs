//! Guests made by a single program of the host: namespaces by weighbridge itself, bubblewrap,
//! Charliecloud, minijail, Firejail, Apptainer, PRoot, systemd-nspawn.
//!
//! What cannot be tested here is skipped with a message, unless `WEIGH_REQUIRE` names it.

use crate::common::network::talk;
use crate::common::victim::{Killed, kill_and_sweep, kill_while_launching};
use crate::common::{Bench, exclusive_turn, ready, says, stop_at_once, system_image, turn_for};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Instant;
use weigh_model::ImageSpec;
use weigh_platforms::GuestRequest;

/// `storage` decides what is behind `/var/tmp` with any image, and what is written there is removed
/// with the guest.
fn storage_is_what_the_key_says(test: &str, platform: &str) {
    let Some(bench) = Bench::on_disk(test, platform) else { return };
    let disk = Bench::file_system(&bench.host.work);
    for (word, expected) in [("tmpfs", "tmpfs"), ("volume", &*disk), ("overlay", "overlay")] {
        let mut guest = bench.guest(&format!("{platform}:storage={word}"));
        let script = "cd /var/tmp; stat -c %a .; echo kept > file; cat file; awk '$2 == \"/var/tmp\" {print $3}' /proc/mounts";
        let said = says(&mut *guest, script);
        assert_eq!(said, format!("1777\nkept\n{expected}"), "{platform} {word}");
        guest.stop().unwrap();
        if word == "tmpfs" {
            continue;
        }
        let request = bench.request_with(&format!("{platform}:storage={word}"), &ImageSpec::Probe, None);
        let mut guest = bench.launch(&request).unwrap();
        let mounts = guest.session().facts(&[], &["/var/tmp".into()]).unwrap().mounts;
        assert!(format!("{mounts:?}").contains(expected), "{platform} {word}: {mounts:?}");
        guest.stop().unwrap();
    }
    let left: Vec<_> =
        std::fs::read_dir(&bench.host.work).unwrap().flatten().map(|e| e.file_name()).collect();
    assert!(left.iter().all(|name| name.to_string_lossy().starts_with("root-")), "{left:?}");
}

/// The keys decide which namespaces a guest shares with the host.
fn namespaces_are_what_the_keys_say(test: &str, platform: &str) {
    let Some(bench) = Bench::on(test, platform) else { return };
    let names = ["mnt", "pid", "net", "uts", "ipc", "cgroup", "user"];
    let host =
        |name: &str| std::fs::read_link(format!("/proc/self/ns/{name}")).unwrap().display().to_string();
    // A platform without a key for user, control group and network namespaces has fixed ones.
    let expected: &[(&str, &[&str])] = match platform {
        "charliecloud" => &[
            ("net=none", &["pid", "uts", "ipc", "cgroup"]),
            ("net=host", &["pid", "net", "uts", "ipc", "cgroup"]),
        ],
        "proot" => &[
            ("net=none", &["pid", "uts", "ipc", "cgroup", "user"]),
            ("net=host", &["pid", "net", "uts", "ipc", "cgroup", "user"]),
        ],
        "minijail" => &[("net=none", &["user"]), ("net=host", &["net", "user"])],
        "firejail" | "apptainer" => {
            &[("net=none", &["cgroup", "user"]), ("net=host", &["net", "cgroup", "user"])]
        }
        _ => &[
            ("net=none", &["user"]),
            ("net=host", &["net", "user"]),
            ("user=mapped", &[]),
            ("user=mapped,net=host", &["net"]),
        ],
    };
    for (keys, shared) in expected {
        let mut guest = bench.guest(&format!("{platform}:{keys}"));
        let seen = says(&mut *guest, "cd /proc/self/ns; readlink mnt pid net uts ipc cgroup user");
        let seen: Vec<&str> = names
            .into_iter()
            .zip(seen.lines())
            .filter(|(name, is)| host(name) == *is)
            .map(|(name, _)| name)
            .collect();
        assert_eq!(seen, *shared, "{platform}:{keys}");
        guest.stop().unwrap();
    }
}

/// A sweep finds everything that weighbridge leaves if it is killed at any moment.
fn killed_at_any_moment(test: &str, platform: &str, launching: &[u64]) {
    let Some(_turn) = turn_for(test, platform) else { return };
    kill_while_launching(test, platform, launching);
    kill_and_sweep(test, platform, Killed::Running);
    kill_and_sweep(test, platform, Killed::Frozen);
}

macro_rules! tests {
    ($($name:ident: $check:ident($($argument:expr),*);)*) => {
        $(
            #[test]
            fn $name() {
                $check($($argument),*);
            }
        )*
    };
}

tests! {
    storage_of_namespaces: storage_is_what_the_key_says("storage-namespaces", "namespaces");
    storage_of_bubblewrap: storage_is_what_the_key_says("storage-bwrap", "bubblewrap");
    storage_of_charliecloud: storage_is_what_the_key_says("storage-ch", "charliecloud");
    storage_of_minijail: storage_is_what_the_key_says("storage-minijail", "minijail");
    storage_of_firejail: storage_is_what_the_key_says("storage-firejail", "firejail");
    storage_of_apptainer: storage_is_what_the_key_says("storage-apptainer", "apptainer");
    storage_of_nspawn: storage_is_what_the_key_says("storage-nspawn", "nspawn");
    namespaces_of_namespaces: namespaces_are_what_the_keys_say("spaces", "namespaces");
    namespaces_of_bubblewrap: namespaces_are_what_the_keys_say("spaces-bwrap", "bubblewrap");
    namespaces_of_charliecloud: namespaces_are_what_the_keys_say("spaces-ch", "charliecloud");
    namespaces_of_minijail: namespaces_are_what_the_keys_say("spaces-minijail", "minijail");
    namespaces_of_firejail: namespaces_are_what_the_keys_say("spaces-firejail", "firejail");
    namespaces_of_apptainer: namespaces_are_what_the_keys_say("spaces-apptainer", "apptainer");
    namespaces_of_proot: namespaces_are_what_the_keys_say("spaces-proot", "proot");
    namespaces_of_nspawn: namespaces_are_what_the_keys_say("spaces-nspawn", "nspawn");
    bubblewrap_is_killed: killed_at_any_moment("killed-bwrap", "bubblewrap:storage=overlay", &[2, 8, 20]);
    charliecloud_is_killed: killed_at_any_moment("killed-ch", "charliecloud:storage=overlay", &[2, 8, 20]);
    minijail_is_killed: killed_at_any_moment("killed-minijail", "minijail:storage=overlay", &[2, 8, 20]);
    firejail_is_killed: killed_at_any_moment("killed-firejail", "firejail:storage=overlay", &[2, 8, 20]);
    apptainer_is_killed: killed_at_any_moment("killed-apptainer", "apptainer:storage=overlay", &[5, 30, 70]);
    proot_is_killed: killed_at_any_moment("killed-proot", "proot:storage=overlay", &[2, 8, 20]);
    nspawn_is_killed: killed_at_any_moment("killed-nspawn", "nspawn:storage=overlay", &[5, 40, 90]);
}

/// The filter is on or off, and systemd-nspawn leaves nothing of its own on the host.
#[test]
fn the_filter_of_nspawn_can_be_left_out() {
    let test = "seccomp-nspawn";
    let _turn = exclusive_turn();
    if !ready(test, "nspawn") {
        return;
    }
    let entries = |at: &str| std::fs::read_dir(at).into_iter().flatten().flatten().map(|entry| entry.path());
    // What systemd-nspawn makes unless it is given its own place.
    let names = ["nspawn", "payload", "supervisor"];
    let places = ["/run/systemd", "/sys/fs/cgroup", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified"];
    let state = || -> BTreeSet<PathBuf> {
        let known = |path: &PathBuf| names.iter().any(|name| path.ends_with(name));
        places.iter().flat_map(|at| entries(at)).filter(known).collect()
    };
    let before = state();
    let bench = Bench::new(test);
    for (word, mode) in [("on", "2"), ("off", "0")] {
        let mut guest = bench.guest(&format!("nspawn:seccomp={word}"));
        assert_eq!(
            says(&mut *guest, "sed -n 's/^Seccomp:[[:space:]]*//p' /proc/self/status"),
            mode,
            "{word}"
        );
        guest.stop().unwrap();
    }
    drop(bench);
    assert_eq!(state(), before);
}

/// Waits until a system is up, and prints its state. At first there is no bus to ask.
const UP: &str =
    "until systemctl is-system-running --wait 2>/dev/null | grep -E 'running|degraded'; do sleep 0.05; done";
const FULL: [&str; 3] = ["overlay", "copied", "shared"];

/// A whole system boots, with the probe beside its init, in its own namespaces and groups, and is
/// removed.
#[test]
fn nspawn_boots_a_system() {
    let test = "nspawn-full";
    let Some(_turn) = turn_for(test, "nspawn") else { return };
    let Some(image) = system_image(test) else { return };
    let bench = Bench::new(test);
    for root in FULL {
        let environment = format!("nspawn:init=full,root={root},storage=volume,rootfs={image}");
        let mut guest = bench.guest(&environment);
        assert_eq!(says(&mut *guest, "cat /proc/1/comm"), "systemd", "{environment}");
        let state = says(&mut *guest, UP);
        assert!(root == "shared" || state == "running", "{environment}: {state}");
        assert_eq!(
            says(&mut *guest, "systemctl is-active multi-user.target"),
            "active",
            "{environment}: {state}"
        );
        assert!(guest.processes().len() > 3, "{environment}");
        eprintln!(
            "{environment}: {state}; {}",
            says(
                &mut *guest,
                "systemctl --failed --no-pager --no-legend; systemd-analyze --no-pager; cat /proc/self/cgroup"
            )
        );
        guest.freeze().unwrap();
        guest.thaw().unwrap();
        assert_eq!(says(&mut *guest, "echo on"), "on");
        guest.stop().unwrap();
    }
    for (keys, filtered) in
        [("net=bridge,seccomp=on", true), ("net=nat,seccomp=off", false), ("user=mapped,root=copied", true)]
    {
        let mut guest = bench.guest(&format!("nspawn:init=full,{keys},rootfs={image}"));
        if keys.contains("net=") {
            says(&mut *guest, UP);
            talk(&mut *guest);
        }
        let rights = |process: &str| {
            format!("grep -E '^(CapBnd|NoNewPrivs|Seccomp|Seccomp_filters):' /proc/{process}/status")
        };
        let of_init = says(&mut *guest, &rights("1"));
        assert_eq!(says(&mut *guest, &rights("self")), of_init, "{keys}");
        assert_eq!(of_init.contains("Seccomp:\t2"), filtered, "{keys}: {of_init}");
        // SYS_MODULE is 16: a container never has it.
        let bounding = of_init.lines().find_map(|line| line.strip_prefix("CapBnd:\t")).unwrap();
        assert_eq!(u64::from_str_radix(bounding, 16).unwrap() & 1 << 16, 0, "{keys}: {of_init}");
    }
    drop(bench);
    let environment = format!("nspawn:init=full,rootfs={image}");
    kill_while_launching(test, &environment, &[20, 100, 300]);
    kill_and_sweep(test, &environment, Killed::Running);
    kill_and_sweep(test, &environment, Killed::Frozen);
}

/// Number of simultaneous guests.
const MANY: u64 = 200;
/// What each guest may cost this process, bytes; the goal is 100 kB, and a debug build takes more.
const BOOKKEEPING_BYTES: u64 = 300_000;

/// Proportional set size of this process, bytes.
fn own_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().trim().parse::<u64>().unwrap() * 1024
}

/// Many guests start, each from its own thread, answer, and are stopped.
#[test]
fn many_guests_at_once() {
    if !weigh_host::facts::is_root() {
        return;
    }
    let Some(bench) = Bench::on("many", "namespaces") else { return };
    let first = bench.request_with("namespaces", &ImageSpec::Probe, None);
    // One guest first, so that memory that is allocated once is not counted.
    bench.launch(&first).unwrap().stop().unwrap();
    let before = own_memory();
    let started = Instant::now();
    let requests = (1000..1000 + MANY).map(|instance| GuestRequest { instance, ..first.clone() });
    let mut guests = bench.launch_at_once(requests);
    let up = started.elapsed();
    for guest in &mut guests {
        assert!(guest.session().facts(&[], &[]).unwrap().init);
    }
    let each = own_memory().saturating_sub(before) / MANY;
    let started = Instant::now();
    stop_at_once(guests);
    let down = started.elapsed();
    eprintln!("{MANY} guests: up within {up:?}, down within {down:?}, {each} bytes of this process for each");
    assert!(each < BOOKKEEPING_BYTES, "{each} bytes for each guest");
}
