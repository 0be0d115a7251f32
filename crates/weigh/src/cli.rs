//! The command line. Completions, manual pages and the reference in the documentation are made from
//! these definitions.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Weighs what an isolation platform costs you: the same work natively and in containers, sandboxes
/// and virtual machines
///
/// Without a command: a quick comparison of everything that can run here.
#[derive(Debug, Parser)]
#[command(name = "weigh", version, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Option<Command>,
}

const EXIT_CODES: &str = "Exit codes: 0 done, 1 failed, 2 usage or bad input, 3 a comparison crossed the gate, \
4 nothing could be measured.";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Compare environments on workloads, or on a command of your own after `--`
    Run(Box<RunArgs>),
    /// Measure how long guests take to come up, from the first program of the platform to the first
    /// response
    Start(Box<StartArgs>),
    /// Weigh the memory that guests take, by how many there are, and what one more takes
    Footprint(Box<FootprintArgs>),
    /// Measure a guest among others: what neighbours cost it, and what all of them do together
    Density(Box<DensityArgs>),
    /// Measure for hours or days, in guests that stay, among guests that serve
    Soak(Box<SoakArgs>),
    /// Measure what a study measured, and show it beside what was published; without a name, list
    /// the studies and what can run here
    Study(Box<StudyArgs>),
    /// Say which platforms are ready, and what is missing with the remedy
    Doctor(JsonArg),
    /// List platforms, workloads, studies or images
    List {
        /// What to list
        what: Listed,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show a run or a study again, as a table or for another program
    Show {
        /// A run directory, or `last`
        #[arg(default_value = "last")]
        run: PathBuf,
        /// Output format
        #[arg(long, default_value = "table")]
        format: OutputFormat,
        /// Write to a file instead of the terminal
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Exit 3 when an overhead's whole interval lies above this many per cent
        #[arg(long, value_name = "PCT")]
        gate: Option<f64>,
    },
    /// Compare two runs, before and after (sequential: they share no time)
    Compare {
        /// The run before: a run directory, or `last`
        before: PathBuf,
        /// The run after
        after: PathBuf,
        /// Output format
        #[arg(long, default_value = "table")]
        format: OutputFormat,
        /// Write to a file instead of the terminal
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Exit 3 when a difference's whole interval lies above this many per cent
        #[arg(long, value_name = "PCT")]
        gate: Option<f64>,
    },
    /// The same statistics for samples measured elsewhere
    ///
    /// Columns: environment, workload, metric, unit, better (lower|higher), value, and block where
    /// trials were paired.
    Analyse {
        /// A .csv or .jsonl file
        file: PathBuf,
        /// Environment that the others are compared with
        #[arg(long, default_value = "native", value_name = "ENV")]
        baseline: String,
        /// Output format
        #[arg(long, default_value = "table")]
        format: OutputFormat,
        /// Write to a file instead of the terminal
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Exit 3 when an overhead's whole interval lies above this many per cent
        #[arg(long, value_name = "PCT")]
        gate: Option<f64>,
    },
    /// Go on with a run or a study after a crash or Ctrl-C; nothing measured is lost or repeated
    Resume {
        /// A run directory, or `last`
        #[arg(default_value = "last")]
        run: PathBuf,
        /// Exit 3 when an overhead's whole interval lies above this many per cent
        #[arg(long, value_name = "PCT")]
        gate: Option<f64>,
        /// Where its report is to be seen
        #[command(flatten)]
        live: LiveArg,
    },
    /// Check that the method keeps on this host what it promises
    Selftest(SelftestArgs),
    /// Get, list and remove the root file systems that this host keeps for guests
    Image {
        /// What to do
        #[command(subcommand)]
        what: ImageCommand,
    },
    /// Undo everything that any earlier run left on this host
    Clean {
        /// Only say what would be undone
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
        /// Where to write the pages
        directory: Option<PathBuf>,
    },
}

