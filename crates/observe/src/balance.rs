//! The busy time of the host, less the time that is accounted for.

use crate::cpu::{CpuUse, clock_tick_ns};
use crate::softirq_baseline::SoftirqBaseline;
use crate::stat::Times;
use weigh_model::{Charge, CpuTime};

/// Upper bound of the time that is charged to no task when an idle CPU starts and stops one,
/// nanoseconds. It matters only if the busy time is derived from idle time.
const SWITCH_NS: u64 = 2_000;
/// Uncertainty of a difference in ticks: a tick per CPU and reading.
pub(crate) fn ticks_ns(cpus: u64) -> u64 {
    2 * clock_tick_ns() * cpus
}

/// Time that CPUs were neither idle nor stolen nor in interrupts. It is uncertain, because these
/// are sampled at ticks, and because some time between sleep and work is charged to no task.
pub(crate) fn not_idle(times: &Times, window_ns: u64, context_switches: u64) -> CpuTime {
    let tick = clock_tick_ns();
    let other = (times.idle + times.steal + times.interrupts) * tick;
    CpuTime {
        ns: (window_ns * times.cpus).saturating_sub(other),
        uncertainty_ns: ticks_ns(times.cpus) + times.interrupts * tick + context_switches * SWITCH_NS,
    }
}

/// Foreign time: the busy time without the known time. Half of the known time that may have been
/// used on other CPUs is subtracted, with that half as uncertainty.
pub(crate) fn foreign(busy: CpuTime, known: CpuUse, uncertain_ns: u64) -> CpuTime {
    let half = known.unknown / 2;
    CpuTime {
        ns: busy.ns.saturating_sub(known.inside + half),
        uncertainty_ns: busy.uncertainty_ns + half + uncertain_ns,
    }
}

/// Compares the time that is accounted for with the time that all CPUs of the host were not idle.
///
/// Softirqs above their baseline are charged, except those that are charged to a task already:
/// kernels without `CONFIG_IRQ_TIME_ACCOUNTING` count an interrupt in the time of the task.
pub(crate) fn reconcile(
    charge: &mut Charge,
    all: &Times,
    window_ns: u64,
    known_ns: u64,
    baseline: &SoftirqBaseline,
) {
    let tick = clock_tick_ns();
    let busy = (window_ns * all.cpus).saturating_sub((all.idle + all.steal) * tick);
    let left = busy.saturating_sub(known_ns);
    charge.softirq_ns = baseline.above(all.softirq * tick, window_ns).min(left);
    charge.unattributed_ns = busy as i64 - known_ns as i64 - charge.softirq_ns as i64;
    charge.unattributed_uncertainty_ns = ticks_ns(all.cpus);
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn idle_stolen_and_interrupt_time_is_not_busy() {
        let times = Times { cpus: 2, idle: 120, interrupts: 3, softirq: 1, steal: 7 };
        let busy = not_idle(&times, 1000 * MS, 500);
        assert_eq!(busy.ns, 2000 * MS - 1300 * MS);
        // A tick per CPU and reading, the interrupts, and 2 µs a switch.
        assert_eq!(busy.uncertainty_ns, 40 * MS + 30 * MS + MS);
    }

    #[test]
    fn known_time_is_not_foreign() {
        let busy = CpuTime { ns: 100 * MS, uncertainty_ns: 4 * MS };
        let spent = |here, unknown| CpuUse { total: 1000 * MS, inside: here * MS, unknown: unknown * MS };
        assert_eq!(foreign(busy, spent(60, 0), 0), CpuTime { ns: 40 * MS, uncertainty_ns: 4 * MS });
        assert_eq!(foreign(busy, spent(60, 20), MS), CpuTime { ns: 30 * MS, uncertainty_ns: 15 * MS });
        assert_eq!(foreign(busy, spent(110, 0), 0).ns, 0, "coarse counters do not make it negative");
    }

    #[test]
    fn softirqs_in_the_time_of_tasks_are_not_charged_twice() {
        let (baseline, window) = (SoftirqBaseline::default(), 1000 * MS);
        let times = Times { cpus: 2, idle: 100, interrupts: 10, softirq: 10, steal: 0 };
        let mut charge = Charge::default();
        reconcile(&mut charge, &times, window, 700 * MS, &baseline);
        assert_eq!((charge.softirq_ns, charge.unattributed_ns), (100 * MS, 200_000_000));
        assert_eq!(charge.unattributed_uncertainty_ns, 40 * MS);
        reconcile(&mut charge, &times, window, 950 * MS, &baseline);
        assert_eq!((charge.softirq_ns, charge.unattributed_ns), (50 * MS, 0), "the rest is in tasks' time");
        reconcile(&mut charge, &times, window, 1020 * MS, &baseline);
        assert_eq!((charge.softirq_ns, charge.unattributed_ns), (0, -20_000_000));
    }
}
