//! Keys that machines of several platforms have: one word means the same wherever a platform takes
//! it.

use crate::KeySpec;

/// `accel` of machines that QEMU plays.
pub(crate) const ACCEL: KeySpec = KeySpec::words("accel", &["auto", "kvm", "tcg"]).about(
    "what executes the guest: KVM, emulation, or KVM where it is proven; the name of the \
        environment says which",
);

/// `kernel`.
pub(crate) const KERNEL: KeySpec = KeySpec::path("kernel")
    .about("the guest's kernel; else the newest of the host's that can serve, else Debian's for clouds");

/// `binary` of machines that QEMU plays.
pub(crate) const BINARY: KeySpec =
    KeySpec::path("binary").about("the QEMU to run, instead of the one that is installed");
