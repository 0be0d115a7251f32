//! Virtual machines by libvirt: transient domains, created and destroyed by virsh(1), executed by
//! QEMU.
//!
//! The machine is what libvirt makes of a short document (`libvirt/xml.rs`): QEMU with libvirt's
//! default firmware, controllers and options. As for machines of [`crate::qemu`], the kernel is
//! booted directly, the probe is its init, and a virtio port is the channel; the same code proves
//! KVM and shares files.
//!
//! A run has a **daemon of its own** (`libvirt/daemon.rs`), shared by all its guests and reported
//! apart from them. With `uri=` weighbridge uses the user's daemon, and asks it for domains only.
//!
//! **Freezing** is `virsh suspend`, which stops the guest's clocks with its CPUs.

mod daemon;
mod guest;
mod net;
mod prepare;
mod process;
mod storage;
mod virsh;
mod xml;

use crate::qemu::HELLO_DEADLINE;
use crate::qemu::accel::{self, Acceleration, Proof, Subject};
use crate::qemu::share::{self};
use crate::vm::boot;
use crate::vm::disk::{self, DataDiskSpec};
use crate::vm::tune::{self, Tuning};
use crate::vm::{keys, tap};
use crate::{
    About, Availability, Capabilities, Guest, GuestRequest, Host, KeySpec, Platform, PlatformError, Result,
    common_keys, setting,
};
use daemon::Daemon;
use std::path::{Path, PathBuf};
use std::time::Instant;
use weigh_host::cache::CacheDirectory;
use weigh_model::{EnvironmentSpec, SpecError};

/// Name of the platform.
const PLATFORM: &str = "libvirt";
/// How it is installed.
const REMEDY: &str = if cfg!(target_arch = "aarch64") {
    "install it with `apt-get install libvirt-daemon-system libvirt-clients qemu-system-arm`"
} else {
    "install it with `apt-get install libvirt-daemon-system libvirt-clients qemu-system-x86`"
};
/// Types of machine; the first is libvirt's default.
const MACHINES: &[&str] = if cfg!(target_arch = "aarch64") { &["virt"] } else { &["pc", "q35"] };

/// Why machines differ from the host, by parity key.
const IMPLIES: &[(&str, &str)] = &[
    ("kernel", "a machine boots a kernel of its own"),
    ("clock-source", "a machine has clocks of its own"),
    ("cpu-model", "the machine's model of CPU"),
    ("memory", "the machine's kernel keeps a part of its memory"),
    ("transparent-huge-pages", "the default of the machine's kernel"),
    ("operating-system", "the root is the machine's own, with whatever it holds of the image"),
    ("mounts:*", "the root is in the machine's memory or on its disk, with what is shared mounted into it"),
    ("network", "a network of the machine's own, as `net` says"),
    ("network-card", "a card of the machine's own, served as `net` and `vhost` say"),
    ("cache", "the environment's cache key"),
    ("machine:", "how the machine is made and placed"),
    (
        "acceleration",
        "a machine is executed by KVM or by emulation; emulation translates code, so that a loop of NOPs costs next to nothing",
    ),
];

/// libvirt.
pub struct Libvirt;

/// The settings that follow from an environment's keys and the request.
struct Settings<'a> {
    uri: &'a str,
    emulator: PathBuf,
    machine: &'a str,
    kernel: Option<&'a Path>,
    tuning: Tuning,
    memory_bytes: u64,
}

impl<'a> Settings<'a> {
    fn of(request: &'a GuestRequest) -> Result<Self> {
        let environment = &request.environment;
        let installed = format!("qemu-system-{}", std::env::consts::ARCH);
        let emulator = common_keys::program(&Libvirt, environment, &installed, REMEDY)?;
        let cpus = tune::host_cpus(Path::new("/"), &request.cpus_or_all());
        let tuning = Tuning::of(&Libvirt, environment, &cpus)?;
        let kernel = Some(setting(&Libvirt, environment, "kernel")).filter(|path| !path.is_empty());
        Ok(Self {
            uri: setting(&Libvirt, environment, "uri"),
            emulator,
            machine: setting(&Libvirt, environment, "machine"),
            kernel: kernel.map(Path::new),
            tuning,
            memory_bytes: request.memory_bytes.unwrap_or_else(crate::vm::default_memory_bytes),
        })
    }

