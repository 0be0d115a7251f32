//! OSv: a unikernel that runs one program, `weigh-kernels`, in a QEMU machine.
//!
//! The image is the user's, with the program in it. There is no probe. A thread of weighbridge
//! takes its place: it boots the image once for every command, with the command on the kernel's
//! command line, and reads the result from the console. Only builtin workloads can run, and of
//! those only the ones that do not fork.
//!
//! A command's duration is the time from the moment when the console announces the program to the
//! moment when its result has arrived. It does not include the boot. The times that the program
//! itself reports are by OSv's clock, which cannot be verified.

mod console;
mod guest;
mod image;

#[doc(hidden)]
pub use console::fuzz as fuzz_console;

use crate::common_keys::{BINARY, CPUS, MEMORY};
use crate::helpers::fnv_1a;
use crate::qemu::accel::{self, Acceleration, Subject};
use crate::{
    About, Availability, Capabilities, Guest, GuestRequest, Host, KeySpec, Platform, PlatformError, Result,
    setting,
};
use guest::{TRIAL_DEADLINE, discard, machine};
use image::Boot;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use weigh_host::cache::CacheDirectory;
use weigh_model::{EnvironmentSpec, SpecError};

/// Name of the platform.
const PLATFORM: &str = "osv";
/// The QEMU program for guests of this host's architecture.
const QEMU: &str = if cfg!(target_arch = "aarch64") { "qemu-system-aarch64" } else { "qemu-system-x86_64" };
const REMEDY: &str = "install it with `apt-get install qemu-system`";
/// Memory of a machine if none is specified, bytes.
const DEFAULT_MEMORY_BYTES: u64 = 512 << 20;

/// Why a guest differs from the host by its nature, by parity key.
const IMPLIES: &[(&str, &str)] = &[
    ("kernel", "a unikernel: the program and its kernel are one"),
    ("user", "a unikernel has no users"),
    ("network", "the machine has no network"),
    (
        "acceleration",
        "a machine is executed by KVM or by emulation; emulation translates code, so that a loop of NOPs costs next to nothing",
    ),
];

/// OSv.
pub struct Osv;

/// The settings that follow from an environment's keys and the request.
struct Settings {
    binary: PathBuf,
    program: String,
    cpus: Vec<u32>,
    memory_bytes: u64,
}

impl Settings {
    fn of(request: &GuestRequest) -> Result<Self> {
        Ok(Self {
            binary: crate::common_keys::program(&Osv, &request.environment, QEMU, REMEDY)?,
            program: setting(&Osv, &request.environment, "program").into(),
            cpus: request.cpus_or_all(),
            memory_bytes: request.memory_bytes.unwrap_or(DEFAULT_MEMORY_BYTES),
        })
    }
}

const ABOUT: About = About {
    name: PLATFORM,
    summary: "a unikernel by OSv under QEMU, from an image of yours that holds weigh-kernels; builtin workloads only",
    keys: &[
        KeySpec::path("image").about("OSv's loader.elf, or a disk image in raw or qcow2 format; required"),
        KeySpec::path("kernel").about("OSv's loader.elf to boot directly, with `image` as its disk"),
        KeySpec::text("program").or("/weigh-kernels").about("where weigh-kernels is in the image"),
        KeySpec::words("accel", &["auto", "kvm", "tcg"]).about(
            "what executes the machine: KVM where the image is proven to run under it, else emulation",
        ),
        CPUS,
        MEMORY,
        BINARY,
    ],
};

impl Platform for Osv {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn capabilities(&self, _: &EnvironmentSpec) -> Capabilities {
        Capabilities {
            networks: &["none"],
            network: "none",
            fork: false,
            host_root: false,
            agent: false,
            makes_explicit: true,
            implies: IMPLIES,
            ..Capabilities::MACHINE
        }
    }

    fn check(&self, environment: &EnvironmentSpec) -> Result<(), SpecError> {
        if environment.get("image").is_none() {
            let help = "write `osv:image=PATH`, with a loader.elf or a disk image of OSv";
            return Err(environment.platform_error("osv needs an image to boot", help));
        }
        let program = setting(self, environment, "program");
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        if !program.starts_with('/') || !program.chars().all(plain) {
            let help = "write an absolute path of plain letters, as in `program=/weigh-kernels`";
            let message = format!("`{program}` cannot be put on OSv's command line");
            return Err(environment.value_error("program", message, help));
        }
        Ok(())
    }

