//! Makes reports from samples, and exit codes from reports.

mod read;
mod samples;

use crate::cli::OutputFormat;
use crate::distinct::{Observation, canonical, require_distinct};
use crate::error::{ExitKind, Failure};
use crate::facts;
pub use read::Read;
pub use samples::{from_samples, from_tool};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use weigh_model::{
    Comparison, Effort, Event, FinishReason, Plan, Started, WorkloadPlan, distinct, number_of,
};
use weigh_report::{ComparedRuns, Decision, EnvironmentFacts, Gate, Judgement, LogEnd, Report, ReportError};
use weigh_stats::{
    ComparedRun, Failure as Failed, Limit, Notice, Options, RunData, RunEstimates, RunFacts, analyse,
    compare_runs, degradations, isolations, limits, sums,
};
use weigh_store::RunDirectory;

/// Makes the report of a run from the samples on disk.
///
/// # Errors
/// The run directory is damaged.
pub fn from_run(directory: &RunDirectory) -> Result<Report, Failure> {
    let plan = directory.plan();
    let Read { collected, on_record, courses, recovered } = Read::of(directory)?;
    let mut warnings: Vec<Notice> = recovered.into_iter().map(repair_notice).collect();
    let mut options = Options::for_run(plan, &collected);
    let done = collected.blocks_done;
    let may_lack = options.looks.is_some() || done < plan.effort.planned_blocks(done);
    options.ended_by_rule = may_lack && ended_by_rule(directory);
    let analysis = analyse(&collected.comparisons, &options);
    warnings.extend(collected.warnings.iter().map(Notice::from));
    let environments = facts::of_environments(plan, directory.host(), &on_record);
    let mut known = RunFacts::of_run(plan, &collected);
    known.cpus = known.cpus.or_else(|| cpus(&environments));
    // A guest that stays among its neighbours is never alone.
    let lasts = matches!(plan.effort, Effort::Lasting { .. });
    Ok(Report {
        title: title(plan),
        run: Some(directory.name()),
        compared: None,
        plan: Some(plan.clone()),
        host: Some(directory.host().clone()),
        limits: cost_per_guest(plan, &collected.comparisons),
        prices: BTreeMap::new(),
        degradations: if lasts { Vec::new() } else { degradations(&collected.comparisons, &known) },
        isolations: if lasts { Vec::new() } else { isolations(&collected.comparisons) },
        sums: sums(&collected.comparisons, &collected.alone, &known),
        courses,
        analysis,
        environments,
        circumstances: collected.circumstances,
        voids: collected.voids,
        logs: logs(directory, &collected.failures),
        failures: collected.failures,
        warnings,
        blocks_planned: Some(plan.effort.fewest_blocks()),
        blocks_done: Some(done),
        effort_label: Some(effort(plan)),
        samples: None,
    })
}

/// A notice about something that was repaired, with nothing for the user to do.
fn repair_notice(recovered: String) -> Notice {
    Notice::new(recovered, "")
}

/// Returns the number of CPUs of the guests, if it is the same in all environments.
fn cpus(environments: &[EnvironmentFacts]) -> Option<u32> {
    let told = |facts: &EnvironmentFacts| {
        let fact = facts.facts.get("cpus")?;
        fact.as_str().map_or_else(|| fact.as_u64()?.try_into().ok(), |text| text.parse::<u32>().ok())
    };
    let mut all = environments.iter().filter_map(told);
    let first = all.next()?;
    all.all(|other| other == first).then_some(first)
}

/// Returns the cost of one more guest, if memory was measured at several numbers of guests.
fn cost_per_guest(plan: &Plan, comparisons: &[Comparison]) -> Vec<Limit> {
    let is_footprint = |workload: &WorkloadPlan| {
        workload.start.is_some_and(|start| matches!(start.what, Started::Footprint { .. }))
    };
    let weighed: Vec<&str> =
        plan.workloads.iter().filter(|w| is_footprint(w)).map(|w| w.id.as_str()).collect();
    let of_memory = |comparison: &&Comparison| weighed.contains(&comparison.workload.as_str());
    limits(&comparisons.iter().filter(of_memory).cloned().collect::<Vec<_>>())
}

