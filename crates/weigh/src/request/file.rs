//! Plans that are read from files.

use super::loader;
use crate::error::{Failure, Kind, file_failure};
use crate::host::HostView;
use std::path::Path;
use weigh_model::{PLAN_FORMAT, Plan};
use weigh_platforms as platforms;

/// The longest plan, bytes.
const LONGEST_BYTES: u64 = 64 << 20;

/// Reads a plan and checks what may be wrong in one that was edited by hand.
///
/// # Errors
/// It cannot be read, has a newer format, or names what does not exist.
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
    // A newer format may have another shape, which is no damage.
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
    host.check_image(&plan.guest.image).map_err(|error| Failure::of_error(Kind::Input, &error))?;
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

fn offset_of(text: &str, line: usize, column: usize) -> usize {
    let start: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    (start + column.saturating_sub(1)).min(text.len().saturating_sub(1))
}
