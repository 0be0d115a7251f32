//! `weigh completions`.

use crate::cli::Cli;
use crate::error::Failure;
use crate::ui;
use clap::CommandFactory;

/// Prints the completions for a shell.
///
/// # Errors
/// Never fails; the return type is that of every command.
pub fn run(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "weigh", &mut text);
    ui::print(&String::from_utf8_lossy(&text));
    Ok(())
}
