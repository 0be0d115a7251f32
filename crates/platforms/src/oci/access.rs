//! How clients reach the guests of an engine, over the network that the engine makes.

use crate::helpers::fnv_1a;
use crate::network::NetworkEnd;
use crate::{GuestRequest, Host, PlatformError, Reach, Result};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use weigh_host::ledger::Change;
use weigh_network::{Client, FirewallOpening, Hop, NetworkError, Run};

/// The way to one guest.
#[derive(Debug, Default)]
pub(crate) struct Access {
    word: String,
    publish: Vec<u16>,
    client: Option<Client>,
    /// The engine's bridge.
    bridge: Option<String>,
    /// The address at which clients on another machine reach the host, and their way to the guest
    /// through its firewall.
    outside: Option<Ipv4Addr>,
    opening: Option<FirewallOpening>,
    /// The guest's own address on the engine's bridge.
    address: Option<IpAddr>,
    /// Ports of the host's loopback interface, by ports of the guest.
    proxied: BTreeMap<u16, u16>,
}

impl Access {
    /// Makes what has to exist before the engine makes the container. `word` is the value of `net`;
    /// `accept` is the engine's bridge, if its own rules do not let published ports through every
    /// firewall.
    ///
    /// # Errors
    /// The client's network could not be made.
    pub(crate) fn before(
        host: &Host,
        request: &GuestRequest,
        word: &str,
        accept: Option<&str>,
    ) -> Result<Self> {
        let publish = request.publish.clone();
        let mut access = Self { word: word.into(), publish, outside: request.outside, ..Self::default() };
        match (word, request.outside, accept) {
            ("nat", ..) if request.publish.is_empty() => {}
            ("nat", None, _) => {
                access.client = Some(Client::behind_link(run(host), accept).map_err(failed)?);
            }
            ("nat", Some(_), Some(bridge)) => {
                let opening = FirewallOpening::to_bridge(run(host), bridge, request.instance);
                access.opening = Some(opening.map_err(failed)?);
            }
            _ => {}
        }
        Ok(access)
    }

    /// Returns the host's address at which the engine publishes ports, and the ports. For a client
    /// elsewhere the address is this guest's alone, so that the ports keep their numbers; for a
    /// proxy it is the loopback interface, with numbers that are free.
    pub(crate) fn published(&self) -> Option<(Ipv4Addr, &[u16])> {
        let address = match self.word.as_str() {
            "nat" => self.translated()?,
            "proxy" if !self.publish.is_empty() => Ipv4Addr::LOCALHOST,
            _ => return None,
        };
        Some((address, &self.publish))
    }

    /// Returns the host's address whose packets are translated to the guest.
    fn translated(&self) -> Option<Ipv4Addr> {
        let outside = self.outside.filter(|_| !self.publish.is_empty());
        outside.or_else(|| self.client.as_ref()?.published())
    }

    /// Completes the access once the container runs: notes its address and the ports that a proxy
    /// listens on, and makes a client on its bridge.
    ///
    /// # Errors
    /// The client's network could not be made.
    pub(crate) fn up(
        &mut self,
        host: &Host,
        address: Option<IpAddr>,
        proxied: BTreeMap<u16, u16>,
        bridge: Option<(&str, Ipv4Addr)>,
    ) -> Result<()> {
        (self.address, self.proxied) = (address, proxied);
        self.bridge = bridge.map(|(name, _)| name.into());
        if let ("bridge", false, Some((bridge, gateway))) =
            (self.word.as_str(), self.publish.is_empty(), bridge)
        {
            self.client = Some(Client::on_bridge(run(host), bridge, gateway).map_err(failed)?);
        }
        Ok(())
    }
}

impl NetworkEnd for Access {
    /// The guest's own address on the engine's bridge.
    fn address(&self) -> Option<IpAddr> {
        self.address
    }

