//! `weigh run`: plan, run, show.

use crate::cli::{MeasureArgs, OutputFormat, RunArgs};
use crate::error::{Failure, Kind, file_failure};
use crate::host::Occupied;
use crate::live::{Live, Port};
use crate::placement::{cpu_words, loader_cpus};
use crate::request::Surroundings;
use crate::{outcome, request, ui};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use weigh_host::{clock, facts};
use weigh_images::Root;
use weigh_model::{
    EnvironmentPlan, EnvironmentSpec, Event, FinishReason, HostFacts, ImageSpec, Load, LoadLoop, Neighbours,
    Plan, ServerPlan, Shares, Started,
};
use weigh_platforms::loader::Elsewhere;
use weigh_platforms::{self as platforms, Availability, GuestRequest, Host, Platform, PlatformError};
use weigh_report::Report;
use weigh_runner::order::block_order;
use weigh_runner::{Finish, RunOptions, RunnerError};
use weigh_store::RunDirectory;

/// Where runs go unless the user says otherwise, and where `last` looks.
pub const RUNS: &str = "weigh-runs";

/// Makes a plan, given the host.
pub type Planner<'a> = &'a dyn Fn(&mut dyn Surroundings) -> Result<Plan, Failure>;

/// Who carries out what a command plans.
pub trait Carrier {
    /// Makes the plan and does with it what is this carrier's to do. `named` says whether the user
    /// named the environments.
    ///
    /// # Errors
    /// Bad input, a host that cannot be used, nothing measured, a gate crossed.
    fn carry_out(
        &mut self,
        args: &MeasureArgs,
        named: bool,
        facts: &HostFacts,
        plan: Planner<'_>,
    ) -> Result<(), Failure>;
}

/// Plans and runs a comparison, or prints the plan.
///
/// # Errors
/// Bad input, a host that cannot be used, nothing measured, a gate crossed.
pub fn run(args: &RunArgs, by: &mut dyn Carrier) -> Result<(), Failure> {
    let facts = facts::host_facts();
    let named = !args.common.on.is_empty() || args.plan.is_some();
    by.carry_out(&args.common, named, &facts, &|here| request::plan(args, &facts, here))
}

/// A run by itself: its plan is carried out in a new run directory and shown, or only printed.
pub struct Alone;

impl Carrier for Alone {
    fn carry_out(
        &mut self,
        args: &MeasureArgs,
        named: bool,
        facts: &HostFacts,
        plan: Planner<'_>,
    ) -> Result<(), Failure> {
        if args.dry_run {
            ui::print(&describe(&plan(&mut Nowhere)?, facts));
            return Ok(());
        }
        // A port that is taken is said before anything is done.
        let live = args.live.live.map(Port::take).transpose()?;
        let plan = make(plan)?;
        let directory = match &args.out {
            Some(path) => RunDirectory::create_at(path, &plan, facts)?,
            None => RunDirectory::create(Path::new(RUNS), &plan, facts, &clock::utc_now())?,
        };
        let options = run_options(named);
        measure(&plan, facts, directory, Manner { format: args.format, gate: args.gate, options, live })
    }
}

/// Makes a plan on this host.
///
/// # Errors
/// The plan's, and a host that cannot be used.
pub fn make(plan: Planner<'_>) -> Result<Plan, Failure> {
    let mut here = Here::default();
    let plan = plan(&mut here);
    let left = here.leave();
    let plan = plan?;
    left?;
    Ok(plan)
}

/// What the user named is measured as asked or not at all; what nobody named is left out where it
/// is unequal.
pub fn run_options(named: bool) -> RunOptions {
    RunOptions { leave_out_unequal: !named, ..RunOptions::default() }
}

/// How a run is done and shown.
pub struct Manner {
    pub format: OutputFormat,
    pub gate: Option<f64>,
    pub options: RunOptions,
    /// Where its report is to be seen while it goes on.
    pub live: Option<Port>,
}

