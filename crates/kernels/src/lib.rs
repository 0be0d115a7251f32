//! The builtin micro-benchmarks: what each of them runs, how it times it, and how it proves that
//! the work was done.
//!
//! A kernel is data ([`Kernel`]) and one function. It reads [`Options`], does a fixed amount of
//! work, and returns an [`Outcome`]: metrics in base units, a [`Check`], facts, warnings. The
//! program `weigh-kernels` prints that as one JSON line. Kernels know nothing of guests: they need
//! no files except, if present, `/proc` and `/sys`.
//!
//! Times are read on `CLOCK_MONOTONIC`, always from the process that does the work.
//!
//! Compiled to WebAssembly, the program has the kernels that need no more than memory and a clock.

#![cfg_attr(target_family = "wasm", expect(dead_code, reason = "some of it serves other kernels"))]

mod clock;
mod kernel;
mod kernels;
mod machine;
pub mod marks;
mod memory;
mod options;
mod outcome;
mod pool;
mod team;
mod tools;

pub use clock::{now_ns, tick_ns};
pub use kernel::{Kernel, KernelError, all, find, names};
#[cfg(not(target_family = "wasm"))]
pub use kernels::native::QUICK_EXIT;
pub use kernels::text::english_like;
pub use options::{OptionKind, OptionSpec, Options, UsageError};
pub use outcome::{Check, Metric, Outcome};
pub use tools::{Tool, tools};
