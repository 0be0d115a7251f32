//! `weigh study`: measures the experiments of studies on this host, and shows them beside the
//! published results.

use super::run::{RUNS, catch_signals, find};
use super::study_new;
use crate::cli::{EffortArgs, OutputFormat, StudyArgs, StudyCommand};
use crate::error::{ExitKind, Failure, file_failure};
use crate::host::LocalHost;
use crate::study::{self, AvailabilityCheck, acceleration};
use crate::{outcome, output, request, ui};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use weigh_host::clock;
use weigh_model::{did_you_mean, distinct, grouped, harmless_lines};
use weigh_report::ReportError;
use weigh_report::study::StudyReport;
use weigh_studies::{
    Column, ColumnChoice, Experiment, ExperimentState, Library, ReanalysisResult, Study, StudyDirectory,
    StudyState, UnknownExperiment, every_claim, reanalyse,
};

/// Lists studies, or measures experiments of one.
///
/// # Errors
/// Bad input, a host that cannot be used, nothing measured.
pub fn run(args: &StudyArgs) -> Result<(), Failure> {
    if let Some(StudyCommand::New(args)) = &args.what {
        return study_new::run(args);
    }
    refuse_format("study", "DIR/EXPERIMENT", args.format)?;
    let library = Library::load(args.file.as_slice())?;
    if !args.claims.is_empty() {
        return show_claims(&library, &args.claims, args.format);
    }
    let names = match (&args.names[..], &args.file) {
        ([], Some(_)) if !args.json => vec![library.studies().last().expect("the user's").name.clone()],
        (names, _) => names.to_vec(),
    };
    if let (true, Some(_)) = (names.is_empty(), &args.reanalyse) {
        return Err(Failure::input("--reanalyse without a study")
            .hint("name one, as in `weigh study felter-2014 --reanalyse DIR`"));
    }
    if names.is_empty() {
        return list(&library, args.json);
    }
    let (study, experiments) = chosen(&library, &names)?;
    if let Some(directory) = &args.reanalyse {
        return show_logs(study, &experiments, directory, args);
    }
    let choice = ColumnChoice::parse(&args.arm, &args.on, &experiments, &acceleration)?;
    let state = new_state(args, study, &experiments, &choice);
    if args.dry_run {
        let out = args.out.clone().unwrap_or_else(|| Path::new(RUNS).join(&study.name));
        for experiment in experiments {
            let columns = choice.columns(experiment);
            ui::print(&study::describe(&out, experiment, &columns, &state.size, &state.options));
        }
        return Ok(());
    }
    let path = match &args.out {
        Some(path) => {
            output::make_directory(path)?;
            path.clone()
        }
        None => {
            output::make_directory(Path::new(RUNS))?;
            weigh_store::make_directory(Path::new(RUNS), &clock::utc_now(), &study.name)?
        }
    };
    let directory = StudyDirectory::create(&path, study, state)?;
    carry_on(directory, args.format)
}

/// Continues a study.
///
/// # Errors
/// As [`run`].
pub fn resume(path: &Path) -> Result<(), Failure> {
    carry_on(StudyDirectory::open(path)?, OutputFormat::Table)
}

/// Shows what a study has measured so far.
///
/// # Errors
/// A damaged directory, a file that cannot be written.
pub fn show(path: &Path, format: OutputFormat, file: Option<&Path>) -> Result<(), Failure> {
    refuse_format("study", "DIR/EXPERIMENT", format)?;
    let text = study::render(&study::report(&StudyDirectory::open(path)?)?, format)?;
    output::write_or_print(file, &text)
}

/// Shows every claim of the library, and what the studies in these directories found.
fn show_claims(library: &Library, paths: &[PathBuf], format: OutputFormat) -> Result<(), Failure> {
    let mut directories = Vec::new();
    for path in paths {
        for directory in directories_of_studies(&find(path)?)? {
            directories.push(StudyDirectory::open(&directory)?);
        }
    }
    let reports = every_claim(library, &directories, outcome::from_run)?;
    let options = ui::report_options(true, None);
    let text = weigh_report::render_claims(&reports, format.into(), &options)
        .map_err(|error| no_output("claims", format, error))?;
    ui::print(&text);
    Ok(())
}

