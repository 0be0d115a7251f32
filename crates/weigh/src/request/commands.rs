//! Makes workloads from the user's own commands, the words after `--`.

use crate::cli::{CommandArgs, MeasureArgs, NEXT_COMMAND, WorkArgs};
use crate::error::Failure;
use std::collections::BTreeMap;
use std::path::Path;
use weigh_model::{EnvironmentPlan, EnvironmentSpec, Plan, WorkloadPlan, parse_environment_list};
use weigh_workloads::{command_lines, command_workload};

/// The name of the workload in which several commands are compared with each other.
const COMPARED: &str = "command";
/// The prefix of weighbridge's own variables.
const OWN_VARIABLES: &str = "WEIGH_";

/// Makes a run of commands alone run natively, unless the user names environments: users who
/// compare platforms name them.
pub fn native_unless_named(common: MeasureArgs, work: &WorkArgs) -> MeasureArgs {
    let commands_alone = !work.command.is_empty() && work.workloads.is_empty();
    if !commands_alone || common.quick || !common.on.is_empty() {
        return common;
    }
    let on = common.baseline.clone().unwrap_or_else(|| "native".into());
    MeasureArgs { on: vec![on], ..common }
}

/// Whether commands are compared with each other: several in one environment.
///
/// # Errors
/// An environment is wrong.
pub fn are_compared(common: &MeasureArgs, work: &WorkArgs) -> Result<bool, Failure> {
    let commands_alone = work.command.iter().any(|word| word == NEXT_COMMAND) && work.workloads.is_empty();
    if !commands_alone || !common.names_environments() {
        return Ok(false);
    }
    let baseline = EnvironmentSpec::parse(common.baseline.as_deref().unwrap_or("native"))?.to_string();
    let mut others = Vec::new();
    for text in &common.on {
        others.extend(parse_environment_list(text)?.iter().map(ToString::to_string));
    }
    Ok(others.iter().all(|name| *name == baseline))
}

/// Returns a workload for each command, or one for all if they are compared; none if there are no
/// words.
///
/// # Errors
/// A command has no words; there are too many or too few names; a name is invalid or given twice.
pub fn workloads(
    command: &[String],
    own: &CommandArgs,
    compared: bool,
) -> Result<Vec<WorkloadPlan>, Failure> {
    if command.is_empty() {
        return Ok(Vec::new());
    }
    let commands = named(command, &own.name)?;
    let of = |plan: WorkloadPlan| {
        let shell = |script: &String| vec!["/bin/sh".to_string(), "-c".into(), script.clone()];
        let mut plan = WorkloadPlan { ignore_failure: own.ignore_failure, input: own.input.clone(), ..plan };
        plan.staging.setup = own.setup.as_ref().map(shell);
        plan.staging.teardown = own.teardown.as_ref().map(shell);
        plan
    };
    if let (true, Some((_, first))) = (compared, commands.first()) {
        let plan = WorkloadPlan { name: COMPARED.into(), id: COMPARED.into(), ..command_workload(first) };
        return Ok(vec![of(WorkloadPlan { commands: commands.into_iter().collect(), ..plan })]);
    }
    let plans = commands.into_iter().zip(0..).map(|((name, argv), at)| {
        let plan = command_workload(&argv);
        let program = if own.name.is_empty() { plan.name } else { own.name[at].clone() };
        of(WorkloadPlan { id: name, name: program, ..command_workload(&argv) })
    });
    Ok(plans.collect())
}

/// Applies the options of commands to the plan's environments: adds the user's variables, and makes
/// an environment for each command if they are compared.
///
/// # Errors
/// As [`workloads`]; a variable is malformed, or is weighbridge's own.
pub fn applied(plan: Plan, command: &[String], own: &CommandArgs, compared: bool) -> Result<Plan, Failure> {
    with_variables(if compared { of_commands(plan, command, own)? } else { plan }, own)
}

/// Makes the commands of the plan's workloads its environments, each in its own instance of the one
/// environment. The first command is the baseline.
fn of_commands(plan: Plan, command: &[String], own: &CommandArgs) -> Result<Plan, Failure> {
    let Some(environment) = plan.environments.first() else { return Ok(plan) };
    let names = named(command, &own.name)?.into_iter().map(|(name, _)| name);
    let environments: Vec<_> = names.map(|name| EnvironmentPlan { name, ..environment.clone() }).collect();
    let baseline = environments.first().map(|first| first.name.clone()).unwrap_or_default();
    Ok(Plan { environments, baseline, ..plan })
}

/// Adds the user's variables to every environment of the plan.
fn with_variables(mut plan: Plan, own: &CommandArgs) -> Result<Plan, Failure> {
    let mut variables = BTreeMap::new();
    for text in &own.env {
        let name = text.split_once('=').map_or(text.as_str(), |(name, _)| name);
        let fault = |message: String, hint: &str| {
            Failure::input(message).at("--env", text, 0..name.len().max(1)).hint(hint)
        };
        let Some((name, value)) = text.split_once('=') else {
            return Err(fault(
                format!("`--env {text}` gives `{text}` no value"),
                "as in --env THREADS=2; nothing of your shell's environment reaches a command by itself",
            ));
        };
        let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(is_letter) {
            return Err(fault(format!("`{name}` is not the name of a variable"), "letters, digits and `_`"));
        }
        if name.starts_with(OWN_VARIABLES) {
            return Err(fault(
                format!("`{name}` is one of weighbridge's own variables"),
                "choose another name",
            ));
        }
        if variables.insert(name.to_string(), value.to_string()).is_some() {
            return Err(fault(format!("the variable `{name}` is given twice"), "give it once"));
        }
    }
    for environment in &mut plan.environments {
        environment.variables.extend(variables.clone());
    }
    Ok(plan)
}

/// Returns the commands in their order, each with its name: the user's, or the words by which it
/// differs from the others.
fn named(command: &[String], names: &[String]) -> Result<Vec<(String, Vec<String>)>, Failure> {
    let commands: Vec<&[String]> = command.split(|word| word == NEXT_COMMAND).collect();
    if commands.iter().any(|command| command.is_empty()) {
        return Err(Failure::input(format!("there is no command on one side of `{NEXT_COMMAND}`"))
            .hint("as in weigh run -- gzip -k file --- pigz -k file"));
    }
    for command in &commands {
        // Other tools take a line of a shell in quotes.
        if let [line] = command
            && line.contains(char::is_whitespace)
            && !Path::new(line).exists()
        {
            return Err(Failure::input(format!("there is no program `{line}`"))
                .hint("leave out the quotes around a program and its arguments; for a line of a shell write -- sh -c '...'"));
        }
    }
    if !names.is_empty() && names.len() != commands.len() {
        let (names, commands) = (names.len(), commands.len());
        return Err(Failure::input(format!("{commands} commands have {names} names"))
            .hint("give --name once for each command, in the order of the commands"));
    }
    if let Some(odd) = names.iter().find(|name| name.trim().is_empty() || name.contains(char::is_control)) {
        return Err(Failure::input("a command's name is empty or holds a control character").at(
            "--name",
            odd,
            0..odd.len(),
        ));
    }
    let all = if names.is_empty() { command_lines(&commands) } else { names.to_vec() };
    if let Some(twice) = super::first_repeated(&all) {
        return Err(Failure::input(format!("two commands have the name `{twice}`"))
            .hint("name them with --name, once for each command"));
    }
    Ok(all.into_iter().zip(commands.into_iter().map(<[String]>::to_vec)).collect())
}
