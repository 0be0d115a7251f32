//! The parts of the host's root that guests do not see.

use crate::root::{is_directory, make_directory, set_mode};
use crate::{Bind, FileError, ImageError, Root};
use std::fs::{self, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use weigh_host::cache::CacheDirectory;
use weigh_host::state::StateDirectory;

/// Data that programs of the host keep for themselves or write for its administrator (Filesystem
/// Hierarchy Standard 3.0, chapter 5), and the key of systemd's credentials (`systemd-creds(1)`).
const DATA: [&str; 8] = [
    "/var/account",
    "/var/backups",
    "/var/cache",
    "/var/crash",
    "/var/lib/systemd/credential.secret",
    "/var/log",
    "/var/mail",
    "/var/spool",
];
/// The directories that are searched for closed ones.
const SEARCHED: [&str; 3] = ["/opt", "/srv", "/var"];
/// The depth of the search below these: `/var/lib/postgresql/15/main` and
/// `/var/snap/lxd/common/lxd` are four deep.
const DEPTH: usize = 4;

/// Copies what everybody on the host may read, and no more, because nothing else would protect the
/// rest from a guest's root. Closed directories become empty ones; closed files, sockets, pipes and
/// devices are left out.
///
/// # Errors
/// Errors of the file system. Entries deleted meanwhile are not errors.
pub(crate) fn copy_readable(from: &Path, to: &Path) -> Result<(), ImageError> {
    for entry in fs::read_dir(from).map_err(FileError::of("read the directory", from))? {
        let entry = entry.map_err(FileError::of("read the directory", from))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        match copy_entry(&source, &target) {
            Ok(true) => {
                copy_readable(&source, &target)?;
            }
            Ok(false) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(FileError::of("copy", &source)(error).into()),
        }
    }
    Ok(())
}

/// Copies one entry; of a directory, only the directory itself. Returns whether it is a directory
/// whose entries are to be copied.
fn copy_entry(source: &Path, target: &Path) -> io::Result<bool> {
    let metadata = source.symlink_metadata()?;
    if metadata.is_symlink() {
        symlink(fs::read_link(source)?, target)?;
    } else if metadata.is_dir() {
        fs::create_dir(target)?;
        fs::set_permissions(target, Permissions::from_mode(if is_open(&metadata) { 0o755 } else { 0o700 }))?;
        return Ok(is_open(&metadata));
    } else if metadata.is_file() && is_open(&metadata) {
        fs::copy(source, target)?;
    }
    Ok(false)
}

/// Whether everybody may read a file, or list and enter a directory.
fn is_open(metadata: &Metadata) -> bool {
    let wanted = if metadata.is_dir() { 0o005 } else { 0o004 };
    metadata.permissions().mode() & wanted == wanted
}

/// Names of the directories and files in this directory that are closed to others.
///
/// # Errors
/// Errors of reading the directory.
pub(crate) fn closed_names(directory: &Path) -> Result<Vec<String>, ImageError> {
    let entries = fs::read_dir(directory).map_err(FileError::of("read the directory", directory))?;
    let is_closed = |entry: &fs::DirEntry| {
        entry.metadata().is_ok_and(|found| (found.is_dir() || found.is_file()) && !is_open(&found))
    };
    Ok(entries.flatten().filter(is_closed).filter_map(|entry| entry.file_name().into_string().ok()).collect())
}

/// Paths of the host that guests would see and must not: weighbridge's own directories, logs,
/// caches, mail, swap files, and the directories below `/var`, `/srv` and `/opt` that are closed to
/// others and not empty. A path below another one is left out.
pub(crate) fn covers(root: &Root, work: &Path, working_directory: Option<&Path>) -> Vec<PathBuf> {
    let in_own = |path: &Path| working_directory.is_some_and(|own| path.starts_with(own));
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let mut others: Vec<PathBuf> = DATA.iter().map(PathBuf::from).chain(swap_files(&swaps)).collect();
    for place in SEARCHED {
        closed(Path::new(place), DEPTH, root, &mut others);
    }
    others.retain(|path| !in_own(path));
    let weighbridges = [
        StateDirectory::open().ok().map(|state| state.path().to_path_buf()),
        CacheDirectory::open().map(|cache| cache.path().to_path_buf()),
        Some(work.to_path_buf()),
    ];
    let mut all: Vec<PathBuf> = weighbridges.into_iter().flatten().chain(others).collect();
    // A link may lead to a place that guests do not see.
    all.retain_mut(|path| match path.canonicalize() {
        Ok(canonical) => {
            *path = canonical;
            path.to_str().is_some() && (is_shown(root, path) || in_own(path))
        }
        Err(_) => false,
    });
    // A path sorts before those below it.
    all.sort();
    all.dedup_by(|path, above| path.starts_with(above));
    all
}

/// The swap files in the text of `/proc/swaps`, in which blanks are written as octal numbers
/// (proc(5)).
pub(crate) fn swap_files(text: &str) -> Vec<PathBuf> {
    let of_line = |line: &str| {
        let mut words = line.split_whitespace();
        let (path, kind) = (words.next()?, words.next()?);
        let plain = || path.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\");
        (kind == "file").then(|| PathBuf::from(plain()))
    };
    text.lines().filter_map(of_line).collect()
}

/// Whether guests see a path of the host at its place.
pub(crate) fn is_shown(root: &Root, path: &Path) -> bool {
    root.binds.iter().any(|bind| path.starts_with(&bind.target))
        && !root.scratch.iter().any(|scratch| path.starts_with(scratch))
}

/// Adds the directories below `directory` that are closed to others and not empty. Those that
/// cannot be read here are protected from guests by the same permissions.
pub(crate) fn closed(directory: &Path, depth: usize, root: &Root, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    let directories = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    for path in directories.map(|entry| entry.path()) {
        if found.contains(&path) || root.scratch.contains(&path) {
            continue;
        }
        if path.metadata().is_ok_and(|metadata| is_open(&metadata)) {
            if depth > 1 {
                closed(&path, depth - 1, root, found);
            }
        } else if fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_some()) {
            found.push(path);
        }
    }
}

/// Makes binds of empty directories and files over these paths. A working directory below one of
/// them gets its mount point there.
///
/// # Errors
/// Errors of the file system.
pub(crate) fn cover(
    paths: &[PathBuf],
    work: &Path,
    working_directory: Option<&Path>,
) -> Result<Vec<Bind>, ImageError> {
    let hidden = work.canonicalize().map_err(FileError::of("resolve", work))?.join("hidden");
    let [directory, file, with_place] = ["directory", "file", "with-place"].map(|name| hidden.join(name));
    make_directory(&hidden, 0o755)?;
    make_directory(&directory, 0o755)?;
    fs::write(&file, "").map_err(FileError::of("write", &file))?;
    set_mode(&file, 0o444)?;
    let mut binds = Vec::new();
    for path in paths {
        let source = match working_directory.and_then(|own| own.strip_prefix(path).ok()) {
            Some(below) => {
                let place = with_place.join(below);
                fs::create_dir_all(&place).map_err(FileError::of("make the directory", &place))?;
                &with_place
            }
            None if is_directory(path) => &directory,
            None => &file,
        };
        binds.push(Bind { source: source.clone(), target: path.clone(), read_only: true });
    }
    Ok(binds)
}

/// Whether a directory holds a user's whole account: `/root`, `/home` or a directory in it.
pub(crate) fn is_home(directory: &Path) -> bool {
    let home = Path::new("/home");
    directory == Path::new("/root") || directory == home || directory.parent() == Some(home)
}
