//! The memory footprint of idle guests, read when it has settled.
//!
//! Memory is read repeatedly; the result counts when all readings of the last seconds are close
//! together. If the kernel merges equal pages, it must have scanned everything since the last guest
//! came up, and once more without finding much; before that it is not known how much more it would
//! save.

use super::duplicates::scan;
use super::guest_pool::{Starts, WhileUp, start_all};
use super::{StartOutcome, since};
use crate::pool::{EnvironmentPool, Recipe};
use crate::trial::Failure;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weigh_host::accounts::{Accounts, Process};
use weigh_host::clock::monotonic_ns;
use weigh_model::duplicates::DUPLICATES;
use weigh_model::{FailureKind, format_bytes, weights};
use weigh_observe::memory::{
    GuestMemory, Merging, available_bytes, daemon_memory, guest_memory, merging, total_bytes,
};

/// Time over which all readings have to be close together.
const STILL_NS: u64 = 5_000_000_000;
/// Their allowed spread: the largest over the smallest, less one.
const STILL: f64 = 0.01;
/// Time between two readings.
const PERIOD: Duration = Duration::from_millis(500);
/// Time for memory to settle.
const DEADLINE_NS: u64 = 120_000_000_000;
/// The same if equal pages are merged: at the kernel's own pace that takes minutes.
const MERGING_DEADLINE_NS: u64 = 900_000_000_000;
/// How often the kernel must have scanned everything after the last guest came up. A page is merged
/// when it is found unchanged the second time (Documentation/mm/ksm.rst), so two scans are the
/// fewest after which everything can be merged.
const SCANS: u64 = 3;
/// The host keeps this share of its memory, and at least [`FLOOR_BYTES`], in any case.
const FLOOR: f64 = 0.05;
const FLOOR_BYTES: u64 = 256 << 20;

/// What to measure.
#[derive(Debug, Clone, Copy)]
pub(super) struct FootprintPlan {
    pub(super) environment: usize,
    /// Number of guests at once.
    pub(super) guests: u32,
    /// Whether their pages are then scanned for duplicates.
    pub(super) duplicates: bool,
    /// Deadline for each guest's start.
    pub(super) deadline: Duration,
}

/// Starts the guests at once, waits until their memory has settled, reads it, and stops them. If a
/// smaller number of guests has failed in this run, and no larger one ever succeeded, this number
/// is not tried.
pub(super) fn measure_footprint(
    pool: &mut EnvironmentPool<'_>,
    recipe: Recipe,
    plan: FootprintPlan,
    interrupt: &AtomicBool,
) -> Result<StartOutcome, Failure> {
    let FootprintPlan { environment, guests, .. } = plan;
    let (before, total) = (available_bytes(), total_bytes().unwrap_or(0));
    let floor = floor_bytes(total);
    let elsewhere = || recipe.can.elsewhere.then(|| ELSEWHERE.to_string());
    let outgrown = || pool.entries[environment].most.beyond(guests);
    let full = || before.and_then(|before| too_many(&recipe, guests, before, floor));
    if let Some(reason) = elsewhere().or_else(outgrown).or_else(full) {
        let mut outcome = StartOutcome { guests, ..StartOutcome::default() };
        mark_all_absent(&mut outcome, &reason);
        return Ok(outcome);
    }
    let outcome = stand(pool, recipe, plan, (before, floor), interrupt);
    // An interrupted trial does not show how many guests are possible.
    if !interrupt.load(Ordering::Relaxed) {
        let most = &mut pool.entries[environment].most;
        match &outcome {
            Ok(_) => most.stood(guests),
            Err(failure) => most.failed(guests, &failure.reason),
        }
    }
    outcome
}

