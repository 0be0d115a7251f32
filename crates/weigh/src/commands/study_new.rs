//! `weigh study new`: a study from a run.

use super::run::find;
use crate::cli::StudyNewArgs;
use crate::error::{Failure, file_failure};
use crate::study::{Head, Source, as_file};
use crate::ui;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};

/// Writes the study to a file, or prints it.
///
/// # Errors
/// No such run, nothing measured, what no command line says, a file that is there already or cannot
/// be written.
pub fn run(args: &StudyNewArgs) -> Result<(), Failure> {
    let source = Source::open(&find(&args.run)?)?;
    let head = Head { name: args.name.clone(), title: args.title.clone(), authors: args.authors.clone() };
    let shown = args.output.as_ref().map_or("FILE".into(), |file| file.display().to_string());
    let text = as_file(&source, &head, &args.workload, &shown)?;
    let Some(file) = &args.output else {
        ui::print(text.trim_end());
        return Ok(());
    };
    // A study is edited by hand: what is there is not replaced.
    let made = OpenOptions::new().write(true).create_new(true).open(file);
    let mut made = made.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Failure::input(format!("{shown} is there already"))
            .hint("give --output another file, or remove it; a study is never replaced"),
        _ => file_failure("make the study", file, error),
    })?;
    made.write_all(text.as_bytes()).map_err(|error| file_failure("write the study", file, error))?;
    ui::note(&format!("study: {shown}; `weigh study --file {shown}` measures it again"));
    Ok(())
}
