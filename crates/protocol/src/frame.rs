//! Frames: a mark, a length, a check sum and a payload.
//!
//! ```text
//! offset  0      4         8         12
//!         mark   length    crc32     payload
//!         4 B    u32 LE    u32 LE    length bytes
//! ```
//!
//! A serial console also carries messages of the kernel. The decoder therefore searches for the
//! mark, accepts a frame only if its check sum is right, and returns the bytes between frames.
//!
//! A peer may send endless headers, each of which claims a payload that holds the next headers. The
//! number of bytes that the decoder reads for wrong check sums is therefore bounded by what it
//! received.

use alloc::vec::Vec;
use serde::{Serialize, de::DeserializeOwned};

/// Largest payload, bytes. Files and output are split into much smaller pieces.
pub const MAX_PAYLOAD: usize = 1 << 20;

/// Bytes that may be read for wrong check sums beyond the bytes that were received. A damaged frame
/// is read once, so damage alone never comes near this bound.
const MISREAD_ALLOWANCE: u64 = 2 * MAX_PAYLOAD as u64;

/// Not valid UTF-8, so that no text contains it.
const MARK: [u8; 4] = [0xF5, b'W', b'B', 0xFE];
const HEADER: usize = 12;
/// Memory that an empty decoder keeps, bytes: the memory of the probe is measured with its guest.
const IDLE_CAPACITY: usize = 16 << 10;

/// Why a frame cannot be encoded or decoded.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The message does not fit a frame.
    #[error("a message of {0} bytes does not fit a frame")]
    TooLong(usize),
    /// The check sum is right, but the content is not a message: the peer has another version.
    #[error("a frame holds no message of this version; host and probe were built from different sources")]
    NotAMessage,
    /// Most of the received bytes look like frames and are not.
    #[error("what comes is full of frames with wrong check sums")]
    Rubbish,
}

/// Appends a message to `out` as a frame.
///
/// # Errors
/// [`FrameError::TooLong`] when the message exceeds [`MAX_PAYLOAD`].
pub fn encode<M: Serialize>(message: &M, out: &mut Vec<u8>) -> Result<(), FrameError> {
    let payload = postcard::to_allocvec(message).map_err(|_| FrameError::NotAMessage)?;
    if payload.len() > MAX_PAYLOAD {
        return Err(FrameError::TooLong(payload.len()));
    }
    out.extend_from_slice(&MARK);
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(&crc32fast::hash(&payload).to_le_bytes());
    out.extend_from_slice(&payload);
    Ok(())
}

/// Decodes messages from bytes that arrive in arbitrary pieces.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    start: usize,
    noise: Vec<u8>,
    /// Bytes received, and bytes read for wrong check sums.
    received: u64,
    misread: u64,
}

impl Decoder {
    /// An empty decoder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 && self.start >= self.buffer.len() / 2 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        if self.buffer.is_empty() && bytes.len() < IDLE_CAPACITY {
            self.buffer.shrink_to(IDLE_CAPACITY);
        }
        self.buffer.extend_from_slice(bytes);
        self.received += bytes.len() as u64;
    }

    /// Bytes that were received and belong to no message yet.
    pub fn pending(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// The next complete message, or `None` until more bytes arrive.
    ///
    /// # Errors
    /// [`FrameError::NotAMessage`] if a valid frame contains something else,
    /// [`FrameError::Rubbish`] if the peer sends false frames on purpose.
    pub fn next_message<M: DeserializeOwned>(&mut self) -> Result<Option<M>, FrameError> {
        loop {
            let bytes = &self.buffer[self.start..];
            let Some(at) = find_mark(bytes) else {
                // Keep a tail that may be the beginning of a mark.
                let keep = partial_mark(bytes);
                let noise_end = self.buffer.len() - keep;
                self.noise.extend_from_slice(&self.buffer[self.start..noise_end]);
                self.start = noise_end;
                return Ok(None);
            };
            self.noise.extend_from_slice(&bytes[..at]);
            self.start += at;
            let bytes = &self.buffer[self.start..];
            if bytes.len() < HEADER {
                return Ok(None);
            }
            let word = |i: usize| u32::from_le_bytes([bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]]);
            let (length, sum) = (word(4) as usize, word(8));
            if length > MAX_PAYLOAD {
                self.skip_false_mark();
                continue;
            }
            if bytes.len() < HEADER + length {
                return Ok(None);
            }
            let payload = &bytes[HEADER..HEADER + length];
            if crc32fast::hash(payload) != sum {
                self.misread += length as u64;
                if self.misread > self.received + MISREAD_ALLOWANCE {
                    return Err(FrameError::Rubbish);
                }
                self.skip_false_mark();
                continue;
            }
            let message = postcard::from_bytes(payload).map_err(|_| FrameError::NotAMessage);
            self.start += HEADER + length;
            return message.map(Some);
        }
    }

    /// The bytes between frames so far: messages of the console.
    pub fn take_noise(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.noise)
    }

    fn skip_false_mark(&mut self) {
        self.noise.push(self.buffer[self.start]);
        self.start += 1;
    }
}

