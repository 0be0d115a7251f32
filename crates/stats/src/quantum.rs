//! The step to which values are rounded.
//!
//! A clock that ticks, a tool that prints whole milliseconds and a counter have values on a grid.
//! The distance of neighbouring values there is the quantum. Continuous values hardly ever repeat,
//! so a series with repeated values is taken to be rounded. Its quantum, or a small multiple of it,
//! is the largest number that all its values are multiples of.

use crate::analysis::Summary;
use crate::rank;

/// Values that differ by less than this part of them are equal: conversion by a factor, or to a
/// logarithm and back, moves a value by a few parts in 10^16.
const SAME: f64 = 1e-12;

/// A remainder below this part of the numbers that are divided counts as none.
const NO_REMAINDER: f64 = 1e-10;

/// The smallest distance between rounded values is hardly ever more quanta than this. Inverses of
/// rounded values have a common divisor, too, but a much smaller one.
const MOST_QUANTA: f64 = 4.0;

/// Number of significant decimal digits that a value is taken to have.
const DIGITS: usize = 12;

/// Values that spread over this many quanta or more (standard deviation) are not biased by
/// rounding: it adds noise to them, which their spread contains. Values on two neighbouring places
/// of the grid spread over at most .5 sqrt(2) = .707 quanta. Of normal values that spread further,
/// rounding moves the mean by less than a ten thousandth of a quantum.
const DITHERED: f64 = 0.71;

/// Values farther than so many quanta from the median count as this far from it: a few slow blocks,
/// one of six and up to a quarter of more, do not spread the others over the grid.
const FAR: f64 = 1.5;

/// How rounding may move the mean logarithm of a series.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Rounding {
    /// The quantum over the median of the values; 0 if rounding moves no mean.
    pub relative_quantum: f64,
}

impl Rounding {
    /// The rounding of the positive values of a series, which is compared with `beside`.
    pub fn of(values: &[f64], beside: &[f64]) -> Self {
        let Some((quantum, median)) = of(values, beside).zip(rank::median_of(values.iter().copied())) else {
            return Self::default();
        };
        let (low, high) = (median - FAR * quantum, median + FAR * quantum);
        let near: Vec<f64> = values.iter().map(|value| value.clamp(low, high)).collect();
        let sd = Summary::of(&near).and_then(|near| near.sd);
        let is_dithered = sd.is_some_and(|sd| sd >= DITHERED * quantum);
        Self { relative_quantum: if is_dithered { 0.0 } else { quantum / median } }
    }

    /// The largest shift of the mean logarithm: half of a quantum.
    pub fn largest_bias(self) -> f64 {
        self.relative_quantum / 2.0
    }
}

/// The quantum of positive values, in their unit. None if no value repeats.
///
/// If all values are equal, the quantum is that of the values that they are compared with. If those
/// are all equal, too, it is the largest number that both are multiples of, and if the two are the
/// same it is the last decimal place that the value needs: 1 for 10 and .01 for 10.25. Beside
/// values that do not repeat, equal values are taken as exact.
fn of(values: &[f64], beside: &[f64]) -> Option<f64> {
    let (own, other) = (levels(values), levels(beside));
    let repeats = |levels: &[f64], values: &[f64]| levels.len() < values.len();
    if !repeats(&own, values) {
        return None;
    }
    match (own.as_slice(), other.as_slice()) {
        ([one], []) => Some(last_decimal_place(*one)),
        ([_], _) if !repeats(&other, beside) => None,
        ([one], [another]) if is_same(*one, *another) => Some(last_decimal_place(*one)),
        ([one], [another]) => Some(common_divisor(*one, *another)),
        ([_], others) => step(others),
        (levels, _) => step(levels),
    }
}

/// The largest number that all levels are multiples of. If there is none, they are means of two
/// rounded values, or inverses, and the result is twice the smallest distance between levels.
fn step(ascending: &[f64]) -> Option<f64> {
    let least = ascending.windows(2).map(|pair| pair[1] - pair[0]).reduce(f64::min)?;
    let divisor = ascending.iter().copied().reduce(common_divisor)?;
    Some(if divisor < least / MOST_QUANTA { 2.0 * least } else { divisor })
}

/// The largest number that two positive numbers are multiples of, to within rounding (Euclid).
fn common_divisor(one: f64, other: f64) -> f64 {
    let nothing = one.max(other) * NO_REMAINDER;
    let (mut larger, mut smaller) = (one.max(other), one.min(other));
    while smaller > nothing {
        let remainder = larger - smaller * (larger / smaller).round();
        (larger, smaller) = (smaller, remainder.abs());
    }
    larger
}

