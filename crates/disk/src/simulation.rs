//! A simulated machine: its disk loses what was not synced, its processes die between any two
//! steps, and one seed decides all of it.
//!
//! The files are real ones, in a directory in memory, so that paths, links, locks and rights mean
//! what the kernel says. Beside them the simulation keeps what would be on the medium
//! (`shadow.rs`). When the power fails, the simulation draws at random what is left, and writes
//! that to the directory. The model is the weakest that fsync(2) and rename(2) allow:
//!
//! - Content that was not synced may be lost, kept, or kept in part, sector by sector and in any
//!   order; lost sectors within a file read as zeros. ext4 with `data=ordered` writes back the
//!   content of blocks that it has just allocated before it commits the length
//!   (Documentation/filesystems/ext4 of the kernel), but blocks that the file had before may come
//!   later, so a file may end in zeros there, too.
//! - Names that were not synced may be lost, kept, or kept in part, in any order: "calling fsync()
//!   does not necessarily ensure that the entry in the directory containing the file has also
//!   reached disk" (fsync(2)). File systems with one journal (ext4, XFS) keep the changes up to
//!   some point; this case is drawn as often as the others. A rename within a directory happens or
//!   does not.
//! - A sync that fails is reported once. What it should have written may be lost, and later syncs
//!   succeed nevertheless (the kernel marks the pages clean; Rebello et al., USENIX ATC 2020).
//!
//! Old content of other files never shows up (`data=writeback` would allow it), and what was synced
//! is never lost.

mod shadow;

use crate::Step;
use rand_pcg::Pcg64;
use shadow::{Id, Shadow, below};
use std::cell::RefCell;
use std::fs::TryLockError;
use std::io::{self, ErrorKind, Seek, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// How often faults happen: once in this many steps on average, or never if 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Faults {
    /// The process is killed.
    pub kill: usize,
    /// The power fails, for all processes; four times as often before a sync as before other steps.
    pub power: usize,
    /// The step fails with EIO.
    pub error: usize,
    /// The disk becomes full; it has room again after about eight steps.
    pub full: usize,
    /// A write takes only a part of its bytes.
    pub short: usize,
    /// A sync fails with EIO.
    pub sync: usize,
    /// Another process runs.
    pub switch: usize,
}

/// A promise that the disk breaks, which tests must notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrokenPromise {
    /// Syncs of files write nothing.
    FileSync,
    /// Syncs of directories write nothing.
    DirectorySync,
    /// Short writes report that they wrote everything.
    Write,
    /// Everybody gets every lock.
    Lock,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It returned by itself.
    Returned,
    /// It was killed, or the power failed.
    Killed,
}

/// A machine with a disk.
#[derive(Debug, Clone)]
pub struct Machine(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    root: PathBuf,
    state: Mutex<State>,
    turned: Condvar,
}

#[derive(Debug)]
struct State {
    shadow: Shadow,
    random: Pcg64,
    faults: Faults,
    lie: Option<BrokenPromise>,
    is_full: bool,
    has_power: bool,
    /// Which processes have not ended.
    running: Vec<bool>,
    /// The process whose turn it is to take steps.
    turn: usize,
    boot: u64,
    /// The wall clock, seconds since 1970.
    clock_s: i64,
    history: Option<Vec<String>>,
}

/// The panic payload that unwinds the stack of a killed process.
struct Killed;

impl State {
    /// Whether something happens that has a chance of one in `one_in`.
    fn happens(&mut self, one_in: impl FnOnce(&Faults) -> usize) -> bool {
        let one_in = one_in(&self.faults);
        one_in > 0 && below(&mut self.random, one_in) == 0
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(history) = &mut self.history {
            history.push(text());
        }
    }

    /// Lets one of the other processes that run take its steps. Returns whether there is one.
    fn turn_from(&mut self, process: usize) -> bool {
        let others: Vec<usize> =
            (0..self.running.len()).filter(|it| self.running[*it] && *it != process).collect();
        if others.is_empty() {
            return false;
        }
        self.turn = others[below(&mut self.random, others.len())];
        true
    }
}

/// A process of the machine, as its thread knows it.
#[derive(Debug, Clone)]
struct Process {
    shared: Arc<Shared>,
    number: usize,
}

