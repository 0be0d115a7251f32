//! The runs of a study, one experiment after the other.

use super::columns::{Column, Prover, Wanted};
use super::directory::{ExperimentState, StudyDirectory, slug};
use crate::cli::{Cli, Command, MeasureArgs};
use crate::commands::run::{self, Carrier, Execution, Here, Planner};
use crate::error::{Failure, Kind};
use crate::{outcome, ui};
use clap::Parser;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use weigh_host::facts;
use weigh_model::{FinishReason, HostFacts};
use weigh_runner::RunOptions;
use weigh_store::RunDirectory;
use weigh_studies::{self as studies, Experiment};

/// The command that measures an experiment in these columns, as words, without `weigh`: what the
/// study says, behind the options that are added. None where no column can run.
pub fn words(
    experiment: &Experiment,
    columns: &[Column],
    size: &str,
    options: &[String],
) -> Option<Vec<String>> {
    let specs = environments(columns);
    let first = specs.first()?;
    let measure = &experiment.measure;
    let baseline = columns.iter().find(|column| column.id == experiment.baseline && column.missing.is_none());
    let baseline =
        baseline.and_then(|column| column.spec.as_ref()).map_or(first.clone(), ToString::to_string);
    let mut words = vec![measure.command.word().to_string()];
    let of_size = match size {
        "quick" => &measure.quick,
        "paper" => &measure.paper,
        _ => &measure.standard,
    };
    use studies::Command as C;
    if matches!(measure.command, C::Run | C::Start | C::Density | C::Soak) {
        words.extend(["--size".into(), size.into()]);
    }
    words.extend(specs.iter().flat_map(|spec| ["--on".into(), spec.clone()]));
    words.extend(["--baseline".into(), baseline]);
    words.extend(effort(measure.command, size, options));
    // Before a command of the guest, which stands behind `--` at the end.
    words.extend(of_size.iter().cloned());
    words.extend(measure.arguments.iter().cloned());
    Some(words)
}

/// The environments of the columns that can run, each once.
fn environments(columns: &[Column]) -> Vec<String> {
    let mut specs: Vec<String> = Vec::new();
    for column in columns.iter().filter(|column| column.missing.is_none()) {
        specs.extend(column.spec.as_ref().map(ToString::to_string).filter(|spec| !specs.contains(spec)));
    }
    specs
}

/// The user's options as far as a command takes them, and how many blocks unless they say.
fn effort(command: studies::Command, size: &str, options: &[String]) -> Vec<String> {
    /// A soak lasts for its time.
    const NOT_OF_SOAK: [&str; 3] = ["--blocks", "--precision", "--budget"];
    let soaks = command == studies::Command::Soak;
    let mut taken: Vec<String> = Vec::new();
    let mut left = options.iter();
    while let Some(option) = left.next() {
        // Options with a value are two words here.
        let value = (option != "--no-void").then(|| left.next()).flatten();
        if !(soaks && NOT_OF_SOAK.contains(&option.as_str())) {
            taken.push(option.clone());
            taken.extend(value.cloned());
        }
    }
    let says = |word: &str| options.iter().any(|option| option == word);
    if size == "quick" && !soaks && !says("--blocks") && !says("--precision") {
        taken.push("--quick".into());
    }
    taken
}

/// Measures what is left of a study. What cannot be run is said in its state; an interruption
/// leaves the rest for `weigh resume`.
///
/// # Errors
/// The host cannot be used; the directory cannot be written. Nothing else ends a study.
pub fn measure(directory: &mut StudyDirectory, interrupt: &AtomicBool) -> Result<(), Failure> {
    let mut prover = Prover::default();
    for at in 0..directory.state().experiments.len() {
        if interrupt.load(Ordering::Relaxed) {
            break;
        }
        let state = &directory.state().experiments[at];
        if state.done || state.not_run.is_some() {
            continue;
        }
        ui::note(&format!(
            "experiment {} of {}: {}",
            at + 1,
            directory.state().experiments.len(),
            state.name
        ));
        if state.run.is_none() {
            prepare(directory, at, &mut prover)?;
        }
        if directory.state().experiments[at].not_run.is_none() && !share(directory, at)? {
            carry_out(directory, at, interrupt)?;
        }
    }
    Ok(())
}

