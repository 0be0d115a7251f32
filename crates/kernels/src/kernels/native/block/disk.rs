//! What is read and written, and what must not be.

use super::content;
use crate::kernel::KernelError;
use crate::kernels::native::place;
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// How a disk is to be opened.
#[derive(Debug, Clone, Copy)]
pub(super) struct Access {
    /// Bypass the page cache.
    pub(super) direct: bool,
    pub(super) writes: bool,
    /// Whether the user allowed a block device to be overwritten.
    pub(super) destroy: bool,
}

pub(super) struct Disk {
    pub(super) file: File,
    pub(super) path: PathBuf,
    /// Its length, bytes.
    pub(super) bytes: u64,
    /// Whether its sectors hold their places.
    pub(super) stamped: bool,
    pub(super) direct: bool,
}

/// Opens a disk. Only the user can choose cached access instead of direct access, and nothing that
/// belongs to somebody else is written.
pub(super) fn open(path: &Path, access: Access) -> Result<Disk, KernelError> {
    let there = std::fs::metadata(path);
    if let Ok(there) = &there {
        let kind = there.file_type();
        refuse_other_kinds(path, kind)?;
        if access.writes && kind.is_file() && !content::is_stamped(path)? {
            return Err(KernelError::Unable(format!(
                "{} is somebody else's file: nothing is written to it; have one written with `--file-bytes 1GiB` under another name",
                path.display()
            )));
        }
        if access.writes && kind.is_block_device() && !access.destroy {
            return Err(KernelError::Unable(format!(
                "{} is a block device, and writing would destroy what is on it: allow that with `--destroy on`, or write to a file",
                path.display()
            )));
        }
    }
    let is_device = there.as_ref().is_ok_and(|there| there.file_type().is_block_device());
    let mut flags = if access.direct { libc::O_DIRECT } else { 0 };
    if is_device && access.writes {
        // For a device the flag means: fail if the device, or a part of it, is mounted (open(2)).
        flags |= libc::O_EXCL;
    }
    let opened = OpenOptions::new().read(true).write(access.writes).custom_flags(flags).open(path);
    let mut file = opened.map_err(|error| cannot_open(path, access, error))?;
    let kind = file.metadata().map_err(KernelError::system("read what kind of file it is"))?.file_type();
    if let (true, true, Some(name)) = (access.direct, kind.is_file(), place::in_memory(&file)) {
        return Err(KernelError::Unable(format!(
            "{} is in memory ({name}), where O_DIRECT reaches no disk; name a file on a disk, or the disk, with `--path`",
            path.display()
        )));
    }
    let bytes = file.seek(SeekFrom::End(0)).map_err(KernelError::system("find the length of the disk"))?;
    let stamped = kind.is_file() && content::is_stamped(path)?;
    Ok(Disk { file, path: path.into(), bytes, stamped, direct: access.direct })
}

fn refuse_other_kinds(path: &Path, kind: std::fs::FileType) -> Result<(), KernelError> {
    if kind.is_file() || kind.is_block_device() {
        return Ok(());
    }
    Err(KernelError::Unable(format!("{} is neither a file nor a block device", path.display())))
}

fn cannot_open(path: &Path, access: Access, error: std::io::Error) -> KernelError {
    let doing =
        format!("open {} for reading{}", path.display(), if access.writes { " and writing" } else { "" });
    match error.raw_os_error() {
        Some(libc::EINVAL) if access.direct => KernelError::Unable(format!(
            "cannot {doing} past the page cache: its file system has no O_DIRECT; name a file on a disk, or the disk, with `--path`"
        )),
        Some(libc::EBUSY) if access.writes => KernelError::Unable(format!(
            "cannot {doing}: it, or a part of it, is mounted or in use; name a disk that nobody uses"
        )),
        Some(libc::ENOENT) => KernelError::Unable(format!(
            "there is no {}; name a file or block device with `--path`, or have one written with `--file-bytes 1GiB`",
            path.display()
        )),
        _ => KernelError::System { doing, source: error },
    }
}
