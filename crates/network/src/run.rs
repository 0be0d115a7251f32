//! What the guests of a run share: a bridge, a client's namespace, rules.

use crate::hops::{self, Hop};
use crate::made::Made;
use crate::subnet::{Subnet, choose};
use crate::tool::{Seen, Turn, ip, link_exists};
use crate::{Mode, NetworkError, PREFIX_BITS, firewall, namespace, nat, tap};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::RangeInclusive;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use weigh_host::ledger::Ledger;

/// Places of guests in a subnet.
pub(crate) const PLACES: RangeInclusive<u8> = 2..=250;
/// Place of the host's own address.
pub(crate) const HOST: u8 = 1;
/// Place of the client.
pub(crate) const CLIENT: u8 = 254;
/// How long the first connection to a guest may take; the kernel alone answers.
const PROOF: Duration = Duration::from_secs(5);
/// How often a subnet is chosen anew because somebody else took it meanwhile.
const ATTEMPTS: u32 = 10;

/// The networks that this process has made: one per ledger, that is per run, and mode.
static NETWORKS: Mutex<BTreeMap<(PathBuf, Mode), Weak<RunNetwork>>> = Mutex::new(BTreeMap::new());

/// The network of a run in one mode.
#[derive(Debug)]
pub(crate) struct RunNetwork {
    made: Made,
    key: (PathBuf, Mode),
    names: Names,
    guests: Subnet,
    /// Where the host has an address for every guest, with [`Mode::Nat`].
    published: Option<Subnet>,
    client: PathBuf,
    places: Mutex<Places>,
    /// A guest has been reached.
    proven: AtomicBool,
}

/// The places of a subnet that are in use.
#[derive(Debug)]
pub(crate) struct Places {
    used: BTreeSet<u8>,
    last: u8,
}

impl Default for Places {
    fn default() -> Self {
        Self { used: BTreeSet::new(), last: *PLACES.end() }
    }
}

impl Places {
    /// One that is free. The one that was given back last is the last to be given again.
    pub(crate) fn take(&mut self) -> Result<u8, NetworkError> {
        let last = self.last;
        let all = (last..=*PLACES.end()).skip(1).chain(*PLACES.start()..=last);
        let place = all.into_iter().find(|place| !self.used.contains(place));
        let place = place.ok_or(NetworkError::Full(self.used.len()))?;
        self.used.insert(place);
        self.last = place;
        Ok(place)
    }

    /// Gives one back.
    pub(crate) fn free(&mut self, place: u8) {
        self.used.remove(&place);
    }
}

/// Names of a run's interfaces. They have 15 characters at most (`IFNAMSIZ`, netdevice(7)), a run's
/// name has more: eight digits of a digest stand for it.
#[derive(Debug)]
struct Names {
    bridge: String,
    alias: String,
    seed: u32,
}

impl Names {
    fn new(run: &str, mode: Mode) -> Self {
        let digest = Sha256::digest(run.as_bytes());
        let seed = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
        let letter = if mode == Mode::Nat { 'n' } else { 'b' };
        Self { bridge: format!("wb{seed:08x}{letter}"), alias: format!("weighbridge-{run}"), seed }
    }

    fn client(&self) -> String {
        format!("{}c", self.bridge)
    }

    fn guest(&self, place: u8) -> String {
        format!("{}{place}", self.bridge)
    }
}

impl RunNetwork {
    /// The network of a run, made if this is its first guest.
    pub(crate) fn join(
        ledger: &Ledger,
        run: &str,
        work: &Path,
        mode: Mode,
    ) -> Result<Arc<Self>, NetworkError> {
        let mut networks = NETWORKS.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (ledger.path().to_path_buf(), mode);
        if let Some(network) = networks.get(&key).and_then(Weak::upgrade) {
            return Ok(network);
        }
        let network = Arc::new(Self::make(ledger, key.clone(), run, work)?);
        networks.insert(key, Arc::downgrade(&network));
        Ok(network)
    }

