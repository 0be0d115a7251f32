//! What a kernel returns, and the JSON line that it becomes.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer as _, V2Serializer};
use serde_json::{Map, Value, json};

/// One measured quantity.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// Name, as in [`crate::Kernel::metrics`].
    pub name: String,
    /// Value in `unit`.
    pub value: f64,
    /// Base unit: `s`, `B/s`, `op/s`, `update/s`.
    pub unit: &'static str,
}

/// Whether the work was done right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Whether the result is valid. A kernel whose check failed has measured nothing.
    pub passed: bool,
    /// What was checked and what was found, as a sentence.
    pub statement: String,
}

/// The result of one run of a kernel.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The metrics, in the order in which they are printed.
    pub metrics: Vec<Metric>,
    /// Metrics that cannot be measured here, and why.
    pub refused: Vec<(&'static str, &'static str)>,
    /// The proof that the work was done.
    pub check: Check,
    /// Operations that were done, warm-up included ([`crate::Kernel::operation`]). The CPU time of
    /// a run is divided by them. That time includes preparation and check, which add nothing to the
    /// count.
    pub operations: u64,
    /// Latencies by name, nanoseconds.
    pub histograms: Vec<(String, Histogram<u64>)>,
    /// Bytes read at random places of a disk, if the kernel reads any.
    pub random_read_bytes: Option<u64>,
    /// What a load generator itself used. It is a separate member of the line, so that a reader can
    /// distinguish a slow server from a slow loader.
    pub loader: Option<Map<String, Value>>,
    /// What the numbers depend on: threads, instruction set, huge pages, the tick of the clock.
    pub facts: Map<String, Value>,
    /// Sentences for people.
    pub warnings: Vec<String>,
}

impl Outcome {
    /// An outcome without metrics, with the facts that every kernel reports.
    pub(crate) fn new() -> Self {
        let mut facts = Map::new();
        facts.insert("architecture".into(), std::env::consts::ARCH.into());
        facts.insert("clock_tick_s".into(), crate::clock::seconds(crate::tick_ns()).into());
        let check = Check { passed: false, statement: "nothing was checked".into() };
        Self {
            metrics: Vec::new(),
            refused: Vec::new(),
            check,
            operations: 0,
            histograms: Vec::new(),
            random_read_bytes: None,
            loader: None,
            facts,
            warnings: Vec::new(),
        }
    }

    pub(crate) fn metric(&mut self, name: impl Into<String>, value: f64, unit: &'static str) {
        self.metrics.push(Metric { name: name.into(), value, unit });
    }

    /// States why a metric is not measured.
    pub(crate) fn refuse(&mut self, name: &'static str, reason: &'static str) {
        self.refused.push((name, reason));
    }

    pub(crate) fn fact(&mut self, name: &str, value: impl Into<Value>) {
        self.facts.insert(name.into(), value.into());
    }

    pub(crate) fn warn(&mut self, sentence: impl Into<String>) {
        self.warnings.push(sentence.into());
    }

    pub(crate) fn checked(&mut self, passed: bool, statement: impl Into<String>) {
        self.check = Check { passed, statement: statement.into() };
    }

    /// Warns when the shortest timed piece of work lasted less than 20 ticks of the clock, or less
    /// than 1 ms.
    pub(crate) fn warn_when_short(&mut self, what: &str, shortest_s: f64) {
        let tick_s = self.facts["clock_tick_s"].as_f64().expect("every outcome states its tick as a number");
        if shortest_s < 20.0 * tick_s {
            let ticks = shortest_s / tick_s;
            self.warn(format!(
                "{what} lasted only {ticks:.1} ticks of the clock, fewer than 20; give it more work"
            ));
        } else if shortest_s < 1e-3 {
            self.warn(format!("{what} lasted only {:.1} us; give it more work", shortest_s * 1e6));
        }
    }

    /// The value of a metric, if it was measured.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.metrics.iter().find(|metric| metric.name == name).map(|metric| metric.value)
    }

    /// The line that `weigh-kernels` prints, without its newline. `params` are the options in
    /// force; `duration_s` is the time from the start of the program until now, seconds, by its own
    /// clock.
    pub fn to_json(&self, kernel: &str, params: Map<String, Value>, duration_s: f64) -> Value {
        let mut metrics: Map<String, Value> = self
            .metrics
            .iter()
            .map(|metric| (metric.name.clone(), json!({"value": metric.value, "unit": metric.unit})))
            .collect();
        metrics.extend(self.refused.iter().map(|(name, why)| ((*name).into(), json!({"refused": why}))));
        let mut line = json!({
            "kernel": kernel,
            "params": params,
            "metrics": metrics,
            "check": {"passed": self.check.passed, "statement": self.check.statement},
            "operations": self.operations,
            "duration": {"value": duration_s, "unit": "s"},
            "facts": self.facts,
            "warnings": self.warnings,
        });
        if !self.histograms.is_empty() {
            let histograms: Map<String, Value> = self
                .histograms
                .iter()
                .map(|(name, histogram)| (name.clone(), encoded(histogram).into()))
                .collect();
            line["histograms"] = histograms.into();
        }
        if let Some(bytes) = self.random_read_bytes {
            line["random_read_bytes"] = bytes.into();
        }
        if let Some(loader) = &self.loader {
            line["loader"] = loader.clone().into();
        }
        line
    }
}

/// The V2 encoding of HdrHistogram, uncompressed, in base64 with padding, which other readers of
/// the format accept.
fn encoded(histogram: &Histogram<u64>) -> String {
    let mut bytes = Vec::new();
    V2Serializer::new()
        .serialize(histogram, &mut bytes)
        .expect("counts fit the format, and writing to memory cannot fail");
    BASE64_STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_reads_back_as_it_was() {
        let mut histogram = Histogram::new_with_bounds(1, 100_000_000_000, 3).unwrap();
        for latency_ns in [900, 1_000, 1_100, 70_000, 3_000_000_000] {
            histogram.record_n(latency_ns, 7).unwrap();
        }
        let mut outcome = Outcome::new();
        outcome.histograms.push(("latency".into(), histogram.clone()));
        let line = outcome.to_json("echo", Map::new(), 0.25);
        let bytes = BASE64_STANDARD.decode(line["histograms"]["latency"].as_str().unwrap()).unwrap();
        assert_eq!(bytes[..4], [0x1c, 0x84, 0x93, 0x13], "the cookie of V2, not compressed");
        let back: Histogram<u64> =
            hdrhistogram::serialization::Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
        assert_eq!(back, histogram);
        assert_eq!(line["duration"]["value"], 0.25);
    }

    #[test]
    fn a_metric_that_cannot_be_measured_has_a_reason_in_place_of_its_value() {
        let mut outcome = Outcome::new();
        outcome.metric("total_time", 2.0, "s");
        outcome.refuse("efficiency", "there is no clock for it");
        let metrics = &outcome.to_json("pi", Map::new(), 1.0)["metrics"];
        assert_eq!(metrics["total_time"]["value"], 2.0);
        assert_eq!(metrics["efficiency"], json!({"refused": "there is no clock for it"}));
    }

    #[test]
    fn values_that_a_kernel_lacks_are_not_printed() {
        let line = Outcome::new().to_json("noploop", Map::new(), 1.0);
        for member in ["histograms", "random_read_bytes", "loader"] {
            assert!(line.get(member).is_none(), "{member}");
        }
    }
}
