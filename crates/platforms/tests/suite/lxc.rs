//! LXC containers: single programs and whole systems, with each kind of root, and that nothing of
//! them outlives a crash.

use crate::common::network::talk;
use crate::common::victim::{Killed, kill_and_sweep, kill_while_launching};
use crate::common::{Bench, MINUTE, command, says, shell, skip_or_fail, turn_for};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::{Duration, Instant};
use weigh_model::ImageSpec;
use weigh_platforms::{Guest, PlatformError, RunOptions};

/// Whether there is a Debian system to boot. If not, prints that the test is skipped, and fails if
/// `WEIGH_REQUIRE` names `debian`.
fn debian(test: &str) -> bool {
    let found = weigh_images::store::Store::check(&ImageSpec::Debian);
    if let Err(error) = &found {
        skip_or_fail(test, "debian", &error.to_string());
    }
    found.is_ok()
}

/// A run, if systems can be booted in containers here.
fn system_bench(test: &str) -> Option<Bench> {
    if debian(test) { Bench::on(test, "lxc") } else { None }
}

/// Waits until a system's init reports that it is up.
fn is_up(guest: &mut dyn Guest) -> String {
    let end = Instant::now() + MINUTE;
    loop {
        let done = shell(guest, "systemctl is-system-running 2>&1");
        let said = String::from_utf8(done.output).unwrap().trim().to_string();
        if matches!(said.as_str(), "running" | "degraded") || Instant::now() > end {
            return said;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_single_program_container_follows_its_keys() {
    let Some(bench) = Bench::on("lxc-single", "lxc") else { return };
    let before_ns = weigh_host::clock::monotonic_ns();
    let mut guest = bench.guest("lxc:seccomp=off,storage=overlay");
    assert!((before_ns..weigh_host::clock::monotonic_ns()).contains(&guest.spawned_ns()));
    assert_eq!(says(&mut *guest, "ls /sys/class/net"), "lo");
    assert_eq!(says(&mut *guest, "cat /sys/class/net/lo/operstate"), "unknown", "loopback is up");
    assert_eq!(says(&mut *guest, "grep -w Seccomp /proc/self/status | tr -d '\\t'"), "Seccomp:0");
    assert_eq!(says(&mut *guest, "echo x > /var/tmp/x; stat -f -c %T /var/tmp"), "overlayfs");
    assert_ne!(shell(&mut *guest, "touch /usr/x").end.status, weigh_protocol::Status::Exited(0));
    let accounts = guest.accounts();
    assert_eq!(accounts.groups.len(), 1);
    assert!(accounts.helpers.iter().any(|helper| helper.name.starts_with("lxc")), "{accounts:?}");
    assert!(guest.processes().len() >= 3, "monitor, LXC's init, the probe");
    let mut other = bench.guest("lxc:net=host");
    assert_eq!(says(&mut *other, "grep -w Seccomp /proc/self/status | tr -d '\\t'"), "Seccomp:2");
    assert_eq!(says(&mut *other, "stat -f -c %T /var/tmp"), "tmpfs");
    let links = std::fs::read_dir("/sys/class/net").unwrap().count().to_string();
    assert_eq!(says(&mut *other, "ls /sys/class/net | wc -l"), links);
    for guest in [&mut guest, &mut other] {
        guest.stop().unwrap();
        guest.stop().unwrap();
    }
}

/// LXC binds an abstract socket that is called after the container. Any user may hold one.
#[test]
fn who_holds_the_socket_of_a_name_stops_no_container() {
    let Some(bench) = Bench::on("lxc-held", "lxc") else { return };
    let request = bench.request("lxc");
    let name = format!("/run/weighbridge-{}-{}/command", bench.host.run, request.instance);
    let _held = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
    bench.launch(&request).unwrap().stop().unwrap();
}

#[test]
fn a_mapped_root_is_unprivileged_outside() {
    let Some(bench) = Bench::on("lxc-mapped", "lxc:user=mapped") else { return };
    for environment in ["lxc:user=mapped", "lxc:user=mapped,net=host,storage=volume"] {
        let mut guest = bench.guest(environment);
        assert_eq!(says(&mut *guest, "id -u"), "0");
        assert_eq!(says(&mut *guest, "head -1 /proc/self/uid_map | awk '{print ($2 > 0)}'"), "1");
        says(&mut *guest, "touch /tmp/x /var/tmp/x");
        guest.stop().unwrap();
    }
}

#[test]
fn systems_start_from_every_kind_of_root_and_are_reached() {
    let Some(bench) = system_bench("lxc-system") else { return };
    for keys in [
        "root=overlay,storage=volume,net=bridge",
        "root=copied,seccomp=off",
        "root=shared",
        "root=overlay,user=mapped,net=nat",
        "root=copied,user=mapped",
        "root=shared,user=mapped",
    ] {
        let request = bench.request(&format!("lxc:init=full,{keys}"));
        let mut guest = bench.launch(&request).unwrap();
        if keys.contains("net=") {
            talk(&mut *guest);
        }
        let said = is_up(&mut *guest);
        let failed = says(&mut *guest, "systemctl list-units --failed --no-legend --plain | cut -d' ' -f1");
        assert_eq!(said, "running", "{keys}: {failed}");
        assert_eq!(says(&mut *guest, "cat /proc/1/comm"), "systemd");
        says(&mut *guest, "touch /etc/written /var/written /var/tmp/written /run/written");
        let root = shell(&mut *guest, "touch /usr/written").end.status;
        assert_eq!(root == weigh_protocol::Status::Exited(0), !keys.contains("shared"), "{keys}");
        assert!(guest.processes().len() > 4);
        let used = guest.launch_cpu_ns();
        assert!(used.len() == 1 && used[0].0 == "lxc-start" && used[0].1 > 100_000, "{used:?}");
        let facts = guest.session().facts(&[], &[]).unwrap();
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        assert_eq!(facts.boot.as_deref(), Some(boot.trim()), "{keys}");
        let line = command(&["sh", "-c", "exec sleep 100"]);
        let id = guest.session().start(&line).unwrap();
        guest.freeze().unwrap();
        guest.thaw().unwrap();
        guest.session().signal(id, 9).unwrap();
        guest.session().finish(id, MINUTE).unwrap();
        guest.stop().unwrap();
    }
    let tree = bench.request("lxc:init=full").root.tree.clone().unwrap();
    assert!(!tree.join("etc/written").exists(), "an image is never written to");
}

#[test]
fn two_systems_run_at_once_with_limits() {
    let Some(bench) = system_bench("lxc-two") else { return };
    let mut guests: Vec<_> = (0..2)
        .map(|_| {
            let mut request = bench.request("lxc:init=full");
            request.cpus = weigh_host::facts::allowed_cpus()[..1].to_vec();
            request.memory_bytes = Some(256 << 20);
            bench.launch(&request).unwrap()
        })
        .collect();
    for guest in &mut guests {
        assert_eq!(is_up(&mut **guest), "running");
        assert_eq!(says(&mut **guest, "nproc"), "1");
        let hungry = command(&["sh", "-c", "head -c 600000000 /dev/zero | tail | wc -c"]);
        let done = guest.session().run(&hungry, RunOptions::within(MINUTE)).unwrap();
        assert_ne!(done.output, b"600000000\n", "the limit does not hold");
    }
    drop(guests);
}

#[test]
fn an_image_without_a_system_is_refused_with_a_remedy() {
    let Some(bench) = Bench::on("lxc-refused", "lxc") else { return };
    for environment in ["lxc:init=full", "lxc:root=copied", "lxc:root=overlay"] {
        let request = bench.request_with(environment, &ImageSpec::Host, None);
        let refused = bench.launch(&request).map(|_| ()).unwrap_err();
        let PlatformError::Unavailable { remedy: Some(remedy), .. } = refused else { panic!("{refused}") };
        assert!(remedy.contains("rootfs=debian"), "{remedy}");
    }
    let resolve = |text: &str| {
        weigh_platforms::resolve(&weigh_model::EnvironmentSpec::parse(text).unwrap()).map(|_| ()).unwrap_err()
    };
    for (text, word) in [("lxc:init=full,net=host", "host"), ("lxc:init=full,rootfs=probe", "probe")] {
        let error = resolve(text);
        assert_eq!(&error.text[error.span.clone()], word);
    }
}

#[test]
fn managers_run_systems() {
    for platform in ["incus", "lxd"] {
        let test = format!("{platform}-systems");
        let Some(bench) = debian(&test).then(|| Bench::on(&test, platform)).flatten() else { continue };
        for keys in ["net=bridge", "net=nat,user=root,seccomp=off"] {
            let mut guest = bench.guest(&format!("{platform}:{keys}"));
            assert_eq!(is_up(&mut *guest), "running", "{keys}");
            let outside = says(&mut *guest, "awk 'NR == 1 {print $2}' /proc/self/uid_map");
            assert_eq!(outside == "0", keys.contains("user=root"), "{keys}");
            talk(&mut *guest);
            guest.freeze().unwrap();
            guest.thaw().unwrap();
            let accounts = guest.accounts();
            assert!(!accounts.daemons.is_empty() && !accounts.helpers.is_empty(), "{accounts:?}");
            assert!(guest.launch_cpu_ns()[0].1 > 100_000);
            guest.stop().unwrap();
            guest.stop().unwrap();
        }
        kill_and_sweep(
            &format!("{platform}-running"),
            &format!("{platform}:user=root,net=nat"),
            Killed::Running,
        );
    }
}

#[test]
fn nothing_outlives_a_crash() {
    let Some(_turn) = turn_for("nothing_outlives", "lxc") else { return };
    kill_while_launching("lxc-launching", "lxc", &[2, 8, 20, 35, 60]);
    kill_and_sweep("lxc-running", "lxc", Killed::Running);
    kill_and_sweep("lxc-frozen", "lxc", Killed::Frozen);
    kill_and_sweep("lxc-network", "lxc:net=nat,storage=overlay", Killed::Running);
    if debian("nothing_outlives") {
        kill_while_launching("lxc-full-launching", "lxc:init=full", &[15, 70, 200]);
        kill_and_sweep("lxc-full-running", "lxc:init=full", Killed::Running);
    }
}
