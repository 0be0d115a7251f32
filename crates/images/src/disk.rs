//! The root file system of an image as a disk: ext4, made by mke2fs(8) from the image's directory
//! without mounting anything.

use crate::digest::ContentDigest;
use crate::{FileError, ImageError, Root};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weigh_host::cache::{CacheDirectory, CacheError};
use weigh_host::command::{CommandError, Invocation, find_program};
use weigh_host::ledger::Ledger;

/// Directory of the disks in the cache.
pub(crate) const DISKS: &str = "disks";
/// Name of the disk in its directory.
const NAME: &str = "root.ext4";
/// Deadline for mke2fs to copy an image; a slow disk may need minutes.
const DEADLINE: Duration = Duration::from_secs(600);
/// A disk has an inode for this many bytes, as `inode_ratio` says; with many small files, one for
/// each, a quarter more, and this many that the guest may add.
const BYTES_PER_INODE: u64 = 16384;
const MORE_INODES: u64 = 65536;
/// Free space of a guest's root, bytes. It is a hole until the guest writes to it.
const ROOM: u64 = 2 << 30;
/// Lengths of disks are multiples of this number of bytes.
const STEP: u64 = 256 << 20;
/// Files that a bootable image must have.
const NEEDED: [&str; 1] = ["sbin/init"];

/// The whole configuration of mke2fs, so that the same image gives the same file system on every
/// host.
const CONFIGURATION: &str = "\
[defaults]
base_features = sparse_super,filetype,resize_inode,dir_index,ext_attr
blocksize = 4096
inode_size = 256
inode_ratio = 16384
[fs_types]
ext4 = {
features = has_journal,extent,huge_file,flex_bg,metadata_csum,64bit,dir_nlink,extra_isize,large_file
}
";
/// Nothing is initialised lazily, because that would disturb the guest later (ext4(5),
/// `lazy_itable_init`).
const EXTENDED: &str = "lazy_itable_init=0,lazy_journal_init=0,nodiscard,root_owner=0:0";
/// The creation time of the file system, seconds.
const MADE_AT: &str = "1";

/// Why a disk of an image could not be made.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The image has no directory of its own.
    #[error(
        "the image has no root file system of its own that a disk could be made from; name one, as with `rootfs=debian`"
    )]
    NoTree,
    /// The image has no init.
    #[error("the image has no /{0}; name one that is a whole system, as with `rootfs=debian`")]
    NoSystem(&'static str),
    /// mke2fs is missing.
    #[error("the program mke2fs is missing; install it with `apt-get install e2fsprogs`")]
    NoProgram,
    /// mke2fs or cp failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The image cannot be read.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The cache cannot be used.
    #[error("{0}")]
    Cache(String),
    /// The system refused an operation on a file.
    #[error(transparent)]
    File(#[from] FileError),
}

/// A raw disk image with an ext4 file system that holds the root of an image. It is read-only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootDisk {
    /// The file.
    pub path: PathBuf,
    /// Its length, bytes.
    pub bytes: u64,
}

impl RootDisk {
    /// The disk of a root's image, made if it does not exist. The disk of an image in the cache is
    /// in the cache too, any other is below `work`, a directory of the run. It does not contain
    /// weighbridge's programs.
    ///
    /// # Errors
    /// [`DiskError`].
    pub fn make(
        root: &Root,
        cache: Option<&CacheDirectory>,
        work: &Path,
        ledger: &Ledger,
    ) -> Result<Self, DiskError> {
        let tree = root.tree.as_deref().ok_or(DiskError::NoTree)?;
        let identity = identity(tree)?;
        let place = match (cache_label(root, tree), cache) {
            (Some(label), Some(cache)) => {
                let name = format!("{DISKS}/{label}-{}", &identity[..16]);
                let made = cache.directory(&name, ledger, |staging| write(tree, &identity, staging));
                made.map_err(|error| match error {
                    CacheError::Make(error) => error,
                    other => DiskError::Cache(other.to_string()),
                })?
            }
            _ => {
                let place = work.join(format!("disk-{}", &identity[..16]));
                if !place.exists() {
                    let staging = place.with_extension("new");
                    if staging.exists() {
                        fs::remove_dir_all(&staging).map_err(FileError::of("remove", &staging))?;
                    }
                    fs::create_dir_all(&staging).map_err(FileError::of("make the directory", &staging))?;
                    write(tree, &identity, &staging)?;
                    fs::rename(&staging, &place).map_err(FileError::of("make", &place))?;
                }
                place
            }
        };
        let path = place.join(NAME);
        let bytes = path.metadata().map_err(FileError::of("look at", &path))?.len();
        Ok(Self { path, bytes })
    }

