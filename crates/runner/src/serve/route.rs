//! The route from a load generator to a server in a guest.

use crate::staging::Placeholders;
use crate::trial::Failure;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use weigh_model::FailureKind;
use weigh_platforms::{Capabilities, Guest, Reach};

/// The placeholders for ports, in order.
const PORTS: [&str; 3] = ["port", "port2", "port3"];

/// The route from a load generator to the ports of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Route {
    /// The address that the server binds.
    listen: IpAddr,
    /// The ports that it binds, and the address of each from outside.
    ports: Vec<(u16, SocketAddr)>,
    /// The network namespace that the loader is in; the host's when absent.
    pub(super) from: Option<PathBuf>,
}

impl Route {
    /// The route to these ports, of which there is at least one. `outside` is the address at which
    /// clients on another machine reach this host, if they run there.
    ///
    /// # Errors
    /// The guest cannot be reached.
    pub(super) fn to(
        guest: &dyn Guest,
        can: &Capabilities,
        ports: &[u16],
        outside: Option<Ipv4Addr>,
    ) -> Result<Self, Failure> {
        let unreachable = |reason: String| Failure::new(FailureKind::Preparation, reason);
        let mut reached = Vec::new();
        for port in ports {
            let reach = match outside {
                None => reach(guest, can, *port)
                    .ok_or_else(|| unreachable_reason(&network(guest, can), can.networks)),
                Some(address) => reach_from_outside(guest, can, SocketAddr::new(address.into(), *port)),
            };
            reached.push((*port, reach.map_err(unreachable)?));
        }
        let Some((_, first)) = reached.first() else {
            return Err(unreachable("the guest was given no port to listen on".into()));
        };
        let elsewhere = reached.iter().find(|(port, reach)| reach.address.port() != *port);
        if let (Some((port, reach)), true) = (elsewhere, ports.len() > 1) {
            return Err(unreachable(format!(
                "port {port} of the guest is port {} of the host, and a server with several ports tells its clients their numbers; \
                 use net=host, bridge or nat",
                reach.address.port()
            )));
        }
        let listen = match outside {
            Some(address) if is_on_host(guest, can) => own(address),
            _ => listen_at(guest, can, Some(first)),
        };
        let from = first.from.clone();
        let ports = reached.into_iter().map(|(port, reach)| (port, reach.address)).collect();
        Ok(Self { listen, ports, from })
    }

    /// The address of the first port from outside.
    pub(super) fn address(&self) -> SocketAddr {
        self.ports[0].1
    }

    /// Adds the placeholders of commands in the guest.
    pub(super) fn inside(&self, placeholders: Placeholders) -> Placeholders {
        let placeholders = placeholders.with("listen", self.listen.to_string());
        PORTS
            .iter()
            .zip(&self.ports)
            .fold(placeholders, |placeholders, (name, (port, _))| placeholders.with(name, port.to_string()))
    }

    /// Adds the placeholders of commands of the loader.
    pub(super) fn outside(&self, placeholders: Placeholders) -> Placeholders {
        let placeholders = placeholders.with("address", self.address().ip().to_string());
        let ports = PORTS.iter().zip(&self.ports);
        ports.fold(placeholders, |placeholders, (name, (_, address))| {
            placeholders.with(name, address.port().to_string())
        })
    }
}

/// How a client reaches a port of the guest.
pub(crate) fn reach(guest: &dyn Guest, can: &Capabilities, port: u16) -> Option<Reach> {
    guest.reach(port).or_else(|| {
        let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
        is_on_host(guest, can).then_some(Reach { address, from: None })
    })
}

/// How a client on another machine reaches a port of the guest. `there` is the port's number at the
/// address of this host that the client reaches.
///
/// # Errors
/// It cannot reach the port, because the guest's network is private to this host; in words.
pub(crate) fn reach_from_outside(
    guest: &dyn Guest,
    can: &Capabilities,
    there: SocketAddr,
) -> Result<Reach, String> {
    if is_on_host(guest, can) {
        return Ok(Reach { address: there, from: None });
    }
    let word = network(guest, can);
    match guest.reach(there.port()) {
        Some(reach) if reach.from.is_none() && reach.address.ip() == there.ip() => Ok(reach),
        None if word == "none" => Err(unreachable_reason(&word, can.networks)),
        _ => Err(private(&word, can.networks)),
    }
}

/// Values of `net` for networks into which the host lets clients on other machines.
const OPEN: [&str; 4] = ["host", "nat", "user", "passt"];