/// The directories of studies that a directory is or holds, in the order of their names.
fn directories_of_studies(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    if StudyDirectory::is_one(path) {
        return Ok(vec![path.to_path_buf()]);
    }
    let failed = |error: std::io::Error| file_failure("read", path, error);
    let entries = std::fs::read_dir(path).map_err(failed)?;
    let below = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut found = below.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    found.retain(|path| StudyDirectory::is_one(path));
    found.sort();
    if found.is_empty() {
        return Err(Failure::input(format!("{} is no directory of a study, and holds none", path.display()))
            .hint("`weigh study NAME` makes one; it has a study.json"));
    }
    Ok(found)
}

/// Shows the results in the study's own logs, then reports the first log that cannot be used.
fn show_logs(
    study: &Study,
    experiments: &[&Experiment],
    logs: &Path,
    args: &StudyArgs,
) -> Result<(), Failure> {
    if !logs.is_dir() {
        return Err(Failure::input(format!("there is no directory {}", logs.display()))
            .hint("give --reanalyse the directory with the study's raw logs, laid out as its authors published them"));
    }
    let names: Vec<&str> = experiments.iter().map(|experiment| experiment.name.as_str()).collect();
    let ReanalysisResult { report, damaged } = reanalyse(study, &names, logs);
    if let Some(out) = &args.out {
        write_reports(out, &report)?;
    }
    ui::print(&study::render(&report, args.format)?);
    match damaged.into_iter().next() {
        Some(error) => Err(error.into()),
        None if has_values(&report) => Ok(()),
        None => Err(Failure::new(
            ExitKind::NothingMeasured,
            format!("no raw log of the study is in {}", logs.display()),
        )
        .hint("the paths that are missing are above; give the directory that they are below")),
    }
}

/// Writes the report as a page and as JSON, into a directory that holds nothing else.
fn write_reports(out: &Path, report: &StudyReport) -> Result<(), Failure> {
    if std::fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(Failure::input(format!("{} exists and is not empty", out.display()))
            .hint("give --out another directory"));
    }
    output::make_directory(out)?;
    for (name, format) in [("report.html", OutputFormat::Html), ("report.json", OutputFormat::Json)] {
        let file = out.join(name);
        output::write(&file, study::render(report, format)?)?;
    }
    ui::note(&format!("report: {}", out.join("report.html").display()));
    Ok(())
}

/// Whether the report has any measured number.
fn has_values(report: &StudyReport) -> bool {
    let rows = report.experiments.iter().flat_map(|one| &one.views).flat_map(|view| &view.rows);
    rows.flat_map(|row| &row.cells).any(|cell| cell.measured.is_some())
}

/// Refuses options that only a run has, which would otherwise be ignored. `what` names the thing
/// that was given, which contains runs, and `run` says how to name one of them.
///
/// # Errors
/// One of them is given.
pub fn refuse_of_runs(what: &str, run: &str, options: &[(&str, bool)]) -> Result<(), Failure> {
    match options.iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => Err(Failure::input(format!("`{option}` is for a run, and this is a {what}"))
            .hint(format!("leave it out, or name one of its runs: {run}"))),
        None => Ok(()),
    }
}

/// Refuses formats of other tools before hours of measuring; see [`refuse_of_runs`].
///
/// # Errors
/// The format is one of those.
pub fn refuse_format(what: &str, run: &str, format: OutputFormat) -> Result<(), Failure> {
    refuse_of_runs(
        what,
        run,
        &[(&format!("--format {}", format.name()), weigh_report::Format::from(format).is_for_tools())],
    )
}

