//! Trees of files that imitate a host, for the tests of this crate.

use std::fs;
use std::path::Path;

/// Writes a file below `root`, with the directories that it needs.
pub(crate) fn write(root: &Path, path: &str, text: &str) {
    let file = root.join(path);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
}

/// Makes a directory with these files, each given by its path and its text.
pub(crate) fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        write(root.path(), path, text);
    }
    root
}
