//! Reads the JSON of `hyperfine --export-json`.
//!
//! For each command, version 1 has a list of times, in seconds, and a list of exit codes; version 2
//! has an object per execution with `time_wall_clock` and `exit_code`. An execution that did not
//! exit with 0, which `--ignore-failure` permits, is a failed one.

use super::text::{Text, is_positive};
use super::{ImportError, Run, ToolFile};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::HashMap;
use weigh_model::MetricSpec;

#[derive(Deserialize)]
struct Export<'a> {
    #[serde(borrow)]
    results: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Command<'a> {
    command: String,
    #[serde(default)]
    name: Option<String>,
    #[serde(borrow, default)]
    times: Option<&'a RawValue>,
    #[serde(default)]
    exit_codes: Option<Vec<Option<i32>>>,
    #[serde(borrow, default)]
    measurements: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
struct Execution {
    time_wall_clock: Time,
    #[serde(default)]
    exit_code: Option<i32>,
}

#[derive(Deserialize)]
struct Time {
    value: f64,
    unit: String,
}

const ZERO_HELP: &str = "hyperfine subtracts the shell's start-up time, which leaves nothing of a short command; measure it with `hyperfine --shell=none`";

pub(super) fn parse(text: &Text<'_>) -> Result<ToolFile, ImportError> {
    let export: Export<'_> = text.json("a file of `hyperfine --export-json`")?;
    let mut run = Run::default();
    let metric = MetricSpec::time("time");
    let mut names: HashMap<String, u32> = HashMap::new();
    for raw in export.results {
        let command: Command<'_> = text.part(raw, "a result of hyperfine")?;
        let (values, failed) = executions(text, raw, &command)?;
        let name = once(&mut names, command.name.as_deref().unwrap_or(&command.command));
        let cell = run.cell(&name, &metric);
        (cell.values, cell.failed) = (values, failed);
    }
    Ok(ToolFile { runs: vec![run], notices: Vec::new() })
}

/// Returns a name for a command. If the command is given twice, it is measured twice, and the later
/// name gets a number.
fn once(names: &mut HashMap<String, u32>, name: &str) -> String {
    let times = names.entry(name.into()).or_default();
    *times += 1;
    if *times == 1 { name.into() } else { format!("{name} #{times}") }
}

/// Returns the times of the executions that succeeded, in seconds, and how many failed.
fn executions(
    text: &Text<'_>,
    raw: &RawValue,
    command: &Command<'_>,
) -> Result<(Vec<f64>, u32), ImportError> {
    let mut times: Vec<f64> = Vec::new();
    let mut failed = 0;
    if let Some(measurements) = &command.measurements {
        for one in measurements {
            let Execution { time_wall_clock: Time { value, unit }, exit_code } =
                text.part(one, "an execution of hyperfine")?;
            if unit != "second" {
                let message = format!("the unit `{unit}` of a time is not known");
                return Err(text.at_key(one, "unit", &message, "`second` was expected"));
            }
            match exit_code {
                Some(0) if is_positive(value) => times.push(value),
                Some(0) => return Err(text.at_key(one, "value", &not_positive(value), ZERO_HELP)),
                _ => failed += 1,
            }
        }
        return Ok((times, failed));
    }
    let Some(list) = command.times else {
        let message = "the result has no individual times";
        return Err(text.at_key(
            raw,
            "command",
            message,
            "let hyperfine 1.3 or later write the file with --export-json",
        ));
    };
    let values: Vec<f64> = text.part(list, "a list of times")?;
    // Before version 1.11, a command that failed ended hyperfine, or left no trace.
    let codes = command.exit_codes.as_deref().unwrap_or_default();
    if !codes.is_empty() && codes.len() != values.len() {
        let message = format!("there are {} times and {} exit codes", values.len(), codes.len());
        return Err(text.at_key(raw, "exit_codes", &message, "let hyperfine write the file again"));
    }
    for (index, value) in values.into_iter().enumerate() {
        match codes.get(index).copied().unwrap_or(Some(0)) {
            Some(0) if is_positive(value) => times.push(value),
            Some(0) => return Err(text.at_number(list, index, &not_positive(value), ZERO_HELP)),
            _ => failed += 1,
        }
    }
    Ok((times, failed))
}

fn not_positive(value: f64) -> String {
    format!("{value} is not a positive number")
}
