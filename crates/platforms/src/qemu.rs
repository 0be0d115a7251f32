//! Virtual machines by QEMU: a kernel booted directly, the probe as its init, a virtio port as the channel.
//!
//! The machine has no device that is not named, and no firmware beyond what starts a kernel. The kernel is the host's own or Debian's
//! for clouds ([`weigh_images::kernel`]), with its defaults, mitigations among them. Each CPU of the guest is a thread pinned to one of
//! the CPUs that were asked for; QEMU's other threads, and virtiofsd(1) where it serves files, run anywhere and are charged with the
//! guest, whose control group they are in.
//!
//! **Acceleration** is part of the environment's name: [`Platform::settle`] makes `accel=` explicit, and KVM counts only where a guest
//! has answered under it (`qemu/accel.rs`).
//!
//! **Freezing** is QEMU's `stop`. It stops the guest's clocks with its CPUs: a frozen guest does not see the time pass, and its kernel
//! has no reason to suspect a stall. Its time of day is then behind, which no workload of a run is told.
//!
//! **The root** is in memory: the skeleton as initial RAM file system. Files of the host or of an image are shared read-only by 9p where
//! the guest's kernel knows it, else by virtiofs, which needs root. Where neither can be had an image is packed into the guest's
//! memory if it fits; of the host's own files the guest then sees none, and has the builtin kernels alone.

mod accel;
mod disk;
mod guest;
mod machine;
mod prepare;
mod qmp;
mod share;

use crate::{
    Availability, Capabilities, Guest, GuestRequest, Host, KeySpec, Platform, PlatformError, Values, setting,
};
use accel::{Acceleration, Proof, Subject};
use guest::QemuGuest;
use prepare::Prepared;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weigh_host::cache::CacheDirectory;
use weigh_host::command::{Invocation, find_program};
use weigh_images::Root;
use weigh_images::kernel::GuestKernel;
use weigh_model::{EnvironmentSpec, ImageSpec, SpecError, parse_bytes};

/// Name of the platform.
const PLATFORM: &str = "qemu";
/// The program for guests of this host's kind.
const BINARY: &str = if cfg!(target_arch = "aarch64") { "qemu-system-aarch64" } else { "qemu-system-x86_64" };
/// How it is installed.
const REMEDY: &str = if cfg!(target_arch = "aarch64") {
    "install with: apt-get install qemu-system-arm"
} else {
    "install with: apt-get install qemu-system-x86"
};
/// Types of machine.
const MACHINES: &[&str] = if cfg!(target_arch = "aarch64") { &["virt"] } else { &["q35", "microvm"] };
/// What a guest has when nothing is said, but never more than half of the host's memory, bytes.
const DEFAULT_MEMORY_BYTES: u64 = 1 << 30;
/// Memory of a guest that only proves something, bytes.
const PROOF_MEMORY_BYTES: u64 = 256 << 20;
/// For QEMU to tell its version.
const VERSION_DEADLINE: Duration = Duration::from_secs(10);

/// Why machines differ from the host, by parity key.
const IMPLIES: &[(&str, &str)] = &[
    ("kernel", "a machine boots a kernel of its own"),
    ("clock-source", "a machine has clocks of its own"),
    ("cpu-model", "the machine's model of CPU"),
    ("memory", "the machine's kernel keeps a part of its memory"),
    ("transparent-huge-pages", "the default of the machine's kernel"),
    ("operating-system", "the root is in the machine's memory, with what of the image can be shared"),
    ("mounts:*", "the root is in the machine's memory, with what is shared mounted into it"),
    ("network", "the machine has no network"),
    (
        "acceleration",
        "a machine is executed by KVM or by emulation; emulation translates code, so that a loop of NOPs costs next to nothing",
    ),
    ("cache", "the environment's cache key"),
];

/// QEMU.
pub struct Qemu;

