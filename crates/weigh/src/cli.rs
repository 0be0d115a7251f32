//! The command line. Completions, manual pages and the reference in the documentation are made from
//! these definitions.

mod recorded;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use weigh_model::SliceChoice;

/// Measure what isolation platforms cost: the same work natively and in containers, sandboxes and
/// virtual machines
///
/// Without a command, weigh makes a quick comparison of one platform of each kind that works on
/// this host, in less than three minutes.
#[derive(Debug, Parser)]
#[command(name = "weigh", version, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Cli {
    /// The command; a quick comparison if absent
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// A command line that was read.
pub struct CommandLine {
    /// What it asks for.
    pub cli: Cli,
    /// The words that a plan records of it (see [`weigh_model::Plan::command`]).
    pub recorded: Option<Vec<String>>,
}

impl CommandLine {
    /// Reads words, the first of which is the program.
    ///
    /// # Errors
    /// Usage errors, `--help` and `--version`.
    pub fn parse<T: Into<OsString> + Clone>(words: impl IntoIterator<Item = T>) -> Result<Self, clap::Error> {
        let matches = Cli::command().try_get_matches_from(words)?;
        let cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut Cli::command()))?;
        Ok(Self { cli, recorded: recorded::words(&matches) })
    }
}

const EXIT_CODES: &str = "Exit codes: 0 success, 1 failure, 2 usage error or bad input, 3 a comparison crossed the \
gate, 4 nothing could be measured, or a comparison cannot be judged by the gate.";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Compare environments on workloads, or on a command of your own after `--`
    Run(Box<RunArgs>),
    /// Measure how long guests take to start, from the platform's first program to the first
    /// response
    Start(Box<StartArgs>),
    /// Measure the memory of guests, by their number, and what one more guest takes
    Footprint(Box<FootprintArgs>),
    /// Measure a guest beside others: what its neighbours cost it, and the throughput of all
    /// together
    Density(Box<DensityArgs>),
    /// Measure for hours or days in long-lived guests, beside guests that serve requests
    Soak(Box<SoakArgs>),
    /// Repeat a published study and show its numbers beside those of this host; without a name,
    /// list the studies and what can run here
    Study(Box<StudyArgs>),
    /// Check which platforms are ready, and say how to get those that are not
    Doctor(JsonArg),
    /// List platforms, workloads, studies or images
    List {
        /// What to list
        what: Listed,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show a run or a study again, as a table or in another format
    Show {
        /// A run directory, or `last`
        #[arg(default_value = "last")]
        run: PathBuf,
        /// How the report is written
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Compare runs with other runs, before and after; they were measured at different times, so no
    /// blocks are paired
    ///
    /// Runs of the same thing differ, so each run is one observation and a verdict takes several on
    /// each side. Of one run each, no more is said than whether these two differ.
    #[command(mut_arg("gate", |arg| arg.help(
        "Exit 3 when a difference is shown to lie above this many per cent, 4 when one cannot be judged"
    )))]
    Compare {
        /// The run before and the run after; with --with, the runs before: run directories, or
        /// `last`
        #[arg(required = true, value_name = "RUN")]
        runs: Vec<PathBuf>,
        /// The runs after
        #[arg(long, value_name = "RUN", num_args = 1..)]
        with: Vec<PathBuf>,
        /// How the report is written
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Apply the same statistics to samples that were measured elsewhere
    ///
    /// Columns: environment, workload, metric, unit, better (lower|higher), value, and block if
    /// trials were paired.
    Analyse {
        /// A .csv or .jsonl file
        file: PathBuf,
        /// Environment that the others are compared with
        #[arg(long, default_value = "native", value_name = "ENV")]
        baseline: String,
        /// How the report is written
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Continue a run or a study after a crash or Ctrl-C; nothing measured is lost or repeated
    Resume {
        /// A run directory, or `last`
        #[arg(default_value = "last")]
        run: PathBuf,
        /// What fails
        #[command(flatten)]
        gate: GateArgs,
        /// The live report
        #[command(flatten)]
        live: LiveArg,
    },
    /// Check that the method keeps its promises on this host
    Selftest(SelftestArgs),
    /// Build, list and remove the root file systems that this host keeps for guests
    Image {
        /// What to do
        #[command(subcommand)]
        what: ImageCommand,
    },
    /// Undo every change that earlier runs left on this host
    Clean {
        /// Print what would be undone; do nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Print the completions of a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages to a directory, or print the main one
    Man {
        /// Directory for the pages
        directory: Option<PathBuf>,
    },
}

/// How `show`, `compare` and `analyse` write a report.
#[derive(Debug, Args)]
pub struct OutputArgs {
    /// Output format
    #[arg(long, default_value = "table")]
    pub format: OutputFormat,
    /// Write to a file instead of the terminal
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// How much a terminal shows
    #[command(flatten)]
    pub details: DetailsArg,
    /// What fails
    #[command(flatten)]
    pub gate: GateArgs,
}

/// `--details` alone.
#[derive(Debug, Clone, Args)]
pub struct DetailsArg {
    /// Show every metric, CPU time, differences between environments, noise and warnings as well,
    /// where the format is a table
    #[arg(long)]
    pub details: bool,
}

/// What fails a command whose measurements went well.
#[derive(Debug, Clone, Args)]
pub struct GateArgs {
    /// Exit 3 when an overhead is shown to lie above this many per cent, 4 when one cannot be
    /// judged
    #[arg(long, value_name = "PCT", value_parser = gate_percentage, allow_negative_numbers = true)]
    pub gate: Option<f64>,
    /// Whether a comparison passes that is shown to lie neither above the gate nor below it; `fail`
    /// demands proof that nothing got slower, which takes 30 blocks
    #[arg(long, value_name = "WHAT", default_value = "pass", requires = "gate")]
    pub gate_undecided: Undecided,
}

impl GateArgs {
    /// The gate, where there is one.
    pub fn gate(&self) -> Option<weigh_report::Gate> {
        let undecided_fails = self.gate_undecided == Undecided::Fail;
        self.gate.map(|percent| weigh_report::Gate { percent, undecided_fails })
    }
}

/// What becomes of comparisons that a gate does not decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Undecided {
    /// They pass
    Pass,
    /// They exit 3
    Fail,
}

/// Options of `selftest`.
#[derive(Debug, Args)]
#[command(
    after_help = "Compares native with itself in small runs of 10 blocks each, in random order: 40 without an effect, and 10 each with \
.5, 1, 2 and 5 % more work on one side; half of each in slices, the others whole. Exit 0 when every count lies within the band that \
chance explains in 99.9 % of cases, 1 when one does not, 4 when nothing could be measured."
)]
pub struct SelftestArgs {
    /// Make 200 comparisons without an effect and 50 with each; with --platforms, 30 blocks
    #[arg(long)]
    pub long: bool,
    /// Instead, compare the built-in kernels with the tools that they stand for (hpcc, fio,
    /// sockperf, OpenBLAS); exit 1 when the whole interval of a ratio lies outside its bounds
    #[arg(long, conflicts_with_all = ["long", "fake", "platforms", "slices"])]
    pub tools: bool,
    /// Instead, compare each of these environments with itself and with itself with 3 % more work:
    /// `platform[:key=value,...]`, separated by commas or `;`, or `all` that are ready
    #[arg(long, value_name = "PLATFORMS", conflicts_with = "fake")]
    pub platforms: Vec<String>,
    /// Measure only in slices (`auto`, or their length as in `5ms`) or only whole (`off`); default:
    /// half of the comparisons each way
    #[arg(long, value_name = "SLICES")]
    pub slices: Option<SliceChoice>,
    /// Blocks of each pair with --tools; default: 15
    #[arg(long, value_name = "N", requires = "tools", value_parser = clap::value_parser!(u32).range(2..))]
    pub blocks: Option<u32>,
    /// Compare only these pairs with --tools
    #[arg(long, value_name = "NAME", requires = "tools", value_delimiter = ',')]
    pub pair: Vec<String>,
    /// Seed of every random choice
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Output format
    #[arg(long, default_value = "table")]
    pub format: SelftestFormat,
    /// Directory to create; default: `weigh-runs/selftest-<UTC time>`
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Time limit for all comparisons, as in `2m`; the selftest judges those made by then
    #[arg(long, value_name = "TIME")]
    pub budget: Option<String>,
    /// Compare fakes of the null platform with these keys, to judge the method without a host
    #[arg(long, value_name = "KEYS", hide = true)]
    pub fake: Option<String>,
    /// Keys of the second fake alone
    #[arg(long, value_name = "KEYS", hide = true, requires = "fake")]
    pub fake_other: Option<String>,
}

