//! Firecracker: a virtual machine with a handful of devices on virtio's memory-mapped transport, told what to do over a socket.
//!
//! The program is the user's: no distribution packs it. It runs as whoever runs weighbridge, in a control group of its own; its companion
//! that would lock it up further, the jailer, is not used, because nothing of it is on the path that is measured.
//!
//! **KVM** executes the guest, there is nothing else. So the platform is available where a guest has answered under it, and an
//! environment's name says `accel=kvm` after that proof only (`vm/vmm/kvm.rs`).
//!
//! **The root** is in memory, or on a disk made of the image: Firecracker shares no files, so that of the host's own the guest sees none.
//!
//! **Freezing** stops the guest's CPUs. **Saving** writes its memory and its devices; connections of vsock do not outlive it, and the
//! probe, which listens, is connected to anew (`docs/design/0024-machines-by-an-interface.md`).

mod monitor;

use crate::vm::disk;
use crate::vm::vmm::{self, HELLO_DEADLINE, Parts, Settings, VmmGuest};
use crate::{Availability, Capabilities, Guest, GuestRequest, Host, KeySpec, Platform, PlatformError, axes};
use monitor::ByApi;
use std::path::Path;
use std::time::Instant;
use weigh_model::{EnvironmentSpec, SpecError};

/// Name of the platform, and of the program.
const PLATFORM: &str = "firecracker";
/// How it is had.
const REMEDY: &str =
    "get the program from the project's releases, and put it into PATH or name it by binary=PATH";

/// Why its machines differ from the host, by parity key.
pub(crate) const IMPLIES: &[(&str, &str)] = &[
    ("kernel", "a machine boots a kernel of its own"),
    ("clock-source", "a machine has clocks of its own"),
    ("cpu-model", "the monitor hides some of the CPU's features"),
    ("memory", "the machine's kernel keeps a part of its memory"),
    ("transparent-huge-pages", "the default of the machine's kernel"),
    ("operating-system", "the root is in the machine's memory, or made of the image"),
    ("mounts:*", "the root is in the machine's memory, or on a disk of its own"),
    ("network", "a network card of its own, or none, as `net` says"),
    ("cache", "the platform's way to a disk, and the environment's cache key"),
    ("acceleration", "a machine is executed by KVM"),
];

/// Most CPUs of a machine (the interface's description, `MachineConfiguration`).
const MOST_CPUS: u32 = 32;

/// Firecracker.
pub struct Firecracker;

impl Firecracker {
    fn settings(&self, request: &GuestRequest) -> Result<Settings, PlatformError> {
        Settings::of(self, request, PLATFORM, REMEDY)
    }

    fn begin(
        &self,
        host: &Host,
        request: &GuestRequest,
        saved: Option<&Path>,
    ) -> Result<Box<dyn Guest>, PlatformError> {
        let settings = self.settings(request)?;
        let prepared = vmm::prepare(self, &ByApi, host, request, &settings)?;
        let parts = Parts::make(self, host, request)?;
        let until = Instant::now() + HELLO_DEADLINE;
        Ok(Box::new(VmmGuest::launch(&ByApi, host, request, &settings, &prepared, parts, saved, until)?))
    }
}

impl Platform for Firecracker {
    fn name(&self) -> &'static str {
        PLATFORM
    }

    fn summary(&self) -> &'static str {
        "a virtual machine by Firecracker, whose program is the user's; needs KVM"
    }

    fn keys(&self) -> &'static [KeySpec] {
        const KEYS: &[KeySpec] = &[
            vmm::ACCEL,
            axes::CPUS,
            axes::MEMORY,
            axes::ROOTFS,
            vmm::NET,
            vmm::DISKS,
            disk::SIZE,
            disk::DEVICE,
            vmm::ROOT,
            vmm::INIT,
            vmm::KERNEL,
            vmm::HUGEPAGES,
            vmm::CHANNEL,
            axes::BINARY,
        ];
        KEYS
    }

    fn capabilities(&self, environment: &EnvironmentSpec) -> Capabilities {
        Capabilities {
            networks: axes::networks(self, environment, vmm::NETWORKS),
            system: vmm::boots_system(self, environment),
            shares_kernel: false,
            needs_root: false,
            host_root: false,
            most_cpus: Some(MOST_CPUS),
            sized_memory: true,
            settles: true,
            implies: IMPLIES,
            ..Capabilities::CONTAINER
        }
    }

    fn check(&self, environment: &EnvironmentSpec) -> Result<(), SpecError> {
        vmm::check(self, environment)
    }

    fn settle(&self, host: &Host, environment: &EnvironmentSpec) -> Result<EnvironmentSpec, PlatformError> {
        vmm::settle(self, &ByApi, host, environment, |request| self.settings(request))
    }

    fn availability(&self, host: &Host) -> Availability {
        vmm::availability(self, &ByApi, host, |request| self.settings(request))
    }

    fn prepare(&self, host: &Host, request: &GuestRequest) -> Result<(), PlatformError> {
        vmm::prepare(self, &ByApi, host, request, &self.settings(request)?).map(|_| ())
    }

    fn launch(&self, host: &Host, request: &GuestRequest) -> Result<Box<dyn Guest>, PlatformError> {
        self.begin(host, request, None)
    }

    fn restores(&self, _: &Host, request: &GuestRequest) -> Result<(), String> {
        vmm::restores(self, request)?;
        axes::program(self, &request.environment, PLATFORM, REMEDY)
            .map(|_| ())
            .map_err(|error| error.to_string())
    }

    fn restore(
        &self,
        host: &Host,
        request: &GuestRequest,
        saved: &Path,
    ) -> Result<Box<dyn Guest>, PlatformError> {
        self.begin(host, request, Some(saved))
    }

    fn host_changes(&self, request: &GuestRequest) -> Vec<String> {
        vmm::host_changes(self, request)
    }

    fn undo(&self, what: &str, id: &str, _: &serde_json::Value) -> Result<(), String> {
        vmm::undo(PLATFORM, what, id)
    }
}
