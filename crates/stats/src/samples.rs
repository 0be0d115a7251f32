//! Reduces the observations of a series to one number per block, and pairs two series by block.

use crate::analysis::Summary;
use crate::estimate::count;
use crate::rank;
use std::borrow::Cow;
use weigh_model::{Better, Observation};

/// Which observations of a series name their block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocks {
    All,
    Some,
    None,
}

/// One series in order.
#[derive(Debug)]
pub(crate) struct Sample {
    /// Finite values, one per block, in the order of the blocks; those without a block stay in
    /// order.
    pub values: Vec<Observation>,
    /// Log costs of the values that can be a cost, in the same order.
    pub logs: Vec<(Option<u32>, f64)>,
    /// Number of observations that cannot be a cost.
    pub unusable: u32,
    /// The first unusable observation.
    pub first_unusable: Option<Observation>,
    /// Number of blocks with several observations.
    pub repeated_blocks: u32,
    /// Which observations name their block.
    pub blocks: Blocks,
}

impl Sample {
    /// Puts a series in order. Several values of one block become their median: they share the
    /// state of one instance and are not independent samples.
    pub fn new(observations: &[Observation], better: Better) -> Self {
        let with_block = observations.iter().filter(|o| o.block.is_some()).count();
        let blocks = match with_block {
            0 => Blocks::None,
            n if n == observations.len() => Blocks::All,
            _ => Blocks::Some,
        };
        let ordered = if observations.is_sorted_by_key(|o| o.block) {
            Cow::Borrowed(observations)
        } else {
            let mut owned = observations.to_vec();
            owned.sort_by_key(|o| o.block);
            Cow::Owned(owned)
        };
        let mut sample = Self {
            values: Vec::with_capacity(ordered.len()),
            logs: Vec::with_capacity(ordered.len()),
            unusable: 0,
            first_unusable: None,
            repeated_blocks: 0,
            blocks,
        };
        for group in ordered.chunk_by(|a, b| a.block.is_some() && a.block == b.block) {
            sample.take(group, better);
        }
        sample
    }

    /// Takes the observations of one block, or one observation without a block.
    fn take(&mut self, group: &[Observation], better: Better) {
        let block = group[0].block;
        self.repeated_blocks += u32::from(group.len() > 1);
        let bad = group.iter().filter(|o| !is_cost(o.value));
        self.unusable += count(bad.clone().count());
        let first_bad = bad.clone().next().copied();
        self.first_unusable = self.first_unusable.or(first_bad);
        let value = match group {
            [one] => Some(one.value),
            several => median_iteration(several.iter().map(|o| o.value).filter(|v| v.is_finite())),
        };
        let Some(value) = value.filter(|v| v.is_finite()) else { return };
        self.values.push(Observation { block, value });
        if first_bad.is_none() {
            self.logs.push((block, better.log_cost(value)));
        }
    }

    /// The log costs without their blocks.
    pub fn log_costs(&self) -> Vec<f64> {
        self.logs.iter().map(|(_, log)| *log).collect()
    }

    /// The values that can be a cost, without their blocks.
    pub fn costs(&self) -> Vec<f64> {
        self.values.iter().map(|o| o.value).filter(|value| is_cost(*value)).collect()
    }

    /// Summary of the absolute values; none without values.
    pub fn summary(&self) -> Option<Summary> {
        Summary::of(&self.values.iter().map(|o| o.value).collect::<Vec<_>>())
    }
}

impl Summary {
    /// Summarises numbers in any order; none without numbers.
    pub fn of(values: &[f64]) -> Option<Self> {
        let ascending = rank::sorted(values.iter().copied());
        let n = ascending.len() as f64;
        let (min, max) = (*ascending.first()?, *ascending.last()?);
        let mean = ascending.iter().sum::<f64>() / n;
        let squares: f64 = ascending.iter().map(|x| (x - mean).powi(2)).sum();
        Some(Self {
            median: rank::median(&ascending),
            mean,
            sd: (ascending.len() > 1).then(|| (squares / (n - 1.0)).sqrt()),
            min,
            p05: rank::quantile(&ascending, 0.05),
            p95: rank::quantile(&ascending, 0.95),
            max,
        })
    }
}

/// Whether a value can be a cost: finite and positive.
pub(crate) fn is_cost(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

/// The median iteration on the log scale. For an even number it is the geometric mean of the two in
/// the middle, so that a rate gives the same as the duration it is made from, and that the median
/// of a few scattered iterations is no larger than that of steady ones. If one of the two is not
/// positive, it is their arithmetic mean.
pub(crate) fn median_iteration(values: impl Iterator<Item = f64>) -> Option<f64> {
    let ascending = rank::sorted(values);
    let upper = *ascending.get(ascending.len() / 2)?;
    let lower = ascending[(ascending.len() - 1) / 2];
    Some(if lower > 0.0 { lower * (upper / lower).sqrt() } else { f64::midpoint(lower, upper) })
}

/// Log cost of `one` less that of `baseline` for every block that both have, in the order of the
/// blocks.
pub(crate) fn pair(one: &Sample, baseline: &Sample) -> Vec<(u32, f64)> {
    let mut others = baseline.logs.iter().peekable();
    let mut pairs = Vec::with_capacity(one.logs.len().min(baseline.logs.len()));
    for &(block, log) in &one.logs {
        let Some(block) = block else { continue };
        while others.next_if(|(other, _)| *other < Some(block)).is_some() {}
        if let Some((_, other_log)) = others.next_if(|(other, _)| *other == Some(block)) {
            pairs.push((block, log - other_log));
        }
    }
    pairs
}
