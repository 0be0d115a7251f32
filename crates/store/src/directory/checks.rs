//! Checks whether a directory is a run directory, or may become one.

use super::{HOST, PLAN, SAMPLES};
use crate::StoreError;
use crate::durable::parent_of;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Whether a path is an empty directory, not a link to one, that belongs to this user or to the
/// owner of its parent directory.
pub(super) fn is_empty_and_own(path: &Path) -> bool {
    let is_own = || {
        let (found, parent) = (path.symlink_metadata().ok()?, parent_of(path).metadata().ok()?);
        // /proc/self belongs to the user whose rights this process has (proc_pid(5)).
        let own = Path::new("/proc/self").metadata().ok()?.uid();
        Some(found.is_dir() && [own, parent.uid()].contains(&found.uid()))
    };
    is_own() == Some(true) && is_empty_but_for(path, None)
}

pub(super) fn is_empty_but_for(path: &Path, name: Option<&str>) -> bool {
    let is_named = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|entry| name.is_some_and(|name| entry.file_name() == name))
    };
    std::fs::read_dir(path).is_ok_and(|mut entries| entries.all(is_named))
}

pub(super) fn require_run_directory(path: &Path) -> Result<(), StoreError> {
    // A path that may not be read is not missing.
    let look = |path: &Path| match path.metadata() {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(StoreError::io("look at", path, error)),
    };
    if look(path)?.is_none() {
        return Err(StoreError::NotFound(path.into()));
    }
    let is_file = |file: &str| Ok::<bool, StoreError>(look(&path.join(file))?.is_some_and(|it| it.is_file()));
    let (has_plan, has_host, has_samples) = (is_file(PLAN)?, is_file(HOST)?, is_file(SAMPLES)?);
    if !has_plan && !has_samples {
        return Err(StoreError::Foreign(path.into()));
    }
    const NO_PLAN: &str =
        "what the samples mean is unknown without it; put the plan back from a copy of the run";
    const NO_SAMPLE: &str =
        "the run stopped while its directory was being made and holds no sample; start it again";
    for (file, is_there, consequence) in
        [(PLAN, has_plan, NO_PLAN), (HOST, has_host, NO_SAMPLE), (SAMPLES, has_samples, NO_SAMPLE)]
    {
        if !is_there {
            return Err(StoreError::Missing { path: path.into(), file, consequence });
        }
    }
    Ok(())
}
