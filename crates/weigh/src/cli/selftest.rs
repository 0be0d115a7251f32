//! The command line of `selftest`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;
use weigh_model::SliceChoice;

/// Options of `selftest`.
#[derive(Debug, Args)]
#[command(
    after_help = "Compares native with itself in small runs of 10 blocks each, in random order: 20 without an effect, and 10 each with \
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
    /// `platform[:key=value,...]`, separated by commas or `;`, or `all` for every ready platform
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
