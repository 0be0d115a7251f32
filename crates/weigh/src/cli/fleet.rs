//! The arguments of `weigh fleet`.

use super::RunArgs;
use clap::Args;

/// Options of `fleet`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weigh fleet stream --on native,docker --via 'ssh:host=a;ssh:host=root@b,port=2222'
  weigh fleet lzma --on native,runc --blocks 30 --via slurm:nodes=20,partition=batch
  weigh fleet sqlite --on native,docker --blocks 60 --shard --via slurm:nodes=6
  weigh fleet stream --on native,namespaces --via kubernetes:context=lab,nodes=n1+n2
  weigh resume weigh-runs/20261121T050000Z-stream-fleet --watch")]
pub struct FleetArgs {
    /// The machines: `ssh:host=[user@]address[,key=value,...]`, repeated or separated by `;`, or
    /// `slurm:nodes=N[,partition=NAME,constraint=LIST,account=NAME,time=TIME,exclusive=on|off]`, or
    /// `kubernetes[:nodes=NAME+NAME,context=NAME,namespace=NAME,image=REF,...]`
    #[arg(long, value_name = "ENGINE", required = true, conflicts_with_all = Self::UNFIT)]
    pub via: Vec<String>,
    /// Divide the blocks among the machines, which have to be alike, so that the run ends sooner;
    /// the one report is about these machines and says nothing about others
    #[arg(long)]
    pub shard: bool,
    /// Show what every machine prints while it measures
    #[arg(long)]
    pub watch: bool,
    /// What every machine measures
    #[command(flatten)]
    pub run: RunArgs,
}

impl FleetArgs {
    /// Options of `run` that a fleet does not take: its machines show their runs themselves, and a
    /// gate judges one run.
    pub const UNFIT: [&str; 5] = ["gate", "gate_undecided", "format", "details", "live"];
}
