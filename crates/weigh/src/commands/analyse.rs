//! `weigh analyse`: the statistics of a run for samples that were measured elsewhere.

use crate::cli::{AnalyseArgs, SampleFormat};
use crate::error::Failure;
use crate::outcome;
use std::path::{Path, PathBuf};
use weigh_store::import::{self, NamedFile, Tool};

/// The endings of names that always mean weighbridge's own formats.
const OWN_ENDINGS: [&str; 3] = ["csv", "jsonl", "ndjson"];

/// Analyses a file of samples, or result files of one other tool.
///
/// # Errors
/// A file cannot be read, with line and column; the files are of several tools; they have no such
/// baseline; the report cannot be written; the gate is not passed.
pub fn run(args: &AnalyseArgs) -> Result<(), Failure> {
    let AnalyseArgs { files, from, baseline, output } = args;
    let files: Vec<NamedFile> = files.iter().map(|word| named(word)).collect();
    let mut read = Vec::with_capacity(files.len());
    for file in files {
        let bytes = import::load(&file.path)?;
        read.push((file, bytes));
    }
    let tools: Vec<Option<Tool>> = match from {
        Some(format) => vec![format.tool(); read.len()],
        None => read.iter().map(|(file, bytes)| tool_of(&file.path, bytes)).collect(),
    };
    let title = title(&read);
    let report = match same_tool(&read, &tools)? {
        Some(tool) => {
            let samples = import::parse_tool(tool, &read)?;
            outcome::from_tool(&title, &samples, baseline.as_deref())?
        }
        None => {
            let (file, bytes) = only_file(&read)?;
            let parse = match from {
                Some(SampleFormat::Csv) => import::parse_csv,
                Some(SampleFormat::JsonLines) => import::parse_json_lines,
                _ => import::parse,
            };
            let comparisons = parse(&file.path, bytes)?.comparisons;
            outcome::from_samples(&title, &comparisons, baseline.as_deref())?
        }
    };
    output.write(&report)
}

/// Reads a word of the command line: a file, or `NAME=FILE` if no file has the whole word as its
/// name.
fn named(word: &Path) -> NamedFile {
    let whole = || NamedFile { environment: None, path: word.into() };
    if word.exists() {
        return whole();
    }
    match word.to_str().and_then(|word| word.split_once('=')) {
        Some((name, path)) if !name.is_empty() => {
            NamedFile { environment: Some(name.into()), path: PathBuf::from(path) }
        }
        _ => whole(),
    }
}

fn tool_of(path: &Path, bytes: &[u8]) -> Option<Tool> {
    let ending = path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    if OWN_ENDINGS.contains(&ending.as_str()) { None } else { import::recognise(bytes) }
}

/// The tool that wrote all files; none for weighbridge's own samples.
fn same_tool(files: &[(NamedFile, Vec<u8>)], tools: &[Option<Tool>]) -> Result<Option<Tool>, Failure> {
    let name = |tool: Option<Tool>| tool.map_or("samples", Tool::name);
    let first = tools.first().copied().flatten();
    match tools.iter().position(|tool| *tool != first) {
        None => Ok(first),
        Some(other) => Err(Failure::input(format!(
            "{} is a file of {} and {} one of {}",
            files[0].0.path.display(),
            name(first),
            files[other].0.path.display(),
            name(tools[other])
        ))
        .hint("give files of one tool; --from says which one where the content does not")),
    }
}

/// Returns the one file of samples. Samples name their environments themselves, so one file has
/// all.
fn only_file(files: &[(NamedFile, Vec<u8>)]) -> Result<&(NamedFile, Vec<u8>), Failure> {
    let [one] = files else {
        return Err(Failure::input("samples are read from one file").hint(
            "put all rows into one file; the column `environment` says which environment each belongs to",
        ));
    };
    if let Some(name) = &one.0.environment {
        let message = format!("the rows of {} name their environments themselves", one.0.path.display());
        return Err(Failure::input(message).hint(format!("leave `{name}=` out")));
    }
    Ok(one)
}

/// The names of the files as the user gave them, up to a maximum.
fn title(files: &[(NamedFile, Vec<u8>)]) -> String {
    const SHOWN: usize = 4;
    let mut names: Vec<String> =
        files.iter().take(SHOWN).map(|(file, _)| file.path.display().to_string()).collect();
    if files.len() > SHOWN {
        names.push(format!("{} more files", files.len() - SHOWN));
    }
    names.join(", ")
}
