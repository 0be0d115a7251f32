//! How a machine's CPUs and memory are made and placed, derived from an environment's keys and the
//! host's CPUs.
//!
//! *Untuned* is what a cloud gives by default: guest CPUs that may run on any of the run's CPUs, a
//! flat topology in which each is its own socket, the VMM's default CPU model, ordinary pages.
//! *Tuned* is what Felter et al. (ISPASS 2015, sections II-B, III-A, IV) name as necessary for good
//! CPU performance: pinning, the host's CPU model, its topology with the caches, large pages; and a
//! separate thread for the disk. Everything but [`host_cpus`] is pure.

use crate::{KeySpec, Platform, PlatformError, Result, Values, setting};
use std::collections::BTreeMap;
use std::path::Path;
use weigh_model::{EnvironmentSpec, SpecError};

/// Values of a key that follows `tune` unless it is given.
const SWITCH: Values = Values::Words(&["auto", "on", "off"]);

/// The key `tune`.
pub(crate) const TUNE: KeySpec = KeySpec::words("tune", &["off", "on", "custom"]).about(
    "off: as a cloud gives machines by default; on: pinned, with the host's CPU, topology and \
        caches, large pages, a thread for the disk; custom: off except for the keys that are given",
);
/// The key `pin`.
pub(crate) const PIN: KeySpec = KeySpec::new("pin", SWITCH).or("auto").about(
    "whether each CPU of the guest stays on one CPU of the run, siblings beside siblings; auto: \
        as `tune` says",
);
/// The key `cpu`.
pub(crate) const CPU: KeySpec = KeySpec::text("cpu").about(
    "the VMM's model of CPU; default: that of the VMM, or where it is tuned the host's (without \
        KVM everything that can be emulated)",
);
/// The key `topology`.
pub(crate) const TOPOLOGY: KeySpec = KeySpec::text("topology").or("auto").about(
    "what the guest sees: flat (every CPU a socket), host (sockets, cores, threads and caches of \
        its CPUs), or SOCKETSxCORESxTHREADS; auto: as `tune` says",
);
/// The key `hugepages`.
pub(crate) const HUGEPAGES: KeySpec = KeySpec::new("hugepages", SWITCH).or("auto").about(
    "whether the guest's memory is of reserved large pages; auto: as `tune` says, where they are available",
);
/// The key `iothread`.
pub(crate) const IOTHREAD: KeySpec = KeySpec::new("iothread", SWITCH).or("auto").about(
    "whether the guest's disk has a thread of its own in the VMM; auto: as `tune` says, where \
        there is a disk",
);

/// A CPU of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HostCpu {
    /// The kernel's number of it.
    pub(crate) number: u32,
    /// Socket.
    pub(crate) package: u32,
    /// Core, unique in its socket.
    pub(crate) core: u32,
    /// NUMA node.
    pub(crate) node: u32,
}

/// Number of sockets, of cores in each, of threads in each core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Topology {
    pub(crate) sockets: u32,
    pub(crate) cores: u32,
    pub(crate) threads: u32,
}

impl Topology {
    /// The topology in which every CPU is a socket.
    pub(crate) fn flat(cpus: u32) -> Self {
        Self { sockets: cpus, cores: 1, threads: 1 }
    }

    /// Parses a topology like `2x4x2`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('x').map(|word| word.parse().ok().filter(|number| *number > 0));
        let (sockets, cores, threads) = (numbers.next()??, numbers.next()??, numbers.next()??);
        numbers.next().is_none().then_some(Self { sockets, cores, threads })
    }

    /// How many CPUs it has.
    pub(crate) fn cpus(self) -> u32 {
        self.sockets.saturating_mul(self.cores).saturating_mul(self.threads)
    }
}

/// The order of QEMU and libvirt, as in `2x4x2`.
impl std::fmt::Display for Topology {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}x{}", self.sockets, self.cores, self.threads)
    }
}

/// The CPU model that the guest sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Model {
    /// The VMM's default.
    Default,
    /// The host's model under KVM; without KVM the one with every feature that can be emulated.
    Host,
    /// By the VMM's name.
    Named(String),
}

impl Model {
    /// The model that the keys ask for.
    pub(crate) fn of(platform: &dyn Platform, environment: &EnvironmentSpec) -> Self {
        match setting(platform, environment, CPU.name) {
            "" if setting(platform, environment, TUNE.name) == "on" => Self::Host,
            "" => Self::Default,
            name => Self::Named(name.into()),
        }
    }
}

/// Whether the machine gets a feature that is not available everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requirement {
    /// The machine goes without it.
    Off,
    /// The machine gets it if possible; otherwise it goes without and reports why.
    Preferred,
    /// The machine gets it, or does not start.
    Required,
}

