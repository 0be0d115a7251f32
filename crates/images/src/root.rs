//! Preparing a guest's root.

use crate::digest::ContentDigest;
use crate::pack::Owners;
use crate::store::{Hold, Store};
use crate::{ImageError, archive, pack};
use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use weigh_model::ImageSpec;

/// Mount points that every skeleton has, and their permissions.
const MOUNT_POINTS: [(&str, u32); 7] = [
    ("proc", 0o755),
    ("sys", 0o755),
    ("dev", 0o755),
    ("tmp", 0o1777),
    ("run", 0o755),
    ("etc", 0o755),
    (".weighbridge", 0o755),
];
/// Entries of the image that the guest has its own of.
const PRIVATE: [&str; 6] = ["proc", "sys", "dev", "tmp", "run", ".weighbridge"];
/// Further entries of the host's root that are no part of its system.
const NOT_THE_SYSTEM: [&str; 3] = ["mnt", "media", "lost+found"];
/// Files that container engines mount their own over; where the image's `/etc` lacks one, they
/// could not, because it is read-only.
const ENGINE_FILES: [&str; 3] = ["hosts", "hostname", "resolv.conf"];
/// What a program needs to look up a user or a name, for images without an `/etc`.
const MINIMAL_ETC: [(&str, &str); 5] = [
    ("passwd", "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"),
    ("group", "root:x:0:\nnogroup:x:65534:\n"),
    ("hosts", "127.0.0.1\tlocalhost\n::1\tlocalhost\n"),
    ("hostname", ""),
    ("resolv.conf", ""),
];

/// The programs that go into every guest: files on the host, outside of any root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    /// The guest side of the protocol.
    pub probe: PathBuf,
    /// The builtin kernels.
    pub kernels: PathBuf,
}

/// A file or directory of the host that is mounted into the guest with everything below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind {
    /// On the host: absolute, without symbolic links in the last part; a directory or a regular
    /// file.
    pub source: PathBuf,
    /// In the guest, absolute. It exists in the skeleton, with the source's kind, unless it lies
    /// below a scratch mount: then whoever mounts makes it there.
    pub target: PathBuf,
    /// Whether the guest must not write to it.
    pub read_only: bool,
}

/// One mount of a root, in the order of [`Root::mounts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mount<'a> {
    /// A part of the image.
    Bind(&'a Bind),
    /// A private empty tmpfs with mode 1777 for `/tmp` and `/var/tmp`, 0755 else, at this absolute
    /// path in the guest.
    Scratch(&'a Path),
}

impl Mount<'_> {
    /// Where it is mounted, absolute, in the guest.
    pub fn target(&self) -> &Path {
        match self {
            Self::Bind(bind) => &bind.target,
            Self::Scratch(target) => target,
        }
    }
}

/// A root file system, ready to be mounted by any number of guests at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// Directory that becomes the guest's `/`. Shared by guests: mount it read-only.
    pub skeleton: PathBuf,
    /// Parts of the image. The one that holds the skeleton, if any, is the first (see the crate's
    /// page on loops).
    pub binds: Vec<Bind>,
    /// Absolute paths in the guest of private tmpfs mounts.
    pub scratch: Vec<PathBuf>,
    /// SHA-256, hexadecimal, over what decides the content: the programs' bytes; an archive's
    /// bytes; of a directory the names, owners, permissions, sizes and times; of the host the
    /// release and the state of the package database.
    pub digest: String,
    /// Whether this is the host's own root, so that a program of the host is the same program in
    /// the guest.
    pub host: bool,
    /// What the user should know, in sentences: entries that could not be shown to the guest.
    pub notes: Vec<String>,
    /// The whole root file system as one directory of the host, for systems with an init of their
    /// own and for images of engines that make their own copies: an image's directory, or what an
    /// archive was unpacked to. Absent for the host's root and the probe alone. Never to be written
    /// to: guests of other runs may share it. The programs for guests are not in it.
    pub tree: Option<PathBuf>,
    /// What keeps an image of this host's from being removed as long as a root of it is in use.
    pub hold: Option<Hold>,
}

impl Root {
    /// Makes the skeleton below `work` (an archive is unpacked there too) and decides the mounts.
    ///
    /// With the host's root, a `working_directory` below `/tmp`, `/run`, `/mnt` or `/media`, which
    /// the guest does not see, is bound read-only at the same place, so that the user's files are
    /// found. With another image the working directory is one of the image, and nothing is bound.
    ///
    /// The caller has put `work` into the ledger: nothing is written outside of it.
    ///
    /// # Errors
    /// An image or program that does not exist, is of no known kind or unsafe to unpack; a system
    /// error.
    pub fn prepare(
        image: &ImageSpec,
        programs: &Programs,
        work: &Path,
        working_directory: Option<&Path>,
    ) -> Result<Self, ImageError> {
        Self::prepare_with(Store::open().as_ref(), image, programs, work, working_directory)
    }

