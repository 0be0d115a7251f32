//! Neighbours, the guests beside the measured one: `weigh density`.
//!
//! ```text
//! measured guest           fresh in each block, frozen
//!   neighbours start       a few at a time, each from a thread of its own; memory is checked before each
//!   measured guest thawed
//!     shares               written to the control groups of all
//!     loads                begin in all neighbours, and are waited for
//!       trial              as ever, warm-up included; the sensors know the neighbours
//!     loads                end; every neighbour is asked whether it is still there
//!   neighbours stop        or are frozen, where they stay
//! ```
//!
//! If fewer guests can be up than were asked for, their number is the only result of the trial.
//! Neighbours may be of another environment than the measured guest; everything here is the same.

mod rates;
mod results;
mod room;
mod shares;
mod watch;
pub(crate) mod work;

use crate::pool::EnvironmentPool;
use crate::start::footprint::floor_bytes;
use crate::start::guest_pool::{GuestPool, Reply, Request};
use crate::trial::{Failure, Measured};
use room::Room;
use shares::share_out;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use watch::MemoryWatch;
use weigh_host::accounts::{Accounts, Process};
use weigh_host::cgroup::ShareBefore;
use weigh_host::clock::monotonic_ns;
use weigh_model::{Extraction, FailureKind, Load, Neighbours, Operations, Shares, WorkloadPlan};
use weigh_observe::Sensors;
use weigh_observe::memory::{available_bytes, total_bytes};
use weigh_platforms::{Guest, GuestRequest};
use weigh_workloads::without_neighbours;
use work::{StopToken, Task, TaskResult};

pub(crate) use results::{NeighbourResults, TooFewGuests, only_guests_up};

/// Deadline for the init of a neighbour; an emulated machine is slow.
const INIT_DEADLINE: Duration = Duration::from_secs(120);
/// Neighbours that start at the same time, per CPU: enough that no CPU waits for a disk, and few
/// enough that none of them misses its deadline because of the others.
const LANES_PER_CPU: usize = 4;
/// How often a long wait checks whether the user has interrupted the run.
const POLL: Duration = Duration::from_millis(200);
/// Deadline for the loads of all neighbours to run.
const LOADED_DEADLINE: Duration = Duration::from_secs(120);
/// How long a neighbour's last run may continue after the trial so that it counts.
const GRACE: Duration = Duration::from_secs(2);
/// How long all neighbours may take to reply that they have ended.
const ENDED_DEADLINE: Duration = Duration::from_secs(60);
/// Rough time that one neighbour takes to start, seconds: that of a container.
const LAUNCH_S: f64 = 0.1;
/// Why a trial that the user interrupted has no values.
const INTERRUPTED: &str = "interrupted while the neighbours started";

/// The neighbours of the measured guest in a trial.
pub(crate) struct ActiveNeighbours {
    /// Dropped before the guest pool, to which it can send requests.
    memory: Option<MemoryWatch>,
    /// What they do; none if they are idle. Dropped before the guest pool, which could not stop
    /// otherwise.
    task: Option<RunningTask>,
    /// How many of them were asked to work.
    working: u32,
    /// How many of them were started for this trial.
    pub(crate) launched: u32,
    /// The shares of all control groups before the trial.
    shares: Vec<ShareBefore>,
    guest_pool: GuestPool,
    wanted: Neighbours,
    /// Their environment by its place in the plan.
    home: usize,
    accounts: Vec<Accounts>,
    clients: Vec<Accounts>,
    /// CPUs of the measured guest.
    cpus: Vec<u32>,
    floor: u64,
}

/// A task that is stopped when the trial is abandoned.
struct RunningTask(Arc<Task>);

impl Drop for RunningTask {
    fn drop(&mut self) {
        self.0.stop.stop_by(0);
    }
}

/// The trial that the neighbours take part in, and what decides about commands in them.
pub(crate) struct NeighbourTrial<'a> {
    pub(crate) workload: &'a WorkloadPlan,
    /// Their environment by its place in the plan.
    pub(crate) home: usize,
    pub(crate) directory: Option<&'a Path>,
    pub(crate) variables: &'a BTreeMap<String, String>,
    pub(crate) padding_bytes: usize,
    pub(crate) bare: bool,
    pub(crate) trial: u64,
    pub(crate) seed: u64,
}

