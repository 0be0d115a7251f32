//! Virtual machines by QEMU: a kernel booted directly, the probe as its init, a virtio port as the
//! channel.
//!
//! The machine has only the devices that its command line names, and no firmware beyond what starts
//! a kernel. The kernel is the host's own or Debian's cloud kernel ([`weigh_images::kernel`]), with
//! its defaults, including mitigations. Each CPU of the guest is a thread that may run on the CPUs
//! that were asked for, pinned to one of them where the machine is tuned (`vm/tune.rs`). QEMU's
//! other threads, and virtiofsd(1) where it serves files, run anywhere; they are in the guest's
//! control group and charged to it.
//!
//! **Acceleration** is part of the environment's name: [`Platform::make_explicit`] makes `accel=`
//! explicit, and KVM counts only where a guest has answered under it (`qemu/accel.rs`).
//!
//! **Freezing** is QEMU's `stop`. It stops the guest's clocks with its CPUs: a frozen guest does
//! not see the time pass, and its kernel has no reason to suspect a stall. Its time of day is then
//! behind, which no workload of a run learns.
//!
//! **The root** is in memory: the skeleton is the initial RAM file system. Files of the host or of
//! an image are shared read-only, by 9p where the guest's kernel supports it, else by virtiofs,
//! which needs root. If neither works, an image is packed into the guest's memory, provided it
//! fits; the guest then sees none of the host's own files and has only the builtin kernels.
//! `root=disk` puts the image on an ext4 disk, with an overlay for each guest; a full system can
//! start from it (`init=full`).

pub(crate) mod accel;
mod channel;
pub(crate) mod confine;
mod devices;
mod disks;
mod end;
mod guest;
mod keys;
mod machine;
mod memory;
mod meter;
pub(crate) mod net;
mod part;
mod prepare;
mod qmp;
pub(crate) mod share;
mod state;
pub(crate) mod storage;
mod tune;

#[doc(hidden)]
pub use qmp::fuzz as fuzz_qmp;

use crate::helpers::version_line;
use crate::mapped::MONITOR_USER;
use crate::vm::boot;
use crate::vm::disk::DataDiskSpec;
use crate::vm::tune::{Model, Tuning, host_cpus};
use crate::{
    About, Availability, Capabilities, Guest, GuestRequest, Host, Platform, PlatformError, Result,
    common_keys, setting,
};
use accel::{Acceleration, Proof, Subject};
use disks::{Cache, DiskOptions};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weigh_host::accounts::is_owned;
use weigh_host::cache::CacheDirectory;
use weigh_model::{EnvironmentSpec, SpecError, parse_bytes};

/// Name of the platform.
const PLATFORM: &str = "qemu";
/// The QEMU program for guests of this host's architecture.
const BINARY: &str = if cfg!(target_arch = "aarch64") { "qemu-system-aarch64" } else { "qemu-system-x86_64" };
/// How QEMU is installed.
const REMEDY: &str = if cfg!(target_arch = "aarch64") {
    "install it with `apt-get install qemu-system-arm`"
} else {
    "install it with `apt-get install qemu-system-x86`"
};
/// Time limit from the start of QEMU, or of the client that asks for it, to the probe's hello,
/// without acceleration on a busy host.
pub(crate) const HELLO_DEADLINE: Duration = Duration::from_secs(60);
/// What QEMU itself may take beyond the guest's memory, bytes: the translator's code (up to 1 GiB),
/// device models, page tables.
pub(crate) const SLACK_BYTES: u64 = 1536 << 20;
/// Types of machine.
const MACHINES: &[&str] = if cfg!(target_arch = "aarch64") { &["virt"] } else { &["q35", "pc", "microvm"] };

