//! The host itself, confined to the CPUs and the memory of a guest.
