//! The command line of `pool`.

use super::OutputArgs;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Options of `pool`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weigh pool host-a host-b host-c
  weigh pool fleet/*/ --by cpu-model
  weigh pool fleet/*/ --label 'fleet/small-*=small' --label 'fleet/large-*=large'
  weigh pool s-* l-* --label 's-*=s' --label 'l-*=l' --price s=0.34/h --price l=1.36/h
  weigh pool fleet/*/ --by cpu-model --prices prices.toml")]
pub struct PoolArgs {
    /// What is pooled
    #[command(flatten)]
    pub of: PoolSelection,
    /// How the report is written
    #[command(flatten)]
    pub output: OutputArgs,
}

/// What is pooled, and by what.
#[derive(Debug, Default, Args)]
pub struct PoolSelection {
    /// Runs of one plan: run directories, `last`, or fleets
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<PathBuf>,
    /// Pool the machines of each kind by themselves, and compare the kinds
    #[arg(long, value_name = "WHAT")]
    pub by: Option<By>,
    /// The kind of a run's machine, for `--by label`; repeated. RUN is spelled as above; a final
    /// `*` matches any ending
    #[arg(long, value_name = "RUN=NAME")]
    pub label: Vec<String>,
    /// Pool runs that differ in this, and say so: a key as the refusal lists it, or its beginning, as
    /// in `tool_version` or `facts:docker`; a list `a,b` names several
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    pub allow_unequal: Vec<String>,
    /// Price of an hour of a machine, for each kind of `--by` or `--label`; repeated. The report
    /// then shows what the same work costs on each kind, against the first
    #[arg(long, value_name = "KIND=PRICE/h")]
    pub price: Vec<String>,
    /// Take the prices from a TOML file with a line for each kind, as in `small = 0.34`; it may
    /// list kinds that are not here
    #[arg(long, value_name = "FILE", conflicts_with = "price")]
    pub prices: Option<PathBuf>,
}

/// What makes machines of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// The model of the CPU
    CpuModel,
    /// The number of CPUs that weigh may use
    Cpus,
    /// The memory, in whole GiB
    Memory,
    /// The release of the kernel
    Kernel,
    /// The operating system
    OperatingSystem,
    /// The architecture; the measured programs differ with it
    Architecture,
    /// What --label says
    #[value(alias = "instance-type")]
    Label,
}

impl By {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::CpuModel => "CPU model",
            Self::Cpus => "number of CPUs",
            Self::Memory => "memory",
            Self::Kernel => "kernel",
            Self::OperatingSystem => "operating system",
            Self::Architecture => "architecture",
            Self::Label => "label",
        }
    }
}