/// Formats of `selftest`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SelftestFormat {
    /// For the terminal
    Table,
    /// For programs
    Json,
}

/// The commands of `image`.
#[derive(Debug, Subcommand)]
pub enum ImageCommand {
    /// Build or pull an image unless it is there
    ///
    /// `debian` is a small system with systemd; building it needs root, mmdebstrap, a network and
    /// some minutes. `oci:REF` is an image of a registry, as in `oci:localhost:5000/name:tag`.
    Build {
        /// The image, as `--image` takes it
        name: String,
    },
    /// List the images on this host, with their sizes and digests
    List(JsonArg),
    /// Remove an image that no run uses
    Remove {
        /// Its name, or at least the first 8 digits of its digest
        name: String,
    },
}

/// `--json` alone.
#[derive(Debug, Args)]
pub struct JsonArg {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What `list` lists.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Listed {
    /// Platforms with their keys
    Platforms,
    /// Workloads with their parameters and metrics
    Workloads,
    /// Studies with their experiments
    Studies,
    /// Root file systems that `--image` takes
    Images,
}

/// Formats of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For the terminal
    Table,
    /// For programs
    Json,
    /// One row per cell
    Csv,
    /// Markdown tables
    Md,
    /// booktabs and siunitx
    Latex,
    /// One self-contained page
    Html,
    /// JUnit XML for continuous integration servers; a test case fails when it crosses --gate
    Junit,
}

