//! The network that the guests of a run share: a bridge, the client's namespace, rules.

use crate::changes::RecordedChanges;
use crate::hops::{self, Hop};
use crate::subnet::{Subnet, choose};
use crate::tool::{NetworkLock, NetworkState, ip, link_exists};
use crate::{Mode, NetworkError, PREFIX_BITS, Result, firewall, namespace, nat, tap};
use serde_json::json;
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

/// Host numbers of guests in a subnet.
pub(crate) const GUEST_HOSTS: RangeInclusive<u8> = 2..=250;
/// Host number of the host's address.
pub(crate) const GATEWAY_HOST: u8 = 1;
/// Host number of the client.
pub(crate) const CLIENT_HOST: u8 = 254;
/// How long the first connection to a guest may take; only the kernel answers it.
const CHECK_DEADLINE: Duration = Duration::from_secs(5);
/// How often another subnet is chosen because another program took it at the same time.
const ATTEMPTS: u32 = 10;

/// The networks of this process: one per ledger, that is per run, and mode.
static NETWORKS: Mutex<BTreeMap<(PathBuf, Mode), Weak<RunNetwork>>> = Mutex::new(BTreeMap::new());

/// The network of a run in one mode.
#[derive(Debug)]
pub(crate) struct RunNetwork {
    changes: RecordedChanges,
    key: (PathBuf, Mode),
    names: Names,
    guests: Subnet,
    /// The subnet with an address of the host for every guest, with [`Mode::Nat`].
    published: Option<Subnet>,
    client: PathBuf,
    addresses: Mutex<AddressPool>,
    /// Whether a client has reached a guest.
    reachable: AtomicBool,
}

/// The host numbers of a subnet that are in use.
#[derive(Debug)]
pub(crate) struct AddressPool {
    used: BTreeSet<u8>,
    last: u8,
}

impl Default for AddressPool {
    fn default() -> Self {
        Self { used: BTreeSet::new(), last: *GUEST_HOSTS.end() }
    }
}

impl AddressPool {
    /// A free number, in round-robin order, so that a freed one is reused as late as possible.
    pub(crate) fn take(&mut self) -> Result<u8> {
        let last = self.last;
        let all = (last..=*GUEST_HOSTS.end()).skip(1).chain(*GUEST_HOSTS.start()..=last);
        let number = all.into_iter().find(|number| !self.used.contains(number));
        let number = number.ok_or(NetworkError::Full(self.used.len()))?;
        self.used.insert(number);
        self.last = number;
        Ok(number)
    }

    /// Returns a number to the pool.
    pub(crate) fn free(&mut self, number: u8) {
        self.used.remove(&number);
    }
}

/// Names of a run's interfaces. They may have at most 15 characters (`IFNAMSIZ`, netdevice(7)), so
/// eight digits of a digest stand for the name of the run.
#[derive(Debug)]
struct Names {
    bridge: String,
    alias: String,
    seed: u32,
}

impl Names {
    fn new(run: &str, mode: Mode) -> Self {
        let seed = crate::seed(run);
        let letter = if mode == Mode::Nat { 'n' } else { 'b' };
        Self { bridge: format!("wb{seed:08x}{letter}"), alias: format!("weighbridge-{run}"), seed }
    }

    fn client(&self) -> String {
        format!("{}c", self.bridge)
    }

    fn guest(&self, number: u8) -> String {
        format!("{}{number}", self.bridge)
    }
}

impl RunNetwork {
    /// The network of a run, made if this is its first guest.
    pub(crate) fn join(ledger: &Ledger, run: &str, work: &Path, mode: Mode) -> Result<Arc<Self>> {
        let mut networks = NETWORKS.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (ledger.path().to_path_buf(), mode);
        if let Some(network) = networks.get(&key).and_then(Weak::upgrade) {
            return Ok(network);
        }
        let network = Arc::new(Self::make(ledger, key.clone(), run, work)?);
        networks.insert(key, Arc::downgrade(&network));
        Ok(network)
    }

