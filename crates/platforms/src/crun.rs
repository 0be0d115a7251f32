//! Containers by crun, the runtime in C that Podman prefers.
//!
//! crun 1.8 refuses a host that has version 2 of control groups mounted beside version 1. There it
//! runs in a mount namespace of its own in which that mount is not there; the host's stays as it
//! is.

use crate::oci::{Kind, Oci, Saving};
use crate::{About, common_keys};

const KIND: Kind = Kind {
    about: About {
        name: "crun",
        summary: "a container by crun without an engine: as runc, by a smaller runtime",
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
    implies: common_keys::OWN_ROOT,
    own_kernel: false,
    refuses_hybrid: true,
    flags: |_| Vec::new(),
    emptied: |_| None,
    to_prove: |_| None,
    saving: Saving::CriuLibrary,
};

/// The platform `crun`.
pub const CRUN: Oci = Oci::new(&KIND);
