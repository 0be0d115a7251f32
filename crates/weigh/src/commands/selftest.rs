//! `weigh selftest`: tests whether the method keeps its promises on this host.

use super::run::{catch_signals, stay_off};
use crate::cli::{SelftestArgs, SelftestFormat};
use crate::error::{ExitKind, Failure, file_failure};
use crate::host::HostSession;
use crate::selftest::LastSelftest;
use crate::selftest::conduct::{Constant, SelftestRunner, analyse_as_run, nothing_measured};
use crate::selftest::design::{Design, Form, Subject};
use crate::selftest::judgement::{Verdict, document, judge};
use crate::{embedded, output, request, ui};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weigh_host::{clock, facts};
use weigh_model::{HostFacts, SliceChoice, parse_duration};
use weigh_observe::{Observer, Sensors};
use weigh_report::Document;

/// Comparisons without an effect, and with each effect, over all forms. Short takes about six
/// minutes, long about 40.
const SHORT: (u32, u32) = (20, 10);
const LONG: (u32, u32) = (200, 50);

/// Makes the comparisons and judges them.
///
/// # Errors
/// A count lies outside its band; the host cannot be used; nothing was measured.
pub fn run(args: &SelftestArgs) -> Result<(), Failure> {
    let facts = facts::host_facts();
    if args.tools {
        return super::selftest_tools::run(args, &facts);
    }
    if !args.platforms.is_empty() {
        return super::selftest_platforms::run(args, &facts);
    }
    let (forms, slices) = forms(args.slices);
    let share = forms.len() as u32;
    let (no_effect, per_effect) = if args.long { LONG } else { SHORT };
    let design = Design {
        seed: args.seed.unwrap_or_else(request::random_seed),
        no_effect: no_effect / share,
        per_effect: per_effect / share,
        forms,
        slices,
        subject: subject(args, &facts),
        digests: embedded::digests(),
    };
    let budget = budget(args)?;
    let directory = directory(args.out.as_deref())?;
    let interrupt = catch_signals()?;
    let session = session(&directory)?;
    if let Subject::Native { cpus } = &design.subject {
        stay_off(cpus, &facts);
    }
    let mut progress = ui::Steps::new("comparison");
    let conducted = SelftestRunner {
        host: &session.host,
        facts: &facts,
        directory: &directory,
        interrupt: &interrupt,
        budget,
        analyse: analyse_as_run,
    }
    .conduct(&design, sensors(&design.subject).as_mut(), &mut |done, of| progress.show(done, of));
    drop(progress);
    let closed = session.close();
    let conducted = conducted?;
    closed?;
    if conducted.measured.is_empty() {
        return Err(nothing_measured(&conducted));
    }

    let judgement = judge(&design, conducted);
    let json = write(&directory.join("selftest.json"), &judgement)?;
    print_judgement(args.format, &json, &document(&judgement));
    if let Subject::Native { .. } = &design.subject {
        let passed = judgement.verdict == Verdict::Inside;
        if !LastSelftest::now(&facts, passed, &judgement.statement).keep() {
            ui::note("note: the cache cannot be written, so `weigh doctor` will not know of this selftest");
        }
    }
    ui::note(&format!("every comparison is a run below {}", directory.display()));
    match judgement.verdict {
        Verdict::Inside => Ok(()),
        Verdict::Outside => Err(Failure::new(
            ExitKind::Failed,
            format!("the method does not keep its promises on this host: {}", judgement.statement),
        )
        .hint(
            "chance does this in at most three of a hundred selftests: run it again with --long; if it fails again, trust no verdict of this host",
        )),
    }
}

/// The forms to measure, and the length of the slices.
pub(super) fn forms(slices: Option<SliceChoice>) -> (Vec<Form>, SliceChoice) {
    match slices {
        None => (vec![Form::Slices, Form::Whole], SliceChoice::Auto),
        Some(SliceChoice::Off) => (vec![Form::Whole], SliceChoice::Off),
        Some(slices) => (vec![Form::Slices], slices),
    }
}

/// The time limit.
pub(super) fn budget(args: &SelftestArgs) -> Result<Option<Duration>, Failure> {
    let budget = args.budget.as_deref().map(parse_duration).transpose();
    budget.map_err(|error| Failure::of_size("--budget", &error))
}

/// Opens a session of this host for the selftest in a directory.
pub(super) fn session(directory: &Path) -> Result<HostSession, Failure> {
    HostSession::open(&format!("selftest in {}", directory.display()), Some(directory.join("logs")))
}

/// Writes a judgement, and returns its JSON.
pub(super) fn write(file: &Path, judgement: &impl Serialize) -> Result<String, Failure> {
    let json = ui::json(judgement);
    output::write(file, &json)?;
    Ok(json)
}

/// Prints a judgement in a format.
pub(super) fn print_judgement(format: SelftestFormat, json: &str, document: &Document) {
    match format {
        SelftestFormat::Table => ui::print(&ui::shown(document)),
        SelftestFormat::Json => ui::print(json),
    }
}

/// The subject of the selftest: native on one CPU, which leaves the others to weigh, or the fakes
/// of the hidden options.
fn subject(args: &SelftestArgs, facts: &HostFacts) -> Subject {
    match &args.fake {
        Some(keys) => {
            Subject::Fake { keys: keys.clone(), other: args.fake_other.clone().unwrap_or_default() }
        }
        None => Subject::Native { cpus: facts.cpus.last().copied().into_iter().collect() },
    }
}

fn sensors(subject: &Subject) -> Box<dyn Sensors> {
    match subject {
        Subject::Native { .. } => Box::new(Observer::new()),
        Subject::Fake { .. } => Box::new(Constant::default()),
    }
}

/// The directory of this selftest, whose name `last` does not match.
pub(super) fn directory(out: Option<&Path>) -> Result<PathBuf, Failure> {
    let stamp = clock::utc_now().replace([':', '-'], "");
    let stamp = stamp.split(['.', 'Z']).next().unwrap_or_default().to_string();
    let path =
        out.map_or_else(|| Path::new(super::run::RUNS).join(format!("selftest-{stamp}Z")), Path::to_path_buf);
    output::make_directory(&path)?;
    let mut entries = std::fs::read_dir(&path).map_err(|error| file_failure("list", &path, error))?;
    match entries.next() {
        None => Ok(path),
        Some(_) => Err(Failure::input(format!("the directory {} is not empty", path.display()))
            .hint("give a new one with --out")),
    }
}
