//! A root whose `/var/tmp` lies in the writable layer of the container, as it does for users who
//! mount nothing there.
//!
//! An image's `/var` is mounted as a whole and read-only, so that its `/var/tmp` could not be part
//! of the layer. Here its entries are mounted one by one instead, beside a `/var/tmp` of the
//! skeleton.

use crate::common_keys::Storage;
use crate::{PlatformError, Result};
use std::fs;
use std::io;
use std::ops::Deref;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use weigh_images::{Bind, Root};

/// A root as it is, or laid out anew.
pub(crate) enum RootLayout<'a> {
    /// As it is.
    Same(&'a Root),
    /// Laid out anew.
    Own(Box<Root>),
}

impl Deref for RootLayout<'_> {
    type Target = Root;

    fn deref(&self) -> &Root {
        match self {
            Self::Same(root) => root,
            Self::Own(root) => root,
        }
    }
}

/// Returns the root as it is, or with a `/var/tmp` in the layer; its new skeleton is made below
/// `work`, once.
///
/// # Errors
/// The skeleton could not be copied, or `/var` could not be read.
pub(crate) fn of<'a>(root: &'a Root, own: bool, work: &Path) -> Result<RootLayout<'a>> {
    if !own {
        return Ok(RootLayout::Same(root));
    }
    let laid_out = laid_out_anew(root, work);
    let root = laid_out.map_err(PlatformError::io("lay out a root with a writable /var/tmp"))?;
    Ok(RootLayout::Own(Box::new(root)))
}

fn laid_out_anew(root: &Root, work: &Path) -> io::Result<Root> {
    let mut new = root.clone();
    new.digest = format!("1a1e5{}", root.digest);
    let short: String = new.digest.chars().take(16).collect();
    new.skeleton = work.join(format!("own-layer-{short}"));
    new.scratch.retain(|target| target != Path::new(Storage::TARGET));
    let var = root.binds.iter().position(|bind| bind.target == Path::new("/var"));
    let entries = match var.map(|at| new.binds.remove(at)) {
        Some(var) => entries(&var)?,
        None => Vec::new(),
    };
    let partial = new.skeleton.with_extension("partial");
    if !new.skeleton.exists() {
        // A crash may have left a partial copy.
        let _ = fs::remove_dir_all(&partial);
        copy(&root.skeleton, &partial)?;
        let target = partial.join("var/tmp");
        fs::create_dir_all(&target)?;
        fs::set_permissions(&target, fs::Permissions::from_mode(0o1777))?;
        for (bind, kind) in &entries {
            let place = partial.join(bind.target.strip_prefix("/").unwrap_or(&bind.target));
            match kind {
                Kind::Directory => fs::create_dir(&place)?,
                Kind::File => fs::write(&place, "")?,
                Kind::Link => symlink(fs::read_link(&bind.source)?, &place)?,
            }
        }
        fs::rename(&partial, &new.skeleton)?;
    }
    // What the root already has at such a place hides the entry.
    let is_free = |bind: &Bind| !root.binds.iter().any(|other| other.target == bind.target);
    let entries = entries.into_iter().filter(|(bind, kind)| *kind != Kind::Link && is_free(bind));
    new.binds.extend(entries.map(|(bind, _)| bind));
    Ok(new)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Directory,
    File,
    Link,
}

/// Returns what is in the image's `/var`, except `tmp`.
fn entries(var: &Bind) -> io::Result<Vec<(Bind, Kind)>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(&var.source)? {
        let entry = entry?;
        let found = entry.file_type()?;
        let kind = match found {
            _ if entry.file_name() == "tmp" || entry.file_name().to_str().is_none() => continue,
            _ if found.is_dir() => Kind::Directory,
            _ if found.is_file() => Kind::File,
            _ if found.is_symlink() => Kind::Link,
            _ => continue,
        };
        let target = var.target.join(entry.file_name());
        all.push((Bind { source: entry.path(), target, read_only: var.read_only }, kind));
    }
    all.sort_by(|a, b| a.0.target.cmp(&b.0.target));
    Ok(all)
}

/// Copies a skeleton: directories, files and links with their permissions.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    fs::set_permissions(to, from.metadata()?.permissions())?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, place) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            copy(&entry.path(), &place)?;
        } else if kind.is_symlink() {
            symlink(fs::read_link(entry.path())?, &place)?;
        } else {
            fs::copy(entry.path(), &place)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn var_is_mounted_in_parts_beside_an_own_tmp() {
        let base = tempfile::tempdir().unwrap();
        let (skeleton, var) = (base.path().join("skeleton"), base.path().join("var"));
        for directory in [skeleton.join("var"), skeleton.join("etc"), var.join("lib"), var.join("tmp")] {
            fs::create_dir_all(directory).unwrap();
        }
        fs::write(skeleton.join("etc/hosts"), "x").unwrap();
        fs::write(var.join("file"), "").unwrap();
        fs::create_dir(var.join("log")).unwrap();
        symlink("/run", var.join("run")).unwrap();
        let cover = Bind { source: base.path().join("empty"), target: "/var/log".into(), read_only: true };
        let root = Root {
            skeleton,
            binds: vec![cover.clone(), Bind { source: var.clone(), target: "/var".into(), read_only: true }],
            scratch: vec!["/tmp".into(), Storage::TARGET.into()],
            digest: "abc".into(),
            ..Root::default()
        };
        assert_eq!(of(&root, false, base.path()).unwrap().skeleton, root.skeleton);
        let new = of(&root, true, base.path()).unwrap();
        let targets: Vec<_> = new.binds.iter().map(|bind| bind.target.to_str().unwrap()).collect();
        assert_eq!((targets, new.scratch.len()), (vec!["/var/log", "/var/file", "/var/lib"], 1));
        assert_eq!(new.binds[0], cover, "what is hidden stays hidden");
        assert!(new.skeleton.join("var/log").is_dir());
        assert_eq!(fs::read_link(new.skeleton.join("var/run")).unwrap(), Path::new("/run"));
        assert_eq!(fs::metadata(new.skeleton.join("var/tmp")).unwrap().permissions().mode() & 0o7777, 0o1777);
        assert_eq!(fs::read_to_string(new.skeleton.join("etc/hosts")).unwrap(), "x");
        assert_ne!(new.digest, root.digest);
        assert_eq!(*of(&root, true, base.path()).unwrap(), *new, "made once");
    }
}
