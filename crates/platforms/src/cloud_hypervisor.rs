//! Cloud Hypervisor: a virtual machine with virtio's devices on PCI and ACPI, told what to do over
//! a socket.
//!
//! The program is the user's, or the distribution's where it packs it. It runs as whoever runs
//! weighbridge, in a control group of its own.
//!
//! **KVM** executes the guest: it is proven and named as with Firecracker (`vm/vmm/kvm.rs`).
//!
//! **The root** is in memory, or on a disk made of the image; of the host's own files the guest
//! sees none.
//!
//! **Freezing** stops the guest's CPUs. **Saving** writes its memory, its devices and its
//! configuration; the probe, which listens, is connected to anew when it is restored
//! (`docs/design/0024-firecracker-and-cloud-hypervisor.md`).

mod monitor;

use crate::vm::disk;
use crate::vm::vmm::{self, Kind, Vmm};
use crate::{About, common_keys};
use monitor::ByApi;

const KIND: Kind = Kind {
    monitor: &ByApi,
    about: About {
        name: "cloud-hypervisor",
        summary: "a virtual machine by Cloud Hypervisor, whose program is the user's; needs KVM",
        keys: &[
            vmm::ACCEL,
            common_keys::CPUS,
            common_keys::MEMORY,
            common_keys::ROOTFS,
            vmm::NET,
            vmm::DISKS,
            disk::SIZE,
            disk::DEVICE,
            vmm::CACHE,
            vmm::ROOT,
            vmm::INIT,
            vmm::KERNEL,
            vmm::HUGEPAGES,
            common_keys::BINARY,
        ],
    },
    most_cpus: None,
};

/// The platform `cloud-hypervisor`.
pub const CLOUD_HYPERVISOR: Vmm = Vmm::new(&KIND);
