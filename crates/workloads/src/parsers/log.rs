//! Logs of several runs, as studies keep them: repeated output of a tool, often with a line of a
//! script above each.
//!
//! ```text
//! log --split--> the text of each run --the tool's parser--> a value of each
//! ```
//!
//! A fault in one run makes all runs of its name in the log unusable, because the choice of the
//! remaining runs could depend on their results.

use super::{Parser, find, fio_groups, first_number};
use regex::Regex;
use weigh_model::Unit;

/// One run of a log.
#[derive(Debug, Clone, PartialEq)]
pub struct LoggedRun {
    /// The line at which the run begins, from 1.
    pub line: usize,
    /// The value of the parameter that the tool itself reports: clients or threads.
    pub point: Option<String>,
    /// The value of the field, in its base unit.
    pub value: f64,
    /// When it began and ended, seconds of one clock for all logs, if the log says so.
    pub span: Option<(f64, f64)>,
}

/// A log that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct LogFault {
    /// The line, from 1; absent if the whole log is at fault.
    pub line: Option<usize>,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub help: String,
}

impl LogFault {
    fn whole(message: String, help: &str) -> Self {
        Self { line: None, message, help: help.into() }
    }
}

/// How the outputs of a tool are separated.
struct Form {
    parser: &'static str,
    split: fn(&str) -> Vec<Piece<'_>>,
    /// Words that stand at the end of a run, and never before the first.
    ends: &'static [&'static str],
    /// Why a run is not a measurement.
    fault: fn(&Parser, &Piece<'_>) -> Option<&'static str>,
}

/// The output of one run.
#[derive(Debug, Default)]
struct Piece<'a> {
    line: usize,
    text: &'a str,
    /// The tool's name for it.
    name: Option<String>,
    /// The last line that a script printed above it.
    heading: Option<&'a str>,
    point: Option<String>,
    /// When it began and ended, seconds.
    span: Option<(f64, f64)>,
    /// Whether it is cut off in such a way that it may be of any name, so every section has it.
    cut: bool,
    /// Whether a later report of the same process takes its place.
    stale: bool,
}

const FORMS: &[Form] = &[
    Form {
        parser: "stream",
        split: stream,
        ends: &["Solution Validates", "Failed Validation"],
        fault: |parser, piece| checked(parser, piece, "validates"),
    },
    Form {
        parser: "fio",
        split: fio,
        ends: &[": total=r=", "Run status group ", "\"jobname\"", "\"disk_util\""],
        fault: fio_fault,
    },
    Form {
        parser: "random-access",
        split: random_access,
        ends: &[" locations ("],
        fault: |parser, piece| checked(parser, piece, "few_errors"),
    },
    Form {
        parser: "intel-linpack",
        split: intel_linpack,
        ends: &["Performance Summary", "Residual checks "],
        fault: residuals,
    },
    Form {
        parser: "redis-benchmark",
        split: redis_benchmark,
        ends: &[" requests per second"],
        fault: |_, _| None,
    },
    Form { parser: "sysbench", split: sysbench, ends: &["execution time (avg/stddev)"], fault: |_, _| None },
    Form { parser: "csv", split: csv, ends: &[], fault: semicolons },
    Form {
        parser: "boot-times",
        split: |text| lines(text, |line| line.split_whitespace().count()),
        ends: &[],
        fault: cut_line,
    },
    Form { parser: "client-times", split: client_times, ends: &[], fault: unlike_times },
];

/// Parsers whose logs of several runs can be read.
pub fn log_parsers() -> impl Iterator<Item = &'static str> {
    FORMS.iter().map(|form| form.parser)
}

/// The base unit of a field; none if the logs of its parser cannot be read, or it has no such
/// field.
pub fn log_unit(parser: &str, field: &str) -> Option<&'static str> {
    FORMS.iter().find(|form| form.parser == parser)?;
    find(parser)?.fields.iter().find(|(known, ..)| *known == field).map(|(_, unit, _)| *unit)
}

