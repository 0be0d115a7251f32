//! The sensors of this host.

use crate::calls::CallCounter;
use crate::cpu::{CpuUse, HostClock, own_ns};
use crate::files::PolledFile;
use crate::instance::{CounterReading, CpuReading, Instance};
use crate::kernel_log::KernelLog;
use crate::loader::LoaderClock;
use crate::neighbours::{NeighbourClocks, NeighbourReading};
use crate::pressure::PressureFiles;
use crate::softirq_baseline::SoftirqBaseline;
use crate::stat::Stat;
use crate::{CallsError, CountCalls, InstanceId, Sensors};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weigh_host::accounts::Accounts;
use weigh_host::cgroup::{CgroupView, Hierarchy};
use weigh_host::clock::{monotonic_ns, thread_cpu_ns};
use weigh_host::energy::{EnergyMeter, EnergyReading, NoEnergy};
use weigh_host::settings::SettingsFiles;
use weigh_model::{HOST_ENERGY, HOST_ENERGY_ABOVE_IDLE, HostSettings, Observed};

/// The sensors of this host.
///
/// Files of the host are opened once, those of a guest when it is attached. A window costs one
/// `pread(2)` per file at its begin and end; `sensors_ns` of the observation is that cost. Nothing
/// runs in between.
#[derive(Debug)]
pub struct Observer {
    root: PathBuf,
    settings: SettingsFiles,
    stat: Option<PolledFile>,
    clock: Option<HostClock>,
    pressure: Option<PressureFiles>,
    kernel_log: Option<KernelLog>,
    instances: BTreeMap<u64, (Instance, Option<OpenWindow>)>,
    next: u64,
    baseline: SoftirqBaseline,
    /// The load generator and its CPUs.
    loader: Option<(Accounts, Vec<u32>)>,
    neighbours: Option<Neighbours>,
    energy: Option<Energy>,
    scratch: Vec<u8>,
    /// The host's monotonic clock.
    now_ns: fn() -> u64,
}

/// The neighbours of the observed guest.
#[derive(Debug)]
struct Neighbours {
    clocks: NeighbourClocks,
    used_ns: u64,
    windows_ns: u64,
}

/// The energy of the host.
#[derive(Debug)]
struct Energy {
    meter: EnergyMeter,
    /// The power of the idle host, watts.
    idle_w: f64,
}

impl Energy {
    /// Measures the power of the host for [`IDLE`].
    fn open(root: &Path) -> Result<Self, NoEnergy> {
        let meter = EnergyMeter::open_at(root)?;
        let (began, before) = (Instant::now(), meter.read());
        std::thread::sleep(IDLE);
        let passed = began.elapsed();
        let used_uj =
            before.zip(meter.read()).and_then(|(before, after)| meter.between(&before, &after, passed));
        let used_uj = used_uj.ok_or(NoEnergy::NotReadable)?;
        Ok(Self { meter, idle_w: used_uj as f64 / 1e6 / passed.as_secs_f64() })
    }

    /// Adds the energy of a window to an observation, and what of it an idle host would not have
    /// taken.
    fn add(&self, earlier: &EnergyReading, seen: &mut Observed) {
        let window = Duration::from_nanos(seen.window_ns);
        let later = self.meter.read();
        let Some(used_uj) = later.and_then(|later| self.meter.between(earlier, &later, window)) else {
            return;
        };
        let idle_uj = (self.idle_w * window.as_secs_f64() * 1e6).round() as u64;
        let counters = &mut seen.charge.counters;
        counters.insert(HOST_ENERGY.into(), used_uj);
        counters.insert(HOST_ENERGY_ABOVE_IDLE.into(), used_uj.saturating_sub(idle_uj));
    }
}

/// How long the idle host is observed.
const IDLE: Duration = Duration::from_secs(1);

/// The readings at the begin of a window.
#[derive(Debug)]
struct OpenWindow {
    energy: Option<EnergyReading>,
    reading: CpuReading,
    counters: CounterReading,
    loader: Option<LoaderClock>,
    neighbours: Option<NeighbourReading>,
    sensors_ns: u64,
}

impl Default for Observer {
    fn default() -> Self {
        Self::new()
    }
}

impl Observer {
    /// Opens the files of the host.
    pub fn new() -> Self {
        Self::at(Path::new("/"), &Hierarchy::detect())
    }

