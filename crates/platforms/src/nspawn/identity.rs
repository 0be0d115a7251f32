//! The boot identity of the kernel, which systemd-nspawn hides from its containers.

use crate::Guest;
use crate::enter::uncover_boot_identity;
use crate::spawn::{LocalGuest, is_first};

/// Lets a container read the kernel's own boot identity. If that fails, the container is assumed to
/// have its own clock, and that is checked.
pub(super) fn restore(guest: &LocalGuest) {
    if let Some(first) = guest.processes().into_iter().find(|pid| is_first(*pid)) {
        let _its_clock_is_checked_otherwise = uncover_boot_identity(first);
    }
}
