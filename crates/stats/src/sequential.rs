//! The share of the error that each look of a group-sequential run may spend (method specification,
//! "Group-sequential runs").
//!
//! At n of N blocks the looks so far have spent the share (n / N)^2 of the level alpha (Lan and
//! DeMets, Biometrika 70, 1983; Kim and DeMets 1987). The statistics of the looks are jointly
//! normal with independent increments, so the boundary of each look follows from those before it by
//! numerical integration (Armitage, McPherson and Rowe 1969). A boundary is stored as its nominal
//! level, the level of a test at this look alone, and applied to the t statistic by that level
//! (Jennison and Turnbull, Group Sequential Methods, 1999, chapter 4).
//!
//! One side is integrated. A test of two sides takes half of its level for each, which ignores that
//! it might cross both.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, Normal};
use statrs::function::erf::erfc;
use std::collections::BTreeMap;
use std::f64::consts::{PI, SQRT_2};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use weigh_model::Looks;

/// Power of the spending function.
const POWER: i32 = 2;

/// Number of levels for which boundaries are computed: .5, and each following one half a decade
/// lower. Levels in between are interpolated, on logarithmic scales.
const LEVELS: i32 = 24;
const LARGEST_LEVEL: f64 = 0.5;

/// Nodes of the integral over the undecided statistics of a look, and its lower end.
const NODES: usize = 64;
const LOWEST: f64 = -8.0;

/// The look that judges a cell of a group-sequential run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SequentialLook {
    /// The looks of the run.
    pub looks: Looks,
    /// Number of blocks at this look.
    pub blocks: u32,
    /// Whether the look ends the run for a reason that does not depend on values, such as a budget,
    /// so that it may spend what is left of the level.
    pub ends: bool,
}

impl SequentialLook {
    /// The level of a one-sided test at this look that belongs to an overall level of all looks.
    pub(crate) fn nominal(self, level: f64) -> f64 {
        interpolated(&self.table(), level, |(level, nominal)| (level, nominal))
    }

    /// The overall level of all looks at which a one-sided p value of this look is on the boundary:
    /// the inverse of [`Self::nominal`]. It is a valid p value whatever look a cell stops at.
    pub(crate) fn overall(self, p: f64) -> f64 {
        interpolated(&self.table(), p, |(level, nominal)| (nominal, level))
    }

    /// Overall levels of all looks with the nominal levels of this one, both descending.
    fn table(self) -> Table {
        static TABLES: LazyLock<Mutex<BTreeMap<SequentialLook, Table>>> = LazyLock::new(Mutex::default);
        let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || {
            let levels = (0..LEVELS).map(|i| LARGEST_LEVEL * 10_f64.powf(-f64::from(i) / 2.0));
            let plan = self.plan();
            levels.map(|level| (level, *boundary(&plan, level).last().unwrap_or(&level))).collect()
        };
        Arc::clone(tables.entry(self).or_insert_with(make))
    }

    /// The looks up to this one: the share of the information and the share of the level of each.
    fn plan(self) -> Vec<(f64, f64)> {
        let share = |blocks: u32| (f64::from(blocks) / f64::from(self.looks.last())).min(1.0);
        let before = self.looks.before(self.blocks);
        let mut plan: Vec<(f64, f64)> = before.map(|n| (share(n), share(n).powi(POWER))).collect();
        let spent = if self.ends { 1.0 } else { share(self.blocks).powi(POWER) };
        plan.push((f64::from(self.blocks) / f64::from(self.looks.last()), spent));
        plan
    }
}

type Table = Arc<[(f64, f64)]>;

/// The second numbers of the pairs, interpolated at `x`; both columns fall, and extend to 1.
fn interpolated(table: &[(f64, f64)], x: f64, pair: impl Fn((f64, f64)) -> (f64, f64)) -> f64 {
    let at = |i: usize| pair(table[i]);
    let (first, last) = (at(0), at(table.len() - 1));
    if x >= first.0 {
        return (first.1 + (1.0 - first.1) * (x - first.0) / (1.0 - first.0)).min(1.0);
    }
    if x <= last.0 {
        return x * last.1 / last.0;
    }
    let above = (1..table.len()).find(|i| at(*i).0 <= x).unwrap_or(table.len() - 1);
    let ((x0, y0), (x1, y1)) = (at(above - 1), at(above));
    let share = (x / x0).ln() / (x1 / x0).ln();
    y0 * (y1 / y0).powf(share)
}