    /// Opens the files of a host whose file system is at `root`.
    pub(crate) fn at(root: &Path, hierarchy: &Hierarchy) -> Self {
        Self {
            settings: SettingsFiles::open(root, &weigh_host::facts::allowed_cpus()),
            stat: PolledFile::open(root.join("proc/stat")),
            clock: HostClock::open(&CgroupView::top(hierarchy)),
            pressure: PressureFiles::open(root),
            kernel_log: KernelLog::open(root),
            instances: BTreeMap::new(),
            next: 0,
            baseline: SoftirqBaseline::default(),
            loader: None,
            neighbours: None,
            energy: None,
            scratch: Vec::new(),
            now_ns: monotonic_ns,
            root: root.into(),
        }
    }

    /// Also counts the energy that the host takes in every window, and measures for a second what
    /// it takes while it is idle: before the first guest is launched.
    ///
    /// # Errors
    /// The host has no counters of energy, or they may not be read.
    pub fn measure_energy(&mut self) -> Result<(), NoEnergy> {
        self.energy = Some(Energy::open(&self.root)?);
        Ok(())
    }

    /// Reads all counters of CPU time, first those that grow while nothing runs.
    fn read(&mut self, instance: &Instance, loader: Option<&LoaderClock>) -> CpuReading {
        let (used, scratch) = (&instance.used, &mut self.scratch);
        let at_ns = (self.now_ns)();
        CpuReading {
            at_ns,
            stat: self.stat.as_ref().and_then(|file| Stat::read(file, used, scratch)),
            running_ns: self.clock.as_ref().and_then(|clock| clock.read(used, scratch)),
            own_ns: own_ns(),
            clocks: instance.read(scratch),
            loader: loader.map(|clock| clock.read(at_ns, used, self.stat.as_ref(), scratch)),
        }
    }

    fn read_neighbours(&mut self, used: &[u32]) -> Option<NeighbourReading> {
        let neighbours = self.neighbours.as_ref()?;
        Some(neighbours.clocks.read(used, &mut self.scratch))
    }

    /// The use of neighbours between two readings, also added to their totals.
    fn neighbours_spent(
        &mut self,
        earlier: Option<NeighbourReading>,
        later: Option<NeighbourReading>,
        window_ns: u64,
    ) -> CpuUse {
        let (Some(neighbours), Some((earlier, later))) = (&mut self.neighbours, earlier.zip(later)) else {
            return CpuUse::default();
        };
        let (guests_ns, all) = later.since(earlier);
        neighbours.used_ns += guests_ns;
        neighbours.windows_ns += window_ns;
        all
    }

    fn read_counters(&mut self, instance: &mut Instance) -> CounterReading {
        let pressure = self.pressure.as_ref().and_then(|files| files.read(&mut self.scratch));
        instance.read_counters(pressure, &mut self.scratch)
    }
}

impl Sensors for Observer {
    fn settings(&mut self) -> HostSettings {
        self.settings.read()
    }

    fn attach(&mut self, accounts: &Accounts, cpus: &[u32]) -> InstanceId {
        let number = self.next;
        self.next += 1;
        self.instances.insert(number, (Instance::new(&self.root, accounts, cpus), None));
        InstanceId(number)
    }

    fn set_loader(&mut self, loader: Option<(&Accounts, &[u32])>) {
        self.loader = loader.map(|(accounts, cpus)| (accounts.clone(), cpus.to_vec()));
    }

    fn set_neighbours(&mut self, guests: &[Accounts], clients: &[Accounts], cpus: &[u32]) {
        let none = guests.is_empty() && clients.is_empty();
        let of = || NeighbourClocks::open(guests, clients, cpus);
        self.neighbours = (!none).then(|| Neighbours { clocks: of(), used_ns: 0, windows_ns: 0 });
    }

    fn neighbours_used(&self) -> Option<(u64, u64)> {
        self.neighbours.as_ref().map(|neighbours| (neighbours.used_ns, neighbours.windows_ns))
    }