    /// Releases the network, and removes it after the last guest.
    pub(crate) fn leave(self: Arc<Self>) -> Result<()> {
        // Held to the end, so that the next guest finds all of the network or nothing.
        let mut networks = NETWORKS.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut network) = Arc::into_inner(self) else { return Ok(()) };
        networks.remove(&network.key);
        network.changes.undo()
    }

    fn make(ledger: &Ledger, key: (PathBuf, Mode), run: &str, work: &Path) -> Result<Self> {
        let names = Names::new(run, key.1);
        let client = work.join(format!("network/client-{}", names.bridge));
        let mut changes = RecordedChanges::new(ledger);
        changes.namespace(&client)?;
        let nat = key.1 == Mode::Nat;
        let subnets = {
            let _lock = NetworkLock::take()?;
            let built = Self::bridge(&mut changes, &names);
            built.and_then(|guests| {
                let published = if nat {
                    Some(Self::translated(&mut changes, &names, guests, &client)?)
                } else {
                    Self::bridged(&mut changes, &names, guests, &client)?;
                    None
                };
                Ok((guests, published))
            })
        };
        // The lock is released before a failure is undone, because undoing may take it, too.
        let (guests, published) = subnets?;
        let (addresses, reachable) = Default::default();
        Ok(Self { changes, key, names, guests, published, client, addresses, reachable })
    }

    fn bridge(changes: &mut RecordedChanges, names: &Names) -> Result<Subnet> {
        let name = &names.bridge;
        absent(name)?;
        changes.record("link", name, json!({}))?;
        // A bridge without an address of its own takes one of its ports, which changes with them,
        // and machines would keep sending to the former one. Without snooping no queries of the
        // bridge disturb measurements.
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

    fn bridged(changes: &mut RecordedChanges, names: &Names, guests: Subnet, client: &Path) -> Result<()> {
        let (bridge, own) = (&names.bridge, names.client());
        let outside = [format!("link set dev {own} master {bridge}")];
        let inside = [format!("address add {}/{PREFIX_BITS} dev eth0", guests.host(CLIENT_HOST))];
        connect_veth(changes, &own, &names.alias, client, &outside, &inside)?;
        firewall::accept(changes, &names.alias, &[&["-i", bridge, "-o", bridge]])
    }

    fn translated(
        changes: &mut RecordedChanges,
        names: &Names,
        guests: Subnet,
        client: &Path,
    ) -> Result<Subnet> {
        let (bridge, own) = (&names.bridge, names.client());
        connect_veth(changes, &own, &names.alias, client, &[], &[])?;
        let published = take_subnet(&own, names.seed.rotate_left(16))?;
        let address = format!("address add {}/{PREFIX_BITS} dev eth0", published.host(CLIENT_HOST));
        namespace::within(Some(client), || ip(&[address]))??;
        nat::translate(changes, &names.alias, (bridge, guests), (&own, published))?;
        nat::forward(changes, bridge, &names.alias)?;
        let answers = ["-o", bridge, "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED"];
        firewall::accept(changes, &names.alias, &[&["-i", bridge], &["-i", &own, "-o", bridge], &answers])?;
        Ok(published)
    }

    /// Reserves the host number of a guest.
    pub(crate) fn take_address(&self) -> Result<u8> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Releases a host number.
    pub(crate) fn free_address(&self, number: u8) {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner).free(number);
    }

    /// Connects the namespace of a guest to the bridge.
    pub(crate) fn connect(&self, changes: &mut RecordedChanges, number: u8, guest: &Path) -> Result<()> {
        let name = self.names.guest(number);
        let outside = [format!("link set dev {name} master {}", self.names.bridge)];
        let inside = [
            format!("address add {}/{PREFIX_BITS} dev eth0", self.address(number)),
            format!("route add default via {}", self.gateway()),
        ];
        connect_veth(changes, &name, &self.names.alias, guest, &outside, &inside)
    }

    /// Makes the tap of a machine on the bridge, and returns its name.
    pub(crate) fn connect_tap(&self, changes: &mut RecordedChanges, number: u8) -> Result<String> {
        let name = self.names.guest(number);
        let bridged = [format!("link set dev {name} master {}", self.names.bridge)];
        tap::make(changes, &name, &self.names.alias, &bridged)?;
        Ok(name)
    }

    /// Whether a client has reached a guest.
    pub(crate) fn is_reachable(&self) -> bool {
        self.reachable.load(Ordering::Relaxed)
    }

    /// Lets the client connect to the kernel of a guest, once, so that an unknown firewall is
    /// reported now instead of making servers seem to hang.
    pub(crate) fn check_reachable(&self, number: u8, guest: &Path) -> Result<()> {
        if self.is_reachable() {
            return Ok(());
        }
        let listen =
            || TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|it| Ok((it.local_addr()?, it)));
        let listener = namespace::within(Some(guest), listen)?;
        let (address, _listener) = listener.map_err(NetworkError::io("listen in a guest's network"))?;
        let target = (self.reached_at(number), address.port()).into();
        namespace::connect(target, Some(&self.client), CHECK_DEADLINE)
            .map_err(|source| NetworkError::Blocked { bridge: self.names.bridge.clone(), source })?;
        self.reachable.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// With translation, gives the host the address by which the client reaches a guest. It stays
    /// as long as the client's link.
    pub(crate) fn publish(&self, number: u8) -> Result<()> {
        let Some(published) = self.published else { return Ok(()) };
        ip(&[format!("address replace {}/32 dev {}", published.host(number), self.names.client())])
    }

    /// The host's interfaces between the client and a guest; `guest` is the host's end of the
    /// guest's link.
    pub(crate) fn hops(&self, guest: Option<&str>) -> Vec<Hop> {
        let client = self.names.client();
        hops::on_host(&[
            (hops::GUEST, guest),
            (hops::BRIDGE, Some(&self.names.bridge)),
            (hops::CLIENT, Some(&client)),
        ])
    }

    /// Name of the host's end of the link of a guest.
    pub(crate) fn guest_name(&self, number: u8) -> String {
        self.names.guest(number)
    }

    /// The bridge's name.
    pub(crate) fn bridge_name(&self) -> &str {
        &self.names.bridge
    }

    /// The address of a guest.
    pub(crate) fn address(&self, number: u8) -> Ipv4Addr {
        self.guests.host(number)
    }

    /// The host's address on the bridge.
    pub(crate) fn gateway(&self) -> Ipv4Addr {
        self.guests.host(GATEWAY_HOST)
    }

    /// The address to which the client connects for a guest.
    pub(crate) fn reached_at(&self, number: u8) -> Ipv4Addr {
        self.published.unwrap_or(self.guests).host(number)
    }

    /// The client's namespace.
    pub(crate) fn client(&self) -> &Path {
        &self.client
    }
}

