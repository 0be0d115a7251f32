//! The network of one guest.

use crate::made::Made;
use crate::run::RunNetwork;
use crate::tool::ip;
use crate::{Mode, NetworkError, namespace};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weigh_host::ledger::Ledger;

/// The network namespace of this process.
const HOSTS: &str = "/proc/self/ns/net";

/// A network made for one guest, ready before the guest starts.
///
/// When it is dropped it is removed; what cannot be undone stays in the ledger.
#[derive(Debug)]
pub struct GuestNetwork {
    mode: Mode,
    namespace: PathBuf,
    shared: Option<(Arc<RunNetwork>, u8)>,
    made: Made,
}

impl GuestNetwork {
    /// A namespace with its loopback interface up and, for [`Mode::Bridge`] and [`Mode::Nat`], an interface `eth0` with an address in an
    /// unused subnet and a default route, on a bridge of the run. `run` is the name of the run, unique on this host; `work` its work
    /// directory, in the ledger already; `instance` the guest's number, unique in the run.
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

    /// An address on the bridge of the run, for a platform that makes the guest's namespace and its veth on [`GuestNetwork::bridge`] by
    /// itself; it gives the guest [`GuestNetwork::address`] with [`crate::PREFIX_BITS`] and [`GuestNetwork::gateway`]. Then
    /// [`GuestNetwork::namespace`] is the host's.
    ///
    /// # Errors
    /// As [`GuestNetwork::make`].
    pub fn reserve(ledger: &Ledger, run: &str, work: &Path, mode: Mode) -> Result<Self, NetworkError> {
        let mut network = Self { mode, namespace: HOSTS.into(), shared: None, made: Made::new(ledger) };
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

    /// The mode that it was made in.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The file of the namespace, for `setns(2)` and runtimes. Of [`Mode::Host`] it is that of the process that looks.
    pub fn namespace(&self) -> &Path {
        &self.namespace
    }

    /// The guest's address, with a prefix of [`crate::PREFIX_BITS`].
    pub fn address(&self) -> Option<IpAddr> {
        self.shared.as_ref().map(|(shared, place)| shared.address(*place).into())
    }

    /// The host's address on the bridge, through which the guest's default route goes.
    pub fn gateway(&self) -> Option<IpAddr> {
        self.shared.as_ref().map(|(shared, _)| shared.gateway().into())
    }

    /// Name of the run's bridge, for platforms that make their own veth.
    pub fn bridge(&self) -> Option<&str> {
        self.shared.as_ref().map(|(shared, _)| shared.bridge_name())
    }

    /// How a client reaches a port of the guest, TCP or UDP: what to connect to, and the namespace that it must be in, the host's when
    /// absent.
    ///
    /// - [`Mode::None`]: nobody reaches it.
    /// - [`Mode::Host`]: the host's loopback interface, from the host; the guest listens on the host itself.
    /// - [`Mode::Bridge`]: the guest's address, from a namespace on the same bridge.
    /// - [`Mode::Nat`]: an address of the host that is this guest's, from a namespace behind another link of the host: every packet is
    ///   translated and forwarded, as that of a client on another machine would be.
    pub fn reach(&self, port: u16) -> Option<(SocketAddr, Option<PathBuf>)> {
        match (&self.shared, self.mode) {
            (Some((shared, place)), _) => {
                let address = IpAddr::from(shared.reached_at(*place));
                Some((SocketAddr::new(address, port), Some(shared.client().into())))
            }
            (None, Mode::Host) => Some((SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port), None)),
            (None, _) => None,
        }
    }

    /// Takes it away, and with the last guest all that the guests of the run shared. Again it does nothing but retry what failed.
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
