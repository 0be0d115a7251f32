//! `gups`: random updates of a large table, as in HPCC RandomAccess.
//!
//! Update number i (from 0) is `table[x & (words - 1)] ^= x` where x is element i + 1 of the
//! sequence 1, x, x^2, ... of polynomials over GF(2) modulo x^64 + x^2 + x + 1 (POLY = 7). Threads
//! and the streams inside a thread jump into that sequence, so that together they do exactly its
//! first updates. Threads do not exclude each other: an update may be lost if two threads update a
//! word at the same time. Afterwards the updates are repeated without races, which undoes them.
//! Words that do not have their first value again are errors, and more than 1 % of them fail the
//! check.

use crate::clock::{now_ns, seconds_since};
use crate::kernel::{Kernel, KernelError};
use crate::marks::{Marks, TeamMarks};
use crate::memory::{HUGE_PAGES, Region, state_huge_pages, wants_huge_pages};
use crate::options::{OptionSpec, Options};
use crate::outcome::Outcome;
use crate::team::{Member, THREADS, Team};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use weigh_model::PieceStatistic;

/// x^64 = x^2 + x + 1.
const POLY: u64 = 7;

/// Independent streams in a thread, within the 1024 updates that HPCC lets a process look ahead.
const STREAMS: usize = 128;

/// Rounds of all streams in a piece of the endless form: 65536 updates of a thread, below 2 ms.
const PIECE_ROUNDS: u64 = 512;

/// The least number of updates after which several threads meet to repair the table: meeting more
/// often would take more time than the updates do.
const LEAST_UNREPAIRED: u64 = 1 << 17;

/// The share of words that may be wrong under the rules of HPCC.
const MOST_WRONG: f64 = 0.01;

/// Words in a page: threads first touch whole pages.
const GRAIN: usize = 512;

pub(super) static KERNEL: Kernel = Kernel {
    name: "gups",
    summary: "random updates of a large table (HPCC RandomAccess)",
    operation: "update",
    check: "the updates, run a second time without races, restore all but at most 1 % of the table",
    options: &[
        OptionSpec::bytes("table-bytes", "64MiB").help("bytes of the table, rounded down to a power of two"),
        OptionSpec::count("updates", "0").help("number of updates; 0: 4 per word"),
        THREADS,
        HUGE_PAGES,
    ],
    metrics: &[("rate", "update/s")],
    run,
    endless: Some((PieceStatistic::Mean, endless)),
};

/// The next element of the sequence: multiplication by x.
#[inline(always)]
fn step(element: u64) -> u64 {
    // All ones when the top bit is set, without a branch: the bit is random.
    let carry = (element as i64 >> 63) as u64;
    (element << 1) ^ (carry & POLY)
}

/// The product of two elements: the element whose place is the sum of their places.
fn multiply(first: u64, second: u64) -> u64 {
    let (mut product, mut shifted) = (0, first);
    for bit in 0..64 {
        product ^= if second >> bit & 1 == 1 { shifted } else { 0 };
        shifted = step(shifted);
    }
    product
}

/// Element `n` of the sequence (element 0 is 1), found by squaring: HPCC calls this `starts`.
fn element(n: u64) -> u64 {
    let (mut result, mut power) = (1, 2);
    let mut rest = n;
    while rest > 0 {
        if rest & 1 == 1 {
            result = multiply(result, power);
        }
        power = multiply(power, power);
        rest >>= 1;
    }
    result
}

/// The elements of a range of updates, taken from 128 places of the sequence in turn.
///
/// The elements of the streams are independent of each other, so that the CPU can have many memory
/// accesses in flight.
struct Walk {
    streams: [u64; STREAMS],
    /// Rounds of all streams, those that are done and those that are left.
    done: u64,
    left: u64,
    /// The place of the final updates, which are too few for a round, and how many are left.
    place: u64,
    rest: u64,
}

impl Walk {
    fn new(range: Range<u64>) -> Self {
        let left = (range.end - range.start) / STREAMS as u64;
        // Each stream begins where the one before it ends.
        let (mut place, jump) = (step(element(range.start)), element(left));
        let mut streams = [0u64; STREAMS];
        for stream in &mut streams {
            *stream = place;
            place = multiply(place, jump);
        }
        Self { streams, done: 0, left, place, rest: (range.end - range.start) % STREAMS as u64 }
    }

