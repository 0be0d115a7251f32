//! `weigh selftest --tools`: tests whether the built-in kernels agree with the canonical tools.

use super::run::{catch_signals, stay_off};
use super::selftest::{directory, print_judgement, session, write};
use crate::cli::{SelftestArgs, SelftestFormat};
use crate::error::{ExitKind, Failure};
use crate::selftest::conduct::{SelftestRunner, analyse_as_run};
use crate::selftest::tools::{BLOCKS, Outcome, PAIRS, Pair, document};
use crate::{embedded, request, ui};
use std::path::Path;
use std::sync::atomic::Ordering;
use weigh_model::{FinishReason, HostFacts, Plan};
use weigh_observe::Observer;
use weigh_runner::RunOptions;
use weigh_store::RunDirectory;

/// Compares every pair and shows the results.
///
/// # Errors
/// A pair fails its requirement; nothing was compared; the host cannot be used.
pub fn run(args: &SelftestArgs, facts: &HostFacts) -> Result<(), Failure> {
    let pairs = chosen(&args.pair)?;
    let seed = args.seed.unwrap_or_else(request::random_seed);
    let blocks = args.blocks.unwrap_or(BLOCKS);
    let directory = directory(args.out.as_deref())?;
    let interrupt = catch_signals()?;
    let session = session(&directory)?;
    // The programs get one CPU, which leaves the others to weigh.
    let cpus: Vec<u32> = facts.cpus.last().copied().into_iter().collect();
    stay_off(&cpus, facts);
    let runner = SelftestRunner {
        host: &session.host,
        facts,
        directory: &directory,
        interrupt: &interrupt,
        budget: None,
        analyse: analyse_as_run,
    };
    let plan = |pair: &Pair| pair.plan(facts, &cpus, blocks, seed, &embedded::digests());
    let mut progress = ui::Steps::new("pair");
    let mut outcomes = Vec::new();
    let mut compared = Ok(());
    for (done, pair) in (1..).zip(&pairs) {
        match plan(pair).and_then(|plan| compare(&runner, done, pair, &plan)) {
            Ok(Some(outcome)) => outcomes.push(outcome),
            Ok(None) => break,
            Err(error) => {
                compared = Err(error);
                break;
            }
        }
        progress.show(done, pairs.len() as u32);
    }
    drop(progress);
    let closed = session.close();
    compared?;
    closed?;
    say(&outcomes, blocks, args.format, &directory)
}

/// The named pairs, or all.
fn chosen(names: &[String]) -> Result<Vec<Pair>, Failure> {
    let known: Vec<&str> = PAIRS.iter().map(|pair| pair.name).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(
            Failure::input(format!("there is no pair `{unknown}`")).at_word("--pair", unknown, &known)
        );
    }
    let is_chosen = |pair: &&Pair| names.is_empty() || names.iter().any(|name| name == pair.name);
    Ok(PAIRS.iter().filter(is_chosen).copied().collect())
}

/// Compares the pair with this number; returns none if it was interrupted.
fn compare(
    runner: &SelftestRunner<'_>,
    number: u32,
    pair: &Pair,
    plan: &Plan,
) -> Result<Option<Outcome>, Failure> {
    if runner.interrupt.load(Ordering::Relaxed) {
        return Ok(None);
    }
    let mut store = RunDirectory::create_at(&runner.directory.join(pair.name), plan, runner.facts)?;
    let (name, options) = (format!("{number:03}-{}", pair.name), RunOptions::default());
    let (finish, records) = runner.run(plan, &mut store, &name, &mut Observer::new(), options)?;
    Ok((finish != FinishReason::Interrupted).then(|| pair.read(plan, &records)))
}

fn say(outcomes: &[Outcome], blocks: u32, format: SelftestFormat, directory: &Path) -> Result<(), Failure> {
    let json = write(&directory.join("tools.json"), &outcomes)?;
    print_judgement(format, &json, &document(outcomes, blocks));
    ui::note(&format!("every pair is a run below {}", directory.display()));
    let with_found = |outcome: &'_ Outcome| outcome.found.as_ref().ok().map(|found| found.met);
    let met: Vec<bool> = outcomes.iter().filter_map(with_found).collect();
    if met.is_empty() {
        return Err(Failure::new(ExitKind::NothingMeasured, "no kernel was compared with its tool")
            .hint("install the tools: hpcc, python3-numpy, fio, sockperf"));
    }
    if met.iter().all(|met| *met) {
        return Ok(());
    }
    let outside = outcomes.iter().filter(|outcome| with_found(outcome) == Some(false));
    let outside: Vec<&str> = outside.map(|outcome| outcome.pair.as_str()).collect();
    Err(Failure::new(ExitKind::Failed, format!("outside their bounds: {}", outside.join(", ")))
        .hint("the whole interval of the ratio lies outside; the runs below the directory have every value"))
}