    /// As [`Root::prepare`], with the images of a store of the caller's.
    ///
    /// # Errors
    /// As [`Root::prepare`].
    pub fn prepare_with(
        store: Option<&Store>,
        image: &ImageSpec,
        programs: &Programs,
        work: &Path,
        working_directory: Option<&Path>,
    ) -> Result<Self, ImageError> {
        // Before anything is made for it.
        let kept = match image {
            ImageSpec::Debian | ImageSpec::Oci(_) => {
                let not_built = || ImageError::NotBuilt { image: image.to_string() };
                Some(store.ok_or_else(not_built)?.hold(image)?)
            }
            ImageSpec::Probe | ImageSpec::Host | ImageSpec::Path(_) => None,
        };
        let mut builder = Builder::new(programs, work)?;
        match image {
            ImageSpec::Probe => builder.digest.part(b"probe"),
            ImageSpec::Host => builder.host(working_directory)?,
            ImageSpec::Path(path) => builder.path(path, work, working_directory)?,
            ImageSpec::Debian | ImageSpec::Oci(_) => {}
        }
        if let Some((kept, hold)) = kept {
            builder.digest.part(b"kept");
            kept.digest_into(&mut builder.digest);
            builder.tree(kept.tree())?;
            builder.root.hold = Some(hold);
        }
        builder.finish()
    }

    /// All mounts in the order in which to make them: whatever lies below another comes after it.
    pub fn mounts(&self) -> Vec<Mount<'_>> {
        let mut mounts: Vec<Mount<'_>> = self
            .binds
            .iter()
            .map(Mount::Bind)
            .chain(self.scratch.iter().map(|path| Mount::Scratch(path)))
            .collect();
        // The sort is stable: the bind that holds the skeleton stays in front of its equals.
        mounts.sort_by_key(|mount| mount.target().components().count());
        mounts
    }

    /// Writes the skeleton as a tar archive. The same skeleton gives the same bytes.
    ///
    /// # Errors
    /// Those of reading the skeleton and of writing to `output`.
    pub fn write_tar(&self, output: impl Write) -> io::Result<()> {
        pack::write(&self.skeleton, output, Owners::Root)
    }

    /// Writes the whole image ([`Root::tree`]) as a tar archive with its owners, for engines that
    /// keep images of their own. The same tree gives the same bytes.
    ///
    /// # Errors
    /// Those of reading the tree and of writing to `output`; there is no tree.
    pub fn write_tree_tar(&self, output: impl Write) -> io::Result<()> {
        let tree = self.tree.as_ref().ok_or_else(|| io::Error::other("this root has no image of its own"))?;
        pack::write(tree, output, Owners::AsTheyAre)
    }
}

struct Builder {
    root: Root,
    digest: ContentDigest,
}

