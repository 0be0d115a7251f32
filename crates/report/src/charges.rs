//! CPU time per operation: the service demand of an environment's work, beside the time that it
//! takes.
//!
//! It is descriptive: it never gives a verdict, and lost throughput is never called CPU time.

use crate::Report;
use crate::quantity::{Effect, Quantity, Scale, count, duration, duration_ns};
use crate::text::join;
use std::collections::{BTreeMap, BTreeSet};
use weigh_model::Unit;
use weigh_stats::ChargeSummary;

/// A counter is reported beside the tables if it differs from the baseline's by this factor. The
/// page shows all counters.
const CLEARLY: f64 = 2.0;
/// Fewer events than this in a whole run are taken for chance.
const FEWEST_PER_RUN: f64 = 10.0;
/// Waiting for less than this share of the CPU time explains nothing.
const STALL_NOTABLE: f64 = 0.01;
/// The share of the charge above which the terminal reports the time of shared daemons. Every other
/// format reports all of it.
const DAEMONS_NOTABLE: f64 = 0.01;
/// The number of counters reported per environment beside the tables.
const TOLD: usize = 3;

/// The CPU time of one workload in every environment.
#[derive(Debug)]
pub(crate) struct CpuTable {
    /// What an operation is.
    pub operation: String,
    /// Who is charged, the guest first.
    pub parts: Vec<String>,
    /// Daemons that all guests share; never charged.
    pub daemons: Vec<String>,
    /// The names of the counters, in words.
    pub counters: Vec<String>,
    /// What a PMU counted, as headings: cycles and instructions per operation, and their ratio.
    pub counts: Vec<String>,
    pub rows: Vec<CpuRow>,
    /// Counters that differ clearly, a sentence per environment.
    pub why: Vec<String>,
}

/// One environment's CPU time.
#[derive(Debug)]
pub(crate) struct CpuRow {
    pub environment: String,
    pub cpu: Quantity,
    /// The values under [`CpuTable::counts`].
    pub counts: Vec<Option<Quantity>>,
    /// The effect relative to the baseline's.
    pub effect: Option<Effect>,
    pub n: u32,
    pub parts: Vec<Option<Quantity>>,
    pub daemons: Vec<Option<Quantity>>,
    /// Each counter with the number by which it is sorted.
    pub counters: Vec<Option<(f64, String)>>,
    /// Who used CPU time and how it compares, in one sentence.
    pub sentence: String,
    /// Whether the sentence says more than the column beside the values.
    pub notable: bool,
}

/// The CPU time of an environment for a workload.
pub(crate) fn charge<'a>(report: &'a Report, workload: &str, environment: &str) -> Option<&'a ChargeSummary> {
    report.circumstances.charges.iter().find(|c| c.workload == workload && c.environment == environment)
}

/// The heading and the number format of the column of CPU time in a workload's tables.
pub(crate) struct Column {
    pub heading: String,
    scale: Scale,
    cycles: bool,
}

impl Column {
    /// Shows cycles if every environment has them, CPU time otherwise. `None` if nothing is known.
    pub(crate) fn new(report: &Report, workload: &str) -> Option<Self> {
        let charges: Vec<&ChargeSummary> =
            report.circumstances.charges.iter().filter(|c| c.workload == workload).collect();
        let first = charges.first()?;
        let cycles = charges.iter().all(|c| c.cycles_per_op.is_some());
        let (word, unit) = if cycles { ("cycles", "cycles") } else { ("CPU", "s") };
        let values = charges.iter().filter_map(|c| value(c, cycles));
        Some(Self {
            heading: format!("{word}/{}", first.operation),
            scale: Scale::new(&Unit::normalise(unit).0, values, None),
            cycles,
        })
    }

    /// The value of a charge in this column.
    pub(crate) fn quantity(&self, charge: &ChargeSummary) -> Option<Quantity> {
        value(charge, self.cycles).map(|value| self.scale.quantity(value))
    }
}

fn value(charge: &ChargeSummary, cycles: bool) -> Option<f64> {
    if cycles { charge.cycles_per_op } else { Some(charge.cpu_ns_per_op / 1e9) }
}

