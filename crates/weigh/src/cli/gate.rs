//! The command line of `gate`.

use super::output::gate_percentage;
use super::{CommandArgs, MeasureArgs, TrialArgs, WorkArgs, hide};
use clap::{Arg, Args};
use std::path::PathBuf;

/// Options of `gate`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weigh gate runc:binary=old/runc runc:binary=new/runc syscall spawn --start --limit 3
  weigh gate qemu:kernel=old/bzImage qemu:kernel=new/bzImage syscall --comment comment.md
  weigh gate crun:binary=old/crun crun:binary=new/crun -- sqlite3 :memory: 'select 1'
  weigh gate --limit 2 -- old/tool input --- new/tool input

Exit codes: 0 every comparison is shown to lie below its limit, 3 one is shown to lie above, 4 one is undecided or cannot be judged. \
What the command line leaves open is read from .weigh/gate.toml where there is one: workloads, start, param, size, iterations, limit, \
blocks, budget, and a table [limits] with limits of metrics.")]
pub struct BuildGateArgs {
    /// The old build, an environment `platform[:key=value,...]`, as in `runc:binary=old/runc`; for
    /// two commands, the environment of both (default: native)
    #[arg(value_name = "OLD", required_unless_present = "command", conflicts_with_all = Self::UNFIT)]
    pub old: Option<String>,
    /// The new build, likewise; absent when two commands are compared
    #[arg(value_name = "NEW", required_unless_present = "command")]
    pub new: Option<String>,
    /// What every measurement has
    #[command(flatten)]
    pub common: MeasureArgs,
    /// What is measured
    #[command(flatten)]
    pub work: WorkArgs,
    /// How it is run
    #[command(flatten)]
    pub trial: TrialArgs,
    /// How commands are run
    #[command(flatten)]
    pub own: CommandArgs,
    /// Also measure how long a guest takes to start
    #[arg(long)]
    pub start: bool,
    /// Largest change of the cost that passes, per cent; default: 3
    #[arg(long, value_name = "PCT", value_parser = gate_percentage, allow_negative_numbers = true)]
    pub limit: Option<f64>,
    /// Settings of the gate; default: `.weigh/gate.toml` if it exists
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Write the answer as Markdown, for a comment on a pull request
    #[arg(long, value_name = "FILE")]
    pub comment: Option<PathBuf>,
    /// Write the comparisons as JUnit test cases
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
}

impl BuildGateArgs {
    /// Options of `run` that a gate does not take: it decides itself what is compared, when to stop
    /// and what fails.
    const UNFIT: [&str; 7] = ["on", "baseline", "quick", "precision", "margin", "gate", "gate_undecided"];

    /// Hides what a gate does not take, and changes the help of what it takes in another way.
    pub fn fit(arg: Arg) -> Arg {
        match arg.get_id().as_str() {
            "blocks" => arg.help(
                "Maximum number of blocks; default: 30. It looks at 10, 15, 20... and stops what is decided",
            ),
            "workloads" => arg.help("Workloads (see `weigh list workloads`)"),
            "command" => {
                let help = "A command of your own; or two with `---` between them: the old and the new build";
                arg.help(help).conflicts_with_all(Self::UNFIT)
            }
            _ => hide(arg, &Self::UNFIT),
        }
    }
}
