//! The machine's network: a virtio card, whose host end is a tap of the run.

use super::Libvirt;
use super::xml::Card;
use crate::qemu::net::vhost::has_worker;
use crate::vm::tap::Tap;
use crate::{KeySpec, setting};
use weigh_model::{EnvironmentSpec, SpecError};

/// Values of the key `net`.
pub(super) const WORDS: &[&str] = &["none", "bridge", "nat"];
/// The key `vhost`.
pub(super) const VHOST: KeySpec = KeySpec::words("vhost", &["auto", "on", "off"]).about(
    "whether the host's kernel carries the packets of the guest's card instead of QEMU; auto: where it can",
);

/// Checks what [`KeySpec`] cannot express about these keys.
///
/// # Errors
/// `vhost` is set although there is no card.
pub(super) fn check(environment: &EnvironmentSpec) -> Result<(), SpecError> {
    if environment.get(VHOST.name).is_some() && setting(&Libvirt, environment, "net") == "none" {
        let message = "there is no network card whose packets could be carried";
        return Err(environment.key_error(VHOST.name, message, "name a network too, as in `net=bridge`"));
    }
    Ok(())
}

/// The card that is connected to a tap.
pub(super) fn card(environment: &EnvironmentSpec, tap: &Tap) -> Card {
    let vhost = match setting(&Libvirt, environment, VHOST.name) {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    };
    Card { tap: tap.name().into(), hardware_address: tap.hardware_address().into(), vhost }
}

/// The fact `network-card`: who carries its packets.
pub(super) fn card_fact(qemu: u32) -> String {
    format!("virtio-net-pci, {}", if has_worker(qemu) { "vhost" } else { "no vhost" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vhost_is_of_a_card() {
        let resolve = |text: &str| crate::resolve(&EnvironmentSpec::parse(text).unwrap()).map(drop);
        let error = resolve("libvirt:vhost=on").unwrap_err();
        assert_eq!(&error.text[error.span.clone()], "vhost");
        resolve("libvirt:net=nat,vhost=off").unwrap();
    }
}
