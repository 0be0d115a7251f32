//! Reads the text format of Go's benchmarks (proposal 14313 of the Go project, and the package
//! `golang.org/x/perf/benchfmt`).
//!
//! A result line is a name, the number of iterations, and pairs of value and unit, each value an
//! average over the iterations. A `pkg:` line that names a package again begins another run of it:
//! the outputs of several `go test` may follow each other in one file. Lines of other forms are
//! ignored, as the format says.

use super::text::{Text, is_positive};
use super::{Cell, ImportError, Run, ToolFile, metric};
use std::collections::HashMap;
use weigh_model::{Better, MetricSpec, Unit};

/// Whether a text has a result line.
pub(super) fn holds_results(bytes: &[u8]) -> bool {
    bytes.split(|byte| *byte == b'\n').any(|line| {
        let mut fields = line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
        fields.next().is_some_and(|name| name.starts_with(b"Benchmark"))
            && fields.next().is_some_and(|count| count.iter().all(u8::is_ascii_digit))
            && fields.next().is_some()
    })
}

/// The state of the reader: what the lines so far declare for those below.
#[derive(Default)]
struct Reader {
    runs: Vec<Run>,
    package: String,
    /// The run that each package is in.
    run_of: HashMap<String, usize>,
    /// Directions that `Unit` lines declare.
    declared: HashMap<String, Better>,
    /// Benchmarks that failed, each with its run. Where a first probe failed, the name lacks the
    /// number of processors that ends the names of results.
    failed: Vec<(usize, String)>,
    /// The ending of the names of results, as in `-8`.
    processors: String,
    any: bool,
    /// Lines that begin like a result but are not one.
    broken: u32,
    /// Whether every unit gets a verdict: no unit is a time, and no line says which units matter.
    all_primary: bool,
}

pub(super) fn parse(text: &Text<'_>) -> Result<ToolFile, ImportError> {
    let mut fields = text.bytes.split(u8::is_ascii_whitespace);
    let all_primary = !fields.any(|field| matches!(field, b"ns/op" | b"sec/op" | b"Unit"));
    let mut reader = Reader { runs: vec![Run::default()], all_primary, ..Reader::default() };
    let mut from = 0;
    for line in text.bytes.split_inclusive(|byte| *byte == b'\n') {
        let start = from;
        from += line.len();
        let Ok(words) = std::str::from_utf8(line) else {
            if line.starts_with(b"Benchmark") {
                return Err(text.at(start, from, "the line is not UTF-8 text", "save the file as UTF-8"));
            }
            continue;
        };
        if words.starts_with("{\"") && words.contains("\"Action\":") {
            let help = "run `go test -bench` without -json";
            return Err(text.at(start, from, "the file was written by `go test -json`", help));
        }
        reader.line(text, start, words)?;
    }
    for (run, benchmark) in std::mem::take(&mut reader.failed) {
        reader.count_failure(run, benchmark);
    }
    if !reader.any {
        return Err(ImportError::of_file(
            text.path,
            "the file holds no result of a benchmark",
            "keep the output of `go test -bench=.`, whose result lines begin with `Benchmark`",
        ));
    }
    let mut notices = Vec::new();
    if reader.broken > 0 {
        let (file, broken) = (text.path.display(), reader.broken);
        let seen = format!("lines that begin like a result but are not one in {file}: {broken}");
        notices.push((seen, "a benchmark that prints breaks its own line: let it print nothing".into()));
    }
    Ok(ToolFile { runs: reader.runs, notices })
}