    /// Checks that the image has an init.
    ///
    /// # Errors
    /// [`DiskError::NoSystem`] or [`DiskError::NoTree`].
    pub fn check_system(root: &Root) -> Result<(), DiskError> {
        let tree = root.tree.as_deref().ok_or(DiskError::NoTree)?;
        let missing = NEEDED.iter().find(|path| tree.join(path).symlink_metadata().is_err());
        missing.map_or(Ok(()), |path| Err(DiskError::NoSystem(path)))
    }

    /// Makes a qcow2 overlay of a few kilobytes, which holds what a guest writes.
    ///
    /// # Errors
    /// It cannot be written, or the path exists.
    pub fn overlay(&self, path: &Path) -> Result<(), DiskError> {
        Ok(crate::qcow2::overlay(path, &self.path, self.bytes).map_err(FileError::of("make", path))?)
    }

    /// Copies the disk, for programs that read only raw images. Holes stay holes, and blocks are
    /// shared if the file system supports it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn copy(&self, path: &Path) -> Result<(), DiskError> {
        let copy =
            Invocation::new("cp").args(["--reflink=auto", "--sparse=always", "--no-target-directory", "--"]);
        copy.arg(&self.path).arg(path).deadline(DEADLINE).run_ok()?;
        Ok(())
    }
}

/// The name in the cache of the image of a root, if it comes from there.
fn cache_label(root: &Root, tree: &Path) -> Option<String> {
    root.lock.as_ref()?;
    Some(tree.parent()?.file_name()?.to_str()?.to_string())
}

/// SHA-256, hexadecimal, of everything that determines the disk.
fn identity(tree: &Path) -> Result<String, DiskError> {
    let mut digest = ContentDigest::new();
    for part in [CONFIGURATION, EXTENDED, MADE_AT] {
        digest.part(part.as_bytes());
    }
    for number in [ROOM, BYTES_PER_INODE, MORE_INODES] {
        digest.part(&number.to_le_bytes());
    }
    digest.tree(tree, &[])?;
    Ok(digest.finish())
}

/// mke2fs(8) for ext4, with its configuration written to `directory`.
fn mke2fs(directory: &Path) -> Result<Invocation, DiskError> {
    let program = find_program("mke2fs")
        .or_else(|| Some(PathBuf::from("/usr/sbin/mke2fs")).filter(|path| path.exists()))
        .ok_or(DiskError::NoProgram)?;
    let configuration = directory.join("mke2fs.conf");
    fs::write(&configuration, CONFIGURATION).map_err(FileError::of("write", &configuration))?;
    let mke2fs = Invocation::new(program).env("MKE2FS_CONFIG", &configuration).deadline(DEADLINE);
    Ok(mke2fs.args(["-q", "-t", "ext4", "-m", "0"]))
}

/// Makes an empty ext4 file system of `bytes` at the offset `at` in an existing file or device.
/// Only its metadata is written; the space for its files keeps its content and stays allocated.
/// `work` is a directory for temporary files.
///
/// # Errors
/// mke2fs(8) is missing or fails, as it does if there is too little space.
pub fn make_empty(path: &Path, at: u64, bytes: u64, work: &Path) -> Result<(), DiskError> {
    let extended = if at > 0 { format!("offset={at},{EXTENDED}") } else { EXTENDED.into() };
    let mke2fs = mke2fs(work)?.args(["-F", "-E", &extended]).arg(path);
    mke2fs.arg(format!("{}k", bytes >> 10)).run_ok()?;
    Ok(())
}