/// Makes a veth whose end `eth0` is in a namespace. The commands `outside` run on the host before
/// the other end is up, `inside` in the namespace.
pub(crate) fn connect_veth(
    changes: &mut RecordedChanges,
    name: &str,
    alias: &str,
    inside_of: &Path,
    outside: &[String],
    inside: &[String],
) -> Result<()> {
    absent(name)?;
    changes.record("link", name, json!({}))?;
    let file = File::open(inside_of)
        .map_err(NetworkError::io(format!("open the network namespace {}", inside_of.display())))?;
    // Named by the descriptor: a path may contain characters that commands of ip must not.
    let namespace_file = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let add = [
        format!("link add dev {name} type veth peer name eth0 netns {namespace_file}"),
        format!("link set dev {name} alias {alias}"),
    ];
    let up = [format!("link set dev {name} up")];
    ip(&[&add, outside, &up].concat())?;
    let first = ["link set dev lo up".to_string(), "link set dev eth0 up".into()];
    namespace::within(Some(inside_of), || ip(&[&first, inside].concat()))?
}

/// Checks that no interface has this name: an existing one must not be removed later.
pub(crate) fn absent(name: &str) -> Result<()> {
    if link_exists(name)? { Err(NetworkError::LinkExists(name.into())) } else { Ok(()) }
}

/// Gives an interface the host's address in an unused subnet. The caller must hold the
/// [`NetworkLock`], which excludes other runs. If another program takes the same subnet at the same
/// time, this chooses another one.
pub(crate) fn take_subnet(link: &str, seed: u32) -> Result<Subnet> {
    for attempt in 0..ATTEMPTS {
        let subnet = choose(&NetworkState::now()?.taken(link), seed.wrapping_add(attempt))?;
        let address = format!("{}/{PREFIX_BITS}", subnet.host(GATEWAY_HOST));
        ip(&[format!("address add {address} dev {link}")])?;
        if !NetworkState::now()?.taken(link).iter().any(|other| other.overlaps(subnet)) {
            return Ok(subnet);
        }
        ip(&[format!("address delete {address} dev {link}")])?;
    }
    Err(NetworkError::NoSubnet)
}