impl Reader {
    fn line(&mut self, text: &Text<'_>, start: usize, line: &str) -> Result<(), ImportError> {
        if let Some(package) = line.strip_prefix("pkg:") {
            self.begin_package(package.trim());
            return Ok(());
        }
        if let Some(name) = failed(line) {
            self.failed.push((self.run(), self.name(name)));
            return Ok(());
        }
        let fields: Vec<&str> = line.split_whitespace().collect();
        match fields.as_slice() {
            ["Unit", unit, settings @ ..] => {
                for setting in settings {
                    match *setting {
                        "better=higher" => self.declared.insert((*unit).into(), Better::Higher),
                        "better=lower" => self.declared.insert((*unit).into(), Better::Lower),
                        _ => None,
                    };
                }
                Ok(())
            }
            [name, count, pairs @ ..] if line.starts_with("Benchmark") && count.parse::<u64>().is_ok() => {
                self.result(text, start, line, &name["Benchmark".len()..], pairs)
            }
            [name, _, ..] if name.starts_with("Benchmark") && line.starts_with("Benchmark") => {
                self.broken += 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn result(
        &mut self,
        text: &Text<'_>,
        start: usize,
        line: &str,
        name: &str,
        pairs: &[&str],
    ) -> Result<(), ImportError> {
        let end = start + line.trim_end().len();
        if pairs.is_empty() || pairs.len() % 2 == 1 {
            let help = "a result has a unit after each value; a file that ends here is cut short";
            return Err(text.at(start, end, "the result has a value without a unit", help));
        }
        let benchmark = self.name(name);
        let run = self.run();
        for (value, unit) in pairs.chunks_exact(2).map(|pair| (pair[0], pair[1])) {
            let (mut metric, factor) = self.metric(unit);
            metric.primary |= self.all_primary;
            let number: f64 = value.parse().map_err(|_| {
                let from = start + line.find(value).unwrap_or(0);
                text.at(from, from + value.len(), &format!("`{value}` is not a number"), "")
            })?;
            let number = number * factor;
            if metric.primary && !is_positive(number) {
                let from = start + line.find(value).unwrap_or(0);
                let message = format!("{value} is not a positive number");
                let help = "overheads are ratios, so every value must be above 0";
                return Err(text.at(from, from + value.len(), &message, help));
            }
            self.runs[run].cell(&benchmark, &metric).values.push(number);
        }
        self.any = true;
        if let Some((_, number)) = name.rsplit_once('-').filter(|(_, number)| is_number(number)) {
            self.processors = format!("-{number}");
        }
        Ok(())
    }

    /// Counts a failure in every metric of the benchmark that gets a verdict.
    fn count_failure(&mut self, run: usize, mut benchmark: String) {
        let (time, _) = self.metric("ns/op");
        let run = &mut self.runs[run];
        let has_results = run.cells.iter().any(|cell| cell.benchmark == benchmark);
        if !has_results && !benchmark.ends_with(&self.processors) {
            benchmark.push_str(&self.processors);
        }
        let is_judged = |cell: &&mut Cell| cell.benchmark == benchmark && cell.metric.primary;
        let mut is_counted = false;
        for cell in run.cells.iter_mut().filter(is_judged) {
            cell.failed += 1;
            is_counted = true;
        }
        if !is_counted {
            run.cell(&benchmark, &time).failed += 1;
        }
    }

    fn begin_package(&mut self, package: &str) {
        self.package = package.into();
        let run = self.run_of.get(package).map_or(0, |run| run + 1);
        self.run_of.insert(package.into(), run);
        if self.runs.len() <= run {
            self.runs.push(Run::default());
        }
    }

    /// The run that the next results belong to.
    fn run(&self) -> usize {
        self.run_of.get(&self.package).copied().unwrap_or(0)
    }

    fn name(&self, name: &str) -> String {
        if self.package.is_empty() { name.into() } else { format!("{}.{name}", self.package) }
    }

    /// Returns the metric of a unit. The last of the words between hyphens is the measurement unit,
    /// and the words before it name the metric. Times are primary, and so are units that a `Unit`
    /// line declares.
    fn metric(&self, unit: &str) -> (MetricSpec, f64) {
        let declared = self.declared.get(unit).copied();
        let rate = unit.ends_with("/s");
        let better = declared.unwrap_or(if rate { Better::Higher } else { Better::Lower });
        if is_time(unit) {
            let symbol = if unit == "ns/op" { "ns" } else { "s" };
            return metric("time", symbol, better, true);
        }
        let (name, symbol) = unit.rsplit_once('-').unwrap_or((unit, unit));
        let symbol = match symbol.strip_suffix("/op") {
            Some(per_operation)
                if Unit::normalise(per_operation).0.symbol() != per_operation
                    || matches!(per_operation, "B" | "s") =>
            {
                per_operation
            }
            _ => symbol,
        };
        metric(name, symbol, better, declared.is_some())
    }
}

/// The name of the benchmark that a line reports as failed. A repetition that failed is reported
/// where its result would be, behind the name of the result, or with -v on a line of its own; so is
/// a first probe.
fn failed(line: &str) -> Option<&str> {
    let (before, name) = line.split_once("--- FAIL: Benchmark")?;
    match before.split_whitespace().next() {
        Some(result) => result.strip_prefix("Benchmark"),
        None => Some(name.trim()),
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_time(unit: &str) -> bool {
    matches!(unit, "ns/op" | "sec/op")
}
