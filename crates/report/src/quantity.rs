//! Numbers for people: with a prefix, as many digits as the interval justifies, a unit, and a sign
//! for effects.

use std::fmt;
use weigh_model::Unit;
use weigh_stats::Interval;

/// The fewest significant digits of a value.
const FEWEST_DIGITS: i32 = 3;
/// The most significant digits of a value, however narrow its interval is.
const MOST_DIGITS: i32 = 5;
/// Values of one table share a prefix while they lie in this range with it.
const WITH_COMMON_PREFIX: std::ops::Range<f64> = 1e-4..1e5;

const DURATION: &[(&str, f64)] = &[("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)];
const ENERGY: &[(&str, f64)] =
    &[("nJ", 1e-9), ("µJ", 1e-6), ("mJ", 1e-3), ("J", 1.0), ("kJ", 1e3), ("MJ", 1e6)];
const BYTES: &[(&str, f64)] = &[
    ("B", 1.0),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
];
const DECIMAL: &[(&str, f64)] = &[("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12)];
/// Base units that take decimal prefixes above one.
const DECIMAL_UNITS: &[&str] = &["B/s", "op/s", "update/s", "FLOP/s", "cycles"];

/// The number format of the values of one metric: the same prefix and the same number of decimals
/// in every row.
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    unit: Unit,
    symbol: String,
    factor: f64,
    decimals: usize,
}

impl Scale {
    /// The scale for values of one unit. `relative_half_width` is the half-width of the narrowest
    /// interval as a fraction of the value: the narrower, the more digits.
    pub fn new(unit: &Unit, values: impl IntoIterator<Item = f64>, relative_half_width: Option<f64>) -> Self {
        let smallest = values
            .into_iter()
            .map(f64::abs)
            .filter(|value| value.is_finite() && *value > 0.0)
            .min_by(f64::total_cmp)
            .unwrap_or(1.0);
        let (symbol, factor) = prefix(unit, smallest);
        let digits = relative_half_width
            .filter(|width| *width > 0.0 && width.is_finite())
            .map_or(FEWEST_DIGITS, |width| (-width.log10()).ceil() as i32 + 1)
            .clamp(FEWEST_DIGITS, MOST_DIGITS);
        Self { unit: unit.clone(), symbol, factor, decimals: decimals_of(smallest / factor, digits) }
    }

    /// The symbol of the unit with its prefix; empty for the dimensionless unit.
    pub fn symbol(&self) -> &str {
        &self.symbol
    }

    /// Converts a value from the base unit to the unit with the prefix.
    pub fn shown(&self, value: f64) -> f64 {
        value / self.factor
    }

    /// Formats a value in the base unit with this scale.
    pub fn format(&self, value: f64) -> String {
        self.quantity(value).to_string()
    }

    /// Formats a value in the base unit with this scale. A value that this scale would distort gets
    /// its own prefix.
    pub fn quantity(&self, value: f64) -> Quantity {
        let shown = |number: String, symbol: &str| Quantity { value, number, unit: symbol.into() };
        if !value.is_finite() {
            return shown(non_finite(value), &self.symbol);
        }
        if value == 0.0 {
            return shown("0".into(), &self.symbol);
        }
        let scaled = value / self.factor;
        if !WITH_COMMON_PREFIX.contains(&scaled.abs()) {
            let (symbol, factor) = prefix(&self.unit, value.abs());
            let own = value / factor;
            // Values beyond every prefix have an exponent. Nothing is ever rounded to zero.
            if !(1e-4..1e7).contains(&own.abs()) {
                return shown(format!("{own:.2e}"), &symbol);
            }
            let decimals = decimals_of(own, FEWEST_DIGITS);
            return shown(format!("{own:.decimals$}"), &symbol);
        }
        // A value smaller than those that the scale was made for keeps its digits too.
        let decimals = self.decimals.max(decimals_of(scaled, FEWEST_DIGITS));
        shown(format!("{scaled:.decimals$}"), &self.symbol)
    }

    /// An estimate, and the ends of its interval without a unit.
    pub(crate) fn interval(&self, interval: Interval) -> [Quantity; 3] {
        let end = |value: f64| Quantity { unit: String::new(), ..self.quantity(value) };
        [self.quantity(interval.estimate), end(interval.low), end(interval.high)]
    }
}

/// A number as it is shown, with its unit.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantity {
    /// The number itself, in the base unit.
    pub value: f64,
    /// Its digits.
    pub number: String,
    /// The unit with its prefix; empty if there is none.
    pub unit: String,
}

impl Quantity {
    /// A value with its digits and unit.
    pub fn new(value: f64, number: impl Into<String>, unit: impl Into<String>) -> Self {
        Self { value, number: number.into(), unit: unit.into() }
    }

    /// Whether the value is finite.
    pub fn is_finite(&self) -> bool {
        self.value.is_finite()
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.unit.as_str() {
            "" => f.write_str(&self.number),
            unit => write!(f, "{} {unit}", self.number),
        }
    }
}

/// The number of decimals that gives a value this many significant digits.
fn decimals_of(value: f64, digits: i32) -> usize {
    (digits - 1 - value.abs().log10().floor() as i32).max(0) as usize
}

fn non_finite(value: f64) -> String {
    if value.is_nan() {
        "undefined".into()
    } else {
        if value > 0.0 { "+infinite" } else { "-infinite" }.into()
    }
}

/// The largest prefix that leaves at least 1 before the decimal point, or the smallest prefix.
fn prefix(unit: &Unit, value: f64) -> (String, f64) {
    let symbol = unit.symbol();
    let (table, suffix) = match symbol {
        "s" => (DURATION, ""),
        "B" => (BYTES, ""),
        "J" => (ENERGY, ""),
        "1" => return (String::new(), 1.0),
        _ if DECIMAL_UNITS.contains(&symbol) => (DECIMAL, symbol),
        // A manifest may name any unit.
        _ => return (crate::text::harmless(symbol), 1.0),
    };
    let (prefix, factor) = table.iter().rev().find(|(_, factor)| value >= *factor).unwrap_or(&table[0]);
    (format!("{prefix}{suffix}"), *factor)
}

/// A time in nanoseconds with its own prefix: `14.0 µs`.
pub fn duration_ns(nanoseconds: f64) -> String {
    duration(nanoseconds / 1e9).to_string()
}

/// A time in seconds with its own prefix.
pub(crate) fn duration(seconds: f64) -> Quantity {
    Scale::new(&Unit::normalise("s").0, [seconds], None).quantity(seconds)
}

/// A number of bytes (if the name ends in `_bytes`), a time (`_ns`) or a number of other things,
/// with three significant digits: `480`, `12.3k`, `64.0 KiB`, `14.0 µs`.
pub fn count(name: &str, value: f64) -> String {
    if !value.is_finite() {
        return non_finite(value);
    }
    if name.ends_with("_bytes") {
        return Scale::new(&Unit::normalise("B").0, [value], None).format(value);
    }
    if name.ends_with("_ns") {
        return duration_ns(value);
    }
    let (suffix, factor) = DECIMAL.iter().rev().find(|(_, factor)| value >= *factor).unwrap_or(&DECIMAL[0]);
    let shown = value / factor;
    if shown == shown.trunc() && shown < 1000.0 {
        return format!("{shown}{suffix}");
    }
    if shown < 1e-3 {
        return format!("{shown:.2e}");
    }
    format!("{shown:.*}{suffix}", decimals_of(shown, FEWEST_DIGITS))
}

/// A share as per cent without a sign, so that it is not taken for an effect: `0.42 %`, `0 %`.
pub fn share(fraction: f64) -> String {
    let value = fraction.abs() * 100.0;
    if value > 0.0 && value < 0.01 { "under 0.01 %".into() } else { magnitude(fraction) }
}

/// A share as a number with its unit, to a tenth of a per cent.
pub(crate) fn share_of(fraction: f64) -> Quantity {
    let rounded = (fraction * 1000.0).round() / 10.0;
    Quantity::new(fraction, rounded.to_string(), "%")
}

/// An overhead with its interval: `+12.3 % [+9.1, +15.4]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Effect {
    /// The estimate, with sign and per cent.
    pub estimate: Quantity,
    /// The lower end of the interval, in per cent, with its sign.
    pub low: Quantity,
    /// The upper end.
    pub high: Quantity,
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.estimate, self.interval())
    }
}

