//! The run's own network of Podman: a bridge by netavark, as users get it, with a subnet that
//! nothing on the host uses.
//!
//! Only its description is written here, in the form of `podman network inspect`; netavark makes
//! the bridge with the first container and takes it away with the last one. What it leaves in
//! iptables, chains that all its networks share, goes with the run's store. What it leaves in
//! nftables, if it is set up for that, stays.

use super::store::Store;
use crate::guest::platform_change;
use crate::oci::access::unused_subnet;
use crate::{Host, PlatformError, Result};
use serde_json::{Value, json};
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;
use weigh_host::command::Invocation;

/// For one call of `iptables`; it waits for others that hold its lock.
const DEADLINE: Duration = Duration::from_secs(20);
/// What all chains of netavark begin with, whosever networks they serve.
const CHAINS: &str = "NETAVARK";

/// A network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Network {
    /// Its name and that of its bridge.
    pub(super) name: String,
    /// The bridge's address, the guests' gateway.
    pub(super) gateway: Ipv4Addr,
}

/// Where Podman looks for netavark (`helper_binaries_dir` of containers.conf(5)).
const HELPERS: [&str; 4] =
    ["/usr/local/libexec/podman", "/usr/local/lib/podman", "/usr/libexec/podman", "/usr/lib/podman"];

/// Without netavark Podman uses CNI, and does not know networks that are described for netavark.
fn require_netavark(places: &[&str]) -> Result<()> {
    let is_there = |place: &&str| Path::new(place).join("netavark").exists();
    if places.iter().any(is_there) {
        return Ok(());
    }
    Err(PlatformError::unavailable(
        "Podman makes networks by the program netavark, which is missing",
        "install it with `apt-get install netavark`, or use `podman:net=none`",
    ))
}

impl Network {
    /// The network of a store, described for Podman in its directory, unless it is already.
    ///
    /// # Errors
    /// Those of writing to the ledger and the directory; netavark is missing; no subnet is free.
    pub(super) fn make(host: &Host, store: &Store) -> Result<Self> {
        require_netavark(&HELPERS)?;
        let name = name_of(store);
        let file = store.path("networks").join(format!("{name}.json"));
        if let Some(gateway) = fs::read(&file).ok().and_then(|text| gateway_of(&text)) {
            return Ok(Self { name, gateway });
        }
        let gateway = unused_subnet(host, &name)?;
        let [a, b, c, _] = gateway.octets();
        let subnet = format!("{a}.{b}.{c}.0/24");
        let detail = json!({"subnet": subnet, "chains_there": has_chains()});
        host.ledger.record(platform_change("podman", "network", &name, detail))?;
        // The identity is Podman's: 64 hexadecimal digits, any that are unique in the store.
        let text = json!({
            "name": name,
            "id": format!("{:0>64}", weigh_model::hex(name.as_bytes())),
            "driver": "bridge",
            "network_interface": name,
            "created": "2000-01-01T00:00:00Z",
            // The last addresses are for clients.
            "subnets": [{
                "subnet": subnet,
                "gateway": gateway,
                "lease_range": {"start_ip": format!("{a}.{b}.{c}.2"), "end_ip": format!("{a}.{b}.{c}.250")},
            }],
            "ipv6_enabled": false,
            "internal": false,
            "dns_enabled": false,
            "ipam_options": {"driver": "host-local"},
        });
        fs::write(&file, text.to_string()).map_err(PlatformError::at("write", &file))?;
        Ok(Self { name, gateway })
    }
}

/// At most 15 bytes, as names of links are; one per store, and so per run.
fn name_of(store: &Store) -> String {
    format!("wbp{:010x}", store.number() >> 24)
}

fn gateway_of(text: &[u8]) -> Option<Ipv4Addr> {
    let network: Value = serde_json::from_slice(text).ok()?;
    network.get("subnets")?.get(0)?.get("gateway")?.as_str()?.parse().ok()
}

fn has_chains() -> bool {
    ["filter", "nat"].iter().any(|table| rules(table).iter().any(|rule| rule.contains(CHAINS)))
}

/// The rules of a table as `iptables -S` says them.
fn rules(table: &str) -> Vec<String> {
    let list = Invocation::new("iptables").args(["--wait", "10", "-t", table, "-S"]).deadline(DEADLINE).run();
    let output = list.map(|done| done.output).unwrap_or_default();
    String::from_utf8_lossy(&output).lines().map(Into::into).collect()
}

