//! Cloud Hypervisor: a virtual machine with virtio devices on PCI and ACPI, controlled over a
//! socket.
//!
//! The program is the user's, or the distribution's where one packages it. It runs as the user who
//! runs weighbridge, in a control group of its own.
//!
//! **KVM** executes the guest; its proof and its name are as with Firecracker (`vm/vmm/kvm.rs`).
//!
//! **The root** is in memory, or on a disk made from the image; the guest sees none of the host's
//! own files.
//!
//! **Freezing** stops the guest's CPUs. **Saving** writes its memory, its devices and its
//! configuration. The probe listens, so weighbridge connects to it again after a restore
//! (`docs/design/0024-firecracker-and-cloud-hypervisor.md`).

mod monitor;

use crate::vm::disk;
use crate::vm::vmm::{self, MonitorKind, Vmm};
use crate::{About, common_keys};
use monitor::ByApi;

const KIND: MonitorKind = MonitorKind {
    monitor: &ByApi,
    about: About {
        name: "cloud-hypervisor",
        summary: "a virtual machine by Cloud Hypervisor, a program that you provide; needs KVM",
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
