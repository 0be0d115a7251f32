//! Networks of guests, made for a run and taken away with it.
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
//! A driver calls [`GuestNetwork::make`] before it starts its first program, starts the guest in
//! [`GuestNetwork::namespace`] (`setns(2)`, the `path` of an OCI runtime's network namespace,
//! `--network-namespace-path`), keeps it as long as the guest lives, and calls
//! [`GuestNetwork::remove`] when the guest has ended. A platform that plugs a guest in by itself
//! calls [`GuestNetwork::reserve`] and makes its veth on [`GuestNetwork::bridge`] with
//! [`GuestNetwork::address`]. A client connects by [`connect`] to what [`GuestNetwork::reach`]
//! says, or goes there with all that it does by [`within`] or [`enter`]. Clients on other machines
//! reach a guest behind translation once [`GuestNetwork::open`] has been called.
//!
//! A machine has no namespace: its driver calls [`GuestNetwork::tap`], names
//! [`GuestNetwork::tap_name`] to the program that plays the machine or hands it
//! [`GuestNetwork::queue`], and has the machine's kernel take [`GuestNetwork::address`].
//!
//! Where an engine makes the whole network itself, [`Client`] is a client beside it.
//!
//! Every link, rule, table and setting is in the run's ledger before it is made, with a name that
//! was chosen before; [`undo`] takes it away again in whatever process. All that belongs to one
//! network namespace: where this process is in another one than that of PID 1, "host" means the one
//! it is in.

mod client;
mod firewall;
mod guest;
mod hops;
mod made;
mod namespace;
mod nat;
mod run;
mod subnet;
mod tap;
mod tool;
mod undo;

pub use client::{Client, Opening, Run, unused_subnet};
pub use guest::{GuestNetwork, Outside};
pub use hops::{Hop, hop};
pub use namespace::{Visit, connect, enter, within};
pub use undo::undo;

use sha2::{Digest, Sha256};
use std::io;
use std::str::FromStr;
use weigh_host::command::CommandError;
use weigh_host::ledger::LedgerError;

/// Name under which the changes of this crate are in the ledger, as a platform's.
pub const PLATFORM: &str = "network";

/// Bits of the prefix of every subnet that is taken.
pub const PREFIX_BITS: u8 = 24;

/// The hardware address of a guest's network card, where the driver gives it one: of those that
/// anybody may give (IEEE 802's local bit), the same whenever the same guest is asked about,
/// another one for every guest of every run.
pub fn hardware_address(run: &str, instance: u64) -> String {
    hardware_address_of(&format!("{run}\n{instance}"))
}

/// The one that belongs to a name.
fn hardware_address_of(name: &str) -> String {
    let digest = Sha256::digest(name.as_bytes());
    let rest: String = digest[..5].iter().map(|byte| format!(":{byte:02x}")).collect();
    format!("02{rest}")
}

/// What network a guest has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// A namespace of its own with nothing but the loopback interface.
    None,
    /// The host's own network.
    Host,
    /// An address on a bridge of the run, where the client is as well.
    Bridge,
    /// An address behind address translation: masqueraded on its way out, reached by the host's
    /// address.
    Nat,
    /// A tap that joins a machine and its client alone: nothing of the host's is between them. Only
    /// by [`GuestNetwork::tap`].
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
    fn from_str(word: &str) -> Result<Self, NetworkError> {
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

/// Why a guest has no network.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// There is no such mode.
    #[error("`{0}` is no mode of a guest's network; use none, host, bridge, nat or tap")]
    Mode(String),
    /// Guests of this kind cannot have it.
    #[error("{guests} cannot have net={mode}; `weigh list platforms` shows what each platform takes")]
    Unfit {
        /// The mode.
        mode: Mode,
        /// Which guests.
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
    /// The ledger could not be written, or something could not be undone.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// A system call failed.
    #[error("cannot {doing}: {source}")]
    Io {
        /// What was tried.
        doing: String,
        /// Why it failed.
        source: io::Error,
    },
    /// A link of the chosen name is there already.
    #[error("a network interface named {0} is there already; run `weigh clean`")]
    LinkExists(String),
    /// Every private address is in use.
    #[error("no unused private subnet is left; free a /24 of 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16")]
    NoSubnet,
    /// The subnet of a run is full.
    #[error(
        "the run has {0} guests on one network already, and there is no address for more; run fewer at once"
    )]
    Full(usize),
    /// Something else changes the network all the time.
    #[error(
        "the networks of this host are being changed by another run of weighbridge for more than {0:?}; try again"
    )]
    Busy(std::time::Duration),
    /// Packets do not arrive.
    #[error(
        "a client does not reach guests on the bridge {bridge} of this host ({source}); let the host's firewall forward what \
         comes in by interfaces named wb*, or use net=none or net=host"
    )]
    Blocked {
        /// The run's bridge.
        bridge: String,
        /// What connecting came to.
        source: io::Error,
    },
    /// A tool said something that cannot be understood.
    #[error("cannot understand what `{command}` says: {reason}")]
    Output {
        /// The command line.
        command: String,
        /// What is wrong with its output.
        reason: String,
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
