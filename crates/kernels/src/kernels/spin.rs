//! `spin`: a fixed amount of CPU work, and a known fraction more of it on demand.
//!
//! The work is a chain of dependent integer operations in registers: no memory access, no system
//! call, nothing that a platform could slow down except the CPU itself. The variable `WEIGH_SPIN`
//! adds a fraction of the work, an effect of known size in one of two otherwise equal environments:
//! `weigh selftest` checks whether it is found.

use crate::clock::{now_ns, seconds_since};
use crate::kernel::{Kernel, KernelError};
use crate::marks::Marks;
use crate::options::{OptionSpec, Options};
use crate::outcome::Outcome;
use std::hint::black_box;
use weigh_model::PieceStatistic;

/// The variable that adds work: a fraction, such as `0.050` for five per cent more.
const VARIABLE: &str = "WEIGH_SPIN";

/// The most that the variable may add.
const MOST_EXTRA: f64 = 10.0;

/// Steps in a piece of the endless form, without those that the variable adds: below 2 ms.
const PIECE: u64 = 1_000_000;

/// Multiplier and increment of Knuth's MMIX: a generator of full period, so that all states of a
/// chain differ.
const MULTIPLIER: u64 = 6_364_136_223_846_793_005;
const INCREMENT: u64 = 1_442_695_040_888_963_407;

pub(super) static KERNEL: Kernel = Kernel {
    name: "spin",
    summary: "time of a fixed amount of CPU work, to which the variable WEIGH_SPIN adds a known fraction",
    operation: "step asked for",
    check: "the chain of multiplications ends in the state that so many steps must lead to, which is found by squaring",
    options: &[OptionSpec::count("work", "5e7").help("steps, without those that WEIGH_SPIN adds")],
    metrics: &[("duration", "s")],
    run,
    endless: Some((PieceStatistic::Mean, endless)),
};

/// The state after `steps` steps from `state`, one by one.
///
/// The compiler cannot see the factors; otherwise it could merge several steps into one.
#[inline(never)]
fn walk(mut state: u64, steps: u64) -> u64 {
    let (multiplier, increment) = (black_box(MULTIPLIER), black_box(INCREMENT));
    for _ in 0..steps {
        state = state.wrapping_mul(multiplier).wrapping_add(increment);
    }
    black_box(state)
}

/// The state after `steps` steps from `state`, by repeated squaring of the step (F. Brown, "Random
/// number generation with arbitrary strides", 1994).
fn jump(state: u64, mut steps: u64) -> u64 {
    let (mut multiplier, mut increment) = (MULTIPLIER, INCREMENT);
    let (mut all_multiplier, mut all_increment) = (1u64, 0u64);
    while steps > 0 {
        if steps & 1 == 1 {
            all_multiplier = all_multiplier.wrapping_mul(multiplier);
            all_increment = all_increment.wrapping_mul(multiplier).wrapping_add(increment);
        }
        increment = increment.wrapping_mul(multiplier.wrapping_add(1));
        multiplier = multiplier.wrapping_mul(multiplier);
        steps >>= 1;
    }
    state.wrapping_mul(all_multiplier).wrapping_add(all_increment)
}

/// The fraction of the work that is added.
fn extra(variable: Option<&str>) -> Result<f64, KernelError> {
    let Some(text) = variable else { return Ok(0.0) };
    match text.parse::<f64>() {
        Ok(extra) if (0.0..=MOST_EXTRA).contains(&extra) => Ok(extra),
        _ => Err(KernelError::usage(format!(
            "cannot read `{VARIABLE}={text}`: it must be a fraction from 0 to {MOST_EXTRA}, such as 0.050"
        ))),
    }
}

/// The fraction that the environment variable asks for.
fn extra_of_environment() -> Result<f64, KernelError> {
    let variable = std::env::var_os(VARIABLE);
    extra(variable.as_ref().map(|text| text.to_string_lossy()).as_deref())
}

/// Returns how many steps to do for `work` steps and the extra fraction. Exact below 2^53 steps,
/// which is weeks of work.
fn steps_for(work: u64, extra: f64) -> u64 {
    (work as f64 * (1.0 + extra)).round() as u64
}

fn run(options: &Options) -> Result<Outcome, KernelError> {
    measure(options, extra_of_environment()?, walk)
}

fn endless(options: &Options, marks: &mut Marks) -> Result<Outcome, KernelError> {
    walk_endlessly(options, extra_of_environment()?, marks, walk)
}

