//! Decompressing a kernel image.
//!
//! A `bzImage` is a loader that contains the compressed kernel; its setup header has the offset and
//! length (`Documentation/arch/x86/boot.rst`, `payload_offset` and `payload_length`, protocol
//! 2.08). Booting an uncompressed kernel saves a machine without acceleration much of a second.

use super::KernelError;
use crate::FileError;
use crate::compression::XZ_MEMORY;
use std::io::{self, Read};
use std::path::Path;

/// Largest kernel or module that is decompressed, bytes; a larger one is damaged.
const LARGEST: u64 = 1 << 30;
/// Size of a decompressed block of the legacy LZ4 format, which the kernel uses, bytes
/// (`lib/decompress_unlz4.c`).
const LZ4_BLOCK: usize = 8 << 20;

/// First bytes of the supported formats.
const FORMATS: [(&[u8], Format); 4] = [
    (b"\x1f\x8b", Format::Gzip),
    (b"\xfd7zXZ\0", Format::Xz),
    (b"\x28\xb5\x2f\xfd", Format::Zstd),
    (b"\x02\x21\x4c\x18", Format::Lz4),
];

#[derive(Clone, Copy)]
enum Format {
    Gzip,
    Xz,
    Zstd,
    Lz4,
}

/// The kernel proper of an image, an ELF file. `None` if the image is not a `bzImage` or its
/// compression is not supported; then it is booted unchanged.
///
/// # Errors
/// The image is damaged.
pub(super) fn uncompressed(image: &[u8], path: &Path) -> Result<Option<Vec<u8>>, KernelError> {
    let Some(payload) = payload(image) else { return Ok(None) };
    if !FORMATS.iter().any(|(mark, _)| payload.starts_with(mark)) {
        return Ok(None);
    }
    let kernel = decompress(payload, path)?;
    Ok(kernel.starts_with(b"\x7fELF").then_some(kernel))
}

/// The release of a `bzImage`, as `uname -r` prints it.
pub(super) fn release(image: &[u8]) -> Option<String> {
    let at = 0x200 + usize::from(u16::from_le_bytes(setup(image)?.get(0x20E..0x210)?.try_into().ok()?));
    let text: Vec<u8> = image.get(at..)?.iter().copied().take_while(|byte| *byte > b' ').collect();
    String::from_utf8(text).ok().filter(|text| !text.is_empty())
}

/// The release in an uncompressed kernel, taken from its version message.
pub(super) fn release_of_elf(kernel: &[u8]) -> Option<String> {
    const BANNER: &[u8] = b"Linux version ";
    let at = kernel.windows(BANNER.len()).enumerate().find_map(|(at, window)| {
        let next = *kernel.get(at + BANNER.len())?;
        (window == BANNER && next.is_ascii_digit()).then_some(at + BANNER.len())
    })?;
    let text: Vec<u8> = kernel[at..].iter().copied().take_while(|byte| *byte > b' ').collect();
    String::from_utf8(text).ok()
}

/// The image, if it has a setup header that is new enough to locate the payload.
fn setup(image: &[u8]) -> Option<&[u8]> {
    let version = u16::from_le_bytes(image.get(0x206..0x208)?.try_into().ok()?);
    (image.get(0x202..0x206)? == b"HdrS" && version >= 0x208).then_some(image)
}