    /// Continues for `rounds` rounds, or to the end of the range. Calls `update` with each element
    /// and its successor in its stream, and returns the number of updates.
    #[inline(always)]
    fn go(&mut self, rounds: u64, mut update: impl FnMut(u64, u64)) -> u64 {
        let rounds = rounds.min(self.left);
        for _ in 0..rounds {
            for stream in &mut self.streams {
                let next = step(*stream);
                update(*stream, next);
                *stream = next;
            }
        }
        self.done += rounds;
        self.left -= rounds;
        let rest = if self.left == 0 { std::mem::take(&mut self.rest) } else { 0 };
        for _ in 0..rest {
            let next = step(self.place);
            update(self.place, next);
            self.place = next;
        }
        rounds * STREAMS as u64 + rest
    }

    fn is_over(&self) -> bool {
        self.left == 0 && self.rest == 0
    }
}

/// Calls `update` for each of the updates `range`, with its element and the successor in its
/// stream.
#[inline(always)]
fn each_element(range: Range<u64>, update: impl FnMut(u64, u64)) {
    Walk::new(range).go(u64::MAX, update);
}

/// Prefetches the cache line of `word`, where there is an instruction for it: WebAssembly has none.
#[inline(always)]
fn prefetch(word: &AtomicU64) {
    #[cfg(target_family = "wasm")]
    let _ = word;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has the instruction, and it changes nothing that a program can see.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(word.as_ptr().cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: every aarch64 has the instruction, and it changes nothing that a program can see.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{word}]", word = in(reg) word.as_ptr(), options(nostack, readonly));
    }
}

/// Does an update. It is not a single atomic operation: the update of another thread in between is
/// lost, as the rules allow.
#[inline(always)]
fn xor(word: &AtomicU64, element: u64) {
    word.store(word.load(Ordering::Relaxed) ^ element, Ordering::Relaxed);
}

struct Table {
    region: Region,
    words: usize,
}

impl Table {
    fn map(bytes: u64, huge: bool) -> Result<Self, KernelError> {
        let words = 1u64 << (bytes / 8).ilog2();
        let length = usize::try_from(words * 8)
            .map_err(|_| KernelError::usage("`--table-bytes`: the table is longer than the address space"))?;
        Ok(Self { region: Region::map(length, huge)?, words: length / 8 })
    }

    /// The words are atomic, so that updates of several threads are not undefined behaviour, and
    /// accessed in relaxed order, which costs nothing.
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the region is zeroed memory of that many words, aligned, and only ever seen
        // through this slice.
        unsafe { std::slice::from_raw_parts(self.region.start().cast(), self.words) }
    }
}

fn run(options: &Options) -> Result<Outcome, KernelError> {
    measure(options, |_| ())
}

/// `spoil` is called between the updates and their check; only tests change anything there.
fn measure(options: &Options, spoil: impl Fn(&[AtomicU64]) + Sync) -> Result<Outcome, KernelError> {
    let job = Job::new(options)?;
    let results = job.team.run(|member| job.work(&member, &spoil))?;
    let (time, _) = results[0];

    let mut outcome = Outcome::new();
    outcome.metric("rate", job.updates as f64 / time, "update/s");
    outcome.operations = job.updates;
    outcome.warn_when_short("the updates", time);
    job.conclude(&mut outcome, results.iter().map(|(_, errors)| errors).sum(), 1);
    Ok(outcome)
}

fn endless(options: &Options, marks: &mut Marks) -> Result<Outcome, KernelError> {
    update_endlessly(options, marks, |_| ())
}

