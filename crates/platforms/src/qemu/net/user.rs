//! QEMU's user-mode network: QEMU itself emulates a network with a router, which needs no
//! privileges.
//!
//! The guest can be reached only through host ports that QEMU listens on. The kernel chooses free
//! ones; a published port is forwarded for TCP and for UDP under one number.

use super::super::qmp::{Qmp, QmpError};
use crate::Reach;
use serde_json::json;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

/// The address that QEMU's router expects the guest to have (QEMU's manual, "-netdev user").
const GUEST: &str = "10.0.2.15";
/// The probe's arguments with its address and the router's.
pub(super) const PROBE_ARGUMENTS: &str = "--address 10.0.2.15/24 --gateway 10.0.2.2";
/// How many ports are tried if the chosen one is taken for UDP.
const ATTEMPTS: u32 = 8;

/// The ports that are forwarded to the guest.
#[derive(Debug)]
pub(super) struct User {
    published: Vec<u16>,
    /// The host's address at which QEMU listens.
    at: Ipv4Addr,
    /// The host's port for each port of the guest.
    forwarded: BTreeMap<u16, u16>,
}

impl User {
    /// Serves clients on this host, or those that reach it at the address `outside`.
    pub(super) fn new(published: &[u16], outside: Option<Ipv4Addr>) -> Self {
        let at = outside.unwrap_or(Ipv4Addr::LOCALHOST);
        Self { published: published.to_vec(), at, forwarded: BTreeMap::new() }
    }

    /// Has QEMU listen for every published port.
    ///
    /// # Errors
    /// QEMU does not listen on one of them.
    pub(super) fn forward(&mut self, qmp: &mut Qmp, backend: &str, until: Instant) -> Result<(), QmpError> {
        for port in self.published.clone() {
            // A server of several ports tells its clients their numbers, so these stay the same.
            let wanted = if self.published.len() > 1 { port } else { 0 };
            let host_port = forward_one(qmp, (backend, self.at), (wanted, port), until)?;
            self.forwarded.insert(port, host_port);
        }
        Ok(())
    }

    /// Where to reach a published port; port 0 means only the guest's address.
    pub(super) fn reach(&self, port: u16) -> Option<Reach> {
        let host_port = match port {
            0 if !self.forwarded.is_empty() => 0,
            _ => *self.forwarded.get(&port)?,
        };
        Some(Reach { address: SocketAddr::new(self.at.into(), host_port), from: None })
    }
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
fn monitor(qmp: &mut Qmp, line: &str, until: Instant) -> Result<String, QmpError> {
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

    #[test]
    fn only_published_ports_are_reached() {
        let mut user = User::new(&[7007], None);
        assert_eq!(user.reach(0), None);
        user.forwarded.insert(7007, 34117);
        let reach = |port| user.reach(port).map(|reach| reach.address.to_string());
        assert_eq!(reach(7007).as_deref(), Some("127.0.0.1:34117"));
        assert_eq!(reach(0).as_deref(), Some("127.0.0.1:0"));
        assert_eq!(reach(7008), None);
        user.at = [192, 0, 2, 1].into();
        assert_eq!(
            user.reach(7007).map(|reach| reach.address.to_string()).as_deref(),
            Some("192.0.2.1:34117")
        );
    }
}
