//! One file per command.

mod analyse;
mod clean;
mod compare;
mod completions;
mod density;
mod doctor;
mod footprint;
mod image;
mod list;
mod man;
mod resume;
pub mod run;
mod selftest;
mod selftest_tools;
mod show;
mod soak;
mod start;
mod study;
mod study_new;

use crate::cli::{Cli, Command, OutputFormat};
use crate::error::{Failure, file_failure};
use crate::{outcome, ui};
use clap::Parser;
use std::path::Path;
use weigh_report::Report;

/// How a report is given out.
#[derive(Debug, Clone, Copy)]
struct Form<'a> {
    format: OutputFormat,
    /// A file instead of the terminal.
    output: Option<&'a Path>,
    /// Per cent.
    gate: Option<f64>,
}

impl Form<'_> {
    /// Gives a report out, and says whether it crosses the gate.
    ///
    /// # Errors
    /// A file that cannot be written, a gate crossed.
    fn give(self, report: &Report) -> Result<(), Failure> {
        let text = outcome::render(report, self.format, self.gate)?;
        match self.output {
            Some(file) => std::fs::write(file, text).map_err(|error| file_failure("write", file, error))?,
            None => ui::print(&text),
        }
        outcome::gate(report, self.gate)
    }
}

/// Runs the command that the arguments name; none is a quick comparison of everything that can run
/// here.
///
/// # Errors
/// Whatever the command says.
pub fn run(arguments: Cli) -> Result<(), Failure> {
    match arguments.command.unwrap_or_else(quick) {
        Command::Study(args) => study::run(&args),
        Command::Doctor(arg) => doctor::run(arg.json),
        Command::List { what, json } => list::run(what, json),
        Command::Show { run, format, output, gate } => {
            show::run(&run, Form { format, output: output.as_deref(), gate })
        }
        Command::Compare { before, after, format, output, gate } => {
            compare::run(&before, &after, Form { format, output: output.as_deref(), gate })
        }
        Command::Analyse { file, baseline, format, output, gate } => {
            analyse::run(&file, &baseline, Form { format, output: output.as_deref(), gate })
        }
        Command::Resume { run, gate, live } => resume::run(&run, gate, live.live),
        Command::Selftest(args) => selftest::run(&args),
        Command::Image { what } => image::run(what),
        Command::Clean { dry_run } => clean::run(dry_run),
        Command::Completions { shell } => completions::run(shell),
        Command::Man { directory } => man::run(directory.as_deref()),
        measuring => self::measuring(measuring, &mut run::Alone),
    }
}

/// Plans what a command measures, for a carrier to carry out.
///
/// # Errors
/// What the command or the carrier says; a command that measures nothing.
pub fn measuring(command: Command, by: &mut dyn run::Carrier) -> Result<(), Failure> {
    match command {
        Command::Run(args) => run::run(&args, by),
        Command::Start(args) => start::run(&args, by),
        Command::Footprint(args) => footprint::run(&args, by),
        Command::Density(args) => density::run(&args, by),
        Command::Soak(args) => soak::run(&args, by),
        _ => Err(Failure::input("this command measures nothing")
            .hint("an experiment is measured by run, start, footprint, density or soak")),
    }
}

fn quick() -> Command {
    let parsed = Cli::try_parse_from(["weigh", "run", "--quick"]).ok().and_then(|cli| cli.command);
    parsed.expect("`weigh run --quick` is a valid command line")
}
