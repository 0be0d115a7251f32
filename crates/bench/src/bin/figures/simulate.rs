//! Seeded samples, and their analysis by the product's statistics.

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use weigh_model::{Comparison, MetricSpec, Observation, Series};
use weigh_stats::{Cell, Options, analyse};

/// A generator of random numbers.
pub struct Random(Pcg64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(Pcg64::seed_from_u64(seed))
    }

    /// Uniform in (0, 1).
    pub fn uniform(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Standard normal (Box and Muller 1958).
    pub fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// AR(1) with a standard deviation of 1.
    pub fn drift(&mut self, rho: f64, length: usize) -> Vec<f64> {
        let mut level = self.normal();
        (0..length)
            .map(|_| {
                level = rho * level + (1.0 - rho * rho).sqrt() * self.normal();
                level
            })
            .collect()
    }
}

/// How two environments' samples are paired.
#[derive(Clone, Copy, PartialEq)]
pub enum Pairs {
    /// By position, as blocks are.
    Blocks,
    /// Not paired.
    None,
}

/// The cell of the second of two environments; their costs are given as logarithms.
pub fn cell(first: &[f64], second: &[f64], pairs: Pairs) -> Cell {
    cell_within(Options::MARGIN, first, second, pairs)
}

/// The same with another margin.
pub fn cell_within(margin: f64, first: &[f64], second: &[f64], pairs: Pairs) -> Cell {
    let series = |name: &str, logs: &[f64]| Series {
        environment: name.into(),
        observations: (0u32..)
            .zip(logs)
            .map(|(block, log)| Observation {
                block: (pairs == Pairs::Blocks).then_some(block),
                value: log.exp(),
            })
            .collect(),
        failed: 0,
        tried: logs.len() as u32,
    };
    let comparison = Comparison {
        workload: "figure".into(),
        key: Default::default(),
        metric: MetricSpec::time("time"),
        series: vec![series("a", first), series("b", second)],
    };
    let analysis = analyse(&[comparison], &Options { margin, ..Options::new("a") });
    analysis
        .cells
        .into_iter()
        .find(|cell| cell.environment == "b")
        .expect("the second environment has a cell")
}

/// The cell of log ratios.
pub fn cell_of_ratios(ratios: &[f64]) -> Cell {
    cell(&vec![0.0; ratios.len()], ratios, Pairs::Blocks)
}

/// `count` log ratios whose mean and standard deviation are exactly the ones given.
pub fn exactly(mean: f64, sd: f64, count: usize, random: &mut Random) -> Vec<f64> {
    let raw: Vec<f64> = (0..count).map(|_| random.normal()).collect();
    let centre = raw.iter().sum::<f64>() / count as f64;
    let spread = (raw.iter().map(|x| (x - centre).powi(2)).sum::<f64>() / (count - 1) as f64).sqrt();
    raw.iter().map(|x| mean + sd * (x - centre) / spread).collect()
}
