//! The selftest: comparisons with a known true effect, made like any other comparison, show whether
//! the method keeps its promises on this host.
//!
//! ```text
//! design      comparisons of native with itself, some with an effect of a known size, in slices and
//!             whole, in random order
//! conduct     each is a run of its own: plan, blocks, records on disk, statistics
//! judgement   false positives, power and coverage against the bands that chance explains
//! last        how the last one of this host ended
//! platforms   any platform with itself, without and with an effect, in slices and whole
//! tools       apart from these: the built-in kernels against the tools that they stand for
//! ```

pub mod conduct;
pub mod design;
pub mod judgement;
mod last;
pub mod platforms;
pub mod tools;

pub use last::LastSelftest;

#[cfg(test)]
mod tests;
