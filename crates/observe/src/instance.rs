//! The counters of a guest, and the comparison of two readings.

use crate::balance::{foreign, not_idle, reconcile, ticks_ns};
use crate::counters::{Counters, Counts, PAGE_FAULTS};
use crate::cpu::{Clocks, CpuUse, Placement, clock_tick_ns, process_ns, scheduler_tick_ns};
use crate::frequency::{Frequency, span};
use crate::kernel_threads::KernelThreads;
use crate::loader::{LoaderClock, LoaderReading};
use crate::perf;
use crate::pressure::growth;
use crate::softirq_baseline::SoftirqBaseline;
use crate::stat::Stat;
use crate::throttle::Throttles;
use crate::tree::TreeTime;
use std::collections::BTreeMap;
use std::path::Path;
use weigh_host::accounts::{Accounts, Process};
use weigh_host::settings::SettingsFiles;
use weigh_model::{Charge, CpuTime, HostSettings, Observed, Pressure};

/// How long settings are cached: in short trials reading them would cost more than everything else.
const SETTINGS_NS: u64 = 2_000_000_000;
/// Name of the kernel threads among the shared daemons.
const KERNEL: &str = "kernel-threads";

/// The counters of an instance.
#[derive(Debug)]
pub(crate) struct Instance {
    /// The CPUs that it may use.
    pub(crate) used: Vec<u32>,
    clocks: Clocks,
    helpers: Vec<Tracked>,
    daemons: Vec<Tracked>,
    kernel: KernelThreads,
    own_placement: Placement,
    throttles: Throttles,
    counters: Counters,
    events: Vec<perf::Counter>,
    settings: SettingsFiles,
    /// The last settings, and when they were read.
    settings_read: Option<(u64, HostSettings)>,
    frequency: Frequency,
}

/// A helper or daemon.
#[derive(Debug)]
struct Tracked {
    name: String,
    pid: u32,
    place: Placement,
}

/// All counters of CPU time at one moment.
#[derive(Debug)]
pub(crate) struct CpuReading {
    /// The moment on the host's monotonic clock.
    pub(crate) at_ns: u64,
    pub(crate) stat: Option<Stat>,
    /// Time of all tasks on the CPUs in use.
    pub(crate) running_ns: Option<u64>,
    /// Time of weighbridge itself.
    pub(crate) own_ns: u64,
    /// The clocks of the instance.
    pub(crate) clocks: ClockReadings,
    /// The load generator, if there is one.
    pub(crate) loader: Option<LoaderReading>,
}

impl CpuReading {
    /// Time of softirqs on all CPUs, nanoseconds.
    pub(crate) fn softirq_ns(&self) -> Option<u64> {
        self.stat.as_ref().map(|stat| stat.all.softirq * clock_tick_ns())
    }
}

/// The clocks of an instance at one moment.
#[derive(Debug)]
pub(crate) struct ClockReadings {
    groups: Vec<Option<CpuUse>>,
    tree: TreeTime,
    helpers: Vec<Option<u64>>,
    daemons: Vec<Option<u64>>,
    kernel: Vec<Option<u64>>,
}

/// All other counters at one moment.
#[derive(Debug)]
pub(crate) struct CounterReading {
    pressure: Option<Pressure>,
    frequency_khz: Option<(u64, u64)>,
    throttled: (u64, u64),
    counts: Counts,
    events: Vec<Option<u64>>,
}

impl Instance {
    pub(crate) fn new(root: &Path, accounts: &Accounts, cpus: &[u32]) -> Self {
        // An empty list means all CPUs.
        let used = if cpus.is_empty() { weigh_host::facts::allowed_cpus() } else { cpus.to_vec() };
        let tracked = |all: &[Process]| {
            let track = |process: &Process| Tracked {
                name: process.name.clone(),
                pid: process.pid,
                place: Placement::of_process(Some(process.pid), &used),
            };
            all.iter().map(track).collect()
        };
        Self {
            clocks: Clocks::open(std::slice::from_ref(accounts), &used),
            helpers: tracked(&accounts.helpers),
            daemons: tracked(&accounts.daemons),
            kernel: KernelThreads::find(&used),
            own_placement: Placement::of_process(None, &used),
            throttles: Throttles::open(&accounts.groups),
            counters: Counters::open(root, accounts),
            events: perf::open(root, accounts),
            settings: SettingsFiles::open(root, &used),
            settings_read: None,
            frequency: Frequency::open(root, &used),
            used,
        }
    }

    /// Reads the clocks of this instance.
    pub(crate) fn read(&self, scratch: &mut Vec<u8>) -> ClockReadings {
        let clocks = |all: &[Tracked]| all.iter().map(|tracked| process_ns(tracked.pid)).collect();
        ClockReadings {
            groups: self.clocks.groups.iter().map(|group| group.read(&self.used, scratch)).collect(),
            tree: self.clocks.tree.read(),
            helpers: clocks(&self.helpers),
            daemons: clocks(&self.daemons),
            kernel: self.kernel.read(),
        }
    }

    /// Reads all other counters.
    pub(crate) fn read_counters(
        &mut self,
        pressure: Option<Pressure>,
        scratch: &mut Vec<u8>,
    ) -> CounterReading {
        CounterReading {
            pressure,
            frequency_khz: self.frequency.read(scratch),
            throttled: self.throttles.read(scratch),
            counts: self.counters.read(scratch),
            events: self.events.iter().map(perf::Counter::read).collect(),
        }
    }

