//! Containers by youki, the runtime in Rust.
//!
//! Version 0.7 lacks two keys that the other runtimes have. Built without libseccomp it ignores a
//! system call filter without a word. And it opens every mount point to read it, so that a mapped
//! root cannot cover those directories of the host's root that are closed to others.

use crate::oci::{Kind, Oci, Saving};
use crate::{About, common_keys};

const KIND: Kind = Kind {
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
    install: "cargo install youki --no-default-features --features v1,v2",
    implies: common_keys::OWN_ROOT,
    own_kernel: false,
    refuses_hybrid: false,
    flags: |_| Vec::new(),
    emptied: |_| None,
    needs_kvm: |_| None,
    saving: Saving::No,
};

/// The platform `youki`.
pub const YOUKI: Oci = Oci::new(&KIND);
