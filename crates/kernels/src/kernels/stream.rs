//! `stream`: sustainable memory bandwidth by McCalpin's rules.
//!
//! Four loops run over arrays of doubles far larger than the caches. Arrays are first touched by
//! the thread that uses them. The best of N repetitions counts, without the first. Bytes are
//! counted as STREAM counts them (what the program reads and writes, never the line that a regular
//! store reads first). The arrays are validated at the end.

mod loops;

use crate::clock::{now_ns, seconds_since};
use crate::kernel::{Kernel, KernelError};
use crate::machine::{Vector, last_level_cache_bytes};
use crate::marks::{Marks, TeamMarks};
use crate::memory::{HUGE_PAGES, Region, state_huge_pages, wants_huge_pages};
use crate::options::{OptionSpec, Options};
use crate::outcome::Outcome;
use crate::team::{Member, THREADS, Team};
use loops::Loops;
use std::ops::Range;
use weigh_model::PieceStatistic;

/// The last-level cache that is assumed if the machine does not report one.
const ASSUMED_CACHE: u64 = 32 << 20;

/// Bytes by which the arrays are shifted against each other, so that the same element of two arrays
/// does not compete for the same cache set and memory bank.
const SHIFT: usize = 8 << 10;

/// Doubles in a page: threads meet at page boundaries only.
const GRAIN: usize = 512;

/// sqrt(2) - 1: one round multiplies the arrays by 2s + s^2 = 1, so that any number of repetitions
/// stays finite.
const SCALAR: f64 = std::f64::consts::SQRT_2 - 1.0;

/// McCalpin's tolerance for doubles: the mean relative error of an array.
const TOLERANCE: f64 = 1e-13;

/// Doubles of each array in a piece of the endless form, for each thread: 2 MiB, about 1 ms.
const PIECE: usize = 1 << 18;

/// The loops in the order of the endless form. Each entry runs passes until a mark is printed.
/// Triad, which counts most, has at least half of the time: its three entries move 9 arrays, and
/// one of each of the others 7 in all.
const ROUND: [usize; 6] = [0, 1, 2, 3, 3, 3];

const NAMES: [&str; 4] = ["copy", "scale", "add", "triad"];

/// Arrays that each loop reads and writes.
const STREAMS: [usize; 4] = [2, 2, 3, 3];

pub(super) static KERNEL: Kernel = Kernel {
    name: "stream",
    summary: "sustainable memory bandwidth: copy, scale, add, triad",
    operation: "byte moved",
    check: "every element of the three arrays has the value that the loops must give, to a mean relative error of 1e-13",
    options: &[
        OptionSpec::bytes("array-bytes", "0")
            .help("bytes of each of the three arrays; 0: 4 x the last-level caches in use"),
        OptionSpec::count("repetitions", "10").help("repetitions of each loop; the first is not counted"),
        THREADS,
        OptionSpec::choice("vector", &["auto", "portable", "sse2", "avx2", "avx512f"])
            .help("vector instructions; auto: the widest of the CPU"),
        OptionSpec::choice("stores", &["non-temporal", "regular"])
            .help("non-temporal stores avoid reading the line that they overwrite"),
        HUGE_PAGES,
    ],
    metrics: &[("copy", "B/s"), ("scale", "B/s"), ("add", "B/s"), ("triad", "B/s")],
    run,
    endless: Some((PieceStatistic::Median, endless)),
};

/// The three arrays, in one mapping.
struct Arrays {
    region: Region,
    length: usize,
}

impl Arrays {
    fn map(bytes: u64, huge: bool) -> Result<Self, KernelError> {
        let too_long =
            || crate::UsageError(format!("`--array-bytes {bytes}` is longer than the address space"));
        let length = usize::try_from(bytes / 8).map_err(|_| too_long())?;
        let total = length
            .checked_mul(24)
            .and_then(|total| total.checked_add(3 * SHIFT + 3 * 4096))
            .ok_or_else(too_long)?;
        Ok(Self { region: Region::map(total, huge)?, length })
    }

    /// The first element of array 0, 1 or 2: aligned to a page, valid for `length` doubles.
    fn array(&self, which: usize) -> *mut f64 {
        let stride = (self.length * 8).next_multiple_of(4096) + SHIFT;
        // SAFETY: three strides are within the length that was mapped.
        unsafe { self.region.start().add(which * stride).cast() }
    }
}

fn run(options: &Options) -> Result<Outcome, KernelError> {
    measure(options, |_| ())
}

