//! Clients that reach guests, for every platform with a network.

use super::{Bench, MINUTE, patience, ready, says, skip_or_fail};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::IpAddr;
use std::time::{Duration, Instant};
use weigh_platforms::{Guest, Reach};

/// The port that the guest listens on.
const PORT: u16 = 7007;

/// Answers one client that has asked, and prints its address. Perl is on every Debian host.
const SERVER: &str = "perl -MIO::Socket::INET -e '\
$s = IO::Socket::INET->new(Listen => 1, LocalPort => 7007, ReuseAddr => 1) or die $@; $s->timeout(60);\
$c = $s->accept or die $!; defined <$c> or die q(no question); \
print {$c} q(pong); close $c; print $c->peerhost || q(gone)'";

/// Whether machines can have taps here. If not, prints so, and fails if `WEIGH_REQUIRE` names
/// `network`.
pub fn taps_ready(test: &str) -> bool {
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun");
    let Err(error) = device else { return true };
    skip_or_fail(test, "network", &format!("/dev/net/tun: {error}"));
    false
}

/// Whether passt is installed here. If not, prints so, and fails if `WEIGH_REQUIRE` names `passt`.
pub fn passt_ready(test: &str) -> bool {
    let found = weigh_host::command::find_program("passt").is_some();
    if !found {
        skip_or_fail(&format!("{test} with net=passt"), "passt", "the program passt is missing");
    }
    found
}

/// Connects, retrying until somebody listens, asks, and reads to the end. What stands between may
/// accept for a guest in which nobody listens yet, and may end the connection by a reset; the passt
/// of 2023 connects with the guest only once the client has said something.
fn ask(reach: &Reach) -> String {
    let end = Instant::now() + patience(MINUTE);
    loop {
        let mut text = Vec::new();
        let connected = weigh_network::connect(reach.address, reach.from.as_deref(), Duration::from_secs(5));
        let ended = connected.map(|mut stream| {
            stream.set_read_timeout(Some(MINUTE)).unwrap();
            stream.write_all(b"ping\n").and_then(|()| stream.read_to_end(&mut text))
        });
        if !text.is_empty() {
            return String::from_utf8(text).unwrap();
        }
        assert!(Instant::now() < end, "{reach:?}: {ended:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Connects a client to a server in the guest; returns the result of [`Guest::reach`].
pub fn talk(guest: &mut dyn Guest) -> Reach {
    let reach = guest.reach(PORT).expect("a guest that can be reached");
    assert_eq!(guest.address().map(|address| address.is_unspecified()), Some(false));
    std::thread::scope(|scope| {
        let server = scope.spawn(|| says(guest, SERVER));
        assert_eq!(ask(&reach), "pong");
        server.join().unwrap();
    });
    reach
}

/// Asserts that two guests are reached, one by one and at different addresses, and nothing is left.
pub fn guests_are_reached(test: &str, environment: &str) {
    so_many_are_reached(test, environment, 2);
}

/// The same for `count` guests.
pub fn so_many_are_reached(test: &str, environment: &str, count: usize) {
    if !ready(test, environment) {
        return;
    }
    eprintln!("{environment}");
    let bench = Bench::new(test);
    let launch = |_| {
        let mut request = bench.request(environment);
        request.publish.push(PORT);
        bench.launch(&request).unwrap()
    };
    let mut guests: Vec<_> = (0..count).map(launch).collect();
    let addresses: Vec<_> = guests.iter_mut().map(|guest| talk(&mut **guest).address).collect();
    let loopback = addresses[0].ip().is_loopback();
    let all: BTreeSet<_> = addresses.iter().collect();
    assert!(all.len() == count || loopback, "{environment}: {addresses:?}");
    for guest in &mut guests {
        if let Some(word) = guest.facts().get("network") {
            assert!(environment.contains(&format!("net={word}")), "{environment} is {word}");
        }
        guest.stop().unwrap();
    }
}

/// Asserts that a guest without a network is not reached, and sees only its loopback interface.
pub fn nobody_reaches(test: &str, environment: &str) {
    if !ready(test, environment) {
        return;
    }
    let bench = Bench::new(test);
    let mut guest = bench.guest(environment);
    assert_eq!((guest.reach(PORT), guest.address()), (None, None::<IpAddr>));
    assert_eq!(says(&mut *guest, "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '"), "lo");
    guest.stop().unwrap();
}
