//! A workload that was read and validated.

use std::fmt;
use weigh_model::{Extraction, MetricSource, Operations, SlicedWork, Staging};

/// Amount of work: seconds, a proper measurement, or that of the papers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    /// A fraction of a second, for a first look.
    Quick,
    /// A few seconds.
    Standard,
    /// The work of the studies.
    Paper,
}

impl Size {
    /// All sizes, smallest first.
    pub const ALL: [Self; 3] = [Self::Quick, Self::Standard, Self::Paper];

    /// The spelling in manifests, plans and the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Standard => "standard",
            Self::Paper => "paper",
        }
    }

    /// Returns the size of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|size| size.as_str() == name)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A workload as its manifest describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    pub(crate) name: String,
    pub(crate) summary: String,
    pub(crate) description: String,
    pub(crate) command: Vec<String>,
    pub(crate) prepare: Option<Vec<String>>,
    pub(crate) cleanup: Option<Vec<String>>,
    pub(crate) warmup: u32,
    pub(crate) iterations: u32,
    pub(crate) sliced: Option<SlicedWork>,
    pub(crate) deadline_s: Option<f64>,
    pub(crate) expected_s: [Option<f64>; 3],
    pub(crate) default_set: bool,
    pub(crate) params: Vec<ParamSpec>,
    pub(crate) check_statement: String,
    pub(crate) check: Option<Extraction>,
    pub(crate) metrics: Vec<MetricSource>,
    /// Sizes at which the metric of the same position exists.
    pub(crate) metric_sizes: Vec<Vec<Size>>,
    pub(crate) operations: Option<Operations>,
    pub(crate) tool_duration: Option<Extraction>,
    pub(crate) random_read_bytes: Option<Extraction>,
    pub(crate) staging: Staging,
    pub(crate) serves: Vec<String>,
    pub(crate) substitute: Option<String>,
}

/// A parameter of a workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamSpec {
    /// Name, as in `--param NAME=value` and `{NAME}` in the command.
    pub name: String,
    /// What it sets, in one line.
    pub summary: String,
    /// The form of its values.
    pub kind: ParamKind,
    /// Value at each size of [`Size::ALL`] by default.
    pub defaults: [String; 3],
    /// Whether the user may set it; some follow from the size alone.
    pub settable: bool,
    /// Why there is no default and where users get a value from; they must give one then.
    pub required: Option<String>,
}

/// The form of a parameter's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ParamKind {
    /// Any text.
    Text,
    /// A whole number: `1000000`, `1e6`.
    Count,
    /// A decimal number that is not negative: `0.5`.
    Number,
    /// A number of bytes: `64MiB`, `4096`, or `llc*4`, a multiple of the host's last-level cache.
    /// The command gets the plain number.
    Bytes,
    /// Like [`Self::Bytes`], or 0 for none.
    BytesOrNone,
    /// Operations per second: a number, or a share of what the slowest environment reaches in the
    /// closed loop: `50%`.
    Rate,
}

impl Workload {
    /// Name on the command line and in tables.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it measures, in one line.
    pub fn summary(&self) -> &str {
        &self.summary
    }

    /// What it measures, how, and which studies it serves.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// How a wrong result is caught, in one sentence.
    pub fn check_statement(&self) -> &str {
        &self.check_statement
    }

    /// Parameters, in alphabetical order.
    pub fn params(&self) -> &[ParamSpec] {
        &self.params
    }

    /// Every metric of the workload; some exist only at some sizes.
    pub fn metrics(&self) -> &[MetricSource] {
        &self.metrics
    }

    /// Name of the operation by which charged CPU time is divided, in the singular; none if it is
    /// one run of the command.
    pub fn operation(&self) -> Option<&str> {
        self.operations.as_ref().map(|operations| operations.name.as_str())
    }

    /// Rows of the studies that it reproduces, as `study/row`.
    pub fn serves(&self) -> &[String] {
        &self.serves
    }

    /// Debian packages with the programs it runs.
    pub fn packages(&self) -> &[String] {
        &self.staging.packages
    }

    /// The workload that measures the same with a freely available program, if this one's program
    /// may not be redistributed.
    pub fn substitute(&self) -> Option<&str> {
        self.substitute.as_deref()
    }

    /// Whether a bare `weigh` runs it.
    pub fn default_set(&self) -> bool {
        self.default_set
    }

    /// How long one iteration takes on an ordinary machine, seconds, if the manifest says.
    pub fn expected_s(&self, size: Size) -> Option<f64> {
        self.expected_s[size as usize]
    }

    pub(crate) fn metrics_at(&self, size: Size) -> impl Iterator<Item = &MetricSource> {
        self.metrics
            .iter()
            .zip(&self.metric_sizes)
            .filter(move |(_, sizes)| sizes.contains(&size))
            .map(|(m, _)| m)
    }
}