/// `spoil` is called between the loops and the validation; only tests change anything there.
fn measure(options: &Options, spoil: impl Fn(&Arrays) + Sync) -> Result<Outcome, KernelError> {
    let repetitions = options.at_least("repetitions", 2)? as usize;
    let job = Job::new(options)?;
    let arrays = &job.arrays;
    let results = job.team.run(|member| job.work(&member, repetitions, &spoil))?;

    let mut outcome = Outcome::new();
    let times = &results[0].times;
    for (which, name) in NAMES.iter().enumerate() {
        let best = times[which].iter().skip(1).copied().fold(f64::INFINITY, f64::min);
        outcome.metric(*name, (arrays.length * 8 * STREAMS[which]) as f64 / best, "B/s");
    }
    let streams: usize = STREAMS.iter().sum();
    outcome.operations = (arrays.length * 8) as u64 * (streams * repetitions) as u64;
    job.state(&mut outcome);
    outcome
        .warn_when_short("the shortest test", times.iter().flatten().copied().fold(f64::INFINITY, f64::min));
    let errors = results.iter().map(|share| share.errors);
    validate(&mut outcome, errors, arrays.length, expected_values(repetitions));
    Ok(outcome)
}

fn endless(options: &Options, marks: &mut Marks) -> Result<Outcome, KernelError> {
    pass_endlessly(options, marks, |_| ())
}

/// Runs the endless form. `spoil` is as in [`measure`].
fn pass_endlessly(
    options: &Options,
    marks: &mut Marks,
    spoil: impl Fn(&Arrays) + Sync,
) -> Result<Outcome, KernelError> {
    let job = Job::new(options)?;
    let marks = TeamMarks::new(marks);
    let results = job.team.run(|member| job.work_endlessly(&member, &marks, &spoil))?;
    let mut outcome = Outcome::new();
    outcome.operations = marks.total();
    job.state(&mut outcome);
    let (expected, _) = results[0];
    validate(&mut outcome, results.iter().map(|(_, errors)| *errors), job.arrays.length, expected);
    Ok(outcome)
}

/// What the options ask for.
struct Job {
    team: Team,
    /// The last-level caches in use, if the machine reports them.
    cache: Option<u64>,
    vector: Vector,
    loops: Loops,
    non_temporal: bool,
    huge: bool,
    /// Requested length of an array.
    bytes: u64,
    arrays: Arrays,
}

impl Job {
    fn new(options: &Options) -> Result<Self, KernelError> {
        let team = Team::of(options)?;
        let cache = last_level_cache_bytes(&team.cpus()[..team.threads().min(team.cpus().len())]);
        let bytes = options.or("array-bytes", 4 * cache.unwrap_or(ASSUMED_CACHE));
        let least = 8 * GRAIN as u64;
        if bytes < least {
            let message = format!("`--array-bytes {bytes}` is too small; the least is {least}");
            return Err(KernelError::usage(message));
        }
        let vector = Vector::choose(options.text("vector"))?;
        let (loops, non_temporal) = Loops::choose(vector, options.text("stores") == "non-temporal");
        let huge = wants_huge_pages(options);
        let arrays = Arrays::map(bytes, huge)?;
        Ok(Self { team, cache, vector, loops, non_temporal, huge, bytes, arrays })
    }

    /// Reports facts, and warnings that follow from them.
    fn state(&self, outcome: &mut Outcome) {
        self.team.state(outcome);
        outcome.fact("vector", self.vector.name());
        outcome.fact("stores", if self.non_temporal { "non-temporal" } else { "regular" });
        outcome.fact("array_bytes", self.arrays.length * 8);
        outcome.fact("last_level_cache_bytes", self.cache);
        state_huge_pages(outcome, [&self.arrays.region], self.huge);
        warn_of_sizes(outcome, self.bytes, self.cache);
    }
}

fn warn_of_sizes(outcome: &mut Outcome, bytes: u64, cache: Option<u64>) {
    match cache {
        None => outcome
            .warn("the size of the last-level cache is not known here, so that the arrays may be too small"),
        Some(cache) if bytes < 4 * cache => outcome.warn(format!(
            "arrays of {} are smaller than 4 x the last-level cache of {}: this is not memory bandwidth",
            weigh_model::format_bytes(bytes),
            weigh_model::format_bytes(cache)
        )),
        Some(_) => {}
    }
}

/// The results of one thread.
struct Share {
    /// Seconds of each repetition of each loop, from the first thread's clock.
    times: [Vec<f64>; 4],
    /// Sums of the absolute errors of its part of each array.
    errors: [f64; 3],
}

