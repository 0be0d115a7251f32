//! Products, reciprocals and roots of large numbers on several threads.
//!
//! The products of the crate dashu run on one thread. If there are more threads than products, a
//! long product is cut into three of half the length (Karatsuba's method). Together these take half
//! of the time, though half as much work again. Quotients and roots are found by Newton's
//! iteration, which needs only products, each step of twice the length of the one before.

use dashu_int::ops::{BitTest, SquareRoot};
use dashu_int::{IBig, UBig, Word};
use std::borrow::Cow;

/// Products with a factor of fewer bits are not cut: some hundreds of microseconds of work.
const CUT_BITS: usize = 1 << 19;

/// Reciprocals and roots of fewer bits are found by long division.
const DIVIDED_BITS: usize = 1 << 12;

/// Bits of an approximation beyond half of the result's bits: they hold the rounding of a step.
const SLACK: usize = 16;

/// Runs two pieces of work, on two threads if `shared` is set.
pub(super) fn both<T: Send, U: Send>(
    shared: bool,
    one: impl FnOnce() -> T + Send,
    other: impl FnOnce() -> U + Send,
) -> (T, U) {
    if shared { rayon::join(one, other) } else { (one(), other()) }
}

/// The product, computed on at most `threads` threads of the pool.
pub(super) fn product(one: &UBig, other: &UBig, threads: usize) -> UBig {
    let (long, short) = if one.bit_len() >= other.bit_len() { (one, other) } else { (other, one) };
    if threads < 3 || short.bit_len() < CUT_BITS {
        return long * short;
    }
    let cut = long.bit_len().div_ceil(128) * 64;
    let share = threads / 3;
    let (high, low) = parts(long, cut);
    if short.bit_len() <= cut {
        let (high, low) =
            rayon::join(|| product(&high, short, threads / 2), || product(&low, short, threads / 2));
        return (high << cut) + low;
    }
    let (short_high, short_low) = parts(short, cut);
    let (middle, (high_product, low_product)) = rayon::join(
        || product(&(&high + &low), &(&short_high + &short_low), share),
        || rayon::join(|| product(&high, &short_high, share), || product(&low, &short_low, share)),
    );
    let middle = middle - &high_product - &low_product;
    (((high_product << cut) + middle) << cut) + low_product
}

/// Splits a number into the bits from `cut` on, and those below.
fn parts(number: &UBig, cut: usize) -> (UBig, UBig) {
    (number >> cut, low_bits(number, cut))
}

/// The lowest bits.
pub(super) fn low_bits(number: &UBig, bits: usize) -> UBig {
    number & ((UBig::ONE << bits) - UBig::ONE)
}

/// `2^(length + precision) / divisor`, within a few units, where `length` is the number of bits of
/// the divisor.
pub(super) fn reciprocal(divisor: &UBig, precision: usize, threads: usize) -> UBig {
    let length = divisor.bit_len();
    // Leading bits of the divisor beyond the length of the result change nothing.
    let top = divisor >> length.saturating_sub(precision + SLACK);
    let length = top.bit_len();
    if precision <= DIVIDED_BITS {
        return (UBig::ONE << (length + precision)) / top;
    }
    let half = precision / 2 + SLACK;
    let near = reciprocal(&top, half, threads);
    let error = IBig::from(UBig::ONE << (length + half)) - IBig::from(product(&near, &top, threads));
    // The correction is near * error / 2^scale. It has about half of the bits, so the error needs
    // no more.
    let scale = length + 2 * half - precision;
    let spare = scale.saturating_sub(half);
    let correction = signed_product(&near, &(error >> spare), threads) >> (scale - spare);
    sum(near << (precision - half), correction)
}

/// `2^precision / sqrt(number)`, within a few units.
pub(super) fn reciprocal_root(number: u32, precision: usize, threads: usize) -> UBig {
    if precision <= DIVIDED_BITS {
        return ((UBig::ONE << (2 * precision)) / UBig::from(number)).sqrt();
    }
    let half = precision / 2 + SLACK;
    let near = reciprocal_root(number, half, threads);
    let square = if threads < 3 { near.sqr() } else { product(&near, &near, threads) };
    let error = IBig::from(UBig::ONE << (2 * half)) - IBig::from(square * UBig::from(number));
    let correction = signed_product(&near, &error, threads) >> (3 * half + 1 - precision);
    sum(near << (precision - half), correction)
}

/// The product with a signed number.
pub(super) fn signed_product(one: &UBig, other: &IBig, threads: usize) -> IBig {
    let (sign, words) = other.as_sign_words();
    if threads < 3 || words.len() * (Word::BITS as usize) < CUT_BITS {
        return other * one;
    }
    IBig::from_parts(sign, product(one, &UBig::from_words(words), threads))
}

/// The number in words of 64 bits, the lowest first.
#[cfg(target_pointer_width = "64")]
pub(super) fn words(number: &UBig) -> Cow<'_, [u64]> {
    Cow::Borrowed(number.as_words())
}

/// Where addresses have 32 bits, so have the words of the numbers.
#[cfg(target_pointer_width = "32")]
pub(super) fn words(number: &UBig) -> Cow<'_, [u64]> {
    let pair = |pair: &[Word]| u64::from(pair[0]) | u64::from(pair.get(1).copied().unwrap_or(0)) << 32;
    Cow::Owned(number.as_words().chunks(2).map(pair).collect())
}

fn sum(one: UBig, other: IBig) -> UBig {
    UBig::try_from(IBig::from(one) + other).expect("a correction is smaller than what it corrects")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number whose bits have no pattern.
    fn number(bits: usize) -> UBig {
        let mut word = 0x9e37_79b9_7f4a_7c15u64;
        let words: Vec<u64> = (0..bits.div_ceil(64))
            .map(|_| {
                word ^= word << 13;
                word ^= word >> 7;
                word ^= word << 17;
                word
            })
            .collect();
        (UBig::from_words(&words) >> (words.len() * 64 - bits)) | (UBig::ONE << (bits - 1))
    }

    #[test]
    fn products_that_are_cut_are_those_that_are_not() {
        let long = number(2 * CUT_BITS + 77);
        for bits in [100, CUT_BITS + 5, 2 * CUT_BITS, 2 * CUT_BITS + 77] {
            let short = number(bits);
            let plain = &long * &short;
            for threads in [1, 3, 8] {
                assert_eq!(product(&long, &short, threads), plain, "{bits} bits on {threads}");
                assert_eq!(product(&short, &long, threads), plain, "{bits} bits on {threads}");
            }
        }
    }

    #[test]
    fn reciprocals_are_those_of_long_division() {
        for (bits, precision) in [(100, 50), (100, 9000), (20_000, 4097), (20_000, 20_000), (5_000, 33_333)] {
            let divisor = number(bits);
            let exact = (UBig::ONE << (divisor.bit_len() + precision)) / &divisor;
            let off = IBig::from(reciprocal(&divisor, precision, 1)) - IBig::from(exact);
            assert!(off < IBig::from(16) && off > IBig::from(-16), "{bits} {precision}: {off}");
        }
    }

    #[test]
    fn roots_are_those_of_the_library() {
        for precision in [100, 4097, 20_000, 33_333] {
            let exact = ((UBig::ONE << (2 * precision)) / UBig::from(10_005u32)).sqrt();
            let near = reciprocal_root(10_005, precision, 3);
            let off = IBig::from(near) - IBig::from(exact);
            assert!(off < IBig::from(16) && off > IBig::from(-16), "{precision}: {off}");
        }
    }
}
