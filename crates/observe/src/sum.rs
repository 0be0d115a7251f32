//! Adds up several windows of a trial.

use crate::frequency::span;
use crate::pressure::combined;
use std::collections::BTreeMap;
use weigh_model::{Charge, CpuTime, LoaderUse, Observed};

/// The most lines of the kernel's log that are recorded with a trial.
pub(crate) const KERNEL_LINES: usize = 8;

/// Adds a window to the earlier ones of the same trial.
///
/// Times and counts are summed. The uncertainty of a sum is the root of the sum of squares, because
/// the errors of windows, from rounding to ticks, are independent. It is a bound in all but a few
/// of a thousand cases; the plain sum of uncertainties would grow with the number of windows and
/// hide what many short ones show together. Settings are those of the last window.
pub fn add(total: &mut Observed, window: Observed) {
    if total.window_ns == 0 && total.cpus.is_empty() {
        *total = window;
        return;
    }
    total.window_ns += window.window_ns;
    total.cpus.extend(window.cpus);
    total.cpus.sort_unstable();
    total.cpus.dedup();
    total.steal = sum(total.steal, window.steal);
    total.foreign = sum(total.foreign, window.foreign);
    total.pressure = match (total.pressure, window.pressure) {
        (Some(one), Some(other)) => Some(combined(one, other, |one, other| one + other)),
        (one, other) => one.or(other),
    };
    total.context_switches += window.context_switches;
    total.throttled_periods += window.throttled_periods;
    total.throttled_ns += window.throttled_ns;
    total.frequency_khz = span(total.frequency_khz, window.frequency_khz);
    total.settings = window.settings;
    total.kernel_log.extend(window.kernel_log);
    total.kernel_log.truncate(KERNEL_LINES);
    charge(&mut total.charge, window.charge);
    total.loader = total.loader.take().zip(window.loader).map(|(one, other)| loaders(one, other));
    total.sensors_ns += window.sensors_ns;
}

fn charge(total: &mut Charge, window: Charge) {
    total.guest_ns += window.guest_ns;
    names(&mut total.helpers_ns, window.helpers_ns);
    total.softirq_ns += window.softirq_ns;
    names(&mut total.daemons_ns, window.daemons_ns);
    total.weigh_ns += window.weigh_ns;
    // A partial count would look like a complete one.
    let both = |one: Option<u64>, other: Option<u64>| one.zip(other).map(|(one, other)| one + other);
    total.cycles = both(total.cycles, window.cycles);
    total.instructions = both(total.instructions, window.instructions);
    total.unattributed_ns += window.unattributed_ns;
    total.unattributed_uncertainty_ns =
        root_of_squares(total.unattributed_uncertainty_ns, window.unattributed_uncertainty_ns);
    // A counter that is missing in a window would be too small.
    total.counters.retain(|name, _| window.counters.contains_key(name));
    for (name, value) in &mut total.counters {
        *value += window.counters.get(name).copied().unwrap_or(0);
    }
}

/// Adds up the use of a loader in two windows, on the same CPUs.
fn loaders(one: LoaderUse, other: LoaderUse) -> LoaderUse {
    LoaderUse {
        cpus: one.cpus,
        busy_ns: one.busy_ns.iter().zip(&other.busy_ns).map(|(one, other)| one + other).collect(),
        used_ns: one.used_ns + other.used_ns,
    }
}

fn names(total: &mut BTreeMap<String, u64>, window: BTreeMap<String, u64>) {
    for (name, ns) in window {
        *total.entry(name).or_default() += ns;
    }
}

fn sum(one: CpuTime, other: CpuTime) -> CpuTime {
    CpuTime {
        ns: one.ns + other.ns,
        uncertainty_ns: root_of_squares(one.uncertainty_ns, other.uncertainty_ns),
    }
}

fn root_of_squares(one: u64, other: u64) -> u64 {
    (one as f64).hypot(other as f64).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use weigh_model::Pressure;

    fn window() -> Observed {
        Observed {
            window_ns: 10,
            cpus: vec![1],
            steal: CpuTime { ns: 1, uncertainty_ns: 3 },
            pressure: Some(Pressure { io_some_ns: 2, ..Pressure::default() }),
            context_switches: 5,
            throttled_periods: 1,
            frequency_khz: Some((10, 20)),
            kernel_log: vec!["line".into(); 5],
            charge: Charge {
                guest_ns: 7,
                helpers_ns: [("shim".to_string(), 2)].into(),
                cycles: Some(4),
                instructions: Some(6),
                unattributed_ns: -3,
                unattributed_uncertainty_ns: 30,
                counters: [("page_faults".to_string(), 9)].into(),
                ..Charge::default()
            },
            sensors_ns: 1,
            loader: Some(LoaderUse { cpus: vec![0], busy_ns: vec![6], used_ns: 5 }),
            ..Observed::default()
        }
    }

    #[test]
    fn windows_add_up() {
        let mut total = Observed::default();
        add(&mut total, window());
        assert_eq!(total, window(), "the first is all there is");
        let other = Observed {
            steal: CpuTime { ns: 1, uncertainty_ns: 4 },
            frequency_khz: Some((5, 15)),
            charge: Charge { unattributed_uncertainty_ns: 40, ..window().charge },
            ..window()
        };
        add(&mut total, other);
        assert_eq!((total.window_ns, total.context_switches, total.throttled_periods), (20, 10, 2));
        assert_eq!(total.steal, CpuTime { ns: 2, uncertainty_ns: 5 });
        assert_eq!(total.frequency_khz, Some((5, 20)));
        assert_eq!(total.pressure.unwrap().io_some_ns, 4);
        assert_eq!(total.kernel_log.len(), KERNEL_LINES);
        assert_eq!((total.charge.guest_ns, total.charge.cycles), (14, Some(8)));
        assert_eq!(total.charge.instructions, Some(12));
        assert_eq!((total.charge.unattributed_ns, total.charge.unattributed_uncertainty_ns), (-6, 50));
        assert_eq!(total.charge.helpers_ns["shim"], 4);
        assert_eq!(total.charge.counters["page_faults"], 18);
        assert_eq!(total.loader, Some(LoaderUse { cpus: vec![0], busy_ns: vec![12], used_ns: 10 }));
    }

    #[test]
    fn a_value_that_a_window_lacks_is_absent_from_the_sum() {
        let mut total = window();
        add(&mut total, Observed { charge: Charge::default(), ..window() });
        assert_eq!((total.charge.cycles, total.charge.instructions), (None, None));
        assert!(total.charge.counters.is_empty());
        add(&mut total, Observed { loader: None, ..window() });
        assert_eq!(total.loader, None);
    }
}
