//! User-mode Linux: a Linux kernel that runs as a process of the host, without hardware support.
//!
//! The kernel boots from an initial RAM file system with the probe as its init. The image's parts
//! are the host's own directories, mounted read-only through hostfs. The channel is the machine's
//! first serial line, which is the kernel process's standard input and output. The console goes to
//! standard error, which is the guest's log, so kernel messages never mix with the protocol.
//!
//! The guest's root controls the whole kernel, if only through modules, and hostfs can show any
//! path of the host. So the kernel runs as a user who owns nothing, and finds the image as
//! containers do, read-only, in a private mount namespace.
//!
//! Its network card is a vector device on a tap of the host, which moves many frames at a time; the
//! older transports move one.
//!
//! A machine has one CPU. Its memory is a file that the kernel makes in `/dev/shm` and unlinks at
//! once.
//!
//! Sources: `Documentation/virt/uml/user_mode_linux_howto_v2.rst` of the kernel; `linux.uml
//! --help`.

mod guest;
mod root;

use crate::helpers::version_text;
use crate::vm::tap;
use crate::{
    About, Availability, Capabilities, Guest, GuestRequest, Host, KeySpec, Platform, PlatformError, Result,
    common_keys, remedy, setting,
};
use root::{initramfs, initramfs_path, mounts, utf8};
use rustix::fs::{StatVfsMountFlags, statvfs};
use std::path::PathBuf;
use weigh_host::cache::CacheDirectory;
use weigh_host::command::find_program;
use weigh_images::package::{Fetching, PackageError, cached_user_mode_kernel, user_mode_kernel};
use weigh_images::{Bind, Root};
use weigh_model::EnvironmentSpec;
use weigh_protocol::boot::BootMount;

/// Names of the program: Debian's, and that of the kernel's own build.
const PROGRAMS: [&str; 2] = ["linux.uml", "linux"];
const REMEDY: &str =
    "install it with `apt-get install user-mode-linux`, or name the kernel with `uml:binary=PATH`";
/// Log of fetching the kernel, below the run's logs.
const FETCH_LOG: &str = "uml-kernel.log";
/// Memory of a guest if none is specified, bytes: enough for the builtin workloads' standard sizes,
/// and little for the host to back.
const DEFAULT_MEMORY_BYTES: u64 = 512 << 20;
/// The least memory with which the kernel starts, bytes.
const LEAST_MEMORY_BYTES: u64 = 32 << 20;
/// The directory for the files with the guests' memory.
const MEMORY_PLACE: &str = "/dev/shm";

/// Why a guest differs from the host by its nature, by parity key.
const IMPLIES: &[(&str, &str)] = &[
    ("kernel", "a kernel of its own, in user mode"),
    ("cpu-model", "the CPU that its kernel shows"),
    ("memory", "its kernel keeps a part of what the machine is given"),
    ("transparent-huge-pages", "decided by its own kernel"),
    ("mitigations", "decided by its own kernel"),
    ("clock-source", "its kernel takes the time from the host's clock"),
    ("aslr", "decided by its own kernel"),
    ("mounts:*", "the host's directories through hostfs, scratch in its own memory"),
    ("network", "a network of its own, as `net` says"),
    ("network-card", "a kind of card that only its kernel has"),
    ("acceleration", "a kernel in user mode: system calls by ptrace, no hardware takes part"),
];

/// User-mode Linux.
pub struct Uml;

impl Uml {
    fn program(&self, environment: &EnvironmentSpec) -> Result<PathBuf> {
        let named = setting(self, environment, "binary");
        let found = match named {
            "" => PROGRAMS
                .iter()
                .find_map(|name| find_program(name))
                .or_else(|| CacheDirectory::open().and_then(|cache| cached_user_mode_kernel(&cache))),
            path => find_program(path),
        };
        let missing =
            || PlatformError::program_missing(if named.is_empty() { PROGRAMS[0] } else { named }, REMEDY);
        let program = found.ok_or_else(missing)?;
        // The program runs in another directory, so the path must be absolute.
        program.canonicalize().map_err(PlatformError::at("resolve", &program))
    }

    /// Makes sure that there is a program: one that the user names, an installed one, or Debian's,
    /// which is fetched into the cache and not installed.
    fn obtain(&self, host: &Host, environment: &EnvironmentSpec) -> Result<()> {
        host.require_root("user-mode Linux requires root")?;
        let missing = match self.program(environment) {
            Err(error @ PlatformError::Unavailable { .. }) => error,
            other => return other.map(|_| ()),
        };
        let cache = CacheDirectory::open();
        let Some(cache) = cache.filter(|_| setting(self, environment, "binary").is_empty()) else {
            return Err(missing);
        };
        let log = host.logs.join(FETCH_LOG);
        let fetching = Fetching { log: &log, until: host.fetch_until };
        user_mode_kernel(&cache, &host.ledger, fetching).map(|_| ()).map_err(|error| {
            PlatformError::unavailable(
                format!("the program {} is missing and could not be fetched: {error}", PROGRAMS[0]),
                if matches!(error, PackageError::Late) { remedy::FETCH } else { REMEDY },
            )
        })
    }
}

const ABOUT: About = About {
    name: "uml",
    summary: "User-mode Linux: a kernel of its own as a process of the host, one CPU, no hardware support needed",
    keys: &[
        KeySpec::words("net", &["none", "bridge", "nat"]).about(
            "network: none (only loopback), bridge (an address on a bridge of the run), nat \
                (behind address translation)",
        ),
        common_keys::MEMORY,
        common_keys::ROOTFS,
        KeySpec::path("binary").about(
            "the user-mode kernel to use, which is a program, so that two builds can be \
                compared",
        ),
    ],
};

