//! The number of blocks that find a difference, as a pilot predicts it, and whether more iterations
//! or more launches make that cheaper (method specification, "Planning a run").
//!
//! A pilot is blind. Only the spread of its log ratios is used; their means, the effects, enter no
//! number here and are in none of these types.

use crate::analysis::{Flag, Options};
use crate::circumstances::{SpreadParts, SpreadSummary};
use crate::estimate::{Estimate, count};
use crate::{analyse, collect, rank};
use serde::{Deserialize, Serialize};
use statrs::distribution::{ChiSquared, ContinuousCDF};
use std::collections::{BTreeMap, BTreeSet};
use weigh_model::{Looks, Plan, Record};

/// Number of blocks of a pilot.
pub const PILOT_BLOCKS: u32 = 6;
/// Confidence of the upper bound on the spread.
const BOUND_CONFIDENCE: f64 = 0.80;
/// Another number of iterations is proposed if it saves more than this part of the time.
const WORTH_A_CHANGE: f64 = 0.10;

/// The spread of the log ratios of a cell from block to block, as a pilot estimates it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PilotSpread {
    /// Number of pairs of blocks.
    pub n: u32,
    /// Standard deviation of the log ratio.
    pub sd: f64,
    /// Upper bound on the standard deviation, with 80 % confidence.
    pub bound: f64,
}

impl PilotSpread {
    /// Estimates the spread from the log ratios of the blocks. None below two.
    ///
    /// For normal log ratios (k - 1) s^2 / sigma^2 has a chi-square distribution with k - 1 degrees
    /// of freedom: sigma <= s sqrt((k - 1) / chi2(.20, k - 1)) in 80 % of pilots. With six blocks
    /// the bound is 1.46 times the standard deviation that was seen.
    ///
    /// ```
    /// use weigh_stats::PilotSpread;
    /// let spread = PilotSpread::of(&[0.00, 0.02, -0.01, 0.01, 0.03, 0.01]).expect("six blocks");
    /// assert!((spread.sd - 0.01414).abs() < 1e-5);
    /// // chi2(.20, 5) = 2.3425.
    /// assert!((spread.bound / spread.sd - 1.4610).abs() < 1e-4);
    /// ```
    pub fn of(log_ratios: &[f64]) -> Option<Self> {
        let estimate = Estimate::of(log_ratios)?;
        let chi_square = ChiSquared::new(estimate.df).expect("there are two values at least");
        let factor = (estimate.df / chi_square.inverse_cdf(1.0 - BOUND_CONFIDENCE)).sqrt();
        let sd = estimate.standard_error * f64::from(estimate.n).sqrt();
        Some(Self { n: estimate.n, sd, bound: sd * factor })
    }

    /// The spread with units `times` times as long. `within` is the standard deviation that the
    /// parts leave in a unit's value; this part of the variance falls with their number, the rest
    /// stays:
    ///
    /// ```text
    /// sd(times)^2 = sd^2 - within^2 (1 - 1 / times), and at least within^2 / times; bound likewise
    /// ```
    ///
    /// `within` comes from the parts of all units and is known much better than `sd`: if `bound` is
    /// an upper bound, so is the new one.
    ///
    /// ```
    /// use weigh_stats::PilotSpread;
    /// let spread = PilotSpread { n: 6, sd: 0.05, bound: 0.073 };
    /// // A variance within of .04^2, of which four times the parts leave a quarter.
    /// let longer = spread.with_units(0.04, 4.0);
    /// assert!((longer.sd - (0.0025_f64 - 0.0012).sqrt()).abs() < 1e-12);
    /// ```
    #[must_use]
    pub fn with_units(self, within: f64, times: f64) -> Self {
        let within = within.powi(2);
        let of = |sd: f64| (sd.powi(2) - within * (1.0 - 1.0 / times)).max(within / times).sqrt();
        Self { sd: of(self.sd), bound: of(self.bound), ..self }
    }