fn stand(
    pool: &mut EnvironmentPool<'_>,
    recipe: Recipe,
    plan: FootprintPlan,
    (before, floor): (Option<u64>, u64),
    interrupt: &AtomicBool,
) -> Result<StartOutcome, Failure> {
    let FootprintPlan { environment, guests, duplicates, deadline } = plan;
    let root = Arc::clone(&recipe.request.root);
    let while_up: &mut WhileUp<'_> = &mut |accounts, outcome| {
        if accounts.iter().all(|guest| guest.groups.is_empty() && guest.processes.is_empty()) {
            mark_all_absent(outcome, NO_PROCESSES);
            return Ok(());
        }
        let up_ns = monotonic_ns();
        let merged_before = merging().filter(|merging| merging.runs);
        let memory = stand_still(accounts, merged_before, floor, interrupt)?;
        let settled_ns = monotonic_ns();
        let found = Found {
            memory,
            daemons: daemon_bytes(accounts),
            drop: before.zip(available_bytes()).map(|(before, now)| before.saturating_sub(now)),
            merged: merged_before.zip(merging()),
            settling_ns: since(up_ns, settled_ns),
        };
        (outcome.values, outcome.absent) = found.told(guests);
        if duplicates { scan(&root, accounts, outcome, interrupt) } else { Ok(()) }
    };
    let starts = Starts { guests, apart_ns: None, deadline };
    start_all(pool, environment, recipe, starts, while_up)
}

/// The readings when all memory had settled.
struct Found {
    memory: GuestMemory,
    daemons: Option<u64>,
    drop: Option<u64>,
    /// The kernel's merging when the last guest was up, and at the reading.
    merged: Option<(Merging, Merging)>,
    settling_ns: u64,
}

const ELSEWHERE: &str = "the guests are on another machine, whose memory this host does not see";
const NO_PROCESSES: &str = "the guests have no processes on this host";
const NO_GROUP: &str = "no control group of the guest reports it";
const NO_HELPERS: &str = "the guest has no helpers outside of its control group";
const NO_DROP: &str = "the host has at least as much memory available as before";
const NO_MERGING: &str = "the kernel does not merge equal pages (a machine's key `ksm=on` switches that on)";
const NO_DAEMONS: &str = "the platform has no daemons that guests share";

impl Found {
    /// Every metric with its value, or with the reason why it has none: a ratio to 0 is undefined.
    fn told(&self, guests: u32) -> (BTreeMap<String, f64>, BTreeMap<String, String>) {
        let each = |bytes: u64| bytes as f64 / f64::from(guests.max(1));
        let memory = &self.memory;
        let saved = self.merged.map(|(_, now)| now.saved_bytes as f64);
        let worked = self.merged.map(|(before, now)| since(before.cpu_ns, now.cpu_ns) as f64 * 1e-9);
        let (mut values, mut absent) = (BTreeMap::new(), BTreeMap::new());
        for (name, value, why_none) in [
            (weights::FOOTPRINT, Some(each(memory.charged_bytes())), NO_PROCESSES),
            (weights::GUEST, Some(each(memory.guest_bytes)), NO_PROCESSES),
            (weights::HELPERS, Some(each(memory.helpers_bytes)), NO_HELPERS),
            (weights::KERNEL, memory.kernel_bytes.map(each), NO_GROUP),
            (weights::PAGE_TABLES, Some(each(memory.page_tables_bytes)), NO_GROUP),
            (weights::CACHE, memory.cache_bytes.map(each), "no page cache is charged to the guest"),
            (weights::AVAILABLE, self.drop.map(each), NO_DROP),
            (weights::DAEMONS, self.daemons.map(|bytes| bytes as f64), NO_DAEMONS),
            (weights::MERGED, saved, if saved.is_some() { "nothing was merged" } else { NO_MERGING }),
            (weights::MERGING_CPU, worked, NO_MERGING),
            (weights::SETTLING, Some(self.settling_ns as f64 * 1e-9), "it settled at once"),
        ] {
            match value.filter(|value| *value > 0.0) {
                Some(value) => drop(values.insert(name.to_string(), value)),
                None => drop(absent.insert(name.to_string(), why_none.to_string())),
            }
        }
        (values, absent)
    }
}

/// Marks every metric as absent for this reason.
fn mark_all_absent(outcome: &mut StartOutcome, reason: &str) {
    for metric in [
        weights::FOOTPRINT,
        weights::GUEST,
        weights::HELPERS,
        weights::KERNEL,
        weights::PAGE_TABLES,
        weights::CACHE,
        weights::AVAILABLE,
        weights::DAEMONS,
        weights::MERGED,
        weights::MERGING_CPU,
        weights::SETTLING,
        DUPLICATES,
    ] {
        outcome.mark_absent(metric, reason);
    }
}

/// The most guests that were up at once in an environment of this run, and how many failed.
#[derive(Debug, Default)]
pub(crate) struct MostGuests {
    stood: u32,
    failed: Option<(u32, String)>,
}

