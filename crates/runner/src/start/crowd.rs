//! Many guests: at once, and one after the other in lanes.

use super::system::init_ns;
use super::{Came, Window, not_launched, since, used_by};
use crate::fleet::{Fleet, Recipe};
use crate::trial::{Failure, describe};
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::Duration;
use weigh_host::accounts::Accounts;
use weigh_host::clock::monotonic_ns;
use weigh_model::{Charge, FailureKind, stamps};

/// Enough for a driver; with two hundred threads the usual 8 MiB would be much to reserve.
const STACK_BYTES: usize = 1 << 20;

/// A guest of the crowd that is up.
struct Up {
    spawned_ns: u64,
    init_ns: u64,
}

/// What a member of the crowd is told to do, in this order; at the end of the channel it ends its guest.
enum Word {
    Start,
    Account,
}

/// What it says to each.
enum Answer {
    Up(Result<Up, Failure>),
    Used(Charge, Box<Accounts>),
}

/// What is done with guests that are all up, by whom they are charged to, before they are ended. It adds to what came.
pub(super) type Held<'a> = dyn FnMut(&[Accounts], &mut Came) -> Result<(), Failure> + 'a;

/// Starts guests at once, each from a thread of its own, and ends them at once.
pub(super) fn at_once(
    fleet: &mut Fleet<'_>,
    environment: usize,
    recipe: &Recipe<'_>,
    guests: u32,
    deadline: Duration,
    held: &mut Held<'_>,
) -> Result<Came, Failure> {
    std::thread::scope(|scope| {
        let (say, hear) = channel();
        let members: Result<Vec<Member<'_>>, Failure> =
            (0..guests).map(|number| Member::new(scope, recipe, number, deadline, say.clone())).collect();
        // Whoever has been made ends when the others are dropped here.
        let members = members?;
        drop(say);
        let window = Window::open(fleet, environment, &recipe.request);
        let before = own_bytes();
        tell(&members, || Word::Start);
        let (ups, failure) = gather(&hear, guests);
        let came = match (failure, ups.is_empty()) {
            (None, false) => {
                let after = own_bytes();
                note_bookkeeping(recipe, guests, before, after);
                tell(&members, || Word::Account);
                let (used, accounts) = add_up(&hear, guests);
                let observed = window.close(fleet, used);
                if let Some(last) = accounts.last() {
                    fleet.berths[environment].daemons.clone_from(&last.daemons);
                }
                let mut came = Came { observed, guests, ..described(&ups) };
                held(&accounts, &mut came).map(|()| came)
            }
            (failure, _) => {
                window.abandon(fleet);
                Err(failure.unwrap_or_else(|| Failure::new(FailureKind::Launch, "no guest was asked for")))
            }
        };
        let asked_ns = monotonic_ns();
        // All are told before the first is waited for.
        let threads: Vec<_> = members.into_iter().map(|member| member.thread).collect();
        let mut complaints = Vec::new();
        for thread in threads {
            complaints.extend(thread.join().unwrap_or_else(|_| Some("a launching thread panicked".into())));
        }
        let ended_ns = monotonic_ns();
        came.map(|mut came| {
            came.put(stamps::ALL_STOP, since(asked_ns, ended_ns));
            came.bracket.1 = ended_ns;
            came.complaints = complaints;
            came
        })
    })
}

/// The thread that starts and ends one guest. It stays for the guest's life: a program that asked to be killed at the death of whoever
/// started it means the thread.
struct Member<'scope> {
    tell: Sender<Word>,
    thread: ScopedJoinHandle<'scope, Option<String>>,
}

impl<'scope> Member<'scope> {
    fn new<'env>(
        scope: &'scope Scope<'scope, 'env>,
        recipe: &'env Recipe<'env>,
        number: u32,
        deadline: Duration,
        say: Sender<Answer>,
    ) -> Result<Self, Failure> {
        let (tell, told) = channel();
        let thread = Builder::new()
            .name(format!("guest-{number}"))
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, move || live(recipe, number, deadline, &told, &say))
            .map_err(|error| {
                Failure::new(FailureKind::Preparation, format!("cannot start a thread per guest: {error}"))
            })?;
        Ok(Self { tell, thread })
    }
}