/// The nominal level of every look of a one-sided test at `level`, given the share of the
/// information and the share of the level that is spent up to each look.
fn boundary(plan: &[(f64, f64)], level: f64) -> Vec<f64> {
    let mut walk = Walk::default();
    let mut spent = 0.0;
    let mut nominal = Vec::new();
    for &(information, share) in plan {
        let spends = (share - spent) * level;
        spent = share;
        let critical = walk.critical(information, spends);
        walk.look(information, critical);
        nominal.push(above(critical));
    }
    nominal
}

/// The distribution of the statistic over the looks so far, while within all boundaries.
#[derive(Default)]
struct Walk {
    information: f64,
    /// Values of the statistic at the last look, each with its mass; empty before the first.
    mass: Vec<(f64, f64)>,
}

impl Walk {
    /// The probability that the next look lies beyond a value, and its density there.
    fn beyond(&self, information: f64, value: f64) -> (f64, f64) {
        if self.mass.is_empty() {
            return (above(value), density(value));
        }
        let carried = (self.information / information).sqrt();
        let sd = (1.0 - carried * carried).sqrt();
        let add = |(p, d): (f64, f64), &(z, mass): &(f64, f64)| {
            let distance = (value - carried * z) / sd;
            (p + mass * above(distance), d + mass * density(distance) / sd)
        };
        self.mass.iter().fold((0.0, 0.0), add)
    }

    /// The value that the next look exceeds with probability `p`, by Newton's method on the
    /// logarithm, which is concave.
    fn critical(&self, information: f64, p: f64) -> f64 {
        let mut value = -Normal::standard().inverse_cdf(p.clamp(f64::MIN_POSITIVE, 0.5));
        for _ in 0..60 {
            let (found, density) = self.beyond(information, value);
            let step = found * (found / p).ln() / density;
            if !step.is_finite() {
                break;
            }
            value += step.clamp(-1.0, 1.0);
            if step.abs() < 1e-10 {
                break;
            }
        }
        value
    }

    /// Advances to the next look, with the mass that is not beyond its boundary.
    fn look(&mut self, information: f64, critical: f64) {
        let (middle, half) = (f64::midpoint(LOWEST, critical), (critical - LOWEST) / 2.0);
        let node = |&(node, weight): &(f64, f64)| {
            let z = middle + half * node;
            (z, half * weight * self.beyond(information, z).1)
        };
        let mass = NODES_AND_WEIGHTS.iter().map(node).collect();
        *self = Self { information, mass };
    }
}

/// Nodes and weights of the Gauss-Legendre rule on [-1, 1].
static NODES_AND_WEIGHTS: LazyLock<Vec<(f64, f64)>> = LazyLock::new(|| {
    let n = NODES as f64;
    let one = |i: usize| {
        let mut x = (PI * (i as f64 + 0.75) / (n + 0.5)).cos();
        let mut slope = 1.0;
        for _ in 0..8 {
            let (mut p, mut before) = (1.0, 0.0);
            for j in 0..NODES {
                let j = j as f64;
                (p, before) = (((2.0 * j + 1.0) * x * p - j * before) / (j + 1.0), p);
            }
            slope = n * (x * p - before) / (x * x - 1.0);
            x -= p / slope;
        }
        (x, 2.0 / ((1.0 - x * x) * slope * slope))
    };
    (0..NODES).map(one).collect()
});

/// The probability that a standard normal variable exceeds `z`.
fn above(z: f64) -> f64 {
    0.5 * erfc(z / SQRT_2)
}