/// Runs or continues what a run directory holds, then shows the result.
///
/// # Errors
/// As [`run`].
pub fn measure(
    plan: &Plan,
    facts: &HostFacts,
    mut directory: RunDirectory,
    manner: Manner,
) -> Result<(), Failure> {
    let Manner { format, gate, options, live } = manner;
    let interrupt = catch_signals()?;
    let path = directory.path().to_path_buf();
    let (finish, live) =
        execute(plan, facts, &mut directory, Execution { options, live, interrupt: &interrupt })?;
    let report = outcome::from_run(&directory)?;
    let page = write_page(&report, &path)?;
    ui::print(&outcome::render(&report, format, gate)?);
    ui::note(&format!("run: {}\nreport: {}", path.display(), page.display()));
    ui::sentence(&spent(&finish.statistics));
    if let Some(live) = live {
        live.finish(&report, &interrupt);
    }
    match finish.reason {
        FinishReason::NothingRuns => Err(outcome::nothing_measured(&path)),
        // Whatever there is: going on gives the rest.
        FinishReason::Interrupted if outcome::verdict(&report, None, &path).is_err() => {
            Err(outcome::interrupted_early(&path))
        }
        _ => outcome::verdict(&report, gate, &path),
    }
}

/// Writes the page of a run beside its samples.
///
/// # Errors
/// A file that cannot be written.
pub fn write_page(report: &Report, run: &Path) -> Result<PathBuf, Failure> {
    let page = run.join("report.html");
    let html = outcome::render(report, OutputFormat::Html, None)?;
    std::fs::write(&page, html).map_err(|error| file_failure("write", &page, error))?;
    Ok(page)
}

/// How a run is done.
pub struct Execution<'a> {
    pub options: RunOptions,
    /// Where its report is to be seen while it goes on.
    pub live: Option<Port>,
    /// Turns true when the run is to end.
    pub interrupt: &'a AtomicBool,
}

/// Runs or continues what a run directory holds. Nothing but progress is shown.
///
/// # Errors
/// A host that cannot be used; what the runner cannot do.
pub fn execute(
    plan: &Plan,
    facts: &HostFacts,
    directory: &mut RunDirectory,
    how: Execution<'_>,
) -> Result<(Finish, Option<Live>), Failure> {
    let path = directory.path().to_path_buf();
    // Absolute, because tools of platforms write logs from directories of their own.
    let logs = std::path::absolute(directory.logs())
        .map_err(|error| file_failure("find the directory of logs", &path, error))?;
    let occupied = Occupied::new(&path.display().to_string(), Some(logs))?;
    for (run, changes) in &occupied.leftovers {
        ui::note(&format!(
            "warning: run {run} ended early and left {changes} changes on this host; `weigh clean` undoes them"
        ));
    }
    let anywhere = rustix::thread::sched_getaffinity(None);
    stay_off(&plan.guest.cpus, facts);
    // Its threads stay off them as well.
    let mut live = how.live.map(|port| Live::serve(port, &path)).transpose()?;
    if let Some(live) = &live {
        ui::note(&live.announcement());
    }
    let mut progress = ui::Progress::new();
    let finish = weigh_runner::run(weigh_runner::Run {
        plan,
        host: &occupied.host,
        host_facts: facts,
        store: directory,
        sensors: &mut weigh_observe::Observer::new(),
        interrupt: how.interrupt,
        emit: &mut |event: Event| {
            progress.show(&event);
            let complaint = live.as_mut().and_then(|live| live.show(&event));
            complaint.into_iter().for_each(|message| progress.show(&Event::Warning { message }));
        },
        options: how.options,
    });
    drop(progress);
    // A further run of this process has the choice again.
    let _stays_where_it_is = anywhere.and_then(|set| rustix::thread::sched_setaffinity(None, &set));
    let closed = occupied.close();
    match &finish {
        Err(RunnerError::Unequal { .. }) => ui::note(&format!(
            "run: {0}, with what was seen of every guest; `weigh resume {0}` goes on once they are alike",
            path.display()
        )),
        Err(RunnerError::Loader { .. }) => ui::note(&format!(
            "run: {0}; `weigh resume {0}` goes on once the machine can be used",
            path.display()
        )),
        _ => {}
    }
    let finish = finish?;
    closed?;
    Ok((finish, live))
}

/// A flag that Ctrl-C and its like turn true.
///
/// # Errors
/// Signals cannot be caught.
pub fn catch_signals() -> Result<Arc<AtomicBool>, Failure> {
    let interrupt = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        // A second signal ends weigh at once; `weigh clean` and `weigh resume` mend what that
        // leaves.
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&interrupt))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&interrupt)))
            .map_err(|error| Failure::new(Kind::Failed, "cannot catch signals").because(error))?;
    }
    Ok(interrupt)
}

