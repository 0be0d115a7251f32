//! Unpacking a user's tar archive.

use crate::bounds::{Bounds, DEEPEST, Metered, named};
use crate::{FileError, ImageError, compression};
use std::fs;
use std::io::{Cursor, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path};

/// The most directories that are held in memory until their content has been unpacked, and the most
/// bytes of their headers: an archive of a few kilobytes may have any number of long ones.
const MOST_HELD: usize = 100_000;
const MOST_HELD_BYTES: u64 = 64 << 20;

/// First bytes of a bzip2 file, a compression that is not supported.
const BZIP2: &[u8] = b"BZh";

/// Size of a tar header, and position of its checksum (POSIX pax interchange format, ustar header
/// block).
const HEADER: usize = 512;
const CHECKSUM: std::ops::Range<usize> = 148..156;

/// Unpacks a user's archive, compressed or not, into a new directory. Nothing is ever written
/// outside of it.
///
/// Device nodes, pipes and sockets are left out: guests get their own `/dev`.
pub(crate) fn unpack(archive: &Path, into: &Path) -> Result<(), ImageError> {
    let packed = archive.metadata().map_err(FileError::of("look at", archive))?.len();
    let (reader, allowance) = Metered::new(open(archive)?, packed);
    fs::create_dir_all(into).map_err(FileError::of("make the directory", into))?;
    let mut reader = tar::Archive::new(reader);
    reader.set_preserve_permissions(true);
    reader.set_preserve_ownerships(is_root(into)?);
    reader.set_preserve_mtime(true);
    let bounds = Bounds::new();
    // Directories come last, because one without write permission could not be filled.
    let mut directories = Held { entries: Vec::new(), bytes: 0 };
    for entry in reader.entries().map_err(FileError::of("read", archive))? {
        let mut entry = entry.map_err(FileError::of("read", archive))?;
        let kind = entry.header().entry_type();
        let counted = allowance.entry(&mut entry);
        let counted = counted.and_then(|headers| {
            bounds.entry(&entry.path_bytes(), entry.size(), into)?;
            Ok(headers)
        });
        let headers = counted.map_err(|source| ImageError::Excessive {
            archive: archive.into(),
            entry: name_of(&entry),
            source,
        })?;
        if kind.is_character_special() || kind.is_block_special() || kind.is_fifo() {
            continue;
        }
        refuse_escape(archive, &entry)?;
        if kind.is_dir() {
            directories.hold(entry, headers);
            if directories.is_full() {
                directories.unpack(archive, into)?;
            }
            continue;
        }
        unpack_entry(archive, &mut entry, into)?;
    }
    directories.unpack(archive, into)
}

/// Directories that are unpacked after their content.
struct Held<'a, R: Read> {
    entries: Vec<tar::Entry<'a, R>>,
    /// Bytes of their headers.
    bytes: u64,
}

impl<'a, R: Read> Held<'a, R> {
    fn hold(&mut self, entry: tar::Entry<'a, R>, headers: u64) {
        self.entries.push(entry);
        self.bytes += headers;
    }

    fn is_full(&self) -> bool {
        self.entries.len() > MOST_HELD || self.bytes > MOST_HELD_BYTES
    }

    fn unpack(&mut self, archive: &Path, into: &Path) -> Result<(), ImageError> {
        self.bytes = 0;
        self.entries.sort_by(|a, b| b.path_bytes().cmp(&a.path_bytes()));
        self.entries.drain(..).try_for_each(|mut entry| unpack_entry(archive, &mut entry, into))
    }
}

fn unpack_entry<R: Read>(
    archive: &Path,
    entry: &mut tar::Entry<'_, R>,
    into: &Path,
) -> Result<(), ImageError> {
    let name = name_of(entry);
    // An existing directory is changed in place, so it must not be a link itself; any other entry
    // replaces the link.
    let through =
        if entry.header().entry_type().is_dir() { Some(Path::new(&name)) } else { Path::new(&name).parent() };
    if through.is_some_and(|path| leaves_through_link(path, into)) {
        return Err(refuse(archive, name, "leads out of the root through a symbolic link"));
    }
    match entry.unpack_in(into) {
        Ok(true) => Ok(()),
        // The library skipped an unsafe entry.
        Ok(false) => Err(refuse(archive, name, "has no place inside of the root")),
        Err(error) => Err(FileError::of("unpack an entry of", archive)(error).into()),
    }
}

