//! What the host was busy with, less what is known of.

use crate::cpu::{Spent, clock_tick_ns};
use crate::rest::Rest;
use crate::stat::Times;
use weigh_model::{Charge, CpuTime};

/// CPU time that no task is charged for when an idle CPU takes one up and puts it down,
/// nanoseconds, generously. It matters only where the host's busy time is what is not idle.
const SWITCH_NS: u64 = 2_000;
/// How far off a growth in ticks may be: a tick per CPU and reading.
pub(crate) fn ticks_ns(cpus: u64) -> u64 {
    2 * clock_tick_ns() * cpus
}

/// Time that CPUs were neither idle nor taken by the hypervisor nor in interrupts. That those were
/// noticed at ticks only, and what no task is charged for between sleep and work, makes it
/// uncertain.
pub(crate) fn not_idle(times: &Times, window_ns: u64, context_switches: u64) -> CpuTime {
    let tick = clock_tick_ns();
    let rest = (times.idle + times.steal + times.interrupts) * tick;
    CpuTime {
        ns: (window_ns * times.cpus).saturating_sub(rest),
        uncertainty_ns: ticks_ns(times.cpus) + times.interrupts * tick + context_switches * SWITCH_NS,
    }
}

/// What others ran: the time that CPUs were busy without what is known. What may have run elsewhere
/// is taken off by half and makes the rest uncertain by as much.
pub(crate) fn foreign(busy: CpuTime, known: Spent, uncertain_ns: u64) -> CpuTime {
    let half = known.unknown / 2;
    CpuTime {
        ns: busy.ns.saturating_sub(known.here + half),
        uncertainty_ns: busy.uncertainty_ns + half + uncertain_ns,
    }
}

/// Compares what is accounted for with the time that all CPUs of the host were not idle.
///
/// Softirqs beyond their rate at rest are charged as far as nobody has been charged for them: on
/// kernels that do not time interrupts (`CONFIG_IRQ_TIME_ACCOUNTING`), those that interrupt a task
/// are in its time already.
pub(crate) fn reconcile(charge: &mut Charge, all: &Times, window_ns: u64, known_ns: u64, rest: &Rest) {
    let tick = clock_tick_ns();
    let busy = (window_ns * all.cpus).saturating_sub((all.idle + all.steal) * tick);
    let left = busy.saturating_sub(known_ns);
    charge.softirq_ns = rest.beyond(all.softirq * tick, window_ns).min(left);
    charge.unattributed_ns = busy as i64 - known_ns as i64 - charge.softirq_ns as i64;
    charge.unattributed_uncertainty_ns = ticks_ns(all.cpus);
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn what_is_idle_stolen_or_interrupted_is_not_busy() {
        let times = Times { cpus: 2, idle: 120, interrupts: 3, softirq: 1, steal: 7 };
        let busy = not_idle(&times, 1000 * MS, 500);
        assert_eq!(busy.ns, 2000 * MS - 1300 * MS);
        // A tick per CPU and reading, the interrupts, and 2 µs a switch.
        assert_eq!(busy.uncertainty_ns, 40 * MS + 30 * MS + MS);
    }

    #[test]
    fn what_is_known_is_not_foreign() {
        let busy = CpuTime { ns: 100 * MS, uncertainty_ns: 4 * MS };
        let spent = |here, unknown| Spent { total: 1000 * MS, here: here * MS, unknown: unknown * MS };
        assert_eq!(foreign(busy, spent(60, 0), 0), CpuTime { ns: 40 * MS, uncertainty_ns: 4 * MS });
        assert_eq!(foreign(busy, spent(60, 20), MS), CpuTime { ns: 30 * MS, uncertainty_ns: 15 * MS });
        assert_eq!(foreign(busy, spent(110, 0), 0).ns, 0, "coarse counters do not make it negative");
    }

    #[test]
    fn softirqs_are_charged_where_nobody_is_yet() {
        let (rest, window) = (Rest::default(), 1000 * MS);
        let times = Times { cpus: 2, idle: 100, interrupts: 10, softirq: 10, steal: 0 };
        let mut charge = Charge::default();
        reconcile(&mut charge, &times, window, 700 * MS, &rest);
        assert_eq!((charge.softirq_ns, charge.unattributed_ns), (100 * MS, 200_000_000));
        assert_eq!(charge.unattributed_uncertainty_ns, 40 * MS);
        reconcile(&mut charge, &times, window, 950 * MS, &rest);
        assert_eq!((charge.softirq_ns, charge.unattributed_ns), (50 * MS, 0), "the rest is in tasks' time");
        reconcile(&mut charge, &times, window, 1020 * MS, &rest);
        assert_eq!((charge.softirq_ns, charge.unattributed_ns), (0, -20_000_000));
    }
}