impl Job {
    fn work(&self, member: &Member<'_>, repetitions: usize, spoil: impl Fn(&Arrays)) -> Share {
        let part = member.share(self.arrays.length, GRAIN);
        self.fill(&part);
        let mut times = [const { Vec::new() }; 4];
        times.iter_mut().for_each(|times| times.reserve(repetitions));
        for _ in 0..repetitions {
            for (which, times) in times.iter_mut().enumerate() {
                member.barrier.wait();
                let start = now_ns();
                self.pass(which, &part);
                member.barrier.wait();
                times.push(seconds_since(start));
            }
        }
        let errors = self.errors(member, &part, expected_values(repetitions), spoil);
        Share { times, errors }
    }

    /// Runs loop after loop until the work must end. Returns the value that one element of each
    /// array must then have, and the errors of this member's part.
    ///
    /// The target of a loop is never one of its sources, so a second pass of the same loop changes
    /// nothing: the values depend only on the order of the loops.
    fn work_endlessly(
        &self,
        member: &Member<'_>,
        marks: &TeamMarks<'_>,
        spoil: impl Fn(&Arrays),
    ) -> ([f64; 3], [f64; 3]) {
        let part = member.share(self.arrays.length, GRAIN);
        self.fill(&part);
        let mut expected = FIRST_VALUES;
        marks.ready(member);
        for which in ROUND.into_iter().cycle() {
            apply(which, &mut expected);
            // A pass that has begun is finished, or the values would differ.
            let met = loop {
                for start in part.clone().step_by(PIECE) {
                    let piece = start..part.end.min(start + PIECE);
                    self.pass(which, &piece);
                    marks.done(member, NAMES[which], (piece.len() * 8 * STREAMS[which]) as u64);
                }
                let met = marks.meet(member, NAMES[which]);
                if met.turn_is_over {
                    break met;
                }
            };
            if met.work_is_over {
                break;
            }
        }
        (expected, self.errors(member, &part, expected, spoil))
    }

    /// The address of a part of an array.
    fn place(&self, which: usize, part: &Range<usize>) -> *mut f64 {
        debug_assert!(part.end <= self.arrays.length);
        // SAFETY: members take parts that lie within the arrays.
        unsafe { self.arrays.array(which).add(part.start) }
    }

    fn fill(&self, part: &Range<usize>) {
        for (which, value) in FIRST_VALUES.into_iter().enumerate() {
            // SAFETY: this part of the array belongs to this thread, and no reference to it is
            // alive.
            unsafe { std::slice::from_raw_parts_mut(self.place(which, part), part.len()) }.fill(value);
        }
    }

    /// Runs a loop over part of the arrays that begins at a page and belongs to this thread.
    fn pass(&self, which: usize, part: &Range<usize>) {
        let [a, b, c] = [0, 1, 2].map(|array| self.place(array, part));
        let (first, second, target) = [(a, a, c), (c, c, b), (a, b, c), (b, c, a)][which];
        // SAFETY: the elements of `part` belong to this thread; the target is none of the sources;
        // all are aligned to a page. `Loops::choose` saw that the CPU has the instructions.
        unsafe { self.loops.run(which, first, second, target, part.len(), SCALAR) };
    }

    /// Sums of the absolute errors of this member's part of each array.
    fn errors(
        &self,
        member: &Member<'_>,
        part: &Range<usize>,
        expected: [f64; 3],
        spoil: impl Fn(&Arrays),
    ) -> [f64; 3] {
        member.barrier.wait();
        if member.index == 0 {
            spoil(&self.arrays);
        }
        member.barrier.wait();
        [0, 1, 2].map(|which| {
            // SAFETY: this part belongs to this thread; nobody writes any more.
            let part =
                unsafe { std::slice::from_raw_parts(self.place(which, part).cast_const(), part.len()) };
            part.iter().map(|value| (value - expected[which]).abs()).sum()
        })
    }
}

/// The value of one element of each array before the first loop.
const FIRST_VALUES: [f64; 3] = [1.0, 2.0, 0.0];

/// Applies a loop to one element of each array.
fn apply(which: usize, [a, b, c]: &mut [f64; 3]) {
    match which {
        0 => *c = *a,
        1 => *b = SCALAR * *c,
        2 => *c = *a + *b,
        _ => *a = *b + SCALAR * *c,
    }
}

