//! Runs the comparisons of a selftest, each through the whole pipeline, and reads off what each
//! found.

use super::design::{Comparison, Design};
use crate::error::{Failure, Kind, file_failure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weigh_host::accounts::Accounts;
use weigh_model::{FinishReason, HostFacts, HostSettings, Observed, Plan, Record};
use weigh_observe::{Attached, Sensors};
use weigh_platforms::Host;
use weigh_stats::{Cell, Interval, Options, analyse, collect};
use weigh_store::RunDirectory;

/// Turns the records of a run into its one compared cell. The product's way is [`by_the_method`];
/// tests put a broken one in its place.
pub type Analyse = fn(&Plan, &[Record]) -> Option<Cell>;

/// As `weigh run` analyses.
pub fn by_the_method(plan: &Plan, records: &[Record]) -> Option<Cell> {
    let collected = collect(plan, records);
    let analysis = analyse(&collected.comparisons, &Options::for_plan(plan));
    analysis.cells.into_iter().find(|cell| cell.primary && cell.environment != plan.baseline)
}

/// What a comparison came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Position in the selftest, from 1; the name of its run directory begins with it.
    pub comparison: u32,
    /// The effect that was injected, a fraction.
    pub injected: f64,
    /// Pairs of blocks.
    pub pairs: u32,
    /// Two-sided p of no difference, for this comparison alone.
    pub p: f64,
    /// The effect found, with its 95 % interval.
    pub found: Interval,
    /// The smallest effect that it says it could have found with 80 % power.
    pub smallest_detectable: f64,
    /// Log ratios by block.
    pub log_ratios: Vec<f64>,
}

/// What all of them came to.
#[derive(Debug, Default)]
pub struct Conducted {
    /// Those that gave a number.
    pub measured: Vec<Measured>,
    /// Those that did not: comparison and reason.
    pub failed: Vec<(u32, String)>,
    /// Void units by cause; each was replaced.
    pub voids: BTreeMap<String, u32>,
    /// Comparisons that went on, or began, with voiding off.
    pub noisy_hosts: u32,
    /// Why not all were made, if so.
    pub cut_short: Option<&'static str>,
}

/// Where and how comparisons are run.
pub struct Conductor<'a> {
    /// Where to do it.
    pub host: &'a Host,
    /// The machine, for the records.
    pub facts: &'a HostFacts,
    /// Where the run directories go.
    pub directory: &'a Path,
    /// Ends it after the trial under way.
    pub interrupt: &'a AtomicBool,
    /// Bound on all of it.
    pub budget: Option<Duration>,
    /// How records are read.
    pub analyse: Analyse,
}

impl Conductor<'_> {
    /// Runs all comparisons, telling `progress` after each how many are done.
    ///
    /// # Errors
    /// A plan that makes no sense, a directory that cannot be written.
    pub fn conduct(
        &self,
        design: &Design,
        sensors: &mut dyn Sensors,
        progress: &mut dyn FnMut(u32, u32),
    ) -> Result<Conducted, Failure> {
        let comparisons = design.comparisons();
        let of = comparisons.len() as u32;
        let mut conducted = Conducted::default();
        let mut patience = Patience::default();
        let (started, mut longest) = (Instant::now(), Duration::ZERO);
        for comparison in &comparisons {
            if self.interrupt.load(Ordering::Relaxed) {
                conducted.cut_short = Some("interrupted");
                break;
            }
            if self.budget.is_some_and(|budget| started.elapsed() + longest > budget) {
                conducted.cut_short = Some("the budget is used up");
                break;
            }
            let began = Instant::now();
            self.compare(design, comparison, sensors, &mut patience, &mut conducted)?;
            longest = longest.max(began.elapsed());
            progress(comparison.number, of);
        }
        Ok(conducted)
    }

    fn compare(
        &self,
        design: &Design,
        comparison: &Comparison,
        sensors: &mut dyn Sensors,
        patience: &mut Patience,
        conducted: &mut Conducted,
    ) -> Result<(), Failure> {
        let mut plan = design.plan(comparison, self.facts)?;
        plan.noise.voiding = patience.voids();
        let path = self.directory.join(comparison.name());
        let mut store = RunDirectory::create_at(&path, &plan, self.facts)?;
        let host = self.host_of(comparison)?;
        let finish = weigh_runner::run(weigh_runner::Run {
            plan: &plan,
            host: &host,
            host_facts: self.facts,
            store: &mut store,
            sensors,
            interrupt: self.interrupt,
            emit: &mut |_| {},
            options: weigh_runner::RunOptions { skip_pilot: true, ..Default::default() },
        })?;
        let records = store.records()?.records;
        let noisy =
            !plan.noise.voiding || records.iter().any(|record| matches!(record, Record::NoisyHost(_)));
        patience.learn(noisy);
        conducted.noisy_hosts += u32::from(noisy);
        count_voids(&records, conducted);
        if finish.reason == FinishReason::Interrupted {
            // What was measured of it is on disk and counts for nothing: it ended at a moment that
            // somebody chose.
            conducted.cut_short = Some("interrupted");
            return Ok(());
        }
        match read(comparison, (self.analyse)(&plan, &records)) {
            Ok(measured) => conducted.measured.push(measured),
            Err(reason) => conducted.failed.push((comparison.number, reason)),
        }
        Ok(())
    }
}

