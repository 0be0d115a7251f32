//! Layers of an image, one over the other, as one directory.
//!
//! A layer is a tar archive that somebody else wrote. Every path in it is resolved by the kernel
//! below the root, as if that were `/` (openat2(2), `RESOLVE_IN_ROOT`), so that no link and no `..`
//! leads out of it. The last part of a path is never followed.

use super::PullError;
use crate::compression;
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

/// Beginning of the names of entries that take something of lower layers away (OCI image
/// specification 1.1, "Whiteouts").
const WHITEOUT: &[u8] = b".wh.";
/// The entry that takes everything of lower layers away from its directory.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Beginning of the names of entries that mean something to an old file system alone.
const RESERVED: &[u8] = b".wh..wh.";

/// The directory that layers are put into.
pub(super) struct Layers {
    root: OwnedFd,
    /// Whether files can be given to others than ourselves.
    owners: bool,
}

/// Where an entry is: its directory, open, and its name in it.
struct Place {
    directory: OwnedFd,
    name: OsString,
}

impl Place {
    /// A path to it that nothing in the image can turn elsewhere.
    fn path(&self) -> PathBuf {
        Path::new("/proc/self/fd").join(self.directory.as_raw_fd().to_string()).join(&self.name)
    }
}

impl Layers {
    /// An empty directory to begin with.
    pub(super) fn new(root: &Path) -> Result<Self, PullError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = rustix::fs::open(root, flags, Mode::empty()).map_err(io::Error::from);
        let open = open.map_err(PullError::io("open", root))?;
        Ok(Self { root: open, owners: weigh_host::facts::is_root() })
    }

    /// Puts one more layer on top.
    pub(super) fn add(&self, layer: &Path) -> Result<(), PullError> {
        // What a layer takes away is of lower layers only, wherever in the archive it says so.
        self.each(layer, |name, kind, _| match kind {
            Kind::Opaque => self.empty(name),
            Kind::Whiteout => self.take_away(name),
            Kind::Entry => Ok(()),
        })?;
        self.each(layer, |name, kind, entry| match kind {
            Kind::Entry => self.put(name, entry),
            Kind::Opaque | Kind::Whiteout => Ok(()),
        })
    }

    /// Goes through the entries of a layer.
    fn each(
        &self,
        layer: &Path,
        mut act: impl FnMut(&Path, Kind, &mut tar::Entry<'_, Box<dyn Read>>) -> io::Result<()>,
    ) -> Result<(), PullError> {
        let mut archive = tar::Archive::new(compression::open(layer).map_err(PullError::io("open", layer))?);
        for entry in archive.entries().map_err(PullError::io("read", layer))? {
            let mut entry = entry.map_err(PullError::io("read", layer))?;
            let named = entry.path_bytes().into_owned();
            let failed =
                |source| PullError::Entry { entry: String::from_utf8_lossy(&named).into_owned(), source };
            if let Some((path, kind)) = target(Path::new(OsStr::from_bytes(&named))).map_err(failed)? {
                act(&path, kind, &mut entry).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Opens the directory of an entry, made where it is missing if so wanted.
    fn place(&self, path: &Path, make: bool) -> io::Result<Option<Place>> {
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
        Ok(Some(Place { directory, name }))
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
                // A directory was renamed somewhere on this host meanwhile: openat2(2).
                Err(Errno::AGAIN) => {}
                other => return Ok(other?),
            }
        }
    }

    /// Makes a directory that the archive has no entry of, with all above it.
    fn make_directory(&self, path: &Path) -> io::Result<()> {
        let Some(place) = self.place(path, true)? else { return Ok(()) };
        fs::create_dir(place.path())?;
        fs::set_permissions(place.path(), Permissions::from_mode(0o755))
    }

    /// Removes what lower layers have in a directory.
    fn empty(&self, directory: &Path) -> io::Result<()> {
        let open = match self.open(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            open => open?,
        };
        let path = Path::new("/proc/self/fd").join(open.as_raw_fd().to_string());
        // All names first: a directory that changes may be read with gaps.
        let names =
            fs::read_dir(&path)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
        names.iter().try_for_each(|name| remove(&path.join(name)))
    }

    /// Removes what lower layers have of a name.
    fn take_away(&self, path: &Path) -> io::Result<()> {
        self.place(path, false)?.map_or(Ok(()), |place| remove(&place.path()))
    }

    /// Makes an entry, in place of what is there.
    fn put<R: Read>(&self, name: &Path, entry: &mut tar::Entry<'_, R>) -> io::Result<()> {
        let kind = entry.header().entry_type();
        if name.as_os_str().is_empty() {
            return Ok(()); // the root itself
        }
        let Some(place) = self.place(name, true)? else { return Ok(()) };
        let path = place.path();
        let there = path.symlink_metadata().ok();
        let mode = Permissions::from_mode(entry.header().mode()? & 0o7777);
        if kind.is_dir() {
            if !there.is_some_and(|there| there.is_dir()) {
                remove(&path)?;
                fs::create_dir(&path)?;
            }
            self.give(&path, entry.header())?;
            // Whom everything belongs to must be able to fill it.
            let least = if self.owners { 0 } else { 0o700 };
            return fs::set_permissions(&path, Permissions::from_mode(mode.mode() | least));
        }
        if kind.is_symlink() {
            let target = entry.link_name_bytes().ok_or_else(|| fault("is a link to nothing"))?.into_owned();
            remove(&path)?;
            symlink(OsStr::from_bytes(&target), &path)?;
            return self.give(&path, entry.header());
        }
        if kind.is_hard_link() {
            let target = entry.link_name_bytes().ok_or_else(|| fault("is a link to nothing"))?.into_owned();
            let target = plain(Path::new(OsStr::from_bytes(&target)))?;
            let target =
                self.place(&target, false)?.ok_or_else(|| fault("is a hard link to what is not there"))?;
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
        self.give(&path, entry.header())?;
        file.set_permissions(mode)?;
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(entry.header().mtime()?.min(u32::MAX.into()));
        file.set_times(FileTimes::new().set_modified(time))
    }

    /// Gives a file to its owner. Permissions come after that: chown(2) takes the set-user-ID bit
    /// away.
    fn give(&self, path: &Path, header: &tar::Header) -> io::Result<()> {
        let id = |id: io::Result<u64>| id.map(|id| u32::try_from(id).ok());
        if self.owners { lchown(path, id(header.uid())?, id(header.gid())?) } else { Ok(()) }
    }
}

/// What an entry of a layer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Entry,
    Whiteout,
    Opaque,
}

/// What an entry is for, and the path that it is about; `None` for what is to be left out.
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
        Some(b"" | b"." | b"..") => Err(fault("takes nothing away")),
        Some(name) => Ok(Some((path.with_file_name(OsStr::from_bytes(name)), Kind::Whiteout))),
        None => Ok(Some((path, Kind::Entry))),
    }
}

/// A path without what means nothing; `..` is an error.
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

fn fault(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// Removes whatever has this name, if anything has. A link is removed, not followed.
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
