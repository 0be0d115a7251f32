//! Runs the comparisons of a selftest, each through the whole pipeline, and reads their results.

use super::design::{Comparison, Design, Form, SLICED_TIME};
use crate::error::{ExitKind, Failure, file_failure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weigh_host::accounts::Accounts;
use weigh_model::{FinishReason, HostFacts, HostSettings, Observed, Plan, Record, Slicing};
use weigh_observe::{InstanceId, Sensors};
use weigh_platforms::Host;
use weigh_runner::RunOptions;
use weigh_stats::{Analysis, Cell, Interval, Options, analyse, collect};
use weigh_store::RunDirectory;

/// A function that analyses the records of a comparison. The real one is [`analyse_as_run`]; tests
/// replace it by broken ones.
pub type Analyse = fn(Form, &Plan, &[Record]) -> Analysis;

/// The analysis of `weigh run`, which treats both forms alike.
pub fn analyse_as_run(_: Form, plan: &Plan, records: &[Record]) -> Analysis {
    analyse(&collect(plan, records).comparisons, &Options::for_plan(plan))
}

/// The result of a comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Position in the selftest, from 1; the name of its run directory begins with it.
    pub comparison: u32,
    /// How it was measured.
    pub form: Form,
    /// The effect that was injected, a fraction.
    pub injected: f64,
    /// Pairs of blocks.
    pub pairs: u32,
    /// Two-sided p of no difference, for this comparison alone.
    pub p: f64,
    /// The effect found, with its 95 % interval.
    pub found: Interval,
    /// The smallest effect that it claims it could have found with 80 % power.
    pub smallest_detectable: f64,
    /// Log ratios by block.
    pub log_ratios: Vec<f64>,
    /// The control of the run; absent where the run has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<Control>,
}

/// The baseline of a comparison against its second instance in the same blocks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Control {
    /// The effect found, with its 95 % interval; the truth is 0.
    pub found: Interval,
    /// Log ratios by block.
    pub log_ratios: Vec<f64>,
}

/// The results of all comparisons.
#[derive(Debug, Default)]
pub struct SelftestResults {
    /// Those that gave a number.
    pub measured: Vec<Measured>,
    /// Those that did not, as comparison and reason.
    pub failed: Vec<(u32, String)>,
    /// Void units by cause; each was replaced.
    pub voids: BTreeMap<String, u32>,
    /// Number of comparisons that began or continued with voiding off.
    pub noisy_hosts: u32,
    /// The reason why some were not made, if any.
    pub cut_short: Option<&'static str>,
    /// The length of the slices, microseconds, or the reason why nothing can be sliced here; none
    /// if no slices were wanted.
    pub sliced: Option<Result<u32, String>>,
    /// Number of pilots that found that nothing can be sliced.
    pub refusals: u32,
}

/// Number of pilots that may find that nothing can be sliced before slicing is given up. On a busy
/// host, one of them may happen to see a guest that freezes slowly.
const MOST_REFUSALS: u32 = 3;

/// Where and how comparisons are run.
pub struct SelftestRunner<'a> {
    /// The host that runs them.
    pub host: &'a Host,
    /// Facts about the machine, for the records.
    pub facts: &'a HostFacts,
    /// The parent of the run directories.
    pub directory: &'a Path,
    /// A flag that turns true when the selftest should end after the current trial.
    pub interrupt: &'a AtomicBool,
    /// Time limit of all comparisons.
    pub budget: Option<Duration>,
    /// Analyses the records.
    pub analyse: Analyse,
}

