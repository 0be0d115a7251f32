//! The host's interfaces between a guest and its client.

use crate::namespace;
use std::path::Path;
use weigh_protocol::LinkFacts;

/// The host's end of the guest's veth or tap.
pub(crate) const GUEST: &str = "guest";
/// The bridge of the guest.
pub(crate) const BRIDGE: &str = "bridge";
/// The host's end of the client's veth.
pub(crate) const CLIENT: &str = "client";

/// An interface between a guest and its client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hop {
    /// Its position: `guest` and `client` are the host's ends of their links, `bridge` is between
    /// them.
    pub place: &'static str,
    /// Its properties.
    pub link: LinkFacts,
}

/// The interface of a name in a namespace, by default that of this process. `None` if it does not
/// exist or cannot be examined.
pub fn hop(place: &'static str, name: &str, namespace: Option<&Path>) -> Option<Hop> {
    let link = namespace::within(namespace, || weigh_links::describe(name)).ok()??;
    Some(Hop { place, link })
}

/// The existing interfaces of these names in the namespace of this process.
pub(crate) fn on_host(names: &[(&'static str, Option<&str>)]) -> Vec<Hop> {
    names.iter().filter_map(|(place, name)| hop(place, (*name)?, None)).collect()
}