/// Takes the run of an experiment before it that has measured by the same command: a paper that
/// prints one measurement in a figure and in a table has measured it once. Says whether there is
/// one.
fn share(directory: &mut StudyDirectory, at: usize) -> Result<bool, Failure> {
    let state = directory.state();
    let one = &state.experiments[at];
    let is_same = |other: &&ExperimentState| other.done && other.command == one.command;
    let Some(other) = state.experiments[..at].iter().find(is_same).filter(|_| one.run.is_none()) else {
        return Ok(false);
    };
    let Some(run) = other.run.clone() else { return Ok(false) };
    ui::note(&format!("  measured with {}", other.name));
    let columns = wanted(state)?.columns(experiment(directory, at)?);
    let plan = RunDirectory::open(&directory.path().join(&run))?;
    let environments = names(&columns, &one.without, plan.plan());
    directory.update(at, |state| {
        state.run = Some(run);
        state.environments = environments;
        state.done = true;
    })?;
    Ok(true)
}

/// Finds out which columns run, and writes down with what command.
fn prepare(directory: &mut StudyDirectory, at: usize, prover: &mut Prover) -> Result<(), Failure> {
    let state = directory.state();
    let wanted = wanted(state)?;
    let experiment = experiment(directory, at)?.clone();
    let mut columns = wanted.columns(&experiment);
    let mut here = Here::default();
    let proven = prover.prove(&mut columns, &mut here);
    let left = here.leave();
    proven?;
    left?;
    let words = words(&experiment, &columns, &state.size, &state.options);
    for column in columns.iter().filter_map(|column| Some((&column.id, column.missing.as_ref()?))) {
        ui::note(&format!("  without {}: {}", column.0, column.1));
    }
    directory.update(at, |state| {
        state.without =
            columns.iter().filter_map(|column| Some((column.id.clone(), column.missing.clone()?))).collect();
        match words {
            Some(words) => state.command = words,
            None => state.not_run = Some("none of its environments can run here".into()),
        }
    })
}

/// What the user wanted of columns when the study was asked for.
pub(super) fn wanted(state: &super::State) -> Result<Wanted, Failure> {
    let arms =
        state.arms.iter().map(|(id, spec)| Ok((id.clone(), weigh_model::EnvironmentSpec::parse(spec)?)));
    let on = state.on.iter().map(|spec| Ok(weigh_model::EnvironmentSpec::parse(spec)?));
    Ok(Wanted { arms: arms.collect::<Result<_, Failure>>()?, on: on.collect::<Result<_, Failure>>()? })
}

/// The data of an experiment that was asked for.
pub(super) fn experiment(directory: &StudyDirectory, at: usize) -> Result<&Experiment, Failure> {
    let name = &directory.state().experiments[at].name;
    directory.study().experiment(name).ok_or_else(|| {
        Failure::input(format!("{}: the study has no experiment `{name}`", directory.path().display()))
            .hint("restore study.json from a copy, or measure the study again")
    })
}