fn density(z: f64) -> f64 {
    (-0.5 * z * z).exp() / (2.0 * PI).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64, tolerance: f64) {
        assert!((found - expected).abs() < tolerance, "{found} is not {expected}");
    }

    /// The probability that a one-sided test crosses one of these boundaries at equally spaced
    /// looks.
    fn crosses(boundaries: &[f64]) -> f64 {
        let mut walk = Walk::default();
        let mut crossed = 0.0;
        for (at, value) in (1..).zip(boundaries) {
            let information = f64::from(at);
            crossed += walk.beyond(information, *value).0;
            walk.look(information, *value);
        }
        crossed
    }

    /// Jennison and Turnbull (1999), tables 2.1 and 2.3: constants of Pocock's and of O'Brien and
    /// Fleming's tests of two sides at the level .05. They have four digits.
    #[test]
    fn crossing_probabilities_are_those_of_the_published_tests() {
        let pocock = [
            (1, 1.960),
            (2, 2.178),
            (3, 2.289),
            (4, 2.361),
            (5, 2.413),
            (8, 2.512),
            (10, 2.555),
            (20, 2.672),
        ];
        for (looks, constant) in pocock {
            close(2.0 * crosses(&vec![constant; looks]), 0.05, 2e-4);
        }
        let obrien_fleming = [(2, 1.977), (3, 2.004), (4, 2.024), (5, 2.040), (10, 2.087), (20, 2.126)];
        for (looks, constant) in obrien_fleming {
            let boundaries: Vec<f64> =
                (1..=looks).map(|k| constant * (f64::from(looks) / f64::from(k)).sqrt()).collect();
            close(2.0 * crosses(&boundaries), 0.05, 2e-4);
        }
    }

    /// The boundaries of Lan and DeMets' spending function 2 - 2 Phi(z / sqrt(t)) at five equally
    /// spaced looks, level .05 of two sides, as published.
    #[test]
    fn spending_gives_the_published_boundaries() {
        let shares: Vec<(f64, f64)> = (1..=5)
            .map(|k| {
                let t = f64::from(k) / 5.0;
                (t, 2.0 * above(2.241_402_728 / t.sqrt()) / 0.025)
            })
            .collect();
        let found = boundary(&shares, 0.025);
        for (nominal, expected) in found.iter().zip([4.8769, 3.3569, 2.6803, 2.2898, 2.0310]) {
            close(-Normal::standard().inverse_cdf(*nominal), expected, 6e-4);
        }
    }

    fn at(blocks: u32) -> SequentialLook {
        SequentialLook { looks: Looks::STANDARD, blocks, ends: false }
    }

    #[test]
    fn the_first_look_has_its_share_and_each_later_one_more() {
        close(at(10).nominal(0.025) / (0.025 / 36.0), 1.0, 1e-9);
        let nominal: Vec<f64> = (2..=12).map(|k| at(5 * k).nominal(0.025)).collect();
        assert!(nominal.is_sorted_by(|a, b| a < b), "{nominal:?}");
        assert!(nominal[10] < 0.025 && nominal[10] > 0.012, "{nominal:?}");
        let shares = at(60).plan();
        close(shares.iter().map(|(_, spent)| *spent).fold(0.0, f64::max), 1.0, 1e-12);
    }

    #[test]
    fn a_smaller_level_has_a_smaller_boundary_and_the_inverse_finds_it() {
        for look in [at(10), at(35), at(60), SequentialLook { ends: true, ..at(33) }] {
            let mut before = 1.1;
            for exponent in 0..60 {
                let level = 10_f64.powf(-f64::from(exponent) / 4.0);
                let nominal = look.nominal(level);
                assert!(nominal < before && nominal <= level, "{look:?}, {level}: {nominal}");
                close(look.overall(nominal) / level, 1.0, 1e-9);
                before = nominal;
            }
        }
    }

    /// Interpolation moves a level by less than half of a per cent of itself.
    #[test]
    fn interpolated_levels_are_those_of_the_integral() {
        for level in [0.025, 0.025 / 7.0, 0.025 / 12.0, 0.025 / 90.0, 3e-7] {
            for blocks in [10, 30, 60] {
                let exact = *boundary(&at(blocks).plan(), level).last().unwrap();
                close(at(blocks).nominal(level) / exact, 1.0, 5e-3);
            }
        }
    }

    #[test]
    fn a_run_that_ends_early_by_a_rule_spends_the_remaining_error() {
        let ended = SequentialLook { ends: true, ..at(33) };
        assert!(ended.nominal(0.025) > 1.9 * at(30).nominal(0.025));
        close(SequentialLook { ends: true, ..at(60) }.nominal(0.025) / at(60).nominal(0.025), 1.0, 1e-12);
        let only = SequentialLook { ends: true, ..at(7) };
        close(only.nominal(0.025), 0.025, 1e-9);
    }
}
