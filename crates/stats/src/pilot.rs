//! What a pilot says about the run to come: how many blocks a difference takes, and whether more
//! iterations or more launches make them cheaper (method specification, "Planning a run").
//!
//! A pilot is blind. Of its log ratios only the spread is taken; their means, which are the
//! effects, have no part in any number here and are in none of these types.

use crate::analysis::{Flag, Options};
use crate::circumstances::{SpreadParts, SpreadSummary};
use crate::estimate::{Estimate, count};
use crate::{analyse, collect, rank};
use serde::{Deserialize, Serialize};
use statrs::distribution::{ChiSquared, ContinuousCDF};
use std::collections::{BTreeMap, BTreeSet};
use weigh_model::{Looks, Plan, Record};

/// Blocks of a pilot.
pub const PILOT_BLOCKS: u32 = 6;
/// Confidence of the upper bound on the spread.
const BOUND_CONFIDENCE: f64 = 0.80;
/// Another number of iterations is proposed where it saves more than this part of the time.
const WORTH_A_CHANGE: f64 = 0.10;

/// The spread of the log ratios of a cell from block to block, as a pilot sees it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PilotSpread {
    /// Pairs of blocks.
    pub n: u32,
    /// Standard deviation of the log ratio.
    pub sd: f64,
    /// What the standard deviation lies below with 80 % confidence.
    pub bound: f64,
}

impl PilotSpread {
    /// From the log ratios of the blocks. None below two.
    ///
    /// Of normal log ratios (k - 1) s^2 / sigma^2 has a chi-square distribution with k - 1 degrees
    /// of freedom, so sigma <= s sqrt((k - 1) / chi2(.20, k - 1)) in 80 % of pilots. With six blocks
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

    /// The same with units so many times as long, given the standard deviation that the parts of a
    /// unit leave in its value. What the parts leave falls with their number; the rest stays:
    ///
    /// ```text
    /// sd(times)^2 = sd^2 - within^2 (1 - 1 / times), and at least within^2 / times; bound likewise
    /// ```
    ///
    /// `within` rests on the parts of all units and is known much better than `sd`: if `bound` is
    /// one, so is the new one.
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

    /// The smallest number of blocks that finds an effect of `detect` (.01 is 1 %) among so many
    /// comparisons with 80 % power, if the standard deviation is as large as [`Self::bound`]:
    ///
    /// ```text
    /// F(ln(1 + detect) sqrt(K) / bound - t(1 - .025 / comparisons)) >= .80      t, F: K - 1 df
    /// ```
    ///
    /// The level is that of Holm's method for a cell beside which no other is found different. At
    /// least ten blocks, those of the first look of a group-sequential run; none where a million
    /// would not do.
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

/// A run that finds a difference, by its pilot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedRun {
    /// The difference, as a fraction.
    pub detect: f64,
    /// Size of the family that verdicts are adjusted for.
    pub comparisons: usize,
    /// Blocks of the pilot that count.
    pub pilot_blocks: u32,
    /// What a block of all workloads takes, seconds: the median of the pilot; absent where it has
    /// no two blocks.
    pub block_s: Option<f64>,
    /// Every cell that a verdict is due for.
    pub cells: Vec<PlannedCell>,
    /// As the pilot was.
    pub present: Expense,
    /// With another number of iterations, where one saves a tenth of the time or more.
    pub better: Option<Iterated>,
}

/// What a run takes until its hardest cell is done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Expense {
    /// Blocks; absent where no cell was measured, or no practical number would do for one of them.
    pub blocks: Option<u32>,
    /// Time, seconds.
    pub seconds: Option<f64>,
}

impl Expense {
    fn of(blocks: Option<u32>, block_s: Option<f64>) -> Self {
        Self { blocks, seconds: blocks.zip(block_s).map(|(blocks, each)| f64::from(blocks) * each) }
    }
}

/// A run with so many iterations per trial.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Iterated {
    /// Iterations of every workload.
    pub iterations: u32,
    /// What it takes.
    pub expense: Expense,
}

/// A cell of the run to come.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedCell {
    /// Workload id.
    pub workload: String,
    /// Name of the metric.
    pub metric: String,
    /// Environment name.
    pub environment: String,
    /// Its spread; absent where it has no two pairs of blocks.
    pub spread: Option<PilotSpread>,
    /// What it takes.
    pub expense: Expense,
    /// What keeps it from any verdict, however many blocks there are.
    pub obstacles: Vec<Flag>,
    /// Launches and iterations; absent where units have one part, and for all metrics but the first
    /// primary one.
    pub parts: Option<PlannedParts>,
}

/// What launches and iterations have to do with the spread of a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedParts {
    /// The decomposition.
    pub summary: SpreadSummary,
    /// How many times as long a unit would best be, were the spread as large as its bound.
    pub times: f64,
    /// What the cell takes with such units.
    pub expense: Expense,
}

/// What the records of a pilot say about a run that is to find a difference of `detect` (.01 is
/// 1 %) in every cell.
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
                let expense = Expense::of(blocks, block_s.map(|each| each + longer_s));
                PlannedParts { summary: summary.clone(), times, expense }
            });
            PlannedCell {
                workload: cell.workload.clone(),
                metric: cell.metric.name.clone(),
                environment: cell.environment.clone(),
                spread,
                expense: Expense::of(spread.and_then(|spread| question.blocks(spread)), block_s),
                obstacles: cell.flags.iter().copied().filter(|flag| OBSTACLES.contains(flag)).collect(),
                parts,
            }
        })
        .collect();
    let present = question.whole(&cells, block_s, 1.0);
    PlannedRun {
        detect,
        comparisons: analysis.comparisons,
        pilot_blocks: collected.blocks_done,
        block_s,
        better: question.better(plan, &cells, block_s, present),
        cells,
        present,
    }
}

/// What no number of blocks mends.
const OBSTACLES: [Flag; 5] =
    [Flag::NotMeasured, Flag::Rounded, Flag::ClockUnproven, Flag::LoaderBound, Flag::OneInstance];

/// What a run is to find.
struct Question {
    detect: f64,
    comparisons: usize,
}

impl Question {
    fn blocks(&self, spread: PilotSpread) -> Option<u32> {
        spread.blocks_to_detect(self.detect, self.comparisons)
    }

    /// What all cells take with units so many times as long. Of cells whose spread is not
    /// decomposed nothing is taken to be gained.
    fn whole(&self, cells: &[PlannedCell], block_s: Option<f64>, times: f64) -> Expense {
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
        Expense::of(blocks.and_then(|blocks| blocks.into_iter().max()), block_s.map(|each| each + longer_s))
    }

    /// The number of iterations that saves the most time among those that are best for some cell.
    /// Only whole trials have as many iterations as the plan says, and one number is for all
    /// workloads; what is not decomposed says nothing of another number.
    fn better(
        &self,
        plan: &Plan,
        cells: &[PlannedCell],
        block_s: Option<f64>,
        present: Expense,
    ) -> Option<Iterated> {
        let numbers: BTreeSet<u32> = plan.workloads.iter().map(|workload| workload.iterations).collect();
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

/// The best length of a unit (Kalibera and Jones) where what is between units is as large as the
/// bound on the whole spread leaves room for.
fn best_times(spread: PilotSpread, summary: &SpreadSummary) -> f64 {
    let within = summary.spread.within.min(spread.bound);
    let between = (spread.bound.powi(2) - within.powi(2)).sqrt();
    summary.spread.best_length_at(between, summary.time)
}

/// What a block takes, from its first trial to that of the next, seconds: the median.
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
