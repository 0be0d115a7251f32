//! Guests in networks that weighbridge makes: clients reach them as `net` says, and nothing is
//! left, however they end.

use crate::common::network::{
    guests_are_reached, nobody_reaches, passt_ready, so_many_are_reached, taps_ready,
};
use crate::common::victim::{Killed, kill_and_sweep, kill_while_launching};
use crate::common::{Bench, MINUTE, ready, says, shared_turn, skip_or_fail, turn_for};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::io::Read;
use std::time::Duration;
use weigh_host::command::Invocation;
use weigh_model::{EnvironmentSpec, ImageSpec};
use weigh_platforms::{Guest, Reach, resolve};

/// For every value of a platform's key `net`, a client reaches the guest, or nobody does.
fn every_network_is_what_its_word_says(name: &str) {
    let _turn = shared_turn();
    let platform = weigh_platforms::find(name).unwrap();
    let plain = EnvironmentSpec::new(name, Default::default());
    let words = platform.capabilities(&plain).networks;
    assert!(words.contains(&"bridge") && words.contains(&"nat"), "{words:?}");
    for word in words {
        let environment = format!("{name}:net={word}");
        if *word == "none" {
            nobody_reaches("no-network", &environment);
        } else {
            guests_are_reached("networks", &environment);
        }
    }
}

macro_rules! platforms {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                every_network_is_what_its_word_says(stringify!($name));
            }
        )*
    };
}

platforms! { namespaces bubblewrap charliecloud minijail firejail apptainer proot nspawn runc crun youki runsc lxc }

/// The same for machines. They boot slowly, so only one network has two of them.
pub fn every_network_of_machines(environment: &str) {
    let _turn = shared_turn();
    let spec = EnvironmentSpec::parse(environment).unwrap();
    let words = weigh_platforms::find(&spec.platform).unwrap().capabilities(&spec).networks;
    assert!(words.contains(&"bridge") && words.contains(&"nat"), "{words:?}");
    for word in words {
        let environment = format!("{environment},net={word}");
        match *word {
            "none" => nobody_reaches("no-network", &environment),
            "user" => so_many_are_reached("machines", &environment, 1),
            "passt" if !passt_ready("machines") => {}
            "passt" => so_many_are_reached("machines", &environment, 1),
            _ if !taps_ready(&environment) => {}
            "bridge" => so_many_are_reached("machines", &environment, 2),
            _ => so_many_are_reached("machines", &environment, 1),
        }
    }
}

#[test]
fn uml() {
    if !taps_ready("uml") {
        return;
    }
    every_network_is_what_its_word_says("uml");
}

#[test]
fn qemu() {
    every_network_of_machines("qemu:accel=tcg");
}

/// A guest whose root is nobody outside is in a network that it could not have entered itself.
#[test]
fn mapped_users_have_networks() {
    let _turn = shared_turn();
    let both: &[&str] = &["bridge", "nat"];
    for (platform, words) in [
        ("namespaces", both),
        ("runc", both),
        ("crun", both),
        ("bubblewrap", &["nat"]),
        ("nspawn", &["bridge"]),
        ("lxc", &["nat"]),
    ] {
        for word in words {
            guests_are_reached("mapped", &format!("{platform}:net={word},user=mapped"));
        }
    }
}

#[test]
fn a_crash_leaves_no_network() {
    for environment in ["namespaces:net=bridge", "namespaces:net=nat"] {
        let Some(_turn) = turn_for("network-crash", environment) else { continue };
        for (number, when) in [Killed::Running, Killed::Frozen].into_iter().enumerate() {
            kill_and_sweep(&format!("network-{number}"), environment, when);
        }
        kill_while_launching("network", environment, &[1, 15, 40, 80, 150]);
    }
}

/// A machine's tap is a link of the host, or is in the client's namespace; while the machine boots,
/// both exist.
#[test]
fn a_crash_leaves_no_tap() {
    let _turn = shared_turn();
    let all = [
        ("uml:net=bridge", Killed::Frozen),
        ("qemu:accel=tcg,net=nat", Killed::Running),
        ("qemu:accel=tcg,net=bridge", Killed::Launching(Duration::from_millis(700))),
        ("qemu:accel=tcg,net=tap", Killed::Launching(Duration::from_millis(400))),
    ];
    for (environment, when) in all {
        if taps_ready("tap-crash") && ready("tap-crash", environment) {
            kill_and_sweep("tap", environment, when);
        }
    }
}

/// passt is found by the machine's name, or ends with weigh while it is being started.
#[test]
fn a_crash_leaves_no_passt() {
    let _turn = shared_turn();
    let (test, environment) = ("passt-crash", "qemu:accel=tcg,net=passt");
    if passt_ready(test) && ready(test, environment) {
        for when in [Killed::Running, Killed::Launching(Duration::from_millis(400))] {
            kill_and_sweep(test, environment, when);
        }
    }
}

