//! Runs the experiments of a study, one after the other.

use super::AvailabilityCheck;
use crate::cli::CommandLine;
use crate::commands::run::{self, Execution, ExecutionResult};
use crate::error::{ExitKind, Failure};
use crate::host::LocalHost;
use crate::request::PlanRequest;
use crate::{outcome, output, ui};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use weigh_model::{FinishReason, harmless_lines};
use weigh_store::RunDirectory;
use weigh_studies::{
    Column, Experiment, ExperimentState, StudyDirectory, environment_names, experiment_command, run_name,
    shell_quoted,
};

/// Measures the experiments that are left. The state records which of them cannot be run. After an
/// interruption, `weigh resume` measures the rest, and resumes runs that failed.
///
/// # Errors
/// The host cannot be used; the directory cannot be written. No other failure ends a study. After
/// its end: a change to the host could not be undone.
pub fn measure(directory: &mut StudyDirectory, interrupt: &AtomicBool) -> Result<(), Failure> {
    let mut availability = AvailabilityCheck::default();
    let mut closed = Ok(());
    for at in 0..directory.state().experiments.len() {
        if interrupt.load(Ordering::Relaxed) {
            break;
        }
        let state = &directory.state().experiments[at];
        if !state.is_left() {
            continue;
        }
        ui::note(&format!(
            "experiment {} of {}: {}",
            at + 1,
            directory.state().experiments.len(),
            state.name
        ));
        if state.run.is_none() {
            prepare(directory, at, &mut availability)?;
        }
        if directory.state().experiments[at].is_left() && !share(directory, at)? {
            closed = closed.and(carry_out(directory, at, interrupt)?);
        }
    }
    closed
}

/// Reuses the run of an earlier experiment with the same command: a paper that prints one
/// measurement in a figure and in a table has measured it once. Returns whether there is such a
/// run.
fn share(directory: &mut StudyDirectory, at: usize) -> Result<bool, Failure> {
    let state = directory.state();
    let one = &state.experiments[at];
    let is_same = |other: &&ExperimentState| other.done && other.command == one.command;
    let Some(other) = state.experiments[..at].iter().find(is_same).filter(|_| one.run.is_none()) else {
        return Ok(false);
    };
    let Some(run) = other.run.clone() else { return Ok(false) };
    ui::note(&format!("  measured with {}", other.name));
    let columns = directory.columns()?.columns(directory.experiment(at)?);
    let directory_of_run = RunDirectory::open(&directory.path().join(&run))?;
    let environments = environment_names(&columns, &one.without, directory_of_run.plan());
    directory.update(at, |state| {
        state.run = Some(run);
        state.environments = environments;
        state.done = true;
    })?;
    Ok(true)
}

/// Finds out which columns can be measured, and saves the command that measures them.
fn prepare(
    directory: &mut StudyDirectory,
    at: usize,
    availability: &mut AvailabilityCheck,
) -> Result<(), Failure> {
    let state = directory.state();
    let experiment = directory.experiment(at)?;
    let mut columns = directory.columns()?.columns(experiment);
    LocalHost::ask(|host| availability.check(&mut columns, host))?;
    let command = experiment_command(experiment, &columns, &state.size, &state.options);
    let without = columns.iter().filter_map(|column| Some((column.id.clone(), column.missing.clone()?)));
    let without: std::collections::BTreeMap<String, String> = without.collect();
    for column in columns.iter().filter(|column| without.contains_key(&column.id)) {
        ui::note(&format!("  without {}: {}", column.id, without[&column.id]));
    }
    let platforms = availability.versions(&columns);
    Ok(directory.update(at, |state| {
        state.without = without;
        state.platforms = platforms;
        match command {
            Some(command) => state.command = command,
            None => state.not_run = Some("none of its environments can run here".into()),
        }
    })?)
}

/// Runs or resumes the run of an experiment. Returns whether all changes to the host were undone.
fn carry_out(
    directory: &mut StudyDirectory,
    at: usize,
    interrupt: &AtomicBool,
) -> Result<Result<(), Failure>, Failure> {
    let state = &directory.state().experiments[at];
    let run = run_name(&state.name);
    let path = directory.path().join(&run);
    let columns = directory.columns()?.columns(directory.experiment(at)?);
    let result = request(&state.command).and_then(|request| run_experiment(&request, &path, interrupt));
    let opened = RunDirectory::open(&path).ok();
    let named = opened.map(|run| environment_names(&columns, &state.without, run.plan()));
    directory.update(at, |state| {
        if let Some(environments) = named {
            state.run = Some(run);
            state.environments = environments;
        }
        record(state, result.as_ref().map(|(reason, _)| *reason));
    })?;
    match result {
        Err(failure) if failure.kind() == ExitKind::HostBusy => Err(failure),
        Err(failure) => {
            ui::note(&format!("  not run: {}", in_words(&failure)));
            Ok(Ok(()))
        }
        Ok((_, closed)) => {
            if let Err(failure) = write_report(&path) {
                ui::note(&format!("  no report: {}", in_words(&failure)));
            }
            Ok(closed)
        }
    }
}

