//! The four loops of STREAM, for each width of vectors and both kinds of stores.

use crate::machine::Vector;

/// `(first source, second source, target, elements, scalar)`. All pointers are aligned to 64 bytes
/// and the target is not one of the sources.
type Loop = unsafe fn(*const f64, *const f64, *mut f64, usize, f64);

/// Copy, scale, add, triad.
pub(super) struct Loops([Loop; 4]);

impl Loops {
    /// The loops for instructions that this CPU has, and whether they use non-temporal stores: the
    /// portable ones cannot.
    pub(super) fn choose(vector: Vector, non_temporal: bool) -> (Self, bool) {
        match (vector, non_temporal) {
            #[cfg(target_arch = "x86_64")]
            (Vector::Avx512f, true) => (Self(avx512f::loops::<true>()), true),
            #[cfg(target_arch = "x86_64")]
            (Vector::Avx512f, false) => (Self(avx512f::loops::<false>()), false),
            #[cfg(target_arch = "x86_64")]
            (Vector::Avx2, true) => (Self(avx2::loops::<true>()), true),
            #[cfg(target_arch = "x86_64")]
            (Vector::Avx2, false) => (Self(avx2::loops::<false>()), false),
            #[cfg(target_arch = "x86_64")]
            (Vector::Sse2, true) => (Self(sse2::loops::<true>()), true),
            #[cfg(target_arch = "x86_64")]
            (Vector::Sse2, false) => (Self(sse2::loops::<false>()), false),
            _ => (Self([portable::copy, portable::scale, portable::add, portable::triad]), false),
        }
    }

    /// Runs loop `which` over `length` elements; the stores are visible to other threads when it
    /// returns.
    ///
    /// # Safety
    /// The CPU must have the instructions of the loops. `first` and `second` must be readable and
    /// `target` writable for `length` doubles, by this thread alone; the target must not overlap a
    /// source; all must be aligned to 64 bytes.
    pub(super) unsafe fn run(
        &self,
        which: usize,
        first: *const f64,
        second: *const f64,
        target: *mut f64,
        length: usize,
        scalar: f64,
    ) {
        // SAFETY: the caller promises what the loop requires.
        unsafe { self.0[which](first, second, target, length, scalar) };
    }
}

/// Plain loops: the compiler vectorises them with what every CPU of the architecture has, NEON on
/// aarch64.
mod portable {
    use std::slice::{from_raw_parts, from_raw_parts_mut};

    macro_rules! plain {
        ($name:ident, |$x:ident, $y:ident, $scalar:ident| $value:expr) => {
            pub(super) unsafe fn $name(
                first: *const f64,
                second: *const f64,
                target: *mut f64,
                length: usize,
                $scalar: f64,
            ) {
                // SAFETY: the caller promises that the ranges are valid and its own, and that the
                // target does not overlap the sources.
                let (first, second, target) = unsafe {
                    (
                        from_raw_parts(first, length),
                        from_raw_parts(second, length),
                        from_raw_parts_mut(target, length),
                    )
                };
                for ((target, $x), $y) in target.iter_mut().zip(first).zip(second) {
                    *target = $value;
                }
            }
        };
    }

    plain!(copy, |x, _y, _scalar| *x);
    plain!(scale, |x, _y, scalar| scalar * x);
    plain!(add, |x, y, _scalar| x + y);
    plain!(triad, |x, y, scalar| x + scalar * y);
}

/// Writes a module of loops for one width. Four vectors per turn keep the loads of one turn
/// independent of its stores.
#[cfg(target_arch = "x86_64")]
macro_rules! wide {
    ($module:ident, $feature:literal, $lanes:literal, $load:ident, $store:ident, $stream:ident, $set:ident, $mul:ident, $add:ident) => {
        mod $module {
            use super::Loop;
            use std::arch::x86_64::*;

            const LANES: usize = $lanes;
            const TURN: usize = 4 * LANES;

            pub(super) fn loops<const NON_TEMPORAL: bool>() -> [Loop; 4] {
                [copy::<NON_TEMPORAL>, scale::<NON_TEMPORAL>, add::<NON_TEMPORAL>, triad::<NON_TEMPORAL>]
            }

            wide!(@loop $feature, $load, $store, $stream, $set, copy, |x, _y, _s| x, |x, _y, _s| x);
            wide!(@loop $feature, $load, $store, $stream, $set, scale, |x, _y, s| $mul(s, x), |x, _y, s| s * x);
            wide!(@loop $feature, $load, $store, $stream, $set, add, |x, y, _s| $add(x, y), |x, y, _s| x + y);
            wide!(@loop $feature, $load, $store, $stream, $set, triad, |x, y, s| $add(x, $mul(s, y)), |x, y, s| x + s * y);
        }
    };
    (@loop $feature:literal, $load:ident, $store:ident, $stream:ident, $set:ident, $name:ident,
     |$x:ident, $y:ident, $s:ident| $wide:expr, |$px:ident, $py:ident, $ps:ident| $plain:expr) => {
        #[target_feature(enable = $feature)]
        unsafe fn $name<const NON_TEMPORAL: bool>(
            first: *const f64, second: *const f64, target: *mut f64, length: usize, scalar: f64,
        ) {
            let $s = $set(scalar);
            let whole = length - length % TURN;
            let mut at = 0;
            while at < whole {
                for lane in [0, LANES, 2 * LANES, 3 * LANES] {
                    // SAFETY: at + lane + LANES <= whole <= length, which the caller promises for
                    // all three pointers; the target is aligned to 64 bytes, and so is every vector
                    // of it.
                    unsafe {
                        let ($x, $y) = ($load(first.add(at + lane)), $load(second.add(at + lane)));
                        let value = $wide;
                        if NON_TEMPORAL { $stream(target.add(at + lane), value) } else { $store(target.add(at + lane), value) }
                    }
                }
                at += TURN;
            }
            if NON_TEMPORAL {
                // Non-temporal stores are ordered only by a fence, not by the barrier that follows.
                _mm_sfence();
            }
            for at in whole..length {
                let $ps = scalar;
                // SAFETY: at < length.
                unsafe {
                    let ($px, $py) = (*first.add(at), *second.add(at));
                    *target.add(at) = $plain;
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
wide!(sse2, "sse2", 2, _mm_loadu_pd, _mm_storeu_pd, _mm_stream_pd, _mm_set1_pd, _mm_mul_pd, _mm_add_pd);
#[cfg(target_arch = "x86_64")]
wide!(
    avx2,
    "avx2",
    4,
    _mm256_loadu_pd,
    _mm256_storeu_pd,
    _mm256_stream_pd,
    _mm256_set1_pd,
    _mm256_mul_pd,
    _mm256_add_pd
);
#[cfg(target_arch = "x86_64")]
wide!(
    avx512f,
    "avx512f",
    8,
    _mm512_loadu_pd,
    _mm512_storeu_pd,
    _mm512_stream_pd,
    _mm512_set1_pd,
    _mm512_mul_pd,
    _mm512_add_pd
);
