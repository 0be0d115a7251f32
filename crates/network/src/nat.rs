//! Address translation by a table of the run, and forwarding, a setting of the host.

use crate::changes::RecordedChanges;
use crate::guest::ExternalAddress;
use crate::run::GUEST_HOSTS;
use crate::subnet::Subnet;
use crate::tool::{NetworkLock, NetworkState, ip, missing, nft, tool};
use crate::{NetworkError, Result};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use weigh_host::facts::boot_id;
use weigh_host::ledger::UndoOutcome;

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

/// Translates packets to some ports of an address of the host, for one guest, by a table of its
/// own. Packets of the host itself are not translated: the clients are other machines.
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
/// Every run that relies on a forwarding enabled by weighbridge marks its bridge by an alias, and
/// the last of these runs disables forwarding: no run has to outlive the others, and no file is
/// left.
pub(crate) fn forward(changes: &mut RecordedChanges, bridge: &str, alias: &str) -> Result<()> {
    let is_on = is_on()?;
    if is_on && !needed_by_others(bridge)? {
        return Ok(());
    }
    // What appeared while another run had it enabled may rely on it.
    let idle = if is_on { BTreeSet::new() } else { forwarding_users()? };
    changes.record("forwarding", bridge, json!({ "boot": boot_id(), "idle": idle }))?;
    ip(&[format!("link set dev {bridge} alias {alias}{WAS_OFF}")])?;
    std::fs::write(FORWARD, "1").map_err(NetworkError::io("enable forwarding of packets"))
}

/// Disables forwarding, unless another run relies on it, or anything that was not there when it was
/// enabled.
pub(crate) fn stop_forwarding(bridge: &str, detail: &Value) -> Result<UndoOutcome> {
    // After a reboot the setting is not ours any more.
    if detail["boot"] != boot_id() {
        return Ok(UndoOutcome::Restored);
    }
    let _lock = NetworkLock::take()?;
    // The mark is removed first, so that of two runs that end at the same time the later one
    // disables forwarding.
    let state = NetworkState::now()?;
    let own = state.links.iter().find(|link| link.name == bridge);
    if let Some(alias) = own.and_then(|link| link.alias.strip_suffix(WAS_OFF)) {
        ip(&[format!("link set dev {bridge} alias {alias}")])?;
    }
    if needed_by_others(bridge)? || !is_on()? {
        return Ok(UndoOutcome::Restored);
    }
    let idle: Vec<&str> = detail["idle"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let users: Vec<String> =
        forwarding_users()?.into_iter().filter(|user| !idle.contains(&user.as_str())).collect();
    if !users.is_empty() {
        let since = users.join(" and ");
        return Ok(UndoOutcome::Left(format!(
            "packets are still forwarded, because {since} appeared since and may rely on it"
        )));
    }
    std::fs::write(FORWARD, "0").map_err(NetworkError::io("disable forwarding of packets"))?;
    Ok(UndoOutcome::Restored)
}

fn is_on() -> Result<bool> {
    let text = std::fs::read_to_string(FORWARD).map_err(NetworkError::io(format!("read {FORWARD}")))?;
    Ok(text.trim() != "0")
}

fn needed_by_others(bridge: &str) -> Result<bool> {
    Ok(NetworkState::now()?.links.iter().any(|link| link.name != bridge && link.alias.ends_with(WAS_OFF)))
}

/// What forwards packets on this host, or may, besides weighbridge: bridges and other virtual
/// links, and rules that translate addresses.
fn forwarding_users() -> Result<BTreeSet<String>> {
    // The first two come and go with what is attached to a bridge, which is counted itself.
    const HARMLESS: [&str; 3] = ["veth", "ifb", "dummy"];
    let state = NetworkState::now()?;
    let others = state.links.iter().filter(|link| {
        !link.name.starts_with("wb") && !link.alias.trim_end_matches(WAS_OFF).starts_with("weighbridge-")
    });
    let links = others.filter_map(|link| {
        let kind = link.linkinfo.kind.as_deref().filter(|kind| !HARMLESS.contains(kind))?;
        Some(format!("the {kind} {}", link.name))
    });
    let ruleset = tool("nft", &["--stateless", "list", "ruleset"]).run_ok().map_err(missing("nft"))?;
    let mut users: BTreeSet<String> =
        links.chain(translations(&String::from_utf8_lossy(&ruleset.output))).collect();
    let legacy = std::fs::read_to_string("/proc/thread-self/net/ip_tables_names").unwrap_or_default();
    if legacy.lines().any(|table| table == "nat") {
        // Without the program, nobody can have added such rules.
        let listed = tool("iptables-legacy", &["-w", "10", "-t", "nat", "-S"]).run();
        let listed = listed.map(|done| done.output).unwrap_or_default();
        let rules = String::from_utf8_lossy(&listed).into_owned();
        users.extend(
            rules.lines().filter(|rule| is_translation(rule)).map(|rule| format!("the rule `{rule}`")),
        );
    }
    Ok(users)
}

/// Other programs' rules in `nft list ruleset` that translate addresses.
fn translations(ruleset: &str) -> Vec<String> {
    let mut is_ours = false;
    let mut found = Vec::new();
    for line in ruleset.lines().map(str::trim) {
        if let Some(table) = line.strip_prefix("table ") {
            is_ours = table.split(' ').nth(1).is_some_and(|name| name.starts_with("weighbridge-"));
        } else if !is_ours && is_translation(line) {
            found.push(format!("the rule `{line}`"));
        }
    }
    found
}

/// Whether a rule of nft or iptables has a statement that translates addresses; nft shows those of
/// iptables in quotes.
fn is_translation(rule: &str) -> bool {
    const WORDS: [&str; 4] = ["masquerade", "snat", "dnat", "redirect"];
    let words = rule.split_whitespace().map(|word| word.trim_matches('"').to_lowercase());
    // The name of a chain may be such a word.
    words.zip(std::iter::once("").chain(rule.split_whitespace())).any(|(word, before)| {
        WORDS.contains(&word.as_str()) && !["chain", "jump", "goto", "-A", "-N"].contains(&before)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_others_that_translate_are_found() {
        let ruleset = "table ip weighbridge-r {\n\tchain postrouting {\n\t\tip saddr 10.0.0.0/24 counter masquerade\n\t}\n}\n\
            table ip nat {\n\tchain dnat {\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n\t\tjump dnat\n\
            \t\toifname != \"docker0\" counter xt target \"MASQUERADE\"\n\t\ttcp dport 80 dnat to 10.1.2.3\n\t}\n}\n";
        assert_eq!(
            translations(ruleset),
            [
                "the rule `oifname != \"docker0\" counter xt target \"MASQUERADE\"`",
                "the rule `tcp dport 80 dnat to 10.1.2.3`"
            ]
        );
        assert!(is_translation("-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE"));
        assert!(!is_translation("-N DNAT") && !is_translation("-P POSTROUTING ACCEPT"));
    }
}
