//! What only container engines guarantee: their networks, storage, filters and users, and that a
//! crash at any instant leaves nothing of them.

use crate::common::victim::{Killed, kill_and_sweep};
use crate::common::{Bench, benches, exclusive_turn, ready, says, stop_at_once};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;
use weigh_host::accounts::Process;
use weigh_host::command::{Invocation, find_program};
use weigh_network::{connect, within};
use weigh_platforms::{Guest, GuestRequest, PlatformError, resolve};

const ENGINES: [&str; 2] = ["docker", "podman"];
const PORT: u16 = 7001;

/// What engines make on the host under names that do not contain the run's.
fn of_engines() -> BTreeSet<String> {
    let names = |directory: &str, prefixes: &[&str]| {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| prefixes.iter().any(|prefix| name.starts_with(prefix))).collect::<Vec<_>>()
    };
    let mut found: BTreeSet<String> = names("/sys/class/net", &["wbp", "wbd"]).into_iter().collect();
    found.extend(names("/run/netns", &["netns-"]));
    found.extend(names("/run", &["weighbridge-podman"]));
    for table in ["filter", "nat"] {
        if let Ok(done) = Invocation::new("iptables").args(["-w", "10", "-t", table, "-S"]).run() {
            let text = String::from_utf8_lossy(&done.output).into_owned();
            found.extend(text.lines().filter(|line| line.contains("NETAVARK")).map(Into::into));
        }
    }
    found
}

/// The network namespace of a guest.
fn namespace_of(guest: &dyn Guest) -> PathBuf {
    let pid = guest.accounts().groups[0].processes()[0];
    format!("/proc/{pid}/ns/net").into()
}

/// The client's address that a server in a guest sees when it is reached as the guest says.
fn visitor_of(guest: &dyn Guest, port: u16) -> IpAddr {
    let listen = || TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap();
    let server = within(Some(&namespace_of(guest)), listen).unwrap();
    let reach = guest.reach(port).unwrap();
    let accepted = std::thread::spawn(move || server.accept().unwrap().1.ip());
    let made = connect(reach.address, reach.from.as_deref(), Duration::from_secs(5));
    assert!(made.is_ok(), "{reach:?}: {made:?}");
    accepted.join().unwrap()
}

fn published(bench: &Bench, environment: &str) -> GuestRequest {
    GuestRequest { publish: vec![PORT], ..bench.request(environment) }
}

fn subnet(address: IpAddr) -> Vec<u8> {
    let IpAddr::V4(address) = address else { panic!("{address}") };
    address.octets()[..3].to_vec()
}

