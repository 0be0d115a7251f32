//! Combines several estimates into one: as units of a kind, or as strata.

use crate::estimate::Estimate;
use crate::random_effects::RandomEffects;

/// Which machines the intervals of a pool are about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Scope {
    /// Machines like these: the machine is the unit.
    #[default]
    LikeThese,
    /// These machines alone: the block is the unit, and the machine is a stratum.
    TheseAlone,
}

impl Scope {
    /// The combined estimate of several runs of a machine, or of several machines.
    pub(super) fn combined(self, of: &[Estimate]) -> Option<Estimate> {
        match self {
            Self::LikeThese => RandomEffects::of(of).map(|effects| effects.mean).or(of.first().copied()),
            Self::TheseAlone => stratified(of),
        }
    }

    /// The weight of each estimate in the combined one; the weights add up to 1.
    pub(super) fn weights(self, of: &[Estimate]) -> Vec<f64> {
        match self {
            Self::LikeThese => vec![1.0 / of.len() as f64; of.len()],
            Self::TheseAlone => parts(of).collect(),
        }
    }

    /// The number of blocks to report for several estimates.
    pub(super) fn blocks(self, of: impl Iterator<Item = u32>) -> u32 {
        match self {
            Self::LikeThese => of.min().unwrap_or(0),
            Self::TheseAlone => of.fold(0, u32::saturating_add),
        }
    }
}

/// The share of each stratum in all blocks.
fn parts(strata: &[Estimate]) -> impl Iterator<Item = f64> {
    let all: f64 = strata.iter().map(|one| f64::from(one.n)).sum();
    strata.iter().map(move |one| f64::from(one.n) / all)
}

/// The mean over the blocks of all strata; see [`super::join_shares`].
fn stratified(strata: &[Estimate]) -> Option<Estimate> {
    let first = strata.first()?;
    if strata.len() == 1 {
        return Some(*first);
    }
    let variances: Vec<(f64, f64)> = strata
        .iter()
        .zip(parts(strata))
        .map(|(one, part)| ((part * one.standard_error).powi(2), one.df))
        .collect();
    let variance: f64 = variances.iter().map(|(own, _)| own).sum();
    let spread: f64 = variances.iter().map(|(own, df)| own.powi(2) / df).sum();
    Some(Estimate {
        mean: strata.iter().zip(parts(strata)).map(|(one, part)| part * one.mean).sum(),
        standard_error: variance.sqrt(),
        df: if spread > 0.0 { variance.powi(2) / spread } else { strata.iter().map(|one| one.df).sum() },
        n: strata.iter().fold(0, |n, one| n.saturating_add(one.n)),
        rounding: strata.iter().map(|one| one.rounding).fold(0.0, f64::max),
        look: None,
    })
}