/// Reads the ends of the logs that failures name. The report names a log even if it cannot be read.
fn logs(directory: &RunDirectory, failures: &[Failed]) -> BTreeMap<String, LogEnd> {
    /// The number of logs on a page; nobody reads more.
    const MOST: usize = 40;
    let names = failures.iter().filter_map(|failure| failure.log.as_deref()).take(MOST);
    // Samples may come from somebody else, so only files of the run's own directory are opened.
    let read = |name: &str| {
        let end = directory.open_file(name).and_then(|mut file| LogEnd::read(&mut file));
        end.ok().map(|end| (name.to_string(), end))
    };
    names.filter_map(read).collect()
}

/// Whether the run ended by itself, for example by its budget. A run that is going on, or was
/// interrupted or killed, may have been ended because of its results.
pub fn ended_by_rule(directory: &RunDirectory) -> bool {
    let events = directory.events().map(|read| read.events).unwrap_or_default();
    matches!(
        events.last().map(|last| &last.event),
        Some(Event::Finished { reason, .. }) if *reason != FinishReason::Interrupted
    )
}

/// Whether a run has all blocks of its plan, or ended by itself.
pub fn is_complete(directory: &RunDirectory, blocks_done: u32) -> bool {
    blocks_done >= directory.plan().effort.planned_blocks(blocks_done) || ended_by_rule(directory)
}

/// Checks that a run is whole, so that nobody has ended it because of its results.
///
/// # Errors
/// It is still going on, or is incomplete.
pub fn require_complete(directory: &RunDirectory, blocks_done: u32) -> Result<(), Failure> {
    let name = directory.name();
    if directory.is_going_on() {
        return Err(Failure::input(format!("the run {name} is still going on")).hint("wait until it ends"));
    }
    if !is_complete(directory, blocks_done) {
        let message = format!("the run {name} is incomplete and may have been ended because of its results");
        return Err(Failure::input(message).hint(format!("`weigh resume {name}` continues it")));
    }
    Ok(())
}

/// Makes the report of runs compared with other runs, before and after.
///
/// # Errors
/// A run directory is damaged; a run is not complete; one of several runs is named twice, or is a
/// copy of another; the runs have no cell in common.
pub fn from_runs(before: &[RunDirectory], after: &[RunDirectory]) -> Result<Report, Failure> {
    let read = |runs: &[RunDirectory]| runs.iter().map(Opened::read).collect::<Result<Vec<_>, Failure>>();
    let (first, second) = (read(before)?, read(after)?);
    if before.len() > 1 {
        let all = first.iter().chain(&second).map(Opened::observation);
        require_distinct(&all.collect::<Vec<_>>())?;
    }
    let names = |runs: &[RunDirectory]| runs.iter().map(RunDirectory::name).collect::<Vec<_>>().join(", ");
    let compared = ComparedRuns { before: names(before), after: names(after) };
    let [one, other] = [&first, &second].map(|side| side.iter().map(Opened::compared).collect::<Vec<_>>());
    let analysis = compare_runs(&one, &other);
    if !analysis
        .cells
        .iter()
        .any(|cell| cell.runs.as_ref().is_some_and(|runs| runs.before.n > 0 && runs.after.n > 0))
    {
        return Err(Failure::input(format!(
            "the runs {} and {} have no cell in common",
            compared.before, compared.after
        ))
        .hint("compare runs of the same workloads and environments; `weigh run --plan FILE` repeats a run exactly"));
    }
    let title = if before.len() + after.len() > 2 { "runs compared" } else { "two runs compared" };
    let mut report = Report::new(title, analysis);
    let all: Vec<&RunDirectory> = before.iter().chain(after).collect();
    let (last, others) = all.split_last().ok_or_else(|| Failure::input("there is no run to compare"))?;
    let mut warnings = Vec::new();
    if others.iter().all(|run| run.host().identity == last.host().identity) {
        report.host = Some(last.host().clone());
    } else {
        let action = "differences between the hosts are part of every ratio";
        warnings.push(Notice::new("the runs were made on different hosts", action));
    }
    if others.iter().any(|run| run.plan().digests != last.plan().digests) {
        warnings.push(Notice::new("the runs used different builds of weigh", "its kernels may differ"));
    }
    if others.iter().any(|run| own_commands(run.plan()) != own_commands(last.plan())) {
        let action = "what differs between them is part of every change";
        warnings.push(Notice::new("the runs measured different commands", action));
    }
    for run in first.into_iter().chain(second) {
        report.failures.extend(run.collected.failures);
        report.voids.extend(run.collected.voids);
        report.warnings.extend(run.recovered.map(repair_notice));
    }
    report.compared = Some(compared);
    report.warnings.extend(warnings);
    Ok(report)
}