/// What the keys of an environment and the request come to.
struct Settings<'a> {
    binary: PathBuf,
    machine: &'a str,
    cpu: Option<&'a str>,
    kernel: Option<&'a Path>,
    disk_bytes: Option<u64>,
    cached: bool,
    cpus: Vec<u32>,
    memory_bytes: u64,
}

impl<'a> Settings<'a> {
    fn of(request: &'a GuestRequest) -> Result<Self, PlatformError> {
        let environment = &request.environment;
        let given = |key| Some(setting(&Qemu, environment, key)).filter(|value| !value.is_empty());
        let name = given("binary").unwrap_or(BINARY);
        let binary = find_program(name).ok_or_else(|| PlatformError::Missing {
            what: format!("the program {name}"),
            remedy: Some(REMEDY.into()),
        })?;
        let cpus = match request.cpus.as_slice() {
            [] => weigh_host::facts::allowed_cpus(),
            cpus => cpus.to_vec(),
        };
        Ok(Self {
            binary,
            machine: setting(&Qemu, environment, "machine"),
            cpu: given("cpu"),
            kernel: given("kernel").map(Path::new),
            disk_bytes: given("disk").and_then(disk_bytes),
            cached: setting(&Qemu, environment, "cache") == "writeback",
            cpus,
            memory_bytes: request.memory_bytes.unwrap_or_else(default_memory),
        })
    }
}

/// The size of the disk; `None` for `none`, and for what [`Platform::check`] has refused.
fn disk_bytes(value: &str) -> Option<u64> {
    parse_bytes(value).ok().filter(|bytes| *bytes > 0)
}

fn default_memory() -> u64 {
    DEFAULT_MEMORY_BYTES.min(weigh_host::facts::host_facts().memory_bytes / 2)
}

