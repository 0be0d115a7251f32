//! `weigh gate`: whether a new build is slower than the old one (method specification, "Gates of
//! two builds").

use super::run::OutputFiles;
use crate::cli::{BuildGateArgs, CommandArgs, EffortArgs, MeasureArgs, NEXT_COMMAND, WorkArgs};
use crate::error::Failure;
use crate::request::{self, GateFile, PlanRequest, commands};
use std::num::NonZeroU32;
use weigh_model::{
    Caches, Effort, EnvironmentSpec, HostFacts, Looks, Plan, SliceChoice, SpecError, StartPlan, Started,
    WorkloadPlan,
};
use weigh_workloads::start_workload;

/// The number of blocks at the first look, between looks, and at the last look unless the user
/// gives another.
const LOOKS: (u32, u32, u32) = (10, 5, 30);

/// Turns the arguments of `weigh gate` into a request for the run of the two builds, and the files
/// that its result is written to.
///
/// # Errors
/// A file of settings that cannot be read or is wrong; nothing to measure; too many or too few blocks.
pub fn request(args: BuildGateArgs) -> Result<(PlanRequest, OutputFiles), Failure> {
    let file = GateFile::read(args.config.as_deref())?;
    let BuildGateArgs { old, new, common, work, trial, own, start, limit, comment, junit, .. } = args;
    let defaults = &file.settings;
    let budget = defaults.budget.as_ref().map(|budget| budget.get_ref().clone());
    let effort = EffortArgs { budget: common.effort.budget.or(budget), ..common.effort };
    let looks = looks(effort.blocks.or(defaults.blocks))?;
    let named = !work.workloads.is_empty() || !work.command.is_empty() || start;
    let starts = if named { start } else { defaults.start };
    let work = WorkArgs {
        workloads: if named { work.workloads } else { defaults.workloads.clone() },
        size: work.size.or(defaults.size),
        param: if work.param.is_empty() { defaults.param.clone() } else { work.param },
        iterations: work.iterations.or(defaults.iterations.map(NonZeroU32::get)),
        ..work
    };
    if work.workloads.is_empty() && work.command.is_empty() && !starts {
        return Err(Failure::input("the gate has nothing to measure").hint(format!(
            "name workloads, as in `weigh gate OLD NEW syscall --start`, or write them into {}",
            request::GATE_FILE
        )));
    }
    let on = environments(old, new, &work, start)?;
    let own = match (on.len(), own.name.is_empty()) {
        // Both builds of a program have the same name.
        (1, true) => CommandArgs { name: vec!["old".into(), "new".into()], ..own },
        _ => own,
    };
    let common = MeasureArgs { baseline: Some(on[0].clone()), on, effort, ..common };
    let planner_common = common.clone();
    let request = PlanRequest::new(common, move |facts, host| {
        let common = &planner_common;
        let compared = commands::are_compared(common, &work)?;
        let library = request::library(&work.workload)?;
        let loader = request::loader::parse(&trial.loader)?;
        let workloads = |facts: &HostFacts| -> Result<Vec<WorkloadPlan>, Failure> {
            let mut plans: Vec<WorkloadPlan> = Vec::new();
            if !work.workloads.is_empty() || !work.command.is_empty() {
                let commands = commands::workloads(&work.command, &own, compared)?;
                let size = common.default_size();
                plans = request::workloads(&work, &trial, commands, (size, &library), facts)?;
            }
            let one = StartPlan { what: Started::One, caches: Caches::Warm };
            plans.extend(starts.then(|| start_workload(one)));
            Ok(plans)
        };
        let plan = request::plan(common, loader, facts, host, &workloads)?;
        let plan = commands::applied(plan, &work.command, &own, compared)?;
        let plan = super::start::with_own_metrics(plan)?;
        let gate = Some(file.limits(limit, &plan.workloads, named)?);
        let effort = Effort::Sequential { looks, target: PRECISION };
        Ok(Plan { effort, gate, slices: SliceChoice::Auto, ..plan })
    });
    Ok((request, OutputFiles { comment, junit }))
}

/// A plan of looks needs a precision, which a gate does not use.
const PRECISION: f64 = 0.01;

fn looks(blocks: Option<u32>) -> Result<Looks, Failure> {
    let (first, step, last) = LOOKS;
    let last = blocks.unwrap_or(last);
    Looks::new(first, step, last).filter(|_| last >= weigh_stats::GATE_FEWEST_BLOCKS).ok_or_else(|| {
        let most = first + step * (Looks::MOST - 1);
        let fewest = weigh_stats::GATE_FEWEST_BLOCKS;
        Failure::input(format!("a gate takes {fewest} to {most} blocks, not {last}"))
    })
}

/// Returns the environments of the two builds, or the one environment in which two commands are the
/// builds.
fn environments(
    old: Option<String>,
    new: Option<String>,
    work: &WorkArgs,
    start: bool,
) -> Result<Vec<String>, Failure> {
    const COMMANDS: &str =
        "two commands are compared in one environment, as in `weigh gate runc -- old/tool --- new/tool`";
    let commands = work.command.split(|word| word == NEXT_COMMAND).count();
    match (old, new) {
        (Some(old), Some(new)) if commands == 1 => labelled(old, new).map(|(old, new)| vec![old, new]),
        (Some(_), Some(_)) => {
            Err(Failure::input(format!("two environments take at most one command, not {commands}"))
                .hint(COMMANDS))
        }
        _ if commands == 1 => Err(Failure::input("the gate has no second build").hint(
            "as in `weigh gate OLD NEW -- command`, or `weigh gate -- old/tool input --- new/tool input`",
        )),
        _ if commands > 2 => {
            Err(Failure::input(format!("a gate compares two commands, and here are {commands}"))
                .hint("`weigh run` compares any number of them"))
        }
        _ if start => {
            Err(Failure::input("--start compares two environments, not two commands")
                .hint("leave --start out"))
        }
        (environment, _) => {
            let environment = environment.unwrap_or_else(|| "native".into());
            checked("OLD", &environment)?;
            Ok(vec![environment])
        }
    }
}

/// Returns the environments, with labels if nothing else tells them apart.
fn labelled(old: String, new: String) -> Result<(String, String), Failure> {
    let (one, other) = (checked("OLD", &old)?, checked("NEW", &new)?);
    if one != other {
        return Ok((old, new));
    }
    Ok((request::with_label(&old, "old"), request::with_label(&new, "new")))
}

/// Returns the canonical form of the environment that an argument names.
fn checked(argument: &str, text: &str) -> Result<String, Failure> {
    let wrong = |error: SpecError| Failure::of_spec(argument, &error);
    let spec = EnvironmentSpec::parse(text).map_err(wrong)?;
    weigh_platforms::resolve(&spec).map_err(wrong)?;
    Ok(spec.to_string())
}
