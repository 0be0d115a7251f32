//! `noploop`: an unrolled loop of NOPs, the simplest work there is (Morabito et al., IC2E 2015,
//! table 3).
//!
//! It touches no memory and makes no system call, so every platform that runs it on the hardware
//! must show the same time. A platform that seems faster has a clock that runs slow.

use crate::clock::{median, now_ns, seconds_since};
use crate::kernel::{Kernel, KernelError};
use crate::marks::Marks;
use crate::options::{OptionSpec, Options};
use crate::outcome::Outcome;
use std::arch::asm;
use weigh_model::PieceStatistic;

/// NOPs in one turn of the loop: the counting at its end is then far below a percent, and the body
/// fits every first-level instruction cache.
const UNROLLED: u64 = 1000;

/// Turns in a piece of the endless form: some 2 ms.
const PIECE_TURNS: u64 = 20_000;

pub(super) static KERNEL: Kernel = Kernel {
    name: "noploop",
    summary: "time of a fixed number of NOP instructions on one CPU",
    operation: "NOP",
    check: "a counter inside the loop, apart from the one that ends it, gives the number of NOPs that was asked for",
    options: &[
        OptionSpec::count("nops", "1e9").help("NOPs in one repetition, rounded up to a multiple of 1000"),
        OptionSpec::count("repetitions", "5").help("repetitions, of which the median is reported"),
    ],
    metrics: &[("duration", "s"), ("rate", "op/s")],
    run,
    endless: Some((PieceStatistic::Median, endless)),
};

/// The instructions that count at the end of a turn and begin the next one.
#[cfg(target_arch = "x86_64")]
macro_rules! end_of_turn {
    () => {
        "add {executed}, {unrolled}\ndec {turns}\njnz 2b"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! end_of_turn {
    () => {
        "add {executed}, {executed}, #{unrolled}\nsubs {turns}, {turns}, #1\nb.ne 2b"
    };
}

/// Runs `turns` turns of the loop, at least one, and returns the number of NOPs that it counted.
fn execute(turns: u64) -> u64 {
    let mut executed = 0u64;
    // SAFETY: the code touches only the two registers it declares, and the flags.
    unsafe {
        asm!(
            ".p2align 6",
            "2:",
            ".rept {unrolled}",
            "nop",
            ".endr",
            end_of_turn!(),
            unrolled = const UNROLLED,
            executed = inout(reg) executed,
            turns = inout(reg) turns => _,
            options(nomem, nostack),
        );
    }
    executed
}

fn run(options: &Options) -> Result<Outcome, KernelError> {
    measure(options, execute)
}

fn endless(options: &Options, marks: &mut Marks) -> Result<Outcome, KernelError> {
    execute_endlessly(options, marks, execute)
}

/// Turns of the loop in one repetition.
fn turns(options: &Options) -> Result<u64, KernelError> {
    Ok(options.at_least("nops", 1)?.div_ceil(UNROLLED))
}

fn execute_endlessly(
    options: &Options,
    marks: &mut Marks,
    execute: impl Fn(u64) -> u64,
) -> Result<Outcome, KernelError> {
    const PIECE: u64 = PIECE_TURNS * UNROLLED;
    let nops = turns(options)? * UNROLLED;
    execute(PIECE_TURNS);
    marks.ready();
    let (mut pieces, mut wrong) = (0, 0);
    while pieces == 0 || !marks.stopped() {
        wrong += u64::from(execute(PIECE_TURNS) != PIECE);
        pieces += 1;
        marks.done(&[("duration", PIECE as f64 / nops as f64), ("rate", PIECE as f64)]);
    }
    let mut outcome = Outcome::new();
    outcome.operations = (1 + pieces) * PIECE;
    outcome.fact("nops", nops);
    outcome.fact("unrolled", UNROLLED);
    outcome
        .checked(wrong == 0, format!("{} of {pieces} pieces executed exactly {PIECE} NOPs", pieces - wrong));
    Ok(outcome)
}

fn measure(options: &Options, execute: impl Fn(u64) -> u64) -> Result<Outcome, KernelError> {
    let turns = turns(options)?;
    let repetitions = options.at_least("repetitions", 1)?;
    let nops = turns * UNROLLED;
    // The first turns bring the CPU up to speed and the code into its caches.
    let warm_turns = turns.div_ceil(100);
    execute(warm_turns);
    let mut wrong = 0;
    let mut times = Vec::new();
    for _ in 0..repetitions {
        let start = now_ns();
        let executed = execute(turns);
        times.push(seconds_since(start));
        wrong += u64::from(executed != nops);
    }
    let duration = median(&times);
    let mut outcome = Outcome::new();
    outcome.metric("duration", duration, "s");
    outcome.metric("rate", nops as f64 / duration, "op/s");
    outcome.operations = (warm_turns + repetitions * turns) * UNROLLED;
    outcome.fact("nops", nops);
    outcome.fact("unrolled", UNROLLED);
    outcome.warn_when_short("a repetition", times.iter().copied().fold(f64::INFINITY, f64::min));
    outcome.checked(
        wrong == 0,
        format!("{} of {repetitions} repetitions executed exactly {nops} NOPs", repetitions - wrong),
    );
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::marks::tests::marks_of;
    use std::time::Duration;

    #[test]
    fn executes_the_number_asked_for() {
        assert_eq!(execute(7), 7000);
        let outcome = run(&KERNEL.options_of("--nops 1500001 --repetitions 3")).unwrap();
        assert!(outcome.check.passed, "{:?}", outcome.check);
        assert_eq!(outcome.facts["nops"], 1_501_000);
        assert!(outcome.value("duration").unwrap() > 0.0);
    }

    #[test]
    fn more_nops_take_more_time() {
        let time =
            |nops| run(&KERNEL.options_of(&format!("--nops {nops}"))).unwrap().value("duration").unwrap();
        let (short, long) = (time("1e6"), time("3e7"));
        assert!(long > 5.0 * short, "{short} s, then {long} s for thirty times as many");
    }

    #[test]
    fn a_loop_that_skips_work_fails_the_check() {
        let outcome = measure(&KERNEL.options_of("--nops 1e6"), |turns| execute(turns) - UNROLLED).unwrap();
        assert!(!outcome.check.passed);
        let (mut marks, _) = marks_of(Duration::ZERO, 2);
        let lazy = |turns| execute(turns) - UNROLLED;
        assert!(!execute_endlessly(&KERNEL.options_of(""), &mut marks, lazy).unwrap().check.passed);
    }

    #[test]
    fn zero_nops_are_refused() {
        assert!(matches!(run(&KERNEL.options_of("--nops 0")), Err(KernelError::Usage(_))));
    }
}