    fn begin(&mut self, instance: InstanceId) {
        let started = thread_cpu_ns();
        let Some((mut observed, _)) = self.instances.remove(&instance.0) else { return };
        if let Some(log) = &mut self.kernel_log {
            log.skip();
        }
        // CPU time is read last here and first at the end, so that the other readings are outside
        // of the window.
        let counters = self.read_counters(&mut observed);
        let loader = self.loader.as_ref();
        let loader = loader.map(|(accounts, cpus)| LoaderClock::open(accounts, cpus, &observed.used));
        let neighbours = self.read_neighbours(&observed.used);
        let energy = self.energy.as_ref().and_then(|energy| energy.meter.read());
        let reading = self.read(&observed, loader.as_ref());
        if let Some(softirq_ns) = reading.softirq_ns() {
            self.baseline.window_began(reading.at_ns, softirq_ns);
        }
        let sensors_ns = thread_cpu_ns() - started;
        let begun = OpenWindow { energy, reading, counters, loader, neighbours, sensors_ns };
        self.instances.insert(instance.0, (observed, Some(begun)));
    }

    fn end(&mut self, instance: InstanceId) -> Observed {
        let started = thread_cpu_ns();
        let Some((mut observed, begun)) = self.instances.remove(&instance.0) else {
            return Observed::default();
        };
        let seen = begun.map(|begun| {
            let loader = begun.loader.as_ref();
            let reading = self.read(&observed, loader);
            if let Some(softirq_ns) = reading.softirq_ns() {
                self.baseline.window_ended(reading.at_ns, softirq_ns);
            }
            let neighbours = self.read_neighbours(&observed.used);
            let window_ns = reading.at_ns - begun.reading.at_ns;
            let neighbours = self.neighbours_spent(begun.neighbours, neighbours, window_ns);
            let counters = self.read_counters(&mut observed);
            let mut seen = observed.compare(&begun.reading, &reading, loader, neighbours, &self.baseline);
            observed.add_counters(&begun.counters, &counters, &mut seen);
            if let Some((energy, earlier)) = self.energy.as_ref().zip(begun.energy) {
                energy.add(&earlier, &mut seen);
            }
            seen.settings = observed.settings(reading.at_ns);
            seen.kernel_log = self.kernel_log.as_mut().map(KernelLog::read).unwrap_or_default();
            seen.sensors_ns = begun.sensors_ns + (thread_cpu_ns() - started);
            seen
        });
        self.instances.insert(instance.0, (observed, None));
        seen.unwrap_or_default()
    }

    fn count_calls(&mut self, accounts: &Accounts) -> Result<Box<dyn CountCalls>, CallsError> {
        let counter = CallCounter::open(&self.root, accounts)?;
        Ok(Box::new(counter))
    }

