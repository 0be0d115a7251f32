//! Networks of guests that are started in a namespace made beforehand.

use crate::{GuestRequest, Host, PlatformError, Reach};
use weigh_network::{GuestNetwork, Mode};

/// The network that a value of `net` stands for. With `bridge` and `nat` its namespace is there for the guest to be started in; with
/// `host` it only tells how the guest is reached. A guest without a network makes its empty namespace by itself, which its platform is
/// there to do.
///
/// # Errors
/// It could not be made; what was begun has been undone.
pub(crate) fn of_guest(
    host: &Host,
    request: &GuestRequest,
    word: &str,
) -> Result<Option<GuestNetwork>, PlatformError> {
    let mode: Mode = word.parse()?;
    let (ledger, run, work) = (&host.ledger, &host.run, &host.work);
    Ok(match mode {
        Mode::None => None,
        Mode::Host => Some(GuestNetwork::reserve(ledger, run, work, mode)?),
        Mode::Bridge | Mode::Nat => Some(GuestNetwork::make(ledger, run, work, request.instance, mode)?),
    })
}

/// [`crate::Guest::reach`] of a guest in it.
pub(crate) fn reach(network: Option<&GuestNetwork>, port: u16) -> Option<Reach> {
    network?.reach(port).map(|(address, from)| Reach { address, from })
}
