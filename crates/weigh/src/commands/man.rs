//! `weigh man`: manual pages made from the definition of the command line.

use crate::cli::Cli;
use crate::error::Failure;
use crate::{output, ui};
use clap::CommandFactory;
use std::path::Path;

/// Writes one page per command into a directory, or prints the main page.
///
/// # Errors
/// The directory cannot be written.
pub fn run(directory: Option<&Path>) -> Result<(), Failure> {
    let mut command = Cli::command();
    command.build();
    let Some(directory) = directory else {
        ui::print(&page(&command));
        return Ok(());
    };
    output::make_directory(directory)?;
    let subcommands = command.get_subcommands().filter(|sub| sub.get_name() != "help");
    let pages = std::iter::once(("weigh".to_string(), command.clone()))
        .chain(subcommands.map(|sub| (format!("weigh-{}", sub.get_name()), sub.clone())));
    for (name, command) in pages {
        let file = directory.join(format!("{name}.1"));
        output::write(&file, page(&command))?;
    }
    Ok(())
}

fn page(command: &clap::Command) -> String {
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut text).expect("writing to memory does not fail");
    String::from_utf8_lossy(&text).into_owned()
}
