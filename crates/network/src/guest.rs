//! The network of one guest.

use crate::hops::Hop;
use crate::made::Made;
use crate::run::{HOST, PLACES, RunNetwork};
use crate::subnet::{Subnet, choose};
use crate::tool::ip;
use crate::{Mode, NetworkError, PREFIX_BITS, firewall, namespace, nat, tap};
use sha2::{Digest, Sha256};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weigh_host::ledger::Ledger;

/// The network namespace of this process.
const HOSTS: &str = "/proc/self/ns/net";

/// Where clients on other machines reach a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outside {
    /// An address of the host that those machines reach.
    pub address: Ipv4Addr,
    /// Ports of the guest, which have the same numbers there.
    pub ports: Vec<u16>,
}

/// A network made for one guest, ready before the guest starts.
///
/// When it is dropped it is removed; what cannot be undone stays in the ledger.
#[derive(Debug)]
pub struct GuestNetwork {
    mode: Mode,
    namespace: PathBuf,
    shared: Option<(Arc<RunNetwork>, u8)>,
    tap: Option<String>,
    /// Of a machine that is alone with its client.
    alone: Option<Subnet>,
    outside: Option<Outside>,
    made: Made,
}

impl GuestNetwork {
    /// A namespace with its loopback interface up and, for [`Mode::Bridge`] and [`Mode::Nat`], an
    /// interface `eth0` with an address in an unused subnet and a default route, on a bridge of the
    /// run. `run` is the name of the run, unique on this host; `work` its work directory, in the
    /// ledger already; `instance` the guest's number, unique in the run.
    ///
    /// # Errors
    /// [`NetworkError`]; what was begun has been undone.
    pub fn make(
        ledger: &Ledger,
        run: &str,
        work: &Path,
        instance: u64,
        mode: Mode,
    ) -> Result<Self, NetworkError> {
        if mode == Mode::Tap {
            return Err(NetworkError::Unfit { mode, guests: "guests without a kernel of their own" });
        }
        let mut network = Self::reserve(ledger, run, work, mode)?;
        if mode == Mode::Host {
            return Ok(network);
        }
        let file = work.join(format!("network/guest-{instance}"));
        network.made.namespace(&file)?;
        match &network.shared {
            Some((shared, place)) => {
                shared.plug(&mut network.made, *place, &file)?;
                shared.prove(*place, &file)?;
            }
            None => namespace::within(Some(&file), || ip(&["link set dev lo up".into()]))??,
        }
        network.namespace = file;
        Ok(network)
    }

    /// A tap device for a machine, on a bridge of the run with [`Mode::Bridge`] and [`Mode::Nat`],
    /// in a namespace of its client's with [`Mode::Tap`]. It is there until
    /// [`GuestNetwork::remove`], whatever opens and closes it. The machine's kernel must take
    /// [`GuestNetwork::address`] with [`crate::PREFIX_BITS`], and [`GuestNetwork::gateway`], by
    /// itself.
    ///
    /// # Errors
    /// As [`GuestNetwork::make`]; the other modes are for guests of other kinds.
    pub fn tap(
        ledger: &Ledger,
        run: &str,
        work: &Path,
        instance: u64,
        mode: Mode,
    ) -> Result<Self, NetworkError> {
        if matches!(mode, Mode::None | Mode::Host) {
            return Err(NetworkError::Unfit { mode, guests: "machines with a tap" });
        }
        let mut network = Self::reserve(ledger, run, work, mode)?;
        match &network.shared {
            Some((shared, place)) => {
                if !shared.is_proven() {
                    // A machine that has not booted answers nobody: a guest of the kernel's own
                    // that is there for a moment does, elsewhere in the subnet, so that nobody
                    // remembers its hardware address for the machine's.
                    Self::make(ledger, run, work, instance, mode)?.remove()?;
                }
                network.tap = Some(shared.plug_tap(&mut network.made, *place)?);
            }
            None => {
                let file = work.join(format!("network/client-{instance}"));
                network.made.namespace(&file)?;
                network.namespace = file;
                network.join_client(run, instance)?;
            }
        }
        Ok(network)
    }

    /// Makes the tap in the client's namespace, where nothing else is: any private subnet will do.
    /// Those of a run's machines differ.
    fn join_client(&mut self, run: &str, instance: u64) -> Result<(), NetworkError> {
        let digest = Sha256::digest(run.as_bytes());
        let seed = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
        let subnet = choose(&[], seed.wrapping_add(instance as u32))?;
        let address = format!("address add {}/{PREFIX_BITS} dev eth0", subnet.host(HOST));
        tap::make_within(&self.namespace, "eth0", &format!("weighbridge-{run}"), &[address])?;
        (self.alone, self.tap) = (Some(subnet), Some("eth0".into()));
        Ok(())
    }

    /// An address on the bridge of the run, for a platform that makes the guest's namespace and its
    /// veth on [`GuestNetwork::bridge`] by itself; it gives the guest [`GuestNetwork::address`]
    /// with [`crate::PREFIX_BITS`] and [`GuestNetwork::gateway`]. Then [`GuestNetwork::namespace`]
    /// is the host's.
    ///
    /// # Errors
    /// As [`GuestNetwork::make`].
    pub fn reserve(ledger: &Ledger, run: &str, work: &Path, mode: Mode) -> Result<Self, NetworkError> {
        let (tap, alone, outside, made) = (None, None, None, Made::new(ledger));
        let mut network = Self { mode, namespace: HOSTS.into(), shared: None, tap, alone, outside, made };
        if matches!(mode, Mode::Bridge | Mode::Nat) {
            let shared = RunNetwork::join(ledger, run, work, mode)?;
            match shared.take_place() {
                Ok(place) => network.shared = Some((shared, place)),
                Err(error) => {
                    shared.leave()?;
                    return Err(error);
                }
            }
        }
        if let Some(address) = network.shared.as_ref().and_then(|(shared, place)| shared.publish(*place)) {
            ip(&[address])?;
        }
        Ok(network)
    }

