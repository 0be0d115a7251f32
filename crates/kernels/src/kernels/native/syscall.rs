//! `syscall`: the cost of single requests to the operating system.
//!
//! Each operation runs in batches; the result is the median over batches of the time of one
//! operation.

pub(super) mod operations;

use crate::clock::{median, now_ns, seconds_since};
use crate::kernel::{Kernel, KernelError};
use crate::machine;
use crate::marks::Marks;
use crate::options::{OptionSpec, Options};
use crate::outcome::Outcome;
use operations::{Forker, MapAndUnmap, PingPong, Reader, Way, get_pid};
use weigh_model::PieceStatistic;

/// The first argument that makes `weigh-kernels` end at once and successfully, for `fork_exec` to
/// start.
pub const QUICK_EXIT: &str = "--quick-exit";

const OPERATIONS: &[&str] = &["getpid", "read", "mmap_munmap", "fork_exec", "context_switch"];

pub(super) static KERNEL: Kernel = Kernel {
    name: "syscall",
    summary: "time of one getpid, read, mmap and munmap, fork and exec, context switch",
    operation: "call",
    check: "every operation gave the right result: the process's own number, one byte and in the end a zero, a zeroed writable page, a child that \
            ended with success, the byte that was sent plus one",
    options: &[
        OptionSpec::choices("operations", OPERATIONS, "getpid,read,mmap_munmap,fork_exec,context_switch")
            .help("operations to run; omit those that a guest cannot do"),
        OptionSpec::count("getpid", "1e6").help("number of getpid"),
        OptionSpec::count("read", "5e5").help("number of read, of one byte from /dev/zero"),
        OptionSpec::count("mmap", "3e4").help("number of mmap, write to the page, munmap"),
        OptionSpec::count("fork", "200").help("number of fork, execve of this program, wait"),
        OptionSpec::count("switch", "4e4")
            .help("number of context switches between two processes on one CPU, with a pipe each way"),
        OptionSpec::count("batches", "20").help("batches into which each number is divided"),
    ],
    metrics: &[
        ("getpid", "s"),
        ("read", "s"),
        ("mmap_munmap", "s"),
        ("fork_exec", "s"),
        ("context_switch", "s"),
    ],
    run,
    endless: Some((PieceStatistic::Median, endless)),
};

fn run(options: &Options) -> Result<Outcome, KernelError> {
    measure(options, &Forker::of_this_program()?)
}

/// Counts of good and bad results, and the shortest batch.
pub(super) struct Tally {
    good: u64,
    wrong: Vec<(&'static str, u64)>,
    shortest: f64,
}

impl Tally {
    pub(super) fn new() -> Self {
        Self { good: 0, wrong: Vec::new(), shortest: f64::INFINITY }
    }

    /// Checks the result of the last read.
    fn check_reads(&mut self, reader: &Reader) {
        if !reader.ended_right() {
            self.wrong.push(("read", 1));
        }
    }

    /// Reports the check of all operations together.
    pub(super) fn conclude(self, outcome: &mut Outcome) {
        outcome.warn_when_short("the shortest batch", self.shortest);
        let wrong: Vec<_> = self.wrong.iter().map(|(name, count)| format!("{count} of {name}")).collect();
        let statement = match wrong.as_slice() {
            [] => format!("all {} operations gave the right results", self.good),
            wrong => format!("wrong results: {}", wrong.join(", ")),
        };
        outcome.checked(wrong.is_empty(), statement);
    }
}

/// Uses a single CPU throughout; children inherit it.
fn bind(cpus: &[usize], outcome: &mut Outcome) -> Result<(), KernelError> {
    machine::pin_to(cpus[0]).map_err(KernelError::system("bind the process to a CPU"))?;
    outcome.fact("cpu", cpus[0]);
    Ok(())
}

/// An operation of the endless form.
struct Turns<'a> {
    name: &'static str,
    /// Operations in a piece.
    operations: u64,
    /// Does a piece; returns how many calls gave a wrong result.
    piece: Box<dyn FnMut() -> Result<u64, KernelError> + 'a>,
    done: u64,
    wrong: u64,
}