impl From<Interval> for Effect {
    fn from(interval: Interval) -> Self {
        Self::new(interval.estimate, interval.low, interval.high)
    }
}

impl Effect {
    /// The interval in brackets, in per cent.
    pub fn interval(&self) -> String {
        format!("[{}, {}]", self.low, self.high)
    }

    /// Makes an effect from fractions. The number of decimals follows from the half-width of the
    /// interval, and grows if a bound that is not zero would be shown as zero.
    pub fn new(estimate: f64, low: f64, high: f64) -> Self {
        let half_width = (estimate - low).abs().min((high - estimate).abs()) * 100.0;
        let mut decimals = if half_width > 0.0 && half_width.is_finite() {
            (-(half_width / 3.0).log10().floor()).clamp(0.0, 4.0) as usize
        } else {
            1
        };
        let vanishes = |bound: f64, decimals: usize| {
            bound != 0.0 && (bound * 100.0).abs() < 0.5 * 10f64.powi(-(decimals as i32))
        };
        while decimals < 4 && (vanishes(low, decimals) || vanishes(high, decimals)) {
            decimals += 1;
        }
        let end = |value: f64| Quantity::new(value, signed(value, decimals), "");
        Self {
            estimate: Quantity::new(estimate, signed(estimate, decimals), "%"),
            low: end(low),
            high: end(high),
        }
    }
}

