//! Extracts values in base units from the output of a command.

use crate::parsers;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2Serializer};
use regex::RegexBuilder;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use weigh_model::{Extraction, FailureKind, MetricSource, WorkloadPlan};

/// Longest histogram that is kept of a run, bytes in base64. A histogram of three digits takes a
/// tenth of it, and each is stored with its sample.
const LONGEST_HISTOGRAM: usize = 256 << 10;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It exited with this status.
    Exited(i32),
    /// This signal ended it.
    Signalled(i32),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => write!(f, "exited with status {status}"),
            Self::Signalled(9) => f.write_str("was ended by signal 9 (SIGKILL), as when memory runs out"),
            Self::Signalled(signal) => write!(f, "was ended by signal {signal}"),
        }
    }
}

/// Resources that a command and its children used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Resources {
    /// CPU time in user mode, nanoseconds.
    pub user_ns: u64,
    /// CPU time in the kernel, nanoseconds.
    pub system_ns: u64,
    /// Largest resident set, bytes.
    pub maximum_resident_set_bytes: u64,
}

/// Everything known about a command that has ended.
#[derive(Debug, Clone, Copy)]
pub struct RawResult<'a> {
    /// How it ended.
    pub status: Ended,
    /// Standard output.
    pub output: &'a [u8],
    /// Standard error.
    pub error: &'a [u8],
    /// Time from before its start to its end, nanoseconds.
    pub duration_ns: u64,
    /// The resources that it used.
    pub resources: Resources,
}

/// The values extracted from a command that ran.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Extracted {
    /// Value of each metric in its base unit.
    pub values: BTreeMap<String, f64>,
    /// Operations of the run, if the workload counts them.
    pub operations: Option<f64>,
    /// Duration by the command's own clock, nanoseconds, if it reports one.
    pub tool_duration_ns: Option<u64>,
    /// Bytes that it reports to have read at random places of a disk.
    pub random_read_bytes: Option<u64>,
    /// Latency histograms by JSON pointer, as they were printed. A metric that is a quantile has
    /// its histogram here and no value, because the statistics merge histograms first.
    pub histograms: BTreeMap<String, String>,
    /// Metrics for which the output has a value that is not a measurement, and why.
    pub refused: BTreeMap<String, String>,
}

/// Why the output of a command gives no numbers.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ExtractError {
    /// The command ended badly.
    #[error("the command {ended}{}", said(tail))]
    Status {
        /// How it ended.
        ended: Ended,
        /// End of its output on standard error, or on standard output if that is empty.
        tail: String,
    },
    /// The workload's own check failed.
    #[error("the check failed: {statement}{}", said(tail))]
    CheckFailed {
        /// The workload's statement about the check, or what was looked for.
        statement: String,
        /// End of the output.
        tail: String,
    },
    /// A metric is not in the output.
    #[error("no value of {metric} in the output: looked for {looked_for}{}", said(tail))]
    Missing {
        /// Name of the metric.
        metric: String,
        /// Where it was looked for.
        looked_for: String,
        /// End of the output.
        tail: String,
    },
    /// A histogram exists but cannot be merged with others.
    #[error(
        "the histogram at `{pointer}` {fault}; print the V2 encoding of HdrHistogram in base64, in nanoseconds"
    )]
    Histogram {
        /// JSON pointer.
        pointer: String,
        /// What is wrong.
        fault: String,
    },
    /// A metric exists but is not a measurement.
    #[error("the value of {metric} is {found}, which is not a positive number{}", said(tail))]
    Unusable {
        /// Name of the metric.
        metric: String,
        /// The value found.
        found: String,
        /// End of the output.
        tail: String,
    },
}

impl ExtractError {
    /// The class of failure of the trial.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Status { .. } => FailureKind::ExitStatus,
            Self::CheckFailed { .. }
            | Self::Missing { .. }
            | Self::Histogram { .. }
            | Self::Unusable { .. } => FailureKind::Check,
        }
    }
}