/// The commands of a plan that are compared with each other, whose names say too little of them.
fn own_commands(plan: &Plan) -> Vec<&BTreeMap<String, Vec<String>>> {
    plan.workloads.iter().map(|workload| &workload.commands).filter(|commands| !commands.is_empty()).collect()
}

/// A run that is compared with others.
struct Opened {
    name: String,
    path: PathBuf,
    machine: String,
    estimates: RunEstimates,
    collected: RunData,
    options: Options,
    recovered: Option<String>,
}

impl Opened {
    fn read(run: &RunDirectory) -> Result<Self, Failure> {
        let Read { collected, recovered, .. } = Read::of(run)?;
        require_complete(run, collected.blocks_done)?;
        let options = Options::for_run(run.plan(), &collected);
        Ok(Self {
            name: run.name(),
            path: canonical(run.path()),
            machine: run.host().identity.clone(),
            estimates: RunEstimates::of(&collected.comparisons, &options),
            collected,
            options,
            recovered,
        })
    }

    fn observation(&self) -> Observation<'_> {
        Observation {
            named: &self.name,
            path: &self.path,
            machine: &self.machine,
            estimates: &self.estimates,
        }
    }

    fn compared(&self) -> ComparedRun<'_> {
        (&self.collected.comparisons, &self.options)
    }
}

/// Renders the report in a format, with the given options.
///
/// # Errors
/// The report does not fit into the format; the renderer has a defect.
pub fn render(
    report: &Report,
    format: OutputFormat,
    options: &weigh_report::Options,
) -> Result<String, Failure> {
    weigh_report::render(report, format.into(), options).map_err(|error| match error {
        ReportError::NoSamples { .. } | ReportError::NoMetric { .. } | ReportError::LongName { .. } => {
            Failure::input(error.to_string()).hint("`--format json` and `--format csv` can show every report")
        }
        error => Failure::new(ExitKind::Failed, "the report cannot be written").because(error),
    })
}

/// Checks that a finished run measured something and passes the gate. The gate of two builds says
/// itself which of them could not be measured.
///
/// # Errors
/// Nothing was measured; the errors of [`gate`].
pub fn verdict(report: &Report, limit: Option<Gate>, run: &Path) -> Result<(), Failure> {
    let is_gate = limit.is_none() && Judgement::of_builds(report).is_some();
    if !is_gate && measured_nothing(report) {
        return Err(nothing_measured(run));
    }
    gate(report, limit)
}

/// Whether a report has no values.
pub fn measured_nothing(report: &Report) -> bool {
    report.analysis.cells.iter().all(|cell| cell.summary.is_none())
}

/// Makes the failure of a run that measured nothing.
fn nothing_measured(run: &Path) -> Failure {
    Failure::new(ExitKind::NothingMeasured, "nothing could be measured").hint(format!(
        "the reasons are above, the whole output in {}; `weigh doctor` looks at every platform",
        run.join("logs").display()
    ))
}

/// Makes the failure of a run that was interrupted before it measured anything that counts.
pub fn interrupted_early(run: &Path) -> Failure {
    Failure::new(
        ExitKind::NothingMeasured,
        "the run was interrupted before anything that counts was measured",
    )
    .hint(format!("`weigh resume {}` continues it", run.display()))
}

/// Checks the comparisons against a gate (method specification, "Gates"). If two builds were
/// compared and no gate is given, checks them against the gate of the plan.
///
/// # Errors
/// A comparison fails the gate; or none fails, but some cannot be judged.
pub fn gate(report: &Report, gate: Option<Gate>) -> Result<(), Failure> {
    match gate {
        Some(gate) => judged(gate.judge(report), gate),
        None => Judgement::of_builds(report).map_or(Ok(()), of_builds),
    }
}