/// Records how the run of an experiment ended.
fn record(state: &mut ExperimentState, result: Result<FinishReason, &Failure>) {
    match result {
        // Another run holds the host, which is no fault of the experiment: `weigh resume` measures
        // it.
        Err(failure) if failure.kind() == ExitKind::HostBusy => {}
        Err(failure) => state.not_run = Some(in_words(failure)),
        Ok(reason) => {
            state.not_run = None;
            state.done = reason != FinishReason::Interrupted;
        }
    }
}

fn write_report(run: &Path) -> Result<PathBuf, Failure> {
    run::write_page(&outcome::from_run(&RunDirectory::open(run)?)?, run)
}

/// Describes a failure in one sentence.
fn in_words(failure: &Failure) -> String {
    let mut text = weigh_platforms::with_causes(failure);
    if let Some(hint) = miette::Diagnostic::help(failure) {
        text.push_str(&format!("; {hint}"));
    }
    text
}

/// Parses the command of an experiment into a request.
pub(super) fn request(words: &[String]) -> Result<PlanRequest, Failure> {
    let line = CommandLine::parse(std::iter::once("weigh").chain(words.iter().map(String::as_str)));
    let line = line.map_err(|error| {
        let text = error.to_string();
        let line = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_string();
        Failure::input(format!("weigh does not accept its command: {line}")).hint(words.join(" "))
    })?;
    let command = line.cli.command.ok_or_else(|| Failure::input("an experiment without a command"))?;
    // Claims of a study are graded by intervals over a planned number of blocks.
    Ok(crate::commands::request(command, line.recorded)?.without_looks())
}

/// Runs or resumes the run of an experiment, and shows only its progress. Returns why it ended, and
/// whether all changes to the host were undone.
fn run_experiment(
    request: &PlanRequest,
    path: &Path,
    interrupt: &AtomicBool,
) -> Result<(FinishReason, Result<(), Failure>), Failure> {
    output::make_room(path)?;
    let mut directory = if path.join("plan.json").is_file() {
        RunDirectory::open_for_append(path)?
    } else {
        let plan = request.choosing(LocalHost::ask(|host| request.plan(host))?);
        RunDirectory::create_at(path, &plan, &request.facts)?
    };
    let plan = directory.plan().clone();
    let execution = Execution { blind: false, live: None, interrupt };
    let ExecutionResult { finish, closed, .. } =
        run::execute(&plan, &request.facts, &mut directory, execution)?;
    Ok((finish.reason, closed))
}

