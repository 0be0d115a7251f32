//! The ports of the host that lead to a guest's published ports.

use crate::Reach;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

/// The published ports of one guest.
#[derive(Debug)]
pub(super) struct Forwards {
    published: Vec<u16>,
    /// The host's address at which these ports are.
    pub(super) at: Ipv4Addr,
    /// The host's port for each port of the guest.
    pub(super) forwarded: BTreeMap<u16, u16>,
}

impl Forwards {
    /// Serves clients on this host, or those that reach it at the address `outside`.
    pub(super) fn new(published: &[u16], outside: Option<Ipv4Addr>) -> Self {
        let at = outside.unwrap_or(Ipv4Addr::LOCALHOST);
        Self { published: published.to_vec(), at, forwarded: BTreeMap::new() }
    }

    /// Each published port, with the host's port that it must have; 0 for any.
    pub(super) fn wanted(&self) -> Vec<(u16, u16)> {
        // A server of several ports tells its clients their numbers, so these stay the same.
        let same = self.published.len() > 1;
        self.published.iter().map(|port| (*port, if same { *port } else { 0 })).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_published_ports_are_reached() {
        let mut forwards = Forwards::new(&[7007], None);
        assert_eq!(forwards.reach(0), None);
        forwards.forwarded.insert(7007, 34117);
        let reach = |port| forwards.reach(port).map(|reach| reach.address.to_string());
        assert_eq!(reach(7007).as_deref(), Some("127.0.0.1:34117"));
        assert_eq!(reach(0).as_deref(), Some("127.0.0.1:0"));
        assert_eq!(reach(7008), None);
        forwards.at = [192, 0, 2, 1].into();
        assert_eq!(
            forwards.reach(7007).map(|reach| reach.address.to_string()).as_deref(),
            Some("192.0.2.1:34117")
        );
    }

    #[test]
    fn several_ports_keep_their_numbers() {
        assert_eq!(Forwards::new(&[7], None).wanted(), [(7, 0)]);
        assert_eq!(Forwards::new(&[7, 8], None).wanted(), [(7, 7), (8, 8)]);
    }
}