/// Refuses `..` in a name or in the target of a hard link. A leading `/` is harmless: it means the
/// root of the archive.
fn refuse_escape<R: Read>(archive: &Path, entry: &tar::Entry<'_, R>) -> Result<(), ImageError> {
    let climbs = |path: &Path| path.components().any(|part| part == Component::ParentDir);
    let path = entry.path().map_err(FileError::of("read", archive))?;
    if climbs(&path) {
        return Err(refuse(archive, name_of(entry), "has `..` in its path"));
    }
    if entry.header().entry_type().is_hard_link() {
        let target = entry.link_name().map_err(FileError::of("read", archive))?;
        if target.is_some_and(|target| climbs(&target)) {
            return Err(refuse(archive, name_of(entry), "is a hard link to a path with `..`"));
        }
    }
    Ok(())
}

/// Whether a component of the path is a symbolic link that leads out of the root, to nothing, or
/// deeper than a path may be.
fn leaves_through_link(path: &Path, root: &Path) -> bool {
    let mut reached = root.to_path_buf();
    path.components().filter(|part| matches!(part, Component::Normal(_))).any(|part| {
        reached.push(part);
        reached.is_symlink()
            && !matches!((root.canonicalize(), reached.canonicalize()), (Ok(root), Ok(target))
                if target.strip_prefix(&root).is_ok_and(|below| below.components().count() < DEEPEST))
    })
}

fn refuse(archive: &Path, entry: String, fault: &'static str) -> ImageError {
    ImageError::Unsafe { archive: archive.into(), entry, fault }
}

fn name_of<R: Read>(entry: &tar::Entry<'_, R>) -> String {
    named(&entry.path_bytes())
}

/// Opens an archive for reading, decompressed, and checks that it is one.
fn open(archive: &Path) -> Result<impl Read, ImageError> {
    let mut bytes = compression::open(archive).map_err(FileError::of("open", archive))?;
    let mut header = Vec::with_capacity(HEADER);
    let read = bytes.by_ref().take(HEADER as u64).read_to_end(&mut header);
    read.map_err(FileError::of("unpack", archive))?;
    if header.starts_with(BZIP2) {
        return Err(ImageError::Compressed { path: archive.into(), format: "bzip2", remedy: "bzip2 -dk" });
    }
    if !is_tar_header(&header) {
        return Err(ImageError::NotAnImage { path: archive.into() });
    }
    Ok(Cursor::new(header).chain(bytes))
}

/// Checks the checksum of a tar header, in which the checksum field counts as spaces: older
/// dialects have no magic number.
fn is_tar_header(header: &[u8]) -> bool {
    if header.len() < HEADER {
        return false;
    }
    let sum: u32 = header
        .iter()
        .enumerate()
        .map(|(at, byte)| u32::from(if CHECKSUM.contains(&at) { b' ' } else { *byte }))
        .sum();
    let written = String::from_utf8_lossy(&header[CHECKSUM]);
    let written = written.trim_matches(|c: char| c == ' ' || c == '\0');
    u32::from_str_radix(written, 8).is_ok_and(|written| written == sum)
}

/// Whether new files in `directory` belong to root, which can preserve the owners of an archive.
fn is_root(directory: &Path) -> Result<bool, ImageError> {
    Ok(directory.metadata().map_err(FileError::of("look at", directory))?.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each has a header of almost a mebibyte, which the library keeps.
    #[test]
    fn directories_with_long_headers_are_held_up_to_a_bound() {
        const LONG: usize = 1_000_000;
        let extension = format!("{LONG} comment={}\n", "x".repeat(LONG - "1000000 comment=\n".len()));
        let mut builder = tar::Builder::new(Vec::new());
        for _ in 0..70 {
            for (kind, content) in
                [(tar::EntryType::XHeader, extension.as_bytes()), (tar::EntryType::Directory, &b""[..])]
            {
                let mut header = tar::Header::new_ustar();
                header.set_path("d").unwrap();
                header.set_entry_type(kind);
                header.set_mode(0o755);
                header.set_size(content.len() as u64);
                header.set_cksum();
                builder.append(&header, content).unwrap();
            }
        }
        let bytes = builder.into_inner().unwrap();
        let (reader, allowance) = Metered::new(&bytes[..], bytes.len() as u64);
        let mut reader = tar::Archive::new(reader);
        let base = tempfile::tempdir().unwrap();
        let mut held = Held { entries: Vec::new(), bytes: 0 };
        for entry in reader.entries().unwrap() {
            assert!(!held.is_full(), "{} directories are held", held.entries.len());
            let mut entry = entry.unwrap();
            let headers = allowance.entry(&mut entry).unwrap();
            assert!((LONG as u64..LONG as u64 + 4096).contains(&headers), "{headers}");
            held.hold(entry, headers);
            if held.entries.len() == 68 {
                assert!(held.is_full());
                held.unpack(Path::new("archive.tar"), base.path()).unwrap();
            }
        }
        assert!(base.path().join("d").is_dir() && held.entries.len() == 2);
    }
}
