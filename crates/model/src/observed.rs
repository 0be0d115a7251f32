//! What the host saw during one trial: noise, CPU use, and the quality of the guest's clock.

use crate::pages::PageScan;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// When noise is worth a warning and when it voids a unit, with the reasons in one place.
///
/// The figures are those of the method specification, "Noise on the host". Half a per cent is a
/// quarter of the margin of equivalence: noise below it cannot decide a verdict, noise above it
/// deserves a look. Two per cent is the margin itself: a trial that lost this much to others can
/// differ from its pair by the margin without a difference between the environments.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NoiseLimits {
    /// Steal or foreign CPU beyond this share of the CPUs in use is worth a warning.
    pub warn_share: f64,
    /// Steal or foreign CPU beyond this share of the CPUs in use voids the unit.
    pub void_share: f64,
    /// Whether noise voids a unit. A wrong guest clock does even when this is off.
    pub voiding: bool,
    /// Unattributed CPU time beyond this share of one CPU is worth a warning.
    pub unattributed_share: f64,
}

impl Default for NoiseLimits {
    fn default() -> Self {
        Self { warn_share: 0.005, void_share: 0.02, voiding: true, unattributed_share: 0.01 }
    }
}

/// A span of CPU time as a counter gives it: the truth lies within `uncertainty_ns` of `ns`.
/// Counters in clock ticks are uncertain by a tick per CPU and reading.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuTime {
    /// Nanoseconds.
    pub ns: u64,
    /// How far off the truth may be, nanoseconds.
    pub uncertainty_ns: u64,
}

impl CpuTime {
    /// The certain part, as a share of `window_ns` on `cpus` CPUs. Only noise that is certain voids
    /// a unit, so that a coarse counter in a short trial does not look like noise.
    pub fn certain_share(self, window_ns: u64, cpus: usize) -> f64 {
        let available = window_ns as f64 * cpus.max(1) as f64;
        if available > 0.0 { self.ns.saturating_sub(self.uncertainty_ns) as f64 / available } else { 0.0 }
    }
}

/// What the host saw during the measured iterations of one trial.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Observed {
    /// Time observed, host's monotonic clock, nanoseconds: the measured iterations, without
    /// preparation and clean-up where the workload has them.
    pub window_ns: u64,
    /// CPUs that the guest may use.
    pub cpus: Vec<u32>,
    /// Time that the hypervisor below took from these CPUs.
    pub steal: CpuTime,
    /// CPU time on these CPUs of everything except the guest, its helpers, the load generator and
    /// weighbridge.
    pub foreign: CpuTime,
    /// Time in which tasks were stalled (PSI); absent if the kernel does not report it.
    pub pressure: Option<Pressure>,
    /// Context switches of the whole host.
    pub context_switches: u64,
    /// How often a CPU bandwidth limit throttled the guest (`nr_throttled`).
    pub throttled_periods: u64,
    /// Time for which it was throttled, nanoseconds.
    pub throttled_ns: u64,
    /// Lowest and highest frequency that was seen on the CPUs in use, kHz; absent if the kernel
    /// does not report it.
    pub frequency_khz: Option<(u64, u64)>,
    /// The host's settings as they were at the end.
    pub settings: HostSettings,
    /// The first new lines of the kernel's log of priority warning or worse.
    pub kernel_log: Vec<String>,
    /// Who used CPU time for the guest.
    pub charge: Charge,
    /// CPU time that the sensors themselves took, nanoseconds.
    pub sensors_ns: u64,
    /// The load generator, if a server was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loader: Option<LoaderUse>,
    /// The scan of the guests' pages for duplicates, if a footprint was measured with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages: Option<Box<PageScan>>,
}

/// What a load generator used, and how busy its CPUs were with it and anything else.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoaderUse {
    /// CPUs that it may use.
    pub cpus: Vec<u32>,
    /// Time that each of these CPUs was not idle, in the same order, nanoseconds, with the
    /// resolution of clock ticks.
    pub busy_ns: Vec<u64>,
    /// CPU time of its processes, nanoseconds.
    pub used_ns: u64,
}