impl Platform for Uml {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn capabilities(&self, environment: &EnvironmentSpec) -> Capabilities {
        Capabilities { most_cpus: Some(1), implies: IMPLIES, ..Capabilities::MACHINE }
            .with_networks(self, environment)
    }

    fn availability(&self, host: &Host) -> Availability {
        crate::oci::availability(self, host, |request| {
            self.obtain(host, &request.environment)?;
            let version = version_text(&self.program(&request.environment)?)?;
            self.launch(host, request)?.stop()?;
            Ok(format!("Linux {version} in user mode"))
        })
    }

    fn prepare(&self, host: &Host, request: &GuestRequest) -> Result<()> {
        self.obtain(host, &request.environment)?;
        room_for(memory_bytes(request)?)?;
        let path = initramfs_path(&request.root);
        if !path.exists() {
            initramfs(&request.root, &mounts(&request.root, |bind| share(&request.root, bind))?)?
                .write_file(&path)?;
        }
        Ok(())
    }

    fn launch(&self, host: &Host, request: &GuestRequest) -> Result<Box<dyn Guest>> {
        self.prepare(host, request)?;
        let machine = guest::Machine {
            program: self.program(&request.environment)?,
            initramfs: initramfs_path(&request.root),
            memory_bytes: memory_bytes(request)?,
            cpu: request.cpus.first().copied(),
            network: setting(self, &request.environment, "net"),
        };
        let guest = machine.launch(host, request).map_err(|error| {
            // Without the file, the error gets no explanation.
            explained(error, &std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default())
        })?;
        Ok(Box::new(guest))
    }

    fn host_changes(&self, request: &GuestRequest) -> Vec<String> {
        let instance = request.instance;
        let fetched = matches!(self.program(&request.environment), Err(PlatformError::Unavailable { .. }));
        let fetch = "fetch Debian's user-mode kernel into the cache, where it stays; nothing is installed";
        let mut changes = if fetched { vec![fetch.to_string()] } else { Vec::new() };
        changes.extend([
            format!("make the control group weighbridge-<run>/uml-{instance}"),
            format!(
                "run a user-mode kernel as processes in it, with its memory in an unlinked file of {MEMORY_PLACE}"
            ),
            "write an initial RAM file system into the run's work directory, once per image".into(),
        ]);
        changes.extend(tap::host_changes(setting(self, &request.environment, "net")));
        changes
    }
}

/// Explains a failed start if the CPU is the cause; the guest's log only ends in a trace.
fn explained(error: PlatformError, cpuinfo: &str) -> PlatformError {
    let has_amx = cpuinfo.split_ascii_whitespace().any(|flag| flag == "amx_tile");
    match error {
        PlatformError::Launch { .. } if has_amx => PlatformError::unavailable(
            "the user-mode kernel does not support this CPU's AMX registers",
            "no command changes that: use `qemu`, a host with another CPU, or name a newer kernel with `uml:binary=PATH`",
        ),
        other => other,
    }
}

/// The hostfs mount of a part of the image, from the part's place in the skeleton.
fn share(root: &Root, bind: &Bind) -> Result<BootMount> {
    let source = root.skeleton.join(bind.target.strip_prefix("/").unwrap_or(&bind.target));
    let read_only = if bind.read_only { "ro," } else { "" };
    let options = format!("{read_only}nosuid,nodev,{}", utf8(&source)?);
    Ok(BootMount::new("hostfs", "none", utf8(&bind.target)?, &options))
}

fn memory_bytes(request: &GuestRequest) -> Result<u64> {
    let bytes = request.memory_bytes.unwrap_or(DEFAULT_MEMORY_BYTES);
    if bytes >= LEAST_MEMORY_BYTES {
        return Ok(bytes);
    }
    Err(PlatformError::unavailable(
        format!("{} MiB of memory is too little for user-mode Linux to boot", bytes >> 20),
        format!("give the guests {} MiB or more with `--memory`", LEAST_MEMORY_BYTES >> 20),
    ))
}

/// Checks the file system for the guest's memory: the kernel maps the file executable, and dies of
/// SIGBUS when the file system is full.
fn room_for(bytes: u64) -> Result<()> {
    let place = statvfs(MEMORY_PLACE).map_err(PlatformError::io(format!("look at {MEMORY_PLACE}")))?;
    let free = place.f_bavail.saturating_mul(place.f_frsize);
    if place.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        return Err(PlatformError::unavailable(
            format!("{MEMORY_PLACE}, which holds the guests' memory, is mounted noexec"),
            format!("allow it: `mount -o remount,exec {MEMORY_PLACE}`"),
        ));
    }
    if free < bytes {
        return Err(PlatformError::unavailable(
            format!(
                "{} MiB of guest memory do not fit into {MEMORY_PLACE}, which has {} MiB free",
                bytes >> 20,
                free >> 20
            ),
            format!(
                "make it larger: `mount -o remount,size={}M {MEMORY_PLACE}`, or give a smaller `--memory`",
                (place.f_blocks.saturating_mul(place.f_frsize) + bytes - free).div_ceil(1 << 20)
            ),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_failure_on_a_cpu_with_amx_is_explained() {
        let died = || PlatformError::launch("uml", "it died");
        let said = explained(died(), "flags : fpu amx_bf16 amx_tile\n").to_string();
        assert!(said.contains("does not support this CPU's AMX registers"), "{said}");
        assert_eq!(explained(died(), "flags : fpu avx\n").to_string(), died().to_string());
        let other = explained(PlatformError::unavailable("no room", "make some"), "flags : amx_tile\n");
        assert!(other.to_string().contains("room"), "{other}");
    }
}