    /// One guest less. With the last one the network goes.
    pub(crate) fn leave(self: Arc<Self>) -> Result<(), NetworkError> {
        // Held to the end: who comes next finds all of the network or nothing of it.
        let mut networks = NETWORKS.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut network) = Arc::into_inner(self) else { return Ok(()) };
        networks.remove(&network.key);
        network.made.undo()
    }

    fn make(ledger: &Ledger, key: (PathBuf, Mode), run: &str, work: &Path) -> Result<Self, NetworkError> {
        let names = Names::new(run, key.1);
        let client = work.join(format!("network/client-{}", names.bridge));
        let mut made = Made::new(ledger);
        made.namespace(&client)?;
        let nat = key.1 == Mode::Nat;
        let subnets = {
            let _turn = Turn::take()?;
            let built = Self::bridge(&mut made, &names);
            built.and_then(|guests| {
                let published = if nat {
                    Some(Self::translated(&mut made, &names, guests, &client)?)
                } else {
                    Self::bridged(&mut made, &names, guests, &client)?;
                    None
                };
                Ok((guests, published))
            })
        };
        // The turn is over before what was begun is undone: that may take a turn itself.
        let (guests, published) = subnets?;
        let (places, proven) = Default::default();
        Ok(Self { made, key, names, guests, published, client, places, proven })
    }

    fn bridge(made: &mut Made, names: &Names) -> Result<Subnet, NetworkError> {
        let name = &names.bridge;
        absent(name)?;
        made.record("link", name, json!({}))?;
        // With an address of its own it does not take that of its ports, which changes with them: a
        // machine would go on sending to the former one. Without snooping no queries of the
        // bridge's own get into what is measured.
        let address = crate::hardware_address_of(name);
        ip(&[
            format!(
                "link add dev {name} address {address} type bridge stp_state 0 forward_delay 0 mcast_snooping 0"
            ),
            format!("link set dev {name} alias {}", names.alias),
            format!("link set dev {name} up"),
        ])?;
        take_subnet(name, names.seed)
    }

    fn bridged(made: &mut Made, names: &Names, guests: Subnet, client: &Path) -> Result<(), NetworkError> {
        let (bridge, own) = (&names.bridge, names.client());
        let outside = [format!("link set dev {own} master {bridge}")];
        let inside = [format!("address add {}/{PREFIX_BITS} dev eth0", guests.host(CLIENT))];
        plug(made, &own, &names.alias, client, &outside, &inside)?;
        firewall::accept(made, &names.alias, &[&["-i", bridge, "-o", bridge]])
    }

    fn translated(
        made: &mut Made,
        names: &Names,
        guests: Subnet,
        client: &Path,
    ) -> Result<Subnet, NetworkError> {
        let (bridge, own) = (&names.bridge, names.client());
        plug(made, &own, &names.alias, client, &[], &[])?;
        let published = take_subnet(&own, names.seed.rotate_left(16))?;
        let address = format!("address add {}/{PREFIX_BITS} dev eth0", published.host(CLIENT));
        namespace::within(Some(client), || ip(&[address]))??;
        nat::translate(made, &names.alias, (bridge, guests), (&own, published))?;
        nat::forward(made, bridge, &names.alias)?;
        let answers = ["-o", bridge, "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED"];
        firewall::accept(made, &names.alias, &[&["-i", bridge], &["-i", &own, "-o", bridge], &answers])?;
        Ok(published)
    }

    /// An address for one more guest.
    pub(crate) fn take_place(&self) -> Result<u8, NetworkError> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Gives it back.
    pub(crate) fn free_place(&self, place: u8) {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).free(place);
    }

    /// Connects the namespace of a guest.
    pub(crate) fn plug(&self, made: &mut Made, place: u8, guest: &Path) -> Result<(), NetworkError> {
        let name = self.names.guest(place);
        let outside = [format!("link set dev {name} master {}", self.names.bridge)];
        let inside = [
            format!("address add {}/{PREFIX_BITS} dev eth0", self.address(place)),
            format!("route add default via {}", self.gateway()),
        ];
        plug(made, &name, &self.names.alias, guest, &outside, &inside)
    }

    /// Makes the tap of a machine, whose name it returns.
    pub(crate) fn plug_tap(&self, made: &mut Made, place: u8) -> Result<String, NetworkError> {
        let name = self.names.guest(place);
        let bridged = [format!("link set dev {name} master {}", self.names.bridge)];
        tap::make(made, &name, &self.names.alias, &bridged)?;
        Ok(name)
    }

    /// Whether a client has reached a guest.
    pub(crate) fn is_proven(&self) -> bool {
        self.proven.load(Ordering::Relaxed)
    }

    /// Has the client connect to a guest that runs nothing yet, once: a firewall of a kind that
    /// nobody has thought of is told now, and not by a server that seems to hang.
    pub(crate) fn prove(&self, place: u8, guest: &Path) -> Result<(), NetworkError> {
        if self.is_proven() {
            return Ok(());
        }
        let listen =
            || TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|it| Ok((it.local_addr()?, it)));
        let listener = namespace::within(Some(guest), listen)?;
        let (address, _listener) = listener.map_err(NetworkError::io("listen in a guest's network"))?;
        let there = (self.reached_at(place), address.port()).into();
        namespace::connect(there, Some(&self.client), PROOF)
            .map_err(|source| NetworkError::Blocked { bridge: self.names.bridge.clone(), source })?;
        self.proven.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Gives the host the address by which the client reaches a guest, where there is translation.
    /// It stays as long as the client's link: without a guest behind it nobody answers.
    pub(crate) fn publish(&self, place: u8) -> Option<String> {
        let published = self.published?;
        Some(format!("address replace {}/32 dev {}", published.host(place), self.names.client()))
    }

    /// Its interfaces on the way from the client to a guest; `guest` is the host's end of what the
    /// guest is plugged in by.
    pub(crate) fn hops(&self, guest: Option<&str>) -> Vec<Hop> {
        let client = self.names.client();
        hops::here(&[
            (hops::GUEST, guest),
            (hops::BRIDGE, Some(&self.names.bridge)),
            (hops::CLIENT, Some(&client)),
        ])
    }

    /// Name of the host's end of the veth of a guest at this place.
    pub(crate) fn guest_name(&self, place: u8) -> String {
        self.names.guest(place)
    }

    /// The bridge's name.
    pub(crate) fn bridge_name(&self) -> &str {
        &self.names.bridge
    }

    /// The address of a guest.
    pub(crate) fn address(&self, place: u8) -> Ipv4Addr {
        self.guests.host(place)
    }

    /// The host's address on the bridge.
    pub(crate) fn gateway(&self) -> Ipv4Addr {
        self.guests.host(HOST)
    }

    /// Where the client connects to for a guest.
    pub(crate) fn reached_at(&self, place: u8) -> Ipv4Addr {
        self.published.unwrap_or(self.guests).host(place)
    }

    /// The client's namespace.
    pub(crate) fn client(&self) -> &Path {
        &self.client
    }
}

