//! One file per command.

mod analyse;
mod clean;
mod compare;
mod completions;
mod doctor;
mod image;
mod list;
mod man;
mod resume;
mod run;
mod selftest;
mod selftest_tools;
mod show;
mod start;

use crate::cli::{Cli, Command};
use crate::error::Failure;
use clap::Parser;

/// Runs the command that the arguments name; none is a quick comparison of everything that can run here.
///
/// # Errors
/// Whatever the command says.
pub fn run(arguments: Cli) -> Result<(), Failure> {
    match arguments.command.unwrap_or_else(quick) {
        Command::Run(args) => run::run(&args),
        Command::Start(args) => start::run(&args),
        Command::Doctor(arg) => doctor::run(arg.json),
        Command::List { what, json } => list::run(what, json),
        Command::Show { run, format, output, gate } => show::run(&run, format, output.as_deref(), gate),
        Command::Compare { before, after, format, gate } => compare::run(&before, &after, format, gate),
        Command::Analyse { file, baseline, format, gate } => analyse::run(&file, &baseline, format, gate),
        Command::Resume { run, gate, live } => resume::run(&run, gate, live.live),
        Command::Selftest(args) => selftest::run(&args),
        Command::Image { what } => image::run(what),
        Command::Clean { dry_run } => clean::run(dry_run),
        Command::Completions { shell } => completions::run(shell),
        Command::Man { directory } => man::run(directory.as_deref()),
    }
}

fn quick() -> Command {
    let parsed = Cli::try_parse_from(["weigh", "run", "--quick"]).ok().and_then(|cli| cli.command);
    parsed.expect("`weigh run --quick` is a valid command line")
}
