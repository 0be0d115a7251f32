//! Makes the environments of a plan from the command line and from what works on this host.

use super::choice;
use crate::cli::MeasureArgs;
use crate::error::{ExitKind, Failure};
use crate::host::HostView;
use std::time::Duration;
use weigh_model::{EnvironmentPlan, EnvironmentSpec, ImageSpec, Plan, parse_environment_list};
use weigh_platforms::{self as platforms, Capabilities};

/// The label of the control.
const CONTROL_LABEL: &str = "control";

/// Returns the capabilities of the guests of each environment, with its name.
///
/// # Errors
/// An environment is of no platform, or has a key or a value that its platform does not have.
pub fn capabilities(environments: &[EnvironmentPlan]) -> Result<Vec<(String, Capabilities)>, Failure> {
    let of = |environment: &EnvironmentPlan| {
        let (platform, spec) = platforms::resolve(&environment.spec)?;
        Ok((environment.name.clone(), platform.capabilities(&spec)))
    };
    environments.iter().map(of).collect()
}

/// Returns the environments to compare and the baseline's name. All are checked before the first is
/// made explicit.
///
/// # Errors
/// An environment is wrong, or the user named it and it is not available here; the host cannot be
/// used.
pub fn environments(
    args: &MeasureArgs,
    image: &ImageSpec,
    host: &mut dyn HostView,
) -> Result<(Vec<EnvironmentPlan>, String), Failure> {
    let mut specs: Vec<EnvironmentSpec> = Vec::new();
    for text in args.on.iter().filter(|_| args.names_environments()) {
        specs.extend(parse_environment_list(text)?);
    }
    let named_by_user = args.names_environments();
    if !named_by_user {
        let ready = host.ready_platforms(fetching(args)?)?;
        let names = if args.fits_budget() { one_of_each(ready, host)? } else { ready };
        for name in names {
            specs.push(EnvironmentSpec::parse(&name)?);
        }
    }
    let baseline = match &args.baseline {
        Some(text) => EnvironmentSpec::parse(text)?,
        None => EnvironmentSpec::parse("native")?,
    };
    if !specs.iter().any(|spec| spec.to_string() == baseline.to_string()) {
        specs.insert(0, baseline.clone());
    }
    for spec in &specs {
        platforms::resolve(spec)?;
    }
    let mut plans: Vec<EnvironmentPlan> = Vec::new();
    let mut baseline_name = baseline.to_string();
    for spec in specs {
        let is_baseline = spec.to_string() == baseline.to_string();
        let named = is_baseline || named_by_user;
        let (platform, resolved) = platforms::resolve(&spec)?;
        if let Err(error) = host.check_image(&platforms::common_keys::image(platform, &resolved, image)) {
            if named {
                return Err(Failure::input(format!("{spec} has no root file system")).because(error));
            }
            host.note(&format!("without {spec}: {}", platforms::with_causes(&error)));
            continue;
        }
        let Some((name, explicit)) = make_explicit(&spec, named, host)? else { continue };
        if is_baseline {
            baseline_name.clone_from(&name);
        }
        if plans.iter().any(|plan| plan.name == name) {
            return Err(Failure::input(format!("the environment `{name}` is given twice"))
                .hint(format!("label one of them to measure it twice: `{}`", with_label(&name, "again"))));
        }
        plans.push(EnvironmentPlan { name, spec: explicit, variables: Default::default() });
    }
    Ok((plans, baseline_name))
}

/// The time in which a run that chooses for the user may fetch kernels of guests: an eighth of its
/// budget, in which a network that works brings 30 MB.
fn fetching(args: &MeasureArgs) -> Result<Option<Duration>, Failure> {
    const SHARE: f64 = 1.0 / 8.0;
    let budget_s = if args.fits_budget() { super::budget(args)? } else { None };
    Ok(budget_s.map(|budget_s| Duration::from_secs_f64(budget_s * SHARE)))
}

/// Returns one ready platform of each kind, after a note on the others.
fn one_of_each(ready: Vec<String>, host: &mut dyn HostView) -> Result<Vec<String>, Failure> {
    let accelerated = |name: &str| {
        let (platform, spec) = platforms::resolve(&EnvironmentSpec::parse(name)?)?;
        let explicit = host.make_explicit(platform, &spec)?;
        Ok::<_, Failure>(explicit.is_ok_and(|explicit| !choice::is_emulated(&explicit)))
    };
    let (chosen, left_out) = choice::one_of_each(ready, accelerated)?;
    if !left_out.is_empty() {
        host.note(&format!("one platform of each kind; `--on all` adds {}", left_out.join(", ")));
    }
    Ok(chosen)
}

/// Adds a second instance of the baseline to every block (method specification, "Control").
///
/// # Errors
/// The user gave an environment the name of the control.
pub fn with_control(mut plan: Plan) -> Result<Plan, Failure> {
    let baseline = plan.environments.iter().find(|environment| environment.name == plan.baseline);
    let Some(baseline) = baseline.cloned() else { return Ok(plan) };
    let spec = baseline.spec.with("label", CONTROL_LABEL);
    let name = with_label(&baseline.name, CONTROL_LABEL);
    if plan.environments.iter().any(|environment| environment.name == name) {
        return Err(Failure::input(format!("the environment `{name}` is the control"))
            .hint("give it another label, or leave --control out"));
    }
    plan.control = Some(name.clone());
    plan.environments.push(EnvironmentPlan { name, spec, ..baseline });
    Ok(plan)
}

/// Adds a label to the text of an environment.
pub fn with_label(environment: &str, label: &str) -> String {
    let joint = if environment.contains(':') { ',' } else { ':' };
    format!("{environment}{joint}label={label}")
}

/// Returns the name and the explicit form of an environment. Returns none, after a note, if it has
/// no explicit form on this host and the user did not name it.
///
/// # Errors
/// The environment has no explicit form here and the user named it; the host cannot be used.
pub fn make_explicit(
    spec: &EnvironmentSpec,
    named: bool,
    host: &mut dyn HostView,
) -> Result<Option<(String, EnvironmentSpec)>, Failure> {
    let (platform, resolved) = platforms::resolve(spec)?;
    if !platform.capabilities(&resolved).makes_explicit {
        return Ok(Some((spec.to_string(), resolved)));
    }
    match host.make_explicit(platform, &resolved)? {
        // An environment that was already explicit keeps the user's name.
        Ok(explicit) if explicit.to_string() == resolved.to_string() => {
            Ok(Some((spec.to_string(), explicit)))
        }
        Ok(explicit) => Ok(Some((explicit.to_string(), explicit))),
        Err(error) if named => {
            Err(Failure::new(ExitKind::Failed, format!("{spec} is not available here")).because(error))
        }
        Err(error) => {
            host.note(&format!("without {spec}: {}", platforms::with_causes(&error)));
            Ok(None)
        }
    }
}
