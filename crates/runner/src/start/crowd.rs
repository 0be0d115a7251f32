//! Many guests: at once, one after the other in lanes, and beside a measured one.

use super::system::init_ns;
use super::{Came, Window, not_launched, since, used_by};
use crate::fleet::{Fleet, Recipe};
use crate::neighbours::work::{Done, Task, work};
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

/// Enough for a driver; with two hundred threads the usual 8 MiB would be much to reserve.
const STACK_BYTES: usize = 1 << 20;

/// A guest of the crowd that is up.
pub(crate) struct Up {
    spawned_ns: u64,
    init_ns: u64,
}

/// What a member of the crowd is told to do; at the end of the channel it ends its guest.
pub(crate) enum Word {
    Start,
    Account,
    /// Work until the task says that it is over.
    Work(Arc<Task>),
    /// Say whether the guest is there and answers.
    Look,
    Rest,
    Wake,
    /// End the guest, whatever comes after.
    End,
}

/// What it says to each. To [`Word::Work`] it says two things, [`Answer::Works`] and in the end
/// [`Answer::Did`]; to [`Word::End`] nothing.
pub(crate) enum Answer {
    Up(Result<Up, Failure>),
    Used(Charge, Box<Accounts>),
    /// The load runs, with whoever else works for it outside of the guest.
    Works(Result<Option<Box<Accounts>>, Failure>),
    Did(Box<Done>),
    /// Why the guest is of no more use, if it is not.
    Stands(Option<String>),
}

/// What is done with guests that are all up, by whom they are charged to, before they are ended. It
/// adds to what came.
pub(super) type Held<'a> = dyn FnMut(&[Accounts], &mut Came) -> Result<(), Failure> + 'a;

/// Starts guests at once, each from a thread of its own, and ends them at once.
pub(super) fn at_once(
    fleet: &mut Fleet<'_>,
    environment: usize,
    recipe: Recipe,
    guests: u32,
    deadline: Duration,
    held: &mut Held<'_>,
) -> Result<Came, Failure> {
    let recipe = Arc::new(recipe);
    let mut crowd = Crowd::new(Arc::clone(&recipe), deadline);
    for _ in 0..guests {
        crowd.add()?;
    }
    let window = Window::open(fleet, environment, &recipe.request);
    let before = own_bytes();
    crowd.tell(|| Word::Start);
    let (ups, failure) = gather(&crowd.hear, guests);
    let came = match (failure, ups.is_empty()) {
        (None, false) => {
            let after = own_bytes();
            note_bookkeeping(&recipe, guests, before, after);
            let (used, accounts) = crowd.account();
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
    let complaints = crowd.disperse();
    let ended_ns = monotonic_ns();
    came.map(|mut came| {
        came.put(stamps::ALL_STOP, since(asked_ns, ended_ns));
        came.bracket.1 = ended_ns;
        came.complaints = complaints;
        came
    })
}

/// Guests with a thread each. Whatever happens to it, they are ended with it.
pub(crate) struct Crowd {
    pub(crate) recipe: Arc<Recipe>,
    /// For the init of a guest.
    deadline: Duration,
    members: Vec<Member>,
    say: Sender<(u32, Answer)>,
    pub(crate) hear: Receiver<(u32, Answer)>,
}

impl Crowd {
    /// Nobody yet.
    pub(crate) fn new(recipe: Arc<Recipe>, deadline: Duration) -> Self {
        let (say, hear) = channel();
        Self { recipe, deadline, members: Vec::new(), say, hear }
    }

    /// Adds one whose guest is still to be started, and returns its number.
    pub(crate) fn add(&mut self) -> Result<u32, Failure> {
        let number = self.len();
        let life = (Arc::clone(&self.recipe), number, self.deadline, self.say.clone());
        self.members.push(Member::new(life)?);
        Ok(number)
    }

    pub(crate) fn len(&self) -> u32 {
        self.members.len() as u32
    }

    /// Tells everybody something, and returns how many could be told: a thread that panicked takes
    /// no word.
    pub(crate) fn tell(&self, word: impl Fn() -> Word) -> u32 {
        self.members.iter().filter(|member| member.is_told(word())).count() as u32
    }

    /// Tells one something.
    pub(crate) fn tell_one(&self, number: u32, word: Word) -> bool {
        self.members.get(number as usize).is_some_and(|member| member.is_told(word))
    }

    /// By which everybody can be told from another thread.
    pub(crate) fn ears(&self) -> Vec<Sender<Word>> {
        self.members.iter().filter_map(|member| member.tell.clone()).collect()
    }

    /// The next answer, unless none comes for so long.
    pub(crate) fn answer(&self, patience: Duration) -> Option<(u32, Answer)> {
        self.hear.recv_timeout(patience).ok()
    }

    /// What all used until now, and by whom they are charged to.
    pub(crate) fn account(&self) -> (Charge, Vec<Accounts>) {
        let told = self.tell(|| Word::Account);
        add_up(&self.hear, told)
    }

    /// Ends all guests. Returns what did not end cleanly.
    pub(crate) fn disperse(mut self) -> Vec<String> {
        self.end(0)
    }

    /// Ends the last ones, so that these many are left.
    pub(crate) fn end(&mut self, left: usize) -> Vec<String> {
        let mut ended = self.members.split_off(left.min(self.members.len()));
        // All are told before the first is waited for.
        for tell in ended.iter_mut().filter_map(|member| member.tell.take()) {
            // Others may hold the channel open; and who has ended needs no word.
            let _ = tell.send(Word::End);
        }
        ended.into_iter().filter_map(Member::join).collect()
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        // What did not end cleanly stays in the ledger.
        self.end(0);
    }
}

/// The thread that starts and ends one guest. It stays for the guest's life: a program that asked
/// to be killed at the death of whoever started it means the thread.
struct Member {
    tell: Option<Sender<Word>>,
    thread: JoinHandle<Option<String>>,
}

impl Member {
    fn new(life: (Arc<Recipe>, u32, Duration, Sender<(u32, Answer)>)) -> Result<Self, Failure> {
        let (tell, told) = channel();
        let (recipe, number, deadline, say) = life;
        let thread = Builder::new()
            .name(format!("guest-{number}"))
            .stack_size(STACK_BYTES)
            .spawn(move || live(&recipe, number, deadline, &told, &say))
            .map_err(|error| {
                Failure::new(FailureKind::Preparation, format!("cannot start a thread per guest: {error}"))
            })?;
        Ok(Self { tell: Some(tell), thread })
    }

    fn is_told(&self, word: Word) -> bool {
        self.tell.as_ref().is_some_and(|tell| tell.send(word).is_ok())
    }

    fn join(self) -> Option<String> {
        self.thread.join().unwrap_or_else(|_| Some("a launching thread panicked".into()))
    }
}

/// The life of a member. Returns what did not end cleanly.
fn live(
    recipe: &Recipe,
    number: u32,
    deadline: Duration,
    told: &Receiver<Word>,
    say: &Sender<(u32, Answer)>,
) -> Option<String> {
    let mut guest: Option<Box<dyn Guest>> = None;
    let _said = LastWord(number, say);
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
            (Word::End, _) => break,
            (Word::Account, Some(guest)) => {
                let (charge, accounts) = used_by(&**guest);
                Answer::Used(charge, Box::new(accounts))
            }
            (Word::Account, None) => Answer::Used(Charge::default(), Box::default()),
            (Word::Work(task), Some(guest)) => {
                let runs = |outcome| {
                    let _ = say.send((number, Answer::Works(outcome)));
                };
                Answer::Did(Box::new(work(&mut **guest, recipe, number, &task, runs)))
            }
            (Word::Look, Some(guest)) => Answer::Stands(look(&mut **guest)),
            (Word::Rest, Some(guest)) => Answer::Stands(guest.freeze().err().map(|error| describe(&error))),
            (Word::Wake, Some(guest)) => Answer::Stands(guest.thaw().err().map(|error| describe(&error))),
            (Word::Work(_), None) => {
                let nothing = || Failure::new(FailureKind::Launch, NOT_UP);
                let _ = say.send((number, Answer::Works(Err(nothing()))));
                Answer::Did(Box::new(Done::failed(nothing())))
            }
            (Word::Look | Word::Rest | Word::Wake, None) => Answer::Stands(Some(NOT_UP.into())),
        };
        // Nobody listens any more: then the channel ends, too.
        let _ = say.send((number, answer));
    }
    let error = guest.as_mut()?.stop().err()?;
    Some(format!("one of the guests did not end cleanly: {}", describe(&error)))
}

