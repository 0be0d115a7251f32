//! Containers by crun, the runtime in C that Podman prefers.
//!
//! crun 1.8 refuses a host that has cgroup v2 mounted beside v1. On such a host it runs in its own
//! mount namespace, in which that mount is covered; the host's mounts do not change.

use crate::oci::{Oci, RuntimeKind, Saving};
use crate::{About, common_keys};

const KIND: RuntimeKind = RuntimeKind {
    about: About {
        name: "crun",
        summary: "a container by crun without an engine: like runc, but a smaller runtime",
        keys: &[
            common_keys::net(&["none", "host", "bridge", "nat"]),
            common_keys::STORAGE,
            common_keys::CPUS,
            common_keys::MEMORY,
            common_keys::ROOTFS,
            common_keys::SECCOMP_OFF,
            common_keys::USER,
            common_keys::BINARY,
        ],
    },
    install: "apt-get install crun",
    implies: common_keys::OWN_ROOT,
    own_kernel: false,
    filters_devices: true,
    refuses_hybrid: true,
    flags: |_| Vec::new(),
    emptied: |_| None,
    needs_kvm: |_| None,
    saving: Saving::CriuLibrary,
};

/// The platform `crun`.
pub const CRUN: Oci = Oci::new(&KIND);