/// The value of one element of each array after all repetitions.
fn expected_values(repetitions: usize) -> [f64; 3] {
    let mut values = FIRST_VALUES;
    for which in (0..repetitions).flat_map(|_| 0..NAMES.len()) {
        apply(which, &mut values);
    }
    values
}

fn validate(
    outcome: &mut Outcome,
    errors: impl Iterator<Item = [f64; 3]> + Clone,
    length: usize,
    expected: [f64; 3],
) {
    let errors = [0, 1, 2].map(|which| {
        let sum: f64 = errors.clone().map(|errors| errors[which]).sum();
        sum / length as f64 / expected[which].abs()
    });
    let worst = errors
        .iter()
        .copied()
        .fold(0.0, |worst: f64, error| if error.is_nan() { error } else { worst.max(error) });
    outcome.checked(
        errors.iter().all(|error| *error < TOLERANCE),
        format!("mean relative error of the worst array {worst:.1e}, allowed {TOLERANCE:.0e}"),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::marks::tests::marks_of;
    use std::time::Duration;

    fn options(line: &str) -> Options {
        KERNEL.options_of(&format!("--array-bytes 200000 --repetitions 3 {line}"))
    }

    #[test]
    fn every_loop_of_this_cpu_gives_the_right_arrays() {
        for (name, vector) in Vector::NAMES {
            if vector > Vector::detect() {
                continue;
            }
            for stores in ["regular", "non-temporal"] {
                for threads in [1, 3] {
                    let outcome =
                        run(&options(&format!("--vector {name} --stores {stores} --threads {threads}")))
                            .unwrap();
                    assert!(outcome.check.passed, "{name} {stores} {threads}: {:?}", outcome.check);
                    assert!(KERNEL.metrics.iter().all(|(name, _)| outcome.value(name).unwrap() > 0.0));
                }
            }
        }
    }

    #[test]
    fn endless_passes_end_with_the_right_arrays_wherever_they_end() {
        for threads in [1, 3] {
            for pieces in [1, 2, 5, 9] {
                // A pass of one thread has two pieces, the second of which is shorter.
                let line = KERNEL.options_of(&format!("--array-bytes 3000000 --threads {threads}"));
                let (mut marks, printed) = marks_of(Duration::ZERO, pieces);
                let outcome = pass_endlessly(&line, &mut marks, |_| ()).unwrap();
                assert!(outcome.check.passed, "{threads} {pieces}: {:?}", outcome.check);
                let printed = printed.text();
                if threads == 1 {
                    // The pass that has begun is finished.
                    let lines = 1 + pieces.next_multiple_of(2) as usize;
                    let names = printed.lines().map(|line| line.split(['=', ' ']).nth(1).unwrap_or_default());
                    let passes = ["copy", "scale", "add", "triad", "triad", "triad"];
                    let expected = std::iter::once("").chain(passes.iter().flat_map(|name| [*name; 2]));
                    assert!(names.eq(expected.take(lines)), "{printed}");
                }
                let amounts = printed.lines().filter_map(|line| line.split_once('='));
                let sum: u64 = amounts.map(|(_, amount)| amount.parse::<u64>().unwrap()).sum();
                assert_eq!(sum, outcome.operations);
            }
        }
        let (mut marks, _) = marks_of(Duration::from_secs(9), 3);
        let spoilt = pass_endlessly(&options("--threads 2"), &mut marks, |arrays| {
            // SAFETY: within the array; the other threads wait at the barrier.
            unsafe { *arrays.array(0) += 1e-3 };
        });
        assert!(!spoilt.unwrap().check.passed);
    }

    #[test]
    fn many_repetitions_stay_finite() {
        assert!(expected_values(100_000).iter().all(|value| (0.1..10.0).contains(value)));
    }

    #[test]
    fn one_wrong_element_fails_the_check() {
        for which in 0..3 {
            let outcome = measure(&options("--threads 2"), |arrays| {
                // SAFETY: within the array; the other threads wait at the barrier.
                unsafe { *arrays.array(which).add(arrays.length - 1) += 1e-3 };
            })
            .unwrap();
            assert!(!outcome.check.passed, "array {which}: {:?}", outcome.check);
        }
        let outcome = measure(&options(""), |arrays| {
            // SAFETY: as above.
            unsafe { *arrays.array(0) = f64::NAN };
        });
        assert!(!outcome.unwrap().check.passed);
    }

    #[test]
    fn small_arrays_are_warned_of() {
        let outcome = run(&options("--threads 1")).unwrap();
        assert!(outcome.warnings.iter().any(|warning| warning.contains("cache")), "{:?}", outcome.warnings);
    }
}