/// A charge relative to the baseline's, with its interval, absolute values and n.
pub(crate) fn compared(report: &Report, charge: &ChargeSummary) -> Option<String> {
    let difference = charge.difference?;
    let baseline = self::charge(report, &charge.workload, &report.analysis.baseline)?;
    let effect = Effect::from(difference);
    let scale =
        Scale::new(&Unit::normalise("s").0, [charge.cpu_ns_per_op / 1e9, baseline.cpu_ns_per_op / 1e9], None);
    Some(format!(
        "{} ({} against {} per {}, {})",
        join(&effect.to_string()),
        join(&scale.format(charge.cpu_ns_per_op / 1e9)),
        join(&scale.format(baseline.cpu_ns_per_op / 1e9)),
        charge.operation,
        join(&format!("n {}", charge.n))
    ))
}

/// What a PMU counted per operation.
type Count = fn(&ChargeSummary) -> Option<f64>;

/// Everything that is known about a workload's CPU time; `None` if nothing is.
pub(crate) fn table(report: &Report, workload: &str) -> Option<CpuTable> {
    let charges: Vec<&ChargeSummary> =
        report.circumstances.charges.iter().filter(|c| c.workload == workload).collect();
    let operation = charges.first()?.operation.clone();
    let scale = Scale::new(&Unit::normalise("s").0, charges.iter().map(|c| c.cpu_ns_per_op / 1e9), None);
    let keys = |of: fn(&ChargeSummary) -> &BTreeMap<String, f64>| -> Vec<String> {
        let all: BTreeSet<&String> = charges.iter().flat_map(|c| of(c).keys()).collect();
        let mut all: Vec<String> = all.into_iter().cloned().collect();
        all.sort_by_key(|key| place(key));
        all
    };
    let (parts, daemons) = (keys(|c| &c.parts_ns_per_op), keys(|c| &c.daemons_ns_per_op));
    let counters = keys(|c| &c.counters_per_op);
    let times = |names: &[String], of: &BTreeMap<String, f64>| {
        names.iter().map(|name| of.get(name).map(|ns| duration(ns / 1e9))).collect()
    };
    let counts: [(String, Count); 3] = [
        (format!("cycles/{operation}"), |charge| charge.cycles_per_op),
        (format!("instructions/{operation}"), |charge| charge.instructions_per_op),
        ("instructions/cycle".into(), ChargeSummary::instructions_per_cycle),
    ];
    let is_known = |column: &(String, Count)| charges.iter().any(|charge| (column.1)(charge).is_some());
    let counts: Vec<(String, Count)> = counts.into_iter().filter(is_known).collect();
    let rows = charges
        .iter()
        .map(|charge| CpuRow {
            environment: charge.environment.clone(),
            cpu: scale.quantity(charge.cpu_ns_per_op / 1e9),
            counts: counts
                .iter()
                .map(|column| (column.1)(charge))
                .map(|value| value.map(|value| Quantity::new(value, count("events", value), "")))
                .collect(),
            effect: charge.difference.map(Effect::from),
            n: charge.n,
            parts: times(&parts, &charge.parts_ns_per_op),
            daemons: times(&daemons, &charge.daemons_ns_per_op),
            counters: counters
                .iter()
                .map(|name| charge.counters_per_op.get(name).map(|value| (*value, count(name, *value))))
                .collect(),
            sentence: sentence(report, charge),
            notable: notable(charge),
        })
        .collect();
    let baseline = charge(report, workload, &report.analysis.baseline);
    let why = charges.iter().filter_map(|charge| why(baseline?, charge)).collect();
    Some(CpuTable {
        operation,
        parts,
        daemons,
        counters: counters.iter().map(|name| words(name)).collect(),
        counts: counts.into_iter().map(|(heading, _)| heading).collect(),
        rows,
        why,
    })
}

/// The order of the parts: the guest first, softirqs last.
fn place(key: &str) -> u8 {
    match key {
        "guest" => 0,
        "softirq" => 2,
        _ => 1,
    }
}

