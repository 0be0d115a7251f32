//! Writes that survive a crash.

use crate::StoreError;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

/// Writes a whole file so that after a crash either all of it is there or none: temporary name,
/// sync, rename, sync of the directory.
///
/// # Errors
/// What the file system refuses; the file is then what it was.
pub fn write_whole(directory: &Path, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
    let temporary = directory.join(format!(".{name}.new"));
    let path = directory.join(name);
    // What a try before this one has left, or somebody else put there.
    let _ = std::fs::remove_file(&temporary);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&temporary)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::rename(&temporary, &path));
    if let Err(error) = written {
        // The error of the write is what the user needs; a temporary file that stays is removed by
        // the next try.
        let _ = std::fs::remove_file(&temporary);
        return Err(StoreError::io("write", &path, error));
    }
    sync_directory(directory)
}

/// Makes new names in a directory durable.
pub(crate) fn sync_directory(directory: &Path) -> Result<(), StoreError> {
    File::open(directory)
        .and_then(|file| file.sync_all())
        .map_err(|error| StoreError::io("sync the directory", directory, error))
}