/// Runs the check and reads every metric, in base units.
///
/// A value must be a positive number, because an overhead is a ratio. Only descriptive user and
/// system times and resident sets may be 0: the kernel's own accounting counts nothing for a very
/// short command.
///
/// # Errors
/// [`ExtractError`], with the end of the command's output.
pub fn extract(plan: &WorkloadPlan, result: &RawResult<'_>) -> Result<Extracted, ExtractError> {
    let output = Output::new(result.output);
    let check = plan.check.as_ref().map(|check| output.check(check));
    let ignored = plan.ignore_failure && matches!(result.status, Ended::Exited(_));
    if result.status != Ended::Exited(0) && !ignored {
        // A kernel whose check failed exits with 3 and explains this in its result.
        if let Some(Err(failed @ ExtractError::CheckFailed { .. })) = check
            && output.statement().is_some()
        {
            return Err(failed);
        }
        let said = if tail(result.error).is_empty() { result.output } else { result.error };
        return Err(ExtractError::Status { ended: result.status, tail: tail(said) });
    }
    check.transpose()?;
    let mut extracted = Extracted::default();
    for metric in &plan.metrics {
        if metric.from == Extraction::Stamp {
            // The runner knows this value; it is not in the output.
        } else if let Extraction::Quantile { histogram, .. } = &metric.from {
            extracted.histograms.insert(histogram.clone(), output.histogram(metric, histogram)?);
        } else if let Some(reason) = output.refused(&metric.from) {
            extracted.refused.insert(metric.spec.name.clone(), reason);
        } else {
            extracted.values.insert(metric.spec.name.clone(), output.value(metric, result)?);
        }
    }
    let amount = |from: Option<&Extraction>, what: &str| {
        from.map(|from| output.amount(from, what, result)).transpose()
    };
    let operations = plan.operations.as_ref().map(|operations| &operations.from);
    extracted.operations = amount(operations, "operations")?;
    let duration_s = amount(plan.tool_duration.as_ref(), "the tool's own duration")?;
    extracted.tool_duration_ns = duration_s.map(|seconds| (seconds * 1e9).round() as u64);
    if let Some(from) = &plan.random_read_bytes {
        // A job that only wrote reports no reads for a device to have seen.
        let what = "bytes read at random places";
        let bytes = output.number(from, what, result)?;
        if !(bytes.is_finite() && bytes >= 0.0) {
            return Err(output.unusable(what, format!("{bytes}")));
        }
        extracted.random_read_bytes = Some(bytes.round() as u64).filter(|bytes| *bytes > 0);
    }
    Ok(extracted)
}

struct Output<'a> {
    bytes: &'a [u8],
    text: Cow<'a, str>,
    /// The last line that is not empty, if it is JSON.
    json: Option<Value>,
}