thread_local! {
    static PROCESS: RefCell<Option<Process>> = const { RefCell::new(None) };
}

fn current() -> Option<Process> {
    PROCESS.with_borrow(Clone::clone)
}

impl Machine {
    /// A machine whose disk is an empty directory. Everything that happens to it follows from the
    /// seed. The history is kept only if `told` is set, because that takes most of the time.
    pub fn new(root: &Path, seed: u64, lie: Option<BrokenPromise>, told: bool) -> Self {
        let state = State {
            shadow: Shadow::new(),
            // Neighbouring seeds give unrelated numbers.
            random: Pcg64::new(u128::from(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)) << 64, seed.into()),
            faults: Faults::default(),
            lie,
            is_full: false,
            has_power: true,
            running: Vec::new(),
            turn: 0,
            boot: 1,
            clock_s: 1_790_000_000,
            history: told.then(Vec::new),
        };
        Self(Arc::new(Shared { root: root.into(), state: Mutex::new(state), turned: Condvar::new() }))
    }

    /// Changes the faults from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.0.lock().faults = faults;
    }

    /// A number below `bound`, from the seed.
    pub fn below(&self, bound: usize) -> usize {
        below(&mut self.0.lock().random, bound)
    }

    /// Adds a line to the history.
    pub fn note(&self, text: impl FnOnce() -> String) {
        self.0.lock().note(text);
    }

    /// Every step so far.
    pub fn history(&self) -> Vec<String> {
        self.0.lock().history.clone().unwrap_or_default()
    }

    /// Whether a power failure now would lose nothing of a file.
    pub fn is_durable(&self, path: &Path) -> bool {
        let path = self.0.relative(path).expect("it is on this disk");
        self.0.lock().shadow.is_durable(path)
    }

    /// Runs processes until all have ended, one step of one of them at a time. If the power failed,
    /// the directory then holds what was left on the disk, and the machine has booted again.
    ///
    /// # Errors
    /// The directory differs from what the steps made of it, so somebody bypassed this crate. Files
    /// in directories called `untracked` are ignored.
    ///
    /// # Panics
    /// A process panicked.
    pub fn run<'p>(
        &self,
        faults: Faults,
        untracked: &str,
        processes: Vec<Box<dyn FnOnce() + Send + 'p>>,
    ) -> Result<Vec<End>, String> {
        {
            let mut state = self.0.lock();
            state.faults = faults;
            state.is_full = false;
            state.running = vec![true; processes.len()];
            state.turn = 0;
            // Nobody promises that the wall clock only advances.
            state.clock_s += below(&mut state.random, 20_000) as i64 - 8_000;
        }
        let ends = std::thread::scope(|scope| {
            let threads: Vec<_> = processes
                .into_iter()
                .enumerate()
                .map(|(number, process)| {
                    let shared = Arc::clone(&self.0);
                    scope.spawn(move || Process { shared, number }.live(process))
                })
                .collect();
            let ends =
                threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
            ends.collect()
        });
        let state = &mut *self.0.lock();
        state.shadow.compare(&self.0.root, untracked)?;
        if !std::mem::replace(&mut state.has_power, true) {
            state.shadow.lose_power(&mut state.random);
            empty(&self.0.root);
            state.shadow.write_out(&self.0.root);
            state.boot += 1;
        }
        Ok(ends)
    }
}

/// Removes everything in a directory.
fn empty(directory: &Path) {
    for entry in std::fs::read_dir(directory).expect("the disk is there") {
        let path = entry.expect("the disk can be read").path();
        let removed =
            if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        removed.expect("nobody else uses the disk");
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn relative<'p>(&self, path: &'p Path) -> Option<&'p Path> {
        path.strip_prefix(&self.root).ok()
    }

    fn wait_for_turn<'s>(
        &'s self,
        mut state: MutexGuard<'s, State>,
        process: usize,
    ) -> MutexGuard<'s, State> {
        while state.turn != process && state.has_power {
            state = self.turned.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }
}

