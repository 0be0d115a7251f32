//! `weigh`: what an isolation platform costs you, on your machine, for your work.
#![allow(
    missing_docs,
    reason = "the binary has no public interface but its command line; the crates below it are documented"
)]

mod cli;
mod commands;
mod embedded;
mod error;
mod facts;
mod host;
mod live;
mod loading;
mod outcome;
mod placement;
mod request;
mod selftest;
mod study;
mod ui;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = cli::Cli::parse();
    match commands::run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            ui::failure(&failure);
            ExitCode::from(failure.exit_code())
        }
    }
}
