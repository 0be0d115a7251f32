//! Converting a binary fraction to decimal digits.
//!
//! A fraction times 10^h has the first h digits before its point and the others after it. The first
//! half is found from the leading bits of the fraction, the second from the part of the product
//! after the point. Both need half of the bits, and continue in the same way. Only products are
//! needed, no division, and the halves are independent of each other.
//!
//! Every step is checked modulo a prime: with F the fraction, D the number that the first digits
//! spell and R the rest, `F 10^h = D 2^bits + R` must hold. D is only known once these digits are
//! written, so the equation covers all steps below it.

use super::arithmetic::{both, low_bits, words};
use super::series::{Pi, bits_of};
use super::verify::{MODULUS, add, multiply, power, residue, residue_of_words};
use dashu_int::UBig;
use std::sync::atomic::{AtomicU64, Ordering};

/// Pieces of about this many digits are converted one word at a time.
const LEAF_DIGITS: usize = 256;

/// Bits of a piece beyond its last digit. A digit is wrong if all of these bits of the exact
/// fraction after it are 0, and then the equation does not hold.
const GUARD_BITS: usize = 64;

/// A piece of fewer digits is converted by a single thread.
const SHARED_DIGITS: usize = 8192;

/// Digits in a word: 10^19 is the largest power of ten below 2^64.
const WORD_DIGITS: usize = 19;

/// Decimal digits after the point.
pub(super) struct Decimals {
    /// ASCII, with a few digits too many, for which the fraction is not long enough.
    pub(super) text: Vec<u8>,
    /// The number of requested digits.
    pub(super) count: usize,
    /// The number that the whole text spelled when it was written, modulo the prime.
    pub(super) spelled: u64,
    /// Steps of the conversion whose equation did not hold modulo the prime.
    pub(super) wrong_steps: u64,
}

impl Decimals {
    /// The last of the requested digits.
    pub(super) fn last(&self, digits: usize) -> String {
        String::from_utf8_lossy(&self.text[self.count - digits..self.count]).into_owned()
    }
}

struct Converter {
    /// 10^(leaf * 2^i).
    powers: Vec<UBig>,
    wrong: AtomicU64,
}

/// The digits after the point of Pi.
pub(super) fn convert(pi: &Pi, digits: usize) -> Decimals {
    let mut levels = 0;
    while digits.div_ceil(1 << levels) > LEAF_DIGITS {
        levels += 1;
    }
    // All leaves have the same length, so that one power of ten serves a whole level. This makes a
    // few digits too many at the end.
    let leaf = digits.div_ceil(1 << levels);
    let mut powers: Vec<UBig> = Vec::with_capacity(levels);
    for level in 0..levels {
        let power = match level {
            0 => UBig::from(10u8).pow(leaf),
            _ => powers[level - 1].sqr(),
        };
        powers.push(power);
    }
    let converter = Converter { powers, wrong: AtomicU64::new(0) };
    let mut text = vec![b'0'; leaf << levels];
    let fraction = low_bits(&pi.value, pi.bits);
    let spelled = converter.write(&fraction, pi.bits, &mut text, levels);
    Decimals { text, count: digits, spelled, wrong_steps: converter.wrong.into_inner() }
}

impl Converter {
    /// Writes the first digits of `fraction / 2^bits` to `text`, which has 2^level leaves, and
    /// returns the number that they spell modulo the prime.
    fn write(&self, fraction: &UBig, bits: usize, text: &mut [u8], level: usize) -> u64 {
        if level == 0 {
            return self.write_leaf(fraction, bits, text);
        }
        let half = text.len() / 2;
        let half_bits = (bits_of(half) + GUARD_BITS).min(bits);
        let shared = half >= SHARED_DIGITS;
        let (first_text, second_text) = text.split_at_mut(half);
        let product = || {
            let product = fraction * &self.powers[level - 1];
            let rest = low_bits(&product, bits);
            let second = &rest >> (bits - half_bits);
            let rest = residue(&rest);
            (self.write(&second, half_bits, second_text, level - 1), rest)
        };
        let leading = || {
            let first = fraction >> (bits - half_bits);
            self.write(&first, half_bits, first_text, level - 1)
        };
        let ((second, rest), first) = both(shared, product, leading);
        let shift = power(10, half as u64);
        self.check(residue(fraction), shift, first, bits, rest);
        add(multiply(first, shift), second)
    }

    /// Writes digits one word at a time: the part of the fraction times 10^19 before the point.
    fn write_leaf(&self, fraction: &UBig, bits: usize, text: &mut [u8]) -> u64 {
        let length = bits.div_ceil(64);
        let aligned = fraction << (length * 64 - bits);
        let mut words = words(&aligned).into_owned();
        words.resize(length, 0);
        let (mut spelled, mut shift) = (0, 1);
        for chunk in text.chunks_mut(WORD_DIGITS) {
            let scale = 10u64.pow(chunk.len() as u32);
            let mut carry = 0;
            for word in &mut words {
                let wide = u128::from(*word) * u128::from(scale) + u128::from(carry);
                *word = wide as u64;
                carry = (wide >> 64) as u64;
            }
            spelled = add(multiply(spelled, scale % MODULUS), carry % MODULUS);
            shift = multiply(shift, scale % MODULUS);
            for digit in chunk.iter_mut().rev() {
                *digit = b'0' + (carry % 10) as u8;
                carry /= 10;
            }
        }
        self.check(residue(&aligned), shift, spelled, length * 64, residue_of_words(&words));
        spelled
    }

    /// Counts a step for which `fraction * shift = digits * 2^bits + rest` does not hold modulo the
    /// prime.
    fn check(&self, fraction: u64, shift: u64, digits: u64, bits: usize, rest: u64) {
        if multiply(fraction, shift) != add(multiply(digits, power(2, bits as u64)), rest) {
            self.wrong.fetch_add(1, Ordering::Relaxed);
        }
    }
}