/// Returns the failure that the judgement of two builds by their gate calls for, if any.
fn of_builds(judgement: Judgement) -> Result<(), Failure> {
    let decision = judgement.decision();
    let Judgement { above, undecided, not_judged, .. } = judgement;
    let not_judged =
        (!not_judged.is_empty()).then(|| format!("the gate cannot judge {}", not_judged.join("; ")));
    match decision {
        Decision::Pass => Ok(()),
        Decision::Regression => {
            let message = format!("the new build is slower by more than the limit: {}", above.join("; "));
            Err(Failure::new(ExitKind::Gate, message).maybe_hint(not_judged))
        }
        Decision::NotJudged => {
            let nothing = || "there is no comparison that the gate could judge".to_string();
            Err(Failure::new(ExitKind::NotJudged, not_judged.unwrap_or_else(nothing)))
        }
        Decision::Undecided => {
            let message =
                format!("it is not decided whether the new build is slower: {}", undecided.join("; "));
            let hint = "give more blocks (--blocks), longer trials (--iterations), a quieter machine or a larger limit";
            Err(Failure::new(ExitKind::NotJudged, message).hint(hint))
        }
    }
}

/// Returns the failure that the judgement of comparisons by a gate calls for, if any.
///
/// # Errors
/// As [`gate`].
pub fn judged(judgement: Judgement, gate: Gate) -> Result<(), Failure> {
    let percent = gate.percent;
    let Judgement { above, below, undecided, not_judged } = judgement;
    let hint = (!not_judged.is_empty())
        .then(|| format!("the gate of {percent} % cannot judge {}", not_judged.join("; ")));
    if !above.is_empty() {
        let message = format!("the overhead lies above {percent} % for {}", above.join("; "));
        return Err(Failure::new(ExitKind::Gate, message).maybe_hint(hint));
    }
    if gate.undecided_fails && !undecided.is_empty() {
        let message =
            format!("the overhead is not shown to lie below {percent} % for {}", undecided.join("; "));
        return Err(Failure::new(ExitKind::Gate, message).maybe_hint(hint));
    }
    if let Some(message) = hint {
        return Err(Failure::new(ExitKind::NotJudged, message));
    }
    if below.is_empty() && undecided.is_empty() {
        let message = format!("there is no comparison that the gate of {percent} % could judge");
        return Err(Failure::new(ExitKind::NotJudged, message));
    }
    Ok(())
}

/// Returns the title of a run: what was measured where.
pub fn title(plan: &Plan) -> String {
    let environments: Vec<&str> =
        plan.environments.iter().map(|environment| environment.name.as_str()).collect();
    let workloads = distinct(plan.workloads.iter().map(|workload| shown_workload(plan, workload)));
    format!("{} in {}", workloads.join(", "), environments.join(", "))
}

/// Returns the name of a workload in titles. A workload that was measured at several numbers of
/// guests appears once, with the largest number.
fn shown_workload(plan: &Plan, workload: &WorkloadPlan) -> String {
    if workload.neighbours.is_none() {
        return workload.id.clone();
    }
    let same = |other: &&WorkloadPlan| other.name == workload.name;
    let guests = plan.workloads.iter().filter(same).filter_map(|of| Some(of.neighbours.as_ref()?.guests));
    match guests.clone().max() {
        Some(most) if guests.clone().min() != Some(most) => {
            format!("{} among up to {most} guests", workload.name)
        }
        Some(most) => format!("{} among {most} guests", workload.name),
        None => workload.id.clone(),
    }
}

fn effort(plan: &Plan) -> String {
    let reuse = if plan.guest.reuse { ", one instance per environment for all blocks" } else { "" };
    match plan.effort {
        Effort::Quick { .. } => format!("quick, exploratory{reuse}"),
        Effort::Fixed { blocks } => format!("{}{reuse}", number_of(blocks, "block")),
        Effort::Lasting { seconds } => format!("for {seconds} s{reuse}"),
        Effort::Sequential { looks, .. } if plan.gate.is_some() => {
            format!("gate of two builds, up to {} blocks", looks.last())
        }
        Effort::Sequential { looks, target } => {
            format!("group-sequential, up to {} blocks, or to within {} %", looks.last(), target * 100.0)
        }
        Effort::Precision { target, .. } => format!("standard, to within {} %{reuse}", target * 100.0),
    }
}
