//! `weigh soak`: plan a run that lasts, in guests that stay, among guests that serve.

use super::run::Carrier;
use crate::cli::{MeasureArgs, RunArgs, Size, SoakArgs};
use crate::error::Failure;
use crate::request;
use weigh_host::facts;
use weigh_model::{
    Effort, GuestPlan, HostFacts, Neighbours, Plan, Shares, WorkloadPlan, nearest, parse_duration,
};
use weigh_workloads::{LOADS, Library, load, with_neighbours};

/// What is alternated unless the user names something else: a test of the system, one of its memory
/// and one of its files, each with its own stand-in of what Cloud Spectator (2017) alternated for
/// its hours. All run everywhere.
const WORKLOADS: [&str; 3] = ["lu", "memory-latency", "fileserver"];

/// Plans and runs for so long, or prints the plan.
///
/// # Errors
/// Bad input, a host that cannot be used, nothing measured, a gate crossed.
pub fn run(args: &SoakArgs, by: &mut dyn Carrier) -> Result<(), Failure> {
    let seconds = duration(args)?;
    refuse_other_ends(&args.common)?;
    check_load(&args.neighbours)?;
    let facts = facts::host_facts();
    let library = request::library(&args.workload)?;
    let named = !args.common.on.is_empty();
    let asked = asked(args);
    by.carry_out(&args.common, named, &facts, &|here| {
        let make = |facts: &HostFacts| workloads(&asked, args, &library, facts);
        let plan = request::plan_of(&args.common, None, &facts, here, &make)?;
        Ok(Plan {
            effort: Effort::Lasting { seconds },
            guest: GuestPlan { reuse: true, ..plan.guest },
            ..plan
        })
    })
}

/// Seconds that it is to last.
fn duration(args: &SoakArgs) -> Result<f64, Failure> {
    let parsed = parse_duration(&args.lasting).map_err(|error| Failure::of_size("--for", &error))?;
    if parsed.is_zero() {
        return Err(
            Failure::input("a soak of no time measures nothing").hint("as in --for 24h, or --for 30m")
        );
    }
    Ok(parsed.as_secs_f64())
}

/// What ends other runs does not end this one.
fn refuse_other_ends(common: &MeasureArgs) -> Result<(), Failure> {
    let others = [
        ("--quick", common.quick),
        ("--blocks", common.blocks.is_some()),
        ("--precision", common.precision.is_some()),
        ("--budget", common.budget.is_some()),
    ];
    match others.iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => {
            Err(Failure::input(format!("a soak lasts for a time, and `{option}` would end it otherwise"))
                .hint("give its time with --for, and the size of its workloads with --size"))
        }
        None => Ok(()),
    }
}

fn check_load(word: &str) -> Result<(), Failure> {
    if usable().any(|usable| usable == word) {
        return Ok(());
    }
    let all: Vec<&str> = usable().collect();
    let hint = nearest(word, all.iter().copied())
        .map_or_else(|| format!("give one of {}", all.join(", ")), |near| format!("did you mean `{near}`?"));
    Err(Failure::input(format!("neighbours cannot be `{word}`"))
        .at("--neighbours", word, 0..word.len())
        .hint(hint))
}

/// Loads that last through changing workloads: the workload itself does not.
fn usable() -> impl Iterator<Item = &'static str> {
    LOADS.into_iter().filter(|word| *word != "same")
}

/// The workloads as `weigh run` would be asked for them.
fn asked(args: &SoakArgs) -> RunArgs {
    let defaults = || WORKLOADS.map(String::from).to_vec();
    let none_named = args.workloads.is_empty() && args.command.is_empty();
    RunArgs {
        workloads: if none_named { defaults() } else { args.workloads.clone() },
        command: args.command.clone(),
        common: args.common.clone(),
        size: Some(args.size.unwrap_or(Size::Standard)),
        param: args.param.clone(),
        warmup: None,
        iterations: args.iterations,
        prepare: None,
        cleanup: None,
        deadline: args.deadline.clone(),
        reuse: true,
        workload: args.workload.clone(),
        loader: "host".into(),
        plan: None,
    }
}

fn workloads(
    asked: &RunArgs,
    args: &SoakArgs,
    library: &Library,
    facts: &HostFacts,
) -> Result<Vec<WorkloadPlan>, Failure> {
    let plans = request::workloads(asked, library, facts)?;
    if let Some(server) = plans.iter().find(|plan| plan.staging.server.is_some() && args.guests > 1) {
        return Err(Failure::input(format!(
            "`{}` is a server with a load generator of its own",
            server.name
        ))
        .hint("soak it with --guests 1, or name workloads that are commands"));
    }
    let beside = |plan: WorkloadPlan| match load(&args.neighbours).filter(|_| args.guests > 1) {
        None => plan,
        Some(load) => {
            let neighbours = Neighbours { guests: args.guests, load, shares: Shares::Equal, stay: true };
            let deadline_s = plan.deadline_s;
            let among = with_neighbours(plan, neighbours);
            // What the user says holds for any number of guests.
            if args.deadline.is_some() { WorkloadPlan { deadline_s, ..among } } else { among }
        }
    };
    Ok(plans.into_iter().map(beside).collect())
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
        let args = args(words);
        let library = request::library(&[]).unwrap();
        workloads(&asked(&args), &args, &library, &facts::host_facts()).unwrap()
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
            assert!(refuse_other_ends(&args(words).common).is_err(), "{words:?}");
        }
        assert!(refuse_other_ends(&args(&["--for", "1h", "--seed", "1"]).common).is_ok());
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
        let idle = &plans(&["lu", "--neighbours", "idle", "--guests", "2"])[0];
        assert_eq!(idle.id, "lu{guests=2,neighbours=idle}");
        assert!(check_load("cpu").is_ok() && check_load("same").is_err() && check_load("htpp").is_err());
    }
}