/// The life of a member. Returns what did not end cleanly.
fn live(
    recipe: &Recipe<'_>,
    number: u32,
    deadline: Duration,
    told: &Receiver<Word>,
    say: &Sender<Answer>,
) -> Option<String> {
    let mut guest = None;
    let _said = LastWord(say);
    while let Ok(word) = told.recv() {
        let answer = match (word, &mut guest) {
            (Word::Start, _) => Answer::Up(
                recipe.launch(number).map_err(|error| not_launched(&error)).and_then(|mut launched| {
                    let init_ns = init_ns(&mut *launched, &recipe.can, deadline)?;
                    let up = Up { spawned_ns: launched.spawned_ns(), init_ns };
                    guest = Some(launched);
                    Ok(up)
                }),
            ),
            (Word::Account, Some(guest)) => {
                let (charge, accounts) = used_by(&**guest);
                Answer::Used(charge, Box::new(accounts))
            }
            (Word::Account, None) => Answer::Used(Charge::default(), Box::default()),
        };
        // Nobody listens any more: then the channel ends, too.
        let _ = say.send(answer);
    }
    let error = guest.as_mut()?.stop().err()?;
    Some(format!("one of the guests did not end cleanly: {}", describe(&error)))
}

/// The answer of a thread that panics: the others are not waited for in vain.
struct LastWord<'a>(&'a Sender<Answer>);

impl Drop for LastWord<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let failure = Failure::new(FailureKind::Launch, "a launching thread panicked");
            let _ = self.0.send(Answer::Up(Err(failure)));
        }
    }
}

fn tell(members: &[Member<'_>], word: impl Fn() -> Word) {
    for member in members {
        // A thread that panicked takes no word; its join says so.
        let _ = member.tell.send(word());
    }
}

/// The answers of all to the start, and the first failure.
fn gather(hear: &Receiver<Answer>, guests: u32) -> (Vec<Up>, Option<Failure>) {
    let (mut ups, mut failure, mut failed) = (Vec::new(), None, 0);
    for answer in hear.iter().take(guests as usize) {
        match answer {
            Answer::Up(Ok(up)) => ups.push(up),
            Answer::Up(Err(one)) => {
                failed += 1;
                failure = failure.or(Some(one));
            }
            Answer::Used(..) => {}
        }
    }
    if failure.is_none() && ups.len() < guests as usize {
        failure = Some(Failure::new(FailureKind::Launch, "a launching thread panicked"));
    }
    let told = failure.map(|mut failure| {
        failure.reason =
            format!("{failed} of {guests} guests did not come up, the first: {}", failure.reason);
        failure
    });
    (ups, told)
}

fn add_up(hear: &Receiver<Answer>, guests: u32) -> (Charge, Vec<Accounts>) {
    let (mut all, mut known) = (Charge::default(), Vec::new());
    for answer in hear.iter().take(guests as usize) {
        if let Answer::Used(charge, accounts) = answer {
            all.guest_ns += charge.guest_ns;
            for (name, ns) in charge.helpers_ns {
                *all.helpers_ns.entry(name).or_insert(0) += ns;
            }
            known.push(*accounts);
        }
    }
    (all, known)
}

fn described(ups: &[Up]) -> Came {
    let mut own: Vec<u64> = ups.iter().map(|up| since(up.spawned_ns, up.init_ns)).collect();
    own.sort_unstable();
    let first_ns = ups.iter().map(|up| up.spawned_ns).min().unwrap_or(0);
    let last_ns = ups.iter().map(|up| up.init_ns).max().unwrap_or(0);
    let mut came = Came { bracket: (first_ns, last_ns), ..Came::default() };
    came.duration_ns = since(first_ns, last_ns);
    came.put(stamps::ALL_INIT, came.duration_ns);
    came.put(stamps::INIT, (own[(own.len() - 1) / 2] + own[own.len() / 2]) / 2);
    came.put(stamps::SLOWEST_INIT, own[own.len() - 1]);
    came
}

/// Starts and ends guests in lanes as fast as it goes.
pub(super) fn churn(
    fleet: &mut Fleet<'_>,
    environment: usize,
    recipe: &Recipe<'_>,
    concurrency: u32,
    guests: u32,
) -> Result<Came, Failure> {
    let window = Window::open(fleet, environment, &recipe.request);
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
    let observed = window.close(fleet, Charge::default());
    results.into_iter().collect::<Result<Vec<()>, Failure>>()?;
    let mut came = Came { observed, guests, bracket: (started_ns, ended_ns), ..Came::default() };
    came.duration_ns = since(started_ns, ended_ns);
    let seconds = came.duration_ns.max(1) as f64 * 1e-9;
    came.values.insert(stamps::RATE.into(), f64::from(guests) / seconds);
    Ok(came)
}

/// Memory that weighbridge itself has, in proportion where it is shared, bytes (`proc_pid_smaps(5)`).
fn own_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// Writes down what weighbridge itself needed per guest. It is of use to those who work on weighbridge, and no result.
fn note_bookkeeping(recipe: &Recipe<'_>, guests: u32, before: Option<u64>, after: Option<u64>) {
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
