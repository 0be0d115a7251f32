//! What a kernel returns, and the JSON line it becomes.

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
    /// Whether the result stands. A kernel whose check failed has measured nothing.
    pub passed: bool,
    /// What was checked and what was found, as a sentence.
    pub statement: String,
}

/// The result of one run of a kernel.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// In the order in which they are printed.
    pub metrics: Vec<Metric>,
    /// The proof that the work was done.
    pub check: Check,
    /// What the numbers depend on: threads, instruction set, huge pages, the tick of the clock.
    pub facts: Map<String, Value>,
    /// Sentences for people.
    pub warnings: Vec<String>,
}

impl Outcome {
    /// An outcome without metrics, whose facts hold what every kernel states.
    pub(crate) fn new() -> Self {
        let mut facts = Map::new();
        facts.insert("architecture".into(), std::env::consts::ARCH.into());
        facts.insert("clock_tick_s".into(), crate::clock::seconds(crate::tick_ns()).into());
        let check = Check { passed: false, statement: "nothing was checked".into() };
        Self { metrics: Vec::new(), check, facts, warnings: Vec::new() }
    }

    pub(crate) fn metric(&mut self, name: impl Into<String>, value: f64, unit: &'static str) {
        self.metrics.push(Metric { name: name.into(), value, unit });
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

    /// Warns when the shortest timed piece of work lasted less than 20 ticks of the clock, or less than 1 ms.
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

    /// The line that `weigh-kernels` prints, without its newline. `params` are the options that were in force.
    pub fn to_json(&self, kernel: &str, params: Map<String, Value>) -> Value {
        let metrics: Map<String, Value> = self
            .metrics
            .iter()
            .map(|metric| (metric.name.clone(), json!({"value": metric.value, "unit": metric.unit})))
            .collect();
        json!({
            "kernel": kernel,
            "params": params,
            "metrics": metrics,
            "check": {"passed": self.check.passed, "statement": self.check.statement},
            "facts": self.facts,
            "warnings": self.warnings,
        })
    }
}