impl Conductor<'_> {
    /// The host as a run of its own sees it: its scratch directory lies in that of the selftest,
    /// which the ledger has.
    fn host_of(&self, comparison: &Comparison) -> Result<Host, Failure> {
        let work = self.host.work.join(comparison.name());
        std::fs::create_dir(&work).map_err(|error| file_failure("make the directory", &work, error))?;
        Ok(Host {
            ledger: self.host.ledger.clone(),
            hierarchy: self.host.hierarchy.clone(),
            work,
            logs: self.host.logs.clone(),
            run: format!("{}-{:03}", self.host.run, comparison.number),
            programs: self.host.programs.clone(),
            is_root: self.host.is_root,
        })
    }
}

/// Sensors for fakes: nothing is run, so nothing that happens on the host has to do with it.
pub struct Quiet;

impl Sensors for Quiet {
    fn settings(&mut self) -> HostSettings {
        HostSettings::default()
    }

    fn attach(&mut self, _: &Accounts, _: &[u32]) -> Attached {
        Attached(0)
    }

    fn begin(&mut self, _: Attached) {}

    fn end(&mut self, _: Attached) -> Observed {
        Observed::default()
    }

    fn detach(&mut self, _: Attached) {}
}

/// Whether the next comparison begins with voiding on.
///
/// A comparison finds out for itself that the host is noisy, by six units that count for nothing.
/// Where that was so again and again, it would be found out at the cost of a third of the time, so
/// the following ones begin where it would end; now and then one tries again. Only what the host
/// was seen to do decides, never a result.
#[derive(Debug, Default)]
struct Patience {
    noisy_in_a_row: u32,
}

impl Patience {
    /// Noisy comparisons after which voiding stays off.
    const LIMIT: u32 = 3;
    /// One of so many tries it all the same.
    const TRY_AGAIN: u32 = 10;

    fn voids(&self) -> bool {
        self.noisy_in_a_row < Self::LIMIT || self.noisy_in_a_row.is_multiple_of(Self::TRY_AGAIN)
    }

    fn learn(&mut self, noisy: bool) {
        self.noisy_in_a_row = if noisy { self.noisy_in_a_row + 1 } else { 0 };
    }
}

/// Counts void units by cause.
fn count_voids(records: &[Record], conducted: &mut Conducted) {
    for record in records {
        if let Record::Void(void) = record {
            *conducted.voids.entry(word(&void.cause)).or_default() += 1;
        }
    }
}

/// A unit variant as it stands in files.
fn word(cause: &impl Serialize) -> String {
    serde_json::to_value(cause).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// What a cell says, or why it says nothing.
fn read(comparison: &Comparison, cell: Option<Cell>) -> Result<Measured, String> {
    let cell = cell.ok_or("there is no cell to read")?;
    if cell.failed > 0 {
        return Err(format!("{} of {} trials failed", cell.failed, cell.tried));
    }
    match (cell.p_diff, cell.overhead, cell.smallest_detectable) {
        (Some(p), Some(found), Some(smallest_detectable)) => Ok(Measured {
            comparison: comparison.number,
            injected: comparison.effect,
            pairs: cell.n,
            p,
            found,
            smallest_detectable,
            log_ratios: cell.log_ratios.iter().map(|(_, ratio)| *ratio).collect(),
        }),
        _ => Err(format!("{} pairs give no interval", cell.n)),
    }
}

/// Nothing at all was measured.
pub fn nothing_measured(conducted: &Conducted) -> Failure {
    let reason = conducted.failed.first().map(|(number, reason)| format!("comparison {number}: {reason}"));
    let reason = reason.or(conducted.cut_short.map(str::to_owned));
    Failure::new(Kind::NothingMeasured, "no comparison of the selftest gave a number").maybe_hint(reason)
}