impl SelftestRunner<'_> {
    /// Runs all comparisons, and tells `progress` after each how many are done.
    ///
    /// # Errors
    /// A plan is invalid; a directory cannot be written.
    pub fn conduct(
        &self,
        design: &Design,
        sensors: &mut dyn Sensors,
        progress: &mut dyn FnMut(u32, u32),
    ) -> Result<SelftestResults, Failure> {
        let comparisons = design.comparisons();
        let of = comparisons.len() as u32;
        let mut conducted = SelftestResults::default();
        let mut backoff = VoidingBackoff::default();
        let (started, mut longest) = (Instant::now(), Duration::ZERO);
        for comparison in &comparisons {
            if let Some(why) = self.cut_short(started, longest) {
                conducted.cut_short = Some(why);
                break;
            }
            if comparison.form == Form::Slices && conducted.refusals >= MOST_REFUSALS {
                continue;
            }
            let began = Instant::now();
            self.compare(design, comparison, sensors, &mut backoff, &mut conducted)?;
            longest = longest.max(began.elapsed());
            progress(comparison.number, of);
        }
        Ok(conducted)
    }

    /// Why nothing further is measured, if so. `longest` is the longest time that anything took.
    pub(super) fn cut_short(&self, started: Instant, longest: Duration) -> Option<&'static str> {
        if self.interrupt.load(Ordering::Relaxed) {
            return Some("interrupted");
        }
        let is_used_up = self.budget.is_some_and(|budget| started.elapsed() + longest > budget);
        is_used_up.then_some("the budget is used up")
    }

    fn compare(
        &self,
        design: &Design,
        comparison: &Comparison,
        sensors: &mut dyn Sensors,
        backoff: &mut VoidingBackoff,
        conducted: &mut SelftestResults,
    ) -> Result<(), Failure> {
        let mut plan = design.plan(comparison, self.facts)?;
        // A disturbance of a sliced comparison affects both of its sides, and voids nothing.
        let is_whole = comparison.form == Form::Whole;
        plan.noise.voiding = !is_whole || backoff.voids();
        let name = comparison.name();
        let mut store = RunDirectory::create_at(&self.directory.join(&name), &plan, self.facts)?;
        // The first pilot that finds how to slice decides for all.
        let workload = plan.workloads[0].id.clone();
        let pilots = !plan.slices.is_off() && !matches!(conducted.sliced, Some(Ok(_)));
        if let Some(Ok(us)) = conducted.sliced
            && !plan.slices.is_off()
        {
            let reason = "as the first sliced comparison found".into();
            let workload = workload.clone();
            let slicing = Slicing { workload, length_us: Some(us), reason, ..Slicing::default() };
            store.append(&Record::Slicing(slicing))?;
        }
        let options = RunOptions { skip_pilot: !pilots, ..RunOptions::default() };
        let (finish, records) = self.run(&plan, &mut store, &name, sensors, options)?;
        if is_whole {
            let noisy =
                !plan.noise.voiding || records.iter().any(|record| matches!(record, Record::NoisyHost(_)));
            backoff.learn(noisy);
            conducted.noisy_hosts += u32::from(noisy);
        }
        count_voids(&records, conducted);
        if finish == FinishReason::Interrupted {
            // Its values are on disk but do not count, because somebody chose when it ended.
            conducted.cut_short = Some("interrupted");
            return Ok(());
        }
        if pilots && let Err(reason) = conducted.sliced.insert(slicing(&records, &workload)) {
            conducted.refusals += 1;
            conducted.failed.push((comparison.number, reason.clone()));
            return Ok(());
        }
        match read_run(comparison, &plan, &(self.analyse)(comparison.form, &plan, &records)) {
            Ok(measured) => conducted.measured.push(measured),
            Err(reason) => conducted.failed.push((comparison.number, reason.to_string())),
        }
        Ok(())
    }

    /// Runs a plan in scratch and run directories called `name`, and reads what it recorded.
    ///
    /// # Errors
    /// The plan is invalid; a directory cannot be written.
    pub fn run(
        &self,
        plan: &Plan,
        store: &mut RunDirectory,
        name: &str,
        sensors: &mut dyn Sensors,
        options: RunOptions,
    ) -> Result<(FinishReason, Vec<Record>), Failure> {
        let host = self.host_of(name)?;
        let finish = weigh_runner::run(weigh_runner::Run {
            plan,
            host: &host,
            host_facts: self.facts,
            store,
            sensors,
            interrupt: self.interrupt,
            emit: &mut |_| {},
            options: RunOptions { sliced_time: Some(SLICED_TIME), ..options },
        })?;
        Ok((finish.reason, store.records()?.records))
    }

    /// The host for one run. Its scratch directory is within that of the selftest, which is
    /// in the ledger.
    fn host_of(&self, name: &str) -> Result<Host, Failure> {
        let work = self.host.work.join(name);
        std::fs::create_dir(&work).map_err(|error| file_failure("make the directory", &work, error))?;
        Ok(Host {
            ledger: self.host.ledger.clone(),
            hierarchy: self.host.hierarchy.clone(),
            work,
            logs: self.host.logs.clone(),
            run: format!("{}-{}", self.host.run, name.split('-').next().unwrap_or(name)),
            programs: self.host.programs.clone(),
            is_root: self.host.is_root,
            fetch_until: self.host.fetch_until,
        })
    }
}

/// Sensors that always report the same. For fakes they report nothing, because fakes run nothing
/// that the host could disturb.
#[derive(Default)]
pub struct Constant(pub Observed);

impl Sensors for Constant {
    fn settings(&mut self) -> HostSettings {
        HostSettings::default()
    }

    fn attach(&mut self, _: &Accounts, _: &[u32]) -> InstanceId {
        InstanceId(0)
    }

    fn begin(&mut self, _: InstanceId) {}

    fn end(&mut self, _: InstanceId) -> Observed {
        self.0.clone()
    }

    fn detach(&mut self, _: InstanceId) {}
}

