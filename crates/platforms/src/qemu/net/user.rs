//! QEMU's user-mode network: QEMU itself emulates a network with a router, which needs no
//! privileges.
//!
//! The guest can be reached only through host ports that QEMU listens on. The kernel chooses free
//! ones; a published port is forwarded for TCP and for UDP under one number.

use super::super::qmp::{Qmp, QmpError};
use super::forwards::Forwards;
use serde_json::json;
use std::net::Ipv4Addr;
use std::time::Instant;

/// The address that QEMU's router expects the guest to have (QEMU's manual, "-netdev user").
pub(super) const GUEST: &str = "10.0.2.15";
/// The router's address.
pub(super) const ROUTER: &str = "10.0.2.2";
/// The probe's arguments with its address and the router's.
pub(super) const PROBE_ARGUMENTS: &str = "--address 10.0.2.15/24 --gateway 10.0.2.2";
/// How many ports are tried if the chosen one is taken for UDP.
const ATTEMPTS: u32 = 8;

/// Has QEMU listen for every published port.
///
/// # Errors
/// QEMU does not listen on one of them.
pub(super) fn forward(
    forwards: &mut Forwards,
    qmp: &mut Qmp,
    backend: &str,
    until: Instant,
) -> Result<(), QmpError> {
    for (port, wanted) in forwards.wanted() {
        let host_port = forward_one(qmp, (backend, forwards.at), (wanted, port), until)?;
        forwards.forwarded.insert(port, host_port);
    }
    Ok(())
}

/// Has QEMU forward a host port to a port of the guest; returns the host port. If `wanted` is 0,
/// the kernel chooses it.
fn forward_one(
    qmp: &mut Qmp,
    (backend, at): (&str, Ipv4Addr),
    (wanted, port): (u16, u16),
    until: Instant,
) -> Result<u16, QmpError> {
    let mut said = String::new();
    for _ in 0..ATTEMPTS {
        said = monitor(qmp, &format!("hostfwd_add {backend} tcp:{at}:{wanted}-{GUEST}:{port}"), until)?;
        let chosen = forwarded(&monitor(qmp, "info usernet", until)?, port);
        let Some(chosen) = chosen else { break };
        said = monitor(qmp, &format!("hostfwd_add {backend} udp:{at}:{chosen}-{GUEST}:{port}"), until)?;
        if said.is_empty() {
            return Ok(chosen);
        }
        monitor(qmp, &format!("hostfwd_remove {backend} tcp:{at}:{chosen}"), until)?;
    }
    Err(QmpError::Lost(format!("does not listen for port {port} of the guest: {}", said.replace('\n', "; "))))
}

/// Runs a command that exists only in the human monitor and returns its output.
pub(super) fn monitor(qmp: &mut Qmp, line: &str, until: Instant) -> Result<String, QmpError> {
    let said = qmp.execute("human-monitor-command", json!({ "command-line": line }), until)?;
    Ok(said.as_str().map(str::trim).unwrap_or_default().into())
}

/// The host port that is forwarded to this TCP port of the guest, from `info usernet`.
fn forwarded(listed: &str, port: u16) -> Option<u16> {
    listed.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["TCP[HOST_FORWARD]", _, _, host, GUEST, guest, ..] if guest.parse() == Ok(port) => {
                host.parse().ok().filter(|host| *host > 0)
            }
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of QEMU 7.2.
    const LISTED: &str = "\
Hub -1 (net):
  Protocol[State]    FD  Source Address  Port   Dest. Address  Port RecvQ SendQ
  TCP[HOST_FORWARD]  12       127.0.0.1 40453       10.0.2.15  7008     0     0
  TCP[HOST_FORWARD]  11       127.0.0.1 34117       10.0.2.15  7007     0     0
  UDP[HOST_FORWARD]  13       127.0.0.1 34117       10.0.2.15  7009     0     0
";

    #[test]
    fn forwarded_ports_are_found() {
        assert_eq!(forwarded(LISTED, 7007), Some(34117));
        assert_eq!(forwarded(LISTED, 7008), Some(40453));
        assert_eq!(forwarded(LISTED, 7009), None);
        assert_eq!(forwarded("", 7007), None);
    }
}
