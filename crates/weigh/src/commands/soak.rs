//! `weigh soak`: measures for hours or days in guests that stay, beside guests that serve.

use super::density::beside;
use crate::cli::{CommandArgs, MeasureArgs, Size, SoakArgs, TrialArgs, WorkArgs};
use crate::error::Failure;
use crate::request::{self, PlanRequest, commands};
use weigh_model::{Effort, GuestPlan, HostFacts, Neighbours, Plan, Shares, WorkloadPlan, parse_duration};
use weigh_workloads::{LOADS, Library, load};

/// Default workloads, one each for CPU, memory and files, in place of those that Cloud Spectator
/// (2017) alternated for hours. All of them run everywhere.
const WORKLOADS: [&str; 3] = ["lu", "memory-latency", "fileserver"];

/// Turns the arguments of `weigh soak` into a request.
///
/// # Errors
/// The duration or the neighbours are wrong; an option would end the soak in another way or judge a
/// verdict; a manifest is wrong.
pub fn request(args: SoakArgs) -> Result<PlanRequest, Failure> {
    let seconds = duration(&args)?;
    refuse_unfit(&args.common)?;
    check_load(&args.neighbours)?;
    let library = request::library(&args.work.workload)?;
    let args = with_defaults(args);
    Ok(PlanRequest::new(args.common.clone(), move |facts, host| {
        let workloads = |facts: &HostFacts| workloads(&args, &library, facts);
        let plan = request::plan(&args.common, None, facts, host, &workloads)?;
        Ok(Plan {
            effort: Effort::Lasting { seconds },
            guest: GuestPlan { reuse: true, ..plan.guest },
            ..plan
        })
    }))
}

fn with_defaults(args: SoakArgs) -> SoakArgs {
    let WorkArgs { workloads, command, .. } = &args.work;
    let names_none = workloads.is_empty() && command.is_empty();
    let workloads = if names_none { WORKLOADS.map(String::from).to_vec() } else { workloads.clone() };
    SoakArgs { work: WorkArgs { workloads, ..args.work }, ..args }
}

/// The duration of the soak, seconds.
fn duration(args: &SoakArgs) -> Result<f64, Failure> {
    let parsed = parse_duration(&args.duration).map_err(|error| Failure::of_size("--for", &error))?;
    if parsed.is_zero() {
        return Err(Failure::input("`--for 0` measures nothing").hint("as in --for 24h, or --for 30m"));
    }
    Ok(parsed.as_secs_f64())
}

/// Refuses the options that end other runs, because a soak ends after its time, and a gate, which
/// judges verdicts.
fn refuse_unfit(common: &MeasureArgs) -> Result<(), Failure> {
    if common.gate.gate.is_some() {
        return Err(Failure::input("a soak gives no verdict that `--gate` could judge")
            .hint("`weigh run --gate` measures new guests in every block"));
    }
    let others = [
        ("--quick", common.quick),
        ("--blocks", common.effort.blocks.is_some()),
        ("--precision", common.effort.precision.is_some()),
        ("--budget", common.effort.budget.is_some()),
    ];
    match others.iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => Err(Failure::input(format!(
            "a soak runs for a given time, and `{option}` would end it in another way"
        ))
        .hint("give its time with --for, and the size of its workloads with --size")),
        None => Ok(()),
    }
}

fn check_load(word: &str) -> Result<(), Failure> {
    // These loads go on while the workloads change, which `same` does not.
    let usable: Vec<&str> = LOADS.into_iter().filter(|load| *load != "same").collect();
    if usable.contains(&word) {
        return Ok(());
    }
    Err(Failure::input(format!("neighbours cannot be `{word}`")).at_word("--neighbours", word, &usable))
}

fn workloads(args: &SoakArgs, library: &Library, facts: &HostFacts) -> Result<Vec<WorkloadPlan>, Failure> {
    let trial = TrialArgs::default();
    let commands = commands::workloads(&args.work.command, &CommandArgs::default(), false)?;
    let plans = request::workloads(&args.work, &trial, commands, (Size::Standard, library), facts)?;
    // A day of a quick command has a million trials, and the samples hold every run.
    let plans: Vec<WorkloadPlan> =
        plans.into_iter().map(|plan| WorkloadPlan { trial_s: None, ..plan }).collect();
    if let Some(server) = plans.iter().find(|plan| plan.staging.server.is_some() && args.guests > 1) {
        return Err(Failure::input(format!(
            "`{}` is a server with a load generator of its own",
            server.name
        ))
        .hint("soak it with --guests 1, or name workloads that are commands"));
    }
    let Some(load) = load(&args.neighbours).filter(|_| args.guests > 1) else { return Ok(plans) };
    let neighbours =
        Neighbours { guests: args.guests, load, shares: Shares::Equal, environment: None, stay: true };
    let own_deadline = args.work.deadline.is_some();
    plans.iter().map(|plan| beside(plan, neighbours.clone(), own_deadline)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn args(words: &[&str]) -> SoakArgs {
        let parsed = Cli::try_parse_from(["weigh", "soak"].iter().chain(words)).unwrap();
        let Some(Command::Soak(args)) = parsed.command else { panic!("{words:?}") };
        *args
    }

    fn plans(words: &[&str]) -> Vec<WorkloadPlan> {
        let library = request::library(&[]).unwrap();
        workloads(&with_defaults(args(words)), &library, &weigh_host::facts::host_facts()).unwrap()
    }

    #[test]
    fn a_day_unless_asked_for_another_time() {
        assert_eq!(duration(&args(&[])).unwrap(), 86_400.0);
        assert_eq!(duration(&args(&["--for", "90m"])).unwrap(), 5_400.0);
        assert!(duration(&args(&["--for", "0s"])).is_err());
        assert!(duration(&args(&["--for", "soon"])).is_err());
    }

    #[test]
    fn nothing_else_ends_it() {
        for words in [&["--quick"][..], &["--blocks", "3"], &["--precision", "1"], &["--budget", "1h"]] {
            assert!(refuse_unfit(&args(words).common).is_err(), "{words:?}");
        }
        assert!(refuse_unfit(&args(&["--for", "1h", "--seed", "1"]).common).is_ok());
    }

    #[test]
    fn neighbours_serve_and_stay_unless_asked_for_others() {
        let usual = plans(&[]);
        assert_eq!(usual.len(), WORKLOADS.len());
        for plan in &usual {
            let neighbours = plan.neighbours.as_ref().unwrap();
            assert!(
                neighbours.stay && neighbours.guests == 4 && neighbours.load.kind().to_string() == "http",
                "{plan:?}"
            );
        }
        assert!(plans(&["--guests", "1"]).iter().all(|plan| plan.neighbours.is_none()));
        let own = &plans(&["--guests", "1", "--", "true"])[0];
        assert_eq!((own.iterations, own.trial_s), (3, None));
        let idle = &plans(&["lu", "--neighbours", "idle", "--guests", "2"])[0];
        assert_eq!(idle.id, "lu{guests=2,neighbours=idle}");
        assert!(check_load("cpu").is_ok() && check_load("same").is_err() && check_load("htpp").is_err());
    }
}
