//! The root of a container.

use crate::spawn::OwnMount;
use crate::{GuestRequest, PlatformError, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weigh_host::command::Invocation;

/// The deadline for a copy of a whole system.
const COPY_DEADLINE: Duration = Duration::from_secs(120);

/// The file that makes systemd empty `/tmp` while it comes up. `/tmp` is empty anyway, and systemd
/// might remove what the probe puts there.
const CLEANING: &str = "/usr/lib/tmpfiles.d/tmp.conf";

/// The root of a container, and what has to be done for it.
pub(super) struct Root {
    pub(super) path: PathBuf,
    /// Whether it has an init that is to be booted.
    pub(super) full: bool,
    /// Mounts that only systemd-nspawn sees.
    pub(super) mounts: Vec<OwnMount>,
    /// Options of systemd-nspawn.
    pub(super) options: &'static [&'static str],
    /// A file of the image that is hidden, absolute in the guest.
    pub(super) hidden: Option<&'static str>,
    /// A directory that is removed with the guest.
    pub(super) directory: Option<PathBuf>,
}

impl Root {
    /// The root of a single program: the skeleton, in which systemd-nspawn itself mounts the rest.
    pub(super) fn single(root: &weigh_images::Root) -> Result<Self> {
        // systemd-nspawn accepts only what looks like a system.
        make(&root.skeleton.join("usr"))?;
        Ok(Self {
            path: root.skeleton.clone(),
            full: false,
            // Otherwise it would add what a system usually has to a directory that guests share.
            mounts: vec![own_state(), OwnMount::ReadOnly(root.skeleton.clone())],
            options: &[],
            hidden: None,
            directory: None,
        })
    }

    /// Makes the root of a system from the image, in the way that `word` says.
    ///
    /// # Errors
    /// The image is no whole system; a directory could not be made or copied.
    pub(super) fn make(word: &str, request: &GuestRequest, directory: &Path) -> Result<Self> {
        let tree = request.root.tree.as_deref().filter(|tree| {
            ["sbin/init", "usr/sbin/init"].iter().any(|init| tree.join(init).symlink_metadata().is_ok())
        });
        let tree = tree.ok_or_else(|| {
            PlatformError::unavailable(
                "the image has no init",
                "give an image that is a whole system, as with `rootfs=debian`",
            )
        })?;
        let mut root = Self {
            path: directory.join("root"),
            full: true,
            mounts: vec![own_state()],
            options: &[],
            hidden: Some(CLEANING).filter(|file| tree.join(relative(Path::new(file))).exists()),
            directory: Some(directory.into()),
        };
        match word {
            "copied" => {
                make(directory)?;
                let copy = Invocation::new("cp").args(["--archive", "--reflink=auto", "--"]).arg(tree);
                copy.arg(&root.path).deadline(COPY_DEADLINE).run_ok()?;
            }
            "shared" => {
                root.path = request.root.skeleton.clone();
                root.directory = None;
                let binds = request.root.binds.iter();
                let bind = |bind: &weigh_images::Bind| {
                    OwnMount::Bind(bind.source.clone(), request.root.skeleton.join(relative(&bind.target)))
                };
                root.mounts.push(OwnMount::ReadOnly(root.path.clone()));
                root.mounts.extend(binds.map(bind));
                root.options = &["--read-only", "--volatile=state"];
            }
            _ => {
                let part = |name: &str| directory.join(name);
                for name in ["upper", "work", "root"] {
                    make(&part(name))?;
                }
                let (upper, work) = (part("upper"), part("work"));
                root.mounts.push(OwnMount::Overlay { lower: tree.into(), upper, work, target: part("root") });
            }
        }
        Ok(root)
    }
}

/// Returns the mount of the directory for systemd-nspawn's locks and what it hands to containers.
fn own_state() -> OwnMount {
    OwnMount::state_of(Path::new("/run/systemd"))
}

fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

fn make(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory).map_err(PlatformError::at("make the directory", directory))
}
