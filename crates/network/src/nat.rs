//! Address translation by a table of the run, and forwarding, a setting of the host.

use crate::changes::RecordedChanges;
use crate::guest::ExternalAddress;
use crate::run::GUEST_HOSTS;
use crate::subnet::Subnet;
use crate::tool::{NetworkLock, NetworkState, ip, nft};
use crate::{NetworkError, Result};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::net::Ipv4Addr;

/// The forwarding setting of the network namespace of this thread (`ip-sysctl.rst`,
/// "ip_forward").
const FORWARD: &str = "/proc/sys/net/ipv4/ip_forward";
/// Suffix of the alias of a bridge whose run enabled forwarding.
const WAS_OFF: &str = ":forwarding-was-off";

/// Translates addresses: packets that leave the guests' subnet get the host's address, and packets
/// of the client to a published address of the host go to its guest.
pub(crate) fn translate(
    changes: &mut RecordedChanges,
    table: &str,
    (bridge, guests): (&str, Subnet),
    (client, published): (&str, Subnet),
) -> Result<()> {
    changes.record("table", table, json!({}))?;
    let mut map = String::new();
    for place in GUEST_HOSTS {
        let _ = write!(map, "{} : {}, ", published.host(place), guests.host(place));
    }
    nft(&format!(
        "table ip {table} {{
            map guests {{ type ipv4_addr : ipv4_addr; elements = {{ {map} }} }}
            chain prerouting {{
                type nat hook prerouting priority dstnat; policy accept;
                iifname \"{client}\" counter dnat to ip daddr map @guests
            }}
            chain postrouting {{
                type nat hook postrouting priority srcnat; policy accept;
                ip saddr {guests} oifname != \"{bridge}\" counter masquerade
            }}
        }}\n"
    ))
}

/// Translates packets to some ports of an address of the host, for one guest, by a table of its own.
/// Packets of the host itself are not translated: the clients are other machines.
pub(crate) fn open(
    changes: &mut RecordedChanges,
    table: &str,
    guest: Ipv4Addr,
    outside: &ExternalAddress,
) -> Result<()> {
    changes.record("table", table, json!({}))?;
    let ports: Vec<String> = outside.ports.iter().map(u16::to_string).collect();
    let (address, ports) = (outside.address, ports.join(", "));
    nft(&format!(
        "table ip {table} {{
            chain prerouting {{
                type nat hook prerouting priority dstnat; policy accept;
                ip daddr {address} tcp dport {{ {ports} }} counter dnat to {guest}
                ip daddr {address} udp dport {{ {ports} }} counter dnat to {guest}
            }}
        }}\n"
    ))
}

/// Enables forwarding if it is disabled. The caller must hold the [`NetworkLock`].
///
/// Every run that relies on a forwarding enabled by weighbridge marks its bridge by an alias, and the
/// last of these runs disables forwarding: no run has to outlive the others, and no file is left.
pub(crate) fn forward(changes: &mut RecordedChanges, bridge: &str, alias: &str) -> Result<()> {
    let is_on =
        std::fs::read_to_string(FORWARD).map_err(NetworkError::io(format!("read {FORWARD}")))?.trim().ne("0");
    if is_on && !needed_by_others(bridge)? {
        return Ok(());
    }
    changes.record("forwarding", bridge, json!({ "boot": boot() }))?;
    ip(&[format!("link set dev {bridge} alias {alias}{WAS_OFF}")])?;
    std::fs::write(FORWARD, "1").map_err(NetworkError::io("enable forwarding of packets"))
}

/// Disables forwarding, unless another run relies on it.
pub(crate) fn stop_forwarding(bridge: &str, detail: &Value) -> Result<()> {
    // After a reboot the setting is not ours any more.
    if detail["boot"] != boot() {
        return Ok(());
    }
    let _lock = NetworkLock::take()?;
    // The mark is removed first, so that of two runs that end at the same time the later one
    // disables forwarding.
    let state = NetworkState::now()?;
    let own = state.links.iter().find(|link| link.name == bridge);
    if let Some(alias) = own.and_then(|link| link.alias.strip_suffix(WAS_OFF)) {
        ip(&[format!("link set dev {bridge} alias {alias}")])?;
    }
    if needed_by_others(bridge)? {
        return Ok(());
    }
    std::fs::write(FORWARD, "0").map_err(NetworkError::io("disable forwarding of packets"))
}

/// The boot id.
fn boot() -> String {
    let identity = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    identity.map(|text| text.trim().into()).unwrap_or_default()
}

fn needed_by_others(bridge: &str) -> Result<bool> {
    Ok(NetworkState::now()?.links.iter().any(|link| link.name != bridge && link.alias.ends_with(WAS_OFF)))
}