impl MostGuests {
    fn stood(&mut self, guests: u32) {
        self.stood = self.stood.max(guests);
    }

    fn failed(&mut self, guests: u32, reason: &str) {
        if self.failed.as_ref().is_none_or(|(least, _)| guests < *least) {
            self.failed = Some((guests, reason.into()));
        }
    }

    /// Why this many guests are not tried. A failure of fewer guests than were ever up does not
    /// count.
    fn beyond(&self, guests: u32) -> Option<String> {
        let (failed, reason) = self.failed.as_ref()?;
        (self.stood < *failed && *failed < guests)
            .then(|| format!("not tried, because {failed} guests were already too many: {reason}"))
    }
}

/// Memory of the daemons of all guests, each once; none if there are no daemons.
fn daemon_bytes(accounts: &[Accounts]) -> Option<u64> {
    let daemons: Vec<Process> = accounts.iter().flat_map(|guest| guest.daemons.iter().cloned()).collect();
    (!daemons.is_empty()).then(|| daemon_memory(&daemons).values().sum())
}

pub(crate) fn floor_bytes(total: u64) -> u64 {
    ((total as f64 * FLOOR) as u64).max(FLOOR_BYTES)
}

/// Why guests with memory of their own are not even started: a machine may fill what it is given.
fn too_many(recipe: &Recipe, guests: u32, available: u64, floor: u64) -> Option<String> {
    let each = recipe.request.memory_bytes.filter(|_| recipe.can.sized_memory)?;
    let needed = u64::from(guests).saturating_mul(each);
    let could_fill = || could_fill(&format!("{guests} guests"), each, needed, available, floor);
    (needed.saturating_add(floor) > available).then(could_fill)
}

/// Why there is no room for `guests`, which have `each` bytes and `all` bytes together.
pub(crate) fn could_fill(guests: &str, each: u64, all: u64, available: u64, floor: u64) -> String {
    format!(
        "{guests} of {} could fill {}, the host has {} available and keeps {}",
        format_bytes(each),
        format_bytes(all),
        shown(available),
        shown(floor)
    )
}

pub(crate) fn shown(bytes: u64) -> String {
    format_bytes(bytes >> 20 << 20)
}

/// Waits until the memory of the guests has settled, and returns it.
fn stand_still(
    accounts: &[Accounts],
    merging_before: Option<Merging>,
    floor: u64,
    interrupt: &AtomicBool,
) -> Result<GuestMemory, Failure> {
    let begun_ns = monotonic_ns();
    let mut still = SettleDetector::default();
    let mut scans = merging_before.map(Scans::new);
    let deadline_ns = if scans.is_some() { MERGING_DEADLINE_NS } else { DEADLINE_NS };
    loop {
        let memory = guest_memory(accounts);
        let now_ns = monotonic_ns();
        let is_still = still.add(now_ns, memory.charged_bytes());
        let is_merged = scans.as_mut().is_none_or(|scans| merging().is_none_or(|now| scans.add(now)));
        if is_still && is_merged {
            return Ok(memory);
        }
        if let Some(available) = available_bytes().filter(|available| *available < floor) {
            let reason = format!(
                "the host has only {} of memory available with {} guests up, and keeps {}; all were ended",
                shown(available),
                accounts.len(),
                shown(floor)
            );
            return Err(Failure::new(FailureKind::Check, reason));
        }
        if interrupt.load(Ordering::Relaxed) {
            return Err(Failure::new(FailureKind::Check, "interrupted before the memory settled"));
        }
        if since(begun_ns, now_ns) > deadline_ns {
            let seconds = deadline_ns / 1_000_000_000;
            let reason = format!("the memory of the guests did not settle within {seconds} s: {still}");
            return Err(Failure::new(FailureKind::Deadline, reason));
        }
        std::thread::sleep(PERIOD);
    }
}

/// The readings of the last seconds.
#[derive(Debug, Default)]
struct SettleDetector {
    readings: VecDeque<(u64, u64)>,
}

impl SettleDetector {
    /// Adds a reading, and returns whether all of the last [`STILL_NS`] are close together.
    fn add(&mut self, at_ns: u64, bytes: u64) -> bool {
        self.readings.push_back((at_ns, bytes));
        // The latest reading of at least this age stays, because it covers the start of the period.
        while self.readings.get(1).is_some_and(|(second, _)| since(*second, at_ns) >= STILL_NS) {
            self.readings.pop_front();
        }
        let whole = self.readings.front().is_some_and(|(first, _)| since(*first, at_ns) >= STILL_NS);
        let (least, most) = self.range();
        whole && (most - least) as f64 <= STILL * least as f64
    }

