//! The keys, and the settings that follow from an environment's keys and the request.

use super::Channel;
use crate::vm::disk;
use crate::{GuestRequest, KeySpec, Platform, PlatformError, Result, common_keys, setting};
use std::path::{Path, PathBuf};
use weigh_host::command::find_program;

/// The key `accel`. There is nothing to choose, but an environment's name must state it.
pub(crate) const ACCEL: KeySpec = KeySpec::words("accel", &["kvm"])
    .about("what executes the guest: KVM, proven by starting a guest; the name of the environment says so");

/// The key `kernel`.
pub(crate) const KERNEL: KeySpec = KeySpec::path("kernel").about(
    "the guest's kernel, uncompressed; default: the newest suitable one of the host, else \
        Debian's cloud kernel",
);

/// The key `hugepages`.
pub(crate) const HUGEPAGES: KeySpec = KeySpec::words("hugepages", &["off", "on"])
    .about("whether the guest's memory is of pages of 2 MiB that the host has put aside (vm.nr_hugepages)");

/// The key `channel`.
pub(crate) const CHANNEL: KeySpec = KeySpec::words("channel", &["auto", "vsock", "serial"])
    .about("what host and probe talk over: vsock, or the serial console where vsock does not work");

/// The key `net`. There is no `tap`: the monitors open a tap device by its name, which must be in
/// the host's network.
pub(crate) const NET: KeySpec = common_keys::net(&["none", "bridge", "nat"]);

/// The key `disk`. There is no `qcow2`: the monitors read raw images.
pub(crate) const DISKS: KeySpec = disk::disk_key(&["none", "raw", "block"]);

/// The key `cache`.
pub(crate) const CACHE: KeySpec = KeySpec::words("cache", &["none", "writeback"])
    .about("whether the host's page cache stands between the guest and its disk");

/// The key `root`.
pub(crate) const ROOT: KeySpec = KeySpec::words("root", &["auto", "initramfs", "disk"]).about(
    "what holds the root: memory, or a disk made from the image; auto: a disk if the image is a whole root",
);

/// The key `init`.
pub(crate) const INIT: KeySpec = KeySpec::words("init", &["single", "full"])
    .about("what runs inside: one program, or a system with systemd from a disk");

/// Everything that defines a machine, except what is prepared for it.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) binary: PathBuf,
    pub(crate) kernel: Option<PathBuf>,
    pub(crate) cpus: Vec<u32>,
    pub(crate) memory_bytes: u64,
    pub(crate) huge_pages: bool,
    /// `None` for the best channel that the kernel supports.
    pub(crate) channel: Option<Channel>,
}

impl Settings {
    /// The settings for a platform; its program has its name unless `binary` names another.
    ///
    /// # Errors
    /// There is no such program.
    pub(crate) fn of(platform: &dyn Platform, request: &GuestRequest, remedy: &str) -> Result<Self> {
        let environment = &request.environment;
        let kernel = setting(platform, environment, KERNEL.name);
        // Links are not resolved: a link's target may choose what it does by the link's name.
        let named = setting(platform, environment, common_keys::BINARY.name);
        let binary = match named {
            "" => common_keys::program(platform, environment, platform.name(), remedy)?,
            name => find_program(name)
                .and_then(|path| std::path::absolute(path).ok())
                .ok_or_else(|| PlatformError::program_missing(name, remedy))?,
        };
        Ok(Self {
            binary,
            kernel: Some(kernel).filter(|path| !path.is_empty()).map(|path| Path::new(path).into()),
            cpus: request.cpus_or_all(),
            memory_bytes: request.memory_bytes.unwrap_or_else(crate::vm::default_memory_bytes),
            huge_pages: setting(platform, environment, HUGEPAGES.name) == "on",
            channel: Channel::from_key(setting(platform, environment, CHANNEL.name)),
        })
    }
}
