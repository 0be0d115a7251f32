//! Texts that a build script packed.

use liblzma::read::XzDecoder;
use std::collections::BTreeMap;
use std::io::Read as _;

/// Unpacks texts by the names of their files. Build scripts of this workspace pack them: each name
/// and each text is followed by a zero byte, and all are compressed by xz.
///
/// # Panics
/// If `packed` was not made by such a build script.
pub fn unpack(packed: &[u8]) -> BTreeMap<String, String> {
    let mut texts = String::new();
    XzDecoder::new(packed).read_to_string(&mut texts).expect("a build script packed text");
    let mut parts = texts.split_terminator('\0').map(String::from);
    std::iter::from_fn(|| parts.next().zip(parts.next())).collect()
}
