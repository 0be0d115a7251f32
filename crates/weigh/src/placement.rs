//! Decides the CPUs and the memory of guests where the user does not.

use weigh_model::{HostFacts, format_bytes, number_of};
use weigh_platforms::Capabilities;

/// Memory of every guest if one of them is a VM, bytes: little enough for most hosts, and enough for
/// every workload whose size does not follow from the last-level cache.
const MACHINE_BYTES: u64 = 2 << 30;
/// Last-level caches that have to fit into a VM: `stream` has three arrays of four each, and the
/// VM's kernel and root need the rest.
const CACHES: u64 = 14;
/// A guest gets at most the host's memory divided by this, because the guests of all environments
/// exist at once.
const PART_OF_HOST: u64 = 4;

/// The resources of every guest.
#[derive(Debug, PartialEq, Eq)]
pub struct Placement {
    /// CPUs; empty means all.
    pub cpus: Vec<u32>,
    /// Memory, bytes.
    pub memory_bytes: Option<u64>,
    /// Decisions that were made for the user, in sentences to show.
    pub notes: Vec<String>,
}

impl Placement {
    /// Decides what the user's `cpus` and `memory_bytes` leave open. Environments are given by
    /// name.
    ///
    /// If one environment can only have a certain number of CPUs, all get that number (method
    /// specification, "Placement"). They get the last CPUs, so that CPU 0, which serves most
    /// interrupts, is left to weigh. A VM must have a memory size, so the other environments get
    /// that as their limit.
    ///
    /// If a server is measured, `cores` holds the cores of the host, each with its threads. Guests
    /// get the latter half of them, and the load generator the rest.
    pub fn new(
        environments: &[(String, Capabilities)],
        cpus: Vec<u32>,
        memory_bytes: Option<u64>,
        host: &HostFacts,
        cores: Option<&[Vec<u32>]>,
    ) -> Self {
        let mut placement = Self { cpus, memory_bytes, notes: Vec::new() };
        placement.limit_cpus(environments, host);
        if let Some(cores) = cores {
            placement.make_room_for_loader(cores, host);
        }
        placement.size_memory(environments, host);
        placement
    }

    fn make_room_for_loader(&mut self, cores: &[Vec<u32>], host: &HostFacts) {
        if host.cpus.len() < 2 {
            self.notes.push(
                "a server is measured, and this host has one CPU for it and its load generator: its throughput is that of both together, and \
                 gets no verdict when it is LOADER BOUND"
                    .into(),
            );
            return;
        }
        let decided = self.cpus.is_empty();
        if decided {
            self.cpus = match cores {
                [] | [_] => host.cpus[host.cpus.len().div_ceil(2)..].to_vec(),
                several => several[several.len().div_ceil(2)..].concat(),
            };
            self.cpus.sort_unstable();
        }
        let rest = loader_cpus(&self.cpus, host);
        let shared = if cores.len() == 1 { "; both are threads of one core" } else { "" };
        self.notes.push(format!(
            "a server is measured: guests get {}, the load generator {}{shared}{}",
            cpu_words(&self.cpus),
            cpu_words(&rest),
            if decided { "; --cpus names others for the guests" } else { "" }
        ));
    }

    fn limit_cpus(&mut self, environments: &[(String, Capabilities)], host: &HostFacts) {
        let bounded = environments.iter().filter_map(|(name, can)| Some((can.most_cpus? as usize, name)));
        let Some((most, name)) = bounded.min() else { return };
        if !self.cpus.is_empty() || most >= host.cpus.len() {
            return;
        }
        self.cpus = host.cpus[host.cpus.len() - most..].to_vec();
        self.notes.push(format!(
            "{name} can have {}, so every environment gets {most}: {}; --cpus says otherwise",
            number_of(most, "CPU"),
            cpu_words(&self.cpus)
        ));
    }

