//! Networks of guests, made for a run and removed with it.
//!
//! ```text
//!  client namespace          host                       guest's namespace
//!  eth0 ----veth---- (bridge) bridge of the run ----veth---- eth0
//!  eth0 ----veth---- (nat)    host's address --DNAT--> bridge ----veth---- eth0
//!
//!  client namespace          host                       machine
//!  eth0 ----veth---- (bridge) bridge of the run ----tap----- eth0
//!  eth0 ----veth---- (nat)    host's address --DNAT--> bridge ----tap----- eth0
//!  eth0 -------------(tap)----------------------------tap----- eth0
//! ```
//!
//! The call order of a driver: [`GuestNetwork::make`] before it starts its first program; the guest
//! in [`GuestNetwork::namespace`] (`setns(2)`, the `path` of an OCI runtime's network namespace,
//! `--network-namespace-path`); [`GuestNetwork::remove`] when the guest has ended. A platform that
//! makes the guest's veth itself calls [`GuestNetwork::reserve`] and uses [`GuestNetwork::bridge`]
//! and [`GuestNetwork::address`]. A client uses [`connect`] with the result of
//! [`GuestNetwork::reach`], or works in that namespace by [`within`] or [`enter`]. Clients on other
//! machines reach a guest behind translation after [`GuestNetwork::open`].
//!
//! A machine has no namespace: its driver calls [`GuestNetwork::tap`], passes
//! [`GuestNetwork::tap_name`] or [`GuestNetwork::queue`] to the VMM, and configures
//! [`GuestNetwork::address`] in the machine.
//!
//! [`Client`] is a client of a network that an engine makes itself.
//!
//! Every link, rule, table and setting is in the run's ledger before it is made, and [`undo`]
//! removes it again in whatever process. "Host" means the network namespace of this process, which
//! need not be that of PID 1.

mod changes;
mod client;
mod firewall;
mod guest;
mod hops;
mod namespace;
mod nat;
mod run;
mod subnet;
mod tap;
mod tool;
mod undo;

pub use client::{Client, FirewallOpening, Run, has_subnet, unused_subnet};
pub use guest::{ExternalAddress, GuestNetwork};
pub use hops::{Hop, hop};
pub use namespace::{NamespaceVisit, connect, enter, within};
pub use undo::undo;

use sha2::{Digest, Sha256};
use std::io;
use std::str::FromStr;
use weigh_host::command::CommandError;
use weigh_host::ledger::LedgerError;

/// The platform name of this crate's changes in the ledger.
pub const PLATFORM: &str = "network";

/// Prefix length of every subnet, bits.
pub const PREFIX_BITS: u8 = 24;

/// The hardware address of a guest's network card, for drivers that assign one: locally
/// administered (IEEE 802), and always the same for a guest of a run.
pub fn hardware_address(run: &str, instance: u64) -> String {
    hardware_address_of(&format!("{run}\n{instance}"))
}

/// The hardware address that belongs to a name.
fn hardware_address_of(name: &str) -> String {
    let digest = Sha256::digest(name.as_bytes());
    let rest: String = digest[..5].iter().map(|byte| format!(":{byte:02x}")).collect();
    format!("02{rest}")
}

/// A number that belongs to a name: for interface names, and to begin a search at different places
/// in different runs.
fn seed(name: &str) -> u32 {
    let digest = Sha256::digest(name.as_bytes());
    u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]])
}

/// What network a guest has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// A namespace of its own with only the loopback interface.
    None,
    /// The host's network.
    Host,
    /// An address on a bridge of the run, shared with the client.
    Bridge,
    /// An address behind address translation: masqueraded on the way out, reached by an address of
    /// the host.
    Nat,
    /// A tap that connects only a machine and its client, with nothing of the host between them.
    /// Only by [`GuestNetwork::tap`].
    Tap,
}