/// Why machines differ from the host, by parity key.
const IMPLIES: &[(&str, &str)] = &[
    ("kernel", "a machine boots a kernel of its own"),
    ("clock-source", "a machine has clocks of its own"),
    ("cpu-model", "the machine's model of CPU"),
    ("memory", "the machine's kernel keeps a part of its memory"),
    ("transparent-huge-pages", "the default of the machine's kernel"),
    (
        "operating-system",
        "the root is in the machine's memory, with whatever of the image can be shared, or on a disk",
    ),
    ("mounts:*", "the root is in the machine's memory, with what is shared mounted into it, or on a disk"),
    ("root", "what a machine has as its root, as its key `root` says"),
    ("disk", "the environment's keys of disks"),
    ("network", "a network of the machine's own, as `net` says"),
    ("network-card", "a card of the machine's own, served as `net` and `vhost` say"),
    (
        "acceleration",
        "a machine is executed by KVM or by emulation; emulation translates code, so that a loop of NOPs costs next to nothing",
    ),
    ("cache", "the environment's cache key"),
    ("machine:", "how the machine is made and placed"),
];

/// QEMU.
pub struct Qemu;

/// The settings that follow from an environment's keys and the request.
struct Settings<'a> {
    binary: PathBuf,
    machine: &'a str,
    /// How the machine's CPUs and memory are made and placed.
    tuning: Tuning,
    kernel: Option<&'a Path>,
    disk: Option<DataDiskSpec>,
    opening: DiskOptions,
    root: RootKind,
    /// Whether the guest boots a full system.
    system: bool,
    memory_bytes: u64,
    balloon_bytes: u64,
    is_merged: bool,
}

impl<'a> Settings<'a> {
    fn of(request: &'a GuestRequest) -> Result<Self> {
        let environment = &request.environment;
        let given = |key| Some(setting(&Qemu, environment, key)).filter(|value| !value.is_empty());
        let binary = binary(environment)?;
        let tuning = Tuning::of(&Qemu, environment, &host_cpus(Path::new("/"), &request.cpus_or_all()))?;
        Ok(Self {
            binary,
            machine: setting(&Qemu, environment, "machine"),
            tuning,
            kernel: given("kernel").map(Path::new),
            disk: DataDiskSpec::of(&Qemu, environment),
            opening: opening(environment),
            root: RootKind::of(environment),
            system: is_system(environment),
            memory_bytes: request.memory_bytes.unwrap_or_else(crate::vm::default_memory_bytes),
            balloon_bytes: given("balloon").and_then(size).unwrap_or(0),
            is_merged: setting(&Qemu, environment, "ksm") == "on",
        })
    }
}

/// The size of a disk or a balloon; `None` for `none` and for values that [`Platform::check`]
/// refuses.
fn size(value: &str) -> Option<u64> {
    parse_bytes(value).ok().filter(|bytes| *bytes > 0)
}

/// The QEMU program that the environment names, or the installed one.
fn binary(environment: &EnvironmentSpec) -> Result<PathBuf> {
    common_keys::program(&Qemu, environment, BINARY, REMEDY)
}

/// Where the root is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RootKind {
    /// Shared files if possible, else memory.
    Auto,
    Initramfs,
    Disk,
    Shared(share::Share),
}

impl RootKind {
    fn of(environment: &EnvironmentSpec) -> Self {
        match setting(&Qemu, environment, "root") {
            "auto" if is_system(environment) => Self::Disk,
            "disk" => Self::Disk,
            "initramfs" => Self::Initramfs,
            word => share::Share::from_name(word).map_or(Self::Auto, Self::Shared),
        }
    }
}

/// Whether guests have an init of their own.
fn is_system(environment: &EnvironmentSpec) -> bool {
    setting(&Qemu, environment, "init") == "full"
}

/// How the disks are opened.
fn opening(environment: &EnvironmentSpec) -> DiskOptions {
    let cache = Cache::of(setting(&Qemu, environment, "cache"));
    let aio = disks::aio(setting(&Qemu, environment, "aio"), cache).to_string();
    DiskOptions { cache, aio, iothread: None }
}

