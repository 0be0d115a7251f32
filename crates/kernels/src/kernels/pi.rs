//! `pi`: decimal digits of Pi on all CPUs, the job that Morabito et al. ran with y-cruncher (IC2E
//! 2015, figure 2 and table II).
//!
//! The series of the Chudnovskys is summed by binary splitting, with its branches distributed over
//! the threads. Then follow a reciprocal, a root and products of full-length numbers, and the
//! conversion to decimal. All numbers are those of the crate dashu, whose products run on one
//! thread each, so that the last steps keep fewer CPUs busy than the first. `efficiency` shows
//! that, and a platform that schedules badly makes it worse.
//!
//! The digits are verified in every run (see [`verify`]): binary digits at the end by a formula
//! that is independent of the series, the steps after it modulo a prime, and the last digits
//! against published ones where these are known.

mod arithmetic;
mod decimal;
mod series;
mod verify;

use crate::clock::{cpu_ns, now_ns, seconds, seconds_since};
use crate::kernel::{Kernel, KernelError};
use crate::marks::Marks;
use crate::options::{OptionSpec, Options, UsageError};
use crate::outcome::Outcome;
use crate::pool;
use crate::team::{THREADS, Team};
use decimal::Decimals;
use series::Pi;
use verify::Verdict;
use weigh_model::PieceStatistic;

/// With fewer digits there is nothing to distribute, and no room for the binary digits that are
/// verified.
const LEAST_DIGITS: u64 = 100;

/// Up to this number of digits the factors of a term fit the 128 bits in which they are multiplied,
/// and the verification has bits to compare.
const MOST_DIGITS: u64 = 10_000_000_000;

/// How many digits the facts show.
const SHOWN: usize = 10;

pub(super) static KERNEL: Kernel = Kernel {
    name: "pi",
    summary: "decimal digits of Pi on all CPUs (y-cruncher's job)",
    operation: "digit",
    check: "binary digits at the end agree with Bellard's formula, the conversion holds modulo 2^61 - 1, and the last digits are \
            the published ones where these are known",
    options: &[OptionSpec::count("digits", "1e6").help("digits after the decimal point"), THREADS],
    metrics: &[("computation_time", "s"), ("total_time", "s"), ("efficiency", "1")],
    run,
    endless: Some((PieceStatistic::Mean, endless)),
};

fn run(options: &Options) -> Result<Outcome, KernelError> {
    measure(options, |_| ())
}

/// Where tests inject errors.
#[cfg_attr(not(test), expect(dead_code, reason = "only tests look inside"))]
enum Stage<'a> {
    /// Before the conversion.
    Number(&'a mut Pi),
    /// After it.
    Digits(&'a mut Decimals),
}

/// `spoil` is called at every stage; only tests change anything there.
fn measure(options: &Options, spoil: impl Fn(Stage<'_>) + Send) -> Result<Outcome, KernelError> {
    let digits = digits(options)?;
    let team = Team::of(options)?;
    let run = pool::run(&team, || compute(digits as usize, spoil))?;

    let mut outcome = Outcome::new();
    outcome.metric("computation_time", run.computation_s, "s");
    outcome.metric("total_time", run.total_s, "s");
    match run.cpu_s {
        Some(cpu_s) => {
            outcome.metric("efficiency", cpu_s / (run.computation_s * team.threads() as f64), "1");
        }
        None => outcome.refuse("efficiency", "a program cannot read its CPU time here"),
    }
    outcome.operations = digits;
    team.state(&mut outcome);
    outcome.fact("terms", run.terms);
    outcome.fact("series_s", run.series_s);
    outcome.fact("conversion_s", run.conversion_s);
    outcome.fact("computation_cpu_s", run.cpu_s);
    outcome.fact("last_digits", run.last_digits);
    outcome.warn_when_short("the computation", run.computation_s);
    outcome.checked(run.verdict.passed, run.verdict.statement);
    Ok(outcome)
}

fn digits(options: &Options) -> Result<u64, UsageError> {
    options.within("digits", LEAST_DIGITS, MOST_DIGITS, "many")
}

fn endless(options: &Options, marks: &mut Marks) -> Result<Outcome, KernelError> {
    compute_endlessly(options, marks, |_| ())
}

/// A piece is one computation. Computations are timed alternately without and with conversion and
/// verification. `spoil` is as in [`measure`].
fn compute_endlessly(
    options: &Options,
    marks: &mut Marks,
    spoil: impl Fn(Stage<'_>) + Sync,
) -> Result<Outcome, KernelError> {
    let digits = digits(options)?;
    let team = Team::of(options)?;
    let mut pieces = 0;
    let verdict = pool::run(&team, || {
        loop {
            pieces += 1;
            let without_verification = pieces % 2 == 1;
            marks.ready();
            let mut pi = series::sum(digits as usize).finish(digits as usize);
            if without_verification {
                marks.done(&[("computation_time", 1.0)]);
                marks.flush();
            }
            spoil(Stage::Number(&mut pi));
            let mut decimals = decimal::convert(&pi, digits as usize);
            spoil(Stage::Digits(&mut decimals));
            let verdict = verify::verify(&pi, &decimals);
            if !without_verification {
                marks.done(&[("total_time", 1.0)]);
                marks.flush();
            }
            if !verdict.passed || marks.stopped() {
                return verdict;
            }
        }
    })?;
    let mut outcome = Outcome::new();
    outcome.operations = digits * pieces;
    team.state(&mut outcome);
    outcome.checked(verdict.passed, verdict.statement);
    Ok(outcome)
}

/// The results of one computation.
struct Run {
    terms: u64,
    series_s: f64,
    /// The time for series, reciprocal, root and products.
    computation_s: f64,
    /// CPU time of all threads in that time, where it can be read.
    cpu_s: Option<f64>,
    conversion_s: f64,
    /// Time from the first term to the verdict.
    total_s: f64,
    last_digits: String,
    verdict: Verdict,
}

fn compute(digits: usize, spoil: impl Fn(Stage<'_>)) -> Run {
    let (start, cpu_start) = (now_ns(), cpu_ns());
    let sum = series::sum(digits);
    let series_s = seconds_since(start);
    let mut pi = sum.finish(digits);
    let computation_s = seconds_since(start);
    let cpu_s = cpu_ns().zip(cpu_start).map(|(end, start)| seconds(end - start));
    let conversion_start = now_ns();
    spoil(Stage::Number(&mut pi));
    let mut decimals = decimal::convert(&pi, digits);
    let conversion_s = seconds_since(conversion_start);
    spoil(Stage::Digits(&mut decimals));
    let verdict = verify::verify(&pi, &decimals);
    Run {
        terms: pi.terms,
        series_s,
        computation_s,
        cpu_s,
        conversion_s,
        total_s: seconds_since(start),
        last_digits: decimals.last(SHOWN),
        verdict,
    }
}

#[cfg(test)]
mod tests;
