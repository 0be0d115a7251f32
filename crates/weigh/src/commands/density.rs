//! `weigh density`: plan trials of a guest among others, run them, show them.

use super::run::Carrier;
use crate::cli::{DensityArgs, MeasureArgs, RunArgs};
use crate::error::Failure;
use crate::{loading, request};
use weigh_host::facts;
use weigh_model::{HostFacts, Load, Neighbours, Plan, Shares, WorkloadPlan, nearest};
use weigh_workloads::{LOADS, Library, load, with_neighbours};

/// Blocks unless the user asks for others: every number of guests, kind of neighbour and share is a
/// trial of its own in each.
const BLOCKS: u32 = 6;
/// The workload unless the user names another.
const WORKLOAD: &str = "spin";

/// Plans and runs a comparison of guests among others, or prints the plan.
///
/// # Errors
/// Bad input, a host that cannot be used, nothing measured, a gate crossed.
pub fn run(args: &DensityArgs, by: &mut dyn Carrier) -> Result<(), Failure> {
    let facts = facts::host_facts();
    let named = !args.common.on.is_empty();
    let run = as_run(args);
    let sweep = Sweep::of(args)?;
    by.carry_out(&run.common, named, &facts, &|here| {
        let library = request::library(&run.workload)?;
        let loader = loading::named(&run.loader)?;
        let make = |facts: &HostFacts| workloads(&run, &sweep, &library, facts);
        let plan = request::plan_of(&run.common, loader, &facts, here, &make)?;
        Ok(Plan { name: format!("density-{}", plan.name), ..plan })
    })
}

/// What `weigh run` would be told for the same workloads.
fn as_run(args: &DensityArgs) -> RunArgs {
    let asked = args.common.quick || args.common.precision.is_some();
    let blocks = args.common.blocks.or((!asked).then_some(BLOCKS));
    let mut workloads = args.workloads.clone();
    if workloads.is_empty() && args.command.is_empty() && args.workload.is_empty() {
        workloads.push(WORKLOAD.into());
    }
    RunArgs {
        workloads,
        command: args.command.clone(),
        common: MeasureArgs { blocks, ..args.common.clone() },
        size: args.size,
        param: args.param.clone(),
        warmup: args.warmup,
        iterations: args.iterations,
        prepare: args.prepare.clone(),
        cleanup: args.cleanup.clone(),
        deadline: args.deadline.clone(),
        reuse: false,
        workload: args.workload.clone(),
        loader: args.loader.clone(),
        plan: None,
    }
}

/// The numbers of guests, the kinds of neighbours and the shares that each workload is measured
/// with.
struct Sweep {
    /// Beside 1.
    guests: Vec<u32>,
    loads: Vec<Load>,
    shares: Vec<Shares>,
}

impl Sweep {
    fn of(args: &DensityArgs) -> Result<Self, Failure> {
        once("--guests", &args.guests)?;
        once("--neighbours", &args.neighbours)?;
        once("--shares", &args.shares)?;
        Ok(Self {
            guests: args.guests.iter().copied().filter(|guests| *guests > 1).collect(),
            loads: args.neighbours.iter().map(|word| known_load(word)).collect::<Result<_, _>>()?,
            shares: args.shares.iter().map(|word| known_shares(word)).collect::<Result<_, _>>()?,
        })
    }

    /// Alone first: it is what all others are compared with.
    fn all(&self) -> Vec<Neighbours> {
        let of = |guests, load: &Load, shares| Neighbours { guests, load: load.clone(), shares, stay: false };
        let mut all = vec![of(1, &Load::Idle, Shares::Equal)];
        for &guests in &self.guests {
            for load in &self.loads {
                all.extend(self.shares.iter().map(|shares| of(guests, load, *shares)));
            }
        }
        all
    }
}

fn once<T: PartialEq + ToString>(option: &str, given: &[T]) -> Result<(), Failure> {
    match given.iter().enumerate().find(|(i, value)| given[..*i].contains(value)) {
        Some((_, twice)) => {
            Err(Failure::input(format!("`{}` is given twice in {option}", twice.to_string()))
                .hint("give everything once"))
        }
        None => Ok(()),
    }
}