impl Builder {
    fn new(programs: &Programs, work: &Path) -> Result<Self, ImageError> {
        fs::create_dir_all(work).map_err(ImageError::io("make the directory", work))?;
        let work = work.canonicalize().map_err(ImageError::io("resolve", work))?;
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
            fs::copy(from, &to).map_err(ImageError::io("copy", from))?;
            set_mode(&to, 0o755)?;
            digest.file(from)?;
        }
        let scratch = vec![PathBuf::from("/tmp"), PathBuf::from("/run")];
        let root = Root {
            skeleton,
            binds: Vec::new(),
            scratch,
            digest: String::new(),
            host: false,
            notes: Vec::new(),
            tree: None,
            hold: None,
        };
        Ok(Self { root, digest })
    }

    fn finish(mut self) -> Result<Root, ImageError> {
        // An image with an `/etc` has it bound by now, or its entries placed.
        if !self.root.binds.iter().any(|bind| bind.target.starts_with("/etc")) {
            self.write_missing_etc()?;
        }
        let skeleton = &self.root.skeleton;
        for bind in &self.root.binds {
            self.digest.part(bind.target.as_os_str().as_bytes());
        }
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
            Err(error) => return Err(ImageError::io("look at", path)(error)),
        };
        let canonical = path.canonicalize().map_err(ImageError::io("resolve", path))?;
        if metadata.is_dir() && canonical == Path::new("/") {
            self.host(working)
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
            let unpacked = unpacked.canonicalize().map_err(ImageError::io("resolve", &unpacked))?;
            self.tree(unpacked)
        } else {
            Err(ImageError::NotAnImage { path: path.into() })
        }
    }

    /// Takes a directory as the whole image.
    fn tree(&mut self, tree: PathBuf) -> Result<(), ImageError> {
        self.place_root(&tree, &PRIVATE)?;
        self.root.tree = Some(tree);
        Ok(())
    }

    fn host(&mut self, working_directory: Option<&Path>) -> Result<(), ImageError> {
        self.root.host = true;
        self.digest.part(b"host");
        self.digest.system(Path::new("/"))?;
        let hidden: Vec<&str> = PRIVATE.into_iter().chain(NOT_THE_SYSTEM).collect();
        self.place_root(Path::new("/"), &hidden)?;
        let Some(directory) = working_directory else { return Ok(()) };
        let directory = directory.canonicalize().map_err(ImageError::io("resolve", directory))?;
        let Some(top) = directory.components().nth(1).map(|part| part.as_os_str().to_owned()) else {
            return Ok(());
        };
        let covered = self.root.scratch.iter().any(|scratch| directory.starts_with(scratch));
        if !covered && !hidden.iter().any(|name| top == *name) {
            return Ok(());
        }
        let kernels_own = ["proc", "sys", "dev"].iter().any(|name| top == *name);
        if kernels_own || self.root.scratch.contains(&directory) {
            self.root.notes.push(format!(
                "{} is private to each guest, so the files of this working directory are not seen there: work in a directory of its own",
                directory.display()
            ));
            return Ok(());
        }
        if !self.root.scratch.iter().any(|scratch| directory.starts_with(scratch)) {
            let place = in_root(&self.root.skeleton, &directory);
            fs::create_dir_all(&place).map_err(ImageError::io("make the directory", &place))?;
        }
        self.root.binds.push(Bind { source: directory.clone(), target: directory, read_only: true });
        Ok(())
    }

    /// Shows the image's entries at the root of the guest.
    fn place_root(&mut self, image: &Path, hidden: &[&str]) -> Result<(), ImageError> {
        let etc = image.join("etc");
        let etc_is_whole =
            !is_directory(&etc) || ENGINE_FILES.iter().all(|name| etc.join(name).symlink_metadata().is_ok());
        self.place(image, Path::new("/"), |name| {
            hidden.iter().any(|hidden| name == *hidden) || (!etc_is_whole && name == "etc")
        })?;
        if !etc_is_whole {
            self.place(&etc, Path::new("/etc"), |_| false)?;
            for name in ENGINE_FILES {
                let path = self.root.skeleton.join("etc").join(name);
                if path.symlink_metadata().is_err() {
                    fs::write(&path, "").map_err(ImageError::io("write", &path))?;
                }
            }
        }
        // A mount point of its own only where the image has one: below a read-only bind none can be
        // made.
        if is_directory(&image.join("var")) && is_directory(&image.join("var/tmp")) {
            self.root.scratch.push("/var/tmp".into());
        }
        Ok(())
    }

    /// Shows the entries of one directory at one place of the guest: links as links, everything
    /// else as binds.
    fn place(&mut self, from: &Path, at: &Path, hidden: impl Fn(&OsStr) -> bool) -> Result<(), ImageError> {
        let mut names = fs::read_dir(from)
            .and_then(|entries| {
                entries.map(|e| e.map(|e| e.file_name())).collect::<Result<Vec<OsString>, _>>()
            })
            .map_err(ImageError::io("read the directory", from))?;
        names.sort();
        for name in names.iter().filter(|name| !hidden(name)) {
            self.place_entry(&from.join(name), &at.join(name))?;
        }
        Ok(())
    }

    fn place_entry(&mut self, source: &Path, target: &Path) -> Result<(), ImageError> {
        let metadata = source.symlink_metadata().map_err(ImageError::io("look at", source))?;
        let place = in_root(&self.root.skeleton, target);
        if source.to_str().is_none() {
            // Engines and runtimes are told their mounts in JSON, which has no place for other
            // bytes.
            self.root
                .notes
                .push(format!("{} is not shown to guests: its name is not valid Unicode", source.display()));
            return Ok(());
        }
        if metadata.is_symlink() {
            let to = fs::read_link(source).map_err(ImageError::io("read the link", source))?;
            // An image may have a link where the skeleton has a directory (`/etc`).
            if is_directory(&place) {
                fs::remove_dir(&place).map_err(ImageError::io("replace", &place))?;
            }
            return symlink(to, &place).map_err(ImageError::io("make the link", &place));
        }
        if metadata.is_dir() {
            if !is_directory(&place) {
                make_directory(&place, 0o755)?;
            }
        } else if metadata.is_file() {
            fs::write(&place, "").map_err(ImageError::io("write", &place))?;
        } else {
            return Ok(()); // sockets, pipes and devices are no part of a system's files
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
            fs::write(&path, content).map_err(ImageError::io("write", &path))?;
            set_mode(&path, 0o644)?;
        }
        Ok(())
    }
}

/// The place of a guest's absolute path below a directory of the host.
fn in_root(root: &Path, absolute: &Path) -> PathBuf {
    root.join(absolute.strip_prefix("/").unwrap_or(absolute))
}

fn is_directory(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir())
}

fn make_directory(path: &Path, mode: u32) -> Result<(), ImageError> {
    fs::create_dir(path).map_err(ImageError::io("make the directory", path))?;
    set_mode(path, mode)
}

/// Sets permissions by themselves: those given at creation are cut by the user's umask.
fn set_mode(path: &Path, mode: u32) -> Result<(), ImageError> {
    fs::set_permissions(path, Permissions::from_mode(mode))
        .map_err(ImageError::io("set the permissions of", path))
}
