//! The sensors of this host.

use crate::cpu::{
    GroupClock, HostClock, Place, Spent, clock_tick_ns, own_ns, process_ns, scheduler_tick_ns, thread_ns,
};
use crate::files::Kept;
use crate::frequency::{Frequency, span};
use crate::pressure::{PressureFiles, growth};
use crate::rest::Rest;
use crate::stat::{Stat, Times};
use crate::tree::{Tree, TreeTime};
use crate::{Attached, Sensors};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use weigh_host::accounts::{Accounts, Process};
use weigh_host::cgroup::{CgroupView, Hierarchy};
use weigh_host::clock::monotonic_ns;
use weigh_host::settings::SettingsFiles;
use weigh_model::{Charge, CpuTime, HostSettings, Observed, Pressure};

/// CPU time that no task is charged for when an idle CPU takes one up and puts it down, nanoseconds, generously. It matters only
/// where the host's busy time is what is not idle.
const SWITCH_NS: u64 = 2_000;

/// The sensors of this host.
#[derive(Debug)]
pub struct Observer {
    root: PathBuf,
    settings: SettingsFiles,
    stat: Option<Kept>,
    clock: Option<HostClock>,
    pressure: Option<PressureFiles>,
    instances: BTreeMap<u64, Instance>,
    next: u64,
    rest: Rest,
    scratch: Vec<u8>,
}

/// An instance and what was read when its window began.
#[derive(Debug)]
struct Instance {
    used: Vec<u32>,
    groups: Vec<GroupClock>,
    tree: Tree,
    helpers: Vec<Tracked>,
    daemons: Vec<Tracked>,
    own: Place,
    settings: SettingsFiles,
    frequency: Frequency,
    begun: Option<Begun>,
}

/// A process outside of the guest.
#[derive(Debug)]
struct Tracked {
    name: String,
    pid: u32,
    place: Place,
}

#[derive(Debug)]
struct Begun {
    reading: Reading,
    pressure: Option<Pressure>,
    frequency_khz: Option<(u64, u64)>,
    sensors_ns: u64,
}

/// All counters of CPU time at one moment.
#[derive(Debug, Default)]
struct Reading {
    at_ns: u64,
    stat: Option<Stat>,
    running_ns: Option<u64>,
    groups: Vec<Option<Spent>>,
    tree: TreeTime,
    helpers: Vec<Option<u64>>,
    daemons: Vec<Option<u64>>,
    own_ns: u64,
}

impl Default for Observer {
    fn default() -> Self {
        Self::new()
    }
}

impl Observer {
    /// Opens what does not change from instance to instance.
    pub fn new() -> Self {
        Self::at(Path::new("/"), &Hierarchy::detect())
    }

    fn at(root: &Path, hierarchy: &Hierarchy) -> Self {
        Self {
            settings: SettingsFiles::open(root, &weigh_host::facts::allowed_cpus()),
            stat: Kept::open(root.join("proc/stat")),
            clock: HostClock::open(&CgroupView::top(hierarchy)),
            pressure: PressureFiles::open(root),
            instances: BTreeMap::new(),
            next: 0,
            rest: Rest::default(),
            scratch: Vec::new(),
            root: root.into(),
        }
    }

    /// Reads all counters of CPU time, those first that grow by themselves.
    fn read(&mut self, instance: &Instance) -> Reading {
        let (used, scratch) = (&instance.used, &mut self.scratch);
        let clocks = |all: &[Tracked]| all.iter().map(|tracked| process_ns(tracked.pid)).collect();
        Reading {
            at_ns: monotonic_ns(),
            stat: self.stat.as_ref().and_then(|file| Stat::read(file, used, scratch)),
            running_ns: self.clock.as_ref().and_then(|clock| clock.read(used, scratch)),
            own_ns: own_ns(),
            groups: instance.groups.iter().map(|group| group.read(used, scratch)).collect(),
            tree: instance.tree.read(),
            helpers: clocks(&instance.helpers),
            daemons: clocks(&instance.daemons),
        }
    }
}

