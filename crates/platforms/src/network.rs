//! Networks of guests that are started in a namespace made beforehand, as the key `net` says.
//!
//! A driver calls [`of_guest`] before anything that it measures, starts its guest in [`namespace`]
//! if there is one, and gives the network to the guest's core ([`crate::guest::GuestCore`]).

use crate::{GuestRequest, Host, PlatformError, Reach, Result};
use std::net::IpAddr;
use std::path::Path;
use weigh_network::{ExternalAddress, GuestNetwork, Hop, Mode, NetworkError};

/// The values of `net`, for [`crate::common_keys::net`].
pub(crate) const WORDS: &[&str] = &["none", "host", "bridge", "nat"];
/// The same for platforms whose program makes no network unless it is told to.
pub(crate) const WORDS_FROM_HOST: &[&str] = &["host", "none", "bridge", "nat"];

/// Makes the network for a value of `net`. With `bridge` and `nat` it has a namespace in which the
/// guest is started; with `host` it only tells how the guest is reached. There is none for `none`:
/// then the platform makes the guest's empty namespace.
///
/// # Errors
/// It could not be made; what was begun has been undone.
pub(crate) fn of_guest(host: &Host, request: &GuestRequest, word: &str) -> Result<Option<GuestNetwork>> {
    let mode: Mode = word.parse()?;
    let (ledger, run, work) = (&host.ledger, &host.run, &host.work);
    Ok(match mode {
        Mode::None => None,
        Mode::Host => Some(GuestNetwork::reserve(ledger, run, work, mode)?),
        Mode::Bridge | Mode::Nat | Mode::Tap => {
            ability(host, word)?;
            Some(opened(GuestNetwork::make(ledger, run, work, request.instance, mode)?, host, request)?)
        }
    })
}

/// Opens the guest's ports to clients on other machines, if there are any.
///
/// # Errors
/// The ports could not be opened; the network has been removed.
pub(crate) fn opened(mut network: GuestNetwork, host: &Host, request: &GuestRequest) -> Result<GuestNetwork> {
    if let Some(address) = request.outside {
        network.open(&host.run, ExternalAddress { address, ports: request.publish.clone() })?;
    }
    Ok(network)
}

/// Checks that the user may make a network.
///
/// # Errors
/// The user may not; with the remedy.
pub(crate) fn ability(host: &Host, word: &str) -> Result<()> {
    if host.is_root {
        return Ok(());
    }
    Err(PlatformError::unavailable(
        format!("a network for `net={word}` requires root"),
        "run as root, or with `net=none`",
    ))
}

/// Returns the file of the namespace that the guest has to be in, if one was made.
pub(crate) fn namespace(network: Option<&GuestNetwork>) -> Option<&Path> {
    network.filter(|network| network.mode() != Mode::Host).map(GuestNetwork::namespace)
}

/// The guest's end of its network: how clients reach it, and how it is taken away.
pub(crate) trait NetworkEnd: Send {
    /// [`crate::Guest::address`].
    fn address(&self) -> Option<IpAddr> {
        self.reach(0).map(|reach| reach.address.ip())
    }

    /// [`crate::Guest::reach`].
    fn reach(&self, port: u16) -> Option<Reach>;

    /// [`crate::Guest::hops`].
    fn hops(&self) -> Vec<Hop> {
        Vec::new()
    }

    /// Called before the guest ends: takes the clients away.
    ///
    /// # Errors
    /// Something could not be undone; it stays in the ledger.
    fn detach(&mut self) -> Result<()> {
        Ok(())
    }

    /// Called when the guest has ended. Called again, it retries what failed.
    ///
    /// # Errors
    /// Something could not be undone; it stays in the ledger.
    fn remove(&mut self) -> Result<()> {
        Ok(())
    }
}

impl NetworkEnd for GuestNetwork {
    fn reach(&self, port: u16) -> Option<Reach> {
        GuestNetwork::reach(self, port).map(|(address, from)| Reach { address, from })
    }

    fn hops(&self) -> Vec<Hop> {
        GuestNetwork::hops(self, None)
    }

    fn remove(&mut self) -> Result<()> {
        Ok(GuestNetwork::remove(self)?)
    }
}

/// Returns what `net=<word>` changes on the host, in a sentence.
pub(crate) fn host_changes(word: &str) -> Option<String> {
    let shared = "make a bridge of the run in an unused subnet, with a network namespace of the guest and one of the client";
    match word {
        "bridge" => Some(format!("{shared}; let packets through it where the firewall drops them")),
        "nat" => Some(format!(
            "{shared}; translate addresses by an nft table of the run, let packets through where the firewall drops them, and \
             switch forwarding on while guests run"
        )),
        _ => None,
    }
}

impl From<NetworkError> for PlatformError {
    fn from(error: NetworkError) -> Self {
        match error {
            NetworkError::Missing { program, remedy } => Self::program_missing(program, remedy),
            other => Self::Network(other),
        }
    }
}
