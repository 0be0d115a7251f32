//! Disk images in the qcow2 format, version 3: fully allocated ones, and overlays of a raw image.
//!
//! They are written here because `qemu-img` is a separate package, which many hosts with QEMU do
//! not have. Source of the format: QEMU, `docs/interop/qcow2.txt`. Numbers are big-endian.

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The defaults of `qemu-img`: clusters of 64 KiB, reference counts of 16 bits.
const CLUSTER: u64 = 1 << CLUSTER_BITS;
const CLUSTER_BITS: u32 = 16;
const REFCOUNT_ORDER: u32 = 4;
/// Clusters mapped by a second-level table.
const PER_TABLE: u64 = CLUSTER / 8;
/// Clusters counted by a reference count block.
const PER_BLOCK: u64 = CLUSTER / 2;
/// Flag of a cluster with one reference, which can be written in place.
const COPIED: u64 = 1 << 63;
/// Length of the header of version 3, bytes.
const HEADER: u32 = 104;
/// Type of the header extension that names the format of the backing file.
const BACKING_FORMAT: u32 = 0xe279_2aca;
/// The largest image that can be made, bytes: the reach of a reference count table of one cluster.
const LARGEST: u64 = (CLUSTER / 8) * PER_BLOCK * CLUSTER / 2;

/// The layout of an image, in clusters.
struct Layout {
    /// Length of the virtual disk, bytes.
    bytes: u64,
    /// Reference count blocks. Their table is the cluster after the header.
    refcount_blocks: u64,
    /// Clusters of the first-level table.
    first_level: u64,
    /// Second-level tables, a cluster each.
    second_level: u64,
    /// Clusters with the disk's content.
    data: u64,
}

impl Layout {
    /// `allocated` says whether all clusters of the content are allocated.
    fn new(bytes: u64, allocated: bool) -> io::Result<Self> {
        if bytes == 0 || bytes > LARGEST {
            let message = format!("a qcow2 image of {bytes} bytes cannot be made; the largest has {LARGEST}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let data = bytes.div_ceil(CLUSTER);
        let tables = data.div_ceil(PER_TABLE);
        let first_level = tables.div_ceil(PER_TABLE);
        let (second_level, data) = if allocated { (tables, data) } else { (0, 0) };
        let mut layout = Self { bytes, refcount_blocks: 1, first_level, second_level, data };
        // The blocks count their own clusters, too.
        while layout.refcount_blocks * PER_BLOCK < layout.clusters() {
            layout.refcount_blocks += 1;
        }
        Ok(layout)
    }

    fn first_level_at(&self) -> u64 {
        2 + self.refcount_blocks
    }

    fn second_level_at(&self) -> u64 {
        self.first_level_at() + self.first_level
    }

    fn data_at(&self) -> u64 {
        self.second_level_at() + self.second_level
    }

    fn clusters(&self) -> u64 {
        self.data_at() + self.data
    }

    /// Writes everything but the content.
    fn write(&self, file: &File, backing: Option<&Path>) -> io::Result<()> {
        file.set_len(self.clusters() * CLUSTER)?;
        file.write_all_at(&self.header(backing)?, 0)?;
        let list = |from: u64, count: u64, flag: u64| {
            let cluster = move |i: u64| (((from + i) * CLUSTER) | flag).to_be_bytes();
            (0..count).flat_map(cluster).collect::<Vec<u8>>()
        };
        file.write_all_at(&list(2, self.refcount_blocks, 0), CLUSTER)?;
        // Every cluster has one reference.
        let ones = 1u16.to_be_bytes().repeat(self.clusters() as usize);
        file.write_all_at(&ones, 2 * CLUSTER)?;
        let tables = list(self.second_level_at(), self.second_level, COPIED);
        file.write_all_at(&tables, self.first_level_at() * CLUSTER)?;
        let content = list(self.data_at(), self.data, COPIED);
        file.write_all_at(&content, self.second_level_at() * CLUSTER)
    }

    fn header(&self, backing: Option<&Path>) -> io::Result<Vec<u8>> {
        let mut extensions = Vec::new();
        let mut extension = |kind: u32, content: &[u8]| {
            extensions.extend(kind.to_be_bytes());
            extensions.extend((content.len() as u32).to_be_bytes());
            extensions.extend(content);
            extensions.resize(extensions.len().next_multiple_of(8), 0);
        };
        let name = backing.map_or(&b""[..], |path| path.as_os_str().as_bytes());
        if backing.is_some() {
            extension(BACKING_FORMAT, b"raw");
        }
        // The end of the header extensions.
        extension(0, b"");
        // The limit of the format.
        if name.len() > 1023 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the path of the backing file is too long",
            ));
        }
        let name_at = if name.is_empty() { 0 } else { u64::from(HEADER) + extensions.len() as u64 };
        let entries = self.bytes.div_ceil(CLUSTER).div_ceil(PER_TABLE);
        let mut header = b"QFI\xfb".to_vec();
        header.extend(3u32.to_be_bytes()); // version
        header.extend(name_at.to_be_bytes());
        header.extend((name.len() as u32).to_be_bytes());
        header.extend(CLUSTER_BITS.to_be_bytes());
        header.extend(self.bytes.to_be_bytes());
        // Not encrypted.
        header.extend(0u32.to_be_bytes());
        header.extend((entries as u32).to_be_bytes());
        header.extend((self.first_level_at() * CLUSTER).to_be_bytes());
        // The reference count table: the second cluster, one cluster long.
        header.extend(CLUSTER.to_be_bytes());
        header.extend(1u32.to_be_bytes());
        // No snapshots, and none of the three kinds of features.
        header.extend([0; 4 + 8 + 3 * 8]);
        header.extend(REFCOUNT_ORDER.to_be_bytes());
        header.extend(HEADER.to_be_bytes());
        debug_assert_eq!(header.len(), HEADER as usize);
        header.extend(extensions);
        header.extend(name);
        Ok(header)
    }
}