/// Starts the neighbours of a workload, or thaws those that stayed from an earlier trial.
///
/// # Errors
/// The neighbours cannot be used at all. Too few neighbours are the inner error.
pub(crate) fn gather(
    pool: &mut EnvironmentPool<'_>,
    environment: usize,
    wanted: &Neighbours,
    place: &NeighbourTrial<'_>,
    interrupt: &AtomicBool,
) -> Result<Result<ActiveNeighbours, TooFewGuests>, Failure> {
    if wanted.load == Load::Same && place.workload.staging.server.is_some() {
        let reason = "neighbours cannot be servers like the measured one, because all of them would be loaded from the same CPUs; \
                      measure it with other loads, as in --neighbours http";
        return Err(Failure::new(FailureKind::Preparation, reason));
    }
    let home = place.home;
    if home != environment && (pool.is_elsewhere(environment) || pool.is_elsewhere(home)) {
        let reason = "the guest and its neighbours would be on different machines";
        return Err(Failure::new(FailureKind::Preparation, reason));
    }
    let room = Room { available: available_bytes, floor: floor_bytes(total_bytes().unwrap_or(0)) };
    let (guest_pool, launched, fewer) = pool_of(pool, home, wanted, &room, interrupt)?;
    if let Some(fewer) = fewer {
        return Ok(Err(fewer));
    }
    let (_, accounts) = guest_pool.account();
    let (measured, request) = (pool.request_of(environment), &guest_pool.recipe.request);
    let cpus = pool.cpus(&measured).to_vec();
    let used = used_by_either(&measured.cpus, &request.cpus);
    let client_cpus = pool.loader_cpus(&GuestRequest { cpus: used, ..measured });
    let task = task(wanted, place, client_cpus, memory_of(request, &guest_pool));
    Ok(Ok(ActiveNeighbours {
        memory: None,
        task: task.map(|task| RunningTask(Arc::new(task))),
        working: 0,
        launched,
        shares: Vec::new(),
        wanted: wanted.clone(),
        home,
        accounts,
        clients: Vec::new(),
        cpus,
        floor: room.floor,
        guest_pool,
    }))
}

/// The CPUs that one guest or the other may use. An empty list means all, as in a request.
fn used_by_either(one: &[u32], other: &[u32]) -> Vec<u32> {
    if one.is_empty() || other.is_empty() {
        return Vec::new();
    }
    let further = other.iter().filter(|cpu| !one.contains(cpu));
    one.iter().chain(further).copied().collect()
}

/// The daemons that serve neighbours and not the measured guest, as helpers. Daemons that serve both
/// are among the measured guest's own, and the sensors show them as shared.
fn own_daemons(neighbours: &[Accounts], measured: &Accounts) -> Option<Accounts> {
    let is_shared = |daemon: &Process| measured.daemons.iter().any(|shared| shared.pid == daemon.pid);
    let daemons = neighbours.iter().flat_map(|accounts| &accounts.daemons);
    let mut helpers: Vec<Process> = daemons.filter(|daemon| !is_shared(daemon)).cloned().collect();
    helpers.sort_by_key(|daemon| daemon.pid);
    helpers.dedup_by_key(|daemon| daemon.pid);
    (!helpers.is_empty()).then(|| Accounts { helpers, ..Accounts::default() })
}

/// Returns the guests beside the measured one, how many of them were launched, and why there are
/// too few of them, if so.
fn pool_of(
    pool: &mut EnvironmentPool<'_>,
    home: usize,
    wanted: &Neighbours,
    room: &Room,
    interrupt: &AtomicBool,
) -> Result<(GuestPool, u32, Option<TooFewGuests>), Failure> {
    let others = wanted.guests.saturating_sub(1);
    let serves = matches!(wanted.load, Load::Serve { .. });
    let fits = |stayed: &GuestPool| stayed.len() == others && stayed.recipe.ports.is_empty() != serves;
    let stayed = pool.entries[home].neighbours.take();
    if let Some(stayed) = stayed.filter(|stayed| fits(stayed) && all_thaw(stayed)) {
        return Ok((stayed, 0, None));
    }
    let mut recipe = pool.recipe(home, others).map_err(|failure| Failure {
        log: failure.log,
        ..Failure::new(FailureKind::Launch, failure.reason)
    })?;
    if serves {
        recipe.ports = pool.unused_ports(others as usize).ok_or_else(|| {
            let reason = format!("the host has no {others} free ports for the servers of neighbours");
            Failure::new(FailureKind::Preparation, reason)
        })?;
    }
    let lanes = LANES_PER_CPU * pool.host_facts.cpus.len().max(1);
    let mut guest_pool = GuestPool::new(Arc::new(recipe), INIT_DEADLINE);
    let fewer = start(&mut guest_pool, others, lanes, room, interrupt);
    Ok((guest_pool, others, fewer))
}

