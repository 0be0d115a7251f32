//! Student's t distribution.

use statrs::distribution::{Continuous, ContinuousCDF, Normal, StudentsT};

fn distribution(df: f64) -> StudentsT {
    StudentsT::new(0.0, 1.0, df).expect("degrees of freedom are positive: n >= 2 everywhere")
}

/// From this many degrees of freedom on the library's quantile loses digits (1e-9 at 1,000, 1e-2 at
/// 1,000,000; its distribution function stays exact to 1e-8).
const MANY: f64 = 500.0;

/// The value that a t variable stays below with probability `p`, exact to 1e-8.
pub(crate) fn quantile(p: f64, df: f64) -> f64 {
    let student = distribution(df);
    if df < MANY {
        return student.inverse_cdf(p);
    }
    // The normal quantile is near, and each of Newton's steps doubles the number of right digits.
    let mut t = Normal::standard().inverse_cdf(p);
    for _ in 0..4 {
        t -= (student.cdf(t) - p) / student.pdf(t);
    }
    t
}

/// The probability that a t variable stays below `t`. What is not a number shows nothing: .5.
pub(crate) fn below(t: f64, df: f64) -> f64 {
    match t {
        f64::INFINITY => 1.0,
        f64::NEG_INFINITY => 0.0,
        _ if t.is_nan() => 0.5,
        _ => distribution(df).cdf(t),
    }
}

/// The probability that a t variable exceeds `t`, without the cancellation of 1 - [`below`].
pub(crate) fn above(t: f64, df: f64) -> f64 {
    below(-t, df)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed with scipy 1.17.1: `scipy.stats.t.ppf(p, df)`.
    const QUANTILES: &[(f64, f64, f64)] = &[
        (0.975, 1.0, 12.706204736174694),
        (0.975, 2.0, 4.302652729749462),
        (0.975, 5.0, 2.5705818356363146),
        (0.975, 14.0, 2.144786687917804),
        (0.975, 29.0, 2.045229642132703),
        (0.975, 59.0, 2.000995378088267),
        (0.975, 999_999.0, 1.9599663568164791),
        (0.80, 1999.0, 0.8418010808908682),
        (0.9999, 505.0, 3.7465022120626936),
        (0.80, 3e6, 0.8416213533865713),
        (0.80, 1.0, 1.3763819204711738),
        (0.80, 5.0, 0.9195437802408271),
        (0.80, 29.0, 0.8541919858818557),
        (0.80, 59.0, 0.8477559493813871),
        (0.9995, 2.0, 31.599054576445365),
        (0.99999, 7.0, 10.102684252974544),
        (0.975, 3.7, 2.8675207071911895),
        (0.975, 17.25, 2.1074887374283344),
        (0.6, 4.0, 0.2707222947075976),
    ];

    /// Computed with scipy 1.17.1: `scipy.stats.t.sf(t, df)`.
    const TAILS: &[(f64, f64, f64)] = &[
        (2.0, 5.0, 0.050969739414929174),
        (10.0, 29.0, 3.2999312882167624e-11),
        (1000.0, 5.0, 9.49006556598986e-15),
        (1e6, 3.0, 1.1026577908396144e-18),
        (0.1, 29.0, 0.46051622224368693),
        (1e-8, 29.0, 0.4999999960448142),
        (5.0, 999_999.0, 2.866998935928627e-7),
        (1.3, 12.4, 0.10862351072197261),
    ];

    #[test]
    fn quantiles_and_tails_are_the_published_ones() {
        for &(p, df, expected) in QUANTILES {
            let found = quantile(p, df);
            assert!((found / expected - 1.0).abs() < 1e-8, "t({p}, {df}) = {found}, not {expected}");
        }
        for &(t, df, expected) in TAILS {
            let found = above(t, df);
            assert!((found / expected - 1.0).abs() < 1e-8, "P(T > {t}; {df}) = {found}, not {expected}");
        }
    }

    #[test]
    fn tails_add_up_and_infinity_is_certain() {
        for t in [-3.0, -0.5, 0.0, 1.0, 40.0] {
            assert!((above(t, 9.0) + below(t, 9.0) - 1.0).abs() < 1e-15);
        }
        assert_eq!((above(f64::INFINITY, 3.0), below(f64::INFINITY, 3.0)), (0.0, 1.0));
        assert_eq!((above(f64::NEG_INFINITY, 3.0), below(f64::NEG_INFINITY, 3.0)), (1.0, 0.0));
        assert_eq!((above(f64::NAN, 3.0), below(f64::NAN, 3.0)), (0.5, 0.5));
    }
}