/// Makes a fully allocated image of a zeroed disk of `bytes`. Returns the offset in the file at
/// which the content of the disk begins; it is contiguous.
///
/// # Errors
/// It cannot be written, or the length is 0 or exceeds the largest that can be made.
pub fn allocated(file: &File, bytes: u64) -> io::Result<u64> {
    let layout = Layout::new(bytes, true)?;
    layout.write(file, None)?;
    Ok(layout.data_at() * CLUSTER)
}

/// Makes an empty overlay of a raw image of `bytes`, which is never written to.
///
/// # Errors
/// It cannot be written, the path exists, the length is 0 or exceeds the largest that can be made,
/// or the path of the raw image is too long.
pub fn overlay(path: &Path, backing: &Path, bytes: u64) -> io::Result<()> {
    let backing = std::path::absolute(backing)?;
    let layout = Layout::new(bytes, false)?;
    layout.write(&File::create_new(path)?, Some(&backing))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn number(bytes: &[u8], at: usize) -> u64 {
        u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap())
    }

    /// Reads a disk back by the format's own rules.
    fn read(image: &[u8]) -> Vec<u8> {
        let bytes = number(image, 24) as usize;
        let cluster_of = |at: usize| -> usize {
            let first = number(image, 40) as usize + at / (CLUSTER * PER_TABLE) as usize * 8;
            let table = (number(image, first) & !COPIED) as usize;
            let entry = table + at / CLUSTER as usize % PER_TABLE as usize * 8;
            (number(image, entry) & !COPIED) as usize
        };
        let pieces = (0..bytes).step_by(CLUSTER as usize);
        let content = pieces.flat_map(|at| image[cluster_of(at)..][..CLUSTER as usize].to_vec());
        content.take(bytes).collect()
    }

    #[test]
    fn content_of_an_allocated_image_is_on_its_disk() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("disk.qcow2");
        let bytes = 5 * CLUSTER + 512;
        let file = File::create_new(&path).unwrap();
        let at = allocated(&file, bytes).unwrap();
        let content: Vec<u8> = (0..bytes).map(|i| (i / 512 % 251) as u8).collect();
        file.write_all_at(&content, at).unwrap();
        assert_eq!(read(&std::fs::read(&path).unwrap()), content);
    }

    #[test]
    fn an_overlay_is_small_and_names_its_backing_file() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("top.qcow2");
        overlay(&path, Path::new("/a/root.ext4"), 3 << 30).unwrap();
        let image = std::fs::read(&path).unwrap();
        let (at, length) = (number(&image, 8) as usize, number(&image, 16) >> 32);
        assert_eq!(&image[at..at + length as usize], b"/a/root.ext4");
        assert_eq!(number(&image, 24), 3 << 30);
        assert!(path.metadata().unwrap().blocks() * 512 < 1 << 20);
        let error = overlay(&path, Path::new("/a"), 1 << 30).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    }

    /// Every cluster of the file is counted once, whatever the length.
    #[test]
    fn counts_reach_to_the_end_of_the_file() {
        for bytes in [1, CLUSTER, 1 << 30, 5 << 30, 40 << 30, LARGEST] {
            let layout = Layout::new(bytes, true).unwrap();
            assert!(layout.refcount_blocks * PER_BLOCK >= layout.clusters(), "{bytes}");
            assert!(layout.refcount_blocks * 8 <= CLUSTER, "{bytes}");
            assert!((layout.refcount_blocks - 1) * PER_BLOCK < layout.clusters(), "{bytes}");
        }
        assert!(Layout::new(0, true).is_err() && Layout::new(LARGEST + 1, true).is_err());
    }

    /// `qemu-img` checks the format, if it is installed.
    #[test]
    fn qemu_img_finds_nothing_wrong() {
        use weigh_host::command::{Invocation, find_program};
        if find_program("qemu-img").is_none() {
            eprintln!("SKIPPED qemu_img_finds_nothing_wrong: qemu-img is not installed");
            return;
        }
        let base = tempfile::tempdir().unwrap();
        let [raw, whole, top] = ["raw", "whole", "top"].map(|name| base.path().join(name));
        std::fs::write(&raw, vec![7; 3 << 20]).unwrap();
        // This needs more than one second-level table.
        let at = allocated(&File::create_new(&whole).unwrap(), 600 << 20).unwrap();
        assert!(at < 1 << 20);
        overlay(&top, &raw, 3 << 20).unwrap();
        for image in [&whole, &top] {
            Invocation::new("qemu-img").args(["check", "-f", "qcow2"]).arg(image).run_ok().unwrap();
        }
        let compare = Invocation::new("qemu-img").args(["compare", "-f", "qcow2", "-F", "raw"]);
        compare.arg(&top).arg(&raw).run_ok().unwrap();
    }
}
