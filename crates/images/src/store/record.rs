//! The record of an image in the cache.

use crate::digest::ContentDigest;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// File of the record in the directory of an image.
const RECORD: &str = "image.json";
/// The root file system in the directory of an image.
const TREE: &str = "tree";
/// Extension of the file of tags, beside the directory.
pub(super) const NAMES: &str = "names";
/// Format version of the record.
const FORMAT: u32 = 1;

/// The description of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Format version. Changes: 1, first version.
    pub format: u32,
    /// The name that `--image` takes: `debian`, or `oci:REF` by digest.
    pub name: String,
    /// SHA-256, hexadecimal, of the recipe of a built image or the manifest of a pulled one.
    pub identity: String,
    /// SHA-256, hexadecimal, of the content; for a built image, of the packages with their
    /// versions.
    pub content: String,
    /// Total size of its files, bytes; a file with several names counts once.
    pub bytes: u64,
    /// Time of creation, RFC 3339 in UTC.
    pub made: String,
    /// A description on one line.
    pub summary: String,
}

impl Record {
    /// The record of a new image.
    pub(crate) fn new(name: String, identity: String, content: String, tree: &Path) -> io::Result<Self> {
        let (bytes, made) = (size(tree)?, weigh_host::clock::utc_now());
        Ok(Self { format: FORMAT, name, identity, content, bytes, made, summary: String::new() })
    }

    /// Writes the record beside the tree.
    pub(crate) fn write(&self, directory: &Path) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        fs::write(directory.join(RECORD), text)
    }
}

/// An image in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedImage {
    /// Its description.
    pub record: Record,
    /// Its tags, as `--image` takes them.
    pub tags: Vec<String>,
    /// Its directory.
    pub(super) directory: PathBuf,
}

impl CachedImage {
    /// Its name for display: a tag if it has one.
    pub fn name(&self) -> &str {
        self.tags.first().unwrap_or(&self.record.name)
    }

    pub(super) fn is_named(&self, name: &str) -> bool {
        self.record.name == name || self.tags.iter().any(|tag| tag == name)
    }

    /// Its root file system, which must not be written to.
    pub fn tree(&self) -> PathBuf {
        self.directory.join(TREE)
    }

    /// Adds its identity and content to the digest of a root.
    pub(crate) fn digest_into(&self, digest: &mut ContentDigest) {
        for part in [&self.record.identity, &self.record.content] {
            digest.part(part.as_bytes());
        }
    }
}

/// The image in a directory, if its format is supported.
pub(super) fn open(directory: &Path) -> Option<CachedImage> {
    let record: Record = serde_json::from_slice(&fs::read(directory.join(RECORD)).ok()?).ok()?;
    let names = fs::read_to_string(directory.with_extension(NAMES)).unwrap_or_default();
    let tags = names.lines().map(Into::into).collect();
    (record.format == FORMAT).then(|| CachedImage { record, tags, directory: directory.into() })
}

/// Size of the regular files below a directory, bytes.
fn size(directory: &Path) -> io::Result<u64> {
    let (mut sum, mut several, mut pending) = (0, HashSet::new(), vec![directory.to_path_buf()]);
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if metadata.is_dir() {
                pending.push(entry.path());
            } else if metadata.is_file()
                && (metadata.nlink() < 2 || several.insert((metadata.dev(), metadata.ino())))
            {
                sum += metadata.len();
            }
        }
    }
    Ok(sum)
}
