//! Firewall rules that let packets of guests through a host that forwards nothing.
//!
//! Docker's engine sets the policy of FORWARD to DROP, and sends bridged packets through it, too
//! (`bridge-nf-call-iptables`). It leaves the chain DOCKER-USER, which comes first, to others. Our
//! rules name our own bridges and are inserted and deleted one by one; nothing is ever flushed.

use crate::changes::RecordedChanges;
use crate::tool::{missing, tool};
use crate::{NetworkError, Result};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use weigh_host::command::{CommandError, find_program};

/// How long iptables waits for its lock, seconds.
const WAIT_S: &str = "10";

/// How often a rule is deleted, because other programs may have restored copies of it.
const DELETE_ATTEMPTS: u32 = 20;

/// A table that may drop forwarded packets.
struct Filter {
    program: &'static str,
    /// The chain in which an ACCEPT comes before every DROP.
    chain: &'static str,
}

/// Accepts forwarded packets in every table that may drop them. `rules` are matches in the syntax
/// of iptables.
pub(crate) fn accept(changes: &mut RecordedChanges, comment: &str, rules: &[&[&str]]) -> Result<()> {
    for Filter { program, chain } in filters()? {
        for matches in rules {
            let comment = ["-m", "comment", "--comment", comment, "-j", "ACCEPT"];
            let rule: Vec<&str> = matches.iter().copied().chain(comment).collect();
            let id = format!("{} of {chain}", matches.join(" "));
            changes.record("rule", &id, json!({ "program": program, "chain": chain, "rule": rule }))?;
            tool(program, &["-w", WAIT_S, "-I", chain]).args(&rule).run_ok().map_err(missing("iptables"))?;
        }
    }
    Ok(())
}

/// The tables that need a rule. Every packet passes the tables of both kinds of iptables.
fn filters() -> Result<Vec<Filter>> {
    let mut found = Vec::new();
    for program in programs() {
        let listed = tool(program, &["-w", WAIT_S, "-S"]).run_ok().map_err(missing("iptables"))?;
        if let Some(chain) = chain(&String::from_utf8_lossy(&listed.output)) {
            found.push(Filter { program, chain });
        }
    }
    Ok(found)
}

/// The programs of existing tables: listing other tables would create them.
fn programs() -> Vec<&'static str> {
    let legacy = std::fs::read_to_string("/proc/thread-self/net/ip_tables_names").unwrap_or_default();
    let legacy = legacy.lines().any(|name| name == "filter");
    let modern = match tool("nft", &["list", "tables", "ip"]).run_ok() {
        Ok(listed) => {
            String::from_utf8_lossy(&listed.output).lines().any(|line| line.trim() == "table ip filter")
        }
        // Without nft this is unknown; then iptables-nft is used if it is installed.
        Err(_) => true,
    };
    let of_kind = |wanted: bool, name| if wanted && find_program(name).is_some() { Some(name) } else { None };
    let mut programs = BTreeSet::new();
    programs.extend(of_kind(modern, "iptables-nft"));
    programs.extend(of_kind(legacy, "iptables-legacy"));
    // A distribution with only one kind uses the plain name.
    if programs.is_empty() && (legacy || modern) {
        programs.extend(of_kind(true, "iptables"));
    }
    programs.into_iter().collect()
}

/// The chain for a rule, in a table listed by `iptables -S`; `None` if the table forwards
/// everything.
fn chain(listed: &str) -> Option<&'static str> {
    let has = |wanted: &str| listed.lines().any(|line| line == wanted);
    if has("-N DOCKER-USER") && has("-A FORWARD -j DOCKER-USER") {
        return Some("DOCKER-USER");
    }
    let drops = |line: &str| {
        line.starts_with("-A FORWARD ") && [" -j DROP", " -j REJECT"].iter().any(|end| line.contains(end))
    };
    (has("-P FORWARD DROP") || listed.lines().any(drops)).then_some("FORWARD")
}

/// A rule as the ledger holds it.
#[derive(Deserialize)]
struct Rule {
    program: String,
    chain: String,
    rule: Vec<String>,
}

