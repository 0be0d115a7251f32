//! Arranges the runs of every environment into comparisons.

use super::{ImportError, NamedFile, Run, Tool, ToolFile, ToolSamples, stem};
use std::collections::{BTreeSet, HashMap};
use weigh_model::{Comparison, MetricSpec, Observation, Series, WorkloadKey};

/// All runs of one environment.
struct Environment<'f> {
    name: String,
    runs: Vec<Named<'f>>,
}

/// A run and the file that it is in.
struct Named<'f> {
    file: &'f NamedFile,
    /// The number of the file.
    block: u32,
    run: Run,
}

/// A benchmark and the name of a metric of it.
type Key = (String, String);

pub(super) fn arrange(tool: Tool, files: Vec<(&NamedFile, ToolFile)>) -> Result<ToolSamples, ImportError> {
    let mut notices = Vec::new();
    let mut named = Vec::with_capacity(files.len());
    for ((file, mut parsed), block) in files.into_iter().zip(0..) {
        notices.append(&mut parsed.notices);
        named.extend(parsed.runs.into_iter().map(|run| Named { file, block, run }));
    }
    // The commands in one file of hyperfine are the environments, unless the files are named as
    // such.
    let commands_compete = tool == Tool::Hyperfine
        && named.iter().all(|one| one.file.environment.is_none() && one.run.cells.len() > 1);
    let paired = commands_compete && named.len() > 1;
    let mut environments =
        if commands_compete { by_command(named) } else { by_name(named, tool, &mut notices)? };
    let each_is_a_run = check_numbers(&environments)?;
    let comparisons = comparisons(&mut environments, each_is_a_run, paired, &mut notices)?;
    if comparisons.iter().all(|comparison| comparison.series.len() < 2) && environments.len() > 1 {
        return Err(nothing_in_common(&environments, &comparisons));
    }
    let environments = environments.into_iter().map(|environment| environment.name).collect();
    Ok(ToolSamples { tool, comparisons, environments, each_is_a_run, notices })
}

/// Makes an environment of each command of hyperfine, on the assumption that they do the same work.
fn by_command(named: Vec<Named<'_>>) -> Vec<Environment<'_>> {
    let mut environments: Vec<Environment<'_>> = Vec::new();
    let mut place_of: HashMap<String, usize> = HashMap::new();
    for Named { file, block, run } in named {
        for mut cell in run.cells {
            let name = std::mem::replace(&mut cell.benchmark, "command".into());
            let one = Named { file, block, run: Run { cells: vec![cell], ..Run::default() } };
            let place = *place_of.entry(name.clone()).or_insert_with(|| {
                environments.push(Environment { name, runs: Vec::new() });
                environments.len() - 1
            });
            environments[place].runs.push(one);
        }
    }
    environments
}

/// Makes an environment of each name of files. A file without one goes by its own name.
fn by_name<'f>(
    named: Vec<Named<'f>>,
    tool: Tool,
    notices: &mut Vec<(String, String)>,
) -> Result<Vec<Environment<'f>>, ImportError> {
    let one_command = tool == Tool::Hyperfine && named.iter().all(|one| one.run.cells.len() == 1);
    let commands: Vec<String> =
        named.iter().filter_map(|one| Some(one.run.cells.first()?.benchmark.clone())).collect();
    let differ = commands.windows(2).any(|pair| pair[0] != pair[1]);
    let mut environments: Vec<Environment<'f>> = Vec::new();
    for mut one in named {
        // Each file holds one command: the commands are compared, however they are spelled.
        if one_command && differ {
            one.run.cells[0].benchmark = "command".into();
        }
        let file = one.file;
        let name = file.environment.clone().unwrap_or_else(|| stem(&file.path));
        let Some(known) = environments.iter_mut().find(|known| known.name == name) else {
            environments.push(Environment { name, runs: vec![one] });
            continue;
        };
        if file.environment.is_none() && known.runs.iter().any(|other| other.file.path != file.path) {
            let message = format!("two files are named `{name}`");
            let help = "say which environment each is of: NAME=FILE";
            return Err(ImportError::of_file(&file.path, message, help));
        }
        known.runs.push(one);
    }
    if one_command && differ {
        let seen =
            format!("the commands differ, and are compared as one: {}", distinct(&commands).join("; "));
        notices.push((seen, "see that they do the same work".into()));
    }
    Ok(environments)
}

fn distinct(names: &[String]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    names.iter().filter(|name| seen.insert(*name)).map(|name| format!("`{name}`")).collect()
}