/// Describes what would be run, as far as it is known without touching the host.
pub fn describe(
    directory: &Path,
    experiment: &Experiment,
    columns: &[Column],
    size: &str,
    options: &[String],
) -> String {
    let mut lines = vec![format!("{}: {}", experiment.name, experiment.title)];
    for column in columns {
        let place = match (&column.spec, &column.missing) {
            (_, Some(missing)) => format!("not run: {missing}"),
            (Some(spec), None) => spec.to_string(),
            (None, None) => "not run".into(),
        };
        let today = if column.today { ", today's" } else { "" };
        lines.push(format!("  arm {} ({}{today}): {place}", column.id, column.label));
    }
    match experiment_command(experiment, columns, size, options) {
        Some(words) => {
            let out = directory.join(run_name(&experiment.name));
            lines.push(format!("  weigh {} --out {}", shell_quoted(&words), out.display()));
        }
        None => lines.push("  nothing can run".into()),
    }
    // Titles and labels come from users' files, which may contain anything.
    harmless_lines(&lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::NoHost;
    use weigh_model::{EnvironmentSpec, Plan};
    use weigh_studies::{ColumnChoice, Origin, Quantity, library};

    /// Returns the columns of an experiment, without those that this version cannot make on any
    /// host. Their `rootfs` keys are removed, because the images may not be built here.
    fn columns(experiment: &Experiment) -> Vec<Column> {
        let mut columns = ColumnChoice::default().columns(experiment);
        for column in &mut columns {
            column.spec = column.spec.take().map(|spec| {
                let keys = spec.keys.into_iter().filter(|(key, _)| key != "rootfs").collect();
                EnvironmentSpec::new(&spec.platform, keys)
            });
            if column.spec.as_ref().is_none_or(|spec| weigh_platforms::resolve(spec).is_err()) {
                column.missing = Some("not on any host".into());
            }
        }
        columns
    }

    fn planned(experiment: &Experiment, size: &str) -> Result<Plan, Failure> {
        let words = experiment_command(experiment, &columns(experiment), size, &[]);
        let words = words.expect("something can be planned");
        request(&words)?.plan(&mut NoHost::Anywhere)
    }

    fn all() -> Vec<(String, Experiment)> {
        let library = library().unwrap();
        let names = |study: &weigh_studies::Study| {
            let name = study.name.clone();
            study
                .experiments
                .iter()
                .map(move |one| (format!("{name}/{}", one.name), one.clone()))
                .collect::<Vec<_>>()
        };
        library.studies().iter().flat_map(names).collect()
    }

    #[test]
    fn weigh_takes_the_command_of_every_experiment_at_every_size() {
        for (name, experiment) in all() {
            for size in ["quick", "standard", "paper"] {
                match planned(&experiment, size) {
                    Ok(_) => {}
                    // A paper may have used more CPUs than this host has.
                    Err(failure) if failure.kind() == ExitKind::NoSuchCpu => {}
                    Err(failure) => panic!("{name} at {size}: {}", in_words(&failure)),
                }
            }
        }
    }

    #[test]
    fn a_run_that_failed_is_left_and_one_that_was_resumed_is_shown() {
        let fault = |kind| Failure::new(kind, "the platform is away");
        let mut state = ExperimentState::default();
        record(&mut state, Err(&fault(ExitKind::HostBusy)));
        assert!(state.is_left() && state.not_run.is_none());
        record(&mut state, Err(&fault(ExitKind::Failed)));
        assert!(!state.is_left(), "there is no run to resume: {state:?}");
        state.run = Some("table-1".into());
        assert!(state.is_left() && state.not_run.is_some());
        record(&mut state, Ok(FinishReason::Interrupted));
        assert!(state.is_left() && state.not_run.is_none());
        record(&mut state, Err(&fault(ExitKind::Failed)));
        record(&mut state, Ok(FinishReason::Blocks));
        assert!(state.done && !state.is_left() && state.not_run.is_none());
    }

    /// Quantities whose workload is measured only if the user supplies the program.
    const OF_USERS: [&str; 1] = ["intel-linpack"];

    fn number(text: &str) -> Option<f64> {
        let bytes = || weigh_model::parse_bytes(text).ok().map(|bytes| bytes as f64);
        text.parse().ok().or_else(bytes)
    }

    #[test]
    fn every_quantity_of_an_experiment_is_measured_by_its_command() {
        for (name, experiment) in all() {
            let Ok(plan) = planned(&experiment, "paper").or_else(|_| planned(&experiment, "quick")) else {
                panic!("{name} cannot be planned");
            };
            for quantity in experiment.quantities.iter().filter(|one| !OF_USERS.contains(&one.id.as_str())) {
                assert!(is_measured(&plan, quantity), "{name}: nothing measures {}", quantity.id);
            }
        }
    }

    fn is_measured(plan: &Plan, quantity: &Quantity) -> bool {
        let (Origin::Cells(measurand) | Origin::Limits(measurand)) = &quantity.from else { return true };
        plan.workloads.iter().any(|workload| {
            let metric = |wanted: &str| {
                let of_cpu = |operation: &str| wanted == format!("cpu_per_{operation}");
                workload.metrics.iter().any(|metric| metric.spec.name == wanted)
                    || of_cpu(
                        workload.operations.as_ref().map_or("run", |operations| operations.name.as_str()),
                    )
            };
            let has = |(key, value): (&String, &String)| {
                workload.params.get(key).is_some_and(|has| {
                    has == value || number(has).is_some_and(|has| Some(has) == number(value))
                })
            };
            workload.name == measurand.workload
                && metric(&measurand.metric)
                && measurand.params.iter().all(has)
                && quantity.sweep.as_ref().is_none_or(|sweep| workload.params.contains_key(sweep))
        })
    }
}