/// Runs or continues the run of an experiment.
fn carry_out(directory: &mut StudyDirectory, at: usize, interrupt: &AtomicBool) -> Result<(), Failure> {
    let state = &directory.state().experiments[at];
    let run = slug(&state.name);
    let path = directory.path().join(&run);
    let there = path.join("plan.json").is_file();
    let columns = wanted(directory.state())?.columns(experiment(directory, at)?);
    let mut one = OfStudy { path, there, interrupt, ended: None };
    let command = state.command.clone();
    let result = parse(&command).and_then(|command| crate::commands::measuring(command, &mut one));
    let OfStudy { path, ended, .. } = one;
    let without = directory.state().experiments[at].without.clone();
    let named = RunDirectory::open(&path).ok().map(|run| names(&columns, &without, run.plan()));
    directory.update(at, |state| {
        if let Some(environments) = named {
            state.run = Some(run);
            state.environments = environments;
        }
        match (&result, ended) {
            // What holds for the host now says nothing of the experiment: it is measured when the
            // study is resumed.
            (Err(failure), None) if failure.is_of_the_host() => {}
            (Err(failure), None) => state.not_run = Some(in_words(failure)),
            (_, Some(FinishReason::Interrupted)) => {}
            _ => state.done = true,
        }
    })?;
    match result {
        Err(failure) if failure.is_of_the_host() => Err(failure),
        Err(failure) => {
            ui::note(&format!("  not run: {}", in_words(&failure)));
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// The environment of each column, as the plan calls it: they are there in the order in which they
/// were given.
fn names(
    columns: &[Column],
    without: &std::collections::BTreeMap<String, String>,
    plan: &weigh_model::Plan,
) -> std::collections::BTreeMap<String, String> {
    let run: Vec<&Column> = columns.iter().filter(|column| !without.contains_key(&column.id)).collect();
    let mut specs: Vec<String> = Vec::new();
    for column in &run {
        specs.extend(column.spec.as_ref().map(ToString::to_string).filter(|spec| !specs.contains(spec)));
    }
    let of = |column: &&Column| {
        let spec = column.spec.as_ref()?.to_string();
        let place = specs.iter().position(|other| *other == spec)?;
        Some((column.id.clone(), plan.environments.get(place)?.name.clone()))
    };
    run.iter().filter_map(of).collect()
}

/// A failure in one sentence.
fn in_words(failure: &Failure) -> String {
    let mut text = weigh_platforms::with_causes(failure);
    if let Some(hint) = miette::Diagnostic::help(failure) {
        text.push_str(&format!("; {hint}"));
    }
    text
}

/// The command of an experiment.
pub(super) fn parse(words: &[String]) -> Result<Command, Failure> {
    let parsed = Cli::try_parse_from(std::iter::once("weigh").chain(words.iter().map(String::as_str)));
    match parsed.map(|cli| cli.command) {
        Ok(Some(command)) => Ok(command),
        Ok(None) => Err(Failure::input("an experiment without a command")),
        Err(error) => {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_string();
            Err(Failure::input(format!("weigh does not take its command: {line}")).hint(words.join(" ")))
        }
    }
}

/// A run that belongs to a study: nothing is shown but its progress.
struct OfStudy<'a> {
    path: PathBuf,
    /// Whether it was begun before.
    there: bool,
    interrupt: &'a AtomicBool,
    ended: Option<FinishReason>,
}

impl Carrier for OfStudy<'_> {
    fn carry_out(
        &mut self,
        _: &MeasureArgs,
        named: bool,
        facts: &HostFacts,
        plan: Planner<'_>,
    ) -> Result<(), Failure> {
        let (mut directory, options) = if self.there {
            (RunDirectory::open_for_append(&self.path)?, RunOptions::default())
        } else {
            let plan = run::make(plan)?;
            (RunDirectory::create_at(&self.path, &plan, facts)?, run::run_options(named))
        };
        let plan = directory.plan().clone();
        let how = Execution { options, live: None, interrupt: self.interrupt };
        let (finish, _) = run::execute(&plan, facts, &mut directory, how)?;
        self.ended = Some(finish.reason);
        run::write_page(&outcome::from_run(&directory)?, &self.path)?;
        Ok(())
    }
}

/// Says what would be run, with what is known without touching the host.
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
        let today = if column.today { ", of today" } else { "" };
        lines.push(format!("  arm {} ({}{today}): {place}", column.id, column.label));
    }
    match words(experiment, columns, size, options) {
        Some(words) => {
            let out = directory.join(slug(&experiment.name));
            lines.push(format!("  weigh {} --out {}", quoted(&words), out.display()));
        }
        None => lines.push("  nothing can run".into()),
    }
    lines.join("\n")
}

