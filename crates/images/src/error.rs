//! Errors of images.

use crate::oci::ReferenceError;
use std::io;
use std::path::{Path, PathBuf};

/// An operation on a file that the system refused.
#[derive(Debug, thiserror::Error)]
#[error("could not {doing} {}: {source}", path.display())]
pub struct FileError {
    doing: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl FileError {
    /// The error of an operation on a file; `doing` is a verb.
    pub(crate) fn of<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Self + 'a {
        move |source| Self { doing, path: path.into(), source }
    }
}

/// Why a root file system could not be prepared.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The image's path does not exist.
    #[error(
        "there is no image at {}: give `host`, `probe`, `debian`, `oci:REF`, or the path of a directory or a tar archive",
        path.display()
    )]
    NotFound {
        /// The path as given.
        path: PathBuf,
    },
    /// The image has to be built or pulled first.
    #[error("the image `{image}` is not here yet: get it with `weigh image build {image}`")]
    NotBuilt {
        /// The image as on the command line.
        image: String,
    },
    /// The name is not valid for an image of a registry.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// The cache has no image of this name.
    #[error("there is no image `{name}` in the cache: `weigh image list` shows the images in it")]
    NotCached {
        /// The name as given.
        name: String,
    },
    /// A run uses the image.
    #[error("the image `{name}` is in use: wait for the run that uses it to end, or stop it with Ctrl-C")]
    InUse {
        /// Its name.
        name: String,
    },
    /// The cache cannot be used.
    #[error("{0}")]
    Cache(String),
    /// The image is neither a directory nor an archive.
    #[error(
        "{} is neither a directory nor a tar archive: give the root directory of a system, or a tar archive of one",
        path.display()
    )]
    NotAnImage {
        /// The path as given.
        path: PathBuf,
    },
    /// The compression of the archive is not supported.
    #[error("{} is compressed with {format}: unpack it first with `{} {}`", path.display(), remedy, path.display())]
    Compressed {
        /// The path as given.
        path: PathBuf,
        /// Name of the compression.
        format: &'static str,
        /// Command that unpacks it, without the path.
        remedy: &'static str,
    },
    /// An entry of the archive would be written outside of the root.
    #[error("{} is not a safe archive: its entry `{entry}` {fault}; make the archive anew without it", archive.display())]
    Unsafe {
        /// The archive.
        archive: PathBuf,
        /// The entry's path as written in the archive.
        entry: String,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// The archive exceeds a limit for archives.
    #[error("{} is not unpacked, because of its entry `{entry}`: {source}", archive.display())]
    Excessive {
        /// The archive.
        archive: PathBuf,
        /// The beginning of the entry's path.
        entry: String,
        /// The limit that it exceeds.
        source: io::Error,
    },
    /// A program that every guest needs is missing.
    #[error("{} does not exist, but every guest needs it", path.display())]
    ProgramMissing {
        /// Where it was expected.
        path: PathBuf,
    },
    /// The directory of the skeleton exists.
    #[error("{} exists already: every root is prepared in a directory of its own", path.display())]
    Occupied {
        /// Directory of the skeleton.
        path: PathBuf,
    },
    /// The system refused an operation on a file.
    #[error(transparent)]
    File(#[from] FileError),
}
