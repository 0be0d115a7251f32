//! End-to-end tests: what a user sees of `weigh`, through the binary. One file per subject.

#![allow(clippy::disallowed_methods, reason = "tests start and kill programs with ordinary means")]
#![allow(clippy::print_stderr, reason = "a skipped test says so")]
#![allow(clippy::unwrap_used, reason = "a test ends where its expectation does")]

#[path = "../crates/bench/src/long_run.rs"]
#[allow(dead_code, reason = "the benchmarks use all of it")]
mod long_run;
#[path = "../crates/platforms/tests/common/osv.rs"]
#[allow(dead_code, reason = "the platforms' own tests use all of it")]
mod osv;
#[path = "../crates/platforms/tests/common/sshd.rs"]
#[allow(dead_code, reason = "the platforms' own tests use all of it")]
mod sshd;
mod support;

mod analyse;
mod analysis_cache;
mod bad_input;
mod book;
mod commands;
mod containers;
mod crash;
mod density;
mod elsewhere;
mod energy;
mod first_minutes;
mod fleet;
mod footprint;
mod fuzz;
mod gate;
mod history;
mod hostile;
mod images;
mod kills;
mod live;
mod loaders;
mod local_users;
mod long_runs;
mod looks;
mod machines;
mod noise;
mod notebooks;
mod other_tools;
mod own_commands;
mod packages;
mod parity;
mod plan;
mod pool;
mod progress;
mod reanalyse;
mod run;
mod selftest;
mod servers;
mod slice_cases;
mod slices;
mod soak;
mod start;
mod studies;
mod study;
mod surface;
mod test_runner;
mod tools;
mod webassembly;
mod workloads;
