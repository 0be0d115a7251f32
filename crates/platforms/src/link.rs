//! The networks of containers that LXC's library runs.
//!
//! An ordinary container starts in a namespace that is made beforehand, as on other platforms. A
//! mapped one must own its namespace, or it could not mount a sysfs for it: then LXC makes the
//! namespace, with a link to the bridge of the run. Managers of containers always do so.

use crate::guest::platform_change;
use crate::helpers::fnv_1a;
use crate::network::NetworkEnd;
use crate::{GuestRequest, Host, Reach, Result, network};
use serde_json::Value;
use std::net::IpAddr;
use std::path::Path;
use weigh_host::command::Invocation;
use weigh_host::ledger::{EntryId, Ledger};
use weigh_network::{GuestNetwork, Hop, Mode};

/// A network as LXC's configuration describes it.
pub(crate) enum Network<'a> {
    /// A namespace of its own with nothing but loopback.
    Empty,
    /// The host's network.
    Host,
    /// A namespace that exists already.
    Namespace(&'a Path),
    /// A namespace of its own with a link to a bridge.
    Link {
        /// Name of the link's end on the host.
        name: &'a str,
        bridge: &'a str,
        address: IpAddr,
        gateway: IpAddr,
    },
}

/// The network of one container.
pub(crate) struct Link {
    network: Option<GuestNetwork>,
    ledger: Ledger,
    /// The host's end of a link that LXC makes, which usually goes with its namespace.
    own: Option<(String, EntryId)>,
}

impl Link {
    /// Makes what has to exist before the container, for a value of `net`. `owns`: whether the
    /// container must own its namespace.
    pub(crate) fn make(
        platform: &'static str,
        host: &Host,
        request: &GuestRequest,
        word: &str,
        owns: bool,
    ) -> Result<Self> {
        let mode: Mode = word.parse()?;
        let ledger = host.ledger.clone();
        if !owns || !matches!(mode, Mode::Bridge | Mode::Nat) {
            let network = network::of_guest(host, request, word)?;
            return Ok(Self { network, ledger, own: None });
        }
        let network = GuestNetwork::reserve(&ledger, &host.run, &host.work, mode)?;
        let network = network::opened(network, host, request)?;
        let name = name(&host.run, request.instance);
        let entry = ledger.record(platform_change(platform, "link", &name, Value::Null))?;
        Ok(Self { network: Some(network), ledger, own: Some((name, entry)) })
    }

    /// Returns the network as the configuration describes it.
    pub(crate) fn network(&self) -> Network<'_> {
        let Some(network) = &self.network else { return Network::Empty };
        match (&self.own, network.bridge(), network.address(), network.gateway()) {
            (Some((name, _)), Some(bridge), Some(address), Some(gateway)) => {
                Network::Link { name, bridge, address, gateway }
            }
            _ if network.mode() == Mode::Host => Network::Host,
            _ => network::namespace(self.network.as_ref()).map_or(Network::Empty, Network::Namespace),
        }
    }
}

impl NetworkEnd for Link {
    fn reach(&self, port: u16) -> Option<Reach> {
        self.network.as_ref().and_then(|network| NetworkEnd::reach(network, port))
    }

    fn hops(&self) -> Vec<Hop> {
        let own = self.own.as_ref().map(|(name, _)| name.as_str());
        self.network.as_ref().map(|network| network.hops(own)).unwrap_or_default()
    }

    fn remove(&mut self) -> Result<()> {
        if let Some((name, entry)) = &self.own {
            undo(name)?;
            self.ledger.forget(*entry)?;
            self.own = None;
        }
        Ok(self.network.iter_mut().try_for_each(GuestNetwork::remove)?)
    }
}

/// Returns a name that no other link has: a hash, because names of interfaces may have only 15
/// bytes, too few for the run's name.
fn name(run: &str, instance: u64) -> String {
    let hash = fnv_1a(format!("{run}-{instance}").bytes());
    format!("wbl{:012x}", hash >> 16)
}

/// Removes a link's end on the host, and with it the other end. Usually both are gone already.
///
/// # Errors
/// The link is still there.
pub(crate) fn undo(name: &str) -> Result<()> {
    let place = Path::new("/sys/class/net").join(name);
    if !place.exists() {
        return Ok(());
    }
    match Invocation::new("ip").args(["link", "delete", "dev", name]).run_ok() {
        // If the link is gone now, the namespace with its other end was removed meanwhile.
        Err(error) if place.exists() => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_and_differ() {
        assert!(name("a-run", 1).len() <= 15);
        assert_ne!(name("a-run", 1), name("a-run", 2));
        undo(&name("a-run-that-never-was", 1)).unwrap();
    }
}
