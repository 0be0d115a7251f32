//! Pools of guests: started at once, one after the other in lanes, or beside a measured one.

use super::system::init_ns;
use super::{StartOutcome, Window, add_used, median_ns, not_launched, since, used_by};
use crate::neighbours::work::{Task, TaskResult, work};
use crate::pool::{EnvironmentPool, Recipe};
use crate::trial::{Failure, describe};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle, ScopedJoinHandle};
use std::time::Duration;
use weigh_host::accounts::Accounts;
use weigh_host::clock::monotonic_ns;
use weigh_model::{Charge, FailureKind, stamps};
use weigh_platforms::Guest;

/// Enough for a driver; for two hundred threads the default of 8 MiB would reserve too much.
const STACK_BYTES: usize = 1 << 20;

/// When a guest of the pool came up, host's monotonic clock, nanoseconds.
pub(crate) struct StartedGuest {
    /// The start of its first program or, at a fixed pace, the moment at which that was due.
    begun_ns: u64,
    init_ns: u64,
}

/// Several guests that start.
#[derive(Debug, Clone, Copy)]
pub(super) struct Starts {
    pub guests: u32,
    /// From one start to the next, nanoseconds; none if all start at once.
    pub apart_ns: Option<u64>,
    /// The time that each guest may take for its init.
    pub deadline: Duration,
}

/// A request to the thread of a guest. When the channel closes, the thread stops its guest.
pub(crate) enum Request {
    /// Launches the guest, at a moment of the host's monotonic clock, nanoseconds, if there is one.
    Start {
        due_ns: Option<u64>,
    },
    Account,
    /// Works until the task's stop token is set.
    Work(Arc<Task>),
    /// Checks whether the guest still answers.
    Check,
    Freeze,
    Thaw,
    /// Stops the guest, whatever requests follow.
    Stop,
}

/// The reply to each request. [`Request::Work`] has two, [`Reply::Working`] and at the end
/// [`Reply::Finished`]; [`Request::Stop`] has none.
pub(crate) enum Reply {
    Started(Result<StartedGuest, Failure>),
    Charged(Charge, Box<Accounts>),
    /// The load runs, with the accounts of its client outside of the guest, if it has one.
    Working(Result<Option<Box<Accounts>>, Failure>),
    Finished(Box<TaskResult>),
    /// Why the guest can no longer be used, if it cannot.
    Checked(Option<String>),
}

/// What to do while all guests are up, given their accounts. It adds to the outcome.
pub(super) type WhileUp<'a> = dyn FnMut(&[Accounts], &mut StartOutcome) -> Result<(), Failure> + 'a;

/// Starts guests at once or at a fixed pace, each from its own thread, and stops them at once.
pub(super) fn start_all(
    pool: &mut EnvironmentPool<'_>,
    environment: usize,
    recipe: Recipe,
    Starts { guests, apart_ns, deadline }: Starts,
    while_up: &mut WhileUp<'_>,
) -> Result<StartOutcome, Failure> {
    let recipe = Arc::new(recipe);
    let mut guest_pool = GuestPool::new(Arc::clone(&recipe), deadline);
    for _ in 0..guests {
        guest_pool.add()?;
    }
    let window = Window::open(pool, environment, &recipe.request);
    let before = own_bytes();
    let first_ns = monotonic_ns();
    for number in 0..guests {
        let due_ns = apart_ns.map(|apart_ns| first_ns + u64::from(number) * apart_ns);
        guest_pool.send(number, Request::Start { due_ns });
    }
    let (ups, failure) = gather(&guest_pool.replies, guests);
    let outcome = match (failure, ups.is_empty()) {
        (None, false) => {
            let after = own_bytes();
            note_bookkeeping(&recipe, guests, before, after);
            let (used, accounts) = guest_pool.account();
            let observed = window.close(pool, used);
            if let Some(last) = accounts.last() {
                pool.entries[environment].daemons.clone_from(&last.daemons);
            }
            let mut outcome = StartOutcome { observed, guests, ..described(&ups) };
            while_up(&accounts, &mut outcome).map(|()| outcome)
        }
        (failure, _) => {
            window.abandon(pool);
            Err(failure.unwrap_or_else(|| Failure::new(FailureKind::Launch, "no guest was asked for")))
        }
    };
    let asked_ns = monotonic_ns();
    let complaints = guest_pool.stop_all();
    let ended_ns = monotonic_ns();
    outcome.map(|mut outcome| {
        outcome.put(stamps::ALL_STOP, since(asked_ns, ended_ns));
        outcome.bracket.1 = ended_ns;
        outcome.complaints = complaints;
        outcome
    })
}

