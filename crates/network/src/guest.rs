//! The network of one guest.

use crate::changes::RecordedChanges;
use crate::hops::Hop;
use crate::run::{GATEWAY_HOST, GUEST_HOSTS, RunNetwork};
use crate::subnet::{Subnet, choose};
use crate::tool::ip;
use crate::{Mode, NetworkError, PREFIX_BITS, Result, firewall, namespace, nat, tap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weigh_host::ledger::Ledger;

/// The network namespace of this process, that is, of the host.
const HOST_NAMESPACE: &str = "/proc/self/ns/net";

/// The address at which clients on other machines reach a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalAddress {
    /// An address of the host that these machines can reach.
    pub address: Ipv4Addr,
    /// The published ports, with the same numbers as in the guest.
    pub ports: Vec<u16>,
}

/// The network of a guest, made before the guest starts.
///
/// Dropping it removes the network; changes that cannot be undone stay in the ledger.
#[derive(Debug)]
pub struct GuestNetwork {
    mode: Mode,
    namespace: PathBuf,
    shared: Option<(Arc<RunNetwork>, u8)>,
    tap: Option<String>,
    /// The subnet of a machine and its client with [`Mode::Tap`].
    private: Option<Subnet>,
    external: Option<ExternalAddress>,
    changes: RecordedChanges,
}

impl GuestNetwork {
    /// Makes a namespace with its loopback interface up. With [`Mode::Bridge`] and [`Mode::Nat`] it
    /// also has an interface `eth0` on a bridge of the run, with an address in an unused subnet and
    /// a default route. `run` is the name of the run, unique on this host; `work` its work
    /// directory, in the ledger already; `instance` the number of the guest in the run.
    ///
    /// # Errors
    /// [`NetworkError`]; then all changes have been undone.
    pub fn make(ledger: &Ledger, run: &str, work: &Path, instance: u64, mode: Mode) -> Result<Self> {
        if mode == Mode::Tap {
            return Err(NetworkError::Unfit { mode, guests: "guests without a kernel of their own" });
        }
        let mut network = Self::reserve(ledger, run, work, mode)?;
        if mode == Mode::Host {
            return Ok(network);
        }
        let file = work.join(format!("network/guest-{instance}"));
        network.changes.namespace(&file)?;
        match &network.shared {
            Some((shared, number)) => {
                shared.connect(&mut network.changes, *number, &file)?;
                shared.check_reachable(*number, &file)?;
            }
            None => namespace::within(Some(&file), || ip(&["link set dev lo up".into()]))??,
        }
        network.namespace = file;
        Ok(network)
    }

    /// Makes a persistent tap device for a machine: with [`Mode::Bridge`] and [`Mode::Nat`] on a
    /// bridge of the run, with [`Mode::Tap`] in the namespace of its client. The machine must
    /// configure [`GuestNetwork::address`] with [`crate::PREFIX_BITS`], and
    /// [`GuestNetwork::gateway`], itself.
    ///
    /// # Errors
    /// As [`GuestNetwork::make`]; [`NetworkError::Unfit`] for the other modes.
    pub fn tap(ledger: &Ledger, run: &str, work: &Path, instance: u64, mode: Mode) -> Result<Self> {
        if matches!(mode, Mode::None | Mode::Host) {
            return Err(NetworkError::Unfit { mode, guests: "machines with a tap" });
        }
        let mut network = Self::reserve(ledger, run, work, mode)?;
        match &network.shared {
            Some((shared, number)) => {
                if !shared.is_reachable() {
                    // A machine that has not booted cannot be reached, so a temporary guest of the
                    // host's kernel is. It has another address, so that no ARP cache confuses its
                    // hardware address with that of the machine.
                    Self::make(ledger, run, work, instance, mode)?.remove()?;
                }
                network.tap = Some(shared.connect_tap(&mut network.changes, *number)?);
            }
            None => {
                let file = work.join(format!("network/client-{instance}"));
                network.changes.namespace(&file)?;
                network.namespace = file;
                network.make_client_tap(run, instance)?;
            }
        }
        Ok(network)
    }

    /// Makes the tap in the client's namespace. Nothing else is there, so any private subnet will
    /// do; the machines of a run get different ones.
    fn make_client_tap(&mut self, run: &str, instance: u64) -> Result<()> {
        let subnet = choose(&[], crate::seed(run).wrapping_add(instance as u32))?;
        let address = format!("address add {}/{PREFIX_BITS} dev eth0", subnet.host(GATEWAY_HOST));
        tap::make_within(&self.namespace, "eth0", &format!("weighbridge-{run}"), &[address])?;
        (self.private, self.tap) = (Some(subnet), Some("eth0".into()));
        Ok(())
    }

    /// Reserves an address on the bridge of the run, for a platform that makes the guest's
    /// namespace and its veth on [`GuestNetwork::bridge`] itself, with [`GuestNetwork::address`],
    /// [`crate::PREFIX_BITS`] and [`GuestNetwork::gateway`]. [`GuestNetwork::namespace`] is that of
    /// the host then.
    ///
    /// # Errors
    /// As [`GuestNetwork::make`].
    pub fn reserve(ledger: &Ledger, run: &str, work: &Path, mode: Mode) -> Result<Self> {
        let (tap, private, external) = (None, None, None);
        let (namespace, changes) = (HOST_NAMESPACE.into(), RecordedChanges::new(ledger));
        let mut network = Self { mode, namespace, shared: None, tap, private, external, changes };
        if matches!(mode, Mode::Bridge | Mode::Nat) {
            let shared = RunNetwork::join(ledger, run, work, mode)?;
            match shared.take_address() {
                Ok(number) => network.shared = Some((shared, number)),
                Err(error) => {
                    shared.leave()?;
                    return Err(error);
                }
            }
        }
        if let Some((shared, number)) = &network.shared {
            shared.publish(*number)?;
        }
        Ok(network)
    }

