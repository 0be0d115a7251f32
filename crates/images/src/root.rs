//! Preparing the root file system of guests.

use crate::digest::ContentDigest;
use crate::pack::Owners;
use crate::store::{ImageLock, Store};
use crate::{FileError, ImageError, archive, host, pack};
use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use weigh_model::ImageSpec;

/// Mount points of every skeleton, with their permissions.
const MOUNT_POINTS: [(&str, u32); 7] = [
    ("proc", 0o755),
    ("sys", 0o755),
    ("dev", 0o755),
    ("tmp", 0o1777),
    ("run", 0o755),
    ("etc", 0o755),
    (".weighbridge", 0o755),
];
/// Entries of the image that a guest replaces with its own.
const PRIVATE: [&str; 6] = ["proc", "sys", "dev", "tmp", "run", ".weighbridge"];
/// Further entries of the host's root that do not belong to its system.
const NOT_THE_SYSTEM: [&str; 5] = ["mnt", "media", "lost+found", "root", "home"];
/// Files over which container engines mount their own. That requires that they exist, because the
/// image's `/etc` is read-only.
const ENGINE_FILES: [&str; 3] = ["hosts", "hostname", "resolv.conf"];
/// Files for looking up users and names, for images without an `/etc`.
const MINIMAL_ETC: [(&str, &str); 5] = [
    ("passwd", "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"),
    ("group", "root:x:0:\nnogroup:x:65534:\n"),
    ("hosts", "127.0.0.1\tlocalhost\n::1\tlocalhost\n"),
    ("hostname", ""),
    ("resolv.conf", ""),
];

/// The programs for every guest: files of the host, outside of any root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    /// The probe.
    pub probe: PathBuf,
    /// The builtin kernels.
    pub kernels: PathBuf,
    /// The builtin kernels as a WebAssembly module, if weighbridge was built with them. No root has
    /// it: it is for a program of the host.
    pub module: Option<PathBuf>,
}

impl Programs {
    /// Writes the programs as a tar archive with their paths in a guest: a layer for images without
    /// a skeleton. The same programs give the same bytes.
    ///
    /// # Errors
    /// A program cannot be read, or `output` cannot be written.
    pub fn write_tar(&self, output: impl Write) -> io::Result<()> {
        let mut archive = tar::Builder::new(output);
        for (file, place) in [(&self.probe, crate::PROBE), (&self.kernels, crate::KERNELS)] {
            let bytes = fs::read(file)?;
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o755);
            archive.append_data(&mut header, place.trim_start_matches('/'), &bytes[..])?;
        }
        archive.into_inner()?.flush()
    }
}

/// A bind mount of a file or directory of the host into the guest, recursive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind {
    /// The path on the host: absolute, a directory or a regular file, not a symbolic link.
    pub source: PathBuf,
    /// The path in the guest, absolute. It exists with the kind of the source, in the skeleton or
    /// in the bind above it, unless it is below a scratch mount; then the platform must make it
    /// there.
    pub target: PathBuf,
    /// Whether the guest must not write to it.
    pub read_only: bool,
}

/// A mount of a root, see [`Root::mounts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mount<'a> {
    /// A part of the image.
    Bind(&'a Bind),
    /// A private empty tmpfs at this absolute path in the guest, with mode 1777 for `/tmp` and
    /// `/var/tmp`, else 0755.
    Scratch(&'a Path),
}

impl Mount<'_> {
    /// The absolute path in the guest where it is mounted.
    pub fn target(&self) -> &Path {
        match self {
            Self::Bind(bind) => &bind.target,
            Self::Scratch(target) => target,
        }
    }
}

