//! What can be wrong with an image.

use crate::oci::ReferenceError;
use std::io;
use std::path::{Path, PathBuf};

/// Why a root file system could not be prepared.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The image's path does not exist.
    #[error(
        "there is no image at {}: give `host`, `probe`, `debian`, `oci:REF`, or the path of a directory or a tar archive",
        path.display()
    )]
    NotFound {
        /// As given.
        path: PathBuf,
    },
    /// The image has to be built or pulled first.
    #[error("the image `{image}` is not here yet: get it with `weigh image build {image}`")]
    NotBuilt {
        /// As on the command line.
        image: String,
    },
    /// The name of an image of a registry is none.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// No image of this name is kept.
    #[error("no image `{name}` is kept here: `weigh image list` shows those that are")]
    NotKept {
        /// As given.
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
        /// As given.
        path: PathBuf,
    },
    /// The archive is compressed with what is not unpacked here.
    #[error("{} is compressed with {format}: unpack it first with `{} {}`", path.display(), remedy, path.display())]
    Compressed {
        /// As given.
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
    /// A program that belongs into every guest is missing.
    #[error("{} does not exist, but every guest needs it", path.display())]
    ProgramMissing {
        /// Where it was expected.
        path: PathBuf,
    },
    /// The place for the skeleton is taken.
    #[error("{} exists already: every root is prepared in a directory of its own", path.display())]
    Occupied {
        /// The skeleton's place.
        path: PathBuf,
    },
    /// The system refused something.
    #[error("could not {doing} {}", path.display())]
    Io {
        /// What was tried, a verb.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

impl ImageError {
    pub(crate) fn io<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Self + 'a {
        move |source| Self::Io { doing, path: path.into(), source }
    }
}
