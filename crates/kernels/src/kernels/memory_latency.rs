//! `memory-latency`: dependent loads along a random cycle, one pointer per cache line, for a sweep
//! of sizes.
//!
//! The order is a single random cycle over all lines (Sattolo's algorithm), so that no prefetcher
//! can guess the next line and every line of the size is in play.

use crate::clock::{median, now_ns, seconds_since};
use crate::kernel::{Kernel, KernelError};
use crate::machine;
use crate::marks::Marks;
use crate::memory::{HUGE_PAGES, Region, state_huge_pages, wants_huge_pages};
use crate::options::{OptionSpec, Options};
use crate::outcome::Outcome;
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use weigh_model::PieceStatistic;

/// A cache line of x86 and of most aarch64 CPUs.
const LINE: usize = 64;

/// Up to this size the loads come from the first caches and are tens of times as fast, so more of
/// them are timed.
const SMALL: u64 = 1 << 20;
const MORE_WHEN_SMALL: u64 = 20;

/// The size whose latency counts most: the endless form gives it half of its time.
const PRIMARY: u64 = 64 << 20;

/// Loads in a piece of the endless form, of sizes above [`SMALL`]: below 2 ms.
const PIECE_LOADS: u64 = 16_000;

/// The most lines that are read in order before the chase continues: 16 MiB.
const SCANNED: usize = 1 << 18;

/// How many walkers check the cycle at the same time: a single one would wait for memory at every
/// step.
const WALKERS: usize = 32;

pub(super) static KERNEL: Kernel = Kernel {
    name: "memory-latency",
    summary: "time of one dependent load, for a sweep of sizes",
    operation: "load",
    check: "the pointers form one cycle that visits every cache line of the size exactly once",
    options: &[
        OptionSpec::byte_list("sizes", "16KiB,256KiB,4MiB,64MiB,256MiB").help("sizes, separated by commas"),
        OptionSpec::count("loads", "50000").help("loads in one batch; 20 times as many for sizes up to 1MiB"),
        OptionSpec::count("batches", "11").help("batches per size, of which the median is reported"),
        OptionSpec::count("seed", "1").help("seed of the order"),
        HUGE_PAGES,
    ],
    metrics: &[
        ("latency_16KiB", "s"),
        ("latency_256KiB", "s"),
        ("latency_4MiB", "s"),
        ("latency_64MiB", "s"),
        ("latency_256MiB", "s"),
    ],
    run,
    endless: Some((PieceStatistic::Median, endless)),
};

/// One cache line: the next line of the chase, and the number of the walker that starts here, if
/// any.
#[repr(C, align(64))]
struct Line {
    next: *const Line,
    start_of: usize,
    rest: [u8; LINE - 2 * size_of::<usize>()],
}

/// Lines linked in one random cycle.
struct Cycle {
    region: Region,
    lines: usize,
}

impl Cycle {
    fn build(bytes: u64, seed: u64, huge: bool) -> Result<Self, KernelError> {
        let lines = usize::try_from(bytes).unwrap_or(usize::MAX) / LINE;
        if lines < 2 {
            let message = format!("`--sizes`: {bytes} bytes are fewer than two cache lines of {LINE}");
            return Err(KernelError::usage(message));
        }
        let mut cycle = Self { region: Region::map(lines * LINE, huge)?, lines };
        let lines = cycle.lines_mut();
        let first = lines.as_ptr();
        for (index, line) in lines.iter_mut().enumerate() {
            // SAFETY: index is below the number of lines.
            line.next = unsafe { first.add(index) };
        }
        let mut random = Pcg64Mcg::new(u128::from(seed) << 64 | 0x5851_f42d_4c95_7f2d);
        for last in (1..lines.len()).rev() {
            // The high half of a product is uniform to within 2^-32, and needs no division.
            let other = ((u128::from(random.next_u64()) * last as u128) >> 64) as usize;
            let swapped = lines[last].next;
            lines[last].next = lines[other].next;
            lines[other].next = swapped;
        }
        Ok(cycle)
    }

    fn first(&self) -> *const Line {
        self.region.start().cast_const().cast()
    }

    fn lines_mut(&mut self) -> &mut [Line] {
        // SAFETY: the region has room for that many lines, is aligned and zeroed (a null pointer
        // and zeroes are a valid line), and this borrow is the only access to it.
        unsafe { std::slice::from_raw_parts_mut(self.region.start().cast(), self.lines) }
    }

