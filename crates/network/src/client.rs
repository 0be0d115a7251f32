//! A client of guests whose network an engine makes by itself: on the engine's bridge, or behind a
//! link of the host's own.

use crate::hops::{self, Hop};
use crate::made::Made;
use crate::run::{CLIENT, HOST, Places, plug, take_subnet};
use crate::subnet::{Subnet, choose};
use crate::tool::{Seen, Turn, ip};
use crate::{NetworkError, PREFIX_BITS, firewall, namespace, nat};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use weigh_host::ledger::Ledger;

/// The clients that this process has made: one per ledger, that is per run, and link.
static CLIENTS: Mutex<BTreeMap<(PathBuf, String), Weak<Shared>>> = Mutex::new(BTreeMap::new());

/// A client's namespace, shared by the guests of a run that are reached in the same way. With the
/// last of them it goes.
#[derive(Debug)]
pub struct Client {
    shared: Option<Arc<Shared>>,
    published: Option<(u8, Ipv4Addr)>,
}

#[derive(Debug)]
struct Shared {
    made: Made,
    key: (PathBuf, String),
    namespace: PathBuf,
    link: String,
    /// Where the host has an address for every guest, behind a link.
    published: Option<Subnet>,
    places: Mutex<Places>,
}

/// A run, for which things are made.
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
    /// A client on a bridge that is there, with an address of its subnet that nobody else has: the
    /// last but one of its first 256.
    ///
    /// # Errors
    /// [`NetworkError`]; what was begun has been undone.
    pub fn on_bridge(run: Run<'_>, bridge: &str, gateway: Ipv4Addr) -> Result<Self, NetworkError> {
        let shared = Shared::join(run, bridge, |shared, alias| {
            let outside = [format!("link set dev {} master {bridge}", shared.link)];
            let address = Subnet::new(gateway, PREFIX_BITS).host(CLIENT);
            let inside = [format!("address add {address}/{PREFIX_BITS} dev eth0")];
            plug(&mut shared.made, &shared.link, alias, &shared.namespace, &outside, &inside)
        })?;
        Ok(Self { shared: Some(shared), published: None })
    }

    /// A client behind a link of its own, for whom the host is another machine: what it sends to
    /// [`Client::published`] comes to the host from outside, where the rules of the engine
    /// translate it. `accept` names a bridge to which a firewall must let the client's packets
    /// through, where the engine does not see to that.
    ///
    /// # Errors
    /// As [`Client::on_bridge`].
    pub fn behind_link(run: Run<'_>, accept: Option<&str>) -> Result<Self, NetworkError> {
        let shared = Shared::join(run, accept.unwrap_or_default(), |shared, alias| {
            let link = shared.link.clone();
            let _turn = Turn::take()?;
            plug(&mut shared.made, &link, alias, &shared.namespace, &[], &[])?;
            let subnet = take_subnet(&link, shared.seed())?;
            let inside = [
                format!("address add {}/{PREFIX_BITS} dev eth0", subnet.host(CLIENT)),
                format!("route add default via {}", subnet.host(HOST)),
            ];
            namespace::within(Some(&shared.namespace), || ip(&inside))??;
            shared.published = Some(subnet);
            nat::forward(&mut shared.made, &link, alias)?;
            if let Some(bridge) = accept {
                let rules: [&[&str]; 2] = [&["-i", &link, "-o", bridge], &["-i", bridge, "-o", &link]];
                firewall::accept(&mut shared.made, alias, &rules)?;
            }
            Ok(())
        })?;
        let mut client = Self { shared: Some(shared), published: None };
        client.publish()?;
        Ok(client)
    }

    /// Gives the host one more address on the client's link, which is one guest's alone.
    fn publish(&mut self) -> Result<(), NetworkError> {
        let Some(shared) = &self.shared else { return Ok(()) };
        let Some(subnet) = shared.published else { return Ok(()) };
        let place = shared.places.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let address = subnet.host(place);
        self.published = Some((place, address));
        ip(&[format!("address replace {address}/32 dev {}", shared.link)])
    }

    /// The file of its namespace, for `setns(2)`.
    pub fn namespace(&self) -> Option<&Path> {
        self.shared.as_ref().map(|shared| shared.namespace.as_path())
    }

    /// The host's interfaces on the way to the guests behind a bridge.
    pub fn hops(&self, bridge: Option<&str>) -> Vec<Hop> {
        let link = self.shared.as_ref().map(|shared| shared.link.as_str());
        hops::here(&[(hops::BRIDGE, bridge), (hops::CLIENT, link)])
    }

    /// The host's address that is this guest's, for the engine to publish ports at, behind a link.
    pub fn published(&self) -> Option<Ipv4Addr> {
        self.published.map(|(_, address)| address)
    }

    /// Takes it away if it is the last of its guests.
    ///
    /// # Errors
    /// What could not be undone; it stays in the ledger.
    pub fn remove(&mut self) -> Result<(), NetworkError> {
        let Some(shared) = self.shared.take() else { return Ok(()) };
        if let Some((place, _)) = self.published.take() {
            shared.places.lock().unwrap_or_else(PoisonError::into_inner).free(place);
        }
        // Held to the end: who comes next finds all of it or nothing.
        let mut clients = CLIENTS.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut shared) = Arc::into_inner(shared) else { return Ok(()) };
        clients.remove(&shared.key);
        shared.made.undo()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}