/// Whether a rule has the comment of a run and no other options than those of [`accept`]: some
/// would have iptables start a program or load a library (`--modprobe`, `-m` with a path).
fn is_ours(rule: &[String]) -> bool {
    let mut words = rule.iter().map(String::as_str);
    let mut has_comment = false;
    while let Some(option) = words.next() {
        let Some(value) = words.next() else { return false };
        let is_known = match option {
            "-i" | "-o" => !value.starts_with('-') && !value.contains('/'),
            "-m" => ["comment", "conntrack"].contains(&value),
            "--ctstate" => ["DNAT", "RELATED,ESTABLISHED"].contains(&value),
            "--comment" => value.starts_with("weighbridge-"),
            "-j" => value == "ACCEPT",
            _ => false,
        };
        if !is_known {
            return false;
        }
        has_comment |= option == "--comment";
    }
    has_comment
}

/// Deletes a rule, if it exists.
pub(crate) fn undo(id: &str, detail: &Value) -> Result<()> {
    let foreign = || NetworkError::Foreign(format!("the rule {id}"));
    let Rule { program, chain, rule } = Rule::deserialize(detail).map_err(|_| foreign())?;
    let is_known = ["iptables", "iptables-nft", "iptables-legacy"].contains(&program.as_str())
        && ["DOCKER-USER", "FORWARD"].contains(&chain.as_str());
    if !is_known || !is_ours(&rule) {
        return Err(foreign());
    }
    // Said of a missing rule, and of a missing chain when Docker's engine has ended.
    const ABSENT: [&str; 4] =
        ["does a matching rule exist", "does not exist", "No chain/target/match", "Table does not exist"];
    let with = |action| tool(&program, &["-w", WAIT_S, action, &chain]).args(&rule);
    for _ in 0..DELETE_ATTEMPTS {
        match with("-C").run_ok() {
            // Another program may delete it at the same time.
            Ok(_) => drop(with("-D").run()?),
            Err(CommandError::Status { error, .. }) if ABSENT.iter().any(|text| error.contains(text)) => {
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(NetworkError::Restored { rule: id.into(), attempts: DELETE_ATTEMPTS })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_goes_into_the_first_chain() {
        let docker = "-P INPUT ACCEPT\n-P FORWARD DROP\n-N DOCKER-USER\n-A FORWARD -j DOCKER-USER\n";
        assert_eq!(chain(docker), Some("DOCKER-USER"));
        let unused = "-P FORWARD DROP\n-N DOCKER-USER\n";
        assert_eq!(chain(unused), Some("FORWARD"), "Docker's chain is not asked");
        assert_eq!(chain("-P INPUT DROP\n-P FORWARD ACCEPT\n"), None);
        let rejecting = "-P FORWARD ACCEPT\n-A FORWARD -j REJECT --reject-with icmp-host-prohibited\n";
        assert_eq!(chain(rejecting), Some("FORWARD"));
    }

    #[test]
    fn foreign_rules_are_never_deleted() {
        let foreign = json!({"program": "iptables", "chain": "FORWARD", "rule": ["-j", "ACCEPT"]});
        assert!(undo("x", &foreign).is_err());
        let program = json!({"program": "rm", "chain": "/", "rule": ["weighbridge-x"]});
        assert!(undo("x", &program).is_err());
        assert!(undo("x", &json!({})).is_err());
        let ours = ["-i", "wb1", "-m", "comment", "--comment", "weighbridge-x", "-j", "ACCEPT"];
        let with =
            |more: &[&str]| -> Vec<String> { ours.iter().chain(more).map(ToString::to_string).collect() };
        assert!(is_ours(&with(&[])) && is_ours(&with(&["-m", "conntrack", "--ctstate", "DNAT"])));
        for more in [
            &["--modprobe=/tmp/evil", "x"][..],
            &["--mod", "/tmp/evil"],
            &["-M", "/tmp/evil"],
            &["-m", "../../../tmp/evil"],
            &["-j", "DROP"],
            &["-i"],
        ] {
            assert!(!is_ours(&with(more)), "{more:?}");
        }
    }
}