/// Returns the error for a format that cannot show `what`, which is a plural.
pub fn no_output(what: &str, format: OutputFormat, error: ReportError) -> Failure {
    Failure::input(format!("{what} have no {} output", format.name()))
        .because(error)
        .hint("table, json, md, latex and html show it")
}

/// Measures what is left, then shows all results.
fn carry_on(mut directory: StudyDirectory, format: OutputFormat) -> Result<(), Failure> {
    let interrupt = catch_signals()?;
    let measured = study::measure(&mut directory, &interrupt);
    let report = study::report(&directory)?;
    let path = directory.path();
    let page = path.join("report.html");
    weigh_store::write_whole(path, "report.html", study::render(&report, OutputFormat::Html)?.as_bytes())?;
    ui::print(&study::render(&report, format)?);
    ui::note(&format!("study: {}\nreport: {}", path.display(), page.display()));
    measured?;
    verdict(&report, path, &interrupt)
}

/// Returns an error if nothing was measured.
fn verdict(report: &StudyReport, path: &Path, interrupt: &AtomicBool) -> Result<(), Failure> {
    if has_values(report) {
        return Ok(());
    }
    if interrupt.load(Ordering::Relaxed) {
        return Err(Failure::new(
            ExitKind::NothingMeasured,
            "the study was interrupted before anything that counts was measured",
        )
        .hint(format!("`weigh resume {}` continues it", path.display())));
    }
    Err(Failure::new(ExitKind::NothingMeasured, "nothing of the study could be measured")
        .hint("the reasons are above; `weigh doctor` looks at every platform"))
}

/// The experiments that the names select, without repetitions and in the order of their study.
fn chosen<'a>(library: &'a Library, names: &[String]) -> Result<(&'a Study, Vec<&'a Experiment>), Failure> {
    let mut found = Vec::new();
    for name in names {
        found.extend(library.find(name).map_err(|error| unknown(&error))?);
    }
    let study = found.first().expect("a name stands for something").study;
    if let Some(other) = found.iter().find(|one| one.study.name != study.name) {
        return Err(Failure::input(format!("{} and {} are two studies", study.name, other.study.name))
            .hint("give each a command of its own"));
    }
    let is_chosen = |experiment: &&Experiment| found.iter().any(|one| one.experiment.name == experiment.name);
    Ok((study, study.experiments.iter().filter(is_chosen).collect()))
}

fn unknown(error: &UnknownExperiment) -> Failure {
    let hint = did_you_mean(error.nearest.as_deref(), || {
        "`weigh list studies` shows all; one of your own is given by --file".into()
    });
    Failure::input(error.to_string()).at("study", &error.name, 0..error.name.len()).hint(hint)
}

/// The state of a study that is about to begin.
fn new_state(
    args: &StudyArgs,
    study: &Study,
    experiments: &[&Experiment],
    choice: &ColumnChoice,
) -> StudyState {
    let mut options: Vec<String> = Vec::new();
    let mut add = |name: &str, value: Option<String>| {
        options.extend(value.into_iter().flat_map(|value| [name.to_string(), value]));
    };
    let EffortArgs { blocks, precision, budget, no_void, seed } = &args.effort;
    add("--blocks", blocks.map(|blocks| blocks.to_string()));
    add("--precision", precision.map(|percent| percent.to_string()));
    add("--budget", budget.clone());
    add("--seed", Some(seed.unwrap_or_else(request::random_seed).to_string()));
    if *no_void {
        options.push("--no-void".into());
    }
    let state =
        |experiment: &&Experiment| ExperimentState { name: experiment.name.clone(), ..Default::default() };
    StudyState {
        options,
        arms: choice.arms.iter().map(|(id, spec)| (id.clone(), spec.to_string())).collect(),
        on: choice.on.iter().map(ToString::to_string).collect(),
        experiments: experiments.iter().map(state).collect(),
        ..StudyState::new(study, args.size.name())
    }
}