/// Guests with a thread each. They are stopped when the pool is dropped.
pub(crate) struct GuestPool {
    pub(crate) recipe: Arc<Recipe>,
    deadline: Duration,
    threads: Vec<GuestThread>,
    reply: Sender<(u32, Reply)>,
    pub(crate) replies: Receiver<(u32, Reply)>,
}

impl GuestPool {
    /// Makes a pool without guests. Each may take `deadline` for its init.
    pub(crate) fn new(recipe: Arc<Recipe>, deadline: Duration) -> Self {
        let (reply, replies) = channel();
        Self { recipe, deadline, threads: Vec::new(), reply, replies }
    }

    /// Adds the thread of a guest that has yet to be started, and returns its number.
    pub(crate) fn add(&mut self) -> Result<u32, Failure> {
        let number = self.len();
        let life = (Arc::clone(&self.recipe), number, self.deadline, self.reply.clone());
        self.threads.push(GuestThread::new(life)?);
        Ok(number)
    }

    pub(crate) fn len(&self) -> u32 {
        self.threads.len() as u32
    }

    /// Sends a request to every thread. Returns how many received it: one that panicked does not.
    pub(crate) fn broadcast(&self, request: impl Fn() -> Request) -> u32 {
        self.threads.iter().filter(|thread| thread.send(request())).count() as u32
    }

    /// Sends a request to one thread, and returns whether it received it.
    pub(crate) fn send(&self, number: u32, request: Request) -> bool {
        self.threads.get(number as usize).is_some_and(|thread| thread.send(request))
    }

    /// The channels through which other threads can send requests.
    pub(crate) fn request_channels(&self) -> Vec<Sender<Request>> {
        self.threads.iter().filter_map(|thread| thread.requests.clone()).collect()
    }

    /// The next reply, or none if it does not come in time.
    pub(crate) fn receive(&self, timeout: Duration) -> Option<(u32, Reply)> {
        self.replies.recv_timeout(timeout).ok()
    }

    /// The CPU use of all guests until now, and their accounts.
    pub(crate) fn account(&self) -> (Charge, Vec<Accounts>) {
        let sent = self.broadcast(|| Request::Account);
        add_up(&self.replies, sent)
    }

    /// Stops all guests. Returns what did not end cleanly.
    pub(crate) fn stop_all(&mut self) -> Vec<String> {
        // All are told to stop before the first is waited for.
        for requests in self.threads.iter_mut().filter_map(|thread| thread.requests.take()) {
            // Others may hold the channel open; a thread that has ended needs no request.
            let _ = requests.send(Request::Stop);
        }
        self.threads.drain(..).filter_map(GuestThread::join).collect()
    }
}

impl Drop for GuestPool {
    fn drop(&mut self) {
        // What did not end cleanly stays in the ledger.
        self.stop_all();
    }
}

/// The thread that starts and stops one guest. It lives as long as the guest, because a program
/// with a parent-death signal is killed when the thread that started it ends.
struct GuestThread {
    requests: Option<Sender<Request>>,
    thread: JoinHandle<Option<String>>,
}

impl GuestThread {
    fn new(life: (Arc<Recipe>, u32, Duration, Sender<(u32, Reply)>)) -> Result<Self, Failure> {
        let (requests, received) = channel();
        let (recipe, number, deadline, reply) = life;
        let thread = Builder::new()
            .name(format!("guest-{number}"))
            .stack_size(STACK_BYTES)
            .spawn(move || live(&recipe, number, deadline, &received, &reply))
            .map_err(|error| {
                Failure::new(FailureKind::Preparation, format!("cannot start a thread per guest: {error}"))
            })?;
        Ok(Self { requests: Some(requests), thread })
    }

    fn send(&self, request: Request) -> bool {
        self.requests.as_ref().is_some_and(|requests| requests.send(request).is_ok())
    }

    fn join(self) -> Option<String> {
        self.thread.join().unwrap_or_else(|_| Some("a launching thread panicked".into()))
    }
}