impl<'a> Output<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let last = text.lines().rev().find(|line| !line.trim().is_empty());
        let json = last.and_then(|line| serde_json::from_str(line).ok());
        Self { bytes, text, json }
    }

    fn tail(&self) -> String {
        tail(self.bytes)
    }

    /// The statement of a kernel's own check.
    fn statement(&self) -> Option<&str> {
        self.json.as_ref()?.pointer("/check/statement")?.as_str()
    }

    fn check(&self, check: &Extraction) -> Result<(), ExtractError> {
        let passed = match check {
            Extraction::Json { pointer } => {
                self.json.as_ref().and_then(|json| json.pointer(pointer)) == Some(&Value::Bool(true))
            }
            Extraction::Regex { pattern } => {
                // The pattern was compiled when its manifest was read. A plan of another version
                // may contain one that is not valid here.
                multi_line(pattern).is_some_and(|regex| regex.is_match(&self.text))
            }
            Extraction::Parser { parser, field } => {
                parsers::find(parser).and_then(|parser| parser.passes(&self.text, field)) == Some(true)
            }
            Extraction::Duration
            | Extraction::UserTime
            | Extraction::SystemTime
            | Extraction::CpuTime
            | Extraction::MaximumResidentSet
            | Extraction::Stamp
            | Extraction::Quantile { .. } => true,
        };
        if passed {
            return Ok(());
        }
        match self.statement() {
            Some(statement) => {
                Err(ExtractError::CheckFailed { statement: statement.into(), tail: String::new() })
            }
            None => Err(ExtractError::CheckFailed {
                statement: format!("the output has to pass {}", words(check)),
                tail: self.tail(),
            }),
        }
    }

    fn missing(&self, what: &str, from: &Extraction) -> ExtractError {
        ExtractError::Missing { metric: what.into(), looked_for: words(from), tail: self.tail() }
    }

    fn unusable(&self, what: &str, found: String) -> ExtractError {
        ExtractError::Unusable { metric: what.into(), found, tail: self.tail() }
    }

    /// The number as written.
    fn number(&self, from: &Extraction, what: &str, result: &RawResult<'_>) -> Result<f64, ExtractError> {
        let missing = || self.missing(what, from);
        let unusable = |found: String| self.unusable(what, found);
        Ok(match from {
            Extraction::UserTime => result.resources.user_ns as f64 * 1e-9,
            Extraction::SystemTime => result.resources.system_ns as f64 * 1e-9,
            Extraction::CpuTime => (result.resources.user_ns + result.resources.system_ns) as f64 * 1e-9,
            Extraction::MaximumResidentSet => result.resources.maximum_resident_set_bytes as f64,
            Extraction::Duration => result.duration_ns as f64 * 1e-9,
            Extraction::Json { pointer } => {
                let found = self.json.as_ref().and_then(|json| json.pointer(pointer)).ok_or_else(missing)?;
                found.as_f64().ok_or_else(|| unusable(format!("`{found}`")))?
            }
            Extraction::Regex { pattern } => {
                let regex = multi_line(pattern).ok_or_else(missing)?;
                let groups = regex.captures(&self.text).ok_or_else(missing)?;
                let found = groups.get(1).ok_or_else(missing)?.as_str().trim();
                found.parse().map_err(|_| unusable(format!("`{found}`")))?
            }
            // Quantiles are made of histograms, and stamps are never in the output of a command.
            Extraction::Quantile { .. } | Extraction::Stamp => return Err(missing()),
            Extraction::Parser { parser, field } => parsers::find(parser)
                .and_then(|parser| parser.value(&self.text, field))
                .ok_or_else(missing)?,
        })
    }

    /// Why the parser does not accept a value as a measurement.
    fn refused(&self, from: &Extraction) -> Option<String> {
        match from {
            Extraction::Parser { parser, field } => (parsers::find(parser)?.refused)(&self.text, field),
            // A builtin kernel prints a reason beside the place of a value that it has not measured.
            Extraction::Json { pointer } => {
                let place = format!("{}/refused", pointer.strip_suffix("/value")?);
                self.json.as_ref()?.pointer(&place)?.as_str().map(Into::into)
            }
            _ => None,
        }
    }

    /// A number that is not a metric: the amount of work of a run.
    fn amount(&self, from: &Extraction, what: &str, result: &RawResult<'_>) -> Result<f64, ExtractError> {
        let amount = self.number(from, what, result)?;
        if amount.is_finite() && amount > 0.0 {
            Ok(amount)
        } else {
            Err(self.unusable(what, format!("{amount}")))
        }
    }

    /// The text of a histogram that is not empty and can be merged with others.
    fn histogram(&self, metric: &MetricSource, pointer: &str) -> Result<String, ExtractError> {
        let missing = || self.missing(&metric.spec.name, &metric.from);
        if let Some((parser, field)) = parsers::parsed_histogram(pointer) {
            let histogram = parser.histogram(&self.text, field).ok_or_else(missing)?;
            let mut bytes = Vec::new();
            let written = V2Serializer::new().serialize(&histogram, &mut bytes);
            let fault = match written {
                Ok(_) if !histogram.is_empty() => return Ok(BASE64_STANDARD.encode(bytes)),
                Ok(_) => "is empty".into(),
                Err(error) => format!("cannot be kept: {error}"),
            };
            return Err(ExtractError::Histogram { pointer: pointer.into(), fault });
        }
        let text = self.json.as_ref().and_then(|json| json.pointer(pointer)).ok_or_else(missing)?;
        let fault = |fault: String| ExtractError::Histogram { pointer: pointer.into(), fault };
        let text = text.as_str().ok_or_else(|| fault("is not text".into()))?;
        if text.len() > LONGEST_HISTOGRAM {
            return Err(fault(format!("has {} bytes, more than {LONGEST_HISTOGRAM}", text.len())));
        }
        let bytes = BASE64_STANDARD.decode(text).map_err(|error| fault(format!("is not base64: {error}")))?;
        let histogram: Histogram<u64> = Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .map_err(|error| fault(format!("cannot be read: {error}")))?;
        if histogram.is_empty() { Err(fault("is empty".into())) } else { Ok(text.into()) }
    }

    fn value(&self, metric: &MetricSource, result: &RawResult<'_>) -> Result<f64, ExtractError> {
        let raw = self.number(&metric.from, &metric.spec.name, result)?;
        let value = raw * metric.factor;
        let counted = matches!(
            metric.from,
            Extraction::UserTime
                | Extraction::SystemTime
                | Extraction::CpuTime
                | Extraction::MaximumResidentSet
        );
        let may_be_zero = counted && !metric.spec.primary;
        if value.is_finite() && (value > 0.0 || (may_be_zero && value == 0.0)) {
            Ok(value)
        } else {
            Err(self.unusable(&metric.spec.name, format!("{raw}")))
        }
    }
}

fn multi_line(pattern: &str) -> Option<regex::Regex> {
    RegexBuilder::new(pattern).multi_line(true).build().ok()
}

/// Describes what an extraction looks for.
fn words(extraction: &Extraction) -> String {
    match extraction {
        Extraction::Duration => "the duration of the command".into(),
        Extraction::UserTime => "the CPU time of the command in user mode".into(),
        Extraction::SystemTime => "the CPU time of the command in the kernel".into(),
        Extraction::CpuTime => "the CPU time of the command".into(),
        Extraction::MaximumResidentSet => "the largest resident set of the command".into(),
        Extraction::Json { pointer } => format!("`{pointer}` in a last line that is JSON"),
        Extraction::Regex { pattern } => format!("the regular expression `{pattern}`"),
        Extraction::Quantile { histogram, quantile } => {
            format!("the quantile {quantile} of the histogram at `{histogram}`")
        }
        Extraction::Stamp => "a stamp of a guest's start".into(),
        Extraction::Parser { parser, field } => format!("`{field}` by the parser `{parser}`"),
    }
}

const TAIL_LINES: usize = 6;
const TAIL_BYTES: usize = 800;

/// The last lines of an output, which explain a failure where it is reported.
fn tail(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(TAIL_BYTES)..]);
    let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

fn said(tail: &str) -> String {
    if tail.is_empty() { String::new() } else { format!("; it said: {tail}") }
}

#[cfg(test)]
mod tests;