impl std::fmt::Display for Mode {
    /// As in the key `net`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Host => "host",
            Self::Bridge => "bridge",
            Self::Nat => "nat",
            Self::Tap => "tap",
        })
    }
}

impl FromStr for Mode {
    type Err = NetworkError;

    /// A value of the key `net`.
    fn from_str(word: &str) -> Result<Self> {
        match word {
            "none" => Ok(Self::None),
            "host" => Ok(Self::Host),
            "bridge" => Ok(Self::Bridge),
            "nat" => Ok(Self::Nat),
            "tap" => Ok(Self::Tap),
            _ => Err(NetworkError::Mode(word.into())),
        }
    }
}

/// The result of an operation on a network.
pub type Result<T, E = NetworkError> = std::result::Result<T, E>;

/// Why a network could not be made, used or removed.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// The mode does not exist.
    #[error("`{0}` is not a network mode; use none, host, bridge, nat or tap")]
    Mode(String),
    /// Guests of this kind do not support the mode.
    #[error("{guests} cannot have net={mode}; `weigh list platforms` shows what each platform takes")]
    Unfit {
        /// The mode.
        mode: Mode,
        /// The kind of guests.
        guests: &'static str,
    },
    /// The host has no tap devices.
    #[error("this host has no tap devices: /dev/net/tun: {0}; load the module: `modprobe tun`")]
    NoTaps(#[source] io::Error),
    /// A program is not installed.
    #[error("the program `{program}` is not installed; {remedy}")]
    Missing {
        /// Its name.
        program: &'static str,
        /// How to install it.
        remedy: &'static str,
    },
    /// A program failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The ledger could not be written, or a change could not be undone.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// A system call failed.
    #[error("cannot {doing}: {source}")]
    Io {
        /// The operation.
        doing: String,
        /// Why it failed.
        source: io::Error,
    },
    /// A link of the chosen name exists.
    #[error("a network interface named {0} exists already; run `weigh clean`")]
    LinkExists(String),
    /// Every private address is in use.
    #[error("no unused private subnet is left; free a /24 of 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16")]
    NoSubnet,
    /// The subnet of a run is full.
    #[error(
        "the run has {0} guests on one network already, and there is no address for more; run fewer at once"
    )]
    Full(usize),
    /// Another run held the network lock for too long.
    #[error(
        "another run of weighbridge has been changing the networks of this host for more than {0:?}; try again"
    )]
    Busy(std::time::Duration),
    /// Packets do not reach guests.
    #[error(
        "a client does not reach guests on the bridge {bridge} of this host ({source}); let the host's firewall forward packets \
         from interfaces named wb*, or use net=none or net=host"
    )]
    Blocked {
        /// The run's bridge.
        bridge: String,
        /// Why connecting failed.
        source: io::Error,
    },
    /// The output of a program could not be parsed.
    #[error("cannot parse the output of `{command}`: {source}")]
    Output {
        /// The command line.
        command: String,
        /// What is wrong with its output.
        source: serde_json::Error,
    },
    /// A ledger entry names something that this version of weighbridge does not make.
    #[error("{0} was not made by this version of weighbridge")]
    Foreign(String),
    /// Another program restores a firewall rule each time that it is deleted.
    #[error("the firewall rule {rule} is still there after it was deleted {attempts} times")]
    Restored {
        /// The rule.
        rule: String,
        /// How often it was deleted.
        attempts: u32,
    },
}

impl NetworkError {
    pub(crate) fn io<E: Into<io::Error>>(doing: impl Into<String>) -> impl FnOnce(E) -> Self {
        let doing = doing.into();
        |source| Self::Io { doing, source: source.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hardware_address_is_a_guests_own() {
        let address = hardware_address("run", 1);
        assert_eq!(address, hardware_address("run", 1));
        assert!(address.starts_with("02:") && address.len() == 17, "{address}");
        assert_ne!(address, hardware_address("run", 2));
        assert_ne!(address, hardware_address("runs", 1));
    }
}
