//! Stacking the layers of an image into one directory.
//!
//! A layer is an untrusted tar archive. The kernel resolves every path in it as if the root were
//! `/` (openat2(2), `RESOLVE_IN_ROOT`), so that no link and no `..` leads out of it. The last
//! component of a path is never followed.

use super::PullError;
use crate::bounds::{Bounds, DEEPEST, Metered, named, refused};
use crate::{FileError, compression};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, FileTimes, Permissions};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Prefix of entries that remove an entry of lower layers (OCI image specification 1.1,
/// "Whiteouts").
const WHITEOUT: &[u8] = b".wh.";
/// The entry that removes all entries of lower layers from its directory.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Prefix of entries that are meaningful only to an old file system.
const RESERVED: &[u8] = b".wh..wh.";

/// The directory into which layers are unpacked.
pub(super) struct Layers {
    root: OwnedFd,
    /// Whether this user may set the owners of files.
    owners: bool,
    /// The limits that remain for further layers.
    bounds: Bounds,
    /// Number of directories above the root.
    depth: usize,
}

/// The location of an entry: its open directory and its name.
struct Location {
    directory: OwnedFd,
    name: OsString,
}

impl Location {
    /// A path that no link in the image can redirect.
    fn path(&self) -> PathBuf {
        Path::new("/proc/self/fd").join(self.directory.as_raw_fd().to_string()).join(&self.name)
    }
}

impl Layers {
    /// Begins with an empty directory.
    pub(super) fn new(root: &Path) -> Result<Self, PullError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = rustix::fs::open(root, flags, Mode::empty()).map_err(io::Error::from);
        let open = open.map_err(FileError::of("open", root))?;
        let depth = depth_of(&open).map_err(FileError::of("look at", root))?;
        Ok(Self { root: open, owners: weigh_host::facts::is_root(), bounds: Bounds::new(), depth })
    }

    /// Unpacks the next layer on top.
    pub(super) fn add(&self, layer: &Path) -> Result<(), PullError> {
        // Whiteouts apply only to lower layers, wherever they are in the archive.
        self.for_each_entry(layer, |name, kind, _| match kind {
            Kind::Opaque => self.clear(name),
            Kind::Whiteout => self.remove(name),
            Kind::Entry => Ok(()),
        })?;
        self.for_each_entry(layer, |name, kind, entry| match kind {
            Kind::Entry => self.unpack(name, entry),
            Kind::Opaque | Kind::Whiteout => Ok(()),
        })
    }

    /// Calls `act` for every entry of a layer.
    fn for_each_entry(
        &self,
        layer: &Path,
        mut act: impl FnMut(&Path, Kind, &mut tar::Entry<'_, Metered<Box<dyn Read>>>) -> io::Result<()>,
    ) -> Result<(), PullError> {
        let packed = layer.metadata().map_err(FileError::of("look at", layer))?.len();
        let bytes = compression::open(layer).map_err(FileError::of("open", layer))?;
        let (bytes, allowance) = Metered::new(bytes, packed);
        let mut archive = tar::Archive::new(bytes);
        for entry in archive.entries().map_err(FileError::of("read", layer))? {
            let mut entry = entry.map_err(FileError::of("read", layer))?;
            let name = entry.path_bytes().into_owned();
            let failed = |source| PullError::Entry { entry: named(&name), source };
            allowance.entry(&mut entry).map_err(failed)?;
            if let Some((path, kind)) = target(Path::new(OsStr::from_bytes(&name))).map_err(failed)? {
                act(&path, kind, &mut entry).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Opens the directory of an entry. If `make` is set, a missing directory is made.
    fn locate(&self, path: &Path, make: bool) -> io::Result<Option<Location>> {
        let name = path.file_name().unwrap_or_default().to_os_string();
        let parent = path.parent().unwrap_or(Path::new(""));
        let directory = match self.open(parent) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !make => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.make_directory(parent)?;
                self.open(parent)?
            }
            other => other?,
        };
        // Links from lower layers may lead deeper than the path shows.
        if depth_of(&directory)? > self.depth + DEEPEST {
            return Err(refused(format!("it lies below more than {DEEPEST} directories")));
        }
        Ok(Some(Location { directory, name }))
    }

    fn open(&self, directory: &Path) -> io::Result<OwnedFd> {
        let path = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        loop {
            match openat2(
                &self.root,
                path,
                flags,
                Mode::empty(),
                ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS,
            ) {
                // A directory was renamed at the same time, see openat2(2).
                Err(Errno::AGAIN) => {}
                other => return Ok(other?),
            }
        }
    }

    /// Makes a directory that has no entry in the archive, with its parents.
    fn make_directory(&self, path: &Path) -> io::Result<()> {
        let Some(location) = self.locate(path, true)? else { return Ok(()) };
        fs::create_dir(location.path())?;
        fs::set_permissions(location.path(), Permissions::from_mode(0o755))
    }

    /// Removes the entries of lower layers from a directory.
    fn clear(&self, directory: &Path) -> io::Result<()> {
        let open = match self.open(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            open => open?,
        };
        let path = Path::new("/proc/self/fd").join(open.as_raw_fd().to_string());
        // Read all names first: listing a directory while it changes may skip entries.
        let names =
            fs::read_dir(&path)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
        names.iter().try_for_each(|name| remove(&path.join(name)))
    }

    /// Removes an entry of lower layers.
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.locate(path, false)?.map_or(Ok(()), |location| remove(&location.path()))
    }

    /// Unpacks an entry, which replaces an existing one.
    fn unpack<R: Read>(&self, name: &Path, entry: &mut tar::Entry<'_, R>) -> io::Result<()> {
        let kind = entry.header().entry_type();
        let root = PathBuf::from(format!("/proc/self/fd/{}", self.root.as_raw_fd()));
        self.bounds.entry(name.as_os_str().as_bytes(), entry.size(), &root)?;
        if name.as_os_str().is_empty() {
            return Ok(()); // the root itself
        }
        let Some(location) = self.locate(name, true)? else { return Ok(()) };
        let path = location.path();
        let mode = Permissions::from_mode(entry.header().mode()? & 0o7777);
        if kind.is_dir() {
            if !path.symlink_metadata().is_ok_and(|existing| existing.is_dir()) {
                remove(&path)?;
                fs::create_dir(&path)?;
            }
            self.set_owner(&path, entry.header())?;
            // An unprivileged user must be able to fill it.
            let least = if self.owners { 0 } else { 0o700 };
            return fs::set_permissions(&path, Permissions::from_mode(mode.mode() | least));
        }
        if kind.is_symlink() {
            let target = entry.link_name_bytes().ok_or_else(|| fault("is a link to nothing"))?.into_owned();
            remove(&path)?;
            symlink(OsStr::from_bytes(&target), &path)?;
            return self.set_owner(&path, entry.header());
        }
        if kind.is_hard_link() {
            let target = entry.link_name_bytes().ok_or_else(|| fault("is a link to nothing"))?.into_owned();
            let target = plain(Path::new(OsStr::from_bytes(&target)))?;
            let target =
                self.locate(&target, false)?.ok_or_else(|| fault("is a hard link to a missing file"))?;
            if target.path().symlink_metadata()?.is_dir() {
                return Err(fault("is a hard link to a directory"));
            }
            remove(&path)?;
            return fs::hard_link(target.path(), &path);
        }
        if !(kind.is_file() || kind.is_contiguous() || kind.is_gnu_sparse()) {
            return Ok(()); // devices, pipes: guests get their own
        }
        remove(&path)?;
        let mut file = File::options().write(true).create_new(true).open(&path)?;
        let written = io::copy(entry, &mut file)?;
        if written != entry.size() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.set_owner(&path, entry.header())?;
        file.set_permissions(mode)?;
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(entry.header().mtime()?.min(u32::MAX.into()));
        file.set_times(FileTimes::new().set_modified(time))
    }

    /// Sets the owner. Permissions must be set afterwards, because chown(2) clears the set-user-ID
    /// bit.
    fn set_owner(&self, path: &Path, header: &tar::Header) -> io::Result<()> {
        let id = |id: io::Result<u64>| id.map(|id| u32::try_from(id).ok());
        if self.owners { lchown(path, id(header.uid())?, id(header.gid())?) } else { Ok(()) }
    }
}

/// The kind of an entry of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Entry,
    Whiteout,
    Opaque,
}