/// Where the time of a run went.
fn spent(statistics: &weigh_runner::RunStatistics) -> String {
    format!(
        "time: {} in all, {} of it in {} trials, {} in {} launches, {:.3} s in syncs",
        ui::human(statistics.total_s),
        ui::human(statistics.trial_s),
        statistics.trials,
        ui::human(statistics.launch_s),
        statistics.launches,
        statistics.sync_s
    )
}

/// The directory of a run that the user names: a path, a name below [`RUNS`], or `last`.
///
/// # Errors
/// There is no such run.
pub fn find(run: &Path) -> Result<PathBuf, Failure> {
    Ok(weigh_store::resolve(Path::new(RUNS), &run.to_string_lossy())?)
}

/// A plan for show: every platform that is not a fake, whether ready or not, and nothing settled.
pub struct Nowhere;

impl Surroundings for Nowhere {
    fn ready(&mut self) -> Result<Vec<String>, Failure> {
        Ok(platforms::defaults().map(|platform| platform.name().to_string()).collect())
    }

    fn settle(
        &mut self,
        _: &dyn Platform,
        environment: &EnvironmentSpec,
    ) -> Result<Result<EnvironmentSpec, PlatformError>, Failure> {
        Ok(Ok(environment.clone()))
    }

    fn settle_loader(
        &mut self,
        machine: &Elsewhere,
    ) -> Result<Result<EnvironmentSpec, PlatformError>, Failure> {
        Ok(Ok(machine.environment()))
    }

    fn note(&mut self, text: &str) {
        ui::note(&format!("note: {text}"));
    }
}

/// This host, taken when it is first needed.
#[derive(Default)]
pub struct Here {
    occupied: Option<Occupied>,
}

impl Here {
    /// The host, to be left again by [`Self::leave`].
    ///
    /// # Errors
    /// Another run has it; the state directory cannot be used.
    pub fn host(&mut self) -> Result<&Host, Failure> {
        let occupied = match self.occupied.take() {
            Some(occupied) => occupied,
            None => Occupied::new("making a plan", None)?,
        };
        Ok(&self.occupied.insert(occupied).host)
    }

    /// Undoes what was done for the plan.
    ///
    /// # Errors
    /// A change that cannot be undone.
    pub fn leave(self) -> Result<(), Failure> {
        self.occupied.map_or(Ok(()), Occupied::close)
    }
}

impl Surroundings for Here {
    fn ready(&mut self) -> Result<Vec<String>, Failure> {
        ready_platforms(self.host()?)
    }

    fn settle(
        &mut self,
        platform: &dyn Platform,
        environment: &EnvironmentSpec,
    ) -> Result<Result<EnvironmentSpec, PlatformError>, Failure> {
        Ok(platform.settle(self.host()?, environment))
    }

    fn settle_loader(
        &mut self,
        machine: &Elsewhere,
    ) -> Result<Result<EnvironmentSpec, PlatformError>, Failure> {
        Ok(machine.settle(self.host()?))
    }

    fn note(&mut self, text: &str) {
        ui::note(&format!("note: {text}"));
    }
}

/// The platforms on which a guest has just run.
fn ready_platforms(host: &Host) -> Result<Vec<String>, Failure> {
    let mut ready = Vec::new();
    for platform in platforms::defaults() {
        match platform.availability(host) {
            Availability::Ready { .. } => ready.push(platform.name().to_string()),
            Availability::Missing { reason, remedy } => {
                let remedy = remedy.map(|remedy| format!("; {remedy}")).unwrap_or_default();
                ui::note(&format!("without {}: {reason}{remedy}", platform.name()));
            }
        }
    }
    Ok(ready)
}

/// Keeps weigh itself off the CPUs of the guests, where there are others (method specification,
/// "Placement").
pub fn stay_off(cpus: &[u32], facts: &HostFacts) {
    let others: Vec<u32> = facts.cpus.iter().copied().filter(|cpu| !cpus.contains(cpu)).collect();
    if cpus.is_empty() || others.is_empty() {
        return;
    }
    let mut set = rustix::thread::CpuSet::new();
    for cpu in others {
        set.set(cpu as usize);
    }
    // Sharing a CPU with the guests costs precision and nothing else: a failure is not worth ending
    // a run.
    let _kept_where_it_was = rustix::thread::sched_setaffinity(None, &set);
}