fn memory_of(request: &GuestRequest, guest_pool: &GuestPool) -> u64 {
    let can = &guest_pool.recipe.can;
    request.memory_bytes.filter(|_| can.memory_limit || can.sized_memory).unwrap_or(0)
}

/// Rough time of a trial, seconds, that would take `alone_s` without neighbours: the neighbours
/// have to start, and may all share one CPU.
pub(crate) fn with_neighbours_s(workload: &WorkloadPlan, alone_s: f64) -> f64 {
    let Some(neighbours) = workload.neighbours.as_ref().filter(|neighbours| neighbours.guests > 1) else {
        return alone_s;
    };
    let slower = if neighbours.load == Load::Idle { 1.0 } else { f64::from(neighbours.guests) };
    alone_s * slower + LAUNCH_S * f64::from(neighbours.guests - 1)
}

/// Starts `others` guests, a few at a time. Stops at the first that fails, when memory runs short,
/// and when the user interrupts.
fn start(
    guest_pool: &mut GuestPool,
    others: u32,
    lanes: usize,
    room: &Room,
    interrupt: &AtomicBool,
) -> Option<TooFewGuests> {
    let (most, no_more) = room.most(guest_pool, others);
    let (mut up, mut under_way, mut interrupted) = (0, 0, false);
    let mut reason: Option<String> = None;
    loop {
        while reason.is_none() && under_way < lanes && guest_pool.len() < most {
            interrupted = interrupt.load(Ordering::Relaxed);
            reason = if interrupted { Some(INTERRUPTED.into()) } else { room.shortage(up + 1) };
            if reason.is_some() {
                break;
            }
            match guest_pool.add() {
                Ok(number) if guest_pool.send(number, Request::Start { due_ns: None }) => under_way += 1,
                Ok(_) => reason = Some("a launching thread ended at once".into()),
                Err(failure) => reason = Some(failure.reason),
            }
        }
        if under_way == 0 {
            break;
        }
        match guest_pool.receive(POLL) {
            Some((_, Reply::Started(came))) => {
                under_way -= 1;
                match came {
                    Ok(_) => up += 1,
                    Err(failure) => reason = reason.or(Some(failure.reason)),
                }
            }
            Some(_) => {}
            None => {
                interrupted |= interrupt.load(Ordering::Relaxed);
                if interrupted {
                    reason = reason.or(Some(INTERRUPTED.into()));
                }
            }
        }
    }
    let reason = reason.or(no_more)?;
    Some(TooFewGuests { up: up + 1, reason: shortfall(up + 1, others + 1, &reason), interrupted })
}

/// Why there are fewer guests than asked for.
fn shortfall(up: u32, guests: u32, reason: &str) -> String {
    format!("{up} of {guests} guests were up: {reason}")
}

/// Thaws the guests of a pool, and returns whether all of them are still there.
fn all_thaw(guest_pool: &GuestPool) -> bool {
    if guest_pool.recipe.can.freeze && first_problem(guest_pool, || Request::Thaw).is_some() {
        return false;
    }
    first_problem(guest_pool, || Request::Check).is_none()
}

/// Sends a request that can fail to every guest. If it fails for one, returns for how many it
/// succeeded, and the first problem.
fn first_problem(guest_pool: &GuestPool, request: impl Fn() -> Request) -> Option<(u32, String)> {
    let sent = guest_pool.broadcast(request);
    let (mut well, mut replies, mut first) = (0, 0, None);
    let until = Instant::now() + ENDED_DEADLINE;
    while replies < sent && Instant::now() < until {
        if let Some((_, answer)) = guest_pool.receive(POLL) {
            replies += 1;
            match answer {
                Reply::Checked(None) => well += 1,
                Reply::Checked(Some(why)) => first = first.or(Some(why)),
                _ => first = first.or(Some("it answered something else".into())),
            }
        }
    }
    if first.is_none() && well < guest_pool.len() {
        first = Some("it does not answer".into());
    }
    first.map(|why| (well, why))
}