impl Process {
    /// Runs a process on its own thread.
    fn live(self, process: impl FnOnce()) -> End {
        let has_power = self.shared.wait_for_turn(self.shared.lock(), self.number).has_power;
        PROCESS.set(Some(self.clone()));
        let ended = match has_power {
            true => catch_unwind(AssertUnwindSafe(process)),
            false => Err(Box::new(Killed) as Box<_>),
        };
        PROCESS.set(None);
        let mut state = self.shared.lock();
        state.running[self.number] = false;
        state.turn_from(self.number);
        self.shared.turned.notify_all();
        drop(state);
        match ended {
            Ok(()) => End::Returned,
            Err(payload) if payload.is::<Killed>() => End::Killed,
            Err(payload) => resume_unwind(payload),
        }
    }

    /// Waits for the turn before a step: others may run first, and the process may end here.
    ///
    /// # Errors
    /// The process is dead, and what its destructors do changes nothing.
    fn arrive(&self, what: impl FnOnce() -> String) -> io::Result<MutexGuard<'_, State>> {
        self.arrive_at(1, what)
    }

    /// Like `arrive`, but the power fails `risk` times as often.
    fn arrive_at(&self, risk: usize, what: impl FnOnce() -> String) -> io::Result<MutexGuard<'_, State>> {
        if std::thread::panicking() {
            return Err(io::Error::other("this process is dead"));
        }
        let mut state = self.shared.lock();
        if state.happens(|faults| faults.switch) && state.turn_from(self.number) {
            self.shared.turned.notify_all();
            state = self.shared.wait_for_turn(state, self.number);
        }
        if state.happens(|_| 8) {
            state.clock_s += 1;
        }
        if state.has_power && state.happens(|faults| faults.power.div_ceil(risk)) {
            state.note(|| "the power fails".into());
            state.has_power = false;
            self.shared.turned.notify_all();
        }
        let is_killed = !state.has_power || state.happens(|faults| faults.kill);
        state.note(|| {
            format!("{}: {}{}", self.number, what(), if is_killed { " - killed before" } else { "" })
        });
        if is_killed {
            drop(state);
            resume_unwind(Box::new(Killed));
        }
        let turns = if state.is_full { 8 } else { state.faults.full };
        if state.happens(|_| turns) {
            state.is_full = !state.is_full;
        }
        Ok(state)
    }
}

fn fail(state: &mut State, kind: ErrorKind) -> io::Error {
    state.note(|| format!("   {kind}"));
    // The error has the system's number, so that callers see it.
    let number = if kind == ErrorKind::StorageFull { ENOSPC } else { EIO };
    io::Error::from_raw_os_error(number)
}

/// Numbers of errno(3) on Linux.
const ENOENT: i32 = 2;
const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// Takes a step of the simulated process that runs on this thread, if there is one.
pub(crate) fn step<T>(step: Step<'_>, real: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let path = match step {
        Step::Look(path) | Step::Open(path) | Step::MakeDirectory(path) => path,
        Step::Link(path, _) | Step::Rename(path, _) | Step::Remove(path) | Step::RemoveDirectory(path) => {
            path
        }
    };
    let Some(process) = current().filter(|process| process.shared.relative(path).is_some()) else {
        return real();
    };
    let relative = |path| process.shared.relative(path).expect("both paths are on this disk");
    let mut state =
        process.arrive(|| format!("{step:?}").replace(&format!("{}/", process.shared.root.display()), ""))?;
    let takes_room = match step {
        Step::Open(path) => state.shadow.find(relative(path)).is_none(),
        Step::MakeDirectory(_) | Step::Link(..) | Step::Rename(..) => true,
        Step::Look(_) | Step::Remove(_) | Step::RemoveDirectory(_) => false,
    };
    if takes_room && state.is_full {
        return Err(fail(&mut state, ErrorKind::StorageFull));
    }
    if state.happens(|faults| faults.error) {
        return Err(fail(&mut state, ErrorKind::Other));
    }
    let result = real();
    if result.is_ok() {
        let shadow = &mut state.shadow;
        match step {
            Step::Look(_) | Step::Open(_) => {}
            Step::MakeDirectory(path) => shadow.make_directory(relative(path)),
            Step::Link(from, to) => shadow.link(relative(from), relative(to)),
            Step::Rename(from, to) => shadow.rename(relative(from), relative(to)),
            Step::Remove(path) | Step::RemoveDirectory(path) => shadow.remove(relative(path)),
        }
    }
    result
}

/// Takes a step that does not concern the disk, such as a change to the host.
///
/// # Panics
/// This thread does not run a simulated process.
pub fn pause(what: &str) {
    if let Some(process) = current() {
        drop(process.arrive(|| what.into()));
    }
}