/// What `--dry-run` prints: the plan, the order of the first blocks, the host changes.
fn describe(plan: &Plan, facts: &HostFacts) -> String {
    let mut lines = vec![format!("plan: {} (seed {})", plan.name, plan.seed)];
    lines.push(format!("baseline: {}", plan.baseline));
    for environment in &plan.environments {
        lines.push(format!("environment: {}", environment.name));
    }
    for workload in &plan.workloads {
        if let Some(start) = &workload.start {
            lines.push(format!("start: {}: {}, caches {}", workload.id, in_words(start.what), start.caches));
            continue;
        }
        lines.push(format!(
            "workload: {} [{}], {} warm-up, {} measured per block: {}",
            workload.id,
            workload.size,
            workload.warmup,
            workload.iterations,
            workload.command.join(" ")
        ));
        lines.extend(workload.neighbours.as_ref().map(|neighbours| format!("  {}", beside(neighbours))));
        if let Some(server) = &workload.staging.server {
            lines.extend(describe_server(plan, server, facts));
        }
    }
    lines.push(format!("blocks: {}", blocks(plan)));
    if let Some(seconds) = plan.workloads.iter().map(|workload| workload.expected_s).sum::<Option<f64>>() {
        let runs: f64 = plan
            .workloads
            .iter()
            .map(|w| f64::from(w.warmup + w.iterations) * w.expected_s.unwrap_or(0.0))
            .sum();
        let block = runs * plan.environments.len() as f64;
        let pilot = seconds * plan.environments.len() as f64;
        let total = |blocks: u32| ui::human(pilot + block * f64::from(blocks));
        lines.push(format!(
            "expected time: {} to {}",
            total(plan.effort.fewest_blocks()),
            total(plan.effort.most_blocks())
        ));
    } else {
        lines.push("expected time: known after the first run of each command".into());
    }
    lines.push("order (block: environments launched, then workload: environments):".into());
    for block in 0..plan.effort.most_blocks().min(3) {
        let order = block_order(plan.seed, block, plan.workloads.len(), plan.environments.len());
        for (workload, environments) in order.workloads.iter().zip(&order.environments) {
            let names: Vec<&str> =
                environments.iter().map(|index| plan.environments[*index].name.as_str()).collect();
            lines.push(format!("  {}: {}: {}", block + 1, plan.workloads[*workload].id, names.join(", ")));
        }
    }
    lines.push("host changes, each recorded first and undone at the end:".into());
    lines.push("  a scratch directory with the guest programs below the state directory".into());
    for environment in &plan.environments {
        lines.extend(
            host_changes(plan, environment).map(|change| format!("  {}: {change}", environment.name)),
        );
    }
    let serves = plan.workloads.iter().any(|workload| workload.staging.server.is_some());
    let loader = plan.loader.as_ref().map(Elsewhere::of);
    match loader {
        Some(Ok(machine)) => {
            lines.extend(machine.changes().iter().map(|change| format!("  load generator: {change}")));
        }
        _ if serves => lines.push(
            "  load generator: make the control group weighbridge-<run>/loader, start a process in it, one at a time".into(),
        ),
        _ => {}
    }
    lines.join("\n")
}

/// Who is beside the measured guest.
fn beside(neighbours: &Neighbours) -> String {
    let others = neighbours.guests.saturating_sub(1);
    let plural = if others == 1 { "" } else { "s" };
    let stay = if neighbours.stay { "started once and kept" } else { "started for each trial" };
    let load = match &neighbours.load {
        _ if others == 0 => return "alone".into(),
        Load::Idle => "which do nothing".into(),
        Load::Again { command, .. } => format!("each again and again: {}", command.join(" ")),
        Load::Serve { server, client, .. } => {
            format!("each serves: {}; loaded from outside by: {}", server.join(" "), client.join(" "))
        }
        Load::Same => "each runs it too, again and again".into(),
    };
    let shares = match neighbours.shares {
        Shares::Equal => String::new(),
        Shares::Weights => format!("; it weighs {} times what a neighbour does", Shares::WEIGHT),
        Shares::Limits => format!("; no guest gets more than a {}th of the CPUs", neighbours.guests),
    };
    format!("beside {others} more guest{plural}, {stay}, {load}{shares}")
}