fn find_mark(bytes: &[u8]) -> Option<usize> {
    bytes.windows(MARK.len()).position(|window| window == MARK)
}

fn partial_mark(bytes: &[u8]) -> usize {
    (1..MARK.len()).rev().find(|n| bytes.ends_with(&MARK[..*n])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Reply, Request, Stream};
    use alloc::vec;
    use proptest::prelude::*;

    #[test]
    fn a_damaged_frame_is_noise_and_the_next_is_read() {
        let mut bytes = Vec::new();
        encode(&Request::Clock { id: 1 }, &mut bytes).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 0xFF;
        encode(&Request::Clock { id: 2 }, &mut bytes).unwrap();
        let mut decoder = Decoder::new();
        decoder.push(&bytes);
        assert_eq!(decoder.next_message(), Ok(Some(Request::Clock { id: 2 })));
        assert!(!decoder.take_noise().is_empty());
    }

    /// Every header claims a payload of 64 KiB, which holds thousands of further headers: 4 MiB of
    /// them would be read as 20 GiB if each were read to its end.
    #[test]
    #[cfg_attr(miri, ignore = "Miri takes hours for 4 MiB of headers")]
    fn overlapping_false_frames_are_given_up() {
        let mut header = MARK.to_vec();
        header.extend_from_slice(&(64u32 << 10).to_le_bytes());
        header.extend_from_slice(&[0; 4]);
        let garbage = header.repeat((4 << 20) / HEADER);
        let mut decoder = Decoder::new();
        let mut received = 0;
        let error = garbage.chunks(16 << 10).find_map(|piece| {
            decoder.push(piece);
            received += piece.len();
            loop {
                match decoder.next_message::<Request>() {
                    Ok(Some(_)) => {}
                    Ok(None) => return None,
                    Err(error) => return Some(error),
                }
            }
        });
        assert_eq!(error, Some(FrameError::Rubbish));
        assert!(decoder.misread <= received as u64 + 3 * MAX_PAYLOAD as u64, "{}", decoder.misread);
    }

    /// Damage of one frame in two is not a reason to give up.
    #[test]
    #[cfg_attr(miri, ignore = "Miri takes hours for 26 MB of frames")]
    fn damage_alone_is_no_rubbish() {
        let (mut decoder, mut seen) = (Decoder::new(), 0);
        for id in 0..400u32 {
            let mut bytes = Vec::new();
            encode(&Reply::File { id, bytes: vec![7; 64 << 10] }, &mut bytes).unwrap();
            if id % 2 == 0 {
                bytes[1000] ^= 1;
            }
            decoder.push(&bytes);
            while let Some(Reply::File { .. }) = decoder.next_message().unwrap() {
                seen += 1;
            }
        }
        assert_eq!(seen, 200);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri takes more than a quarter of an hour for a MiB")]
    fn too_long_is_refused() {
        let message = Reply::File { id: 1, bytes: vec![0; MAX_PAYLOAD + 1] };
        assert!(matches!(encode(&message, &mut Vec::new()), Err(FrameError::TooLong(_))));
    }

    proptest! {
        #[test]
        fn any_split_and_any_noise_gives_the_same_messages(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 1..8),
            noise in "[ -~\n]{0,40}",
            cut in 1usize..64,
        ) {
            let messages: Vec<Reply> = payloads.into_iter().enumerate()
                .map(|(i, bytes)| Reply::Output { id: i as u32, stream: Stream::Error, bytes }).collect();
            let mut bytes = Vec::new();
            for message in &messages {
                bytes.extend_from_slice(noise.as_bytes());
                encode(message, &mut bytes).unwrap();
            }
            let mut decoder = Decoder::new();
            let mut seen: Vec<Reply> = Vec::new();
            for piece in bytes.chunks(cut) {
                decoder.push(piece);
                while let Some(message) = decoder.next_message().unwrap() {
                    seen.push(message);
                }
            }
            prop_assert_eq!(seen, messages.clone());
            prop_assert_eq!(decoder.take_noise(), noise.repeat(messages.len()).into_bytes());
        }
    }
}
