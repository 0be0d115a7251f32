//! `lu`: a dense system of linear equations, solved by LU factorisation with partial pivoting: the
//! work of LINPACK and HPL.
//!
//! The matrix is factorised in place by the crate faer, which chooses its vector instructions when
//! the program runs. Floating-point operations are counted as LINPACK counts them, 2/3 n^3 + 2 n^2,
//! however many are done. The answer is checked as HPL does (HPL 2.3, testing/pdtest): the scaled
//! residual `||Ax - b|| / (eps (||A|| ||x|| + ||b||) n)` in the maximum norm must be below 16. For
//! the check the matrix is generated again from its seed, column by column, so that it is never in
//! memory twice.

use crate::clock::{median, now_ns, seconds_since};
use crate::kernel::{Kernel, KernelError};
use crate::machine::Vector;
use crate::marks::Marks;
use crate::memory::{HUGE_PAGES, Region, state_huge_pages, wants_huge_pages};
use crate::options::{OptionSpec, Options};
use crate::outcome::Outcome;
use crate::pool;
use crate::team::{THREADS, Team};
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::lu::partial_pivoting::{factor, solve};
use faer::{MatMut, Par, Spec};
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use rayon::prelude::*;
use weigh_model::PieceStatistic;

/// Residuals of this and above fail, as in HPL.dat.
const THRESHOLD: f64 = 16.0;

/// The relative machine precision as HPL defines it: half the distance from 1 to the next number.
const PRECISION: f64 = f64::EPSILON / 2.0;

/// Doubles in a cache line: columns are aligned to one.
const LINE: usize = 8;

/// The least number of operations for a useful median: a tenth of a second of one core, or some
/// seconds where a processor is emulated.
const ENOUGH: f64 = 4e9;

/// Operations in a piece of the endless form, 2 ms of one core or less, if these are at most
/// [`MOST_SYSTEMS`] systems. If one system has more operations, it is a piece.
const PIECE: f64 = 2e7;
const MOST_SYSTEMS: f64 = 16.0;

/// Order of the system that is solved once before the clock starts: it brings the code into memory.
const WARM_UP_ORDER: usize = 128;

pub(super) static KERNEL: Kernel = Kernel {
    name: "lu",
    summary: "a dense system of linear equations by LU factorisation (LINPACK, HPL)",
    operation: "floating-point operation",
    check: "the scaled residual of HPL is below 16",
    options: &[
        OptionSpec::count("n", "1000").help("order of the matrix"),
        THREADS,
        OptionSpec::count("seed", "1").help("seed of the matrix"),
        OptionSpec::count("repetitions", "0")
            .help("repetitions, of which the median is reported; 0: 1 to 1000, enough for 4e9 operations"),
        HUGE_PAGES,
    ],
    metrics: &[("rate", "FLOP/s")],
    run,
    endless: Some((PieceStatistic::Median, endless)),
};

fn run(options: &Options) -> Result<Outcome, KernelError> {
    measure(options, random_column, |_| ())
}

/// `column(seed, j, values)` writes column j of the matrix, or the right-hand side if j is n.
/// `spoil` is called on the answer before it is checked; only tests change anything there.
fn measure(
    options: &Options,
    column: impl Fn(u64, usize, &mut [f64]) + Sync,
    spoil: impl Fn(&mut [f64]) + Sync,
) -> Result<Outcome, KernelError> {
    let n = options.at_least("n", 1)? as usize;
    let repetitions = options.or("repetitions", (ENOUGH / flops(n)).clamp(1.0, 1000.0) as u64);
    let seed = options.number("seed");
    let team = Team::of(options)?;
    let mut system = System::map(n, team.threads(), wants_huge_pages(options))?;
    let column = |j: usize, values: &mut [f64]| column(seed, j, values);

    let mut times = Vec::new();
    let mut worst = Residual::default();
    let warm_order = n.min(WARM_UP_ORDER);
    pool::run(&team, || {
        warm_up(warm_order, &team)?;
        for _ in 0..repetitions {
            system.fill(&column);
            let start = now_ns();
            let mut answer = system.solve();
            times.push(seconds_since(start));
            spoil(&mut answer);
            worst = worst.worse(residual(&column, &answer));
        }
        Ok::<_, KernelError>(())
    })??;

    let time = median(&times);
    let mut outcome = Outcome::new();
    outcome.metric("rate", flops(n) / time, "FLOP/s");
    outcome.operations = (flops(warm_order) + flops(n) * repetitions as f64).round() as u64;
    let best = times.iter().copied().fold(f64::INFINITY, f64::min);
    outcome.fact("best_rate", flops(n) / best);
    outcome.warn_when_short("the time of all solutions", times.iter().sum());
    conclude(&mut outcome, options, &team, &system, (repetitions, worst));
    Ok(outcome)
}

