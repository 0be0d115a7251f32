//! A control group that is only looked at, whoever made it.

use super::layout::{Hierarchy, Kind};
use std::path::{Path, PathBuf};

/// Where the files of a control group are. It may vanish at any time; then there is nothing to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupView {
    /// The directory in the tree of version 2, where the group has one.
    pub v2: Option<PathBuf>,
    /// The directories in trees of version 1 with the controllers of each.
    pub v1: Vec<(Vec<String>, PathBuf)>,
}

impl CgroupView {
    /// The group of this path below every mount of the host, as far as it is there.
    pub(super) fn new(hierarchy: &Hierarchy, relative: &Path) -> Self {
        let mut view = Self { v2: None, v1: Vec::new() };
        for mount in &hierarchy.mounts {
            let directory = mount.path.join(relative);
            if !directory.is_dir() {
                continue;
            }
            match &mount.kind {
                Kind::V2 => view.v2 = Some(directory),
                Kind::V1(controllers) => view.v1.push((controllers.clone(), directory)),
            }
        }
        view
    }

    /// The directory that has the files of a controller of version 1.
    pub fn v1_directory(&self, controller: &str) -> Option<&Path> {
        let mut all = self.v1.iter();
        all.find(|(names, _)| names.iter().any(|name| name == controller)).map(|(_, path)| path.as_path())
    }
}
