//! The protocol between client and server.
//!
//! A client begins with a greeting that names the sizes, which the server sends back. A request
//! begins with its number; the response begins with the same bytes. Over UDP the greeting is a
//! datagram, and the server remembers it by sender.

use crate::options::{Options, UsageError};

/// Bytes of a greeting.
pub(in crate::kernels) const GREETING_BYTES: usize = 16;

/// The payload of the largest IPv4 datagram.
pub(in crate::kernels) const LARGEST_DATAGRAM: u64 = 65_507;

/// Bounds what a greeting can make the server allocate.
pub(in crate::kernels) const LARGEST_MESSAGE: u64 = 64 << 20;

const MAGIC: [u8; 8] = *b"wbecho 1";

/// Sizes of requests and responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::kernels) struct Shape {
    pub(in crate::kernels) request_bytes: u32,
    pub(in crate::kernels) response_bytes: u32,
}

impl Shape {
    /// The sizes of `--request-bytes` and `--response-bytes`, each from 1 to `largest`.
    pub(in crate::kernels) fn of(options: &Options, largest: u64) -> Result<Self, UsageError> {
        let bytes = |name| options.within(name, 1, largest, "large").map(|bytes| bytes as u32);
        Ok(Self { request_bytes: bytes("request-bytes")?, response_bytes: bytes("response-bytes")? })
    }

    pub(in crate::kernels) fn greeting(self) -> [u8; GREETING_BYTES] {
        let mut bytes = [0; GREETING_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.request_bytes.to_le_bytes());
        bytes[12..].copy_from_slice(&self.response_bytes.to_le_bytes());
        bytes
    }

    /// The sizes, if `message` is a greeting with valid sizes.
    pub(in crate::kernels) fn from_greeting(message: &[u8]) -> Option<Self> {
        let (magic, sizes) = message.split_first_chunk::<8>()?;
        let (request, response) = sizes.split_first_chunk::<4>()?;
        let shape = Self {
            request_bytes: u32::from_le_bytes(*request),
            response_bytes: u32::from_le_bytes(response.try_into().ok()?),
        };
        let allowed = 1..=LARGEST_MESSAGE as u32;
        let fits = allowed.contains(&shape.request_bytes) && allowed.contains(&shape.response_bytes);
        (*magic == MAGIC && fits).then_some(shape)
    }

    /// How many bytes at the beginning of a response must equal those of the request.
    fn echoed(self) -> usize {
        self.request_bytes.min(self.response_bytes).min(8) as usize
    }

    /// Writes the number of a request at its beginning, as far as it fits.
    pub(in crate::kernels) fn number(self, request: &mut [u8], number: u64) {
        let room = request.len().min(8);
        request[..room].copy_from_slice(&number.to_le_bytes()[..room]);
    }

    /// Copies the beginning of the request to the response.
    pub(in crate::kernels) fn answer(self, request: &[u8], response: &mut [u8]) {
        let echoed = self.echoed();
        response[..echoed].copy_from_slice(&request[..echoed]);
    }

    /// Whether `response` answers request `number`.
    pub(in crate::kernels) fn answers(self, response: &[u8], number: u64) -> bool {
        let echoed = self.echoed();
        response.len() == self.response_bytes as usize && response[..echoed] == number.to_le_bytes()[..echoed]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_greetings_are_accepted() {
        let shape = Shape { request_bytes: 100, response_bytes: 200 };
        let greeting = shape.greeting();
        assert_eq!(Shape::from_greeting(&greeting), Some(shape));
        assert_eq!(Shape::from_greeting(&greeting[..15]), None);
        assert_eq!(Shape::from_greeting(&[greeting.as_slice(), &[0]].concat()), None);
        assert_eq!(Shape::from_greeting(&Shape { request_bytes: 0, response_bytes: 1 }.greeting()), None);
        assert_eq!(
            Shape::from_greeting(&Shape { request_bytes: u32::MAX, response_bytes: 1 }.greeting()),
            None
        );
    }

    #[test]
    fn answers_are_distinguished() {
        let shape = Shape { request_bytes: 3, response_bytes: 9 };
        let (mut request, mut response) = ([0; 3], [0; 9]);
        shape.number(&mut request, 0x01_02_03_04);
        shape.answer(&request, &mut response);
        assert!(shape.answers(&response, 0x01_02_03_04));
        assert!(!shape.answers(&response, 0x01_02_03_05));
        assert!(!shape.answers(&response[..8], 0x01_02_03_04));
    }
}