/// Describes the work of all neighbours.
fn task(
    wanted: &Neighbours,
    place: &NeighbourTrial<'_>,
    client_cpus: Vec<u32>,
    memory_bytes: u64,
) -> Option<Task> {
    let deadline_s = place.workload.deadline_s;
    let of = |command: &Vec<String>| WorkloadPlan {
        deadline_s,
        ..WorkloadPlan::of(wanted.load.kind().to_string(), command.clone(), Vec::new())
    };
    let (plan, client) = match &wanted.load {
        Load::Idle => return None,
        Load::Again { command, .. } => (of(command), None),
        Load::Serve { server, client, .. } => {
            let from = Extraction::Json { pointer: "/operations".into() };
            let operations = Some(Operations { name: "response".into(), from });
            (of(server), Some(WorkloadPlan { operations, ..of(client) }))
        }
        Load::Same => (without_neighbours(place.workload), None),
    };
    Some(Task {
        plan,
        client,
        client_cpus,
        directory: place.directory.map(Path::to_path_buf),
        variables: place.variables.clone(),
        padding_bytes: place.padding_bytes,
        bare: place.bare,
        memory_bytes,
        trial: place.trial,
        seed: place.seed,
        stop: StopToken::default(),
    })
}

impl ActiveNeighbours {
    /// Sets the shares of CPU time and begins the loads. The measured guest is awake.
    ///
    /// # Errors
    /// Why the trial cannot take place beside them.
    pub(crate) fn begin(
        &mut self,
        guest: &dyn Guest,
        sensors: &mut dyn Sensors,
        interrupt: &AtomicBool,
    ) -> Result<(), TooFewGuests> {
        let guests = self.wanted.guests;
        let fewer = |up, reason| TooFewGuests { up, reason, interrupted: interrupt.load(Ordering::Relaxed) };
        let measured = guest.accounts();
        let shares = share_out(&self.wanted, self.cpus.len(), &measured, &self.accounts);
        self.shares = shares.map_err(|failure| fewer(guests, failure.reason))?;
        let task = self.task.as_ref().map(|begun| Arc::clone(&begun.0));
        let stop = task.clone();
        let stop = move || stop.iter().for_each(|task| task.stop.stop_by(0));
        self.memory = Some(MemoryWatch::begin(self.floor, guests, self.guest_pool.request_channels(), stop));
        if let Some(task) = task {
            self.working = self.guest_pool.broadcast(|| Request::Work(Arc::clone(&task)));
            let waited = self.await_loads(interrupt);
            waited.map_err(|failure| {
                fewer(guests, failure.during("the load of the neighbours does not run").reason)
            })?;
        }
        let daemons = own_daemons(&self.accounts, &measured);
        self.accounts.extend(daemons);
        sensors.set_neighbours(&self.accounts, &self.clients, &self.cpus);
        Ok(())
    }

