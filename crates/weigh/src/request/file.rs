//! Reads plans from files.

use super::loader;
use crate::error::{ExitKind, Failure, file_failure};
use crate::host::HostView;
use std::path::Path;
use weigh_model::{HostFacts, PLAN_FORMAT, Plan, format_bytes};
use weigh_platforms as platforms;

/// The longest plan, bytes.
const LONGEST_BYTES: u64 = 64 << 20;

/// Reads a plan and checks what may be wrong after an edit by hand.
///
/// # Errors
/// The plan cannot be read, has a newer format, or names what does not exist.
pub fn read_plan(file: &Path, host: &mut dyn HostView) -> Result<Plan, Failure> {
    let text = weigh_store::files::read_named(file, LONGEST_BYTES)
        .and_then(|bytes| String::from_utf8(bytes).map_err(std::io::Error::other))
        .map_err(|error| file_failure("read the plan", file, error))?;
    let name = file.display().to_string();
    let damaged = |error: serde_json::Error| {
        let offset = offset_of(&text, error.line(), error.column());
        Failure::input(format!("the plan is damaged at line {}, column {}", error.line(), error.column()))
            .at(&name, &text, offset..(offset + 1).min(text.len()))
            .because(error)
            .hint("make one with `weigh run ... --out DIR`; the directory holds plan.json")
    };
    // A newer format may have another shape, which does not mean that the file is damaged.
    let loose: serde_json::Value = serde_json::from_str(&text).map_err(damaged)?;
    if let Some(format) = loose["format"].as_u64().filter(|format| *format > u64::from(PLAN_FORMAT)) {
        return Err(Failure::input(format!(
            "{name} has plan format {format}, and this weigh reads up to {PLAN_FORMAT}"
        ))
        .hint("use the version of weigh that made it, or a newer one"));
    }
    let plan: Plan = serde_json::from_str(&text).map_err(damaged)?;
    for environment in &plan.environments {
        platforms::resolve(&environment.spec).map_err(|error| Failure::of_spec(&name, &error))?;
    }
    loader::check_planned(plan.loader.as_ref())?;
    host.check_image(&plan.guest.image).map_err(|error| Failure::of_error(ExitKind::Input, &error))?;
    if !plan.environments.iter().any(|environment| environment.name == plan.baseline) {
        return Err(Failure::input(format!(
            "{name}: the baseline `{}` is not among the plan's environments",
            plan.baseline
        ))
        .hint("give `baseline` the `name` of one of its `environments`"));
    }
    if plan.workloads.is_empty() {
        return Err(Failure::input(format!("{name}: the plan has no workloads"))
            .hint("take a plan.json as `weigh run` made it; a run without workloads measures nothing"));
    }
    Ok(plan)
}

/// Returns the plan if this host has the CPUs and the memory that it gives to every guest. It may
/// have been made elsewhere.
///
/// # Errors
/// The plan names a CPU that weigh may not use here, or more memory than there is.
pub fn check_host(plan: Plan, facts: &HostFacts) -> Result<Plan, Failure> {
    if let Some(cpu) = plan.guest.cpus.iter().find(|cpu| !facts.cpus.contains(cpu)) {
        let message =
            format!("the plan confines guests to CPU {cpu}, which is not one that weigh may use here");
        let usable = facts.cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        return Err(Failure::new(ExitKind::NoSuchCpu, message)
            .hint(format!("usable CPUs: {usable}; make a plan with --cpus that every host has")));
    }
    match plan.guest.memory_bytes.filter(|bytes| *bytes > facts.memory_bytes) {
        Some(bytes) => Err(Failure::input(format!(
            "the plan gives every guest {}, and this host has {}",
            format_bytes(bytes),
            format_bytes(facts.memory_bytes)
        ))
        .hint("make a plan with a --memory that every host has")),
        None => Ok(plan),
    }
}

fn offset_of(text: &str, line: usize, column: usize) -> usize {
    let start: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    (start + column.saturating_sub(1)).min(text.len().saturating_sub(1))
}
