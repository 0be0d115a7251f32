//! The command line of `study`.

use super::{EffortArgs, OutputFormat, Size};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Options of `study`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    mut_arg("blocks", |arg| arg.help("Number of blocks of every experiment")),
    mut_arg("budget", |arg| arg.help("Time limit of every experiment, as in `10m`")),
    after_help = "Examples:
  weigh study
  weigh study felter-2014/table-1 --size quick
  weigh study agarwal-2015 --size quick --arm jail=ssh:host=192.0.2.7
  weigh study morabito-2015/fig-7 --on 'podman;runsc'
  weigh study --file mine.toml
  weigh study new last --output mine.toml
  weigh study --claims weigh-runs --format md

Every experiment is a command of weigh, whose run is stored below the study's directory. The result is the study's own table or \
figure: the published numbers, those measured here, and for every claim whether it holds (HOLDS: the whole 95 % interval satisfies \
it), does not (DIFFERS), is open (UNDECIDED) or was not checked (NOT RUN, with the reason). Only ratios and orders are graded. The \
report names what this host cannot run; emulation never stands for KVM."
)]
pub struct StudyArgs {
    /// Write a study instead
    #[command(subcommand)]
    pub what: Option<StudyCommand>,
    /// A study, or an experiment or table of it, as in `felter-2014/table-1`; without any, the
    /// studies are listed
    #[arg(value_name = "NAME[/EXPERIMENT]")]
    pub names: Vec<String>,
    /// The file of a study of your own; all of it is measured unless you name experiments
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Size of the workloads; `quick` also means 6 blocks unless --blocks says otherwise
    #[arg(long, default_value = "standard")]
    pub size: Size,
    /// Environments to measure as further columns, repeated or separated by commas
    #[arg(long, value_name = "ENV")]
    pub on: Vec<String>,
    /// The environment to measure for a platform of the study, as in
    /// `--arm jail=ssh:host=192.0.2.7`; repeated
    #[arg(long, value_name = "ARM=ENV")]
    pub arm: Vec<String>,
    /// The effort of every experiment
    #[command(flatten)]
    pub effort: EffortArgs,
    /// Directory to create; default: `weigh-runs/<UTC time>-<study>`
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Measure nothing: read the study's raw logs in this directory, laid out as its authors
    /// published them, and apply these statistics; writes a report only with --out
    #[arg(long, value_name = "DIR", conflicts_with_all = ["size", "on", "arm", "blocks", "precision", "budget", "no_void", "seed", "dry_run"])]
    pub reanalyse: Option<PathBuf>,
    /// Measure nothing: show what has become of every claim of every study, from these directories
    /// of studies that were measured, or from all such in these directories; of several runs of an
    /// experiment the last complete one counts
    #[arg(long, value_name = "DIR", num_args = 1.., conflicts_with_all = ["names", "size", "on", "arm", "blocks", "precision", "budget", "no_void", "seed", "out", "reanalyse", "dry_run", "json"])]
    pub claims: Vec<PathBuf>,
    /// Print the commands; do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Output format of the result
    #[arg(long, default_value = "table")]
    pub format: OutputFormat,
    /// Print the list as JSON
    #[arg(long, conflicts_with_all = ["names", "reanalyse"])]
    pub json: bool,
}

/// The commands of `study`.
#[derive(Debug, Subcommand)]
pub enum StudyCommand {
    /// Write a study from a run: its numbers as published ones, its verdicts as claims, and the
    /// command that measures it again
    New(StudyNewArgs),
}

/// Options of `study new`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weigh study new last --output mine.toml
  weigh study new weigh-runs/2026-01-02T030405Z-gups --name gups-2026 --title 'What our nodes cost' > gups.toml
  weigh study --file mine.toml

The run's environments become the columns, its primary metrics the rows, and every conclusive verdict a claim. Whoever repeats the \
study chooses --size, --blocks and --no-void; the first lines of the file say which ones the run had. Given a study's directory, \
every experiment that was measured is written. A run whose plan was edited by hand is refused: no command line repeats it.")]
pub struct StudyNewArgs {
    /// A run directory, or `last`
    #[arg(default_value = "last")]
    pub run: PathBuf,
    /// File to create, which must not exist; the terminal otherwise
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Name of the study; default: what was measured
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Title of the study
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
    /// Who measured it
    #[arg(long, value_name = "TEXT")]
    pub authors: Option<String>,
    /// Workload manifest to name instead of the one that the run was given; whoever repeats the
    /// study needs it too
    #[arg(long, value_name = "FILE")]
    pub workload: Vec<PathBuf>,
}