/// Options of `selftest`.
#[derive(Debug, Args)]
#[command(
    after_help = "Compares native with itself, in small runs of 10 blocks each: 40 without an effect, and 10 each with .5, 1, 2 and 5 % more \
work in one of both, in random order. Exit 0 when every count lies within the band that chance explains in 99.9 % of cases, 1 when \
one does not, 4 when nothing could be measured."
)]
pub struct SelftestArgs {
    /// 200 comparisons without an effect and 50 with each
    #[arg(long)]
    pub long: bool,
    /// Instead, the builtin kernels against the tools that they stand for (hpcc, fio, sockperf,
    /// OpenBLAS): exit 1 when the whole interval of a ratio lies outside of what is asked
    #[arg(long, conflicts_with_all = ["long", "fake"])]
    pub tools: bool,
    /// Blocks of a pair with --tools; default: 15
    #[arg(long, value_name = "N", requires = "tools", value_parser = clap::value_parser!(u32).range(2..))]
    pub blocks: Option<u32>,
    /// Only these pairs with --tools
    #[arg(long, value_name = "NAME", requires = "tools", value_delimiter = ',')]
    pub pair: Vec<String>,
    /// Seed of every random choice
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Output format
    #[arg(long, default_value = "table")]
    pub format: SelftestFormat,
    /// The directory to make; default: `weigh-runs/selftest-<UTC time>`
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Bound on all comparisons together, as in `2m`; what is there by then is judged
    #[arg(long, value_name = "TIME")]
    pub budget: Option<String>,
    /// Compare fakes of the null platform with these keys instead, to judge the method without a
    /// host
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

/// What `image` does.
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
    /// List the images that are kept, with their sizes and digests
    List(JsonArg),
    /// Remove an image that no run uses
    Remove {
        /// Its name, or the first 8 digits of its digest or more
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
    /// JUnit's XML, for servers of continuous integration; a case fails when it crosses --gate
    Junit,
}

/// Workload sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Size {
    /// Ends in under a second
    Quick,
    /// A few seconds
    Standard,
    /// As the papers had it
    Paper,
}

impl Size {
    /// The word in plans and manifests.
    pub fn word(self) -> &'static str {
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
    /// Workloads (see `weigh list workloads`)
    #[arg(value_name = "WORKLOAD")]
    pub workloads: Vec<String>,
    /// A command of your own, run in every environment
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    /// What all measurements have in common
    #[command(flatten)]
    pub common: MeasureArgs,
    /// Workload size; default: `quick` with --quick, else `standard`
    #[arg(long)]
    pub size: Option<Size>,
    /// Workload parameter, `key=value` or `workload.key=value`; a list `a,b,c` sweeps
    #[arg(long, value_name = "KEY=VALUE")]
    pub param: Vec<String>,
    /// Unmeasured runs in every fresh instance
    #[arg(long, value_name = "N")]
    pub warmup: Option<u32>,
    /// Measured runs per block; their median is the block's value
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub iterations: Option<u32>,
    /// Shell command run in the guest before every run of the workload
    #[arg(long, value_name = "CMD")]
    pub prepare: Option<String>,
    /// Shell command run in the guest after every run of the workload
    #[arg(long, value_name = "CMD")]
    pub cleanup: Option<String>,
    /// End a run of the workload that takes longer, as in `90s`
    #[arg(long, value_name = "TIME")]
    pub deadline: Option<String>,
    /// Keep one instance per environment for the whole run instead of a fresh one per block
    #[arg(long)]
    pub reuse: bool,
    /// A workload manifest of your own
    #[arg(long, value_name = "FILE")]
    pub workload: Vec<PathBuf>,
    /// Where the load generators of servers run: `host`, on the CPUs that no guest has, or another
    /// machine, `ssh:host=[user@]address[,key=value,...]`
    #[arg(long, value_name = "ENV", default_value = "host")]
    pub loader: String,
    /// Run this plan.json exactly
    #[arg(long, value_name = "FILE", conflicts_with_all = ["workloads", "command", "on", "baseline", "quick", "blocks", "precision", "size", "param", "image", "cpus", "memory", "warmup", "iterations", "prepare", "cleanup", "deadline", "budget", "reuse", "margin", "allow_unequal", "void_above", "warn_above", "no_void", "seed", "workload", "loader"])]
    pub plan: Option<PathBuf>,
}

