//! What file systems report: the space they have, and whether they are in memory.

use crate::kernel::KernelError;
use std::fs::File;
use std::path::Path;

const MEBIBYTE: u64 = 1 << 20;

/// `f_type` of tmpfs and ramfs (`linux/magic.h`).
const IN_MEMORY: [(u64, &str); 2] = [(0x0102_1994, "tmpfs"), (0x8584_58f6, "ramfs")];

/// Makes sure that the file system below `path` has `bytes` bytes free. A file system that does not
/// report its size is trusted: the write will show.
///
/// # Errors
/// Too little is free; the message names the need, the free space and `remedy`.
pub(crate) fn require_space(path: &Path, bytes: u64, remedy: &str) -> Result<(), KernelError> {
    let Ok(space) = rustix::fs::statvfs(path) else { return Ok(()) };
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    // A file system without blocks, such as some in user space, has no size to compare with.
    if space.f_blocks == 0 || free >= bytes {
        return Ok(());
    }
    Err(KernelError::Unable(format!(
        "{} has {} free and {} are needed: {remedy}",
        path.display(),
        in_mebibytes(free),
        in_mebibytes(bytes.saturating_add(MEBIBYTE - 1))
    )))
}

/// Makes sure that `bytes` of memory are available: no more than `limit`, unless that is 0, and no
/// more than this system reports as available. If it does not report that, the work will show.
///
/// # Errors
/// There is too little; the message names the need, the available memory and `remedy`.
pub(crate) fn require_memory(bytes: u64, limit: u64, remedy: &str) -> Result<(), KernelError> {
    let available = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| available_bytes(&text));
    let limit = (limit > 0).then_some((limit, "may use"));
    let bounds = limit.into_iter().chain(available.map(|bytes| (bytes, "has available")));
    let Some((has, verb)) = bounds.min().filter(|(has, _)| *has < bytes) else { return Ok(()) };
    Err(KernelError::Unable(format!(
        "{} of memory are needed and the guest {verb} {}: {remedy}",
        in_mebibytes(bytes.saturating_add(MEBIBYTE - 1)),
        in_mebibytes(has)
    )))
}

/// `MemAvailable` (proc_meminfo(5)), bytes.
fn available_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kibibytes| kibibytes << 10)
}

/// A size for people, rounded down to a whole MiB.
fn in_mebibytes(bytes: u64) -> String {
    weigh_model::format_bytes(bytes / MEBIBYTE * MEBIBYTE)
}

/// The name of the in-memory file system that holds `file`. Since Linux 6.6 tmpfs accepts
/// `O_DIRECT` but still reads memory.
pub(crate) fn in_memory(file: &File) -> Option<&'static str> {
    let kind = rustix::fs::fstatfs(file).ok()?.f_type as u64;
    // The field is signed on some machines, and 32 bits wide on others.
    IN_MEMORY.iter().find(|(magic, _)| *magic == kind & 0xffff_ffff).map(|(_, name)| *name)
}

/// `f_type` of file systems that a process serves (`linux/magic.h`, FUSE_SUPER_MAGIC).
const IN_USER_SPACE: u64 = 0x6573_5546;

/// Whether a process serves the file system that holds `file`, such as fuse-overlayfs. `O_DIRECT`
/// then reaches that process and no further.
pub(crate) fn in_user_space(file: &File) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|system| system.f_type as u64 & 0xffff_ffff == IN_USER_SPACE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_does_not_fit_on_disk_is_reported_with_its_needs() {
        let message = require_space(Path::new("/"), 1 << 60, "write less").unwrap_err().to_string();
        assert!(message.starts_with("/ has ") && message.ends_with("are needed: write less"), "{message}");
        require_space(Path::new("/"), 1, "").unwrap();
        require_space(Path::new("/nowhere"), 1, "").unwrap();
    }

    #[test]
    fn missing_memory_is_reported_with_the_available_memory() {
        let error = |bytes, limit| require_memory(bytes, limit, "fewer keys").unwrap_err().to_string();
        let told = error((200 << 20) + 1, 100 << 20);
        assert_eq!(told, "201MiB of memory are needed and the guest may use 100MiB: fewer keys");
        let told = error(1 << 60, 0);
        assert!(told.starts_with("1048576TiB of memory are needed and the guest has available "), "{told}");
        assert!(error(1 << 60, 1 << 59).contains("has available"), "the smaller bound is told");
        require_memory(1, 0, "").unwrap();
        require_memory(1, 100, "").unwrap();
    }

    #[test]
    fn available_memory_is_read() {
        let meminfo = "MemTotal:  2097152 kB\nMemFree: 1 kB\nMemAvailable:   1024 kB\n";
        assert_eq!(available_bytes(meminfo), Some(1 << 20));
        assert_eq!(available_bytes("MemTotal: 1 kB\n"), None);
    }

    #[test]
    fn memory_is_distinguished_from_disks() {
        let in_dev_shm = tempfile::tempfile_in("/dev/shm");
        if let Ok(file) = in_dev_shm {
            assert_eq!(in_memory(&file), Some("tmpfs"));
        }
        let proc = File::open("/proc/self/status").unwrap();
        assert_eq!((in_memory(&proc), in_user_space(&proc)), (None, false));
    }
}
