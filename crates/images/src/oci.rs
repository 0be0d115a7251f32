//! Images of registries: `oci:REF`.
//!
//! An image is pulled once, by `weigh image build`, and cached under the digest of its manifest;
//! runs never contact a registry. Every byte is verified by its digest, from the manifest down,
//! before it is used.

mod layers;
mod layout;
mod manifest;
mod reference;
mod registry;

pub use layout::{Layer, write_layout};
pub use reference::{Reference, ReferenceError};

use crate::FileError;
use crate::make::{MakeError, Progress};
use crate::store::{CachedImage, Record, Store};
use layers::Layers;
use manifest::{Descriptor, Manifest, Platform};
use reference::SHA256;
use registry::Registry;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;
use weigh_host::ledger::Ledger;

/// How long a pull waits for another pull of the same image.
const DEADLINE: Duration = Duration::from_secs(60 * 60);
/// The most layers of an image. Engines make at most 127.
const MOST_LAYERS: usize = 512;

/// Why an image could not be pulled.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// The registry cannot be reached.
    #[error("cannot reach the registry {registry}: {source}; check its name and the network of this host")]
    Transport {
        /// The host of the registry.
        registry: String,
        /// The reason.
        source: Box<ureq::Error>,
    },
    /// The connection broke.
    #[error("the download of {digest} was interrupted: {source}; try again")]
    Interrupted {
        /// The digest of what was being fetched.
        digest: String,
        /// The reason.
        source: io::Error,
    },
    /// The registry answered with an error.
    #[error("{address} answered with status {status}")]
    Status {
        /// The requested URL.
        address: String,
        /// HTTP status code.
        status: u16,
    },
    /// The image does not exist.
    #[error("the registry has no {0}; check its name and its tag")]
    NotThere(String),
    /// The image is not public.
    #[error(
        "the registry requires a login for {0}, which weigh does not support: pull it with a container engine, export a \
         container of it (`docker export`), and pass that archive to --image"
    )]
    Locked(String),
    /// A manifest cannot be parsed.
    #[error("the image's manifest cannot be parsed: {0}")]
    Manifest(String),
    /// The image is for other architectures.
    #[error("the image is not for this machine (linux/{here}), only for {platforms}", here = manifest::architecture())]
    OtherPlatform {
        /// The platforms that it is for.
        platforms: String,
    },
    /// The registry sent content with another digest.
    #[error(
        "the registry sent {found} instead of {expected}; try again, and do not trust the registry if that does not help"
    )]
    Digest {
        /// The requested digest.
        expected: String,
        /// The digest of the content that was sent.
        found: String,
    },
    /// An entry of a layer cannot be unpacked.
    #[error("the entry `{entry}` of a layer cannot be unpacked: {source}")]
    Entry {
        /// Its path.
        entry: String,
        /// The reason.
        source: io::Error,
    },
    /// It could not be put into the cache.
    #[error(transparent)]
    Make(#[from] MakeError),
    /// The system refused an operation on a file.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Pulls the image that a reference currently denotes, unless it is cached. Two concurrent pulls
/// download it once.
///
/// # Errors
/// [`PullError`]; then the cache has no new image.
pub fn pull(
    store: &Store,
    ledger: &Ledger,
    reference: &Reference,
    progress: &Progress<'_>,
) -> Result<CachedImage, PullError> {
    let mut registry = Registry::new(reference);
    let (mut bytes, mut digest) = registry.manifest(reference.version())?;
    if let Manifest::List(list) = Manifest::parse(&bytes)? {
        (bytes, digest) = registry.manifest(&manifest::choose(&list)?.digest)?;
    }
    let Manifest::Image { config, layers } = Manifest::parse(&bytes)? else {
        return Err(PullError::Manifest("it is a list inside a list".into()));
    };
    progress.report(&format!("manifest {digest}"));
    let identity = digest.trim_start_matches(SHA256);
    let entry = Store::entry("oci", identity);
    let name = format!("oci:{}", reference.pinned(&digest));
    store.make(&entry, ledger, progress, DEADLINE, |staging| {
        let summary = format!("{} layers", layers.len());
        fetch(&mut registry, &config, &layers, staging, progress)?;
        let tree = staging.join("tree");
        let mut record = Record::new(name, identity.into(), identity.into(), &tree)
            .map_err(FileError::of("look through", &tree))?;
        record.summary = summary;
        Ok::<(), PullError>(record.write(staging).map_err(FileError::of("write the record in", staging))?)
    })?;
    // The record already has the name with the digest.
    if reference.digest.is_none() {
        let named = store.name(&entry, &format!("oci:{reference}"));
        named.map_err(|error| MakeError::Cache(format!("cannot name the image: {error}")))?;
    }
    Ok(store.get(&entry).ok_or_else(|| MakeError::Cache(format!("{entry} was removed at once")))?)
}

/// Downloads the layers and stacks them.
fn fetch(
    registry: &mut Registry<'_>,
    config: &Descriptor,
    layers: &[Descriptor],
    staging: &Path,
    progress: &Progress<'_>,
) -> Result<(), PullError> {
    if layers.len() > MOST_LAYERS || config.size > registry::LONGEST_DOCUMENT {
        let text = format!(
            "it has {} layers and a configuration of {} bytes, of at most {MOST_LAYERS} and {}",
            layers.len(),
            config.size,
            registry::LONGEST_DOCUMENT
        );
        return Err(PullError::Manifest(text));
    }
    let blob = staging.join("blob");
    registry.blob(config, &blob, progress)?;
    let text = fs::read(&blob).map_err(FileError::of("read", &blob))?;
    // Artifacts that are not file systems have other configurations, without a platform.
    let platform: Platform = serde_json::from_slice(&text)
        .map_err(|error| PullError::Manifest(format!("its configuration: {error}")))?;
    if !platform.is_this_machine() {
        return Err(PullError::OtherPlatform {
            platforms: format!("{}/{}", platform.os, platform.architecture),
        });
    }
    let tree = staging.join("tree");
    fs::create_dir(&tree).map_err(FileError::of("make the directory", &tree))?;
    let root = Layers::new(&tree)?;
    for (at, layer) in layers.iter().enumerate() {
        progress.report(&format!(
            "layer {} of {}, {:.1} MiB",
            at + 1,
            layers.len(),
            layer.size as f64 / f64::from(1 << 20)
        ));
        if !layer.media_type.contains("tar") {
            return Err(PullError::Manifest(format!("its layer is of unknown kind `{}`", layer.media_type)));
        }
        registry.blob(layer, &blob, progress)?;
        root.add(&blob)?;
    }
    Ok(fs::remove_file(&blob).map_err(FileError::of("remove", &blob))?)
}

pub(crate) mod fuzz {
    use super::*;

    /// Stacks layers in an empty directory.
    ///
    /// # Errors
    /// A layer is refused.
    pub fn layers(layers: &[&Path], root: &Path) -> Result<(), PullError> {
        let unpacked = Layers::new(root)?;
        layers.iter().try_for_each(|layer| unpacked.add(layer))
    }

    /// Reads a manifest and chooses an image from a list.
    pub fn manifest(bytes: &[u8]) {
        if let Ok(Manifest::List(list)) = Manifest::parse(bytes) {
            let _ = manifest::choose(&list);
        }
    }
}

#[cfg(test)]
mod tests;
