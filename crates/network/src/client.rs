//! A client of guests whose network an engine makes itself: on the engine's bridge, or behind a
//! link of the host.

use crate::changes::RecordedChanges;
use crate::hops::{self, Hop};
use crate::run::{AddressPool, CLIENT_HOST, GATEWAY_HOST, connect_veth, take_subnet};
use crate::subnet::{Subnet, choose};
use crate::tool::{NetworkLock, NetworkState, ip};
use crate::{PREFIX_BITS, Result, firewall, namespace, nat};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use weigh_host::ledger::Ledger;

/// The clients of this process: one per ledger, that is per run, and link.
static CLIENTS: Mutex<BTreeMap<(PathBuf, String), Weak<Shared>>> = Mutex::new(BTreeMap::new());

/// The network namespace of a client, shared by the guests of a run that are reached in the same
/// way and removed with the last of them.
#[derive(Debug)]
pub struct Client {
    shared: Option<Arc<Shared>>,
    published: Option<(u8, Ipv4Addr)>,
}

#[derive(Debug)]
struct Shared {
    changes: RecordedChanges,
    key: (PathBuf, String),
    namespace: PathBuf,
    link: String,
    /// The subnet with an address of the host for every guest; only behind a link.
    published: Option<Subnet>,
    addresses: Mutex<AddressPool>,
}

/// The run for which a client is made.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// Its ledger.
    pub ledger: &'a Ledger,
    /// Its name, unique on this host.
    pub name: &'a str,
    /// Its work directory, in the ledger already.
    pub work: &'a Path,
}

impl Client {
    /// A client on an existing bridge, with an unused address of its subnet: number 254.
    ///
    /// # Errors
    /// [`NetworkError`](crate::NetworkError); then all changes have been undone.
    pub fn on_bridge(run: Run<'_>, bridge: &str, gateway: Ipv4Addr) -> Result<Self> {
        let shared = Shared::join(run, bridge, |shared, alias| {
            let outside = [format!("link set dev {} master {bridge}", shared.link)];
            let address = Subnet::new(gateway, PREFIX_BITS).host(CLIENT_HOST);
            let inside = [format!("address add {address}/{PREFIX_BITS} dev eth0")];
            connect_veth(&mut shared.changes, &shared.link, alias, &shared.namespace, &outside, &inside)
        })?;
        Ok(Self { shared: Some(shared), published: None })
    }

    /// A client behind a link of its own, for which the host is another machine: its packets to
    /// [`Client::published`] reach the host from outside, and the rules of the engine translate
    /// them. `accept` names a bridge to which the firewall must let these packets through if the
    /// engine does not arrange that.
    ///
    /// # Errors
    /// As [`Client::on_bridge`].
    pub fn behind_link(run: Run<'_>, accept: Option<&str>) -> Result<Self> {
        let shared = Shared::join(run, accept.unwrap_or_default(), |shared, alias| {
            let link = shared.link.clone();
            let _lock = NetworkLock::take()?;
            connect_veth(&mut shared.changes, &link, alias, &shared.namespace, &[], &[])?;
            let subnet = take_subnet(&link, shared.seed())?;
            let inside = [
                format!("address add {}/{PREFIX_BITS} dev eth0", subnet.host(CLIENT_HOST)),
                format!("route add default via {}", subnet.host(GATEWAY_HOST)),
            ];
            namespace::within(Some(&shared.namespace), || ip(&inside))??;
            shared.published = Some(subnet);
            nat::forward(&mut shared.changes, &link, alias)?;
            if let Some(bridge) = accept {
                let rules: [&[&str]; 2] = [&["-i", &link, "-o", bridge], &["-i", bridge, "-o", &link]];
                firewall::accept(&mut shared.changes, alias, &rules)?;
            }
            Ok(())
        })?;
        let mut client = Self { shared: Some(shared), published: None };
        client.publish()?;
        Ok(client)
    }

    /// Gives the host another address on the client's link, for a single guest.
    fn publish(&mut self) -> Result<()> {
        let Some(shared) = &self.shared else { return Ok(()) };
        let Some(subnet) = shared.published else { return Ok(()) };
        let number = shared.addresses.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let address = subnet.host(number);
        self.published = Some((number, address));
        ip(&[format!("address replace {address}/32 dev {}", shared.link)])
    }

    /// The file of the namespace, for `setns(2)`.
    pub fn namespace(&self) -> Option<&Path> {
        self.shared.as_ref().map(|shared| shared.namespace.as_path())
    }

    /// The host's interfaces between the client and guests on a bridge.
    pub fn hops(&self, bridge: Option<&str>) -> Vec<Hop> {
        let link = self.shared.as_ref().map(|shared| shared.link.as_str());
        hops::on_host(&[(hops::BRIDGE, bridge), (hops::CLIENT, link)])
    }

    /// The host's address for this guest, at which the engine publishes its ports; only behind a
    /// link.
    pub fn published(&self) -> Option<Ipv4Addr> {
        self.published.map(|(_, address)| address)
    }

