//! The network card of a machine: a tap device of the host, a hardware address, and the address
//! that the probe gives it.
//!
//! A driver calls [`of_guest`] before anything that it measures, hands [`Tap::name`] or
//! [`Tap::queue`] and [`Tap::hardware_address`] to the program that plays the machine,
//! [`Tap::probe_arguments`] to the probe, looks at the console with [`missing_network`] when the
//! machine has said hello, and gives the tap to the guest's core. The guest's kernel needs the
//! modules [`MODULES`] for a card of virtio's.

use crate::network::{NetworkEnd, ability};
use crate::{GuestRequest, Host, Reach, Result, network};
use std::os::fd::OwnedFd;
use weigh_network::{GuestNetwork, Hop, Mode, PREFIX_BITS, hardware_address};
use weigh_protocol::boot::NO_NETWORK;

/// What a kernel needs for a card of virtio's.
pub(crate) const MODULES: &[&str] = &["virtio_net"];

/// The network of one machine.
#[derive(Debug)]
pub(crate) struct Tap {
    network: GuestNetwork,
    word: String,
    hardware_address: String,
}

/// The tap that a value of `net` stands for: `bridge` and `nat` on a bridge of the run in the
/// host's network, `tap` in a namespace with the client alone. No tap for `none`.
///
/// # Errors
/// It could not be made; what was begun has been undone.
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
    /// The interface on the host that the machine's frames come out of. With `net=tap` it is in a
    /// namespace, and a program elsewhere takes [`Tap::queue`].
    pub(crate) fn name(&self) -> &str {
        self.network.tap_name().unwrap_or_default()
    }

    /// The tap, opened.
    ///
    /// # Errors
    /// Somebody has opened it already.
    pub(crate) fn queue(&self) -> Result<OwnedFd> {
        Ok(self.network.queue()?)
    }

    /// Lets a program that runs as this user open the tap by its name.
    ///
    /// # Errors
    /// Somebody has opened it already.
    pub(crate) fn give(&self, user: u32) -> Result<()> {
        Ok(self.network.give_tap(user)?)
    }

    /// That of the machine's card: the same for the same guest of a run.
    pub(crate) fn hardware_address(&self) -> &str {
        &self.hardware_address
    }

    /// What tells the probe its address and its way out.
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

/// Why a machine that has said hello has no network, where its probe has said so on the console.
/// `console` is what this machine has said there; the probe says it before its hello.
pub(crate) fn missing_network(console: &str) -> Option<String> {
    let (_, reason) = console.lines().find_map(|line| line.split_once(NO_NETWORK))?;
    Some(format!("its kernel has no network: {}", reason.trim()))
}

/// What `net=<word>` changes on the host for a machine, in a sentence.
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
    fn a_machine_without_its_address_is_told() {
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
    fn changes_of_the_host_are_told() {
        assert_eq!(host_changes("none"), None);
        for word in ["tap", "bridge", "nat"] {
            assert!(host_changes(word).unwrap().contains("tap device"), "{word}");
        }
    }
}