/// Takes away what netavark has left of a network: its link, its rules, and where nobody else uses
/// them the chains that it shares.
///
/// # Errors
/// What is still there.
pub(super) fn undo(name: &str, detail: &Value) -> Result<()> {
    let subnet = detail.get("subnet").and_then(Value::as_str).unwrap_or_default();
    if subnet.is_empty() || !name.starts_with("wbp") {
        let unknown = format!("the ledger does not say what the network {name} is");
        return Err(PlatformError::StillThere(unknown));
    }
    if std::path::Path::new("/sys/class/net").join(name).exists() {
        let delete = Invocation::new("ip").args(["link", "delete", name]).deadline(DEADLINE);
        delete.run_ok()?;
    }
    // Rules say the subnet and not whose it is. Those of another network stay.
    let is_in_use = weigh_network::has_subnet(subnet);
    if is_in_use.map_err(|error| PlatformError::StillThere(error.to_string()))? {
        let what = format!(
            "the firewall rules of {name} stay while another network of this host has its subnet {subnet}; \
             remove that network, then run `weigh clean`"
        );
        return Err(PlatformError::StillThere(what));
    }
    let comment = format!("name: {name} ");
    for table in ["filter", "nat"] {
        let own = |rule: &str| {
            let mut words = rule.split(' ');
            words.any(|word| word == subnet) || rule.contains(&comment)
        };
        // The chains of one network are named after it; rules that lead there say its subnet or its
        // name.
        let rules = rules(table);
        let chains: Vec<&str> =
            rules.iter().filter(|rule| own(rule)).filter_map(|rule| own_chain(rule)).collect();
        for rule in rules.iter().filter(|rule| own(rule) || chains.iter().any(|chain| begins(rule, chain))) {
            change(table, rule, "-A", "-D")?;
        }
        for chain in chains {
            change(table, &format!("-N {chain}"), "-N", "-X")?;
        }
        if detail.get("chains_there") == Some(&Value::Bool(false)) {
            remove_shared(table)?;
        }
    }
    Ok(())
}

fn begins(rule: &str, chain: &str) -> bool {
    rule.strip_prefix("-A ").and_then(|rest| rest.split(' ').next()) == Some(chain)
}

/// The chain of one network that a rule leads to.
fn own_chain(rule: &str) -> Option<&str> {
    let chain = rule.rsplit_once("-j ")?.1.split(' ').next()?;
    let rest = chain.strip_prefix("NETAVARK-")?;
    let hash = rest.strip_prefix("DN-").unwrap_or(rest);
    let is_hash = hash.len() == 13 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then_some(chain)
}

/// Removes the chains that all networks of netavark share, unless a network uses them.
fn remove_shared(table: &str) -> Result<()> {
    let rules = rules(table);
    if rules.iter().any(|rule| own_chain(rule).is_some() || rule.contains("-A NETAVARK_FORWARD ")) {
        return Ok(());
    }
    let shared = |rule: &&String| rule.contains(CHAINS);
    for rule in rules.iter().filter(shared).filter(|rule| rule.starts_with("-A ")) {
        change(table, rule, "-A", "-D")?;
    }
    for rule in rules.iter().filter(shared).filter(|rule| rule.starts_with("-N ")) {
        change(table, rule, "-N", "-X")?;
    }
    Ok(())
}

/// Turns what `-S` said into the command that takes it away. What somebody else has taken away by
/// now is fine.
fn change(table: &str, rule: &str, from: &str, to: &str) -> Result<()> {
    let Some(rest) = rule.strip_prefix(from) else { return Ok(()) };
    let words = words(rest);
    let iptables = || Invocation::new("iptables").args(["--wait", "10", "-t", table]).deadline(DEADLINE);
    match iptables().arg(to).args(&words).run_ok() {
        Ok(_) => Ok(()),
        Err(_) if !rules(table).iter().any(|now| now == rule) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Splits a rule at its spaces; what is between double quotes is one word.
fn words(rule: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (index, part) in rule.split('"').enumerate() {
        if index % 2 == 1 {
            words.push(part.into());
        } else {
            words.extend(part.split_whitespace().map(Into::into));
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_taken_apart() {
        let rule = "-A NETAVARK-HOSTPORT-DNAT -p tcp -m tcp --dport 80 -m comment --comment \"dnat name: wbp1 id: ab\" -j NETAVARK-DN-4493E873ABA36";
        assert_eq!(own_chain(rule), Some("NETAVARK-DN-4493E873ABA36"));
        assert_eq!(own_chain("-A PREROUTING -j NETAVARK-HOSTPORT-DNAT"), None);
        assert_eq!(own_chain("-A X -j ACCEPT"), None);
        assert!(begins(rule, "NETAVARK-HOSTPORT-DNAT") && !begins(rule, "NETAVARK"));
        let words = words(&rule[3..]);
        assert_eq!(
            (words[0].as_str(), words[10].as_str()),
            ("NETAVARK-HOSTPORT-DNAT", "dnat name: wbp1 id: ab")
        );
    }

    #[test]
    fn networks_need_netavark() {
        let place = tempfile::tempdir().unwrap();
        let places = ["/nowhere", place.path().to_str().unwrap()];
        let error = require_netavark(&places).unwrap_err().to_string();
        assert!(error.contains("netavark") && error.contains("apt-get install netavark"), "{error}");
        fs::write(place.path().join("netavark"), "").unwrap();
        require_netavark(&places).unwrap();
    }

    #[test]
    fn the_gateway_is_kept() {
        let gateway = Ipv4Addr::new(10, 1, 2, 1);
        let text = json!({"subnets": [{"gateway": gateway}]}).to_string();
        assert_eq!(gateway_of(text.as_bytes()), Some(gateway));
        assert_eq!(gateway_of(b"{}"), None);
    }

    #[test]
    fn undoing_needs_to_know_the_network() {
        assert!(undo("wbp0", &json!({})).is_err());
        assert!(undo("eth0", &json!({"subnet": "10.204.0.0/24"})).is_err());
    }
}
