//! The selftest: comparisons with a known truth, made like any other comparison, show whether the
//! method keeps its promises on this host.
//!
//! ```text
//! design      comparisons of native with itself, some with an effect of a known size, in random order
//! conduct     each is a run of its own: plan, blocks, records on disk, statistics
//! judgement   false positives, power and coverage against the bands that chance explains
//! tools       apart from these: the built-in kernels against the tools that they stand for
//! ```

pub mod conduct;
pub mod design;
pub mod judgement;
pub mod tools;

#[cfg(test)]
mod tests;