/// Options of everything that measures.
#[derive(Debug, Clone, Args)]
pub struct MeasureArgs {
    /// Environments: `platform[:key=value,...]`, repeated or separated by `;`; default: every ready
    /// platform
    #[arg(long, value_name = "ENV")]
    pub on: Vec<String>,
    /// Environment that the others are compared with; default: `native`, which is added when it is
    /// not among them
    #[arg(long, value_name = "ENV")]
    pub baseline: Option<String>,
    /// 6 blocks, and small workloads; exploratory, never EQUIVALENT
    #[arg(long, conflicts_with_all = ["blocks", "precision"])]
    pub quick: bool,
    /// Number of blocks
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000), conflicts_with = "precision")]
    pub blocks: Option<u32>,
    /// Stop when every primary interval is this narrow, per cent either way (30 to 60 blocks)
    #[arg(long, value_name = "PCT", value_parser = positive)]
    pub precision: Option<f64>,
    /// Root file system of the guests: `host` (a read-only view of this one), `probe`, `debian` or
    /// `oci:REF` (see `weigh image`), a directory or a tar archive
    #[arg(long, default_value = "host", value_name = "IMAGE")]
    pub image: String,
    /// CPUs that every environment's work is confined to, as in `0-3,8`
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<String>,
    /// Memory limit of every environment, as in `2GiB`
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// Compare although guests differ in this, and say so beside every ratio: `cpus`, `memory`,
    /// `libc`, `binary:PROGRAM`, `mounts:PATH`...; a list `a,b` names several
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    pub allow_unequal: Vec<String>,
    /// Bound on the whole run, as in `10m`
    #[arg(long, value_name = "TIME")]
    pub budget: Option<String>,
    /// Equivalence margin, per cent
    #[arg(long, value_name = "PCT", default_value_t = 2.0, value_parser = positive)]
    pub margin: f64,
    /// Void a unit when others took more of the CPUs in use than this, per cent
    #[arg(long, value_name = "PCT", default_value_t = 2.0, value_parser = positive)]
    pub void_above: f64,
    /// Warn when others took more of the CPUs in use than this, per cent
    #[arg(long, value_name = "PCT", default_value_t = 0.5, value_parser = positive)]
    pub warn_above: f64,
    /// Let noise of the host void nothing; a wrong guest clock still does
    #[arg(long, conflicts_with = "void_above")]
    pub no_void: bool,
    /// Print the plan, the order and the host changes; do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Seed of every random choice
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// The run directory to make; default: `weigh-runs/<UTC time>-<name>`
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Exit 3 when an overhead's whole interval lies above this many per cent
    #[arg(long, value_name = "PCT")]
    pub gate: Option<f64>,
    /// Output format of the result
    #[arg(long, default_value = "table")]
    pub format: OutputFormat,
    /// Where its report is to be seen
    #[command(flatten)]
    pub live: LiveArg,
}

/// `--live` alone.
#[derive(Debug, Clone, Args)]
pub struct LiveArg {
    /// While the run goes on, show its report at http://127.0.0.1:PORT/, on a free port unless one
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

Every time begins when the platform's first program starts: start_to_code ends at the first instruction of ours in the guest, \
start_to_init when the guest is up (its probe answers; a full system has reached multi-user.target), start_to_service when a server \
in it listens, start_to_response when a client outside has its first answer. What a platform cannot have is absent, with the reason.")]
pub struct StartArgs {
    /// What all measurements have in common
    #[command(flatten)]
    pub common: MeasureArgs,
    /// What the host's page cache holds at every start: `warm`, what the starts before left;
    /// `cold`, nothing (needs root)
    #[arg(long, value_name = "WORD", default_value = "warm")]
    pub caches: String,
    /// Start so many guests at once; a list `1,50,200` measures each number
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10_000), default_value = "1")]
    pub guests: Vec<u32>,
    /// Also measure how many guests are started and removed per second, by as many at a time
    #[arg(long, value_name = "N", value_delimiter = ',', num_args = 0..=1, require_equals = true, default_missing_value = "1,2,4,8", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub rate: Vec<u32>,
    /// Also measure coming back from a saved state, where the platform can
    #[arg(long)]
    pub restore: bool,
    /// Also measure how long a process takes to start inside: fork and exec, vfork and exec,
    /// posix_spawn
    #[arg(long)]
    pub spawn: bool,
    /// Size of what `--spawn` measures; default: `quick` with --quick, else `standard`
    #[arg(long)]
    pub size: Option<Size>,
}

/// Options of `footprint`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weigh footprint --on native,namespaces,runc,docker
  weigh footprint --on 'lxc:init=single;lxc:init=full;lxc:init=full,root=copied' --image debian
  weigh footprint --on 'qemu;qemu:ksm=on' --guests 1,2,4 --memory 512MiB

So many fresh, idle guests are started at once; when their memory has not changed by more than 1 % for 5 s it is read: the proportional \
set size of guest and helpers, and what the kernel keeps for them. Several numbers of guests give what one more takes, and how many \
fit into a GiB. With `ksm=on` of a machine the kernel's merging of equal pages has been over everything before it is read. Six blocks \
unless you ask for others.")]
pub struct FootprintArgs {
    /// What all measurements have in common
    #[command(flatten)]
    pub common: MeasureArgs,
    /// Weigh so many guests at once; of several numbers each
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10_000), default_value = "1,2,4,8,16,32")]
    pub guests: Vec<u32>,
    /// Then scan all their pages, their helpers' and the files that the host has cached, for equal
    /// ones
    #[arg(long)]
    pub duplicates: bool,
}

