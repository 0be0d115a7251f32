//! Ports that a server may listen on.

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::ops::Range;
use weigh_host::clock::monotonic_ns;
use weigh_model::Plan;

/// The range to search: numbers of five digits, beyond those of known services.
const LOOKED_AT: Range<u16> = 15_000..32_000;
/// Ephemeral ports, which the kernel gives to clients (ip(7)): one that is free now may be a
/// client's a moment later.
const EPHEMERAL: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// Number of ports to try before giving up.
const TRIES: usize = 2_000;

/// Number of ports that the guests of a plan need: the most that any of its servers needs.
pub(crate) fn wanted(plan: &Plan) -> usize {
    let servers = plan.workloads.iter().filter_map(|workload| workload.staging.server.as_ref());
    servers.map(|server| usize::from(server.ports)).max().unwrap_or(0)
}

/// Finds this many free ports of this host, for TCP and for UDP, that are not among `taken`. Guests
/// that share the host's network listen on them; the ports of other guests are published at them.
pub(crate) fn unused(count: usize, taken: &[u16]) -> Option<Vec<u16>> {
    let ephemeral = std::fs::read_to_string(EPHEMERAL).ok().and_then(|text| range(&text));
    let mut generator = Pcg64::seed_from_u64(monotonic_ns() ^ u64::from(std::process::id()).rotate_left(32));
    let width = u64::from(LOOKED_AT.end - LOOKED_AT.start);
    let mut found: Vec<u16> = Vec::with_capacity(count);
    for _ in 0..TRIES + 4 * count {
        if found.len() == count {
            break;
        }
        let port = LOOKED_AT.start + (generator.next_u64() % width) as u16;
        let is_clients = ephemeral.as_ref().is_some_and(|range| range.contains(&port));
        if !is_clients && !taken.contains(&port) && !found.contains(&port) && is_unused(port) {
            found.push(port);
        }
    }
    (found.len() == count).then_some(found)
}

fn range(text: &str) -> Option<Range<u16>> {
    let (low, high) = text.trim().split_once(char::is_whitespace)?;
    Some(low.parse().ok()?..high.trim().parse().ok()?)
}

fn is_unused(port: u16) -> bool {
    let all = (Ipv4Addr::UNSPECIFIED, port);
    TcpListener::bind(all).is_ok() && UdpSocket::bind(all).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_free_and_different() {
        let ports = unused(3, &[]).unwrap();
        assert!(ports.iter().all(|port| (10_000..=u16::MAX).contains(port)), "{ports:?}");
        assert_ne!(ports[0], ports[1]);
        assert_eq!(unused(0, &[]), Some(vec![]));
        let everything: Vec<u16> = (0..=u16::MAX).collect();
        assert_eq!(unused(1, &everything), None);
    }

    #[test]
    fn a_port_in_use_is_not_chosen() {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert!(!is_unused(tcp.local_addr().unwrap().port()));
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert!(!is_unused(udp.local_addr().unwrap().port()));
        assert_eq!(range("32768\t60999\n"), Some(32768..60999));
        assert_eq!(range("x"), None);
    }
}