    fn make_explicit(&self, host: &Host, environment: &EnvironmentSpec) -> Result<EnvironmentSpec> {
        let attempt = |request: &GuestRequest| acceleration(host, request);
        let acceleration = crate::oci::with_probe(host, environment.clone(), attempt)?;
        Ok(environment.with("accel", acceleration.as_str()))
    }

    fn availability(&self, _: &Host) -> Availability {
        Availability::Missing {
            reason: "no image is named".into(),
            remedy: Some("name one, as in `osv:image=loader.elf`".into()),
        }
    }

    fn prepare(&self, host: &Host, request: &GuestRequest) -> Result<()> {
        prepared(host, request).map(|_| ())
    }

    fn launch(&self, host: &Host, request: &GuestRequest) -> Result<Box<dyn Guest>> {
        let (boot, acceleration, version) = prepared(host, request)?;
        Ok(Box::new(guest::launch(host, request, boot, acceleration, version)?))
    }

    fn host_changes(&self, request: &GuestRequest) -> Vec<String> {
        let instance = request.instance;
        vec![
            format!("make the control group weighbridge-<run>/{PLATFORM}-{instance}"),
            "run a QEMU machine in it for every command".into(),
            "copy a disk image that boots by itself into the run's work directory, for its command line"
                .into(),
        ]
    }
}

/// An instance number that no run reaches, so that the trial's name does not clash with a guest's.
fn trial_instance() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1 << 41);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// What executes machines of this environment.
fn acceleration(host: &Host, request: &GuestRequest) -> Result<Acceleration> {
    let proof = || {
        let settings = Settings::of(request)?;
        let boot = Boot::of(request)?.prepare(host)?;
        let disk = || boot.disk.clone().map(|(disk, _)| disk);
        let image = boot.kernel.clone().or_else(disk).unwrap_or_default();
        let subject = Subject { binary: &settings.binary, kernel: &image, kind: PLATFORM, cpu: "host" };
        Ok(accel::prove(host, CacheDirectory::open().as_ref(), &subject, || {
            try_out(host, request, boot.clone(), Acceleration::Kvm, accel::PROOF_DEADLINE).map(|_| ())
        }))
    };
    accel::choose(setting(&Osv, &request.environment, "accel"), proof).map(|(acceleration, _)| acceleration)
}

/// Boots the image once and runs its program; returns the version that the system reports.
fn try_out(
    host: &Host,
    request: &GuestRequest,
    boot: Boot,
    acceleration: Acceleration,
    within: Duration,
) -> Result<String> {
    let trial = GuestRequest { instance: trial_instance(), ..request.clone() };
    let (machine, copy) = machine(host, &trial, boot, acceleration, String::new())?;
    let console = machine.try_out(within);
    discard(machine, copy)?;
    Ok(console?.version().unwrap_or_else(|| "OSv of an unknown version".into()))
}

/// What a run needs of an environment: what to boot, what executes it, and the version that it
/// reports. The version is determined once and kept beside the run's other files.
fn prepared(host: &Host, request: &GuestRequest) -> Result<(Boot, Acceleration, String)> {
    host.require_root("OSv requires root")?;
    let boot = Boot::of(request)?.prepare(host)?;
    let acceleration = acceleration(host, request)?;
    let known = host
        .work
        .join(format!("{PLATFORM}-{:016x}.version", fnv_1a(request.environment.to_string().bytes())));
    if let Ok(version) = std::fs::read_to_string(&known) {
        return Ok((boot, acceleration, version));
    }
    let version = try_out(host, request, boot.clone(), acceleration, TRIAL_DEADLINE)?;
    std::fs::write(&known, &version).map_err(PlatformError::at("write", &known))?;
    Ok((boot, acceleration, version))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolve;

    #[test]
    fn an_image_must_be_named() {
        for (text, wrong) in [
            ("osv", "osv"),
            ("osv:accel=tcg", "osv"),
            ("osv:image=/no/such/loader.elf", "/no/such/loader.elf"),
            ("osv:image=/bin/sh,program=weigh", "weigh"),
            ("osv:image=/bin/sh,program=/a b", "/a b"),
            ("osv:image=/bin/sh,accel=hvf", "hvf"),
            ("osv:image=/bin/sh,rootfs=debian", "rootfs"),
        ] {
            let Err(error) = resolve(&EnvironmentSpec::parse(text).unwrap()) else {
                panic!("{text} is taken")
            };
            assert_eq!(&error.text[error.span.clone()], wrong, "{text}");
        }
        resolve(&EnvironmentSpec::parse("osv:image=/bin/sh,kernel=/bin/sh,cpus=1,memory=64MiB").unwrap())
            .unwrap();
        assert!(crate::defaults().all(|platform| platform.name() != PLATFORM));
    }
}
