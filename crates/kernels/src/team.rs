//! Threads, each on its own CPU, that start each piece of work together.

use crate::kernel::KernelError;
use crate::machine;
use crate::options::{OptionSpec, Options};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Turns of spinning before a waiting thread goes to sleep: a few milliseconds, so that threads
/// that have a CPU each hardly ever sleep.
const SPINS: u32 = 1 << 18;

/// A barrier that spins before it sleeps. One that sleeps at once costs tens of microseconds per
/// use, a percent of a short STREAM test.
pub(crate) struct Barrier {
    threads: usize,
    /// 0 when threads share CPUs: spinning would keep the others from arriving.
    spins: u32,
    arrived: AtomicUsize,
    round: AtomicUsize,
    broken: AtomicBool,
    sleepers: Mutex<usize>,
    wake: Condvar,
}

impl Barrier {
    fn new(threads: usize, cpus: usize) -> Self {
        Self {
            threads,
            spins: if threads <= cpus { SPINS } else { 0 },
            arrived: AtomicUsize::new(0),
            round: AtomicUsize::new(0),
            broken: AtomicBool::new(false),
            sleepers: Mutex::new(0),
            wake: Condvar::new(),
        }
    }

    /// Returns when all threads have arrived here. What any of them wrote before, all see after.
    pub(crate) fn wait(&self) {
        let round = self.round.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.arrived.store(0, Ordering::Relaxed);
            self.round.store(round.wrapping_add(1), Ordering::Release);
            self.wake_all();
            return;
        }
        let waits = || self.round.load(Ordering::Acquire) == round && !self.broken.load(Ordering::Relaxed);
        let mut spins = 0;
        while waits() && spins < self.spins {
            spins += 1;
            std::hint::spin_loop();
        }
        if waits() {
            let mut sleepers = self.lock();
            *sleepers += 1;
            // Checked under the lock: the thread that ends the round takes the lock after that, and
            // so sees this sleeper.
            while waits() {
                sleepers = self.wake.wait(sleepers).unwrap_or_else(PoisonError::into_inner);
            }
            *sleepers -= 1;
        }
        assert!(!self.broken.load(Ordering::Relaxed), "another thread of the team panicked");
    }

    fn wake_all(&self) {
        if *self.lock() > 0 {
            self.wake.notify_all();
        }
    }

    /// Wakes all waiting threads, now and later, with a panic.
    fn give_up(&self) {
        self.broken.store(true, Ordering::Relaxed);
        self.wake_all();
    }

    /// A thread that panicked left no inconsistent number.
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes the others when a thread of the team panics, so that they do not wait for ever.
struct BreakOnPanic<'a>(&'a Barrier);

impl Drop for BreakOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.give_up();
        }
    }
}

/// What a thread of a team knows about itself.
pub(crate) struct Member<'a> {
    /// Its number, from 0.
    pub(crate) index: usize,
    /// Size of the team.
    pub(crate) threads: usize,
    /// Where the team meets.
    pub(crate) barrier: &'a Barrier,
}

impl Member<'_> {
    /// This member's share of `0..total`, in multiples of `grain` except for the last member.
    pub(crate) fn share(&self, total: usize, grain: usize) -> Range<usize> {
        let edge = |index: usize| {
            if index == self.threads {
                total
            } else {
                // In 128 bits, because total * index could overflow for large arrays on many CPUs.
                let exact = (total as u128 * index as u128 / self.threads as u128) as usize;
                exact / grain * grain
            }
        };
        edge(self.index)..edge(self.index + 1)
    }
}

/// `--threads` of a kernel that runs as a [`Team`].
pub(crate) const THREADS: OptionSpec =
    OptionSpec::count("threads", "0").help("threads; 0: one per usable CPU");

/// The number of threads to run, and their CPUs.
pub(crate) struct Team {
    cpus: Vec<usize>,
    threads: usize,
}

impl Team {
    /// The team that [`THREADS`] specifies.
    pub(crate) fn of(options: &Options) -> Result<Self, KernelError> {
        Self::new(options.within("threads", 0, 65_536, "many")? as usize)
    }