    /// The smallest number of blocks that finds an effect of `detect` (.01 is 1 %) in a family of
    /// `comparisons` with 80 % power, if the standard deviation is [`Self::bound`]:
    ///
    /// ```text
    /// F(ln(1 + detect) sqrt(K) / bound - t(1 - .025 / comparisons)) >= .80      t, F: K - 1 df
    /// ```
    ///
    /// The level is that of Holm's method for a cell beside which no other is found different. The
    /// number is at least ten blocks, those of the first look of a group-sequential run; none if a
    /// million blocks would not suffice.
    ///
    /// ```
    /// use weigh_stats::PilotSpread;
    /// let spread = PilotSpread { n: 6, sd: 0.01, bound: 0.0146 };
    /// assert_eq!(spread.blocks_to_detect(0.01, 1), Some(19));
    /// assert_eq!(spread.blocks_to_detect(0.01, 12), Some(34));
    /// assert_eq!(spread.blocks_to_detect(0.10, 1), Some(10));
    /// ```
    pub fn blocks_to_detect(&self, detect: f64, comparisons: usize) -> Option<u32> {
        let pilot = Estimate {
            mean: detect.ln_1p(),
            standard_error: self.bound / f64::from(self.n).sqrt(),
            df: f64::from(self.n) - 1.0,
            n: self.n,
            rounding: 0.0,
            look: None,
        };
        let blocks = pilot.blocks_to_differ(f64::from(count(comparisons.max(1))))?;
        Some(blocks.max(Looks::STANDARD.first()))
    }
}

/// The run that a pilot proposes to find a difference.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedRun {
    /// The difference, as a fraction.
    pub detect: f64,
    /// Size of the family that verdicts are adjusted for.
    pub comparisons: usize,
    /// Blocks of the pilot that count.
    pub pilot_blocks: u32,
    /// Time of a block of all workloads, seconds: the median of the pilot; absent if it has fewer
    /// than two blocks.
    pub block_s: Option<f64>,
    /// Every cell that gets a verdict.
    pub cells: Vec<PlannedCell>,
    /// The expense of a run as the pilot was.
    pub present: RunCost,
    /// The run with another number of iterations, if one saves a tenth of the time or more.
    pub better: Option<Iterated>,
}

/// The expense of a run until its hardest cell is done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct RunCost {
    /// Number of blocks; absent if no cell was measured, or if one would take too many.
    pub blocks: Option<u32>,
    /// Time, seconds.
    pub seconds: Option<f64>,
}

impl RunCost {
    fn of(blocks: Option<u32>, block_s: Option<f64>) -> Self {
        Self { blocks, seconds: blocks.zip(block_s).map(|(blocks, each)| f64::from(blocks) * each) }
    }
}

/// A run with another number of iterations per trial.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Iterated {
    /// Iterations of every workload.
    pub iterations: u32,
    /// The expense of the run.
    pub expense: RunCost,
}

/// A cell of the planned run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedCell {
    /// Workload id.
    pub workload: String,
    /// Name of the metric.
    pub metric: String,
    /// Environment name.
    pub environment: String,
    /// Its spread; absent if it has fewer than two pairs of blocks.
    pub spread: Option<PilotSpread>,
    /// The expense until the cell is done.
    pub expense: RunCost,
    /// Flags that prevent a verdict, however many blocks there are.
    pub obstacles: Vec<Flag>,
    /// Launches and iterations; absent if units have one part, and for all metrics but the first
    /// primary one.
    pub parts: Option<PlannedParts>,
}

/// How launches and iterations contribute to the spread of a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedParts {
    /// The decomposition.
    pub summary: SpreadSummary,
    /// The best length of a unit over the present one, if the spread were as large as its bound.
    pub times: f64,
    /// The expense of the cell with such units.
    pub expense: RunCost,
}

/// Plans a run that finds a difference of `detect` (.01 is 1 %) in every cell, from the records of
/// a pilot.
pub fn planned_run(plan: &Plan, records: &[Record], detect: f64) -> PlannedRun {
    let collected = collect(plan, records);
    let analysis = analyse(&collected.comparisons, &Options::for_run(plan, &collected));
    let block_s = block_s(records);
    let question = Question { detect, comparisons: analysis.comparisons };
    let summaries = &collected.circumstances.spreads;
    let cells = analysis.cells.iter().filter(|cell| cell.is_in_family());
    let cells: Vec<PlannedCell> = cells
        .map(|cell| {
            let logs: Vec<f64> = cell.log_ratios.iter().map(|(_, d)| *d).collect();
            let spread = PilotSpread::of(&logs);
            let is_own = |summary: &&SpreadSummary| {
                summary.workload == cell.workload
                    && summary.environment == cell.environment
                    && summary.metric == cell.metric.name
            };
            let parts = spread.zip(summaries.iter().find(is_own)).map(|(spread, summary)| {
                let times = best_times(spread, summary);
                let longer_s = summary.time.measured_s * (times - 1.0);
                let blocks = question.blocks(spread.with_units(summary.spread.within, times));
                let expense = RunCost::of(blocks, block_s.map(|each| each + longer_s));
                PlannedParts { summary: summary.clone(), times, expense }
            });
            PlannedCell {
                workload: cell.workload.clone(),
                metric: cell.metric.name.clone(),
                environment: cell.environment.clone(),
                spread,
                expense: RunCost::of(spread.and_then(|spread| question.blocks(spread)), block_s),
                obstacles: cell.flags.iter().copied().filter(|flag| OBSTACLES.contains(flag)).collect(),
                parts,
            }
        })
        .collect();
    let present = question.whole(&cells, block_s, 1.0);
    let numbers: BTreeSet<u32> =
        plan.workloads.iter().map(|w| collected.circumstances.iterations_of(w)).collect();
    PlannedRun {
        detect,
        comparisons: analysis.comparisons,
        pilot_blocks: collected.blocks_done,
        block_s,
        better: question.better(&numbers, &cells, block_s, present),
        cells,
        present,
    }
}

