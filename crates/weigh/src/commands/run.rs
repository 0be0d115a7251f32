//! `weigh run`, and how every measuring command carries out its plan and shows the result.

use super::dry_run;
use crate::cli::{MeasureArgs, OutputFormat, RunArgs};
use crate::error::{ExitKind, Failure, file_failure};
use crate::host::{HostSession, HostView, LocalHost, NoHost};
use crate::live::{Live, Port};
use crate::request::{self, PlanRequest, commands};
use crate::selftest::LastSelftest;
use crate::{outcome, output, ui};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;
use weigh_host::clock;
use weigh_host::energy::{EnergyMeter, NoEnergy};
use weigh_model::{Event, FinishReason, GuestPlan, HostFacts, Plan};
use weigh_report::{Gate, Report};
use weigh_runner::{Finish, RunOptions, RunnerError};
use weigh_store::RunDirectory;

/// The default directory of runs, where `last` looks.
pub const RUNS: &str = "weigh-runs";

/// Turns the arguments of `weigh run` into a request.
pub fn request(args: RunArgs) -> PlanRequest {
    if let Some(file) = args.plan {
        let read = move |facts: &HostFacts, host: &mut dyn HostView| {
            request::check_host(request::read_plan(&file, host)?, facts)
        };
        return PlanRequest::new(args.common, read).of_plan_file();
    }
    let args = RunArgs { common: commands::native_unless_named(args.common, &args.work), ..args };
    PlanRequest::new(args.common.clone(), move |facts, host| {
        let RunArgs { work, trial, own, common, reuse, control, slices, energy, surface, plan: _ } = &args;
        let compared = commands::are_compared(common, work)?;
        let library = request::library(&work.workload)?;
        let loader = request::loader::parse(&trial.loader)?;
        let size = common.default_size();
        let workloads = |facts: &HostFacts| {
            let commands = commands::workloads(&work.command, own, compared)?;
            request::workloads(work, trial, commands, (size, &library), facts)
        };
        let plan = request::plan(common, loader, facts, host, &workloads)?;
        let plan = commands::applied(plan, &work.command, own, compared)?;
        let plan = if *control { request::with_control(plan)? } else { plan };
        let plan = Plan {
            guest: GuestPlan { reuse: *reuse, ..plan.guest },
            slices: *slices,
            surface: *surface,
            ..plan
        };
        let plan = if *energy { request::with_energy(plan)? } else { plan };
        Ok(request::with_looks(plan, common))
    })
}

/// Carries out a request in a new run directory and shows the result, or only prints the plan.
///
/// # Errors
/// Bad input, a host that cannot be used, nothing measured, a gate that is not passed.
pub fn run(request: &PlanRequest) -> Result<(), Failure> {
    run_and_write(request, &OutputFiles::default())
}

/// Files that the result is also written to.
#[derive(Debug, Default)]
pub struct OutputFiles {
    /// A Markdown comment.
    pub comment: Option<PathBuf>,
    /// JUnit test cases.
    pub junit: Option<PathBuf>,
}

/// Does the same as [`run`], and writes the result to files.
///
/// # Errors
/// As [`run`]; a file cannot be written.
pub fn run_and_write(request: &PlanRequest, written: &OutputFiles) -> Result<(), Failure> {
    let MeasureArgs { dry_run, out, format, details, gate, live, .. } = &request.common;
    let prices = request.prices()?;
    if *dry_run {
        let plan = request.plan(&mut NoHost::DryRun)?;
        prices.of_environments(&plan)?;
        ui::print(&dry_run::describe(&plan, &request.facts));
        return Ok(());
    }
    written.check(out.as_deref())?;
    // Take the port before anything is done, because it may be taken.
    let live = live.live.map(Port::take).transpose()?;
    let began = Instant::now();
    let mut plan = request.choosing(LocalHost::ask(|host| request.plan(host))?);
    if request.common.fits_budget() && request.common.effort.budget.is_none() {
        // The time that planning took is part of the time that the user waits.
        plan.budget_s = plan.budget_s.map(|budget_s| budget_left_s(budget_s, began.elapsed().as_secs_f64()));
    }
    if plan.energy {
        EnergyMeter::open().map_err(no_energy)?;
    }
    let prices = prices.of_environments(&plan)?;
    let directory = match out {
        Some(path) => {
            output::make_room(path)?;
            RunDirectory::create_at(path, &plan, &request.facts)?
        }
        None => {
            output::make_directory(Path::new(RUNS))?;
            RunDirectory::create(Path::new(RUNS), &plan, &request.facts, &clock::utc_now())?
        }
    };
    let shown = DisplayOptions { format: *format, details: details.details };
    let settings = Settings { shown, gate: gate.gate(), live, prices, written };
    measure(&plan, &request.facts, directory, settings)
}

