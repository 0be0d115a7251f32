//! Compares the built-in kernels with the canonical tools of the field: both natively, in one run,
//! in random order within each block.
//!
//! A kernel that is slower than the tool it represents would hide the cost of a platform, and a
//! kernel that is faster because it does less would invent a cost. So each pair has a requirement,
//! and a kernel fails it if the whole interval of the ratio lies outside.

use crate::error::{ExitKind, Failure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weigh_model::{
    Comparison, Effort, EnvironmentSpec, GuestPlan, HostFacts, MetricSpec, Plan, Record, Series, WorkloadKey,
    WorkloadPlan,
};
use weigh_report::document::{Audience, Block, Column, Entry, Row, Section, Table, Tone};
use weigh_report::{Document, Scale};
use weigh_stats::{Options, analyse, collect};
use weigh_workloads::Library;

/// Default number of blocks of a pair.
pub const BLOCKS: u32 = 15;

/// The only environment.
const NATIVE: &str = "native";

/// A kernel, the tool that does the same work, and the requirement on the kernel.
#[derive(Debug, Clone, Copy)]
pub struct Pair {
    /// Name in tables and files.
    pub name: &'static str,
    /// The built-in kernel.
    pub kernel: Side,
    /// The canonical tool.
    pub tool: Side,
    /// The requirement on the kernel.
    pub demand: Requirement,
    /// Number of unmeasured runs of each side before the measured one.
    pub warmup: u32,
}

/// A workload, its parameters, and the metric that counts.
#[derive(Debug, Clone, Copy)]
pub struct Side {
    /// Name of the workload.
    pub workload: &'static str,
    /// Parameters, at the size `standard`.
    pub params: &'static [(&'static str, &'static str)],
    /// The metric.
    pub metric: &'static str,
}

impl Side {
    const fn of(
        workload: &'static str,
        params: &'static [(&'static str, &'static str)],
        metric: &'static str,
    ) -> Self {
        Self { workload, params, metric }
    }
}

/// The permitted range of the ratio of performance, kernel over tool. More is better for every
/// metric.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Requirement {
    /// At least this ratio.
    AtLeast(f64),
    /// A ratio of 1, plus or minus this.
    Within(f64),
}

impl Requirement {
    /// Whether an interval of ratios lies wholly outside the range.
    fn fails(self, low: f64, high: f64) -> bool {
        match self {
            Self::AtLeast(least) => high < least,
            Self::Within(margin) => high < 1.0 - margin || low > 1.0 + margin,
        }
    }

    fn words(self) -> String {
        match self {
            Self::AtLeast(least) => format!(">= {least:.2}"),
            Self::Within(margin) => format!("1 +- {margin:.2}"),
        }
    }
}

/// The pairs.
pub const PAIRS: &[Pair] = &[
    Pair {
        name: "stream",
        kernel: Side::of("stream", &[("threads", "1"), ("array-bytes", "llc*4")], "triad"),
        tool: Side::of("hpcc-stream", &[("array-bytes", "llc*4")], "triad"),
        demand: Requirement::AtLeast(0.97),
        warmup: SELF_WARMED,
    },
    Pair {
        name: "gups",
        kernel: Side::of("gups", &[("threads", "1"), ("table-bytes", "128MiB")], "rate"),
        tool: Side::of("hpcc-gups", &[("table-bytes", "128MiB")], "rate"),
        demand: Requirement::AtLeast(0.95),
        warmup: SELF_WARMED,
    },
    Pair {
        name: "lu",
        kernel: Side::of("lu", &[("n", "4000"), ("threads", "1")], "rate"),
        tool: Side::of("dgesv", &[("n", "4000"), ("threads", "1")], "rate"),
        demand: Requirement::AtLeast(0.90),
        warmup: 1,
    },
    Pair {
        name: "block-1",
        kernel: Side::of("block", &BLOCK_1, "rate"),
        tool: Side::of("fio-random", &FIO_1, "iops"),
        demand: Requirement::Within(0.03),
        warmup: 1,
    },
    Pair {
        name: "block-32",
        kernel: Side::of("block", &BLOCK_32, "rate"),
        tool: Side::of("fio-random", &FIO_32, "iops"),
        demand: Requirement::Within(0.03),
        warmup: 1,
    },
    Pair {
        name: "echo",
        kernel: Side::of(
            "echo-remote",
            &[("request-bytes", "100"), ("response-bytes", "100")],
            "latency_p50",
        ),
        tool: Side::of("sockperf-tcp", &[("bytes", "100")], "latency_p50"),
        demand: Requirement::Within(0.05),
        warmup: 1,
    },
];