impl From<OutputFormat> for weigh_report::Format {
    fn from(format: OutputFormat) -> Self {
        match format {
            OutputFormat::Table => Self::Table,
            OutputFormat::Json => Self::Json,
            OutputFormat::Csv => Self::Csv,
            OutputFormat::Md => Self::Markdown,
            OutputFormat::Latex => Self::Latex,
            OutputFormat::Html => Self::Html,
            OutputFormat::Junit => Self::Junit,
        }
    }
}

/// Workload sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Size {
    /// Under a second
    Quick,
    /// A few seconds
    Standard,
    /// As in the papers
    Paper,
}

impl Size {
    /// Its name in plans and manifests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Standard => "standard",
            Self::Paper => "paper",
        }
    }
}

/// Options of `run`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weigh run stream gups --on native,runc,docker
  weigh run --on native --on 'docker:net=nat' --quick -- sqlite3 :memory: 'select 1'
  weigh run memory-latency --param loads=1e5 --cpus 1 --memory 2GiB")]
pub struct RunArgs {
    /// What every measurement has
    #[command(flatten)]
    pub common: MeasureArgs,
    /// What is measured
    #[command(flatten)]
    pub work: WorkArgs,
    /// How it is run
    #[command(flatten)]
    pub trial: TrialArgs,
    /// Keep one instance of each environment for the whole run instead of a fresh one in each block
    #[arg(long)]
    pub reuse: bool,
    /// Measure a second instance of the baseline in every block: a control, which should be found
    /// equal
    #[arg(long)]
    pub control: bool,
    /// Measure all environments at once, each thawed for a few milliseconds in turn: `auto` where
    /// work and platforms allow it, `off`, or the length of a slice as in `5ms`
    #[arg(long, value_name = "SLICES", default_value_t = SliceChoice::Auto)]
    pub slices: SliceChoice,
    /// Run exactly this plan.json
    #[arg(long, value_name = "FILE", conflicts_with_all = ["workloads", "command", "on", "baseline", "quick", "blocks", "precision", "size", "param", "image", "cpus", "memory", "warmup", "iterations", "prepare", "cleanup", "deadline", "budget", "reuse", "control", "slices", "margin", "allow_unequal", "void_above", "warn_above", "no_void", "seed", "workload", "loader"])]
    pub plan: Option<PathBuf>,
}