impl LoaderUse {
    /// The share of a window for which the busiest of its CPUs was busy, from 0 to 1; at least the
    /// mean share that its processes used.
    pub fn busiest_share(&self, window_ns: u64) -> f64 {
        if window_ns == 0 {
            return 0.0;
        }
        let busiest_ns = self.busy_ns.iter().copied().max().unwrap_or(0) as f64;
        let each_ns = self.used_ns as f64 / self.cpus.len().max(1) as f64;
        (busiest_ns.max(each_ns) / window_ns as f64).min(1.0)
    }
}

/// Pressure stall information: time in which some, or all, tasks of the host waited
/// (Documentation/accounting/psi.rst).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pressure {
    /// Some task waited for a CPU, nanoseconds.
    pub cpu_some_ns: u64,
    /// Some task waited for memory, nanoseconds.
    pub memory_some_ns: u64,
    /// All tasks waited for memory, nanoseconds.
    pub memory_full_ns: u64,
    /// Some task waited for input or output, nanoseconds.
    pub io_some_ns: u64,
    /// All tasks waited for input or output, nanoseconds.
    pub io_full_ns: u64,
}

/// Settings of the host that decide how fast it is. Absent values could not be read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostSettings {
    /// Frequency governors of the CPUs in use, each once.
    pub governors: Vec<String>,
    /// Whether frequencies beyond the nominal one are allowed.
    pub turbo: Option<bool>,
    /// The clock source.
    pub clock_source: Option<String>,
    /// The selected setting of transparent huge pages.
    pub transparent_huge_pages: Option<String>,
    /// Whether hardware threads share cores.
    pub smt: Option<bool>,
    /// NUMA nodes.
    pub numa_nodes: Option<u32>,
    /// Whether the kernel moves pages between nodes automatically.
    pub numa_balancing: Option<bool>,
    /// Whether same-page merging runs.
    pub ksm: Option<bool>,
    /// Whether addresses are randomised: 0, 1 or 2 (`kernel.randomize_va_space`).
    pub aslr: Option<u32>,
}

/// The counter of the energy that processors and memory of the host took, microjoules.
pub const HOST_ENERGY: &str = "host_energy_uj";
/// The counter of the part of [`HOST_ENERGY`] that the idle host would not have taken, microjoules.
pub const HOST_ENERGY_ABOVE_IDLE: &str = "host_energy_above_idle_uj";

/// Who used CPU time for a guest.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Charge {
    /// CPU time of the guest's control groups or processes, nanoseconds.
    pub guest_ns: u64,
    /// CPU time of helpers outside of these that serve only this guest, by name, nanoseconds.
    pub helpers_ns: BTreeMap<String, u64>,
    /// Growth of the host's softirq time beyond its rate at rest, nanoseconds.
    pub softirq_ns: u64,
    /// CPU time of daemons that all guests of a platform share, by name, nanoseconds. It is never
    /// part of the charge.
    pub daemons_ns: BTreeMap<String, u64>,
    /// CPU time of weighbridge itself, nanoseconds.
    pub weigh_ns: u64,
    /// Processor cycles of guest and helpers; absent without a PMU.
    pub cycles: Option<u64>,
    /// Instructions that guest and helpers executed; absent without a PMU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<u64>,
    /// Busy time of all CPUs that is not accounted for by guest, helpers, daemons and weighbridge,
    /// nanoseconds. It is negative if these add up to more than the busy time, as coarse counters
    /// allow.
    pub unattributed_ns: i64,
    /// How far off `unattributed_ns` may be, nanoseconds.
    pub unattributed_uncertainty_ns: u64,
    /// Counters that can explain why an environment is slower, as far as the host has them:
    /// `vm_exits`, `vm_halts`, `vm_port_exits`, `page_faults`, `tlb_misses`, `context_switches`,
    /// `cpu_migrations`, `cpu_stall_ns`, `memory_stall_ns`, `io_stall_ns`, `block_read_bytes`,
    /// `block_written_bytes`, `guest_disk_read_bytes`, `guest_disk_written_bytes`,
    /// `network_packets`; and those of the whole host, whose names begin with `host_`.
    pub counters: BTreeMap<String, u64>,
}