    fn size_memory(&mut self, environments: &[(String, Capabilities)], host: &HostFacts) {
        let Some((machine, _)) = environments.iter().find(|(_, can)| can.sized_memory) else { return };
        if self.memory_bytes.is_some() {
            return;
        }
        // It is expected that the memory of another machine cannot be limited.
        let unlimited = environments
            .iter()
            .find(|(_, can)| !can.sized_memory && !can.memory_limit && !can.fake && !can.elsewhere);
        if let Some((name, _)) = unlimited {
            self.notes.push(format!(
                "{machine} is a machine with a fixed amount of memory, and {name} cannot be limited to it here; run as root to compare them on equal memory"
            ));
            return;
        }
        let (mebibyte, gibibyte) = (1 << 20, 1 << 30);
        let caches = (CACHES * host.last_level_cache_bytes.unwrap_or(0)).next_multiple_of(gibibyte);
        let bytes = MACHINE_BYTES.max(caches).min(host.memory_bytes / PART_OF_HOST) / mebibyte * mebibyte;
        self.memory_bytes = Some(bytes);
        self.notes.push(format!(
            "{machine} is a machine with a fixed amount of memory, so every environment gets {}; --memory says otherwise",
            format_bytes(bytes)
        ));
    }

    /// Returns the host as guests see it, for the default parameters of workloads.
    pub fn of_host(&self, host: &HostFacts) -> HostFacts {
        let mut seen = host.clone();
        if !self.cpus.is_empty() {
            seen.cpus.clone_from(&self.cpus);
        }
        seen.memory_bytes = self.memory_bytes.map_or(host.memory_bytes, |bytes| bytes.min(host.memory_bytes));
        seen
    }
}

/// Returns the CPUs of a load generator: those that no guest may use, or all if there are no
/// others.
pub fn loader_cpus(guests: &[u32], host: &HostFacts) -> Vec<u32> {
    let rest: Vec<u32> = host.cpus.iter().copied().filter(|cpu| !guests.contains(cpu)).collect();
    if guests.is_empty() || rest.is_empty() { host.cpus.clone() } else { rest }
}

