//! Initial RAM file systems: the root that a machine's kernel unpacks before it starts the probe as
//! init.
//!
//! The archive contains the skeleton of a [`Root`], other files that the machine needs (kernel
//! modules, tables), and, for machines that share no directory with the host, the whole image. The
//! same content gives the same bytes. Files are streamed from the host; only names and metadata are
//! kept in memory.
//!
//! Source of the format: `Documentation/driver-api/early-userspace/buffer-format.rst` of the
//! kernel, and cpio(5) for "newc".

mod newc;
#[cfg(test)]
mod tests;

use crate::{FileError, ImageError, Root};
use newc::{Header, Newc};
use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

/// The bits of a mode that encode the kind of an entry, inode(7).
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;
const CHARACTER: u32 = 0o020_000;
const BLOCK: u32 = 0o060_000;
const PIPE: u32 = 0o010_000;

/// An archive under construction. A later entry replaces an earlier one of the same name; missing
/// parents become directories of mode 0755. Names are absolute paths in the guest.
#[derive(Debug, Default)]
pub struct Initramfs {
    /// The entries by relative name. Paths are ordered by component, so that a directory comes
    /// before its entries.
    entries: BTreeMap<PathBuf, Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    mode: u32,
    owner: (u32, u32),
    /// Seconds since 1970.
    modified: u32,
    content: Content,
}

#[derive(Debug, Clone)]
enum Content {
    None,
    /// Small files and targets of links.
    Bytes(Vec<u8>),
    /// A file of the host, read when the archive is written; `inode` identifies its hard links.
    File {
        path: PathBuf,
        size: u64,
        inode: Option<(u64, u64)>,
    },
    /// Major and minor number.
    Device(u32, u32),
}

impl Entry {
    fn new(mode: u32, content: Content) -> Self {
        Self { mode, owner: (0, 0), modified: 0, content }
    }
}

impl Initramfs {
    /// An empty archive.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the skeleton of a root, owned by root and without times. Its binds must be mounted, or
    /// added with [`Initramfs::image`].
    ///
    /// # Errors
    /// The skeleton cannot be read.
    pub fn skeleton(&mut self, root: &Root) -> Result<&mut Self, ImageError> {
        self.tree(&root.skeleton, Path::new(""), false, &[])?;
        Ok(self)
    }

    /// Adds the whole content of a root's binds, for a machine that shares nothing with the host.
    /// Owners, permissions and times are preserved: interpreters compare the times of compiled
    /// files. Sockets and the directory of the skeleton are left out.
    ///
    /// # Errors
    /// The image cannot be read.
    pub fn image(&mut self, root: &Root) -> Result<&mut Self, ImageError> {
        let own: Vec<PathBuf> = root.skeleton.parent().map(Path::to_path_buf).into_iter().collect();
        for bind in &root.binds {
            let name = relative(&bind.target);
            let metadata = bind.source.symlink_metadata().map_err(FileError::of("look at", &bind.source))?;
            self.host_entry(&bind.source, &name, &metadata, true)?;
            if metadata.is_dir() {
                self.tree(&bind.source, &name, true, &own)?;
            }
        }
        Ok(self)
    }

    /// Adds a file of the host, owned by root.
    ///
    /// # Errors
    /// It does not exist or is not a regular file.
    pub fn file(&mut self, name: &str, source: &Path, permissions: u32) -> Result<&mut Self, ImageError> {
        let metadata = source.metadata().map_err(FileError::of("look at", source))?;
        if !metadata.is_file() {
            let error = io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file");
            return Err(FileError::of("archive", source)(error).into());
        }
        let content = Content::File { path: source.into(), size: metadata.len(), inode: None };
        self.add(name, Entry::new(REGULAR | permissions & 0o7777, content))
    }

    /// Adds a file with this content.
    pub fn bytes(
        &mut self,
        name: &str,
        content: impl Into<Vec<u8>>,
        permissions: u32,
    ) -> Result<&mut Self, ImageError> {
        self.add(name, Entry::new(REGULAR | permissions & 0o7777, Content::Bytes(content.into())))
    }