/// Runs the endless form. `spoil` is as in [`measure`], and is also called before every repair.
fn update_endlessly(
    options: &Options,
    marks: &mut Marks,
    spoil: impl Fn(&[AtomicU64]) + Sync,
) -> Result<Outcome, KernelError> {
    let job = Job::new(options)?;
    let marks = TeamMarks::new(marks);
    let errors = job.team.run(|member| job.work_endlessly(&member, &marks, &spoil))?;
    let mut outcome = Outcome::new();
    outcome.operations = marks.total();
    let sum = |of: fn(&Errors) -> u64| errors.iter().map(of).sum::<u64>();
    let laps = errors.iter().map(|errors| errors.left_laps).max().unwrap_or(1);
    job.conclude(&mut outcome, sum(|errors| errors.left), laps);
    // All members count the same laps.
    let (repaired, laps) = (sum(|errors| errors.repaired), errors[0].repaired_laps);
    if laps > 0 {
        outcome.fact("repaired_words", repaired);
        outcome.fact("repaired_laps", laps);
        let share = repaired as f64 / laps as f64 / job.table.words as f64;
        if share > MOST_WRONG {
            let percent = share * 100.0;
            outcome.checked(
                false,
                format!("{percent:.4} % of the words were wrong after each lap, allowed 1 %"),
            );
        }
    }
    Ok(outcome)
}

/// Words that were found wrong in a member's part of the table.
#[derive(Debug, Default)]
struct Errors {
    /// Words that were wrong at the end, and the laps since the last repair.
    left: u64,
    left_laps: u64,
    /// Words that were wrong before, and the laps until then.
    repaired: u64,
    repaired_laps: u64,
}

/// What the options ask for.
struct Job {
    team: Team,
    huge: bool,
    table: Table,
    updates: u64,
}

impl Job {
    fn new(options: &Options) -> Result<Self, KernelError> {
        let team = Team::of(options)?;
        let huge = wants_huge_pages(options);
        let table = Table::map(options.at_least("table-bytes", 4096)?, huge)?;
        let updates = options.or("updates", 4 * table.words as u64);
        Ok(Self { team, huge, table, updates })
    }

    /// Reports facts and check, after `laps` laps through the updates in which threads met.
    fn conclude(&self, outcome: &mut Outcome, errors: u64, laps: u64) {
        self.team.state(outcome);
        outcome.fact("table_bytes", self.table.words * 8);
        outcome.fact("updates", self.updates);
        outcome.fact("streams_per_thread", STREAMS);
        state_huge_pages(outcome, [&self.table.region], self.huge);
        let share = errors as f64 / self.table.words as f64;
        let allowed = MOST_WRONG * laps as f64;
        outcome.checked(
            share <= allowed,
            format!(
                "{errors} of {} words are wrong after the updates were undone ({:.4} %), allowed {} %",
                self.table.words,
                share * 100.0,
                allowed * 100.0
            ),
        );
    }

    /// The range of words that a member fills and checks.
    fn words_of(&self, member: &Member<'_>) -> Range<usize> {
        member.share(self.table.words, GRAIN.min(self.table.words))
    }

    /// Fills the words of a member, and returns its range of updates.
    fn begin(&self, member: &Member<'_>) -> Range<u64> {
        for index in self.words_of(member) {
            self.table.words()[index].store(index as u64, Ordering::Relaxed);
        }
        let share = |index: usize| (u128::from(self.updates) * index as u128 / member.threads as u128) as u64;
        share(member.index)..share(member.index + 1)
    }

    /// Returns the seconds of the updates, and the errors in this member's part of the table.
    fn work(&self, member: &Member<'_>, spoil: impl Fn(&[AtomicU64])) -> (f64, u64) {
        let range = self.begin(member);
        member.barrier.wait();
        let start = now_ns();
        each_element(range, updating(self.table.words()));
        member.barrier.wait();
        let time = seconds_since(start);
        (time, self.errors(member, spoil))
    }

