//! The machine's CPUs: model, topology and placement; and the disk's thread.

use super::PLATFORM;
use super::accel::Acceleration;
use super::part::{Line, Part};
use super::qmp::{Qmp, QmpError};
use crate::vm::readback::{self, MonitorError};
use crate::vm::tune::{Model, Requirement, Tuning};
use crate::{Result, Session, SessionError};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Instant;

/// Name of the disk's thread.
pub(super) const IOTHREAD: &str = "disk-thread";
/// Models that can show the host's caches.
const SHOWS_CACHES: &[&str] = &["host", "max"];

/// How the machine's CPUs are made and placed.
#[derive(Debug, Clone)]
pub(super) struct Tune {
    tuning: Tuning,
    /// QEMU's argument; absent for QEMU's default.
    model: Option<String>,
    has_iothread: bool,
    /// What could not be set up as asked for.
    pub(super) notes: Vec<String>,
}

impl Tune {
    /// `has_disk` says whether there is a disk that a thread could serve.
    ///
    /// # Errors
    /// A thread is required for a disk that does not exist.
    pub(super) fn new(tuning: Tuning, acceleration: Acceleration, has_disk: bool) -> Result<Self> {
        let mut notes = tuning.notes.clone();
        let has_iothread = tuning.has_iothread(PLATFORM, has_disk)?;
        if !has_disk && tuning.iothread == Requirement::Preferred {
            notes.push("no thread for the disk: there is no disk".into());
        }
        let mut model = model_argument(&tuning.model, acceleration);
        let name = model.clone().unwrap_or_default();
        if tuning.caches && cfg!(target_arch = "x86_64") {
            match SHOWS_CACHES.contains(&name.as_str()) {
                true => {
                    model =
                        Some(format!("{name},host-cache-info=on{}", threads_of_amd(&tuning, acceleration)))
                }
                false => notes.push(
                    "the guest does not see the host's caches: its model of CPU has none of them".into(),
                ),
            }
        }
        Ok(Self { tuning, model, has_iothread, notes })
    }

    /// The thread that serves the disk, for the disk's device option.
    pub(super) fn iothread(&self) -> Option<&'static str> {
        self.has_iothread.then_some(IOTHREAD)
    }

    /// Confines the guest's CPU threads while the machine is paused: each to the CPU that it is
    /// pinned to, else to the run's CPUs.
    ///
    /// # Errors
    /// A thread is missing or cannot be placed, or QEMU has made other CPUs than were asked for.
    pub(super) fn place(&self, qmp: &mut Qmp, until: Instant) -> Result<(), QmpError> {
        let cpus = readback::cpus(&qmp.execute("query-cpus-fast", json!({}), until)?);
        let wanted = self.tuning.cpus.len();
        if cpus.len() != wanted {
            return Err(QmpError::Lost(format!("has {} CPUs instead of {wanted}", cpus.len())));
        }
        for (place, cpu) in cpus.iter().enumerate() {
            let own = self.tuning.pin.get(place).map(|(_, host)| std::slice::from_ref(host));
            let set = own.unwrap_or(&self.tuning.cpus);
            confine(cpu.thread, set).map_err(|error| {
                QmpError::Lost(format!("has a CPU that cannot be kept on CPU {set:?}: {error}"))
            })?;
        }
        let (asked, made) = (self.tuning.topology, readback::topology(&cpus));
        match made {
            Some(made) if made == asked => Ok(()),
            made => {
                let made = made.map_or("no grid".into(), |made| made.to_string());
                Err(QmpError::Lost(format!("made a topology {made} although {asked} was asked for")))
            }
        }
    }

    /// The facts about the CPUs that the machine really has.
    ///
    /// # Errors
    /// The connection to the guest is lost.
    pub(super) fn read_back(
        &self,
        process: u32,
        session: &mut Session,
        monitor: readback::Monitor<'_>,
    ) -> Result<BTreeMap<String, String>, SessionError> {
        let mut facts = BTreeMap::new();
        let mut put = |key: &str, value: String| facts.insert(format!("machine:{key}"), value);
        let cpus = monitor("query-cpus-fast", json!({})).map(|answer| readback::cpus(&answer));
        let cpus = match cpus {
            Ok(cpus) if !cpus.is_empty() => cpus,
            other => {
                let why = other.err().map_or("QEMU names no CPU".into(), |why| why.to_string());
                put("cpu", format!("not known: {why}"));
                return Ok(facts);
            }
        };
        put("cpu", readback::or_unknown(readback::model(monitor, &cpus[0])));
        let threads: Vec<u32> = cpus.iter().map(|cpu| cpu.thread).collect();
        put("placement", readback::placement(process, &threads));
        let numbers: Vec<u32> = cpus.iter().map(|cpu| cpu.index).collect();
        let (inside, caches) = readback::seen_inside(session, &numbers)?;
        let made = readback::topology(&cpus);
        let words =
            |topology: Option<_>| topology.map_or("not reported".into(), |topology| format!("{topology}"));
        let own = if inside == made { String::new() } else { format!(" (QEMU has {})", words(made)) };
        put("topology", words(inside) + &own);
        put("caches", caches);
        put("iothread", readback::or_unknown(readback::iothreads(monitor)));
        Ok(facts)
    }
}