    /// Adds a directory, or changes the permissions of one that was added before.
    pub fn directory(&mut self, name: &str, permissions: u32) -> Result<&mut Self, ImageError> {
        self.add(name, Entry::new(DIRECTORY | permissions & 0o7777, Content::None))
    }

    /// Adds a symbolic link.
    pub fn symlink(&mut self, name: &str, target: impl AsRef<Path>) -> Result<&mut Self, ImageError> {
        let target = target.as_ref().as_os_str().as_bytes().to_vec();
        self.add(name, Entry::new(SYMLINK | 0o777, Content::Bytes(target)))
    }

    /// Adds a character device with a major and a minor number.
    pub fn character_device(
        &mut self,
        name: &str,
        permissions: u32,
        number: (u32, u32),
    ) -> Result<&mut Self, ImageError> {
        let device = Content::Device(number.0, number.1);
        self.add(name, Entry::new(CHARACTER | permissions & 0o7777, device))
    }

    /// Writes the archive.
    ///
    /// # Errors
    /// A file changed its size after it was added, has 4 GiB or more, is below something that is
    /// not a directory, or has a name longer than a path may be; a system error.
    pub fn write(&self, output: impl Write) -> Result<(), ImageError> {
        let entries = self.with_parents()?;
        let links = Links::of(&entries);
        let mut archive = Newc::new(output);
        for (serial, (name, entry)) in (1..).zip(&entries) {
            let (inode, links, has_content) = links.of_entry(name, entry, serial);
            let mut header = Header {
                name: name.as_os_str().as_bytes(),
                inode,
                mode: entry.mode,
                owner: entry.owner,
                links,
                modified: entry.modified,
                device: (0, 0),
                size: 0,
            };
            match &entry.content {
                Content::Device(major, minor) => header.device = (*major, *minor),
                Content::Bytes(bytes) => header.size = bytes.len() as u64,
                Content::File { size, .. } if has_content => header.size = *size,
                Content::None | Content::File { .. } => {}
            }
            archive.header(&header).map_err(FileError::of("archive", name))?;
            match &entry.content {
                Content::Bytes(bytes) => archive.content(&mut &bytes[..], header.size),
                Content::File { path, size, .. } if has_content => {
                    let file = File::open(path).map_err(FileError::of("open", path))?;
                    archive.content(&mut FixedSizeFile { file, left: *size }, *size)
                }
                _ => Ok(()),
            }
            .map_err(FileError::of("archive", name))?;
        }
        Ok(archive.finish().map_err(FileError::of("end the archive at", Path::new("/")))?)
    }

    /// Writes the archive to a file, atomically.
    ///
    /// # Errors
    /// The errors of [`Initramfs::write`].
    pub fn write_file(&self, path: &Path) -> Result<(), ImageError> {
        let mut staging = path.as_os_str().to_owned();
        staging.push(".new");
        let staging = PathBuf::from(staging);
        let file = File::create(&staging).map_err(FileError::of("make", &staging))?;
        let written = self
            .write(BufWriter::with_capacity(1 << 18, file))
            .and_then(|()| Ok(fs::rename(&staging, path).map_err(FileError::of("make", path))?));
        if written.is_err() {
            let _ = fs::remove_file(&staging);
        }
        written
    }

    fn add(&mut self, name: &str, entry: Entry) -> Result<&mut Self, ImageError> {
        let path = Path::new(name);
        let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        if !plain || name.contains('\0') || relative(path).as_os_str().is_empty() {
            let error = io::Error::new(io::ErrorKind::InvalidInput, "it is no plain absolute path");
            return Err(FileError::of("archive", path)(error).into());
        }
        self.entries.insert(relative(path), entry);
        Ok(self)
    }

    /// Adds everything below a directory of the host; owners and times only with `keep`.
    fn tree(&mut self, from: &Path, at: &Path, keep: bool, skip: &[PathBuf]) -> Result<(), ImageError> {
        let mut pending = vec![(from.to_path_buf(), at.to_path_buf())];
        while let Some((from, at)) = pending.pop() {
            for entry in fs::read_dir(&from).map_err(FileError::of("read the directory", &from))? {
                let entry = entry.map_err(FileError::of("read the directory", &from))?;
                let (source, name) = (entry.path(), at.join(entry.file_name()));
                if skip.contains(&source) {
                    continue;
                }
                let metadata = source.symlink_metadata().map_err(FileError::of("look at", &source))?;
                self.host_entry(&source, &name, &metadata, keep)?;
                if metadata.is_dir() {
                    pending.push((source, name));
                }
            }
        }
        Ok(())
    }

