//! The selftest: comparisons whose truth is known, made as every comparison is made, to see whether
//! the method keeps on this host what it promises.
//!
//! ```text
//! design      comparisons of native with itself, some with an effect of a known size, in random order
//! conduct     each is a run of its own: plan, blocks, records on disk, statistics
//! judgement   false positives, power and coverage against the bands that chance explains
//! tools       apart from these: the builtin kernels against the tools they stand for
//! ```

pub mod conduct;
pub mod design;
pub mod judgement;
pub mod tools;

#[cfg(test)]
mod tests;