/// Checks the keys of disks and roots against each other.
fn check_disks(environment: &EnvironmentSpec) -> Result<(), SpecError> {
    DataDiskSpec::check(&Qemu, environment)?;
    let (on_disk, system) = (RootKind::of(environment) == RootKind::Disk, is_system(environment));
    let without = setting(&Qemu, environment, "disk") == "none" && !on_disk;
    let about = ["cache", "aio"].into_iter().find(|key| environment.get(key).is_some());
    if let Some(key) = about.filter(|_| without) {
        let help = "name a disk too, as in `disk=raw,size=10GiB`";
        return Err(environment.key_error(key, format!("there is no disk for `{key}` to apply to"), help));
    }
    let opening = opening(environment);
    if opening.aio == "native" && !opening.cache.direct {
        let message = format!(
            "aio=native blocks where the host's page cache is in its way, as with cache={}",
            opening.cache.word
        );
        let help = "write aio=threads or aio=io_uring, or cache=none or cache=directsync";
        return Err(environment.value_error("aio", message, help));
    }
    if system && !on_disk {
        let message = "a system starts from a disk";
        return Err(environment.value_error("root", message, "write root=disk, or leave it out"));
    }
    if on_disk && let Some(word) = environment.get("rootfs").filter(|word| ["host", "probe"].contains(word)) {
        let help = "write `rootfs=debian`, a directory or an archive of a root file system";
        let message = format!("no disk can be made from the image `{word}`");
        return Err(environment.value_error("rootfs", message, help));
    }
    Ok(())
}

const ABOUT: About = About {
    name: PLATFORM,
    summary: "a virtual machine by QEMU, accelerated by KVM where a guest is proven to run under it, else emulated",
    keys: keys::KEYS,
};

impl Platform for Qemu {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn capabilities(&self, environment: &EnvironmentSpec) -> Capabilities {
        Capabilities {
            system: is_system(environment),
            keeps_secrets: weigh_host::facts::is_root(),
            needs_root: net::needs_root(environment),
            host_root: shares_files(self, environment),
            makes_explicit: true,
            implies: IMPLIES,
            ..Capabilities::MACHINE
        }
        .with_networks(self, environment)
    }

    fn check(&self, environment: &EnvironmentSpec) -> Result<(), SpecError> {
        net::check(environment)?;
        check_disks(environment)?;
        crate::vm::tune::check(environment)?;
        devices::check(environment)?;
        memory::check(environment)
    }

    fn make_explicit(&self, host: &Host, environment: &EnvironmentSpec) -> Result<EnvironmentSpec> {
        channel::Channel::check(environment)?;
        net::available(host, environment)?;
        if opening(environment).aio == "io_uring" {
            disks::check_io_uring(&binary(environment)?)?;
        }
        let acceleration = self.acceleration(host, environment)?.0;
        Ok(environment.with("accel", acceleration.as_str()))
    }

    fn availability(&self, host: &Host) -> Availability {
        crate::oci::availability(self, host, |request| {
            let request = &GuestRequest { memory_bytes: Some(accel::PROOF_MEMORY_BYTES), ..request.clone() };
            let settings = Settings::of(request)?;
            let version = version(&settings.binary)?;
            let prepared = prepare::prepare(host, request)?;
            let (acceleration, because) = self.acceleration(host, &request.environment)?;
            let until = Instant::now() + weigh_host::deadlines::scaled(HELLO_DEADLINE);
            guest::launch(host, request, &prepared, acceleration, None, until)?.stop()?;
            let because = because.map(|seen| format!(" ({seen})")).unwrap_or_default();
            Ok(format!("{version}, kernel {}, {}{because}", prepared.source, acceleration.described()))
        })
    }

    fn prepare(&self, host: &Host, request: &GuestRequest) -> Result<()> {
        prepare::prepare(host, request).map(|_| ())
    }

    fn launch(&self, host: &Host, request: &GuestRequest) -> Result<Box<dyn Guest>> {
        self.start(host, request, None)
    }

    fn restores(&self, host: &Host, request: &GuestRequest) -> Result<()> {
        let prepared = prepare::prepare(host, request)?;
        state::why_not_savable(request, &prepared)
            .map_or(Ok(()), |why| Err(PlatformError::CannotRestore(why)))
    }

    fn restore(&self, host: &Host, request: &GuestRequest, saved: &Path) -> Result<Box<dyn Guest>> {
        self.restores(host, request).map_err(state::unavailable)?;
        self.start(host, request, Some(saved))
    }

