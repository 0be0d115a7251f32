//! Root file systems of guests, as one mechanism for every platform.
//!
//! A guest's root has three parts, so that nothing of the image is copied and none of it can be
//! written:
//!
//! 1. a small *skeleton* directory: the probe, the kernels, mount points, symbolic links, and an
//!    `/etc` where the image has none;
//! 2. *binds*: the top-level entries of the image, mounted read-only at the same name;
//! 3. *scratch*: private tmpfs mounts, `/tmp` and `/run` among them.
//!
//! A platform mounts them in the order of [`Root::mounts`]. One that takes archives instead of
//! directories (an engine's image store) gets the skeleton from [`Root::write_tar`], a machine's
//! kernel from [`Initramfs`].
//!
//! Systems with their own init boot from [`Root::tree`], the image as one directory. The images
//! that weighbridge builds or pulls itself are in the [`store`].
//!
//! # The host's root
//! Root in a container on the host's kernel may read every file that it sees and connect to every
//! socket, whoever owns them. So guests with the host's root see the host's system, but nothing
//! that the host hides from its users: no home directories; a copy of `/etc` with what everybody
//! may read; no logs, caches and mail; no directory that is closed to others at the top or below
//! `/var`, `/srv` and `/opt`; and nowhere weighbridge's own state and cache. Empty directories and
//! files, mounted over what must not be seen, are further [`Root::binds`], so that platforms need
//! not know about them.
//!
//! # Loops
//! With the host's root as the image, the skeleton usually lies below one of the binds
//! (`/var/lib/...` below `/var`), so it is visible once more inside the guest, at its own place.
//! That cannot recurse: a bind mount shows the mounts that exist when it is made, and never itself.
//! A platform that binds *recursively* copies the mounts made so far with it, so the bind that
//! holds the skeleton is the first of [`Root::binds`], when nothing but the skeleton can be copied.

mod archive;
mod bounds;
mod compression;
pub mod debian;
mod digest;
pub mod disk;
mod error;
mod host;
pub mod initramfs;
pub mod kernel;
mod make;
pub mod modules;
pub mod oci;
mod pack;
pub mod package;
pub mod qcow2;
mod root;
pub mod store;
#[cfg(test)]
mod tests;
pub mod transfer;

pub use error::{FileError, ImageError};
pub use initramfs::Initramfs;
pub use make::{MakeError, Progress};
pub use root::{Bind, Mount, Programs, Root};

/// Entry points for fuzzing the readers of untrusted images.
#[doc(hidden)]
pub mod fuzz {
    use crate::ImageError;
    pub use crate::oci::fuzz::{layers, manifest};
    use std::path::Path;

    /// Unpacks a user's archive into a new directory.
    ///
    /// # Errors
    /// The archive is refused.
    pub fn archive(archive: &Path, into: &Path) -> Result<(), ImageError> {
        crate::archive::unpack(archive, into)
    }
}

/// The path of the probe in every guest.
pub const PROBE: &str = "/.weighbridge/probe";
/// The path of the kernels in every guest, beside the probe.
pub const KERNELS: &str = "/.weighbridge/weigh-kernels";
