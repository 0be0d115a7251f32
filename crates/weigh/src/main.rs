//! `weigh`: measures what an isolation platform costs, on your machine, for your work.
#![allow(
    missing_docs,
    reason = "the binary has no public interface but its command line; the crates below it are documented"
)]

mod cli;
mod commands;
mod distinct;
mod embedded;
mod error;
mod facts;
mod fleet;
mod history;
mod host;
mod live;
mod outcome;
mod output;
mod placement;
mod pool;
mod prices;
mod request;
mod selftest;
mod study;
mod ui;

use std::process::ExitCode;

fn main() -> ExitCode {
    let line = cli::CommandLine::parse(std::env::args_os()).unwrap_or_else(|error| error.exit());
    match commands::run(line) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            ui::failure(&failure);
            ExitCode::from(failure.exit_code())
        }
    }
}
