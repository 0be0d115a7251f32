//! A machine's network card: a tap device of the host, a hardware address, and the address that the
//! probe gives it.
//!
//! A driver calls [`of_guest`] before anything that it measures. It hands [`Tap::name`] or
//! [`Tap::queue`] and [`Tap::hardware_address`] to the program that runs the machine, and
//! [`Tap::probe_arguments`] to the probe. When the machine has said hello, the driver checks the
//! console with [`missing_network`], and gives the tap to the guest's core. The guest's kernel
//! needs the modules [`MODULES`] for a virtio card.

use crate::network::{NetworkEnd, ability};
use crate::{GuestRequest, Host, Reach, Result, network};
use std::os::fd::OwnedFd;
use weigh_network::{GuestNetwork, Hop, Mode, PREFIX_BITS, hardware_address};
use weigh_protocol::boot::NO_NETWORK;

/// Kernel modules for a virtio card.
pub(crate) const MODULES: &[&str] = &["virtio_net"];

/// The network of one machine.
#[derive(Debug)]
pub(crate) struct Tap {
    network: GuestNetwork,
    word: String,
    hardware_address: String,
}

/// Makes the tap for a value of `net`: with `bridge` and `nat` on a bridge of the run in the host's
/// network, with `tap` in a namespace shared with the client only. `none` makes none.
///
/// # Errors
/// It could not be made; partial changes are undone.
pub(crate) fn of_guest(host: &Host, request: &GuestRequest, word: &str) -> Result<Option<Tap>> {
    let mode: Mode = word.parse()?;
    if mode == Mode::None {
        return Ok(None);
    }
    ability(host, word)?;
    let instance = request.instance;
    let network = GuestNetwork::tap(&host.ledger, &host.run, &host.work, instance, mode)?;
    let network = network::opened(network, host, request)?;
    let hardware_address = hardware_address(&host.run, instance);
    Ok(Some(Tap { network, word: word.into(), hardware_address }))
}

impl Tap {
    /// The host interface that carries the machine's frames. With `net=tap` it is in a namespace,
    /// and a program outside takes [`Tap::queue`].
    pub(crate) fn name(&self) -> &str {
        self.network.tap_name().unwrap_or_default()
    }

    /// The opened tap.
    ///
    /// # Errors
    /// It is open already.
    pub(crate) fn queue(&self) -> Result<OwnedFd> {
        Ok(self.network.queue()?)
    }

    /// Lets a program that runs as this user open the tap by its name.
    ///
    /// # Errors
    /// The tap is open already.
    pub(crate) fn give(&self, user: u32) -> Result<()> {
        Ok(self.network.give_tap(user)?)
    }

    /// The hardware address of the machine's card: always the same for the same guest of a run.
    pub(crate) fn hardware_address(&self) -> &str {
        &self.hardware_address
    }

    /// Arguments with the probe's address and gateway.
    pub(crate) fn probe_arguments(&self) -> String {
        match (self.network.address(), self.network.gateway()) {
            (Some(address), Some(gateway)) => {
                format!("--address {address}/{PREFIX_BITS} --gateway {gateway}")
            }
            _ => String::new(),
        }
    }

    /// The fact `network`: the word of the key.
    pub(crate) fn as_str(&self) -> &str {
        &self.word
    }
}

impl NetworkEnd for Tap {
    fn reach(&self, port: u16) -> Option<Reach> {
        NetworkEnd::reach(&self.network, port)
    }

    fn hops(&self) -> Vec<Hop> {
        NetworkEnd::hops(&self.network)
    }

    fn remove(&mut self) -> Result<()> {
        NetworkEnd::remove(&mut self.network)
    }
}

/// Why a machine that has said hello has no network, if its probe reported that on the console.
/// `console` is this machine's console output; the probe reports before its hello.
pub(crate) fn missing_network(console: &str) -> Option<String> {
    let (_, reason) = console.lines().find_map(|line| line.split_once(NO_NETWORK))?;
    Some(format!("its kernel has no network: {}", reason.trim()))
}

/// The changes that `net=<word>` makes on the host for a machine, in a sentence.
pub(crate) fn host_changes(word: &str) -> Option<String> {
    match word {
        "tap" => Some(
            "make a network namespace of the client with a tap device that is the machine's network".into(),
        ),
        _ => network::host_changes(word)
            .map(|changes| format!("{changes}; plug the machine into it by a tap device")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_its_address_is_reported() {
        assert_eq!(
            missing_network("[    1.0] virtio_net: loading\nweigh-probe: init at 5 ns of boot time\n"),
            None
        );
        let said =
            "boots\nweigh-probe: no network: there is no network interface but lo\r\nweigh-probe: init";
        assert_eq!(
            missing_network(said).unwrap(),
            "its kernel has no network: there is no network interface but lo"
        );
    }

    #[test]
    fn changes_of_the_host_are_reported() {
        assert_eq!(host_changes("none"), None);
        for word in ["tap", "bridge", "nat"] {
            assert!(host_changes(word).unwrap().contains("tap device"), "{word}");
        }
    }
}
