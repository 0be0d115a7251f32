//! One file per command.

mod analyse;
mod clean;
mod compare;
mod completions;
mod density;
mod doctor;
mod dry_run;
mod fleet;
mod footprint;
mod gate;
mod history;
mod image;
mod list;
mod man;
mod plan;
mod pool;
mod resume;
pub mod run;
mod selftest;
mod selftest_platforms;
mod selftest_tools;
mod show;
mod soak;
mod start;
mod study;
mod study_new;

use crate::cli::{Command, CommandLine, OutputArgs};
use crate::error::Failure;
use crate::request::PlanRequest;
use crate::{outcome, output, ui};
use weigh_host::deadlines;
use weigh_report::Report;

impl OutputArgs {
    /// Writes a report where the user wants it, then checks the gate.
    ///
    /// # Errors
    /// A file cannot be written; the gate is not passed.
    fn write(&self, report: &Report) -> Result<(), Failure> {
        let text = outcome::render(
            report,
            self.format,
            &ui::report_options(self.details.details, self.gate.gate()),
        )?;
        output::write_or_print(self.output.as_deref(), &text)?;
        outcome::gate(report, self.gate.gate())
    }
}

/// What the user is told where no command is given, because hints name options.
const ALONE: &str =
    "this is `weigh run --quick`; options stand behind it, as in `weigh run --quick --on all`";

/// Runs the command that the arguments name. Without a command, runs a quick comparison of
/// everything that can run here.
///
/// # Errors
/// Those of the command.
pub fn run(line: CommandLine) -> Result<(), Failure> {
    if let Some(factor) = std::env::var_os(deadlines::VARIABLE) {
        deadlines::set(&factor.to_string_lossy()).map_err(|error| Failure::input(error.to_string()))?;
    }
    let Some(command) = line.cli.command else {
        ui::note(ALONE);
        return run(quick());
    };
    match command {
        Command::Study(args) => study::run(&args),
        Command::Doctor(arg) => doctor::run(arg.json),
        Command::List { what, names, details, json } => list::run(what, &names, details, json),
        Command::Show { run, prices, output } => show::run(&run, &prices, &output),
        Command::Compare { runs, with, output } => compare::run(&runs, &with, &output),
        Command::Pool(args) => pool::run(&args),
        Command::History(args) => history::run(&args),
        Command::Analyse(args) => analyse::run(&args),
        Command::Resume { run, gate, live, watch } => resume::run(&run, gate.gate(), live.live, watch),
        Command::Selftest(args) => selftest::run(&args),
        Command::Image { what } => image::run(what),
        Command::Clean { dry_run } => clean::run(dry_run),
        Command::Completions { shell } => completions::run(shell),
        Command::Plan(args) => plan::run(*args, line.recorded),
        Command::Fleet(args) => fleet::run(*args, line.recorded),
        Command::Gate(args) => {
            let (request, written) = gate::request(*args)?;
            run::run_and_write(&request.recording(line.recorded), &written)
        }
        Command::Man { directory } => man::run(directory.as_deref()),
        measuring => run::run(&request(measuring, line.recorded)?),
    }
}

/// Turns a command that measures into a request, without planning it. Its plan records `recorded`
/// as the command's words.
///
/// # Errors
/// Bad input; a command that measures nothing.
pub fn request(command: Command, recorded: Option<Vec<String>>) -> Result<PlanRequest, Failure> {
    let request = match command {
        Command::Run(args) => run::request(*args),
        Command::Start(args) => start::request(*args),
        Command::Footprint(args) => footprint::request(*args),
        Command::Density(args) => density::request(*args)?,
        Command::Soak(args) => soak::request(*args)?,
        _ => {
            return Err(Failure::input("this command measures nothing")
                .hint("an experiment is measured by run, start, footprint, density or soak"));
        }
    };
    Ok(request.recording(recorded))
}

fn quick() -> CommandLine {
    CommandLine::parse(["weigh", "run", "--quick"]).expect("`weigh run --quick` is a valid command line")
}
