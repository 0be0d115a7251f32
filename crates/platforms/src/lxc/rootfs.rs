//! Root file systems of containers: one for all, a copy for each, an overlay for each; and what is
//! mounted on them.

use super::Plan;
use super::config::MAPPED_USERS;
use crate::common_keys::Storage;
use crate::mapped::grant_traverse;
use crate::oci::mounts::{self, GuestMount, scratch_mode};
use crate::{GuestRequest, Host};
use crate::{PlatformError, Result};
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown};
use std::path::{Path, PathBuf};
use std::time::Duration;
use weigh_host::command::Invocation;
use weigh_images::Root;

/// The deadline for copying a root file system; a slow disk may need minutes.
const COPY_DEADLINE: Duration = Duration::from_secs(600);

/// The value of `root`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// One root for all guests.
    Shared,
    /// A copy for each.
    Copied,
    /// One root for all, with a layer for each guest that takes its writes.
    Overlay,
}

impl Kind {
    pub(super) fn of(word: &str) -> Self {
        match word {
            "copied" => Self::Copied,
            "overlay" => Self::Overlay,
            _ => Self::Shared,
        }
    }
}

/// The root of one guest as LXC's configuration describes it.
#[derive(Debug, Default)]
pub(super) struct Rootfs {
    /// `lxc.rootfs.path`.
    pub(super) path: String,
    /// `lxc.rootfs.options`.
    pub(super) options: Vec<&'static str>,
    /// `lxc.mount.entry`, in order, as in `fstab(5)`.
    pub(super) entries: Vec<String>,
}

/// Keeps systemd from emptying `/tmp` as it starts (`tmpfiles.d(5)`), when something may work there
/// already. The guest's `/tmp` is its own and begins empty.
pub(crate) const KEEP_TMP: &str = "/dev/null etc/tmpfiles.d/tmp.conf none bind,ro,create=file 0 0";

/// Returns a path as a field of `fstab(5)`, where blanks are written as octal numbers.
pub(crate) fn field(path: &Path) -> String {
    path.display().to_string().replace('\\', "\\134").replace(' ', "\\040").replace('\t', "\\011")
}

/// Returns the first user ID that the host lets root give to containers, `subuid(5)`.
///
/// # Errors
/// No such range exists; the remedy says how to add one.
pub(crate) fn first_of_range() -> Result<u32> {
    let first = |file: &str| {
        let text = fs::read_to_string(file).unwrap_or_default();
        text.lines().find_map(|line| {
            let mut fields = line.trim().split(':');
            let of_root = matches!(fields.next()?, "root" | "0");
            let (first, count) = (fields.next()?.parse().ok()?, fields.next()?.parse::<u64>().ok()?);
            (of_root && count >= u64::from(MAPPED_USERS)).then_some(first)
        })
    };
    match (first("/etc/subuid"), first("/etc/subgid")) {
        (Some(user), Some(group)) if user == group => Ok(user),
        _ => Err(PlatformError::unavailable(
            format!("root has no range of {MAPPED_USERS} users and groups for containers"),
            "give root one: `echo root:1000000:65536 | tee -a /etc/subuid /etc/subgid`",
        )),
    }
}

/// Returns what the roots of all guests are made of: the image's own tree, or the run's copy of it.
/// A copy has a mount point for the probe, which a read-only root could not get later, and for a
/// mapped container the owners that it can see, because overlay file systems cannot map them.
/// Returns `None` if the root is put together from mounts.
///
/// # Errors
/// The image has no tree; it could not be copied.
pub(super) fn base(plan: &Plan, host: &Host, root: &Root) -> Result<Option<PathBuf>> {
    if !plan.system && plan.rootfs == Kind::Shared {
        return Ok(None);
    }
    let Some(tree) = &root.tree else {
        let what = if plan.system { "system to start" } else { "root file system of its own" };
        return Err(PlatformError::unavailable(
            format!("the image has no {what}"),
            "add `rootfs=debian`, or name a directory or archive that holds one",
        ));
    };
    if plan.system && tree.join("sbin/init").symlink_metadata().is_err() {
        let reason = format!("{} has no /sbin/init", tree.display());
        return Err(PlatformError::unavailable(
            reason,
            "install the package systemd-sysv in it, or use `rootfs=debian`",
        ));
    }
    let shift = plan.mapped.filter(|_| plan.rootfs != Kind::Copied);
    if shift.is_none() && plan.rootfs != Kind::Shared {
        return Ok(Some(tree.clone()));
    }
    let digest: String = root.digest.chars().take(12).collect();
    let owner = if shift.is_some() { "mapped" } else { "root" };
    let copy = host.work.join(format!("lxc-base-{digest}-{owner}"));
    if copy.is_dir() {
        return Ok(Some(copy));
    }
    let partial = host.work.join(format!("lxc-base-{digest}-{owner}.part"));
    // An interrupted process has left it.
    if partial.exists() {
        fs::remove_dir_all(&partial).map_err(PlatformError::io("remove a partial copy"))?;
    }
    copy_tree(tree, &partial)?;
    fs::create_dir_all(partial.join(".weighbridge"))
        .and_then(|()| fs::create_dir_all(partial.join("var/tmp")))
        .and_then(|()| shift.map_or(Ok(()), |first| shift_owners(&partial, first)))
        .and_then(|()| fs::rename(&partial, &copy))
        .map_err(PlatformError::at("prepare", &copy))?;
    Ok(Some(copy))
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    // A file system that can share blocks between copies makes this quick.
    let copy = Invocation::new("cp").args(["--archive", "--reflink=auto", "--no-target-directory", "--"]);
    copy.arg(from).arg(to).deadline(COPY_DEADLINE).run_ok()?;
    Ok(())
}

