//! What is known of an image that is kept.

use crate::digest::ContentDigest;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What an image is, in its directory.
const RECORD: &str = "image.json";
/// Its root file system, in its directory.
const TREE: &str = "tree";
/// Ending of the file of further names, beside its directory.
pub(super) const NAMES: &str = "names";
/// Version of the record.
const FORMAT: u32 = 1;

/// An image as its record has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Version of the record. Changes: 1, first version.
    pub format: u32,
    /// As `--image` takes it: `debian`, or `oci:REF` by digest.
    pub name: String,
    /// SHA-256, hexadecimal, of what the image was made from: of a built one its recipe, of a
    /// pulled one its manifest.
    pub identity: String,
    /// SHA-256, hexadecimal, of what is in it: of a built one the packages with their versions.
    pub content: String,
    /// Size of its files, bytes; a file with several names counts once.
    pub bytes: u64,
    /// When it was made, RFC 3339 in UTC.
    pub made: String,
    /// One line on what it is.
    pub summary: String,
}

impl Record {
    /// The record of an image that was just made, with the size and time of it.
    pub(crate) fn new(name: String, identity: String, content: String, tree: &Path) -> io::Result<Self> {
        let (bytes, made) = (size(tree)?, weigh_host::clock::utc_now());
        Ok(Self { format: FORMAT, name, identity, content, bytes, made, summary: String::new() })
    }

    /// Puts it beside the tree.
    pub(crate) fn write(&self, directory: &Path) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        fs::write(directory.join(RECORD), text)
    }
}

/// An image that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// What it is.
    pub record: Record,
    /// What else `--image` takes for it: tags.
    pub tags: Vec<String>,
    /// Its directory.
    pub(super) directory: PathBuf,
}

impl Kept {
    /// The name that people know it by.
    pub fn name(&self) -> &str {
        self.tags.first().unwrap_or(&self.record.name)
    }

    pub(super) fn is_named(&self, name: &str) -> bool {
        self.record.name == name || self.tags.iter().any(|tag| tag == name)
    }

    /// Its root file system, never to be written to.
    pub fn tree(&self) -> PathBuf {
        self.directory.join(TREE)
    }

    /// What of a root's digest is the image's.
    pub(crate) fn digest_into(&self, digest: &mut ContentDigest) {
        for part in [&self.record.identity, &self.record.content] {
            digest.part(part.as_bytes());
        }
    }
}

/// The image in a directory, if it is one of a format that this version reads.
pub(super) fn open(directory: &Path) -> Option<Kept> {
    let record: Record = serde_json::from_slice(&fs::read(directory.join(RECORD)).ok()?).ok()?;
    let names = fs::read_to_string(directory.with_extension(NAMES)).unwrap_or_default();
    let tags = names.lines().map(Into::into).collect();
    (record.format == FORMAT).then(|| Kept { record, tags, directory: directory.into() })
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
