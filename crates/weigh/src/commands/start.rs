//! `weigh start`: how long guests take to start.

use crate::cli::StartArgs;
use crate::error::Failure;
use crate::request::{self, PlanRequest};
use crate::ui;
use std::collections::BTreeMap;
use std::time::Duration;
use weigh_model::{
    Caches, HostFacts, LARGEST_COPY, Plan, StartPlan, Started, WorkloadPlan, format_bytes, parse_bytes,
    parse_duration,
};
use weigh_platforms::Capabilities;
use weigh_workloads::{start_workload, with_boot_metrics, with_stages};

/// The number of guests that are started and removed per concurrent start to measure a rate, of
/// which there are at least [`FEWEST_CHURNED`] in all.
const CHURNED_PER_LANE: u32 = 4;
const FEWEST_CHURNED: u32 = 8;
/// The number of programs, or of shells, that the platform's client runs in each guest, after a
/// first one.
const PROGRAMS: u32 = 9;
/// How often a file is copied into each guest and back, after the first time.
const COPIES: u32 = 3;
/// The longest time in which the guests of a trial start one after the other.
const LONGEST_PACE: Duration = Duration::from_hours(1);
/// The workload that starts processes.
const SPAWN: &str = "spawn";

/// Turns the arguments of `weigh start` into a request.
pub fn request(args: StartArgs) -> PlanRequest {
    if Caches::parse(&args.caches) == Some(Caches::Cold) {
        ui::note("note: `--caches cold` drops the page cache of the whole host before every start");
    }
    PlanRequest::new(args.common.clone(), move |facts, host| {
        request::plan(&args.common, None, facts, host, &|facts| workloads(&args, facts))
            .and_then(with_own_metrics)
    })
}

/// Adds the metrics of starts that only some platforms have to the plan, and tells where an agent
/// runs programs in place of the platform's own client.
///
/// # Errors
/// An environment is of no platform.
pub(super) fn with_own_metrics(plan: Plan) -> Result<Plan, Failure> {
    let environments = request::capabilities(&plan.environments)?;
    let mut workloads = plan.workloads;
    note_agents(&environments, &workloads);
    if environments.iter().any(|(_, can)| can.sized_memory) {
        workloads = workloads.into_iter().map(with_boot_metrics).collect();
    }
    if let Some((_, can)) = environments.iter().find(|(_, can)| !can.stages.is_empty()) {
        workloads = workloads.into_iter().map(|workload| with_stages(workload, can.stages)).collect();
    }
    Ok(Plan { workloads, ..plan })
}

/// Tells in which environments an agent runs the programs, if any are run in guests.
fn note_agents(environments: &[(String, Capabilities)], workloads: &[WorkloadPlan]) {
    let runs_programs = |workload: &WorkloadPlan| {
        let what = workload.start.map(|start| start.what);
        matches!(what, Some(Started::Exec { .. } | Started::Prompt { .. } | Started::Copy { .. }))
    };
    let with_agents = environments.iter().filter(|(_, can)| can.agent).map(|(name, _)| name.as_str());
    let with_agents: Vec<&str> = with_agents.collect();
    if !with_agents.is_empty() && workloads.iter().any(runs_programs) {
        ui::note(&format!(
            "note: no client runs programs in the guests of {}; weighbridge's probe does, as their agent",
            with_agents.join(", ")
        ));
    }
}

