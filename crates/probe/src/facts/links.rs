//! Network interfaces of the guest.

use crate::files::read_small;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use weigh_protocol::{DEFAULT_LINK, LinkFacts};

/// Describes interfaces; missing ones are left out.
pub fn describe(names: &[String]) -> Vec<LinkFacts> {
    let described = |name: &String| match name.as_str() {
        DEFAULT_LINK => weigh_links::describe(&default_link()?),
        name => weigh_links::describe(name),
    };
    names.iter().filter_map(described).collect()
}

fn default_link() -> Option<String> {
    let by_route = || by_route(&read_small("/proc/self/net/route")?);
    by_route().or_else(|| {
        let all = super::interfaces(&read_small("/proc/self/net/dev")?);
        let mut cards = all.into_iter().filter(|name| name != "lo");
        let only = cards.next();
        only.filter(|_| cards.next().is_none())
    })
}

/// The interface of the default route with the lowest metric in `/proc/net/route` (route(8)):
/// Iface, Destination, Gateway, Flags, RefCnt, Use, Metric, Mask.
fn by_route(table: &str) -> Option<String> {
    let routes = table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_default = fields.get(1) == Some(&"00000000") && fields.get(7) == Some(&"00000000");
        is_default.then_some((fields.get(6)?.parse::<u32>().ok()?, fields[0]))
    });
    routes.min_by_key(|(metric, _)| *metric).map(|(_, name)| name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_route_with_the_lowest_metric_counts() {
        let table = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
            wlan0\t00000000\t0101A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n\
            eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
            tun0\t00000000\t00000000\t0001\t0\t0\t0\t00000080\t0\t0\t0\n";
        assert_eq!(by_route(table).as_deref(), Some("eth0"));
        assert_eq!(by_route("Iface\tDestination\n"), None);
    }
}