fn walk_endlessly(
    options: &Options,
    extra: f64,
    marks: &mut Marks,
    walk: impl Fn(u64, u64) -> u64,
) -> Result<Outcome, KernelError> {
    let work = options.at_least("work", 1)?;
    let first = black_box(0);
    let (mut state, mut done) = (first, 0);
    marks.ready();
    while done == 0 || !marks.stopped() {
        // The difference of two rounded numbers: after any number of pieces the sum is that of a
        // single piece.
        state = walk(state, steps_for(done + PIECE, extra) - steps_for(done, extra));
        done += PIECE;
        marks.done(&[("duration", PIECE as f64 / work as f64)]);
    }
    let mut outcome = Outcome::new();
    conclude(&mut outcome, done, extra, (first, state));
    Ok(outcome)
}

fn measure(options: &Options, extra: f64, walk: impl Fn(u64, u64) -> u64) -> Result<Outcome, KernelError> {
    let work = options.at_least("work", 1)?;
    let first = black_box(0);
    let start = now_ns();
    let last = walk(first, steps_for(work, extra));
    let duration = seconds_since(start);

    let mut outcome = Outcome::new();
    outcome.metric("duration", duration, "s");
    outcome.warn_when_short("the work", duration);
    conclude(&mut outcome, work, extra, (first, last));
    Ok(outcome)
}

/// Reports the work and checks that it leads from the first state to the last.
fn conclude(outcome: &mut Outcome, work: u64, extra: f64, (first, last): (u64, u64)) {
    let steps = steps_for(work, extra);
    // The requested work, not the work done: the additional work counts as cost.
    outcome.operations = work;
    outcome.fact("steps", steps);
    outcome.fact("extra", extra);
    let right = last == jump(first, steps);
    let verdict = if right { "is" } else { "is not" };
    outcome
        .checked(right, format!("the last state {last:016x} {verdict} the one that {steps} steps lead to"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::marks::tests::marks_of;
    use std::time::Duration;

    fn options(work: &str) -> Options {
        KERNEL.options_of(&format!("--work {work}"))
    }

    #[test]
    fn jumps_equal_walks() {
        for (state, steps) in [(0, 0), (0, 1), (7, 2), (1, 3), (99, 1000), (u64::MAX, 12_345)] {
            assert_eq!(jump(state, steps), walk(state, steps), "{steps} steps from {state}");
        }
    }

    #[test]
    fn the_variable_adds_exactly_its_fraction() {
        let steps = |extra| measure(&options("1e6"), extra, walk).unwrap();
        assert_eq!(steps(0.0).facts["steps"], 1_000_000);
        assert_eq!(steps(0.005).facts["steps"], 1_005_000);
        let more = steps(0.05);
        assert_eq!(more.facts["steps"], 1_050_000);
        assert_eq!(more.operations, 1_000_000);
        assert!(more.check.passed, "{:?}", more.check);
    }

    #[test]
    fn twice_the_work_takes_longer() {
        let time = |extra| measure(&options("3e6"), extra, walk).unwrap().value("duration").unwrap();
        let (once, eleven) = (time(0.0), time(10.0));
        assert!(eleven > 4.0 * once, "{once} s, then {eleven} s for eleven times as much");
    }

    #[test]
    fn work_that_was_skipped_fails_the_check() {
        let lazy = |state, steps: u64| walk(state, steps - 1);
        assert!(!measure(&options("1e5"), 0.0, lazy).unwrap().check.passed);
        let (mut marks, _) = marks_of(Duration::ZERO, 2);
        assert!(!walk_endlessly(&options("1e5"), 0.0, &mut marks, lazy).unwrap().check.passed);
    }

    #[test]
    fn pieces_add_the_fraction_and_report_the_work_without_it() {
        let (mut marks, printed) = marks_of(Duration::ZERO, 3);
        // A fraction for which no piece has a whole number of steps.
        let outcome = walk_endlessly(&options("4e6"), 0.000_000_4, &mut marks, walk).unwrap();
        assert!(outcome.check.passed, "{:?}", outcome.check);
        assert_eq!((outcome.operations, &outcome.facts["steps"]), (3_000_000, &3_000_001.into()));
        assert_eq!(printed.text(), format!("mark\n{}", "mark duration=0.25\n".repeat(3)));
    }

    #[test]
    fn the_variable_is_a_fraction_or_an_error() {
        assert_eq!(extra(None).unwrap(), 0.0);
        assert_eq!(extra(Some("0.000")).unwrap(), 0.0);
        assert_eq!(extra(Some("0.050")).unwrap(), 0.05);
        for wrong in ["", "5%", "-0.1", "NaN", "inf", "11"] {
            let error = extra(Some(wrong)).unwrap_err();
            assert!(matches!(&error, KernelError::Usage(_)), "{wrong}");
            assert!(error.to_string().contains("0.050"), "{error}");
        }
    }
}
