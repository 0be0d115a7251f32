//! An image as one archive, for engines and registries that take images instead of directories: an
//! image layout (OCI image specification 1.1, "Image Layout").

use super::manifest::architecture;
use super::registry::digest_of;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::io::{self, Write};

/// Media types of the parts.
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// A layer: it writes itself as a tar archive, with the same bytes every time.
pub type Layer<'a> = &'a dyn Fn(&mut dyn Write) -> io::Result<()>;

/// Writes an image of these layers, the lowest first, as an image layout. `name` is the full name
/// that the image gets, with a tag. Every layer is written twice: for its digest, and to `output`.
///
/// # Errors
/// A layer cannot be read, or `output` cannot be written.
pub fn write_layout(layers: &[Layer<'_>], name: &str, output: &mut dyn Write) -> io::Result<()> {
    let described =
        layers.iter().map(|layer| Descriptor::of_layer(*layer)).collect::<io::Result<Vec<_>>>()?;
    // Layers are not compressed, so their digests are also those of their content.
    let digests: Vec<&str> = described.iter().map(|layer| layer.digest.as_str()).collect();
    let config = json!({
        "architecture": architecture(),
        "os": "linux",
        "config": { "Cmd": [crate::PROBE] },
        "rootfs": { "type": "layers", "diff_ids": digests },
    });
    let (config_descriptor, config) = Descriptor::of_json(CONFIG, &config);
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config_descriptor.json(),
        "layers": described.iter().map(Descriptor::json).collect::<Vec<_>>(),
    });
    let (manifest_descriptor, manifest) = Descriptor::of_json(MANIFEST, &manifest);
    let mut entry = manifest_descriptor.json();
    let tag = name.rsplit_once(':').map_or("latest", |(_, tag)| tag);
    // containerd takes the full name from its own annotation; the standard annotation has only the
    // tag.
    entry["annotations"] =
        json!({ "io.containerd.image.name": name, "org.opencontainers.image.ref.name": tag });
    let index = json!({ "schemaVersion": 2, "manifests": [entry] }).to_string();
    let version = json!({ "imageLayoutVersion": "1.0.0" }).to_string();
    let mut archive = tar::Builder::new(output);
    append(&mut archive, "oci-layout", version.len() as u64, &|out| out.write_all(version.as_bytes()))?;
    for (layer, descriptor) in layers.iter().zip(&described) {
        append(&mut archive, &descriptor.path(), descriptor.size, *layer)?;
    }
    for (descriptor, bytes) in [(&config_descriptor, &config), (&manifest_descriptor, &manifest)] {
        append(&mut archive, &descriptor.path(), descriptor.size, &|out| out.write_all(bytes))?;
    }
    append(&mut archive, "index.json", index.len() as u64, &|out| out.write_all(index.as_bytes()))?;
    archive.into_inner()?.flush()
}

/// A part of an image, identified by its digest.
struct Descriptor {
    media_type: &'static str,
    digest: String,
    size: u64,
}

impl Descriptor {
    fn of_layer(layer: Layer<'_>) -> io::Result<Self> {
        let mut counted = Counted { hash: Sha256::new(), bytes: 0 };
        layer(&mut counted)?;
        Ok(Self { media_type: LAYER, digest: digest_of(counted.hash), size: counted.bytes })
    }

    fn of_json(media_type: &'static str, content: &Value) -> (Self, Vec<u8>) {
        let bytes = content.to_string().into_bytes();
        let descriptor =
            Self { media_type, digest: digest_of(Sha256::new_with_prefix(&bytes)), size: bytes.len() as u64 };
        (descriptor, bytes)
    }

    fn json(&self) -> Value {
        json!({ "mediaType": self.media_type, "digest": self.digest, "size": self.size })
    }

    /// Its path in the layout.
    fn path(&self) -> String {
        format!("blobs/{}", self.digest.replace(':', "/"))
    }
}

/// A writer that computes the digest and the length of its input.
struct Counted {
    hash: Sha256,
    bytes: u64,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Appends a file of a known size, whose content `content` writes.
fn append(
    archive: &mut tar::Builder<&mut dyn Write>,
    name: &str,
    size: u64,
    content: Layer<'_>,
) -> io::Result<()> {
    const BLOCK: u64 = 512;
    let mut header = tar::Header::new_gnu();
    header.set_path(name)?;
    header.set_size(size);
    header.set_mode(0o644);
    header.set_cksum();
    let output = archive.get_mut();
    output.write_all(header.as_bytes())?;
    content(output)?;
    let padding = size.next_multiple_of(BLOCK) - size;
    output.write_all(&[0; BLOCK as usize][..padding as usize])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::io::Read;

    #[test]
    fn every_part_is_found_by_its_digest() {
        let lower: Layer<'_> = &|out| out.write_all(b"the lower layer");
        let upper: Layer<'_> = &|out| out.write_all(&[7; 1024]);
        let mut bytes = Vec::new();
        write_layout(&[lower, upper], "localhost/weighbridge/root:abc", &mut bytes).unwrap();
        let mut files = BTreeMap::new();
        for entry in tar::Archive::new(&bytes[..]).entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            files.insert(entry.path().unwrap().display().to_string(), content);
        }
        let json = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
        let part = |descriptor: &Value| {
            let (name, size) = (descriptor["digest"].as_str().unwrap(), descriptor["size"].as_u64().unwrap());
            let content = &files[&format!("blobs/{}", name.replace(':', "/"))];
            assert_eq!(digest_of(Sha256::new_with_prefix(content)), name);
            assert_eq!(content.len() as u64, size);
            content.clone()
        };
        let index = json(&files["index.json"]);
        let entry = &index["manifests"][0];
        assert_eq!(entry["annotations"]["org.opencontainers.image.ref.name"], "abc");
        let manifest = json(&part(entry));
        assert_eq!(part(&manifest["layers"][0]), b"the lower layer");
        assert_eq!(part(&manifest["layers"][1]), [7; 1024]);
        let config = json(&part(&manifest["config"]));
        assert_eq!(config["rootfs"]["diff_ids"][1], manifest["layers"][1]["digest"]);
        assert_eq!(files.len(), 6, "the version, the index, four parts");
    }
}