/// The number of warm-up runs for programs that warm up by themselves: hpcc runs its other tests
/// first, over the same memory, which takes a minute in all, and the kernels leave out their first
/// round.
const SELF_WARMED: u32 = 0;

/// Random 4 kB reads of a file of 1 GiB, by io_uring, for five seconds.
const BLOCK_1: [(&str, &str); 4] =
    [("depth", "1"), ("engine", "io_uring"), ("seconds", "5"), ("warmup", ONE)];
const BLOCK_32: [(&str, &str); 4] =
    [("depth", "32"), ("engine", "io_uring"), ("seconds", "5"), ("warmup", MANY)];
/// Warm-up requests: fio spends a second to bring the disk to a steady state, and these numbers of
/// requests take about as long.
const ONE: &str = "20000";
const MANY: &str = "100000";
const FIO_1: [(&str, &str); 3] = [("jobs", "1"), ("in-flight", "1"), ("engine", "io_uring")];
const FIO_32: [(&str, &str); 3] = [("jobs", "1"), ("in-flight", "32"), ("engine", "io_uring")];

/// The outcome of a pair.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Name of the pair.
    pub pair: String,
    /// The requirement.
    pub demand: Requirement,
    /// The comparison, or the reason why there is none.
    pub found: Result<Found, NotCompared>,
}

/// The reason why a pair was not compared.
#[derive(Debug, Clone, PartialEq, thiserror::Error, Serialize, Deserialize)]
#[error("{0}")]
pub struct NotCompared(String);

/// The comparison of a pair.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// Number of pairs of values, one per block.
    pub blocks: u32,
    /// The metric, with its unit.
    pub metric: MetricSpec,
    /// Median of the kernel.
    pub kernel: f64,
    /// Median of the tool.
    pub tool: f64,
    /// Ratio of performance, kernel over tool: the average with its 95 % interval.
    pub ratio: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Whether the requirement is met or may be met.
    pub met: bool,
}

impl Pair {
    /// Makes the plan of a native run of both sides.
    ///
    /// # Errors
    /// A workload or a parameter does not exist.
    pub fn plan(
        &self,
        facts: &HostFacts,
        cpus: &[u32],
        blocks: u32,
        seed: u64,
        digests: &BTreeMap<String, String>,
    ) -> Result<Plan, Failure> {
        let library = Library::load(&[], &[])?;
        let warmup = self.warmup;
        let workloads = [self.kernel, self.tool]
            .into_iter()
            .map(|side| side.plan(&library, facts).map(|workload| WorkloadPlan { warmup, ..workload }));
        let native = EnvironmentSpec::parse(NATIVE)?.into();
        let (name, workloads) = (format!("tools-{}", self.name), workloads.collect::<Result<_, _>>()?);
        let plan = Plan::of(name, vec![native], workloads, Effort::Fixed { blocks });
        let guest = GuestPlan { cpus: cpus.to_vec(), ..plan.guest };
        Ok(Plan { seed, guest, digests: digests.clone(), ..plan })
    }

    /// Reads the outcome from a run of the plan.
    pub fn read(&self, plan: &Plan, records: &[Record]) -> Outcome {
        Outcome { pair: self.name.into(), demand: self.demand, found: self.find(plan, records) }
    }