    /// Follows `loads` pointers from `at`, rounded up to whole groups of eight, each without a
    /// branch, and returns the last line.
    fn chase(&self, mut at: *const Line, loads: u64) -> *const Line {
        for _ in 0..loads.div_ceil(8) {
            // SAFETY: every `next` points to a line of the region.
            unsafe {
                at = (*at).next;
                at = (*at).next;
                at = (*at).next;
                at = (*at).next;
                at = (*at).next;
                at = (*at).next;
                at = (*at).next;
                at = (*at).next;
            }
        }
        at
    }

    /// Reads lines in their order in memory, which brings them into the caches much sooner than a
    /// chase.
    fn scan(&self) {
        for index in 0..self.lines.min(SCANNED) {
            // SAFETY: the index is below the number of lines.
            std::hint::black_box(unsafe { (*self.first().add(index)).start_of });
        }
    }

    /// The line that is `loads` pointers after the first line, found one by one.
    fn place_after(&self, loads: u64) -> *const Line {
        let mut at = self.first();
        for _ in 0..loads % self.lines as u64 {
            // SAFETY: every `next` points to a line of the region.
            at = unsafe { (*at).next };
        }
        at
    }

    /// The number of lines on the cycle through the first line, or `None` if the walk does not end
    /// as a cycle must.
    ///
    /// Walkers start at different lines and stop at the start of another. If following walker after
    /// walker leads through all of them and back, then their steps add up to the length of that one
    /// cycle.
    fn length(&mut self) -> Option<usize> {
        let count = self.lines;
        let first = self.first();
        let lines = self.lines_mut();
        let walkers = WALKERS.min(count);
        let starts: Vec<usize> = (0..walkers).map(|walker| walker * (count / walkers)).collect();
        for (walker, start) in starts.iter().enumerate() {
            lines[*start].start_of = walker + 1;
        }
        let index_of =
            |line: *const Line| (line as usize).checked_sub(first as usize).map(|bytes| bytes / LINE);
        let mut at = starts.clone();
        let mut ended = vec![None; walkers];
        let mut steps = 0;
        let mut walking: Vec<usize> = (0..walkers).collect();
        while !walking.is_empty() && steps <= count + walkers {
            steps += walking.len();
            let mut lost = false;
            walking.retain(|walker| match index_of(lines[at[*walker]].next).filter(|index| *index < count) {
                None => {
                    lost = true;
                    false
                }
                Some(index) => {
                    at[*walker] = index;
                    ended[*walker] = lines[index].start_of.checked_sub(1);
                    ended[*walker].is_none()
                }
            });
            if lost {
                return None;
            }
        }
        starts.iter().for_each(|start| lines[*start].start_of = 0);
        let mut walker = 0;
        for met in 1..=walkers {
            walker = ended[walker]?;
            if walker == 0 {
                return (met == walkers).then_some(steps);
            }
        }
        None
    }
}

fn run(options: &Options) -> Result<Outcome, KernelError> {
    measure(options, |_| ())
}

/// `spoil` is called on each cycle before it is checked; only tests change anything there.
fn measure(options: &Options, spoil: impl Fn(&mut Cycle)) -> Result<Outcome, KernelError> {
    let loads = options.at_least("loads", 8)?.next_multiple_of(8);
    let batches = options.at_least("batches", 1)?;
    let sizes = options.numbers("sizes");
    let huge = wants_huge_pages(options);
    let cpus = machine::allowed_cpus()?;
    let mut outcome = Outcome::new();
    bind(&cpus, &mut outcome)?;
    let mut shortest = f64::INFINITY;
    let mut broken = Vec::new();
    for &size in &sizes {
        let name = weigh_model::format_bytes(size);
        let Some(cycle) = build_and_check(options, size, &spoil)? else {
            broken.push(name);
            continue;
        };
        let loads = if size <= SMALL { loads * MORE_WHEN_SMALL } else { loads };
        let warm_loads = loads.min(cycle.lines as u64 * 2).next_multiple_of(8);
        let mut at = cycle.chase(cycle.first(), warm_loads);
        outcome.operations += warm_loads + batches * loads;
        let mut times = Vec::new();
        for _ in 0..batches {
            let start = now_ns();
            at = std::hint::black_box(cycle.chase(at, loads));
            let time = seconds_since(start);
            shortest = shortest.min(time);
            times.push(time / loads as f64);
        }
        outcome.metric(format!("latency_{name}"), median(&times), "s");
        if size == sizes.iter().copied().max().unwrap_or(0) {
            state_huge_pages(&mut outcome, [&cycle.region], huge);
        }
    }
    machine::pin_to_all(&cpus).map_err(KernelError::system("unbind the thread from its CPU"))?;
    outcome.warn_when_short("the shortest batch", shortest);
    let statement = match broken.as_slice() {
        [] => format!("at each of {} sizes the pointers form one cycle through all lines", sizes.len()),
        broken => format!("the pointers do not form a single cycle at {}", broken.join(", ")),
    };
    outcome.checked(broken.is_empty(), statement);
    Ok(outcome)
}