#[test]
fn guests_are_reached_by_the_path_of_their_network() {
    let _turn = exclusive_turn();
    for engine in ENGINES.into_iter().filter(|engine| ready("engines-reach", engine)) {
        let before = of_engines();
        let bench = Bench::new(&format!("{engine}-reach"));
        for net in ["nat", "bridge", "proxy", "host", "none"] {
            if (engine, net) == ("podman", "proxy") {
                continue;
            }
            let environment = format!("{engine}:net={net}");
            let mut guest = bench.launch(&published(&bench, &environment)).unwrap();
            let own = guest.address();
            let links = says(guest.as_mut(), "sed -n 's/^ *\\([^:]*\\):.*/\\1/p' /proc/net/dev");
            let has_link = links.lines().any(|link| link == "eth0");
            assert!(net == "host" || has_link != (net == "none"), "{environment}: {links}");
            if net == "none" {
                assert!(own.is_none() && guest.reach(PORT).is_none(), "{environment}");
                guest.stop().unwrap();
                continue;
            }
            let reach = guest.reach(PORT).unwrap();
            let visitor = visitor_of(guest.as_ref(), PORT);
            match net {
                // Only translated on its way in: with a proxy, the guest would see the proxy
                // instead of the client.
                "nat" => {
                    assert_eq!(subnet(visitor), subnet(reach.address.ip()), "{environment}");
                    assert!(reach.from.is_some() && subnet(visitor) != subnet(own.unwrap()), "{environment}");
                    assert_eq!(guest.reach(PORT + 1), None, "{environment}");
                }
                "bridge" => {
                    assert_eq!(subnet(visitor), subnet(own.unwrap()), "{environment}");
                    assert_eq!(reach.address, SocketAddr::new(own.unwrap(), PORT), "{environment}");
                    assert!(reach.from.is_some(), "{environment}");
                }
                "proxy" => {
                    assert!(reach.address.ip().is_loopback() && reach.from.is_none(), "{environment}");
                    assert_eq!(
                        subnet(visitor),
                        subnet(own.unwrap()),
                        "{environment}: the proxy, on the bridge"
                    );
                    let port = reach.address.port().to_string();
                    let proxies = Process::named("docker-proxy");
                    assert!(
                        proxies.iter().any(|proxy| proxy.has_argument(&port)),
                        "{environment}: {proxies:?}"
                    );
                    let helpers = guest.accounts().helpers;
                    assert!(helpers.iter().any(|helper| helper.name == "docker-proxy"), "{helpers:?}");
                }
                _ => assert!(visitor.is_loopback() && own.is_none(), "{environment}: {visitor}"),
            }
            guest.stop().unwrap();
        }
        drop(bench);
        assert_eq!(of_engines(), before, "{engine}");
    }
}

#[test]
fn several_guests_come_and_go_at_once() {
    let _turn = exclusive_turn();
    for engine in ENGINES.into_iter().filter(|engine| ready("engines-many", engine)) {
        let before = of_engines();
        let bench = Bench::new(&format!("{engine}-many"));
        for net in ["nat", "bridge"] {
            let environment = format!("{engine}:net={net}");
            let requests: Vec<GuestRequest> = (0..4).map(|_| published(&bench, &environment)).collect();
            bench.launch(&requests[0]).unwrap().stop().unwrap();
            let guests = bench.launch_at_once(requests.into_iter());
            for guest in &guests {
                visitor_of(guest.as_ref(), PORT);
            }
            let addresses: BTreeSet<_> =
                guests.iter().map(|guest| guest.reach(PORT).unwrap().address).collect();
            assert_eq!(addresses.len(), 4, "{environment}");
            stop_at_once(guests);
        }
        drop(bench);
        assert_eq!(of_engines(), before, "{engine}");
    }
}

/// All stores of a run are prepared before the first guest starts, and so before Podman has made a
/// bridge that the host would show.
#[test]
fn stores_of_one_run_have_subnets_of_their_own() {
    let Some(bench) = Bench::on("podman-stores", "podman") else { return };
    let runtime = bench.host.work.join("runc");
    std::fs::copy(find_program("runc").unwrap(), &runtime).unwrap();
    let environments = ["podman".to_string(), format!("podman:runtime={}", runtime.display())];
    let requests = environments.map(|environment| published(&bench, &environment));
    for request in &requests {
        let (platform, _) = resolve(&request.environment).unwrap();
        platform.prepare(&bench.host, request).unwrap();
    }
    let mut guests = requests.map(|request| bench.launch(&request).unwrap());
    assert_ne!(subnet(guests[0].address().unwrap()), subnet(guests[1].address().unwrap()));
    for guest in &guests {
        visitor_of(guest.as_ref(), PORT);
    }
    for guest in &mut guests {
        guest.stop().unwrap();
    }
}

#[test]
fn docker_refuses_an_unknown_runtime_and_mapped_users_with_a_remedy() {
    let Some(bench) = Bench::on("docker-told", "docker") else { return };
    let mut guest = bench.guest("docker:net=none,runtime=runc");
    guest.stop().unwrap();
    for (environment, remedy) in
        [("docker:runtime=nosuch", "daemon.json"), ("docker:user=mapped", "userns-remap")]
    {
        match bench.launch(&bench.request(environment)) {
            Err(PlatformError::Unavailable { remedy: Some(said), .. }) => {
                assert!(said.contains(remedy), "{said}")
            }
            Err(other) => panic!("{environment}: {other}"),
            // This engine supports mapped users.
            Ok(mut guest) if environment.contains("mapped") => guest.stop().unwrap(),
            Ok(_) => panic!("{environment} is taken"),
        }
    }
}