impl<'a> Turns<'a> {
    /// Makes a piece of `count` calls, each of which counts as `weight` operations.
    fn new(
        name: &'static str,
        count: u64,
        weight: u64,
        mut operation: impl FnMut() -> Result<bool, KernelError> + 'a,
    ) -> Self {
        let piece = Box::new(move || call(count, &mut operation));
        Self { name, operations: count * weight, piece, done: 0, wrong: 0 }
    }

    fn piece(&mut self) -> Result<f64, KernelError> {
        self.wrong += (self.piece)()?;
        self.done += self.operations;
        Ok(self.operations as f64)
    }
}

fn endless(options: &Options, marks: &mut Marks) -> Result<Outcome, KernelError> {
    call_endlessly(options, marks, &Forker::of_this_program()?)
}

/// Runs the endless form, in which the operations take turns.
fn call_endlessly(options: &Options, marks: &mut Marks, forker: &Forker) -> Result<Outcome, KernelError> {
    let cpus = machine::allowed_cpus()?;
    let mut outcome = Outcome::new();
    bind(&cpus, &mut outcome)?;
    let wanted = |name: &str| options.has("operations", name);
    let mut reader = wanted("read").then(Reader::open).transpose()?;
    let mut players = wanted("context_switch").then(PingPong::start).transpose()?;
    let (own, mapper) = (std::process::id(), MapAndUnmap::new());
    let mut turns = Vec::new();
    if wanted("getpid") {
        turns.push(Turns::new("getpid", 1000, 1, || Ok(get_pid() == own)));
    }
    if let Some(reader) = &mut reader {
        turns.push(Turns::new("read", 1000, 1, || reader.read_one()));
    }
    if wanted("mmap_munmap") {
        turns.push(Turns::new("mmap_munmap", 200, 1, || mapper.once()));
    }
    if wanted("fork_exec") {
        turns.push(Turns::new("fork_exec", 1, 1, || forker.once(Way::Fork)));
    }
    if let Some(players) = &mut players {
        turns.push(Turns::new("context_switch", 100, 2, || players.round_trip()));
    }
    for turns in &mut turns {
        turns.piece()?;
    }
    marks.ready();
    'work: loop {
        for turns in &mut turns {
            marks.turn(turns.name, || turns.piece())?;
            if marks.stopped() {
                break 'work;
            }
        }
    }
    let mut tally = Tally::new();
    for Turns { done, wrong, name, .. } in turns {
        outcome.operations += done;
        tally.good += done;
        if wrong > 0 {
            tally.wrong.push((name, wrong));
        }
    }
    if let Some(reader) = reader {
        outcome.fact("read_from", reader.source());
        tally.check_reads(&reader);
    }
    players.map_or(Ok(()), PingPong::stop)?;
    machine::pin_to_all(&cpus).map_err(KernelError::system("unbind the process from its CPU"))?;
    tally.conclude(&mut outcome);
    Ok(outcome)
}

fn measure(options: &Options, forker: &Forker) -> Result<Outcome, KernelError> {
    let batches = options.at_least("batches", 1)?;
    let cpus = machine::allowed_cpus()?;
    let mut outcome = Outcome::new();
    bind(&cpus, &mut outcome)?;
    let mut tally = Tally::new();
    let wanted = |name: &str| options.has("operations", name);
    let count = |name: &str| options.at_least(name, 1).map(|count| count.div_ceil(batches));

    if wanted("getpid") {
        let own = std::process::id();
        repeat(&mut outcome, &mut tally, "getpid", batches, count("getpid")?, 1, || Ok(get_pid() == own))?;
    }
    if wanted("read") {
        let mut reader = Reader::open()?;
        outcome.fact("read_from", reader.source());
        repeat(&mut outcome, &mut tally, "read", batches, count("read")?, 1, || reader.read_one())?;
        tally.check_reads(&reader);
    }
    if wanted("mmap_munmap") {
        let mapper = MapAndUnmap::new();
        repeat(&mut outcome, &mut tally, "mmap_munmap", batches, count("mmap")?, 1, || mapper.once())?;
    }
    if wanted("fork_exec") {
        outcome.fact("fork_exec_is", "fork, execve of a static program that ends at once, wait");
        repeat(&mut outcome, &mut tally, "fork_exec", batches, count("fork")?, 1, || forker.once(Way::Fork))?;
    }
    if wanted("context_switch") {
        let mut players = PingPong::start()?;
        outcome.fact(
            "context_switch_is",
            "half a round trip of a byte over two pipes, both processes on one CPU",
        );
        let round_trips = count("switch")?.div_ceil(2);
        repeat(&mut outcome, &mut tally, "context_switch", batches, round_trips, 2, || players.round_trip())?;
        players.stop()?;
    }
    machine::pin_to_all(&cpus).map_err(KernelError::system("unbind the process from its CPU"))?;
    tally.conclude(&mut outcome);
    Ok(outcome)
}