/// The thread of a guest. Returns what did not end cleanly.
fn live(
    recipe: &Recipe,
    number: u32,
    deadline: Duration,
    requests: &Receiver<Request>,
    reply: &Sender<(u32, Reply)>,
) -> Option<String> {
    let mut guest: Option<Box<dyn Guest>> = None;
    let _told_of_panics = PanicReply(number, reply);
    while let Ok(request) = requests.recv() {
        let answer = match (request, &mut guest) {
            (Request::Start { due_ns }, _) => {
                Reply::Started(start(recipe, number, due_ns, deadline, &mut guest))
            }
            (Request::Stop, _) => break,
            (Request::Account, Some(guest)) => {
                let (charge, accounts) = used_by(&**guest);
                Reply::Charged(charge, Box::new(accounts))
            }
            (Request::Account, None) => Reply::Charged(Charge::default(), Box::default()),
            (Request::Work(task), Some(guest)) => {
                let runs = |outcome| {
                    let _ = reply.send((number, Reply::Working(outcome)));
                };
                Reply::Finished(Box::new(work(&mut **guest, recipe, number, &task, runs)))
            }
            (Request::Work(_), None) => {
                let nothing = || Failure::new(FailureKind::Launch, NOT_UP);
                let _ = reply.send((number, Reply::Working(Err(nothing()))));
                Reply::Finished(Box::new(TaskResult::failed(nothing())))
            }
            (Request::Check, Some(guest)) => Reply::Checked(problem_of(&mut **guest)),
            (Request::Freeze, Some(guest)) => {
                Reply::Checked(guest.freeze().err().map(|error| describe(&error)))
            }
            (Request::Thaw, Some(guest)) => Reply::Checked(guest.thaw().err().map(|error| describe(&error))),
            (Request::Check | Request::Freeze | Request::Thaw, None) => Reply::Checked(Some(NOT_UP.into())),
        };
        // If nobody receives any more, the request channel is about to close, too.
        let _ = reply.send((number, answer));
    }
    let error = guest.as_mut()?.stop().err()?;
    Some(format!("one of the guests did not end cleanly: {}", describe(&error)))
}

fn start(
    recipe: &Recipe,
    number: u32,
    due_ns: Option<u64>,
    deadline: Duration,
    guest: &mut Option<Box<dyn Guest>>,
) -> Result<StartedGuest, Failure> {
    if let Some(due_ns) = due_ns {
        std::thread::sleep(Duration::from_nanos(since(monotonic_ns(), due_ns)));
    }
    let mut launched = recipe.launch(number).map_err(|error| not_launched(&error))?;
    let init_ns = init_ns(&mut *launched, &recipe.can, deadline)?;
    // A start that comes late, because the earlier ones take the CPUs, is part of what they cost.
    let started = StartedGuest { begun_ns: due_ns.unwrap_or_else(|| launched.spawned_ns()), init_ns };
    *guest = Some(launched);
    Ok(started)
}

const NOT_UP: &str = "its guest is not up";

/// Why a guest can no longer be used, if it cannot.
fn problem_of(guest: &mut dyn Guest) -> Option<String> {
    let error = guest.session().clock().err()?;
    let said = describe(&error);
    guest.session().is_lost().then(|| match guest.exit_reason() {
        Some(why) => format!("{said}; {why}"),
        None => said,
    })
}

/// Replies when its thread panics, so that nobody waits for the thread in vain.
struct PanicReply<'a>(u32, &'a Sender<(u32, Reply)>);

impl Drop for PanicReply<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let failure = Failure::new(FailureKind::Launch, "a launching thread panicked");
            let _ = self.1.send((self.0, Reply::Started(Err(failure))));
        }
    }
}

/// Collects the replies of all guests to [`Request::Start`], and the first failure.
fn gather(replies: &Receiver<(u32, Reply)>, guests: u32) -> (Vec<StartedGuest>, Option<Failure>) {
    let (mut ups, mut failure, mut failed) = (Vec::new(), None, 0);
    for (_, answer) in replies.iter().take(guests as usize) {
        match answer {
            Reply::Started(Ok(up)) => ups.push(up),
            Reply::Started(Err(one)) => {
                failed += 1;
                failure = failure.or(Some(one));
            }
            Reply::Charged(..) | Reply::Working(_) | Reply::Finished(_) | Reply::Checked(_) => {}
        }
    }
    if failure.is_none() && ups.len() < guests as usize {
        failure = Some(Failure::new(FailureKind::Launch, "a launching thread panicked"));
    }
    let failure = failure.map(|mut failure| {
        failure.reason =
            format!("{failed} of {guests} guests did not come up, the first: {}", failure.reason);
        failure
    });
    (ups, failure)
}

