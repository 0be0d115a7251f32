//! Makes reports of samples that were measured elsewhere.

use crate::error::Failure;
use weigh_model::{Comparison, distinct};
use weigh_report::Report;
use weigh_stats::{CellFlag, Flag, Notice, Options, analyse};
use weigh_store::import::ToolSamples;

/// The default baseline.
const BASELINE: &str = "native";

/// Makes the report of samples.
///
/// # Errors
/// The baseline is not in the file.
pub fn from_samples(
    title: &str,
    comparisons: &[Comparison],
    baseline: Option<&str>,
) -> Result<Report, Failure> {
    let series = comparisons.iter().flat_map(|comparison| &comparison.series);
    let names = distinct(series.map(|series| series.environment.as_str()));
    let baseline = baseline.unwrap_or(BASELINE);
    check_baseline(title, baseline, &names)?;
    Ok(Report::new(title, analyse(comparisons, &Options::new(baseline))))
}

/// Makes the report of files of another tool.
///
/// # Errors
/// The baseline is not in the files.
pub fn from_tool(title: &str, samples: &ToolSamples, baseline: Option<&str>) -> Result<Report, Failure> {
    let names: Vec<&str> = samples.environments.iter().map(String::as_str).collect();
    let first = names.iter().find(|name| **name == BASELINE).or(names.first());
    let baseline = baseline.or(first.copied()).unwrap_or(BASELINE);
    check_baseline(title, baseline, &names)?;
    let mut options = Options::new(baseline);
    options.values_are_intervals = samples.tool.values_are_intervals();
    if !samples.each_is_a_run && names.len() > 1 {
        options.flags = names.iter().map(|name| one_run(name)).collect();
    }
    let mut report = Report::new(title, analyse(&samples.comparisons, &options));
    report.samples = Some(level(samples));
    report.warnings = samples.notices.iter().map(|(seen, action)| Notice::new(seen, action)).collect();
    if names.len() < 2 {
        let seen = format!("all values are of `{baseline}`, so there is nothing to compare");
        report.warnings.push(Notice::new(seen, "name files of two environments: old=FILE new=FILE"));
    }
    Ok(report)
}

fn check_baseline(title: &str, baseline: &str, names: &[&str]) -> Result<(), Failure> {
    if names.contains(&baseline) {
        return Ok(());
    }
    let message = format!("no sample in {title} is of the baseline `{baseline}`");
    Err(Failure::input(message).at_word("--baseline", baseline, names))
}

fn one_run(environment: &str) -> CellFlag {
    CellFlag {
        workload: None,
        metric: None,
        environment: environment.into(),
        flag: Flag::OneRun,
        reason: None,
    }
}

/// Describes what each value is.
fn level(samples: &ToolSamples) -> String {
    let tool = samples.tool.name();
    match (samples.each_is_a_run, samples.tool.within()) {
        (true, Some(within)) => format!("{tool}: each value is a run, the geometric mean of its {within}"),
        (true, None) => format!("{tool}: each value is a run"),
        (false, Some(within)) => format!("{tool}: one run each, of which the values are {within}"),
        (false, None) => format!("{tool}: one run each, which holds one number"),
    }
}