/// A root file system that any number of guests can mount at the same time. The default is an empty
/// one that exists nowhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Root {
    /// The directory that becomes the guest's `/`. Guests share it: mount it read-only.
    pub skeleton: PathBuf,
    /// Parts of the image. One that contains the skeleton comes first (see "Loops" in the
    /// documentation of the crate).
    pub binds: Vec<Bind>,
    /// Absolute paths in the guest of private tmpfs mounts.
    pub scratch: Vec<PathBuf>,
    /// SHA-256, hexadecimal, of everything that determines the content: the bytes of the programs;
    /// the bytes of an archive; names, owners, permissions, sizes and times of a directory; release
    /// and package database of the host.
    pub digest: String,
    /// Whether this is the host's root, so that guests have the same programs as the host.
    pub host: bool,
    /// Notes for the user, in sentences, about entries that guests do not see.
    pub notes: Vec<String>,
    /// The whole root file system as one directory of the host, for systems with their own init and
    /// for engines that copy images: the directory of an image, or an unpacked archive. Absent for
    /// the host's root and for the probe alone. It must not be written to, because guests of other
    /// runs may share it. It does not contain the programs for guests.
    pub tree: Option<PathBuf>,
    /// Prevents the removal of an image in the cache while a root uses it.
    pub lock: Option<ImageLock>,
}

impl Root {
    /// Makes the skeleton below `work` (archives are unpacked there, too) and determines the
    /// mounts.
    ///
    /// With the host's root, guests do not see what the host hides from its users (see "The host's
    /// root" in the documentation of the crate). A `working_directory` below a directory that is
    /// not shown, such as `/tmp` or `/home`, is bound read-only at the same path, so that guests
    /// find the user's files. With another image the working directory belongs to the image, and
    /// nothing is bound.
    ///
    /// The caller must have recorded `work` in the ledger; nothing is written outside of it.
    ///
    /// # Errors
    /// An image or program does not exist, is of an unknown kind or unsafe to unpack; a system
    /// error.
    pub fn prepare(
        image: &ImageSpec,
        programs: &Programs,
        work: &Path,
        working_directory: Option<&Path>,
    ) -> Result<Self, ImageError> {
        Self::prepare_with(Store::open().as_ref(), image, programs, work, working_directory)
    }

    /// Like [`Root::prepare`], with the images of the given store.
    ///
    /// # Errors
    /// The errors of [`Root::prepare`].
    pub fn prepare_with(
        store: Option<&Store>,
        image: &ImageSpec,
        programs: &Programs,
        work: &Path,
        working_directory: Option<&Path>,
    ) -> Result<Self, ImageError> {
        // Lock the image before anything is made for it.
        let cached = match image {
            ImageSpec::Debian | ImageSpec::Oci(_) => {
                let not_built = || ImageError::NotBuilt { image: image.to_string() };
                Some(store.ok_or_else(not_built)?.lock(image)?)
            }
            ImageSpec::Probe | ImageSpec::Host | ImageSpec::Path(_) => None,
        };
        let mut builder = Builder::new(programs, work)?;
        match image {
            ImageSpec::Probe => builder.digest.part(b"probe"),
            ImageSpec::Host => builder.host(work, working_directory)?,
            ImageSpec::Path(path) => builder.path(path, work, working_directory)?,
            ImageSpec::Debian | ImageSpec::Oci(_) => {}
        }
        if let Some((image, lock)) = cached {
            builder.digest.part(b"kept");
            image.digest_into(&mut builder.digest);
            builder.tree(image.tree())?;
            builder.root.lock = Some(lock);
        }
        builder.finish()
    }

    /// The host's root for guests that mount nothing of it. It exists where it is: there is no
    /// skeleton, and no digest.
    pub fn of_host() -> Self {
        Self { host: true, ..Self::default() }
    }

