//! Makes the workloads of a plan from names and options on the command line.

use crate::cli::{Size, TrialArgs, WorkArgs};
use crate::error::Failure;
use std::collections::BTreeMap;
use std::path::PathBuf;
use weigh_model::{EnvironmentSpec, HostFacts, WorkloadPlan, did_you_mean, nearest, parse_duration};
use weigh_workloads::{Library, ParamError, Workload, has_parameter, sweep};

/// Loads the workload library: the built-in manifests, those of the user's directory, and these
/// files.
///
/// # Errors
/// A manifest is wrong, with file, line and column.
pub fn library(files: &[PathBuf]) -> Result<Library, Failure> {
    let directory = std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config")))
        .map(|config| config.join("weighbridge/workloads"));
    let directories: Vec<PathBuf> = directory.into_iter().filter(|directory| directory.is_dir()).collect();
    Library::load(&directories, files).map_err(Failure::from)
}

/// Returns the named workloads and the user's own commands, or the default set, with the user's
/// options applied. `default_size` is that of the command.
///
/// # Errors
/// A name or a parameter does not exist (underlined).
pub fn workloads(
    work: &WorkArgs,
    trial: &TrialArgs,
    commands: Vec<WorkloadPlan>,
    (default_size, library): (Size, &Library),
    facts: &HostFacts,
) -> Result<Vec<WorkloadPlan>, Failure> {
    let size = work.size.unwrap_or(default_size).name();
    let names = names(work, library)?;
    let mut parameters = Parameters::parse(&work.param)?;
    let mut plans = Vec::new();
    for name in &names {
        let workload = library.get(name).map_err(|error| unknown(name, error.nearest.as_deref()))?;
        let chosen = parameters.take(name, |key| settable(workload).any(|known| known == key));
        plans.extend(workload.plan(size, &chosen, facts).map_err(|error| wrong_parameter(&error))?);
    }
    for plan in &mut plans {
        apply_options(plan, work, trial)?;
    }
    for mut plan in commands {
        apply_options(&mut plan, work, trial)?;
        let chosen = parameters.take(&plan.name, |key| has_parameter(&plan, key));
        plans.extend(sweep(&plan, &chosen).map_err(|error| wrong_parameter(&error))?);
    }
    parameters.check_all_taken(library, &names, !work.command.is_empty())?;
    Ok(plans)
}

fn wrong_parameter(error: &ParamError) -> Failure {
    let hint = error.nearest.as_ref().map(|nearest| format!("did you mean `{nearest}`?"));
    let text = format!("{}={}", error.param, error.value);
    Failure::input(error.message.clone()).at("--param", &text, error.span()).maybe_hint(hint)
}

/// Returns the names that the user gives, or those of the default set if there is no command
/// either.
fn names(work: &WorkArgs, library: &Library) -> Result<Vec<String>, Failure> {
    if work.workloads.is_empty() && work.command.is_empty() {
        let defaults = library.workloads().iter().filter(|workload| workload.default_set());
        return Ok(defaults.map(|workload| workload.name().to_string()).collect());
    }
    if let Some(name) = first_repeated(&work.workloads) {
        return Err(Failure::input(format!("the workload `{name}` is named twice")).hint("name it once"));
    }
    Ok(work.workloads.clone())
}

fn unknown(name: &str, nearest: Option<&str>) -> Failure {
    let is_platform = EnvironmentSpec::parse(name).is_ok_and(|spec| weigh_platforms::resolve(&spec).is_ok());
    let hint = match nearest {
        _ if is_platform => {
            format!("it is a platform; those of --on are separated by commas, as in --on native,{name}")
        }
        _ if name.contains(',') => "separate workloads by spaces, as in weigh run noploop syscall".into(),
        Some(nearest) => format!("did you mean `{nearest}`? `weigh list workloads` shows all"),
        None => "`weigh list workloads` shows all; a command of your own goes after `--`".into(),
    };
    Failure::input(format!("there is no workload `{name}`")).at("workload", name, 0..name.len()).hint(hint)
}

/// Returns the parameters that users may set.
fn settable(workload: &Workload) -> impl Iterator<Item = &str> {
    workload.params().iter().filter(|param| param.settable).map(|param| param.name.as_str())
}