impl Charge {
    /// All CPU time that is charged to the environment, nanoseconds: guest, helpers and softirqs,
    /// without shared daemons.
    pub fn total_ns(&self) -> u64 {
        self.guest_ns + self.helpers_ns.values().sum::<u64>() + self.softirq_ns
    }
}

/// What is known of the guest's clock during one trial (method specification, "Clocks").
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ClockCheck {
    /// The conclusion.
    pub state: ClockState,
    /// Guest's monotonic clock less the host's, when the guest woke, nanoseconds.
    pub offset_ns: i64,
    /// Best round trips of the message exchanges at the start and at the end, nanoseconds: the
    /// error of an offset is at most half.
    pub round_trips_ns: [u64; 2],
    /// Time between the two exchanges on the host's clock, nanoseconds.
    pub awake_ns: u64,
    /// Rate of the guest's clock less 1, parts per million; absent for a shared clock.
    pub rate_ppm: Option<f64>,
    /// How far off the rate may be, parts per million.
    pub bound_ppm: Option<f64>,
    /// 0 if every duration that the guest reported fits its bracket on the host's clock, to within
    /// the round trip, 1 ms and 1000 ppm. Otherwise the worst duration less its bracket,
    /// nanoseconds; one that is longer than its bracket counts as worse than any shorter one.
    pub misfit_ns: i64,
}

/// The conclusion of the check of a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClockState {
    /// The guest reads the host's clock: identity was checked when the instance started.
    Shared,
    /// The rate is within 200 ppm.
    Proven,
    /// The rate is proven within 1000 ppm and wholly outside 200 ppm.
    Warned,
    /// The bound is too wide to tell, or a duration does not fit its bracket: the host's brackets
    /// are used as durations.
    Bracket,
    /// The rate is proven to be off by more than 1000 ppm, or a duration is longer than its
    /// bracket: the unit is void.
    Wrong,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_certain_time_counts_as_a_share() {
        let time = CpuTime { ns: 30_000_000, uncertainty_ns: 20_000_000 };
        assert_eq!(time.certain_share(1_000_000_000, 1), 0.01);
        assert_eq!(time.certain_share(1_000_000_000, 2), 0.005);
        assert_eq!(CpuTime { ns: 10, uncertainty_ns: 20 }.certain_share(1000, 1), 0.0);
        assert_eq!(time.certain_share(0, 1), 0.0);
    }

    #[test]
    fn the_busiest_cpu_of_a_loader_decides() {
        let loader = LoaderUse { cpus: vec![0, 2], busy_ns: vec![200, 750], used_ns: 900 };
        assert_eq!(loader.busiest_share(1000), 0.75);
        assert_eq!(LoaderUse { used_ns: 1600, ..loader.clone() }.busiest_share(1000), 0.8);
        assert_eq!(LoaderUse { used_ns: 9000, ..loader.clone() }.busiest_share(1000), 1.0);
        assert_eq!((loader.busiest_share(0), LoaderUse::default().busiest_share(5)), (0.0, 0.0));
    }

    /// Samples without a PMU have the same fields as before there was a count of instructions.
    #[test]
    fn instructions_are_optional() {
        let read = |json: &str| serde_json::from_str::<Charge>(json).unwrap();
        assert_eq!(read(r#"{"guest_ns":1,"cycles":2}"#).instructions, None);
        assert!(!serde_json::to_string(&Charge::default()).unwrap().contains("instructions"));
        let counted = Charge { cycles: Some(2), instructions: Some(3), ..Charge::default() };
        assert_eq!(read(&serde_json::to_string(&counted).unwrap()), counted);
    }

    #[test]
    fn shared_daemons_are_apart() {
        let charge = Charge {
            guest_ns: 1,
            helpers_ns: [("qemu".into(), 10)].into(),
            softirq_ns: 100,
            daemons_ns: [("dockerd".into(), 1000)].into(),
            ..Charge::default()
        };
        assert_eq!(charge.total_ns(), 111);
    }
}
