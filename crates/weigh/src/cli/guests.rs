//! The command lines of what measures guests themselves, or among others: `start`, `footprint`,
//! `density` and `soak`.

use super::{MeasureArgs, PriceArgs, Size, TrialArgs, WorkArgs};
use clap::Args;

/// Options of `start`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weigh start --on native,namespaces,runc,docker --quick
  weigh start --on native,namespaces --caches cold --blocks 30
  weigh start --on namespaces --guests 200 --blocks 6
  weigh start --on native,runc,runsc --guests 20 --apart 20ms,10/s
  weigh start --on native,runc --rate --restore --spawn
  weigh start --on native,runc,docker --exec --prompt --copy

All times are counted from the start of the platform's first program. start_to_code ends at the first instruction of our code in the guest, \
start_to_init when the guest is up (its probe answers; a full system has reached multi-user.target), start_to_service when a server \
in it listens, start_to_response when a client outside has its first answer. A time that a platform cannot provide is absent, with the reason.")]
pub struct StartArgs {
    /// What every measurement has
    #[command(flatten)]
    pub common: MeasureArgs,
    /// State of the host's page cache at every start: `warm`, as earlier starts left it; `cold`,
    /// empty (needs root)
    #[arg(long, value_name = "WORD", default_value = "warm")]
    pub caches: String,
    /// Number of guests to start at once; a list `1,50,200` measures each number
    #[arg(long, visible_alias = "burst", value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10_000), default_value = "1")]
    pub guests: Vec<u32>,
    /// Also start the guests of --guests this long apart, as in `50ms`, or at this rate, as in
    /// `20/s`, whether the earlier ones are up or not; a list measures each pace
    #[arg(long, value_name = "PACE", value_delimiter = ',')]
    pub apart: Vec<String>,
    /// Also measure how many guests can be started and removed per second, this many at a time;
    /// --apart starts them at a given rate
    #[arg(long, value_name = "N", value_delimiter = ',', num_args = 0..=1, require_equals = true, default_missing_value = "1,2,4,8", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub rate: Vec<u32>,
    /// Also measure restoring a saved guest, on platforms that can; with a number, so many guests
    /// from one saved state; a list measures each number
    #[arg(long, value_name = "N", value_delimiter = ',', num_args = 0..=1, require_equals = true, default_missing_value = "1", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub restore: Vec<u32>,
    /// Also measure how long the platform's client takes to run a program in a running guest, as
    /// `docker exec`, `runc exec` and `nsenter` do, or an agent in a machine, and the time from a
    /// guest's start to its first program
    #[arg(long)]
    pub exec: bool,
    /// Also measure how long a shell takes to show its prompt on a terminal in a running guest,
    /// started by the same client, and the time from a guest's start to its first prompt
    #[arg(long)]
    pub prompt: bool,
    /// Also measure how long it takes to copy a file into a running guest and back out, through the
    /// same client; give a size for another file than that of 16 MiB, or a list to measure each
    #[arg(long, value_name = "BYTES", value_delimiter = ',', num_args = 0..=1, require_equals = true, default_missing_value = "16MiB")]
    pub copy: Vec<String>,
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
unless you ask for another number.")]
pub struct FootprintArgs {
    /// What every measurement has
    #[command(flatten)]
    pub common: MeasureArgs,
    /// Number of guests to measure at once; a list measures each number
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10_000), default_value = "1,2,4,8,16,32")]
    pub guests: Vec<u32>,
    /// Then scan the pages of guests, their helpers and the host's cached files for duplicates
    #[arg(long)]
    pub duplicates: bool,
    /// What an hour of the host costs
    #[command(flatten)]
    pub prices: PriceArgs,
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
  weigh density noploop --on native,runc,runsc --beside native,runc,runsc --neighbours cpu,io --guests 4

One guest is measured. The others run on the same CPUs from before its warm-up until after its last run, and do what --neighbours \
says: nothing (idle), spin (cpu), write and read files (io), serve HTTP to a load generator on the CPUs that no guest has (http), or \
run the workload itself (same; the report then also has the throughput of all guests together and how fairly they share it). The CPU \
time of neighbours is neither foreign nor charged to the measured guest. Neighbours are of the measured guest's own environment, or \
of each that --beside names: the report then has a matrix of who disturbs whom. With --shares weights the measured guest has ten times the weight of a \
neighbour; with limits no guest gets more than its part of the CPUs. Where fewer guests come up than asked for, that number is the \
result, with the reason. Six blocks unless you ask for another number."
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
    /// Environments of the neighbours, each of them one that is measured; repeated or separated as
    /// in --on; default: that of the measured guest
    #[arg(long, value_name = "ENV")]
    pub beside: Vec<String>,
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
grown and cached. Beside it run further guests, which by default serve HTTP to load generators; that needs a network (`net=`). \
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

impl SoakArgs {
    /// What would end a soak before its time, and what judges its verdicts: it gives none.
    pub const UNFIT: [&str; 6] = ["quick", "blocks", "precision", "budget", "gate", "gate_undecided"];
}
