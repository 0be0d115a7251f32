//! Makes one report from the directories of runs of one plan on several machines.

mod groups;
mod machines;
mod shares;
mod unlike;

use crate::cli::{By, PoolSelection};
use crate::commands::run::find;
use crate::distinct::{Observation, canonical, require_distinct};
use crate::error::{ExitKind, Failure};
use crate::facts;
use crate::outcome::{self, Read};
use crate::prices::Prices;
use groups::Labels;
use std::path::{Path, PathBuf};
use weigh_model::{HostFacts, Plan};
use weigh_report::{EnvironmentFacts, PooledReport};
use weigh_stats::{Notice, Options, RunEstimates, join_shares, pool};
use weigh_store::RunDirectory;
use weigh_store::fleet::{FleetDirectory, MachineState};

/// A run that is pooled with others, without its samples.
struct PoolRun {
    /// The run as the user names it, without the slash that a shell's `*/` leaves.
    named: String,
    /// The last part of its path.
    name: String,
    path: PathBuf,
    plan: Plan,
    host: HostFacts,
    environments: Vec<EnvironmentFacts>,
    estimates: RunEstimates,
    group: String,
    /// The index of the first run that comes from the same machine.
    machine: usize,
    /// The numbers of blocks done and planned, if the run may have been ended because of its
    /// results.
    incomplete: Option<(u32, u32)>,
    recovered: Option<String>,
}

/// Makes the report of pooled runs.
///
/// # Errors
/// A run does not exist, is damaged, is still going on, or is named twice; the runs are not of one
/// plan; a label fits no run, or a run has none; a price fits no kind, or a kind has none; nothing
/// was measured.
pub fn report(args: &PoolSelection) -> Result<PooledReport, Failure> {
    let labels = Labels::parse(&args.label)?;
    let prices = Prices::of_kinds(&args.price, args.prices.as_deref())?;
    let by = match (args.by, args.label.as_slice()) {
        (Some(by), [_, ..]) if by != By::Label => {
            return Err(Failure::input("runs are grouped by their labels or by something else")
                .hint("leave out --label, or --by"));
        }
        (None, [_, ..]) => Some(By::Label),
        (by, _) => by,
    };
    prices.require_kinds(by.is_some())?;
    let runs = read_all(&runs_of(&args.runs)?)?;
    require_distinct(&runs.iter().map(PoolRun::observation).collect::<Vec<_>>())?;
    labels.require_used(runs.iter().map(PoolRun::names))?;
    let (mut runs, left_out): (Vec<PoolRun>, Vec<PoolRun>) =
        runs.into_iter().partition(|run| run.incomplete.is_none());
    for run in &mut runs {
        run.group = groups::group(by, &labels, run.names(), &run.host)?;
    }
    let shared_ids = machines::assign(&mut runs);
    let unlike = unlike::compare(&runs, by, &args.allow_unequal)?;
    let Some(first) = runs.first() else {
        return Err(Failure::input("no run here is complete").hint("`weigh resume RUN` continues one"));
    };
    let share = first.plan.share;
    if let Some(share) = share {
        shares::check(share, &runs, by)?;
    }
    let machines = machines::of_runs(&runs)?;
    let mut warnings: Vec<Notice> = left_out.iter().filter_map(PoolRun::notice).collect();
    warnings.extend(runs.iter().filter_map(|run| run.recovered.clone()).map(|seen| Notice::new(seen, "")));
    warnings.extend(shared_ids);
    if !unlike.between_groups.is_empty() {
        let what = unlike.between_groups.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let seen = format!("the groups also differ in {what}, so their difference includes it");
        warnings.push(Notice::new(seen, ""));
    }
    warnings.extend(share.and_then(|share| shares::missing(share, &runs)));
    let title = outcome::title(&first.plan.whole());
    let title = match share {
        Some(_) => format!("{title}, its blocks shared out over machines"),
        None => format!("{title}, on several machines"),
    };
    let tool_version = first.plan.tool_version.clone();
    let pooled_runs = runs.iter().map(|run| {
        let of = machines.iter().find(|machine| machine.runs.contains(&run.named));
        weigh_stats::PoolRun {
            machine: of.map(|machine| machine.name.clone()).unwrap_or_default(),
            group: run.group.clone(),
            estimates: run.estimates.clone(),
        }
    });
    let pooled_runs: Vec<weigh_stats::PoolRun> = pooled_runs.collect();
    let pooled = if share.is_some() { join_shares(&pooled_runs) } else { pool(&pooled_runs) };
    if pooled.cells.iter().all(|cell| cell.machines.is_empty()) {
        return Err(Failure::new(ExitKind::NothingMeasured, "no run here has an effect to pool")
            .hint("`weigh show RUN` says why for each of them"));
    }
    let by = by.map(|by| by.name().to_string());
    let prices = prices.of_groups(&pooled.groups)?;
    Ok(PooledReport { title, pooled, by, prices, machines, unequal: unlike.allowed, tool_version, warnings })
}

