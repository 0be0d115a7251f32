//! Keys that several platforms' machines share, so that one word means the same everywhere.

use crate::KeySpec;

/// The key `accel` of machines that QEMU runs.
pub(crate) const ACCEL: KeySpec = KeySpec::words("accel", &["auto", "kvm", "tcg"]).about(
    "what executes the guest: KVM, emulation, or KVM where it is proven; the name of the \
        environment says which",
);

/// The key `kernel`.
pub(crate) const KERNEL: KeySpec = KeySpec::path("kernel")
    .about("the guest's kernel; default: the newest suitable one of the host, else Debian's cloud kernel");

/// The key `binary` of machines that QEMU runs.
pub(crate) const BINARY: KeySpec =
    KeySpec::path("binary").about("the QEMU to run, instead of the one that is installed");
