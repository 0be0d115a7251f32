//! Options of commands of the user's own.

use clap::Args;

/// Between two commands after `--`.
pub const NEXT_COMMAND: &str = "---";

/// How `run` runs the commands after `--`.
#[derive(Debug, Clone, Default, Args)]
pub struct CommandArgs {
    /// Name of a command in results; once for each command, in their order
    #[arg(long, value_name = "NAME", requires = "command")]
    pub name: Vec<String>,
    /// Shell command to run in the guest once, before the first run in a fresh instance
    #[arg(long, value_name = "CMD", requires = "command")]
    pub setup: Option<String>,
    /// Shell command to run in the guest once, after the last run in an instance
    #[arg(long, value_name = "CMD", requires = "command")]
    pub teardown: Option<String>,
    /// File in the guest that is the standard input of every run; default: none
    #[arg(long, value_name = "FILE", requires = "command")]
    pub input: Option<String>,
    /// Also count runs that exit with a status other than 0
    #[arg(long, requires = "command")]
    pub ignore_failure: bool,
    /// Environment variable for everything that is measured, and for the commands that run around
    /// it
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<String>,
}