/// What `run`, `density` and `soak` measure.
#[derive(Debug, Clone, Default, Args)]
pub struct WorkArgs {
    /// Workloads (see `weigh list workloads`)
    #[arg(value_name = "WORKLOAD")]
    pub workloads: Vec<String>,
    /// A command of your own, run in every environment
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Workload size; default: `quick` with --quick, else `standard`
    #[arg(long)]
    pub size: Option<Size>,
    /// Workload parameter, `key=value` or `workload.key=value`; a list `a,b,c` measures each value
    #[arg(long, value_name = "KEY=VALUE")]
    pub param: Vec<String>,
    /// Measured runs per block; the block's value is their median
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub iterations: Option<u32>,
    /// Stop a run of the workload that takes longer, as in `90s`
    #[arg(long, value_name = "TIME")]
    pub deadline: Option<String>,
    /// A workload manifest of your own
    #[arg(long, value_name = "FILE")]
    pub workload: Vec<PathBuf>,
}

/// How `run` and `density` run a workload.
#[derive(Debug, Clone, Default, Args)]
pub struct TrialArgs {
    /// Unmeasured runs in every fresh instance
    #[arg(long, value_name = "N")]
    pub warmup: Option<u32>,
    /// Shell command to run in the guest before every run of the workload
    #[arg(long, value_name = "CMD")]
    pub prepare: Option<String>,
    /// Shell command to run in the guest after every run of the workload
    #[arg(long, value_name = "CMD")]
    pub cleanup: Option<String>,
    /// Where the load generators of servers run: `host`, on the CPUs that no guest has, or another
    /// machine, `ssh:host=[user@]address[,key=value,...]`
    #[arg(long, value_name = "ENV", default_value = "host")]
    pub loader: String,
}

/// Options of everything that measures.
#[derive(Debug, Clone, Args)]
pub struct MeasureArgs {
    /// Environments: `platform[:key=value,...]`, repeated or separated by `;`; `all`: every ready
    /// platform, which is the default; with --quick the default is one of each kind
    #[arg(long, value_name = "ENV")]
    pub on: Vec<String>,
    /// Environment that the others are compared with, added if --on does not name it; default:
    /// `native`
    #[arg(long, value_name = "ENV")]
    pub baseline: Option<String>,
    /// 6 blocks and small workloads, voiding nothing for noise; exploratory, never EQUIVALENT;
    /// without --on it leaves out what does not fit 160 s
    #[arg(long, conflicts_with_all = ["blocks", "precision"])]
    pub quick: bool,
    /// How long it goes on, and from which seed
    #[command(flatten)]
    pub effort: EffortArgs,
    /// Root file system of the guests: `host` (a read-only view of this one), `probe`, `debian` or
    /// `oci:REF` (see `weigh image`), a directory or a tar archive
    #[arg(long, default_value = "host", value_name = "IMAGE")]
    pub image: String,
    /// CPUs that every environment is confined to, as in `0-3,8`
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<String>,
    /// Memory limit of every environment, as in `2GiB`
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// Compare guests that differ in this, and say so beside every ratio: `cpus`, `memory`, `libc`,
    /// `binary:PROGRAM`, `mounts:PATH`...; a list `a,b` names several
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    pub allow_unequal: Vec<String>,
    /// Equivalence margin, per cent
    #[arg(long, value_name = "PCT", default_value_t = 2.0, value_parser = percentage)]
    pub margin: f64,
    /// Void a unit when other processes took more than this share of the CPUs in use, per cent
    #[arg(long, value_name = "PCT", default_value_t = 2.0, value_parser = percentage, conflicts_with = "no_void")]
    pub void_above: f64,
    /// Warn when other processes took more than this share of the CPUs in use, per cent
    #[arg(long, value_name = "PCT", default_value_t = 0.5, value_parser = percentage)]
    pub warn_above: f64,
    /// Print the plan, the order and the changes to the host; do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Run directory to create; default: `weigh-runs/<UTC time>-<name>`
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// What fails
    #[command(flatten)]
    pub gate: GateArgs,
    /// Output format of the result
    #[arg(long, default_value = "table")]
    pub format: OutputFormat,
    /// How much a terminal shows
    #[command(flatten)]
    pub details: DetailsArg,
    /// The live report
    #[command(flatten)]
    pub live: LiveArg,
}

