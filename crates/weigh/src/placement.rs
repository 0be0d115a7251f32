//! CPUs and memory that every guest of a plan gets, where the user does not say.

use weigh_model::{HostFacts, format_bytes};
use weigh_platforms::Capabilities;

/// Memory of every guest when one of them is a machine: enough for every embedded workload, little enough to be had.
const MACHINE_BYTES: u64 = 2 << 30;
/// And never more than this part of the host's memory: the guests of all environments are there at once.
const PART_OF_HOST: u64 = 4;

/// What all guests get alike.
#[derive(Debug, PartialEq, Eq)]
pub struct Placement {
    /// CPUs; empty means all.
    pub cpus: Vec<u32>,
    /// Memory, bytes.
    pub memory_bytes: Option<u64>,
    /// What was decided for the user, in sentences.
    pub notes: Vec<String>,
}

impl Placement {
    /// Decides what `cpus` and `memory_bytes` of the user leave open, for environments given by name.
    ///
    /// Where one environment can only have so many CPUs, all get as many (METHOD: placement): the last ones, so that CPU 0, which
    /// serves most interrupts, is left to weigh. A machine must have a size of memory, so that the others get that as their limit.
    pub fn new(
        environments: &[(String, Capabilities)],
        cpus: Vec<u32>,
        memory_bytes: Option<u64>,
        host: &HostFacts,
    ) -> Self {
        let mut placement = Self { cpus, memory_bytes, notes: Vec::new() };
        placement.limit_cpus(environments, host);
        placement.size_memory(environments, host);
        placement
    }

    fn limit_cpus(&mut self, environments: &[(String, Capabilities)], host: &HostFacts) {
        let bounded = environments.iter().filter_map(|(name, can)| Some((can.most_cpus? as usize, name)));
        let Some((most, name)) = bounded.min() else { return };
        if !self.cpus.is_empty() || most >= host.cpus.len() {
            return;
        }
        self.cpus = host.cpus[host.cpus.len() - most..].to_vec();
        let listed: Vec<String> = self.cpus.iter().map(u32::to_string).collect();
        let plural = if most == 1 { "" } else { "s" };
        self.notes.push(format!(
            "{name} can have {most} CPU{plural}, so every environment gets {most}: CPU{plural} {}; --cpus says otherwise",
            listed.join(",")
        ));
    }

    fn size_memory(&mut self, environments: &[(String, Capabilities)], host: &HostFacts) {
        let Some((machine, _)) = environments.iter().find(|(_, can)| can.sized_memory) else { return };
        if self.memory_bytes.is_some() {
            return;
        }
        let unlimited =
            environments.iter().find(|(_, can)| !can.sized_memory && !can.memory_limit && !can.fake);
        if let Some((name, _)) = unlimited {
            self.notes.push(format!(
                "{machine} is a machine with a size of memory, and {name} cannot be limited to it here; run as root to compare them on equal memory"
            ));
            return;
        }
        let mebibyte = 1 << 20;
        let bytes = MACHINE_BYTES.min(host.memory_bytes / PART_OF_HOST) / mebibyte * mebibyte;
        self.memory_bytes = Some(bytes);
        self.notes.push(format!(
            "{machine} is a machine with a size of memory, so every environment gets {}; --memory says otherwise",
            format_bytes(bytes)
        ));
    }

    /// The host as the guests have it, for the parameters of workloads.
    pub fn of_host(&self, host: &HostFacts) -> HostFacts {
        let mut seen = host.clone();
        if !self.cpus.is_empty() {
            seen.cpus.clone_from(&self.cpus);
        }
        seen.memory_bytes = self.memory_bytes.map_or(host.memory_bytes, |bytes| bytes.min(host.memory_bytes));
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn host(cpus: &[u32], memory_bytes: u64) -> HostFacts {
        HostFacts {
            identity: String::new(),
            kernel: String::new(),
            architecture: String::new(),
            operating_system: String::new(),
            cpu_model: String::new(),
            cpus: cpus.to_vec(),
            memory_bytes,
            last_level_cache_bytes: None,
            cgroups: String::new(),
            boot: String::new(),
            root: true,
        }
    }

    const MACHINE: Capabilities = Capabilities { sized_memory: true, ..Capabilities::CONTAINER };
    const ONE_CPU: Capabilities = Capabilities { most_cpus: Some(1), ..MACHINE };

    fn place(can: &[Capabilities], cpus: &[u32], memory: Option<u64>, host: &HostFacts) -> Placement {
        let named: Vec<(String, Capabilities)> =
            can.iter().enumerate().map(|(at, can)| (format!("e{at}"), *can)).collect();
        Placement::new(&named, cpus.to_vec(), memory, host)
    }

    #[test]
    fn containers_are_left_as_they_are() {
        let placement = place(&[Capabilities::CONTAINER; 2], &[], None, &host(&[0, 1], 24 * GIB));
        assert_eq!(placement, Placement { cpus: vec![], memory_bytes: None, notes: vec![] });
    }

    #[test]
    fn the_narrowest_decides_for_all_and_cpu_0_is_left() {
        let host = host(&[0, 1, 2, 5], 24 * GIB);
        let two = Capabilities { most_cpus: Some(2), ..MACHINE };
        assert_eq!(place(&[Capabilities::CONTAINER, ONE_CPU], &[], None, &host).cpus, [5]);
        assert_eq!(place(&[two, MACHINE], &[], None, &host).cpus, [2, 5]);
        assert_eq!(place(&[two, ONE_CPU], &[], None, &host).cpus, [5]);
        // What the user says stands, even where parity will refuse it.
        let placement = place(&[ONE_CPU], &[0, 1], Some(GIB), &host);
        assert_eq!((placement.cpus, placement.notes.len()), (vec![0, 1], 0));
    }

    #[test]
    fn a_host_of_one_cpu_has_nothing_to_limit() {
        let placement = place(&[ONE_CPU], &[], Some(GIB), &host(&[3], GIB));
        assert_eq!((placement.cpus, placement.notes.len()), (vec![], 0));
    }

    #[test]
    fn machines_give_everybody_their_memory() {
        let of = |bytes: u64| place(&[Capabilities::CONTAINER, MACHINE], &[], None, &host(&[0], bytes));
        assert_eq!(of(24 * GIB).memory_bytes, Some(2 * GIB));
        assert_eq!(of(4 * GIB + 12345).memory_bytes, Some(GIB));
        let asked = place(&[MACHINE], &[], Some(GIB), &host(&[0], 24 * GIB));
        assert_eq!((asked.memory_bytes, asked.notes.len()), (Some(GIB), 0));
    }

    #[test]
    fn without_the_right_to_limit_memory_it_is_said() {
        let free = Capabilities { memory_limit: false, ..Capabilities::CONTAINER };
        let placement = place(&[free, MACHINE], &[], None, &host(&[0], 24 * GIB));
        assert_eq!(placement.memory_bytes, None);
        assert!(placement.notes[0].contains("e0 cannot be limited"), "{:?}", placement.notes);
    }

    #[test]
    fn workloads_see_what_guests_have() {
        let host = host(&[0, 1], 24 * GIB);
        let seen = place(&[ONE_CPU], &[], None, &host).of_host(&host);
        assert_eq!((seen.cpus, seen.memory_bytes), (vec![1], 2 * GIB));
        assert_eq!(place(&[], &[], None, &host).of_host(&host), host);
    }
}