impl PoolRun {
    /// # Errors
    /// The run does not exist, is damaged or is still going on.
    fn read(named: &Path) -> Result<Self, Failure> {
        let directory = RunDirectory::open(&find(named)?)?;
        if directory.is_going_on() {
            return Err(Failure::input(format!("the run {} is still going on", named.display()))
                .hint("wait until it ends, or leave it out"));
        }
        if directory.host().identity.is_empty() {
            return Err(Failure::input(format!(
                "the run {} does not say which machine made it",
                named.display()
            ))
            .hint("leave it out: it is not known whether its machine is a different one"));
        }
        let Read { collected, on_record, recovered, .. } = Read::of(&directory)?;
        let plan = directory.plan();
        let options = Options::for_run(plan, &collected);
        let done = collected.blocks_done;
        let is_complete = outcome::is_complete(&directory, done);
        Ok(Self {
            named: named.display().to_string().trim_end_matches('/').into(),
            name: directory.name(),
            path: canonical(directory.path()),
            environments: facts::of_environments(plan, directory.host(), &on_record),
            estimates: RunEstimates::of(&collected.comparisons, &options),
            plan: plan.clone(),
            host: directory.host().clone(),
            group: String::new(),
            machine: 0,
            incomplete: (!is_complete).then_some((done, plan.effort.planned_blocks(done))),
            recovered: recovered.map(|seen| format!("{}: {seen}", named.display())),
        })
    }

    fn observation(&self) -> Observation<'_> {
        Observation {
            named: &self.named,
            path: &self.path,
            machine: &self.host.identity,
            estimates: &self.estimates,
        }
    }

    fn names(&self) -> [&str; 2] {
        [&self.named, &self.name]
    }

    /// Returns a notice if the run is left out.
    fn notice(&self) -> Option<Notice> {
        let (done, planned) = self.incomplete?;
        let seen = format!(
            "{} is left out: it has {done} of {planned} planned blocks, so it is incomplete and may have been ended because of its results",
            self.named
        );
        Some(Notice::new(
            seen,
            "`weigh resume` continues it; a machine that is missing because it is unlike the others biases the average",
        ))
    }
}

/// Returns the runs that the user names. A fleet is replaced by the runs of its machines that are
/// done.
fn runs_of(named: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut runs = Vec::new();
    for named in named {
        let path = find(named)?;
        if !FleetDirectory::is_one(&path) {
            runs.push(named.clone());
            continue;
        }
        let fleet = FleetDirectory::open(&path)?;
        let before = runs.len();
        for machine in fleet.fleet().machines.iter().filter(|machine| machine.state == MachineState::Done) {
            runs.push(path.join(&machine.name));
        }
        if runs.len() == before {
            let message = format!("no machine of the fleet {} is done", named.display());
            return Err(
                Failure::input(message).hint(format!("`weigh resume {}` continues it", named.display()))
            );
        }
    }
    Ok(runs)
}

/// Reads runs on all CPUs, and keeps their order.
fn read_all(named: &[PathBuf]) -> Result<Vec<PoolRun>, Failure> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let share = named.len().div_ceil(threads).max(1);
    let read = |part: &[PathBuf]| part.iter().map(|run| PoolRun::read(run)).collect::<Vec<_>>();
    std::thread::scope(|scope| {
        let parts: Vec<_> = named.chunks(share).map(|part| scope.spawn(move || read(part))).collect();
        parts.into_iter().flat_map(|part| part.join().expect("reading a run does not panic")).collect()
    })
}
