//! Manifests: the layers of an image, or a list of images for several platforms (OCI image
//! specification 1.1).

use super::PullError;
use super::reference::is_digest;
use serde::Deserialize;

/// The supported media types, for the header `Accept`.
pub(super) const ACCEPTED: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json";

/// A blob of a registry.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    /// The type of its content.
    #[serde(default)]
    pub(super) media_type: String,
    /// `sha256:` and 64 digits.
    pub(super) digest: String,
    /// Its size, bytes.
    pub(super) size: u64,
    /// The platform of an image in a list.
    pub(super) platform: Option<Platform>,
}

/// The platform of an image.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Platform {
    pub(super) architecture: String,
    pub(super) os: String,
}

impl Platform {
    /// Whether this machine can run it.
    pub(super) fn is_this_machine(&self) -> bool {
        self.os == "linux" && self.architecture == architecture()
    }
}

/// The machine's architecture as images name it, which is Go's `GOARCH`.
pub(super) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The content of a manifest.
#[derive(Debug)]
pub(super) enum Manifest {
    /// Images for several platforms.
    List(Vec<Descriptor>),
    /// One image: its configuration, and its layers from the lowest up.
    Image { config: Descriptor, layers: Vec<Descriptor> },
}

/// The fields of both kinds of manifest; those that are present tell which kind it is.
#[derive(Deserialize)]
struct Raw {
    manifests: Option<Vec<Descriptor>>,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
}

impl Manifest {
    /// Parses a manifest.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, PullError> {
        let raw: Raw =
            serde_json::from_slice(bytes).map_err(|error| PullError::Manifest(error.to_string()))?;
        let manifest = match raw {
            Raw { manifests: Some(list), .. } => Self::List(list),
            Raw { config: Some(config), layers: Some(layers), .. } => Self::Image { config, layers },
            _ => return Err(PullError::Manifest("it lists neither layers nor images".into())),
        };
        // Digests become parts of file names and URLs.
        if let Some(bad) = manifest.descriptors().find(|descriptor| !is_digest(&descriptor.digest)) {
            return Err(PullError::Manifest(format!("`{}` is not a digest", bad.digest)));
        }
        Ok(manifest)
    }

    fn descriptors(&self) -> impl Iterator<Item = &Descriptor> {
        let (list, config) = match self {
            Self::List(list) => (list, None),
            Self::Image { config, layers } => (layers, Some(config)),
        };
        list.iter().chain(config)
    }
}

/// Chooses the image in a list that is for this machine.
pub(super) fn choose(list: &[Descriptor]) -> Result<&Descriptor, PullError> {
    let is_for_us =
        |descriptor: &&Descriptor| descriptor.platform.as_ref().is_some_and(Platform::is_this_machine);
    list.iter().find(is_for_us).ok_or_else(|| {
        let platforms = list.iter().filter_map(|descriptor| descriptor.platform.as_ref());
        let mut names: Vec<String> =
            platforms.map(|platform| format!("{}/{}", platform.os, platform.architecture)).collect();
        names.sort();
        names.dedup();
        PullError::OtherPlatform { platforms: names.join(", ") }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(platforms: &[(&str, &str)]) -> Manifest {
        let one = |(at, (os, architecture)): (usize, &(&str, &str))| {
            let digest = format!("sha256:{:064x}", at);
            serde_json::json!({"mediaType": "m", "digest": digest, "size": 1, "platform": {"os": os, "architecture": architecture}})
        };
        let list: Vec<_> = platforms.iter().enumerate().map(one).collect();
        Manifest::parse(serde_json::json!({"schemaVersion": 2, "manifests": list}).to_string().as_bytes())
            .unwrap()
    }

    #[test]
    fn a_list_gives_the_image_for_this_machine() {
        let Manifest::List(both) =
            list(&[("windows", architecture()), ("linux", "s390x"), ("linux", architecture())])
        else {
            panic!("a list")
        };
        assert!(choose(&both).unwrap().digest.ends_with("02"));
        let Manifest::List(other) = list(&[("linux", "s390x"), ("windows", "amd64")]) else {
            panic!("a list")
        };
        assert!(choose(&other).unwrap_err().to_string().contains("linux/s390x, windows/amd64"));
    }

    #[test]
    fn other_documents_are_errors() {
        for text in ["", "{}", r#"{"layers":[]}"#, r#"{"manifests":[{"digest":"sha256:../../x","size":1}]}"#]
        {
            assert!(matches!(Manifest::parse(text.as_bytes()), Err(PullError::Manifest(_))), "{text}");
        }
    }
}