fn add_up(replies: &Receiver<(u32, Reply)>, guests: u32) -> (Charge, Vec<Accounts>) {
    let (mut all, mut known) = (Charge::default(), Vec::new());
    for (_, answer) in replies.iter().take(guests as usize) {
        if let Reply::Charged(charge, accounts) = answer {
            add_used(&mut all, charge);
            known.push(*accounts);
        }
    }
    (all, known)
}

fn described(ups: &[StartedGuest]) -> StartOutcome {
    let mut own: Vec<u64> = ups.iter().map(|up| since(up.begun_ns, up.init_ns)).collect();
    own.sort_unstable();
    let first_ns = ups.iter().map(|up| up.begun_ns).min().unwrap_or(0);
    let last_ns = ups.iter().map(|up| up.init_ns).max().unwrap_or(0);
    let mut outcome = StartOutcome { bracket: (first_ns, last_ns), ..StartOutcome::default() };
    outcome.duration_ns = since(first_ns, last_ns);
    outcome.put(stamps::ALL_INIT, outcome.duration_ns);
    outcome.put(stamps::INIT, median_ns(&own));
    outcome.put(stamps::SLOWEST_INIT, own[own.len() - 1]);
    outcome
}

/// Starts and stops guests in lanes as fast as possible.
pub(super) fn churn(
    pool: &mut EnvironmentPool<'_>,
    environment: usize,
    recipe: &Recipe,
    concurrency: u32,
    guests: u32,
) -> Result<StartOutcome, Failure> {
    let window = Window::open(pool, environment, &recipe.request);
    let (next, failed) = (AtomicU32::new(0), AtomicBool::new(false));
    let lane = || -> Result<(), Failure> {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= guests || failed.load(Ordering::Relaxed) {
                return Ok(());
            }
            let mut guest = recipe.launch(number).map_err(|error| not_launched(&error))?;
            guest.stop().map_err(|error| Failure::new(FailureKind::GuestDied, describe(&error)))?;
        }
    };
    let started_ns = monotonic_ns();
    let results: Vec<Result<(), Failure>> = std::thread::scope(|scope| {
        let run = || lane().inspect_err(|_| failed.store(true, Ordering::Relaxed));
        let lanes: Vec<_> = (0..concurrency)
            .map(|number| {
                let name = format!("lane-{number}");
                Builder::new().name(name).stack_size(STACK_BYTES).spawn_scoped(scope, run)
            })
            .collect();
        let join = |lane: std::io::Result<ScopedJoinHandle<'_, Result<(), Failure>>>| match lane {
            Ok(thread) => thread
                .join()
                .unwrap_or_else(|_| Err(Failure::new(FailureKind::Launch, "a launching thread panicked"))),
            Err(error) => {
                let reason = format!("cannot start a thread per lane: {error}");
                Err(Failure::new(FailureKind::Preparation, reason))
            }
        };
        lanes.into_iter().map(join).collect()
    });
    let ended_ns = monotonic_ns();
    let mut observed = window.close(pool, Charge::default());
    // What the guests used is gone with them, and softirqs alone are not their CPU time.
    observed.charge.softirq_ns = 0;
    results.into_iter().collect::<Result<Vec<()>, Failure>>()?;
    let mut outcome =
        StartOutcome { observed, guests, bracket: (started_ns, ended_ns), ..StartOutcome::default() };
    outcome.duration_ns = since(started_ns, ended_ns);
    let seconds = outcome.duration_ns.max(1) as f64 * 1e-9;
    outcome.values.insert(stamps::RATE.into(), f64::from(guests) / seconds);
    Ok(outcome)
}

/// Proportional set size of weighbridge itself, bytes (`proc_pid_smaps(5)`).
fn own_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// Notes how much memory weighbridge itself needed per guest. This is for weighbridge's developers,
/// and not a result.
fn note_bookkeeping(recipe: &Recipe, guests: u32, before: Option<u64>, after: Option<u64>) {
    let (Some(before), Some(after)) = (before, after) else { return };
    let line = format!(
        "{}: {guests} guests up; weigh itself grew from {before} to {after} bytes, {} bytes per guest\n",
        recipe.request.environment,
        after.saturating_sub(before) / u64::from(guests.max(1))
    );
    let path = recipe.host.logs.join("bookkeeping.log");
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    // A note that cannot be written is not worth a run.
    let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
}