    /// Publishes ports of the guest at an address of the host for clients on other machines: their
    /// packets are translated and forwarded, whatever interface they arrive at. From then on
    /// [`GuestNetwork::reach`] returns that address. Does nothing in modes without translation.
    ///
    /// # Errors
    /// [`NetworkError`]; changes made so far are undone with the network.
    pub fn open(&mut self, run: &str, external: ExternalAddress) -> Result<()> {
        let (Some((shared, number)), Mode::Nat) = (&self.shared, self.mode) else { return Ok(()) };
        if external.ports.is_empty() {
            return Ok(());
        }
        let (bridge, guest) = (shared.bridge_name(), shared.address(*number));
        let name = format!("weighbridge-{run}-{number}");
        nat::open(&mut self.changes, &name, guest, &external)?;
        let translated = ["-o", bridge, "-m", "conntrack", "--ctstate", "DNAT"];
        firewall::accept(&mut self.changes, &name, &[&translated])?;
        self.external = Some(external);
        Ok(())
    }

    /// The mode of the network.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The file of the namespace, for `setns(2)` and runtimes. With [`Mode::Host`] it is that of
    /// the process that opens it.
    pub fn namespace(&self) -> &Path {
        &self.namespace
    }

    /// The guest's address; its prefix has [`crate::PREFIX_BITS`].
    pub fn address(&self) -> Option<IpAddr> {
        match &self.shared {
            Some((shared, number)) => Some(shared.address(*number).into()),
            None => self.private.map(|subnet| subnet.host(*GUEST_HOSTS.start()).into()),
        }
    }

    /// The guest's gateway: the host's address on the bridge, or the client's with [`Mode::Tap`].
    pub fn gateway(&self) -> Option<IpAddr> {
        match &self.shared {
            Some((shared, _)) => Some(shared.gateway().into()),
            None => self.private.map(|subnet| subnet.host(GATEWAY_HOST).into()),
        }
    }

    /// Name of the machine's tap. It is in the host's namespace; with [`Mode::Tap`] in the
    /// client's.
    pub fn tap_name(&self) -> Option<&str> {
        self.tap.as_deref()
    }

    /// Opens the only queue of the tap, for a program that takes a descriptor instead of a name.
    ///
    /// # Errors
    /// There is no tap, or its queue is open already.
    pub fn queue(&self) -> Result<OwnedFd> {
        let name =
            self.tap_name().ok_or(NetworkError::Unfit { mode: self.mode, guests: "machines with a tap" })?;
        let namespace = self.private.map(|_| self.namespace.as_path());
        namespace::within(namespace, || tap::open(name))?
    }

    /// Lets a user of the host open the tap by its name.
    ///
    /// # Errors
    /// There is no tap, or its queue is open already.
    pub fn give_tap(&self, user: u32) -> Result<()> {
        let name =
            self.tap_name().ok_or(NetworkError::Unfit { mode: self.mode, guests: "machines with a tap" })?;
        let namespace = self.private.map(|_| self.namespace.as_path());
        namespace::within(namespace, || tap::give(name, user))?
    }

    /// Name of the run's bridge, for platforms that make the veth themselves.
    pub fn bridge(&self) -> Option<&str> {
        self.shared.as_ref().map(|(shared, _)| shared.bridge_name())
    }

    /// The host's interfaces between the client and the guest. `own` is the name of the guest's
    /// veth if the platform made it.
    pub fn hops(&self, own: Option<&str>) -> Vec<Hop> {
        let Some((shared, number)) = &self.shared else { return Vec::new() };
        let veth = shared.guest_name(*number);
        shared.hops(own.or(self.tap_name()).or(Some(&veth)))
    }

    /// How a client reaches a TCP or UDP port of the guest: the address, and the namespace of the
    /// client, by default the host's.
    ///
    /// - [`Mode::None`]: not at all.
    /// - [`Mode::Host`]: the host's loopback interface, from the host.
    /// - [`Mode::Bridge`]: the guest's address, from a namespace on the same bridge.
    /// - [`Mode::Nat`]: an address of the host for this guest, from a namespace behind another link
    ///   of the host: packets are translated and forwarded as those of a client on another machine.
    /// - [`Mode::Tap`]: the machine's address, from the namespace at the other end of its tap.
    ///
    /// After [`GuestNetwork::open`]: the published address, only from other machines.
    pub fn reach(&self, port: u16) -> Option<(SocketAddr, Option<PathBuf>)> {
        if let Some(external) = self.external.as_ref().filter(|external| external.ports.contains(&port)) {
            return Some((SocketAddr::new(external.address.into(), port), None));
        }
        match (&self.shared, self.mode) {
            (Some((shared, number)), _) => {
                let address = IpAddr::from(shared.reached_at(*number));
                Some((SocketAddr::new(address, port), Some(shared.client().into())))
            }
            (None, Mode::Tap) => Some((SocketAddr::new(self.address()?, port), Some(self.namespace.clone()))),
            (None, Mode::Host) => Some((SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port), None)),
            (None, _) => None,
        }
    }

    /// Removes the network, and with the last guest everything that the guests of the run share. A
    /// second call only retries what failed.
    ///
    /// # Errors
    /// [`NetworkError::Ledger`] with changes that could not be undone; they stay in the ledger.
    pub fn remove(&mut self) -> Result<()> {
        let own = self.changes.undo();
        let shared = self.shared.take().map_or(Ok(()), |(shared, number)| {
            shared.free_address(number);
            shared.leave()
        });
        own.and(shared)
    }
}

impl Drop for GuestNetwork {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}