fn workloads(args: &StartArgs, facts: &HostFacts) -> Result<Vec<WorkloadPlan>, Failure> {
    let caches = caches(&args.caches, facts)?;
    let start = |what| start_workload(StartPlan { what, caches });
    let mut plans = Vec::new();
    for &guests in &args.guests {
        plans.push(start(if guests == 1 { Started::One } else { Started::AtOnce { guests } }));
    }
    plans.extend(staggered(args)?.into_iter().map(start));
    for &concurrency in &args.rate {
        let guests = (concurrency * CHURNED_PER_LANE).max(FEWEST_CHURNED);
        plans.push(start(Started::Churn { concurrency, guests }));
    }
    plans.extend(args.restore.iter().map(|guests| start(Started::Restored { guests: *guests })));
    if args.exec {
        // The start of its guest has warmed the caches.
        let what = Started::Exec { programs: PROGRAMS };
        plans.push(start_workload(StartPlan { what, caches: Caches::Warm }));
    }
    if args.prompt {
        let what = Started::Prompt { shells: PROGRAMS };
        plans.push(start_workload(StartPlan { what, caches: Caches::Warm }));
    }
    for text in &args.copy {
        let bytes = parse_bytes(text).map_err(|error| Failure::of_size("--copy", &error))?;
        if !(1..=LARGEST_COPY).contains(&bytes) {
            return Err(Failure::input(format!(
                "--copy={text} is not between 1 byte and {}",
                format_bytes(LARGEST_COPY)
            ))
            .hint("give another size, such as --copy=16MiB"));
        }
        let what = Started::Copy { bytes, copies: COPIES };
        plans.push(start_workload(StartPlan { what, caches: Caches::Warm }));
    }
    let ids: Vec<&str> = plans.iter().map(|plan| plan.id.as_str()).collect();
    if let Some(twice) = request::first_repeated(&ids) {
        return Err(
            Failure::input(format!("`{twice}` would be measured twice")).hint("give every number once")
        );
    }
    if args.spawn {
        let size = args.size.unwrap_or(args.common.default_size());
        let library = request::library(&[])?;
        let workload = library.get(SPAWN).map_err(|_| Failure::input("there is no workload `spawn`"))?;
        let spawn = workload.plan(size.name(), &BTreeMap::new(), facts);
        plans.extend(spawn.map_err(|error| Failure::input(error.message))?);
    }
    Ok(plans)
}

/// The starts at a fixed pace.
fn staggered(args: &StartArgs) -> Result<Vec<Started>, Failure> {
    let several: Vec<u32> = args.guests.iter().copied().filter(|guests| *guests > 1).collect();
    if !args.apart.is_empty() && several.is_empty() {
        return Err(Failure::input("`--apart` is the time between the starts of several guests")
            .hint("give their number, as in --guests 20"));
    }
    let mut all = Vec::new();
    for text in &args.apart {
        let apart = pace(text)?;
        for &guests in &several {
            if apart.saturating_mul(guests) > LONGEST_PACE {
                return Err(Failure::input(format!(
                    "{guests} guests at a pace of {text} take more than an hour"
                ))
                .hint("give fewer guests, or less time between them"));
            }
            // An hour in microseconds fits.
            all.push(Started::Staggered { guests, apart_us: apart.as_micros() as u64 });
        }
    }
    Ok(all)
}

/// Reads the time from one start to the next: `50ms`, or `20/s` as a rate.
fn pace(text: &str) -> Result<Duration, Failure> {
    let Some(rate) = text.strip_suffix("/s") else {
        return parse_duration(text).map_err(|error| Failure::of_size("--apart", &error));
    };
    let rate = rate.trim().parse::<f64>().ok().filter(|rate| rate.is_finite() && *rate > 0.0);
    let apart = rate.and_then(|rate| Duration::try_from_secs_f64(rate.recip()).ok());
    apart.ok_or_else(|| {
        Failure::input(format!("`{text}` is not a rate of starts per second"))
            .at("--apart", text, 0..text.len())
            .hint("give a rate above 0, as in 20/s, or the time between starts, as in 50ms")
    })
}

/// Returns the state of the page cache that a word names, if this user may produce it.
fn caches(word: &str, facts: &HostFacts) -> Result<Caches, Failure> {
    let caches = Caches::parse(word).ok_or_else(|| {
        Failure::input(format!("caches are warm or cold, `{word}` is neither")).at_word(
            "--caches",
            word,
            &Caches::WORDS,
        )
    })?;
    if caches == Caches::Cold && !facts.root {
        return Err(Failure::input("only root may drop the page cache, so no start can be cold")
            .hint("run as root, or leave out `--caches cold`"));
    }
    Ok(caches)
}
