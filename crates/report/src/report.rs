//! The input of a report.

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
    /// The name of the run, if there is one.
    pub run: Option<String>,
    /// The runs on both sides, if runs are compared.
    pub compared: Option<ComparedRuns>,
    /// The plan, if there was one: seed, versions, digests, limits.
    pub plan: Option<Plan>,
    /// The machine.
    pub host: Option<HostFacts>,
    /// Cells, verdicts and the warnings of the statistics.
    pub analysis: Analysis,
    /// What one more guest takes, for resources measured at several numbers of guests.
    pub limits: Vec<Limit>,
    /// The price of an hour of the host, by environment; empty if no price was given.
    pub prices: BTreeMap<String, f64>,
    /// What neighbours cost a guest, for metrics measured among neighbours.
    pub degradations: Vec<Degradation>,
    /// What busy neighbours cost beyond idle ones.
    pub isolations: Vec<Isolation>,
    /// The sum over all guests, where all run the workload.
    pub sums: Vec<Sum>,
    /// How values developed over time, for a run of a certain length.
    pub courses: Vec<Course>,
    /// The facts about each environment, in the order of the plan.
    pub environments: Vec<EnvironmentFacts>,
    /// Noise, clocks, CPU time; empty for samples measured elsewhere.
    pub circumstances: Circumstances,
    /// Units that were declared void, replaced ones included.
    pub voids: Vec<VoidUnit>,
    /// Failed trials, and cells that were not measured.
    pub failures: Vec<Failure>,
    /// The ends of the logs that failures name, where they could be read.
    pub logs: BTreeMap<String, LogEnd>,
    /// Warnings besides those of the analysis.
    pub warnings: Vec<Notice>,
    /// The least number of blocks that the plan asked for.
    pub blocks_planned: Option<u32>,
    /// The number of complete blocks.
    pub blocks_done: Option<u32>,
    /// The effort, for people: "quick", "standard", "40 blocks".
    pub effort_label: Option<String>,
    /// Who measured samples from elsewhere and what each value is, for people, if known.
    pub samples: Option<String>,
}

impl Report {
    /// A report of an analysis alone, as for samples measured elsewhere.
    pub fn new(title: &str, analysis: Analysis) -> Self {
        Self { title: title.into(), analysis, ..Self::default() }
    }
}

/// The end of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEnd {
    /// The last bytes, with invalid UTF-8 replaced.
    pub text: String,
    /// The size of the whole log, bytes.
    pub size_bytes: u64,
}

impl LogEnd {
    /// The most bytes of a log that a report shows.
    pub const LONGEST_BYTES: u64 = 4096;

    /// Reads the end of a log of any size, and no more than [`Self::LONGEST_BYTES`].
    ///
    /// # Errors
    /// Errors of seeking and reading.
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
    /// The runs of one side.
    pub before: String,
    /// The runs of the other side.
    pub after: String,
}

/// The facts about an environment.
#[derive(Debug, Clone, PartialEq)]
pub struct EnvironmentFacts {
    /// Its name in the plan.
    pub name: String,
    /// Facts that can affect a result, by parity key ([`weigh_model::PARITY_KEYS`]; the memory also
    /// as the number `memory_bytes`). A fact that differs from the baseline's is named beside every
    /// ratio of the environment, so that every inequality is reported. Facts that always differ and
    /// affect nothing (a host name, a process id) do not belong here.
    pub facts: BTreeMap<String, Value>,
    /// Keys in which it differs from the baseline because of what it is, each with the reason in
    /// words. A key that is neither here nor in [`Plan::allow_unequal`] is shown as a fault.
    pub intended: BTreeMap<String, String>,
}

/// The formats a report can be written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For the terminal.
    Table,
    /// For programs. `schema/show.schema.json` describes it, and `schema/study.schema.json` the
    /// JSON of a study.
    Json,
    /// One row per cell, RFC 4180.
    Csv,
    /// GitHub-flavoured Markdown with tables.
    Markdown,
    /// A complete LaTeX file, with booktabs and siunitx.
    Latex,
    /// One page that fetches nothing, with plots. It shows every number even without its script.
    Html,
    /// JUnit XML, for CI servers.
    Junit,
    /// Bencher Metric Format, JSON.
    Bencher,
    /// A JSON list of medians where less is better, for github-action-benchmark.
    GithubSmaller,
    /// A JSON list of medians where more is better, for github-action-benchmark.
    GithubBigger,
    /// The text of Go's benchmarks, with every value.
    Go,
    /// JSON of Google Benchmark, with every value that is a time.
    GoogleBenchmark,
    /// OpenMetrics text.
    OpenMetrics,
}

impl Format {
    /// Whether it holds the benchmarks of one run, for other tools.
    pub fn is_for_tools(self) -> bool {
        matches!(
            self,
            Self::Bencher
                | Self::GithubSmaller
                | Self::GithubBigger
                | Self::Go
                | Self::GoogleBenchmark
                | Self::OpenMetrics
        )
    }
}

/// What the terminal can show, and what makes JUnit cases fail. The other formats ignore it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// The width of the terminal in columns; less than 40 is taken as 40.
    pub width: usize,
    /// Whether words may be coloured. No information is in the colour alone.
    pub color: bool,
    /// Whether anything beyond ASCII may be printed.
    pub unicode: bool,
    /// Whether a terminal shows all of a run, or only the brief form.
    pub details: bool,
    /// The gate that JUnit cases have to pass; with `None`, nothing fails for being slow.
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
    /// The JSON or a value in it cannot be written.
    #[error("cannot write the report as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// A row cannot be written.
    #[error("cannot write the report as CSV: {0}")]
    Csv(String),
    /// A format for programs was asked of a document; these are written from data.
    #[error("a document has no format for programs")]
    NotForPrograms,
    /// A study or a pool in a format for the benchmarks of one run.
    #[error("the format holds the benchmarks of one run, and this is a {what}: export a run of it")]
    NotOneRun {
        /// The kind of report.
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
    /// A report without any metric of the kind that the format holds.
    #[error("the format holds {holds}, and no metric of this report is one of them")]
    NoMetric {
        /// The kind, in the plural.
        holds: &'static str,
    },
    /// A name that the readers of the format refuse, and with it the whole file.
    #[error("`{format}` takes names of up to {most} bytes, and this one has {}: {name}", .name.len())]
    LongName {
        /// The format.
        format: &'static str,
        /// The number of bytes that a name may have.
        most: usize,
        /// The name.
        name: String,
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