    /// Lets clients on other machines reach ports of the guest at an address of the host: what
    /// comes for them is translated and forwarded from whatever interface it comes by. From then on
    /// [`GuestNetwork::reach`] says so. In modes without translation nothing happens.
    ///
    /// # Errors
    /// [`NetworkError`]; what was begun goes with the network.
    pub fn open(&mut self, run: &str, outside: Outside) -> Result<(), NetworkError> {
        let (Some((shared, place)), Mode::Nat) = (&self.shared, self.mode) else { return Ok(()) };
        if outside.ports.is_empty() {
            return Ok(());
        }
        let (bridge, guest) = (shared.bridge_name(), shared.address(*place));
        let name = format!("weighbridge-{run}-{place}");
        nat::open(&mut self.made, &name, guest, &outside)?;
        let translated = ["-o", bridge, "-m", "conntrack", "--ctstate", "DNAT"];
        firewall::accept(&mut self.made, &name, &[&translated])?;
        self.outside = Some(outside);
        Ok(())
    }

    /// The mode that it was made in.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The file of the namespace, for `setns(2)` and runtimes. Of [`Mode::Host`] it is that of the
    /// process that looks.
    pub fn namespace(&self) -> &Path {
        &self.namespace
    }

    /// The guest's address, with a prefix of [`crate::PREFIX_BITS`].
    pub fn address(&self) -> Option<IpAddr> {
        match (&self.shared, self.alone) {
            (Some((shared, place)), _) => Some(shared.address(*place).into()),
            (None, alone) => alone.map(|subnet| subnet.host(*PLACES.start()).into()),
        }
    }

    /// The host's address on the bridge, through which the guest's default route goes; with
    /// [`Mode::Tap`] the client's.
    pub fn gateway(&self) -> Option<IpAddr> {
        match (&self.shared, self.alone) {
            (Some((shared, _)), _) => Some(shared.gateway().into()),
            (None, alone) => alone.map(|subnet| subnet.host(HOST).into()),
        }
    }

    /// Name of the machine's tap: an interface of the host, but with [`Mode::Tap`] of the client's
    /// namespace.
    pub fn tap_name(&self) -> Option<&str> {
        self.tap.as_deref()
    }

    /// Opens the tap, as a program does that is told its name, for one that takes a descriptor.
    /// There is one queue, which whoever has the descriptor holds.
    ///
    /// # Errors
    /// There is no tap, or somebody has opened it already.
    pub fn queue(&self) -> Result<OwnedFd, NetworkError> {
        let name =
            self.tap_name().ok_or(NetworkError::Unfit { mode: self.mode, guests: "machines with a tap" })?;
        let namespace = self.alone.map(|_| self.namespace.as_path());
        namespace::within(namespace, || tap::open(name))?
    }

    /// Name of the run's bridge, for platforms that make their own veth.
    pub fn bridge(&self) -> Option<&str> {
        self.shared.as_ref().map(|(shared, _)| shared.bridge_name())
    }

    /// The host's interfaces on the way from the client to the guest. `own` names the guest's,
    /// where the platform makes its veth.
    pub fn hops(&self, own: Option<&str>) -> Vec<Hop> {
        let Some((shared, place)) = &self.shared else { return Vec::new() };
        let veth = shared.guest_name(*place);
        shared.hops(own.or(self.tap_name()).or(Some(&veth)))
    }

    /// How a client reaches a port of the guest, TCP or UDP: what to connect to, and the namespace
    /// that it must be in, the host's when absent.
    ///
    /// - [`Mode::None`]: nobody reaches it.
    /// - [`Mode::Host`]: the host's loopback interface, from the host; the guest listens on the
    ///   host itself.
    /// - [`Mode::Bridge`]: the guest's address, from a namespace on the same bridge.
    /// - [`Mode::Nat`]: an address of the host that is this guest's, from a namespace behind
    ///   another link of the host: every packet is translated and forwarded, as that of a client on
    ///   another machine would be.
    /// - [`Mode::Tap`]: the machine's address, from the namespace at the other end of its tap.
    ///
    /// After [`GuestNetwork::open`]: the address that was given there, from other machines alone.
    pub fn reach(&self, port: u16) -> Option<(SocketAddr, Option<PathBuf>)> {
        if let Some(outside) = self.outside.as_ref().filter(|outside| outside.ports.contains(&port)) {
            return Some((SocketAddr::new(outside.address.into(), port), None));
        }
        match (&self.shared, self.mode) {
            (Some((shared, place)), _) => {
                let address = IpAddr::from(shared.reached_at(*place));
                Some((SocketAddr::new(address, port), Some(shared.client().into())))
            }
            (None, Mode::Tap) => Some((SocketAddr::new(self.address()?, port), Some(self.namespace.clone()))),
            (None, Mode::Host) => Some((SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port), None)),
            (None, _) => None,
        }
    }

    /// Takes it away, and with the last guest all that the guests of the run shared. Again it does
    /// nothing but retry what failed.
    ///
    /// # Errors
    /// What could not be undone; it stays in the ledger.
    pub fn remove(&mut self) -> Result<(), NetworkError> {
        let own = self.made.undo();
        let left = match self.shared.take() {
            None => Ok(()),
            Some((shared, place)) => {
                shared.free_place(place);
                shared.leave()
            }
        };
        own.and(left)
    }
}

impl Drop for GuestNetwork {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}
