//! Address translation: one table of the run's own, and forwarding, which is the host's.

use crate::NetworkError;
use crate::guest::Outside;
use crate::made::Made;
use crate::run::PLACES;
use crate::subnet::Subnet;
use crate::tool::{Seen, Turn, ip, nft};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::net::Ipv4Addr;

/// The kernel's switch (`ip-sysctl.rst`, "ip_forward"), as the network namespace of this thread has
/// it.
const FORWARD: &str = "/proc/sys/net/ipv4/ip_forward";
/// End of the alias of a bridge whose run needs forwarding on a host that had it off.
const WAS_OFF: &str = ":forwarding-was-off";

/// Translates: what guests send to others than each other leaves with the host's address, and what
/// the client sends to the host's address of a guest goes to the guest.
pub(crate) fn translate(
    made: &mut Made,
    table: &str,
    (bridge, guests): (&str, Subnet),
    (client, published): (&str, Subnet),
) -> Result<(), NetworkError> {
    made.record("table", table, json!({}))?;
    let mut map = String::new();
    for place in PLACES {
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

/// Translates for one guest, by a table of its own, what comes to ports at an address of the host.
/// What the host itself sends there is not translated: the clients are other machines.
pub(crate) fn open(
    made: &mut Made,
    table: &str,
    guest: Ipv4Addr,
    outside: &Outside,
) -> Result<(), NetworkError> {
    made.record("table", table, json!({}))?;
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

/// Switches forwarding on where it is off. Must hold a [`Turn`].
///
/// Every run that needs it on a host that had it off says so by the alias of its bridge, and the
/// last of them to end switches it off: no run has to outlive the others, and none leaves a file
/// behind.
pub(crate) fn forward(made: &mut Made, bridge: &str, alias: &str) -> Result<(), NetworkError> {
    let is_on =
        std::fs::read_to_string(FORWARD).map_err(NetworkError::io(format!("read {FORWARD}")))?.trim().ne("0");
    if is_on && !needed_by_others(bridge)? {
        return Ok(());
    }
    made.record("forwarding", bridge, json!({ "boot": boot() }))?;
    ip(&[format!("link set dev {bridge} alias {alias}{WAS_OFF}")])?;
    std::fs::write(FORWARD, "1").map_err(NetworkError::io("switch forwarding of packets on"))
}

/// Switches forwarding off again, unless another run that found it off needs it.
pub(crate) fn stop_forwarding(bridge: &str, detail: &Value) -> Result<(), String> {
    // The host has started anew since, and whoever has switched it on now wants it on.
    if detail["boot"] != boot() {
        return Ok(());
    }
    let stop = || {
        let _turn = Turn::take()?;
        // From now on nobody leaves it to us: of two that end at the same time the later one
        // switches it off.
        let seen = Seen::now()?;
        let own = seen.links.iter().find(|link| link.name == bridge);
        if let Some(alias) = own.and_then(|link| link.alias.strip_suffix(WAS_OFF)) {
            ip(&[format!("link set dev {bridge} alias {alias}")])?;
        }
        if needed_by_others(bridge)? {
            return Ok(());
        }
        std::fs::write(FORWARD, "0").map_err(NetworkError::io("switch forwarding of packets off"))
    };
    stop().map_err(|error| error.to_string())
}

/// Which start of the host this is.
fn boot() -> String {
    let identity = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    identity.map(|text| text.trim().into()).unwrap_or_default()
}

fn needed_by_others(bridge: &str) -> Result<bool, NetworkError> {
    let seen = Seen::now()?;
    Ok(seen.links.iter().any(|link| link.name != bridge && link.alias.ends_with(WAS_OFF)))
}
