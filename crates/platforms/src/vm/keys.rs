//! Keys that machines of several platforms have: one word means the same wherever a platform takes
//! it.

use crate::{KeySpec, Values};

/// `accel` of machines that QEMU plays.
pub(crate) const ACCEL: KeySpec = KeySpec {
    name: "accel",
    values: Values::Words(&["auto", "kvm", "tcg"]),
    default: "auto",
    summary: "what executes the guest: KVM, emulation, or KVM where it is proven; the name of the environment says which",
};

/// `kernel`.
pub(crate) const KERNEL: KeySpec = KeySpec {
    name: "kernel",
    values: Values::Path,
    default: "",
    summary: "the guest's kernel; else the newest of the host's that can serve, else Debian's for clouds",
};

/// `binary` of machines that QEMU plays.
pub(crate) const BINARY: KeySpec = KeySpec {
    name: "binary",
    values: Values::Path,
    default: "",
    summary: "the QEMU to run, instead of the one that is installed",
};
