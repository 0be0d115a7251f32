//! Root file systems of guests, as one mechanism for every platform.
//!
//! A guest's root is made of three things, so that nothing of the image is copied and nothing of it
//! can be written:
//!
//! 1. a small *skeleton* directory: the probe, the kernels, mount points, symbolic links, and an
//!    `/etc` where the image has none;
//! 2. *binds*: the top-level entries of the image, mounted read-only at the same name;
//! 3. *scratch*: private tmpfs mounts, `/tmp` and `/run` among them.
//!
//! A platform mounts them in the order of [`Root::mounts`]; one that takes archives instead of
//! directories (an engine's image store) gets the skeleton from [`Root::write_tar`], a machine's
//! kernel from [`Initramfs`].
//!
//! Systems with an init of their own boot from [`Root::tree`], the image as one directory. The
//! images that weighbridge builds or pulls itself are in the [`store`].
//!
//! # The host's root
//! Root of a container on the host's kernel may read every file that it sees and connect to every
//! socket, whoever they belong to. So guests with the host's root see the host's system and nothing
//! that the host keeps from its users: no home directories; a copy of `/etc` that has what
//! everybody may read; no logs, caches and mail; of the top, `/var`, `/srv` and `/opt` no directory
//! that is closed to others; weighbridge's own state and cache nowhere. Empty directories and
//! files, mounted over what must not be seen, are further [`Root::binds`], so that platforms need
//! not know of them.
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

/// What reads images that nobody vouches for, for fuzzing.
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

/// The probe inside every guest.
pub const PROBE: &str = "/.weighbridge/probe";
/// The kernels inside every guest, beside the probe.
pub const KERNELS: &str = "/.weighbridge/weigh-kernels";