/// Flags that no number of blocks removes.
const OBSTACLES: [Flag; 5] =
    [Flag::NotMeasured, Flag::Rounded, Flag::ClockUnproven, Flag::LoaderBound, Flag::OneInstance];

/// The difference that a run is to find.
struct Question {
    detect: f64,
    comparisons: usize,
}

impl Question {
    fn blocks(&self, spread: PilotSpread) -> Option<u32> {
        spread.blocks_to_detect(self.detect, self.comparisons)
    }

    /// The expense of all cells with units `times` times as long. Cells whose spread is not
    /// decomposed are taken to gain nothing.
    fn whole(&self, cells: &[PlannedCell], block_s: Option<f64>, times: f64) -> RunCost {
        let blocks = cells.iter().filter(|cell| cell.obstacles.is_empty()).map(|cell| {
            let within = cell.parts.as_ref().map_or(0.0, |parts| parts.summary.spread.within);
            self.blocks(cell.spread?.with_units(within, times))
        });
        let blocks: Option<Vec<u32>> = blocks.collect();
        let mut measured_s: BTreeMap<&str, f64> = BTreeMap::new();
        for parts in cells.iter().filter_map(|cell| cell.parts.as_ref()) {
            measured_s.insert(&parts.summary.workload, parts.summary.time.measured_s);
        }
        let longer_s = measured_s.values().sum::<f64>() * (times - 1.0);
        RunCost::of(blocks.and_then(|blocks| blocks.into_iter().max()), block_s.map(|each| each + longer_s))
    }

    /// Of the numbers of iterations that are best for some cell, the one that saves the most time.
    /// Only whole trials have a number of iterations, here that of each workload, and all workloads
    /// share one. If a cell is not decomposed, nothing is known of other numbers.
    fn better(
        &self,
        numbers: &BTreeSet<u32>,
        cells: &[PlannedCell],
        block_s: Option<f64>,
        present: RunCost,
    ) -> Option<Iterated> {
        let now = numbers.first().copied().filter(|_| numbers.len() == 1)?;
        let judged = cells.iter().filter(|cell| cell.obstacles.is_empty());
        let whole = judged
            .map(|cell| cell.parts.as_ref().filter(|parts| parts.summary.parts == SpreadParts::Iterations));
        let whole: Vec<&PlannedParts> = whole.collect::<Option<_>>()?;
        let iterated = |parts: &PlannedParts| {
            // The conversion saturates.
            let iterations = ((f64::from(now) * parts.times).round() as u32).max(1);
            let expense = self.whole(cells, block_s, f64::from(iterations) / f64::from(now));
            Some((expense.seconds?, Iterated { iterations, expense }))
        };
        let (seconds, best) =
            whole.into_iter().filter_map(iterated).min_by(|(a, _), (b, _)| a.total_cmp(b))?;
        (seconds < present.seconds? * (1.0 - WORTH_A_CHANGE)).then_some(best)
    }
}

/// The best length of a unit (Kalibera and Jones), if the spread between units is as large as the
/// bound on the whole spread allows.
fn best_times(spread: PilotSpread, summary: &SpreadSummary) -> f64 {
    let within = summary.spread.within.min(spread.bound);
    let between = (spread.bound.powi(2) - within.powi(2)).sqrt();
    summary.spread.best_length_at(between, summary.time)
}

/// Time from the first trial of a block to that of the next, seconds: the median.
fn block_s(records: &[Record]) -> Option<f64> {
    let mut begins: BTreeMap<u32, u64> = BTreeMap::new();
    for record in records {
        if let Record::Trial(trial) = record {
            begins.entry(trial.block).or_insert(trial.host_started_ns);
        }
    }
    let begins: Vec<u64> = begins.into_values().collect();
    rank::median_of(begins.windows(2).map(|pair| pair[1].saturating_sub(pair[0]) as f64 / 1e9))
}
