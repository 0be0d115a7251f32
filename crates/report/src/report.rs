//! What a report is made from.

use crate::Gate;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom};
use weigh_model::{HostFacts, Plan, VoidUnit};
use weigh_stats::{Analysis, Circumstances, Course, Degradation, Failure, Isolation, Limit, Notice, Sum};

/// Everything that a report shows. It is data: rendering looks nothing up and measures nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// What was asked, for people: the command, or the file that was analysed.
    pub title: String,
    /// Name of the run, where there is one.
    pub run: Option<String>,
    /// The two runs, where two are compared.
    pub compared: Option<ComparedRuns>,
    /// The plan, where there was one: seed, versions, digests, limits.
    pub plan: Option<Plan>,
    /// The machine.
    pub host: Option<HostFacts>,
    /// Cells, verdicts and the warnings of the statistics.
    pub analysis: Analysis,
    /// What one more guest takes, for what was taken at several numbers of guests.
    pub limits: Vec<Limit>,
    /// What neighbours cost a guest, for what was measured among neighbours.
    pub degradations: Vec<Degradation>,
    /// What neighbours that do something cost beyond idle ones.
    pub isolations: Vec<Isolation>,
    /// What all guests do together, where all run the workload.
    pub sums: Vec<Sum>,
    /// How values went over time, for a run of a certain length.
    pub courses: Vec<Course>,
    /// What is known of each environment, in the order of the plan.
    pub environments: Vec<EnvironmentFacts>,
    /// Noise, clocks, CPU time; empty for samples measured elsewhere.
    pub circumstances: Circumstances,
    /// Units that were declared void, replaced ones included.
    pub voids: Vec<VoidUnit>,
    /// Failed trials and cells that are not measured.
    pub failures: Vec<Failure>,
    /// The ends of the logs that failures name, where they could be read.
    pub logs: BTreeMap<String, LogEnd>,
    /// Warnings beside those of the analysis.
    pub warnings: Vec<Notice>,
    /// Blocks that the plan asked for at least.
    pub blocks_planned: Option<u32>,
    /// Complete blocks.
    pub blocks_done: Option<u32>,
    /// What the effort was, for people: "quick", "standard", "40 blocks".
    pub effort_label: Option<String>,
    /// Who measured samples from elsewhere and what each value is, for people, where it is known.
    pub samples: Option<String>,
}

impl Report {
    /// A report of an analysis and nothing else, as for samples measured elsewhere.
    pub fn new(title: &str, analysis: Analysis) -> Self {
        Self { title: title.into(), analysis, ..Self::default() }
    }
}

/// The end of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEnd {
    /// The last bytes, with what is no UTF-8 replaced.
    pub text: String,
    /// Size of the whole log, bytes.
    pub size_bytes: u64,
}

impl LogEnd {
    /// As much of a log as a report shows, bytes.
    pub const LONGEST_BYTES: u64 = 4096;

    /// The end of a log of any size, of which no more than that is read.
    ///
    /// # Errors
    /// Those of seeking and reading.
    pub fn read(log: &mut (impl Read + Seek)) -> io::Result<Self> {
        let size_bytes = log.seek(SeekFrom::End(0))?;
        log.seek(SeekFrom::Start(size_bytes.saturating_sub(Self::LONGEST_BYTES)))?;
        let mut end = Vec::new();
        log.take(Self::LONGEST_BYTES).read_to_end(&mut end)?;
        Ok(Self { text: String::from_utf8_lossy(&end).into_owned(), size_bytes })
    }
}

/// The names of runs that are compared, separated by commas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComparedRuns {
    /// Those of one side.
    pub before: String,
    /// Those of the other.
    pub after: String,
}

