//! Trees of files that imitate a host, for the tests of this crate.

use std::fs;
use std::path::Path;
use weigh_host::cgroup::CgroupView;

/// Writes a file below `root`, with the directories that it needs.
pub(crate) fn write(root: &Path, path: &str, text: &str) {
    let file = root.join(path);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
}

/// A group of version 1 in the hierarchy of one controller.
pub(crate) fn v1(controller: &str, directory: &Path) -> CgroupView {
    CgroupView { v1: vec![(vec![controller.into()], directory.into())], ..CgroupView::default() }
}

/// A group of version 2.
pub(crate) fn v2(directory: &Path) -> CgroupView {
    CgroupView { v2: Some(directory.into()), ..CgroupView::default() }
}