    /// The CPUs that each CPU of the guest may run on, by the guest CPU's number.
    fn places(&self) -> Vec<Vec<u32>> {
        let pin = |guest: u32| self.tuning.pin.iter().find(|(vcpu, _)| *vcpu == guest);
        let place = |(guest, _)| pin(guest).map_or_else(|| self.tuning.cpus.clone(), |(_, cpu)| vec![*cpu]);
        (0..).zip(&self.tuning.cpus).map(place).collect()
    }
}

const ABOUT: About = About {
    name: PLATFORM,
    summary: "a virtual machine by libvirt and QEMU, by a daemon of the run's own or one that the user names",
    keys: &[
        KeySpec::text("uri").about("the daemon to use, as in qemu:///system; else one of the run's own"),
        keys::ACCEL,
        keys::KERNEL,
        KeySpec::words("machine", MACHINES).about("QEMU's type of machine"),
        tune::TUNE,
        tune::PIN,
        tune::CPU,
        tune::TOPOLOGY,
        tune::HUGEPAGES,
        tune::IOTHREAD,
        storage::DISK,
        disk::SIZE,
        disk::DEVICE,
        disk::STORAGE,
        storage::CACHE,
        storage::AIO,
        storage::INIT,
        KeySpec {
            summary: "network: none (no card), bridge (an address on a bridge of the run), nat (behind address translation)",
            ..common_keys::net(net::WORDS)
        },
        net::VHOST,
        common_keys::CPUS,
        common_keys::MEMORY,
        common_keys::ROOTFS,
        keys::BINARY,
    ],
};

impl Platform for Libvirt {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn capabilities(&self, environment: &EnvironmentSpec) -> Capabilities {
        Capabilities {
            system: storage::is_system(environment),
            keeps_secrets: weigh_host::facts::is_root(),
            needs_root: setting(self, environment, "uri").is_empty(),
            host_root: !storage::is_system(environment)
                && share::is_expected(setting(self, environment, "kernel"), prepare::ways()),
            makes_explicit: true,
            implies: IMPLIES,
            ..Capabilities::MACHINE
        }
        .with_networks(self, environment)
    }

    fn check(&self, environment: &EnvironmentSpec) -> Result<(), SpecError> {
        tune::check(environment)?;
        storage::check(environment)?;
        net::check(environment)?;
        match environment.get("uri") {
            Some(uri) if !is_of_this_host(uri) => {
                let message = format!("`{uri}` does not name a daemon on this host that runs QEMU");
                let help = "write `qemu:///system`, `qemu:///session`, or a socket as in `qemu+unix:///system?socket=/run/x`";
                Err(environment.value_error("uri", message, help))
            }
            _ => Ok(()),
        }
    }

    fn make_explicit(&self, host: &Host, environment: &EnvironmentSpec) -> Result<EnvironmentSpec> {
        let acceleration = self.acceleration(host, environment)?.0;
        Ok(environment.with("accel", acceleration.as_str()))
    }

    fn availability(&self, host: &Host) -> Availability {
        crate::oci::availability(self, host, |request| {
            let request = &GuestRequest { memory_bytes: Some(accel::PROOF_MEMORY_BYTES), ..request.clone() };
            let daemon = self.ready(host, request)?;
            let version = daemon.version()?;
            let prepared = prepare::prepare(host, request)?;
            let (acceleration, because) = self.acceleration(host, &request.environment)?;
            let until = Instant::now() + weigh_host::deadlines::scaled(HELLO_DEADLINE);
            guest::launch(host, request, &prepared, daemon, acceleration, until)?.stop()?;
            let because = because.map(|seen| format!(" ({seen})")).unwrap_or_default();
            let described = acceleration.described();
            Ok(format!("{version}, kernel {}, {described}{because}", prepared.source))
        })
    }

    fn prepare(&self, host: &Host, request: &GuestRequest) -> Result<()> {
        self.ready(host, request)?;
        prepare::prepare(host, request).map(|_| ())
    }

