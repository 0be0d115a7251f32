//! Containers by youki, the runtime in Rust.
//!
//! Version 0.7 lacks two keys that the other runtimes have. Built without libseccomp it silently
//! ignores a system call filter. It also opens every mount point for reading, which a mapped root
//! may not do where the host's directory is closed to others.
//!
//! Built without its feature `cgroupsv2_devices` it silently ignores the filter of devices on a host
//! with control groups of version 2. So its guests may make no device files.

use crate::oci::{Oci, RuntimeKind, Saving};
use crate::{About, common_keys};

const KIND: RuntimeKind = RuntimeKind {
    about: About {
        name: "youki",
        summary: "a container by youki without an engine: like runc, but a runtime in Rust",
        keys: &[
            common_keys::net(&["none", "host", "bridge", "nat"]),
            common_keys::STORAGE,
            common_keys::CPUS,
            common_keys::MEMORY,
            common_keys::ROOTFS,
            common_keys::BINARY,
        ],
    },
    install: "cargo install youki --locked --no-default-features --features v1,v2",
    implies: common_keys::OWN_ROOT,
    own_kernel: false,
    filters_devices: false,
    refuses_hybrid: false,
    flags: |_| Vec::new(),
    emptied: |_| None,
    needs_kvm: |_| None,
    saving: Saving::No,
};

/// The platform `youki`.
pub const YOUKI: Oci = Oci::new(&KIND);
