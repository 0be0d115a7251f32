//! The built-in manifests against the programs that they run, and against recorded outputs.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;
mod kernels;
mod servers;
mod tools;
