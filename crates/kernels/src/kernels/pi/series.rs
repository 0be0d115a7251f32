//! Pi as a binary fraction, by the series of the Chudnovskys.
//!
//! `1/Pi = 12 sum (-1)^k (6k)! (A + B k) / ((3k)! (k!)^3 C^(3k + 3/2))` (D. V. and G. V.
//! Chudnovsky, 1988), summed by binary splitting as in B. Haible and T. Papanikolaou, "Fast
//! multiprecision evaluation of series of rational numbers" (ANTS 1998): with the products P and Q
//! of the factors by which a term differs from the one before it, and T so that the sum over a
//! range is T/Q, two neighbouring ranges are joined by `P = P1 P2`, `Q = Q1 Q2`,
//! `T = T1 Q2 + P1 T2`.

use super::arithmetic::{both, product, reciprocal, reciprocal_root, signed_product};
use super::verify::{multiply, residue};
use dashu_int::ops::BitTest;
use dashu_int::{IBig, Sign, UBig};

const A: u64 = 13_591_409;
const B: u64 = 545_140_134;
const C: u64 = 640_320;

/// Digits that each term adds: log10(C^3 / 1728).
const DIGITS_PER_TERM: f64 = 14.181_647_462_725_477;

/// Bits beyond the last digit. Every step rounds off at most a few units of the last bit. A digit
/// could be wrong only if all digits that these bits hold were 0, or all were 9.
pub(super) const GUARD_BITS: usize = 128;

/// A range of fewer terms is summed by a single thread: some tens of microseconds of work.
const SHARED_TERMS: u64 = 256;

/// Operands of fewer bits are multiplied by a single thread: again some tens of microseconds.
const SHARED_BITS: usize = 1 << 17;

/// Pi as a binary fraction.
pub(super) struct Pi {
    /// Pi * 2^bits, less a few units.
    pub(super) value: UBig,
    /// Bits after the binary point.
    pub(super) bits: usize,
    /// Terms of the series that were summed.
    pub(super) terms: u64,
    /// Whether the last products hold modulo the prime of the verification.
    pub(super) products_hold: bool,
}

/// The sum of a range of terms.
struct Range {
    /// Absent if it is not needed: the last range has nothing to its right.
    p: Option<UBig>,
    q: UBig,
    t: IBig,
}

/// The sum of all required terms.
pub(super) struct Sum {
    range: Range,
    terms: u64,
}

/// The number of bits that holds `digits` decimal digits.
pub(super) fn bits_of(digits: usize) -> usize {
    (digits as f64 * std::f64::consts::LOG2_10) as usize + 1
}

/// Sums the series for `digits` digits, with its branches on the threads of the pool.
pub(super) fn sum(digits: usize) -> Sum {
    let terms = (digits as f64 / DIGITS_PER_TERM) as u64 + 2;
    // Term 0 is A/1 and has no factor; it is added at the end.
    Sum { range: split(1, terms, false, rayon::current_num_threads()), terms }
}

/// Sums the terms of `first..end`, at least one, on `threads` threads.
fn split(first: u64, end: u64, needs_p: bool, threads: usize) -> Range {
    if end - first == 1 {
        return term(first);
    }
    let middle = first + (end - first) / 2;
    let (left, right) = both(
        end - first >= SHARED_TERMS,
        || split(first, middle, true, threads.div_ceil(2)),
        || split(middle, end, needs_p, threads.div_ceil(2)),
    );
    join(&left, &right, needs_p, threads)
}

fn term(k: u64) -> Range {
    let wide = u128::from(k);
    let p = UBig::from((6 * wide - 5) * (2 * wide - 1)) * UBig::from(6 * k - 1);
    // C^3 / 24 is a whole number.
    let q = UBig::from(wide * wide) * UBig::from(wide * u128::from(C / 24 * C)) * UBig::from(C);
    let sign = if k % 2 == 1 { Sign::Negative } else { Sign::Positive };
    let t = IBig::from_parts(sign, &p * UBig::from(u128::from(A) + u128::from(B) * wide));
    Range { p: Some(p), q, t }
}

fn join(left: &Range, right: &Range, needs_p: bool, threads: usize) -> Range {
    let p1 = left.p.as_ref().expect("a range with another to its right has its P");
    let shared = left.q.bit_len() >= SHARED_BITS;
    let share = threads / if needs_p { 4 } else { 3 };
    let p = || right.p.as_ref().filter(|_| needs_p).map(|p2| product(p1, p2, share));
    let ((t1, t2), (q, p)) = both(
        shared,
        || both(shared, || signed_product(&right.q, &left.t, share), || signed_product(p1, &right.t, share)),
        || both(shared, || product(&left.q, &right.q, share), p),
    );
    Range { p, q, t: t1 + t2 }
}

impl Sum {
    /// `Pi = C^(3/2) Q / (12 (A Q + T))`, where `C^(3/2) / 12` is `426880 * 10005 / sqrt(10005)`.
    pub(super) fn finish(self, digits: usize) -> Pi {
        let threads = rayon::current_num_threads();
        let bits = bits_of(digits) + GUARD_BITS;
        let precision = bits + GUARD_BITS;
        let Range { q, t, .. } = self.range;
        let denominator = IBig::from(&q * UBig::from(A)) + t;
        let denominator = UBig::try_from(denominator).expect("the first term is the largest by far");
        // Only their ratio matters, to as many bits as the result has.
        let excess = denominator.bit_len().saturating_sub(precision);
        let (q, denominator) = (q >> excess, denominator >> excess);
        let length = denominator.bit_len();
        let (inverse, root) = rayon::join(
            || reciprocal(&denominator, precision, threads.div_ceil(2)),
            || reciprocal_root(10_005, precision, threads.div_ceil(2)),
        );
        let mut holds = true;
        let mut checked = |one: &UBig, other: &UBig| {
            let product = product(one, other, threads);
            holds &= residue(&product) == multiply(residue(one), residue(other));
            product
        };
        let ratio = checked(&q, &inverse) >> length;
        let product = checked(&ratio, &root) * UBig::from(426_880 * 10_005u64);
        Pi { value: product >> (2 * precision - bits), bits, terms: self.terms, products_hold: holds }
    }
}