/// What will listen where, and who loads it from where.
fn describe_server(plan: &Plan, server: &ServerPlan, facts: &HostFacts) -> Vec<String> {
    let transport: Vec<&str> = server.transport.iter().map(|transport| transport.as_str()).collect();
    let plural = if server.ports == 1 { "" } else { "s" };
    let guests = match plan.guest.cpus.as_slice() {
        [] => "all CPUs".into(),
        some => cpu_words(some),
    };
    let mut lines = vec![format!(
        "  serves in the guest, on {guests}, at {} unused port{plural} ({}): {}",
        server.ports,
        transport.join(", "),
        server.command.join(" ")
    )];
    let ready =
        server.ready.as_ref().map_or("a TCP connection to the first port".into(), |words| words.join(" "));
    lines.push(format!("  is up when this works: {ready}"));
    lines.extend(server.fill.iter().map(|fill| format!("  is filled by: {}", fill.join(" "))));
    let kind = if server.kind == LoadLoop::Closed { "a closed loop" } else { "an open loop" };
    lines.push(match &plan.loader {
        Some(machine) => format!(
            "  is loaded in {kind} from {machine}, on all its CPUs, by this host's address there: on the host's own network, or what is translated to the guest's"
        ),
        None => {
            let cpus = cpu_words(&loader_cpus(&plan.guest.cpus, facts));
            format!(
                "  is loaded from outside in {kind}, on {cpus}, over the environment's own network: the host's loopback interface without one"
            )
        }
    });
    if let Some(pace) = &server.pace {
        lines.push(format!(
            "  its rate is {} % of what the slowest environment reaches with: {}",
            pace.share * 100.0,
            pace.saturate.join(" ")
        ));
    }
    if let Some(null) = &server.null {
        lines.push(format!("  headroom of the load generator is proven once against: {}", null.join(" ")));
    }
    lines
}

/// What a trial starts.
fn in_words(what: Started) -> String {
    match what {
        Started::One => "one fresh guest per block, up to the first response of a service".into(),
        Started::AtOnce { guests } => format!("{guests} fresh guests at once per block"),
        Started::Churn { concurrency, guests } => {
            format!("{guests} fresh guests per block, each removed when it is up, {concurrency} at a time")
        }
        Started::Restored => "one guest per block, saved and restored".into(),
        Started::Footprint { guests, duplicates } => {
            let scanned = if duplicates { ", and their pages scanned for equal ones" } else { "" };
            format!("{guests} fresh guests at once per block, idle until their memory stands still{scanned}")
        }
    }
}

/// What launching an environment would change. The root is an empty one: nothing is prepared for a
/// dry run.
fn host_changes(plan: &Plan, environment: &EnvironmentPlan) -> impl Iterator<Item = String> + use<> {
    let nowhere = Root {
        skeleton: PathBuf::new(),
        binds: Vec::new(),
        scratch: Vec::new(),
        digest: String::new(),
        host: plan.guest.image == ImageSpec::Host,
        notes: Vec::new(),
        tree: None,
        hold: None,
    };
    let request = GuestRequest {
        environment: environment.spec.clone(),
        instance: 0,
        root: Arc::new(nowhere),
        cpus: plan.guest.cpus.clone(),
        memory_bytes: plan.guest.memory_bytes,
        publish: Vec::new(),
        outside: None,
    };
    let platform = platforms::find(&environment.spec.platform);
    platform.into_iter().flat_map(move |platform| platform.host_changes(&request))
}

fn blocks(plan: &Plan) -> String {
    match plan.effort {
        weigh_model::Effort::Quick { blocks } => format!("{blocks}, exploratory"),
        weigh_model::Effort::Fixed { blocks } => blocks.to_string(),
        weigh_model::Effort::Lasting { seconds } => format!("as many as there are in {seconds} s"),
        weigh_model::Effort::Precision { minimum, maximum, step, target } => {
            format!(
                "{minimum} to {maximum}, looked at every {step}, until every interval is within {} %",
                target * 100.0
            )
        }
    }
}
