//! What lies between a guest and its client, as the host sees it.

use crate::namespace;
use std::path::Path;
use weigh_protocol::LinkFacts;

/// The host's end of what leads to the guest: of a veth, or a tap.
pub(crate) const GUEST: &str = "guest";
/// The bridge that it is plugged into.
pub(crate) const BRIDGE: &str = "bridge";
/// The host's end of the client's veth.
pub(crate) const CLIENT: &str = "client";

/// An interface on the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hop {
    /// What it is there: `guest` and `client` are the host's ends of what leads to them, `bridge`
    /// is between.
    pub place: &'static str,
    /// What it is like.
    pub link: LinkFacts,
}

/// The interface of a name in a namespace, or in that of this process. None where there is none, or
/// it cannot be looked at.
pub fn hop(place: &'static str, name: &str, namespace: Option<&Path>) -> Option<Hop> {
    let link = namespace::within(namespace, || weigh_links::describe(name)).ok()??;
    Some(Hop { place, link })
}

/// Those of these names that are there, in the namespace of this process.
pub(crate) fn here(names: &[(&'static str, Option<&str>)]) -> Vec<Hop> {
    names.iter().filter_map(|(place, name)| hop(place, (*name)?, None)).collect()
}
