//! `weigh start`: plan starts, run them, show them.

use super::run::Carrier;
use crate::cli::{Size, StartArgs};
use crate::error::Failure;
use crate::{request, ui};
use std::collections::BTreeMap;
use weigh_host::facts;
use weigh_model::{Caches, EnvironmentPlan, HostFacts, Plan, StartPlan, Started, WorkloadPlan, nearest};
use weigh_platforms::resolve;
use weigh_workloads::{start_workload, with_boot_metrics};

/// Guests that are started and removed to tell a rate, per lane; at least [`FEWEST_CHURNED`] in
/// all.
const CHURNED_PER_LANE: u32 = 4;
const FEWEST_CHURNED: u32 = 8;
/// The workload that starts processes.
const SPAWN: &str = "spawn";

/// Plans and runs a comparison of starts, or prints the plan.
///
/// # Errors
/// Bad input, a host that cannot be used, nothing measured, a gate crossed.
pub fn run(args: &StartArgs, by: &mut dyn Carrier) -> Result<(), Failure> {
    let facts = facts::host_facts();
    let named = !args.common.on.is_empty();
    if Caches::parse(&args.caches) == Some(Caches::Cold) {
        ui::note("note: `--caches cold` drops the page cache of the whole host before every start");
    }
    by.carry_out(&args.common, named, &facts, &|here| {
        let plan = request::plan_of(&args.common, None, &facts, here, &|facts| workloads(args, facts))?;
        let machine = |environment: &EnvironmentPlan| {
            let known = resolve(&environment.spec);
            known.is_ok_and(|(platform, spec)| platform.capabilities(&spec).sized_memory)
        };
        if !plan.environments.iter().any(machine) {
            return Ok(plan);
        }
        Ok(Plan { workloads: plan.workloads.into_iter().map(with_boot_metrics).collect(), ..plan })
    })
}

fn workloads(args: &StartArgs, facts: &HostFacts) -> Result<Vec<WorkloadPlan>, Failure> {
    let caches = caches(&args.caches, facts)?;
    let start = |what| start_workload(StartPlan { what, caches });
    let mut plans = Vec::new();
    for &guests in &args.guests {
        plans.push(start(if guests == 1 { Started::One } else { Started::AtOnce { guests } }));
    }
    for &concurrency in &args.rate {
        let guests = (concurrency * CHURNED_PER_LANE).max(FEWEST_CHURNED);
        plans.push(start(Started::Churn { concurrency, guests }));
    }
    if args.restore {
        plans.push(start(Started::Restored));
    }
    if let Some(twice) =
        plans.iter().enumerate().find(|(i, plan)| plans[..*i].iter().any(|p| p.id == plan.id))
    {
        return Err(Failure::input(format!("`{}` would be measured twice", twice.1.id))
            .hint("give every number once"));
    }
    if args.spawn {
        let size = args.size.unwrap_or(if args.common.quick { Size::Quick } else { Size::Standard });
        let library = request::library(&[])?;
        let workload = library.get(SPAWN).map_err(|_| Failure::input("there is no workload `spawn`"))?;
        let spawn = workload.plan(size.word(), &BTreeMap::new(), facts);
        plans.extend(spawn.map_err(|error| Failure::input(error.message))?);
    }
    Ok(plans)
}

/// What caches hold, where this host allows it.
fn caches(word: &str, facts: &HostFacts) -> Result<Caches, Failure> {
    let caches = Caches::parse(word).ok_or_else(|| {
        let hint = nearest(word, Caches::WORDS)
            .map_or("give `warm` or `cold`".into(), |near| format!("did you mean `{near}`?"));
        Failure::input(format!("caches are warm or cold, `{word}` is neither"))
            .at("--caches", word, 0..word.len())
            .hint(hint)
    })?;
    if caches == Caches::Cold && !facts.root {
        return Err(Failure::input("only root may drop the page cache, so no start can be cold")
            .hint("run as root, or leave out `--caches cold`"));
    }
    Ok(caches)
}