    fn host_changes(&self, request: &GuestRequest) -> Vec<String> {
        let mut changes = Vec::new();
        let cache = boot::cache_place();
        changes.push(boot::kernel_kept("; it stays for later runs"));
        changes
            .extend(DataDiskSpec::of(self, &request.environment).iter().flat_map(DataDiskSpec::host_changes));
        if RootKind::of(&request.environment) == RootKind::Disk {
            changes.push(format!(
                "keep a disk of the image in {cache}, as long as the image is kept; each guest's own changes go with the guest"
            ));
        }
        changes.extend(memory::host_changes(&request.environment).map(String::from));
        if weigh_host::facts::is_root() {
            changes.push("make a control group weighbridge-<run>/qemu-<instance>".into());
        }
        changes.extend(net::host_changes(&request.environment));
        changes.push("run a machine weighbridge-<run>-<instance>".into());
        changes
    }

    fn undo(&self, what: &str, id: &str, _: &serde_json::Value) -> Result<()> {
        match what {
            "machine" => crate::vm::processes::end(id, |pid| is_owned(pid, &[MONITOR_USER])),
            other => Err(PlatformError::never_made(PLATFORM, other)),
        }
    }
}

impl Qemu {
    fn start(&self, host: &Host, request: &GuestRequest, saved: Option<&Path>) -> Result<Box<dyn Guest>> {
        let acceleration = self.acceleration(host, &request.environment)?.0;
        let prepared = prepare::prepare(host, request)?;
        let until = Instant::now() + weigh_host::deadlines::scaled(HELLO_DEADLINE);
        Ok(Box::new(guest::launch(host, request, &prepared, acceleration, saved, until)?))
    }

    /// What executes guests of this environment; where that is emulation, also why KVM is missing.
    fn acceleration(
        &self,
        host: &Host,
        environment: &EnvironmentSpec,
    ) -> Result<(Acceleration, Option<String>)> {
        accel::choose(setting(self, environment, "accel"), || self.proof(host, environment))
    }

    /// Whether KVM works with these keys: the cached result, or the result of booting a guest.
    fn proof(&self, host: &Host, environment: &EnvironmentSpec) -> Result<Proof> {
        let mut keys = environment.keys.clone();
        // Only these keys affect the proof; disks and networks would take time to make.
        keys.retain(|key, _| ["accel", "kernel", "machine", "binary"].contains(&key.as_str()));
        let model = tune::model_argument(&Model::of(self, environment), Acceleration::Kvm);
        keys.extend(model.clone().map(|model| ("cpu".into(), model)));
        keys.insert("accel".into(), Acceleration::Kvm.as_str().into());
        crate::oci::with_probe(host, EnvironmentSpec::new(PLATFORM, keys), |request| {
            let request = accel::proof_request(request);
            // A failure here has nothing to do with acceleration, and disproves nothing.
            let settings = Settings::of(&request)?;
            let prepared = prepare::prepare(host, &request)?;
            let subject = Subject {
                binary: &settings.binary,
                kernel: &prepared.kernel,
                kind: settings.machine,
                cpu: model.as_deref().unwrap_or_default(),
            };
            let cache = CacheDirectory::open();
            Ok(accel::prove(host, cache.as_ref(), &subject, || prove_by_booting(host, &request, &prepared)))
        })
    }
}

fn prove_by_booting(host: &Host, request: &GuestRequest, prepared: &prepare::Prepared) -> Result<()> {
    let until = Instant::now() + weigh_host::deadlines::scaled(accel::PROOF_DEADLINE);
    guest::launch(host, request, prepared, Acceleration::Kvm, None, until)?.stop()
}

/// The first line of `--version`, without the distribution's part.
fn version(binary: &Path) -> Result<String> {
    Ok(version_line(binary)?.split(" (").next().unwrap_or_default().replace(" emulator version", ""))
}

/// Whether guests see the host's files.
fn shares_files(platform: &Qemu, environment: &EnvironmentSpec) -> bool {
    !matches!(RootKind::of(environment), RootKind::Disk | RootKind::Initramfs)
        && share::is_expected(setting(platform, environment, "kernel"), &share::Share::WAYS)
}

#[cfg(test)]
mod tests;