    fn reach(&self, port: u16) -> Option<Reach> {
        let from = || self.client.as_ref().and_then(Client::namespace).map(Into::into);
        let (address, port, from) = match self.word.as_str() {
            "host" => (Ipv4Addr::LOCALHOST.into(), port, None),
            // Without its own client, the guest is reached from the host, which is on the bridge.
            "bridge" => (self.address?, port, from()),
            "nat" if self.publish.contains(&port) => (self.translated()?.into(), port, from()),
            "proxy" => (Ipv4Addr::LOCALHOST.into(), *self.proxied.get(&port)?, None),
            _ => return None,
        };
        Some(Reach { address: SocketAddr::new(address, port), from })
    }

    fn hops(&self) -> Vec<Hop> {
        self.client.as_ref().map(|client| client.hops(self.bridge.as_deref())).unwrap_or_default()
    }

    /// Removes the client, unless other guests have it too. The client goes before the container,
    /// because the engine removes its bridge with the last that is on it.
    fn detach(&mut self) -> Result<()> {
        let closed = self.opening.as_mut().map_or(Ok(()), FirewallOpening::close);
        self.client.as_mut().map_or(Ok(()), Client::remove).and(closed).map_err(failed)
    }
}

fn run(host: &Host) -> Run<'_> {
    Run { ledger: &host.ledger, name: &host.run, work: &host.work }
}

/// Returns the host's address in a subnet for the network of an engine with a bridge of this name.
/// Neither the host uses the subnet nor another network of the run, whose bridge may not exist
/// before the first container.
///
/// # Errors
/// No subnet is free, or `ip` fails.
pub(crate) fn unused_subnet(host: &Host, bridge: &str) -> Result<Ipv4Addr> {
    let subnet_of = |change: Change| match change {
        Change::Platform { detail, .. } => Some(detail.get("subnet")?.as_str()?.to_string()),
        _ => None,
    };
    let reserved: Vec<String> = host.ledger.standing().into_iter().filter_map(subnet_of).collect();
    weigh_network::unused_subnet(&host.run, bridge, &reserved).map_err(failed)
}

/// Converts an error of the networks into one of the platform.
pub(crate) fn failed(error: NetworkError) -> PlatformError {
    PlatformError::io("make the network of a guest's client")(std::io::Error::other(error))
}

/// Returns a hash of words, for names that must be short.
pub(crate) fn number_of(words: &[&OsStr]) -> u64 {
    fnv_1a(words.iter().flat_map(|word| word.as_bytes()).copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_network_is_reached_its_own_way() {
        let address: IpAddr = [10, 1, 2, 3].into();
        let access = |word: &str| Access {
            word: word.into(),
            publish: vec![80],
            address: Some(address),
            proxied: BTreeMap::from([(80, 4000)]),
            ..Access::default()
        };
        let reach = |word, port| access(word).reach(port).map(|reach| reach.address.to_string());
        assert_eq!(reach("host", 5).as_deref(), Some("127.0.0.1:5"));
        assert_eq!(reach("bridge", 5).as_deref(), Some("10.1.2.3:5"));
        assert_eq!(reach("proxy", 80).as_deref(), Some("127.0.0.1:4000"));
        assert_eq!((reach("proxy", 5), reach("nat", 80), reach("none", 80)), (None, None, None));
        assert_eq!(access("proxy").published(), Some((Ipv4Addr::LOCALHOST, &[80][..])));
        assert_eq!(access("bridge").published(), None);
        // A proxy serves this host alone: what comes from another machine is translated before it
        // gets there.
        let outside = |word| Access { outside: Some([192, 0, 2, 1].into()), ..access(word) };
        assert_eq!(outside("nat").reach(80).unwrap().address.to_string(), "192.0.2.1:80");
        assert_eq!(outside("nat").published(), Some(([192, 0, 2, 1].into(), &[80][..])));
        assert_eq!(outside("proxy").reach(80).unwrap().address.to_string(), "127.0.0.1:4000");
        assert_eq!(outside("nat").reach(5), None);
    }
}