    fn find(&self, plan: &Plan, records: &[Record]) -> Result<Found, NotCompared> {
        let collected = collect(plan, records);
        if let Some(failure) = collected.failures.first() {
            return Err(NotCompared(format!("{}: {}", failure.workload, failure.reason)));
        }
        let series = |side: &Side, workload: &WorkloadPlan| {
            let about = |c: &&Comparison| c.workload == workload.id && c.metric.name == side.metric;
            let of = collected.comparisons.iter().find(about)?;
            let series = of.series.iter().find(|series| series.environment == NATIVE)?;
            Some((of.metric.clone(), Series { environment: side.workload.into(), ..series.clone() }))
        };
        let [kernel, tool] = plan.workloads.as_slice() else {
            return Err(NotCompared("the plan is not of two workloads".into()));
        };
        let missing = |side: &Side| NotCompared(format!("{} gives no {}", side.workload, side.metric));
        let (metric, kernel) = series(&self.kernel, kernel).ok_or_else(|| missing(&self.kernel))?;
        let (other, tool) = series(&self.tool, tool).ok_or_else(|| missing(&self.tool))?;
        if (&metric.unit, metric.better) != (&other.unit, other.better) {
            return Err(NotCompared(format!(
                "{} is in {}, {} in {}",
                self.kernel.workload, metric.unit, self.tool.workload, other.unit
            )));
        }
        // The sides are compared like two environments of one workload: paired by block, on the log
        // scale.
        let metric = MetricSpec { primary: true, ..metric };
        let comparison = Comparison {
            workload: self.name.into(),
            key: WorkloadKey::default(),
            metric: metric.clone(),
            series: vec![tool, kernel],
        };
        let options = Options { values_are_intervals: false, ..Options::new(self.tool.workload) };
        let cells = analyse(&[comparison], &options).cells;
        let cell = |name: &str| cells.iter().find(|cell| cell.environment == name);
        let (Some(tool), Some(kernel)) = (cell(self.tool.workload), cell(self.kernel.workload)) else {
            return Err(NotCompared("one of the two gave no value".into()));
        };
        let median = |cell: &weigh_stats::Cell| cell.summary.as_ref().map(|summary| summary.median);
        let (Some(tool), Some(median), Some(cost)) = (median(tool), median(kernel), kernel.overhead) else {
            return Err(NotCompared(format!("{} blocks give no interval", kernel.n)));
        };
        // The statistics are of costs, and performance is their inverse.
        let performance = |overhead: f64| 1.0 / (1.0 + overhead);
        let (low, high) = (performance(cost.high), performance(cost.low));
        let met = !self.demand.fails(low, high);
        Ok(Found {
            blocks: kernel.n,
            metric,
            kernel: median,
            tool,
            ratio: performance(cost.estimate),
            low,
            high,
            met,
        })
    }
}

impl Side {
    fn plan(&self, library: &Library, facts: &HostFacts) -> Result<WorkloadPlan, Failure> {
        let missing = |reason: String| {
            Failure::new(ExitKind::Failed, format!("the workload {}: {reason}", self.workload))
        };
        let workload = library.get(self.workload).map_err(|error| missing(error.to_string()))?;
        let params =
            self.params.iter().map(|(name, value)| ((*name).into(), vec![(*value).into()])).collect();
        let plans = workload.plan("standard", &params, facts).map_err(|error| missing(error.to_string()))?;
        plans.into_iter().next().ok_or_else(|| missing("there is no plan".into()))
    }
}

