//! The capabilities (`capabilities(7)`) of root in a guest on the host's kernel.

use rustix::thread::CapabilitySet;

/// Those that Docker gives by default, so that platforms differ in what they are and not in this.
/// `MKNOD` needs a filter of devices beside it: with the node of a disk a guest would have the
/// whole disk.
pub(crate) const OF_DOCKER: CapabilitySet = WITHOUT_DEVICES.union(CapabilitySet::MKNOD);

/// The same without `MKNOD`, for platforms that filter no devices.
pub(crate) const WITHOUT_DEVICES: CapabilitySet = CapabilitySet::AUDIT_WRITE
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::SETFCAP)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SYS_CHROOT);

/// The names of capabilities as programs take them: `CAP_CHOWN`.
pub(crate) fn names(of: CapabilitySet) -> Vec<String> {
    of.iter_names().map(|(name, _)| format!("CAP_{name}")).collect()
}