    fn range(&self) -> (u64, u64) {
        let all = || self.readings.iter().map(|(_, bytes)| *bytes);
        (all().min().unwrap_or(0), all().max().unwrap_or(0))
    }
}

impl std::fmt::Display for SettleDetector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (least, most) = self.range();
        write!(
            f,
            "{} to {} in the last {} s",
            format_bytes(least),
            format_bytes(most),
            STILL_NS / 1_000_000_000
        )
    }
}

/// The kernel's scans of all memory that may be merged.
#[derive(Debug)]
struct Scans {
    /// Number of scans when the last guest was up.
    first: u64,
    /// The last scan that was seen to end, and the bytes saved then.
    last: (u64, u64),
    /// Whether the scan before it saved nearly the same.
    is_steady: bool,
}

impl Scans {
    fn new(begun: Merging) -> Self {
        let last = (begun.full_scans, begun.saved_bytes);
        Self { first: begun.full_scans, last, is_steady: false }
    }

    /// Adds a reading, and returns whether there were enough scans and the last one saved little.
    fn add(&mut self, now: Merging) -> bool {
        if now.full_scans > self.last.0 {
            let (before, after) = (self.last.1 as f64, now.saved_bytes as f64);
            self.is_steady = (after - before).abs() <= STILL * before.max(after);
            self.last = (now.full_scans, now.saved_bytes);
        }
        self.is_steady && now.full_scans >= self.first + SCANS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn memory_stands_still_after_five_quiet_seconds() {
        let mut still = SettleDetector::default();
        // It grows for three seconds, then stays.
        let settled: Vec<u64> = (0..20)
            .filter(|half| still.add(half * SECOND / 2, 1_000_000 + 50_000 * (*half).min(6)))
            .collect();
        assert_eq!(settled.first(), Some(&16), "3 s of growth and 5 s of rest");
        assert!(still.add(20 * SECOND, 1_300_000) && !still.add(21 * SECOND, 1_320_000), "1.5 % more");
    }

    #[test]
    fn one_reading_is_no_rest() {
        let mut still = SettleDetector::default();
        assert!(!still.add(0, 5) && !still.add(4 * SECOND, 5) && still.add(5 * SECOND, 5));
        // A late reading still covers the period.
        let mut late = SettleDetector::default();
        assert!(!late.add(0, 5) && late.add(60 * SECOND, 5));
        assert!(late.to_string().contains("5B"), "{late}");
    }

    #[test]
    fn merging_is_done_when_a_round_brings_nothing_more() {
        let at = |full_scans, saved_bytes| Merging { runs: true, saved_bytes, full_scans, cpu_ns: 0 };
        let mut scans = Scans::new(at(10, 0));
        assert!(!scans.add(at(10, 900)), "within the first round");
        assert!(!scans.add(at(11, 1000)) && !scans.add(at(12, 2000)));
        assert!(!scans.add(at(13, 4000)), "the third round doubled it");
        assert!(scans.add(at(14, 4010)) && scans.add(at(14, 4010)));
        let mut nothing = Scans::new(at(0, 0));
        assert!(!nothing.add(at(2, 0)) && nothing.add(at(3, 0)), "nothing to merge is merged soon");
    }

    #[test]
    fn more_guests_are_not_tried_after_fewer_have_failed() {
        let mut most = MostGuests::default();
        assert_eq!(most.beyond(1000), None);
        most.stood(8);
        most.failed(32, "no memory");
        most.failed(16, "no address");
        assert_eq!((most.beyond(8), most.beyond(16)), (None, None), "the number itself is tried again");
        assert!(most.beyond(32).unwrap().contains("16 guests were already too many: no address"));
        most.stood(16);
        assert_eq!(most.beyond(32), None, "it was an accident");
    }

    #[test]
    fn the_host_keeps_its_share() {
        assert_eq!(floor_bytes(1 << 30), FLOOR_BYTES);
        assert_eq!(floor_bytes(64 << 30), ((64u64 << 30) as f64 * FLOOR) as u64);
    }
}