/// How a machine's CPUs and memory are made and placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tuning {
    /// Pairs of a guest CPU and the host CPU that it stays on; empty if all guest CPUs may run on
    /// any of `cpus`.
    pub(crate) pin: Vec<(u32, u32)>,
    /// The run's CPUs, ascending.
    pub(crate) cpus: Vec<u32>,
    pub(crate) model: Model,
    /// The sockets, cores and threads that the guest sees; flat by default.
    pub(crate) topology: Topology,
    /// Whether the guest sees the host's caches.
    pub(crate) caches: bool,
    pub(crate) hugepages: Requirement,
    pub(crate) iothread: Requirement,
    /// What could not be done as asked for.
    pub(crate) notes: Vec<String>,
}

impl Tuning {
    /// Derives the tuning of a guest on these CPUs, which are the run's.
    ///
    /// # Errors
    /// A given topology has another number of CPUs; the error has a remedy.
    pub(crate) fn of(
        platform: &dyn Platform,
        environment: &EnvironmentSpec,
        cpus: &[HostCpu],
    ) -> Result<Self> {
        let is_tuned = setting(platform, environment, TUNE.name) == "on";
        let word = |key: &KeySpec| match setting(platform, environment, key.name) {
            "auto" | "" => None,
            word => Some(word),
        };
        let requirement = |key: &KeySpec| match (word(key), is_tuned) {
            (Some("on"), _) => Requirement::Required,
            (None, true) => Requirement::Preferred,
            _ => Requirement::Off,
        };
        let mut order = cpus.to_vec();
        order.sort_by_key(|cpu| (cpu.package, cpu.core, cpu.number));
        let count = u32::try_from(cpus.len()).unwrap_or(u32::MAX);
        let mut notes = Vec::new();
        let shown = word(&TOPOLOGY).unwrap_or(if is_tuned { "host" } else { "flat" });
        let topology = match shown {
            "flat" => Topology::flat(count),
            "host" => grid(&order).unwrap_or_else(|why| {
                notes.push(format!("the topology is that of one socket: {why}"));
                Topology { sockets: 1, cores: count, threads: 1 }
            }),
            text => Topology::parse(text).filter(|topology| topology.cpus() == count).ok_or_else(|| {
                let remedy = "write one that has as many, or `host`";
                PlatformError::launch(
                    platform.name(),
                    format!("topology={text} does not fit {count} CPUs; {remedy}"),
                )
            })?,
        };
        let nodes: std::collections::BTreeSet<u32> = cpus.iter().map(|cpu| cpu.node).collect();
        if nodes.len() > 1 {
            notes.push(format!("the guest sees one NUMA node although its CPUs are in {}", nodes.len()));
        }
        let pinned = word(&PIN).map_or(is_tuned, |word| word == "on");
        let pin = (0..).zip(&order).filter(|_| pinned).map(|(guest, cpu)| (guest, cpu.number)).collect();
        let model = Model::of(platform, environment);
        let mut cpus: Vec<u32> = cpus.iter().map(|cpu| cpu.number).collect();
        cpus.sort_unstable();
        let (hugepages, iothread) = (requirement(&HUGEPAGES), requirement(&IOTHREAD));
        Ok(Self { pin, cpus, model, topology, caches: shown == "host", hugepages, iothread, notes })
    }

    /// Whether a separate thread serves the guest's disks.
    ///
    /// # Errors
    /// It is asked for by name and there is no disk.
    pub(crate) fn has_iothread(&self, platform: &'static str, has_disk: bool) -> Result<bool> {
        if !has_disk && self.iothread == Requirement::Required {
            let reason = "there is no disk for iothread=on to apply to; name one, or use iothread=off";
            return Err(PlatformError::launch(platform, reason));
        }
        Ok(has_disk && self.iothread != Requirement::Off)
    }
}

/// The grid that these CPUs form; they are ordered by socket, core and thread.
///
/// # Errors
/// The CPUs form no grid; the error says why.
fn grid(order: &[HostCpu]) -> Result<Topology, &'static str> {
    // Counts of threads, by socket and core.
    let mut sockets: BTreeMap<u32, BTreeMap<u32, u32>> = BTreeMap::new();
    for cpu in order {
        *sockets.entry(cpu.package).or_default().entry(cpu.core).or_default() += 1;
    }
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let cores: Vec<u32> = sockets.values().map(|cores| count(cores.len())).collect();
    let threads: Vec<u32> = sockets.values().flat_map(|cores| cores.values().copied()).collect();
    let same = |numbers: &[u32]| numbers.windows(2).all(|pair| pair[0] == pair[1]);
    match (threads.first(), cores.first()) {
        _ if !same(&threads) => Err("its cores have different numbers of threads"),
        _ if !same(&cores) => Err("its sockets have different numbers of cores"),
        (Some(threads), Some(first)) => {
            Ok(Topology { sockets: count(sockets.len()), cores: *first, threads: *threads })
        }
        _ => Err("it has no CPUs"),
    }
}

