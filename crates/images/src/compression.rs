//! Reading files that may be compressed.

use flate2::read::MultiGzDecoder;
use liblzma::read::XzDecoder;
use liblzma::stream::{CONCATENATED, Stream};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::Path;

/// First bytes of each format (RFC 1952, the .xz file format, RFC 8878).
const GZIP: &[u8] = b"\x1f\x8b";
const XZ: &[u8] = b"\xfd7zXZ\0";
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";
/// The number of bytes that tell the formats apart.
const MAGIC: u64 = 6;
/// Largest window of zstd, as a power of two: that of `zstd --ultra`.
const ZSTD_WINDOW: u32 = 27;
/// Memory that unpacking xz may take, bytes: four times what `xz -9` needs.
pub(crate) const XZ_MEMORY: u64 = 256 << 20;
/// The number of bytes read at once.
const BUFFER: usize = 1 << 17;

/// Opens a file for reading, decompressed if it is in gzip, xz or zstd format.
pub(crate) fn open(path: &Path) -> io::Result<Box<dyn Read>> {
    let mut file = File::open(path)?;
    let mut magic = Vec::new();
    (&file).take(MAGIC).read_to_end(&mut magic)?;
    file.rewind()?;
    let file = BufReader::with_capacity(BUFFER, file);
    if magic.starts_with(GZIP) {
        Ok(Box::new(MultiGzDecoder::new(file)))
    } else if magic.starts_with(XZ) {
        let stream = Stream::new_stream_decoder(XZ_MEMORY, CONCATENATED)?;
        Ok(Box::new(XzDecoder::new_stream(file, stream)))
    } else if magic.starts_with(ZSTD) {
        let mut decoder = zstd::Decoder::with_buffer(file)?;
        decoder.window_log_max(ZSTD_WINDOW)?;
        Ok(Box::new(decoder))
    } else {
        Ok(Box::new(file))
    }
}