/// Adds `first` to every owner. Files lose their capabilities, as `chown(2)` says; their
/// set-user-ID bits are set again.
fn shift_owners(path: &Path, first: u32) -> io::Result<()> {
    let metadata = path.symlink_metadata()?;
    lchown(path, Some(first + metadata.uid()), Some(first + metadata.gid()))?;
    if metadata.is_file() && metadata.mode() & 0o6000 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(metadata.mode() & 0o7777))?;
    }
    if metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            shift_owners(&entry?.path(), first)?;
        }
    }
    Ok(())
}

impl Rootfs {
    /// Decides the root of a guest and makes its directories below `directory`, which is the
    /// guest's own.
    ///
    /// # Errors
    /// The image has no tree, a directory could not be made, or a mapped container could not enter
    /// one.
    pub(super) fn make(plan: &Plan, host: &Host, request: &GuestRequest, directory: &Path) -> Result<Self> {
        let root = &request.root;
        let mut made = Self::default();
        match (base(plan, host, root)?, plan.rootfs) {
            (None, _) => {
                made.path = format!("dir:{}", root.skeleton.display());
                made.options.push("ro");
                made.map_owners(plan);
            }
            (Some(base), Kind::Shared) => {
                made.path = format!("dir:{}", base.display());
                made.options.push("ro");
                for part in ["etc", "var"] {
                    let [upper, work] = layers(plan, host, &directory.join(part))?;
                    let below = base.join(part);
                    made.entries.push(overlay(part, &below, &upper, &work));
                }
            }
            (Some(base), Kind::Copied) => {
                let copy = directory.join("root");
                copy_tree(&base, &copy)?;
                made.path = format!("dir:{}", copy.display());
                made.map_owners(plan);
            }
            (Some(base), Kind::Overlay) => {
                // LXC uses `work` beside the upper directory as the kernel's work directory.
                let [upper, _] = layers(plan, host, directory)?;
                made.path = format!("overlay:{}:{}", base.display(), upper.display());
            }
        }
        made.mount(plan, host, request)?;
        Ok(made)
    }

    /// Has the kernel show a mapped container its files with the owners that they have on the host.
    fn map_owners(&mut self, plan: &Plan) {
        if plan.mapped.is_some() {
            self.options.push("idmap=container");
        }
    }

    /// Adds what is mounted on the root, each mount after those that hold it.
    fn mount(&mut self, plan: &Plan, host: &Host, request: &GuestRequest) -> Result<()> {
        let root = &request.root;
        let storage = Storage::make(&plan.storage, &host.work, &storage_name(request))
            .map_err(PlatformError::io("make the directories of the storage"))?;
        let whole = plan.system || plan.rootfs != Kind::Shared;
        let mut all = if whole {
            let own = root.skeleton.join(".weighbridge");
            vec![bind(&own, Path::new("/.weighbridge"), true), GuestMount::Scratch("/tmp".into())]
        } else if plan.mapped.is_some() {
            // Binds take along the mounts below, which a user namespace cannot leave out.
            mounts::whole(root)
        } else {
            mounts::of_root(root).map_err(PlatformError::io("read the host's mounts"))?
        };
        all.retain(|mount| mount.target() != Path::new(Storage::TARGET));
        let (within, all): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|mount| Storage::holds(mount.target()));
        let scratch: Vec<PathBuf> = all
            .iter()
            .filter(|it| matches!(it, GuestMount::Scratch(_)))
            .map(|it| it.target().into())
            .collect();
        for mount in &all {
            let below_scratch =
                scratch.iter().any(|it| mount.target().starts_with(it) && mount.target() != it);
            self.entries.push(entry(mount, plan, host, whole || below_scratch)?);
        }
        if plan.system {
            self.entries.push(KEEP_TMP.into());
        }
        self.store(plan, host, root, &storage, whole)?;
        for mount in &within {
            self.entries.push(entry(mount, plan, host, true)?);
        }
        Ok(())
    }

    /// Mounts what holds `/var/tmp`.
    fn store(&mut self, plan: &Plan, host: &Host, root: &Root, storage: &Storage, whole: bool) -> Result<()> {
        let target = Path::new(Storage::TARGET);
        if !whole && !root.binds.iter().any(|bind| target.starts_with(&bind.target)) {
            let place = root.skeleton.join("var/tmp");
            fs::create_dir_all(&place).map_err(PlatformError::at("make", &place))?;
        }
        self.entries.push(match storage {
            Storage::Tmpfs => entry(&GuestMount::Scratch(target.into()), plan, host, whole)?,
            Storage::Volume(volume) => entry(&bind(volume, target, false), plan, host, whole)?,
            Storage::Overlay { lower, upper, work } => {
                give(plan, &[lower, upper, work])?;
                enterable(plan, host, upper)?;
                overlay("var/tmp", lower, upper, work)
            }
        });
        Ok(())
    }
}