/// Uses a single CPU throughout, because a move to another would empty the caches.
fn bind(cpus: &[usize], outcome: &mut Outcome) -> Result<(), KernelError> {
    machine::pin_to(cpus[0]).map_err(KernelError::system("bind the thread to a CPU"))?;
    if !cfg!(target_family = "wasm") {
        outcome.fact("cpu", cpus[0]);
    }
    outcome.fact("line_bytes", LINE);
    Ok(())
}

/// The cycle of a size; `None` if its pointers are not a single cycle.
fn build_and_check(
    options: &Options,
    size: u64,
    spoil: impl Fn(&mut Cycle),
) -> Result<Option<Cycle>, KernelError> {
    let mut cycle = Cycle::build(size, options.number("seed"), wants_huge_pages(options))?;
    spoil(&mut cycle);
    Ok((cycle.length() == Some(cycle.lines)).then_some(cycle))
}

/// A cycle that is followed without end.
struct Chase {
    metric: String,
    cycle: Cycle,
    piece_loads: u64,
    at: *const Line,
    loads: u64,
}

impl Chase {
    fn new(size: u64, cycle: Cycle) -> Self {
        Self {
            metric: format!("latency_{}", weigh_model::format_bytes(size)),
            piece_loads: if size <= SMALL { PIECE_LOADS * MORE_WHEN_SMALL } else { PIECE_LOADS },
            at: cycle.first(),
            loads: 0,
            cycle,
        }
    }

    fn piece(&mut self) -> f64 {
        self.at = std::hint::black_box(self.cycle.chase(self.at, self.piece_loads));
        self.loads += self.piece_loads;
        self.piece_loads as f64
    }

    /// Brings the size back into the caches, and then reports pieces until its turn is over.
    fn turn(&mut self, marks: &mut Marks) -> Result<(), KernelError> {
        self.cycle.scan();
        self.piece();
        marks.ready();
        let metric = self.metric.clone();
        marks.turn(&metric, || Ok(self.piece()))
    }
}

fn endless(options: &Options, marks: &mut Marks) -> Result<Outcome, KernelError> {
    chase_endlessly(options, marks, |_| ())
}

