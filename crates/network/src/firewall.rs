//! Letting guests' packets through a host whose firewall forwards nothing.
//!
//! Docker's engine sets the policy of FORWARD to DROP, and has bridged packets pass there too
//! (`bridge-nf-call-iptables`). It leaves the chain DOCKER-USER to others, which it asks first. Our
//! rules name our own bridges, are inserted one by one and deleted one by one; nothing is ever
//! flushed.

use crate::NetworkError;
use crate::made::Made;
use crate::tool::{missing, tool};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use weigh_host::command::find_program;

/// How long iptables waits for its lock, seconds.
const WAIT_S: &str = "10";

/// How often a rule is deleted: once for every copy that somebody may have restored.
const MOST: usize = 20;

/// A table of filters that may drop what is forwarded.
struct Filter {
    program: &'static str,
    /// Where an ACCEPT decides before anything drops.
    chain: &'static str,
}

/// Accepts forwarded packets of these kinds, wherever something may drop them. `rules` are matches
/// in iptables' words.
pub(crate) fn accept(made: &mut Made, comment: &str, rules: &[&[&str]]) -> Result<(), NetworkError> {
    for Filter { program, chain } in filters()? {
        for matches in rules {
            let comment = ["-m", "comment", "--comment", comment, "-j", "ACCEPT"];
            let rule: Vec<&str> = matches.iter().copied().chain(comment).collect();
            let id = format!("{} of {chain}", matches.join(" "));
            made.record("rule", &id, json!({ "program": program, "chain": chain, "rule": rule }))?;
            tool(program, &["-w", WAIT_S, "-I", chain]).args(&rule).run_ok().map_err(missing("iptables"))?;
        }
    }
    Ok(())
}

/// The tables that need a rule. The two kinds of iptables have tables of their own, both of which
/// every packet passes.
fn filters() -> Result<Vec<Filter>, NetworkError> {
    let mut found = Vec::new();
    for program in programs() {
        let said = tool(program, &["-w", WAIT_S, "-S"]).run_ok().map_err(missing("iptables"))?;
        if let Some(chain) = chain(&String::from_utf8_lossy(&said.output)) {
            found.push(Filter { program, chain });
        }
    }
    Ok(found)
}

/// The programs of tables that are there: asking for others would make them.
fn programs() -> Vec<&'static str> {
    let legacy = std::fs::read_to_string("/proc/thread-self/net/ip_tables_names").unwrap_or_default();
    let legacy = legacy.lines().any(|name| name == "filter");
    let modern = match tool("nft", &["list", "tables", "ip"]).run_ok() {
        Ok(said) => {
            String::from_utf8_lossy(&said.output).lines().any(|line| line.trim() == "table ip filter")
        }
        // Without nft nobody can tell; iptables of that kind is asked if it is there.
        Err(_) => true,
    };
    let of_kind = |wanted: bool, name| if wanted && find_program(name).is_some() { Some(name) } else { None };
    let mut programs = BTreeSet::new();
    programs.extend(of_kind(modern, "iptables-nft"));
    programs.extend(of_kind(legacy, "iptables-legacy"));
    // A distribution with one kind alone has it under the plain name.
    if programs.is_empty() && (legacy || modern) {
        programs.extend(of_kind(true, "iptables"));
    }
    programs.into_iter().collect()
}

/// Where a rule has to go in a table as `iptables -S` lists it; nowhere when the table forwards
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

/// Deletes a rule, if it is there.
pub(crate) fn undo(id: &str, detail: &Value) -> Result<(), String> {
    let word = |value: &Value| value.as_str().map(str::to_string);
    let rule = || -> Option<(String, String, Vec<String>)> {
        let rule: Option<Vec<String>> = detail["rule"].as_array()?.iter().map(word).collect();
        Some((word(&detail["program"])?, word(&detail["chain"])?, rule?))
    };
    let (program, chain, rule) = rule().ok_or_else(|| format!("its entry ({id}) cannot be read"))?;
    let ours = rule.iter().any(|word| word.starts_with("weighbridge-"));
    if !ours || !["iptables", "iptables-nft", "iptables-legacy"].contains(&program.as_str()) {
        return Err("it is no rule of weighbridge's".into());
    }
    let with = |action| tool(&program, &["-w", WAIT_S, action, &chain]).args(&rule).run();
    for _ in 0..MOST {
        let found = with("-C").map_err(|error| error.to_string())?;
        if found.status.success() {
            // Somebody may have deleted it in between.
            with("-D").map_err(|error| error.to_string())?;
            continue;
        }
        // Not there (1), or the chain is not (Docker's engine has gone). Anything else, such as a
        // lock that is held for ever, is told.
        let said = String::from_utf8_lossy(&found.error).into_owned();
        let gone =
            ["does a matching rule exist", "does not exist", "No chain/target/match", "Table does not exist"];
        return match gone.iter().any(|text| said.contains(text)) {
            true => Ok(()),
            false => Err(said.trim().replace('\n', "; ")),
        };
    }
    Err(format!("it is still there after it was deleted {MOST} times"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_goes_where_it_decides_first() {
        let docker = "-P INPUT ACCEPT\n-P FORWARD DROP\n-N DOCKER-USER\n-A FORWARD -j DOCKER-USER\n";
        assert_eq!(chain(docker), Some("DOCKER-USER"));
        let unused = "-P FORWARD DROP\n-N DOCKER-USER\n";
        assert_eq!(chain(unused), Some("FORWARD"), "Docker's chain is not asked");
        assert_eq!(chain("-P INPUT DROP\n-P FORWARD ACCEPT\n"), None);
        let rejecting = "-P FORWARD ACCEPT\n-A FORWARD -j REJECT --reject-with icmp-host-prohibited\n";
        assert_eq!(chain(rejecting), Some("FORWARD"));
    }

    #[test]
    fn rules_of_others_are_never_deleted() {
        let foreign = json!({"program": "iptables", "chain": "FORWARD", "rule": ["-j", "ACCEPT"]});
        assert!(undo("x", &foreign).is_err());
        let program = json!({"program": "rm", "chain": "/", "rule": ["weighbridge-x"]});
        assert!(undo("x", &program).is_err());
        assert!(undo("x", &json!({})).is_err());
    }
}