/// A name of a counter for people.
pub(crate) fn words(name: &str) -> String {
    let words = name.strip_suffix("_ns").unwrap_or(name).replace('_', " ");
    let words = words.replace("cpu ", "CPU ").replace("tlb ", "TLB ").replace("vm ", "VM ");
    let words = words.replace("io stall", "I/O stall");
    let unit = |word: &str, unit: &str| words.strip_suffix(word).map(|stem| format!("{stem} ({unit})"));
    unit(" bytes", "bytes").or_else(|| unit(" uj", "µJ")).unwrap_or(words)
}

/// Whether anything besides the guest is charged.
fn helped(charge: &ChargeSummary) -> bool {
    charge.parts_ns_per_op.iter().any(|(name, ns)| name != "guest" && *ns > 0.0)
}

/// Whether anything besides the guest is charged, shared daemons used a notable share, or the whole
/// interval of the difference lies on one side of zero.
fn notable(charge: &ChargeSummary) -> bool {
    let daemons: f64 = charge.daemons_ns_per_op.values().sum();
    helped(charge)
        || daemons > DAEMONS_NOTABLE * charge.cpu_ns_per_op
        || charge.difference.is_some_and(|d| d.low > 0.0 || d.high < 0.0)
}

fn sentence(report: &Report, charge: &ChargeSummary) -> String {
    let mut text = compared(report, charge).unwrap_or_else(|| {
        let n = join(&format!("n {}", charge.n));
        format!("{} per {} ({n})", join(&duration_ns(charge.cpu_ns_per_op)), charge.operation)
    });
    let list = |of: &BTreeMap<String, f64>| {
        let mut parts: Vec<(&String, &f64)> = of.iter().filter(|(_, ns)| **ns > 0.0).collect();
        parts.sort_by_key(|(name, _)| place(name));
        parts
            .iter()
            .map(|(name, ns)| join(&format!("{name} {}", duration_ns(**ns))))
            .collect::<Vec<_>>()
            .join(", ")
    };
    if helped(charge) {
        text.push_str(&format!(": {}", list(&charge.parts_ns_per_op)));
    }
    if let Some((instructions, per_cycle)) = charge.instructions_per_op.zip(charge.instructions_per_cycle()) {
        let instructions = join(&format!("{} instructions", count("events", instructions)));
        let per_cycle = count("events", per_cycle);
        text.push_str(&format!("; {instructions} per {}, {per_cycle} per cycle", charge.operation));
    }
    if charge.daemons_ns_per_op.values().any(|ns| *ns > 0.0) {
        text.push_str(&format!(
            "; shared by all guests and not charged: {}",
            list(&charge.daemons_ns_per_op)
        ));
    }
    text
}

/// The counters that differ clearly from the baseline's, the most different first.
fn why(baseline: &ChargeSummary, charge: &ChargeSummary) -> Option<String> {
    if charge.environment == baseline.environment {
        return None;
    }
    let fewest = |name: &str| match &*charge.operation {
        _ if name.ends_with("_ns") => STALL_NOTABLE * charge.cpu_ns_per_op,
        "run" => FEWEST_PER_RUN,
        _ => 0.0,
    };
    let mut found: Vec<(f64, String)> = charge
        .counters_per_op
        .iter()
        .filter_map(|(name, here)| {
            // What the whole host did says nothing about one guest.
            let there = *baseline.counters_per_op.get(name).filter(|_| !name.starts_with("host_"))?;
            let (least, most) = (there.min(*here), there.max(*here));
            let clear = most > 0.0 && most >= fewest(name) && most >= CLEARLY * least;
            clear.then(|| {
                (most / least.max(f64::MIN_POSITIVE), describe(name, there, *here, &charge.operation))
            })
        })
        .collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let told: Vec<String> = found.into_iter().take(TOLD).map(|(_, text)| text).collect();
    (!told.is_empty()).then(|| format!("{}: {}", charge.environment, told.join(", ")))
}