/// An experiment in the list.
#[derive(Serialize)]
struct ExperimentEntry {
    name: String,
    title: String,
    source: String,
    /// Arms that can run here.
    runs: Vec<String>,
    /// The arms that cannot, each with the reason.
    without: BTreeMap<String, String>,
    /// The arms of which that is not known, because the platforms could not be tried.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unknown: Vec<String>,
}

/// Prints all studies with the experiments that can run here.
fn list(library: &Library, json: bool) -> Result<(), Failure> {
    let experiments: Vec<(&Study, &Experiment)> = library
        .studies()
        .iter()
        .flat_map(|study| study.experiments.iter().map(move |experiment| (study, experiment)))
        .collect();
    let mut columns: Vec<Vec<Column>> =
        experiments.iter().map(|(_, one)| ColumnChoice::default().columns(one)).collect();
    let mut availability = AvailabilityCheck::default();
    // Platforms are tried with guests, which would disturb another run; the list does without.
    let untried = LocalHost::ask(|host| match host.host().err() {
        None => availability.check(columns.iter_mut().flatten(), host).map(|()| None),
        untried => Ok(untried),
    })?;
    if let Some(failure) = &untried {
        ui::note(&format!("note: no platform was tried, so what runs here is not known: {failure}"));
    }
    let all: Vec<(&Study, ExperimentEntry)> = experiments
        .into_iter()
        .zip(&columns)
        .map(|((study, experiment), columns)| (study, listed(study, experiment, columns, untried.is_none())))
        .collect();
    if json {
        let listed: Vec<&ExperimentEntry> = all.iter().map(|(_, listed)| listed).collect();
        ui::print(&ui::json(&listed));
        return Ok(());
    }
    ui::print(&in_words(library, &all));
    Ok(())
}

fn listed(study: &Study, experiment: &Experiment, columns: &[Column], tried: bool) -> ExperimentEntry {
    let possible = columns.iter().filter(|column| column.missing.is_none());
    let possible: Vec<String> = possible.map(|column| column.id.clone()).collect();
    let (runs, unknown) = if tried { (possible, Vec::new()) } else { (Vec::new(), possible) };
    let without = columns.iter().filter_map(|column| Some((column.id.clone(), column.missing.clone()?)));
    ExperimentEntry {
        name: format!("{}/{}", study.name, experiment.name),
        title: experiment.title.clone(),
        source: experiment.source.clone(),
        runs,
        without: without.collect(),
        unknown,
    }
}

/// The list for people. Every experiment has the arms that can run, and each reason why an arm
/// cannot is given once, at the end.
fn in_words(library: &Library, all: &[(&Study, ExperimentEntry)]) -> String {
    let mut lines = Vec::new();
    for study in library.studies() {
        lines.push(format!("{}: {} ({}; {})", study.name, study.title, study.authors, study.published));
        for (_, one) in all.iter().filter(|(of, _)| of.name == study.name) {
            lines.push(format!("  {}: {}", one.name, one.title));
            let runs = match (&one.runs[..], &one.unknown[..]) {
                ([], []) => "runs: nothing".to_string(),
                ([], unknown) => format!("not known: {}", unknown.join(", ")),
                (runs, _) => format!("runs: {}", runs.join(", ")),
            };
            let without: Vec<&str> = one.without.keys().map(String::as_str).collect();
            let without = if without.is_empty() {
                String::new()
            } else {
                format!("; not here: {}", without.join(", "))
            };
            lines.push(format!("    {runs}{without}"));
        }
        lines.push(String::new());
    }
    let without = distinct(all.iter().flat_map(|(_, one)| &one.without));
    let reasons = grouped(without, |(_, reason)| *reason);
    if !reasons.is_empty() {
        lines.push("Not here:".into());
    }
    for (reason, arms) in reasons {
        let arms: Vec<&str> = arms.iter().map(|(arm, _)| arm.as_str()).collect();
        lines.push(format!("  {}: {reason}", arms.join(", ")));
    }
    // Titles come from users' files, which may contain anything.
    harmless_lines(lines.join("\n").trim_end())
}
