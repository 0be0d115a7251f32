//! Firecracker: a virtual machine with a handful of devices on virtio's memory-mapped transport,
//! told what to do over a socket.
//!
//! The program is the user's: no distribution packs it. It runs as whoever runs weighbridge, in a
//! control group of its own; its companion that would lock it up further, the jailer, is not used,
//! because nothing of it is on the path that is measured.
//!
//! **KVM** executes the guest, there is nothing else. So the platform is available where a guest
//! has answered under it, and an environment's name says `accel=kvm` after that proof only
//! (`vm/vmm/kvm.rs`).
//!
//! **The root** is in memory, or on a disk made of the image: Firecracker shares no files, so that
//! of the host's own the guest sees none.
//!
//! **Freezing** stops the guest's CPUs. **Saving** writes its memory and its devices; connections
//! of vsock do not outlive it, and the probe, which listens, is connected to anew
//! (`docs/design/0024-firecracker-and-cloud-hypervisor.md`).

mod monitor;

use crate::vm::disk;
use crate::vm::vmm::{self, Kind, Vmm};
use crate::{About, common_keys};
use monitor::ByApi;

const KIND: Kind = Kind {
    monitor: &ByApi,
    about: About {
        name: "firecracker",
        summary: "a virtual machine by Firecracker, whose program is the user's; needs KVM",
        keys: &[
            vmm::ACCEL,
            common_keys::CPUS,
            common_keys::MEMORY,
            common_keys::ROOTFS,
            vmm::NET,
            vmm::DISKS,
            disk::SIZE,
            disk::DEVICE,
            vmm::ROOT,
            vmm::INIT,
            vmm::KERNEL,
            vmm::HUGEPAGES,
            vmm::CHANNEL,
            common_keys::BINARY,
        ],
    },
    // The interface's description, `MachineConfiguration`.
    most_cpus: Some(32),
};

/// The platform `firecracker`.
pub const FIRECRACKER: Vmm = Vmm::new(&KIND);