fn endless(options: &Options, marks: &mut Marks) -> Result<Outcome, KernelError> {
    solve_endlessly(options, marks, |_| ())
}

/// A piece is the solution of one system, or of several small ones. The time for generating systems
/// and checking answers does not count as work. `spoil` is as in [`measure`].
fn solve_endlessly(
    options: &Options,
    marks: &mut Marks,
    spoil: impl Fn(&mut [f64]) + Sync,
) -> Result<Outcome, KernelError> {
    let n = options.at_least("n", 1)? as usize;
    let seed = options.number("seed");
    let team = Team::of(options)?;
    let map = |_| System::map(n, team.threads(), wants_huge_pages(options));
    let count = (PIECE / flops(n)).clamp(1.0, MOST_SYSTEMS) as usize;
    let mut systems: Vec<_> = (0..count).map(map).collect::<Result<_, _>>()?;
    let column = |j: usize, values: &mut [f64]| random_column(seed, j, values);

    let (mut solved, mut worst) = (0, Residual::default());
    let warm_order = n.min(WARM_UP_ORDER);
    pool::run(&team, || {
        warm_up(warm_order, &team)?;
        loop {
            systems.iter_mut().for_each(|system| system.fill(&column));
            marks.ready();
            let answers: Vec<_> = systems.iter_mut().map(System::solve).collect();
            marks.done(&[("rate", flops(n) * count as f64)]);
            marks.flush();
            solved += count as u64;
            for mut answer in answers {
                spoil(&mut answer);
                worst = worst.worse(residual(&column, &answer));
            }
            if marks.stopped() {
                return Ok::<_, KernelError>(());
            }
        }
    })??;

    let mut outcome = Outcome::new();
    outcome.operations = (flops(warm_order) + flops(n) * solved as f64).round() as u64;
    conclude(&mut outcome, options, &team, &systems[0], (solved, worst));
    Ok(outcome)
}

/// Solves a small system, which brings the code into memory.
fn warm_up(order: usize, team: &Team) -> Result<(), KernelError> {
    let mut small = System::map(order, team.threads(), false)?;
    small.fill(&|j, values: &mut [f64]| random_column(0, j, values));
    small.solve();
    Ok(())
}

/// Reports facts and check.
fn conclude(
    outcome: &mut Outcome,
    options: &Options,
    team: &Team,
    system: &System,
    (solved, worst): (u64, Residual),
) {
    team.state(outcome);
    outcome.fact("vector", Vector::detect().name());
    outcome.fact("matrix_bytes", system.region.bytes());
    outcome.fact("scaled_residual", worst.scaled);
    state_huge_pages(outcome, [&system.region], wants_huge_pages(options));
    outcome.fact("repetitions", solved);
    outcome.checked(worst.scaled < THRESHOLD, worst.statement());
}

/// Operations as LINPACK counts them: the factorisation, and the solution of two triangular
/// systems.
fn flops(n: usize) -> f64 {
    let n = n as f64;
    2.0 / 3.0 * n * n * n + 2.0 * n * n
}

