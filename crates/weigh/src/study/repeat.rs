//! Finds the command that measures a run again, for a study.

use super::measure::request;
use crate::error::{ExitKind, Failure};
use crate::host::NoHost;
use std::path::PathBuf;
use weigh_model::{Plan, WorkloadPlan};
use weigh_studies::{Command, Measure};

/// Returns the command that the plan records, with these manifests in place of its own. Checks that
/// it still measures the same, by planning it again and comparing the plans.
///
/// # Errors
/// The plan records no command, or its command no longer measures what the plan does.
pub fn repeated(plan: &Plan, manifests: &[PathBuf]) -> Result<Measure, Failure> {
    let Some([name, arguments @ ..]) = plan.command.as_deref() else { return Err(unrecorded(plan)) };
    let command = Command::parse(name).ok_or_else(|| unrepeatable(&format!("`{name}` is not a command")))?;
    let mut arguments = with_manifests(arguments, manifests);
    if let Some(made) = plan_again(plan, command, &arguments)? {
        check_same(plan, &made)?;
        pin_guests(&mut arguments, plan, &made)?;
    }
    Ok(Measure {
        command,
        arguments,
        quick: Vec::new(),
        standard: Vec::new(),
        paper: Vec::new(),
        needs: None,
    })
}

fn unrecorded(plan: &Plan) -> Failure {
    let version = &plan.tool_version;
    Failure::input(format!("the run's plan does not record the command that made it (weigh {version})"))
        .hint("type the command again with this version, then write the study from the new run")
}

fn unrepeatable(reason: &str) -> Failure {
    Failure::input(format!("no command line repeats what this run measured: {reason}"))
        .hint("`weigh run --plan RUN/plan.json` repeats it exactly; a study holds what can be typed")
}

/// Replaces the recorded manifests in the arguments by the user's.
fn with_manifests(arguments: &[String], manifests: &[PathBuf]) -> Vec<String> {
    const OPTION: &str = "--workload";
    if manifests.is_empty() {
        return arguments.to_vec();
    }
    let end = arguments.iter().position(|word| word == "--").unwrap_or(arguments.len());
    let mut words = Vec::new();
    let mut before = arguments[..end].iter();
    while let Some(word) = before.next() {
        if word == OPTION {
            before.next();
        } else {
            words.push(word.clone());
        }
    }
    words.extend(manifests.iter().flat_map(|file| [OPTION.to_string(), file.display().to_string()]));
    words.extend_from_slice(&arguments[end..]);
    words
}

/// Makes the plan of the command on this host; none if this host lacks CPUs that the command names.
fn plan_again(plan: &Plan, command: Command, arguments: &[String]) -> Result<Option<Plan>, Failure> {
    let mut words = vec![command.name().to_string()];
    // Starts and footprints have no size, but a workload that is measured beside them does.
    if let Some(sized) = plan.workloads.iter().find(|workload| workload.start.is_none()) {
        words.extend(["--size".into(), sized.size.clone()]);
    }
    words.extend(plan.environments.iter().flat_map(|one| ["--on".into(), one.name.clone()]));
    words.extend(["--baseline".into(), plan.baseline.clone()]);
    words.extend_from_slice(arguments);
    match request(&words).and_then(|request| request.plan(&mut NoHost::Anywhere)) {
        Ok(made) => Ok(Some(made)),
        Err(failure) if failure.kind() == ExitKind::NoSuchCpu => Ok(None),
        Err(failure) => Err(unrepeatable(&failure.to_string()).hint(
            "if it has a workload of your own, give its manifest by --workload FILE; `weigh run --plan RUN/plan.json` repeats the run exactly",
        )),
    }
}

/// Checks that the command measures the same. It does not if the plan was edited, or if defaults
/// have changed since.
fn check_same(plan: &Plan, made: &Plan) -> Result<(), Failure> {
    let ids = |plan: &Plan| plan.workloads.iter().map(|one| one.id.clone()).collect::<Vec<_>>().join(", ");
    if ids(plan) != ids(made) {
        let (own, others) = (ids(plan), ids(made));
        return Err(unrepeatable(&format!("its workloads are {own}, and those of its command {others}")));
    }
    for (one, other) in plan.workloads.iter().zip(&made.workloads) {
        let differs = [
            ("--warmup", one.warmup != other.warmup),
            ("--iterations", (one.iterations, one.trial_s) != (other.iterations, other.trial_s)),
            ("--deadline", one.deadline_s != other.deadline_s),
            ("--prepare", one.prepare != other.prepare),
            ("--cleanup", one.cleanup != other.cleanup),
            ("the list of metrics", metrics(one) != metrics(other)),
        ];
        if let Some((what, _)) = differs.iter().find(|(_, differs)| *differs) {
            return Err(unrepeatable(&format!("{what} of `{}` differs from its command's", one.id)));
        }
    }
    if plan.guest.reuse != made.guest.reuse {
        return Err(unrepeatable("--reuse differs from its command's"));
    }
    Ok(())
}

/// Names the CPUs and the memory of the guests if weigh decided them, and would decide otherwise
/// now.
fn pin_guests(arguments: &mut Vec<String>, plan: &Plan, made: &Plan) -> Result<(), Failure> {
    let cpus = (!plan.guest.cpus.is_empty())
        .then(|| plan.guest.cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(","));
    let memory = plan.guest.memory_bytes.map(weigh_model::format_bytes);
    for (option, differs, value) in [
        ("--cpus", plan.guest.cpus != made.guest.cpus, cpus),
        ("--memory", plan.guest.memory_bytes != made.guest.memory_bytes, memory),
    ] {
        let end = arguments.iter().position(|word| word == "--").unwrap_or(arguments.len());
        match value {
            _ if !differs => {}
            Some(value) if !arguments[..end].iter().any(|word| word == option) => {
                arguments.splice(end..end, [option.to_string(), value]);
            }
            _ => return Err(unrepeatable(&format!("{option} differs from its command's"))),
        }
    }
    Ok(())
}

fn metrics(workload: &WorkloadPlan) -> Vec<&str> {
    workload.metrics.iter().map(|metric| metric.spec.name.as_str()).collect()
}