    fn launch(&self, host: &Host, request: &GuestRequest) -> Result<Box<dyn Guest>> {
        let acceleration = self.acceleration(host, &request.environment)?.0;
        let daemon = self.ready(host, request)?;
        let prepared = prepare::prepare(host, request)?;
        let deadline = match storage::is_system(&request.environment) {
            true => guest::SYSTEM_DEADLINE,
            false => HELLO_DEADLINE,
        };
        let until = Instant::now() + weigh_host::deadlines::scaled(deadline);
        Ok(Box::new(guest::launch(host, request, &prepared, daemon, acceleration, until)?))
    }

    fn restores(&self, _: &Host, _: &GuestRequest) -> Result<()> {
        Err(PlatformError::CannotRestore(
            "libvirt restores a machine only under the name that it was saved with, so that no two with the same state run \
at once; `qemu` can save and restore the same machine"
                .into(),
        ))
    }

    fn host_changes(&self, request: &GuestRequest) -> Vec<String> {
        let mut changes =
            vec![boot::kernel_kept(", and what libvirt finds out about QEMU; both stay for later runs")];
        match setting(self, &request.environment, "uri") {
            "" => changes.push(
                "run a daemon of libvirt for this run alone, with its state in the run's work directory, in a control group \
                 weighbridge-<run>/libvirt-daemon"
                    .into(),
            ),
            uri => changes.push(format!("ask the daemon at {uri} for domains that have no file")),
        }
        let wanted = DataDiskSpec::of(self, &request.environment);
        changes.extend(wanted.iter().flat_map(DataDiskSpec::host_changes));
        if storage::is_system(&request.environment) {
            changes.push("keep a disk of the image in the cache, and write what each guest changes to the run's work directory".into());
        }
        changes.extend(tap::host_changes(setting(self, &request.environment, "net")));
        if weigh_host::facts::is_root() {
            changes.push("make a control group weighbridge-<run>/libvirt-<instance>".into());
        }
        changes.push("run a domain weighbridge-<run>-<instance>".into());
        changes
    }

    fn undo(&self, what: &str, id: &str, detail: &serde_json::Value) -> Result<()> {
        match what {
            "domain" => guest::undo(id, detail),
            other => Err(PlatformError::never_made(PLATFORM, other)),
        }
    }
}

impl Libvirt {
    /// Starts the daemon for an environment where needed, and checks that it knows the QEMU.
    fn ready(&self, host: &Host, request: &GuestRequest) -> Result<Daemon> {
        let settings = Settings::of(request)?;
        let daemon = Daemon::find(host, settings.uri)?;
        daemon.start(host)?;
        daemon.probe(&settings.emulator, settings.machine)?;
        Ok(daemon)
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
        // These keys do not affect the proof, and some would take time.
        const UNRELATED: &[&str] = &[
            "label", "disk", "size", "device", "cache", "aio", "init", "rootfs", "iothread", "net", "vhost",
            "topology",
        ];
        let environment = environment.without(UNRELATED).with("accel", Acceleration::Kvm.as_str());
        crate::oci::with_probe(host, environment, |request| {
            let request = accel::proof_request(request);
            // A failure here has nothing to do with acceleration, and disproves nothing.
            let settings = Settings::of(&request)?;
            let daemon = self.ready(host, &request)?;
            let prepared = prepare::prepare(host, &request)?;
            let kind = format!("{PLATFORM} {} {}", settings.uri, settings.machine);
            let cpu = format!("{:?}", settings.tuning.model);
            let subject =
                Subject { binary: &settings.emulator, kernel: &prepared.kernel, kind: &kind, cpu: &cpu };
            Ok(accel::prove(host, CacheDirectory::open().as_ref(), &subject, || {
                let until = Instant::now() + weigh_host::deadlines::scaled(accel::PROOF_DEADLINE);
                let kvm = Acceleration::Kvm;
                guest::launch(host, &request, &prepared, daemon.clone(), kvm, until)?.stop()
            }))
        })
    }
}

/// Whether a URI names a daemon that runs QEMU and shares this host's files. The channel needs
/// that: it is a socket in a directory.
fn is_of_this_host(uri: &str) -> bool {
    let Some((scheme, rest)) = uri.split_once("://") else { return false };
    ["qemu", "qemu+unix"].contains(&scheme) && rest.starts_with('/')
}

#[cfg(test)]
mod tests;