    /// Removes the client if no other guest uses it.
    ///
    /// # Errors
    /// [`NetworkError::Ledger`](crate::NetworkError::Ledger) with changes that could not be undone;
    /// they stay in the ledger.
    pub fn remove(&mut self) -> Result<()> {
        let Some(shared) = self.shared.take() else { return Ok(()) };
        if let Some((number, _)) = self.published.take() {
            shared.addresses.lock().unwrap_or_else(PoisonError::into_inner).free(number);
        }
        // Held to the end, so that the next guest finds all of the client or nothing.
        let mut clients = CLIENTS.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut shared) = Arc::into_inner(shared) else { return Ok(()) };
        clients.remove(&shared.key);
        shared.changes.undo()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}

impl Shared {
    /// The client of a run for one bridge or link, made by `make` if it does not exist.
    fn join(run: Run<'_>, what: &str, make: impl FnOnce(&mut Self, &str) -> Result<()>) -> Result<Arc<Self>> {
        let link = format!("wb{:08x}e", crate::seed(&format!("{}\n{what}", run.name)));
        let mut clients = CLIENTS.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (run.ledger.path().to_path_buf(), link.clone());
        if let Some(client) = clients.get(&key).and_then(Weak::upgrade) {
            return Ok(client);
        }
        let namespace = run.work.join(format!("network/client-{link}"));
        let (changes, addresses) = (RecordedChanges::new(run.ledger), Mutex::default());
        let mut shared = Self { changes, key: key.clone(), namespace, link, published: None, addresses };
        let file = shared.namespace.clone();
        shared.changes.namespace(&file)?;
        make(&mut shared, &format!("weighbridge-{}", run.name))?;
        let shared = Arc::new(shared);
        clients.insert(key, Arc::downgrade(&shared));
        Ok(shared)
    }

    fn seed(&self) -> u32 {
        self.link.bytes().fold(7, |seed: u32, byte| seed.wrapping_mul(31).wrapping_add(byte.into()))
    }
}

/// An opening in the host's firewall for clients on other machines, to the published ports of a
/// guest.
///
/// Dropping it closes the opening; changes that cannot be undone stay in the ledger.
#[derive(Debug)]
pub struct FirewallOpening(RecordedChanges);

impl FirewallOpening {
    /// Lets translated packets to guests on a bridge, and their replies, through the firewall.
    /// `guest` is the number of the guest in the run.
    ///
    /// # Errors
    /// [`NetworkError`](crate::NetworkError); then all changes have been undone.
    pub fn to_bridge(run: Run<'_>, bridge: &str, guest: u64) -> Result<Self> {
        let mut changes = RecordedChanges::new(run.ledger);
        let of_state = |direction, state| [direction, bridge, "-m", "conntrack", "--ctstate", state];
        let rules = [of_state("-o", "DNAT"), of_state("-i", "RELATED,ESTABLISHED")];
        let rules = rules.each_ref().map(|rule| &rule[..]);
        firewall::accept(&mut changes, &format!("weighbridge-{}-{guest}", run.name), &rules)?;
        Ok(Self(changes))
    }

    /// Closes the opening.
    ///
    /// # Errors
    /// [`NetworkError::Ledger`](crate::NetworkError::Ledger) with changes that could not be undone;
    /// they stay in the ledger.
    pub fn close(&mut self) -> Result<()> {
        self.0.undo()
    }
}

/// The host's address in an unused private subnet of [`PREFIX_BITS`], for the network of an engine
/// with a bridge of this name. `reserved` are subnets, such as `10.1.2.0/24`, that other networks
/// of the run have got: the host uses them only once an engine has made their bridges.
///
/// # Errors
/// [`NetworkError::NoSubnet`](crate::NetworkError::NoSubnet), or `ip` fails.
pub fn unused_subnet(run: &str, bridge: &str, reserved: &[String]) -> Result<Ipv4Addr> {
    Ok(choose_unreserved(NetworkState::now()?.taken(""), run, bridge, reserved)?.host(GATEWAY_HOST))
}

fn choose_unreserved(mut taken: Vec<Subnet>, run: &str, bridge: &str, reserved: &[String]) -> Result<Subnet> {
    taken.extend(reserved.iter().filter_map(|subnet| Subnet::parse(subnet)));
    choose(&taken, crate::seed(&format!("{run}\n{bridge}")))
}

/// Whether the host has an address in exactly this subnet, such as `10.1.2.0/24`, or a route to it.
///
/// # Errors
/// `ip` fails.
pub fn has_subnet(subnet: &str) -> Result<bool> {
    let Some(subnet) = Subnet::parse(subnet) else { return Ok(false) };
    Ok(NetworkState::now()?.taken("").contains(&subnet))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bridges_that_do_not_exist_yet_get_different_subnets() {
        let first = choose_unreserved(Vec::new(), "run", "wbp1", &[]).unwrap();
        assert_eq!(choose_unreserved(Vec::new(), "run", "wbp1", &[]).unwrap(), first);
        // Another engine that does not know of the first one.
        assert_ne!(choose_unreserved(Vec::new(), "run", "wbp2", &[]).unwrap(), first);
        // The same place in the search, but the first one is in the ledger.
        let second = choose_unreserved(Vec::new(), "run", "wbp1", &[first.to_string()]).unwrap();
        assert!(!second.overlaps(first), "{second}");
    }
}