    fn detach(&mut self, instance: InstanceId) {
        self.instances.remove(&instance.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::v2;
    use std::cell::Cell;
    use weigh_host::cgroup::Layout;
    use weigh_model::CpuTime;

    thread_local! {
        static NOW_NS: Cell<u64> = const { Cell::new(1) };
    }

    fn pass_ms(ms: u64) {
        NOW_NS.set(NOW_NS.get() + ms * 1_000_000);
    }

    /// An observer whose clock is [`NOW_NS`].
    fn observer(root: &Path, hierarchy: &Hierarchy) -> Observer {
        Observer { now_ns: || NOW_NS.get(), ..Observer::at(root, hierarchy) }
    }

    /// A host with two CPUs of which CPU 1 is in use.
    struct Fake(tempfile::TempDir);

    impl Fake {
        fn new() -> Self {
            let fake = Self(tempfile::tempdir().unwrap());
            fake.write("proc/stat", "cpu0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0\nctxt 100\n");
            fake
        }

        fn write(&self, path: &str, text: &str) {
            crate::fixtures::write(self.0.path(), path, text);
        }

        fn path(&self, path: &str) -> PathBuf {
            self.0.path().join(path)
        }

        /// Observes a window in which `change` is made.
        fn observe(&self, layout: Layout, group: CgroupView, change: impl FnOnce()) -> Observed {
            let root = if layout == Layout::V2 { self.path("cgroup") } else { self.path("cgroups") };
            let mut observer = observer(self.0.path(), &Hierarchy::at(root, layout));
            let instance = observer.attach(&Accounts::of_group(group), &[1]);
            observer.begin(instance);
            change();
            observer.end(instance)
        }
    }

    /// The idle host takes 1 J in the second in which it is observed, by the real clock; the window
    /// has the test's clock.
    #[test]
    fn the_energy_of_a_window_is_told_apart_from_that_of_an_idle_host() {
        let fake = Fake::new();
        let zone = |file: &str| format!("sys/class/powercap/intel-rapl:0/{file}");
        for (file, text) in
            [("name", "package-0"), ("energy_uj", "0"), ("max_energy_range_uj", "262143328850")]
        {
            fake.write(&zone(file), text);
        }
        fake.write("group/cpu.stat", "usage_usec 0\n");
        let mut observer = observer(fake.0.path(), &Hierarchy::at(fake.path("cgroup"), Layout::V2));
        std::thread::scope(|scope| {
            let measured = scope.spawn(|| observer.measure_energy());
            std::thread::sleep(IDLE / 4);
            fake.write(&zone("energy_uj"), "1000000");
            measured.join().unwrap().unwrap();
        });
        let idle_w = observer.energy.as_ref().unwrap().idle_w;
        // Waking up may take its time on a busy host.
        assert!((0.2..=1.0).contains(&idle_w), "{idle_w}");
        let instance = observer.attach(&Accounts::of_group(v2(&fake.path("group"))), &[1]);
        observer.begin(instance);
        pass_ms(2_000);
        fake.write(&zone("energy_uj"), "9000000");
        let seen = observer.end(instance).charge.counters;
        assert_eq!(seen[HOST_ENERGY], 8_000_000);
        assert_eq!(seen[HOST_ENERGY_ABOVE_IDLE], 8_000_000 - (2e6 * idle_w).round() as u64);
        // So long a window may have missed that the counter began again.
        observer.begin(instance);
        pass_ms(300_000);
        assert!(!observer.end(instance).charge.counters.contains_key(HOST_ENERGY));
    }

    #[test]
    fn foreign_time_of_version_1_is_that_on_the_cpus_in_use() {
        let fake = Fake::new();
        let (top, guest) =
            ("cgroups/cpuacct/cpuacct.usage_percpu", "cgroups/cpuacct/run/g/cpuacct.usage_percpu");
        fake.write(top, "1000 2000\n");
        fake.write(guest, "10 20\n");
        fake.write("cgroups/cpu/run/g/cpu.stat", "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n");
        let view = |name: &str| (vec![name.to_string()], fake.path(&format!("cgroups/{name}/run/g")));
        let group = CgroupView { v1: vec![view("cpuacct"), view("cpu")], ..CgroupView::default() };
        let seen = fake.observe(Layout::V1, group, || {
            // CPU 0 is busy with others all the time; on CPU 1 the guest had 6 s of 10.
            fake.write(top, "9000001000 10000002000\n");
            fake.write(guest, "1000000010 6000000020\n");
            fake.write("cgroups/cpu/run/g/cpu.stat", "nr_periods 9\nnr_throttled 2\nthrottled_time 5\n");
            fake.write("proc/stat", "cpu0 0 0 0 0 0 0 0 5\ncpu1 0 0 0 0 0 0 0 3\nctxt 350\n");
        });
        let known = seen.charge.weigh_ns + seen.charge.daemons_ns.values().sum::<u64>();
        assert!(seen.foreign.ns <= 4_000_000_000 && seen.foreign.ns + known >= 4_000_000_000, "{seen:?}");
        assert!(seen.foreign.uncertainty_ns < 20_000_000, "{seen:?}");
        assert_eq!((seen.charge.guest_ns, seen.steal.ns), (7_000_000_000, 30_000_000));
        assert_eq!((seen.context_switches, seen.throttled_periods, seen.throttled_ns), (250, 2, 5));
        assert_eq!((seen.pressure, seen.frequency_khz), (None, None));
        assert_eq!((seen.charge.cycles, seen.charge.instructions), (None, None));
        assert!(seen.kernel_log.is_empty() && seen.charge.counters.is_empty(), "{seen:?}");
    }

    #[test]
    fn foreign_time_of_version_2_is_derived_from_idle_time() {
        let fake = Fake::new();
        fake.write("cgroup/cpu.stat", "usage_usec 7\n");
        fake.write("cgroup/g/cpu.stat", "usage_usec 0\nnr_throttled 0\nthrottled_usec 0\n");
        fake.write("cgroup/g/cpuset.cpus.effective", "1\n");
        let group = v2(&fake.path("cgroup/g"));
        let seen = fake.observe(Layout::V2, group.clone(), || {
            pass_ms(200);
            fake.write("cgroup/g/cpu.stat", "usage_usec 60000\nnr_throttled 3\nthrottled_usec 4\n");
            fake.write("proc/stat", "cpu0 0 0 0 0 0 0 0 0\ncpu1 6 0 0 10 4 0 0 0\nctxt 100\n");
        });
        // Of 200 ms, 140 were idle and 60 were the guest's.
        assert_eq!((seen.window_ns, seen.foreign.ns), (200_000_000, 0));
        assert!(seen.foreign.uncertainty_ns >= 20_000_000, "{seen:?}");
        assert_eq!(seen.charge.guest_ns, 60_000_000);
        assert_eq!((seen.throttled_periods, seen.throttled_ns), (3, 4000));
        let busy = fake.observe(Layout::V2, group, || pass_ms(200));
        let known = busy.charge.weigh_ns + busy.charge.daemons_ns.values().sum::<u64>();
        assert!(busy.foreign.ns + known >= busy.window_ns, "nothing was idle, and nobody is known: {busy:?}");
    }

    #[test]
    fn softirqs_of_the_first_window_are_not_those_at_rest() {
        let fake = Fake::new();
        fake.write("cgroup/g/cpu.stat", "usage_usec 0\n");
        let seen = fake.observe(Layout::V2, v2(&fake.path("cgroup/g")), || {
            pass_ms(2_000);
            fake.write("proc/stat", "cpu0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 50 0\nctxt 100\n");
        });
        assert_eq!(seen.charge.softirq_ns, 50 * crate::cpu::clock_tick_ns());
    }

    /// The loader is on CPU 0, or on both: its time is neither foreign nor the guest's, and its CPU
    /// shows how busy it was.
    #[test]
    fn the_loader_is_not_foreign() {
        let fake = Fake::new();
        for (name, cpus) in [("g", "1"), ("l", "0-1")] {
            fake.write(&format!("cgroup/{name}/cpu.stat"), "usage_usec 0\n");
            fake.write(&format!("cgroup/{name}/cpuset.cpus.effective"), cpus);
        }
        let group = |name: &str| v2(&fake.path(&format!("cgroup/{name}")));
        let mut observer = observer(fake.0.path(), &Hierarchy::at(fake.path("cgroup"), Layout::V2));
        let instance = observer.attach(&Accounts::of_group(group("g")), &[1]);
        let mut seen = |loader: Option<&Accounts>| {
            fake.write("proc/stat", "cpu0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0\nctxt 100\n");
            fake.write("cgroup/l/cpu.stat", "usage_usec 0\n");
            observer.set_loader(loader.map(|accounts| (accounts, &[0][..])));
            observer.begin(instance);
            pass_ms(100);
            // CPU 0 was never idle, CPU 1 always.
            fake.write("proc/stat", "cpu0 90 0 0 0 0 0 0 0\ncpu1 0 0 0 90000 0 0 0 0\nctxt 100\n");
            fake.write("cgroup/l/cpu.stat", "usage_usec 60000\n");
            observer.end(instance)
        };
        let accounts = Accounts::of_group(group("l"));
        let (with, without) = (seen(Some(&accounts)), seen(None));
        let loader = with.loader.clone().unwrap();
        assert_eq!((loader.cpus.as_slice(), loader.used_ns), (&[0][..], 60_000_000));
        assert_eq!(loader.busy_ns, [with.window_ns]);
        assert_eq!(loader.busiest_share(with.window_ns), 1.0);
        assert_eq!((without.loader, with.charge.guest_ns), (None, 0));
        assert!(with.foreign.uncertainty_ns > without.foreign.uncertainty_ns, "it may have run on CPU 1");
    }

    #[test]
    fn a_host_without_counters_gives_nothing() {
        let empty = tempfile::tempdir().unwrap();
        let mut observer = Observer::at(empty.path(), &Hierarchy::at(empty.path(), Layout::Missing));
        let instance = observer.attach(&Accounts::default(), &[1]);
        assert_eq!(observer.end(instance), Observed::default(), "it was never begun");
        observer.begin(instance);
        let seen = observer.end(instance);
        assert_eq!((seen.steal, seen.foreign), (CpuTime::default(), CpuTime::default()));
        assert_eq!((seen.pressure, seen.cpus), (None, vec![1]));
        observer.detach(instance);
        observer.begin(instance);
        assert_eq!(observer.end(instance), Observed::default(), "it is not known any more");
    }
}