/// The quantum of values whose logarithms are given, as a part of their median; 0 if they are not
/// rounded.
pub(crate) fn of_logs(logs: &[f64]) -> f64 {
    let values: Vec<f64> = logs.iter().map(|log| log.exp()).collect();
    let quantum = of(&values, &[]).zip(rank::median_of(values.iter().copied()));
    quantum.map_or(0.0, |(quantum, middle)| quantum / middle)
}

/// The distinct values, ascending.
fn levels(values: &[f64]) -> Vec<f64> {
    let mut ascending = rank::sorted(values.iter().copied());
    ascending.dedup_by(|later, kept| is_same(*kept, *later));
    ascending
}

fn is_same(one: f64, other: f64) -> bool {
    (one - other).abs() <= SAME * one.abs()
}

fn last_decimal_place(value: f64) -> f64 {
    let written = format!("{value:.*e}", DIGITS - 1);
    let (digits, exponent) = written.split_once('e').expect("a number with an exponent has an e");
    let decimals = digits.trim_end_matches('0').trim_end_matches('.').len().saturating_sub(2);
    let exponent: i32 = exponent.parse().expect("an exponent is a whole number");
    10f64.powi((exponent - decimals as i32).min(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: Option<f64>, expected: f64) {
        let found = found.expect("values repeat");
        assert!((found / expected - 1.0).abs() < 1e-9, "{found} is not {expected}");
    }

    #[test]
    fn repeated_values_have_the_step_between_them() {
        close(of(&[10.0, 10.0, 11.0, 13.0], &[]), 1.0);
        close(of(&[0.010, 0.010, 0.011], &[0.5, 0.5, 0.500001]), 0.001);
        close(of(&[0.1 + 0.2, 0.3, 0.4], &[]), 0.1);
        close(of(&[10.0, 10.0, 12.0, 15.0], &[]), 1.0);
        assert_eq!(of(&[10.0, 10.5, 11.0], &[10.0, 10.0, 11.0]), None);
        assert_eq!(of(&[], &[]), None);
    }

    /// The value of a block of two iterations is their geometric mean, and a rate is an inverse.
    #[test]
    fn means_and_inverses_of_rounded_values_have_about_their_step() {
        let found = of(&[10.0, 10.0, 110f64.sqrt()], &[]).unwrap();
        assert!((0.95..1.05).contains(&found), "{found}");
        let found = of(&[1.0 / 10.0, 1.0 / 10.0, 1.0 / 11.0, 1.0 / 13.0], &[]).unwrap() / (1.0 / 10.0);
        assert!((0.05..0.25).contains(&found), "{found}");
    }

    #[test]
    fn equal_values_take_it_from_those_beside() {
        for (one, other, quantum) in [(10.0, 11.0, 1.0), (0.010, 0.012, 0.002), (0.01001, 0.012, 1e-5)] {
            close(of(&[one; 3], &[other; 3]), quantum);
            close(of(&[other; 3], &[one; 3]), quantum);
        }
        close(of(&[10.0; 3], &[11.0, 11.5, 11.5]), 0.5);
        assert_eq!(of(&[10.0; 3], &[10.013, 10.718, 11.2]), None);
    }

    #[test]
    fn equal_values_alone_have_their_last_decimal_place() {
        for (value, place) in [(10.0, 1.0), (120.0, 1.0), (10.25, 0.01), (0.011, 0.001), (0.1 + 0.2, 0.1)] {
            close(of(&[value; 3], &[value; 3]), place);
        }
        // The last decimal place of a number of twelve digits.
        close(of(&[1.0 / 3.0; 2], &[]), 1e-12);
    }

    #[test]
    fn values_spread_over_the_quantum_are_not_biased() {
        assert_eq!(Rounding::of(&[10.0, 10.0, 10.0, 11.0], &[]).largest_bias(), 0.05);
        assert_eq!(Rounding::of(&[9.0, 10.0, 10.0, 11.0], &[]).largest_bias(), 0.0);
        assert_eq!(Rounding::of(&[9.0, 10.1, 10.2, 11.4], &[]).largest_bias(), 0.0);
        for (level, slow) in [(5, 1), (9, 3), (23, 7)] {
            let values = [vec![10.0; level], vec![13.0; slow]].concat();
            assert_eq!(Rounding::of(&values, &[]).largest_bias(), 0.05, "{slow} slow");
        }
    }
}
