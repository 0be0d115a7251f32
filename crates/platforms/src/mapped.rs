//! The root of a guest in a user namespace: an ordinary user of the host, who must be able to reach
//! what it mounts.

use crate::{Host, PlatformError, Result};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use weigh_host::cache::CacheDirectory;
use weigh_host::private;

/// First user and group ID of the host to which those of a user namespace are mapped, and how many:
/// the range that Linux distributions leave free for that (`subuid(5)`).
pub(crate) const MAPPED: (u32, u32) = (100_000, 65_536);

/// The user and group of processes that run virtual machines: the last of these, which hardly any
/// container uses and which owns nothing on the host.
pub(crate) const MONITOR_USER: u32 = MAPPED.0 + MAPPED.1 - 1;

/// Lets a user of the host reach what is in a directory. Closed directories of weighbridge, which
/// are those of the state and of the cache, are opened to this one user; others must be open to
/// everybody.
///
/// # Errors
/// [`PlatformError::Unavailable`] with what keeps the user away, and the remedy.
pub(crate) fn grant_traverse(host: &Host, user: u32, to: &Path) -> Result<()> {
    let canonical = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.into());
    let cache = CacheDirectory::open().map(|cache| canonical(cache.path()));
    let own: Vec<PathBuf> = host.work.parent().map(canonical).into_iter().chain(cache).collect();
    let is_closed = |directory: &Path| {
        let mine = |it: &std::fs::Metadata| it.uid() == user && it.mode() & 0o100 != 0;
        directory.metadata().is_ok_and(|it| it.mode() & 0o001 == 0 && !mine(&it))
    };
    for directory in canonical(to).ancestors().filter(|it| is_closed(it)) {
        let place = directory.display();
        if !own.iter().any(|own| directory.starts_with(own)) {
            let reason = format!(
                "the guest's root (host user {user}) cannot reach {}: {place} does not let other users pass",
                to.display()
            );
            let remedy =
                format!("run `chmod o+x {place}`, or set WEIGH_STATE to a directory that all can reach");
            return Err(PlatformError::unavailable(reason, remedy));
        }
        private::grant_traverse(directory, user).map_err(|error| {
            let reason = format!(
                "cannot let the guest's root (host user {user}) pass {place} by an access control list: {error}"
            );
            PlatformError::unavailable(reason, "set WEIGH_STATE to a directory on a file system that has such lists, such as ext4")
        })?;
    }
    Ok(())
}
