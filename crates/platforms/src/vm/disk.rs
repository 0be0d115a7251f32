//! Disks of machines: one for workloads, filled with random content, and the root of an image.
//!
//! A disk for workloads belongs to one guest at a time. Disks of a size and kind are kept in the
//! run's work directory and passed from guest to guest as long as no guest has written to them; one
//! that was written to is replaced by a new one. No two guests ever have the same writable image.
//!
//! The root disk of an image is made once ([`weigh_images::disk`]). A guest gets its own overlay of
//! it, or a copy where its platform reads raw images only.

mod data;
mod device;
mod fill;
mod root;

#[allow(unused_imports, reason = "the drivers take it up one by one")]
pub(crate) use data::{DEVICE, DataDisk, DataDiskSpec, DiskKind, Format, SIZE, STORAGE, disk_key};
pub(crate) use device::undo;
#[allow(unused_imports, reason = "the drivers take it up one by one")]
pub(crate) use root::{GuestRoot, MODULES, mounts, probe_words, root_disk};

/// The name of this module's changes in ledgers, in the place of a platform's.
pub(crate) const PLATFORM: &str = "disk";
