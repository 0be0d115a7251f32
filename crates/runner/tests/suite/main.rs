//! Whole runs of fake guests, through the public interface.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod blocks;
mod clocks;
mod common;
mod drift;
mod faults;
mod iterations;
mod lasting;
mod looks;
mod neighbours;
mod noise;
mod parity;
mod resume;
mod servers;
mod simulation;
mod starts;
mod stopping;
mod surface;
