//! The digest of everything that determines the content of a root.

use crate::{FileError, ImageError};
use sha2::{Digest as _, Sha256};
use std::fs::{self, File, Metadata};
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Files that change when a package of the host is installed, removed or upgraded, for common
/// package managers.
const PACKAGE_DATABASES: [&str; 8] = [
    "etc/os-release",
    "usr/lib/os-release",
    "var/lib/dpkg/status",
    "var/lib/rpm/rpmdb.sqlite",
    "usr/lib/sysimage/rpm/rpmdb.sqlite",
    "var/lib/pacman/local",
    "lib/apk/db/installed",
    "nix/var/nix/profiles/system",
];

/// A digest of parts. The length of each part is hashed, too, so that different sequences of parts
/// are different bytes.
pub(crate) struct ContentDigest(Sha256);

impl ContentDigest {
    pub(crate) fn new() -> Self {
        Self(Sha256::new())
    }

    pub(crate) fn part(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    /// Adds the content of a file.
    pub(crate) fn file(&mut self, path: &Path) -> Result<(), ImageError> {
        let mut file = File::open(path).map_err(FileError::of("open", path))?;
        let mut inner = Sha256::new();
        let mut buffer = vec![0; 1 << 18];
        loop {
            match file.read(&mut buffer).map_err(FileError::of("read", path))? {
                0 => break,
                n => inner.update(&buffer[..n]),
            }
        }
        self.part(&inner.finalize());
        Ok(())
    }

    /// Adds a directory tree: names, kinds, owners, permissions, sizes, modification times, targets
    /// of links. File contents are not read: a root file system has hundreds of megabytes, and a
    /// change of a file shows in its size or time.
    ///
    /// Paths in `skip` are left out. It is no error if a directory cannot be read (then the guest
    /// cannot read it either) or an entry vanishes.
    pub(crate) fn tree(&mut self, directory: &Path, skip: &[PathBuf]) -> Result<(), ImageError> {
        let read = fs::read_dir(directory).and_then(|entries| {
            entries.map(|entry| entry.map(|e| e.file_name())).collect::<Result<Vec<_>, _>>()
        });
        let mut names = match read {
            Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::NotFound) => {
                self.part(b"cannot be read");
                return Ok(());
            }
            read => read.map_err(FileError::of("read the directory", directory))?,
        };
        names.sort();
        for path in names.iter().map(|name| directory.join(name)).filter(|path| !skip.contains(path)) {
            let metadata = match path.symlink_metadata() {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                metadata => metadata.map_err(FileError::of("look at", &path))?,
            };
            self.part(path.file_name().unwrap_or_default().as_bytes());
            self.metadata(&path, &metadata)?;
            if metadata.is_dir() {
                self.tree(&path, skip)?;
            }
        }
        self.part(b"end of directory");
        Ok(())
    }

    /// Adds what distinguishes two states of the host's system without reading all of it: its
    /// release and its package database.
    pub(crate) fn system(&mut self, root: &Path) -> Result<(), ImageError> {
        for name in PACKAGE_DATABASES {
            let path = root.join(name);
            if let Ok(metadata) = path.symlink_metadata() {
                self.part(name.as_bytes());
                self.metadata(&path, &metadata)?;
            }
        }
        Ok(())
    }

    fn metadata(&mut self, path: &Path, metadata: &Metadata) -> Result<(), ImageError> {
        if metadata.is_symlink() {
            let target = fs::read_link(path).map_err(FileError::of("read the link", path))?;
            self.part(target.as_os_str().as_bytes());
            return Ok(());
        }
        self.part(format!("{:o} {} {}", metadata.mode(), metadata.uid(), metadata.gid()).as_bytes());
        // Size and time of a directory depend on the file system and on former entries; its present
        // entries are hashed separately.
        if !metadata.is_dir() || PACKAGE_DATABASES.iter().any(|database| path.ends_with(database)) {
            let content = format!("{} {} {}", metadata.size(), metadata.mtime(), metadata.mtime_nsec());
            self.part(content.as_bytes());
        }
        Ok(())
    }

    /// The digest, hexadecimal.
    pub(crate) fn finish(self) -> String {
        weigh_model::hex(&self.0.finalize()[..])
    }
}
