//! Packing directories as tar archives.

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The owners of files in an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owners {
    /// Root, and no times: for directories that weighbridge made.
    Root,
    /// The files' own owners and times (whole seconds): for a system.
    Preserved,
}

/// Writes a directory as an archive in sorted order, so that the same directory gives the same
/// bytes. A file with several names is written once. Device nodes, pipes and sockets are left out.
pub(crate) fn write(directory: &Path, output: impl Write, owners: Owners) -> io::Result<()> {
    let mut packer =
        Packer { directory, builder: tar::Builder::new(output), owners, written: HashMap::new() };
    let mut pending = vec![PathBuf::new()];
    while let Some(relative) = pending.pop() {
        let mut names = fs::read_dir(directory.join(&relative))?
            .map(|entry| entry.map(|entry| entry.file_name()))
            .collect::<io::Result<Vec<_>>>()?;
        names.sort();
        for name in names {
            let path = relative.join(name);
            let metadata = directory.join(&path).symlink_metadata()?;
            packer.append(&path, &metadata)?;
            if metadata.is_dir() {
                pending.push(path);
            }
        }
    }
    packer.builder.into_inner()?.flush()
}

struct Packer<'a, W: Write> {
    directory: &'a Path,
    builder: tar::Builder<W>,
    owners: Owners,
    /// Files with several names, by device and inode number, with the name under which each was
    /// written.
    written: HashMap<(u64, u64), PathBuf>,
}

impl<W: Write> Packer<'_, W> {
    fn append(&mut self, path: &Path, metadata: &Metadata) -> io::Result<()> {
        let source = self.directory.join(path);
        let mut header = self.header(metadata);
        let kind = metadata.file_type();
        if kind.is_symlink() {
            header.set_entry_type(tar::EntryType::Symlink);
            return self.builder.append_link(&mut header, path, fs::read_link(&source)?);
        }
        if kind.is_dir() {
            header.set_entry_type(tar::EntryType::Directory);
            return self.builder.append_data(&mut header, path, io::empty());
        }
        if !kind.is_file() {
            return Ok(());
        }
        if metadata.nlink() > 1 {
            let file = (metadata.dev(), metadata.ino());
            if let Some(first) = self.written.get(&file) {
                header.set_entry_type(tar::EntryType::Link);
                return self.builder.append_link(&mut header, path, first);
            }
            self.written.insert(file, path.into());
        }
        header.set_entry_type(tar::EntryType::Regular);
        header.set_size(metadata.len());
        self.builder.append_data(&mut header, path, File::open(&source)?)
    }

    fn header(&self, metadata: &Metadata) -> tar::Header {
        let mut header = tar::Header::new_gnu();
        let (user, group, time) = match self.owners {
            Owners::Root => (0, 0, 0),
            Owners::Preserved => (metadata.uid(), metadata.gid(), metadata.mtime().max(0)),
        };
        header.set_mode(metadata.permissions().mode() & 0o7777);
        header.set_uid(user.into());
        header.set_gid(group.into());
        header.set_mtime(time as u64);
        header.set_size(0);
        header
    }
}