/// Makes a veth whose end `eth0` is in a namespace. `outside` is done to the other end before it is
/// up, `inside` in the namespace.
pub(crate) fn plug(
    made: &mut Made,
    name: &str,
    alias: &str,
    inside_of: &Path,
    outside: &[String],
    inside: &[String],
) -> Result<(), NetworkError> {
    absent(name)?;
    made.record("link", name, json!({}))?;
    let file = File::open(inside_of)
        .map_err(NetworkError::io(format!("open the network namespace {}", inside_of.display())))?;
    // Named by the descriptor: a path may hold what a command of ip must not.
    let there = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let made = [
        format!("link add dev {name} type veth peer name eth0 netns {there}"),
        format!("link set dev {name} alias {alias}"),
    ];
    let up = [format!("link set dev {name} up")];
    ip(&[&made, outside, &up].concat())?;
    let first = ["link set dev lo up".to_string(), "link set dev eth0 up".into()];
    namespace::within(Some(inside_of), || ip(&[&first, inside].concat()))?
}

/// An interface of this name that is there is not ours to take away.
pub(crate) fn absent(name: &str) -> Result<(), NetworkError> {
    if link_exists(name)? { Err(NetworkError::LinkExists(name.into())) } else { Ok(()) }
}

/// Gives an interface the host's address in a subnet that nobody else uses. Must hold a [`Turn`],
/// which keeps other runs away; others may take the same one in the same moment, which is seen
/// afterwards, and then the choice is theirs.
pub(crate) fn take_subnet(link: &str, seed: u32) -> Result<Subnet, NetworkError> {
    for attempt in 0..ATTEMPTS {
        let subnet = choose(&Seen::now()?.taken(link), seed.wrapping_add(attempt))?;
        let address = format!("{}/{PREFIX_BITS}", subnet.host(HOST));
        ip(&[format!("address add {address} dev {link}")])?;
        if !Seen::now()?.taken(link).iter().any(|other| other.overlaps(subnet)) {
            return Ok(subnet);
        }
        ip(&[format!("address delete {address} dev {link}")])?;
    }
    Err(NetworkError::NoSubnet)
}