/// Formats CPUs as `CPU 1` or `CPUs 1,3`.
pub fn cpu_words(cpus: &[u32]) -> String {
    let listed: Vec<String> = cpus.iter().map(u32::to_string).collect();
    format!("CPU{} {}", if cpus.len() == 1 { "" } else { "s" }, listed.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn host(cpus: &[u32], memory_bytes: u64) -> HostFacts {
        HostFacts { cpus: cpus.to_vec(), memory_bytes, root: true, ..HostFacts::default() }
    }

    const MACHINE: Capabilities = Capabilities { sized_memory: true, ..Capabilities::CONTAINER };
    const ONE_CPU: Capabilities = Capabilities { most_cpus: Some(1), ..MACHINE };

    fn place(can: &[Capabilities], cpus: &[u32], memory: Option<u64>, host: &HostFacts) -> Placement {
        let named: Vec<(String, Capabilities)> =
            can.iter().enumerate().map(|(at, can)| (format!("e{at}"), *can)).collect();
        Placement::new(&named, cpus.to_vec(), memory, host, None)
    }

    /// Returns the guests' CPUs and the note, if a server is measured.
    fn serve(
        can: &[Capabilities],
        cpus: &[u32],
        host_cpus: &[u32],
        cores: &[Vec<u32>],
    ) -> (Vec<u32>, String) {
        let named: Vec<(String, Capabilities)> = can.iter().map(|can| ("e".into(), *can)).collect();
        let host = host(host_cpus, 24 * GIB);
        let placement = Placement::new(&named, cpus.to_vec(), Some(GIB), &host, Some(cores));
        (placement.cpus, placement.notes.last().cloned().unwrap_or_default())
    }

    #[test]
    fn guests_and_loader_have_cpus_of_their_own() {
        let container = [Capabilities::CONTAINER];
        let single = |cpus: &[u32]| cpus.iter().map(|cpu| vec![*cpu]).collect::<Vec<_>>();
        let (cpus, note) = serve(&container, &[], &[0, 1], &single(&[0, 1]));
        assert_eq!(cpus, [1]);
        assert!(note.contains("guests get CPU 1, the load generator CPU 0;"), "{note}");
        assert_eq!(serve(&container, &[], &[0, 1, 2], &single(&[0, 1, 2])).0, [2]);
        // The threads of a core stay on the same side.
        let threads = [vec![0, 4], vec![1, 5], vec![2, 6], vec![3, 7]];
        let (cpus, note) = serve(&container, &[], &[0, 1, 2, 3, 4, 5, 6, 7], &threads);
        assert_eq!(cpus, [2, 3, 6, 7]);
        assert!(note.contains("the load generator CPUs 0,1,4,5"), "{note}");
        let (cpus, note) = serve(&container, &[], &[0, 1], &[vec![0, 1]]);
        assert!(cpus == [1] && note.contains("threads of one core"), "{note}");
    }

    #[test]
    fn fixed_placements_stand_and_are_reported() {
        let cores: Vec<Vec<u32>> = (0..4).map(|cpu| vec![cpu]).collect();
        let (cpus, note) = serve(&[ONE_CPU], &[], &[0, 1, 2, 3], &cores);
        assert!(cpus == [3] && note.contains("the load generator CPUs 0,1,2"), "{note}");
        let (cpus, note) = serve(&[Capabilities::CONTAINER], &[0, 1], &[0, 1, 2, 3], &cores);
        assert!(cpus == [0, 1] && note.ends_with("the load generator CPUs 2,3"), "{note}");
        let (cpus, note) = serve(&[Capabilities::CONTAINER], &[], &[5], &[vec![5]]);
        assert!(cpus.is_empty() && note.contains("one CPU"), "{note}");
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
        // The user's choice stands, even if the parity check will refuse it.
        let placement = place(&[ONE_CPU], &[0, 1], Some(GIB), &host);
        assert_eq!((placement.cpus, placement.notes.len()), (vec![0, 1], 0));
    }

    #[test]
    fn a_host_of_one_cpu_has_nothing_to_limit() {
        let placement = place(&[ONE_CPU], &[], Some(GIB), &host(&[3], GIB));
        assert_eq!((placement.cpus, placement.notes.len()), (vec![], 0));
    }

    #[test]
    fn a_machine_among_the_environments_limits_the_memory_of_all() {
        let of = |bytes: u64| place(&[Capabilities::CONTAINER, MACHINE], &[], None, &host(&[0], bytes));
        assert_eq!(of(24 * GIB).memory_bytes, Some(2 * GIB));
        assert_eq!(of(4 * GIB + 12345).memory_bytes, Some(GIB));
        let asked = place(&[MACHINE], &[], Some(GIB), &host(&[0], 24 * GIB));
        assert_eq!((asked.memory_bytes, asked.notes.len()), (Some(GIB), 0));
    }

    #[test]
    fn a_machine_has_room_for_arrays_larger_than_the_caches() {
        let of = |cache_mib: u64, bytes: u64| {
            let host = HostFacts { last_level_cache_bytes: Some(cache_mib << 20), ..host(&[0], bytes) };
            place(&[MACHINE], &[], None, &host).memory_bytes
        };
        assert_eq!(of(32, 24 * GIB), Some(2 * GIB));
        assert_eq!(of(260, 24 * GIB), Some(4 * GIB), "three arrays of 1040 MiB");
        assert_eq!(of(260, 8 * GIB), Some(2 * GIB), "a quarter of the host");
    }

    #[test]
    fn an_environment_whose_memory_cannot_be_limited_is_reported() {
        let free = Capabilities { memory_limit: false, ..Capabilities::CONTAINER };
        let placement = place(&[free, MACHINE], &[], None, &host(&[0], 24 * GIB));
        assert_eq!(placement.memory_bytes, None);
        assert!(placement.notes[0].contains("e0 cannot be limited"), "{:?}", placement.notes);
    }

    #[test]
    fn workloads_see_the_cpus_and_memory_of_guests() {
        let host = host(&[0, 1], 24 * GIB);
        let seen = place(&[ONE_CPU], &[], None, &host).of_host(&host);
        assert_eq!((seen.cpus, seen.memory_bytes), (vec![1], 2 * GIB));
        assert_eq!(place(&[], &[], None, &host).of_host(&host), host);
    }
}
