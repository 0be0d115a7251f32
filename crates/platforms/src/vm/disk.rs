//! Disks of machines: one for workloads, filled with random content, and the root of an image.
//!
//! A disk for workloads belongs to one guest at a time. Disks of a size and kind are kept in the
//! run's work directory and handed from guest to guest as long as none has written to them; one
//! that was written to is made anew. No two guests ever have the same writable image.
//!
//! The root disk of an image is made once ([`weigh_images::disk`]). A guest gets an overlay of its
//! own above it, or a copy where its platform reads raw images only.

mod data;
mod device;
mod fill;
mod root;

#[allow(unused_imports, reason = "the drivers take it up one by one")]
pub(crate) use data::{DEVICE, DataDisk, DiskKind, Format, SIZE, STORAGE, Wanted, disk_key};
pub(crate) use device::undo;
#[allow(unused_imports, reason = "the drivers take it up one by one")]
pub(crate) use root::{GuestRoot, MODULES, mounts, probe_words, root_disk};

/// Name under which the changes of this module are in ledgers, as if it were a platform.
pub(crate) const PLATFORM: &str = "disk";
