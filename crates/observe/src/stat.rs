//! `/proc/stat` (`proc_stat(5)`).

use crate::files::PolledFile;

/// Time of some CPUs, clock ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Times {
    /// Number of CPUs.
    pub(crate) cpus: u64,
    /// Idle time, including waiting for I/O. Kernels that stop the tick of idle CPUs (NO_HZ, all
    /// usual ones) measure it precisely and only *print* it in ticks, whereas times of running
    /// tasks are sampled at ticks.
    pub(crate) idle: u64,
    /// Time of interrupts, hard and soft.
    pub(crate) interrupts: u64,
    /// Time of soft interrupts alone.
    pub(crate) softirq: u64,
    /// Steal: time taken by the hypervisor.
    pub(crate) steal: u64,
}

impl Times {
    fn add(&mut self, ticks: &[u64; 8]) {
        let [_, _, _, idle, iowait, irq, softirq, steal] = ticks;
        self.cpus += 1;
        self.idle += idle + iowait;
        self.interrupts += irq + softirq;
        self.softirq += softirq;
        self.steal += steal;
    }

    /// Growth since an earlier reading; a decrease, which is known of `iowait` (`proc_stat(5)`),
    /// counts as no growth.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self {
            cpus: self.cpus,
            idle: self.idle.saturating_sub(earlier.idle),
            interrupts: self.interrupts.saturating_sub(earlier.interrupts),
            softirq: self.softirq.saturating_sub(earlier.softirq),
            steal: self.steal.saturating_sub(earlier.steal),
        }
    }
}

/// A reading of `/proc/stat`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Stat {
    /// Times of the CPUs in use.
    pub(crate) used: Times,
    /// Times of all CPUs.
    pub(crate) all: Times,
    /// Context switches of the host since boot.
    pub(crate) context_switches: u64,
}

impl Stat {
    pub(crate) fn read(file: &PolledFile, used: &[u32], scratch: &mut Vec<u8>) -> Option<Self> {
        Some(Self::parse(file.text(scratch)?, used))
    }

    fn parse(text: &str, used: &[u32]) -> Self {
        let mut stat = Self::default();
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("ctxt") => {
                    stat.context_switches = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
                    // The rest is not needed.
                    break;
                }
                Some(name) => {
                    let Some(cpu) = name.strip_prefix("cpu").and_then(|number| number.parse().ok()) else {
                        continue;
                    };
                    let mut ticks = [0; 8];
                    for (tick, word) in ticks.iter_mut().zip(words) {
                        *tick = word.parse().unwrap_or(0);
                    }
                    stat.all.add(&ticks);
                    if used.contains(&cpu) {
                        stat.used.add(&ticks);
                    }
                }
                None => {}
            }
        }
        stat
    }
}

/// Idle time of each of these CPUs, clock ticks; `None` if one of them is missing.
pub(crate) fn idle_of(text: &str, cpus: &[u32]) -> Option<Vec<u64>> {
    let of = |cpu: &u32| {
        let name = format!("cpu{cpu}");
        let line = text.lines().find_map(|line| line.strip_prefix(&name)?.strip_prefix(' '))?;
        let ticks = |at: usize| line.split_ascii_whitespace().nth(at)?.parse::<u64>().ok();
        Some(ticks(3)? + ticks(4)?)
    };
    cpus.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "cpu  30 3 3 3000 30 3 3 3 0 0\ncpu0 10 1 1 1000 10 1 2 1 0 0\ncpu1 20 2 2 2000 20 2 5 2 0 0\n\
        intr 99 0 0\nctxt 1234\nbtime 5\nsoftirq 1 2\n";

    #[test]
    fn cpus_in_use_are_summed_separately() {
        let stat = Stat::parse(TEXT, &[1]);
        assert_eq!(stat.used, Times { cpus: 1, idle: 2020, interrupts: 7, softirq: 5, steal: 2 });
        assert_eq!(stat.all, Times { cpus: 2, idle: 3030, interrupts: 10, softirq: 7, steal: 3 });
        assert_eq!(stat.context_switches, 1234);
    }

    #[test]
    fn every_cpu_has_its_idle_time() {
        assert_eq!(idle_of(TEXT, &[1, 0]), Some(vec![2020, 1010]));
        assert_eq!((idle_of(TEXT, &[2]), idle_of(TEXT, &[])), (None, Some(vec![])));
    }

    #[test]
    fn a_decrease_counts_as_no_growth() {
        let (earlier, later) = (
            Times { idle: 10, steal: 1, ..Times::default() },
            Times { idle: 9, steal: 3, ..Times::default() },
        );
        assert_eq!(later.since(&earlier), Times { steal: 2, ..Times::default() });
    }
}
