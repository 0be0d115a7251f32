//! The step in which rounded values are printed.
//!
//! A clock that ticks, a tool that prints whole milliseconds and a counter have values on a grid.
//! The distance of neighbouring values there is the quantum. Continuous values hardly ever repeat,
//! so a series of which some values repeat is taken for rounded, and the least distance between two
//! different values is its quantum, or a small multiple of it.

use crate::rank;

/// Values that differ by less than this part of them are equal: a factor of a unit, or a logarithm
/// and back, moves a value by a few parts in 10^16.
const SAME: f64 = 1e-12;

/// Digits that a number written in decimals is taken to have.
const DIGITS: usize = 12;

/// The quantum of the positive values of several series of one metric, in its unit. None unless
/// values repeat in every series of two or more: one series without repetition has finer steps than
/// can be seen.
///
/// Where all values of all series are equal, their distances say nothing, and the quantum is the
/// last decimal place that the value needs: 1 for 10 and .01 for 10.25.
pub(crate) fn of(series: &[&[f64]]) -> Option<f64> {
    if series.iter().any(|values| !repeats(values)) {
        return None;
    }
    let levels = levels(series.iter().flat_map(|values| values.iter().copied()));
    let steps = levels.windows(2).map(|pair| pair[1] - pair[0]);
    match levels.as_slice() {
        [] => None,
        [one] => Some(last_decimal_place(*one)),
        _ => steps.reduce(f64::min),
    }
}

/// The quantum of values whose logarithms are given, as a part of their median; 0 where they are not
/// rounded.
pub(crate) fn of_logs(logs: &[f64]) -> f64 {
    let values: Vec<f64> = logs.iter().map(|log| log.exp()).collect();
    let quantum = of(&[&values]).zip(rank::median_of(values.iter().copied()));
    quantum.map_or(0.0, |(quantum, middle)| quantum / middle)
}

/// Whether some value occurs twice; true of a series too short to tell.
fn repeats(values: &[f64]) -> bool {
    values.len() < 2 || levels(values.iter().copied()).len() < values.len()
}

/// The different values, ascending.
fn levels(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut ascending = rank::sorted(values);
    ascending.dedup_by(|later, kept| (*later - *kept).abs() <= SAME * kept.abs());
    ascending
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
        close(of(&[&[10.0, 10.0, 11.0], &[11.0, 11.0, 13.0]]), 1.0);
        close(of(&[&[0.010, 0.010], &[0.011, 0.011]]), 0.001);
        close(of(&[&[0.1 + 0.2, 0.3, 0.4]]), 0.1);
    }

    #[test]
    fn one_series_without_repetition_is_continuous() {
        assert_eq!(of(&[&[10.0, 10.0, 10.0], &[10.013, 10.718, 11.2]]), None);
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn equal_values_have_their_last_decimal_place() {
        for (value, place) in [(10.0, 1.0), (120.0, 1.0), (10.25, 0.01), (0.011, 0.001), (0.1 + 0.2, 0.1)] {
            close(of(&[&[value; 3], &[value; 3]]), place);
        }
        // The last of what a number of twelve digits shows.
        close(of(&[&[1.0 / 3.0; 2]]), 1e-12);
    }
}
