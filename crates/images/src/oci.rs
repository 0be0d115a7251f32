//! Images of registries: `oci:REF`.
//!
//! An image is pulled once, by `weigh image build`, and kept under the digest of its manifest; runs
//! never ask a registry. Every byte is checked against the digest that leads to it, from the
//! manifest down, before it is looked at.

mod layers;
mod manifest;
mod reference;
mod registry;

pub use reference::{Reference, ReferenceError};

use crate::making::{KeepError, Watch, refused};
use crate::store::{Kept, Record, Store};
use layers::Layers;
use manifest::{Descriptor, Manifest, Platform};
use reference::SHA256;
use registry::Registry;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;
use weigh_host::ledger::Ledger;

/// How long a pull waits for another of the same image.
const DEADLINE: Duration = Duration::from_secs(60 * 60);

/// Why an image cannot be pulled.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// The registry cannot be reached.
    #[error(
        "the registry {registry} cannot be asked: {source}; look at its name, and whether this host reaches it"
    )]
    Transport {
        /// Its host.
        registry: String,
        /// Why not.
        source: Box<ureq::Error>,
    },
    /// The connection broke.
    #[error("{digest} did not come whole: {source}; try again")]
    Interrupted {
        /// What was being fetched.
        digest: String,
        /// Why.
        source: io::Error,
    },
    /// The registry answers with an error.
    #[error("{address} gives status {status}")]
    Status {
        /// What was asked for.
        address: String,
        /// HTTP status code.
        status: u16,
    },
    /// There is no such image.
    #[error("the registry has no {0}; look at its name and its tag")]
    NotThere(String),
    /// The image is not for everybody.
    #[error(
        "the registry gives {0} only to those who log in, which weigh cannot do: save it with a container engine, and give the \
         archive of its files (`docker export`) as the image"
    )]
    Locked(String),
    /// A manifest cannot be understood.
    #[error("the image's manifest cannot be read: {0}")]
    Manifest(String),
    /// The image is for other machines.
    #[error("the image is not for this machine (linux/{here}), only for {there}", here = manifest::architecture())]
    OtherPlatform {
        /// What it is for.
        there: String,
    },
    /// The registry gives something else than was asked for.
    #[error(
        "the registry gives something else than was asked for: {found} instead of {expected}; try again, and do not trust the registry if that stays so"
    )]
    Digest {
        /// Asked for.
        expected: String,
        /// Given.
        found: String,
    },
    /// An entry of a layer cannot be unpacked.
    #[error("the entry `{entry}` of a layer cannot be unpacked: {source}")]
    Entry {
        /// Its path.
        entry: String,
        /// Why not.
        source: io::Error,
    },
    /// It could not be kept.
    #[error(transparent)]
    Keep(#[from] KeepError),
}

impl PullError {
    fn io<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Self + 'a {
        refused(doing, path)
    }
}

/// Pulls an image unless the one that the reference now means is there. Two pulls at once are one.
///
/// # Errors
/// [`PullError`]; then there is no new image.
pub fn pull(
    store: &Store,
    ledger: &Ledger,
    reference: &Reference,
    watch: &Watch<'_>,
) -> Result<Kept, PullError> {
    let mut registry = Registry::new(reference);
    let (mut bytes, mut digest) = registry.manifest(reference.version())?;
    if let Manifest::List(list) = Manifest::parse(&bytes)? {
        (bytes, digest) = registry.manifest(&manifest::choose(&list)?.digest)?;
    }
    let Manifest::Image { config, layers } = Manifest::parse(&bytes)? else {
        return Err(PullError::Manifest("it is a list in a list".into()));
    };
    watch.say(&format!("manifest {digest}"));
    let identity = digest.trim_start_matches(SHA256);
    let entry = Store::entry("oci", identity);
    let name = format!("oci:{}", reference.pinned(&digest));
    store.make(&entry, ledger, watch, DEADLINE, |staging| {
        let summary = format!("{} layers", layers.len());
        fetch(&mut registry, &config, &layers, staging, watch)?;
        let tree = staging.join("tree");
        let mut record = Record::new(name, identity.into(), identity.into(), &tree)
            .map_err(PullError::io("look through", &tree))?;
        record.summary = summary;
        record.write(staging).map_err(PullError::io("write the record in", staging))
    })?;
    // A digest is a name of its own, which the record has.
    if reference.digest.is_none() {
        let named = store.name(&entry, &format!("oci:{reference}"));
        named.map_err(|error| KeepError::Cache(format!("cannot name the image: {error}")))?;
    }
    Ok(store.get(&entry).ok_or_else(|| KeepError::Cache(format!("{entry} was removed at once")))?)
}

/// Fetches the layers and puts one over the other.
fn fetch(
    registry: &mut Registry<'_>,
    config: &Descriptor,
    layers: &[Descriptor],
    staging: &Path,
    watch: &Watch<'_>,
) -> Result<(), PullError> {
    let blob = staging.join("blob");
    registry.blob(config, &blob, watch)?;
    let text = fs::read(&blob).map_err(PullError::io("read", &blob))?;
    // Images that are no systems of files have configurations of other kinds, which say no
    // platform.
    let platform: Platform = serde_json::from_slice(&text)
        .map_err(|error| PullError::Manifest(format!("its configuration: {error}")))?;
    if !platform.is_here() {
        return Err(PullError::OtherPlatform { there: format!("{}/{}", platform.os, platform.architecture) });
    }
    let tree = staging.join("tree");
    fs::create_dir(&tree).map_err(PullError::io("make the directory", &tree))?;
    let root = Layers::new(&tree)?;
    for (at, layer) in layers.iter().enumerate() {
        watch.say(&format!(
            "layer {} of {}, {:.1} MiB",
            at + 1,
            layers.len(),
            layer.size as f64 / f64::from(1 << 20)
        ));
        if !layer.media_type.contains("tar") {
            return Err(PullError::Manifest(format!(
                "its layer is of the unknown kind `{}`",
                layer.media_type
            )));
        }
        registry.blob(layer, &blob, watch)?;
        root.add(&blob)?;
    }
    fs::remove_file(&blob).map_err(PullError::io("remove", &blob))
}

#[cfg(test)]
mod tests;