/// A fraction as a number of per cent with a sign and without the symbol. A value that is not zero
/// is never shown as zero.
fn signed(fraction: f64, decimals: usize) -> String {
    let value = fraction * 100.0;
    if !value.is_finite() {
        return non_finite(value);
    }
    let text = format!("{value:+.decimals$}");
    let vanished = value != 0.0 && !text.bytes().any(|b| (b'1'..=b'9').contains(&b));
    if value.abs() >= 1e6 || (vanished && decimals >= 4) { format!("{value:+.2e}") } else { text }
}

/// A fraction as per cent with a sign and few digits, without the symbol: one decimal below ten,
/// then whole numbers, then three significant digits. Halves are rounded away from zero.
pub(crate) fn coarse_percent(fraction: f64) -> Quantity {
    // Without this, the binary value of a decimal half could lie below the half.
    let value = (fraction * 100.0 * 1e6).round() / 1e6;
    let number = match value.abs() {
        _ if !value.is_finite() => non_finite(value),
        size if size < 0.05 => "0.0".into(),
        size if size < 9.95 => format!("{:+.1}", (value * 10.0).round() / 10.0),
        size if size < 999.5 => format!("{:+.0}", value.round()),
        size if size < 999_500.0 => {
            let unit = 10f64.powi(size.log10().floor() as i32 - 2);
            format!("{:+.0}", (value / unit).round() * unit)
        }
        _ => format!("{value:+.1e}"),
    };
    Quantity::new(fraction, number, "")
}

/// A size of effect (a fraction without a sign) as per cent with two significant digits: `0.42 %`,
/// `6.0 %`, `12 %`.
pub fn magnitude(fraction: f64) -> String {
    size(fraction).to_string()
}

/// A size of effect as a number with its unit.
pub(crate) fn size(fraction: f64) -> Quantity {
    let value = fraction.abs() * 100.0;
    let number = if !value.is_finite() {
        non_finite(value)
    } else if value == 0.0 {
        "0".into()
    } else if !(1e-4..1e6).contains(&value) {
        format!("{value:.1e}")
    } else {
        let decimals = (1 - value.log10().floor() as i32).max(0) as usize;
        format!("{value:.decimals$}")
    };
    Quantity::new(fraction.abs(), number, "%")
}

/// The largest fraction that is shown as the smallest detectable effect. Beyond it almost no effect
/// could have been seen, and the exact size says nothing.
pub(crate) const LARGEST_DETECTABLE: f64 = 10.0;