/// QEMU's name for a model; `None` for QEMU's default. On Arm the default is a 32-bit processor, so
/// one is always named.
pub(super) fn model_argument(model: &Model, acceleration: Acceleration) -> Option<String> {
    let hosts = match acceleration {
        Acceleration::Kvm => "host",
        Acceleration::Tcg => "max",
    };
    match model {
        Model::Default if cfg!(target_arch = "x86_64") => None,
        Model::Default | Model::Host => Some(hosts.into()),
        Model::Named(name) => Some(name.clone()),
    }
}

/// A guest recognises an AMD processor's threads only with this feature.
fn threads_of_amd(tuning: &Tuning, acceleration: Acceleration) -> &'static str {
    let is_amd = || {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        text.lines().any(|line| line.starts_with("vendor_id") && line.ends_with("AuthenticAMD"))
    };
    let needed = tuning.topology.threads > 1 && acceleration == Acceleration::Kvm;
    if needed && is_amd() { ",topoext=on" } else { "" }
}

impl Part for Tune {
    fn arguments(&self, line: &mut Line) {
        if let Some(model) = &self.model {
            line.pair("-cpu", model);
        }
        let Tuning { topology, .. } = &self.tuning;
        let (count, sockets, cores) = (self.tuning.cpus.len(), topology.sockets, topology.cores);
        let threads = topology.threads;
        line.pair(
            "-smp",
            &format!("{count},maxcpus={count},sockets={sockets},cores={cores},threads={threads}"),
        );
        if self.has_iothread {
            line.pair("-object", &format!("iothread,id={IOTHREAD}"));
        }
    }
}

/// Restricts a thread to these CPUs.
fn confine(thread: u32, cpus: &[u32]) -> rustix::io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu as usize));
    rustix::thread::sched_setaffinity(rustix::process::Pid::from_raw(thread.cast_signed()), &set)
}

/// A monitor in the form that [`readback`] takes.
pub(super) fn asked(qmp: &mut Qmp, until: Instant) -> impl FnMut(&str, Value) -> Result<Value, MonitorError> {
    move |command, arguments| Ok(qmp.execute(command, arguments, until)?)
}

#[cfg(test)]
mod tests {
    use super::super::part::line_of;
    use super::*;
    use crate::vm::tune::HostCpu;
    use weigh_model::EnvironmentSpec;

    fn tune(keys: &str, acceleration: Acceleration, has_disk: bool) -> Result<Tune> {
        let environment = EnvironmentSpec::parse(&format!("qemu:{keys}")).unwrap();
        let cpus = [0, 1].map(|number| HostCpu { number, package: 0, core: number, node: 0 });
        Tune::new(Tuning::of(&super::super::Qemu, &environment, &cpus).unwrap(), acceleration, has_disk)
    }

    fn line(keys: &str, acceleration: Acceleration, has_disk: bool) -> String {
        line_of(&tune(keys, acceleration, has_disk).unwrap())
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn an_untuned_machine_has_qemus_defaults() {
        let untuned = line("tune=off", Acceleration::Kvm, true);
        assert_eq!(untuned, "-smp 2,maxcpus=2,sockets=2,cores=1,threads=1 -machine type");
        let named = line("cpu=Haswell", Acceleration::Tcg, true);
        assert!(named.starts_with("-cpu Haswell -smp 2,maxcpus=2,sockets=2"), "{named}");
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_tuned_machine_has_the_hosts_cpu_and_caches() {
        let kvm = line("tune=on", Acceleration::Kvm, true);
        assert!(kvm.starts_with("-cpu host,host-cache-info=on -smp 2,maxcpus=2,sockets=1,cores=2"), "{kvm}");
        assert!(kvm.contains("-object iothread,id=disk-thread"), "{kvm}");
        let tcg = tune("tune=on", Acceleration::Tcg, false).unwrap();
        assert!(line_of(&tcg).starts_with("-cpu max,host-cache-info=on -smp"), "{}", line_of(&tcg));
        assert!(!line_of(&tcg).contains("iothread"), "{}", line_of(&tcg));
        assert_eq!((tcg.iothread(), &tcg.notes[0][..]), (None, "no thread for the disk: there is no disk"));
        assert!(
            tune("iothread=on", Acceleration::Tcg, false).unwrap_err().to_string().contains("iothread=off")
        );
        let blind = tune("tune=on,cpu=Haswell", Acceleration::Kvm, true).unwrap();
        assert!(blind.notes[0].contains("caches"), "{:?}", blind.notes);
    }
}