/// Checks what [`KeySpec`] cannot express about these keys.
///
/// # Errors
/// The topology is invalid, or a custom tuning sets nothing.
pub(crate) fn check(environment: &EnvironmentSpec) -> Result<(), SpecError> {
    let topology = environment.get(TOPOLOGY.name).unwrap_or_default();
    if !["", "auto", "flat", "host"].contains(&topology) && Topology::parse(topology).is_none() {
        let help = "write `flat`, `host`, or sockets, cores and threads as in `1x2x1`";
        return Err(environment.value_error(TOPOLOGY.name, format!("`{topology}` is not a topology"), help));
    }
    let single = [PIN, CPU, TOPOLOGY, HUGEPAGES, IOTHREAD];
    if environment.get(TUNE.name) == Some("custom")
        && single.iter().all(|key| environment.get(key.name).is_none())
    {
        let names: Vec<&str> = single.iter().map(|key| key.name).collect();
        let help = format!("add one or more of {}, as in `tune=custom,pin=on`", names.join(", "));
        return Err(environment.value_error(TUNE.name, "nothing is tuned", help));
    }
    Ok(())
}

/// The CPUs of the host whose file system begins at `root`, as far as the kernel reports them. A
/// CPU about which it reports nothing is a core of one socket.
pub(crate) fn host_cpus(root: &Path, numbers: &[u32]) -> Vec<HostCpu> {
    let of = |number: &u32| {
        let directory = root.join(format!("sys/devices/system/cpu/cpu{number}"));
        let read = |file: &str| {
            let text = std::fs::read_to_string(directory.join("topology").join(file)).ok()?;
            // Some machines report -1 for a missing number.
            text.trim().parse::<i64>().ok().and_then(|number| u32::try_from(number).ok())
        };
        let names = std::fs::read_dir(&directory).into_iter().flatten().flatten();
        let node = names.filter_map(|entry| entry.file_name().to_str()?.strip_prefix("node")?.parse().ok());
        HostCpu {
            number: *number,
            package: read("physical_package_id").unwrap_or(0),
            core: read("core_id").unwrap_or(*number),
            node: node.min().unwrap_or(0),
        }
    };
    numbers.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// An arbitrary platform that has these keys.
    fn platform() -> &'static dyn Platform {
        crate::find("qemu").unwrap()
    }

    /// (number, socket, core, node) of every CPU.
    fn host(cpus: &[(u32, u32, u32, u32)]) -> Vec<HostCpu> {
        let cpu = |&(number, package, core, node): &_| HostCpu { number, package, core, node };
        cpus.iter().map(cpu).collect()
    }

    fn tuning(keys: &str, cpus: &[(u32, u32, u32, u32)]) -> Tuning {
        let environment = EnvironmentSpec::parse(&format!("qemu:{keys}")).unwrap();
        Tuning::of(platform(), &environment, &host(cpus)).unwrap()
    }

    const PLAIN: &[(u32, u32, u32, u32)] = &[(0, 0, 0, 0), (1, 0, 1, 0)];
    /// Two sockets of two cores with two threads, numbered as Linux does on Intel processors:
    /// siblings are far apart.
    const SERVER: &[(u32, u32, u32, u32)] = &[
        (0, 0, 0, 0),
        (1, 0, 1, 0),
        (2, 1, 0, 1),
        (3, 1, 1, 1),
        (4, 0, 0, 0),
        (5, 0, 1, 0),
        (6, 1, 0, 1),
        (7, 1, 1, 1),
    ];

    #[test]
    fn untuned_is_free_flat_and_ordinary() {
        for keys in ["tune=off", "label=x"] {
            let tuning = tuning(keys, SERVER);
            assert_eq!(tuning.pin, []);
            assert_eq!(tuning.cpus, [0, 1, 2, 3, 4, 5, 6, 7]);
            assert_eq!(tuning.topology.to_string(), "8x1x1");
            assert_eq!(
                (tuning.model, tuning.caches, tuning.hugepages, tuning.iothread),
                (Model::Default, false, Requirement::Off, Requirement::Off)
            );
        }
    }

    #[test]
    fn siblings_lie_beside_each_other() {
        let tuned = tuning("tune=on", SERVER);
        let on: Vec<u32> = tuned.pin.iter().map(|(_, host)| *host).collect();
        assert_eq!(on, [0, 4, 1, 5, 2, 6, 3, 7]);
        assert_eq!(tuned.pin.iter().map(|(guest, _)| *guest).collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
        assert_eq!(tuned.topology, Topology { sockets: 2, cores: 2, threads: 2 });
        assert_eq!(
            (tuned.model, tuned.caches, tuned.hugepages, tuned.iothread),
            (Model::Host, true, Requirement::Preferred, Requirement::Preferred)
        );
        // The guest sees one node although the host has two.
        assert_eq!(tuned.notes, ["the guest sees one NUMA node although its CPUs are in 2"]);
        // NUMA nodes within one socket are not sockets.
        let clustered = tuning("tune=on", &[(0, 0, 0, 0), (1, 0, 1, 1)]);
        assert_eq!((clustered.topology.to_string(), clustered.notes.len()), ("1x2x1".into(), 1));
    }

    #[test]
    fn without_siblings_cores_follow_each_other() {
        let tuned = tuning("tune=on", PLAIN);
        assert_eq!(tuned.pin, [(0, 0), (1, 1)]);
        assert_eq!(tuned.topology.to_string(), "1x2x1");
        assert_eq!(tuned.notes, [""; 0]);
    }

    #[test]
    fn the_topology_of_a_part_of_the_host_follows_its_cores() {
        // One thread of each core of one socket.
        let half = tuning("tune=on", &[SERVER[1], SERVER[0]]);
        assert_eq!((half.topology.to_string(), half.pin), ("1x2x1".into(), vec![(0, 0), (1, 1)]));
        assert_eq!(half.cpus, [0, 1]);
        // Both threads of one core.
        let core = tuning("tune=on", &[SERVER[2], SERVER[6]]);
        assert_eq!((core.topology.to_string(), core.pin), ("1x1x2".into(), vec![(0, 2), (1, 6)]));
        // One core with two threads and one with a single thread.
        let odd = tuning("tune=on", &[SERVER[0], SERVER[1], SERVER[4]]);
        assert_eq!((odd.topology.to_string(), odd.pin), ("1x3x1".into(), vec![(0, 0), (1, 4), (2, 1)]));
        assert!(odd.notes[0].contains("numbers of threads"), "{:?}", odd.notes);
        // Two cores of one socket and one core of the other.
        let lopsided = tuning("tune=on", &[SERVER[0], SERVER[1], SERVER[2]]);
        assert_eq!(lopsided.topology.to_string(), "1x3x1");
        assert!(lopsided.notes[0].contains("numbers of cores"), "{:?}", lopsided.notes);
    }

    #[test]
    fn single_keys_decide_over_the_whole() {
        let without = tuning("tune=on,pin=off,topology=flat,hugepages=off,iothread=off,cpu=qemu64", PLAIN);
        let off = tuning("tune=off", PLAIN);
        assert_eq!(Tuning { model: Model::Default, ..without.clone() }, off);
        assert_eq!(without.model, Model::Named("qemu64".into()));
        let pinned = tuning("tune=custom,pin=on", PLAIN);
        assert_eq!(Tuning { pin: Vec::new(), ..pinned.clone() }, off);
        assert_eq!(pinned.pin.len(), 2);
        let required = tuning("hugepages=on,iothread=on,topology=2x1x1", PLAIN);
        assert_eq!((required.hugepages, required.iothread), (Requirement::Required, Requirement::Required));
        assert_eq!((required.topology.to_string(), required.caches), ("2x1x1".into(), false));
    }

    #[test]
    fn a_topology_must_match_the_number_of_cpus() {
        let environment = EnvironmentSpec::parse("qemu:topology=2x2x1").unwrap();
        let error = Tuning::of(platform(), &environment, &host(PLAIN)).unwrap_err().to_string();
        assert!(error.contains("2x2x1") && error.contains("2 CPUs"), "{error}");
        for wrong in ["2", "0x2x1", "2x1", "1x2x1x1", "axbxc", ""] {
            assert_eq!(Topology::parse(wrong), None, "{wrong}");
        }
        let refused = |text: &str| {
            let error = check(&EnvironmentSpec::parse(text).unwrap()).unwrap_err();
            error.text[error.span].to_string()
        };
        assert_eq!(refused("qemu:topology=ring"), "ring");
        assert_eq!(refused("qemu:tune=custom"), "custom");
        check(&EnvironmentSpec::parse("qemu:tune=custom,cpu=max,topology=1x2x1").unwrap()).unwrap();
    }

    #[test]
    fn the_placement_of_cpus_is_read_from_sysfs() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let file = root.path().join("sys/devices/system/cpu").join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        write("cpu3/topology/physical_package_id", "1\n");
        write("cpu3/topology/core_id", "9\n");
        write("cpu3/node1/x", "");
        write("cpu4/topology/physical_package_id", "-1\n");
        let expected = host(&[(3, 1, 9, 1), (4, 0, 4, 0)]);
        assert_eq!(host_cpus(root.path(), &[3, 4]), expected);
        let real = host_cpus(Path::new("/"), &weigh_host::facts::allowed_cpus());
        assert!(grid(&real).is_ok() || real.len() > 2, "{real:?}");
    }
}