/// The smallest effect that could have been seen.
pub(crate) fn detectable(fraction: f64) -> Quantity {
    if fraction > LARGEST_DETECTABLE { Quantity::new(fraction, "> 1000", "%") } else { size(fraction) }
}

/// A fraction as per cent with as few digits as possible: `2 %`, `0.5 %`.
pub fn plain_percent(fraction: f64) -> String {
    let rounded = (fraction * 100.0 * 1e6).round() / 1e6;
    format!("{rounded} %")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn unit(symbol: &str) -> Unit {
        Unit::normalise(symbol).0
    }

    fn one(symbol: &str, value: f64) -> String {
        Scale::new(&unit(symbol), [value], None).format(value)
    }

    #[test]
    fn detectable_effects_beyond_tenfold_have_no_size() {
        assert_eq!(detectable(0.06).to_string(), "6.0 %");
        assert_eq!(detectable(1e58).to_string(), "> 1000 %");
    }

    #[test]
    fn a_matrix_shows_few_digits_and_rounds_half_away_from_zero() {
        let shown =
            [0.0, 0.0004, -0.0125, 0.0125, 0.0994, 0.0995, 0.145, -0.765, 9.99, 103.98, 12_345.0, 9e5];
        let shown = shown.map(|fraction| coarse_percent(fraction).number);
        let few =
            ["0.0", "0.0", "-1.3", "+1.3", "+9.9", "+10", "+15", "-77", "+999", "+10400", "+1.2e6", "+9.0e7"];
        assert_eq!(shown, few);
        assert_eq!(coarse_percent(f64::INFINITY).number, "+infinite");
    }

    #[test]
    fn prefixes_follow_the_unit() {
        assert_eq!(one("s", 1.912e-4), "191 µs");
        assert_eq!(one("s", 5.03e-8), "50.3 ns");
        assert_eq!(one("s", 5e-10), "0.500 ns");
        assert_eq!(one("s", 12_345.0), "12345 s");
        assert_eq!(one("B/s", 1.234e10), "12.3 GB/s");
        assert_eq!(one("op/s", 45_678.0), "45.7 kop/s");
        assert_eq!(one("update/s", 9.6e7), "96.0 Mupdate/s");
        assert_eq!(one("B", 65_536.0), "64.0 KiB");
        assert_eq!(one("B", 3.0 * 1_073_741_824.0), "3.00 GiB");
        assert_eq!(one("1", 0.953), "0.953");
        assert_eq!(one("frames", 24.0), "24.0 frames");
        assert_eq!(one("s", 0.0), "0 s");
        assert_eq!(one("J", 0.012_34), "12.3 mJ");
        assert_eq!(one("J", 4321.0), "4.32 kJ");
    }

    #[test]
    fn rows_of_a_table_share_prefix_and_decimals() {
        let scale = Scale::new(&unit("s"), [1.912e-4, 2.4e-3], None);
        assert_eq!(scale.format(1.912e-4), "191 µs");
        assert_eq!(scale.format(2.4e-3), "2400 µs");
        assert_eq!(scale.format(1.234e-6), "1.23 µs", "what is far smaller keeps its digits");
        assert_eq!(scale.format(7.0), "7.00 s", "what is far larger gets its own prefix");
    }

    #[test]
    fn narrow_intervals_give_more_digits() {
        let scale = |width| Scale::new(&unit("s"), [0.123_456], Some(width)).format(0.123_456);
        assert_eq!(scale(0.1), "123 ms");
        assert_eq!(scale(0.004), "123.5 ms");
        assert_eq!(scale(1e-9), "123.46 ms");
    }

    #[test]
    fn effects_are_rounded_to_the_precision_of_their_interval() {
        let text = |m, l, h| Effect::new(m, l, h).to_string();
        assert_eq!(text(0.12, 0.09, 0.15), "+12 % [+9, +15]");
        assert_eq!(text(0.012, 0.004, 0.020), "+1.2 % [+0.4, +2.0]");
        assert_eq!(text(-0.0012, -0.0017, -0.0007), "-0.12 % [-0.17, -0.07]");
        assert_eq!(text(24.0, 20.0, 29.0), "+2400 % [+2000, +2900]");
        assert_eq!(
            text(0.01, 0.0001, 0.02),
            "+1.00 % [+0.01, +2.00]",
            "a bound that is not zero does not become zero"
        );
    }

    #[test]
    fn magnitudes_have_two_digits() {
        assert_eq!(magnitude(0.0042), "0.42 %");
        assert_eq!(magnitude(0.06), "6.0 %");
        assert_eq!(magnitude(0.123), "12 %");
        assert_eq!(plain_percent(0.02), "2 %");
        assert_eq!(plain_percent(0.005), "0.5 %");
    }

    #[test]
    fn counts_have_three_digits() {
        assert_eq!(count("page_faults", 12.0), "12");
        assert_eq!(count("page_faults", 0.0), "0");
        assert_eq!(count("page_faults", 480.25), "480");
        assert_eq!(count("page_faults", 12_345.0), "12.3k");
        assert_eq!(count("page_faults", 0.25), "0.250");
        assert_eq!(count("page_faults", 1.5e-7), "1.50e-7");
        assert_eq!(count("block_read_bytes", 65_536.0), "64.0 KiB");
        assert_eq!(count("cpu_stall_ns", 14_000.0), "14.0 µs");
        assert_eq!(duration_ns(14_000.0), "14.0 µs");
        assert_eq!(one("cycles", 3.2e9), "3.20 Gcycles");
        assert_eq!(share(0.0), "0 %");
        assert_eq!(share(1e-6), "under 0.01 %");
    }

    /// Parses the number at the start of a text.
    fn read(text: &str) -> f64 {
        text.split(' ').next().unwrap().parse().unwrap()
    }

    proptest! {
        #[test]
        fn any_finite_value_keeps_sign_and_unit(
            value in proptest::num::f64::NORMAL | proptest::num::f64::ZERO | proptest::num::f64::SUBNORMAL,
            symbol in proptest::sample::select(vec!["s", "B", "B/s", "op/s", "update/s", "FLOP/s", "frames", "1"]),
            other in 1e-12f64..1e12,
            width in proptest::option::of(1e-9f64..1.0),
        ) {
            let unit = unit(symbol);
            for scale in [Scale::new(&unit, [value], width), Scale::new(&unit, [value, other], width), Scale::new(&unit, [other], None)] {
                let text = scale.format(value);
                let number = read(&text);
                prop_assert_eq!(number == 0.0, value == 0.0, "{} as {}", value, text);
                if value != 0.0 {
                    prop_assert_eq!(number < 0.0, value < 0.0, "{} as {}", value, text);
                }
                if symbol != "1" {
                    let shown = text.split(' ').nth(1).unwrap_or("");
                    let (base, factor) = Unit::normalise(shown);
                    let base = if base.symbol() == shown && shown != symbol { None } else { Some(base) };
                    let suffix_kept = shown.ends_with(symbol);
                    prop_assert!(suffix_kept, "{} lost its unit {}", text, symbol);
                    // If the model knows the prefixed symbol, the text must parse back to the
                    // value.
                    if let Some(base) = base && base == unit && value != 0.0 && value.is_normal() {
                        let back = number * factor;
                        prop_assert!(((back - value) / value).abs() < 0.006, "{} as {}", value, text);
                    }
                }
            }
        }

        #[test]
        fn any_effect_keeps_its_signs(estimate in -0.999f64..1e9, a in 0.0f64..2.0, b in 0.0f64..2.0) {
            let (low, high) = (estimate - a, estimate + b);
            let effect = Effect::new(estimate, low, high);
            let bounds = [&effect.low, &effect.high].map(|end| end.number.parse::<f64>().unwrap());
            for (text, value) in [(bounds[0], low), (bounds[1], high)] {
                prop_assert_eq!(text == 0.0, value == 0.0);
                if value != 0.0 {
                    prop_assert_eq!(text < 0.0, value < 0.0);
                }
            }
            prop_assert_eq!(effect.estimate.unit, "%");
            prop_assert!(effect.estimate.number.starts_with(['+', '-']));
        }
    }
}