/// Options of `density`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weigh density --on native,namespaces,runc --guests 2,4,8
  weigh density fileserver --on 'native;docker' --neighbours idle,cpu,io,http --guests 4
  weigh density --on runc --neighbours cpu --shares equal,weights,limits --guests 4
  weigh density --on namespaces --neighbours same --guests 1,2,4,8,16 -- xz -9 -k -c /etc/services

One guest is measured, the others are there before its warm-up begins and until its last run has ended, on the same CPUs, and do what \
--neighbours says: nothing (idle), spin (cpu), write and read files (io), serve HTTP to a load generator on the CPUs that no guest \
has (http), or run the workload itself (same: then what all do together and how fairly is told as well). Their CPU time is neither \
foreign nor charged to the measured guest. With --shares weights it weighs ten times what a neighbour does, with limits no guest gets \
more than its part of the CPUs. Where fewer guests come up than are asked for, that number is the result, with the reason. Six blocks \
unless you ask for others.")]
pub struct DensityArgs {
    /// Workloads (see `weigh list workloads`); default: `spin`
    #[arg(value_name = "WORKLOAD")]
    pub workloads: Vec<String>,
    /// A command of your own, run in every environment
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    /// What all measurements have in common
    #[command(flatten)]
    pub common: MeasureArgs,
    /// Guests in all, the measured one among them, at most 4096; of several numbers each, and 1
    /// always
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4096), default_value = "1,2,4,8")]
    pub guests: Vec<u32>,
    /// What the neighbours do: `idle`, `cpu`, `io`, `http`, `same`; of several each
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "cpu")]
    pub neighbours: Vec<String>,
    /// How CPU time is shared out by control groups: `equal` (as the platform leaves it),
    /// `weights`, `limits`; of several each
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "equal")]
    pub shares: Vec<String>,
    /// Workload size; default: `quick` with --quick, else `standard`
    #[arg(long)]
    pub size: Option<Size>,
    /// Workload parameter, `key=value` or `workload.key=value`; a list `a,b,c` sweeps
    #[arg(long, value_name = "KEY=VALUE")]
    pub param: Vec<String>,
    /// Unmeasured runs in every fresh instance
    #[arg(long, value_name = "N")]
    pub warmup: Option<u32>,
    /// Measured runs per block; their median is the block's value
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub iterations: Option<u32>,
    /// Shell command run in the guest before every run of the workload
    #[arg(long, value_name = "CMD")]
    pub prepare: Option<String>,
    /// Shell command run in the guest after every run of the workload
    #[arg(long, value_name = "CMD")]
    pub cleanup: Option<String>,
    /// End a run of the workload that takes longer, as in `90s`; by default it has as many times
    /// its usual deadline as there are guests
    #[arg(long, value_name = "TIME")]
    pub deadline: Option<String>,
    /// A workload manifest of your own
    #[arg(long, value_name = "FILE")]
    pub workload: Vec<PathBuf>,
    /// Where the load generator of a measured server runs: `host`, on the CPUs that no guest has,
    /// or another machine, `ssh:host=[user@]address[,key=value,...]`; those of neighbours run on
    /// this host
    #[arg(long, value_name = "ENV", default_value = "host")]
    pub loader: String,
}

/// Options of `soak`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weigh soak --on 'native;docker:net=nat' --for 24h
  weigh soak lu fileserver --on namespaces:net=nat --for 2h --size quick --live
  weigh soak --on runc --guests 8 --neighbours io --for 3d

The workloads alternate in random order in one guest of each environment, which stays, with what it has grown and cached. Beside it stay \
as many further guests as asked for, which by default serve HTTP to load generators; that needs a network (`net=`). `weigh show last` tells at any time what has been \
measured so far. After a crash, Ctrl-C or a restart of the machine `weigh resume` goes on for what is left of the time. A guest that \
dies is replaced.")]
pub struct SoakArgs {
    /// Workloads that alternate; default: lu, memory-latency and fileserver
    #[arg(value_name = "WORKLOAD")]
    pub workloads: Vec<String>,
    /// A command of your own, run in every environment
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    /// How long, as in `90m`, `24h` or `3d`, interruptions not counted
    #[arg(long = "for", value_name = "TIME", default_value = "24h")]
    pub lasting: String,
    /// Guests of each environment in all, the measured one among them
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub guests: u32,
    /// What the other guests do: `idle`, `cpu`, `io` or `http`
    #[arg(long, value_name = "WORD", default_value = "http")]
    pub neighbours: String,
    /// What all measurements have in common
    #[command(flatten)]
    pub common: MeasureArgs,
    /// Workload size; default: `standard`
    #[arg(long)]
    pub size: Option<Size>,
    /// Workload parameter, `key=value` or `workload.key=value`; a list `a,b,c` sweeps
    #[arg(long, value_name = "KEY=VALUE")]
    pub param: Vec<String>,
    /// Measured runs per block; their median is the block's value
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub iterations: Option<u32>,
    /// End a run of the workload that takes longer, as in `90s`
    #[arg(long, value_name = "TIME")]
    pub deadline: Option<String>,
    /// A workload manifest of your own
    #[arg(long, value_name = "FILE")]
    pub workload: Vec<PathBuf>,
}

