//! Units of measurement, normalised to base units on input.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A unit in its base form, without a prefix: `s`, `B`, `B/s`, `op/s`, `update/s`, `1`.
///
/// Values are stored in base units everywhere; only the report chooses a prefix for the reader. A
/// unit that weighbridge does not know is kept as it is written, so that samples measured elsewhere
/// can use their own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Unit(String);

/// Prefixed symbols and the factor to their base. SI prefixes are decimal, IEC prefixes binary
/// (ISO/IEC 80000-13).
const KNOWN: &[(&str, &str, f64)] = &[
    ("s", "s", 1.0),
    ("ms", "s", 1e-3),
    ("us", "s", 1e-6),
    ("µs", "s", 1e-6),
    ("ns", "s", 1e-9),
    ("min", "s", 60.0),
    ("h", "s", 3600.0),
    ("B", "B", 1.0),
    ("kB", "B", 1e3),
    ("MB", "B", 1e6),
    ("GB", "B", 1e9),
    ("KiB", "B", 1024.0),
    ("MiB", "B", 1_048_576.0),
    ("GiB", "B", 1_073_741_824.0),
    ("B/s", "B/s", 1.0),
    ("kB/s", "B/s", 1e3),
    ("MB/s", "B/s", 1e6),
    ("GB/s", "B/s", 1e9),
    ("KiB/s", "B/s", 1024.0),
    ("MiB/s", "B/s", 1_048_576.0),
    ("GiB/s", "B/s", 1_073_741_824.0),
    ("bit/s", "B/s", 0.125),
    ("kbit/s", "B/s", 125.0),
    ("Mbit/s", "B/s", 125_000.0),
    ("Gbit/s", "B/s", 125_000_000.0),
    ("FLOPS", "FLOP/s", 1.0),
    ("MFLOPS", "FLOP/s", 1e6),
    ("GFLOPS", "FLOP/s", 1e9),
    ("GUPS", "update/s", 1e9),
    ("IOPS", "op/s", 1.0),
    ("J", "J", 1.0),
    ("mJ", "J", 1e-3),
    ("uJ", "J", 1e-6),
    ("µJ", "J", 1e-6),
    ("kJ", "J", 1e3),
    ("Wh", "J", 3600.0),
    ("kWh", "J", 3.6e6),
    ("%", "1", 0.01),
];

impl Unit {
    /// Seconds.
    pub fn second() -> Self {
        Self("s".into())
    }

    /// Joules.
    pub fn joule() -> Self {
        Self("J".into())
    }

    /// The base unit of `symbol` and the factor that turns a value in `symbol` into one in the base
    /// unit.
    ///
    /// ```
    /// let (unit, factor) = weigh_model::Unit::normalise("GB/s");
    /// assert_eq!((unit.symbol(), 12.5 * factor), ("B/s", 1.25e10));
    /// ```
    pub fn normalise(symbol: &str) -> (Self, f64) {
        match KNOWN.iter().find(|(known, _, _)| *known == symbol) {
            Some((_, base, factor)) => (Self((*base).into()), *factor),
            None => (Self(symbol.into()), 1.0),
        }
    }

    /// The symbol of the base unit.
    pub fn symbol(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_removed_and_unknown_units_kept() {
        assert_eq!(Unit::normalise("GB/s"), (Unit("B/s".into()), 1e9));
        assert_eq!(Unit::normalise("MiB"), (Unit("B".into()), 1_048_576.0));
        assert_eq!(Unit::normalise("frames"), (Unit("frames".into()), 1.0));
    }

    #[test]
    fn every_base_is_its_own_base() {
        for (_, base, _) in KNOWN {
            assert_eq!(Unit::normalise(base).0.symbol(), *base);
        }
    }
}
