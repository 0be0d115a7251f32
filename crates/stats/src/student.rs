//! Student's t distribution.

use statrs::distribution::{ContinuousCDF, StudentsT};

fn distribution(df: f64) -> StudentsT {
    StudentsT::new(0.0, 1.0, df).expect("degrees of freedom are positive: n >= 2 everywhere")
}

/// The value that a t variable stays below with probability `p`.
pub(crate) fn quantile(p: f64, df: f64) -> f64 {
    distribution(df).inverse_cdf(p)
}

/// The probability that a t variable stays below `t`.
pub(crate) fn below(t: f64, df: f64) -> f64 {
    match t {
        f64::INFINITY => 1.0,
        f64::NEG_INFINITY => 0.0,
        _ => distribution(df).cdf(t),
    }
}

/// The probability that a t variable exceeds `t`, without the cancellation of 1 - [`below`].
pub(crate) fn above(t: f64, df: f64) -> f64 {
    below(-t, df)
}
