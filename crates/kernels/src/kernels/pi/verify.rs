//! How the digits are verified.
//!
//! An error anywhere in the series, the root or the quotient changes all binary digits after it, so
//! those at the end reveal any error. They are computed independently by Bellard's formula, which
//! gives binary digits at any place without those before it (F. Bellard, "A new formula to compute
//! the n'th binary digit of pi", 1997; the method is that of D. Bailey, P. Borwein and S. Plouffe)
//! and shares neither series nor arithmetic with the computation. An error in the steps after that
//! could stay local, so these are checked modulo a prime.

use super::arithmetic::words;
use super::decimal::Decimals;
use super::series::{Pi, bits_of};
use dashu_int::UBig;
use rayon::prelude::*;

/// 2^61 - 1, a prime. A wrong number has the right residue with a probability of 1 in 2^61.
pub(super) const MODULUS: u64 = (1 << 61) - 1;

/// The number of compared bits, including the uncertain ones.
const WINDOW_BITS: usize = 64;

/// The last ten of the given number of digits after the point, as published (the first five in
/// every table of Pi).
const PUBLISHED: &[(usize, &str)] = &[
    (100, "3421170679"),
    (1_000, "2164201989"),
    (10_000, "5256375678"),
    (100_000, "5493624646"),
    (1_000_000, "5779458151"),
];

/// Whether the digits are those of Pi.
pub(super) struct Verdict {
    pub(super) passed: bool,
    pub(super) statement: String,
}

/// Runs every applicable check, on the threads of the pool.
pub(super) fn verify(pi: &Pi, decimals: &Decimals) -> Verdict {
    let mut passed = true;
    let mut statement = Vec::new();
    let mut state = |holds: bool, sentence: String| {
        passed &= holds;
        statement.push(sentence);
    };
    let place = bits_of(decimals.count).saturating_sub(WINDOW_BITS);
    let (window, doubt) = bellard(place as u64);
    let found = words(&(&pi.value >> (pi.bits - place - WINDOW_BITS)))[0];
    let agree = window.wrapping_sub(found).min(found.wrapping_sub(window)) <= doubt;
    let sure = WINDOW_BITS as u32 - (u64::BITS - doubt.leading_zeros());
    let verb = if agree { "agree" } else { "do not agree" };
    state(agree, format!("{sure} binary digits after place {place} {verb} with Bellard's formula"));

    let text = decimals
        .text
        .iter()
        .fold(0, |sum, digit| add(multiply(sum, 10), u64::from(digit.wrapping_sub(b'0'))));
    let holds = pi.products_hold && decimals.wrong_steps == 0 && text == decimals.spelled;
    let verb = if holds { "hold" } else { "do not hold" };
    state(holds, format!("products and conversion {verb} modulo 2^61 - 1"));

    if let Some((_, published)) = PUBLISHED.iter().find(|(count, _)| *count == decimals.count) {
        let last = decimals.last(published.len());
        let verb = if last == *published { "are" } else { "are not" };
        state(last == *published, format!("the last digits, {last}, {verb} the published ones"));
    }
    Verdict { passed, statement: statement.join("; ") }
}

/// The sum of two residues.
pub(super) fn add(one: u64, other: u64) -> u64 {
    reduce(u128::from(one) + u128::from(other))
}

/// The product of two residues.
pub(super) fn multiply(one: u64, other: u64) -> u64 {
    reduce(u128::from(one) * u128::from(other))
}

/// A power of a residue.
pub(super) fn power(base: u64, exponent: u64) -> u64 {
    let (mut result, mut square, mut rest) = (1, base, exponent);
    while rest > 0 {
        if rest & 1 == 1 {
            result = multiply(result, square);
        }
        square = multiply(square, square);
        rest >>= 1;
    }
    result
}

/// The residue of a large number.
pub(super) fn residue(number: &UBig) -> u64 {
    residue_of_words(&words(number))
}

/// The residue of a number in words, the lowest first.
pub(super) fn residue_of_words(words: &[u64]) -> u64 {
    // 2^64 is 8 modulo the prime.
    words.iter().rev().fold(0, |high, word| reduce((u128::from(high) << 3) + u128::from(*word)))
}

/// Reduces a number below 2^122. The bits above the 61st have the same weight as those below,
/// because 2^61 is 1 modulo the prime.
fn reduce(number: u128) -> u64 {
    let once = (number as u64 & MODULUS) + (number >> 61) as u64;
    if once >= MODULUS { once - MODULUS } else { once }
}

/// A term of Bellard's formula at n is `sign 2^shift / (2^(10 n + 6) (step n + offset))`, and the
/// sign changes with n.
struct Term {
    negative: bool,
    shift: u64,
    step: u64,
    offset: u64,
}