/// `spoil` is called on each chase before it is checked; only tests change anything there.
fn chase_endlessly(
    options: &Options,
    marks: &mut Marks,
    spoil: impl Fn(&mut Chase),
) -> Result<Outcome, KernelError> {
    let sizes = options.numbers("sizes");
    let cpus = machine::allowed_cpus()?;
    let mut outcome = Outcome::new();
    bind(&cpus, &mut outcome)?;
    let mut chases = Vec::new();
    for &size in &sizes {
        match build_and_check(options, size, |_| ())? {
            Some(cycle) => chases.push(Chase::new(size, cycle)),
            None => {
                let name = weigh_model::format_bytes(size);
                outcome.checked(false, format!("the pointers do not form a single cycle at {name}"));
                return Ok(outcome);
            }
        }
    }
    let largest = sizes.iter().copied().max().unwrap_or(0);
    let place_of = |wanted| sizes.iter().position(|size| *size == wanted);
    let primary = place_of(PRIMARY).or(place_of(largest)).unwrap_or(0);
    let others: Vec<usize> = (0..sizes.len()).filter(|place| *place != primary).collect();
    for round in 0.. {
        chases[primary].turn(marks)?;
        if let Some(other) = others.get(round % others.len().max(1)).filter(|_| !marks.stopped()) {
            chases[*other].turn(marks)?;
        }
        if marks.stopped() {
            break;
        }
    }
    machine::pin_to_all(&cpus).map_err(KernelError::system("unbind the thread from its CPU"))?;
    chases.iter_mut().for_each(spoil);
    outcome.operations = chases.iter().map(|chase| chase.loads).sum();
    if let Some(place) = place_of(largest) {
        state_huge_pages(&mut outcome, [&chases[place].cycle.region], wants_huge_pages(options));
    }
    let lost: Vec<_> = chases
        .iter()
        .filter(|chase| chase.cycle.place_after(chase.loads) != chase.at)
        .map(|chase| chase.metric.as_str())
        .collect();
    let statement = match lost.as_slice() {
        [] => format!(
            "at each of {} sizes the pointers form one cycle through all lines, and the loads ended at the line where that many must end",
            sizes.len()
        ),
        lost => format!("the loads ended at a line where that many must not end: {}", lost.join(", ")),
    };
    outcome.checked(lost.is_empty(), statement);
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::marks::tests::marks_of;
    use std::time::Duration;

    fn options(line: &str) -> Options {
        KERNEL.options_of(&format!("--loads 800 --sizes 128,4KiB,100000 {line}"))
    }

    #[test]
    fn the_cycle_visits_every_line() {
        for bytes in [128, 192, 64 * 33, 1 << 20] {
            let mut cycle = Cycle::build(bytes, 3, false).unwrap();
            assert_eq!(cycle.length(), Some(cycle.lines));
            // The slow way: a single walker that counts its steps.
            let (first, mut at, mut seen) = (cycle.first(), cycle.first(), 0);
            loop {
                // SAFETY: a line of the region.
                at = unsafe { (*at).next };
                seen += 1;
                if at == first {
                    break;
                }
            }
            assert_eq!(seen, cycle.lines);
        }
    }

    #[test]
    fn another_seed_gives_another_order() {
        let order = |seed| {
            let mut cycle = Cycle::build(64 * 1000, seed, false).unwrap();
            let first = cycle.first() as usize;
            cycle.lines_mut().iter().map(|line| line.next as usize - first).collect::<Vec<_>>()
        };
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
    }

    #[test]
    fn sizes_become_metrics() {
        let outcome = run(&options("")).unwrap();
        assert!(outcome.check.passed, "{:?}", outcome.check);
        for name in ["latency_128B", "latency_4KiB", "latency_100000B"] {
            assert!(outcome.value(name).unwrap() > 0.0, "{name}");
        }
        assert!(run(&options("--batches 0")).is_err());
    }

    #[test]
    fn broken_cycles_fail_the_check() {
        let two_cycles = |cycle: &mut Cycle| {
            let lines = cycle.lines_mut();
            let (first, last) = (lines[0].next, lines[lines.len() - 1].next);
            lines[0].next = last;
            let end = lines.len() - 1;
            lines[end].next = first;
        };
        let dead_end = |cycle: &mut Cycle| cycle.lines_mut()[1].next = std::ptr::null();
        let rho = |cycle: &mut Cycle| {
            let lines = cycle.lines_mut();
            let end = lines.len() - 1;
            lines[end].next = &raw const lines[end];
        };
        for spoil in [&two_cycles as &dyn Fn(&mut Cycle), &dead_end, &rho] {
            let outcome = measure(&options(""), spoil).unwrap();
            assert!(!outcome.check.passed && outcome.metrics.is_empty(), "{:?}", outcome.check);
        }
    }

    #[test]
    fn without_a_primary_size_the_largest_has_every_other_turn() {
        let (mut marks, printed) = marks_of(Duration::ZERO, 12);
        let outcome = chase_endlessly(&options(""), &mut marks, |_| ()).unwrap();
        assert!(outcome.check.passed, "{:?}", outcome.check);
        let printed = printed.text();
        let names: Vec<_> = printed.lines().filter_map(|line| line.strip_prefix("mark ")).collect();
        let expected = ["100000B", "128B", "100000B", "4KiB"].map(|size| format!("latency_{size}=320000"));
        assert_eq!(names[..4], expected);
    }

    #[test]
    fn a_chase_that_skipped_loads_fails_the_check() {
        let (mut marks, _) = marks_of(Duration::ZERO, 3);
        let outcome = chase_endlessly(&options(""), &mut marks, |chase| chase.loads += 1).unwrap();
        assert!(!outcome.check.passed, "{:?}", outcome.check);
    }
}
