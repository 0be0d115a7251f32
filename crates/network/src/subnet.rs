//! Subnets, and the choice of an unused one.

use crate::{NetworkError, PREFIX_BITS, Result};
use std::fmt;
use std::net::Ipv4Addr;

/// The private ranges of RFC 1918, the largest first.
const PRIVATE: [Subnet; 3] = [
    Subnet { base: 10 << 24, bits: 8 },
    Subnet { base: 172 << 24 | 16 << 16, bits: 12 },
    Subnet { base: 192 << 24 | 168 << 16, bits: 16 },
];

/// A range of IPv4 addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Subnet {
    base: u32,
    /// Prefix length.
    pub(crate) bits: u8,
}

impl Subnet {
    /// The subnet that contains an address.
    pub(crate) fn new(address: Ipv4Addr, bits: u8) -> Self {
        let bits = bits.min(32);
        Self { base: address.to_bits() & mask(bits), bits }
    }

    /// Parses `10.0.0.0/8`, or a single address.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/').unwrap_or((text, "32"));
        Some(Self::new(address.parse().ok()?, bits.parse().ok().filter(|bits| *bits <= 32)?))
    }

    /// Whether the subnets have an address in common.
    pub(crate) fn overlaps(self, other: Self) -> bool {
        let common = mask(self.bits.min(other.bits));
        self.base & common == other.base & common
    }

    /// The address with this host number.
    pub(crate) fn host(self, number: u8) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.base | u32::from(number))
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from_bits(self.base), self.bits)
    }
}

fn mask(bits: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0)
}

/// A private /24 that overlaps none of `taken`. The search begins at `seed`, so that two runs that
/// cannot see each other yet hardly ever choose the same.
pub(crate) fn choose(taken: &[Subnet], seed: u32) -> Result<Subnet> {
    let all = PRIVATE.into_iter().flat_map(|range| {
        let count = 1u32 << (PREFIX_BITS - range.bits);
        let step = 1u32 << (32 - PREFIX_BITS);
        (0..count).map(move |at| Subnet {
            base: range.base + (seed.wrapping_add(at) % count) * step,
            bits: PREFIX_BITS,
        })
    });
    let mut free = all.filter(|subnet| !taken.iter().any(|other| subnet.overlaps(*other)));
    free.next().ok_or(NetworkError::NoSubnet)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subnets(texts: &[&str]) -> Vec<Subnet> {
        texts.iter().map(|text| Subnet::parse(text).unwrap()).collect()
    }

    #[test]
    fn overlap_is_seen_both_ways() {
        let [wide, narrow, other, single, all] =
            subnets(&["10.0.0.0/8", "10.1.2.0/24", "10.1.3.0/24", "10.1.2.255", "0.0.0.0/0"])[..]
        else {
            panic!()
        };
        assert!(wide.overlaps(narrow) && narrow.overlaps(wide));
        assert!(narrow.overlaps(single) && single.overlaps(narrow));
        assert!(!narrow.overlaps(other) && !other.overlaps(single));
        assert!(all.overlaps(single));
        assert_eq!(Subnet::parse("10.0.0.0/33"), None);
        assert_eq!(Subnet::new(Ipv4Addr::new(10, 1, 2, 3), 24).to_string(), "10.1.2.0/24");
    }

    #[test]
    fn a_subnet_in_use_is_not_chosen() {
        for seed in [0, 7, 65535, u32::MAX] {
            assert!(choose(&[], seed).unwrap().overlaps(PRIVATE[0]));
            let chosen = choose(&subnets(&["10.0.0.0/9", "10.128.0.0/10"]), seed).unwrap();
            assert!(chosen.overlaps(Subnet::parse("10.192.0.0/10").unwrap()), "{chosen}");
            let chosen = choose(&subnets(&["10.0.0.0/8", "172.17.0.1/16"]), seed).unwrap();
            assert!(chosen.overlaps(PRIVATE[1]) && chosen.bits == 24, "{chosen}");
            assert!(!chosen.overlaps(Subnet::parse("172.17.0.0/16").unwrap()));
            let chosen = choose(&subnets(&["10.0.0.0/8", "172.16.0.0/12"]), seed).unwrap();
            assert!(chosen.overlaps(PRIVATE[2]), "{chosen}");
        }
        let all = subnets(&["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"]);
        assert!(matches!(choose(&all, 3), Err(NetworkError::NoSubnet)));
        let first = choose(&[], 9).unwrap();
        assert_ne!(choose(&[first], 9).unwrap(), first);
    }
}