/// What listens on the host's loopback interface is not reached by the address of the router, which
/// is how QEMU's own network has it. It is the loopback interface of a network namespace without a
/// route, where what passt does with that address stays.
#[test]
fn passt_keeps_the_loopback_interface_from_guests() {
    let test = "passt-loopback";
    if !passt_ready(test) {
        return;
    }
    if !weigh_host::facts::is_root() {
        skip_or_fail(test, "network", "only root makes network namespaces");
        return;
    }
    let work = || {
        // SAFETY: only the network namespace is unshared, no descriptors and no memory.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
        Invocation::new("ip").args(["link", "set", "lo", "up"]).run_ok().unwrap();
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = format!(
            "perl -MIO::Socket::INET -e '$c = IO::Socket::INET->new(PeerAddr => q(10.0.2.2:{port}), Timeout => 5); \
             print(defined($c) + 0)'"
        );
        for (word, reached) in [("user", "1"), ("passt", "0")] {
            let environment = format!("qemu:accel=tcg,net={word}");
            let Some(bench) = Bench::on(test, &environment) else { return };
            let mut guest = bench.guest(&environment);
            assert_eq!(says(&mut *guest, &client), reached, "{word}");
            guest.stop().unwrap();
        }
    };
    std::thread::scope(|scope| scope.spawn(work).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// Launches, saves and restores a machine. Returns what `ask` learns of it before and after, or
/// nothing if it cannot run here.
fn before_and_after_a_restore<T>(test: &str, environment: &str, ask: fn(&dyn Guest) -> T) -> Option<[T; 2]> {
    let bench = Bench::on(test, environment)?;
    let mut request = bench.request_with(environment, &ImageSpec::Probe, None);
    request.publish.push(7);
    let (platform, _) = resolve(&request.environment).unwrap();
    platform.restores(&bench.host, &request).unwrap();
    let mut guest = bench.launch(&request).unwrap();
    let before = ask(&*guest);
    let saved = bench.host.work.join("saved");
    std::fs::create_dir(&saved).unwrap();
    guest.save(&saved).unwrap();
    guest.stop().unwrap();
    let mut guest = platform.restore(&bench.host, &request, &saved).unwrap();
    let after = ask(&*guest);
    guest.stop().unwrap();
    Some([before, after])
}

/// passt learns the card's address from the frame that QEMU sends for a restored machine, too.
#[test]
fn a_machine_that_is_restored_has_its_passt() {
    let test = "passt-restored";
    if !passt_ready(test) {
        return;
    }
    // Nothing listens in the guest: passt accepts, the machine's kernel refuses, and passt closes.
    // Without an answer it would close after 10 s.
    before_and_after_a_restore(test, "qemu:accel=tcg,net=passt", |guest| {
        let Reach { address, from } = guest.reach(7).unwrap();
        let mut stream = weigh_network::connect(address, from.as_deref(), MINUTE).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(8))).unwrap();
        match stream.read(&mut [0; 1]) {
            Ok(read) => assert_eq!(read, 0),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
        }
    });
}

/// The host's kernel or QEMU carries a machine's packets, as `vhost` says.
#[test]
fn packets_are_carried_as_vhost_says() {
    let (test, environment) = ("network-vhost", "qemu:accel=tcg,net=tap");
    if !taps_ready(test) {
        return;
    }
    let Some(bench) = Bench::on(test, environment) else { return };
    for (word, carrier) in [("on", ", vhost"), ("off", ", no vhost")] {
        let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/vhost-net");
        if let ("on", Err(error)) = (word, device) {
            skip_or_fail(&format!("{test} with vhost=on"), "vhost", &format!("/dev/vhost-net: {error}"));
            continue;
        }
        let environment = format!("{environment},vhost={word}");
        let mut guest = bench.launch(&bench.request_with(&environment, &ImageSpec::Probe, None)).unwrap();
        let card = guest.facts()["network-card"].clone();
        assert!(card.starts_with("virtio-net") && card.ends_with(carrier), "{environment}: {card}");
        guest.stop().unwrap();
    }
}

/// The guest's kernel and its client keep the addresses that they had when it was saved.
#[test]
fn a_machine_that_is_restored_has_its_network() {
    let test = "network-restored";
    if !taps_ready(test) {
        return;
    }
    // Nothing listens, but the machine's kernel answers with a refusal.
    let addresses = before_and_after_a_restore(test, "qemu:accel=tcg,net=tap", |guest| {
        let Reach { address, from } = guest.reach(7).unwrap();
        let refused = weigh_network::connect(address, from.as_deref(), MINUTE).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused, "{refused}");
        address
    });
    if let Some([before, after]) = addresses {
        assert_eq!(before, after);
    }
}