impl Sensors for Observer {
    fn settings(&mut self) -> HostSettings {
        self.settings.read()
    }

    fn attach(&mut self, accounts: &Accounts, cpus: &[u32]) -> Attached {
        let number = self.next;
        self.next += 1;
        self.instances.insert(number, Instance::new(&self.root, accounts, cpus));
        Attached(number)
    }

    fn begin(&mut self, instance: Attached) {
        let Some(mut observed) = self.instances.remove(&instance.0) else { return };
        let started = thread_ns();
        let pressure = self.pressure.as_ref().and_then(|files| files.read(&mut self.scratch));
        let frequency_khz = observed.frequency.read(&mut self.scratch);
        let reading = self.read(&observed);
        if let Some(stat) = &reading.stat {
            self.rest.see(reading.at_ns, stat.all.softirq * clock_tick_ns());
        }
        observed.begun = Some(Begun { reading, pressure, frequency_khz, sensors_ns: thread_ns() - started });
        self.instances.insert(instance.0, observed);
    }

    fn end(&mut self, instance: Attached) -> Observed {
        let started = thread_ns();
        let Some(mut observed) = self.instances.remove(&instance.0) else { return Observed::default() };
        let seen = observed.begun.take().map(|begun| {
            let reading = self.read(&observed);
            let pressure = self.pressure.as_ref().and_then(|files| files.read(&mut self.scratch));
            if let Some(stat) = &reading.stat {
                self.rest.see(reading.at_ns, stat.all.softirq * clock_tick_ns());
            }
            let mut seen = observed.compare(&begun.reading, &reading, &self.rest);
            seen.pressure = begun.pressure.zip(pressure).map(|(earlier, later)| growth(earlier, later));
            seen.frequency_khz = span(begun.frequency_khz, observed.frequency.read(&mut self.scratch));
            seen.settings = observed.settings.read();
            seen.sensors_ns = begun.sensors_ns + (thread_ns() - started);
            seen
        });
        self.instances.insert(instance.0, observed);
        seen.unwrap_or_default()
    }

    fn detach(&mut self, instance: Attached) {
        self.instances.remove(&instance.0);
    }
}

impl Instance {
    fn new(root: &Path, accounts: &Accounts, cpus: &[u32]) -> Self {
        // No CPUs are all that there are.
        let used = if cpus.is_empty() { weigh_host::facts::allowed_cpus() } else { cpus.to_vec() };
        let (mut groups, mut processes) = (Vec::new(), accounts.processes.clone());
        for view in &accounts.groups {
            match GroupClock::open(view, &used) {
                Some(clock) => groups.push(clock),
                // Version 1 without its counter: the processes that are in it now, and those that they start.
                None => processes.extend(view.processes()),
            }
        }
        let tracked = |all: &[Process]| {
            let track = |process: &Process| Tracked {
                name: process.name.clone(),
                pid: process.pid,
                place: Place::of_process(Some(process.pid), &used),
            };
            all.iter().map(track).collect()
        };
        Self {
            groups,
            tree: Tree::new(&processes, &used),
            helpers: tracked(&accounts.helpers),
            daemons: tracked(&accounts.daemons),
            own: Place::of_process(None, &used),
            settings: SettingsFiles::open(root, &used),
            frequency: Frequency::open(root, &used),
            used,
            begun: None,
        }
    }