    /// Does the updates again and again, and returns the errors in this member's part of the table.
    ///
    /// The second lap through the updates undoes the first. Threads lose each other's updates in
    /// every lap. So after some pairs of laps all members meet, count the wrong words and repair
    /// them: a long run then ends with no more wrong words than a short one.
    fn work_endlessly(
        &self,
        member: &Member<'_>,
        marks: &TeamMarks<'_>,
        spoil: impl Fn(&[AtomicU64]),
    ) -> Errors {
        let words = self.table.words();
        let range = self.begin(member);
        let laps_until_repair = 2 * LEAST_UNREPAIRED.div_ceil(2 * self.updates);
        let (mut walk, mut laps) = (Walk::new(range.clone()), 0u64);
        let mut errors = Errors::default();
        marks.ready(member);
        loop {
            let done = walk.go(PIECE_ROUNDS, updating(words));
            if walk.is_over() {
                walk = Walk::new(range.clone());
                laps += 1;
            }
            let stopped = marks.done(member, "rate", done);
            let repairs = member.threads > 1 && laps == laps_until_repair;
            // If one member is told to end, all others meet it here and are told as well.
            if (stopped || repairs) && marks.finish_turn(member, "rate") {
                break;
            }
            if repairs {
                errors.repaired += self.repair(member, &spoil);
                errors.repaired_laps += laps;
                laps = 0;
                marks.ready(member);
            }
        }
        // Now every update must be in the table, so that the check undoes all of them.
        errors.left_laps = laps;
        if laps.is_multiple_of(2) {
            walk.go(u64::MAX, updating(words));
            errors.left_laps += 1;
        } else if walk.done > 0 {
            Walk::new(range).go(walk.done, updating(words));
            errors.left_laps += 2;
        }
        member.barrier.wait();
        errors.left = self.errors(member, spoil);
        errors
    }

    /// Repairs this member's part of the table, at a moment when all updates are undone.
    fn repair(&self, member: &Member<'_>, spoil: impl Fn(&[AtomicU64])) -> u64 {
        if member.index == 0 {
            spoil(self.table.words());
        }
        member.barrier.wait();
        put_right(self.table.words(), self.words_of(member))
    }

    /// Undoes the updates and returns the errors in this member's part of the table.
    fn errors(&self, member: &Member<'_>, spoil: impl Fn(&[AtomicU64])) -> u64 {
        let (words, own) = (self.table.words(), self.words_of(member));
        if member.index == 0 {
            spoil(words);
        }
        member.barrier.wait();
        undo(&words[own.clone()], own.start, words.len() - 1, self.updates);
        put_right(words, own)
    }
}

/// Repairs the words of a range and returns how many were wrong.
fn put_right(words: &[AtomicU64], range: Range<usize>) -> u64 {
    range.map(|index| u64::from(words[index].swap(index as u64, Ordering::Relaxed) != index as u64)).sum()
}

/// Returns a function that does an update in a table whose length is a power of two.
#[inline(always)]
fn updating(table: &[AtomicU64]) -> impl FnMut(u64, u64) {
    let mask = table.len() - 1;
    // SAFETY: the mask is the length less one, and the length a power of two.
    let word = move |element: u64| unsafe { table.get_unchecked(element as usize & mask) };
    move |element, next| {
        prefetch(word(next));
        xor(word(element), element);
    }
}