fn payload(image: &[u8]) -> Option<&[u8]> {
    let image = setup(image)?;
    let number = |at: usize| Some(u32::from_le_bytes(image.get(at..at + 4)?.try_into().ok()?) as usize);
    // For compatibility, 0 sectors of setup code mean 4.
    let sectors = match image[0x1F1] {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let start = (sectors + 1) * 512 + number(0x248)?;
    image.get(start..start.checked_add(number(0x24C)?)?)
}

/// Decompresses gzip, xz, zstd or legacy lz4 data; trailing bytes are ignored.
///
/// # Errors
/// The data is damaged or in another format. The error names `path`.
pub(crate) fn decompress(packed: &[u8], path: &Path) -> Result<Vec<u8>, KernelError> {
    let format = FORMATS.iter().find(|(mark, _)| packed.starts_with(mark)).map(|(_, format)| *format);
    let mut unpacked = Vec::new();
    let read = |reader: &mut dyn Read, into: &mut Vec<u8>| reader.take(LARGEST).read_to_end(into);
    match format {
        Some(Format::Gzip) => read(&mut flate2::bufread::GzDecoder::new(packed), &mut unpacked),
        Some(Format::Xz) => {
            liblzma::stream::Stream::new_stream_decoder(XZ_MEMORY, 0).map_err(io::Error::from).and_then(
                |stream| read(&mut liblzma::bufread::XzDecoder::new_stream(packed, stream), &mut unpacked),
            )
        }
        Some(Format::Zstd) => zstd::stream::read::Decoder::with_buffer(packed)
            .and_then(|decoder| read(&mut decoder.single_frame(), &mut unpacked)),
        Some(Format::Lz4) => lz4(packed, &mut unpacked),
        None => Err(io::Error::new(io::ErrorKind::InvalidData, "its compression is not supported")),
    }
    .map_err(FileError::of("unpack", path))?;
    Ok(unpacked)
}

/// Decompresses a magic number followed by blocks, each after its compressed length. The kernel's
/// build appends the decompressed length, 4 bytes; a number that cannot be the length of a block
/// ends the blocks.
fn lz4(packed: &[u8], unpacked: &mut Vec<u8>) -> io::Result<usize> {
    let mut rest = &packed[4..];
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        if unpacked.len() as u64 > LARGEST {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too long for a kernel"));
        }
        let length = u32::from_le_bytes(*length) as usize;
        let Some(block) = after.get(..length).filter(|block| !block.is_empty()) else { break };
        let start = unpacked.len();
        unpacked.resize(start + LZ4_BLOCK, 0);
        let n = lz4_flex::block::decompress_into(block, &mut unpacked[start..])
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        unpacked.truncate(start + n);
        rest = &after[length..];
    }
    if unpacked.is_empty() || rest.len() > 4 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it ends early"));
    }
    Ok(unpacked.len())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::io::Write;

    /// A `bzImage` with this payload, which cannot run.
    pub(crate) fn image(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 2048];
        image[0x1F1] = 2;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x206..0x208].copy_from_slice(&0x20Fu16.to_le_bytes());
        image[0x20E..0x210].copy_from_slice(&0x300u16.to_le_bytes());
        image[0x500..0x510].copy_from_slice(b"6.1.0-9-cloud (x");
        image[0x248..0x24C].copy_from_slice(&512u32.to_le_bytes());
        image[0x24C..0x250].copy_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
        image.extend_from_slice(payload);
        image
    }

    fn kernel() -> Vec<u8> {
        let mut kernel = b"\x7fELF".to_vec();
        kernel.extend((0..20_000_000u32).map(|n| (n / 1000) as u8));
        kernel.extend_from_slice(b"Linux version %s\0Linux version 6.1.0-9-cloud (gcc)");
        kernel
    }

    fn appended(mut packed: Vec<u8>, kernel: &[u8]) -> Vec<u8> {
        packed.extend_from_slice(&u32::try_from(kernel.len()).unwrap().to_le_bytes());
        packed
    }

    #[test]
    fn every_format_of_the_kernels_build() {
        let kernel = kernel();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&kernel).unwrap();
        let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 0);
        xz.write_all(&kernel).unwrap();
        let mut lz4 = b"\x02\x21\x4c\x18".to_vec();
        for block in kernel.chunks(LZ4_BLOCK) {
            let block = lz4_flex::block::compress(block);
            lz4.extend_from_slice(&u32::try_from(block.len()).unwrap().to_le_bytes());
            lz4.extend_from_slice(&block);
        }
        for packed in [
            gzip.finish().unwrap(),
            appended(xz.finish().unwrap(), &kernel),
            appended(zstd::encode_all(&kernel[..], 1).unwrap(), &kernel),
            appended(lz4, &kernel),
        ] {
            let image = image(&packed);
            assert!(uncompressed(&image, Path::new("k")).unwrap().unwrap() == kernel);
            assert_eq!(release(&image).as_deref(), Some("6.1.0-9-cloud"));
        }
        assert_eq!(release_of_elf(&kernel).as_deref(), Some("6.1.0-9-cloud"));
    }

    #[test]
    fn unknown_formats_are_ignored_and_damage_is_an_error() {
        assert_eq!(uncompressed(b"MZ", Path::new("k")).unwrap(), None);
        assert_eq!(uncompressed(&image(b"BZh91AY"), Path::new("k")).unwrap(), None);
        let error = uncompressed(&image(b"\x28\xb5\x2f\xfdrubbish"), Path::new("/boot/k")).unwrap_err();
        assert!(error.to_string().contains("/boot/k"), "{error}");
        assert!(uncompressed(&image(b"\x02\x21\x4c\x18"), Path::new("k")).is_err());
        let whole = image(b"\x1f\x8b");
        for length in 0..whole.len() {
            let _ = uncompressed(&whole[..length], Path::new("k"));
            let _ = release(&whole[..length]);
        }
    }
}