    /// Waits until the load of every neighbour runs.
    fn await_loads(&mut self, interrupt: &AtomicBool) -> Result<(), Failure> {
        let failed = |reason: String| Failure::new(FailureKind::Check, reason);
        let until = Instant::now() + LOADED_DEADLINE;
        let mut running = 0;
        while running < self.working {
            if interrupt.load(Ordering::Relaxed) {
                return Err(failed("interrupted".into()));
            }
            match self.guest_pool.receive(POLL) {
                Some((_, Reply::Working(Ok(client)))) => {
                    running += 1;
                    self.clients.extend(client.map(|accounts| *accounts));
                }
                Some((_, Reply::Working(Err(failure)) | Reply::Started(Err(failure)))) => {
                    return Err(failure);
                }
                // It ended before all loads ran; its failure says why.
                Some((_, Reply::Finished(done))) => {
                    return Err(done.failure.unwrap_or_else(|| failed("it ended early".into())));
                }
                Some(_) => {}
                None if Instant::now() > until => {
                    let seconds = LOADED_DEADLINE.as_secs();
                    return Err(failed(format!("{running} of {} ran after {seconds} s", self.working)));
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Ends the loads, and checks which neighbours are still there.
    pub(crate) fn finish(&mut self, sensors: &mut dyn Sensors, interrupt: &AtomicBool) -> NeighbourResults {
        let used = sensors.neighbours_used();
        sensors.set_neighbours(&[], &[], &[]);
        let all = self.end_loads(interrupt);
        let full = self.memory.take().and_then(MemoryWatch::end);
        self.shares.clear();
        let guests = self.wanted.guests;
        let fewer = match full {
            Some(reason) => Some((guests, reason)),
            None => first_problem(&self.guest_pool, || Request::Check)
                .map(|(well, why)| (well + 1, format!("a neighbour died during the trial: {why}"))),
        };
        let failed = || {
            let reason = all.iter().find_map(|done| done.failure.as_ref())?.reason.clone();
            Some((guests, format!("the load of a neighbour did not last: {reason}")))
        };
        let fewer = fewer.or_else(failed).map(|(up, reason)| TooFewGuests { up, reason, interrupted: false });
        NeighbourResults { all, used, fewer }
    }

    fn end_loads(&mut self, interrupt: &AtomicBool) -> Vec<TaskResult> {
        let Some(RunningTask(task)) = &self.task else { return Vec::new() };
        let grace = if interrupt.load(Ordering::Relaxed) { Duration::ZERO } else { self.grace() };
        let now_ns = monotonic_ns();
        task.stop.stop_by(now_ns.saturating_add(u64::try_from(grace.as_nanos()).unwrap_or(u64::MAX)));
        let until = Instant::now() + grace + ENDED_DEADLINE;
        let mut all = Vec::new();
        while all.len() < self.working as usize && Instant::now() < until {
            if interrupt.load(Ordering::Relaxed) {
                task.stop.stop_by(now_ns);
            }
            if let Some((_, Reply::Finished(done))) = self.guest_pool.receive(POLL) {
                all.push(*done);
            }
        }
        self.working = 0;
        all
    }

    /// How long unfinished runs may continue. A run of the workload itself counts only if it ends;
    /// it takes as long as a measured one, and may just have begun.
    fn grace(&self) -> Duration {
        match (&self.wanted.load, &self.task) {
            (Load::Same, Some(RunningTask(task))) => {
                Duration::try_from_secs_f64(task.plan.deadline_s).unwrap_or(GRACE)
            }
            _ => GRACE,
        }
    }

    /// Stops the neighbours, or freezes them if they stay. Returns what did not end cleanly.
    pub(crate) fn release(mut self, pool: &mut EnvironmentPool<'_>, are_there: bool) -> Vec<String> {
        (self.memory, self.task) = (None, None);
        if !(self.wanted.stay && are_there) {
            return self.guest_pool.stop_all();
        }
        let rests = !self.guest_pool.recipe.can.freeze
            || first_problem(&self.guest_pool, || Request::Freeze).is_none();
        if rests {
            pool.entries[self.home].neighbours = Some(self.guest_pool);
            return Vec::new();
        }
        self.guest_pool.stop_all()
    }

    /// Adds the results of the neighbours to what was measured.
    pub(crate) fn add_results(
        &self,
        ended: &NeighbourResults,
        workload: &WorkloadPlan,
        measured: &mut Measured,
    ) {
        if let Some(observed) = measured.observed.as_mut().filter(|_| self.wanted.shares == Shares::Limits) {
            // The plan asks for this limit, so the throttling is not noise of the host.
            (observed.throttled_periods, observed.throttled_ns) = (0, 0);
        }
        ended.add_to(workload, self.wanted.guests, measured);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_stay_off_the_cpus_of_both_environments() {
        assert_eq!(used_by_either(&[0, 1], &[1, 2]), [0, 1, 2]);
        assert_eq!(used_by_either(&[0], &[0]), [0]);
        assert!(used_by_either(&[], &[1]).is_empty() && used_by_either(&[1], &[]).is_empty());
    }

    /// `containerd` serves both; `dockerd` serves the neighbours alone, and is named by each.
    #[test]
    fn daemons_that_serve_the_neighbours_alone_count_as_theirs() {
        let daemon = |name: &str, pid| Process { name: name.into(), pid };
        let of = |daemons: &[Process]| Accounts { daemons: daemons.to_vec(), ..Accounts::default() };
        let neighbour = of(&[daemon("dockerd", 7), daemon("containerd", 3)]);
        let measured = of(&[daemon("containerd", 3)]);
        let own = own_daemons(&[neighbour.clone(), neighbour.clone()], &measured).unwrap();
        assert_eq!((own.helpers.as_slice(), own.daemons.len()), (&[daemon("dockerd", 7)][..], 0));
        assert_eq!(own_daemons(std::slice::from_ref(&neighbour), &neighbour), None);
    }

    #[test]
    fn time_with_neighbours_is_a_guess_upwards() {
        let of = |guests, load| WorkloadPlan {
            neighbours: Some(Neighbours {
                guests,
                load,
                shares: Shares::Equal,
                environment: None,
                stay: false,
            }),
            ..WorkloadPlan::of("u", Vec::new(), Vec::new())
        };
        assert_eq!(with_neighbours_s(&of(1, Load::Idle), 2.0), 2.0);
        assert!((with_neighbours_s(&of(11, Load::Idle), 2.0) - 3.0).abs() < 1e-9, "ten come up");
        assert!((with_neighbours_s(&of(3, Load::Same), 2.0) - 6.2).abs() < 1e-9, "and three share a CPU");
    }
}