/// What is known of an environment.
#[derive(Debug, Clone, PartialEq)]
pub struct EnvironmentFacts {
    /// Its name in the plan.
    pub name: String,
    /// Facts that can decide a result, by parity key ([`weigh_model::PARITY_KEYS`]; the memory also
    /// as the number `memory_bytes`). A fact that differs from the baseline's is named beside every
    /// ratio of the environment, so that nothing unequal goes unsaid; what is always different and
    /// decides nothing (a host name, a process id) does not belong here.
    pub facts: BTreeMap<String, Value>,
    /// Keys in which it differs from the baseline because of what it is, and why, in words. A key
    /// that is neither here nor in [`Plan::allow_unequal`] is shown as a fault.
    pub intended: BTreeMap<String, String>,
}

/// The formats a report can be written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For the terminal.
    Table,
    /// For programs; `schema/show.schema.json` describes it, and `schema/study.schema.json` a
    /// study.
    Json,
    /// One row per cell, RFC 4180.
    Csv,
    /// Tables of GitHub's Markdown.
    Markdown,
    /// A document that compiles by itself, with booktabs and siunitx.
    Latex,
    /// One page that fetches nothing, with plots; every number is there without its script.
    Html,
    /// Test cases in XML, for servers of continuous integration.
    Junit,
    /// Bencher Metric Format, JSON.
    Bencher,
    /// A list of medians of which less is better, JSON, as github-action-benchmark reads it.
    GithubSmaller,
    /// The same of those of which more is better.
    GithubBigger,
    /// The text of Go's benchmarks, with every value.
    Go,
    /// JSON of Google Benchmark, with every value that is a time.
    GoogleBenchmark,
    /// OpenMetrics text.
    OpenMetrics,
}

/// What the terminal can show, and what JUnit's cases fail for; the other formats take no notice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Columns of a terminal; fewer than 40 are taken as 40.
    pub width: usize,
    /// Whether words may be coloured. Nothing is said by colour alone.
    pub color: bool,
    /// Whether anything beyond ASCII may be printed.
    pub unicode: bool,
    /// Whether a terminal shows all of a run, and not the brief form alone.
    pub details: bool,
    /// What a case of JUnit's fails for; none: nothing fails for being slow.
    pub gate: Option<Gate>,
}

impl Default for Options {
    fn default() -> Self {
        Self { width: 100, color: false, unicode: true, details: true, gate: None }
    }
}

/// A report that cannot be written: a format that it does not fit into, or a fault of this crate.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The JSON or a value of it cannot be written.
    #[error("cannot write the report as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// A row cannot be written.
    #[error("cannot write the report as CSV: {0}")]
    Csv(String),
    /// Formats for programs are written from data, not from a document.
    #[error("a document has no format for programs")]
    NotForPrograms,
    /// A study or a pool in a format that holds benchmarks.
    #[error("the format holds the benchmarks of one run, and this is a {what}: export a run of it")]
    NotOneRun {
        /// What it is.
        what: &'static str,
    },
    /// Runs compared with runs in a format that holds every value.
    #[error(
        "`{format}` holds every value, and a comparison of runs has none: export each run with `weigh show RUN --format {format}`"
    )]
    NoSamples {
        /// The format.
        format: &'static str,
    },
    /// A report without a metric of the kind that a format holds.
    #[error("the format holds {holds}, and no metric of this report is one of them")]
    NoMetric {
        /// The kind, in the plural.
        holds: &'static str,
    },
    /// An element cannot be written.
    #[error("cannot write the report as JUnit's XML: {0}")]
    Junit(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    #[test]
    fn only_the_end_of_a_log_is_read() {
        let long = [vec![b'x'; 1 << 20], b"\xff\xfe the end".to_vec()].concat();
        let end = LogEnd::read(&mut Cursor::new(long)).unwrap();
        assert_eq!(end.size_bytes, (1 << 20) + 10);
        assert!(end.text.ends_with("x\u{fffd}\u{fffd} the end") && end.text.starts_with('x'));
        assert_eq!(end.text.chars().count() as u64, LogEnd::LONGEST_BYTES);
        let short = LogEnd::read(&mut Cursor::new(b"short")).unwrap();
        assert_eq!((short.text.as_str(), short.size_bytes), ("short", 5));
    }
}