    /// Makes a team. 0 `threads` mean one for each CPU of the affinity mask.
    pub(crate) fn new(threads: usize) -> Result<Self, KernelError> {
        let cpus = machine::allowed_cpus()?;
        let threads = if threads == 0 { cpus.len() } else { threads };
        Ok(Self { cpus, threads })
    }

    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    pub(crate) fn cpus(&self) -> &[usize] {
        &self.cpus
    }

    /// Records threads and CPUs in the facts.
    pub(crate) fn state(&self, outcome: &mut crate::Outcome) {
        outcome.fact("threads", self.threads);
        if !cfg!(target_family = "wasm") {
            outcome.fact("cpus", self.cpus.clone());
        }
        if self.threads > self.cpus.len() {
            outcome.warn(format!("{} threads share {} CPUs", self.threads, self.cpus.len()));
        }
    }

    /// Runs `work` on all threads, each bound to its own CPU (in turn, if there are more threads
    /// than CPUs), and returns their results in the order of their numbers.
    pub(crate) fn run<T: Send>(&self, work: impl Fn(Member<'_>) -> T + Sync) -> Result<Vec<T>, KernelError> {
        let barrier = Barrier::new(self.threads, self.cpus.len());
        let (barrier, work) = (&barrier, &work);
        if cfg!(target_family = "wasm") && self.threads == 1 {
            // WebAssembly has one thread, which is this one.
            return Ok(vec![work(Member { index: 0, threads: 1, barrier })]);
        }
        let start = |index: usize| {
            let cpu = self.cpus[index % self.cpus.len()];
            move || {
                let _guard = BreakOnPanic(barrier);
                if let Err(source) = machine::pin_to(cpu) {
                    barrier.give_up();
                    return Err(KernelError::System { doing: format!("bind a thread to CPU {cpu}"), source });
                }
                Ok(work(Member { index, threads: self.threads, barrier }))
            }
        };
        std::thread::scope(|scope| {
            let mut handles = Vec::with_capacity(self.threads);
            let mut refused = None;
            for index in 0..self.threads {
                match std::thread::Builder::new().spawn_scoped(scope, start(index)) {
                    Ok(handle) => handles.push(handle),
                    Err(source) => {
                        barrier.give_up();
                        refused =
                            Some(KernelError::System { doing: format!("start thread {index}"), source });
                        break;
                    }
                }
            }
            // The thread that failed is the cause, not the panics of those that waited for it.
            let results: Vec<_> = handles.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
            let failed = results.iter().any(|result| matches!(result, Ok(Err(_))));
            match refused {
                Some(error) => Err(error),
                None if failed => Err(results
                    .into_iter()
                    .find_map(|result| result.ok().and_then(Result::err))
                    .expect("a failed result was just seen")),
                None => results
                    .into_iter()
                    .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                    .collect(),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn shares_cover_all_once() {
        for (threads, total, grain) in [(1, 10, 8), (3, 1000, 64), (7, 5, 8), (2, 1 << 40, 512)] {
            let barrier = Barrier::new(1, 1);
            let mut next = 0;
            for index in 0..threads {
                let share = Member { index, threads, barrier: &barrier }.share(total, grain);
                assert_eq!(share.start, next);
                next = share.end;
            }
            assert_eq!(next, total);
        }
    }

    #[test]
    fn threads_meet_even_when_they_outnumber_the_cpus() {
        let team = Team::new(5).unwrap();
        let sum = AtomicU64::new(0);
        let seen = team
            .run(|member| {
                (0..50).all(|round| {
                    sum.fetch_add(1, Ordering::Relaxed);
                    member.barrier.wait();
                    let all_came = sum.load(Ordering::Relaxed) >= (round + 1) * 5;
                    member.barrier.wait();
                    all_came
                })
            })
            .unwrap();
        assert_eq!(seen, [true; 5]);
        assert_eq!(sum.into_inner(), 250);
    }

    #[test]
    #[should_panic(expected = "team")]
    fn a_panic_ends_the_team() {
        let _ = Team::new(2).unwrap().run(|member| {
            assert!(member.index == 0, "a thread of the team fails");
            member.barrier.wait();
        });
    }
}