/// Options of everything that measures, and of studies for each of their experiments.
#[derive(Debug, Clone, Args)]
pub struct EffortArgs {
    /// Number of blocks
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000), conflicts_with = "precision")]
    pub blocks: Option<u32>,
    /// Stop when every primary interval is this narrow, per cent either way (30 to 60 blocks)
    #[arg(long, value_name = "PCT", value_parser = percentage)]
    pub precision: Option<f64>,
    /// Time limit of the whole run, as in `10m`
    #[arg(long, value_name = "TIME")]
    pub budget: Option<String>,
    /// Never void a unit because of noise on the host; a wrong guest clock still voids it
    #[arg(long)]
    pub no_void: bool,
    /// Seed of every random choice
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

impl MeasureArgs {
    /// Whether the user named the environments; `all` names none.
    pub fn names_environments(&self) -> bool {
        !self.on.is_empty() && self.on != [Self::EVERY]
    }

    /// Stands for every ready platform.
    const EVERY: &str = "all";

    /// Whether weigh chooses what a quick run measures, so that it fits its time.
    pub fn fits_budget(&self) -> bool {
        self.quick && self.on.is_empty()
    }

    /// The same with this number of blocks, unless the user says how long the run goes on.
    pub fn with_default_blocks(&self, blocks: u32) -> Self {
        let EffortArgs { blocks: asked, precision, .. } = &self.effort;
        let default = (!self.quick && precision.is_none()).then_some(blocks);
        Self { effort: EffortArgs { blocks: asked.or(default), ..self.effort.clone() }, ..self.clone() }
    }

    /// The size of workloads unless the user names one.
    pub fn default_size(&self) -> Size {
        if self.quick { Size::Quick } else { Size::Standard }
    }
}

/// `--live` alone.
#[derive(Debug, Clone, Args)]
pub struct LiveArg {
    /// Show the report at http://127.0.0.1:PORT/ while the run goes on, on a free port unless one
    /// is given
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true, default_missing_value = "0")]
    pub live: Option<u16>,
}

/// Options of `start`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weigh start --on native,namespaces,runc,docker --quick
  weigh start --on native,namespaces --caches cold --blocks 30
  weigh start --on namespaces --guests 200 --blocks 6
  weigh start --on native,runc --rate --restore --spawn