/// Reads a field of every run of a log, in order. If `section` is given, reads only runs of that
/// name: the tool's, or, if it gives no names, the line of a script above (`Running ...`).
///
/// # Errors
/// The parser or field does not exist, the log begins within a run, a run was cut off or failed its
/// own check, or the log has no such run.
pub fn logged_runs(
    parser: &str,
    field: &str,
    section: Option<&str>,
    text: &str,
) -> Result<Vec<LoggedRun>, LogFault> {
    let form = FORMS.iter().find(|form| form.parser == parser);
    let (Some(form), Some(parser)) = (form, find(parser)) else {
        let known = log_parsers().collect::<Vec<_>>().join(", ");
        return Err(LogFault::whole(
            format!("no parser `{parser}` reads logs of several runs"),
            &format!("name one of: {known}"),
        ));
    };
    if !parser.fields.iter().any(|(known, ..)| *known == field) {
        let known: Vec<&str> = parser.fields.iter().map(|(known, ..)| *known).collect();
        return Err(LogFault::whole(
            format!("the parser `{}` has no field `{field}`", parser.name),
            &format!("name one of: {}", known.join(", ")),
        ));
    }
    // Editors may put a byte order mark in front, which is not part of the first line.
    let text = text.trim_start_matches('\u{feff}');
    let pieces = (form.split)(text);
    let Some(first) = pieces.first() else {
        return Err(LogFault::whole(
            format!("it holds no output of {}", parser.name),
            "is it the file of another tool, or was it cut off? fetch it again",
        ));
    };
    // A run without its head is not among the pieces, and would shift the numbers of the others.
    let before = &text[..first.text.as_ptr() as usize - text.as_ptr() as usize];
    if form.ends.iter().any(|end| before.contains(end)) || parser.value(before, field).is_some() {
        return Err(LogFault {
            line: Some(1),
            message: "the log begins within a run".into(),
            help: "fetch the file again: its beginning is missing".into(),
        });
    }
    let is_meant = |piece: &&Piece<'_>| section.is_none_or(|section| piece.cut || piece.is_called(section));
    let runs: Vec<&Piece<'_>> = pieces.iter().filter(|piece| !piece.stale).collect();
    let meant: Vec<&Piece<'_>> = runs.iter().copied().filter(is_meant).collect();
    if let (true, Some(section)) = (meant.is_empty(), section) {
        return Err(LogFault::whole(
            format!("none of its {} runs is called `{section}`", runs.len()),
            "is it the file of another experiment, or was it cut off? fetch it again",
        ));
    }
    meant.into_iter().map(|piece| run(form, parser, field, piece)).collect()
}

fn run(form: &Form, parser: &Parser, field: &str, piece: &Piece<'_>) -> Result<LoggedRun, LogFault> {
    let fault = |message: String| LogFault {
        line: Some(piece.line),
        message,
        help: "fetch the file again; if the original is damaged too, no run of this name can be used".into(),
    };
    if let Some(why) = (form.fault)(parser, piece) {
        return Err(fault(format!("the run that begins here {why}")));
    }
    match parser.value(piece.text, field) {
        Some(value) if value.is_finite() && value > 0.0 => {
            Ok(LoggedRun { line: piece.line, point: piece.point.clone(), value, span: piece.span })
        }
        Some(value) => Err(fault(format!(
            "the `{field}` of the run that begins here is {value}, which is no measurement"
        ))),
        None => {
            let why = (parser.refused)(piece.text, field).unwrap_or_else(|| "it was cut off".into());
            Err(fault(format!("the run that begins here has no `{field}`: {why}")))
        }
    }
}

impl Piece<'_> {
    fn is_called(&self, section: &str) -> bool {
        match (&self.name, self.heading) {
            (Some(name), _) => name == section,
            (None, Some(heading)) => has_words(heading, section),
            (None, None) => false,
        }
    }
}

