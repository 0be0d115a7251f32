//! Names of run directories: `20261121T050000Z-stream`.

use crate::StoreError;
use std::path::{Path, PathBuf};

/// The longest name of a plan within a run directory's name. The file system's limit of 255 bytes
/// leaves room for the time and a number.
const LONGEST_NAME: usize = 80;

/// Finds the directory that the user means. `last` is the newest run below `parent` by name; a name
/// without a slash may be one of the runs there; everything else is a path.
///
/// # Errors
/// [`StoreError::NoRuns`] for `last` when there are no runs, [`StoreError::NotFound`] when the path
/// does not exist.
pub fn resolve(parent: &Path, run: &str) -> Result<PathBuf, StoreError> {
    if run == "last" {
        return newest(parent)?.ok_or_else(|| StoreError::NoRuns(parent.into()));
    }
    let path = PathBuf::from(run);
    let below = parent.join(run);
    // A path that may not be read is taken to exist; opening it gives the error.
    let is_there = |path: &Path| path.try_exists().unwrap_or(true);
    if is_there(&path) {
        Ok(path)
    } else if !run.contains('/') && is_there(&below) {
        Ok(below)
    } else {
        Err(StoreError::NotFound(path))
    }
}

fn newest(parent: &Path) -> Result<Option<PathBuf>, StoreError> {
    let entries = match std::fs::read_dir(parent) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StoreError::io("list", parent, error)),
    };
    let mut newest: Option<(String, usize, PathBuf)> = None;
    for entry in entries {
        let entry = entry.map_err(|error| StoreError::io("list", parent, error))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(stamp) = stamp_of(&name) else { continue };
        if !entry.path().is_dir() {
            continue;
        }
        // Within one second `x-10` is newer than `x-2`, which is newer than `x`: the longer name
        // wins.
        let candidate = (stamp.to_string(), name.len(), entry.path());
        if newest.as_ref().is_none_or(|newest| *newest < candidate) {
            newest = Some(candidate);
        }
    }
    Ok(newest.map(|(_, _, path)| path))
}

/// The leading `20261121T050000Z` of a run directory's name.
fn stamp_of(name: &str) -> Option<&str> {
    let (stamp, _) = name.split_once('-')?;
    let shape_is_right = stamp.len() == 16
        && stamp.bytes().enumerate().all(|(i, byte)| match i {
            8 => byte == b'T',
            15 => byte == b'Z',
            _ => byte.is_ascii_digit(),
        });
    shape_is_right.then_some(stamp)
}

/// The directory's name without a number: the RFC 3339 time in its basic form, and the safe
/// characters of the plan's name.
pub(crate) fn directory_name(started_utc: &str, name: &str) -> String {
    let whole_seconds = started_utc.split(['.', 'Z']).next().unwrap_or_default();
    let stamp: String = whole_seconds.chars().filter(|c| c.is_ascii_digit() || *c == 'T').collect();
    let mut safe = safe_file_name(name);
    safe.truncate(LONGEST_NAME);
    if safe.is_empty() {
        safe.push_str("run");
    }
    format!("{stamp}Z-{safe}")
}

/// Replaces every character that needs quoting in a shell. The result is ASCII, without a slash or
/// a leading dot.
pub fn safe_file_name(name: &str) -> String {
    let safe: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "._=,+@-".contains(c) { c } else { '-' })
        .collect();
    safe.trim_start_matches(['.', '-']).trim_end_matches('-').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_and_sort_by_time() {
        assert_eq!(directory_name("2026-11-21T05:00:00Z", "stream"), "20261121T050000Z-stream");
        assert_eq!(directory_name("2026-11-21T05:00:00.25Z", "a b/../c"), "20261121T050000Z-a-b-..-c");
        assert_eq!(directory_name("2026-11-21T05:00:00Z", "../é"), "20261121T050000Z-run");
        assert_eq!(stamp_of("20261121T050000Z-x"), Some("20261121T050000Z"));
        assert_eq!(stamp_of("20261121-x"), None);
        assert_eq!(stamp_of("notes"), None);
    }

    #[test]
    fn last_is_the_newest_by_name() {
        let parent = tempfile::tempdir().unwrap();
        assert!(matches!(resolve(parent.path(), "last"), Err(StoreError::NoRuns(_))));
        for name in [
            "20261121T050000Z-b",
            "20261121T050001Z-a",
            "20261121T050001Z-a-2",
            "20261121T050001Z-a-10",
            "zzz",
            "20261120T235959Z-zzzzzzzzzzzzzzzzzz",
        ] {
            std::fs::create_dir(parent.path().join(name)).unwrap();
        }
        std::fs::write(parent.path().join("20271121T050001Z-a-file"), "").unwrap();
        assert_eq!(resolve(parent.path(), "last").unwrap(), parent.path().join("20261121T050001Z-a-10"));
        let by_name = resolve(parent.path(), "20261121T050000Z-b").unwrap();
        assert_eq!(by_name, parent.path().join("20261121T050000Z-b"));
        assert!(matches!(resolve(parent.path(), "gone"), Err(StoreError::NotFound(_))));
        assert!(matches!(resolve(&parent.path().join("none"), "last"), Err(StoreError::NoRuns(_))));
    }
}
