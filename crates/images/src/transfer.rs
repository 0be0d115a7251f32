//! Directories of plain files that are sent between machines as tar archives.
//!
//! The sender of an archive may send anything: links out of the directory, devices, files without
//! end. So only plain files with a path in the directory are written, each up to the length that
//! the caller allows.

use crate::FileError;
use crate::bounds::{Bounds, Metered, named};
use crate::pack::{self, Owners};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};

/// The zero bytes that every archive ends with: two blocks (tar(5)).
const END: usize = 1024;

/// Why an archive from another machine is not unpacked.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// An entry does not belong in a directory of plain files, or exceeds a limit.
    #[error("the archive is refused because of its entry `{entry}`: {fault}")]
    Refused {
        /// The beginning of the entry's path as written in the archive.
        entry: String,
        /// What is wrong with it.
        fault: String,
    },
    /// The archive ends too early or is not an archive.
    #[error("the archive is damaged or cut short: {0}")]
    Damaged(io::Error),
    /// The system refused an operation on a file.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Writes a directory as an archive in sorted order.
///
/// # Errors
/// A file cannot be read; the output cannot be written.
pub fn pack(directory: &Path, output: impl Write) -> io::Result<()> {
    pack::write(directory, output, Owners::Root)
}

/// Unpacks an archive into an empty directory of this user, and syncs what it writes. Returns the
/// number of files.
///
/// `most` gives the largest length of the file at a path, bytes. Plain files for which it returns
/// `None` are left out, as are directories without files.
///
/// # Errors
/// [`TransferError`]. Files that were unpacked before it stay.
pub fn unpack(
    archive: impl Read,
    into: &Path,
    mut most: impl FnMut(&Path) -> Option<u64>,
) -> Result<u64, TransferError> {
    // The archive is not compressed, so no compression ratio limits it.
    let (reader, allowance) = Metered::new(archive, u64::MAX);
    let mut archive = tar::Archive::new(Ending { inner: reader, zeros: 0 });
    let bounds = Bounds::new();
    let mut made: Vec<PathBuf> = vec![into.into()];
    let mut files = 0;
    for entry in archive.entries().map_err(TransferError::Damaged)? {
        let mut entry = entry.map_err(TransferError::Damaged)?;
        let refused = |name: &[u8], fault: String| TransferError::Refused { entry: named(name), fault };
        let name = entry.path_bytes().into_owned();
        let counted = allowance.entry(&mut entry).and_then(|_| bounds.entry(&name, entry.size(), into));
        counted.map_err(|fault| refused(&name, fault.to_string()))?;
        let kind = entry.header().entry_type();
        if !kind.is_dir() && kind != tar::EntryType::Regular {
            return Err(refused(&name, "it is neither a plain file nor a directory".into()));
        }
        let path = entry.path().map_err(TransferError::Damaged)?;
        let Some(path) = plain(&path) else {
            return Err(refused(&name, "its path leads out of the directory".into()));
        };
        let Some(longest) = (if kind.is_dir() { None } else { most(&path) }) else { continue };
        if entry.size() > longest {
            return Err(refused(&name, format!("it has {} bytes, more than {longest}", entry.size())));
        }
        make_parents(into, &path, &mut made)?;
        let target = into.join(&path);
        // This refuses a second entry of the same name, and follows no link.
        let mut file = File::create_new(&target).map_err(FileError::of("make the file", &target))?;
        let written = io::copy(&mut entry, &mut file).map_err(TransferError::Damaged)?;
        if written != entry.size() {
            return Err(TransferError::Damaged(io::ErrorKind::UnexpectedEof.into()));
        }
        file.sync_all().map_err(FileError::of("sync the file", &target))?;
        files += 1;
    }
    // Read the padding of the last record, too: the sender fails if nobody reads it.
    let mut rest = archive.into_inner();
    io::copy(&mut rest, &mut io::sink()).map_err(TransferError::Damaged)?;
    // A connection may end between two files, and its client may not notice: `kubectl exec` ends
    // with 0 then, too.
    if rest.zeros < END {
        return Err(TransferError::Damaged(io::ErrorKind::UnexpectedEof.into()));
    }
    for directory in made.iter().rev() {
        let synced = File::open(directory).and_then(|directory| directory.sync_all());
        synced.map_err(FileError::of("sync the directory", directory))?;
    }
    Ok(files)
}

/// The bytes of an archive.
struct Ending<R> {
    inner: R,
    /// How many zero bytes are the last that have been read.
    zeros: usize,
}

impl<R: Read> Read for Ending<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        let zeros = buffer[..read].iter().rev().take_while(|byte| **byte == 0).count();
        self.zeros = if zeros == read { self.zeros.saturating_add(read) } else { zeros };
        Ok(read)
    }
}

/// The path without `.`; `None` if it is absolute or has `..`.
fn plain(path: &Path) -> Option<PathBuf> {
    let parts = path.components().filter(|part| *part != Component::CurDir);
    parts.map(|part| matches!(part, Component::Normal(_)).then_some(part)).collect()
}

