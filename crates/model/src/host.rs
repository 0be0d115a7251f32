//! `host.json`: the machine that a run was made on.

use serde::{Deserialize, Serialize};

/// [`HostFacts::hypervisor`] of a machine whose instructions QEMU translates: times of such a host
/// are those of the emulator, and say nothing about any platform.
pub const EMULATOR: &str = "QEMU's emulation (TCG)";

/// The machine that a run was made on: `host.json`. The default is a machine of which nothing is
/// known.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HostFacts {
    /// Digest of the machine id: it is the same for the same host, and reveals nothing about it.
    pub identity: String,
    /// Kernel release, as `uname -r` prints it.
    pub kernel: String,
    /// Machine architecture, as `uname -m` prints it.
    pub architecture: String,
    /// Operating system, as its release file names it.
    pub operating_system: String,
    /// CPU model.
    pub cpu_model: String,
    /// What this host itself runs on, if it is a virtual machine: `KVM`, [`EMULATOR`]...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hypervisor: Option<String>,
    /// CPUs that weighbridge may use.
    pub cpus: Vec<u32>,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Size of the last-level cache, bytes, if the kernel reports it.
    pub last_level_cache_bytes: Option<u64>,
    /// `v1`, `hybrid`, `v2` or `none`.
    pub cgroups: String,
    /// Identity of this boot; host times of two boots share no origin.
    pub boot: String,
    /// Whether weighbridge ran as root.
    pub root: bool,
}

impl HostFacts {
    /// Whether an emulator executes this host's instructions.
    pub fn is_emulated(&self) -> bool {
        self.hypervisor.as_deref() == Some(EMULATOR)
    }

    /// The CPU model and, on a virtual machine, what that runs on.
    pub fn cpu(&self) -> String {
        match &self.hypervisor {
            Some(hypervisor) => format!("{} in a virtual machine under {hypervisor}", self.cpu_model),
            None => self.cpu_model.clone(),
        }
    }
}