Every time begins when the platform's first program starts. start_to_code ends at the first instruction of ours in the guest, \
start_to_init when the guest is up (its probe answers; a full system has reached multi-user.target), start_to_service when a server \
in it listens, start_to_response when a client outside has its first answer. A time that a platform cannot have is absent, with the reason.")]
pub struct StartArgs {
    /// What every measurement has
    #[command(flatten)]
    pub common: MeasureArgs,
    /// State of the host's page cache at every start: `warm`, as earlier starts left it; `cold`,
    /// empty (needs root)
    #[arg(long, value_name = "WORD", default_value = "warm")]
    pub caches: String,
    /// Number of guests to start at once; a list `1,50,200` measures each number
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10_000), default_value = "1")]
    pub guests: Vec<u32>,
    /// Also measure how many guests are started and removed per second, this many at a time
    #[arg(long, value_name = "N", value_delimiter = ',', num_args = 0..=1, require_equals = true, default_missing_value = "1,2,4,8", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub rate: Vec<u32>,
    /// Also measure restoring a saved guest, on platforms that can
    #[arg(long)]
    pub restore: bool,
    /// Also measure how long a process takes to start inside: fork and exec, vfork and exec,
    /// posix_spawn
    #[arg(long)]
    pub spawn: bool,
    /// Size of the --spawn workload; default: `quick` with --quick, else `standard`
    #[arg(long)]
    pub size: Option<Size>,
}

/// Options of `footprint`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weigh footprint --on native,namespaces,runc,docker
  weigh footprint --on 'lxc:init=single;lxc:init=full;lxc:init=full,root=copied' --image debian
  weigh footprint --on 'qemu;qemu:ksm=on' --guests 1,2,4 --memory 512MiB

Fresh, idle guests are started at once. When their memory has not changed by more than 1 % for 5 s it is read: the proportional \
set size of guests and helpers, and what the kernel holds for them. Several numbers of guests give what one more takes, and how many \
fit into a GiB. With `ksm=on` on a VM it is read once the kernel has scanned all memory for equal pages. Six blocks \
unless you ask for others.")]
pub struct FootprintArgs {
    /// What every measurement has
    #[command(flatten)]
    pub common: MeasureArgs,
    /// Number of guests to measure at once; a list measures each number
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10_000), default_value = "1,2,4,8,16,32")]
    pub guests: Vec<u32>,
    /// Then scan the pages of guests, their helpers and the host's cached files for equal ones
    #[arg(long)]
    pub duplicates: bool,
}

/// Options of `density`.
#[derive(Debug, Args)]
#[command(
    // The second call keeps the command behind the workloads: clap moves what it changes to the
    // end.
    mut_arg("workloads", |arg| arg.help("Workloads (see `weigh list workloads`); default: `spin`")),
    mut_arg("command", |arg| arg),
    mut_arg("deadline", |arg| arg.help(
        "Stop a run of the workload that takes longer, as in `90s`; default: its usual deadline times the number of guests"
    )),
    mut_arg("loader", |arg| arg.help(
        "Where the load generator of a measured server runs: `host`, on the CPUs that no guest has, or another machine, \
        `ssh:host=[user@]address[,key=value,...]`; those of neighbours run on this host"
    )),
    after_help = "Examples:
  weigh density --on native,namespaces,runc --guests 2,4,8
  weigh density fileserver --on 'native;docker' --neighbours idle,cpu,io,http --guests 4
  weigh density --on runc --neighbours cpu --shares equal,weights,limits --guests 4
  weigh density --on namespaces --neighbours same --guests 1,2,4,8,16 -- xz -9 -k -c /etc/services

One guest is measured. The others run on the same CPUs from before its warm-up until after its last run, and do what --neighbours \
says: nothing (idle), spin (cpu), write and read files (io), serve HTTP to a load generator on the CPUs that no guest has (http), or \
run the workload itself (same; the report then also has the throughput of all guests together and how fairly they share it). The CPU \
time of neighbours is neither foreign nor charged to the measured guest. With --shares weights the measured guest has ten times the weight of a \
neighbour; with limits no guest gets more than its part of the CPUs. Where fewer guests come up than asked for, that number is the \
result, with the reason. Six blocks unless you ask for others."
)]
pub struct DensityArgs {
    /// What every measurement has
    #[command(flatten)]
    pub common: MeasureArgs,
    /// What is measured
    #[command(flatten)]
    pub work: WorkArgs,
    /// How it is run
    #[command(flatten)]
    pub trial: TrialArgs,
    /// Total number of guests, including the measured one, at most 4096; a list measures each
    /// number; one guest alone is always measured
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4096), default_value = "1,2,4,8")]
    pub guests: Vec<u32>,
    /// What the neighbours do: `idle`, `cpu`, `io`, `http`, `same`; a list measures each
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "cpu")]
    pub neighbours: Vec<String>,
    /// How control groups share out CPU time: `equal` (as the platform leaves it), `weights`,
    /// `limits`; a list measures each
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "equal")]
    pub shares: Vec<String>,
}