/// Repeats all updates, but only those of the words in `own`, which begins at word `first`. Each
/// thread has a part of the table to itself, so no update is lost.
fn undo(own: &[AtomicU64], first: usize, mask: usize, updates: u64) {
    let elsewhere = AtomicU64::new(0);
    let word = |element: u64| own.get((element as usize & mask).wrapping_sub(first)).unwrap_or(&elsewhere);
    each_element(0..updates, |element, next| {
        prefetch(word(next));
        xor(word(element), element);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::marks::tests::marks_of;
    use std::time::Duration;

    /// A table of 32768 words.
    fn options(line: &str) -> Options {
        KERNEL.options_of(&format!("--table-bytes 256KiB {line}"))
    }

    #[test]
    fn jumps_equal_steps() {
        let mut stepped = 1;
        for n in 0..2000 {
            assert_eq!(element(n), stepped, "element {n}");
            stepped = step(stepped);
        }
        assert_eq!(element(64), 7);
        // The order of the sequence as the HPCC rules state it.
        assert_eq!(element(1_317_624_576_693_539_401), 1);
    }

    #[test]
    fn streams_do_exactly_the_first_updates_of_the_sequence() {
        for (start, end) in [(0, 1000), (17, 18), (5, 133), (1000, 2024)] {
            let mut seen = Vec::new();
            each_element(start..end, |element, next| {
                assert_eq!(next, step(element));
                seen.push(element);
            });
            let mut expected: Vec<_> = (start..end).map(|n| element(n + 1)).collect();
            seen.sort_unstable();
            expected.sort_unstable();
            assert_eq!(seen, expected);
        }
    }

    #[test]
    fn one_thread_makes_no_errors() {
        let outcome = run(&options("--threads 1 --updates 100001")).unwrap();
        assert!(
            outcome.check.passed && outcome.check.statement.starts_with("0 of 32768"),
            "{:?}",
            outcome.check
        );
        assert!(outcome.value("rate").unwrap() > 0.0);
    }

    #[test]
    fn several_threads_pass_and_share_the_table() {
        let outcome = run(&options("--threads 3")).unwrap();
        assert!(outcome.check.passed, "{:?}", outcome.check);
        assert_eq!(outcome.facts["updates"], 4 * 32768);
    }

    #[test]
    fn two_percent_of_wrong_words_fail_the_check() {
        let spoil = |words: usize| {
            measure(&options("--threads 2 --updates 1000"), |table: &[AtomicU64]| {
                for word in &table[..words] {
                    word.fetch_xor(1, Ordering::Relaxed);
                }
            })
            .unwrap()
        };
        assert!(!spoil(32768 / 50).check.passed);
        assert!(spoil(32768 / 200).check.passed);
    }

    #[test]
    fn endless_updates_are_undone_wherever_they_end() {
        // A lap has two pieces and a remainder of updates, or fewer updates than there are streams.
        for (updates, threads) in [(131_100, 1), (131_100, 3), (100, 1), (1, 2)] {
            for pieces in [1, 2, 3, 4, 5, 6, 7] {
                let line = options(&format!("--threads {threads} --updates {updates}"));
                let (mut marks, printed) = marks_of(Duration::ZERO, pieces);
                let outcome = update_endlessly(&line, &mut marks, |_| ()).unwrap();
                assert!(outcome.check.passed, "{updates} {threads} {pieces}: {:?}", outcome.check);
                if threads == 1 {
                    assert!(outcome.check.statement.starts_with("0 of 32768"), "{:?}", outcome.check);
                }
                let reported = printed.text();
                let amounts = reported.lines().filter_map(|line| line.strip_prefix("mark rate="));
                let sum: u64 = amounts.map(|amount| amount.parse::<u64>().unwrap()).sum();
                assert_eq!(sum, outcome.operations);
            }
        }
        // The words that a lap loses are repaired, so they do not accumulate.
        // In a large table two threads rarely meet, however they are scheduled.
        const LARGE: &str = "--threads 2 --table-bytes 4MiB --updates 131072";
        const WORDS: usize = 4 << 17;
        let repaired = |words: usize| {
            let (mut marks, printed) = marks_of(Duration::ZERO, 40);
            let line = KERNEL.options_of(LARGE);
            let outcome = update_endlessly(&line, &mut marks, |table| {
                table[..words].iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
            });
            assert!(printed.text().lines().filter(|line| *line == "mark").count() > 10);
            outcome.unwrap()
        };
        let outcome = repaired(WORDS / 400);
        assert!(outcome.check.passed, "{:?}", outcome.check);
        let [words, laps] = ["repaired_words", "repaired_laps"].map(|f| outcome.facts[f].as_u64().unwrap());
        assert!(laps > 20 && words > WORDS as u64 / 100, "{:?}", outcome.facts);
        assert!(!repaired(WORDS / 30).check.passed);
        let (mut marks, _) = marks_of(Duration::ZERO, 2);
        let spoilt = update_endlessly(&KERNEL.options_of(LARGE), &mut marks, |table| {
            table[..WORDS / 20].iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
        });
        assert!(!spoilt.unwrap().check.passed);
    }

    #[test]
    fn the_table_is_a_power_of_two() {
        let outcome = Table::map(100_000, false).unwrap();
        assert_eq!(outcome.words, 8192);
        assert!(run(&KERNEL.options_of("--table-bytes 100")).is_err());
    }
}
