//! Containers by runc, the runtime below Docker, Podman and containerd, without an engine above it.

use crate::oci::{Oci, RuntimeKind, Saving};
use crate::{About, KeySpec, common_keys};

const KIND: RuntimeKind = RuntimeKind {
    about: About {
        name: "runc",
        summary: "a container by runc without an engine: all namespaces, Docker's capabilities, no system call filter",
        keys: &[
            common_keys::net(&["none", "host", "bridge", "nat"]),
            common_keys::STORAGE,
            common_keys::CPUS,
            common_keys::MEMORY,
            common_keys::ROOTFS,
            common_keys::SECCOMP_OFF,
            common_keys::USER,
            common_keys::BINARY,
            KeySpec::path("criu").about(
                "the program CRIU, version 4 or later, that saves and restores guests; default: the installed one",
            ),
        ],
    },
    install: "apt-get install runc",
    implies: common_keys::OWN_ROOT,
    own_kernel: false,
    filters_devices: true,
    refuses_hybrid: false,
    flags: |environment| {
        environment.get("criu").into_iter().flat_map(|path| ["--criu".into(), path.into()]).collect()
    },
    emptied: |_| None,
    needs_kvm: |_| None,
    saving: Saving::Criu,
};

/// The platform `runc`.
pub const RUNC: Oci = Oci::new(&KIND);