/// Returns whether each value is a run, that is, every environment has several. Refuses one run of
/// an environment beside several of another.
fn check_numbers(environments: &[Environment<'_>]) -> Result<bool, ImportError> {
    let one = environments.iter().find(|environment| environment.runs.len() == 1);
    let several = environments.iter().find(|environment| environment.runs.len() > 1);
    let (Some(one), Some(several)) = (one, several) else { return Ok(several.is_some()) };
    let message =
        format!("one run of `{}` is compared with {} of `{}`", one.name, several.runs.len(), several.name);
    let help = "a verdict takes several runs of each: give one file per run, as in old=1.json old=2.json new=3.json new=4.json";
    Err(ImportError::of_file(&one.runs[0].file.path, message, help))
}

fn nothing_in_common(environments: &[Environment<'_>], comparisons: &[Comparison]) -> ImportError {
    let first = |environment: &Environment<'_>| {
        let mut of =
            comparisons.iter().filter(|of| of.series.iter().any(|s| s.environment == environment.name));
        let example = of.next().map_or_else(String::new, |of| format!(" (`{}`)", of.workload));
        format!("`{}`{example}", environment.name)
    };
    let [one, other] = [&environments[0], &environments[1]];
    let message = format!("{} and {} have no benchmark in common", first(one), first(other));
    ImportError::of_file(&other.runs[0].file.path, message, "benchmarks are compared by their names")
}

fn comparisons(
    environments: &mut [Environment<'_>],
    each_is_a_run: bool,
    paired: bool,
    notices: &mut Vec<(String, String)>,
) -> Result<Vec<Comparison>, ImportError> {
    let mut comparisons: Vec<Comparison> = Vec::new();
    let mut place_of: HashMap<Key, (usize, String)> = HashMap::new();
    let mut incomplete: Vec<String> = Vec::new();
    let mut unusable: Vec<String> = Vec::new();
    let mut failed = (0u32, None);
    for environment in environments {
        let runs = environment.runs.len();
        for Named { file, block, run } in &mut environment.runs {
            let block = paired.then_some(*block);
            for cell in std::mem::take(&mut run.cells) {
                if !cell.metric.primary && cell.values.iter().any(|value| !super::text::is_positive(*value)) {
                    unusable.push(format!("{} of {}", cell.metric.name, cell.benchmark));
                    continue;
                }
                let key = (cell.benchmark.clone(), cell.metric.name.clone());
                let shown = file.path.display().to_string();
                let (place, before) = place_of.entry(key).or_insert_with(|| {
                    comparisons.push(empty(&cell.benchmark, &cell.metric));
                    (comparisons.len() - 1, shown.clone())
                });
                let comparison = &mut comparisons[*place];
                check_metric(comparison, &cell.metric, before, file)?;
                if cell.failed > 0 {
                    failed.0 = failed.0.saturating_add(cell.failed);
                    failed.1.get_or_insert_with(|| format!("{} in {}", cell.benchmark, environment.name));
                }
                let series = series_of(comparison, &environment.name);
                if each_is_a_run {
                    add_run(series, &cell.values, cell.failed, block);
                } else {
                    series.failed += cell.failed;
                    series.tried += cell.failed + u32::try_from(cell.values.len()).unwrap_or(u32::MAX);
                    series
                        .observations
                        .extend(cell.values.into_iter().map(|value| Observation { block, value }));
                }
            }
        }
        if each_is_a_run {
            let lacks = |comparison: &&Comparison| {
                let last = comparison.series.last();
                last.is_some_and(|last| last.environment == environment.name && (last.tried as usize) < runs)
            };
            incomplete.extend(
                comparisons.iter().filter(lacks).map(|of| format!("{} of {}", of.metric.name, of.workload)),
            );
        }
    }
    if let (count, Some(first)) = failed {
        let seen = format!("measurements that failed: {count}, the first of {first}");
        notices
            .push((seen, "a failed measurement is not a sample, and its comparison has no verdict".into()));
    }
    let mut notice = |what: Vec<String>, seen: &str, action: &str| {
        if let Some(first) = what.first() {
            notices.push((format!("{seen}: {} in all, the first is {first}", what.len()), action.into()));
        }
    };
    notice(
        incomplete,
        "some runs lack a metric that others of their environment have",
        "a run that failed and left nothing is missing from the comparison",
    );
    notice(
        unusable,
        "some metrics without a verdict have values of 0",
        "they have no ratio and are left out",
    );
    Ok(comparisons)
}

fn empty(benchmark: &str, metric: &MetricSpec) -> Comparison {
    Comparison {
        workload: benchmark.into(),
        key: WorkloadKey::named(benchmark),
        metric: metric.clone(),
        series: Vec::new(),
    }
}

fn check_metric(
    known: &Comparison,
    metric: &MetricSpec,
    before: &str,
    file: &NamedFile,
) -> Result<(), ImportError> {
    if (&known.metric.unit, known.metric.better) == (&metric.unit, metric.better) {
        return Ok(());
    }
    let message = format!(
        "`{}` of `{}` is in `{}`, better {}, here and in `{}`, better {}, in {before}",
        metric.name, known.workload, metric.unit, metric.better, known.metric.unit, known.metric.better
    );
    Err(ImportError::of_file(&file.path, message, "one metric has one unit and one direction"))
}

fn series_of<'c>(comparison: &'c mut Comparison, environment: &str) -> &'c mut Series {
    // Environments are added one after the other, so the last series is the one to fill.
    if comparison.series.last().is_none_or(|last| last.environment != environment) {
        comparison.series.push(Series::of(environment, Vec::new()));
    }
    comparison.series.last_mut().expect("there is one now")
}

/// Adds the value of a run: the geometric mean of its values. A run in which anything failed counts
/// as failed.
fn add_run(series: &mut Series, values: &[f64], failed: u32, block: Option<u32>) {
    series.tried += 1;
    if failed > 0 || values.is_empty() {
        series.failed += 1;
        return;
    }
    let logs: f64 = values.iter().map(|value| value.ln()).sum();
    let value = (logs / values.len() as f64).exp();
    series.observations.push(Observation { block, value });
}