    /// The settings, at most [`SETTINGS_NS`] old.
    pub(crate) fn settings(&mut self, now_ns: u64) -> HostSettings {
        match &self.settings_read {
            Some((at_ns, settings)) if now_ns.saturating_sub(*at_ns) < SETTINGS_NS => settings.clone(),
            _ => {
                let settings = self.settings.read();
                self.settings_read = Some((now_ns, settings.clone()));
                settings
            }
        }
    }

    /// Adds the growth of the other counters to an observation.
    pub(crate) fn add_counters(&self, earlier: &CounterReading, later: &CounterReading, seen: &mut Observed) {
        seen.pressure = earlier.pressure.zip(later.pressure).map(|(earlier, later)| growth(earlier, later));
        seen.frequency_khz = span(earlier.frequency_khz, later.frequency_khz);
        seen.throttled_periods = later.throttled.0.saturating_sub(earlier.throttled.0);
        seen.throttled_ns = later.throttled.1.saturating_sub(earlier.throttled.1);
        for (name, before) in &earlier.counts {
            if let Some(after) = later.counts.get(name) {
                *seen.charge.counters.entry((*name).into()).or_default() += after.saturating_sub(*before);
            }
        }
        if !later.counts.contains_key(PAGE_FAULTS) {
            // The page faults of a part of the guest alone would be misleading.
            seen.charge.counters.remove(PAGE_FAULTS);
        }
        for (counter, (earlier, later)) in self.events.iter().zip(earlier.events.iter().zip(&later.events)) {
            let Some(grown) = earlier.zip(*later).map(|(earlier, later)| later.saturating_sub(earlier))
            else {
                continue;
            };
            counter.event.record(grown, &mut seen.charge);
        }
    }

    /// Compares two readings. `neighbours` is the use of neighbours between them.
    pub(crate) fn compare(
        &self,
        earlier: &CpuReading,
        later: &CpuReading,
        loader: Option<&LoaderClock>,
        neighbours: CpuUse,
        baseline: &SoftirqBaseline,
    ) -> Observed {
        let window_ns = later.at_ns - earlier.at_ns;
        let mut known = neighbours;
        let mut charge = self.charge(earlier, later, &mut known);
        let mut observed = Observed { window_ns, cpus: self.used.clone(), ..Observed::default() };
        if let (Some(clock), Some(earlier), Some(later)) = (loader, &earlier.loader, &later.loader) {
            let (spent, used) = clock.compare(earlier, later);
            known.add(spent);
            observed.loader = Some(used);
        }
        let uncertain_ns = later.clocks.tree.uncertainty_ns.max(earlier.clocks.tree.uncertainty_ns);
        if let (Some(before), Some(after)) = (&earlier.stat, &later.stat) {
            let (used, all) = (after.used.since(&before.used), after.all.since(&before.all));
            observed.context_switches = after.context_switches.saturating_sub(before.context_switches);
            observed.steal =
                CpuTime { ns: used.steal * clock_tick_ns(), uncertainty_ns: ticks_ns(used.cpus) };
            let busy = match earlier.running_ns.zip(later.running_ns) {
                Some((before, after)) => CpuTime {
                    ns: after.saturating_sub(before),
                    // A running task is counted at ticks.
                    uncertainty_ns: scheduler_tick_ns() * used.cpus,
                },
                None => not_idle(&used, window_ns, observed.context_switches),
            };
            observed.foreign = foreign(busy, known, uncertain_ns);
            reconcile(&mut charge, &all, window_ns, known.total, baseline);
            charge.unattributed_uncertainty_ns += uncertain_ns;
        }
        let faults = later.clocks.tree.page_faults.saturating_sub(earlier.clocks.tree.page_faults);
        charge.counters.insert(PAGE_FAULTS.into(), faults);
        observed.charge = charge;
        observed
    }

    /// The charges between two readings. All time that is accounted for is added to `known`.
    fn charge(&self, earlier: &CpuReading, later: &CpuReading, known: &mut CpuUse) -> Charge {
        let mut charge = Charge::default();
        for (earlier, later) in earlier.clocks.groups.iter().zip(&later.clocks.groups) {
            if let (Some(earlier), Some(later)) = (earlier, later) {
                let spent = later.since(*earlier);
                charge.guest_ns += spent.total;
                known.add(spent);
            }
        }
        let spent = later.clocks.tree.spent.since(earlier.clocks.tree.spent);
        charge.guest_ns += spent.total;
        known.add(spent);
        charge.helpers_ns = growths(&self.helpers, &earlier.clocks.helpers, &later.clocks.helpers, known);
        charge.daemons_ns = growths(&self.daemons, &earlier.clocks.daemons, &later.clocks.daemons, known);
        let kernel = self.kernel.spent(&earlier.clocks.kernel, &later.clocks.kernel);
        if !earlier.clocks.kernel.is_empty() {
            charge.daemons_ns.insert(KERNEL.into(), kernel.total);
        }
        known.add(kernel);
        charge.weigh_ns = later.own_ns.saturating_sub(earlier.own_ns);
        known.add(CpuUse::of(charge.weigh_ns, self.own_placement));
        charge
    }
}

/// Growth of the clocks of processes by name; it is also added to the known time.
fn growths(
    processes: &[Tracked],
    earlier: &[Option<u64>],
    later: &[Option<u64>],
    known: &mut CpuUse,
) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for (process, (earlier, later)) in processes.iter().zip(earlier.iter().zip(later)) {
        // The clock of a process that ended is gone.
        let grown = earlier.zip(*later).map_or(0, |(earlier, later)| later.saturating_sub(earlier));
        *all.entry(process.name.clone()).or_default() += grown;
        known.add(CpuUse::of(grown, process.place));
    }
    all
}
