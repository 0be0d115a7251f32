//! What file systems say of themselves: the space they have, and whether they are memory.

use crate::kernel::KernelError;
use std::fs::File;
use std::path::Path;

/// `f_type` of tmpfs and ramfs (`linux/magic.h`).
const IN_MEMORY: [(u64, &str); 2] = [(0x0102_1994, "tmpfs"), (0x8584_58f6, "ramfs")];

/// Makes sure that the file system below `path` has `bytes` to give. One that does not say is trusted: the write will tell.
///
/// # Errors
/// What is needed, what is there, and `remedy`.
pub(crate) fn require_space(path: &Path, bytes: u64, remedy: &str) -> Result<(), KernelError> {
    let Ok(space) = rustix::fs::statvfs(path) else { return Ok(()) };
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    // A file system without blocks, as some in user space are, has no size to compare with.
    if space.f_blocks == 0 || free >= bytes {
        return Ok(());
    }
    Err(KernelError::Unable(format!(
        "{} has {} free and {} are needed: {remedy}",
        path.display(),
        weigh_model::format_bytes(free >> 20 << 20),
        weigh_model::format_bytes(bytes)
    )))
}

/// The name of the file system in memory that holds `file`. Since Linux 6.6 tmpfs takes `O_DIRECT` and reads memory all the same.
pub(crate) fn in_memory(file: &File) -> Option<&'static str> {
    let kind = rustix::fs::fstatfs(file).ok()?.f_type as u64;
    // The field is signed on some machines, and 32 bits wide on others.
    IN_MEMORY.iter().find(|(magic, _)| *magic == kind & 0xffff_ffff).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_told_with_what_it_needs() {
        let message = require_space(Path::new("/"), 1 << 60, "write less").unwrap_err().to_string();
        assert!(message.starts_with("/ has ") && message.ends_with("are needed: write less"), "{message}");
        require_space(Path::new("/"), 1, "").unwrap();
        require_space(Path::new("/nowhere"), 1, "").unwrap();
    }

    #[test]
    fn memory_is_told_from_disks() {
        let in_dev_shm = tempfile::tempfile_in("/dev/shm");
        if let Ok(file) = in_dev_shm {
            assert_eq!(in_memory(&file), Some("tmpfs"));
        }
        assert_eq!(in_memory(&File::open("/proc/self/status").unwrap()), None);
    }
}
