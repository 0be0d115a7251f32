//! `weigh study new`: makes a study from a run.

use super::run::find;
use crate::cli::StudyNewArgs;
use crate::error::{Failure, file_failure};
use crate::study::repeated;
use crate::{outcome, output, ui};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::Path;
use weigh_store::RunDirectory;
use weigh_studies::{FromRunsError, Header, RunSource, StudyDirectory, study_file};

/// The name of the only experiment of a study from one run.
const EXPERIMENT: &str = "comparison";

/// Writes the study to a file, or prints it.
///
/// # Errors
/// There is no such run; nothing was measured; no command line repeats the run; the file exists
/// already or cannot be written.
pub fn run(args: &StudyNewArgs) -> Result<(), Failure> {
    let runs = runs(&find(&args.run)?)?;
    let mut sources = Vec::new();
    for (experiment, run) in &runs {
        sources.push(RunSource {
            experiment: experiment.clone(),
            run: run.name(),
            plan: run.plan(),
            host: run.host(),
            report: outcome::from_run(run)?,
            measure: repeated(run.plan(), &args.workload)?,
        });
    }
    let header = Header { name: args.name.clone(), title: args.title.clone(), authors: args.authors.clone() };
    let shown = args.output.as_ref().map_or("FILE".into(), |file| file.display().to_string());
    let text = study_file(&sources, &header, &shown)?;
    let Some(file) = &args.output else {
        ui::print(text.trim_end());
        return Ok(());
    };
    output::check(file)?;
    // People edit studies by hand, so none is ever replaced.
    let made = OpenOptions::new().write(true).create_new(true).open(file);
    let mut made = made.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Failure::input(format!("{shown} exists already"))
            .hint("give --output another file, or remove it; a study is never replaced"),
        _ => file_failure("make the study", file, error),
    })?;
    made.write_all(text.as_bytes()).map_err(|error| file_failure("write the study", file, error))?;
    ui::note(&format!("study: {shown}; `weigh study --file {shown}` measures it again"));
    Ok(())
}

/// The run, or every run of a study's directory, each with the name of its experiment.
fn runs(path: &Path) -> Result<Vec<(String, RunDirectory)>, Failure> {
    if !StudyDirectory::is_one(path) {
        return Ok(vec![(EXPERIMENT.into(), RunDirectory::open(path)?)]);
    }
    let directory = StudyDirectory::open(path)?;
    let mut runs = Vec::new();
    for state in &directory.state().experiments {
        if let Some(run) = &state.run {
            runs.push((state.name.clone(), RunDirectory::open(&path.join(run))?));
        }
    }
    if runs.is_empty() {
        return Err(FromRunsError::NothingMeasured { run: path.display().to_string() }.into());
    }
    Ok(runs)
}