const BELLARD: [Term; 7] = [
    Term { negative: true, shift: 5, step: 4, offset: 1 },
    Term { negative: true, shift: 0, step: 4, offset: 3 },
    Term { negative: false, shift: 8, step: 10, offset: 1 },
    Term { negative: true, shift: 6, step: 10, offset: 3 },
    Term { negative: true, shift: 2, step: 10, offset: 5 },
    Term { negative: true, shift: 2, step: 10, offset: 7 },
    Term { negative: false, shift: 0, step: 10, offset: 9 },
];

/// The 64 binary digits of Pi after the first `place` ones after its point, and by how many units
/// of the last digit they may be off.
fn bellard(place: u64) -> (u64, u64) {
    // From here on all terms are below a unit of the last digit.
    let end = (place + WINDOW_BITS as u64 + 8) / 10 + 1;
    let sum = (0..end as usize)
        .into_par_iter()
        .with_min_len(256)
        .map(|n| {
            let n = n as u64;
            BELLARD.iter().fold(0u64, |sum, term| {
                let size =
                    part(place as i64 - 6 - 10 * n as i64 + term.shift as i64, term.step * n + term.offset);
                if term.negative ^ (n % 2 == 1) { sum.wrapping_sub(size) } else { sum.wrapping_add(size) }
            })
        })
        .reduce(|| 0, u64::wrapping_add);
    // Every term is rounded down by less than a unit. The omitted terms, and the number itself,
    // account for less than one unit each.
    (sum, BELLARD.len() as u64 * end + 2)
}

/// The first 64 binary digits of `2^exponent / divisor` after its point; the divisor is odd and
/// below 2^63.
fn part(exponent: i64, divisor: u64) -> u64 {
    if exponent < 0 {
        let shift = exponent + WINDOW_BITS as i64;
        return if shift < 0 { 0 } else { (1 << shift) / divisor };
    }
    let rest = power_of_two(exponent as u64, divisor);
    ((u128::from(rest) << 64) / u128::from(divisor)) as u64
}

/// `2^exponent` modulo an odd number below 2^63, by Montgomery's method.
fn power_of_two(exponent: u64, modulus: u64) -> u64 {
    let Some(beyond) = exponent.checked_sub(64) else {
        return (1 << exponent) % modulus;
    };
    // Newton's iteration doubles the bits that are right; an odd number is its own inverse to three
    // bits.
    let mut inverse = modulus;
    for _ in 0..5 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(modulus.wrapping_mul(inverse)));
    }
    // A number's Montgomery form is the number times 2^64, so 2^beyond in that form is the result.
    let one = (u64::MAX % modulus + 1) % modulus;
    let mut result = one;
    for bit in (0..u64::BITS - beyond.leading_zeros()).rev() {
        let square = u128::from(result) * u128::from(result);
        let quotient = (square as u64).wrapping_mul(inverse);
        let excess = ((u128::from(quotient) * u128::from(modulus)) >> 64) as u64;
        let high = (square >> 64) as u64;
        result = if high < excess { high + modulus - excess } else { high - excess };
        if beyond >> bit & 1 == 1 {
            result += result;
            result -= if result >= modulus { modulus } else { 0 };
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_two_are_those_of_plain_arithmetic() {
        for modulus in [1u64, 3, 9, 255, 1_000_003, 4_294_967_297, 8_000_000_000_000_000_001] {
            let mut plain = 1 % modulus;
            for exponent in 0..300 {
                assert_eq!(power_of_two(exponent, modulus), plain, "2^{exponent} modulo {modulus}");
                plain = (u128::from(plain) * 2 % u128::from(modulus)) as u64;
            }
        }
    }

    #[test]
    fn binary_digits_are_those_of_pi() {
        // In hexadecimal Pi is 3.243F6A88 85A308D3 13198A2E 03707344 A4093822...
        for (place, expected) in [
            (0, 0x243f_6a88_85a3_08d3u64),
            (4, 0x43f6_a888_5a30_8d31),
            (32, 0x85a3_08d3_1319_8a2e),
            (96, 0x0370_7344_a409_3822),
        ] {
            let (window, doubt) = bellard(place);
            assert!(doubt < 300 && window.abs_diff(expected) <= doubt, "{place}: {window:x} {expected:x}");
        }
    }

    #[test]
    fn residues_are_those_of_plain_arithmetic() {
        let words = [u64::MAX, 12_345_678_901_234_567_890, 3];
        let number = UBig::from_words(&words);
        let expected = &number % UBig::from(MODULUS);
        assert_eq!(UBig::from(residue(&number)), expected);
        assert_eq!(power(10, 5), 100_000);
        assert_eq!(power(2, 61), 1);
        assert_eq!(multiply(MODULUS - 1, MODULUS - 1), 1);
        assert_eq!(add(MODULUS - 1, 1), 0);
    }
}