    fn host_entry(
        &mut self,
        source: &Path,
        name: &Path,
        metadata: &Metadata,
        keep: bool,
    ) -> Result<(), ImageError> {
        let kind = metadata.file_type();
        let permissions = metadata.mode() & 0o7777;
        let (mode, content) = if kind.is_dir() {
            (DIRECTORY | permissions, Content::None)
        } else if kind.is_symlink() {
            let target = fs::read_link(source).map_err(FileError::of("read the link", source))?;
            (SYMLINK | 0o777, Content::Bytes(target.into_os_string().into_vec()))
        } else if kind.is_file() {
            let inode = (metadata.nlink() > 1).then(|| (metadata.dev(), metadata.ino()));
            (REGULAR | permissions, Content::File { path: source.into(), size: metadata.len(), inode })
        } else if kind.is_char_device() || kind.is_block_device() {
            let kind = if kind.is_char_device() { CHARACTER } else { BLOCK };
            let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
            (kind | permissions, Content::Device(major, minor))
        } else if kind.is_fifo() {
            (PIPE | permissions, Content::None)
        } else {
            return Ok(()); // a socket is useless without its server
        };
        let mut entry = Entry::new(mode, content);
        if keep {
            entry.owner = (metadata.uid(), metadata.gid());
            entry.modified = u32::try_from(metadata.mtime()).unwrap_or(0);
        }
        self.entries.insert(name.into(), entry);
        Ok(())
    }

    /// The entries and their missing parents, which the kernel does not make.
    fn with_parents(&self) -> Result<BTreeMap<PathBuf, Entry>, ImageError> {
        let mut entries = self.entries.clone();
        for name in self.entries.keys() {
            for parent in name.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty()) {
                let made = || Entry::new(DIRECTORY | 0o755, Content::None);
                if entries.entry(parent.into()).or_insert_with(made).mode & 0o170_000 != DIRECTORY {
                    let error = io::Error::new(
                        io::ErrorKind::NotADirectory,
                        format!("{} is no directory", parent.display()),
                    );
                    return Err(FileError::of("archive", name)(error).into());
                }
            }
        }
        Ok(entries)
    }
}

/// Hard links: the names of a file of the host share an inode number, and only the last of them
/// carries the content (cpio(5)).
struct Links(BTreeMap<(u64, u64), Group>);

struct Group {
    inode: u32,
    count: u32,
    last: PathBuf,
}

impl Links {
    fn of(entries: &BTreeMap<PathBuf, Entry>) -> Self {
        let mut groups = BTreeMap::new();
        for (serial, (name, entry)) in (1..).zip(entries) {
            if let Content::File { inode: Some(inode), .. } = entry.content {
                let group =
                    groups.entry(inode).or_insert(Group { inode: serial, count: 0, last: PathBuf::new() });
                group.count += 1;
                group.last.clone_from(name);
            }
        }
        Self(groups)
    }

    /// The inode number, the number of links, and whether this name carries the content.
    fn of_entry(&self, name: &Path, entry: &Entry, serial: u32) -> (u32, u32, bool) {
        match &entry.content {
            Content::File { inode: Some(inode), .. } => {
                let group = &self.0[inode];
                (group.inode, group.count, group.last == name)
            }
            // Only cpio(1) shows the number of links of a directory.
            _ => (serial, if entry.mode & 0o170_000 == DIRECTORY { 2 } else { 1 }, true),
        }
    }
}

/// Reads exactly as many bytes as the file had when it was added.
struct FixedSizeFile {
    file: File,
    left: u64,
}

impl Read for FixedSizeFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        if room == 0 {
            return Ok(0);
        }
        match self.file.read(&mut buffer[..room])? {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it became shorter meanwhile")),
            n => {
                self.left -= n as u64;
                Ok(n)
            }
        }
    }
}

fn relative(path: &Path) -> PathBuf {
    path.components().filter(|part| matches!(part, Component::Normal(_))).collect()
}