impl Shared {
    /// The client of a run for one bridge, or link, made by `make` if it is not there.
    fn join(
        run: Run<'_>,
        what: &str,
        make: impl FnOnce(&mut Self, &str) -> Result<(), NetworkError>,
    ) -> Result<Arc<Self>, NetworkError> {
        let digest = Sha256::digest(format!("{}\n{what}", run.name));
        let link = format!("wb{:02x}{:02x}{:02x}{:02x}e", digest[0], digest[1], digest[2], digest[3]);
        let mut clients = CLIENTS.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (run.ledger.path().to_path_buf(), link.clone());
        if let Some(client) = clients.get(&key).and_then(Weak::upgrade) {
            return Ok(client);
        }
        let namespace = run.work.join(format!("network/client-{link}"));
        let (made, places) = (Made::new(run.ledger), Mutex::default());
        let mut shared = Self { made, key: key.clone(), namespace, link, published: None, places };
        let file = shared.namespace.clone();
        shared.made.namespace(&file)?;
        make(&mut shared, &format!("weighbridge-{}", run.name))?;
        let shared = Arc::new(shared);
        clients.insert(key, Arc::downgrade(&shared));
        Ok(shared)
    }

    fn seed(&self) -> u32 {
        self.link.bytes().fold(7, |seed: u32, byte| seed.wrapping_mul(31).wrapping_add(byte.into()))
    }
}

/// A way through the host's firewall for clients on other machines, to what an engine publishes of
/// one guest.
///
/// When it is dropped it is closed; what cannot be undone stays in the ledger.
#[derive(Debug)]
pub struct Opening(Made);

impl Opening {
    /// Has the firewall let through what was translated to guests on a bridge, and their answers.
    /// `guest` tells the guests of a run apart.
    ///
    /// # Errors
    /// [`NetworkError`]; what was begun has been undone.
    pub fn to_bridge(run: Run<'_>, bridge: &str, guest: u64) -> Result<Self, NetworkError> {
        let mut made = Made::new(run.ledger);
        let of_state = |direction, state| [direction, bridge, "-m", "conntrack", "--ctstate", state];
        let rules = [of_state("-o", "DNAT"), of_state("-i", "RELATED,ESTABLISHED")];
        let rules = rules.each_ref().map(|rule| &rule[..]);
        firewall::accept(&mut made, &format!("weighbridge-{}-{guest}", run.name), &rules)?;
        Ok(Self(made))
    }

    /// Closes it.
    ///
    /// # Errors
    /// What could not be undone; it stays in the ledger.
    pub fn close(&mut self) -> Result<(), NetworkError> {
        self.0.undo()
    }
}

/// The host's address in a private subnet of [`PREFIX_BITS`] that nobody uses now, for an engine to
/// make a network of. Runs begin their search at different places.
///
/// # Errors
/// [`NetworkError::NoSubnet`], or `ip` cannot be asked.
pub fn unused_subnet(run: &str) -> Result<Ipv4Addr, NetworkError> {
    let digest = Sha256::digest(format!("{run}\nengine"));
    let seed = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
    Ok(choose(&Seen::now()?.taken(""), seed)?.host(HOST))
}