/// A counter there and here, per the number of operations that makes the values readable.
fn describe(name: &str, there: f64, here: f64, operation: &str) -> String {
    const MANY: &[(f64, &str)] = &[(1e3, "thousand"), (1e6, "million"), (1e9, "billion")];
    let most = there.max(here);
    let (factor, per) = match MANY.iter().find(|(factor, _)| most * factor >= 1.0) {
        Some((factor, word)) if most < 0.1 => (*factor, format!("{word} {operation}s")),
        _ => (1.0, operation.to_string()),
    };
    let value = |x: f64| count(name, x * factor);
    format!("{} {} per {per}", words(name), join(&format!("{} → {}", value(there), value(here))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(operation: &str, counters: &[(&str, f64)], environment: &str) -> ChargeSummary {
        ChargeSummary {
            workload: "w".into(),
            environment: environment.into(),
            operation: operation.into(),
            cpu_ns_per_op: 1.0,
            n: 30,
            difference: None,
            cycles_per_op: None,
            instructions_per_op: None,
            parts_ns_per_op: BTreeMap::new(),
            daemons_ns_per_op: BTreeMap::new(),
            counters_per_op: counters.iter().map(|(name, value)| ((*name).to_string(), *value)).collect(),
        }
    }

    #[test]
    fn only_clear_differences_are_reported() {
        let native =
            of("run", &[("page_faults", 12.0), ("context_switches", 20.0), ("vm_exits", 0.0)], "native");
        let other =
            of("run", &[("page_faults", 480.0), ("context_switches", 30.0), ("vm_exits", 9.0)], "other");
        assert_eq!(why(&native, &other).as_deref(), Some("other: page faults 12\u{a0}→\u{a0}480 per run"));
        assert_eq!(why(&native, &native), None);
        let same = of("run", &[("page_faults", 12.0)], "other");
        assert_eq!(why(&native, &same), None);
    }

    /// A guest that waits for a hundredth of its time or more says so, and no other.
    #[test]
    fn only_long_stalls_are_reported() {
        let waited = |here| {
            let charged = |environment, ns| ChargeSummary {
                cpu_ns_per_op: 1e9,
                ..of("run", &[("io_stall_ns", ns)], environment)
            };
            why(&charged("native", 1e6), &charged("other", here))
        };
        assert_eq!(waited(9e6), None);
        assert_eq!(
            waited(2e7).as_deref(),
            Some("other: I/O stall 1.00\u{a0}ms\u{a0}→\u{a0}20.0\u{a0}ms per run")
        );
    }

    #[test]
    fn instructions_stand_beside_cycles_where_both_are_counted() {
        let counted = ChargeSummary {
            cycles_per_op: Some(3e9),
            instructions_per_op: Some(6e9),
            ..of("run", &[], "native")
        };
        let mut report = Report::default();
        report.circumstances.charges = vec![counted, of("run", &[], "other")];
        let found = table(&report, "w").unwrap();
        assert_eq!(found.counts, ["cycles/run", "instructions/run", "instructions/cycle"]);
        let numbers: Vec<&str> =
            found.rows[0].counts.iter().flatten().map(|count| count.number.as_str()).collect();
        assert_eq!(numbers, ["3G", "6G", "2"]);
        assert!(found.rows[1].counts.iter().all(Option::is_none));
        let sentence = &found.rows[0].sentence;
        assert!(sentence.ends_with("; 6G\u{a0}instructions per run, 2 per cycle"), "{sentence}");
        report.circumstances.charges.remove(0);
        assert!(table(&report, "w").unwrap().counts.is_empty());
    }

    #[test]
    fn rare_events_are_reported_per_many_operations() {
        assert_eq!(
            describe("page_faults", 1.5e-6, 4.8e-5, "byte"),
            "page faults 1.50\u{a0}→\u{a0}48 per million bytes"
        );
        assert_eq!(words("block_read_bytes"), "block read (bytes)");
        assert_eq!(words("tlb_misses"), "TLB misses");
        assert_eq!(words("cpu_stall_ns"), "CPU stall");
    }
}