/// Whether a line has these words, not only as a part of others: `numa=1` is not in `numa=16`.
fn has_words(line: &str, words: &str) -> bool {
    let is_inside = |one: Option<char>, other: Option<char>| {
        one.is_some_and(char::is_alphanumeric) && other.is_some_and(char::is_alphanumeric)
    };
    line.match_indices(words).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + words.len()..]);
        !is_inside(before.chars().next_back(), words.chars().next())
            && !is_inside(words.chars().next_back(), after.chars().next())
    })
}

/// Why a run with its own verdict is not a measurement.
fn checked(parser: &Parser, piece: &Piece<'_>, check: &str) -> Option<&'static str> {
    match parser.passes(piece.text, check) {
        Some(true) => None,
        Some(false) => Some("failed its own check"),
        None => Some("was cut off before its verdict"),
    }
}

/// Why a run of fio is not a measurement.
fn fio_fault(parser: &Parser, piece: &Piece<'_>) -> Option<&'static str> {
    let why = checked(parser, piece, "complete")?;
    if fio_groups(piece.text).is_empty() {
        if piece.text.contains(": IOPS=") {
            return Some("is text of fio 3, of which only JSON is read");
        }
        if pattern!(r#""fio version"\s*:\s*"(?:fio-)?2"#).is_match(piece.text) {
            return Some("is JSON of fio 2, of which only text is read");
        }
    }
    Some(why)
}

/// Why a line of a table is not a measurement. Where semicolons separate the columns, a comma may
/// be the decimal point.
fn semicolons(parser: &Parser, piece: &Piece<'_>) -> Option<&'static str> {
    let why = "has semicolons, and only commas separate columns";
    cut_line(parser, piece).or_else(|| piece.text.contains(';').then_some(why))
}

fn cut_line(_: &Parser, piece: &Piece<'_>) -> Option<&'static str> {
    piece.cut.then_some("was cut off within its line")
}

/// Why a line of a client is not a measurement.
fn unlike_times(parser: &Parser, piece: &Piece<'_>) -> Option<&'static str> {
    let why = "is not a name, a start, an end and their difference";
    cut_line(parser, piece).or_else(|| piece.span.is_none().then_some(why))
}

/// The verdict of a solution, which is at the end of its line.
fn residuals(_: &Parser, piece: &Piece<'_>) -> Option<&'static str> {
    match piece.text.split_whitespace().nth(7) {
        Some("pass") => None,
        Some(_) => Some("failed its own check"),
        None => Some("was cut off before its verdict"),
    }
}

/// Splits a text at each line that `begins` matches. Each piece has its line number and the match's
/// first group.
fn pieces<'a>(text: &'a str, begins: &Regex) -> Vec<(Piece<'a>, Option<&'a str>)> {
    let heads: Vec<_> =
        begins.captures_iter(text).filter_map(|head| Some((head.get(0)?, head.get(1)))).collect();
    let ends = heads.iter().skip(1).map(|(whole, _)| whole.start()).chain([text.len()]);
    let piece = |start: usize, end: usize| Piece {
        line: text[..start].matches('\n').count() + 1,
        text: &text[start..end],
        heading: heading(&text[..start]),
        ..Piece::default()
    };
    heads
        .iter()
        .zip(ends)
        .map(|((whole, group), end)| (piece(whole.start(), end), group.map(|group| group.as_str())))
        .collect()
}

/// The last line that a script printed in a text, such as `Running stream with numaopts ...,
/// started at ...`. Two lines of sysbench look alike.
fn heading(before: &str) -> Option<&str> {
    let of_sysbench =
        |line: &str| line.starts_with("Running the test with ") || line.trim_end().ends_with(" OLTP test");
    before.lines().rfind(|line| line.starts_with("Running ") && !of_sysbench(line))
}

/// The first group of a pattern.
fn point(text: &str, of: &Regex) -> Option<String> {
    of.captures(text).map(|found| found[1].to_string())
}

fn stream(text: &str) -> Vec<Piece<'_>> {
    let begins = pattern!(r"(?m)^Array size = ");
    pieces(text, begins).into_iter().map(|(piece, _)| piece).collect()
}

fn random_access(text: &str) -> Vec<Piece<'_>> {
    let begins = pattern!(r"(?m)^Main table size ");
    pieces(text, begins).into_iter().map(|(piece, _)| piece).collect()
}

/// Splits the output of fio: text, or else JSON.
fn fio(text: &str) -> Vec<Piece<'_>> {
    let groups = fio_text(text);
    if groups.is_empty() { fio_json(text) } else { groups }
}

/// Splits the JSON of fio into its runs, each named by its last group. Of the reports of one
/// process (`status-interval`) the last counts.
fn fio_json(text: &str) -> Vec<Piece<'_>> {
    // Only the brace around a whole report begins its line.
    let begins = pattern!(r#"(?m)^\{\s*(?:"|\z)"#);
    let mut runs: Vec<Piece<'_>> = Vec::new();
    for (piece, _) in pieces(text, begins) {
        if let Some(before) = runs.last_mut() {
            before.stale = is_of_one_process(before.text, piece.text);
        }
        let name = fio_groups(piece.text).pop().map(|group| group.name);
        runs.push(Piece { cut: name.is_none(), name, ..piece });
    }
    runs
}

/// Whether a process of fio that wrote the earlier report still ran when it wrote the later one: by
/// both, it began in the same second.
fn is_of_one_process(earlier: &str, later: &str) -> bool {
    let clocks = |text: &str| {
        let now = first_number(pattern!(r#""timestamp"\s*:\s*(\d+)"#), text)?;
        let elapsed = first_number(pattern!(r#""elapsed"\s*:\s*(\d+)"#), text)?;
        Some((now - elapsed, elapsed))
    };
    match (clocks(earlier), clocks(later)) {
        (Some((began, elapsed)), Some((again, longer))) => longer > elapsed && (again - began).abs() <= 1.0,
        _ => false,
    }
}

/// Splits the text of fio into the groups of its runs, each named by its first job. The jobs of a
/// group follow each other. Between two runs stand the status of the first one's groups and the
/// list of the second one's jobs. Without that list, the same process reports again
/// (`status-interval`), and its last report counts.
fn fio_text(text: &str) -> Vec<Piece<'_>> {
    let begins = pattern!(r"(?m)^\S.*?: \(groupid=(\d+), jobs=\d+\): err=");
    let process = pattern!(r"\bpid=(\d+)");
    let list_of_jobs = pattern!(r"(?m)^\S.*: \(g=\d+\): rw=");
    let status = pattern!(r"(?m)^Run status group ");
    // Each group with its id and the process of its first job.
    let mut groups: Vec<(Piece<'_>, Option<&str>, Option<String>)> = Vec::new();
    // The number of groups of earlier reports, and the text of the job before.
    let (mut earlier, mut before) = (0, "");
    for (piece, id) in pieces(text, begins) {
        let is_listed = list_of_jobs.is_match(before);
        let is_ended = is_listed || status.is_match(before);
        before = piece.text;
        match groups.last_mut() {
            Some((group, known, _)) if !is_ended && *known == id => {
                let start = group.text.as_ptr() as usize - text.as_ptr() as usize;
                group.text = &text[start..start + group.text.len() + piece.text.len()];
            }
            _ => {
                let process = point(piece.text, process);
                if is_ended {
                    let of_run = &mut groups[earlier..];
                    if !is_listed && of_run.iter().any(|(_, known, by)| *known == id && *by == process) {
                        of_run.iter_mut().for_each(|(group, ..)| group.stale = true);
                    }
                    earlier = groups.len();
                }
                let name = piece.text.split(": (groupid=").next().map(str::to_string);
                groups.push((Piece { name, ..piece }, id, process));
            }
        }
    }
    groups.into_iter().map(|(piece, ..)| piece).collect()
}

/// Each line of a table of solutions.
fn intel_linpack(text: &str) -> Vec<Piece<'_>> {
    let mut found = Vec::new();
    let (mut in_table, mut heading, mut start) = (false, None, 0);
    for (number, whole) in text.split_inclusive('\n').enumerate() {
        let line = whole.trim_end();
        start += whole.len();
        if line.starts_with("Running ") {
            heading = Some(line);
        }
        if line.starts_with("Size ") {
            in_table = line.contains("Residual");
        } else if line.trim().is_empty() || line.starts_with('-') || line.starts_with("Running ") {
            in_table = false;
        } else if in_table {
            found.push(Piece {
                line: number + 1,
                text: &text[start - whole.len()..start],
                heading,
                ..Piece::default()
            });
        }
    }
    found
}

fn redis_benchmark(text: &str) -> Vec<Piece<'_>> {
    // Progress is overwritten before the head, with carriage returns unless these were lost.
    let begins = pattern!(r"====== (\S[^=]*?) ======");
    let clients = pattern!(r"(?m)^\s*(\d+) parallel clients");
    pieces(text, begins)
        .into_iter()
        .map(|(piece, name)| Piece {
            name: name.map(str::to_string),
            point: point(piece.text, clients),
            ..piece
        })
        .collect()
}

fn sysbench(text: &str) -> Vec<Piece<'_>> {
    let begins = pattern!(r"(?m)^sysbench \d");
    let threads = pattern!(r"(?m)^Number of threads: (\d+)");
    // Commands that prepare or remove the tables of a test are no runs.
    let tables = pattern!(r"(?m)^(?:Creating|Dropping) table ");
    pieces(text, begins)
        .into_iter()
        .filter(|(piece, _)| threads.is_match(piece.text) || !tables.is_match(piece.text))
        .map(|(piece, _)| Piece { point: point(piece.text, threads), ..piece })
        .collect()
}

/// Every line that is not empty. The last one is cut off if it has no line end and is shorter than a
/// line can be: it has fewer columns than any other, or its exponent fewer digits.
fn lines(text: &str, columns: fn(&str) -> usize) -> Vec<Piece<'_>> {
    let numbered = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let mut found: Vec<Piece<'_>> =
        numbered.map(|(number, text)| Piece { line: number + 1, text, ..Piece::default() }).collect();
    if let ([others @ .., last], false) = (&mut found[..], text.ends_with('\n')) {
        let few = others.iter().map(|other| columns(other.text)).min();
        let short = others.iter().map(|other| digits_of_exponent(other.text)).min();
        last.cut = few.is_some_and(|few| columns(last.text) < few)
            || short.is_some_and(|short| digits_of_exponent(last.text) < short);
    }
    found
}

/// The number of digits in the exponent with which a line ends; 0 without an exponent.
fn digits_of_exponent(line: &str) -> usize {
    pattern!(r"\d[eE][+-]?(\d+)\s*$").captures(line).map_or(0, |found| found[1].len())
}

/// A run is named by its columns before the value.
fn csv(text: &str) -> Vec<Piece<'_>> {
    let name = |line: &str| line.rsplit_once(',').map(|(names, _)| names.trim().to_string());
    let lines = lines(text, |line| line.matches(',').count());
    lines.into_iter().map(|piece| Piece { name: name(piece.text), ..piece }).collect()
}

/// Each line, with the moments between which it lasted.
fn client_times(text: &str) -> Vec<Piece<'_>> {
    let lines = lines(text, |line| line.split_whitespace().count());
    lines.into_iter().map(|piece| Piece { span: span(piece.text), ..piece }).collect()
}

/// Start and end, seconds, of a line with a name, both in milliseconds, and their difference.
fn span(line: &str) -> Option<(f64, f64)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, start, end, took] = words[..] else { return None };
    let (start, end, took): (u64, u64, u64) = (start.parse().ok()?, end.parse().ok()?, took.parse().ok()?);
    (start.checked_add(took) == Some(end)).then_some((start as f64 / 1e3, end as f64 / 1e3))
}

/// Whether the values of a field are in this unit, or in one with another prefix.
pub fn is_in(parser: &str, field: &str, unit: &str) -> bool {
    log_unit(parser, field).is_some_and(|base| Unit::normalise(unit).0.symbol() == base)
}

#[cfg(test)]
mod tests;