/// The budget that is left after planning, seconds: in any case enough for a pilot.
fn budget_left_s(budget_s: f64, planning_s: f64) -> f64 {
    const LEAST_S: f64 = 60.0;
    (budget_s - planning_s).max(LEAST_S.min(budget_s)).round()
}

fn no_energy(reason: NoEnergy) -> Failure {
    Failure::new(ExitKind::Input, format!("`--energy` cannot be measured: {reason}")).hint(reason.remedy())
}

/// How the result is displayed.
#[derive(Debug, Clone, Copy)]
pub struct DisplayOptions {
    pub format: OutputFormat,
    /// Whether a terminal format shows all details.
    pub details: bool,
}

/// How a run is carried out and its result displayed.
pub struct Settings<'a> {
    pub shown: DisplayOptions,
    pub gate: Option<Gate>,
    /// The port of the live report.
    pub live: Option<Port>,
    /// The price of an hour of the host, by environment.
    pub prices: BTreeMap<String, f64>,
    /// Files that the result is also written to.
    pub written: &'a OutputFiles,
}

/// Runs or resumes the run of a directory, then shows the result.
///
/// # Errors
/// As [`run`].
pub fn measure(
    plan: &Plan,
    facts: &HostFacts,
    mut directory: RunDirectory,
    settings: Settings<'_>,
) -> Result<(), Failure> {
    let Settings { shown, gate, live, prices, written } = settings;
    let interrupt = catch_signals()?;
    let path = directory.path().to_path_buf();
    note_old_selftest(facts);
    let ExecutionResult { finish, live, closed } =
        execute(plan, facts, &mut directory, Execution { blind: false, live, interrupt: &interrupt })?;
    let report = Report { prices, ..outcome::from_run(&directory)? };
    let page = write_page(&report, &path)?;
    ui::print(&outcome::render(&report, shown.format, &ui::report_options(shown.details, gate))?);
    written.write(&report, gate)?;
    ui::note(&format!("run: {}\nreport: {}", path.display(), page.display()));
    ui::sentence(&spent(&finish.statistics));
    if let Some(live) = live {
        live.finish(&report, &interrupt);
    }
    closed?;
    match finish.reason {
        // Whatever was measured is shown; `weigh resume` measures the rest.
        FinishReason::Interrupted if outcome::measured_nothing(&report) => {
            Err(outcome::interrupted_early(&path))
        }
        _ => outcome::verdict(&report, gate, &path),
    }
}

/// Says that the last selftest of this host passed too long ago, or on a host that has changed.
fn note_old_selftest(facts: &HostFacts) {
    let Some(last) = LastSelftest::of(facts).filter(|last| last.passed) else { return };
    let outdated = last.outdated(facts);
    if !outdated.is_empty() {
        ui::note(&format!(
            "note: the last selftest of this host passed on {}, and since then {}; `weigh selftest` repeats it",
            last.day(),
            outdated.join(", ")
        ));
    }
}

impl OutputFiles {
    /// Checks that the files can be written, before hours of measuring. Those in the run directory
    /// have no place yet.
    fn check(&self, run: Option<&Path>) -> Result<(), Failure> {
        let mut files = self.comment.iter().chain(&self.junit);
        files.try_for_each(|file| match run.is_some_and(|run| file.starts_with(run)) {
            true => Ok(()),
            false => output::check_file(file),
        })
    }

    fn write(&self, report: &Report, gate: Option<Gate>) -> Result<(), Failure> {
        for (file, format) in [(&self.comment, OutputFormat::Md), (&self.junit, OutputFormat::Junit)] {
            if let Some(file) = file {
                output::write(file, outcome::render(report, format, &ui::report_options(false, gate))?)?;
            }
        }
        Ok(())
    }
}

/// Writes the HTML report of a run beside its samples.
///
/// # Errors
/// The file cannot be written.
pub fn write_page(report: &Report, run: &Path) -> Result<PathBuf, Failure> {
    let page = run.join("report.html");
    let html = outcome::render(report, OutputFormat::Html, &ui::report_options(true, None))?;
    weigh_store::write_whole(run, "report.html", html.as_bytes())?;
    Ok(page)
}

/// How a run is executed.
pub struct Execution<'a> {
    /// Whether no effect may be shown.
    pub blind: bool,
    /// The port of the live report.
    pub live: Option<Port>,
    /// A flag that turns true when the run should end.
    pub interrupt: &'a AtomicBool,
}

/// How the execution of a run ended.
pub struct ExecutionResult {
    pub finish: Finish,
    /// The live report, which is still served.
    pub live: Option<Live>,
    /// Whether all changes to the host were undone. Fail with it only once the result is shown.
    pub closed: Result<(), Failure>,
}