/// Arranges the outcomes for display.
pub fn document(outcomes: &[Outcome], blocks: u32) -> Document {
    let columns = vec![
        Column::text("pair"),
        Column::number("kernel"),
        Column::number("tool"),
        Column::number("ratio"),
        Column::text("95 % interval"),
        Column::text("asked"),
        Column::text(""),
    ];
    let row = |outcome: &Outcome| match &outcome.found {
        Ok(found) => {
            let scale = Scale::new(&found.metric.unit, [found.kernel, found.tool], None);
            let (tone, verdict) = if found.met { (Tone::Same, "ok") } else { (Tone::Worse, "OUTSIDE") };
            Row::new([
                Entry::text(&outcome.pair),
                Entry::quantity(scale.quantity(found.kernel)),
                Entry::quantity(scale.quantity(found.tool)),
                Entry::text(format!("{:.3}", found.ratio)),
                Entry::text(format!("[{:.3}, {:.3}]", found.low, found.high)),
                Entry::text(outcome.demand.words()),
                Entry::flag(tone, verdict),
            ])
        }
        Err(reason) => {
            let reason = Entry::text(format!("not compared: {reason}"));
            Row::new(
                [Entry::text(&outcome.pair)].into_iter().chain(vec![Entry::nothing(); 5]).chain([reason]),
            )
        }
    };
    let caption = format!(
        "builtin kernels over canonical tools, natively, {blocks} blocks a pair; ratios of performance, higher is faster"
    );
    let table = Table::new(caption, columns, outcomes.iter().map(row).collect());
    let mut document = Document::default();
    document.add(Section::plain().with(Audience::ALL, Block::table(table)));
    document
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn only_a_whole_interval_outside_fails() {
        let least = Requirement::AtLeast(0.97);
        assert!(least.fails(0.90, 0.969) && !least.fails(0.90, 0.98) && !least.fails(1.2, 1.3));
        let within = Requirement::Within(0.03);
        assert!(within.fails(0.90, 0.96) && within.fails(1.04, 1.10));
        assert!(!within.fails(0.90, 0.98) && !within.fails(1.02, 1.10) && !within.fails(0.5, 2.0));
    }

    #[test]
    fn every_pair_can_be_planned_and_compares_like_with_like() {
        let facts = weigh_host::facts::host_facts();
        let names: BTreeSet<&str> = PAIRS.iter().map(|pair| pair.name).collect();
        assert_eq!(names.len(), PAIRS.len());
        for pair in PAIRS {
            let plan = pair.plan(&facts, &[0], 3, 1, &BTreeMap::new()).unwrap();
            let [kernel, tool] = plan.workloads.as_slice() else { panic!("{}", pair.name) };
            let metric = |workload: &WorkloadPlan, name: &str| {
                let metrics = workload.metrics.iter().map(|metric| &metric.spec);
                metrics.into_iter().find(|spec| spec.name == name).cloned().unwrap()
            };
            let (kernel, tool) = (metric(kernel, pair.kernel.metric), metric(tool, pair.tool.metric));
            assert_eq!((kernel.unit, kernel.better), (tool.unit, tool.better), "{}", pair.name);
        }
    }

    #[test]
    fn the_table_marks_pairs_outside_and_pairs_not_compared() {
        let metric = MetricSpec {
            name: "rate".into(),
            unit: weigh_model::Unit::normalise("GB/s").0,
            better: weigh_model::Better::Higher,
            primary: true,
        };
        let found = |ratio: f64, met| {
            Ok(Found {
                blocks: 5,
                metric: metric.clone(),
                kernel: 9e9 * ratio,
                tool: 9e9,
                ratio,
                low: ratio - 0.01,
                high: ratio + 0.01,
                met,
            })
        };
        let outcome =
            |pair: &str, found| Outcome { pair: pair.into(), demand: Requirement::AtLeast(0.97), found };
        let outcomes = [
            outcome("a", found(1.0, true)),
            outcome("b", found(0.9, false)),
            outcome("c", Err(NotCompared("no program".into()))),
        ];
        let options = weigh_report::Options { width: 200, ..weigh_report::Options::default() };
        let text =
            weigh_report::render_document(&document(&outcomes, 5), weigh_report::Format::Table, &options)
                .unwrap();
        let line = |name: &str| text.lines().map(str::trim).find(|line| line.starts_with(name)).unwrap();
        assert!(line("a ").ends_with("ok") && line("a ").contains("[0.990, 1.010]"), "{text}");
        assert!(line("b ").ends_with("OUTSIDE") && line("b ").contains("8.10 GB/s"), "{text}");
        assert!(line("c ").ends_with("not compared: no program"), "{text}");
    }
}