/// The kind of an entry, and the path to which it applies; `None` for entries to skip.
fn target(path: &Path) -> io::Result<Option<(PathBuf, Kind)>> {
    let path = plain(path)?;
    let name = path.file_name().unwrap_or_default().as_bytes();
    if name == OPAQUE {
        return Ok(Some((path.parent().unwrap_or(Path::new("")).into(), Kind::Opaque)));
    }
    if name.starts_with(RESERVED) {
        return Ok(None);
    }
    match name.strip_prefix(WHITEOUT) {
        Some(b"" | b"." | b"..") => Err(fault("is a whiteout without a name")),
        Some(name) => Ok(Some((path.with_file_name(OsStr::from_bytes(name)), Kind::Whiteout))),
        None => Ok(Some((path, Kind::Entry))),
    }
}

/// A path without `.` and a leading `/`; `..` is an error.
fn plain(path: &Path) -> io::Result<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(part) => plain.push(part),
            Component::ParentDir => return Err(fault("has `..` in its path")),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    Ok(plain)
}

/// The number of directories above a directory.
fn depth_of(directory: &OwnedFd) -> io::Result<usize> {
    let path = fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd()))?;
    Ok(path.components().count())
}

fn fault(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// Removes a file or directory if it exists. A link is removed, not followed.
fn remove(path: &Path) -> io::Result<()> {
    let removed = match path.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
pub(super) mod tests;
