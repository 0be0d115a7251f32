//! Functions shared by the servers: announcing that they listen, and waiting for their end.

use crate::kernel::KernelError;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The line that a server prints when it listens.
const LISTENING: &str = "listening";

/// Device number of `/dev/null`: major 1, minor 3 (Documentation/admin-guide/devices.txt of Linux).
const NULL_DEVICE: u64 = 1 << 8 | 3;

/// Announces on stdout that the server listens. The result is another line.
pub(super) fn say_listening() -> Result<(), KernelError> {
    let mut output = std::io::stdout().lock();
    let said = writeln!(output, "{LISTENING}").and_then(|()| output.flush());
    said.map_err(KernelError::system("say that the server listens"))
}

/// A flag that is set when stdin is closed, upon which the server must end.
///
/// If stdin is `/dev/null`, which reads as closed at once, the server lives until it is killed.
pub(super) fn ends_with_stdin() -> Arc<AtomicBool> {
    let ended = Arc::new(AtomicBool::new(false));
    if stdin_is_null() {
        return ended;
    }
    let flag = Arc::clone(&ended);
    std::thread::spawn(move || {
        // The input is ignored, and an unreadable stdin counts as closed.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        flag.store(true, Ordering::Relaxed);
    });
    ended
}

fn stdin_is_null() -> bool {
    std::io::stdin().as_fd().try_clone_to_owned().is_ok_and(|stdin| is_null(&File::from(stdin)))
}

fn is_null(file: &File) -> bool {
    file.metadata().is_ok_and(|about| about.file_type().is_char_device() && about.rdev() == NULL_DEVICE)
}

/// Raises the limit of open files, if necessary, as far as this process may. If that is not enough,
/// connecting fails later.
pub(super) fn allow_sockets(clients: u64) {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < clients + 64) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server without a stdin must not end at once.
    #[test]
    fn the_null_device_is_told_from_other_files() {
        assert!(is_null(&File::open("/dev/null").unwrap()));
        assert!(!is_null(&File::open("/dev/zero").unwrap()));
        assert!(!is_null(&File::open("/proc/self/maps").unwrap()));
    }
}