/// Runs or resumes the run of a directory, and shows only its progress.
///
/// # Errors
/// The host cannot be used; errors of the runner.
pub fn execute(
    plan: &Plan,
    facts: &HostFacts,
    directory: &mut RunDirectory,
    execution: Execution<'_>,
) -> Result<ExecutionResult, Failure> {
    let path = directory.path().to_path_buf();
    // Make the path absolute, because platforms' tools write logs from directories of their own.
    let logs = std::path::absolute(directory.logs())
        .map_err(|error| file_failure("find the directory of logs", &path, error))?;
    let session = HostSession::open(&path.display().to_string(), Some(logs))?;
    for (run, changes) in &session.leftovers {
        ui::note(&format!(
            "warning: run {run} ended early and left {changes} changes on this host; `weigh clean` undoes them"
        ));
    }
    if let Some(failed) = LastSelftest::of(facts).filter(|last| !last.passed) {
        ui::note(&format!(
            "warning: the last selftest of this host failed ({}): trust no verdict until `weigh selftest --long` passes",
            failed.day()
        ));
    }
    let anywhere = rustix::thread::sched_getaffinity(None);
    stay_off(&plan.guest.cpus, facts);
    // Start the live report after that, so that its threads stay off those CPUs as well.
    let mut live = execution.live.map(|port| Live::serve(port, &path)).transpose()?;
    if let Some(live) = &live {
        ui::note(&live.announcement());
    }
    let mut sensors = weigh_observe::Observer::new();
    if plan.energy {
        sensors.measure_energy().map_err(no_energy)?;
    }
    let mut progress = ui::Progress::new();
    let finish = weigh_runner::run(weigh_runner::Run {
        plan,
        host: &session.host,
        host_facts: facts,
        store: directory,
        sensors: &mut sensors,
        interrupt: execution.interrupt,
        emit: &mut |event: Event| {
            progress.show(&event);
            let complaint = live.as_mut().and_then(|live| live.show(&event));
            complaint.into_iter().for_each(|message| progress.show(&Event::Warning { message }));
        },
        options: RunOptions { blind: execution.blind, ..RunOptions::default() },
    });
    drop(progress);
    // The next run of this process may need other CPUs.
    let _unchanged = anywhere.and_then(|set| rustix::thread::sched_setaffinity(None, &set));
    let closed = session.close();
    match &finish {
        // A pilot is not kept, so there is no run to name.
        Err(_) if execution.blind => {}
        Err(RunnerError::Unequal { .. }) => ui::note(&format!(
            "run: {0} holds the facts about every guest; make the guests equal, then `weigh resume {0}`",
            path.display()
        )),
        Err(RunnerError::Loader { .. }) => ui::note(&format!(
            "run: {0}; `weigh resume {0}` continues once the machine can be used",
            path.display()
        )),
        _ => {}
    }
    Ok(ExecutionResult { finish: finish?, live, closed })
}

/// Returns a flag that turns true on SIGINT (Ctrl-C), SIGTERM and SIGHUP.
///
/// # Errors
/// Signals cannot be caught.
pub fn catch_signals() -> Result<Arc<AtomicBool>, Failure> {
    let interrupt = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        // A second signal ends weigh at once; `weigh clean` and `weigh resume` repair what that
        // leaves behind.
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&interrupt))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&interrupt)))
            .map_err(|error| Failure::new(ExitKind::Failed, "cannot catch signals").because(error))?;
    }
    Ok(interrupt)
}

/// Reports where the time of a run went.
fn spent(statistics: &weigh_runner::RunStatistics) -> String {
    format!(
        "time: {} in all, {} of it in {} trials, {} in {} launches, {:.3} s in syncs",
        ui::human(statistics.total_s),
        ui::human(statistics.trial_s),
        statistics.trials,
        ui::human(statistics.launch_s),
        statistics.launches,
        statistics.sync_s
    )
}

/// Finds the directory of a run that the user names: a path, a name below [`RUNS`], or `last`.
///
/// # Errors
/// There is no such run.
pub fn find(run: &Path) -> Result<PathBuf, Failure> {
    Ok(weigh_store::resolve(Path::new(RUNS), &run.to_string_lossy())?)
}

/// Keeps weigh itself off the CPUs of the guests if there are others (method specification,
/// "Placement").
pub fn stay_off(cpus: &[u32], facts: &HostFacts) {
    let others: Vec<u32> = facts.cpus.iter().copied().filter(|cpu| !cpus.contains(cpu)).collect();
    if cpus.is_empty() || others.is_empty() {
        return;
    }
    let mut set = rustix::thread::CpuSet::new();
    for cpu in others {
        set.set(cpu as usize);
    }
    // Sharing a CPU with the guests only costs precision, so a failure does not end the run.
    let _unchanged = rustix::thread::sched_setaffinity(None, &set);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planning_is_a_part_of_the_budget() {
        assert_eq!(budget_left_s(160.0, 12.4), 148.0);
        assert_eq!(budget_left_s(160.0, 150.0), 60.0);
        assert_eq!(budget_left_s(30.0, 150.0), 30.0);
    }
}