/// Why a guest on this network cannot be reached from another machine, and on which networks of its
/// platform it could be.
fn private(network: &str, networks: &[&str]) -> String {
    let others = OPEN.iter().filter(|word| networks.contains(word) && **word != network);
    let others: Vec<String> = others.map(|word| format!("net={word}")).collect();
    let remedy = match others.as_slice() {
        [] => "leave the environment out, or load it from this host (`--loader host`)".into(),
        some => format!("use {}, or load it from this host (`--loader host`)", some.join(" or ")),
    };
    format!(
        "the guest's network ({network}) is private to this host, and its load generator is on another machine; {remedy}"
    )
}

/// The address at which a server on the host's own network listens for clients on other machines:
/// the one that they reach, unless it belongs to an address translator in between.
fn own(address: Ipv4Addr) -> IpAddr {
    let is_own = TcpListener::bind((address, 0)).is_ok();
    if is_own { address.into() } else { Ipv4Addr::UNSPECIFIED.into() }
}

/// The address at which a server listens: on the host's own network only the loopback address,
/// unless its clients come from elsewhere.
pub(crate) fn listen_at(guest: &dyn Guest, can: &Capabilities, reach: Option<&Reach>) -> IpAddr {
    match reach {
        Some(reach) if !is_on_host(guest, can) || !reach.address.ip().is_loopback() => {
            Ipv4Addr::UNSPECIFIED.into()
        }
        _ => Ipv4Addr::LOCALHOST.into(),
    }
}

/// Whether a guest uses the host's own network.
pub(crate) fn is_on_host(guest: &dyn Guest, can: &Capabilities) -> bool {
    network(guest, can) == "host"
}

/// The network of the guest, spelled as in its parity key.
pub(crate) fn network(guest: &dyn Guest, can: &Capabilities) -> String {
    let said = guest.facts().remove("network");
    said.unwrap_or_else(|| can.network.into())
}

/// Why a guest on this network cannot be reached; `networks` are all those of its platform.
pub(crate) fn unreachable_reason(network: &str, networks: &[&str]) -> String {
    let others: Vec<String> =
        networks.iter().filter(|word| **word != "none").map(|word| format!("net={word}")).collect();
    match network {
        "none" if others.is_empty() => "the guest has no network to answer over".into(),
        "none" => format!("the guest has no network to answer over; give it one: {}", others.join(", ")),
        other => {
            format!("the platform offers no way to reach a port of the guest over its network ({other})")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_guest_without_a_network_is_refused_with_the_choices() {
        let said = unreachable_reason("none", &["none", "host", "bridge"]);
        assert!(said.ends_with("give it one: net=host, net=bridge"), "{said}");
        assert!(unreachable_reason("none", &["none"]).ends_with("to answer over"));
        assert!(unreachable_reason("tap", &["none"]).contains("(tap)"));
    }

    #[test]
    fn a_private_network_is_refused_with_the_reachable_choices() {
        let said = private("bridge", &["nat", "bridge", "proxy", "host", "none"]);
        assert!(said.contains("(bridge)") && said.contains("use net=host or net=nat,"), "{said}");
        let said = private("tap", &["tap", "none", "user", "passt", "bridge", "nat"]);
        assert!(said.contains("use net=nat or net=user or net=passt,"), "{said}");
        assert!(private("of another machine", &[]).contains("leave the environment out"));
    }

    #[test]
    fn a_server_on_the_host_listens_on_its_own_address_or_on_all() {
        assert_eq!(own(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv4Addr::LOCALHOST));
        // From a range for documentation: no host has this address.
        assert_eq!(own([192, 0, 2, 77].into()), IpAddr::from(Ipv4Addr::UNSPECIFIED));
    }

    #[test]
    fn every_side_has_its_words() {
        let found = |port| (port, SocketAddr::from(([10, 0, 0, 2], port + 1)));
        let way =
            Route { listen: Ipv4Addr::UNSPECIFIED.into(), ports: vec![found(1000), found(2000)], from: None };
        let placeholders = || Placeholders::new(Path::new("/s"), 0, 0);
        let (inside, outside) = (way.inside(placeholders()), way.outside(placeholders()));
        assert_eq!((inside.get("listen"), inside.get("port2")), (Some("0.0.0.0"), Some("2000")));
        assert_eq!((outside.get("address"), outside.get("port2")), (Some("10.0.0.2"), Some("2001")));
        assert_eq!((inside.get("address"), inside.get("port3"), outside.get("listen")), (None, None, None));
    }
}