/// Options of `study`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  weigh study
  weigh study felter-2014/table-1 --size quick
  weigh study agarwal-2015 --size quick --arm jail=ssh:host=192.0.2.7
  weigh study morabito-2015/fig-7 --on 'podman;runsc'
  weigh study --file mine.toml
  weigh study new last --output mine.toml

Every experiment is a command of weigh, whose run is kept below the study's directory. The result is the study's own table or figure: \
what was published, what was measured here, and for every claim whether it holds (HOLDS: the whole 95 % interval satisfies it), does \
not (DIFFERS), is open (UNDECIDED) or was not looked at (NOT RUN, with the reason). Only ratios and orders are graded. What this host \
cannot run is left out and said; emulation never stands for KVM."
)]
pub struct StudyArgs {
    /// Make a study instead
    #[command(subcommand)]
    pub what: Option<StudyCommand>,
    /// A study, or an experiment or table of it, as in `felter-2014/table-1`; without any, the list
    #[arg(value_name = "NAME[/EXPERIMENT]")]
    pub names: Vec<String>,
    /// A study of your own, all of it unless experiments of it are named
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Size of the workloads; `quick` also means 6 blocks unless --blocks says otherwise
    #[arg(long, default_value = "standard")]
    pub size: Size,
    /// Environments of today as further columns, repeated or separated by `;`
    #[arg(long, value_name = "ENV")]
    pub on: Vec<String>,
    /// The environment that stands for a platform of the study, as in
    /// `--arm jail=ssh:host=192.0.2.7`; repeated
    #[arg(long, value_name = "ARM=ENV")]
    pub arm: Vec<String>,
    /// Number of blocks of every experiment
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000), conflicts_with = "precision")]
    pub blocks: Option<u32>,
    /// Stop an experiment when every primary interval is this narrow, per cent either way (30 to 60
    /// blocks)
    #[arg(long, value_name = "PCT", value_parser = positive)]
    pub precision: Option<f64>,
    /// Bound on every experiment, as in `10m`
    #[arg(long, value_name = "TIME")]
    pub budget: Option<String>,
    /// Let noise of the host void nothing; a wrong guest clock still does
    #[arg(long)]
    pub no_void: bool,
    /// Seed of every random choice
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// The directory to make; default: `weigh-runs/<UTC time>-<study>`
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Measure nothing: read the study's own raw logs in this directory, laid out as its authors
    /// published them, and say what they show by these statistics; writes a report only with --out
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

/// What else `study` does.
#[derive(Debug, Subcommand)]
pub enum StudyCommand {
    /// Write a study from a run: what it measured as published numbers, what it showed as claims,
    /// and the command that measures it again
    New(StudyNewArgs),
}

/// Options of `study new`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weigh study new last --output mine.toml
  weigh study new weigh-runs/2026-01-02T030405Z-gups --name gups-2026 --title 'What our nodes cost' > gups.toml
  weigh study --file mine.toml

The run's environments become the columns, its primary metrics the rows, and every conclusive verdict a claim; --size, --blocks and \
--no-void are those of whoever repeats it, and the first lines say what the run had. Of a study's directory every experiment that was \
measured is written. What no command line says is refused.")]
pub struct StudyNewArgs {
    /// A run directory, or `last`
    #[arg(default_value = "last")]
    pub run: PathBuf,
    /// The file to make, which must not be there yet; the terminal otherwise
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Name by which the study is asked for; default: what was measured
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Its title
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
    /// Who measured it
    #[arg(long, value_name = "TEXT")]
    pub authors: Option<String>,
    /// The manifest of a workload of your own that the run has; whoever repeats it needs it too
    #[arg(long, value_name = "FILE")]
    pub workload: Vec<PathBuf>,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(value) if value > 0.0 && value < 100.0 => Ok(value),
        _ => Err("it must be a percentage between 0 and 100".into()),
    }
}
