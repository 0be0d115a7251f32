//! Writes that survive a crash.

use crate::StoreError;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::Path;
use weigh_disk::File;

/// Writes a whole file so that after a crash either all of it is there or nothing: it writes under
/// a temporary name, syncs, renames, and syncs the directory.
///
/// # Errors
/// Errors of the file system; the file is then unchanged.
pub fn write_whole(directory: &Path, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
    let temporary = directory.join(format!(".{name}.new"));
    let path = directory.join(name);
    // A crash may have left a file of that name. A new file is certainly not a link to elsewhere.
    let left = match weigh_disk::remove_file(&temporary) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    let written = left
        .and_then(|()| File::open(&temporary, OpenOptions::new().write(true).create_new(true)))
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| weigh_disk::rename(&temporary, &path));
    if let Err(error) = written {
        // The user needs the error of the write. If the temporary file stays, the next try removes
        // it.
        let _ = weigh_disk::remove_file(&temporary);
        return Err(StoreError::io("write", &path, error));
    }
    sync_directory(directory)
}

/// Makes a directory and its missing ancestors. Their names need not be durable.
pub(crate) fn make_directories(path: &Path) -> Result<(), StoreError> {
    let missing: Vec<&Path> =
        path.ancestors().take_while(|at| !at.as_os_str().is_empty() && !at.exists()).collect();
    missing.into_iter().rev().try_for_each(|at| match weigh_disk::create_directory(at) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(StoreError::io("make", at, error)),
        _ => Ok(()),
    })
}

/// The directory that holds a path.
pub(crate) fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes new names in a directory durable.
pub(crate) fn sync_directory(directory: &Path) -> Result<(), StoreError> {
    weigh_disk::sync_directory(directory)
        .map_err(|error| StoreError::io("sync the directory", directory, error))
}

/// Makes the name of a directory durable, and the names of all its ancestors, whoever made them.
pub(crate) fn sync_name(directory: &Path) -> Result<(), StoreError> {
    weigh_disk::sync_name(directory).map_err(|error| StoreError::io("sync the name of", directory, error))
}