/// Returns the name of a guest's storage below the run's work directory, for [`Storage::make`].
pub(super) fn storage_name(request: &GuestRequest) -> String {
    format!("lxc-{}", request.instance)
}

fn bind(source: &Path, target: &Path, read_only: bool) -> GuestMount {
    GuestMount::Bind(weigh_images::Bind { source: source.into(), target: target.into(), read_only })
}

/// Returns a mount as LXC takes it. `create`: LXC makes the mount point if it does not exist.
fn entry(mount: &GuestMount, plan: &Plan, host: &Host, create: bool) -> Result<String> {
    let target = mount.target().strip_prefix("/").unwrap_or(mount.target());
    let (source, kind, mut options, is_file) = match mount {
        GuestMount::Bind(bind) => {
            enterable(plan, host, &bind.source)?;
            let how = if plan.mapped.is_some() { "rbind" } else { "bind" };
            let access = if bind.read_only { "ro" } else { "rw,nosuid,nodev" };
            (field(&bind.source), "none", format!("{how},{access}"), bind.source.is_file())
        }
        GuestMount::Scratch(target) => {
            let options = format!("rw,nosuid,nodev,mode={}", scratch_mode(target));
            ("tmpfs".into(), "tmpfs", options, false)
        }
    };
    if create {
        options.push_str(if is_file { ",create=file" } else { ",create=dir" });
    }
    Ok(format!("{source} {} {kind} {options} 0 0", field(target)))
}

fn overlay(target: &str, lower: &Path, upper: &Path, work: &Path) -> String {
    let (lower, upper, work) = (field(lower), field(upper), field(work));
    format!("overlay {target} overlay lowerdir={lower},upperdir={upper},workdir={work} 0 0")
}

/// Makes empty directories `upper` and `work` for an overlay, which belong to the container's root.
fn layers(plan: &Plan, host: &Host, below: &Path) -> Result<[PathBuf; 2]> {
    let all = [below.join("upper"), below.join("work")];
    for path in &all {
        fs::create_dir_all(path).map_err(PlatformError::at("make", path))?;
    }
    give(plan, &[&all[0], &all[1]])?;
    enterable(plan, host, &all[0])?;
    Ok(all)
}

/// Gives directories to the root of a mapped container.
fn give(plan: &Plan, paths: &[&Path]) -> Result<()> {
    let Some(first) = plan.mapped else { return Ok(()) };
    for path in paths {
        chown(path, Some(first), Some(first))
            .map_err(PlatformError::io(format!("give {} to the container", path.display())))?;
    }
    Ok(())
}

/// Lets the root of a mapped container, who is an ordinary user of the host, reach what it mounts.
fn enterable(plan: &Plan, host: &Host, path: &Path) -> Result<()> {
    plan.mapped.map_or(Ok(()), |first| grant_traverse(host, first, path.parent().unwrap_or(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_in_paths_are_escaped() {
        assert_eq!(field(Path::new("/a b\\c\td")), "/a\\040b\\134c\\011d");
    }

    #[test]
    fn owners_are_moved_and_programs_keep_their_rights() {
        if !weigh_host::facts::is_root() {
            return;
        }
        let base = tempfile::tempdir().unwrap();
        let (file, link) = (base.path().join("file"), base.path().join("link"));
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o4755)).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &link).unwrap();
        shift_owners(base.path(), 7000).unwrap();
        let [file, link] = [file, link].map(|path| path.symlink_metadata().unwrap());
        assert_eq!((file.uid(), file.gid(), file.mode() & 0o7777), (7000, 7000, 0o4755));
        assert_eq!(link.uid(), 7000);
        assert_eq!(fs::metadata("/etc/passwd").unwrap().uid(), 0);
    }
}