/// Makes the disk in an empty directory.
fn write(tree: &Path, identity: &str, directory: &Path) -> Result<(), DiskError> {
    let path = directory.join(NAME);
    let content = Content::of(tree).map_err(FileError::of("look through", tree))?;
    let bytes = content.disk_bytes();
    let uuid = uuid(identity);
    mke2fs(directory)?
        .env("E2FSPROGS_FAKE_TIME", MADE_AT)
        .env("SOURCE_DATE_EPOCH", MADE_AT)
        .args(["-N", &content.inodes().to_string()])
        .args(["-U", &uuid, "-E", &format!("hash_seed={uuid},{EXTENDED}"), "-d"])
        .arg(tree)
        .arg(&path)
        .arg(format!("{}k", bytes >> 10))
        .run_ok()?;
    Ok(())
}

/// The UUID of the file system, derived from the identity of the disk.
fn uuid(identity: &str) -> String {
    let part = |range: std::ops::Range<usize>| identity.get(range).unwrap_or_default();
    [part(0..8), part(8..12), part(12..16), part(16..20), part(20..32)].join("-")
}

/// What lies below a directory.
#[derive(Debug, Clone, Copy, Default)]
struct Content {
    /// Bytes of the files, each rounded up to a block, and a block for each entry.
    bytes: u64,
    entries: u64,
}