/// Applies the user's options to a workload.
fn apply_options(plan: &mut WorkloadPlan, work: &WorkArgs, trial: &TrialArgs) -> Result<(), Failure> {
    plan.warmup = trial.warmup.unwrap_or(plan.warmup);
    if let Some(iterations) = work.iterations {
        (plan.iterations, plan.trial_s) = (iterations, None);
    }
    let shell = |script: &String| vec!["/bin/sh".to_string(), "-c".into(), script.clone()];
    plan.prepare = trial.prepare.as_ref().map(shell).or_else(|| plan.prepare.take());
    plan.cleanup = trial.cleanup.as_ref().map(shell).or_else(|| plan.cleanup.take());
    if let Some(deadline) = &work.deadline {
        let parsed = parse_duration(deadline).map_err(|error| Failure::of_size("--deadline", &error))?;
        plan.deadline_s = parsed.as_secs_f64();
        if plan.deadline_s <= 0.0 {
            return Err(Failure::input("`--deadline 0` stops every run at once").hint("as in --deadline 90s"));
        }
    }
    if plan.warmup == 0 {
        measure_cold(plan);
    }
    Ok(())
}

/// Names the metrics of cold runs, which have names of their own so that nobody compares them with
/// warm ones (method specification, "Warm-up").
pub fn measure_cold(plan: &mut WorkloadPlan) {
    for metric in &mut plan.metrics {
        metric.spec.name = format!("{}_cold", metric.spec.name);
    }
    // In slices, all runs but the first are warm.
    plan.sliced = None;
}

/// Returns the first item that equals an earlier one.
pub fn first_repeated<T: PartialEq>(items: &[T]) -> Option<&T> {
    items.iter().enumerate().find(|(at, item)| items[..*at].contains(item)).map(|(_, item)| item)
}

/// The parameters that the user gave, and which of them some workload took.
struct Parameters {
    given: Vec<Parameter>,
}

struct Parameter {
    text: String,
    workload: Option<String>,
    key: String,
    values: Vec<String>,
    taken: bool,
}

impl Parameters {
    fn parse(texts: &[String]) -> Result<Self, Failure> {
        let mut given: Vec<Parameter> = Vec::new();
        for text in texts {
            let fault = || {
                Failure::input(format!("`--param {text}` is not of the form key=value"))
                    .at("--param", text, 0..text.len())
                    .hint("as in --param size=64MiB, or stream.repetitions=5; a list a,b,c sweeps")
            };
            let (key, value) = text.split_once('=').ok_or_else(fault)?;
            if key.is_empty() || value.is_empty() {
                return Err(fault());
            }
            let (workload, key) = key.split_once('.').map_or((None, key), |(w, k)| (Some(w.to_string()), k));
            if given.iter().any(|other| other.workload == workload && other.key == key) {
                return Err(Failure::input(format!("the parameter `{key}` is given twice"))
                    .hint("a list sweeps: --param key=a,b,c"));
            }
            let values = value.split(',').map(str::to_string).collect();
            given.push(Parameter { text: text.clone(), workload, key: key.into(), values, taken: false });
        }
        Ok(Self { given })
    }

    fn take(&mut self, workload: &str, knows: impl Fn(&str) -> bool) -> BTreeMap<String, Vec<String>> {
        let mut chosen = BTreeMap::new();
        for parameter in &mut self.given {
            let addressed = parameter.workload.as_deref().is_none_or(|name| name == workload);
            if addressed && knows(&parameter.key) {
                parameter.taken = true;
                chosen.insert(parameter.key.clone(), parameter.values.clone());
            }
        }
        chosen
    }

    fn check_all_taken(
        &self,
        library: &Library,
        names: &[String],
        with_command: bool,
    ) -> Result<(), Failure> {
        let Some(lost) = self.given.iter().find(|parameter| !parameter.taken) else { return Ok(()) };
        let workloads = || names.iter().filter_map(|name| library.get(name).ok());
        let known: Vec<&str> = workloads().flat_map(settable).collect();
        let start = lost.text.find(&lost.key).unwrap_or(0);
        let hint = did_you_mean(nearest(&lost.key, known.iter().copied()), || match known.as_slice() {
            [] if with_command => format!("write `{{{}}}` where its values belong in the command", lost.key),
            [] => "the workloads of this run have no parameters".into(),
            known => format!("parameters of these workloads: {}", known.join(", ")),
        });
        Err(Failure::input(format!("no workload of this run has a parameter `{}`", lost.key))
            .at("--param", &lost.text, start..start + lost.key.len())
            .hint(hint))
    }
}