fn known_load(word: &str) -> Result<Load, Failure> {
    load(word).ok_or_else(|| {
        let hint = nearest(word, LOADS)
            .map_or(format!("neighbours are {}", LOADS.join(", ")), |near| format!("did you mean `{near}`?"));
        Failure::input(format!("there are no neighbours that do `{word}`"))
            .at("--neighbours", word, 0..word.len())
            .hint(hint)
    })
}

fn known_shares(word: &str) -> Result<Shares, Failure> {
    Shares::parse(word).ok_or_else(|| {
        let words = Shares::WORDS;
        let hint = nearest(word, words)
            .map_or(format!("shares are {}", words.join(", ")), |near| format!("did you mean `{near}`?"));
        Failure::input(format!("CPU time is not shared out by `{word}`"))
            .at("--shares", word, 0..word.len())
            .hint(hint)
    })
}

fn workloads(
    args: &RunArgs,
    sweep: &Sweep,
    library: &Library,
    facts: &HostFacts,
) -> Result<Vec<WorkloadPlan>, Failure> {
    let plans = request::workloads(args, library, facts)?;
    let server = plans.iter().find(|plan| plan.staging.server.is_some());
    if let Some(server) = server.filter(|_| sweep.loads.contains(&Load::Same)) {
        return Err(Failure::input(format!(
            "`{}` is a server, and neighbours that serve it too would have to be loaded as it is",
            server.id
        ))
        .hint("leave `same` out; `--neighbours http` has neighbours that serve HTTP under load"));
    }
    let all = sweep.all();
    let mut among = Vec::new();
    for plan in plans {
        for neighbours in &all {
            let with = with_neighbours(plan.clone(), neighbours.clone());
            // What the user says holds for any number of guests.
            let deadline_s = if args.deadline.is_some() { plan.deadline_s } else { with.deadline_s };
            among.push(WorkloadPlan { deadline_s, ..with });
        }
    }
    Ok(among)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn args(words: &[&str]) -> DensityArgs {
        let parsed = Cli::try_parse_from(["weigh", "density"].iter().chain(words)).unwrap();
        let Some(Command::Density(args)) = parsed.command else { panic!("{words:?}") };
        *args
    }

    fn ids(words: &[&str]) -> Result<Vec<String>, Failure> {
        let (args, facts) = (args(words), facts::host_facts());
        let library = request::library(&[])?;
        let plans = workloads(&as_run(&args), &Sweep::of(&args)?, &library, &facts)?;
        Ok(plans.into_iter().map(|plan| plan.id).collect())
    }

    #[test]
    fn alone_is_always_among_them() {
        let with = |n| format!("spin{{guests={n},neighbours=cpu}}");
        assert_eq!(ids(&[]).unwrap(), ["spin{guests=1}".to_string(), with(2), with(4), with(8)]);
        assert_eq!(ids(&["--guests", "3"]).unwrap(), ["spin{guests=1}".to_string(), with(3)]);
        let all =
            ids(&["--guests", "1,2", "--neighbours", "idle,same", "--shares", "equal,limits", "--", "true"]);
        let among = |what: &str| format!("true{{guests=2,neighbours={what}}}");
        assert_eq!(
            all.unwrap(),
            [
                "true{guests=1}".to_string(),
                among("idle"),
                among("idle,shares=limits"),
                among("same"),
                among("same,shares=limits")
            ]
        );
    }

    #[test]
    fn six_blocks_unless_asked_for_others() {
        let blocks = |words: &[&str]| as_run(&args(words)).common.blocks;
        assert_eq!((blocks(&[]), blocks(&["--blocks", "3"]), blocks(&["--quick"])), (Some(6), Some(3), None));
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_can() {
        let said = |words: &[&str]| format!("{:?}", ids(words).unwrap_err());
        assert!(said(&["--neighbours", "cpus"]).contains("did you mean `cpu`?"));
        assert!(said(&["--neighbours", "stream"]).contains("idle, cpu, io, http, same"));
        assert!(said(&["--shares", "weight"]).contains("did you mean `weights`?"));
        assert!(said(&["--guests", "2,2"]).contains("given twice in --guests"));
        assert!(said(&["--neighbours", "io,io"]).contains("given twice"));
        let server = said(&["redis", "--neighbours", "same"]);
        assert!(server.contains("is a server") && server.contains("--neighbours http"), "{server}");
        for guests in ["0", "4097", "some"] {
            assert!(Cli::try_parse_from(["weigh", "density", "--guests", guests]).is_err(), "{guests}");
        }
    }
}