/// Words as a shell takes them.
pub(super) fn quoted(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    let quote = |word: &String| {
        if !word.is_empty() && word.chars().all(plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}

/// The facts of this host, for a report.
pub(super) fn host_in_words(facts: &HostFacts) -> String {
    format!(
        "{}, {} CPUs, {:.1} GiB, {}, Linux {}",
        facts.cpu_model,
        facts.cpus.len(),
        facts.memory_bytes as f64 / f64::from(1 << 30),
        facts.operating_system,
        facts.kernel
    )
}

/// Facts of this host.
pub(super) fn here() -> HostFacts {
    facts::host_facts()
}

impl Failure {
    /// Whether it concerns the host and every further run, and not one experiment.
    fn is_of_the_host(&self) -> bool {
        self.kind() == Kind::Failed && self.to_string().starts_with("another run is going on")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Surroundings;
    use weigh_model::{EnvironmentSpec, Plan};
    use weigh_platforms::loader::Elsewhere;
    use weigh_platforms::{Platform, PlatformError};
    use weigh_studies::{Origin, Quantity, library};

    /// Every column that this version knows how to make, whether it can run here or not.
    fn columns(experiment: &Experiment) -> Vec<Column> {
        let mut columns = Wanted::default().columns(experiment);
        for column in &mut columns {
            let known = |spec: &EnvironmentSpec| {
                weigh_platforms::resolve(spec).is_ok_and(|(platform, spec)| {
                    let image = weigh_model::ImageSpec::Host;
                    weigh_images::store::Store::check(&weigh_platforms::common_keys::image(
                        platform, &spec, &image,
                    ))
                    .is_ok()
                })
            };
            if !column.spec.as_ref().is_some_and(known) {
                column.missing = Some("not here".into());
            }
        }
        columns
    }

    /// Nothing is settled, and nobody is told.
    struct Silent(run::Nowhere);

    impl Surroundings for Silent {
        fn ready(&mut self) -> Result<Vec<String>, Failure> {
            self.0.ready()
        }

        fn settle(
            &mut self,
            platform: &dyn Platform,
            environment: &EnvironmentSpec,
        ) -> Result<Result<EnvironmentSpec, PlatformError>, Failure> {
            self.0.settle(platform, environment)
        }

        fn settle_loader(
            &mut self,
            machine: &Elsewhere,
        ) -> Result<Result<EnvironmentSpec, PlatformError>, Failure> {
            self.0.settle_loader(machine)
        }

        fn note(&mut self, _: &str) {}
    }

    /// Makes plans and keeps the last.
    #[derive(Default)]
    struct Planned(Option<Plan>);

    impl Carrier for Planned {
        fn carry_out(
            &mut self,
            _: &MeasureArgs,
            _: bool,
            _: &HostFacts,
            plan: Planner<'_>,
        ) -> Result<(), Failure> {
            self.0 = Some(plan(&mut Silent(run::Nowhere))?);
            Ok(())
        }
    }

    /// The plan of an experiment. None, and a line that says so, where each of its environments needs
    /// an image that is not built here.
    fn planned(experiment: &Experiment, size: &str) -> Option<Result<Plan, Failure>> {
        let Some(words) = words(experiment, &columns(experiment), size, &[]) else {
            let required = std::env::var("WEIGH_REQUIRE").unwrap_or_default();
            assert!(!required.split(',').any(|name| name == "debian"), "{}: no image", experiment.name);
            eprintln!("SKIPPED the plan of {}: `weigh image build debian` makes its image", experiment.name);
            return None;
        };
        let mut carrier = Planned::default();
        let plan = parse(&words).and_then(|parsed| crate::commands::measuring(parsed, &mut carrier));
        Some(plan.map(|_| carrier.0.expect("a plan")))
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

    /// What a paper did on more CPUs than this host has cannot be planned here.
    fn wants_more_cpus(failure: &Failure) -> bool {
        failure.to_string().contains("is not one that weigh may use")
    }

    #[test]
    fn weigh_takes_the_command_of_every_experiment_at_every_size() {
        for (name, experiment) in all() {
            for size in ["quick", "standard", "paper"] {
                match planned(&experiment, size) {
                    None | Some(Ok(_)) => {}
                    Some(Err(failure)) if wants_more_cpus(&failure) => {}
                    Some(Err(failure)) => panic!("{name} at {size}: {}", in_words(&failure)),
                }
            }
        }
    }

    /// Quantities whose workload is not measured unless the user brings the program.
    const OF_USERS: [&str; 1] = ["intel-linpack"];

    #[test]
    fn what_is_told_of_an_experiment_is_measured_by_its_command() {
        for (name, experiment) in all() {
            let plans = ["paper", "quick"].iter().filter_map(|size| planned(&experiment, size));
            let plans: Vec<_> = plans.collect();
            if plans.is_empty() {
                continue;
            }
            let Some(plan) = plans.into_iter().find_map(Result::ok) else {
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
                    has == value || super::super::values::number(has) == super::super::values::number(value)
                })
            };
            workload.name == measurand.workload
                && metric(&measurand.metric)
                && measurand.params.iter().all(has)
                && quantity.sweep.as_ref().is_none_or(|sweep| workload.params.contains_key(sweep))
        })
    }

    #[test]
    fn options_are_given_to_those_that_take_them() {
        let library = library().unwrap();
        let of = |name: &str, options: &[&str]| {
            let experiment = library.find(name).unwrap()[0].experiment.clone();
            let options: Vec<String> = options.iter().map(ToString::to_string).collect();
            words(&experiment, &columns(&experiment), "quick", &options).unwrap().join(" ")
        };
        let pxz = of("felter-2014/table-1/pxz", &["--seed", "7", "--no-void"]);
        assert!(pxz.starts_with("run --size quick --on native "), "{pxz}");
        assert!(pxz.contains(" --seed 7 --no-void --quick") && pxz.ends_with(" xz"), "{pxz}");
        assert!(!of("felter-2014/table-1/pxz", &["--blocks", "3"]).contains("--quick"));
        let soak = of("cloudspectator-2017/disk", &["--blocks", "3", "--budget", "5m", "--seed", "7"]);
        assert!(
            soak.contains("--seed 7") && !soak.contains("--blocks") && !soak.contains("--budget"),
            "{soak}"
        );
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        let words = ["a=b", "c d", "it's", ""].map(String::from);
        assert_eq!(quoted(&words), r"a=b 'c d' 'it'\''s' ''");
    }
}
