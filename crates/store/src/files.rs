//! Reads files of a directory that somebody else may have made.
//!
//! A run directory may come from another machine or another user. No name in it leads out of it:
//! neither the directories below it nor the file itself may be symbolic links. Only regular files
//! are opened, as others could block, and a file that does not fit into the memory of this host is
//! not read.

use rustix::fs::{CWD, Mode, OFlags, openat};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

/// The longest file of samples or events, bytes.
pub(crate) const LONGEST_SAMPLES_BYTES: u64 = 4 << 30;
/// The longest other file, bytes.
pub(crate) const LONGEST_BYTES: u64 = 64 << 20;
/// The permissions of a new file, which everybody may read.
pub(crate) const NEW: Mode = Mode::from_raw_mode(0o644);
/// A file may take at most the free memory divided by this, because the values read from its text
/// take more.
const MEMORY_SHARE: u64 = 4;

/// Opens a file of a directory by its path relative to it. Refuses paths that are absolute, contain
/// `..`, lead through symbolic links, or name anything but a regular file.
pub(crate) fn open(directory: &Path, name: &str, flags: OFlags) -> io::Result<File> {
    open_or_make(directory, name, flags, NEW)
}

/// Opens a file as [`open`] does, for writes that survive a crash. A new file gets the permissions
/// `mode`.
pub(crate) fn open_durable(
    directory: &Path,
    name: &str,
    flags: OFlags,
    mode: Mode,
) -> io::Result<weigh_disk::File> {
    weigh_disk::File::open_with(&directory.join(name), || open_or_make(directory, name, flags, mode))
}

fn open_or_make(directory: &Path, name: &str, flags: OFlags, mode: Mode) -> io::Result<File> {
    let mut parts: Vec<&std::ffi::OsStr> = Vec::new();
    for part in Path::new(name).components() {
        match part {
            Component::Normal(part) => parts.push(part),
            Component::CurDir => {}
            _ => return Err(outside()),
        }
    }
    let Some((file, parents)) = parts.split_last() else { return Err(outside()) };
    let place = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at: OwnedFd = openat(CWD, directory, place, Mode::empty())?;
    for parent in parents {
        at = openat(&at, *parent, place | OFlags::NOFOLLOW, Mode::empty()).map_err(of_link)?;
    }
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(&at, *file, flags, mode).map_err(of_link)?);
    if file.metadata()?.is_file() { Ok(file) } else { Err(outside()) }
}

/// Reads a file of a directory that has at most `most` bytes.
///
/// # Errors
/// Errors of the file system; the path is absolute, contains `..`, leads through a symbolic link,
/// or does not name a regular file; the file is longer than `most` or a quarter of the free memory.
pub fn read(directory: &Path, name: &str, most: u64) -> io::Result<Vec<u8>> {
    let file = open(directory, name, OFlags::RDONLY)?;
    check_length(file.metadata()?.len(), most)?;
    read_all(file, most)
}

/// Reads a file of any kind that the user named and that has at most `most` bytes.
///
/// # Errors
/// Errors of the file system; the file is longer than `most` or a quarter of the free memory.
pub fn read_named(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    read_all(File::open(path)?, most)
}

fn read_all(file: File, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    check_length(bytes.len() as u64, most).map(|()| bytes)
}

/// Refuses a file that is too long to be read.
pub(crate) fn check_length(bytes: u64, most: u64) -> io::Result<()> {
    let free = available_bytes().map_or(u64::MAX, |available| available / MEMORY_SHARE);
    if bytes <= most.min(free) {
        return Ok(());
    }
    let bound = if most <= free { "the limit" } else { "a quarter of this host's free memory" };
    let text =
        format!("it has {} MiB, more than {bound} of {} MiB", bytes.div_ceil(1 << 20), most.min(free) >> 20);
    Err(io::Error::new(io::ErrorKind::FileTooLarge, text))
}

/// `MemAvailable` of proc_meminfo(5), bytes.
fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

fn outside() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file in this directory")
}

/// Maps the error of an open. The kernel returns ELOOP and ENOTDIR for links that are not followed.
fn of_link(errno: rustix::io::Errno) -> io::Error {
    match errno {
        rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR | rustix::io::Errno::NXIO => outside(),
        errno => errno.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FileType, mknodat};
    use std::os::unix::fs::symlink;

    #[test]
    fn nothing_leads_out_of_the_directory() {
        let base = tempfile::tempdir().unwrap();
        let (run, outside) = (base.path().join("run"), base.path().join("outside"));
        for directory in [&run.join("logs"), &outside] {
            std::fs::create_dir_all(directory).unwrap();
        }
        std::fs::write(run.join("logs/own"), "own").unwrap();
        std::fs::write(outside.join("secret"), "secret").unwrap();
        symlink(&outside, run.join("link")).unwrap();
        symlink(outside.join("secret"), run.join("logs/file")).unwrap();
        symlink("own", run.join("logs/inside")).unwrap();
        mknodat(CWD, run.join("logs/fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert_eq!(read(&run, "logs/own", 3).unwrap(), b"own");
        // The user named the directory itself, which may be reached by a link.
        symlink(&run, base.path().join("run-link")).unwrap();
        assert_eq!(read(&base.path().join("run-link"), "logs/own", 3).unwrap(), b"own");
        let absolute = outside.join("secret").display().to_string();
        for name in [
            "link/secret",
            "logs/file",
            "logs/inside",
            "logs/fifo",
            "logs",
            "../outside/secret",
            &absolute,
            "",
        ] {
            let error = read(&run, name, 100).unwrap_err();
            assert!(error.to_string().contains("not a regular file in this directory"), "{name}: {error}");
            assert!(open(&run, name, OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE).is_err(), "{name}");
        }
        assert_eq!(std::fs::read_to_string(outside.join("secret")).unwrap(), "secret");
    }

    #[test]
    fn a_file_that_is_too_long_is_not_read() {
        let base = tempfile::tempdir().unwrap();
        let file = File::create(base.path().join("sparse")).unwrap();
        file.set_len(40 << 30).unwrap();
        let error = read(base.path(), "sparse", LONGEST_SAMPLES_BYTES).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert!(error.to_string().contains("40960 MiB"), "{error}");
        assert!(read_named(&base.path().join("sparse"), 100).is_err());
        assert!(read_named(Path::new("/dev/zero"), 100).is_err());
    }
}