/// Options of `soak`.
#[derive(Debug, Args)]
#[command(
    // As for density.
    mut_arg("workloads", |arg| arg.help("Workloads to alternate; default: lu, memory-latency and fileserver")),
    mut_arg("command", |arg| arg),
    mut_arg("size", |arg| arg.help("Workload size; default: `standard`")),
    after_help = "Examples:
  weigh soak --on 'native;docker:net=nat' --for 24h
  weigh soak lu fileserver --on namespaces:net=nat --for 2h --size quick --live
  weigh soak --on runc --guests 8 --neighbours io --for 3d

The workloads alternate in random order in one guest of each environment. The guest stays for the whole run, with everything it has \
grown and cached. Beside it stay further guests, which by default serve HTTP to load generators; that needs a network (`net=`). \
`weigh show last` shows at any time what has been measured so far. After a crash, Ctrl-C or a reboot `weigh resume` continues for the \
rest of the time. A guest that dies is replaced."
)]
pub struct SoakArgs {
    /// What every measurement has
    #[command(flatten)]
    pub common: MeasureArgs,
    /// What is measured
    #[command(flatten)]
    pub work: WorkArgs,
    /// Duration, as in `90m`, `24h` or `3d`; interruptions do not count
    #[arg(long = "for", value_name = "TIME", default_value = "24h")]
    pub duration: String,
    /// Total number of guests of each environment, including the measured one
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub guests: u32,
    /// What the other guests do: `idle`, `cpu`, `io` or `http`
    #[arg(long, value_name = "WORD", default_value = "http")]
    pub neighbours: String,
}

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

Every experiment is a command of weigh, whose run is stored below the study's directory. The result is the study's own table or \
figure: the published numbers, those measured here, and for every claim whether it holds (HOLDS: the whole 95 % interval satisfies \
it), does not (DIFFERS), is open (UNDECIDED) or was not checked (NOT RUN, with the reason). Only ratios and orders are graded. The \
report names what this host cannot run; emulation never stands for KVM."
)]
pub struct StudyArgs {
    /// Write a study instead
    #[command(subcommand)]
    pub what: Option<StudyCommand>,
    /// A study, or an experiment or table of it, as in `felter-2014/table-1`; without any, the list
    #[arg(value_name = "NAME[/EXPERIMENT]")]
    pub names: Vec<String>,
    /// The file of a study of your own; all of it is measured unless you name experiments
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Size of the workloads; `quick` also means 6 blocks unless --blocks says otherwise
    #[arg(long, default_value = "standard")]
    pub size: Size,
    /// Environments to measure as further columns, repeated or separated by `;`
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
    /// Its title
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

/// A value is no percentage.
#[derive(Debug, thiserror::Error)]
#[error("it must be a percentage between 0 and 100")]
struct NotAPercentage;

fn percentage(text: &str) -> Result<f64, NotAPercentage> {
    let value = text.trim_end_matches('%').parse::<f64>().map_err(|_| NotAPercentage)?;
    if value > 0.0 && value < 100.0 { Ok(value) } else { Err(NotAPercentage) }
}

/// A value is no limit for an overhead.
#[derive(Debug, thiserror::Error)]
#[error("it must be a number of per cent above -100")]
struct NotALimit;

fn gate_percentage(text: &str) -> Result<f64, NotALimit> {
    let value = text.trim_end_matches('%').parse::<f64>().map_err(|_| NotALimit)?;
    if value > -100.0 && value.is_finite() { Ok(value) } else { Err(NotALimit) }
}