/// The id of the current boot of the machine; `None` on other threads.
pub fn boot() -> Option<String> {
    current().map(|process| format!("boot-{}", process.shared.lock().boot))
}

/// The wall clock of the machine, seconds since 1970; `None` on other threads.
pub fn clock_s() -> Option<i64> {
    current().map(|process| process.shared.lock().clock_s)
}

/// Syncs a directory of the machine; one above its disk is ignored. `None` on other threads.
pub(crate) fn sync_directory(path: &Path) -> Option<io::Result<()>> {
    let process = current()?;
    let Some(inside) = process.shared.relative(path) else { return Some(Ok(())) };
    let sync = || {
        let mut state = process.arrive(|| format!("sync of the directory {}", inside.display()))?;
        if state.shadow.find(inside).is_none() {
            return Err(io::Error::from_raw_os_error(ENOENT));
        }
        if state.happens(|faults| faults.sync) {
            return Err(fail(&mut state, ErrorKind::Other));
        }
        if state.lie != Some(BrokenPromise::DirectorySync) {
            state.shadow.sync_directory(inside);
        }
        Ok(())
    };
    Some(sync())
}

/// An open file of the machine.
#[derive(Debug)]
pub(crate) struct Simulated {
    process: Process,
    file: Id,
    name: String,
}

/// The simulation's view of a file that has been opened; `None` if it is not on the simulated disk.
pub(crate) fn opened(path: &Path, file: &std::fs::File) -> io::Result<Option<Simulated>> {
    let Some(process) = current() else { return Ok(None) };
    let Some(inside) = process.shared.relative(path) else { return Ok(None) };
    let length = file.metadata()?.len();
    let file = process.shared.lock().shadow.open(inside, length);
    let name = inside.display().to_string();
    Ok(Some(Simulated { process, file, name }))
}

impl Simulated {
    pub(crate) fn write(&self, file: &mut std::fs::File, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.process.arrive(|| format!("write of {} bytes to {}", bytes.len(), self.name))?;
        if state.happens(|faults| faults.error) {
            return Err(fail(&mut state, ErrorKind::Other));
        }
        let is_last = state.happens(|faults| faults.kill);
        let is_short = is_last || state.is_full || state.happens(|faults| faults.short);
        let taken = if is_short { below(&mut state.random, bytes.len() + 1) } else { bytes.len() };
        if taken == 0 && state.is_full {
            return Err(fail(&mut state, ErrorKind::StorageFull));
        }
        let taken = taken.max(usize::from(!is_last));
        if is_short {
            state.note(|| format!("   {taken} of them are written"));
        }
        file.write_all(&bytes[..taken])?;
        let at = file.stream_position()? as usize - taken;
        state.shadow.write(self.file, at, &bytes[..taken]);
        if is_last {
            state.note(|| "   killed".into());
            drop(state);
            resume_unwind(Box::new(Killed));
        }
        Ok(if state.lie == Some(BrokenPromise::Write) { bytes.len() } else { taken })
    }

    pub(crate) fn set_len(&self, file: &std::fs::File, length: u64) -> io::Result<()> {
        let mut state = self.process.arrive(|| format!("cut of {} to {length} bytes", self.name))?;
        if state.happens(|faults| faults.error) {
            return Err(fail(&mut state, ErrorKind::Other));
        }
        file.set_len(length)?;
        state.shadow.set_length(self.file, length as usize);
        Ok(())
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        let mut guard = self.process.arrive_at(4, || format!("sync of {}", self.name))?;
        let state = &mut *guard;
        if state.happens(|faults| faults.sync) {
            state.shadow.fail_sync(self.file, &mut state.random);
            return Err(fail(state, ErrorKind::Other));
        }
        if state.lie != Some(BrokenPromise::FileSync) {
            state.shadow.sync(self.file);
        }
        Ok(())
    }

    pub(crate) fn try_lock(&self, file: &std::fs::File) -> Result<(), TryLockError> {
        let state = self.process.arrive(|| format!("lock of {}", self.name)).map_err(TryLockError::Error)?;
        if state.lie == Some(BrokenPromise::Lock) { Ok(()) } else { file.try_lock() }
    }
}
