//! The root of a machine: an initial RAM file system with the probe as init, and the table of its
//! mounts.

use crate::vm::boot::{scratch, terminals};
use crate::{PlatformError, Result};
use std::path::{Path, PathBuf};
use weigh_images::{Bind, ImageError, Initramfs, Mount, PROBE, Root};
use weigh_protocol::boot::{BootMount, MOUNTS};

/// The argument that makes a kernel run the probe as its init.
pub(super) fn init_argument() -> String {
    format!("rdinit={PROBE}")
}

/// The mounts of a machine, in order: the parts of the image by `share`, private scratch, and what
/// programs expect below `/dev`. The last entry makes the root itself read-only, as in containers.
///
/// # Errors
/// Those of `share`, for a part that cannot be given to the machine.
pub(super) fn mounts(root: &Root, share: impl Fn(&Bind) -> Result<BootMount>) -> Result<Vec<BootMount>> {
    let mut mounts =
        vec![terminals(), BootMount::new("tmpfs", "tmpfs", "/dev/shm", "nosuid,nodev,mode=1777")];
    for mount in root.outer_mounts() {
        mounts.push(match mount {
            Mount::Bind(bind) => share(bind)?,
            Mount::Scratch(target) => scratch(target),
        });
    }
    // The kernel sizes its first file system by the memory that is free at that moment, which
    // differs at every boot. Half of the memory is the default of every other tmpfs.
    mounts.push(BootMount::new("none", "none", "/", "remount,ro,size=50%,nr_inodes=1m"));
    Ok(mounts)
}

/// An archive with the skeleton of a root, this table of mounts, and the console that a kernel
/// gives its init.
///
/// # Errors
/// Those of reading the skeleton.
pub(super) fn initramfs(root: &Root, mounts: &[BootMount]) -> Result<Initramfs, ImageError> {
    let mut archive = Initramfs::new();
    archive.skeleton(root)?;
    archive.character_device("/dev/console", 0o600, (5, 1))?;
    archive.bytes(MOUNTS, mounts.iter().map(ToString::to_string).collect::<String>(), 0o644)?;
    Ok(archive)
}

/// Path of a root's archive: beside the skeleton, so that they are removed together.
pub(super) fn initramfs_path(root: &Root) -> PathBuf {
    root.skeleton.with_file_name("uml.cpio")
}

/// A path as text. Roots leave out what is not Unicode, with a note.
pub(super) fn utf8(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| {
        let error = std::io::Error::new(std::io::ErrorKind::InvalidInput, "its path is not valid Unicode");
        PlatformError::io(format!("share {} with a guest", path.display()))(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_come_in_the_order_of_the_root_and_the_root_is_closed_last() {
        let base = tempfile::tempdir().unwrap();
        let bind = |target: &str| Bind { source: target.into(), target: target.into(), read_only: true };
        let root = Root {
            skeleton: base.path().join("work/skeleton"),
            binds: vec![bind("/var"), bind("/usr")],
            scratch: vec!["/tmp".into(), "/run".into(), "/var/tmp".into()],
            host: true,
            ..Root::default()
        };
        let share = |bind: &Bind| Ok(BootMount::new("hostfs", "none", utf8(&bind.target)?, "ro"));
        let table: String = mounts(&root, share).unwrap().iter().map(ToString::to_string).collect();
        let targets: Vec<&str> = table.lines().map(|line| line.split(' ').nth(2).unwrap()).collect();
        assert_eq!(targets, ["/dev/pts", "/dev/shm", "/var", "/usr", "/tmp", "/run", "/var/tmp", "/"]);
        assert!(table.contains("tmpfs tmpfs /run nosuid,nodev,mode=0755\n"));
        assert!(table.contains("tmpfs tmpfs /var/tmp nosuid,nodev,mode=1777\n"));
        assert!(table.ends_with("none none / remount,ro,size=50%,nr_inodes=1m\n"));
        assert_eq!(initramfs_path(&root), base.path().join("work/uml.cpio"));
    }
}