impl Content {
    fn of(directory: &Path) -> io::Result<Self> {
        let mut sum = Self::default();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            sum.bytes += 4096;
            sum.entries += 1;
            if metadata.is_dir() {
                let below = Self::of(&entry.path())?;
                sum.bytes += below.bytes;
                sum.entries += below.entries;
            } else if metadata.is_file() {
                sum.bytes += metadata.size().next_multiple_of(4096);
            }
        }
        Ok(sum)
    }

    /// The length of its disk. Inodes, the journal and the tables of groups need space besides the
    /// files.
    fn disk_bytes(self) -> u64 {
        (self.bytes + self.bytes / 8 + ROOM).next_multiple_of(STEP)
    }

    /// The number of inodes of its disk.
    fn inodes(self) -> u64 {
        (self.disk_bytes() / BYTES_PER_INODE).max(self.entries + self.entries / 4 + MORE_INODES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Programs;
    use weigh_host::state::StateDirectory;
    use weigh_model::ImageSpec;

    fn root(base: &Path, name: &str) -> Root {
        let image = base.join("image");
        for directory in ["sbin", "etc", "var/empty"] {
            fs::create_dir_all(image.join(directory)).unwrap();
        }
        fs::write(image.join("sbin/init"), "#!/bin/sh\n").unwrap();
        fs::write(image.join("etc/hosts"), vec![b'x'; 100_000]).unwrap();
        let programs = Programs { probe: "/bin/true".into(), kernels: "/bin/true".into(), module: None };
        Root::prepare(&ImageSpec::Path(image), &programs, &base.join(name), None).unwrap()
    }

    fn has_mke2fs(test: &str) -> bool {
        let found = Path::new("/usr/sbin/mke2fs").exists() || find_program("mke2fs").is_some();
        if !found {
            eprintln!("SKIPPED {test}: mke2fs is not installed");
        }
        found
    }

    /// debugfs(8) reads from the disk what the image has, and an existing disk is not made again.
    #[test]
    fn a_disk_holds_the_image() {
        if !has_mke2fs("a_disk_holds_the_image") {
            return;
        }
        let base = tempfile::tempdir_in("/var/tmp").unwrap();
        let ledger = Ledger::create(&StateDirectory::at(base.path().join("state")), "run").unwrap();
        let (root, work) = (root(base.path(), "a"), base.path().join("work"));
        RootDisk::check_system(&root).unwrap();
        let disk = RootDisk::make(&root, None, &work, &ledger).unwrap();
        assert!(disk.bytes >= ROOM && disk.bytes.is_multiple_of(STEP), "{disk:?}");
        let metadata = disk.path.metadata().unwrap();
        assert!(metadata.blocks() * 512 < 200 << 20, "what holds nothing is a hole: {}", metadata.blocks());
        let read = |path: &str| {
            let debugfs = Invocation::new("/usr/sbin/debugfs").args(["-R", &format!("cat {path}")]);
            debugfs.arg(&disk.path).run_ok().unwrap().output
        };
        assert_eq!(read("/etc/hosts"), vec![b'x'; 100_000]);
        assert_eq!(read("/sbin/init"), b"#!/bin/sh\n");
        let again = RootDisk::make(&root, None, &work, &ledger).unwrap();
        assert_eq!(again.path.metadata().unwrap().ino(), metadata.ino());
        assert_eq!(fs::read_dir(&work).unwrap().count(), 1);
        let copy = base.path().join("copy");
        disk.copy(&copy).unwrap();
        assert_eq!(copy.metadata().unwrap().len(), disk.bytes);
        assert!(copy.metadata().unwrap().blocks() * 512 < 200 << 20);
        disk.overlay(&base.path().join("top")).unwrap();
    }

    /// A file system in the middle of a file, as in a qcow2 image: what is around it and between
    /// its tables is preserved.
    #[test]
    fn an_empty_file_system_is_made_at_the_given_offset() {
        if !has_mke2fs("an_empty_file_system_is_made_at_the_given_offset") {
            return;
        }
        const AT: usize = 192 << 10;
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("disk");
        let bytes = 16 << 20;
        fs::write(&path, vec![b'x'; AT + bytes]).unwrap();
        make_empty(&path, AT as u64, bytes as u64, base.path()).unwrap();
        let content = fs::read(&path).unwrap();
        assert_eq!(content.len(), AT + bytes);
        assert!(content[..AT].iter().all(|byte| *byte == b'x'));
        // The superblock's magic number (ext4(5)).
        assert_eq!(content[AT + 1024 + 56..][..2], [0x53, 0xef]);
        assert!(path.metadata().unwrap().blocks() * 512 >= (AT + bytes) as u64, "nothing became a hole");
        let error = make_empty(&path, 0, 8 << 10, base.path()).unwrap_err().to_string();
        assert!(error.contains("mke2fs"), "{error}");
    }

    /// A changed file is enough to make another disk.
    #[test]
    fn another_image_is_another_disk() {
        let base = tempfile::tempdir().unwrap();
        let tree = root(base.path(), "a").tree.unwrap();
        let before = identity(&tree).unwrap();
        assert_eq!(identity(&tree).unwrap(), before);
        fs::write(tree.join("etc/hosts"), "other").unwrap();
        assert_ne!(identity(&tree).unwrap(), before);
        assert_eq!(uuid(&before).split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
    }

    #[test]
    fn a_disk_has_an_inode_for_every_small_file() {
        let small = |entries: u64| Content { bytes: entries * 8192, entries };
        for entries in [0, 1000, 100_000, 182_000, 1_000_000] {
            assert!(small(entries).inodes() >= entries + entries / 4 + 1000, "{entries}");
        }
        let large = Content { bytes: 64 << 30, entries: 10 };
        assert_eq!(large.inodes(), large.disk_bytes() / 16384);
        let base = tempfile::tempdir().unwrap();
        let tree = root(base.path(), "a").tree.unwrap();
        // sbin/init, etc/hosts and var/empty with their directories.
        assert_eq!(Content::of(&tree).unwrap().entries, 6);
    }

    #[test]
    fn a_tree_without_a_system_is_reported() {
        let base = tempfile::tempdir().unwrap();
        let mut root = root(base.path(), "a");
        fs::remove_file(root.tree.as_ref().unwrap().join("sbin/init")).unwrap();
        let error = RootDisk::check_system(&root).unwrap_err().to_string();
        assert!(error.contains("/sbin/init") && error.contains("rootfs=debian"), "{error}");
        root.tree = None;
        let ledger = Ledger::create(&StateDirectory::at(base.path().join("state")), "run").unwrap();
        let error = RootDisk::make(&root, None, base.path(), &ledger).unwrap_err().to_string();
        assert!(error.contains("rootfs=debian"), "{error}");
    }
}