    /// What happened between two readings.
    fn compare(&self, earlier: &Reading, later: &Reading, rest: &Rest) -> Observed {
        let window_ns = later.at_ns - earlier.at_ns;
        let mut charge = Charge::default();
        let mut known = Spent::default();
        for (earlier, later) in earlier.groups.iter().zip(&later.groups) {
            if let (Some(earlier), Some(later)) = (earlier, later) {
                known.add(later.since(*earlier));
            }
        }
        known.add(later.tree.spent.since(earlier.tree.spent));
        charge.guest_ns = known.total;
        charge.helpers_ns = self::growths(&self.helpers, &earlier.helpers, &later.helpers, &mut known);
        charge.daemons_ns = self::growths(&self.daemons, &earlier.daemons, &later.daemons, &mut known);
        charge.weigh_ns = later.own_ns.saturating_sub(earlier.own_ns);
        known.add(Spent::of(charge.weigh_ns, self.own));

        let mut observed = Observed { window_ns, cpus: self.used.clone(), ..Observed::default() };
        let uncertain_ns = later.tree.uncertainty_ns.max(earlier.tree.uncertainty_ns);
        if let (Some(before), Some(after)) = (&earlier.stat, &later.stat) {
            let (used, all) = (after.used.since(&before.used), after.all.since(&before.all));
            observed.context_switches = after.context_switches.saturating_sub(before.context_switches);
            observed.steal =
                CpuTime { ns: used.steal * clock_tick_ns(), uncertainty_ns: ticks_ns(used.cpus) };
            let busy = match earlier.running_ns.zip(later.running_ns) {
                Some((before, after)) => CpuTime {
                    ns: after.saturating_sub(before),
                    // What runs at either end has run for up to a tick since it was counted.
                    uncertainty_ns: scheduler_tick_ns() * used.cpus,
                },
                None => not_idle(&used, window_ns, observed.context_switches),
            };
            observed.foreign = foreign(busy, known, uncertain_ns);
            reconcile(&mut charge, &all, window_ns, known.total, rest);
            charge.unattributed_uncertainty_ns += uncertain_ns;
        }
        observed.charge = charge;
        observed
    }
}

/// Growth of each process's clock by name, added to what is known too.
fn growths(
    processes: &[Tracked],
    earlier: &[Option<u64>],
    later: &[Option<u64>],
    known: &mut Spent,
) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for (process, (earlier, later)) in processes.iter().zip(earlier.iter().zip(later)) {
        // One that ended in between took with it what it used.
        let grown = earlier.zip(*later).map_or(0, |(earlier, later)| later.saturating_sub(earlier));
        *all.entry(process.name.clone()).or_default() += grown;
        known.add(Spent::of(grown, process.place));
    }
    all
}

/// How far off a growth in ticks may be: a tick per CPU and reading.
fn ticks_ns(cpus: u64) -> u64 {
    2 * clock_tick_ns() * cpus
}

/// Time that CPUs were neither idle nor taken by the hypervisor nor in interrupts. That those were noticed at ticks only, and what no
/// task is charged for between sleep and work, makes it uncertain.
fn not_idle(times: &Times, window_ns: u64, context_switches: u64) -> CpuTime {
    let tick = clock_tick_ns();
    let rest = (times.idle + times.steal + times.interrupts) * tick;
    CpuTime {
        ns: (window_ns * times.cpus).saturating_sub(rest),
        uncertainty_ns: ticks_ns(times.cpus) + times.interrupts * tick + context_switches * SWITCH_NS,
    }
}

/// What others ran: the time that CPUs were busy without what is known. What may have run elsewhere is taken off by half and makes
/// the rest uncertain by as much.
fn foreign(busy: CpuTime, known: Spent, uncertain_ns: u64) -> CpuTime {
    let half = known.unknown / 2;
    CpuTime {
        ns: busy.ns.saturating_sub(known.here + half),
        uncertainty_ns: busy.uncertainty_ns + half + uncertain_ns,
    }
}

/// Compares what is accounted for with the time that all CPUs of the host were not idle.
///
/// Softirqs beyond their rate at rest are charged as far as nobody has been charged for them: on kernels that do not time interrupts
/// (`CONFIG_IRQ_TIME_ACCOUNTING`), those that interrupt a task are in its time already.
fn reconcile(charge: &mut Charge, all: &Times, window_ns: u64, known_ns: u64, rest: &Rest) {
    let tick = clock_tick_ns();
    let busy = (window_ns * all.cpus).saturating_sub((all.idle + all.steal) * tick);
    let left = busy.saturating_sub(known_ns);
    charge.softirq_ns = rest.beyond(all.softirq * tick, window_ns).min(left);
    charge.unattributed_ns = busy as i64 - known_ns as i64 - charge.softirq_ns as i64;
    charge.unattributed_uncertainty_ns = ticks_ns(all.cpus);
}