/// Asserts that the storage and the filter of an engine's guests are as asked. More keys can follow the
/// environment.
pub fn storage_and_filter_follow_their_keys(bench: &Bench, environment: &str) {
    let kind = "stat -f -c %T /var/tmp; stat -c %a /var/tmp; echo x > /var/tmp/x; cat /var/tmp/x";
    for (storage, filesystem, seccomp, mode) in
        [("tmpfs", "tmpfs", "on", "2"), ("volume", "", "off", "0"), ("overlay", "", "on", "2")]
    {
        let environment = format!("{environment},storage={storage},seccomp={seccomp}");
        let mut guest = bench.guest(&environment);
        let said = says(guest.as_mut(), kind);
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines[1..], ["1777", "x"], "{environment}: {said}");
        assert!(lines[0].contains(filesystem), "{environment}: {said}");
        let same = says(guest.as_mut(), "[ $(stat -c %d /var/tmp) = $(stat -c %d /) ]; echo $?");
        assert_eq!(same == "0", storage == "overlay", "{environment}");
        let writable = says(guest.as_mut(), "touch /x 2>/dev/null; echo $?");
        assert_eq!(writable == "0", storage == "overlay", "{environment}");
        let seen = says(guest.as_mut(), "sed -n 's/^Seccomp:[^0-9]*//p' /proc/self/status");
        assert_eq!(seen, mode, "{environment}");
        guest.stop().unwrap();
    }
}

#[test]
fn storage_and_filter_are_as_asked() {
    for (engine, bench) in benches("keys", &ENGINES) {
        storage_and_filter_follow_their_keys(&bench, &format!("{engine}:net=none"));
    }
}

#[test]
fn podman_maps_users() {
    let Some(bench) = Bench::on("podman-mapped", "podman") else { return };
    for storage in ["tmpfs", "volume", "overlay"] {
        let mut guest = bench.guest(&format!("podman:net=none,user=mapped,storage={storage}"));
        let map =
            says(guest.as_mut(), "cat /proc/self/uid_map; id -u; echo written > /var/tmp/x; cat /var/tmp/x");
        let words: Vec<&str> = map.split_whitespace().collect();
        assert_eq!(words, ["0", "100000", "65536", "0", "written"], "{storage}");
        guest.stop().unwrap();
    }
}

#[test]
fn killed_at_any_instant_nothing_is_left() {
    let _turn = exclusive_turn();
    let launching = |ms| Killed::Launching(Duration::from_millis(ms));
    let mut cases = vec![
        ("podman", launching(120)),
        ("podman", launching(450)),
        ("podman:net=bridge", Killed::Running),
        ("podman:storage=volume", Killed::Frozen),
        ("docker", launching(30)),
        ("docker:net=bridge,storage=volume", launching(250)),
        ("docker:net=bridge,storage=volume", Killed::Running),
        ("docker:net=proxy", Killed::Frozen),
    ];
    if std::env::var_os("WEIGH_LONG").is_some() {
        let instants = (0..24).map(|step| launching(step * 40));
        cases.extend(instants.flat_map(|at| [("podman", at), ("docker:net=bridge,storage=volume", at)]));
    }
    let here: Vec<&str> = ENGINES.into_iter().filter(|engine| ready("engines-killed", engine)).collect();
    for (number, (environment, when)) in cases.into_iter().enumerate() {
        if here.iter().any(|engine| environment.starts_with(engine)) {
            let before = of_engines();
            kill_and_sweep(&format!("engines-killed-{number}"), environment, when);
            assert_eq!(of_engines(), before, "{environment} {when:?}");
        }
    }
}