/// Numbers in [-1/2, 1/2), as in HPL. Every column has its own generator, so that threads can
/// generate them in any order.
fn random_column(seed: u64, j: usize, values: &mut [f64]) {
    let state = u128::from(scatter(seed)) << 64 | u128::from(scatter(seed ^ scatter(j as u64 + 1)));
    let mut random = Pcg64Mcg::new(state | 1);
    for value in values {
        *value = (random.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64) - 0.5;
    }
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): neighbouring numbers become
/// unrelated ones.
pub(super) fn scatter(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Matrix and right-hand side, and the memory that the factorisation needs besides.
struct System {
    n: usize,
    /// Doubles from the start of one column to the next.
    stride: usize,
    region: Region,
    right: Vec<f64>,
    permutation: [Vec<usize>; 2],
    scratch: MemBuffer,
    par: Par,
}

impl System {
    fn map(n: usize, threads: usize, huge: bool) -> Result<Self, KernelError> {
        let mut stride = n.next_multiple_of(LINE);
        // Columns a multiple of a page apart would all fall into the same few sets of the caches.
        if stride.is_multiple_of(512) {
            stride += LINE;
        }
        let bytes = stride.checked_mul(n).and_then(|doubles| doubles.checked_mul(size_of::<f64>()));
        let Some(bytes) = bytes else {
            return Err(KernelError::usage(format!("`--n {n}` is too large for the address space")));
        };
        let par = if threads == 1 { Par::Seq } else { Par::rayon(threads) };
        let scratch = factor::lu_in_place_scratch::<usize, f64>(n, n, par, Spec::default())
            .or(solve::solve_in_place_scratch::<usize, f64>(n, 1, par));
        Ok(Self {
            n,
            stride,
            region: Region::map(bytes, huge)?,
            right: vec![0.0; n],
            permutation: [vec![0; n], vec![0; n]],
            scratch: MemBuffer::new(scratch),
            par,
        })
    }

    /// Generates the equations again; each thread of the pool writes whole columns.
    fn fill(&mut self, column: &(impl Fn(usize, &mut [f64]) + Sync)) {
        let n = self.n;
        // SAFETY: the region is mapped, zeroed memory of that many doubles, aligned, and the borrow
        // keeps every other use of it away.
        let doubles =
            unsafe { std::slice::from_raw_parts_mut(self.region.start().cast::<f64>(), self.stride * n) };
        doubles.par_chunks_mut(self.stride).enumerate().for_each(|(j, values)| column(j, &mut values[..n]));
        column(n, &mut self.right);
    }

    /// Factorises the matrix, which destroys it, and returns the answer. This is what is timed.
    fn solve(&mut self) -> Vec<f64> {
        let n = self.n;
        let start = self.region.start().cast::<f64>();
        // SAFETY: the region holds n columns of n doubles that far apart, and the borrow keeps
        // every other use of it away.
        let mut matrix = unsafe { MatMut::from_raw_parts_mut(start, n, n, 1, self.stride as isize) };
        let stack = MemStack::new(&mut self.scratch);
        let [forward, inverse] = &mut self.permutation;
        let (_, permutation) =
            factor::lu_in_place(matrix.as_mut(), forward, inverse, self.par, stack, Spec::default());
        let mut answer = self.right.clone();
        let right = MatMut::from_column_major_slice_mut(&mut answer, n, 1);
        solve::solve_in_place(matrix.as_ref(), matrix.as_ref(), permutation, right, self.par, stack);
        answer
    }
}

/// How far an answer is from solving the system.
#[derive(Debug, Clone, Copy, Default)]
struct Residual {
    scaled: f64,
    absolute: f64,
}

impl Residual {
    /// The larger of two. NaN is the largest.
    fn worse(self, other: Self) -> Self {
        if self.scaled.is_nan() || self.scaled > other.scaled { self } else { other }
    }

    fn statement(&self) -> String {
        let Self { scaled, absolute } = self;
        if scaled.is_finite() {
            format!(
                "the scaled residual of HPL is {scaled:.3e}, allowed below {THRESHOLD}; ||Ax - b|| is {absolute:.3e}"
            )
        } else {
            "the answer is not finite: the matrix is singular, or arithmetic here is wrong".into()
        }
    }
}

/// The residual of HPL. The threads of the pool generate the columns again.
fn residual(column: &(impl Fn(usize, &mut [f64]) + Sync), answer: &[f64]) -> Residual {
    let n = answer.len();
    let mut right = vec![0.0; n];
    column(n, &mut right);
    let chunk = n.div_ceil(rayon::current_num_threads());
    // Sums over a row: of the product of matrix and answer, and of absolute values.
    let (products, sizes) = (0..n)
        .into_par_iter()
        .step_by(chunk)
        .map(|first| {
            let (mut products, mut sizes, mut values) = (vec![0.0; n], vec![0.0; n], vec![0.0; n]);
            for (j, unknown) in answer.iter().enumerate().skip(first).take(chunk) {
                column(j, &mut values);
                for ((product, size), value) in products.iter_mut().zip(&mut sizes).zip(&values) {
                    *product += value * unknown;
                    *size += value.abs();
                }
            }
            (products, sizes)
        })
        .reduce(|| (vec![0.0; n], vec![0.0; n]), |one, other| (sum(one.0, &other.0), sum(one.1, &other.1)));
    let absolute = maximum_norm(products.iter().zip(&right).map(|(product, right)| product - right));
    let norm = |values: &[f64]| maximum_norm(values.iter().copied());
    let scale = PRECISION * (norm(&sizes) * norm(answer) + norm(&right)) * n as f64;
    Residual { scaled: absolute / scale, absolute }
}

fn sum(mut one: Vec<f64>, other: &[f64]) -> Vec<f64> {
    one.iter_mut().zip(other).for_each(|(one, other)| *one += other);
    one
}

/// The largest absolute value; NaN if any value is NaN.
fn maximum_norm(values: impl Iterator<Item = f64>) -> f64 {
    values
        .map(f64::abs)
        .fold(0.0, |largest, value| if value > largest || value.is_nan() { value } else { largest })
}

#[cfg(test)]
mod tests;