/// Decides whether the next comparison begins with voiding on.
///
/// A comparison needs six void units to find out that the host is noisy. On a host that is always
/// noisy that would take a third of the time, so after several noisy comparisons the next ones
/// begin with voiding off, and now and then one tries again. Only observations of the host decide,
/// never a result.
#[derive(Debug, Default)]
struct VoidingBackoff {
    noisy_in_a_row: u32,
}

impl VoidingBackoff {
    /// The number of noisy comparisons in a row after which voiding stays off.
    const LIMIT: u32 = 3;
    /// One comparison in this many tries voiding again.
    const TRY_AGAIN: u32 = 10;

    fn voids(&self) -> bool {
        self.noisy_in_a_row < Self::LIMIT || self.noisy_in_a_row.is_multiple_of(Self::TRY_AGAIN)
    }

    fn learn(&mut self, noisy: bool) {
        self.noisy_in_a_row = if noisy { self.noisy_in_a_row + 1 } else { 0 };
    }
}

/// Returns what the pilot decided about slices for a workload: their length, microseconds.
///
/// # Errors
/// There are none; the reason.
pub fn slicing(records: &[Record], workload: &str) -> Result<u32, String> {
    let decided = records.iter().rev().find_map(|record| match record {
        Record::Slicing(slicing) if slicing.workload == workload => Some(slicing),
        _ => None,
    });
    match decided {
        Some(Slicing { length_us: Some(us), .. }) => Ok(*us),
        Some(Slicing { reason, .. }) => Err(reason.clone()),
        None => Err("the pilot ended before it could decide that".into()),
    }
}

/// Counts void units by cause.
fn count_voids(records: &[Record], conducted: &mut SelftestResults) {
    for record in records {
        if let Record::Void(void) = record {
            *conducted.voids.entry(void.cause.to_string()).or_default() += 1;
        }
    }
}

/// Why a comparison has no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoResult {
    #[error("there is no cell to read")]
    NoCell,
    #[error("{failed} of {tried} trials failed")]
    Failed { failed: u32, tried: u32 },
    #[error("{0} pairs give no interval")]
    NoInterval(u32),
    #[error("the control: {0}")]
    Control(Box<NoResult>),
}

/// Reads the result of a comparison, with that of its control.
fn read_run(comparison: &Comparison, plan: &Plan, analysis: &Analysis) -> Result<Measured, NoResult> {
    let cell_of = |is_it: &dyn Fn(&str) -> bool| {
        analysis.cells.iter().find(|cell| cell.primary && is_it(&cell.environment))
    };
    let control = plan.control.as_deref();
    let other = cell_of(&|name| name != plan.baseline && Some(name) != control);
    let control = control.map(|control| read_control(cell_of(&|name| name == control))).transpose();
    let control = control.map_err(|reason| NoResult::Control(Box::new(reason)));
    Ok(Measured { control: control?, ..read(comparison, other)? })
}

/// Reads the result of a control.
fn read_control(cell: Option<&Cell>) -> Result<Control, NoResult> {
    let cell = whole(cell)?;
    let found = cell.overhead.ok_or(NoResult::NoInterval(cell.n))?;
    Ok(Control { found, log_ratios: log_ratios(cell) })
}

/// Returns a cell if none of its trials failed.
fn whole(cell: Option<&Cell>) -> Result<&Cell, NoResult> {
    match cell.ok_or(NoResult::NoCell)? {
        Cell { failed: failed @ 1.., tried, .. } => Err(NoResult::Failed { failed: *failed, tried: *tried }),
        cell => Ok(cell),
    }
}

fn log_ratios(cell: &Cell) -> Vec<f64> {
    cell.log_ratios.iter().map(|(_, ratio)| *ratio).collect()
}

/// Reads the result in a cell.
pub(super) fn read(comparison: &Comparison, cell: Option<&Cell>) -> Result<Measured, NoResult> {
    let cell = whole(cell)?;
    match (cell.p_diff, cell.overhead, cell.smallest_detectable) {
        (Some(p), Some(found), Some(smallest_detectable)) => Ok(Measured {
            comparison: comparison.number,
            form: comparison.form,
            injected: comparison.effect,
            pairs: cell.n,
            p,
            found,
            smallest_detectable,
            log_ratios: log_ratios(cell),
            control: None,
        }),
        _ => Err(NoResult::NoInterval(cell.n)),
    }
}

/// Makes the failure of a selftest that measured nothing.
pub fn nothing_measured(conducted: &SelftestResults) -> Failure {
    let reason = conducted.failed.first().map(|(number, reason)| format!("comparison {number}: {reason}"));
    let unsliced = conducted.sliced.as_ref().and_then(|sliced| sliced.as_ref().err());
    let reason = reason.or(conducted.cut_short.map(str::to_owned));
    let reason = reason.or(unsliced.map(|reason| format!("nothing can be sliced here: {reason}")));
    Failure::new(ExitKind::NothingMeasured, "no comparison of the selftest gave a number").maybe_hint(reason)
}
