//! The properties of a server's network: the guest's interface, what lies between it and the load
//! generator, the guest's settings.

use super::Facts;
use weigh_network::{Hop, hop};
use weigh_platforms::Reach;
use weigh_protocol::{DEFAULT_LINK, GuestFacts, LinkFacts, Questions};

/// The loopback interface's name in every namespace (`net/core/dev.c` of the kernel).
const LOOPBACK: &str = "lo";
/// The only other interface of a namespace with clients (`weigh_network`).
const CLIENTS: &str = "eth0";
/// The name of the load generator's end.
const LOADER: &str = "loader";
/// The prefix of a setting's key.
const SETTING: &str = "sysctl:";
/// The congestion control algorithm. A new namespace has the host's.
const CONGESTION_CONTROL: &str = "sysctl:net.ipv4.tcp_congestion_control";
/// Settings of the network stack that decide what a server can do
/// (Documentation/admin-guide/sysctl/net.rst and Documentation/networking/ip-sysctl.rst of the
/// kernel).
const SETTINGS: [&str; 10] = [
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.core.somaxconn",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_sack",
];
/// Settings that a new namespace takes from the kernel's defaults; it takes the others from the
/// host's namespace (`net/core/net_namespace.c`, `tcp_sk_init` of `net/ipv4/tcp_ipv4.c`).
const FRESH: [&str; 3] =
    ["sysctl:net.core.somaxconn", "sysctl:net.ipv4.tcp_timestamps", "sysctl:net.ipv4.tcp_sack"];

/// How the client of a server reaches it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Route {
    /// The address that the client connects to, and the namespace that it connects from.
    pub(super) way: Reach,
    /// Whether the guest uses the host's own network.
    pub(super) on_host: bool,
}

impl Route {
    fn on_loopback(&self) -> bool {
        self.way.from.is_none() && self.way.address.ip().is_loopback()
    }

    /// Adds the questions for the guest.
    pub(super) fn ask(&self, about: &mut Questions) {
        let link = if self.on_host && self.on_loopback() { LOOPBACK } else { DEFAULT_LINK };
        about.links = vec![link.into()];
        about.settings = SETTINGS.map(String::from).into();
    }

    /// The guest's answers, and the host's interfaces on the way. Empty for a guest that shows no
    /// interface.
    pub(super) fn facts(&self, inside: &GuestFacts, hops: Vec<Hop>) -> Facts {
        let mut facts = Facts::new();
        let Some(own) = inside.links.first() else { return facts };
        let mut put = |key: String, value: Option<String>| {
            if let Some(value) = value {
                facts.insert(key, value);
            }
        };
        put("network-interface".into(), own.driver.clone());
        put("network-mtu".into(), own.mtu_bytes.map(|mtu| mtu.to_string()));
        put("network-offloads".into(), offloads(own));
        for hop in hops.into_iter().chain(self.loader()) {
            put(format!("network-path:{}", hop.place), Some(words(&hop.link)));
        }
        for (name, value) in &inside.settings {
            put(format!("{SETTING}{name}"), Some(value.clone()));
        }
        facts
    }

    /// The interface by which the load generator's packets leave, unless it is the guest's own.
    fn loader(&self) -> Option<Hop> {
        match &self.way.from {
            Some(namespace) => hop(LOADER, CLIENTS, Some(namespace)),
            None if self.on_loopback() && !self.on_host => hop(LOADER, LOOPBACK, None),
            None => None,
        }
    }
}

fn offloads(link: &LinkFacts) -> Option<String> {
    let on = link.offloads.as_ref()?;
    Some(if on.is_empty() { "none".into() } else { on.join(" ") })
}