impl Platform for Qemu {
    fn name(&self) -> &'static str {
        PLATFORM
    }

    fn summary(&self) -> &'static str {
        "a virtual machine by QEMU, accelerated by KVM where a guest is proven to run under it, else emulated"
    }

    fn keys(&self) -> &'static [KeySpec] {
        const KEYS: &[KeySpec] = &[
            KeySpec {
                name: "accel",
                values: Values::Words(&["auto", "kvm", "tcg"]),
                default: "auto",
                summary: "what executes the guest: KVM, emulation, or KVM where it is proven; the name of the environment says which",
            },
            KeySpec {
                name: "kernel",
                values: Values::Path,
                default: "",
                summary: "the guest's kernel; else the newest of the host's that can serve, else Debian's for clouds",
            },
            KeySpec {
                name: "machine",
                values: Values::Words(MACHINES),
                default: MACHINES[0],
                summary: "QEMU's type of machine",
            },
            KeySpec {
                name: "cpu",
                values: Values::Text,
                default: "",
                summary: "QEMU's model of CPU; else `host` under KVM and `max` without",
            },
            KeySpec {
                name: "disk",
                values: Values::Text,
                default: "none",
                summary: "size of a disk, /dev/vda in the guest: a raw file filled with random content",
            },
            KeySpec {
                name: "cache",
                values: Values::Words(&["none", "writeback"]),
                default: "none",
                summary: "whether the host's page cache stands between the guest and its disk",
            },
            KeySpec {
                name: "binary",
                values: Values::Path,
                default: "",
                summary: "the QEMU to run, instead of the one that is installed",
            },
        ];
        KEYS
    }

    fn capabilities(&self, environment: &EnvironmentSpec) -> Capabilities {
        Capabilities {
            networks: &["none"],
            system: false,
            shares_kernel: false,
            freeze: true,
            needs_root: false,
            cpu_limit: true,
            memory_limit: true,
            fork: true,
            host_root: shares_files(self, environment),
            most_cpus: None,
            sized_memory: true,
            settles: true,
            implies: IMPLIES,
            timed: true,
            fake: false,
        }
    }

    fn check(&self, environment: &EnvironmentSpec) -> Result<(), SpecError> {
        let disk = setting(self, environment, "disk");
        if disk != "none" && disk_bytes(disk).is_none() {
            let help = "write a size, as in `disk=10GiB`, or `none`".into();
            return Err(environment.value_error(
                "disk",
                format!("`{disk}` is no size of a disk"),
                Some(help),
            ));
        }
        if disk == "none" && environment.get("cache").is_some() {
            let help = "name a disk too, as in `disk=10GiB`".into();
            return Err(environment.key_error("cache", "there is no disk to be cached".into(), Some(help)));
        }
        Ok(())
    }

    fn settle(&self, host: &Host, environment: &EnvironmentSpec) -> Result<EnvironmentSpec, PlatformError> {
        let acceleration = self.acceleration(host, environment)?.0;
        let mut keys = environment.keys.clone();
        keys.insert("accel".into(), acceleration.word().into());
        Ok(EnvironmentSpec::new(PLATFORM, keys))
    }

    fn availability(&self, host: &Host) -> Availability {
        crate::oci::availability(self, host, |request| {
            let request = &GuestRequest { memory_bytes: Some(PROOF_MEMORY_BYTES), ..request.clone() };
            let settings = Settings::of(request)?;
            let version = version(&settings.binary)?;
            let prepared = prepare::prepare(host, request)?;
            let (acceleration, because) = self.acceleration(host, &request.environment)?;
            let until = Instant::now() + guest::HELLO_DEADLINE;
            QemuGuest::launch(host, request, &prepared, acceleration, until)?.stop()?;
            let because = because.map(|seen| format!(" ({seen})")).unwrap_or_default();
            Ok(format!("{version}, kernel {}, {}{because}", prepared.source, described(acceleration)))
        })
    }

    fn prepare(&self, host: &Host, request: &GuestRequest) -> Result<(), PlatformError> {
        prepare::prepare(host, request).map(|_| ())
    }

    fn launch(&self, host: &Host, request: &GuestRequest) -> Result<Box<dyn Guest>, PlatformError> {
        let acceleration = self.acceleration(host, &request.environment)?.0;
        let prepared = prepare::prepare(host, request)?;
        let until = Instant::now() + guest::HELLO_DEADLINE;
        Ok(Box::new(QemuGuest::launch(host, request, &prepared, acceleration, until)?))
    }

    fn host_changes(&self, request: &GuestRequest) -> Vec<String> {
        let mut changes = Vec::new();
        let place = CacheDirectory::open().map(|cache| cache.path().display().to_string());
        let cache = place.unwrap_or_else(|| "the cache directory".into());
        changes.push(format!(
            "keep the guest's kernel in {cache}, fetched by apt-get where the host has none that serves; it stays for later runs"
        ));
        let bytes = disk_bytes(setting(self, &request.environment, "disk"));
        if let Some(bytes) = bytes {
            changes.push(format!("write a disk of {bytes} bytes in the run's work directory"));
        }
        if weigh_host::facts::is_root() {
            changes.push("make a control group weighbridge-<run>/qemu-<instance>".into());
        }
        changes.push("run a machine weighbridge-<run>-<instance>".into());
        changes
    }

    fn undo(&self, what: &str, id: &str, _: &serde_json::Value) -> Result<(), String> {
        match what {
            "machine" => guest::undo(id),
            other => Err(format!("the platform qemu never makes a {other}")),
        }
    }
}

impl Qemu {
    /// What executes guests of this environment, and, where that is emulation by want of something better, why.
    fn acceleration(
        &self,
        host: &Host,
        environment: &EnvironmentSpec,
    ) -> Result<(Acceleration, Option<String>), PlatformError> {
        let asked = setting(self, environment, "accel");
        if asked == "tcg" {
            return Ok((Acceleration::Tcg, None));
        }
        match self.proof(host, environment, CacheDirectory::open().as_ref())? {
            Proof::Proven => Ok((Acceleration::Kvm, None)),
            Proof::Disproven { seen, .. } if asked == "auto" => Ok((Acceleration::Tcg, Some(seen))),
            Proof::Disproven { seen, remedy } => {
                Err(PlatformError::Missing { what: format!("working KVM ({seen})"), remedy: Some(remedy) })
            }
        }
    }

