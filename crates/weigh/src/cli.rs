//! The command line. Completions, manual pages and the reference in the documentation are made from
//! these definitions.

mod command;
mod fleet;
mod gate;
mod guests;
mod history;
mod output;
mod pool;
mod recorded;
mod samples;
mod selftest;
mod study;

pub use command::{CommandArgs, NEXT_COMMAND};
pub use fleet::FleetArgs;
pub use gate::BuildGateArgs;
pub use guests::{DensityArgs, FootprintArgs, SoakArgs, StartArgs};
pub use history::HistoryArgs;
pub use output::{DetailsArg, GateArgs, OutputArgs, OutputFormat, PriceArgs};
pub use pool::{By, PoolArgs, PoolSelection};
pub use samples::{AnalyseArgs, SampleFormat};
pub use selftest::{SelftestArgs, SelftestFormat};
pub use study::{StudyArgs, StudyCommand, StudyNewArgs};

use clap::{Arg, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
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
gate, 4 nothing could be measured, or a gate could not judge or decide a comparison.";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Compare environments on workloads, or on a command of your own after `--`
    Run(Box<RunArgs>),
    /// Measure a short blind pilot, and say how many blocks a run needs to find a difference
    ///
    /// The pilot measures six blocks of what `weigh run` would measure. Only the spread of the
    /// ratios is used: the effects are neither shown nor used, and the samples are deleted. The
    /// command that it prints detects the difference in every comparison with 80 % power.
    #[command(mut_args(|arg| hide(arg, &PlanArgs::UNFIT)))]
    Plan(Box<PlanArgs>),
    /// Decide whether a new build of a runtime, a monitor or a kernel is slower than the old one
    ///
    /// Both are measured in every block, back to back. After 10, 15, 20... blocks the gate looks at
    /// the results and stops measuring what is decided: the change is shown to lie above its limit,
    /// or below it, or no number of blocks up to the last look would show either.
    #[command(mut_args(BuildGateArgs::fit))]
    Gate(Box<BuildGateArgs>),
    /// Measure one plan on many machines, by ssh, Slurm or Kubernetes, and bring their runs back
    ///
    /// The plan is made here. weigh itself and the plan are copied to every machine, each machine
    /// measures on its own, and its run directory is copied back into the directory of the fleet.
    /// `weigh resume` continues a fleet.
    #[command(mut_args(|arg| hide(arg, &FleetArgs::UNFIT)))]
    Fleet(Box<FleetArgs>),
    /// Measure how long guests take to start, from the platform's first program to the first
    /// response
    Start(Box<StartArgs>),
    /// Measure how much memory guests take, by their number, and how much one more takes
    Footprint(Box<FootprintArgs>),
    /// Measure a guest beside others: what its neighbours cost it, and the throughput of all
    /// together
    Density(Box<DensityArgs>),
    /// Measure for hours or days in long-lived guests, beside guests that serve requests
    #[command(mut_args(|arg| hide(arg, &SoakArgs::UNFIT)))]
    Soak(Box<SoakArgs>),
    /// Repeat a published study and show its numbers beside those of this host; without a name,
    /// list the studies and what can run here
    Study(Box<StudyArgs>),
    /// Check which platforms are ready, and say how to get those that are not
    Doctor(JsonArg),
    /// List platforms, workloads or studies; `weigh image list` lists images
    List {
        /// What to list
        #[arg(value_name = "platforms|workloads|studies")]
        what: ListTopic,
        /// Those to describe, with keys, parameters and metrics, or experiments
        #[arg(value_name = "NAME")]
        names: Vec<String>,
        /// Describe all of them
        #[arg(long)]
        details: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show a run or a study again, as a table or in another format
    Show {
        /// A run directory, or `last`
        #[arg(default_value = "last")]
        run: PathBuf,
        /// What an hour of the host costs
        #[command(flatten)]
        prices: PriceArgs,
        /// How the report is written
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Compare runs with other runs, before and after; they were measured at different times, so no
    /// blocks are paired
    ///
    /// Runs of the same thing differ, so each run is one observation and a verdict needs several on
    /// each side. With one run on each side, the report says only whether these two differ.
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
    /// Pool runs of one plan on several machines: the average overhead over machines, how much
    /// machines differ, and where the overhead of another machine would lie
    ///
    /// Each machine is one observation, and several runs of one machine are combined first. One
    /// machine says nothing about others; the interval for another machine needs three.
    #[command(
        mut_arg("gate", |arg| arg.help(
            "Exit 3 when an overhead is shown to lie above this many per cent on average over machines, 4 when one \
             cannot be judged"
        )),
        mut_arg("details", |arg| arg.help(
            "Show every metric, and every machine by itself, as well, where the format is a table"
        ))
    )]
    Pool(Box<PoolArgs>),
    /// Keep what the runs of many versions found, and show where effects changed
    ///
    /// Each run is one observation: its overheads, which are ratios to the baseline of the same run, so
    /// that a new machine does not look like a change. The history is a directory of small files, which
    /// can be kept beside the code that is measured.
    History(Box<HistoryArgs>),
    /// Apply the same statistics to samples that were measured elsewhere, or to result files of
    /// other benchmark tools
    ///
    /// Columns of samples: environment, workload, metric, unit, better (lower|higher), value, and
    /// block if trials were paired. Tools: hyperfine, Go, Google Benchmark, pytest-benchmark, fio,
    /// Firecracker and Cloud Hypervisor. Runs of a tool differ, so each of their files is one
    /// observation and a verdict needs several of each environment.
    Analyse(AnalyseArgs),
    /// Continue a run, a study or a fleet after a crash or Ctrl-C; nothing measured is lost or repeated
    ///
    /// Of a fleet, machines that are not done start, or continue where their run stopped.
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
        /// Show what every machine of a fleet prints while it measures
        #[arg(long)]
        watch: bool,
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

/// The commands of `image`.
#[derive(Debug, Subcommand)]
pub enum ImageCommand {
    /// Build or pull an image unless it is here already
    ///
    /// `debian` is a small system with systemd; building it needs root, mmdebstrap, a network and
    /// some minutes. `oci:REF` is an image from a registry, as in `oci:localhost:5000/name:tag`.
    Build {
        /// The image, as `--image` takes it
        name: String,
    },
    /// Write an image with weighbridge's programs into an archive, for platforms that run images
    ///
    /// The archive is an OCI image layout: `ctr --namespace k8s.io images import FILE` puts it on a
    /// node of a Kubernetes cluster, `skopeo copy oci-archive:FILE docker://REF` into a registry.
    Pack {
        /// The image: `debian` or `oci:REF` as it was built, a directory, a tar archive, or `probe`,
        /// which is nothing but the programs
        name: String,
        /// The archive to write; an existing file is replaced
        file: PathBuf,
        /// The name that the image gets, with a tag; default for `debian` and `probe`:
        /// localhost/weighbridge/NAME:latest
        #[arg(long, value_name = "REF")]
        tag: Option<String>,
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
pub enum ListTopic {
    /// Platforms with their keys
    Platforms,
    /// Workloads with their parameters and metrics
    Workloads,
    /// Studies with their experiments
    Studies,
}

/// Workload sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
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
  weigh run --param level=1,6,9 -- gzip -{level} -k -c file --- pigz -{level} -k -c file
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
    /// Commands of the user's own
    #[command(flatten)]
    pub own: CommandArgs,
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
    /// Measure the energy that processors and memory of this host take for an operation (RAPL), in
    /// whole trials
    #[arg(long, conflicts_with = "slices")]
    pub energy: bool,
    /// Also count the system calls that reach the host, by whom and which, in an unmeasured run of
    /// each workload in each environment
    #[arg(long)]
    pub surface: bool,
    /// Run exactly this plan.json
    #[arg(long, value_name = "FILE", conflicts_with_all = ["energy", "workloads", "command", "on", "baseline", "quick", "blocks", "precision", "size", "param", "image", "cpus", "memory", "warmup", "iterations", "prepare", "cleanup", "deadline", "budget", "reuse", "control", "slices", "surface", "margin", "allow_unequal", "void_above", "warn_above", "no_void", "seed", "workload", "loader", "name", "setup", "teardown", "input", "ignore_failure", "env"])]
    pub plan: Option<PathBuf>,
}

/// Options of `plan`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weigh plan stream gups --on native,runc,docker --detect 1%
  weigh plan --on native,docker --detect 0.5% -- gzip -k file")]
pub struct PlanArgs {
    /// Smallest difference that the run has to find, per cent
    #[arg(long, value_name = "PCT", value_parser = percentage, conflicts_with_all = Self::UNFIT)]
    pub detect: f64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The run that is planned
    #[command(flatten)]
    pub run: RunArgs,
}

impl PlanArgs {
    /// Options of `run` that a pilot does not take: it finds out how long the run goes on, gives no
    /// verdict, and shows no effect.
    pub const UNFIT: [&str; 12] = [
        "quick",
        "blocks",
        "precision",
        "budget",
        "gate",
        "gate_undecided",
        "reuse",
        "plan",
        "out",
        "format",
        "details",
        "live",
    ];
}

/// What `run`, `density` and `soak` measure.
#[derive(Debug, Clone, Default, Args)]
pub struct WorkArgs {
    /// Workloads (see `weigh list workloads`)
    #[arg(value_name = "WORKLOAD")]
    pub workloads: Vec<String>,
    /// A command of your own, or several with `---` between them: in one environment they are
    /// compared with each other, in several environments each command is a workload
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Workload size; default: `quick` with --quick, else `standard`
    #[arg(long)]
    pub size: Option<Size>,
    /// Workload parameter, `key=value` or `workload.key=value`; a list `a,b,c` measures each value;
    /// in a command of your own the value replaces `{key}`
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
    /// Environments: `platform[:key=value,...]`, repeated or separated by commas; `all`: every
    /// ready platform, which is the default; with --quick the default is one of each kind
    #[arg(long, value_name = "ENV")]
    pub on: Vec<String>,
    /// Environment that the others are compared with, added if --on does not name it; default:
    /// `native`
    #[arg(long, value_name = "ENV")]
    pub baseline: Option<String>,
    /// 6 blocks of small workloads, labelled EXPLORATORY; noise voids no unit. Without --on, fits
    /// 160 s: drops what takes too long, then runs up to 30 blocks
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
    /// Allow guests to differ in KEY; every affected ratio is marked: `cpus`, `memory`, `libc`,
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

/// Hides an option that a command does not take.
fn hide(arg: Arg, unfit: &[&str]) -> Arg {
    let unfit = unfit.contains(&arg.get_id().as_str());
    arg.hide(unfit)
}

fn percentage(text: &str) -> Result<f64, &'static str> {
    percent(text, |value| value > 0.0 && value < 100.0).ok_or("it must be a percentage between 0 and 100")
}

/// Parses a percentage, if it fits.
fn percent(text: &str, fits: impl Fn(f64) -> bool) -> Option<f64> {
    text.trim_end_matches('%').parse::<f64>().ok().filter(|value| fits(*value))
}