/// The properties of an interface in words. A bridge has the offloads of its ports, which come and
/// go with other guests of the run, so they are left out.
fn words(link: &LinkFacts) -> String {
    let driver = link.driver.clone().unwrap_or_else(|| "unknown".into());
    let own = Some(link).filter(|_| driver != "bridge");
    let mtu = link.mtu_bytes.map(|mtu| format!("mtu {mtu}"));
    let offloads = own.and_then(offloads).map(|words| format!("offloads {words}"));
    [Some(driver), mtu, offloads].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Why a difference in the network's properties follows from another difference of the two guests,
/// if it does.
///
/// - Interfaces, their MTU and offloads, and what lies before them differ if `network` does.
/// - Offloads, and the host's end of the guest's link, differ if the guest's interface is of
///   another kind. The MTU does not: in one network it decides what is sent, whatever the
///   interface.
/// - Settings, including the congestion control, differ if the kernels do. Those in [`FRESH`] also
///   differ if one guest has its own namespace, because the host's may have been changed.
pub(super) fn intended_reason(key: &str, baseline: &Facts, other: &Facts) -> Option<String> {
    let both = |key: &str| Some((other.get(key)?, baseline.get(key)?));
    let unlike = |key: &str| both(key).filter(|(other, baseline)| other != baseline);
    let is_path = key.starts_with("network-path:");
    if is_path || ["network-interface", "network-mtu", "network-offloads"].contains(&key) {
        if let Some((other, baseline)) = unlike("network") {
            return Some(format!("another network: {other}, not {baseline}"));
        }
        let follows = key == "network-offloads" || is_path;
        let (other, baseline) = unlike("network-interface").filter(|_| follows)?;
        return Some(format!("another kind of interface: {other}, not {baseline}"));
    }
    if !key.starts_with(SETTING) {
        return None;
    }
    if unlike("kernel").is_some() {
        return Some(match key {
            CONGESTION_CONTROL => {
                "another kernel's own choice, which decides how a stream reaches its speed".into()
            }
            _ => "another kernel has values of its own".into(),
        });
    }
    let (other, baseline) = both("network")?;
    let of_its_own = (other == "host") != (baseline == "host");
    let reason = "a network namespace of its own begins with the kernel's values";
    (of_its_own && FRESH.contains(&key)).then(|| reason.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn route(on_host: bool, address: [u8; 4], from: Option<&str>) -> Route {
        let way = Reach { address: (Ipv4Addr::from(address), 80).into(), from: from.map(Into::into) };
        Route { way, on_host }
    }

    fn inside(driver: &str, mtu_bytes: u32, offloads: &[&str]) -> GuestFacts {
        let offloads = Some(offloads.iter().map(ToString::to_string).collect());
        let link = LinkFacts {
            name: "eth0".into(),
            driver: Some(driver.into()),
            mtu_bytes: Some(mtu_bytes),
            offloads,
        };
        let settings = vec![("net.core.somaxconn".into(), "4096".into())];
        GuestFacts { links: vec![link], settings, ..GuestFacts::default() }
    }

    #[test]
    fn the_interface_that_clients_come_by_is_asked_for() {
        let asked = |route: Route| {
            let mut about = Questions::default();
            route.ask(&mut about);
            assert_eq!(about.settings.len(), SETTINGS.len());
            about.links
        };
        assert_eq!(asked(route(true, [127, 0, 0, 1], None)), ["lo"]);
        assert_eq!(asked(route(false, [127, 0, 0, 1], None)), [DEFAULT_LINK], "behind a proxy");
        assert_eq!(asked(route(false, [10, 0, 0, 2], Some("/run/client"))), [DEFAULT_LINK]);
        assert_eq!(asked(route(true, [10, 0, 0, 2], None)), [DEFAULT_LINK], "from another machine");
    }

    #[test]
    fn facts_have_their_words() {
        let link = LinkFacts {
            name: "wb0".into(),
            driver: Some("bridge".into()),
            mtu_bytes: Some(1500),
            offloads: None,
        };
        let hops = vec![Hop { place: "bridge", link }];
        let facts = route(true, [127, 0, 0, 1], None).facts(&inside("veth", 1400, &["tso", "gro"]), hops);
        let found: Vec<(&str, &str)> =
            facts.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let expected = [
            ("network-interface", "veth"),
            ("network-mtu", "1400"),
            ("network-offloads", "tso gro"),
            ("network-path:bridge", "bridge, mtu 1500"),
            ("sysctl:net.core.somaxconn", "4096"),
        ];
        assert_eq!(found, expected);
        for (key, _) in expected {
            assert_eq!(weigh_model::check_parity_word(key), Ok(()), "{key}");
        }
        let proxied = route(false, [127, 0, 0, 1], None).facts(&inside("veth", 1500, &[]), Vec::new());
        assert_eq!(proxied["network-offloads"], "none");
        assert!(proxied["network-path:loader"].starts_with("loopback, mtu "), "{proxied:?}");
        let blind = route(true, [127, 0, 0, 1], None).facts(&GuestFacts::default(), Vec::new());
        assert!(blind.is_empty(), "a guest that shows nothing says nothing");
    }

    #[test]
    fn facts_that_follow_from_others_are_known() {
        let facts = |kernel: &str, network: &str, interface: &str| -> Facts {
            let pairs = [("kernel", kernel), ("network", network), ("network-interface", interface)];
            pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
        };
        let host = facts("6.1", "host", "loopback");
        let bridged = facts("6.1", "bridge", "veth");
        let machine = facts("6.12", "bridge", "virtio_net");
        let all = [
            "network-interface",
            "network-mtu",
            "network-offloads",
            "network-path:bridge",
            "sysctl:net.core.somaxconn",
            "sysctl:net.ipv4.tcp_rmem",
            CONGESTION_CONTROL,
            "cpus",
        ];
        let of = |baseline: &Facts, other: &Facts| -> Vec<&str> {
            all.into_iter().filter(|key| intended_reason(key, baseline, other).is_some()).collect()
        };
        assert!(of(&host, &host).is_empty() && of(&bridged, &bridged).is_empty());
        assert_eq!(of(&host, &bridged), all[..5]);
        assert_eq!(of(&bridged, &host), all[..5]);
        assert_eq!(
            of(&bridged, &machine),
            ["network-offloads", "network-path:bridge", all[4], all[5], all[6]]
        );
        assert_eq!(of(&host, &machine), all[..7]);
    }
}