    /// What is known of KVM for these keys, or comes out when a guest is booted.
    fn proof(
        &self,
        host: &Host,
        environment: &EnvironmentSpec,
        cache: Option<&CacheDirectory>,
    ) -> Result<Proof, PlatformError> {
        // Numbers that no run comes to, so that the guest's names are not taken.
        static NEXT: AtomicU64 = AtomicU64::new(1 << 40);
        let instance = NEXT.fetch_add(1, Ordering::Relaxed);
        let work = host.work.join(format!("{PLATFORM}-{instance}-root"));
        let mut keys = environment.keys.clone();
        // A disk proves nothing, and takes time to write.
        for key in ["disk", "cache", "label"] {
            keys.remove(key);
        }
        keys.insert("accel".into(), Acceleration::Kvm.word().into());
        let request = |root| GuestRequest {
            environment: EnvironmentSpec::new(PLATFORM, keys.clone()),
            instance,
            root: Arc::new(root),
            cpus: weigh_host::facts::allowed_cpus().into_iter().take(1).collect(),
            memory_bytes: Some(PROOF_MEMORY_BYTES),
            publish: Vec::new(),
        };
        let root = Root::prepare(&ImageSpec::Probe, &host.programs, &work, None)?;
        let request = request(root);
        // What has nothing to do with acceleration fails here, and is no disproof.
        let settings = Settings::of(&request)?;
        let prepared = prepare::prepare(host, &request)?;
        let subject = Subject {
            binary: &settings.binary,
            kernel: &prepared.kernel,
            kind: settings.machine,
            cpu: settings.cpu.unwrap_or_default(),
        };
        let proof = accel::prove(host, cache, &subject, || self.prove_by_booting(host, &request, &prepared));
        let _ = std::fs::remove_dir_all(&work);
        Ok(proof)
    }

    fn prove_by_booting(
        &self,
        host: &Host,
        request: &GuestRequest,
        prepared: &Prepared,
    ) -> Result<(), PlatformError> {
        let until = Instant::now() + accel::PROOF_DEADLINE;
        QemuGuest::launch(host, request, prepared, Acceleration::Kvm, until)?.stop()
    }
}

fn described(acceleration: Acceleration) -> &'static str {
    match acceleration {
        Acceleration::Kvm => "KVM proven by a guest",
        Acceleration::Tcg => "by emulation (accel=tcg), which says nothing about machines under KVM",
    }
}

/// First line of `--version`, without the distribution's part.
fn version(binary: &Path) -> Result<String, PlatformError> {
    let output = Invocation::new(binary).arg("--version").deadline(VERSION_DEADLINE).run_ok()?.output;
    let text = String::from_utf8_lossy(&output).into_owned();
    let line = text.lines().next().unwrap_or_default();
    Ok(line.split(" (").next().unwrap_or_default().replace(" emulator version", ""))
}

/// Whether guests see the host's files, as far as it can be told without fetching a kernel: a kernel that is fetched is Debian's, which
/// knows virtiofs and not 9p.
fn shares_files(platform: &Qemu, environment: &EnvironmentSpec) -> bool {
    let named = Some(setting(platform, environment, "kernel")).filter(|path| !path.is_empty()).map(Path::new);
    let kernel = CacheDirectory::open().and_then(|cache| GuestKernel::at_hand(named, &cache));
    match kernel {
        Some(kernel) => share::Share::of(&kernel).is_some(),
        None => weigh_host::facts::is_root() && share::daemon().is_some(),
    }
}

#[cfg(test)]
mod tests;