    /// All mounts in the order in which to make them: a mount comes after those above it. Entries
    /// that have vanished from the host's root meanwhile are left out.
    pub fn mounts(&self) -> Vec<Mount<'_>> {
        let mut mounts: Vec<Mount<'_>> = self
            .binds
            .iter()
            .filter(|bind| !self.host || bind.target.exists())
            .map(Mount::Bind)
            .chain(self.scratch.iter().map(|path| Mount::Scratch(path)))
            .collect();
        // The sort is stable: the bind that contains the skeleton stays before others of the same
        // depth.
        mounts.sort_by_key(|mount| mount.target().components().count());
        mounts
    }

    /// The mounts for a machine that sees all binds at once, each in its place: a bind inside
    /// another one is visible there.
    pub fn outer_mounts(&self) -> Vec<Mount<'_>> {
        let all = self.mounts();
        let is_in_bind = |mount: &Mount<'_>| {
            let strictly_above = |other: &&Mount<'_>| {
                mount.target() != other.target() && mount.target().starts_with(other.target())
            };
            // They are ordered by depth, so the last one is the nearest.
            matches!(all.iter().rfind(strictly_above), Some(Mount::Bind(_)))
        };
        all.iter().copied().filter(|mount| matches!(mount, Mount::Scratch(_)) || !is_in_bind(mount)).collect()
    }

    /// Writes the skeleton as a tar archive. The same skeleton gives the same bytes.
    ///
    /// # Errors
    /// The skeleton cannot be read, or `output` cannot be written.
    pub fn write_tar(&self, output: impl Write) -> io::Result<()> {
        pack::write(&self.skeleton, output, Owners::Root)
    }

    /// Writes the whole image ([`Root::tree`]) as a tar archive with its owners, for engines that
    /// keep their own images. The same tree gives the same bytes.
    ///
    /// # Errors
    /// There is no tree, it cannot be read, or `output` cannot be written.
    pub fn write_tree_tar(&self, output: impl Write) -> io::Result<()> {
        let tree = self.tree.as_ref().ok_or_else(|| io::Error::other("this root has no image of its own"))?;
        pack::write(tree, output, Owners::Preserved)
    }
}

struct Builder {
    root: Root,
    digest: ContentDigest,
    /// Binds that hide parts of the host. They are not part of the digest: the location of
    /// weighbridge's own directories does not change what guests find.
    covers: Vec<Bind>,
}

impl Builder {
    fn new(programs: &Programs, work: &Path) -> Result<Self, ImageError> {
        fs::create_dir_all(work).map_err(FileError::of("make the directory", work))?;
        let work = work.canonicalize().map_err(FileError::of("resolve", work))?;
        let skeleton = work.join("skeleton");
        if skeleton.symlink_metadata().is_ok() {
            return Err(ImageError::Occupied { path: skeleton });
        }
        make_directory(&skeleton, 0o755)?;
        for (name, mode) in MOUNT_POINTS {
            make_directory(&skeleton.join(name), mode)?;
        }
        let mut digest = ContentDigest::new();
        for (from, to) in [(&programs.probe, crate::PROBE), (&programs.kernels, crate::KERNELS)] {
            if !from.is_file() {
                return Err(ImageError::ProgramMissing { path: from.clone() });
            }
            let to = in_root(&skeleton, Path::new(to));
            fs::copy(from, &to).map_err(FileError::of("copy", from))?;
            set_mode(&to, 0o755)?;
            digest.file(from)?;
        }
        let scratch = vec![PathBuf::from("/tmp"), PathBuf::from("/run")];
        let root = Root { skeleton, scratch, ..Root::default() };
        Ok(Self { root, digest, covers: Vec::new() })
    }

    fn finish(mut self) -> Result<Root, ImageError> {
        // By now, the `/etc` of an image, or its entries, have been bound.
        if !self.root.binds.iter().any(|bind| bind.target.starts_with("/etc")) {
            self.write_missing_etc()?;
        }
        let skeleton = &self.root.skeleton;
        for bind in &self.root.binds {
            self.digest.part(bind.target.as_os_str().as_bytes());
        }
        // Covers come before a working directory at the same path, which then hides its cover.
        self.covers.append(&mut self.root.binds);
        self.root.binds = self.covers;
        self.root.binds.sort_by_key(|bind| !skeleton.starts_with(&bind.source));
        self.root.digest = self.digest.finish();
        Ok(self.root)
    }