/// Makes the parent directories of a file. `made` are the directories that this archive has made.
fn make_parents(into: &Path, path: &Path, made: &mut Vec<PathBuf>) -> Result<(), TransferError> {
    let parents: Vec<&Path> = path.ancestors().skip(1).filter(|at| !at.as_os_str().is_empty()).collect();
    for parent in parents.into_iter().rev().map(|parent| into.join(parent)) {
        if !made.contains(&parent) {
            fs::create_dir(&parent).map_err(FileError::of("make the directory", &parent))?;
            made.push(parent);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tar::{EntryType, Header};

    /// An archive with one entry of a type, with its path as written and its content.
    fn archive(kind: EntryType, path: &str, content: &[u8], link: Option<&str>) -> Vec<u8> {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o6777);
        header.set_size(content.len() as u64);
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        if let Some(link) = link {
            header.set_link_name(link).unwrap();
        }
        header.set_cksum();
        let mut builder = tar::Builder::new(Vec::new());
        builder.append(&header, content).unwrap();
        builder.into_inner().unwrap()
    }

    fn refused(archive: &[u8]) -> String {
        let base = tempfile::tempdir().unwrap();
        let into = base.path().join("into");
        fs::create_dir(&into).unwrap();
        let error = unpack(archive, &into, |_| Some(100)).unwrap_err();
        assert_eq!(fs::read_dir(&into).unwrap().count(), 0, "{error}");
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 1, "{error}");
        error.to_string()
    }

    #[test]
    fn packed_files_are_unpacked_where_they_have_a_place() {
        let base = tempfile::tempdir().unwrap();
        let (from, into) = (base.path().join("from"), base.path().join("into"));
        fs::create_dir_all(from.join("logs")).unwrap();
        fs::create_dir(&into).unwrap();
        let long = format!("logs/{}", "x".repeat(180));
        for name in ["plan.json", "other", &long] {
            fs::write(from.join(name), name).unwrap();
        }
        let mut bytes = Vec::new();
        pack(&from, &mut bytes).unwrap();
        let known = |path: &Path| (path != Path::new("other")).then_some(1000);
        assert_eq!(unpack(&bytes[..], &into, known).unwrap(), 2);
        assert_eq!(fs::read_to_string(into.join("plan.json")).unwrap(), "plan.json");
        assert_eq!(fs::read_to_string(into.join(&long)).unwrap(), long);
        assert!(!into.join("other").exists());
        let again = unpack(&bytes[..], &into, known).unwrap_err().to_string();
        assert!(again.contains("plan.json"), "nothing is overwritten: {again}");
    }

    #[test]
    fn archives_of_a_hostile_machine_are_refused() {
        let file = |path: &str| archive(EntryType::Regular, path, b"x", None);
        for path in ["/etc/passwd", "../up", "logs/../../up"] {
            assert!(refused(&file(path)).contains("leads out of the directory"), "{path}");
        }
        for kind in [EntryType::Symlink, EntryType::Link] {
            let link = archive(kind, "plan.json", b"", Some("/etc/passwd"));
            assert!(refused(&link).contains("neither a plain file"), "{kind:?}");
        }
        for kind in [EntryType::Char, EntryType::Block, EntryType::Fifo, EntryType::GNUSparse] {
            let what = refused(&archive(kind, "plan.json", b"", None));
            assert!(what.contains("neither a plain file") || what.contains("damaged"), "{kind:?}: {what}");
        }
        let long = archive(EntryType::Regular, "samples.jsonl", &[0; 101], None);
        assert!(refused(&long).contains("101 bytes, more than 100"));
        assert!(refused(&long[..300]).contains("damaged or cut short"));
        assert!(refused(&[7; 4096]).contains("damaged or cut short"));
    }

    #[test]
    fn a_file_that_is_cut_short_is_no_file() {
        let base = tempfile::tempdir().unwrap();
        let whole = archive(EntryType::Regular, "samples.jsonl", &[1; 2000], None);
        let error = unpack(&whole[..1500], base.path(), |_| Some(1 << 20)).unwrap_err();
        assert!(matches!(error, TransferError::Damaged(_)), "{error}");
    }

    #[test]
    fn an_archive_without_its_end_is_cut_short() {
        let whole = archive(EntryType::Regular, "plan.json", b"x", None);
        // The header, the content, and the two blocks of the end.
        assert_eq!(whole.len(), 4 * 512);
        for blocks in [2, 3] {
            let base = tempfile::tempdir().unwrap();
            let error = unpack(&whole[..blocks * 512], base.path(), |_| Some(100)).unwrap_err();
            assert!(matches!(error, TransferError::Damaged(_)), "{blocks} blocks: {error}");
        }
    }

    #[test]
    fn the_mode_of_a_sender_counts_for_nothing() {
        use std::os::unix::fs::PermissionsExt;
        let base = tempfile::tempdir().unwrap();
        unpack(&archive(EntryType::Regular, "p", b"x", None)[..], base.path(), |_| Some(9)).unwrap();
        let mode = base.path().join("p").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o7111, 0, "{mode:o}");
    }
}