/// Calls an operation `count` times; returns how often the result was wrong.
#[inline(always)]
fn call(count: u64, operation: &mut impl FnMut() -> Result<bool, KernelError>) -> Result<u64, KernelError> {
    let mut wrong = 0;
    for _ in 0..count {
        wrong += u64::from(!operation()?);
    }
    Ok(wrong)
}

/// Runs `batches` batches of `count` calls after a short warm-up; each call counts as `weight`
/// operations.
pub(super) fn repeat(
    outcome: &mut Outcome,
    tally: &mut Tally,
    name: &'static str,
    batches: u64,
    count: u64,
    weight: u64,
    mut operation: impl FnMut() -> Result<bool, KernelError>,
) -> Result<(), KernelError> {
    let mut wrong = call(count.div_ceil(10), &mut operation)?;
    let mut times = Vec::new();
    for _ in 0..batches {
        let start = now_ns();
        wrong += call(count, &mut operation)?;
        let time = seconds_since(start);
        tally.shortest = tally.shortest.min(time);
        times.push(time / (count * weight) as f64);
    }
    outcome.metric(name, median(&times), "s");
    tally.good += batches * count * weight;
    outcome.operations += (count.div_ceil(10) + batches * count) * weight;
    if wrong > 0 {
        tally.wrong.push((name, wrong));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::marks::tests::marks_of;
    use std::time::Duration;

    fn options(line: &str) -> Options {
        KERNEL.options_of(&format!(
            "--getpid 100 --read 100 --mmap 50 --fork 4 --switch 100 --batches 4 {line}"
        ))
    }

    #[test]
    fn every_operation_works() {
        let outcome = measure(&options(""), &Forker::of("/bin/true")).unwrap();
        KERNEL.assert_complete(&outcome);
    }

    #[test]
    fn operations_can_be_left_out() {
        let outcome = measure(&options("--operations read"), &Forker::of("/nowhere")).unwrap();
        assert!(outcome.check.passed);
        assert_eq!(outcome.metrics.len(), 1);
    }

    #[test]
    fn a_child_that_fails_fails_the_check() {
        for program in ["/bin/false", "/nowhere"] {
            let outcome = measure(&options("--operations fork_exec"), &Forker::of(program)).unwrap();
            assert!(!outcome.check.passed, "{program}: {:?}", outcome.check);
            let (mut marks, _) = marks_of(Duration::ZERO, 2);
            let line = options("--operations fork_exec");
            let outcome = call_endlessly(&line, &mut marks, &Forker::of(program)).unwrap();
            assert!(!outcome.check.passed, "{program}: {:?}", outcome.check);
        }
    }

    #[test]
    fn endless_operations_take_turns() {
        // With a mark for every piece, the kernel checks for the end once after each turn.
        let (mut marks, printed) = marks_of(Duration::ZERO, 7);
        let outcome = call_endlessly(&options(""), &mut marks, &Forker::of("/bin/true")).unwrap();
        assert!(outcome.check.passed, "{:?}", outcome.check);
        let expected = [
            "getpid=1000",
            "read=1000",
            "mmap_munmap=200",
            "fork_exec=1",
            "context_switch=200",
            "getpid=1000",
            "read=1000",
        ];
        let lines: Vec<_> = expected.into_iter().map(|amount| format!("mark {amount}\n")).collect();
        assert_eq!(printed.text(), format!("mark\n{}", lines.concat()));
        assert_eq!(outcome.operations, 2401 + 2401 + 2000);
    }
}