    fn path(&mut self, path: &Path, work: &Path, working: Option<&Path>) -> Result<(), ImageError> {
        let metadata = match path.metadata() {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(ImageError::NotFound { path: path.into() });
            }
            Err(error) => return Err(FileError::of("look at", path)(error).into()),
        };
        let canonical = path.canonicalize().map_err(FileError::of("resolve", path))?;
        if metadata.is_dir() && canonical == Path::new("/") {
            self.host(work, working)
        } else if metadata.is_dir() {
            self.digest.part(b"directory");
            let mut skip: Vec<PathBuf> = PRIVATE.iter().map(|name| canonical.join(name)).collect();
            skip.extend(self.root.skeleton.parent().map(Path::to_path_buf));
            self.digest.tree(&canonical, &skip)?;
            self.tree(canonical)
        } else if metadata.is_file() {
            let unpacked = work.join("image");
            archive::unpack(&canonical, &unpacked)?;
            self.digest.part(b"archive");
            self.digest.file(&canonical)?;
            let unpacked = unpacked.canonicalize().map_err(FileError::of("resolve", &unpacked))?;
            self.tree(unpacked)
        } else {
            Err(ImageError::NotAnImage { path: path.into() })
        }
    }

    /// Uses a directory as the whole image.
    fn tree(&mut self, tree: PathBuf) -> Result<(), ImageError> {
        self.place_root(&tree, &PRIVATE)?;
        self.root.tree = Some(tree);
        Ok(())
    }

    fn host(&mut self, work: &Path, working_directory: Option<&Path>) -> Result<(), ImageError> {
        self.root.host = true;
        self.digest.part(b"host");
        self.digest.system(Path::new("/"))?;
        let etc = is_directory(Path::new("/etc")).then_some("etc");
        let closed = host::closed_names(Path::new("/"))?;
        let closed = closed.iter().map(String::as_str);
        let hidden: Vec<&str> = PRIVATE.into_iter().chain(NOT_THE_SYSTEM).chain(etc).chain(closed).collect();
        self.place_root(Path::new("/"), &hidden)?;
        if etc.is_some() {
            self.readable_etc(work)?;
        }
        let directory = working_directory
            .map(|directory| directory.canonicalize().map_err(FileError::of("resolve", directory)))
            .transpose()?;
        let covers = host::covers(&self.root, work, directory.as_deref());
        self.covers = host::cover(&covers, work, directory.as_deref())?;
        let is_shown = |path: &Path| {
            path == Path::new("/")
                || host::is_shown(&self.root, path) && !covers.iter().any(|cover| path.starts_with(cover))
        };
        match directory {
            Some(directory) if !is_shown(&directory) => self.show(directory),
            _ => Ok(()),
        }
    }

    /// Shows a copy of the host's `/etc` without what the host hides from its users, and with the
    /// files that container engines need.
    fn readable_etc(&mut self, work: &Path) -> Result<(), ImageError> {
        let etc = work.canonicalize().map_err(FileError::of("resolve", work))?.join("etc");
        make_directory(&etc, 0o755)?;
        host::copy_readable(Path::new("/etc"), &etc)?;
        for path in ENGINE_FILES.map(|name| etc.join(name)) {
            if path.symlink_metadata().is_err() {
                fs::write(&path, "").map_err(FileError::of("write", &path))?;
            }
        }
        self.root.binds.push(Bind { source: etc, target: "/etc".into(), read_only: true });
        Ok(())
    }

    /// Shows the working directory at the same path, if guests do not see that part of the host.
    fn show(&mut self, directory: PathBuf) -> Result<(), ImageError> {
        let kernels_own = ["/proc", "/sys", "/dev"].iter().any(|top| directory.starts_with(top));
        if kernels_own || self.root.scratch.contains(&directory) {
            self.root.notes.push(format!(
                "{} is private to each guest, so guests do not see the files of this working directory: use another one",
                directory.display()
            ));
            return Ok(());
        }
        if host::is_home(&directory) {
            self.root.notes.push(format!(
                "guests can read all of {}, its keys and passwords too, because weigh was started there: start it in another directory",
                directory.display()
            ));
        }
        // A cover already has the mount point.
        if !self.covers.iter().any(|cover| directory.starts_with(&cover.target)) {
            let place = in_root(&self.root.skeleton, &directory);
            fs::create_dir_all(&place).map_err(FileError::of("make the directory", &place))?;
        }
        self.root.binds.push(Bind { source: directory.clone(), target: directory, read_only: true });
        Ok(())
    }

    /// Shows the image's entries in the root of the guest, except those with the names in `hidden`.
    fn place_root(&mut self, image: &Path, hidden: &[&str]) -> Result<(), ImageError> {
        let etc = image.join("etc");
        let is_hidden = |name: &OsStr| hidden.iter().any(|hidden| name == *hidden);
        let etc_lacks_files = !is_hidden(OsStr::new("etc"))
            && is_directory(&etc)
            && ENGINE_FILES.iter().any(|name| etc.join(name).symlink_metadata().is_err());
        self.place(image, Path::new("/"), |name| is_hidden(name) || (etc_lacks_files && name == "etc"))?;
        if etc_lacks_files {
            self.place(&etc, Path::new("/etc"), |_| false)?;
            for name in ENGINE_FILES {
                let path = self.root.skeleton.join("etc").join(name);
                if path.symlink_metadata().is_err() {
                    fs::write(&path, "").map_err(FileError::of("write", &path))?;
                }
            }
        }
        // Only if the image has the directory, because none can be made below a read-only bind.
        if is_directory(&image.join("var")) && is_directory(&image.join("var/tmp")) {
            self.root.scratch.push("/var/tmp".into());
        }
        Ok(())
    }

    /// Shows the entries of a directory at a path of the guest: links as links, everything else as
    /// binds.
    fn place(&mut self, from: &Path, at: &Path, hidden: impl Fn(&OsStr) -> bool) -> Result<(), ImageError> {
        let mut names = fs::read_dir(from)
            .and_then(|entries| {
                entries.map(|e| e.map(|e| e.file_name())).collect::<Result<Vec<OsString>, _>>()
            })
            .map_err(FileError::of("read the directory", from))?;
        names.sort();
        for name in names.iter().filter(|name| !hidden(name)) {
            self.place_entry(&from.join(name), &at.join(name))?;
        }
        Ok(())
    }

    fn place_entry(&mut self, source: &Path, target: &Path) -> Result<(), ImageError> {
        let metadata = source.symlink_metadata().map_err(FileError::of("look at", source))?;
        let place = in_root(&self.root.skeleton, target);
        if source.to_str().is_none() {
            // Engines and runtimes take their mounts as JSON, which cannot hold other bytes.
            self.root
                .notes
                .push(format!("{} is not shown to guests: its name is not valid Unicode", source.display()));
            return Ok(());
        }
        if metadata.is_symlink() {
            let to = fs::read_link(source).map_err(FileError::of("read the link", source))?;
            // An image may have a link where the skeleton has a directory (`/etc`).
            if is_directory(&place) {
                fs::remove_dir(&place).map_err(FileError::of("replace", &place))?;
            }
            return Ok(symlink(to, &place).map_err(FileError::of("make the link", &place))?);
        }
        if metadata.is_dir() {
            if !is_directory(&place) {
                make_directory(&place, 0o755)?;
            }
        } else if metadata.is_file() {
            fs::write(&place, "").map_err(FileError::of("write", &place))?;
        } else {
            return Ok(()); // guests get no sockets, pipes and devices of the image
        }
        self.root.binds.push(Bind { source: source.into(), target: target.into(), read_only: true });
        Ok(())
    }

    fn write_missing_etc(&mut self) -> Result<(), ImageError> {
        let etc = self.root.skeleton.join("etc");
        if !is_directory(&etc) {
            return Ok(()); // a link into the image
        }
        for (name, content) in MINIMAL_ETC {
            let path = etc.join(name);
            fs::write(&path, content).map_err(FileError::of("write", &path))?;
            set_mode(&path, 0o644)?;
        }
        Ok(())
    }
}

/// The path on the host of an absolute path in the guest.
fn in_root(root: &Path, absolute: &Path) -> PathBuf {
    root.join(absolute.strip_prefix("/").unwrap_or(absolute))
}

pub(crate) fn is_directory(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir())
}

pub(crate) fn make_directory(path: &Path, mode: u32) -> Result<(), ImageError> {
    fs::create_dir(path).map_err(FileError::of("make the directory", path))?;
    set_mode(path, mode)
}

/// Sets permissions separately, because the umask would restrict those given at creation.
pub(crate) fn set_mode(path: &Path, mode: u32) -> Result<(), ImageError> {
    Ok(fs::set_permissions(path, Permissions::from_mode(mode))
        .map_err(FileError::of("set the permissions of", path))?)
}