const NOT_UP: &str = "its guest is not up";

/// Why a guest is of no more use, if it is not.
fn look(guest: &mut dyn Guest) -> Option<String> {
    let error = guest.session().clock().err()?;
    let said = describe(&error);
    guest.session().is_lost().then(|| match guest.exit_reason() {
        Some(why) => format!("{said}; {why}"),
        None => said,
    })
}

/// The answer of a thread that panics: the others are not waited for in vain.
struct LastWord<'a>(u32, &'a Sender<(u32, Answer)>);

impl Drop for LastWord<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let failure = Failure::new(FailureKind::Launch, "a launching thread panicked");
            let _ = self.1.send((self.0, Answer::Up(Err(failure))));
        }
    }
}

/// The answers of all to the start, and the first failure.
fn gather(hear: &Receiver<(u32, Answer)>, guests: u32) -> (Vec<Up>, Option<Failure>) {
    let (mut ups, mut failure, mut failed) = (Vec::new(), None, 0);
    for (_, answer) in hear.iter().take(guests as usize) {
        match answer {
            Answer::Up(Ok(up)) => ups.push(up),
            Answer::Up(Err(one)) => {
                failed += 1;
                failure = failure.or(Some(one));
            }
            Answer::Used(..) | Answer::Works(_) | Answer::Did(_) | Answer::Stands(_) => {}
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

fn add_up(hear: &Receiver<(u32, Answer)>, guests: u32) -> (Charge, Vec<Accounts>) {
    let (mut all, mut known) = (Charge::default(), Vec::new());
    for (_, answer) in hear.iter().take(guests as usize) {
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
    recipe: &Recipe,
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

/// Memory that weighbridge itself has, in proportion where it is shared, bytes
/// (`proc_pid_smaps(5)`).
fn own_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// Writes down what weighbridge itself needed per guest. It is of use to those who work on
/// weighbridge, and no result.
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
